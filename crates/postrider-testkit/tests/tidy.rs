//! Keeps the shape of the code: which crate and module may use which, how long files and functions
//! may be, and that ARCHITECTURE.md names every module. It reads sources and runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
/// Only rows of a table in a comment are longer: they cannot be wrapped.
const LINE_COLUMNS_MAX: usize = 100;

/// Functions that are longer, and why. None may grow, and none may stay here that is short again.
const LONG_FUNCTIONS: [(&str, &str, usize, &str); 11] = [
    ("tests/relay/redis_sink.rs", "$case", 81, "a macro with many short tests"),
    ("bench/blocked_keys.rs", "report", 83, "one list of figures"),
    ("bench/destinations.rs", "destinations", 73, "the course of one measurement"),
    ("bench/outage.rs", "outage", 71, "the course of one measurement"),
    ("commands/run.rs", "start", 72, "the order of a start"),
    ("config/mod.rs", "mistakes_are_named_with_what_is_allowed", 186, "a table of mistakes"),
    (
        "e2e/adopted_columns.rs",
        "an_id_may_be_text_in_one_table_and_a_uuid_in_the_other",
        80,
        "one story, step by step",
    ),
    (
        "e2e/api_operations.rs",
        "dead_letters_are_found_grouped_retried_resolved_and_edited",
        73,
        "one story, step by step",
    ),
    (
        "e2e/api_operations.rs",
        "a_bulk_job_is_counted_made_once_and_run_by_the_relay",
        75,
        "one story, step by step",
    ),
    ("donation/src/ledger.rs", "donate", 106, "one transaction, to be read in one piece"),
    ("transfer/src/bank.rs", "transfer", 79, "one transaction, to be read in one piece"),
];

/// The crates of the product, and the ones that each may depend on.
const CRATES: [(&str, &[&str]); 9] = [
    ("postrider", &[]),
    ("postrider-store", &["postrider"]),
    ("postrider-consumer", &["postrider", "postrider-store"]),
    ("postrider-relay", &["postrider", "postrider-store"]),
    ("postrider-command", &["postrider", "postrider-store", "postrider-relay"]),
    ("postrider-bench", &["postrider", "postrider-store", "postrider-relay", "postrider-command"]),
    (
        "postrider-server",
        &[
            "postrider",
            "postrider-store",
            "postrider-relay",
            "postrider-command",
            "postrider-bench",
        ],
    ),
    ("postrider-testkit", &["postrider", "postrider-store", "postrider-relay"]),
    ("postrider-simulation", &["postrider", "postrider-store", "postrider-relay"]),
];

/// The modules of the relay, lowest layer first. Each uses only those before it.
const RELAY_LAYERS: [&str; 23] = [
    "fuzz",
    "telemetry",
    "timer",
    "tls",
    "waker",
    "outcome",
    "preset",
    "message",
    "http",
    "destination",
    "policy",
    "sink",
    "sinks",
    "gateway",
    "alerts",
    "config",
    "observations",
    "lease",
    "monitor",
    "delivery",
    "error",
    "buffer",
    "engine",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all Rust files below a folder, as paths from the root of the repository.
fn rust_files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("the folder is there") {
            let entry = entry.expect("its entries can be listed");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} has no Rust files");
    found
}

/// Returns the modules that a crate's `lib.rs` declares, in their order.
fn modules(crate_name: &str) -> Vec<String> {
    let module = |line: &str| {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned)
    };
    read(format!("crates/{crate_name}/src/lib.rs")).lines().filter_map(module).collect()
}

/// Returns the first words after each `crate::` in code, without comments.
fn used_modules(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let words = code.split("crate::").skip(1);
    let first = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    // `$crate::` of a macro is its own crate, too.
    words.map(first).filter(|word| !word.is_empty()).collect()
}

#[test]
fn crates_depend_in_one_direction() {
    for (name, allowed) in CRATES {
        let manifest = read(format!("crates/{name}/Cargo.toml"));
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for (other, _) in CRATES {
            let uses = dependencies.lines().any(|line| {
                line.strip_prefix(other).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
            });
            assert!(!uses || allowed.contains(&other), "{name} must not depend on {other}");
        }
    }
}

