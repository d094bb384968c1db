//! Write-behind buffer: counts are added up in Redis and saved to the database in batches, each
//! exactly once.
//!
//! Programs add to a hash, with [`Buffer::increment`] or in any language with `HINCRBY
//! '{buffer:likes}' post-42 1`. A worker (of the relay) moves a limited number of fields at a time
//! into a batch, saves the batch, and deletes it:
//!
//! ```text
//! {buffer:likes}              the counts
//! {buffer:likes}:sync:<uuid>  a batch that is being saved
//! {buffer:likes}:batches      batch id → entries:owner
//! {buffer:likes}:ledger         ledger: entries moved, and their outcomes
//! ```
//!
//! The hash tag keeps the keys in one slot of a cluster, so each step is one script. A step whose
//! reply was lost may be repeated: the batch id shows whether it was done. The database's decision
//! about a batch is in `postrider_store::Batches`; [`Buffer`] is only about Redis.

mod answer;
mod error;
mod moved;
mod safety;
mod server;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};
use uuid::Uuid;

use self::answer::{bytes_pairs, integer, text_pairs};
pub use self::error::BufferError;
use self::moved::listed;
pub use self::moved::{Adopted, BatchEnd, BufferLook, ListedBatch, MovedBatch, MovedLedger};
pub use self::safety::Safety;
use self::server::Server;

const MOVE: &str = include_str!("lua/move.lua");
const ADOPT: &str = include_str!("lua/adopt.lua");
const FINISH: &str = include_str!("lua/finish.lua");
const GIVE_BACK: &str = include_str!("lua/give_back.lua");
const SPLIT: &str = include_str!("lua/split.lua");
const LOOK: &str = include_str!("lua/look.lua");
const INCREMENT: &str = include_str!("lua/increment.lua");

/// Maximum number of characters in a buffer's name.
const BUFFER_NAME_CHARS_MAX: usize = 40;
/// Maximum number of counts in one [`Buffer::increment_all`]: a script blocks all other clients of
/// Redis.
pub const INCREMENTS_MAX: usize = 10_000;

/// The settings of a buffer.
#[derive(Debug, Clone)]
pub struct BufferSettings {
    /// Name in configuration, tables and metrics.
    pub name: String,
    /// `redis://` or, with TLS, `rediss://`. For a cluster, several of its nodes, separated by
    /// commas.
    pub url: String,
    /// The hash; `None` is `{buffer:<name>}`. It must have a hash tag.
    pub key: Option<String>,
    /// Timeout of connecting, and of each reply.
    pub timeout: Duration,
    /// Replicas that must have a moved batch before it is saved; `None` is one from when a replica
    /// was first seen.
    pub wait_replicas: Option<u32>,
    /// Timeout of waiting for them; less than `timeout`.
    pub wait_timeout: Duration,
    /// Time after which Redis drops a batch that was saved but not deleted.
    pub leak_guard: Duration,
}

impl BufferSettings {
    /// Returns the defaults: key by name, 5 s, one replica once there was one, leak guard of an
    /// hour.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            key: None,
            timeout: Duration::from_secs(5),
            wait_replicas: None,
            wait_timeout: Duration::from_secs(1),
            leak_guard: Duration::from_secs(3_600),
        }
    }
}

/// A buffer in Redis. A worker should have its own, because its waits for replicas block other
/// commands on the same connection.
pub struct Buffer {
    name: String,
    key: String,
    wait_replicas: Option<u32>,
    wait_timeout: Duration,
    leak_guard: Duration,
    /// Largest number of replicas found, for the default of `wait_replicas`.
    replicas: AtomicU32,
    /// The server can confirm that its append-only file is on disk.
    waits_for_file: AtomicBool,
    /// Timeout of waiting for the file, which the server writes every second.
    file_timeout: Duration,
    server: Server,
}

