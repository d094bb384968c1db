//! What a batch from Redis says: any program can write its fields, so they may be anything.

use postrider::buffer::MovedBatch;
use postrider_store::BatchEntry;

/// Returns the valid entries of a batch, and its invalid fields: not text, or not a non-negative
/// integer.
pub(super) fn entries(batch: &MovedBatch) -> (Vec<BatchEntry>, Vec<(&[u8], String)>) {
    let (mut entries, mut refused) = (Vec::new(), Vec::new());
    for (field, value) in &batch.fields {
        match entry(field, value) {
            Ok(entry) => entries.push(entry),
            Err(reason) => refused.push((field.as_slice(), reason)),
        }
    }
    (entries, refused)
}

fn entry(field: &[u8], value: &[u8]) -> Result<BatchEntry, String> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let name = text(field).filter(|name| !name.contains('\0'));
    let name = name.ok_or("the field is not text that a database can hold")?;
    let shown = String::from_utf8_lossy(value);
    let count: i64 = text(value)
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("`{shown}` is not a 64-bit integer"))?;
    if count < 0 {
        return Err(format!("the count {shown} is negative"));
    }
    Ok(BatchEntry { field: name.to_owned(), count })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_no_count_is_told_apart() {
        let fields: [(&[u8], &[u8]); 6] = [
            (b"a", b"3"),
            (b"b", b"-1"),
            (b"c", b"1.5"),
            (b"d", b"9223372036854775808"),
            (b"\xff", b"1"),
            (b"f", b"9223372036854775807"),
        ];
        let fields = fields.map(|(field, value)| (field.to_vec(), value.to_vec())).to_vec();
        let batch = MovedBatch { id: Uuid::nil(), fields, confirmed: true };
        let (entries, refused) = entries(&batch);
        let entry = |field: &str, count| BatchEntry { field: field.to_owned(), count };
        assert_eq!(entries, [entry("a", 3), entry("f", i64::MAX)]);
        let refused: Vec<&[u8]> = refused.into_iter().map(|(field, _)| field).collect();
        assert_eq!(refused, [b"b", b"c", b"d", b"\xff" as &[u8]]);
    }
}
