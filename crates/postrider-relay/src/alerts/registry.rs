//! The list of active and past alerts of this relay.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{Alert, Severity, as_object};

/// Past alerts that are kept.
const PAST_MAX: usize = 200;

/// One alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertEntry {
    /// Kind of the alert.
    pub kind: String,
    /// How severe it is, or was.
    pub severity: Severity,
    /// Summary in one sentence, as last seen.
    pub title: String,
    /// Names and values, as last seen.
    #[serde(serialize_with = "as_object")]
    pub fields: Vec<(&'static str, String)>,
    /// How often it occurred.
    pub count: u64,
    /// When it began.
    pub since: DateTime<Utc>,
    /// When it was last seen.
    pub last_at: DateTime<Utc>,
    /// When it ended; `None` while it is active.
    pub ended_at: Option<DateTime<Utc>>,
}

/// A snapshot of the alerts.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AlertLists {
    /// Active alerts, most severe first.
    pub active: Vec<AlertEntry>,
    /// Past alerts, newest first.
    pub past: Vec<AlertEntry>,
}

/// The alerts of this process: the active ones, and the last 200 that are over.
#[derive(Debug, Default)]
pub struct AlertRegistry(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    active: HashMap<String, AlertEntry>,
    /// Newest last.
    past: VecDeque<AlertEntry>,
}

impl AlertRegistry {
    /// Returns a snapshot of the current alerts.
    pub fn lists(&self) -> AlertLists {
        let pages = self.lock();
        let mut active: Vec<_> = pages.active.values().cloned().collect();
        active.sort_by(|a, b| (b.severity, a.since, &a.kind).cmp(&(a.severity, b.since, &b.kind)));
        AlertLists { active, past: pages.past.iter().rev().cloned().collect() }
    }

    /// Records something that happened `count` times. Within the cool-down, the existing entry is
    /// counted up.
    pub(super) fn note(&self, alert: &Alert, count: u64, cool_down: Duration) {
        let mut pages = self.lock();
        let now = Utc::now();
        let recent = |entry: &&mut AlertEntry| {
            let passed = (now - entry.last_at).to_std().unwrap_or_default();
            entry.kind == alert.kind && passed <= cool_down
        };
        match pages.past.iter_mut().rev().find(recent) {
            Some(known) => {
                *known = AlertEntry {
                    count: known.count + count,
                    since: known.since,
                    ..entry(alert, now, Some(now))
                };
            }
            None => pages.turn_over(AlertEntry { count, ..entry(alert, now, Some(now)) }),
        }
    }

    /// Records an alert that is active, now or still.
    pub(super) fn hold(&self, alert: &Alert) {
        let mut pages = self.lock();
        let fresh = entry(alert, Utc::now(), None);
        let since = pages.active.get(&alert.kind).map_or(fresh.since, |known| known.since);
        pages.active.insert(alert.kind.clone(), AlertEntry { since, ..fresh });
    }

    /// Ends an alert, because it is over or another relay now watches for it.
    pub(super) fn release(&self, kind: &str) {
        let mut pages = self.lock();
        if let Some(entry) = pages.active.remove(kind) {
            let now = Utc::now();
            pages.turn_over(AlertEntry { last_at: now, ended_at: Some(now), ..entry });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        // Entries are replaced as a whole, so a panic cannot leave one half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn turn_over(&mut self, entry: AlertEntry) {
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(entry);
    }
}

fn entry(alert: &Alert, now: DateTime<Utc>, ended_at: Option<DateTime<Utc>>) -> AlertEntry {
    AlertEntry {
        kind: alert.kind.clone(),
        severity: alert.severity,
        title: alert.title.clone(),
        fields: alert.fields.clone(),
        count: 1,
        since: now,
        last_at: now,
        ended_at,
    }
}
