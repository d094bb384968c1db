//! Sends requests and reads responses: how many at once, in which order, and when to pause a host.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use postrider_store::Event;
use reqwest::{Client, RequestBuilder};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

use super::answer::Answer;
use super::targets::{Target, Targets, host_of};
use crate::http::{connection_error, denied, guard};
use crate::message::view::EventView;
use crate::outcome::RETRY_AFTER_MAX;
use crate::outcome::{Cause, Outcome};
use crate::sink::Batch;

/// `Down` outcomes of one host in one call, after which the rest of the call is not tried.
const DOWN_PER_CALL_MAX: u32 = 5;
/// Hosts or webhooks with a limit of their own; all further ones share one.
const PLACES_MAX: usize = 1_000;

/// The differences between kinds of HTTP sinks.
pub(crate) trait Dialect: Send + Sync {
    /// Builds the request for an event: method, headers and body.
    fn request(
        &self,
        client: &Client,
        url: Url,
        view: &EventView<'_>,
    ) -> Result<RequestBuilder, Outcome>;

    /// Returns the name of the limit that a request counts towards: a host, or something narrower.
    fn place<'a>(&self, target: &'a Target<'_>) -> &'a str {
        &target.host
    }

    /// Returns the wait that a response asks for.
    fn asks_to_wait(&self, answer: &Answer) -> Option<Duration> {
        answer.retry_after()
    }

    /// Returns how long nothing may be sent under that limit, if the response says when more is
    /// accepted.
    fn pause(&self, _answer: &Answer) -> Option<Duration> {
        None
    }
}

/// Sends requests and receives responses.
pub(crate) struct Exchange {
    pub(crate) client: Client,
    pub(crate) targets: Targets,
    /// Timeout of one request.
    pub(crate) timeout: Duration,
    /// Maximum number of requests in flight per host or webhook.
    pub(crate) at_once_max: usize,
    pub(crate) deny_private_addresses: bool,
    /// Whether response bodies are kept.
    pub(crate) keep_response: bool,
    pub(crate) places: Mutex<HashMap<String, Arc<Permit>>>,
}

/// The limit and the pause of one host or webhook, shared by the requests of all calls.
pub(crate) struct Permit {
    free: Semaphore,
    paused_until: Mutex<Option<Instant>>,
}

/// Events that are sent one after the other, with the target of the first.
struct Run<'a> {
    events: Vec<(usize, &'a Event)>,
    target: Option<Result<Target<'a>, Outcome>>,
}

/// One call, with the number of `Down` outcomes of each host so far.
struct Call<'a> {
    batch: Batch<'a>,
    dialect: &'a dyn Dialect,
    downs: Mutex<HashMap<String, u32>>,
}

impl Exchange {
    /// Delivers a batch. Returns one outcome per event. Each host or webhook gets as many requests
    /// at once as it may, so that a slow one does not delay the others. If order is kept, a key's
    /// events are sent one after the other, and the first that is not delivered stops the key.
    pub(crate) async fn deliver(&self, batch: Batch<'_>, dialect: &dyn Dialect) -> Vec<Outcome> {
        let call = Call { batch, dialect, downs: Mutex::default() };
        let mut waiting = self.by_place(&call);
        let mut under_way = FuturesUnordered::new();
        for (place, runs) in waiting.iter_mut().enumerate() {
            let first = runs.drain(..runs.len().min(self.at_once_max));
            under_way.extend(first.map(|run| self.deliver_run(&call, place, run)));
        }
        let mut outcomes = Vec::with_capacity(batch.events.len());
        while let Some((place, answers)) = under_way.next().await {
            outcomes.extend(answers);
            under_way
                .extend(waiting[place].pop_front().map(|run| self.deliver_run(&call, place, run)));
        }
        outcomes.sort_unstable_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Groups runs by the host or webhook of their first event.
    fn by_place<'a>(&'a self, call: &Call<'a>) -> Vec<VecDeque<Run<'a>>> {
        let (mut waiting, mut places) =
            (Vec::<VecDeque<_>>::new(), HashMap::<String, usize>::new());
        for events in call.batch.runs() {
            let target = events.first().map(|(_, event)| self.target(event));
            // Events without a target do not wait for anything.
            let name = match &target {
                Some(Ok(target)) => call.dialect.place(target),
                _ => "",
            };
            let place = places.get(name).copied().unwrap_or_else(|| {
                waiting.push(VecDeque::new());
                places.insert(name.to_owned(), waiting.len() - 1);
                waiting.len() - 1
            });
            waiting[place].push_back(Run { events, target });
        }
        waiting
    }

    fn target(&self, event: &Event) -> Result<Target<'_>, Outcome> {
        self.targets.target(&EventView::new(event))
    }

