//! Actors besides the relays: writers, and faults.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::time::sleep;

use crate::database::{Database, Row, Transaction};
use crate::scenario::HorizonKind;
use crate::world::{Behaviour, EVENTS, State, World};

/// Maximum number of outages per destination: fewer than an event has attempts, because each may
/// charge one.
const OUTAGES_MAX: u64 = 3;

/// Begins and ends transactions, one after the other.
pub(crate) async fn write(world: Arc<World>, transactions: usize) {
    for _ in 0..transactions {
        sleep(world.time_between(0, 1_500)).await;
        let name = begin(&world);
        let events = world.state().random.random_range(1..=3);
        for _ in 0..events {
            insert(&world, name);
            if world.scenario.late_commits && world.draw(0.2) {
                sleep(world.time_between(1, 400)).await;
            }
        }
        let prepared = world.scenario.prepared && world.draw(0.3);
        if prepared {
            prepare(&world, name);
        }
        let held = match world.scenario.late_commits {
            false => Duration::ZERO,
            true if world.draw(0.15) => world.time_between(1_000, 15_000),
            true if world.draw(0.3) => world.time_between(20, 1_000),
            true => world.time_between(0, 20),
        };
        if !held.is_zero() {
            sleep(held).await;
        }
        let commits = !world.draw(0.1);
        end(&world, name, commits);
    }
}

fn begin(world: &World) -> u64 {
    let state = &mut *world.state();
    state.database.transactions += 1;
    let name = state.database.transactions;
    if let Ok(table) = state.database.table(EVENTS) {
        table.open.push(Transaction { name, rows: Vec::new(), prepared: false, recovered: false });
    }
    name
}

/// Takes an id for an event that becomes visible at the commit.
fn insert(world: &World, name: u64) {
    let (now, scenario) = (world.now(), &world.scenario);
    let state = &mut *world.state();
    state.numbers += 1;
    let number = state.numbers;
    let key = match scenario.mixed_keys && state.random.random_bool(0.6) {
        // Reuses the last key, so that a batch has several events of one key.
        true => state.last_key,
        false => state.random.random_range(0..scenario.keys),
    };
    state.last_key = key;
    let mut row = Row::new(number, key, now);
    if scenario.deferrals && state.random.random_bool(0.15) {
        let later = state.random.random_range(100..12_000);
        row.next_retry_at = Some(now + Duration::from_millis(later));
    }
    if scenario.failures && state.random.random_bool(0.05) {
        let later = state.random.random_range(0..10_000);
        row.expires_at = Some(now + Duration::from_millis(later));
    }
    let behaviour = behaviour(state, world, number);
    state.behaviours.insert(number, behaviour);
    let Ok(table) = state.database.table(EVENTS) else { return };
    // A transaction that the server rolled back by itself accepts no more events.
    if !table.open.iter().any(|open| open.name == name) {
        return;
    }
    let id = table.next_id();
    if let Some(open) = table.open.iter_mut().find(|open| open.name == name) {
        open.rows.push((id, row));
    }
    state.checker.inserted(EVENTS, number, key, id);
    state.checker.note(now, || format!("insert #{id} key {key} {behaviour:?}"));
}

fn behaviour(state: &mut State, world: &World, number: u64) -> Behaviour {
    let scenario = &world.scenario;
    let mut behaviour = Behaviour::default();
    if scenario.failures {
        behaviour.rejected = state.random.random_bool(0.05);
        if state.random.random_bool(0.2) {
            behaviour.failures = state.random.random_range(1..=3);
        }
    }
    // The events that kill relays are among the first.
    behaviour.kills = usize::try_from(number).is_ok_and(|number| number <= scenario.killers);
    behaviour
}

fn prepare(world: &World, name: u64) {
    let state = &mut *world.state();
    if let Ok(table) = state.database.table(EVENTS) {
        let open = table.open.iter_mut().find(|open| open.name == name);
        open.into_iter().for_each(|open| open.prepared = true);
    }
}

fn end(world: &World, name: u64, commits: bool) {
    let now = world.now();
    let state = &mut *world.state();
    state.database.commits += 1;
    let commit = state.database.commits;
    let Ok(table) = state.database.table(EVENTS) else { return };
    let Some(at) = table.open.iter().position(|open| open.name == name) else { return };
    let open = table.open.remove(at);
    if !commits {
        return;
    }
    table.appended += open.rows.len() as u64;
    let ids: Vec<i64> = open.rows.iter().map(|(id, _)| *id).collect();
    for (id, row) in open.rows {
        state.checker.counts.committed += 1;
        state.checker.known(EVENTS, row.number).commit = Some(commit);
        table.rows.insert(id, row);
    }
    state.checker.note(now, || format!("commit {ids:?}"));
}

/// Takes one destination down and up again, a few times.
pub(crate) async fn break_destination(world: Arc<World>, place: usize) {
    for outage in 1..=OUTAGES_MAX {
        sleep(world.time_between(500, 30_000)).await;
        world.state().destinations[place].down = Some(outage);
        world.note(|| format!("destination {place} is down"));
        sleep(world.time_between(500, 20_000)).await;
        world.state().destinations[place].down = None;
        world.note(|| format!("destination {place} is back"));
    }
}

/// Restarts the server, or brings it back with an older state.
pub(crate) async fn break_server(world: Arc<World>) {
    loop {
        sleep(world.time_between(3_000, 30_000)).await;
        let backup: Option<Database> =
            world.scenario.rewinds.then(|| world.state().database.clone());
        sleep(world.time_between(100, 8_000)).await;
        // Longer than an observation of the horizon remains valid: no server fails over faster.
        let away = world.time_between(100, 4_000);
        let rewinds = backup.is_some() && world.draw(0.5);
        let now = world.now();
        let state = &mut *world.state();
        state.away_until = now + away;
        match backup.filter(|_| rewinds) {
            Some(backup) => rewind(state, backup),
            None => state.database.restart(),
        }
        state.checker.note(now, || format!("server restarts, rewinds: {rewinds}"));
    }
}

fn rewind(state: &mut State, mut backup: Database) {
    state.checker.taken_back(backup.commits);
    for (outbox, table) in &mut backup.tables {
        // Including prepared ones: the server that had them is gone.
        table.open.clear();
        for ((of, number), known) in &mut state.checker.known {
            if of == outbox {
                let was_dead = std::mem::replace(&mut known.dead, table.dead.contains(number));
                known.revived |= was_dead && !known.dead;
            }
        }
    }
    // Commits are still numbered in the order in which they happen.
    backup.commits = state.database.commits;
    backup.transactions = state.database.transactions;
    backup.starts = state.database.starts + 1;
    state.database = backup;
    state.timeline += 1;
}

/// Returns the number of writers: 1 if transactions may not overlap.
pub(crate) fn writers_of(world: &World) -> usize {
    match world.scenario.horizon {
        HorizonKind::OneWriter => 1,
        HorizonKind::List | HorizonKind::AgedList => world.scenario.writers,
    }
}
