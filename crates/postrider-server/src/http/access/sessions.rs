//! Sessions of the dashboard: the browser holds a cookie instead of a token.
//!
//! Sessions live in this process. A restart signs everybody out, and loses nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::tokens::{Digest, digest, secret};

/// Maximum number of sessions per token: the holder of one token must not be able to end the
/// sessions of all others.
const PER_TOKEN_MAX: usize = 20;

/// A signed-in browser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    /// The token that it signed in with; the session ends with the token.
    pub(crate) token: Digest,
    started: Instant,
    used: Instant,
}

/// All sessions, by the hash of their cookie.
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

    /// Returns the time without a request and the total time after which a session ends.
    pub(crate) fn limits(&self) -> (Duration, Duration) {
        (self.idle, self.max)
    }

    /// Opens a session and returns the content of its cookie. Beyond the limit per token, or the
    /// total limit, the least recently used session ends.
    pub(crate) fn open(&self, token: Digest, now: Instant) -> String {
        let id = secret();
        let mut open = self.lock();
        open.retain(|_, session| self.lives(session, now));
        drop_oldest(&mut open, PER_TOKEN_MAX, |session| session.token == token);
        drop_oldest(&mut open, self.count_max, |_| true);
        open.insert(digest(&id), Session { token, started: now, used: now });
        id
    }

    /// Finds the session of a cookie. This counts as use of the session.
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

    /// Returns whether a session is open, by the hash of its cookie. This does not count as use of
    /// the session.
    pub(crate) fn is_open(&self, id: &Digest, now: Instant) -> bool {
        self.lock().get(id).is_some_and(|session| self.lives(session, now))
    }

    /// Ends a session.
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

/// Removes the least recently used of the sessions that `meant` selects, to make room for one more.
fn drop_oldest(
    open: &mut HashMap<Digest, Session>,
    count_max: usize,
    meant: impl Fn(&Session) -> bool,
) {
    let mut ids: Vec<_> =
        open.iter().filter(|(_, s)| meant(s)).map(|(id, session)| (session.used, *id)).collect();
    ids.sort_unstable();
    for (_, id) in ids.iter().take((ids.len() + 1).saturating_sub(count_max)) {
        open.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_ends_only_its_own_sessions_however_often_it_signs_in() {
        let (sessions, start) = (Sessions::new(MINUTE, MINUTE, 100), Instant::now());
        let others = sessions.open([1; 32], start);
        let mine: Vec<_> = (0..200).map(|_| sessions.open([2; 32], start + MINUTE / 2)).collect();
        assert!(sessions.find(&others, start + MINUTE / 2).is_some());
        let left = mine.iter().filter(|id| sessions.find(id, start + MINUTE / 2).is_some());
        assert_eq!(left.count(), PER_TOKEN_MAX);
    }

    #[test]
    fn looking_whether_a_session_is_open_does_not_keep_it_open() {
        let (sessions, start) = (Sessions::new(MINUTE, 9 * MINUTE, 9), Instant::now());
        let id = digest(&sessions.open([1; 32], start));
        assert!(sessions.is_open(&id, start + MINUTE / 2));
        assert!(!sessions.is_open(&id, start + MINUTE));
    }

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
