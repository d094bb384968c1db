//! The trace context of an event: the headers `traceparent` and `tracestate` of W3C Trace Context.

use postrider_store::Event;
use serde_json::{Map, Value};

/// Names of the headers.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// The flag that says that this trace is recorded.
const SAMPLED: u8 = 1;

/// The trace that a span belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permit {
    pub(super) trace: u128,
    /// The producer's span; `None` if the trace begins here.
    pub(super) parent: Option<u64>,
    /// The state that tracing systems along the way added.
    pub(super) state: Option<String>,
}

/// Returns the trace of a delivery's span; `None` if it is not recorded. The producer decides by
/// its `sampled` flag. Of events without a trace, a share of `ratio`, always the same ones, begins
/// a trace with the event's identity as its id, so that all attempts are in it.
pub(super) fn place(event: &Event, headers: &Map<String, Value>, ratio: f64) -> Option<Permit> {
    match find(headers, TRACEPARENT).and_then(parse) {
        Some((trace, parent, flags)) => {
            let state = find(headers, TRACESTATE).map(str::to_owned);
            (flags & SAMPLED != 0).then_some(Permit { trace, parent: Some(parent), state })
        }
        None => {
            let id = uuid::Uuid::parse_str(&event.event_id).ok()?.as_u128();
            // 53 bits: as many as a float represents exactly.
            let point = (id & ((1 << 53) - 1)) as f64 / (1_u64 << 53) as f64;
            (point < ratio && id != 0).then_some(Permit { trace: id, parent: None, state: None })
        }
    }
}

/// Returns the event's headers, with this span as the parent of the receiver's spans.
pub(super) fn with_parent(mut headers: Map<String, Value>, trace: u128, span: u64) -> String {
    headers.retain(|name, _| !name.eq_ignore_ascii_case(TRACEPARENT));
    let value = format!("00-{trace:032x}-{span:016x}-{SAMPLED:02x}");
    headers.insert(TRACEPARENT.to_owned(), value.into());
    Value::Object(headers).to_string()
}

/// Returns the event's headers as an object; `None` if they are not one.
pub(super) fn headers(event: &Event) -> Option<Map<String, Value>> {
    match &event.headers {
        None => Some(Map::new()),
        Some(text) => serde_json::from_str(text).ok(),
    }
}

/// Removes a trace context that cannot be parsed, so that it is not passed on: the trace starts
/// anew, as W3C Trace Context requires. Returns whether there was one.
pub(super) fn drop_invalid(headers: &mut Map<String, Value>) -> bool {
    let named = |name: &str| [TRACEPARENT, TRACESTATE].iter().any(|n| name.eq_ignore_ascii_case(n));
    let valid = find(headers, TRACEPARENT).and_then(parse).is_some();
    let invalid = !valid && headers.keys().any(|name| named(name));
    if invalid {
        headers.retain(|name, _| !named(name));
    }
    invalid
}

fn find<'a>(headers: &'a Map<String, Value>, wanted: &str) -> Option<&'a str> {
    let named = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    named.and_then(|(_, value)| value.as_str())
}

/// Parses trace, span and flags. A newer version begins in the same way.
fn parse(text: &str) -> Option<(u128, u64, u8)> {
    let mut parts = text.trim().split('-');
    let mut hex = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        let digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        part.bytes().all(digit).then_some(part)
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
    let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
    Some((trace, span, u8::from_str_radix(flags, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn only_a_whole_traceparent_is_read() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
        assert_eq!(parse(good), Some((trace, 0xb7ad_6b71_6920_3331, 1)));
        let newer = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(parse(newer).is_some(), "what a newer version adds is passed over");
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_child_replaces_the_producers_header_whatever_its_case() {
        let headers = serde_json::json!({ "TraceParent": "old", "tracestate": "a=b" });
        let Value::Object(headers) = headers else { panic!("an object") };
        let text = with_parent(headers, 10, 11);
        let child = "00-0000000000000000000000000000000a-000000000000000b-01";
        let expected = serde_json::json!({ "traceparent": child, "tracestate": "a=b" });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    fn written((trace, span, flags): (u128, u64, u8)) -> String {
        format!("00-{trace:032x}-{span:016x}-{flags:02x}")
    }

    proptest! {
        /// A trace context is read back as it was written. Any text that is accepted has the form
        /// of one.
        #[test]
        fn fuzz_trace_contexts(
            parts in (1..u128::MAX, 1..u64::MAX, any::<u8>()),
            edits in proptest::collection::vec(fuzz::edit(), 0..3),
        ) {
            prop_assert_eq!(parse(&written(parts)), Some(parts));
            let mut bytes = written(parts).into_bytes();
            edits.iter().for_each(|edit| edit.apply(&mut bytes));
            let text = String::from_utf8_lossy(&bytes);
            if let Some(read) = parse(&text) {
                let text = text.trim();
                prop_assert_eq!(&text[2..55], &written(read)[2..]);
                prop_assert!(text.len() == 55 || !text.starts_with("00"));
            }
        }

        /// A traced message has the event's other headers unchanged, and one valid context.
        #[test]
        fn fuzz_trace_contexts_in_headers(event in fuzz::event(), ratio in 0.0..1.0_f64) {
            let Some(mut read) = headers(&event) else { return Ok(()) };
            let own = event.headers().unwrap();
            let is_context = |name: &str| {
                [TRACEPARENT, TRACESTATE].iter().any(|context| name.eq_ignore_ascii_case(context))
            };
            drop_invalid(&mut read);
            let place = place(&event, &read, ratio);
            let result = with_parent(read, 10, 11);
            let traced = Event { headers: Some(result), ..event.clone() }.headers().unwrap();
            let without = |headers: &std::collections::BTreeMap<String, String>| {
                let mut headers = headers.clone();
                headers.retain(|name, _| !is_context(name));
                headers
            };
            prop_assert_eq!(without(&traced), without(&own));
            let child = traced.get(TRACEPARENT).and_then(|text| parse(text));
            prop_assert_eq!(child, Some((10, 11, 1)));
            if let Some(place) = place {
                prop_assert!(place.trace != 0 && place.parent != Some(0));
            }
        }
    }
}
