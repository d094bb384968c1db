//! The servers that tests run on.

use postrider_store::StoreKind;

/// A database server of `dev/services`, or a file. Several are of one kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestServer {
    /// PostgreSQL.
    Postgres,
    /// The newest PostgreSQL.
    PostgresNext,
    /// MariaDB, which the store `mysql` works with.
    Mariadb,
    /// The newest MariaDB with long-term support.
    MariadbNext,
    /// MySQL, which the store `mysql` works with.
    Mysql,
    /// A file of SQLite.
    Sqlite,
}

impl TestServer {
    /// Returns the kind of store that works with it.
    pub fn kind(self) -> StoreKind {
        match self {
            Self::Postgres | Self::PostgresNext => StoreKind::Postgres,
            Self::Mariadb | Self::MariadbNext | Self::Mysql => StoreKind::Mysql,
            Self::Sqlite => StoreKind::Sqlite,
        }
    }

    /// Returns the name of its service of `dev/services`.
    pub(crate) fn service(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::PostgresNext => "postgres-next",
            Self::Mariadb => "mariadb",
            Self::MariadbNext => "mariadb-next",
            Self::Mysql => "mysql",
            Self::Sqlite => panic!("SQLite has no server"),
        }
    }

    /// Returns the variable with its address; SQLite has none.
    pub(crate) fn variable(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("POSTGRES_URL"),
            Self::PostgresNext => Some("POSTGRES_NEXT_URL"),
            Self::Mariadb => Some("MARIADB_URL"),
            Self::MariadbNext => Some("MARIADB_NEXT_URL"),
            Self::Mysql => Some("MYSQL_URL"),
            Self::Sqlite => None,
        }
    }
}

impl From<StoreKind> for TestServer {
    /// The server that stands for a kind of store in tests that are not about servers.
    fn from(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Postgres => Self::Postgres,
            StoreKind::Mysql => Self::Mariadb,
            StoreKind::Sqlite => Self::Sqlite,
        }
    }
}
