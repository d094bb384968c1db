//! Tokens: a name, a role, an expiry, and the hash of a secret that is stored nowhere else.
//!
//! SHA-256 without salt or stretching is enough for a secret of 256 random bits: there is no
//! dictionary to try.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::Role;
use crate::config::ConfigError;

/// Prefix of the tokens of `postrider token new`, so that people and scanners recognise them.
const PREFIX: &str = "postrider_";
const HASH_PREFIX: &str = "sha256:";
const NAME_CHARS_MAX: usize = 64;
/// The audit trail records the token's name as the operator.
const _: () = assert!(NAME_CHARS_MAX <= postrider::limits::OPERATOR_CHARS_MAX);
/// Interval between checks for changes of the file: a token that is removed from it stops working
/// within this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) type Digest = [u8; 32];

/// The holder of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    pub(crate) digest: Digest,
    pub(crate) expires_at: Option<DateTime<Utc>>,
}

impl Holder {
    pub(crate) fn expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Returns the line for the file: `name role sha256:… [expiry]`.
    pub(crate) fn line(&self) -> String {
        let hash: String = self.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{} {} {HASH_PREFIX}{hash}", self.name, self.role.as_str());
        match self.expires_at {
            Some(end) => format!("{line} {}", end.format("%Y-%m-%dT%H:%M:%SZ")),
            None => line,
        }
    }

    /// Parses such a line.
    fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, role, hash, end) = match words[..] {
            [name, role, hash] => (name, role, hash, None),
            [name, role, hash, end] => (name, role, hash, Some(end)),
            _ => return Err("write `name role sha256:… [expiry]`".to_owned()),
        };
        let expires_at = end.map(|end| {
            DateTime::parse_from_rfc3339(end)
                .map(|end| end.to_utc())
                .map_err(|_| format!("`{end}` is not a time; write it like 2027-01-31T00:00:00Z"))
        });
        Ok(Self {
            name: valid_name(name)?.into(),
            role: role.parse()?,
            digest: parse_hash(hash)?,
            expires_at: expires_at.transpose()?,
        })
    }
}

/// Checks that a name fits into the audit trail and into a line of the file.
pub(crate) fn valid_name(name: &str) -> Result<&str, String> {
    let fits = |c: char| c.is_alphanumeric() || "._@-".contains(c);
    let length = name.chars().count();
    match (1..=NAME_CHARS_MAX).contains(&length) && name.chars().all(fits) {
        true => Ok(name),
        false => Err(format!(
            "`{name}` is not a name; use 1 to {NAME_CHARS_MAX} letters, digits and . _ @ -"
        )),
    }
}

