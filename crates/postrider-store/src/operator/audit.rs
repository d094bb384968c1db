//! The audit trail.

use std::fmt::Display;

use postrider::{internal::fit, limits};

use super::session::Connection;
use super::sql;

/// Writes who did what to which entry, in the transaction that does it.
pub(crate) async fn audit<C: Connection>(
    connection: &mut C,
    operator: &str,
    action: &str,
    outbox: &str,
    target: impl Display + Send,
    detail: &str,
) -> sqlx::Result<()> {
    let target = fit(&target.to_string(), limits::AUDIT_TARGET_CHARS_MAX).into_owned();
    let line = sql::AUDIT
        .query()
        .bind("operator", operator)
        .bind("action", action)
        .bind("outbox", outbox)
        .bind("target", target)
        .bind("detail", detail);
    connection.execute(line).await.map(drop)
}
