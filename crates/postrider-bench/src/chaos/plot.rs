//! Plots over the time of a run, as inline SVG.

use std::fmt::Write;

use postrider_command::output::number;

/// The style of both kinds of pages.
pub(super) const STYLE: &str = "\
    body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
    color:#1c2430;background:#fff}table{border-collapse:collapse}\
    td,th{text-align:left;padding:.2rem 1rem .2rem 0}.pass{color:#17723b}\
    .fail{color:#b3261e;font-weight:700}svg{width:100%;height:auto}\
    text{font-size:12px;fill:#5b6573}.axis{stroke:#c9d0d9}\
    .line{fill:none;stroke:#2457c5;stroke-width:2}.shade{fill:#fbe3e1}.open{fill:#d9644a}\
    .mark{stroke:#d9644a;stroke-width:1;opacity:.55}p.note{color:#5b6573}\
    @media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181f}text{fill:#9aa5b4}\
    .axis{stroke:#3a4452}.line{stroke:#7aa2ff}.shade{fill:#3a2222}.pass{color:#6fd08c}.fail{\
    color:#ff8a80}}";

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 190.0;
const TOP: f64 = 20.0;
/// Height of a mark.
const MARK: f64 = 12.0;

/// The time axis of the plots, in seconds since the start of the run.
pub(super) struct Plot {
    from_s: f64,
    until_s: f64,
    /// A label, and the end of the time that it covers.
    shade: Option<(&'static str, f64)>,
    /// Moments that are marked at the bottom of each plot.
    marks: Vec<f64>,
}

impl Plot {
    pub(super) fn new(from_s: f64, until_s: f64) -> Self {
        Self { from_s, until_s: until_s.max(from_s + 0.001), shade: None, marks: Vec::new() }
    }

    /// Shades the time from the start until `until_s`.
    pub(super) fn shade(&mut self, word: &'static str, until_s: f64) {
        self.shade = Some((word, until_s));
    }

    /// Marks moments.
    pub(super) fn mark(&mut self, moments: &[f64]) {
        self.marks.extend(moments);
    }

    fn x(&self, at_s: f64) -> f64 {
        LEFT + (at_s - self.from_s) / (self.until_s - self.from_s) * (WIDTH - LEFT - 10.0)
    }

    fn open(&self, html: &mut String, title: &str, height: f64) {
        let bottom = height - HEIGHT + BOTTOM;
        let _ = write!(
            html,
            "<h2>{title}</h2>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">"
        );
        if let Some((word, until_s)) = self.shade {
            let _ = write!(
                html,
                "<rect class=\"shade\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"14\">{word}</text>",
                self.x(until_s) - LEFT,
                bottom - TOP,
                LEFT + 4.0,
            );
        }
        let _ = write!(
            html,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        );
        for at_s in &self.marks {
            let (x, top) = (self.x(*at_s), bottom - MARK);
            let _ = write!(
                html,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
            );
        }
        for tick in 0..=5 {
            let at_s = self.from_s + (self.until_s - self.from_s) * f64::from(tick) / 5.0;
            let _ = write!(
                html,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0} s</text>",
                self.x(at_s),
                bottom + 18.0,
                at_s - self.from_s
            );
        }
    }

    /// Draws a value over time.
    pub(super) fn line(&self, html: &mut String, title: &str, points: &[(f64, f64)]) {
        self.open(html, title, HEIGHT);
        let max = points.iter().map(|(_, y)| *y).fold(1.0, f64::max);
        let y = |value: f64| BOTTOM - value / max * (BOTTOM - TOP);
        for share in [0.0, 0.5, 1.0] {
            let _ = write!(
                html,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y(max * share) + 4.0,
                number((max * share) as i128)
            );
        }
        html.push_str("<polyline class=\"line\" points=\"");
        for (at_s, value) in points {
            let _ = write!(html, "{:.1},{:.1} ", self.x(*at_s), y(*value));
        }
        html.push_str("\"/></svg>");
    }

    /// Draws the periods during which a condition held.
    pub(super) fn band(
        &self,
        html: &mut String,
        title: &str,
        times: impl Iterator<Item = (f64, f64)>,
    ) {
        self.open(html, title, 80.0);
        for (from_s, until_s) in times {
            let (from, width) = (self.x(from_s), self.x(until_s) - self.x(from_s));
            let _ = write!(
                html,
                "<rect class=\"open\" x=\"{from:.1}\" y=\"28\" width=\"{width:.1}\" height=\"16\"/>"
            );
        }
        html.push_str("</svg>");
    }
}

/// Escapes text for a page.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