#[test]
fn a_module_of_the_relay_uses_only_lower_layers() {
    let declared: BTreeSet<String> = modules("postrider-relay").into_iter().collect();
    assert_eq!(declared, RELAY_LAYERS.map(str::to_owned).into(), "each module has a layer");
    let rank: BTreeMap<&str, usize> =
        RELAY_LAYERS.iter().enumerate().map(|(rank, name)| (*name, rank)).collect();
    let mut wrong = Vec::new();
    for file in rust_files("crates/postrider-relay/src") {
        let inside = file.strip_prefix("crates/postrider-relay/src/").unwrap();
        let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
        let Some(own) = rank.get(module) else { continue };
        for (number, line) in read(&file).lines().enumerate() {
            for used in used_modules(line) {
                match rank.get(used.as_str()) {
                    Some(other) if other <= own => {}
                    Some(_) => wrong.push(format!("{file}:{}: {module} uses {used}", number + 1)),
                    None => wrong
                        .push(format!("{file}:{}: name the module of `crate::{used}`", number + 1)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "the layers are in RELAY_LAYERS:\n{}", wrong.join("\n"));
}

#[test]
fn files_and_functions_are_short() {
    let mut wrong = Vec::new();
    let mut long: BTreeSet<(&str, &str)> = BTreeSet::new();
    for folder in ["crates", "examples"] {
        for file in rust_files(folder) {
            let text = read(&file);
            let lines: Vec<&str> = text.lines().collect();
            if lines.len() > FILE_LINES_MAX {
                wrong.push(format!("{file}: {} lines", lines.len()));
            }
            wrong.extend(long_lines(&lines).map(|number| format!("{file}:{number}: a long line")));
            for (name, length) in functions(&lines) {
                let allowed = LONG_FUNCTIONS
                    .iter()
                    .find(|(known, function, ..)| file.ends_with(known) && *function == name);
                if let Some((known, function, ..)) = allowed
                    && length > FUNCTION_LINES_MAX
                {
                    long.insert((known, function));
                }
                let max = allowed.map_or(FUNCTION_LINES_MAX, |(_, _, max, _)| *max);
                if length > max {
                    wrong.push(format!("{file}: `{name}` has {length} lines"));
                }
            }
        }
    }
    for (file, function, ..) in LONG_FUNCTIONS {
        if !long.contains(&(file, function)) {
            wrong.push(format!("{file}: `{function}` is short now: remove the exception"));
        }
    }
    assert!(
        wrong.is_empty(),
        "files have up to {FILE_LINES_MAX} lines, functions up to {FUNCTION_LINES_MAX}, lines \
         up to {LINE_COLUMNS_MAX} columns:\n{}",
        wrong.join("\n")
    );
}

/// Returns the numbers of the lines that are too long.
fn long_lines<'a>(lines: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
    let is_long = |line: &str| {
        line.chars().count() > LINE_COLUMNS_MAX && !line.trim_start().starts_with("//! |")
    };
    lines.iter().enumerate().filter(move |(_, line)| is_long(line)).map(|(index, _)| index + 1)
}

/// Returns the functions of a file with their length, as rustfmt lays them out.
fn functions<'a>(lines: &[&'a str]) -> Vec<(&'a str, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let mut words = code
            .split(' ')
            .skip_while(|word| matches!(*word, "const" | "async") || word.starts_with("pub"));
        if words.next() != Some("fn") {
            continue;
        }
        let name = words.next().unwrap_or_default();
        let name = name.split(['(', '<']).next().unwrap_or_default();
        let end = lines[start..].iter().position(|line| {
            let rest = line.strip_prefix(indent).unwrap_or_default();
            // A body ends at its brace, and a signature without a body at its semicolon.
            rest == "}" || (!rest.starts_with(' ') && rest.ends_with(';'))
        });
        found.push((name, end.map_or(1, |end| end + 1)));
    }
    found
}

#[test]
fn architecture_names_every_module() {
    let page = read("ARCHITECTURE.md");
    let names = |name: &String| page.contains(&format!("`{name}`"));
    for crate_name in [
        "postrider",
        "postrider-store",
        "postrider-consumer",
        "postrider-relay",
        "postrider-command",
        "postrider-bench",
    ] {
        let missing: Vec<_> =
            modules(crate_name).into_iter().filter(|module| !names(module)).collect();
        assert!(missing.is_empty(), "ARCHITECTURE.md does not name {crate_name}: {missing:?}");
    }
    let lines = page.lines().count();
    assert!(lines <= 250, "ARCHITECTURE.md has {lines} lines; move details to docs/design");
}

#[test]
fn the_checks_notice_what_they_are_for() {
    assert_eq!(used_modules("use crate::engine::rows; // crate::nothing"), ["engine"]);
    let lines = ["    pub(crate) async fn long(", "        &self,", "    ) {", "    }"];
    assert_eq!(functions(&lines), [("long", 4)]);
    let (long, row) = ("a".repeat(101), format!("//! | {} |", "a".repeat(100)));
    assert_eq!(long_lines(&["short", &long, &row]).collect::<Vec<_>>(), [2]);
    assert_eq!(functions(&["fn declared(", "    &self,", ");"]), [("declared", 3)]);
    assert_eq!(functions(&["fn declared();", "fn body() {", "}"]), [("declared", 1), ("body", 2)]);
}
