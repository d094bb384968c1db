//! The operator's side of a store: what is looked up. What is done with dead letters is in
//! [`dead_letters`](super::dead_letters).

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;

use super::records::dead_letter;
use super::row::Row;
use super::search::{AuditSearch, DlqSearch, EventSearch};
use super::session::SqlStore;
use super::statement::Value;
use super::{dead_letters, sql};
use crate::contract::{
    Attempt, AuditEntry, AuditFilter, CountLimit, Counted, DeadLetter, DeadLetterGroups, DlqFilter,
    Edit, EventFilter, Identified, ImportEntry, Imported, LEDGER_BY_MINUTE, LedgerLine,
    LedgerWindow, Listed, Oldest, OperatorStore, Page, Resent, Result, Statistics, TypeStatistics,
    groups, parse_stored, search, windows_from_lines,
};
use crate::{EventRecord, Status};

#[async_trait]
impl<S: SqlStore> OperatorStore for S {
    async fn ledger(&self, outbox: &Outbox) -> Result<Vec<LedgerWindow>> {
        let query = sql::LEDGER.on(outbox).bind("by_minute", LEDGER_BY_MINUTE);
        let mut lines: BTreeMap<DateTime<Utc>, Vec<(String, LedgerLine)>> = BTreeMap::new();
        for row in self.fetch_whole(query).await? {
            let id_sum = parse_stored("id_sum", &row.text("id_sum")?)?;
            let line = LedgerLine { count: row.number("found")?, id_sum };
            lines.entry(row.time("shown")?).or_default().push((row.text("kind")?, line));
        }
        Ok(windows_from_lines(lines))
    }

    async fn statistics(&self, outbox: &Outbox) -> Result<Statistics> {
        let rows = self.fetch(sql::STATISTICS.on(outbox)).await?;
        let of_type = |row: &Row| {
            Ok(TypeStatistics {
                event_type: row.text("event_type")?,
                appended: row.number("appended")?,
                delivered: row.number("delivered")?,
                dead: row.number("dead")?,
            })
        };
        let by_type = rows.iter().map(of_type).collect::<Result<Vec<_>>>()?;
        let unresolved = self.fetch_one(sql::UNRESOLVED.on(outbox)).await?.number("found")?;
        let statistics = Statistics::from_types(by_type, unresolved);
        let look = |from| oldest(self, outbox, from);
        let oldest_age_s = match self.oldest_rows() {
            Some(remembered) => remembered.age_s(outbox, statistics.pending, look).await?,
            None => look(0).await?.map(|(_, age_s)| age_s),
        };
        Ok(Statistics { oldest_age_s, ..statistics })
    }

    async fn events(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        page: Page,
    ) -> Result<Listed<EventRecord>> {
        search::list(&EventSearch { store: self, outbox, filter }, page).await
    }

    async fn event_count(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        limit: CountLimit,
    ) -> Result<Counted> {
        search::count(&EventSearch { store: self, outbox, filter }, limit).await
    }

    async fn event(&self, outbox: &Outbox, id: i64) -> Result<Option<EventRecord>> {
        for status in [None, Some(Status::Completed)] {
            let filter = EventFilter { status, ..EventFilter::default() };
            let search = EventSearch { store: self, outbox, filter: &filter };
            let found = search.find(id..id.saturating_add(1), 1, true).await?.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    async fn event_by_identity(
        &self,
        outbox: &Outbox,
        event_id: &str,
        budget: Duration,
    ) -> Result<Identified> {
        let live = EventFilter { event_id: Some(event_id.to_owned()), ..EventFilter::default() };
        let archived = EventFilter { status: Some(Status::Completed), ..live.clone() };
        let query = sql::DLQ_BY_EVENT.on(outbox).bind("event_id", Value::identity(event_id));
        let rows = self.fetch(query.bind("limit", search::IDENTICAL_MAX)).await?;
        let dead_letters = rows.iter().map(dead_letter).collect::<Result<_>>()?;
        let search = |filter| EventSearch { store: self, outbox, filter };
        search::identified(&search(&live), &search(&archived), dead_letters, budget).await
    }

    async fn attempts(&self, outbox: &Outbox, event_id: &str) -> Result<Vec<Attempt>> {
        let query = sql::ATTEMPTS.on(outbox).bind("event_id", Value::identity(event_id));
        let rows = self.fetch(query).await?;
        let attempt = |row: &Row| {
            Ok(Attempt {
                attempt: row.number("attempt")?,
                failed_at: row.time("failed_at")?,
                error: row.text("error")?,
                took_ms: row.number("took_ms")?,
                relay_id: row.text("relay_id")?,
            })
        };
        rows.iter().map(attempt).collect()
    }

    async fn dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<Listed<DeadLetter>> {
        search::list(&DlqSearch { store: self, outbox, filter }, page).await
    }

    async fn dead_letter_count(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        limit: CountLimit,
    ) -> Result<Counted> {
        if filter.is_open_only() {
            let one_more = limit.count_max.saturating_add(1);
            let query = sql::DLQ_COUNT_OPEN.on(outbox).bind("limit", one_more);
            let found = self.fetch_one(query).await?.number("found")?;
            return Ok(Counted::up_to(found, limit.count_max));
        }
        search::count(&DlqSearch { store: self, outbox, filter }, limit).await
    }

    async fn dead_letter_groups(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<DeadLetterGroups> {
        groups(&DlqSearch { store: self, outbox, filter }, page).await
    }

    async fn dead_letter(&self, outbox: &Outbox, id: i64) -> Result<Option<DeadLetter>> {
        let rows = self.fetch(sql::DLQ_SHOW.on(outbox).bind("id", id)).await?;
        rows.first().map(dead_letter).transpose()
    }

    async fn retry(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<i64> {
        dead_letters::retry(self, outbox, id, operator, note).await
    }

    async fn resolve(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()> {
        dead_letters::resolve(self, outbox, id, operator, note).await
    }

    async fn reopen(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()> {
        dead_letters::reopen(self, outbox, id, operator, note).await
    }

    async fn resend(
        &self,
        outbox: &Outbox,
        id: i64,
        edit: &Edit,
        operator: &str,
        note: &str,
    ) -> Result<Resent> {
        dead_letters::resend(self, outbox, id, edit, operator, note).await
    }

    async fn import(
        &self,
        outbox: &Outbox,
        entry: &ImportEntry,
        operator: &str,
    ) -> Result<Imported> {
        dead_letters::import(self, outbox, entry, operator).await
    }

    async fn was_closed(&self, outbox: &Outbox, entry: &ImportEntry) -> Result<bool> {
        entry.check(S::KIND)?;
        self.fetch_one(dead_letters::is_closed(outbox, entry)).await?.boolean("closed")
    }

    async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditEntry>> {
        search::list(&AuditSearch { store: self, filter }, page).await
    }
}

async fn oldest<S: SqlStore>(store: &S, outbox: &Outbox, from: i64) -> Result<Oldest> {
    let rows = store.fetch(sql::OLDEST.on(outbox).bind("from", from)).await?;
    let oldest = |row: &Row| Ok((row.number("id")?, row.number("age_s")?));
    rows.first().map(oldest).transpose()
}
