//! Tests of destinations that are down: what waits for them, and what is sent as a probe.

use super::*;
use crate::destination::health::Wait;

const DOWN: Wait =
    Wait { destination: 7, delay: Duration::from_secs(1), probe_due: false, expires_in: None };

/// Returns a board for which the destination of key `a` is down; a probe is due or not.
fn board_of_one_down(probe_due: bool) -> Board {
    let wait =
        move |event: &Event, _| (event.aggregate_id == "a").then_some(Wait { probe_due, ..DOWN });
    let mut board = Board::new(FailingKey::Block, LaneLimits::default(), 1, Box::new(wait));
    board.serve(LaneSet::ALL);
    board
}

fn take_probes(board: &mut Board) -> Vec<i64> {
    let probes = board.probes();
    board.take(probes, 100, usize::MAX).iter().map(|event| event.id).collect()
}

#[test]
fn rows_of_a_destination_that_is_down_are_queued_nowhere() {
    let (mut board, now) = (board_of_one_down(false), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a"), row(3, "b")], false, now);
    assert_eq!((take(&mut board), take_probes(&mut board)), (vec![3], vec![]));
    assert_eq!(board.load_rows(), 1, "what waits leaves room for others");
    let later = now + DOWN.delay;
    assert_eq!(due(&mut board, later), [1], "2 is behind it");
    board.offer_heads(&[1], vec![row(1, "a")], later);
    assert_eq!((take(&mut board), take_probes(&mut board)), (vec![], vec![]), "no probe is due");
    assert_eq!(due(&mut board, later + DOWN.delay), [1], "but it waits for one");
}

#[test]
fn a_probe_is_a_head_and_goes_by_a_queue_of_its_own() {
    let (mut board, now) = (board_of_one_down(true), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a"), row(3, "b")], false, now);
    assert_eq!(take_probes(&mut board), [0; 0], "those that waited come first");
    let later = now + DOWN.delay;
    board.offer_heads(&[1], vec![row(1, "a")], later);
    assert_eq!((take(&mut board), take_probes(&mut board)), (vec![3], vec![1]));
    assert_eq!(fail(&mut board, 1, "a", later), Standing::Waits);
    board.offer(vec![row(4, "a")], false, later);
    assert_eq!((take(&mut board), take_probes(&mut board)), (vec![], vec![]));
}

#[test]
fn a_probe_that_may_kill_the_process_is_sent_alone() {
    let (mut board, now) = (board_of_one_down(true), Instant::now());
    board.suspect(LaneSet::ALL);
    board.offer(vec![row(1, "a"), row(2, "b")], false, now);
    assert_eq!(board.take_alone().map(|event| event.id), Some(2));
    board.offer_heads(&[1], vec![row(1, "a")], now + DOWN.delay);
    assert_eq!(take_probes(&mut board), [0; 0]);
    assert_eq!(board.take_alone().map(|event| event.id), Some(1));
}

#[test]
fn a_probe_overtakes_nothing_of_its_key_that_is_under_way_elsewhere() {
    let now = Instant::now();
    let second_is_down =
        |event: &Event, _| (event.id > 1).then_some(Wait { probe_due: true, ..DOWN });
    let mut board =
        Board::new(FailingKey::Block, LaneLimits::default(), 1, Box::new(second_is_down));
    board.serve(LaneSet::ALL);
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    assert_eq!(take(&mut board), [1]);
    board.offer_heads(&[2], vec![row(2, "a")], now + DOWN.delay);
    assert_eq!(take_probes(&mut board), [0; 0]);
    deliver(&mut board, 1, "a");
    board.offer_heads(&[2], vec![row(2, "a")], now + DOWN.delay * 2);
    assert_eq!(take_probes(&mut board), [2]);
}

/// Returns a board whose events all go to one destination, in the state that the cell holds.
fn board_behind(wait: &std::sync::Arc<std::sync::Mutex<Option<Wait>>>) -> Board {
    let wait = std::sync::Arc::clone(wait);
    let now = move |_: &Event, _| *wait.lock().unwrap();
    let mut board = Board::new(FailingKey::Block, LaneLimits::default(), 1, Box::new(now));
    board.serve(LaneSet::ALL);
    board
}

fn keys(ids: std::ops::RangeInclusive<i64>) -> Vec<LaneRow> {
    ids.map(|id| row(id, &format!("key-{id}"))).collect()
}

/// Reads the due heads again.
fn look(board: &mut Board, now: Instant) -> Vec<i64> {
    let ids = due(board, now);
    let rows = ids.iter().map(|id| row(*id, &format!("key-{id}"))).collect();
    board.offer_heads(&ids, rows, now);
    ids
}

#[test]
fn of_all_that_wait_for_a_destination_one_comes_up_per_probe() {
    let down = std::sync::Arc::new(std::sync::Mutex::new(Some(DOWN)));
    let (mut board, mut now) = (board_behind(&down), Instant::now());
    board.offer(keys(1..=4), false, now);
    assert_eq!(board.next_due(), Some(now + DOWN.delay));
    let mut looked = Vec::new();
    for _ in 0..6 {
        now += DOWN.delay;
        looked.push(look(&mut board, now));
    }
    assert_eq!(looked, [[1], [2], [3], [4], [1], [2]], "each in its turn");
    assert_eq!((board.waiting(), board.load_rows()), (4, 0));
}

#[test]
fn where_the_one_that_comes_up_cannot_be_the_probe_the_next_one_follows_at_once() {
    let down = std::sync::Arc::new(std::sync::Mutex::new(Some(DOWN)));
    let (mut board, now) = (board_behind(&down), Instant::now());
    board.offer(keys(1..=3), false, now);
    *down.lock().unwrap() = Some(Wait { probe_due: true, ..DOWN });
    // An earlier row of the first key is in flight.
    *board.loaded_of.entry(board.hash(&event(1, "key-1"))).or_default() += 1;
    let later = now + DOWN.delay;
    assert_eq!(look(&mut board, later), [1]);
    assert_eq!(take_probes(&mut board), [0; 0]);
    let soon = later + Duration::from_millis(10);
    assert_eq!(look(&mut board, soon), [2]);
    assert_eq!(take_probes(&mut board), [2]);
    assert_eq!(look(&mut board, soon + Duration::from_millis(10)), [0; 0], "one probe is enough");
}

#[test]
fn when_one_finds_its_destination_back_all_others_come_up() {
    let down = std::sync::Arc::new(std::sync::Mutex::new(Some(DOWN)));
    let (mut board, now) = (board_behind(&down), Instant::now());
    board.offer(keys(1..=4), false, now);
    *down.lock().unwrap() = None;
    let later = now + DOWN.delay;
    assert_eq!(look(&mut board, later), [1]);
    assert_eq!(look(&mut board, later), [2, 3, 4]);
    assert_eq!(take(&mut board), [1, 2, 3, 4]);
}

#[test]
fn when_another_destination_is_down_instead_all_others_come_up() {
    let down = std::sync::Arc::new(std::sync::Mutex::new(Some(DOWN)));
    let (mut board, now) = (board_behind(&down), Instant::now());
    board.offer(keys(1..=3), false, now);
    // The server is back, but a destination behind it is not.
    *down.lock().unwrap() = Some(Wait { destination: 8, ..DOWN });
    let later = now + DOWN.delay;
    assert_eq!(look(&mut board, later), [1]);
    assert_eq!(look(&mut board, later), [2, 3]);
    assert_eq!(look(&mut board, later + DOWN.delay), [1], "behind the other one now");
}

#[test]
fn one_that_is_gone_makes_room_for_the_next() {
    let down = std::sync::Arc::new(std::sync::Mutex::new(Some(DOWN)));
    let (mut board, now) = (board_behind(&down), Instant::now());
    board.offer(keys(1..=3), false, now);
    let later = now + DOWN.delay;
    assert_eq!(due(&mut board, later), [1]);
    board.offer_heads(&[1], Vec::new(), later);
    assert_eq!(look(&mut board, later), [2]);
    // A head whose read failed becomes due again.
    let again = later + DOWN.delay;
    assert_eq!(due(&mut board, again), [3]);
    board.due_again(&[3], again);
    assert_eq!(look(&mut board, again), [3]);
    assert_eq!(look(&mut board, again + DOWN.delay), [2]);
}

#[test]
fn an_event_that_expires_needs_no_destination_for_that() {
    let expires_in = Some(Duration::from_millis(100));
    let down = std::sync::Arc::new(std::sync::Mutex::new(Some(Wait { expires_in, ..DOWN })));
    let (mut board, now) = (board_behind(&down), Instant::now());
    board.offer(keys(1..=1), false, now);
    *down.lock().unwrap() = Some(Wait { expires_in: Some(Duration::ZERO), ..DOWN });
    assert_eq!(look(&mut board, now + Duration::from_millis(100)), [1]);
    assert_eq!(take(&mut board), [1]);
}
