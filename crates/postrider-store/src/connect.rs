//! Opens the store that a URL names.

use std::sync::Arc;

use crate::StoreError;
use crate::contract::{Database, Result};

/// How a program uses its connections.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Maximum number of connections.
    pub connections_max: u32,
    /// SQLite: whether to create a missing file.
    pub create: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { connections_max: 8, create: false }
    }
}

/// Opens the store that the URL names: `postgres://…`, `mysql://…` (also `mariadb://…`) or
/// `sqlite:path`. The URL also turns on TLS (`sslmode=verify-full`, `ssl-mode=VERIFY_IDENTITY`).
///
/// # Errors
/// If the URL does not name a store of this build, or the database cannot be reached.
pub async fn connect(url: &str, options: &ConnectOptions) -> Result<Arc<dyn Database>> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            Ok(Arc::new(crate::postgres::PostgresStore::connect(url, options).await?))
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(crate::mysql::MysqlStore::connect(url, options).await?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(crate::sqlite::SqliteStore::connect(url, options).await?)),
        _ => Err(unknown_scheme(scheme)),
    }
}

pub(crate) fn unknown_scheme(scheme: &str) -> StoreError {
    StoreError::Url(format!(
        "the store URL starts with `{scheme}:`; allowed are postgres://user@host/database, \
         mysql://user@host/database and sqlite:path/to/file.db"
    ))
}
