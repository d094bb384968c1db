//! The membership list: which relays live, what they work on, and what operators paused.

use std::collections::HashMap;

use postrider_store::{Mode, PauseKind, Serving};

/// The membership list: which relays are alive, according to the last heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Relays that are alive, or not yet known to be dead.
    pub(crate) live: Vec<String>,
    /// Relays that are fenced and may have rows that are not recovered yet.
    pub(crate) dead: Vec<String>,
    /// Whether this relay does the maintenance that does not belong to one outbox.
    pub(crate) leader: bool,
    /// Id of this relay.
    pub(super) me: String,
    /// The outboxes that each live relay works on, ordered by relay id.
    pub(super) serving: Vec<(String, Vec<Serving>)>,
    /// The claim mode of each outbox, by name.
    pub(super) modes: HashMap<String, Mode>,
    /// The outboxes and sinks that operators have paused.
    pub(super) pauses: Vec<(PauseKind, String)>,
}

impl Membership {
    /// Returns the claim mode of an outbox; `None` before the first heartbeat, or if its tables are
    /// missing.
    pub(crate) fn mode(&self, outbox: &str) -> Option<Mode> {
        self.modes.get(outbox).copied()
    }

    /// Returns whether an operator paused the outbox or its sink.
    pub(crate) fn is_paused(&self, outbox: &str, sink: &str) -> bool {
        self.pauses.iter().any(|(kind, name)| match kind {
            PauseKind::Outbox => name == outbox,
            PauseKind::Sink => name == sink,
        })
    }

    /// Returns the live relays that work on an outbox, ordered by id.
    pub(crate) fn serving<'a>(&'a self, outbox: &'a str) -> Vec<&'a str> {
        self.entries(outbox).map(|(relay, _)| relay).collect()
    }

    /// Returns whether this relay does the maintenance of an outbox and watches its tables. That is
    /// the oldest relay that serves the outbox, because the leader of all relays may not have it
    /// configured. An outbox that no relay serves belongs to the leader.
    pub(crate) fn leads(&self, outbox: &str) -> bool {
        self.leads_both(outbox, outbox)
    }

    /// Same as [`leads`](Self::leads) for work that needs two outboxes: the oldest relay that
    /// serves both, which is not necessarily the oldest of either.
    pub(crate) fn leads_both(&self, outbox: &str, other: &str) -> bool {
        let serves = |relay: &&str| self.entries(other).any(|(serving, _)| serving == *relay);
        match self.entries(outbox).map(|(relay, _)| relay).filter(serves).min() {
            Some(first) => first == self.me,
            None => self.leader,
        }
    }

    /// Returns whether no live relay holds anything from an older mode of the outbox.
    pub(crate) fn all_in_epoch(&self, outbox: &str, epoch: i64) -> bool {
        self.entries(outbox).all(|(_, serving)| serving.epoch >= epoch)
    }

    /// Returns the entries of live relays for an outbox.
    pub(crate) fn entries<'a>(
        &'a self,
        outbox: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Serving)> {
        self.serving.iter().flat_map(move |(relay, serving)| {
            let of_outbox = serving.iter().filter(move |serving| serving.outbox == outbox);
            of_outbox.map(move |serving| (relay.as_str(), serving))
        })
    }
}
