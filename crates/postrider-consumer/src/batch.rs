//! Processes one batch: in one transaction, or message by message if that fails.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::internal::DoublingWait;
use postrider::{DeadMessage, Incoming, ReceiveError, Transience, transience};
use postrider_store::StoreError;
use tokio::sync::watch;

use super::{ConsumerPool, HandleError, Handler, KafkaConsumer, KafkaMessage, stopped};

/// Waits between repeats of a transaction: the first, and the longest.
const REPEAT_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Number of deadlocks and lock waits of a handler with a single message, after which the message
/// is considered the cause.
const BUSY_MAX: u32 = 10;

/// The outcomes of the messages of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Handled {
    applied: usize,
    ignored: usize,
    dead: usize,
}

/// The part of a transaction that failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Outside of the handler: no message is the cause, whatever the error. The consumer waits
    /// until a missing table, a missing grant or a full disk is fixed.
    #[error("{0}")]
    Around(sqlx::Error),
    /// In the handler, or at the commit of its changes; or the inbox refuses the event id.
    #[error("{0}")]
    Handling(HandleError),
}

impl Failure {
    /// Returns whether the database was busy with the rows that the handler needs.
    fn is_busy(&self) -> bool {
        matches!(self, Self::Handling(HandleError::Database(error))
            if transience(error) == Transience::Busy)
    }

    /// Returns whether a message may be the cause. If not, the same transaction can be repeated.
    fn blames_a_message(&self) -> bool {
        match self {
            Self::Around(_) => false,
            Self::Handling(error) => blames_a_message(error),
        }
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Database(error) => Self::Around(error),
            error => Self::Handling(HandleError::Poison(error.to_string())),
        }
    }
}

fn blames_a_message(error: &HandleError) -> bool {
    match error {
        HandleError::Database(error) => transience(error) == Transience::Lasting,
        HandleError::Poison(_) => true,
    }
}

impl<P: ConsumerPool, H: Handler<P::Db>> KafkaConsumer<P, H> {
    /// Processes a batch. Returns once the database has decided about each message.
    pub(super) async fn handle_batch(&self, messages: &[KafkaMessage]) -> Handled {
        let mut wait = DoublingWait::new(REPEAT_WAIT.0, REPEAT_WAIT.1);
        loop {
            let error = match self.in_one_transaction(messages).await {
                Ok(handled) => return handled,
                Err(error) => error,
            };
            if error.blames_a_message() {
                break;
            }
            self.pause(&mut wait, &error).await;
        }
        let mut handled = Handled::default();
        for message in messages {
            let one = self.handle_alone(message).await;
            handled.applied += one.applied;
            handled.ignored += one.ignored;
            handled.dead += one.dead;
        }
        handled
    }

