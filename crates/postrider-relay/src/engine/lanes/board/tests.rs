//! Tests of the board, step by step.

mod catching_up;
mod outage;

use std::time::Duration;

use postrider_store::LaneRow;

use super::admission::BUSY_WAIT;
use super::*;

const WORKER: usize = 0;

fn event(id: i64, key: &str) -> Event {
    Event {
        id,
        aggregate_type: "account".to_owned(),
        aggregate_id: key.to_owned(),
        ..Event::default()
    }
}

/// Returns a row: lane 0 for key `a`, lane 1 for the others.
fn row(id: i64, key: &str) -> LaneRow {
    let lane = u8::from(key != "a");
    LaneRow { event: event(id, key), lane, due_in: Duration::ZERO, busy: false }
}

fn board(failing_key: FailingKey) -> Board {
    let mut board = Board::new(failing_key, LaneLimits::default(), 1, Box::new(|_, _| None));
    board.serve(LaneSet::ALL);
    board.sweep = false;
    board
}

fn take(board: &mut Board) -> Vec<i64> {
    board.take(WORKER, 100, usize::MAX).iter().map(|event| event.id).collect()
}

fn due(board: &mut Board, now: Instant) -> Vec<i64> {
    board.due_heads(now, 10, usize::MAX)
}

fn key(name: &str) -> Key {
    Key::from(&event(0, name))
}

/// Fails an event that was taken; it is due again after a second.
fn fail(board: &mut Board, id: i64, of: &str, now: Instant) -> Standing {
    let standing = board.not_delivered(&event(id, of));
    match standing {
        Standing::Waits => board.waits(id, Duration::from_secs(1), now),
        Standing::PassedOver => board.settled(id),
    }
    standing
}

fn deliver(board: &mut Board, id: i64, of: &str) {
    board.delivered(&event(id, of));
    board.settled(id);
}

#[test]
fn a_row_that_is_read_again_is_not_sent_again() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    assert_eq!(board.offer(vec![row(1, "a"), row(2, "b")], false, now), 2);
    assert_eq!(board.offer(vec![row(1, "a"), row(2, "b")], false, now), 0);
    assert_eq!(take(&mut board), [1, 2]);
    assert_eq!(board.offer(vec![row(1, "a")], false, now), 0, "in flight is known too");
    assert_eq!(board.known_above(1), [2]);
    deliver(&mut board, 1, "a");
    assert_eq!((board.load_rows(), board.known_above(0)), (1, vec![2]));
}

#[test]
fn behind_a_head_everything_waits_and_comes_after_it() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a"), row(3, "b")], false, now);
    assert_eq!(board.take(WORKER, 1, usize::MAX)[0].id, 1);
    assert_eq!(fail(&mut board, 1, "a", now), Standing::Waits);
    assert_eq!(take(&mut board), [3], "2 is passed over");
    board.offer(vec![row(4, "a")], false, now);
    assert_eq!(take(&mut board), [0; 0]);
    assert!(due(&mut board, now).is_empty(), "not yet");
    let later = now + Duration::from_secs(1);
    assert_eq!(due(&mut board, later), [1]);
    board.offer_heads(&[1], vec![row(1, "a")], later);
    assert_eq!(take(&mut board), [1]);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    assert_eq!(asked, [CatchUp { key: key("a"), from: 1 }]);
    board.offer(vec![row(5, "a")], false, later);
    assert_eq!(take(&mut board), [0; 0], "5 may not pass 2 and 4");
    let rows = vec![row(2, "a"), row(4, "a"), row(5, "a")];
    board.offer_catch_up(&asked, rows, false, later);
    assert_eq!(take(&mut board), [2, 4, 5]);
    board.offer(vec![row(6, "a")], false, later);
    assert_eq!(take(&mut board), [6], "the key is free");
}

