//! The second rung: dead letters in an append-only file of JSON lines.
//!
//! Every line carries a SHA-256 of its content, and counts only once it is on the disk (fsync).
//! A `dead` line has everything that is needed to restore the event; a `closed` line says that the
//! dead-letter table has it by now. A `batch` line has the counts of a buffer's batch.

use std::collections::HashSet;
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
        if std::fs::metadata(&path).is_ok_and(|found| found.len() >= self.bytes_max) {
            let now = Utc::now().format("%Y%m%dT%H%M%S%.6f");
            std::fs::rename(&path, self.folder.join(format!("dead-letters-{now}.jsonl")))?;
        }
        let created = !path.exists();
        let file = options.open(&path)?;
        if created {
            // The name itself must survive a crash as well.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(file)
    }
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

/// What a backup file holds.
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
    let mut contents = Contents::default();
    let mut closed: HashSet<(String, i64)> = HashSet::new();
    for (index, line) in reader.split(b'\n').enumerate() {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        match parse(&line) {
            Ok(Record::Dead { outbox, event, .. }) => contents.open.push((outbox, *event)),
            Ok(Record::Closed { outbox, original_id, .. }) => {
                closed.insert((outbox, original_id));
            }
            // A worker that died after this line makes another one of the same batch.
            Ok(Record::Batch(batch)) => {
                if !contents.batches.iter().any(|known| known.batch == batch.batch) {
                    contents.batches.push(batch);
                }
            }
            Err(reason) => contents.damaged.push((index + 1, reason)),
        }
    }
    let before = contents.open.len();
    contents.open.retain(|(outbox, event)| !closed.contains(&(outbox.clone(), event.original_id)));
    contents.closed = before - contents.open.len();
    contents.open.sort_by(|(a, x), (b, y)| (a, x.original_id).cmp(&(b, y.original_id)));
    Ok(contents)
}

fn parse(line: &[u8]) -> Result<Record, String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| format!("not a backup record: {error}"))?;
    if sha256(line.record.get()) != line.sha256 {
        return Err("the checksum does not match: the line was changed".to_owned());
    }
    serde_json::from_str(line.record.get()).map_err(|error| format!("unknown record: {error}"))
}
