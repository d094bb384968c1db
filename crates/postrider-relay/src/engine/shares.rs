//! Detects fixed shares that no live relay serves.

use std::collections::HashMap;
use std::time::Duration;

use postrider_store::Share;
use tokio::time::Instant;

/// A share without a live relay for this long raises an alert; a restart takes less.
const UNSERVED_MAX: Duration = Duration::from_secs(60);

/// Since when each share has been without a relay.
#[derive(Debug, Default)]
pub(crate) struct ShareWatch(HashMap<(String, Share), Instant>);

impl ShareWatch {
    /// Checks the shares of an outbox that is divided into `of`. Returns those that no relay has
    /// served for [`UNSERVED_MAX`].
    pub(crate) fn look(
        &mut self,
        outbox: &str,
        of: u32,
        served: &[Share],
        now: Instant,
    ) -> Vec<Share> {
        let mut unserved = Vec::new();
        for share in (0..of).map(|index| Share { of, index }) {
            let key = (outbox.to_owned(), share);
            if served.contains(&share) {
                self.0.remove(&key);
                continue;
            }
            let since = *self.0.entry(key).or_insert(now);
            if now.duration_since(since) >= UNSERVED_MAX {
                unserved.push(share);
            }
        }
        unserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_missed_after_a_minute_and_no_more_when_it_is_served() {
        let (mut watch, start) = (ShareWatch::default(), Instant::now());
        let share = |index| Share { of: 3, index };
        let served = [share(0), share(2)];
        assert_eq!(watch.look("a", 3, &served, start), []);
        assert_eq!(watch.look("a", 3, &served, start + UNSERVED_MAX / 2), []);
        assert_eq!(watch.look("a", 3, &served, start + UNSERVED_MAX), [share(1)]);
        let all = [share(0), share(1), share(2)];
        assert_eq!(watch.look("a", 3, &all, start + UNSERVED_MAX), []);
        assert_eq!(watch.look("a", 3, &served, start + UNSERVED_MAX), [], "counted anew");
        // A relay with another division serves none of these shares.
        let other = [Share { of: 2, index: 1 }];
        assert_eq!(watch.look("b", 3, &other, start), []);
        assert_eq!(watch.look("b", 3, &other, start + UNSERVED_MAX).len(), 3);
    }
}