#[test]
fn what_comes_before_a_row_that_is_not_due_yet_goes_before_it() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    let later = || LaneRow { due_in: Duration::from_secs(1), ..row(2, "a") };
    board.offer(vec![row(1, "a"), later(), row(3, "a")], false, now);
    assert_eq!(take(&mut board), [1]);
    assert_eq!(fail(&mut board, 1, "a", now), Standing::Waits, "the first of the key is its head");
    let soon = now + Duration::from_secs(1);
    assert_eq!(due(&mut board, soon), [1], "and the second is behind it");
    board.offer_heads(&[1], vec![row(1, "a")], soon);
    assert_eq!(take(&mut board), [1]);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    assert_eq!(asked, [CatchUp { key: key("a"), from: 1 }]);
    board.offer_catch_up(&asked, vec![row(2, "a"), row(3, "a")], false, soon);
    assert_eq!(take(&mut board), [2, 3]);
}

#[test]
fn a_row_that_became_due_while_the_one_before_it_was_under_way_stays_behind_it() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    let later = LaneRow { due_in: Duration::from_secs(1), ..row(2, "a") };
    board.offer(vec![row(1, "a"), later], false, now);
    assert_eq!(take(&mut board), [1]);
    let soon = now + Duration::from_secs(1);
    assert_eq!(due(&mut board, soon), [2]);
    board.offer_heads(&[2], vec![row(2, "a")], soon);
    assert_eq!(fail(&mut board, 1, "a", soon), Standing::Waits);
    assert_eq!(take(&mut board), [0; 0], "2 is passed over");
    board.offer_heads(&[1], vec![row(1, "a")], soon);
    assert_eq!(take(&mut board), [1]);
    deliver(&mut board, 1, "a");
    assert_eq!(board.catch_ups(10), [CatchUp { key: key("a"), from: 1 }]);
}

#[test]
fn heads_that_are_due_together_are_read_within_the_limits() {
    let (mut board, now) = (board(FailingKey::Skip), Instant::now());
    let rows: Vec<LaneRow> = (1..=4)
        .map(|id| {
            let mut row = LaneRow { due_in: Duration::from_secs(1), ..row(id, "a") };
            row.event.payload = "x".repeat(1_000);
            row
        })
        .collect();
    board.offer(rows, false, now);
    let later = now + Duration::from_secs(1);
    assert_eq!(board.due_heads(later, 10, 3_000), [1, 2]);
    assert_eq!(board.due_heads(later, 10, 10), [3], "one in any case");
    assert_eq!(board.due_heads(later, 10, usize::MAX), [4]);
}

#[test]
fn a_failed_read_of_heads_and_keys_is_repeated() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    board.take(WORKER, 1, usize::MAX);
    fail(&mut board, 1, "a", now);
    let later = now + Duration::from_secs(2);
    assert_eq!(due(&mut board, later), [1]);
    assert_eq!(due(&mut board, later), [0; 0], "being read");
    board.due_again(&[1], later);
    assert_eq!(due(&mut board, later), [1]);
    board.offer_heads(&[1], vec![row(1, "a")], later);
    take(&mut board);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    assert!(!board.catches_up());
    board.catch_up_again(&asked);
    assert_eq!(board.catch_ups(10), asked);
}

#[test]
fn two_of_a_key_that_fail_in_one_batch_keep_one_head() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    assert_eq!(take(&mut board), [1, 2]);
    assert_eq!(fail(&mut board, 1, "a", now), Standing::Waits);
    assert_eq!(fail(&mut board, 2, "a", now), Standing::PassedOver);
    assert_eq!((board.load_rows(), board.waiting()), (0, 1));
    board.offer_heads(&[1], vec![row(1, "a")], now);
    take(&mut board);
    deliver(&mut board, 1, "a");
    assert_eq!(board.catch_ups(10), [CatchUp { key: key("a"), from: 1 }]);
}

#[test]
fn rows_behind_a_head_are_hidden_from_reads_when_they_are_many() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    let many = i64::try_from(LaneLimits::default().hide_after).unwrap();
    board.offer((2..2 + many - 1).map(|id| row(id, "a")).collect(), false, now);
    assert_eq!(board.hidden_keys(), []);
    board.offer(vec![row(1_000, "a")], false, now);
    assert_eq!(board.hidden_keys(), [key("a")]);
    board.offer_heads(&[1], vec![row(1, "a")], now);
    take(&mut board);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    board.offer_catch_up(&asked, vec![row(2, "a")], false, now);
    assert_eq!(board.hidden_keys(), [], "a key that goes on is read again");
}

