//! Alerts must be true: an operator acts on them.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_relay::alerts::{Channel, Message, NotSent, Subscription};

use crate::world::World;

/// A channel that reports alerts about something that did not happen.
pub(crate) struct AlertCheck(Arc<World>);

impl AlertCheck {
    pub(crate) fn subscribed(world: &Arc<World>) -> Subscription {
        Subscription::new(Self(Arc::clone(world)))
    }
}

#[async_trait]
impl Channel for AlertCheck {
    fn name(&self) -> &str {
        "check"
    }

    fn target(&self) -> &str {
        "checker"
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        if message.kind.starts_with("history-changed") && !self.0.scenario.rewinds {
            let seen = format!("{}: {}", message.kind, message.title);
            self.0.state().checker.violated("an alert says what happened", seen);
        }
        Ok(String::new())
    }
}
