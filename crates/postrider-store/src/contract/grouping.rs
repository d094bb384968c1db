//! Groups dead letters by the kind of their error.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::search::{Search, Walk};
use super::{
    Counted, DeadLetterGroup, DeadLetterGroups, DeadReason, GROUP_HOURS_MAX, GROUP_TYPES_MAX, Page,
    Result,
};

/// The dead letters of one search step that share fingerprint, event type and hour.
pub(crate) struct Bunch {
    pub(crate) fingerprint: String,
    pub(crate) event_type: String,
    /// Hours since 1970.
    pub(crate) hour: i64,
    pub(crate) count: i64,
    pub(crate) newest_id: i64,
    pub(crate) first_failed_at: DateTime<Utc>,
    pub(crate) last_failed_at: DateTime<Utc>,
}

/// A search that can also count by group.
#[async_trait]
pub(crate) trait Grouped: Search {
    /// Counts the matching dead letters with these ids by fingerprint, event type and hour.
    async fn bunches(&self, ids: Range<i64>) -> Result<Vec<Bunch>>;

    /// Returns the reason and the error message of these dead letters.
    async fn samples(&self, ids: &[i64]) -> Result<Vec<(i64, DeadReason, String)>>;
}

#[derive(Default)]
struct Sum {
    count: i64,
    newest_id: i64,
    first_failed_at: Option<DateTime<Utc>>,
    last_failed_at: Option<DateTime<Utc>>,
    types: BTreeMap<String, i64>,
    hours: BTreeMap<i64, i64>,
}

impl Sum {
    fn add(&mut self, bunch: Bunch) {
        self.count += bunch.count;
        self.newest_id = self.newest_id.max(bunch.newest_id);
        let first = self.first_failed_at.unwrap_or(bunch.first_failed_at);
        self.first_failed_at = Some(first.min(bunch.first_failed_at));
        self.last_failed_at = self.last_failed_at.max(Some(bunch.last_failed_at));
        *self.types.entry(bunch.event_type).or_default() += bunch.count;
        *self.hours.entry(bunch.hour).or_default() += bunch.count;
    }
}

/// Finds the newest groups within the budget of the page.
pub(crate) async fn groups<S: Grouped>(search: &S, page: Page) -> Result<DeadLetterGroups> {
    let mut walk = Walk::new(page.before_id, page.budget);
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut complete = true;
    while let Some(ids) = walk.next(search).await? {
        for bunch in search.bunches(ids).await? {
            sums.entry(bunch.fingerprint.clone()).or_default().add(bunch);
        }
        if walk.is_over() {
            complete = false;
            break;
        }
    }
    let mut newest: Vec<(String, Sum)> = sums.into_iter().collect();
    newest.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.newest_id));
    newest.truncate(page.limit as usize);
    let ids: Vec<i64> = newest.iter().map(|(_, sum)| sum.newest_id).collect();
    let samples = search.samples(&ids).await?;
    let group = |(fingerprint, sum): (String, Sum)| {
        // A group whose sample was cleaned up since is not shown.
        let (_, reason, sample) = samples.iter().find(|(id, ..)| *id == sum.newest_id)?;
        Some(DeadLetterGroup {
            fingerprint,
            reason: *reason,
            count: Counted { count: sum.count, at_least: !complete },
            sample: sample.clone(),
            newest_id: sum.newest_id,
            first_failed_at: sum.first_failed_at?,
            last_failed_at: sum.last_failed_at?,
            event_types: most_frequent(sum.types),
            by_hour: newest_hours(&sum.hours),
        })
    };
    let groups = newest.into_iter().filter_map(group).collect();
    Ok(DeadLetterGroups { groups, complete, next: (!complete).then(|| walk.before_id()) })
}

fn most_frequent(types: BTreeMap<String, i64>) -> Vec<(String, i64)> {
    let mut types: Vec<_> = types.into_iter().collect();
    types.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    types.truncate(GROUP_TYPES_MAX);
    types
}

fn newest_hours(hours: &BTreeMap<i64, i64>) -> Vec<(DateTime<Utc>, i64)> {
    let from = hours.len().saturating_sub(GROUP_HOURS_MAX);
    let start = |hour: i64| DateTime::from_timestamp(hour.saturating_mul(3_600), 0);
    hours.iter().skip(from).filter_map(|(hour, count)| Some((start(*hour)?, *count))).collect()
}
