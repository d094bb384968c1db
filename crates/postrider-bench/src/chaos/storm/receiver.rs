//! The faulty receiver: HTTP on several loopback ports, each a destination with its own faults. It
//! records every request in order of arrival.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use postrider_command::Failure;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::journal::{Journal, Reception};
use super::lull::Lull;
use super::relay::REQUEST_TIMEOUT;

/// Number of destinations. A fault of one must not delay the others.
const DOORS: usize = 4;
/// Duration of a destination's mood, in milliseconds.
const MOOD_MS: std::ops::Range<u64> = 300..2_000;
/// Share of new moods that are free of faults.
const WELL: f64 = 0.6;
/// Share of requests that fail while the mood is bad.
const FAULTY: f64 = 0.3;
/// Delay of a late answer in milliseconds: sometimes within a relay's timeout, sometimes beyond it.
const LATE_MS: std::ops::Range<u64> = 20..500;

/// A destination's current behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// Accepts requests and never answers.
    Hanging,
    /// Closes the connection instead of answering.
    Resetting,
    /// Answers late.
    Late,
    /// Answers 503.
    Refusing,
}

/// Counts of the requests that hit a fault.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Faults {
    pub(super) hung: u64,
    pub(super) reset: u64,
    pub(super) late: u64,
    pub(super) refused: u64,
    /// Of these, requests whose event was accepted although the relay got no answer: each causes a
    /// duplicate.
    pub(super) taken_unanswered: u64,
}

/// Counters of [`Faults`].
#[derive(Debug, Default)]
struct Counters {
    hung: AtomicU64,
    reset: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    taken_unanswered: AtomicU64,
}

/// One destination.
#[derive(Debug)]
struct Door {
    journal: Arc<Journal>,
    lull: Lull,
    counters: Arc<Counters>,
    /// The current mood, and the random number generator.
    state: Mutex<(Mood, StdRng)>,
}

/// The receiver; dropping it stops it.
pub(super) struct Receiver {
    pub(super) ports: Vec<u16>,
    doors: Vec<Arc<Door>>,
    counters: Arc<Counters>,
    /// The tasks that change the moods.
    weather: JoinSet<()>,
    _serving: JoinSet<()>,
}

impl Receiver {
    /// Starts without faults; they begin with [`misbehave`](Receiver::misbehave).
    pub(super) async fn start(
        journal: &Arc<Journal>,
        lull: &Lull,
        dice: &mut StdRng,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::Partly(format!("the receiver cannot listen: {error}"));
        let counters = Arc::new(Counters::default());
        let (mut ports, mut doors, mut serving) = (Vec::new(), Vec::new(), JoinSet::new());
        for _ in 0..DOORS {
            let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
            ports.push(listener.local_addr().map_err(failed)?.port());
            let door = Arc::new(Door {
                journal: Arc::clone(journal),
                lull: lull.clone(),
                counters: Arc::clone(&counters),
                state: Mutex::new((Mood::Well, StdRng::from_rng(dice))),
            });
            serving.spawn(serve(listener, Arc::clone(&door)));
            doors.push(door);
        }
        Ok(Self { ports, doors, counters, weather: JoinSet::new(), _serving: serving })
    }

    /// Starts to change the mood of each destination at random.
    pub(super) fn misbehave(&mut self) {
        for door in &self.doors {
            self.weather.spawn(change_moods(Arc::clone(door)));
        }
    }

    /// Ends the faults.
    pub(super) async fn calm(&mut self) {
        self.weather.shutdown().await;
        for door in &self.doors {
            door.state().0 = Mood::Well;
        }
    }

    pub(super) fn faults(&self) -> Faults {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Faults {
            hung: count(&self.counters.hung),
            reset: count(&self.counters.reset),
            late: count(&self.counters.late),
            refused: count(&self.counters.refused),
            taken_unanswered: count(&self.counters.taken_unanswered),
        }
    }
}

