//! The backup file: records are read back as written, and changes are detected.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use postrider_relay::delivery::backup::{Backup, BackupFiles, Contents, Record, read};
use postrider_store::{DeadReason, ImportEntry};
use postrider_testkit::TempFolder;
use proptest::prelude::*;

const ROOMY: u64 = 1 << 30;

fn entry(id: i64) -> ImportEntry {
    let at = DateTime::UNIX_EPOCH + chrono::Duration::milliseconds(1_750_000_000_123);
    ImportEntry {
        original_id: id,
        event_id: uuid::Uuid::from_u128(id.unsigned_abs().into()).to_string(),
        request_id: Some(format!("request-{id}")),
        aggregate_type: "order".to_owned(),
        aggregate_id: "Zürich/7".to_owned(),
        event_type: "OrderPlaced".to_owned(),
        payload: "{\"a\": \"line\\nbreak\"}\n".to_owned(),
        headers: Some("{\"k\":\"v\"}".to_owned()),
        content_hash: None,
        reason: DeadReason::Exhausted,
        error_message: "timeout".to_owned(),
        error_detail: None,
        failed_at: at,
        retry_count: 3,
        max_retries: None,
        redrive_count: 0,
        created_at: at,
        expires_at: Some(at),
    }
}

fn dead(event: ImportEntry) -> Record {
    let written_at = event.failed_at;
    Record::Dead { outbox: "orders".to_owned(), written_at, event: Box::new(event) }
}

fn closed(outbox: &str, original_id: i64) -> Record {
    let event_id = Some(entry(original_id).event_id);
    Record::Closed { outbox: outbox.to_owned(), written_at: Utc::now(), original_id, event_id }
}

/// A closed line as written by versions that did not record the identity.
fn closed_by_id(original_id: i64) -> Record {
    let written_at = Utc::now();
    Record::Closed { outbox: "orders".to_owned(), written_at, original_id, event_id: None }
}

