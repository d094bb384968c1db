//! Keeps the SQL of the crates tidy: every statement is used, and every limit in it is the limit of
//! the Rust code.

use std::fs;
use std::path::{Path, PathBuf};

use postrider::limits;
use postrider_store::{Event, SUSPECT_CRASHES};

/// The numbers of three digits and more that statements may contain.
const NUMBERS: [(u64, &str); 10] = [
    (limits::AGGREGATE_TYPE_CHARS_MAX as u64, "characters of a name, an operator and a target"),
    (limits::EVENT_TYPE_CHARS_MAX as u64, "characters of an event type"),
    (limits::AGGREGATE_ID_CHARS_MAX as u64, "characters of a key"),
    (limits::LAST_ERROR_CHARS_MAX as u64, "characters of `last_error`"),
    (Event::WEIGHT_BASE_BYTES as u64, "bytes that a row counts besides its texts"),
    (limits::MAX_RETRIES_MAX as u64, "attempts, characters of a message, ms of a second"),
    (1_000_000, "where counts of attempts and crashes stop"),
    (86_400_000, "ms of a day"),
    (999_999, "the last microsecond of a second"),
    (80_000, "the first version of MySQL that executes a comment: 8.0"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder").to_owned()
}

/// Returns the files below a folder whose names end like this.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("its entries can be listed").path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn sql_files() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = ["postrider", "postrider-store"]
        .iter()
        .flat_map(|name| files(&crates().join(name).join("src"), ".sql"))
        .collect();
    assert!(found.len() > 50, "the SQL has moved");
    found
}

/// Returns the numbers of a statement, without comments and texts.
fn numbers(sql: &str) -> Vec<u64> {
    let code: String = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default())
        .flat_map(|line| line.split('\'').step_by(2).chain(["\n"]))
        .collect();
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[test]
fn a_limit_in_a_statement_is_the_limit_of_the_code() {
    let mut seen = Vec::new();
    for file in sql_files() {
        // A migration says how the tables were at that time.
        if file.parent().unwrap().ends_with("migrations") {
            continue;
        }
        for number in numbers(&fs::read_to_string(&file).unwrap()) {
            let known = NUMBERS.iter().any(|(known, _)| *known == number);
            assert!(known || number < 100, "{}: what is {number}?", file.display());
            seen.push(number);
        }
    }
    for (number, what) in NUMBERS {
        assert!(seen.contains(&number), "no statement has the limit {number}: {what}");
    }
}

#[test]
fn an_event_is_a_suspect_after_the_same_number_of_crashes_everywhere() {
    let mut seen = 0;
    for file in sql_files() {
        let sql = fs::read_to_string(&file).unwrap().to_lowercase();
        for comparison in
            ["crash_count >= ", "crash_count < ", "(crash_count, ", "(o.crash_count, "]
        {
            for rest in sql.split(comparison).skip(1) {
                let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
                // `(crash_count, id)` is a list of columns; 0 is where counts begin.
                let Some(number) = number.parse::<i32>().ok().filter(|number| *number > 0) else {
                    continue;
                };
                assert_eq!(number, SUSPECT_CRASHES, "{}: {comparison}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 12, "the statements have changed: {seen}");
}

#[test]
fn every_statement_is_used() {
    for file in sql_files() {
        let folder = file.parent().unwrap();
        // The statements of operator work have constants, and a test beside them.
        if folder.parent().unwrap().ends_with("operator") || file.ends_with("operator.sql") {
            continue;
        }
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let place = format!("{}/{}", name(folder), name(&file));
        let code: String = files(folder.parent().unwrap(), ".rs")
            .iter()
            .flat_map(|file| {
                fs::read_to_string(file)
                    .unwrap()
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        let text = fs::read_to_string(&file).unwrap();
        let statements: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("-- name: ")).collect();
        if statements.is_empty() {
            assert!(code.contains(&format!("include_str!(\"{place}\")")), "{place} is not used");
        }
        for statement in statements {
            let used = format!("sql!(\"{place}\",\"{statement}\"");
            assert!(code.contains(&used), "{place}: {statement} is not used");
        }
    }
}

#[test]
fn numbers_are_found_in_code_only() {
    assert_eq!(numbers("SELECT 7, '100 years' -- of 200\n, least(x1, 1000000)"), [7, 1_000_000]);
}
