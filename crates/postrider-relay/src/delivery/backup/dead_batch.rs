//! The backup-file record of a buffer's batch.

use chrono::{DateTime, Utc};
use postrider_store::{Batch, BatchEntry};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A batch whose counts could be neither saved nor returned to the buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadBatch {
    /// Name of its buffer.
    pub buffer: String,
    /// Id of the batch. The database has it recorded as dead; an import saves it under this id.
    pub batch: Uuid,
    /// When the record was written, on this machine's clock.
    pub written_at: DateTime<Utc>,
    /// Why the batch could not be saved.
    pub error: String,
    /// Fields and values, as Redis had them.
    pub fields: Vec<(RawText, RawText)>,
}

impl DeadBatch {
    /// Converts the record into a batch that can be saved.
    ///
    /// # Errors
    /// Names the first entry that is not a count.
    pub fn batch(&self) -> Result<Batch, String> {
        let entry = |(field, value): &(RawText, RawText)| match (field, value) {
            (RawText::Text(field), RawText::Text(value)) => match value.parse() {
                Ok(count) if count >= 0 => Ok(BatchEntry { field: field.clone(), count }),
                _ => Err(format!("field `{field}` has `{value}`, which is not a count")),
            },
            (field, _) => Err(format!("field {field:?} is not text that a database can hold")),
        };
        let entries = self.fields.iter().map(entry).collect::<Result<_, String>>()?;
        Ok(Batch::new(&self.buffer, self.batch, entries))
    }
}

/// Bytes from Redis: as text if they are valid UTF-8, otherwise in hexadecimal, so that no byte is
/// lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RawText {
    /// Valid UTF-8.
    Text(String),
    /// Anything else.
    Hex {
        /// Two hexadecimal digits per byte.
        hex: String,
    },
}

impl From<&[u8]> for RawText {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex { hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_of_text_become_a_batch_and_no_byte_is_lost() {
        let batch = |field: &[u8], value: &[u8]| DeadBatch {
            buffer: "likes".to_owned(),
            batch: Uuid::nil(),
            written_at: Utc::now(),
            error: String::new(),
            fields: vec![(field.into(), value.into())],
        };
        assert_eq!(batch(b"a", b"7").batch().unwrap().entries()[0].count, 7);
        assert!(batch(b"a", b"-7").batch().unwrap_err().contains("-7"));
        assert!(batch(b"\xffa", b"7").batch().unwrap_err().contains("ff61"));
        let odd = batch(b"\xff", b"x");
        let text = serde_json::to_string(&odd).unwrap();
        assert_eq!(serde_json::from_str::<DeadBatch>(&text).unwrap(), odd);
    }
}
