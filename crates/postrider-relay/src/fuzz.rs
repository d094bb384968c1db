//! Input for the tests named `fuzz_…`: texts, JSON, headers and events that are hard to parse or to
//! escape.

use chrono::DateTime;
use postrider_store::Event;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};

/// Nesting deeper than a parser with a recursion limit accepts.
const DEEP: usize = 200;

/// Pieces of text with a special meaning in a URL, a header, JSON, a chat, a template or a
/// terminal.
const PIECES: [&str; 48] = [
    "..",
    ".",
    "/",
    "\\",
    "%2e",
    "%2F",
    "%5c",
    "%25",
    "%",
    "%zz",
    ";",
    ";a=b",
    "?",
    "#",
    "@",
    ":",
    ":80",
    "http://evil.example/",
    "//evil.example",
    "[::1]",
    " ",
    "\t",
    "\r\n",
    "\0",
    "\u{1b}[2J",
    "\u{7f}",
    "ü",
    "。",
    "🦀",
    "\u{202e}",
    "\u{200b}",
    "\"",
    "'",
    "`",
    "``",
    "```",
    "<!channel>",
    "&",
    "{",
    "}",
    "{{",
    "}}",
    "{% raw %}",
    "\\u0000",
    "\\ud800",
    "UTF-8''",
    "utf-8''%",
    "1e999",
];

/// Generates a text of a few pieces and characters.
pub(crate) fn text() -> BoxedStrategy<String> {
    let part = prop_oneof![
        4 => select(PIECES.to_vec()).prop_map(str::to_owned),
        3 => "[a-z0-9_-]{1,4}",
        1 => any::<char>().prop_map(String::from),
    ];
    vec(part, 0..6).prop_map(|parts| parts.concat()).boxed()
}

/// Generates JSON that is not nested too deeply to be parsed.
pub(crate) fn json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-8_000_000..8_000_000_i32).prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        text().prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(3, 12, 4, |inner| {
        let members = vec((name(), inner.clone()), 0..4);
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    inner.boxed()
}

/// Generates the name of a member or header: often one of a few, so that lookups find it.
pub(crate) fn name() -> BoxedStrategy<String> {
    prop_oneof![3 => "[abc]", 1 => "[A-Za-z][a-z-]{0,6}", 1 => text()].boxed()
}

/// Damages a text in a few places: flips bits, removes or repeats parts, inserts pieces.
pub(crate) fn damaged(sound: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (sound, vec(edit(), 1..4)).prop_map(|(mut bytes, edits)| {
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        bytes
    })
}

/// One change to a text.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Flip(Index, u8),
    Lose(Index, usize),
    Repeat(Index, usize),
    Insert(Index, Vec<u8>),
}

pub(crate) fn edit() -> BoxedStrategy<Edit> {
    prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (any::<Index>(), 1..9_usize).prop_map(|(at, bytes)| Edit::Lose(at, bytes)),
        (any::<Index>(), 1..9_usize).prop_map(|(at, bytes)| Edit::Repeat(at, bytes)),
        (any::<Index>(), text()).prop_map(|(at, text)| Edit::Insert(at, text.into_bytes())),
        (any::<Index>(), vec(any::<u8>(), 1..4)).prop_map(|(at, new)| Edit::Insert(at, new)),
    ]
    .boxed()
}

impl Edit {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        let (at, length) = match self {
            Self::Flip(at, _) | Self::Insert(at, _) => (at.index(bytes.len() + 1), 1),
            Self::Lose(at, length) | Self::Repeat(at, length) => {
                (at.index(bytes.len() + 1), *length)
            }
        };
        let end = (at + length).min(bytes.len());
        match self {
            Self::Flip(_, bit) => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << bit),
            Self::Lose(..) => drop(bytes.drain(at..end)),
            Self::Repeat(..) => {
                let part = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, part));
            }
            Self::Insert(_, new) => drop(bytes.splice(at..at, new.iter().copied())),
        }
    }
}

/// Generates a payload: mostly JSON, sometimes other text, damaged JSON, or JSON that is nested too
/// deeply for a parser.
pub(crate) fn payload() -> BoxedStrategy<String> {
    let object =
        || vec((name(), json()), 0..4).prop_map(|m| Value::Object(m.into_iter().collect()));
    let written = || object().prop_map(|json| json.to_string());
    prop_oneof![
        6 => written(),
        1 => json().prop_map(|json| json.to_string()),
        1 => text(),
        1 => damaged(written().prop_map(String::into_bytes)).prop_map(lossy),
        1 => Just(format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP))),
    ]
    .boxed()
}

/// Generates the column `headers`: mostly an object, sometimes `NULL`, or a value that only a
/// lenient database accepts.
pub(crate) fn headers() -> BoxedStrategy<Option<String>> {
    let value = prop_oneof![4 => text().prop_map(Value::from), 1 => json()];
    let object = vec((name(), value), 0..5).prop_map(|members| {
        Some(Value::Object(members.into_iter().collect::<Map<_, _>>()).to_string())
    });
    let odd = [
        "{\"a\":1e999}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"x\",\"a\":\"y\"}",
        "{\"A\":\"x\",\"a\":\"y\"}",
        "{\"a\":\"\\u0000\"}",
        "{",
        "[]",
        "",
    ];
    let odd = select(odd.to_vec()).prop_map(|text| Some(text.to_owned()));
    prop_oneof![8 => object, 1 => Just(None), 1 => odd].boxed()
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Generates an event with arbitrary content.
pub(crate) fn event() -> BoxedStrategy<Event> {
    let identity = (any::<i64>(), any::<u128>(), proptest::option::of(text()));
    let texts = (text(), text(), text(), proptest::option::of(text()));
    let at_us = 0..4_000_000_000_000_000_i64;
    (identity, texts, payload(), headers(), at_us)
        .prop_map(|((id, uuid, request_id), texts, payload, headers, at_us)| {
            let (aggregate_type, aggregate_id, event_type, content_hash) = texts;
            Event {
                id,
                event_id: uuid::Uuid::from_u128(uuid).to_string(),
                request_id,
                aggregate_type,
                aggregate_id,
                event_type,
                payload,
                headers,
                content_hash,
                created_at: DateTime::from_timestamp_micros(at_us).unwrap_or_default(),
                ..sample()
            }
        })
        .boxed()
}

/// Returns an ordinary event.
pub(crate) fn sample() -> Event {
    Event {
        id: 7,
        event_id: "0198c0de-0000-7000-8000-000000000007".to_owned(),
        aggregate_type: "order".to_owned(),
        aggregate_id: "o-7".to_owned(),
        event_type: "OrderPlaced".to_owned(),
        payload: "{}".to_owned(),
        version: 1,
        ..Event::default()
    }
}

/// Decodes percent-encoding.
pub(crate) fn percent_decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}
