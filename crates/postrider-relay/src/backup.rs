//! The second rung: dead letters in an append-only file of JSON lines.
//!
//! Every line carries a SHA-256 of its content, and counts only once it is on the disk (fsync).
//! A `dead` line has everything that is needed to restore the event; a `closed` line says that the
//! dead-letter table has it by now. A `batch` line has the counts of a buffer's batch.
//!
//! A closed line may be in another file than the dead line: any relay may move a row that was marked.
//! So whoever imports a file asks the store, which knows best; closed lines only spare the question.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use chrono::{DateTime, Utc};
use postrider::store::ImportEntry;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use crate::dead_batch::{DeadBatch, RawText};

const FILE_NAME: &str = "dead-letters.jsonl";

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// An event that the dead-letter table could not take.
    Dead {
        /// Name of its outbox.
        outbox: String,
        /// When it was written, on this machine's clock.
        written_at: DateTime<Utc>,
        /// The event. Boxed: it is far larger than the other variant.
        event: Box<ImportEntry>,
    },
    /// An event that the dead-letter table has taken since.
    Closed {
        /// Name of its outbox.
        outbox: String,
        /// When, on this machine's clock.
        written_at: DateTime<Utc>,
        /// Row id in the outbox.
        original_id: i64,
        /// Identity; older files do not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event_id: Option<String>,
    },
    /// A batch of a buffer whose counts could go nowhere else.
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
    /// One writer at a time; lines must not mix.
    writing: Mutex<()>,
}

impl Backup {
    /// A backup in that folder. Nothing is written until it is needed.
    pub fn new(folder: impl Into<PathBuf>, bytes_max: u64) -> Self {
        Self { folder: folder.into(), bytes_max, writing: Mutex::new(()) }
    }

    /// The file that is written to.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Appends records and waits until they are on the disk. Blocks.
    ///
    /// # Errors
    /// If the folder or file cannot be written, or the disk does not confirm.
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

    /// Opens the file for appending; a full one is moved aside first.
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
        // Through a link, payloads would be appended to a file that somebody else chose.
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
            // The name itself must survive a crash as well.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(file)
    }
}

/// Takes a file that others can read away from them: it has payloads in it. Where that is refused,
/// the event in the file is worth more than its mode.
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

/// Checks that not every user can replace what a backup in that folder holds. One that does not
/// exist yet is made with mode 0700.
///
/// # Errors
/// If it is a symbolic link, or every user can write to it.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    // Without a slash at its end, which would follow a link.
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

/// Checks that a backup in that folder can be written, without leaving anything behind: a folder
/// that does not exist yet is made and taken away again.
///
/// # Errors
/// If a file cannot be made or written there, or the one that is there cannot be appended to.
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
    // Of a full disk, the empty file is left.
    let removed = std::fs::remove_file(&probe);
    for made in missing {
        // One that is not empty any more stays.
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

/// Writes one line, for a file or stream of the caller's own. It counts once the caller has
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

/// What backup files hold.
#[derive(Debug, Default)]
pub struct Contents {
    /// Events that are not closed, with the name of their outbox, in the order of their row ids: a
    /// retry of all of them keeps the order of each key.
    pub open: Vec<(String, ImportEntry)>,
    /// Events that are closed.
    pub closed: usize,
    /// Batches of buffers, each once, in the order in which they were written.
    pub batches: Vec<DeadBatch>,
    /// Lines that cannot be trusted: number and reason.
    pub damaged: Vec<(usize, String)>,
}

/// Reads a backup file and verifies every line. A damaged line does not keep the others from being
/// read.
///
/// # Errors
/// If the file cannot be read at all.
pub fn read(path: &Path) -> io::Result<Contents> {
    read_from(io::BufReader::new(File::open(path)?))
}

/// As [`read`], from a stream.
///
/// # Errors
/// If the stream ends with an error.
pub fn read_from(reader: impl BufRead) -> io::Result<Contents> {
    let mut files = BackupFiles::default();
    let damaged = files.add(reader)?;
    Ok(Contents { damaged, ..files.contents() })
}

/// The backup files in a folder, in the order of their names.
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

/// Backup files that are read together: what one of them closes is closed in all.
#[derive(Debug, Default)]
pub struct BackupFiles {
    files: usize,
    /// Dead lines, with their place.
    dead: Vec<(String, Place, ImportEntry)>,
    /// Closed lines, by outbox and row id.
    closings: HashMap<(String, i64), Vec<Closing>>,
    batches: Vec<DeadBatch>,
}

/// Where and when a line was written.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    line: usize,
    written_at: DateTime<Utc>,
}

impl Place {
    /// Whether this line was written before another. Within a file the lines say so, between files
    /// the clocks of the machines; where these disagree with what happened, the store decides.
    fn is_before(&self, other: &Self) -> bool {
        match self.file == other.file {
            true => self.line < other.line,
            false => self.written_at <= other.written_at,
        }
    }
}

#[derive(Debug)]
struct Closing {
    place: Place,
    event_id: Option<String>,
}

impl Closing {
    /// Whether it is about that event, and later: a row id, or a whole event, may be used again after
    /// a restore of the database.
    fn closes(&self, place: &Place, event: &ImportEntry) -> bool {
        let same = |id: &String| id.eq_ignore_ascii_case(&event.event_id);
        self.event_id.as_ref().is_none_or(same) && place.is_before(&self.place)
    }
}

impl BackupFiles {
    /// Reads one more file. Answers the lines that cannot be trusted: number and reason.
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
        let place = |written_at| Place { file: self.files, line, written_at };
        match record {
            Record::Dead { outbox, written_at, event } => {
                self.dead.push((outbox, place(written_at), *event));
            }
            Record::Closed { outbox, written_at, original_id, event_id } => {
                let closing = Closing { place: place(written_at), event_id };
                self.closings.entry((outbox, original_id)).or_default().push(closing);
            }
            // A worker that died after this line makes another one of the same batch.
            Record::Batch(batch) => {
                if !self.batches.iter().any(|known| known.batch == batch.batch) {
                    self.batches.push(batch);
                }
            }
        }
    }

    /// What they hold together. An event that is in them several times counts with its last line.
    pub fn contents(self) -> Contents {
        let mut contents = Contents { batches: self.batches, ..Contents::default() };
        let mut open: HashMap<(String, i64, String), (Place, ImportEntry)> = HashMap::new();
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
