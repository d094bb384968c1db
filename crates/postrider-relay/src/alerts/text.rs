//! Formats messages as text.

use super::{Message, MessageState};

/// Returns the title, marked if the alert is resolved.
pub(super) fn title(message: &Message) -> String {
    match message.state {
        MessageState::Resolved => format!("Resolved: {}", message.title),
        _ => message.title.clone(),
    }
}

/// Returns the first line: severity or state, and title.
#[cfg(any(feature = "http", feature = "email"))]
pub(super) fn headline(message: &Message) -> String {
    match message.state {
        MessageState::Raised => format!("[{}] {}", message.severity.as_str(), message.title),
        MessageState::Resolved => format!("[resolved] {}", message.title),
        MessageState::Report => format!("[report] {}", message.title),
        MessageState::Test => format!("[test] {}", message.title),
    }
}

/// Escapes control characters and the line separators of Unicode.
pub(super) fn single_line(text: String) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(breaks) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match breaks(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Formats fields as `name=value name=value`.
pub(super) fn one_line(fields: &[(&'static str, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Formats one line per field.
#[cfg(any(feature = "http", feature = "email"))]
pub(super) fn lines(fields: &[(&'static str, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// Truncates a text to the receiver's limit, at a character boundary.
#[cfg(feature = "http")]
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// Splits a text into parts of at most `chars_max` characters.
#[cfg(feature = "http")]
pub(super) fn parts(text: &str, chars_max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(chars_max).map_or(rest.len(), |(at, _)| at);
        let (part, more) = rest.split_at(end);
        parts.push(part);
        rest = more;
    }
    parts
}
