//! Tables and their versions.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider::Outbox;

use super::Result;
use crate::{OutboxSpec, StoreError};

/// The state of the database's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaState {
    /// The tables exist, in a version that this program can use.
    Ready,
    /// Tables are missing or older than this program needs; the text says which.
    NeedsMigration(String),
    /// The tables require a newer program.
    TooNew(String),
}

/// Migrations expand first and contract a release later, so that the old and the new program can
/// run side by side during a deployment.
#[async_trait]
pub trait Schema: Send + Sync {
    /// Migrates the shared tables and those of the given outboxes to this program's version. Can
    /// run any number of times, and from several processes at once. Returns the changes made.
    async fn migrate(&self, outboxes: &[OutboxSpec]) -> Result<Vec<String>>;

    /// Returns the SQL that `migrate` would run on an empty database, with the GRANTs for the
    /// application, the relay and a viewer.
    fn migration_sql(&self, outboxes: &[OutboxSpec]) -> String;

    /// Checks whether this program can work with the existing tables.
    async fn schema_state(&self, outboxes: &[Outbox]) -> Result<SchemaState>;

    /// Drops all tables of an outbox with their data.
    async fn drop_outbox(&self, outbox: &Outbox) -> Result<()>;

    /// Returns the product and version of the database, and its durability settings.
    async fn server_facts(&self) -> Result<ServerFacts>;
}

/// Facts that the database reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Product and version.
    pub version: String,
    /// The settings that decide whether a commit survives a crash.
    pub durability: BTreeMap<String, String>,
}

/// Schema versions of this program.
pub mod versions {
    /// Version of the tables that this program creates and uses.
    pub const SCHEMA: i32 = 6;
    /// Programs that know tables of this version or newer may use the tables created by this one.
    pub const OLDEST_RELAY: i32 = 6;
}

/// Handles tables that are newer than this program: a migration leaves them alone, which is fine if
/// this program may use them. Reverting them would break newer programs.
pub(crate) fn leave_newer_tables(state: SchemaState) -> Result<Vec<String>> {
    match state {
        SchemaState::Ready => {
            Ok(vec!["the tables are newer and may be used as they are".to_owned()])
        }
        SchemaState::NeedsMigration(reason) | SchemaState::TooNew(reason) => Err(
            StoreError::Schema(format!("{reason}; migrate with the newest program that is in use")),
        ),
    }
}

/// Returns the schema state, given `version` and `oldest_relay` of the shared tables, and name,
/// table and version of each outbox.
pub(crate) fn schema_verdict(
    found: Option<(i32, i32)>,
    known: &[(String, String, i32)],
    wanted: &[Outbox],
) -> SchemaState {
    let Some((version, oldest_relay)) = found else {
        return SchemaState::NeedsMigration("Postrider's tables are missing".to_owned());
    };
    if oldest_relay > versions::SCHEMA {
        return SchemaState::TooNew(format!(
            "the tables are at version {version} and need a program that knows version \
             {oldest_relay}; this one knows {}",
            versions::SCHEMA
        ));
    }
    if version < versions::SCHEMA {
        return SchemaState::NeedsMigration(format!(
            "the shared tables are at version {version}; this program needs {}",
            versions::SCHEMA
        ));
    }
    for outbox in wanted {
        let Some((_, table, version)) = known.iter().find(|(name, ..)| name == outbox.name())
        else {
            return SchemaState::NeedsMigration(format!(
                "the tables of outbox `{}` are missing",
                outbox.name()
            ));
        };
        if table != outbox.table() {
            return SchemaState::NeedsMigration(format!(
                "outbox `{}` is kept in table `{table}`, but `{}` is configured",
                outbox.name(),
                outbox.table()
            ));
        }
        if *version < versions::SCHEMA {
            return SchemaState::NeedsMigration(format!(
                "the tables of outbox `{}` are at version {version}; this program needs {}",
                outbox.name(),
                versions::SCHEMA
            ));
        }
    }
    SchemaState::Ready
}
