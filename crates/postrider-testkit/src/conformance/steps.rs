//! Building blocks of the cases.

use std::time::Duration;

use postrider::{Appended, NewEvent, Outbox};
use postrider_store::{
    AuditEntry, AuditFilter, ClaimLimit, Cursor, DeadReason, Death, Deferral, Event, EventRecord,
    Failure, Lease, LedgerWindow, MovedLetter, OnSuccess, Page, RelayIdentity, RelayPulse,
    StoreKind,
};

use crate::TestDb;

/// More bytes than any ordinary case uses.
pub const BYTES_MANY: u64 = 64 * 1024 * 1024;

/// Returns a limit of rows only.
pub fn rows(rows: u32) -> ClaimLimit {
    ClaimLimit::new(rows, BYTES_MANY)
}

/// Returns a small event whose key, type and payload identify it.
pub fn order(number: u64) -> NewEvent {
    let payload = format!(r#"{{"order":{number}}}"#);
    NewEvent::new("order", format!("order-{number}"), "OrderPlaced", payload)
}

/// Returns the failure of one attempt.
pub fn failure(event: &Event, delay: Duration, error: &str) -> Failure {
    let took = Duration::from_millis(12);
    Failure {
        id: event.id,
        event_id: event.event_id.clone(),
        version: event.version,
        delay,
        error: error.to_owned(),
        took,
    }
}

/// Returns the death of an event.
pub fn death(event: &Event, reason: DeadReason, message: &str) -> Death {
    Death {
        id: event.id,
        event_id: event.event_id.clone(),
        version: event.version,
        reason,
        message: message.to_owned(),
        detail: Some("the body of the answer".to_owned()),
        attempted: true,
    }
}

/// Returns the release of an event without an attempt.
pub fn deferral(event: &Event, delay: Duration) -> Deferral {
    let (id, event_id) = (event.id, event.event_id.clone());
    Deferral { id, event_id, version: event.version, delay, error: None }
}

/// Returns the row ids that moved rows had in the outbox.
pub fn originals(moved: &[MovedLetter]) -> Vec<i64> {
    moved.iter().map(|letter| letter.original_id).collect()
}

/// Returns the ids of events.
pub fn ids(events: &[Event]) -> Vec<i64> {
    events.iter().map(|event| event.id).collect()
}

impl TestDb {
    /// Appends events in one transaction and commits; returns their ids.
    pub async fn append(&self, events: &[NewEvent]) -> Vec<i64> {
        self.append_to(&self.outbox, events).await
    }

    /// Like [`TestDb::append`], to another outbox.
    pub async fn append_to(&self, outbox: &Outbox, events: &[NewEvent]) -> Vec<i64> {
        let mut tx = self.begin().await;
        let answers = tx.append_all(outbox, events).await.unwrap();
        tx.commit().await.unwrap();
        answers.iter().map(Appended::id).collect()
    }

    /// Appends `count` small events.
    pub async fn append_orders(&self, count: u64) -> Vec<i64> {
        let events: Vec<_> = (0..count).map(|_| order(self.next_number())).collect();
        self.append(&events).await
    }

    /// Removes the checks and triggers that refuse invalid values, as in tables of version 4 and
    /// older.
    pub async fn drop_guard(&self) {
        let table = self.outbox.table();
        let kind = self.store.kind();
        let on = if kind == StoreKind::Postgres { format!(" ON {table}") } else { String::new() };
        let triggers: &[&str] = match kind {
            StoreKind::Sqlite => &[
                "guard",
                "refuse",
                "refuse_id",
                "refuse_identity",
                "refuse_new_value",
                "refuse_update",
                "refuse_state",
                "refuse_value",
            ],
            StoreKind::Postgres => &["guard", "refuse_update", "refuse_state"],
            StoreKind::Mysql => &["guard"],
        };
        for trigger in triggers {
            self.execute(&format!("DROP TRIGGER {table}_{trigger}{on}")).await;
        }
        for check in ["times", "counts", "state"] {
            if kind == StoreKind::Mysql {
                self.execute(&format!("ALTER TABLE {table} DROP CONSTRAINT {table}_ck_{check}"))
                    .await;
            }
        }
    }

    /// Registers a relay under a name.
    pub async fn relay(&self, name: &str) -> Lease {
        let relay = RelayIdentity {
            id: name.to_owned(),
            host: "test-host".to_owned(),
            version: "0.0.0".to_owned(),
            serving: Vec::new(),
        };
        self.store.register(&relay).await.unwrap()
    }

    /// Claims with a fresh cursor.
    pub async fn claim(&self, lease: &Lease, limit: u32) -> Vec<Event> {
        self.claim_on(lease, limit, &mut Cursor::new()).await
    }

    /// Claims with a cursor that the case keeps.
    pub async fn claim_on(&self, lease: &Lease, limit: u32, cursor: &mut Cursor) -> Vec<Event> {
        self.store.claim(&self.outbox, lease, rows(limit), cursor).await.unwrap().events
    }

    /// Settles events as delivered; returns the number of changed rows.
    pub async fn deliver(&self, lease: &Lease, events: &[Event], on_success: OnSuccess) -> u64 {
        let deliveries: Vec<_> = events.iter().map(Into::into).collect();
        let settled =
            self.store.settle_delivered(&self.outbox, lease, &deliveries, on_success).await;
        settled.unwrap().rows
    }

    /// Moves an event to the dead letters; returns the dead letter's id.
    pub async fn move_to_dlq(&self, lease: &Lease, event: &Event, message: &str) -> i64 {
        let deaths = [death(event, DeadReason::Rejected, message)];
        let settled = self.store.settle_dead(&self.outbox, lease, &deaths).await.unwrap();
        assert_eq!(settled.rows, 1);
        let table = self.outbox.table();
        self.integer(&format!("SELECT id FROM {table}_dlq WHERE original_id = {}", event.id)).await
    }

    /// Returns the live or archived row of an event.
    pub async fn event(&self, id: i64) -> Option<EventRecord> {
        self.store.event(&self.outbox, id).await.unwrap()
    }

    /// Returns a live row's column as text.
    pub async fn column(&self, id: i64, column: &str) -> Option<String> {
        let table = self.outbox.table();
        self.text(&format!("SELECT {column} FROM {table} WHERE id = {id}")).await
    }

    /// Counts the rows of one of the outbox's tables: `""`, `"_dlq"`, `"_keys"` …
    pub async fn count(&self, suffix: &str) -> i64 {
        let table = self.outbox.table();
        self.integer(&format!("SELECT count(*) FROM {table}{suffix}")).await
    }

    /// Returns the pulse of a relay as seen by another one.
    pub async fn pulse(&self, observer: &Lease, relay: &Lease) -> RelayPulse {
        let pulses = self.store.heartbeat(observer, &[]).await.unwrap();
        pulses.into_iter().find(|pulse| pulse.relay_id == relay.relay_id).unwrap()
    }

    /// Declares a relay dead, as seen by another.
    pub async fn fence(&self, observer: &Lease, relay: &Lease) {
        let pulse = self.pulse(observer, relay).await;
        assert!(self.store.fence(&pulse).await.unwrap(), "the relay did not move, so it is fenced");
    }

    /// Returns the audit trail, newest first.
    pub async fn trail(&self) -> Vec<AuditEntry> {
        let page = Page::first(1_000).within(Duration::MAX);
        self.store.audit(&AuditFilter::default(), page).await.unwrap().rows
    }

    /// Returns all windows of the ledger.
    pub async fn ledger(&self) -> Vec<LedgerWindow> {
        self.store.ledger(&self.outbox).await.unwrap()
    }

    /// Fails unless every window of the ledger balances.
    pub async fn assert_balanced(&self) {
        for window in self.ledger().await {
            assert!(window.balanced(), "{window:#?}");
        }
    }
}
