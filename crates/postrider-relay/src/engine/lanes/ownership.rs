//! Decides which lanes this relay should own.

use postrider_store::{LANES, Lane, LaneSet};

/// Returns the number of lanes for a relay with this `rank` among `relays`, ordered by id.
pub(super) fn fair_share(rank: usize, relays: usize) -> usize {
    let (lanes, relays) = (usize::from(LANES), relays.max(1));
    lanes / relays + usize::from(rank < lanes % relays)
}

/// Returns the lanes that an owner of too many releases: the last ones of the list. Lanes that were
/// taken last come last, so the owner keeps those it had before.
pub(super) fn surplus(owned: &[Lane], share: usize) -> LaneSet {
    owned.iter().skip(share).map(|lane| lane.lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for relays in 1..=70 {
            let shares: Vec<usize> = (0..relays).map(|rank| fair_share(rank, relays)).collect();
            assert_eq!(shares.iter().sum::<usize>(), 64, "{relays} relays");
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{relays} relays: {shares:?}");
        }
    }

    #[test]
    fn only_what_is_above_the_share_is_given_away() {
        let owned: Vec<Lane> = [4, 9, 1]
            .into_iter()
            .map(|lane| Lane { lane, version: 1, crash_count: 0, flight_to: None })
            .collect();
        assert_eq!(surplus(&owned, 2).iter().collect::<Vec<_>>(), [1]);
        assert!(surplus(&owned, 3).is_empty());
    }
}
