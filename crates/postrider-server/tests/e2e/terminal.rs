//! What commands print and what the daemon logs, where events and destinations are hostile.

use postrider::NewEvent;
use postrider_testkit::Answer;

use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        what_an_event_or_an_answer_holds_steers_no_terminal_and_forges_no_line,
    });
}

/// Clears the screen, sets the title, and begins a line that looks like one of ours.
const HOSTILE: &str = "\x1b[2J\x1b]0;owned\x07\u{9b}31m\r\nstatus  FORGED";

/// Fails if a terminal would do anything but print this.
fn assert_harmless(what: &str, text: &str) {
    let steering = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!text.contains(steering), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("status  FORGED")), "{what}:\n{text}");
}

async fn what_an_event_or_an_answer_holds_steers_no_terminal_and_forges_no_line(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let event = NewEvent::new("order", HOSTILE, format!("Placed{HOSTILE}"), HOSTILE);
    let event = scene.append_one(event.header("x-note", "\u{9b}2J")).await;
    let id = event.id.to_string();
    let run = async |args: &[&str]| scene.site.run(args).await.exits(0).stdout;
    assert_harmless("events show", &run(&["events", "show", &id]).await);
    assert_harmless("events show --json", &run(&["events", "show", &id, "--json"]).await);
    assert_harmless("events list", &run(&["events", "list"]).await);
    assert_harmless("stats", &run(&["stats"]).await);

    scene.target.answer(Answer::status(422).body(HOSTILE));
    let daemon = scene.site.start().await;
    scene.has_dead_letters(1).await;
    daemon.logs("FORGED").await;
    let log = daemon.stop().await;
    assert_harmless("the log", &log);
    assert_harmless("dlq show", &run(&["dlq", "show", "1"]).await);
    assert_harmless("dlq show --json", &run(&["dlq", "show", "1", "--json"]).await);
    assert_harmless("dlq list", &run(&["dlq", "list"]).await);
}
