//! Whether the server keeps what it is given.

use std::sync::atomic::Ordering;

use redis::Value;

use super::answer::text;
use super::{Buffer, BufferError};

/// What a look at the server's settings found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Safety {
    /// Counts *will* be lost this way.
    pub dangers: Vec<String>,
    /// Counts can be lost this way, if few.
    pub doubts: Vec<String>,
}

impl Buffer {
    /// Looks at how the server evicts and persists, and for replicas to wait for.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn check(&self) -> Result<Safety, BufferError> {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(self.key());
        let mut save = redis::cmd("CONFIG");
        save.arg("GET").arg("save");
        let answers = self.server.run(&[exists, redis::cmd("INFO"), save]).await?;
        let info = answers.get(1).and_then(text).ok_or_else(super::answer::strange)?;
        let save = answers.get(2).and_then(saved);
        let replicas = fact(&info, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0);
        self.replicas.store(replicas, Ordering::Relaxed);
        Ok(judge(&info, save.as_deref()))
    }
}

fn fact<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The value of `CONFIG GET save`; `None` where the server does not tell.
fn saved(answer: &Value) -> Option<String> {
    match answer {
        Value::Array(pair) => text(pair.get(1)?),
        Value::Map(pairs) => text(&pairs.first()?.1),
        _ => None,
    }
}

fn judge(info: &str, save: Option<&str>) -> Safety {
    let mut safety = Safety::default();
    let limited = fact(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = fact(info, "maxmemory_policy").unwrap_or_default();
    if limited && policy.starts_with("allkeys") {
        safety.dangers.push(format!(
            "Redis may evict the buffer when memory is short (maxmemory-policy {policy}); set it to \
             noeviction, or to a volatile policy: keys of a buffer have no time to live"
        ));
    }
    if fact(info, "aof_enabled") == Some("0") {
        match save {
            Some("") => safety.dangers.push(
                "Redis does not persist (appendonly no, save \"\"): a restart loses every count; \
                 set appendonly yes"
                    .to_owned(),
            ),
            Some(_) => safety.doubts.push(
                "Redis persists by snapshots only (appendonly no): a crash loses the counts since \
                 the last one, and batches saved since then come back; set appendonly yes"
                    .to_owned(),
            ),
            None => safety.doubts.push(
                "Redis has no append-only file, and does not say whether it takes snapshots \
                 (CONFIG is not allowed); make sure that it persists"
                    .to_owned(),
            ),
        }
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
                "# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\naof_enabled:{aof}\r\n"
            )
        };
        let dangers = |info: &str, save| judge(info, save).dangers.len();
        assert_eq!(judge(&info("0", "allkeys-lru", "1"), Some("")), Safety::default());
        assert_eq!(judge(&info("9", "volatile-lru", "1"), Some("")), Safety::default());
        assert_eq!(dangers(&info("9", "allkeys-lru", "1"), Some("")), 1);
        assert_eq!(dangers(&info("9", "allkeys-lru", "0"), Some("")), 2);
        assert_eq!(dangers(&info("0", "noeviction", "0"), Some("3600 1")), 0);
        assert_eq!(judge(&info("0", "noeviction", "0"), Some("3600 1")).doubts.len(), 1);
        assert_eq!(judge(&info("0", "noeviction", "0"), None).doubts.len(), 1);
    }
}
