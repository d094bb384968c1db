//! A Redis Cluster, with a separate connection to each node.
//!
//! The library's cluster client has one task for all nodes. While it looks for a node that does not
//! answer, nothing is sent to the others. Here a call waits only for the node of its own slot, and
//! the layout is read alongside the calls.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ErrorKind, Pipeline, RedisError, Value};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::connection::{down, meaning, refused, unreachable};
use super::node::{Access, Failure, Node, silence};
use super::shards::{Shard, shards, slot, with_host};
use crate::outcome::Outcome;

/// How often a call follows a slot that has moved.
const REDIRECTS_MAX: u32 = 3;

/// A cluster. Its layout is read on first use, and again when a call finds it outdated.
pub(super) struct Cluster {
    access: Access,
    /// Nodes named in the URL.
    seeds: Vec<String>,
    layout: RwLock<Layout>,
    /// When the layout was last read, and the result. Locked while it is being read.
    last_reading: Mutex<Option<(Instant, Result<(), RedisError>)>>,
}

/// Which node has which slots.
#[derive(Default)]
struct Layout {
    shards: Vec<Shard>,
    /// Slots that a node said are elsewhere, until the shards are read again.
    moved: HashMap<u16, String>,
    nodes: HashMap<String, Arc<Node>>,
}

/// Where a node redirects a command that it did not run.
enum Redirect {
    /// The slot is there from now on.
    Moved(String),
    /// The slot is being moved there, and this key has already arrived.
    Ask(String),
}

impl Cluster {
    pub(super) fn new(access: Access, seeds: Vec<String>) -> Self {
        let (layout, last_reading) = (RwLock::default(), Mutex::default());
        Self { access, seeds, layout, last_reading }
    }

    /// Returns the bounds of the shard that contains the key, if known.
    pub(super) fn range_of(&self, key: &str) -> Option<(u16, u16)> {
        self.read(|layout| layout.shard_of(slot(key)).map(|shard| (shard.first, shard.last)))
    }

