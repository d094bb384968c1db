//! What goes to the terminal: tables and JSON on standard output, the log on standard error.

use std::io::{IsTerminal, Write};

use postrider::store::Counted;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::commands::Failure;

pub(crate) fn start_log(filter: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| format!("--log {filter}: {error}; use error, warn, info or debug"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match json {
        true => log.json().init(),
        false => log.init(),
    }
    Ok(())
}

/// Prints text; a closed pipe is an error like any other.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other);
    print(&format!("{}\n", text.map_err(Failure::Output)?))
}

/// A table with aligned columns. Numbers go to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|text| (*text).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
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

/// 1234567 as 1,234,567.
pub(crate) fn number(value: impl Into<i128>) -> String {
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

/// A count, or "10,000+".
pub(crate) fn counted(counted: Counted) -> String {
    format!("{}{}", number(counted.count), if counted.at_least { "+" } else { "" })
}

/// The start of a text in one line.
pub(crate) fn brief(text: &str, chars_max: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.chars().count() > chars_max {
        true => format!("{}…", line.chars().take(chars_max - 1).collect::<String>()),
        false => line,
    }
}

/// Seconds as people say them.
pub(crate) fn age(seconds: i64) -> String {
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
}
