//! Appending in the application's transaction.

use std::time::Duration;

use super::steps::order;
use crate::TestDb;
use postrider::content_hash;

/// What was committed comes out as it went in.
pub async fn a_committed_event_is_claimable_with_all_of_its_fields(db: TestDb) {
    let event = order(1)
        .request_id("request-1")
        .header("x-tenant", "grün")
        .trace_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=b"))
        .max_retries(7)
        .expires_after(Duration::from_secs(3600));
    let id = db.append(std::slice::from_ref(&event)).await[0];
    let relay = db.relay("relay-a").await;

    let claimed = db.claim(&relay, 10).await;

    assert_eq!(claimed.len(), 1);
    let found = &claimed[0];
    assert_eq!(found.id, id);
    assert_eq!(found.request_id.as_deref(), Some("request-1"));
    assert_eq!(found.aggregate_type, "order");
    assert_eq!(found.aggregate_id, "order-1");
    assert_eq!(found.event_type, "OrderPlaced");
    assert_eq!(found.payload, r#"{"order":1}"#);
    let headers = found.headers().unwrap();
    assert_eq!(headers["x-tenant"], "grün");
    assert_eq!(headers["tracestate"], "a=b");
    assert!(headers["traceparent"].starts_with("00-0af7651916cd43dd"));
    assert_eq!(found.max_retries, Some(7));
    assert_eq!((found.retry_count, found.redrive_count, found.crash_count), (0, 0, 0));
    let expected = content_hash(Some("request-1"), "OrderPlaced", r#"{"order":1}"#);
    assert_eq!(found.content_hash.as_deref(), Some(expected.as_str()));
    assert_eq!(found.hash_matches(), Some(true));
    let lifetime = found.expires_at.unwrap() - found.created_at;
    assert_eq!(lifetime.num_seconds(), 3600, "counted from the same reading of one clock");
    db.assert_balanced().await;
}
