//! Plots as inline SVG. The page's style sets the colours, so that they suit light and dark mode.

use std::borrow::Cow;
use std::fmt::Write;

use postrider_command::output::number;

use super::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
const BAR_HEIGHT: f64 = 34.0;
const BAR_LEFT: f64 = 190.0;
/// Approximate number of steps on an axis.
const TICKS: f64 = 5.0;

/// A plot of a report.
pub(in crate::bench) enum Plot {
    Lines(Lines),
    Bars(Bars),
}

/// Values along an axis, with a line per series.
pub(in crate::bench) struct Lines {
    pub(in crate::bench) title: &'static str,
    pub(in crate::bench) y_unit: &'static str,
    pub(in crate::bench) x: Axis,
    pub(in crate::bench) series: Vec<Series>,
}

/// The name for the legend, empty if there is only one line, and the points.
type Series = (Cow<'static, str>, Vec<(f64, f64)>);

/// The horizontal axis.
pub(in crate::bench) enum Axis {
    Seconds,
    /// Percentiles from 0 to 1, with equal space for each further nine.
    Nines,
}

/// One bar per case, with a mark at its limit.
pub(in crate::bench) struct Bars {
    pub(in crate::bench) title: &'static str,
    pub(in crate::bench) unit: &'static str,
    pub(in crate::bench) bars: Vec<(String, f64, Option<f64>)>,
}

impl Plot {
    pub(super) fn title(&self) -> &'static str {
        match self {
            Self::Lines(lines) => lines.title,
            Self::Bars(bars) => bars.title,
        }
    }

    pub(super) fn svg(&self) -> String {
        match self {
            Self::Lines(lines) => lines.svg(),
            Self::Bars(bars) => bars.svg(),
        }
    }
}

impl Lines {
    fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let x_of = |value: f64| match self.x {
            Axis::Seconds => value,
            Axis::Nines => nines(value),
        };
        let x_max = points().map(|(x, _)| x_of(*x)).fold(f64::MIN_POSITIVE, f64::max);
        let y_max = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let y_step = step(y_max);
        let y_top = (y_max / y_step).ceil().max(1.0) * y_step;
        let across = |x: f64| LEFT + x_of(x) / x_max * (WIDTH - LEFT - RIGHT);
        let down = |y: f64| HEIGHT - BOTTOM - y / y_top * (HEIGHT - TOP - BOTTOM);

        let mut svg = open(HEIGHT, self.title);
        let mut y = 0.0;
        while y <= y_top * 1.001 {
            let at = down(y);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                short(y),
            );
            y += y_step;
        }
        for (x, label) in self.x_ticks(x_max) {
            let _ = write!(
                svg,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                across(x),
                HEIGHT - BOTTOM + 20.0,
            );
        }
        for (index, (_, points)) in self.series.iter().enumerate() {
            let line: Vec<String> =
                points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), down(*y))).collect();
            let _ = write!(svg, r#"<polyline class="line c{index}" points="{}"/>"#, line.join(" "));
        }
        svg.push_str("</svg>");
        self.legend(svg)
    }

    fn x_ticks(&self, x_max: f64) -> Vec<(f64, String)> {
        match self.x {
            Axis::Nines => [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999]
                .into_iter()
                .filter(|p| nines(*p) <= x_max)
                .map(|p| (p, format!("p{}", p * 100.0)))
                .collect(),
            Axis::Seconds => {
                let step = step(x_max);
                (0..)
                    .map(|n| f64::from(n) * step)
                    .take_while(|x| *x <= x_max)
                    .map(|x| (x, format!("{} s", short(x))))
                    .collect()
            }
        }
    }

    fn legend(&self, mut svg: String) -> String {
        let _ = write!(svg, r#"<p class="legend">{}"#, escape(self.y_unit));
        for (index, (name, _)) in self.series.iter().enumerate() {
            if !name.is_empty() {
                let _ = write!(svg, r#" <span class="key c{index}">{}</span>"#, escape(name));
            }
        }
        svg + "</p>"
    }
}

impl Bars {
    fn svg(&self) -> String {
        let height = BAR_HEIGHT * self.bars.len() as f64 + TOP;
        let most = |(_, value, limit): &(String, f64, Option<f64>)| value.max(limit.unwrap_or(0.0));
        let max = self.bars.iter().map(most).fold(f64::MIN_POSITIVE, f64::max);
        let across = |value: f64| value / max * (WIDTH - BAR_LEFT - 110.0);
        let mut svg = open(height, self.title);
        for (index, (label, value, limit)) in self.bars.iter().enumerate() {
            let y = TOP + BAR_HEIGHT * index as f64;
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar\" x=\"{BAR_LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"20\"/>",
                BAR_LEFT - 8.0,
                y + 14.0,
                escape(label),
                across(*value),
            );
            let mut end = across(*value);
            if let Some(limit) = limit {
                let at = BAR_LEFT + across(*limit);
                end = end.max(across(*limit));
                let _ = write!(
                    svg,
                    r#"<line class="limit" x1="{at:.1}" x2="{at:.1}" y1="{}" y2="{}"/>"#,
                    y - 3.0,
                    y + 23.0
                );
            }
            let (x, y) = (BAR_LEFT + end + 8.0, y + 14.0);
            let _ = write!(svg, r#"<text x="{x:.1}" y="{y}">{}</text>"#, short(*value));
        }
        svg.push_str("</svg>");
        let limits = self.bars.iter().any(|(_, _, limit)| limit.is_some());
        let mark = if limits { "; the mark is the limit" } else { "" };
        let _ = write!(svg, r#"<p class="legend">{}{mark}</p>"#, escape(self.unit));
        svg
    }
}

fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">"#)
}

/// Returns 1, 2 or 5 times a power of ten, such that about [`TICKS`] steps reach `max`.
fn step(max: f64) -> f64 {
    if max <= 0.0 {
        return 1.0;
    }
    let raw = max / TICKS;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= raw).unwrap_or(10.0);
    factor * power
}

/// Maps 0.9 to 1 and 0.99 to 2: each further nine takes equal space.
fn nines(p: f64) -> f64 {
    -(1.0 - p.clamp(0.0, 0.999_999)).log10()
}

/// Formats a number that fits beside an axis.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1_000.0.. => number(value.round() as i128),
        10.0.. => format!("{value:.0}"),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        for (max, expected) in [(5.0, 1.0), (7.3, 2.0), (100.0, 20.0), (0.03, 0.01), (0.0, 1.0)] {
            assert!((step(max) - expected).abs() < 1e-9, "{max}: {}", step(max));
        }
        assert_eq!(
            (short(0.5), short(12_345.6), short(250.0)),
            ("0.5".to_owned(), "12,346".to_owned(), "250".to_owned())
        );
    }

    #[test]
    fn a_plot_of_nothing_is_a_plot_without_strange_numbers() {
        let empty =
            Lines { title: "t", y_unit: "u", x: Axis::Seconds, series: vec![("a".into(), vec![])] };
        let flat = Lines {
            title: "t",
            y_unit: "u",
            x: Axis::Nines,
            series: vec![("".into(), vec![(0.0, 0.0)])],
        };
        let bars = Bars { title: "t", unit: "u", bars: vec![("a".to_owned(), 0.0, None)] };
        for svg in [empty.svg(), flat.svg(), bars.svg()] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let bars = Bars { title: "t", unit: "u", bars: vec![("<b>&".to_owned(), 1.0, Some(2.0))] };
        assert!(bars.svg().contains("&lt;b&gt;&amp;"));
    }
}
