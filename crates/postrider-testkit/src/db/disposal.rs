//! Creates a database, and drops it whether the test passed or not.

use std::time::Duration;

use postrider_store::StoreKind;
use sqlx::{AssertSqlSafe, Connection};

use crate::TempFolder;

/// Timeout of dropping a database. A test that leaves one behind reports it and does not hang.
const DROP_WAIT: Duration = Duration::from_secs(10);

/// Drops a database when it goes out of scope.
pub(super) struct Disposal {
    kind: StoreKind,
    server_url: String,
    /// Empty if there is nothing to drop.
    name: String,
    /// Folder of SQLite's file, removed with this value.
    folder: Option<TempFolder>,
}

impl Disposal {
    /// Creates a database; returns its URL too.
    pub(super) async fn create(kind: StoreKind, server_url: &str) -> (Self, String) {
        let name = format!("postrider_test_{}", uuid::Uuid::new_v4().simple());
        let mut disposal = Self { kind, server_url: server_url.to_owned(), name, folder: None };
        if kind == StoreKind::Sqlite {
            let folder = TempFolder::new();
            let url = format!("sqlite:{}?mode=rwc", folder.path().join("test.db").display());
            disposal.folder = Some(folder);
            return (disposal, url);
        }
        on_server(kind, server_url, format!("CREATE DATABASE {}", disposal.name)).await.unwrap();
        if kind == StoreKind::Postgres {
            // Tests do not cut the server's power, so none has to wait for its disk.
            let relax = format!("ALTER DATABASE {} SET synchronous_commit = off", disposal.name);
            on_server(kind, server_url, relax).await.unwrap();
        }
        let url = with_database(server_url, &disposal.name);
        (disposal, url)
    }

    /// For a database that is removed with its server.
    pub(super) fn none(kind: StoreKind, server_url: &str) -> Self {
        Self { kind, server_url: server_url.to_owned(), name: String::new(), folder: None }
    }

    pub(super) fn server_url(&self) -> &str {
        &self.server_url
    }
}

impl Drop for Disposal {
    fn drop(&mut self) {
        if self.folder.is_some() || self.name.is_empty() {
            return;
        }
        let (kind, url, name) = (self.kind, self.server_url.clone(), self.name.clone());
        // A thread with its own runtime: this also runs in a panicking test, whose runtime may be
        // shutting down.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let work =
                async { tokio::time::timeout(DROP_WAIT, drop_database(kind, &url, &name)).await };
            match runtime.block_on(work) {
                Ok(outcome) => outcome,
                Err(_) => Err(sqlx::Error::PoolTimedOut),
            }
        })
        .join();
        if let Ok(Err(error)) = dropped {
            eprintln!("the database {} is left behind: {error}", self.name);
        }
    }
}

async fn drop_database(kind: StoreKind, url: &str, name: &str) -> Result<(), sqlx::Error> {
    if kind == StoreKind::Postgres {
        return on_server(kind, url, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }
    #[cfg(feature = "mysql")]
    {
        // An open transaction of a panicked test holds metadata locks, so its connections are
        // killed first.
        let mut connection = sqlx::MySqlConnection::connect(url).await?;
        let list = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?";
        let ids: Vec<i64> = sqlx::query_scalar(list).bind(name).fetch_all(&mut connection).await?;
        for id in ids {
            let kill = AssertSqlSafe(format!("KILL {id}"));
            // It may have ended by itself.
            drop(sqlx::raw_sql(kill).execute(&mut connection).await);
        }
        let statement = AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"));
        sqlx::raw_sql(statement).execute(&mut connection).await?;
        connection.close().await?;
    }
    Ok(())
}

/// Runs a statement on the server, outside of any test's database.
async fn on_server(kind: StoreKind, url: &str, statement: String) -> Result<(), sqlx::Error> {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement));
    match kind {
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            let mut connection = sqlx::PgConnection::connect(url).await?;
            statement.execute(&mut connection).await?;
            connection.close().await
        }
        #[cfg(feature = "mysql")]
        StoreKind::Mysql => {
            let mut connection = sqlx::MySqlConnection::connect(url).await?;
            statement.execute(&mut connection).await?;
            connection.close().await
        }
        other => panic!("this build of the testkit has no server for {}", other.as_str()),
    }
}

/// Returns the server's URL with another database: replaces the path, keeps the parameters.
fn with_database(url: &str, name: &str) -> String {
    let (base, parameters) = match url.split_once('?') {
        Some((base, parameters)) => (base, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let authority = base.find("://").map_or(0, |at| at + 3);
    let end = base[authority..].find('/').map_or(base.len(), |at| authority + at);
    format!("{}/{name}{parameters}", &base[..end])
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn a_database_is_put_into_any_form_of_server_url() {
        for (url, expected) in [
            ("postgres://u@h:1/db", "postgres://u@h:1/new"),
            ("postgres://u@h:1/db?sslmode=disable", "postgres://u@h:1/new?sslmode=disable"),
            ("mysql://u:p@h", "mysql://u:p@h/new"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