fn parse_hash(text: &str) -> Result<Digest, String> {
    // The error must not contain the text itself: it could be the token.
    let wrong = || "the third word is not `sha256:` and 64 hexadecimal digits".to_owned();
    let hex = text.strip_prefix(HASH_PREFIX).filter(|hex| hex.len() == 64).ok_or_else(wrong)?;
    let mut digest = Digest::default();
    for (index, byte) in digest.iter_mut().enumerate() {
        let digits = hex.get(index * 2..index * 2 + 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}

pub(crate) fn digest(secret: &str) -> Digest {
    Sha256::digest(secret).into()
}

/// Returns 256 random bits, in characters that never need quoting.
pub(crate) fn secret() -> String {
    let bytes: [u8; 32] = rand::random();
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a new token, and its entry for the file.
pub(crate) fn new_token(
    name: &str,
    role: Role,
    expires_at: Option<DateTime<Utc>>,
) -> Result<(String, Holder), String> {
    let token = format!("{PREFIX}{}", secret());
    let digest = digest(&token);
    Ok((token, Holder { name: valid_name(name)?.into(), role, digest, expires_at }))
}

/// Returns whether a token is too random to be guessed: after too many wrong tokens from an
/// address, only such tokens are still checked.
pub(crate) fn is_random(token: &str) -> bool {
    token.strip_prefix(PREFIX).is_some_and(|rest| rest.len() == 43)
}

/// All tokens that are valid now.
pub(crate) struct TokenRegistry {
    /// Tokens from the configuration; they do not change.
    fixed: Vec<Holder>,
    file: Option<Watched>,
    holders: RwLock<Arc<[Holder]>>,
}

struct Watched {
    path: PathBuf,
    looked: Mutex<(Instant, Option<Stamp>)>,
}

/// Changes if the file is written, replaced, or made inaccessible.
type Stamp = (i64, i64, u64, u64);

impl TokenRegistry {
    /// Opens the tokens. `None` if no token is configured.
    pub(crate) fn open(
        single: Option<&str>,
        lines: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<Self>, ConfigError> {
        if single.is_none() && lines.is_none() && file.is_none() {
            return Ok(None);
        }
        let single = single.map(|token| Holder {
            name: "token".into(),
            role: Role::Admin,
            digest: digest(token),
            expires_at: None,
        });
        let mut fixed: Vec<Holder> = single.into_iter().collect();
        for holder in parse(lines.unwrap_or_default(), "[api] tokens") {
            fixed.push(holder?);
        }
        let mut all = fixed.clone();
        let file = match file {
            None => None,
            Some(path) => {
                let looked = Mutex::new((Instant::now(), stamp(path)));
                for holder in read(path)? {
                    all.push(holder?);
                }
                Some(Watched { path: path.to_owned(), looked })
            }
        };
        if all.is_empty() {
            return Err(ConfigError::Invalid(
                "[api] tokens_file, tokens: there is no token in them; add a line that `postrider \
                 token new` prints, or remove the keys to serve this machine alone"
                    .to_owned(),
            ));
        }
        Ok(Some(Self { fixed, file, holders: RwLock::new(all.into()) }))
    }

    /// Returns the holder of a token. Every entry is compared, each in constant time.
    pub(crate) fn find(&self, token: &str) -> Option<Holder> {
        self.by_digest(&digest(token))
    }

    pub(crate) fn by_digest(&self, digest: &Digest) -> Option<Holder> {
        let holders = self.current();
        let (mut found, mut at) = (Choice::from(0), 0_u64);
        for (index, holder) in (0_u64..).zip(holders.iter()) {
            let same = holder.digest.ct_eq(digest);
            at.conditional_assign(&index, same);
            found |= same;
        }
        bool::from(found).then(|| holders[at as usize].clone())
    }

    /// Returns the tokens, after reading the file again if it has changed. Only its current content
    /// counts: a malformed line admits no one, and an unreadable file has no tokens. Otherwise a
    /// removed token would stay valid after any mistake in the file.
    fn current(&self) -> Arc<[Holder]> {
        if let Some(file) = &self.file
            && file.changed()
        {
            let (mut all, mut mistakes) = (self.fixed.clone(), 0);
            for line in read(&file.path).unwrap_or_else(|error| vec![Err(error)]) {
                match line {
                    Ok(holder) => all.push(holder),
                    Err(error) => {
                        tracing::error!(%error, "tokens that cannot be read do not work");
                        mistakes += 1;
                    }
                }
            }
            tracing::info!(tokens = all.len(), mistakes, "the tokens were read again");
            *self.holders.write().unwrap_or_else(PoisonError::into_inner) = all.into();
        }
        Arc::clone(&self.holders.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watched {
    fn changed(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.0.elapsed() < LOOK_EVERY {
            return false;
        }
        let found = stamp(&self.path);
        let changed = found != looked.1;
        *looked = (Instant::now(), found);
        changed
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ctime(), found.ctime_nsec(), found.ino(), found.len()))
}

/// Reads a file. Each line is parsed on its own.
fn read(path: &Path) -> Result<Vec<Result<Holder, ConfigError>>, ConfigError> {
    let origin = format!("[api] tokens_file `{}`", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::Invalid(format!("{origin} cannot be read: {error}")))?;
    Ok(parse(&text, &origin))
}

fn parse(text: &str, origin: &str) -> Vec<Result<Holder, ConfigError>> {
    let lines = text.split(['\n', ';']).map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            Holder::parse(line).map_err(|error| {
                ConfigError::Invalid(format!("{origin}, line {}: {error}", index + 1))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_secret_and_by_nothing_else() {
        let (token, holder) = new_token("anna", Role::Operator, None).unwrap();
        assert!(is_random(&token) && !is_random("correct-horse-battery"));
        assert!(!holder.line().contains(&token[10..]), "the secret is not in the line");
        let lines = format!("# people\n{}\n\nbob viewer sha256:{}", holder.line(), "0".repeat(64));
        let registry = TokenRegistry::open(None, Some(&lines), None).unwrap().unwrap();
        assert_eq!(registry.find(&token), Some(holder));
        let cut = &token[..token.len() - 1];
        for wrong in ["", "postrider_", cut, &format!("{token}x")] {
            assert_eq!(registry.find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_without_its_secret() {
        for (line, word) in [
            ("anna admin hunter2", "sha256:"),
            ("anna admin sha256:xyz", "64"),
            ("an/na admin sha256:00", "an/na"),
            ("anna root sha256:00", "root"),
            ("anna admin", "name role"),
        ] {
            let error = TokenRegistry::open(None, Some(&format!("\n{line}")), None).map(|_| ());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("line 2"), "{line}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let empty = TokenRegistry::open(None, Some(" # nobody"), None).map(|_| ());
        assert!(empty.unwrap_err().to_string().contains("token new"));
        assert!(TokenRegistry::open(None, None, None).unwrap().is_none());
    }

    #[test]
    fn an_end_is_kept_to_the_second() {
        let end = "2027-01-31T12:00:00Z".parse::<DateTime<Utc>>().unwrap();
        let (_, holder) = new_token("ci", Role::Viewer, Some(end)).unwrap();
        let read = Holder::parse(&holder.line()).unwrap();
        assert_eq!(read, holder);
        assert!(!read.expired(end - chrono::Duration::seconds(1)) && read.expired(end));
    }
}
