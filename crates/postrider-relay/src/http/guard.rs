//! Guards against requests into the relay's own network, for URLs that depend on events.
//!
//! The guard looks up names itself, and the connection goes to exactly the address that it
//! approved: a name that resolves to another address the next time gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// A host that must not be called.
#[derive(Debug, thiserror::Error)]
#[error("{host} has no public address, and `deny_private_addresses` is set")]
pub(crate) struct Denied {
    host: String,
}

/// Resolves names to public addresses only.
pub(crate) struct PublicAddresses;

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|at| is_public(at.ip())).collect();
            if public.is_empty() {
                return Err(Denied { host: name.as_str().to_owned() }.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Checks an address in the URL itself, which is never looked up.
pub(crate) fn check(url: &Url) -> Result<(), Denied> {
    let public = match url.host() {
        Some(Host::Ipv4(address)) => is_public(address.into()),
        Some(Host::Ipv6(address)) => is_public(address.into()),
        Some(Host::Domain(_)) | None => true,
    };
    match public {
        true => Ok(()),
        false => Err(Denied { host: url.host_str().unwrap_or_default().to_owned() }),
    }
}

/// Returns whether an address is on the public Internet: not this machine, not a private network,
/// and not in a reserved block.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let apart = match (a, b, c) {
        (0, _, _) => true,          // this network
        (100, 64..=127, _) => true, // carrier-grade NAT
        (192, 0, 0) => true,        // protocol assignments
        (192, 88, 99) => true,      // 6to4 relays
        (198, 18..=19, _) => true,  // benchmarking
        (224..=255, _, _) => true,  // multicast, reserved, broadcast
        _ => false,
    };
    let local = address.is_loopback() || address.is_private() || address.is_link_local();
    !apart && !local && !address.is_documentation()
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Contains an IPv4 address: mapped, translated (NAT64), 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0x2001, 0, ..] => false,           // Teredo
        [0x2001, 0xdb8, ..] => false,       // documentation
        [0x2001, 0x2..=0x1ff, ..] => false, // protocol assignments
        [0x3fff, ..] => false,              // documentation
        // The range assigned to the Internet; everything else is local, multicast or not in use.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for address in [
            "127.0.0.1",
            "127.8.9.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "192.0.2.1",
            "203.0.113.9",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "fec0::1",
            "64:ff9b:1::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.167.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn an_address_in_the_url_is_seen_in_every_spelling() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://017700000001/",
            "http://[::1]:80/",
            "http://[::ffff:7f00:1]/",
            "http://127.1/",
            "http://0/",
        ] {
            assert!(check(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
        assert!(check(&Url::parse("http://example.com/").unwrap()).is_ok());
    }
}
