//! Clients that repeat a request until it is answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider_testkit::{Daemon, eventually, http_client::send};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const CLIENTS: usize = 64;
const GUESTS: usize = 40;
const ADMINS: usize = 4;
/// Of ten requests, this many repeat an earlier one.
const REPEATED_OF_TEN: usize = 3;

/// The outcomes of the requests.
pub(crate) struct Tally {
    /// Distinct request ids that were answered with a receipt.
    pub(crate) successful: Vec<String>,
    /// Requests refused because the guest had too few points.
    pub(crate) refused: usize,
    /// Answers that belong to an earlier request.
    pub(crate) replayed: usize,
}

/// Many clients of one service.
pub(crate) struct Donors {
    requests: usize,
    answered: Arc<AtomicUsize>,
    address: watch::Sender<Option<SocketAddr>>,
}

impl Donors {
    /// Creates clients for this number of requests.
    pub(crate) fn new(requests: usize) -> Self {
        Self { requests, answered: Arc::default(), address: watch::Sender::new(None) }
    }

    /// Creates the members. Guests have fewer points than the requests will need.
    pub(crate) async fn join(&self, service: &Daemon) {
        let points = self.requests * 5 / GUESTS / 2;
        for guest in 0..GUESTS {
            let member = json!({ "id": format!("guest-{guest}"), "points": points });
            assert_eq!(service.post("/members", &member.to_string()).await.status, 201);
        }
        for admin in 0..ADMINS {
            let fingerprint = format!("fp-{admin}");
            let id = format!("admin-{admin}");
            let member = json!({ "id": id, "points": 0, "fingerprint": fingerprint });
            assert_eq!(service.post("/members", &member.to_string()).await.status, 201);
        }
    }

    /// Waits until this part of the requests has been answered.
    pub(crate) async fn progress(&self, part: usize, of: usize) {
        let wanted = self.requests * part / of;
        let reached = async || (self.answered.load(Ordering::Relaxed) >= wanted).then_some(());
        patiently("the clients get answers", reached).await;
    }

    /// Sets the new address of the service.
    pub(crate) fn turn_to(&self, address: SocketAddr) {
        self.address.send_replace(Some(address));
    }

    /// Sends all requests, and returns their outcomes.
    pub(crate) fn give(&self, address: SocketAddr) -> JoinHandle<Tally> {
        self.turn_to(address);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let client = Client {
                    address: self.address.subscribe(),
                    answered: Arc::clone(&self.answered),
                    requests: (client..self.requests).step_by(CLIENTS).collect(),
                };
                tokio::spawn(client.run())
            })
            .collect();
        tokio::spawn(async move {
            let mut receipts: BTreeMap<String, String> = BTreeMap::new();
            let (mut refused, mut replayed) = (0, 0);
            for client in clients {
                for (request_id, answer) in client.await.unwrap() {
                    match answer {
                        Answer::Refused => refused += 1,
                        Answer::Receipt { body, repeated } => {
                            replayed += usize::from(repeated);
                            let first = receipts.entry(request_id).or_insert_with(|| body.clone());
                            assert_eq!(*first, body, "every answer is the first result");
                        }
                    }
                }
            }
            Tally { successful: receipts.into_keys().collect(), refused, replayed }
        })
    }
}

enum Answer {
    Receipt { body: String, repeated: bool },
    Refused,
}

struct Client {
    address: watch::Receiver<Option<SocketAddr>>,
    answered: Arc<AtomicUsize>,
    requests: Vec<usize>,
}

impl Client {
    async fn run(mut self) -> Vec<(String, Answer)> {
        let mut answers = Vec::with_capacity(self.requests.len());
        for number in std::mem::take(&mut self.requests) {
            // A repeat belongs to another client's request, a few before: often that is still in
            // progress.
            let number = match number % 10 < REPEATED_OF_TEN && number >= 20 {
                true => number - 13,
                false => number,
            };
            let (request_id, body) = request(number);
            let answer = self.ask(&body).await;
            answers.push((request_id, answer));
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        answers
    }

    /// Repeats until there is an answer: a killed service may have donated without answering.
    async fn ask(&mut self, body: &str) -> Answer {
        loop {
            let address = self.address.borrow_and_update().expect("the service was started");
            let json = [("content-type", "application/json")];
            let answer = send(address, "POST", "/donations", &json, body.to_owned()).await;
            match answer {
                Ok(answer) if answer.status == 200 => {
                    let repeated = answer.headers["idempotency-replayed"] == "true";
                    return Answer::Receipt { body: answer.body, repeated };
                }
                Ok(answer) if answer.status == 422 => return Answer::Refused,
                Ok(answer) if answer.status == 503 => tokio::task::yield_now().await,
                Ok(answer) => panic!("{answer:?}\nto {body}"),
                // The service is gone; the address of the next one will be announced.
                Err(_) => {
                    let moved = self.address.wait_for(|now| *now != Some(address));
                    drop(tokio::time::timeout(Duration::from_secs(1), moved).await);
                }
            }
        }
    }
}

/// Builds the request of a number, always the same.
fn request(number: usize) -> (String, String) {
    let request_id = format!("r-{number}");
    let body = json!({
        "request_id": request_id,
        "guest_id": format!("guest-{}", number % GUESTS),
        "admin_fingerprint": format!("fp-{}", number % ADMINS),
        "amount": number % 9 + 1,
    });
    (request_id, body.to_string())
}

/// Like [`eventually`], for a run whose length is set from outside.
pub(crate) async fn patiently<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(600) {
        let soon = Instant::now() + Duration::from_secs(1);
        let found = eventually(what, async || match look().await {
            Some(found) => Some(Some(found)),
            None => (Instant::now() > soon).then_some(None),
        });
        if let Some(found) = found.await {
            return found;
        }
    }
    panic!("within ten minutes, this did not happen: {what}")
}
