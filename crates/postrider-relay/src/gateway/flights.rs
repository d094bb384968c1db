//! Single flight: callers of a call that is already in flight wait for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use super::call::Key;

/// Resolves to the answer; `None` if the flight ended without one because it panicked.
pub(crate) type Flight<T> = Shared<BoxFuture<'static, Option<T>>>;

/// The calls in flight, by key. A flight continues even if all its callers are gone.
pub(crate) struct Flights<T>(Mutex<HashMap<Key, Flight<T>>>);

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// Joins the flight in progress, or starts a new one.
    pub(crate) fn join<F>(self: &Arc<Self>, key: Key, start: impl FnOnce() -> F) -> Flight<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.begin(key, start).unwrap_or_else(|other| other)
    }

    /// Starts a flight; returns the one in progress as an error.
    pub(crate) fn begin<F>(
        self: &Arc<Self>,
        key: Key,
        start: impl FnOnce() -> F,
    ) -> Result<Flight<T>, Flight<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.lock();
        if let Some(flight) = under_way.get(&key) {
            return Err(flight.clone());
        }
        let (landing, flying) = (Landing { flights: Arc::clone(self), key }, start());
        let task = tokio::spawn(async move {
            let _landing = landing;
            flying.await
        });
        let flight = task.map(Result::ok).boxed().shared();
        under_way.insert(key, flight.clone());
        Ok(flight)
    }

    /// Returns the flight in progress.
    pub(crate) fn under_way(&self, key: Key) -> Option<Flight<T>> {
        self.lock().get(&key).cloned()
    }
}

impl<T> Flights<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Flight<T>>> {
        // A map entry exists or not: a panic cannot leave one half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a flight from the map when it ends, by any path.
struct Landing<T> {
    flights: Arc<Flights<T>>,
    key: Key,
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;
    use crate::gateway::Call;

    #[tokio::test]
    async fn many_who_ask_make_one_flight_also_when_the_first_is_gone() {
        let flights = Arc::new(Flights::default());
        let (started, land) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let key = Call::get("/a").unwrap().key();
        let join = || {
            let (started, land) = (Arc::clone(&started), Arc::clone(&land));
            flights.join(key, move || async move {
                land.notified().await;
                started.fetch_add(1, Ordering::SeqCst) + 1
            })
        };
        drop(join());
        let others: Vec<_> = (0..9).map(|_| join()).collect();
        land.notify_one();
        for other in others {
            assert_eq!(other.await, Some(1));
        }
        assert!(flights.under_way(key).is_none());
        land.notify_one();
        assert_eq!(join().await, Some(2), "what comes later asks again");
    }

    #[tokio::test]
    async fn a_flight_that_panics_does_not_block_its_key() {
        let flights = Arc::new(Flights::<u32>::default());
        let key = Call::get("/a").unwrap().key();
        assert_eq!(flights.join(key, || async { panic!("on purpose") }).await, None);
        assert_eq!(flights.join(key, || async { 7 }).await, Some(7));
    }
}
