//! The API that fails: a separate process, so that its work does not count as the relay's. It reads
//! orders from its standard input, answers on its standard output, and ends when its input ends.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use postrider_command::Failure;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::cli::ChaosApiArgs;

/// The API's current behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mood {
    /// Accepts everything but poison.
    Well,
    /// Answers 503.
    Unavailable,
    /// Closes the connection instead of answering.
    Closing,
    /// Accepts requests and never answers.
    Silent,
    /// Does not listen.
    Refusing,
}

/// An order to the API.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    Be(Mood),
    Count,
    /// Forgets the calls so far, which only measured the limit.
    Forget,
}

/// Counts of the API's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Different calls that it accepted.
    pub(super) distinct: u64,
    /// Accepted calls that it had already accepted before.
    pub(super) duplicates: u64,
    /// Calls that it rejected for good.
    pub(super) refused: u64,
    /// Requests that failed because of an outage.
    pub(super) failed: u64,
}

#[derive(Debug)]
struct Memory {
    mood: Cell<Mood>,
    taken: RefCell<Vec<bool>>,
    counts: Cell<Counts>,
}

impl Memory {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Handles a call: `/calls/KIND/NUMBER`.
    fn take(&self, path: &str) -> StatusCode {
        let mut parts = path.rsplit('/');
        let number = parts.next().and_then(|number| number.parse::<usize>().ok());
        if parts.next() == Some(super::POISON) {
            self.count(|counts| counts.refused += 1);
            return StatusCode::UNPROCESSABLE_ENTITY;
        }
        let mut taken = self.taken.borrow_mut();
        let Some(seen) = number.and_then(|number| taken.get_mut(number)) else {
            return StatusCode::NOT_FOUND;
        };
        self.count(|counts| match *seen {
            true => counts.duplicates += 1,
            false => counts.distinct += 1,
        });
        *seen = true;
        StatusCode::NO_CONTENT
    }
}

/// Runs the API that `chaos` breaks, until its standard input ends.
///
/// # Errors
/// If it cannot listen, or its standard input cannot be read.
pub async fn serve(args: &ChaosApiArgs) -> Result<(), Failure> {
    let calls = args.calls;
    let (orders, todo) = mpsc::channel(1);
    // This thread ends with the process: reading cannot be interrupted.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str::<Order>(&line) else { break };
            if orders.blocking_send(order).is_err() {
                break;
            }
        }
    });
    // One thread: if the API used more of the machine, less would be left for the relay.
    let serving = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        tokio::task::LocalSet::new().block_on(&runtime, obey(calls, todo))
    });
    serving.await.map_err(std::io::Error::other).flatten().map_err(Failure::Output)
}

async fn obey(calls: usize, mut orders: mpsc::Receiver<Order>) -> std::io::Result<()> {
    let memory = Rc::new(Memory {
        mood: Cell::new(Mood::Well),
        taken: RefCell::new(vec![false; calls]),
        counts: Cell::default(),
    });
    let mut listener = Some(TcpListener::bind("127.0.0.1:0").await?);
    let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
    let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    answer(&address)?;
    let moods = watch::Sender::new(());
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return Ok(()),
                Some(Order::Count) => answer(&memory.counts.get())?,
                Some(Order::Forget) => {
                    memory.taken.borrow_mut().fill(false);
                    memory.counts.set(Counts::default());
                    answer(&())?;
                }
                Some(Order::Be(mood)) => {
                    memory.mood.set(mood);
                    // All clients lose their connections, including those that wait for an answer.
                    moods.send_replace(());
                    listener = match (mood, listener) {
                        (Mood::Refusing, _) => None,
                        (_, Some(listener)) => Some(listener),
                        (_, None) => Some(TcpListener::bind(address).await?),
                    };
                    answer(&())?;
                }
            },
            stream = accept(listener.as_ref()) => {
                let connection = serve_connection(stream?, Rc::clone(&memory), moods.subscribe());
                tokio::task::spawn_local(connection);
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn serve_connection(stream: TcpStream, memory: Rc<Memory>, mut moods: watch::Receiver<()>) {
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| respond(request, Rc::clone(&memory)));
    let mut http = hyper::server::conn::http1::Builder::new();
    let connection = http.auto_date_header(false).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that goes away is not an error.
        _ = connection => {}
        _ = moods.changed() => {}
    }
}

async fn respond(
    request: Request<Incoming>,
    memory: Rc<Memory>,
) -> Result<Response<Empty<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    drop(body.collect().await);
    let status = match memory.mood.get() {
        Mood::Well => memory.take(head.uri.path()),
        mood => {
            memory.count(|counts| counts.failed += 1);
            match mood {
                Mood::Closing => return Err(std::io::ErrorKind::ConnectionReset.into()),
                Mood::Silent => std::future::pending().await,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            }
        }
    };
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    Ok(response)
}

fn answer(value: &impl Serialize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}
