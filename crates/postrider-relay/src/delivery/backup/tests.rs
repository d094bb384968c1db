//! Tests with lines that were torn, changed or forged.

use postrider_store::DeadReason;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::fuzz;

fn entries() -> impl Strategy<Value = ImportEntry> {
    let texts = (fuzz::text(), fuzz::text(), fuzz::text(), fuzz::payload(), fuzz::text());
    let options = (option::of(fuzz::text()), fuzz::headers(), option::of(fuzz::text()));
    let numbers = (0..4_i64, any::<i32>(), option::of(any::<i32>()), any::<i32>());
    let reason = select(DeadReason::ALL.to_vec());
    (texts, options, numbers, reason, 0..4_000_000_000_000_000_i64).prop_map(
        |(texts, options, numbers, reason, at_us)| {
            let at = DateTime::from_timestamp_micros(at_us).unwrap_or_default();
            let (event_id, aggregate_type, aggregate_id, payload, event_type) = texts;
            let (request_id, headers, error_detail) = options;
            let (original_id, retry_count, max_retries, redrive_count) = numbers;
            ImportEntry {
                original_id,
                error_message: event_type.clone(),
                content_hash: request_id.clone(),
                expires_at: max_retries.map(|_| at),
                failed_at: at,
                created_at: at,
                event_id,
                request_id,
                aggregate_type,
                aggregate_id,
                event_type,
                payload,
                headers,
                reason,
                error_detail,
                retry_count,
                max_retries,
                redrive_count,
            }
        },
    )
}

fn records() -> impl Strategy<Value = Record> {
    let outbox = || "[ab]";
    let dead = (outbox(), entries()).prop_map(|(outbox, event)| Record::Dead {
        outbox,
        written_at: DateTime::UNIX_EPOCH,
        event: Box::new(event),
    });
    let event_id = option::of(fuzz::text());
    let closed = (outbox(), 0..4_i64, event_id).prop_map(|(outbox, original_id, event_id)| {
        Record::Closed { outbox, written_at: DateTime::UNIX_EPOCH, original_id, event_id }
    });
    let bytes = || vec(any::<u8>(), 0..5).prop_map(|bytes| RawText::from(bytes.as_slice()));
    let fields = vec((bytes(), bytes()), 0..3);
    let batch = (any::<u128>(), fuzz::text(), fields).prop_map(|(id, error, fields)| {
        Record::Batch(DeadBatch {
            buffer: "likes".to_owned(),
            batch: uuid::Uuid::from_u128(id),
            written_at: DateTime::UNIX_EPOCH,
            error,
            fields,
        })
    });
    prop_oneof![4 => dead, 1 => closed, 1 => batch]
}

proptest! {
    /// A record is read back as it was written.
    #[test]
    fn fuzz_backup_files(record in records()) {
        let line = line(&record).unwrap();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(parse(line.as_bytes()), Ok(record));
    }

    /// A damaged line is reported by its number and never read as something else. The lines around
    /// it are read unchanged.
    #[test]
    fn fuzz_backup_files_that_are_damaged(
        records in vec(records(), 1..5),
        at in any::<Index>(),
        edits in vec(fuzz::edit(), 1..4),
        torn in any::<bool>(),
    ) {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for record in &records {
            lines.push(line(record).unwrap().into_bytes());
        }
        let at = at.index(lines.len());
        edits.iter().for_each(|edit| edit.apply(&mut lines[at]));
        let mut file = lines.join(&b'\n');
        if !torn {
            file.push(b'\n');
        }
        let (mut files, mut expected) = (BackupFiles::default(), BackupFiles::default());
        let damaged = files.add(&file[..]).unwrap();
        expected.files = 1;
        let mut number = 0;
        for (index, record) in records.into_iter().enumerate() {
            if index == at {
                // Damage may split a line, and may leave its content intact.
                let parts = lines[at].split(|byte| *byte == b'\n').filter(|part| !part.is_empty());
                for part in parts {
                    let sound = parse(part).ok();
                    prop_assert!(sound.as_ref().is_none_or(|read| *read == record));
                    let is_named = damaged.iter().any(|(line, why)| {
                        !why.is_empty() && *line > at
                    });
                    prop_assert!(sound.is_some() || is_named, "{:?}", damaged);
                    sound.into_iter().for_each(|read| expected.take(read, number));
                    number += 1;
                }
            } else {
                expected.take(record, number);
                number += 1;
            }
        }
        let (found, expected) = (files.contents(), expected.contents());
        prop_assert_eq!(found.open, expected.open);
        prop_assert_eq!(found.closed, expected.closed);
        prop_assert_eq!(found.batches, expected.batches);
    }

    /// A record with a forged checksum is read as a whole record, or not at all.
    #[test]
    fn fuzz_backup_files_that_are_forged(record in records(), edits in vec(fuzz::edit(), 1..4)) {
        let mut bytes = serde_json::to_vec(&record).unwrap();
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        let forged = String::from_utf8_lossy(&bytes);
        let forged = format!("{{\"sha256\":\"{}\",\"record\":{forged}}}", sha256(&forged));
        if let Ok(read) = parse(forged.as_bytes()) {
            prop_assert_eq!(parse(line(&read).unwrap().as_bytes()), Ok(read));
        }
    }
}