    async fn deliver_run<'a>(
        &'a self,
        call: &Call<'a>,
        place: usize,
        run: Run<'a>,
    ) -> (usize, Vec<(usize, Outcome)>) {
        let mut outcomes = Vec::with_capacity(run.events.len());
        let (mut known, mut stopped) = (run.target, false);
        for (number, event) in run.events {
            let outcome = match stopped {
                true => Outcome::Untried,
                false => match known.take().unwrap_or_else(|| self.target(event)) {
                    Ok(target) => self.deliver_one(call, event, target).await,
                    Err(outcome) => outcome,
                },
            };
            stopped |= outcome != Outcome::Delivered;
            outcomes.push((number, outcome));
        }
        (place, outcomes)
    }

    async fn deliver_one<'a>(
        &self,
        call: &Call<'a>,
        event: &'a Event,
        target: Target<'_>,
    ) -> Outcome {
        let place = self.place(call.dialect.place(&target));
        let deadline = call.batch.deadline;
        let free = tokio::time::timeout_at(deadline, place.free.acquire()).await;
        let Ok(Ok(_free)) = free else { return Outcome::Untried };
        if call.gave_up(&target.host) {
            return Outcome::Untried;
        }
        if let Err(outcome) = place.wait_for_end_of_pause(deadline).await {
            return outcome;
        }
        // Built first, because it may fail: an event without a request must not take a permit.
        let view = EventView::new(event);
        let request = match self.request(call.dialect, &view, &target) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        let Some(entered) = call.batch.enter(event, &target.host).await else {
            return Outcome::Untried;
        };
        // Not beyond the deadline of the call: otherwise its other outcomes would be lost with this
        // one.
        let timeout = deadline.saturating_duration_since(Instant::now()).min(self.timeout);
        let outcome = match request.timeout(timeout).send().await {
            Ok(response) => {
                let answer = Answer::read(response, self.keep_response).await;
                if let Some(kept) = &answer.kept {
                    call.batch.keep_answer(event, kept);
                }
                if let Some(pause) = call.dialect.pause(&answer) {
                    place.pause(pause);
                }
                let asked = call.dialect.asks_to_wait(&answer);
                answer.outcome(asked)
            }
            Err(error) => match denied(&error) {
                Some(denied) => refused(denied, &target),
                None if error.is_connect() => down(connection_error(&error), Cause::Destination),
                None => down(connection_error(&error), Cause::Unknown),
            },
        };
        entered.leave(&outcome);
        if let Outcome::Down { .. } = outcome {
            *lock(&call.downs).entry(target.host.into_owned()).or_default() += 1;
        }
        outcome
    }

    fn request(
        &self,
        dialect: &dyn Dialect,
        view: &EventView<'_>,
        target: &Target<'_>,
    ) -> Result<RequestBuilder, Outcome> {
        if self.deny_private_addresses {
            guard::check(&target.url).map_err(|denied| refused(&denied, target))?;
        }
        dialect.request(&self.client, target.url.clone(), view)
    }

    /// Checks that each host known from the configuration, or the proxy, can be reached.
    ///
    /// # Errors
    /// Names the host, the setting and what to do.
    pub(crate) async fn check(&self, proxy: Option<&str>) -> Result<(), String> {
        let proxy = proxy.and_then(|proxy| host_of(&Url::parse(proxy).ok()?));
        let (setting, hosts) = match &proxy {
            Some(proxy) => ("proxy", vec![proxy.as_str()]),
            None => ("url", self.targets.fixed_hosts()),
        };
        for host in hosts {
            let connect = self.connect(host);
            let connected = tokio::time::timeout(self.timeout, connect).await;
            let connected = connected.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            connected
                .map_err(|error| format!("cannot connect to {host}: {error}; check `{setting}`"))?;
        }
        Ok(())
    }

    async fn connect(&self, host: &str) -> Result<(), String> {
        let found = tokio::net::lookup_host(host).await.map_err(|error| error.to_string())?;
        let found: Vec<_> = found.collect();
        if self.deny_private_addresses && !found.iter().any(|at| guard::is_public(at.ip())) {
            return Err("it has no public address, and `deny_private_addresses` is set".to_owned());
        }
        let connected = tokio::net::TcpStream::connect(found.as_slice()).await;
        connected.map(drop).map_err(|error| error.to_string())
    }

    fn place(&self, name: &str) -> Arc<Permit> {
        let mut places = lock(&self.places);
        if let Some(place) = places.get(name) {
            return Arc::clone(place);
        }
        let name = if places.len() >= PLACES_MAX { "" } else { name };
        let place = places.entry(name.to_owned()).or_insert_with(|| {
            let free = Semaphore::new(self.at_once_max);
            Arc::new(Permit { free, paused_until: Mutex::new(None) })
        });
        Arc::clone(place)
    }
}

impl Permit {
    fn pause(&self, time: Duration) {
        let until = Instant::now().checked_add(time.min(RETRY_AFTER_MAX));
        let mut paused_until = lock(&self.paused_until);
        *paused_until = (*paused_until).max(until);
    }

    /// Waits for the end of a pause, if it ends before the deadline of this call. Otherwise sending
    /// is pointless, and the outcome says how long to wait.
    async fn wait_for_end_of_pause(&self, deadline: Instant) -> Result<(), Outcome> {
        loop {
            let until = *lock(&self.paused_until);
            let now = Instant::now();
            match until.filter(|until| *until > now) {
                None => return Ok(()),
                Some(until) if until < deadline => tokio::time::sleep_until(until).await,
                Some(until) => {
                    return Err(Outcome::Down {
                        error: "the destination asked to be left alone".to_owned(),
                        retry_after: Some(until - now),
                        credentials: false,
                        cause: Cause::Destination,
                    });
                }
            }
        }
    }
}

impl Call<'_> {
    fn gave_up(&self, host: &str) -> bool {
        lock(&self.downs).get(host).is_some_and(|downs| *downs >= DOWN_PER_CALL_MAX)
    }
}

/// Returns the outcome of an event that the guard refused.
fn refused(denied: &guard::Denied, target: &Target<'_>) -> Outcome {
    match target.host_by_event {
        true => Outcome::CannotEncode { error: denied.to_string() },
        // Not caused by this event, so it must not become a dead letter.
        false => down(denied.to_string(), Cause::Destination),
    }
}

fn down(error: String, cause: Cause) -> Outcome {
    Outcome::Down { error, retry_after: None, credentials: false, cause }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave the protected value half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
