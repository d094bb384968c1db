//! Arithmetic behind the figures: percentiles, ratios and series.

use serde::Serialize;

/// Returns the value that `percent` of the sorted values do not exceed (nearest rank); 0 without
/// values.
pub(super) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or(0.0)
}

/// Returns the median of values in any order.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

/// Returns `value / limit`; 0 without a limit, so that the result is always a number.
pub(super) fn ratio(value: f64, limit: f64) -> f64 {
    if limit > 0.0 { value / limit } else { 0.0 }
}

/// Rounds a value for people and for JSON.
pub(super) fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Percentiles {
    pub(super) fn of(sorted_ms: &[f64]) -> Self {
        let at = |percent| rounded(percentile(sorted_ms, percent), 3);
        Self { p50_ms: at(50.0), p95_ms: at(95.0), p99_ms: at(99.0), max_ms: at(100.0) }
    }
}

/// Returns the medians of the first and of the last fifth of some values over time.
pub(super) fn first_and_last_fifth(values: &[f64]) -> (f64, f64) {
    let fifth = (values.len() / 5).max(1).min(values.len());
    (median(&values[..fifth]), median(&values[values.len() - fifth..]))
}

/// Reduces points to at most `max`: neighbours are replaced by their mean, so that a plot of an
/// hour is as small as one of a second.
pub(super) fn thinned(points: &[(f64, f64)], max: usize) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(max.max(1)).max(1);
    let mean = |group: &[(f64, f64)]| {
        let (x, y) = group.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (x / group.len() as f64, y / group.len() as f64)
    };
    points.chunks(group).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50.0), 50.0);
        assert_eq!(percentile(&hundred, 99.0), 99.0);
        assert_eq!(percentile(&hundred, 99.9), 100.0);
        assert_eq!(percentile(&hundred, 100.0), 100.0);
        assert_eq!(percentile(&hundred, 0.0), 1.0);
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert_eq!(percentile(&[], 99.0), 0.0, "of nothing");
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        let one_stall = [vec![1.0; 98], vec![500.0; 2]].concat();
        let found = Percentiles::of(&one_stall);
        assert_eq!((found.p95_ms, found.p99_ms, found.max_ms), (1.0, 500.0, 500.0));
    }

    #[test]
    fn a_ratio_is_a_number_whatever_the_limit() {
        assert_eq!(ratio(60.0, 120.0), 0.5);
        assert_eq!(ratio(60.0, 0.0), 0.0);
        assert_eq!(rounded(1.23456, 2), 1.23);
    }

    #[test]
    fn fifths_tell_growth_from_noise() {
        let growing: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(first_and_last_fifth(&growing), (10.0, 90.0));
        assert_eq!(first_and_last_fifth(&[3.0]), (3.0, 3.0));
        assert_eq!(first_and_last_fifth(&[]), (0.0, 0.0));
    }

    #[test]
    fn a_long_series_is_thinned_and_a_short_one_is_not() {
        let points: Vec<(f64, f64)> = (0..1_000).map(|n| (f64::from(n), 2.0)).collect();
        let thin = thinned(&points, 100);
        assert_eq!((thin.len(), thin[0]), (100, (4.5, 2.0)));
        assert_eq!(thinned(&points[..3], 100), &points[..3]);
        assert!(thinned(&[], 100).is_empty());
    }
}
