//! Tests of keys that catch up: in parts, with late commits, hidden, and when ids are assigned
//! again.

use super::*;

#[test]
fn a_catch_up_in_parts_goes_on_where_it_ended() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    board.offer((2..=6).map(|id| row(id, "a")).collect(), false, now);
    board.reads_from(6);
    board.offer_heads(&[1], vec![row(1, "a")], now);
    take(&mut board);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    board.offer_catch_up(&asked, vec![row(2, "a"), row(3, "a")], true, now);
    assert_eq!(board.catch_ups(10), [], "not before 2 and 3 are settled");
    assert_eq!(take(&mut board), [2, 3]);
    // One of them fails: what is left to catch up stays behind it.
    deliver(&mut board, 2, "a");
    fail(&mut board, 3, "a", now);
    assert_eq!(board.catch_ups(10), []);
    board.offer_heads(&[3], vec![row(3, "a")], now);
    assert_eq!(take(&mut board), [3]);
    deliver(&mut board, 3, "a");
    assert_eq!(board.catch_ups(10), [CatchUp { key: key("a"), from: 3 }]);
}

/// A transaction that took id 2 is still open when 1 fails and 3 is read.
#[test]
fn a_row_that_is_committed_late_is_found_by_the_catch_up() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.reads_from(0);
    board.offer(vec![row(1, "a"), row(3, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    fail(&mut board, 3, "a", now);
    board.reads_from(1);
    board.offer_heads(&[1], vec![row(1, "a")], now);
    take(&mut board);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    assert!(asked[0].from <= 2, "{asked:?}");
    // While the key catches up in parts, another row is committed late: the next part starts below
    // it.
    board.offer_catch_up(&asked, vec![row(3, "a")], true, now);
    assert_eq!(take(&mut board), [3]);
    deliver(&mut board, 3, "a");
    assert!(board.catch_ups(10)[0].from <= 2);
}

#[test]
fn a_row_that_is_committed_late_does_not_wait_for_one_after_it() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    let later = LaneRow { due_in: Duration::from_secs(3_600), ..row(2, "a") };
    board.offer(vec![later], false, now);
    board.offer(vec![row(1, "a"), row(3, "a")], false, now);
    let asked = board.catch_ups(10);
    assert_eq!(asked, [CatchUp { key: key("a"), from: 1 }]);
    let later = LaneRow { due_in: Duration::from_secs(3_600), ..row(2, "a") };
    board.offer_catch_up(&asked, vec![row(1, "a"), later, row(3, "a")], false, now);
    assert_eq!(take(&mut board), [1], "3 is behind 2");
    assert_eq!(fail(&mut board, 1, "a", now), Standing::Waits);
    assert_eq!(due(&mut board, now + Duration::from_secs(1)), [1]);
}

#[test]
fn a_key_catches_up_only_when_nothing_of_it_is_under_way() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a"), row(2, "a")], false, now);
    assert_eq!(take(&mut board), [1, 2]);
    assert_eq!(board.not_delivered(&event(1, "a")), Standing::Waits);
    assert_eq!(board.not_delivered(&event(2, "a")), Standing::PassedOver);
    board.waits(1, Duration::ZERO, now);
    board.offer_heads(&[1], vec![row(1, "a")], now);
    assert_eq!(take(&mut board), [1]);
    board.delivered(&event(1, "a"));
    board.settled(1);
    assert_eq!(board.catch_ups(10), [], "2 is not settled: a read would bring it, or not");
    board.settled(2);
    assert_eq!(board.catch_ups(10).len(), 1);
}

/// Several keys catch up with one read, which is full before it reaches the rows of one of them.
#[test]
fn a_key_that_a_full_catch_up_did_not_reach_keeps_its_place() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    for (id, key) in [(1, "b"), (5, "a")] {
        board.reads_from(id - 1);
        board.offer(vec![row(id, key)], false, now);
        take(&mut board);
        fail(&mut board, id, key, now);
    }
    board.reads_from(9);
    board.offer_heads(&[1, 5], vec![row(1, "b"), row(5, "a")], now);
    take(&mut board);
    deliver(&mut board, 1, "b");
    deliver(&mut board, 5, "a");
    let asked = board.catch_ups(10);
    board.offer_catch_up(&asked, vec![row(2, "b"), row(3, "b")], true, now);
    assert_eq!(take(&mut board), [2, 3]);
    assert_eq!(board.catch_ups(10), [CatchUp { key: key("a"), from: 5 }]);
    deliver(&mut board, 2, "b");
    deliver(&mut board, 3, "b");
    assert_eq!(board.catch_ups(10), [CatchUp { key: key("b"), from: 4 }]);
}

#[test]
fn a_hidden_key_whose_catch_up_ends_at_a_row_that_is_not_due_forgets_nothing() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.offer(vec![row(1, "a")], false, now);
    take(&mut board);
    fail(&mut board, 1, "a", now);
    let many = i64::try_from(LaneLimits::default().hide_after).unwrap();
    board.offer((2..2 + many).map(|id| row(id, "a")).collect(), false, now);
    assert_eq!(board.hidden_keys(), [key("a")]);
    board.reads_from(200);
    board.offer_heads(&[1], vec![row(1, "a")], now);
    take(&mut board);
    deliver(&mut board, 1, "a");
    let asked = board.catch_ups(10);
    let later = LaneRow { due_in: Duration::from_secs(12), ..row(72, "a") };
    board.offer_catch_up(&asked, vec![row(2, "a"), later], false, now);
    assert_eq!(take(&mut board), [2]);
    assert_eq!(board.hidden_keys(), [], "what comes behind 72 is seen again");
    deliver(&mut board, 2, "a");
    board.offer(vec![row(201, "a")], false, now);
    assert_eq!(take(&mut board), [0; 0], "behind 72");
    assert_eq!(due(&mut board, now + Duration::from_secs(12)), [72]);
    board.offer_heads(&[72], vec![row(72, "a")], now);
    take(&mut board);
    deliver(&mut board, 72, "a");
    assert!(board.catch_ups(10)[0].from <= 201);
}

#[test]
fn where_ids_are_given_out_again_keys_that_wait_look_for_them() {
    let (mut board, now) = (board(FailingKey::Block), Instant::now());
    board.reads_from(90);
    board.offer(vec![row(95, "a")], false, now);
    take(&mut board);
    fail(&mut board, 95, "a", now);
    board.reads_from(100);
    board.goes_back_to(80);
    board.offer_heads(&[95], vec![row(95, "a")], now);
    take(&mut board);
    deliver(&mut board, 95, "a");
    assert_eq!(board.catch_ups(10), [CatchUp { key: key("a"), from: 81 }]);
}
