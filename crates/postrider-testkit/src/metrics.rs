//! Parses `/metrics`.

/// One scrape in Prometheus' text format.
#[derive(Debug, Clone)]
pub struct Metrics(Vec<Sample>);

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    /// Parses the text format.
    ///
    /// # Panics
    /// If a line is not a sample.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(|l| sample(l).unwrap_or_else(|| panic!("no sample: {l}"))).collect())
    }

    /// Returns the sum of all samples with this name and these labels; 0 if there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(name, value)| {
                    sample.labels.iter().any(|(n, v)| (n.as_str(), v.as_str()) == (*name, *value))
                })
        };
        self.0.iter().filter(fits).map(|sample| sample.value).sum()
    }

    /// Returns the labels of the samples with this name.
    pub fn labels(&self, name: &str) -> std::collections::BTreeSet<&str> {
        let of_name = self.0.iter().filter(|sample| sample.name == name);
        of_name.flat_map(|sample| &sample.labels).map(|(label, _)| label.as_str()).collect()
    }

    /// Returns the names, each once.
    pub fn names(&self) -> std::collections::BTreeSet<&str> {
        self.0.iter().map(|sample| sample.name.as_str()).collect()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, pairs(labels.strip_suffix('}')?)?),
        None => (series, Vec::new()),
    };
    let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    legal.then_some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

/// Parses `a="b",c="d"`; a value may contain anything, with `\`, `"` and line ends escaped.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let (mut pairs, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        pairs.push((name.to_owned(), value));
        rest = after[end + 1..].strip_prefix(',').unwrap_or(&after[end + 1..]);
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_label() {
        let text =
            "# TYPE a counter\na{x=\"1\",y=\"q\\\"r, s\"} 2\na{x=\"2\",y=\"t\"} 3\n\nb 0.5\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.sum("a", &[]), 5.0);
        assert_eq!(metrics.sum("a", &[("y", "q\"r, s")]), 2.0);
        assert_eq!(metrics.sum("b", &[]), 0.5);
        assert_eq!(metrics.sum("c", &[]), 0.0);
    }
}
