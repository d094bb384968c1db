//! Which part of a Redis Cluster a key is in.

use std::sync::{PoisonError, RwLock};

use redis::cluster_async::ClusterConnection;
use redis::{RedisResult, Value};

const SLOTS: u16 = 16_384;

/// The ranges of slots that are together on a node. Their bounds survive a fail-over, so that what is
/// known of a part is known under one name; which node has it may change at any time.
#[derive(Debug, Default)]
pub(super) struct Shards(RwLock<Vec<(u16, u16)>>);

impl Shards {
    /// Asks the cluster.
    pub(super) async fn read(&self, connection: &mut ClusterConnection) -> RedisResult<()> {
        let answer: Value = redis::cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
        let ranges = ranges(&answer);
        if !ranges.is_empty() {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = ranges;
        }
        Ok(())
    }

    /// The range that the key is in, if it is known.
    pub(super) fn range_of(&self, key: &str) -> Option<(u16, u16)> {
        let slot = slot(key);
        let ranges = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ranges.iter().find(|(first, last)| (*first..=*last).contains(&slot)).copied()
    }
}

/// Each element begins with the first and the last slot.
fn ranges(answer: &Value) -> Vec<(u16, u16)> {
    let Value::Array(elements) = answer else { return Vec::new() };
    let range = |element: &Value| match element {
        Value::Array(parts) => match parts[..] {
            [Value::Int(first), Value::Int(last), ..] => {
                Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?))
            }
            _ => None,
        },
        _ => None,
    };
    elements.iter().filter_map(range).collect()
}

/// By the specification: CRC-16 (XMODEM) of the key, or of what is between its first braces.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        for (key, wanted) in
            [("123456789", 0x31C3), ("foo", 12_182), ("{foo}.bar", 12_182), ("", 0), ("bar", 5_061)]
        {
            assert_eq!(slot(key), wanted, "{key}");
        }
        assert_ne!(slot("{}foo"), slot(""), "an empty tag is none");
    }

    #[test]
    fn a_range_is_found_by_its_slots() {
        let node = || Value::Array(vec![Value::SimpleString("host".to_owned()), Value::Int(1)]);
        let range = |first, last| Value::Array(vec![Value::Int(first), Value::Int(last), node()]);
        let answer = Value::Array(vec![range(0, 5_460), range(10_923, 16_383), Value::Nil]);
        let shards = Shards(RwLock::new(ranges(&answer)));
        assert_eq!(shards.range_of("foo"), Some((10_923, 16_383)));
        assert_eq!(shards.range_of("bar"), Some((0, 5_460)));
        assert_eq!(Shards::default().range_of("foo"), None);
    }
}
