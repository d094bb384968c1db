//! Which slots of a Redis Cluster are on which node.

use redis::Value;

const SLOTS: u16 = 16_384;

/// A range of slots that are together on a node. Its bounds survive a failover, so that the health
/// of a part keeps its name; which node has it may change at any time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shard {
    pub(super) first: u16,
    pub(super) last: u16,
    /// `host:port` of the master.
    pub(super) node: String,
}

/// Reads the shards in an answer to `CLUSTER SLOTS`, in order. `asked` is the node that answered:
/// it names itself without a host while it does not know under which name it is reached.
pub(super) fn shards(answer: &Value, asked: &str) -> Vec<Shard> {
    let Value::Array(elements) = answer else { return Vec::new() };
    let mut shards: Vec<Shard> = elements.iter().filter_map(|one| shard(one, asked)).collect();
    shards.sort();
    shards
}

/// Reads an element, which begins with the first slot, the last slot and the master.
fn shard(element: &Value, asked: &str) -> Option<Shard> {
    let Value::Array(parts) = element else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
        return None;
    };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        // The node that answered is the master, or on the same host.
        Value::Nil => "",
        _ => return None,
    };
    let node = with_host(&format!("{host}:{port}"), asked);
    Some(Shard { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, node })
}

/// Returns the node that an answer names; without a host it is on the host of the node that
/// answered.
pub(super) fn with_host(node: &str, asked: &str) -> String {
    let (host, port) = node.rsplit_once(':').unwrap_or((node, "6379"));
    match host {
        "" | "?" => format!("{}:{port}", host_of(asked)),
        // A port follows, so the colons of an IPv6 address need brackets.
        _ if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

fn host_of(address: &str) -> &str {
    let port = address.rfind(':').filter(|at| address.rfind(']').is_none_or(|end| end < *at));
    port.map_or(address, |at| &address[..at])
}

/// Returns the slot of a key by the specification: CRC-16 (XMODEM) of the key, or of the text
/// between its first braces.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ CRC_OF_BYTE[usize::from(high ^ byte)]
    });
    crc % SLOTS
}

/// A slot is computed several times per event while a part of the cluster is down.
const CRC_OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

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
    fn shards_are_read_in_order_and_a_host_that_is_missing_is_the_one_that_was_asked() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, node| {
            Value::Array(vec![Value::Int(first), Value::Int(last), node, Value::Nil])
        };
        let answer = Value::Array(vec![
            range(10_923, 16_383, node(text("::1"), 3)),
            range(0, 5_460, node(text("a"), 1)),
            range(5_461, 10_922, node(Value::Nil, 2)),
            Value::Nil,
        ]);
        let found = shards(&answer, "[::2]:9");
        let found: Vec<(u16, &str)> = found.iter().map(|s| (s.first, s.node.as_str())).collect();
        assert_eq!(found, [(0, "a:1"), (5_461, "[::2]:2"), (10_923, "[::1]:3")]);
        for (named, asked, wanted) in
            [(":7", "h", "h:7"), (":7", "h:1", "h:7"), ("?:7", "10.0.0.1:1", "10.0.0.1:7")]
        {
            assert_eq!(with_host(named, asked), wanted);
        }
    }
}
