//! What commands print and what the daemon logs, where events and destinations are hostile.

use postrider::NewEvent;
use postrider_testkit::Answer;

use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        what_an_event_or_an_answer_holds_steers_no_terminal_and_forges_no_line,
    });
}

/// Clears the screen, sets the title, reverses what follows, and begins a line that looks like one
/// of ours, after a line end and after a separator that some viewers take for one.
const HOSTILE: &str =
    "\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}abc\u{2066}\u{2028}\r\nstatus  FORGED";

/// Whether a terminal would do nothing but print this, and nothing of it looks like a line of ours.
fn is_harmless(text: &str) -> bool {
    let marks = ['\u{202e}', '\u{2066}', '\u{2028}'];
    let steering = |c: char| (c.is_control() && c != '\n' && c != '\t') || marks.contains(&c);
    !text.contains(steering) && !text.lines().any(|line| line.starts_with("status  FORGED"))
}

async fn what_an_event_or_an_answer_holds_steers_no_terminal_and_forges_no_line(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let event = NewEvent::new("order", HOSTILE, format!("Placed{HOSTILE}"), HOSTILE);
    let event = scene.append_one(event.header("x-note", "\u{9b}2J")).await;
    let id = event.id.to_string();
    // All are looked at before one fails.
    let mut harmful = Vec::new();
    let mut look = |what: &str, text: String| {
        if !is_harmless(&text) {
            harmful.push(format!("{what}: {text:?}"));
        }
    };
    let commands: [&[&str]; 4] = [
        &["events", "show", &id],
        &["events", "show", &id, "--json"],
        &["events", "list"],
        &["stats"],
    ];
    for command in commands {
        look(&command.join(" "), scene.site.run(command).await.exits(0).stdout);
    }
    scene.target.answer(Answer::status(422).body(HOSTILE));
    let daemon = scene.site.start().await;
    scene.has_dead_letters(1).await;
    daemon.logs("FORGED").await;
    look("the log", daemon.stop().await);
    let commands: [&[&str]; 3] =
        [&["dlq", "show", "1"], &["dlq", "show", "1", "--json"], &["dlq", "list"]];
    for command in commands {
        look(&command.join(" "), scene.site.run(command).await.exits(0).stdout);
    }
    assert!(harmful.is_empty(), "{}", harmful.join("\n"));
}
