//! Operator work: what does not differ between the databases, written once.
//!
//! Everything that operators look up and do, and what maintenance does with dead letters and jobs,
//! is in this module: the traits [`OperatorStore`](crate::contract::OperatorStore),
//! [`Jobs`](crate::contract::Jobs), [`Pauses`](crate::contract::Pauses),
//! [`Inboxes`](crate::contract::Inboxes) and [`Batches`](crate::contract::Batches) are implemented
//! for every [`SqlStore`].
//!
//! The SQL is in `sql/`, by topic, each statement under its name. [`dialect`] lists the few markers
//! that stand for something else in each database. Where a whole statement differs, the file
//! `sql/operator.sql` of the store has one of the same name instead.

mod audit;
mod batches;
mod consumer;
mod dead_letters;
mod dialect;
mod inboxes;
mod job_step;
mod jobs;
mod maintenance;
mod pauses;
mod records;
mod row;
mod search;
mod session;
mod sql;
mod statement;
mod store;

pub(crate) use audit::audit;
pub(crate) use consumer::{asked_letter, is_known, letter_failed, letter_handled};
pub(crate) use dialect::Dialect;
pub(crate) use maintenance::{clean_jobs, fingerprint_dead_letters, oldest_dead_letters};
#[cfg(feature = "sqlite")]
pub(crate) use row::nearest;
pub(crate) use row::{Columns, Row};
pub(crate) use session::{Connection, SqlStore};
pub(crate) use statement::{Query, Value};