fn open_ids(contents: &Contents) -> Vec<i64> {
    contents.open.iter().map(|(_, event)| event.original_id).collect()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|found| found.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_is_written_comes_back_and_only_the_owner_can_read_it() {
    let folder = TempFolder::new();
    let inside = folder.path().join("data/dead-letters");
    let backup = Backup::new(&inside, ROOMY);
    assert!(!inside.exists(), "nothing is made before it is needed");
    backup.append(&[dead(entry(1)), dead(entry(2))]).unwrap();
    backup.append(&[dead(entry(3))]).unwrap();
    let contents = read(&backup.path()).unwrap();
    let expected: Vec<_> = (1..=3).map(|id| ("orders".to_owned(), entry(id))).collect();
    assert_eq!(contents.open, expected);
    assert_eq!((contents.closed, contents.damaged), (0, Vec::new()));
    assert_eq!((mode(&inside), mode(&backup.path())), (0o700, 0o600));
}

#[test]
fn closed_events_are_left_out_by_outbox_and_id() {
    let folder = TempFolder::new();
    let backup = Backup::new(folder.path(), ROOMY);
    backup.append(&[dead(entry(1)), dead(entry(2)), dead(entry(3))]).unwrap();
    backup.append(&[closed("orders", 2), closed("others", 3), closed("orders", 99)]).unwrap();
    let contents = read(&backup.path()).unwrap();
    assert_eq!((open_ids(&contents), contents.closed), (vec![1, 3], 1));
}

/// After a restore of the database, a row id or even the whole event may die again: an earlier
/// closed line does not apply to it.
#[test]
fn a_closed_line_closes_only_what_comes_before_it() {
    for closing in [closed("orders", 1), closed_by_id(1)] {
        let folder = TempFolder::new();
        let backup = Backup::new(folder.path(), ROOMY);
        backup.append(&[closing.clone(), dead(entry(1)), dead(entry(2))]).unwrap();
        assert_eq!(open_ids(&read(&backup.path()).unwrap()), [1, 2], "{closing:?}");
        backup.append(std::slice::from_ref(&closing)).unwrap();
        let contents = read(&backup.path()).unwrap();
        assert_eq!((open_ids(&contents), contents.closed), (vec![2], 1), "{closing:?}");
        backup.append(&[dead(entry(1))]).unwrap();
        assert_eq!(open_ids(&read(&backup.path()).unwrap()), [1, 2], "it died again");
    }
}

/// Another event had the same row id, before the database was restored.
#[test]
fn a_closed_line_closes_only_its_own_event() {
    let folder = TempFolder::new();
    let backup = Backup::new(folder.path(), ROOMY);
    let other = ImportEntry { event_id: entry(9).event_id, ..entry(1) };
    backup.append(&[dead(entry(1)), dead(other.clone()), closed("orders", 1)]).unwrap();
    let contents = read(&backup.path()).unwrap();
    assert_eq!(contents.open, [("orders".to_owned(), other)]);
    assert_eq!(contents.closed, 1);
}

/// A row that one relay marked is moved by whichever relay leads; the closed line is in that
/// relay's file.
#[test]
fn files_that_are_read_together_close_each_others_events() {
    let folders = [TempFolder::new(), TempFolder::new()];
    let [a, b] = folders.each_ref().map(|folder| Backup::new(folder.path(), ROOMY));
    a.append(&[dead(entry(1)), dead(entry(2)), dead(entry(3))]).unwrap();
    let long_ago = Record::Closed {
        outbox: "orders".to_owned(),
        written_at: DateTime::UNIX_EPOCH,
        original_id: 3,
        event_id: Some(entry(3).event_id),
    };
    b.append(&[closed("orders", 1), closed_by_id(2), long_ago]).unwrap();
    for order in [[&a, &b], [&b, &a]] {
        let mut files = BackupFiles::default();
        for backup in order {
            let file = std::fs::File::open(backup.path()).unwrap();
            assert!(files.add(std::io::BufReader::new(file)).unwrap().is_empty());
        }
        let contents = files.contents();
        assert_eq!((open_ids(&contents), contents.closed), (vec![3], 2));
    }
}

/// A crash in the middle of a line loses only that line, which did not count yet.
#[test]
fn a_torn_last_line_harms_no_other() {
    let folder = TempFolder::new();
    let backup = Backup::new(folder.path(), ROOMY);
    backup.append(&[dead(entry(1))]).unwrap();
    let whole = std::fs::read(backup.path()).unwrap();
    for cut in [1, whole.len() / 2, whole.len() - 1] {
        let mut file = std::fs::OpenOptions::new().append(true).open(backup.path()).unwrap();
        file.write_all(&whole[..cut]).unwrap();
        backup.append(&[dead(entry(2))]).unwrap();
        let contents = read(&backup.path()).unwrap();
        let last = contents.open.last().unwrap();
        assert_eq!(last.1.original_id, 2, "cut at {cut}");
    }
    let contents = read(&backup.path()).unwrap();
    // A line that lacks only its line end is complete. The others repeat the same two events.
    assert_eq!((open_ids(&contents), contents.damaged.len()), (vec![1, 2], 2));
}

#[test]
fn every_changed_byte_is_noticed() {
    let folder = TempFolder::new();
    let backup = Backup::new(folder.path(), ROOMY);
    backup.append(&[dead(entry(1)), dead(entry(2))]).unwrap();
    let whole = std::fs::read(backup.path()).unwrap();
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
    let changed = folder.path().join("changed");
    for at in 0..first_line {
        let mut bytes = whole.clone();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        std::fs::write(&changed, &bytes).unwrap();
        let contents = read(&changed).unwrap();
        let damaged: Vec<_> = contents.damaged.iter().map(|(line, _)| *line).collect();
        assert_eq!(damaged, [1], "byte {at}");
        assert_eq!(contents.open, [("orders".to_owned(), entry(2))], "the other line is read");
    }
}

#[test]
fn a_full_file_is_moved_aside() {
    let folder = TempFolder::new();
    let backup = Backup::new(folder.path(), 1_000);
    for id in 1..=10 {
        backup.append(&[dead(entry(id))]).unwrap();
    }
    let found = files(folder.path());
    assert!(found.len() > 2, "{found:?}");
    let mut ids = Vec::new();
    for file in &found {
        assert_eq!(mode(file), 0o600);
        let bytes = std::fs::metadata(file).unwrap().len();
        assert!(bytes < 1_000 + 800, "{bytes}: one record over the limit at most");
        ids.extend(read(file).unwrap().open.iter().map(|(_, event)| event.original_id));
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>(), "rotation loses nothing");
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let folder = TempFolder::new();
    let file = folder.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let backup = Backup::new(file.join("inside"), ROOMY);
    assert!(backup.append(&[dead(entry(1))]).is_err());
}

#[test]
fn lines_of_several_writers_do_not_mix() {
    let folder = TempFolder::new();
    let backup = Backup::new(folder.path(), ROOMY);
    std::thread::scope(|scope| {
        for writer in 0..4_i64 {
            let backup = &backup;
            scope.spawn(move || {
                for number in 0..10 {
                    backup.append(&[dead(entry(writer * 10 + number))]).unwrap();
                }
            });
        }
    });
    let contents = read(&backup.path()).unwrap();
    assert_eq!((contents.open.len(), contents.damaged.len()), (40, 0));
}

prop_compose! {
    fn any_entry()(
        original_id in any::<i64>(),
        texts in proptest::collection::vec(any::<String>(), 6),
        options in proptest::collection::vec(proptest::option::of(any::<String>()), 4),
        reason in proptest::sample::select(DeadReason::ALL.to_vec()),
        numbers in (any::<i32>(), proptest::option::of(any::<i32>()), any::<i32>()),
        at_us in 0..4_000_000_000_000_000_i64,
    ) -> ImportEntry {
        let [mut texts, mut options] = [texts.into_iter().map(Some).collect::<Vec<_>>(), options];
        let mut text = || texts.pop().flatten().unwrap_or_default();
        let mut option = || options.pop().flatten();
        let at = DateTime::from_timestamp_micros(at_us).unwrap();
        ImportEntry {
            original_id,
            event_id: text(),
            request_id: option(),
            aggregate_type: text(),
            aggregate_id: text(),
            event_type: text(),
            payload: text(),
            headers: option(),
            content_hash: option(),
            reason,
            error_message: text(),
            error_detail: option(),
            failed_at: at,
            retry_count: numbers.0,
            max_retries: numbers.1,
            redrive_count: numbers.2,
            created_at: at,
            expires_at: numbers.1.map(|_| at),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    })]

    #[test]
    fn events_of_any_text_come_back(entries in proptest::collection::vec(any_entry(), 1..5)) {
        let folder = TempFolder::new();
        let backup = Backup::new(folder.path(), ROOMY);
        let records: Vec<_> = entries.iter().cloned().map(dead).collect();
        backup.append(&records).unwrap();
        let contents = read(&backup.path()).unwrap();
        prop_assert!(contents.damaged.is_empty());
        let back: Vec<_> = contents.open.into_iter().map(|(_, event)| event).collect();
        let mut expected = entries;
        expected.sort_by_key(|entry| entry.original_id);
        prop_assert_eq!(back, expected, "in the order of row ids");
    }
}
