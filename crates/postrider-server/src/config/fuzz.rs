//! Broken configurations: each is accepted, or refused with the name of the key that is wrong.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// Returns the default configuration with all commented-out keys turned on, each with the value
/// shown there.
pub(super) fn whole() -> String {
    let text: String = DEFAULT
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || is_setting(rest) => {
                let rest = rest.split("   ").next().unwrap();
                let (variable, file) = ("https://example.com/", "/dev/null");
                format!("{rest}\n").replace("env:", variable).replace("partner.json.j2", file)
            }
            _ => format!("{line}\n"),
        })
        .collect();
    // The outboxes that the example of a fan-out refers to.
    let branches = ["orders_to_kafka", "large_orders"]
        .map(|name| format!("[[outbox]]\nname = '{name}'\npreset = 'broker'\nsink = 'kafka'\n"));
    [text, branches.concat()].concat()
}

fn is_setting(line: &str) -> bool {
    line.split_once(" = ")
        .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

/// Values at the limits of types, arithmetic, times, URLs, templates and files.
const VALUES: [&str; 48] = [
    "0",
    "1",
    "-1",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "0.5",
    "-0.0",
    "1e308",
    "5e-324",
    "nan",
    "inf",
    "-inf",
    "true",
    "''",
    "' '",
    "'x'",
    "'ü'",
    "'open'",
    "'off'",
    "\"\\u0000\"",
    "\"a\\r\\nb: c\"",
    "'0s'",
    "'1ns'",
    "'100y'",
    "'584542046090y'",
    "'18446744073709551615s'",
    "'99999999999999999999y'",
    "'-1s'",
    "'25:61'",
    "'0.0.0.0:80'",
    "'127.0.0.1:0'",
    "'http://[::1'",
    "'http://h:99999/'",
    "'https://user:hunter2@h/?a=b'",
    "'//h'",
    "'{x}'",
    "'{{ x }}'",
    "'{% if %}'",
    "'((('",
    "'; DROP TABLE x'",
    "'/no/such'",
    "'file:/no/such'",
    "'env:POSTRIDER_NO_SUCH'",
    "[]",
    "['x', '']",
    "{}",
    "1979-05-27T07:32:00Z",
];

/// Returns the error that refuses a configuration.
fn refusal(text: &str) -> Option<String> {
    let parsed = toml::from_str::<Config>(text).map_err(|error| malformed("file", text, &error));
    let built = parsed.and_then(Config::validated).and_then(Config::build);
    built.err().map(|error| error.to_string())
}

/// Found by fuzzing: the error for a renamed block named only the old name.
#[test]
fn who_names_a_block_that_is_not_there_is_told_which_there_are() {
    for (renamed, told) in [
        ("name = \"default\"", ["[[buffer]]", "outbox = \"default\"", "name of an [[outbox]]"]),
        ("name = \"log\"", ["[[outbox]]", "sink = \"log\"", "name of a [[sink]]"]),
    ] {
        let error = refusal(&whole().replace(renamed, "name = \"renamed\"")).unwrap();
        for word in told.into_iter().chain(["there is: ", "renamed"]) {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}

/// Found by fuzzing: the error named only the limit, which was not changed.
#[test]
fn a_session_that_may_be_idle_for_too_long_is_refused_as_such() {
    let text = whole().replacen("session_idle = ", "session_idle = '100y' # ", 1);
    let error = refusal(&text).unwrap();
    assert!(error.contains("session_idle") && error.contains("session_max"), "{error}");
}

/// Found by fuzzing: the error did not say which of three names was empty.
#[test]
fn an_empty_name_of_a_column_is_refused_as_such() {
    for key in ["table", "key_column", "count_column"] {
        let start = format!("\n{key} = ");
        let buffer = whole().find("[[buffer]]").unwrap();
        let at = buffer + whole()[buffer..].find(&start).unwrap() + start.len();
        let end = at + whole()[at..].find(['\n', '#']).unwrap();
        let error = refusal(&format!("{}''\n{}", &whole()[..at], &whole()[end..])).unwrap();
        assert!(error.contains(&format!("`{key}` = ``")), "{error}");
    }
}

/// Found by fuzzing: the error was about the outbox of a gateway without a name.
#[test]
fn an_empty_name_is_refused_as_such() {
    for block in ["sink", "gateway"] {
        let named = whole().find(&format!("[[{block}]]\n")).unwrap();
        let (before, after) = (whole()[..named].to_owned(), whole()[named..].to_owned());
        let line = after.lines().find(|line| line.starts_with("name = ")).unwrap().to_owned();
        for empty in ["''", "' '"] {
            let text = format!("{before}{}", after.replacen(&line, &format!("name = {empty}"), 1));
            let error = refusal(&text).unwrap();
            assert!(error.contains(&format!("[[{block}]] `name` is empty")), "{error}");
        }
    }
}

proptest! {
    // Each case builds all sinks of the default.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    /// A value that a key does not accept is refused with the name of the key.
    #[test]
    fn fuzz_configurations(at in any::<Index>(), value in select(VALUES.to_vec())) {
        let whole = whole();
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        let settings: Vec<usize> = (0..lines.len()).filter(|i| is_setting(&lines[*i])).collect();
        let line = settings[at.index(settings.len())];
        let key = lines[line].split_once(" = ").unwrap().0.to_owned();
        lines[line] = format!("{key} = {value}");
        let plain = value.trim_matches(['\'', '"']);
        if let Some(error) = refusal(&lines.join("\n")) {
            // For a wrong value in a block with a `kind`, the error names the line of the block.
            let is_placed = error.starts_with("file line ");
            let names = error.contains(&key) || (plain.len() > 1 && error.contains(plain));
            // A value of one character is in most errors by chance, but not in quotes.
            let is_quoted = !plain.is_empty() && error.contains(&format!("`{plain}`"));
            let names = names || is_placed || is_quoted;
            prop_assert!(names, "line {}, {} = {}: {}", line + 1, key, value, error);
        }
    }

    /// A file with arbitrary damage is accepted or refused. Errors show no part of a secret.
    #[test]
    fn fuzz_configurations_that_are_damaged(
        at in any::<Index>(),
        from in any::<Index>(),
        lost in 0..12_usize,
        put in prop_oneof![
            "[\\[\\]{}=\"'#.\\\\\n a-z0-9]{0,6}".prop_map(String::from),
            (0..5_000_usize).prop_map(|levels| "[".repeat(levels)),
            (0..5_000_usize).prop_map(|levels| "{a=".repeat(levels)),
            any::<String>(),
        ],
    ) {
        let secret = "https://user:hunter2@example.com/?hunter2=hunter2";
        let whole = whole().replace("https://example.com/", secret);
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        let settings: Vec<usize> = (0..lines.len()).filter(|i| is_setting(&lines[*i])).collect();
        let line = &mut lines[settings[at.index(settings.len())]];
        let start = from.index(line.len() + 1);
        let start = (start..=line.len()).find(|at| line.is_char_boundary(*at)).unwrap();
        let end = line[start..].char_indices().nth(lost).map_or(line.len(), |(n, _)| start + n);
        line.replace_range(start..end, &put);
        if let Some(error) = refusal(&lines.join("\n")) {
            prop_assert!(!error.contains("hunter2"), "{}", error);
        }
    }
}
