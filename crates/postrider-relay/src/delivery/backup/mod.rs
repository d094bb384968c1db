//! The backup file, the second stage of the safety net: an append-only file of JSON lines.
//!
//! Every line carries a SHA-256 of its content, and counts only once it is on disk (fsync). A
//! `dead` line has everything needed to restore the event; a `closed` line says that the
//! dead-letter table has the event by now. A `batch` line has the counts of a buffer's batch.
//!
//! A closed line may be in a different file from its dead line, because any relay may move a marked
//! row. An import therefore asks the store, which is authoritative; closed lines only save the
//! query.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use chrono::{DateTime, Utc};
use postrider_store::ImportEntry;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

mod dead_batch;

pub use dead_batch::{DeadBatch, RawText};

const FILE_NAME: &str = "dead-letters.jsonl";

/// One line of the backup file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// An event that could not be written to the dead-letter table.
    Dead {
        /// Name of its outbox.
        outbox: String,
        /// When the line was written, on this machine's clock.
        written_at: DateTime<Utc>,
        /// The event. Boxed, because it is far larger than the other variants.
        event: Box<ImportEntry>,
    },
    /// An event that has since been written to the dead-letter table.
    Closed {
        /// Name of its outbox.
        outbox: String,
        /// When the line was written, on this machine's clock.
        written_at: DateTime<Utc>,
        /// Row id in the outbox.
        original_id: i64,
        /// Identity of the event; absent in older files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event_id: Option<String>,
    },
    /// A batch of a buffer whose counts could not be saved anywhere else.
    Batch(DeadBatch),
}

#[derive(Serialize, Deserialize)]
struct Line {
    sha256: String,
    record: Box<serde_json::value::RawValue>,
}

/// The backup file of one relay.
#[derive(Debug)]
pub struct Backup {
    folder: PathBuf,
    bytes_max: u64,
    /// Allows one writer at a time, so that lines do not interleave.
    writing: Mutex<()>,
}

impl Backup {
    /// Creates a backup in `folder`. Nothing is written until the first append.
    pub fn new(folder: impl Into<PathBuf>, bytes_max: u64) -> Self {
        Self { folder: folder.into(), bytes_max, writing: Mutex::new(()) }
    }

    /// Returns the path of the file that is written to.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Appends records and waits until they are on disk. Blocks the thread.
    ///
    /// # Errors
    /// If the folder or file cannot be written, or the fsync fails.
    pub fn append(&self, records: &[Record]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut text = String::new();
        for record in records {
            text.push_str(&line(record)?);
            text.push('\n');
        }
        let mut file = self.open()?;
        // A crash in the middle of a line leaves no line end; the next record starts a new line.
        if ends_within_a_line(&mut file)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Opens the file for appending. A file that reached its maximum size is renamed first.
    fn open(&self) -> io::Result<File> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
            builder.mode(0o700);
            options.mode(0o600);
        }
        builder.create(&self.folder)?;
        let path = self.path();
        let found = std::fs::symlink_metadata(&path).ok();
        // Through a symbolic link, payloads would be appended to a file that someone else chose.
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            let what = format!("`{}` is not a regular file; remove it", path.display());
            return Err(io::Error::other(what));
        }
        if found.is_some_and(|found| found.len() >= self.bytes_max) {
            let now = Utc::now().format("%Y%m%dT%H%M%S%.6f");
            std::fs::rename(&path, self.folder.join(format!("dead-letters-{now}.jsonl")))?;
        }
        let created = !path.exists();
        let file = options.open(&path)?;
        #[cfg(unix)]
        keep_private(&file);
        if created {
            // The directory entry must survive a crash as well.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(file)
    }
}

/// Restricts the file's mode to its owner, because it contains payloads. If that fails, it only
/// warns: saving the event matters more than the mode of the file.
#[cfg(unix)]
fn keep_private(file: &File) {
    use std::os::unix::fs::PermissionsExt;
    let shared = |found: &std::fs::Metadata| found.permissions().mode() & 0o077 != 0;
    if file.metadata().is_ok_and(|found| shared(&found))
        && let Err(error) = file.set_permissions(std::fs::Permissions::from_mode(0o600))
    {
        tracing::warn!(%error, "others can read the backup file; set its mode to 0600");
    }
}

