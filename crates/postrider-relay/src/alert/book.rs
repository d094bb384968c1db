//! What is wrong now and what was, for whoever asks this relay.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{Alert, Severity, as_object};

/// Past alerts that are remembered.
const PAST_MAX: usize = 200;

/// One alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertEntry {
    /// What it is about.
    pub kind: String,
    /// How bad it is, or was.
    pub severity: Severity,
    /// In a sentence, as it was last seen.
    pub title: String,
    /// Names and values, as they were last seen.
    #[serde(serialize_with = "as_object")]
    pub fields: Vec<(&'static str, String)>,
    /// How often it happened.
    pub count: u64,
    /// Since when.
    pub since: DateTime<Utc>,
    /// When it was last seen.
    pub last_at: DateTime<Utc>,
    /// When it was over; `None` while it holds.
    pub ended_at: Option<DateTime<Utc>>,
}

/// What the book says at one moment.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AlertLists {
    /// What holds, worst first.
    pub active: Vec<AlertEntry>,
    /// What is over, newest first.
    pub past: Vec<AlertEntry>,
}

/// The alerts of this process: what holds now, and the last 200 that are over.
#[derive(Debug, Default)]
pub struct AlertBook(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    active: HashMap<String, AlertEntry>,
    /// Newest last.
    past: VecDeque<AlertEntry>,
}

impl AlertBook {
    /// A copy of what it says now.
    pub fn lists(&self) -> AlertLists {
        let pages = self.lock();
        let mut active: Vec<_> = pages.active.values().cloned().collect();
        active.sort_by(|a, b| (b.severity, a.since, &a.kind).cmp(&(a.severity, b.since, &b.kind)));
        AlertLists { active, past: pages.past.iter().rev().cloned().collect() }
    }

    /// Something happened, so many times. Within the cool-down it counts up the entry that is there.
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

    /// Something holds, from now on or still.
    pub(super) fn hold(&self, alert: &Alert) {
        let mut pages = self.lock();
        let fresh = entry(alert, Utc::now(), None);
        let since = pages.active.get(&alert.kind).map_or(fresh.since, |known| known.since);
        pages.active.insert(alert.kind.clone(), AlertEntry { since, ..fresh });
    }

    /// It is over, or somebody else's to watch.
    pub(super) fn release(&self, kind: &str) {
        let mut pages = self.lock();
        if let Some(entry) = pages.active.remove(kind) {
            let now = Utc::now();
            pages.turn_over(AlertEntry { last_at: now, ended_at: Some(now), ..entry });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        // Whole entries are exchanged; a panic leaves none half written.
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
