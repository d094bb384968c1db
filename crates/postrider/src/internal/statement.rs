//! SQL is in files by topic. `-- name: …` introduces each statement of a file; `sql!` cuts one out
//! while the program is compiled, so that a name without a statement does not compile.

/// What introduces a statement in its file.
pub const NAME: &str = "-- name: ";

/// Returns a statement of a file beside the calling module, with its comments.
#[doc(hidden)]
#[macro_export]
macro_rules! __sql {
    ($file:literal, $name:literal) => {
        const { $crate::internal::statement::cut(include_str!($file), $name) }
    };
}

/// Returns the text between the line that names a statement and the next such line.
///
/// # Panics
/// If the file has no statement of this name: at compile time, when evaluated in a constant.
pub const fn cut(file: &'static str, name: &str) -> &'static str {
    let (bytes, mark) = (file.as_bytes(), NAME.as_bytes());
    let mut at = 0;
    while at < bytes.len() {
        let end = line_end(bytes, at);
        if starts_with(bytes, at, mark) {
            let named = at + mark.len();
            if end - named == name.len() && starts_with(bytes, named, name.as_bytes()) {
                return until_next(file, end);
            }
        }
        at = end + 1;
    }
    panic!("the file has no statement of this name")
}

const fn until_next(file: &'static str, from: usize) -> &'static str {
    let (bytes, mark) = (file.as_bytes(), NAME.as_bytes());
    let mut at = from + 1;
    while at < bytes.len() && !starts_with(bytes, at, mark) {
        at = line_end(bytes, at) + 1;
    }
    let end = if at < bytes.len() { at } else { bytes.len() };
    // The blank line before the next name belongs to no statement.
    let length = file.split_at(end).0.trim_ascii_end().len();
    file.split_at(length + 1).0.split_at(from + 1).1
}

const fn line_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != b'\n' {
        at += 1;
    }
    at
}

const fn starts_with(bytes: &[u8], from: usize, prefix: &[u8]) -> bool {
    let mut at = 0;
    while at < prefix.len() {
        if from + at >= bytes.len() || bytes[from + at] != prefix[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "-- name: first\n-- Why.\nSELECT 1\n\n-- name: first_too\nSELECT 2\n";

    #[test]
    fn a_statement_ends_where_the_next_one_begins() {
        assert_eq!(cut(FILE, "first"), "-- Why.\nSELECT 1\n");
        assert_eq!(cut(FILE, "first_too"), "SELECT 2\n");
    }

    #[test]
    #[should_panic(expected = "no statement of this name")]
    fn half_of_a_name_names_no_statement() {
        cut(FILE, "firs");
    }
}
