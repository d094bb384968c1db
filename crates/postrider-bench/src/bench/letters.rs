//! Dead letters, as a relay would leave them.

use postrider::Outbox;
use postrider_command::Failure;
use postrider_store::{ClaimLimit, Cursor, DeadReason, Death, RelayIdentity};

use super::event::Maker;
use super::stage::{Stage, bar};

/// Number of dead letters per settlement.
const DEATHS: u32 = 1_000;

/// Fills an outbox and turns each event into a dead letter, with the errors in turn.
pub(super) async fn fill_dead_letters(
    stage: &Stage,
    outbox: &Outbox,
    maker: &Maker,
    letters: u64,
    errors: &[&str],
) -> Result<(), Failure> {
    stage.fill(outbox, maker, letters).await?;
    let identity = RelayIdentity {
        id: format!("bench-{}", uuid::Uuid::new_v4()),
        host: "bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serving: Vec::new(),
    };
    let lease = stage.store.register(&identity).await?;
    let (bar, mut cursor) = (bar("dying", letters), Cursor::new());
    let mut errors = errors.iter().cycle();
    loop {
        let limit = ClaimLimit::new(DEATHS, u64::MAX);
        let claimed = stage.store.claim(outbox, &lease, limit, &mut cursor).await?;
        if claimed.events.is_empty() {
            break;
        }
        let mut death = |event: &postrider_store::Event| Death {
            id: event.id,
            event_id: event.event_id.clone(),
            version: event.version,
            reason: DeadReason::Rejected,
            message: errors.next().copied().unwrap_or_default().to_owned(),
            detail: None,
            attempted: true,
        };
        let deaths: Vec<Death> = claimed.events.iter().map(&mut death).collect();
        stage.store.settle_dead(outbox, &lease, &deaths).await?;
        bar.inc(deaths.len() as u64);
    }
    bar.finish_and_clear();
    Ok(stage.store.retire(&lease).await?)
}
