//! Groups errors by their kind.

use postrider::internal::hex;
use sha2::{Digest, Sha256};

use crate::contract::DeadReason;

/// Length of a fingerprint in characters.
pub const FINGERPRINT_CHARS: usize = 16;

/// Number of characters of a message that count. A message states its kind of error at the
/// beginning.
const MESSAGE_CHARS_MAX: usize = 300;

/// Words after which a three-digit number is the kind of an error, not one of its values.
const STATUS_WORDS: [&str; 4] = ["http", "status", "code", "answered"];

/// Returns the same 16 characters for all dead letters of one reason whose errors differ only in
/// ids, numbers, times and quoted values.
pub fn fingerprint(reason: DeadReason, message: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(reason.as_str());
    hasher.update(b"|");
    hasher.update(error_kind(message));
    let mut text = hex(&hasher.finalize());
    text.truncate(FINGERPRINT_CHARS);
    text
}

/// Returns a message without the parts that differ from event to event: quoted text becomes `…`,
/// and every word that contains a digit (numbers, ids, UUIDs, times) or has only hex digits becomes
/// `#`. A three-digit status stays.
pub fn error_kind(message: &str) -> String {
    // NUL is removed, because the tables hold the message without it.
    let chars = message.chars().filter(|c| *c != '\0').take(MESSAGE_CHARS_MAX);
    let chars: Vec<char> = chars.collect();
    let mut kind = String::with_capacity(chars.len());
    let mut last_word = String::new();
    let mut at = 0;
    while at < chars.len() {
        if let Some(end) = quoted_until(&chars, at) {
            // A doubled quote is part of the quoted text.
            if !kind.ends_with('…') {
                kind.push('…');
            }
            at = end;
        } else if chars[at].is_alphanumeric() {
            let end = word_until(&chars, at);
            let word: String = chars[at..end].iter().collect();
            if is_value(&word) && !is_status(&word, &last_word) {
                // `2026-01-31 12:00:00.5 +02:00` is one value, and so is `10.0.0.1:8080`.
                if !kind.trim_end_matches([' ', ':', '.', ',', '+', '-', '/']).ends_with('#') {
                    kind.push('#');
                } else {
                    let kept = kind.trim_end_matches([' ', ':', '.', ',', '+', '-', '/']).len();
                    kind.truncate(kept);
                }
            } else {
                kind.push_str(&word);
            }
            last_word = word.to_lowercase();
            at = end;
        } else {
            // Runs of blanks and line breaks become one blank.
            match chars[at].is_whitespace() {
                true if kind.ends_with(' ') => {}
                true => kind.push(' '),
                false => kind.push(chars[at]),
            }
            at += 1;
        }
    }
    kind.truncate(kind.trim_end().len());
    kind
}

/// Returns the end of the quoted text that starts here. An apostrophe within a word does not start
/// one.
fn quoted_until(chars: &[char], at: usize) -> Option<usize> {
    let quote = chars[at];
    let within_word = |i: usize| chars.get(i).is_some_and(|c| c.is_alphanumeric());
    if !matches!(quote, '"' | '\'' | '`') || (at > 0 && within_word(at - 1)) {
        return None;
    }
    let closes = |i: &usize| chars[*i] == quote && !within_word(i + 1);
    (at + 1..chars.len()).find(closes).map(|end| end + 1)
}

/// Returns the end of the word: letters, digits, and the characters that join the parts of an id.
fn word_until(chars: &[char], at: usize) -> usize {
    let joins = |i: usize| {
        matches!(chars[i], '-' | '_') && chars.get(i + 1).is_some_and(|c| c.is_alphanumeric())
    };
    let end = (at..chars.len()).find(|i| !chars[*i].is_alphanumeric() && !joins(*i));
    end.unwrap_or(chars.len())
}

fn is_value(word: &str) -> bool {
    let hex_id = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    hex_id || word.chars().any(|c| c.is_ascii_digit())
}

fn is_status(word: &str, before: &str) -> bool {
    let number = word.parse::<u16>().is_ok_and(|status| (100..600).contains(&status));
    number && word.len() == 3 && STATUS_WORDS.contains(&before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_event_to_event_is_left_out() {
        for (message, kind) in [
            ("HTTP 422", "HTTP 422"),
            ("HTTP 503: overloaded for 17 s", "HTTP 503: overloaded for # s"),
            ("no account 4711", "no account #"),
            ("no account 'Ann O''Neil'", "no account …"),
            ("it can't be: \"x\" isn't `y`", "it can't be: … isn't …"),
            ("order ord_81-x is unknown", "order # is unknown"),
            ("key 0190a5f2-7c1e-7b3a-9f00-aabbccddeeff is taken", "key # is taken"),
            ("digest deadbeefcafe differs", "digest # differs"),
            ("at 2026-01-31T12:00:00.123Z: late", "at #: late"),
            ("at 2026-01-31 12:00:00 +02:00 late", "at # late"),
            ("cannot connect to 10.0.0.1:8080: refused", "cannot connect to #: refused"),
            ("two\n\n lines", "two lines"),
            ("", ""),
        ] {
            assert_eq!(error_kind(message), kind, "{message}");
        }
    }

    #[test]
    fn a_fingerprint_tells_kinds_apart_and_values_together() {
        let of = |message: &str| fingerprint(DeadReason::Rejected, message);
        assert_eq!(of("no account 1"), of("no account 22"));
        assert_ne!(of("HTTP 404"), of("HTTP 422"));
        assert_ne!(of("no account 1"), of("no user 1"));
        assert_ne!(of("no account 1"), fingerprint(DeadReason::Exhausted, "no account 1"));
        assert_eq!(of("x").len(), FINGERPRINT_CHARS);
        // Tables hold these values: a change of the rule must be a decision, not an accident.
        assert_eq!(of("no account 1"), of("no account #"));
    }

    #[test]
    fn any_text_has_a_kind() {
        for message in ["'", "\"\"", "a'", "'a", "``` ``", "é'é'", "---", "1-", "-1_", "\0"] {
            assert!(error_kind(message).chars().count() <= message.chars().count().max(1));
        }
        assert!(error_kind(&"x1 ".repeat(10_000)).len() <= MESSAGE_CHARS_MAX * 4);
    }
}
