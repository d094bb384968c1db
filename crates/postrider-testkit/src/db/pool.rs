//! The test's own connections, separate from those of the store under test.

use postrider_store::StoreKind;
use sqlx::AssertSqlSafe;

use super::TestTx;

/// A pool of one of the stores in this build.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    #[cfg(feature = "mysql")]
    Mysql(sqlx::MySqlPool),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

/// Evaluates the same expression for any kind of pool.
macro_rules! on_each {
    ($pool:expr, $name:ident => $body:expr) => {
        match $pool {
            #[cfg(feature = "postgres")]
            Pool::Postgres($name) => $body,
            #[cfg(feature = "mysql")]
            Pool::Mysql($name) => $body,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite($name) => $body,
        }
    };
}

impl Pool {
    pub(crate) async fn connect(kind: StoreKind, url: &str, connections_max: u32) -> Self {
        match kind {
            #[cfg(feature = "postgres")]
            StoreKind::Postgres => {
                let options = sqlx::postgres::PgPoolOptions::new();
                Self::Postgres(options.max_connections(connections_max).connect(url).await.unwrap())
            }
            #[cfg(feature = "mysql")]
            StoreKind::Mysql => {
                let options = sqlx::mysql::MySqlPoolOptions::new();
                Self::Mysql(options.max_connections(connections_max).connect(url).await.unwrap())
            }
            #[cfg(feature = "sqlite")]
            StoreKind::Sqlite => {
                let options = sqlx::sqlite::SqlitePoolOptions::new();
                Self::Sqlite(options.max_connections(connections_max).connect(url).await.unwrap())
            }
            #[allow(unreachable_patterns, reason = "all stores may be in this build")]
            other => panic!("this build of the testkit has no {}", other.as_str()),
        }
    }

    pub(crate) async fn begin(&self) -> TestTx {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => TestTx::Postgres(pool.begin().await.unwrap()),
            #[cfg(feature = "mysql")]
            Self::Mysql(pool) => TestTx::Mysql(pool.begin().await.unwrap()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(pool) => TestTx::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await.unwrap()),
        }
    }

    pub(crate) async fn begin_repeatable_read(&self) -> TestTx {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
                TestTx::Postgres(pool.begin_with(begin).await.unwrap())
            }
            // The default isolation level of the other stores.
            #[allow(unreachable_patterns, reason = "PostgreSQL may be the only store of a build")]
            _ => self.begin().await,
        }
    }

    pub(crate) async fn execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        let statement = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        on_each!(self, pool => Ok(statement.execute(pool).await?.rows_affected()))
    }

    pub(crate) async fn integer(&self, query: &str) -> Result<i64, sqlx::Error> {
        let query = AssertSqlSafe(self.as_type(query, "bigint", "SIGNED", "INTEGER"));
        on_each!(self, pool => sqlx::query_scalar(query).fetch_one(pool).await)
    }

    pub(crate) async fn text(&self, query: &str) -> Result<Option<String>, sqlx::Error> {
        let query = AssertSqlSafe(self.as_type(query, "text", "CHAR", "TEXT"));
        on_each!(self, pool => sqlx::query_scalar(query).fetch_one(pool).await)
    }

    /// Returns a query's one value in one type, whatever width the column has on this store.
    fn as_type(&self, query: &str, postgres: &str, mysql: &str, sqlite: &str) -> String {
        let name = match self.kind() {
            StoreKind::Postgres => postgres,
            StoreKind::Mysql => mysql,
            StoreKind::Sqlite => sqlite,
        };
        format!("SELECT CAST(({query}) AS {name})")
    }

    fn kind(&self) -> StoreKind {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => StoreKind::Postgres,
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => StoreKind::Mysql,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => StoreKind::Sqlite,
        }
    }
}