    /// Commits inbox and effects together, or neither.
    async fn in_one_transaction(&self, messages: &[KafkaMessage]) -> Result<Handled, Failure> {
        let events: Vec<Incoming> = messages.iter().map(|message| message.event.clone()).collect();
        let mut tx = self.pool.begin().await.map_err(Failure::Around)?;
        let answers = P::receive_all(&mut tx, &self.inbox, &events).await?;
        let fresh: Vec<KafkaMessage> = messages
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_new())
            .map(|(message, _)| message.clone())
            .collect();
        if !fresh.is_empty() {
            self.call_handler(&mut tx, &fresh).await.map_err(Failure::Handling)?;
        }
        // Deferred constraints are checked only now.
        tx.commit().await.map_err(|error| Failure::Handling(error.into()))?;
        let ignored = messages.len() - fresh.len();
        Ok(Handled { applied: fresh.len(), ignored, dead: 0 })
    }

    /// Calls the handler. A panic counts as a message that cannot be processed, and does not end
    /// the process.
    async fn call_handler(
        &self,
        tx: &mut sqlx::Transaction<'static, P::Db>,
        messages: &[KafkaMessage],
    ) -> Result<(), HandleError> {
        let handling = self.handler.handle(&mut **tx, messages);
        match AssertUnwindSafe(handling).catch_unwind().await {
            Ok(Ok(())) => self.check_transaction(tx, messages).await,
            Ok(Err(error)) => Err(error),
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
                let said = said.unwrap_or_else(|| "no message".to_owned());
                Err(HandleError::Poison(format!("the handler panicked: {said}")))
            }
        }
    }

    /// Checks that the transaction is still open. A handler that ignores an error may leave a
    /// transaction that the database has already rolled back, and whose COMMIT would appear to
    /// succeed: the messages would be lost.
    async fn check_transaction(
        &self,
        tx: &mut sqlx::Transaction<'static, P::Db>,
        messages: &[KafkaMessage],
    ) -> Result<(), HandleError> {
        let Some(message) = messages.first() else { return Ok(()) };
        match P::is_known(tx, self.inbox.consumer(), &message.event.event_id).await? {
            true => Ok(()),
            false => Err(HandleError::Poison(
                "the handler went on after its transaction was rolled back; it must answer with \
                 the error that it met"
                    .to_owned(),
            )),
        }
    }

    /// Repeats a message until it is processed or stored as a dead letter: it is never skipped.
    async fn handle_alone(&self, message: &KafkaMessage) -> Handled {
        let mut wait = DoublingWait::new(REPEAT_WAIT.0, REPEAT_WAIT.1);
        let mut busy = 0;
        loop {
            let error = match self.in_one_transaction(std::slice::from_ref(message)).await {
                Ok(handled) => return handled,
                Err(error) => error,
            };
            busy += u32::from(error.is_busy());
            let given_up = error.blames_a_message() || (error.is_busy() && busy >= BUSY_MAX);
            let failure = match given_up {
                false => error,
                true => match self.move_to_dlq(message, &error.to_string()).await {
                    Ok(handled) => return handled,
                    // The same cause may have failed both the processing and the dead letter.
                    Err(failure) => failure,
                },
            };
            self.pause(&mut wait, &failure).await;
        }
    }

    async fn move_to_dlq(&self, message: &KafkaMessage, error: &str) -> Result<Handled, Failure> {
        if !self.try_to_move(message, error).await? {
            return Ok(Handled { ignored: 1, ..Handled::default() });
        }
        tracing::error!(
            consumer = self.inbox.consumer(),
            event_id = message.event.event_id,
            source = message.source(),
            error,
            "a message cannot be handled; `postrider inbox list` shows it"
        );
        Ok(Handled { dead: 1, ..Handled::default() })
    }

    /// Stores a message as a dead letter. Returns `false` if it was received before.
    async fn try_to_move(&self, message: &KafkaMessage, error: &str) -> Result<bool, Failure> {
        let source = message.source();
        // An identity that no inbox accepts is replaced by the message's topic, partition and
        // offset.
        let by_place = Incoming::new(message.identity_by_place());
        let event = match postrider::internal::identities(std::slice::from_ref(&message.event)) {
            Ok(_) => &message.event,
            Err(_) => &by_place,
        };
        let letter = DeadMessage {
            event,
            source: &source,
            key: message.key.as_deref(),
            headers: &message.headers,
            payload: &message.payload,
            error,
        };
        let mut tx = self.pool.begin().await.map_err(Failure::Around)?;
        let answer = P::receive_dead(&mut tx, &self.inbox, &letter).await?;
        tx.commit().await.map_err(Failure::Around)?;
        Ok(answer.is_new())
    }

    /// Processes dead letters that an operator asked to retry, one after the other.
    pub(super) async fn handle_asked_letters(&self, stop: &watch::Receiver<bool>) {
        while !stopped(stop) {
            match self.handle_asked_letter().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "dead letters not looked at; it is tried again");
                    return;
                }
            }
        }
    }

    /// Commits effect, inbox and dead letter in one transaction. Returns whether there was a dead
    /// letter to retry.
    async fn handle_asked_letter(&self) -> Result<bool, StoreError> {
        let mut tx = self.pool.begin().await?;
        let Some(letter) = P::asked_letter(&mut tx, self.inbox.consumer()).await? else {
            return Ok(false);
        };
        let message = KafkaMessage::of_letter(&letter);
        match self.call_handler(&mut tx, std::slice::from_ref(&message)).await {
            Ok(()) => {
                P::letter_handled(&mut tx, &letter).await?;
                tx.commit().await?;
                tracing::info!(event_id = letter.event_id, "a dead letter was handled after all");
            }
            Err(error) if !blames_a_message(&error) => {
                tracing::warn!(%error, "a dead letter is tried again later");
                return Ok(false);
            }
            Err(error) => {
                tx.rollback().await?;
                let mut tx = self.pool.begin().await?;
                P::letter_failed(&mut tx, letter.id, &error.to_string()).await?;
                tx.commit().await?;
            }
        }
        Ok(true)
    }

    async fn pause(&self, wait: &mut DoublingWait, error: &Failure) {
        let wait = wait.take();
        tracing::warn!(
            consumer = self.inbox.consumer(),
            %error,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "rolled back; it is tried again"
        );
        tokio::time::sleep(wait).await;
    }
}