    /// Runs commands that are all about this key. Returns one answer per command, or the outcome
    /// for all of them.
    pub(super) async fn run(
        self: &Arc<Self>,
        key: &str,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Outcome> {
        if self.read(|layout| layout.shards.is_empty()) {
            let read = self.read_layout(deadline.min(Instant::now() + self.access.timeout)).await;
            read.map_err(|error| unreachable(refused(&error)))?;
        }
        let slot = slot(key);
        let failure = match self.follow(slot, pipeline, deadline).await {
            Some(Ok(answers)) => return Ok(answers),
            Some(Err(failure)) => Some(failure),
            None => None,
        };
        let outcome = match &failure {
            Some(failure) => meaning(failure.error()),
            None => down(format!("no node of the cluster has slot {slot}")),
        };
        if failure.is_some_and(|failure| !is_about_layout(failure.error())) {
            return Err(outcome);
        }
        match self.read_layout(deadline).await {
            Ok(()) => Err(outcome),
            Err(_) => Err(unreachable(outcome)),
        }
    }

    /// Checks that any node answers.
    pub(super) async fn ping(self: &Arc<Self>) -> Result<(), RedisError> {
        self.read_layout(Instant::now() + self.access.timeout).await
    }

    pub(super) async fn disconnect(&self) {
        let nodes: Vec<Arc<Node>> = self.read(|layout| layout.nodes.values().cloned().collect());
        for node in nodes {
            node.disconnect().await;
        }
    }

    /// Runs the commands on the node that has the slot, following redirects. `None` if the layout
    /// has no node for it.
    async fn follow(
        self: &Arc<Self>,
        slot: u16,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Option<Result<Vec<Value>, Failure>> {
        let mut redirects = 0;
        loop {
            let node = self.node_of(slot)?;
            let ran = node.run(&self.access, pipeline, deadline).await;
            match redirect(&ran, &node.address) {
                Some(_) if redirects == REDIRECTS_MAX => return Some(ran),
                Some(Redirect::Moved(to)) => {
                    self.write(|layout| layout.moved.insert(slot, to));
                    // Other slots may have moved with it.
                    drop(self.start_reading());
                }
                Some(Redirect::Ask(to)) => {
                    return Some(self.access.run_asking(&to, pipeline, deadline).await);
                }
                None => return Some(ran),
            }
            redirects += 1;
        }
    }

    fn node_of(&self, slot: u16) -> Option<Arc<Node>> {
        let address = self.read(|layout| layout.address_of(slot).map(ToOwned::to_owned))?;
        Some(self.node(&address))
    }

    fn node(&self, address: &str) -> Arc<Node> {
        if let Some(node) = self.read(|layout| layout.nodes.get(address).cloned()) {
            return node;
        }
        let new = || Arc::new(Node::new(address));
        self.write(|layout| Arc::clone(layout.nodes.entry(address.to_owned()).or_insert_with(new)))
    }

    /// Waits for a reading of the layout until `until`; the reading continues after that.
    async fn read_layout(self: &Arc<Self>, until: Instant) -> Result<(), RedisError> {
        match timeout_at(until, self.start_reading()).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(RedisError::from((ErrorKind::Client, "the reading was ended"))),
            Err(_) => Err(silence()),
        }
    }

    /// Reads the layout in a task of its own, so that the deadline of a call does not end it.
    fn start_reading(self: &Arc<Self>) -> JoinHandle<Result<(), RedisError>> {
        let (cluster, asked_at) = (Arc::clone(self), Instant::now());
        tokio::spawn(async move {
            let mut last = cluster.last_reading.lock().await;
            if let Some((started_at, result)) = &*last
                && *started_at >= asked_at
            {
                return result.clone();
            }
            let started_at = Instant::now();
            let result = cluster.ask_nodes().await;
            *last = Some((started_at, result.clone()));
            result
        })
    }

    /// Asks all nodes at once. The majority decides: a node that was cut off from the others has an
    /// old layout. Once a majority agrees, the remaining answers are not needed.
    async fn ask_nodes(&self) -> Result<(), RedisError> {
        let mut addresses = self.seeds.clone();
        addresses.extend(self.read(|layout| layout.nodes.keys().cloned().collect::<Vec<_>>()));
        addresses.sort();
        addresses.dedup();
        let until = Instant::now() + self.access.timeout / 2;
        let mut asked: FuturesUnordered<_> =
            addresses.iter().map(|address| self.ask_node(address, until)).collect();
        let (mut said, mut failed) = (HashMap::<Vec<Shard>, usize>::new(), silence());
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(shards) => {
                    let count = said.entry(shards).or_default();
                    *count += 1;
                    if *count > addresses.len() / 2 {
                        break;
                    }
                }
                Err(error) => failed = error,
            }
        }
        let most = said.into_iter().max_by_key(|(_, count)| *count);
        let (shards, _) = most.ok_or(failed)?;
        self.write(|layout| layout.become_new(shards, &self.seeds));
        Ok(())
    }

    async fn ask_node(&self, address: &str, until: Instant) -> Result<Vec<Shard>, RedisError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.cmd("CLUSTER").arg("SLOTS");
        let ran = self.node(address).run(&self.access, &pipeline, until).await;
        let answers = ran.map_err(Failure::into_error)?;
        let shards = answers.first().map(|answer| shards(answer, address)).unwrap_or_default();
        match shards.is_empty() {
            true => Err(RedisError::from((ErrorKind::Client, "the cluster has no slots yet"))),
            false => Ok(shards),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Layout) -> T) -> T {
        look(&self.layout.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Layout) -> T) -> T {
        change(&mut self.layout.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Layout {
    fn shard_of(&self, slot: u16) -> Option<&Shard> {
        self.shards.iter().find(|shard| (shard.first..=shard.last).contains(&slot))
    }

    fn address_of(&self, slot: u16) -> Option<&str> {
        let moved = self.moved.get(&slot);
        moved.or_else(|| self.shard_of(slot).map(|shard| &shard.node)).map(String::as_str)
    }

    /// Replaces the shards. Connections to nodes that still exist are kept.
    fn become_new(&mut self, shards: Vec<Shard>, seeds: &[String]) {
        self.nodes.retain(|address, _| {
            seeds.contains(address) || shards.iter().any(|shard| shard.node == *address)
        });
        self.moved.clear();
        self.shards = shards;
    }
}

/// Returns the redirect of the first command that has one. That command did not run.
fn redirect(ran: &Result<Vec<Value>, Failure>, asked: &str) -> Option<Redirect> {
    let redirected = |error: &RedisError| {
        let (node, _) = error.redirect_node()?;
        let node = with_host(node, asked);
        Some(if error.code() == Some("ASK") { Redirect::Ask(node) } else { Redirect::Moved(node) })
    };
    match ran {
        Ok(answers) => answers.iter().find_map(|answer| match answer {
            Value::ServerError(error) => redirected(&error.clone().into()),
            _ => None,
        }),
        Err(failure) => redirected(failure.error()),
    }
}

/// Returns whether the slot may be on another node by now.
fn is_about_layout(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("MOVED" | "ASK" | "READONLY" | "CLUSTERDOWN"))
}
