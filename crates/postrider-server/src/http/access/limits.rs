//! Rate limits per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock, MonotonicClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

/// Number of clients remembered; beyond it, those without recent requests are forgotten.
const CLIENTS_MAX: usize = 10_000;

type Keyed<K> = RateLimiter<K, HashMapStateStore<K>, MonotonicClock>;

/// A client for the purpose of counting: all holders of a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    Name(std::sync::Arc<str>),
    Address(IpAddr),
}

pub(crate) struct Limits {
    requests: Keyed<Client>,
    failures: Keyed<IpAddr>,
    /// Addresses with too many failures, each with the time until which it is refused.
    refused: Mutex<HashMap<IpAddr, Instant>>,
    clock: MonotonicClock,
}

impl Limits {
    pub(crate) fn new(requests_per_s: u32, failures_per_min: u32) -> Self {
        let some = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let burst = some(requests_per_s.saturating_mul(2));
        let requests = Quota::per_second(some(requests_per_s)).allow_burst(burst);
        let failures = Quota::per_minute(some(failures_per_min));
        Self {
            requests: RateLimiter::new(requests, HashMapStateStore::default(), MonotonicClock),
            failures: RateLimiter::new(failures, HashMapStateStore::default(), MonotonicClock),
            refused: Mutex::default(),
            clock: MonotonicClock,
        }
    }

    /// Counts a request. Fails with the time to wait if it is over the limit.
    pub(crate) fn request(&self, client: Client) -> Result<(), Duration> {
        bound(&self.requests);
        self.requests.check_key(&client).map_err(|not| not.wait_time_from(self.clock.now()))
    }

    /// Counts a wrong token. Fails with the time to wait if it is over the limit.
    pub(crate) fn failure(&self, address: IpAddr) -> Result<(), Duration> {
        bound(&self.failures);
        let (address, now) = (network(address), Instant::now());
        let counted = self.failures.check_key(&address);
        let wait = counted.map_err(|not| not.wait_time_from(self.clock.now()));
        if let Err(wait) = wait {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.retain(|_, until| *until > now);
            refused.insert(address, now + wait);
        }
        wait
    }

    /// Returns how long an address is still refused for its failures.
    pub(crate) fn refused_for(&self, address: IpAddr) -> Option<Duration> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = refused.get(&network(address))?.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }
}

fn bound<K: Clone + std::hash::Hash + Eq>(limiter: &Keyed<K>) {
    if limiter.len() > CLIENTS_MAX {
        limiter.retain_recent();
    }
}

/// Returns the /64 network of an IPv6 address: a client that has one address usually has all 2⁶⁴ of
/// its network. An IPv4 address stays as it is.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(bits.into())
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl Client {
    pub(crate) fn address(address: IpAddr) -> Self {
        Self::Address(network(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_limit() {
        let limits = Limits::new(2, 3);
        let client = |name: &str| Client::Name(name.into());
        let allowed = (0..100).take_while(|_| limits.request(client("a")).is_ok()).count();
        assert!((4..8).contains(&allowed), "a burst of twice the rate: {allowed}");
        assert!(limits.request(client("a")).unwrap_err() > Duration::ZERO);
        assert!(limits.request(client("b")).is_ok());
        let here: IpAddr = "10.0.0.1".parse().unwrap();
        assert!(limits.refused_for(here).is_none());
        assert_eq!((0..9).filter(|_| limits.failure(here).is_ok()).count(), 3);
        assert!(limits.refused_for(here).is_some());
        assert!(limits.failure("10.0.0.2".parse().unwrap()).is_ok());
    }

    #[test]
    fn neighbours_in_one_ipv6_network_are_one_client() {
        let address = |text: &str| Client::address(text.parse().unwrap());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
    }
}