async fn change_moods(door: Arc<Door>) {
    loop {
        let wait = {
            let (mood, dice) = &mut *door.state();
            *mood = match dice.random_bool(WELL) {
                true => Mood::Well,
                false => match dice.random_range(0..4) {
                    0 => Mood::Hanging,
                    1 => Mood::Resetting,
                    2 => Mood::Late,
                    _ => Mood::Refusing,
                },
            };
            Duration::from_millis(dice.random_range(MOOD_MS))
        };
        tokio::time::sleep(wait).await;
    }
}

async fn serve(listener: TcpListener, door: Arc<Door>) {
    let mut connections = JoinSet::new();
    loop {
        // Removes connections that have ended, so that the set contains only open ones.
        while connections.try_join_next().is_some() {}
        if let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve_connection(stream, Arc::clone(&door)));
        }
    }
}

async fn serve_connection(stream: TcpStream, door: Arc<Door>) {
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| door.respond(request));
    let http = hyper::server::conn::http1::Builder::new();
    // A client that goes away is not an error.
    drop(http.serve_connection(TokioIo::new(stream), service).await);
}

impl Door {
    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Empty<Bytes>>, std::io::Error> {
        let reset = || std::io::ErrorKind::ConnectionReset.into();
        // Cut off because the relay was killed while it wrote.
        let body = request.into_body().collect().await.map_err(|_| reset())?.to_bytes();
        let event = event_number(&body).and_then(|event| {
            let poison = self.journal.poison(event)?;
            Some((event, poison))
        });
        let Some((event, poison)) = event else { return Ok(answer(StatusCode::NOT_FOUND)) };
        let (mood, takes, late) = self.throw();
        let reception = match (takes, poison) {
            (false, _) => Reception::Failed,
            (true, true) => Reception::Rejected,
            (true, false) => Reception::Taken,
        };
        self.journal.received(event, reception);
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let is_heard = match mood {
            Mood::Well | Mood::Refusing => true,
            Mood::Hanging | Mood::Resetting => false,
            Mood::Late => late < REQUEST_TIMEOUT,
        };
        if reception == Reception::Taken && !is_heard {
            count(&self.counters.taken_unanswered);
        }
        match mood {
            Mood::Well => {}
            Mood::Hanging => {
                count(&self.counters.hung);
                return std::future::pending().await;
            }
            Mood::Resetting => {
                count(&self.counters.reset);
                return Err(reset());
            }
            Mood::Late => {
                count(&self.counters.late);
                tokio::time::sleep(late).await;
            }
            Mood::Refusing => {
                count(&self.counters.refused);
            }
        }
        Ok(answer(match reception {
            Reception::Taken => StatusCode::NO_CONTENT,
            Reception::Rejected => StatusCode::BAD_REQUEST,
            Reception::Failed => StatusCode::SERVICE_UNAVAILABLE,
        }))
    }

    /// Draws the fate of a request: the mood, whether the event is processed, and the delay of a
    /// late answer.
    fn throw(&self) -> (Mood, bool, Duration) {
        let (mood, dice) = &mut *self.state();
        let is_faulty = dice.random_bool(FAULTY) && !self.lull.is_on();
        let mood = if is_faulty { *mood } else { Mood::Well };
        let takes = match mood {
            Mood::Well | Mood::Late => true,
            Mood::Refusing => false,
            // Before or after processing: the relay cannot know which.
            Mood::Hanging | Mood::Resetting => dice.random_bool(0.5),
        };
        (mood, takes, Duration::from_millis(dice.random_range(LATE_MS)))
    }

    fn state(&self) -> MutexGuard<'_, (Mood, StdRng)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of an event, from its payload.
pub(super) fn event_number(payload: &[u8]) -> Option<usize> {
    #[derive(serde::Deserialize)]
    struct Payload {
        event: usize,
    }
    serde_json::from_slice::<Payload>(payload).ok().map(|payload| payload.event)
}

fn answer(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}
