//! Checks whether the server keeps the data that it stores.

use std::sync::atomic::Ordering;

use redis::Value;

use super::answer::text;
use super::{Buffer, BufferError};

/// The result of checking the server's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Safety {
    /// Ways in which counts *will* be lost.
    pub dangers: Vec<String>,
    /// Ways in which a few counts can be lost.
    pub doubts: Vec<String>,
}

impl Buffer {
    /// Checks the server's eviction and persistence settings, and finds the replicas to wait for.
    ///
    /// # Errors
    /// If the server does not reply.
    pub async fn check(&self) -> Result<Safety, BufferError> {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(self.key());
        let config = |name: &str| {
            let mut config = redis::cmd("CONFIG");
            config.arg("GET").arg(name);
            config
        };
        let questions = [exists, redis::cmd("INFO"), config("save"), config("appendfsync")];
        let answers = self.server.run(&questions).await?;
        let info = answers.get(1).and_then(text).ok_or_else(super::answer::strange)?;
        let save = answers.get(2).and_then(setting);
        let fsync = answers.get(3).and_then(setting);
        self.waits_for_file.store(tells_of_file(&info, fsync.as_deref()), Ordering::Relaxed);
        let replicas = fact(&info, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0);
        // A replica that is gone may have been promoted, with the counts of the batches that are
        // moved here from now on: they would be saved a second time.
        self.replicas.fetch_max(replicas, Ordering::Relaxed);
        Ok(judge(&info, save.as_deref(), fsync.as_deref()))
    }
}

fn fact<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns the value of a `CONFIG GET`; `None` if the server does not return it.
fn setting(answer: &Value) -> Option<String> {
    match answer {
        Value::Array(pair) => text(pair.get(1)?),
        Value::Map(pairs) => text(&pairs.first()?.1),
        _ => None,
    }
}

/// Returns whether the server has an append-only file that it writes to disk by itself, and can
/// confirm it (`WAITAOF`, Redis 7.2).
fn tells_of_file(info: &str, fsync: Option<&str>) -> bool {
    let version = fact(info, "redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    fact(info, "aof_enabled") == Some("1") && version >= (7, 2) && fsync != Some("no")
}

fn judge(info: &str, save: Option<&str>, fsync: Option<&str>) -> Safety {
    let mut safety = Safety::default();
    let limited = fact(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = fact(info, "maxmemory_policy").unwrap_or_default();
    if limited && policy.starts_with("allkeys") {
        safety.dangers.push(format!(
            "Redis may evict the buffer when memory is short (maxmemory-policy {policy}); set it \
             to noeviction, or to a volatile policy: keys of a buffer have no time to live"
        ));
    }
    if fact(info, "aof_enabled") == Some("0") {
        match save {
            Some("") => safety.dangers.push(
                "Redis does not persist (appendonly no, save \"\"): a restart loses every count; \
                 set appendonly yes"
                    .to_owned(),
            ),
            Some(_) => safety.dangers.push(
                "Redis persists by snapshots only (appendonly no): a crash loses the counts since \
                 the last one, and counts that were saved since then are saved again; set \
                 appendonly yes"
                    .to_owned(),
            ),
            None => safety.doubts.push(
                "Redis has no append-only file, and does not say whether it takes snapshots \
                 (CONFIG is not allowed); make sure that it persists"
                    .to_owned(),
            ),
        }
    } else if fsync != Some("always") && !tells_of_file(info, fsync) {
        safety.doubts.push(
            "Redis does not say when its append-only file is on the disk: if the machine crashes, \
             counts that were saved in the second before can come back and be saved again; use \
             Redis 7.2 or newer with appendfsync everysec, or set appendfsync always"
                .to_owned(),
        );
    }
    safety
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_and_missing_persistence_are_dangers() {
        let info = |memory: &str, policy: &str, aof: &str| {
            format!(
                "# \
                 Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\naof_enabled:{aof}\r\n"
            )
        };
        let old = |info: &str, save| judge(info, save, Some("everysec"));
        let dangers = |info: &str, save| old(info, save).dangers.len();
        assert_eq!(
            judge(&info("0", "allkeys-lru", "1"), Some(""), Some("always")),
            Safety::default()
        );
        assert_eq!(
            judge(&info("9", "volatile-lru", "1"), Some(""), Some("always")),
            Safety::default()
        );
        assert_eq!(dangers(&info("9", "allkeys-lru", "1"), Some("")), 1);
        assert_eq!(dangers(&info("9", "allkeys-lru", "0"), Some("")), 2);
        assert_eq!(dangers(&info("0", "noeviction", "0"), Some("3600 1")), 1, "snapshots only");
        assert_eq!(old(&info("0", "noeviction", "0"), None).doubts.len(), 1);
    }

    #[test]
    fn a_server_that_does_not_say_when_the_file_is_on_the_disk_is_doubted() {
        for (version, fsync, tells) in [
            ("7.2.4", "everysec", true),
            ("8.0.1", "always", true),
            ("10.0.0", "everysec", true),
            ("7.2.4", "no", false),
            ("7.0.15", "everysec", false),
            ("6.2.0", "everysec", false),
        ] {
            let info = format!("redis_version:{version}\r\naof_enabled:1\r\n");
            assert_eq!(tells_of_file(&info, Some(fsync)), tells, "{version} {fsync}");
            let doubts = judge(&info, Some(""), Some(fsync)).doubts.len();
            assert_eq!(doubts, usize::from(!tells), "{version} {fsync}");
        }
        let old = "redis_version:6.2.0\r\naof_enabled:1\r\n";
        assert_eq!(judge(old, Some(""), Some("always")), Safety::default());
    }
}