#[test]
fn a_full_read_without_news_hides_its_keys_so_that_the_next_gets_on() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    assert_eq!(board.offer(vec![row(2, "a"), row(3, "a")], true, now), 0);
    assert_eq!(board.hidden_keys(), [key("a")]);
}

#[test]
fn an_event_that_is_not_due_or_busy_is_a_head() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    let later = LaneRow { due_in: Duration::from_secs(9), ..row(1, "a") };
    let busy = LaneRow { busy: true, ..row(2, "b") };
    board.offer(vec![later, busy, row(3, "a"), row(4, "b")], false, now);
    assert_eq!(take(&mut board), [0; 0]);
    assert_eq!(due(&mut board, now + BUSY_WAIT), [2]);
    assert_eq!(due(&mut board, now + Duration::from_secs(9)), [1]);
}

#[test]
fn where_keys_are_skipped_only_the_failed_event_waits() {
    let (mut board, now) = (board(FailingKey::Skip), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    assert_eq!(take(&mut board), [1, 2]);
    assert_eq!(fail(&mut board, 1, "a", now), Standing::Waits);
    deliver(&mut board, 2, "a");
    board.offer(vec![row(3, "a")], false, now);
    assert_eq!(take(&mut board), [3]);
    assert_eq!(due(&mut board, now + Duration::from_secs(1)), [1]);
}

#[test]
fn a_parked_key_stops_past_its_dead_head_and_goes_on_from_there() {
    let (mut board, now) = (board(FailingKey::Park), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    assert_eq!(take(&mut board), [1, 2]);
    board.park_key_of(&event(1, "a"));
    board.not_delivered(&event(1, "a"));
    board.park(&[], board.park_notes());
    let notes = board.park_notes();
    board.note_parked(&key("a"));
    board.park(&[], notes);
    assert_eq!(board.not_delivered(&event(2, "a")), Standing::PassedOver);
    board.settled(2);
    board.dead(&event(1, "a"));
    board.settled(1);
    assert_eq!(board.catch_ups(10), []);
    board.park(&[key("a")], board.park_notes());
    board.offer(vec![row(3, "a")], false, now);
    assert_eq!(take(&mut board), [0; 0]);
    board.park(&[], board.park_notes());
    let asked = board.catch_ups(10);
    assert_eq!(asked, [CatchUp { key: key("a"), from: 1 }]);
    board.offer_catch_up(&asked, vec![row(2, "a"), row(3, "a")], false, now);
    assert_eq!(take(&mut board), [2, 3]);
}

#[test]
fn a_head_that_became_due_while_its_key_is_parked_is_sent_after_the_release() {
    let (mut board, now) = (board(FailingKey::Park), Instant::now());
    board.offer(vec![row(1, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    board.park(&[key("a")], board.park_notes());
    board.offer_heads(&[1], vec![row(1, "a")], now);
    assert_eq!(take(&mut board), [0; 0], "parked");
    board.park(&[], board.park_notes());
    let asked = board.catch_ups(10);
    board.offer_catch_up(&asked, vec![row(1, "a")], false, now);
    assert_eq!(take(&mut board), [1]);
}

#[test]
fn a_dead_event_stops_its_key_until_its_letter_is_written() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    assert_eq!(board.take(WORKER, 1, usize::MAX)[0].id, 1);
    board.not_delivered(&event(1, "a"));
    assert_eq!(take(&mut board), [0; 0], "2 is behind it");
    board.dead(&event(1, "a"));
    board.settled(1);
    assert_eq!(board.catch_ups(10).len(), 1);
}

#[test]
fn a_row_that_cannot_be_read_stops_nobody() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    let defect = |id| {
        let mut row = LaneRow { due_in: Duration::from_secs(9), ..row(id, "a") };
        row.event.defect = Some("its key is not text".to_owned());
        row
    };
    board.offer(vec![defect(1), defect(2), row(3, "a")], false, now);
    assert_eq!(take(&mut board), [1, 2, 3], "each by itself");
    let dead = defect(1).event;
    board.not_delivered(&dead);
    board.dead(&dead);
    board.settled(1);
    board.offer(vec![row(4, "a")], false, now);
    assert_eq!(take(&mut board), [4]);
    assert_eq!(board.catch_ups(10), []);
}

#[test]
fn another_event_with_the_id_of_a_head_is_not_sent_in_its_place() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    let mut other = row(1, "b");
    other.event.event_id = "other".to_owned();
    board.offer_heads(&[1], vec![other], now);
    assert_eq!(take(&mut board), [0; 0]);
    assert_eq!(board.catch_ups(10), []);
    assert!(board.sweep, "the next read of lanes tells what became of the table");
}

#[test]
fn a_head_that_is_gone_frees_its_key() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    board.take(WORKER, 1, usize::MAX);
    fail(&mut board, 1, "a", now);
    assert_eq!(take(&mut board), [0; 0]);
    board.offer_heads(&[1], Vec::new(), now);
    assert_eq!(board.catch_ups(10), [], "whose head it was is not known");
    assert!(board.sweep);
    board.offer(vec![row(2, "a")], false, now);
    assert_eq!(take(&mut board), [2]);
}

#[test]
fn a_lane_is_left_when_nothing_of_it_is_in_flight() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "b"), row(3, "a")], false, now);
    assert_eq!(board.take(WORKER, 1, usize::MAX)[0].id, 1);
    let lane: LaneSet = [0].into_iter().collect();
    board.leave(lane);
    assert!(board.left().is_empty(), "1 is in flight");
    assert_eq!(take(&mut board), [2], "3 is somebody else's to send");
    board.offer(vec![row(4, "a")], false, now);
    assert_eq!(take(&mut board), [0; 0]);
    assert_eq!(fail(&mut board, 1, "a", now), Standing::PassedOver);
    assert_eq!(board.left(), lane);
    board.forget(lane);
    assert!(!board.lanes().contains(0) && board.lanes().contains(1));
    assert_eq!(due(&mut board, now + Duration::from_secs(9)), [0; 0]);
    board.serve(LaneSet::ALL);
    assert!(board.sweep, "a lane that comes back is read from the beginning");
}

