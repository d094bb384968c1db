//! The files of the dashboard, embedded in the binary.

/// A file under `/page/`.
pub(super) struct Asset {
    pub(super) name: &'static str,
    pub(super) body: &'static str,
}

impl Asset {
    pub(super) fn kind(&self) -> &'static str {
        match self.name.ends_with(".css") {
            true => "text/css; charset=utf-8",
            false => "text/javascript; charset=utf-8",
        }
    }
}

/// The HTML document that loads everything else.
pub(super) const SHELL: &str = include_str!("assets/index.html");

macro_rules! assets {
    ($($name:literal),* $(,)?) => {
        &[$(Asset { name: $name, body: include_str!(concat!("assets/", $name)) }),*]
    };
}

/// All other files. A test compares them with the folder.
pub(super) const ASSETS: &[Asset] = assets![
    "api.js",
    "base.css",
    "bulk.js",
    "chart.js",
    "dialog.js",
    "dom.js",
    "filters.js",
    "format.js",
    "frame.js",
    "history-charts.js",
    "lanes.js",
    "letter-actions.js",
    "live.js",
    "main.js",
    "outbox-tabs.js",
    "page-alerts.js",
    "page-audit.js",
    "page-dead-letter.js",
    "page-dead-letters.js",
    "page-event.js",
    "page-events.js",
    "page-outboxes.js",
    "page-overview.js",
    "pages.css",
    "panels.js",
    "parts.css",
    "poll.js",
    "router.js",
    "session.js",
    "shortcuts.js",
    "sign-in.js",
    "signs.js",
    "states.js",
    "story.js",
    "table.js",
    "theme.js",
    "time.js",
];
