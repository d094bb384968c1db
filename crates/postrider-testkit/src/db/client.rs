//! Splits a script like a command-line client does before the server receives it.

use postrider_store::StoreKind;

/// Returns the pieces that are sent one by one. PostgreSQL and SQLite accept a whole script; the
/// `mysql` client splits it at the delimiter, which a script with triggers changes with
/// `DELIMITER`.
pub(super) fn statements(kind: StoreKind, script: &str) -> Vec<String> {
    if kind != StoreKind::Mysql || !script.contains("\nDELIMITER ") {
        return vec![script.to_owned()];
    }
    let (mut delimiter, mut statement, mut statements) = (";", String::new(), Vec::new());
    for line in script.lines() {
        if let Some(next) = line.strip_prefix("DELIMITER ") {
            delimiter = next.trim();
            continue;
        }
        match line.trim_end().strip_suffix(delimiter) {
            Some(end) => {
                statement.push_str(end);
                statements.push(std::mem::take(&mut statement));
            }
            None => {
                statement.push_str(line);
                statement.push('\n');
            }
        }
    }
    statements.push(statement);
    let empty = |text: &str| text.lines().all(|l| l.trim().is_empty() || l.starts_with("--"));
    statements.retain(|statement| !empty(statement));
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_at_the_delimiter_that_it_names() {
        let script = "CREATE TABLE a (\n  b int);\nDELIMITER //\nBEGIN x; y; END//\n\
                      DELIMITER ;\nSELECT 1;\n-- the end\n";
        let expected = ["CREATE TABLE a (\n  b int)", "BEGIN x; y; END", "SELECT 1"];
        assert_eq!(statements(StoreKind::Mysql, script), expected);
        assert_eq!(statements(StoreKind::Postgres, script), [script]);
    }
}
