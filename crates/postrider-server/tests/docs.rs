//! The documentation names what the program has, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

const DEFAULT: &str = include_str!("../src/config/default.toml");
const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
const TELEMETRY: &str = include_str!("../../postrider-relay/src/telemetry.rs");
const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// `[section] key`, of the commented keys too. The kinds of `[[sink]]` share one section.
fn keys_of_the_default() -> BTreeSet<String> {
    let (mut section, mut keys) = (String::new(), BTreeSet::new());
    for line in DEFAULT.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, _)) = line.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            keys.insert(format!("{section}.{key}"));
        }
    }
    keys
}

/// Rows of tables that start with a key, below a heading that names the section.
fn keys_of_the_page() -> BTreeSet<String> {
    let (mut section, mut keys) = (String::new(), BTreeSet::new());
    for line in CONFIGURATION.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let named = heading.split('`').nth(1).unwrap_or_default();
            section = named.trim_matches(['[', ']']).to_owned();
        }
        let key = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
        if let Some(key) = key.filter(|_| !section.is_empty()) {
            keys.insert(format!("{section}.{key}"));
        }
    }
    keys
}

#[test]
fn every_key_of_the_configuration_is_documented_and_no_other() {
    let (default, page) = (keys_of_the_default(), keys_of_the_page());
    assert!(default.len() > 40, "the default file was not understood: {default:?}");
    let missing: Vec<_> = default.difference(&page).collect();
    let unknown: Vec<_> = page.difference(&default).collect();
    assert!(missing.is_empty(), "docs/configuration.md lacks {missing:?}");
    assert!(unknown.is_empty(), "docs/configuration.md has {unknown:?}, default.toml does not");
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let mut metrics = BTreeSet::new();
    let names = |line: &&str| line.starts_with("pub const ") && line.contains("\"postrider_");
    for line in TELEMETRY.lines().filter(names) {
        let name = line.split('"').nth(1).unwrap_or_default();
        assert!(OPERATIONS.contains(&format!("`{name}`")), "docs/operations.md lacks {name}");
        metrics.insert(name);
    }
    assert!(metrics.len() > 10, "telemetry.rs was not understood: {metrics:?}");
    for line in OPERATIONS.lines() {
        if let Some(name) = line.strip_prefix("| `postrider_").and_then(|r| r.split('`').next()) {
            assert!(metrics.contains(format!("postrider_{name}").as_str()), "no metric {name}");
        }
    }
}

/// Links from page to page, and to files of the repository.
#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<_> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .to_vec();
    for folder in ["docs", "docs/decisions"] {
        for file in std::fs::read_dir(root.join(folder)).expect("the folder of the pages") {
            let path = file.expect("an entry").path();
            pages.extend((path.extension().is_some_and(|e| e == "md")).then_some(path));
        }
    }
    let mut links = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let folder = page.parent().expect("a folder");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let (page, found) = (page.display(), folder.join(target).exists());
            assert!(found, "{page} links to {target}, which is not there");
            links += 1;
        }
    }
    assert!(links > 20, "{links} links found");
}

/// No figure of the page was typed by hand: the script makes the same page from the files.
#[test]
fn the_performance_page_is_what_its_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = root.join("dev/performance");
    let made = match std::process::Command::new(&python).arg(script).arg("--print").output() {
        Ok(made) => made,
        Err(error) => {
            let test = "the_performance_page_is_what_its_files_say";
            return postrider_testkit::skip(test, &format!("{python} cannot be run: {error}"));
        }
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let page = std::fs::read_to_string(root.join("docs/performance.md")).expect("the page");
    let made = String::from_utf8(made.stdout).expect("UTF-8");
    assert!(page == made, "run `dev/performance --page`: docs/performance.md is not what it makes");
}
