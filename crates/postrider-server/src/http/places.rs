//! Limits on open connections: a total, a maximum per address, and a reserve for this machine.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::access::network;

/// Maximum number of simultaneous connections.
pub(super) const CONNECTIONS_MAX: usize = 1_024;
/// The last of these are reserved for clients on this machine, so that health probes get through
/// whatever other clients do.
const KEPT_FOR_LOOPBACK: usize = 32;

/// Counts connections by address.
#[derive(Debug)]
pub(super) struct Places {
    per_address_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A permit for one connection, released on drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The address has as many connections as it may have.
    Address,
    /// All connections are in use.
    Server,
}

impl Places {
    pub(super) fn new(per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { per_address_max, taken: Mutex::default() })
    }

    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Result<Place, Full> {
        let address = network(peer);
        let max = match peer.to_canonical().is_loopback() {
            true => CONNECTIONS_MAX,
            false => CONNECTIONS_MAX - KEPT_FOR_LOOPBACK,
        };
        let mut taken = self.lock();
        if taken.by_address.get(&address).is_some_and(|count| *count >= self.per_address_max) {
            return Err(Full::Address);
        }
        if taken.all >= max {
            return Err(Full::Server);
        }
        taken.all += 1;
        *taken.by_address.entry(address).or_default() += 1;
        Ok(Place { places: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        // Addresses without connections are removed, so that the map never exceeds the number of
        // permits.
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number / 256) as u8, (number % 256) as u8])
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let places = Places::new(3);
        let held: Vec<_> = (0..3).map(|_| places.take(address(1)).unwrap()).collect();
        assert_eq!(places.take(address(1)).unwrap_err(), Full::Address);
        let other = places.take(address(2)).unwrap();
        drop(held);
        assert!(places.take(address(1)).is_ok(), "a place is free again");
        drop(other);
        assert!(places.lock().by_address.is_empty(), "who left is forgotten");
    }

    #[test]
    fn probes_of_this_machine_get_through_when_the_world_has_taken_all_places() {
        let places = Places::new(4);
        let world: Vec<_> = (0..).map_while(|n| places.take(address(n / 4)).ok()).collect();
        assert_eq!(world.len(), CONNECTIONS_MAX - KEPT_FOR_LOOPBACK);
        assert_eq!(places.take(address(999)).unwrap_err(), Full::Server);
        for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(places.take(local.parse().unwrap()).is_ok(), "{local}");
        }
    }
}
