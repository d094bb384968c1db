//! What a consumer does with its letters, in its own transactions.

use postrider::internal::fit_error;

use super::inboxes::letter;
use super::session::Connection;
use super::sql;
use crate::contract::{InboxLetter, Result};

/// Returns whether the inbox has that identity, as this transaction sees it.
pub(crate) async fn is_known<C: Connection>(
    connection: &mut C,
    consumer: &str,
    event_id: &str,
) -> sqlx::Result<bool> {
    let known = sql::INBOX_KNOWN.query().bind("consumer", consumer).bind("event_id", event_id);
    let found = connection.fetch(known).await?;
    let count = found.first().map(|row| row.0.integer("found")).transpose()?;
    Ok(count.flatten().is_some_and(|count| count > 0))
}

/// Returns the oldest letter that an operator wants handled again and no consumer holds; locks it.
pub(crate) async fn asked_letter<C: Connection>(
    connection: &mut C,
    consumer: &str,
) -> Result<Option<InboxLetter>> {
    let asked = sql::INBOX_LETTER_ASKED.query().bind("consumer", consumer);
    connection.fetch(asked).await?.first().map(letter).transpose()
}

/// Notes that the letter's message was handled after all, in this transaction.
pub(crate) async fn letter_handled<C: Connection>(
    connection: &mut C,
    letter: &InboxLetter,
) -> Result<()> {
    let applied = sql::INBOX_APPLIED.query().bind("consumer", &*letter.consumer);
    connection.execute(applied.bind("event_id", &*letter.event_id)).await?;
    connection.execute(sql::INBOX_LETTER_DONE.query().bind("id", letter.id)).await?;
    Ok(())
}

/// Notes that the letter's message failed again.
pub(crate) async fn letter_failed<C: Connection>(
    connection: &mut C,
    id: i64,
    error: &str,
) -> Result<()> {
    let failed = sql::INBOX_LETTER_FAILED.query().bind("id", id).bind("error", &*fit_error(error));
    connection.execute(failed).await?;
    Ok(())
}
