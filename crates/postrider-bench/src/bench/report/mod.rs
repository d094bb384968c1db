//! The results of a bench and their three formats: lines for a terminal, one JSON object, and a
//! page with plots.

mod plot;

use std::fmt::Write;
use std::path::Path;

use postrider_command::Failure;
use postrider_command::output;
use serde::Serialize;
use serde_json::Value;

pub(super) use plot::{Axis, Bars, Lines, Plot};

use super::facts::Facts;
use crate::cli::OutputArgs;

const STYLE: &str = include_str!("style.css");

/// A finished bench.
pub(super) struct Report {
    pub(super) facts: Facts,
    /// The figure in a few words, such as `45,000 events/s`.
    pub(super) headline: String,
    /// The reference of the ratio, such as `of the barest client loop (90,000 events/s)`.
    pub(super) against: String,
    pub(super) ratio: f64,
    /// Further figures, as name and value.
    pub(super) figures: Vec<(String, String)>,
    pub(super) plots: Vec<Plot>,
    /// The data that are particular to this bench, in addition to the facts.
    pub(super) details: Value,
    /// The reason why the command fails although it has figures.
    pub(super) failure: Option<Failure>,
}

impl Report {
    /// Prints the report, writes the page, and returns the bench's result.
    pub(super) fn give_out(self, args: &OutputArgs) -> Result<(), Failure> {
        let json = self.json()?;
        match args.json {
            true => output::print_json(&json)?,
            false => output::print(&self.text())?,
        }
        if let Some(path) = &args.report {
            write_page(path, &self.page(&json)?)?;
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Returns one object: the facts, followed by the details.
    fn json(&self) -> Result<Value, Failure> {
        #[derive(Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            facts: &'a Facts,
            #[serde(flatten)]
            details: &'a Value,
        }
        let whole = Whole { facts: &self.facts, details: &self.details };
        serde_json::to_value(whole).map_err(|error| Failure::Output(std::io::Error::other(error)))
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.facts.bench, self.headline);
        let _ = writeln!(text, "{:.1} % {}", self.ratio * 100.0, self.against);
        let width = self.figures.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in &self.figures {
            let _ = writeln!(text, "  {name:<width$}  {value}");
        }
        let Facts { server, durability, machine, build, .. } = &self.facts;
        let durability: Vec<String> =
            durability.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(text, "{server} ({})", durability.join(", "));
        let _ = writeln!(text, "{} cores, {}, {build} build", machine.cores, machine.cpu);
        text
    }

    fn page(&self, json: &Value) -> Result<String, Failure> {
        let Facts {
            bench,
            postrider,
            build,
            command,
            measured_at,
            store,
            server,
            durability,
            machine,
        } = &self.facts;
        let mut page =
            String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        let _ = write!(
            page,
            "<meta name=\"viewport\" content=\"width=device-width\">\
             <title>postrider bench {bench}</title>\
             <style>{STYLE}</style></head><body><main><header><p>postrider bench {bench}</p>\
             <h1>{}</h1><p>{:.1} % {}</p>\
             <div class=\"meter\"><div style=\"width:{:.1}%\"></div></div>\
             </header>",
            escape(&self.headline),
            self.ratio * 100.0,
            escape(&self.against),
            (self.ratio * 100.0).clamp(0.0, 100.0),
        );
        if let Some(failure) = &self.failure {
            let _ = write!(page, "<p class=\"failure\">{}</p>", escape(&failure.to_string()));
        }
        table(&mut page, "Figures", &self.figures);
        for plot in &self.plots {
            let _ = write!(
                page,
                "<figure><figcaption>{}</figcaption>{}</figure>",
                escape(plot.title()),
                plot.svg()
            );
        }
        let mut facts = vec![
            ("command".to_owned(), command.clone()),
            ("measured at".to_owned(), measured_at.clone()),
            ("postrider".to_owned(), format!("{postrider} ({build} build)")),
            ("store".to_owned(), format!("{store}: {server}")),
            (
                "machine".to_owned(),
                format!(
                    "{} cores, {} MB, {}, {}",
                    machine.cores, machine.memory_mb, machine.cpu, machine.system
                ),
            ),
        ];
        facts.extend(durability.iter().map(|(name, value)| (name.clone(), value.clone())));
        table(&mut page, "How it was measured", &facts);
        let json = serde_json::to_string_pretty(json).map_err(std::io::Error::other);
        let json = escape(&json.map_err(Failure::Output)?);
        let _ = write!(
            page,
            "<details><summary>All of it as JSON</summary><pre>{json}</pre></details>"
        );
        page.push_str("</main></body></html>\n");
        Ok(page)
    }
}

fn table(page: &mut String, title: &str, rows: &[(String, String)]) {
    let _ = write!(page, "<h2>{title}</h2><table>");
    for (name, value) in rows {
        let _ = write!(page, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    page.push_str("</table>");
}

/// Fails before a run of minutes if the page cannot be written, not after it.
pub(super) fn check_path(path: Option<&Path>) -> Result<(), Failure> {
    let folder = path.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) && !path.is_some_and(Path::is_dir) {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "--report {}: name a file in a folder that is there",
            path.unwrap_or(Path::new("")).display()
        ))),
    }
}

fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(path, page).map_err(|error| {
        Failure::Partly(format!("--report {} cannot be written: {error}", path.display()))
    })
}

/// Escapes text for a page, including quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::machine::Machine;
    use super::*;

    fn report() -> Report {
        let facts = Facts {
            bench: "drain",
            postrider: "0.1.0",
            build: "release",
            command: "postrider bench drain --outbox '<script>alert(1)</script>'".to_owned(),
            measured_at: "2026-01-01T00:00:00Z".to_owned(),
            store: "sqlite",
            server: "SQLite & more".to_owned(),
            durability: BTreeMap::from([("synchronous".to_owned(), "<full>".to_owned())]),
            machine: Machine {
                cores: 2,
                memory_mb: 1,
                cpu: "\"Quoted\" CPU".to_owned(),
                system: "linux".to_owned(),
            },
        };
        Report {
            facts,
            headline: "1 event/s".to_owned(),
            against: "of 'the limit'".to_owned(),
            ratio: 1.7,
            figures: vec![("a <b>".to_owned(), "x & y".to_owned())],
            plots: vec![],
            details: serde_json::json!({ "events_per_s": 1.0, "text": "</pre><script>" }),
            failure: None,
        }
    }

    #[test]
    fn nothing_in_a_page_is_anything_but_text() {
        let report = report();
        let page = report.page(&report.json().unwrap()).unwrap();
        assert!(!page.contains("<script"), "{page}");
        for text in ["a &lt;b&gt;", "x &amp; y", "&lt;full&gt;", "&quot;Quoted&quot; CPU"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(page.contains("width:100.0%"), "a meter is never longer than its frame");
        assert!(!page.contains("http"), "a page needs no network");
        assert_eq!(
            escape(r#"<a href='x' title="y">&"#),
            "&lt;a href=&#39;x&#39; title=&quot;y&quot;&gt;&amp;"
        );
    }

    #[test]
    fn json_is_one_object_with_facts_and_details() {
        let json = report().json().unwrap();
        assert_eq!((&json["bench"], &json["events_per_s"]), (&"drain".into(), &1.0.into()));
        assert_eq!(json["machine"]["cores"], 2);
    }

    #[test]
    fn a_report_that_has_no_place_is_refused_before_the_run() {
        assert!(check_path(None).is_ok());
        assert!(check_path(Some(Path::new("report.html"))).is_ok());
        let error = check_path(Some(Path::new("/no/such/folder/report.html"))).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder/report.html"), "{error}");
    }
}