impl Buffer {
    /// Checks the settings; does not connect.
    ///
    /// # Errors
    /// [`BufferError::Settings`] names the invalid setting.
    pub fn new(settings: BufferSettings) -> Result<Self, BufferError> {
        let name = &settings.name;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        if name.is_empty() || name.len() > BUFFER_NAME_CHARS_MAX || !name.chars().all(plain) {
            return Err(BufferError::Settings(format!(
                "`{name}` cannot be the name of a buffer: use 1 to {BUFFER_NAME_CHARS_MAX} \
                 lower-case letters, digits, _ and -"
            )));
        }
        let key = settings.key.unwrap_or_else(|| format!("{{buffer:{name}}}"));
        if hash_tag(&key).is_none() {
            return Err(BufferError::Settings(format!(
                "`key` = `{key}` has no hash tag: write a part of it in braces, like \
                 {{buffer:{name}}}, so that a cluster keeps the buffer and its batches together"
            )));
        }
        if settings.wait_timeout >= settings.timeout {
            return Err(BufferError::Settings(format!(
                "`wait_timeout` = {:?} is not below `timeout` = {:?}",
                settings.wait_timeout, settings.timeout
            )));
        }
        Ok(Self {
            server: Server::new(&settings.url, settings.timeout)?,
            // The time left after the wait for replicas, less a quarter for the reply.
            file_timeout: (settings.timeout - settings.wait_timeout) * 3 / 4,
            waits_for_file: AtomicBool::new(false),
            name: settings.name,
            key,
            wait_replicas: settings.wait_replicas,
            wait_timeout: settings.wait_timeout,
            leak_guard: settings.leak_guard,
            replicas: AtomicU32::new(0),
        })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether both use the same hash: two workers would take each other's batches.
    pub fn is_same_hash(&self, other: &Self) -> bool {
        self.key == other.key && self.server.overlaps(&other.server)
    }

    /// Returns the hash that programs add to.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns hosts and ports, without credentials.
    pub fn nodes(&self) -> String {
        self.server.nodes()
    }

    /// Adds to a count, and returns the amount that now waits to be saved for this field.
    ///
    /// # Errors
    /// [`BufferError::Invalid`] for an amount below 1 or an empty field. After
    /// [`BufferError::Unavailable`] the amount may or may not be counted.
    pub async fn increment(&self, field: &str, by: i64) -> Result<i64, BufferError> {
        check_increment(field, by)?;
        let mut command = redis::cmd("HINCRBY");
        command.arg(&self.key).arg(field).arg(by);
        integer(self.server.run_one(command).await?)
    }

    /// Adds to many counts at once: to all of them, or to none.
    ///
    /// # Errors
    /// The errors of [`Buffer::increment`]. At most [`INCREMENTS_MAX`] counts, and sums below 2⁵².
    pub async fn increment_all(&self, counts: &[(&str, i64)]) -> Result<(), BufferError> {
        if counts.len() > INCREMENTS_MAX {
            return Err(BufferError::Invalid(format!(
                "{} counts at once; at most {INCREMENTS_MAX}",
                counts.len()
            )));
        }
        if counts.is_empty() {
            return Ok(());
        }
        let mut command = script(INCREMENT, &[&self.key]);
        for (field, by) in counts {
            check_increment(field, *by)?;
            command.arg(field).arg(by);
        }
        self.server.run_one(command).await.map(drop)
    }

    /// Moves up to `fields_max` fields into the batch `id`, for this owner. An empty buffer returns
    /// an empty batch, which is not stored. May be repeated with the same id.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn move_batch(
        &self,
        id: Uuid,
        owner: &str,
        fields_max: u32,
    ) -> Result<MovedBatch, BufferError> {
        let keys = [&self.key, &self.list(), &self.ledger(), &self.batch(id)];
        let mut command = script(MOVE, &keys);
        command.arg(id.to_string()).arg(owner).arg(fields_max);
        let (answer, confirmed) = self.run_and_wait(command).await?;
        Ok(MovedBatch { id, fields: bytes_pairs(answer)?, confirmed })
    }

