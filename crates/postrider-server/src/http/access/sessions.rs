//! Sessions of the page: a cookie instead of a token in the hands of a browser.
//!
//! They live in this process. A restart signs everybody out, and nothing else is lost by it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::tokens::{Digest, digest, secret};

/// A signed-in browser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    /// The token that it signed in with: without that token, no session.
    pub(crate) token: Digest,
    started: Instant,
    used: Instant,
}

/// All sessions, by the hash of what the cookie holds.
pub(crate) struct Sessions {
    idle: Duration,
    max: Duration,
    count_max: usize,
    open: Mutex<HashMap<Digest, Session>>,
}

impl Sessions {
    pub(crate) fn new(idle: Duration, max: Duration, count_max: usize) -> Self {
        Self { idle, max, count_max, open: Mutex::default() }
    }

    /// Time without a request, and time in all, after which a session ends.
    pub(crate) fn limits(&self) -> (Duration, Duration) {
        (self.idle, self.max)
    }

    /// Opens a session and answers what the cookie holds. Beyond the limit, the one that was used
    /// longest ago ends.
    pub(crate) fn open(&self, token: Digest, now: Instant) -> String {
        let id = secret();
        let mut open = self.lock();
        open.retain(|_, session| self.lives(session, now));
        while open.len() >= self.count_max {
            let Some(oldest) = open.iter().min_by_key(|(_, s)| s.used).map(|(id, _)| *id) else {
                break;
            };
            open.remove(&oldest);
        }
        open.insert(digest(&id), Session { token, started: now, used: now });
        id
    }

    /// The session of a cookie. Looking at it is using it.
    pub(crate) fn find(&self, id: &str, now: Instant) -> Option<Session> {
        let (mut open, key) = (self.lock(), digest(id));
        let session = open.get_mut(&key)?;
        if !self.lives(session, now) {
            open.remove(&key);
            return None;
        }
        session.used = now;
        Some(*session)
    }

    /// Signs out.
    pub(crate) fn close(&self, id: &str) {
        self.lock().remove(&digest(id));
    }

    fn lives(&self, session: &Session, now: Instant) -> bool {
        now.saturating_duration_since(session.used) < self.idle
            && now.saturating_duration_since(session.started) < self.max
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_session_ends_when_it_is_idle_and_when_it_is_old() {
        let (sessions, start) = (Sessions::new(10 * MINUTE, 60 * MINUTE, 9), Instant::now());
        let idle = sessions.open([1; 32], start);
        assert!(sessions.find(&idle, start + 9 * MINUTE).is_some());
        assert!(sessions.find(&idle, start + 18 * MINUTE).is_some(), "it was used meanwhile");
        assert!(sessions.find(&idle, start + 28 * MINUTE).is_none());
        let busy = sessions.open([1; 32], start);
        let minutes = (1..120).take_while(|n| sessions.find(&busy, start + *n * MINUTE).is_some());
        assert_eq!(minutes.count(), 59, "however busy");
        assert!(sessions.find("", start).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_bounded_and_signing_out_ends_one() {
        let (sessions, start) = (Sessions::new(MINUTE, MINUTE, 2), Instant::now());
        let first = sessions.open([1; 32], start);
        let second = sessions.open([2; 32], start + MINUTE / 4);
        assert!(sessions.find(&first, start + MINUTE / 3).is_some());
        let third = sessions.open([3; 32], start + MINUTE / 2);
        assert!(sessions.find(&second, start + MINUTE / 2).is_none(), "used longest ago");
        assert_eq!(sessions.find(&third, start + MINUTE / 2).map(|s| s.token), Some([3; 32]));
        sessions.close(&first);
        assert!(sessions.find(&first, start + MINUTE / 2).is_none());
    }
}
