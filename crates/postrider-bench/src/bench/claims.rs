//! Times of claims and numbers of settled events, from the metrics that relays record in any case:
//! the same figures for every claim mode, and the ones that operators see.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use postrider_command::Failure;
use postrider_relay::telemetry::{CLAIM_SECONDS, CLAIMED, PROCESSED};

use super::numbers::thinned;
use super::relays::POINTS_MAX;

/// Maximum number of claims kept; a run of an hour with 200 claims per second has fewer.
const CLAIMS_MAX: usize = 1_000_000;

/// Claims since the last restart.
#[derive(Debug, Clone)]
pub(super) struct Claims(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    /// Seconds since the restart, and milliseconds taken.
    claims: Mutex<(Instant, Vec<(f64, f64)>)>,
    events: Arc<AtomicU64>,
    settled: Arc<AtomicU64>,
}

impl Claims {
    /// Installs itself as the process's recorder of metrics.
    pub(super) fn install() -> Result<Self, Failure> {
        let claims = Self(Arc::new(Kept {
            claims: Mutex::new((Instant::now(), Vec::new())),
            events: Arc::default(),
            settled: Arc::default(),
        }));
        metrics::set_global_recorder(claims.clone())
            .map_err(|error| Failure::Partly(format!("claims cannot be timed: {error}")))?;
        Ok(claims)
    }

    pub(super) fn restart(&self) {
        *self.0.claims.lock().unwrap_or_else(PoisonError::into_inner) =
            (Instant::now(), Vec::new());
        self.0.events.store(0, Ordering::SeqCst);
        self.0.settled.store(0, Ordering::SeqCst);
    }

    /// Returns when each claim ended, in seconds, and how many milliseconds it took.
    pub(super) fn timed(&self) -> Vec<(f64, f64)> {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Returns the same, reduced to the points of a plot.
    pub(super) fn thinned(&self) -> Vec<(f64, f64)> {
        thinned(&self.timed(), POINTS_MAX)
    }

    /// Returns the number of events claimed.
    pub(super) fn events(&self) -> u64 {
        self.0.events.load(Ordering::SeqCst)
    }

    /// Returns the number of delivered events whose settlement is committed.
    pub(super) fn settled(&self) -> u64 {
        self.0.settled.load(Ordering::SeqCst)
    }

    pub(super) fn count(&self) -> usize {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner).1.len()
    }
}

impl HistogramFn for Kept {
    fn record(&self, seconds: f64) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.1.len() < CLAIMS_MAX {
            let at = claims.0.elapsed().as_secs_f64();
            claims.1.push((at, seconds * 1_000.0));
        }
    }
}

impl Recorder for Claims {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            CLAIMED => Counter::from_arc(Arc::clone(&self.0.events)),
            PROCESSED => Counter::from_arc(Arc::clone(&self.0.settled)),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() == CLAIM_SECONDS {
            true => Histogram::from_arc(Arc::clone(&self.0)),
            false => Histogram::noop(),
        }
    }
}