    /// Takes a batch over from an owner that is gone, or reads a batch of the caller's own again.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn adopt(&self, id: Uuid, from: &str, to: &str) -> Result<Adopted, BufferError> {
        let mut command = script(ADOPT, &[&self.list(), &self.batch(id)]);
        command.arg(id.to_string()).arg(from).arg(to);
        let (answer, confirmed) = self.run_and_wait(command).await?;
        Ok(match answer {
            Value::BulkString(word) if word == b"taken" => Adopted::Taken,
            Value::BulkString(word) if word == b"done" => Adopted::Done,
            Value::BulkString(word) if word == b"lost" => Adopted::Lost,
            answer => Adopted::Batch(MovedBatch { id, fields: bytes_pairs(answer)?, confirmed }),
        })
    }

    /// Makes Redis drop the batch after the leak guard. Only for a batch that the database has
    /// decided.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn expire(&self, id: Uuid) -> Result<(), BufferError> {
        let mut command = redis::cmd("PEXPIRE");
        let guard = u64::try_from(self.leak_guard.as_millis()).unwrap_or(u64::MAX);
        command.arg(self.batch(id)).arg(guard);
        self.server.run_one(command).await.map(drop)
    }

    /// Ends a batch that the database has decided: deletes its key and counts its entries in the
    /// ledger. Returns the number of entries; 0 if it had ended before.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn finish(&self, id: Uuid, end: BatchEnd) -> Result<u64, BufferError> {
        let mut command = script(FINISH, &[&self.list(), &self.ledger(), &self.batch(id)]);
        command.arg(id.to_string()).arg(end.as_str());
        count(self.server.run_one(command).await?)
    }

    /// Compensation: adds the counts of a batch that is cancelled in the database to the buffer
    /// again. Returns the number of entries; 0 if it had ended before, or no longer belongs to this
    /// owner.
    ///
    /// # Errors
    /// [`BufferError::Overflow`] if counts cannot be added; the batch is unchanged.
    pub async fn give_back(&self, id: Uuid, owner: &str) -> Result<u64, BufferError> {
        let keys = [&self.key, &self.list(), &self.ledger(), &self.batch(id)];
        let mut command = script(GIVE_BACK, &keys);
        command.arg(id.to_string()).arg(owner);
        count(self.server.run_one(command).await?)
    }

    /// Compensation: turns a batch that is cancelled in the database into two others of the same
    /// owner, `into`: the first with these fields, the second with the rest. Returns whether enough
    /// replicas have them; `None` if the batch had ended before, or no longer belongs to this
    /// owner.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn split(
        &self,
        id: Uuid,
        into: [Uuid; 2],
        owner: &str,
        fields: &[&[u8]],
    ) -> Result<Option<bool>, BufferError> {
        let [first, second] = into;
        let keys = [
            &self.list(),
            &self.ledger(),
            &self.batch(id),
            &self.batch(first),
            &self.batch(second),
        ];
        let mut command = script(SPLIT, &keys);
        command.arg(id.to_string()).arg(first.to_string()).arg(second.to_string()).arg(owner);
        for field in fields {
            command.arg(*field);
        }
        let (answer, confirmed) = self.run_and_wait(command).await?;
        Ok((count(answer)? > 0).then_some(confirmed))
    }

    /// Reads the state of the buffer.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn look(&self) -> Result<BufferLook, BufferError> {
        let command = script(LOOK, &[&self.key, &self.list(), &self.ledger()]);
        let Value::Array(answer) = self.server.run_one(command).await? else {
            return Err(answer::strange());
        };
        let [fields, list, ledger]: [Value; 3] =
            answer.try_into().map_err(|_| answer::strange())?;
        let batches = text_pairs(list)?.into_iter().map(listed).collect::<Result<_, _>>()?;
        let mut counted = MovedLedger::default();
        for (kind, entries) in text_pairs(ledger)? {
            let place = match kind.as_str() {
                "moved" => &mut counted.moved,
                "applied" => &mut counted.applied,
                "ignored" => &mut counted.ignored,
                "given_back" => &mut counted.given_back,
                "dead" => &mut counted.dead,
                _ => continue,
            };
            *place = entries.parse().map_err(|_| answer::strange())?;
        }
        Ok(BufferLook { fields: count(fields)?, batches, ledger: counted })
    }

    /// Deletes the buffer with everything in it, saved or not.
    ///
    /// # Errors
    /// See the variants of [`BufferError`].
    pub async fn remove(&self) -> Result<(), BufferError> {
        let batches = self.look().await?.batches;
        let mut command = redis::cmd("UNLINK");
        command.arg(&self.key).arg(self.list()).arg(self.ledger());
        for batch in batches {
            command.arg(self.batch(batch.id));
        }
        self.server.run_one(command).await.map(drop)
    }

    /// Runs a script and waits, on the same connection, until enough replicas have its writes, and
    /// the server's own file has them on disk. If a crash undid a move, its counts would be in the
    /// hash again, and would be saved twice.
    async fn run_and_wait(&self, command: Cmd) -> Result<(Value, bool), BufferError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let found = self.replicas.load(Ordering::Relaxed).min(1);
        let replicas = self.wait_replicas.unwrap_or(found);
        let mut commands = vec![command];
        if replicas > 0 {
            let mut wait = redis::cmd("WAIT");
            wait.arg(replicas).arg(millis(self.wait_timeout));
            commands.push(wait);
        }
        if self.waits_for_file.load(Ordering::Relaxed) {
            let mut wait = redis::cmd("WAITAOF");
            wait.arg(1).arg(0).arg(millis(self.file_timeout));
            commands.push(wait);
        }
        let mut answers = self.server.run(&commands).await?.into_iter();
        let answer = answers.next().ok_or_else(answer::strange)?;
        let mut confirmed = true;
        for answer in answers {
            confirmed &= match answer {
                // The reply of `WAITAOF`: whether this server's file has the writes, and how many
                // replicas' files do.
                Value::Array(files) => files.first() == Some(&Value::Int(1)),
                answer => integer(answer)? >= i64::from(replicas),
            };
        }
        Ok((answer, confirmed))
    }

    fn list(&self) -> String {
        format!("{}:batches", self.key)
    }

    fn ledger(&self) -> String {
        format!("{}:ledger", self.key)
    }

    fn batch(&self, id: Uuid) -> String {
        format!("{}:sync:{id}", self.key)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The server's URL may contain a password.
        f.debug_struct("Buffer").field("name", &self.name).field("key", &self.key).finish()
    }
}