/// Checks that the backup folder cannot be replaced or written by every user. A folder that does
/// not exist yet passes: it will be created with mode 0700.
///
/// # Errors
/// If it is a symbolic link, or every user can write to it.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    // Removes a trailing slash, which would make the metadata call follow a symbolic link.
    let folder: PathBuf = folder.components().collect();
    let Ok(found) = std::fs::symlink_metadata(&folder) else { return Ok(()) };
    if found.is_symlink() {
        return Err(io::Error::other("is a symbolic link; name the folder that it leads to"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o002 != 0 {
            let what = format!("can be written by every user (mode {mode:04o}); `chmod o-w` it");
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}

/// Checks that a backup in `folder` can be written, without leaving anything behind: a folder that
/// does not exist yet is created and removed again.
///
/// # Errors
/// If a file cannot be created or written there, or the existing backup file cannot be appended to.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let file = folder.join(FILE_NAME);
    if file.exists() {
        OpenOptions::new().append(true).open(&file)?;
    }
    let missing = folder.ancestors().take_while(|ancestor| !ancestor.exists());
    let missing: Vec<&Path> = missing.filter(|ancestor| !ancestor.as_os_str().is_empty()).collect();
    let probe = folder.join(format!(".postrider-probe-{}", std::process::id()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&probe, b"can this be written?"));
    // On a full disk the write fails but leaves an empty file behind.
    let removed = std::fs::remove_file(&probe);
    for made in missing {
        // A folder that is no longer empty stays.
        drop(std::fs::remove_dir(made));
    }
    written.and(removed)
}

fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Writes one record to a file or stream of the caller's. It is durable only once the caller has
/// flushed it.
///
/// # Errors
/// If it cannot be written.
pub fn write(out: &mut dyn Write, record: &Record) -> io::Result<()> {
    writeln!(out, "{}", line(record)?)
}

fn line(record: &Record) -> io::Result<String> {
    let text = serde_json::to_string(record)?;
    let line =
        Line { sha256: sha256(&text), record: serde_json::value::RawValue::from_string(text)? };
    Ok(serde_json::to_string(&line)?)
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The contents of one or more backup files.
#[derive(Debug, Default)]
pub struct Contents {
    /// Events that are not closed, with the name of their outbox, ordered by outbox and row id:
    /// retrying them in this order keeps the order of each key.
    pub open: Vec<(String, ImportEntry)>,
    /// Number of events that are closed.
    pub closed: usize,
    /// Batches of buffers, each once, in the order in which they were written.
    pub batches: Vec<DeadBatch>,
    /// Lines that failed verification: line number and reason.
    pub damaged: Vec<(usize, String)>,
}

/// Reads a backup file and verifies every line. A damaged line does not prevent the others from
/// being read.
///
/// # Errors
/// If the file cannot be read at all.
pub fn read(path: &Path) -> io::Result<Contents> {
    read_from(io::BufReader::new(File::open(path)?))
}

/// Same as [`read`], from a stream.
///
/// # Errors
/// If the stream ends with an error.
pub fn read_from(reader: impl BufRead) -> io::Result<Contents> {
    let mut files = BackupFiles::default();
    let damaged = files.add(reader)?;
    Ok(Contents { damaged, ..files.contents() })
}

/// Lists the backup files in a folder, sorted by name.
///
/// # Errors
/// If the folder cannot be read.
pub fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for found in std::fs::read_dir(folder)? {
        let path = found?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Backup files that are read together: a closed line in one file closes the event in all of them.
#[derive(Debug, Default)]
pub struct BackupFiles {
    files: usize,
    /// Dead lines, with their position.
    dead: Vec<(String, Permit, ImportEntry)>,
    /// Closed lines, by outbox and row id.
    closings: HashMap<(String, i64), Vec<Closing>>,
    batches: Vec<DeadBatch>,
}

/// Where and when a line was written.
#[derive(Debug, Clone, Copy)]
struct Permit {
    file: usize,
    line: usize,
    written_at: DateTime<Utc>,
}

impl Permit {
    /// Returns whether this line was written before another. Within a file the line numbers decide,
    /// between files the clocks of the machines. Where these clocks are wrong, the store decides at
    /// import.
    fn is_before(&self, other: &Self) -> bool {
        match self.file == other.file {
            true => self.line < other.line,
            false => self.written_at <= other.written_at,
        }
    }
}

#[derive(Debug)]
struct Closing {
    place: Permit,
    event_id: Option<String>,
}

impl Closing {
    /// Returns whether this line closes that event: it is about the same event and was written
    /// later. After a restore of the database, a row id or a whole event may occur again.
    fn closes(&self, place: &Permit, event: &ImportEntry) -> bool {
        let same = |id: &String| id.eq_ignore_ascii_case(&event.event_id);
        self.event_id.as_ref().is_none_or(same) && place.is_before(&self.place)
    }
}

impl BackupFiles {
    /// Reads one more file. Returns the lines that failed verification: line number and reason.
    ///
    /// # Errors
    /// If the stream ends with an error.
    pub fn add(&mut self, reader: impl BufRead) -> io::Result<Vec<(usize, String)>> {
        self.files += 1;
        let mut damaged = Vec::new();
        for (index, text) in reader.split(b'\n').enumerate() {
            let (text, line) = (text?, index + 1);
            if text.is_empty() {
                continue;
            }
            match parse(&text) {
                Ok(record) => self.take(record, line),
                Err(reason) => damaged.push((line, reason)),
            }
        }
        Ok(damaged)
    }

    fn take(&mut self, record: Record, line: usize) {
        let place = |written_at| Permit { file: self.files, line, written_at };
        match record {
            Record::Dead { outbox, written_at, event } => {
                self.dead.push((outbox, place(written_at), *event));
            }
            Record::Closed { outbox, written_at, original_id, event_id } => {
                let closing = Closing { place: place(written_at), event_id };
                self.closings.entry((outbox, original_id)).or_default().push(closing);
            }
            // A worker that died after writing this line leads to a second line for the same batch.
            Record::Batch(batch) => {
                if !self.batches.iter().any(|known| known.batch == batch.batch) {
                    self.batches.push(batch);
                }
            }
        }
    }

    /// Merges the files. An event that occurs several times counts with its last line.
    pub fn contents(self) -> Contents {
        let mut contents = Contents { batches: self.batches, ..Contents::default() };
        let mut open: HashMap<(String, i64, String), (Permit, ImportEntry)> = HashMap::new();
        for (outbox, place, event) in self.dead {
            let of_row = (outbox, event.original_id);
            let closings = self.closings.get(&of_row).map(Vec::as_slice).unwrap_or_default();
            if closings.iter().any(|closing| closing.closes(&place, &event)) {
                contents.closed += 1;
                continue;
            }
            let key = (of_row.0, event.original_id, event.event_id.to_ascii_lowercase());
            let known = open.get(&key);
            if known.is_none_or(|(known, _)| known.is_before(&place)) {
                open.insert(key, (place, event));
            }
        }
        let mut open: Vec<_> = open.into_iter().collect();
        open.sort_by(|(a, _), (b, _)| a.cmp(b));
        contents.open =
            open.into_iter().map(|((outbox, ..), (_, event))| (outbox, event)).collect();
        contents
    }
}

fn parse(line: &[u8]) -> Result<Record, String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| format!("not a backup record: {error}"))?;
    if sha256(line.record.get()) != line.sha256 {
        return Err("the checksum does not match: the line was changed".to_owned());
    }
    serde_json::from_str(line.record.get()).map_err(|error| format!("unknown record: {error}"))
}

#[cfg(test)]
mod tests;
