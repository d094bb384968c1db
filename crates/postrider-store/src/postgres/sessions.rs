//! Sessions for the statements that run continuously.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ACQUIRE_TIMEOUT, SESSION};

/// Number of sessions that are kept: one reads while two settle.
const KEPT_MAX: u32 = 3;
/// Idle time after which a session is pinged before use.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// Sessions of which the most recently used one is used next. A pool rotates through all of its
/// sessions: each of them then maps the pages of the whole table into its memory, one by one, and
/// plans every statement.
#[derive(Debug)]
pub(super) struct Sessions {
    connect: PgConnectOptions,
    pool: PgPool,
    idle: Mutex<Vec<(PgConnection, Instant)>>,
    permits: Arc<Semaphore>,
}

/// Returns how many of `connections_max` are kept outside of the pool.
pub(super) fn kept(connections_max: u32) -> u32 {
    (connections_max / 2).min(KEPT_MAX)
}

impl Sessions {
    pub(super) fn new(connect: PgConnectOptions, pool: PgPool, kept: u32) -> Self {
        let permits = Arc::new(Semaphore::new(kept as usize));
        Self { connect, pool, idle: Mutex::default(), permits }
    }

    /// Takes a kept session, or one of the pool while all kept ones are in use.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Session, sqlx::Error> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            let living = tokio::time::timeout(ACQUIRE_TIMEOUT, self.living()).await;
            if let Some(connection) = living.map_err(|_| sqlx::Error::PoolTimedOut)? {
                let sessions = Arc::clone(self);
                return Ok(Session::Kept { connection, sessions, _permit: permit });
            }
        }
        let connection = self.pool.acquire().await?;
        Ok(Session::Pooled(Pooled { connection, answered: false }))
    }

    /// Returns a working connection. `None` if the server cannot be reached now; the pool then
    /// waits for it.
    async fn living(&self) -> Option<PgConnection> {
        let idle = self.idle().pop();
        if let Some((mut connection, since)) = idle
            && (since.elapsed() < ASK_AFTER || connection.ping().await.is_ok())
        {
            return Some(connection);
        }
        let mut connection = self.connect.connect().await.ok()?;
        connection.execute(SESSION).await.ok()?;
        Some(connection)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(PgConnection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in use. One that is not given back is closed, because a reply or a transaction may
/// still be open on it.
pub(super) enum Session {
    Kept { connection: PgConnection, sessions: Arc<Sessions>, _permit: OwnedSemaphorePermit },
    Pooled(Pooled),
}

pub(super) struct Pooled {
    connection: PoolConnection<Postgres>,
    answered: bool,
}

impl Session {
    /// Gives the session back, after a reply that was read to its end.
    pub(super) fn give_back(self) {
        match self {
            Self::Kept { connection, sessions, .. } => {
                sessions.idle().push((connection, Instant::now()));
            }
            Self::Pooled(mut pooled) => pooled.answered = true,
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Kept { connection, .. } => connection,
            Self::Pooled(pooled) => &pooled.connection,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Kept { connection, .. } => connection,
            Self::Pooled(pooled) => &mut pooled.connection,
        }
    }
}