fn check_increment(field: &str, by: i64) -> Result<(), BufferError> {
    if field.is_empty() || field.contains('\0') {
        let what = "the field is empty or contains a NUL character; name what is counted";
        return Err(BufferError::Invalid(what.to_owned()));
    }
    if by < 1 {
        return Err(BufferError::Invalid(format!("{by} cannot be added; at least 1")));
    }
    Ok(())
}

/// Builds the command for a script with its keys. Sends the whole text each time: it is a kilobyte,
/// and a server that was restarted does not know the script.
fn script(text: &str, keys: &[&String]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len());
    for key in keys {
        command.arg(key.as_str());
    }
    command
}

fn count(value: Value) -> Result<u64, BufferError> {
    u64::try_from(integer(value)?).map_err(|_| answer::strange())
}

/// Returns the part that a cluster computes the slot from: the text between the first `{` and the
/// next `}`, if it is not empty.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut BufferSettings)) -> String {
        let mut settings = BufferSettings::new("likes", "redis://localhost");
        change(&mut settings);
        Buffer::new(settings).unwrap_err().to_string()
    }

    #[test]
    fn a_hash_is_the_same_if_key_server_and_database_are() {
        let buffer = Buffer::new(BufferSettings::new("likes", "redis://host")).unwrap();
        for (url, same) in [
            ("redis://host", true),
            ("redis://ann:secret@other,host:6379/0", true),
            ("redis://host/1", false),
            ("redis://host:6380", false),
        ] {
            let other = Buffer::new(BufferSettings::new("likes", url)).unwrap();
            assert_eq!(buffer.is_same_hash(&other), same, "{url}");
        }
    }

    #[test]
    fn a_key_without_a_hash_tag_is_refused() {
        for key in ["buffer:likes", "{}likes", "likes{", "}likes{"] {
            let error = refusal(|settings| settings.key = Some(key.to_owned()));
            assert!(error.contains("hash tag") && error.contains(key), "{error}");
        }
        let buffer = Buffer::new(BufferSettings::new("likes", "redis://localhost")).unwrap();
        assert_eq!(buffer.key(), "{buffer:likes}");
        assert_eq!(hash_tag(&buffer.batch(Uuid::nil())), Some("buffer:likes"));
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(refusal(|settings| settings.name = "Likes!".to_owned()).contains("Likes!"));
        assert!(refusal(|s| s.wait_timeout = s.timeout).contains("wait_timeout"));
    }
}
