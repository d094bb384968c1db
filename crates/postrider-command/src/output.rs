//! Terminal output: tables and JSON on standard output, the log on standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use postrider_store::Counted;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::Failure;

/// Silences two kinds of log entries: PostgreSQL's notices about our own statements, such as
/// `DROP … IF EXISTS`, and messages that RabbitMQ returned, payload included. The relay reports the
/// outcome of their events as for every sink.
const QUIET: &str = "sqlx::postgres::notice=warn,lapin::returned_messages=error";

/// Starts the log on standard error.
///
/// # Errors
/// If the filter cannot be parsed; the text says why.
pub fn start_log(filter: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(format!("{filter},{QUIET}"))
        .map_err(|error| format!("--log {filter}: {error}; use error, warn, info or debug"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match json {
        true => log.json().init(),
        false => log.with_writer(|| OneLine(io::stderr())).init(),
    }
    Ok(())
}

/// Keeps each entry of the text log on one line. An error may contain a destination's answer, whose
/// line ends could otherwise forge log entries. The log's formatter already escapes escape
/// sequences in values; the remaining ones are the log's own colours.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = escaped(line, |c| is_steering(c) && !matches!(c, '\x1b' | '\t'));
        // In one write, so that lines of two threads do not mix.
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns whether a terminal acts on the character instead of printing it: controls, line and
/// paragraph separators, and marks that reverse the direction of the text after them.
fn is_steering(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

fn escaped(text: &str, unwanted: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&unwanted) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match unwanted(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Escapes everything in the text that a terminal would act on: an event, or a destination's
/// answer, may contain escape sequences. Line ends and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_steering(c) && !matches!(c, '\n' | '\t'))
}

/// Prints text; a closed pipe is reported as an error, like any other write error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(visible(text).as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Prints a value as JSON.
///
/// # Errors
/// If standard output refused.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other);
    let text = text.map_err(Failure::Output)?;
    // JSON only escapes control characters below U+0020; the line ends that remain are those of the
    // pretty printer.
    let mut shown = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match is_steering(c) && c != '\n' {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown.push('\n');
    print(&shown)
}

/// A table with aligned columns. Numbers are right-aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with this head.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|text| (*text).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        // A line end in a cell would look like another row.
        let shown = |cell: &String| escaped(cell, is_steering).into_owned();
        self.rows.push(cells.iter().map(shown).collect());
    }

    /// Returns whether there is only the head.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Prints it.
    ///
    /// # Errors
    /// If standard output refused.
    pub fn print(&self) -> Result<(), Failure> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let number = cell.starts_with(|c: char| c.is_ascii_digit())
                    && cell.chars().all(|c| c.is_ascii_digit() || c == ',');
                match number {
                    true => line.push_str(&format!("{cell:>width$}  ")),
                    false => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        print(&text)
    }
}

/// Formats 1234567 as 1,234,567.
pub fn number(value: impl Into<i128>) -> String {
    let value: i128 = value.into();
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match value < 0 {
        true => format!("-{text}"),
        false => text,
    }
}

/// Formats a count, or "10,000+".
pub fn counted(counted: Counted) -> String {
    format!("{}{}", number(counted.count), if counted.at_least { "+" } else { "" })
}

/// Returns the start of a text, on one line.
pub fn brief(text: &str, chars_max: usize) -> String {
    let line: String = text.chars().map(|c| if is_steering(c) { ' ' } else { c }).collect();
    match line.chars().count() > chars_max {
        true => format!("{}…", line.chars().take(chars_max - 1).collect::<String>()),
        false => line,
    }
}

/// Formats seconds for people, such as "2 h 5 min".
pub fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..86_400 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        s => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ages_read_well() {
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(number(-12), "-12");
        assert_eq!(age(3_700), "1 h 1 min");
        assert_eq!(brief("a\nb", 9), "a b");
        assert_eq!(brief("abcdef", 4), "abc…");
    }

    #[test]
    fn nothing_steers_a_terminal_and_no_value_makes_a_line_of_the_log() {
        let hostile = "a\x1b]0;owned\x07\u{9b}2Jb\r\nERROR forged\tc\n";
        assert_eq!(visible(hostile), "a\\u{1b}]0;owned\\u{7}\\u{9b}2Jb\\r\nERROR forged\tc\n");
        let mut log = Vec::new();
        OneLine(&mut log).write_all(b"\x1b[31mERROR\x1b[0m no\r\nINFO forged\x0e\n").unwrap();
        let expected = "\x1b[31mERROR\x1b[0m no\\r\\nINFO forged\\u{e}\n";
        assert_eq!(String::from_utf8(log).unwrap(), expected);
    }
}