#[test]
fn batches_keep_to_their_limits_and_a_large_event_travels_alone() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    let mut large = row(2, "b");
    large.event.payload = "x".repeat(10_000);
    board.offer(vec![row(1, "a"), large, row(3, "a"), row(4, "a")], false, now);
    let ids = |events: Vec<Event>| events.iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids(board.take(WORKER, 10, 1_000)), [1]);
    assert_eq!(ids(board.take(WORKER, 10, 1_000)), [2]);
    assert_eq!(ids(board.take(WORKER, 1, 1_000)), [3]);
    assert_eq!(ids(board.take(WORKER, 10, 1_000)), [4]);
}

#[test]
fn events_of_suspected_lanes_go_alone_those_with_the_fewest_crashes_first() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.suspect([1].into_iter().collect());
    let mut blamed = row(1, "b");
    blamed.event.crash_count = 3;
    board.offer(vec![blamed, row(2, "a"), row(3, "b"), row(4, "c"), row(5, "c")], false, now);
    assert_eq!(take(&mut board), [2]);
    let order: Vec<i64> = std::iter::from_fn(|| board.take_alone()).map(|event| event.id).collect();
    assert_eq!(order, [4, 5, 1, 3], "within a key, in order");
    assert!(board.is_loaded([1].into_iter().collect()));
}

#[test]
fn what_is_queued_is_not_overtaken_by_an_event_that_is_sent_alone() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "b"), row(2, "b")], false, now);
    board.suspect([1].into_iter().collect());
    board.offer(vec![row(3, "b")], false, now);
    assert_eq!(take(&mut board), [0; 0]);
    assert_eq!(board.take_alone().map(|event| event.id), Some(1));
    board.suspect(LaneSet::NONE);
    board.offer(vec![row(4, "b")], false, now);
    let order: Vec<i64> = std::iter::from_fn(|| board.take_alone()).map(|event| event.id).collect();
    assert_eq!((order, take(&mut board)), (vec![2, 3, 4], vec![]));
}
