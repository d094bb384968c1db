//! The likes table, on any of the databases.

use postrider_store::Appender;

/// Maximum number of characters in a post id.
pub(crate) const POST_CHARS_MAX: usize = 100;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS likes \
                      (post_id varchar(100) PRIMARY KEY, likes bigint NOT NULL)";
/// Ids that differ in case, or in a trailing space, are different posts, as they are in Redis.
const CREATE_MYSQL: &str = "CREATE TABLE IF NOT EXISTS likes \
                            (post_id varchar(100) PRIMARY KEY, likes bigint NOT NULL) \
                            DEFAULT CHARACTER SET utf8mb4 \
                            COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */";
const SELECT: &str = "SELECT likes FROM likes WHERE post_id = $1";
const SELECT_MYSQL: &str = "SELECT likes FROM likes WHERE post_id = ?";

pub(crate) async fn create(database: &Appender) -> Result<(), sqlx::Error> {
    match database {
        Appender::Postgres(pool) => sqlx::raw_sql(CREATE).execute(pool).await.map(drop),
        Appender::Mysql(pool) => sqlx::raw_sql(CREATE_MYSQL).execute(pool).await.map(drop),
        Appender::Sqlite(pool) => sqlx::raw_sql(CREATE).execute(pool).await.map(drop),
    }
}

pub(crate) async fn likes(database: &Appender, post: &str) -> Result<i64, sqlx::Error> {
    let found: Option<i64> = match database {
        Appender::Postgres(pool) => {
            sqlx::query_scalar(SELECT).bind(post).fetch_optional(pool).await?
        }
        Appender::Mysql(pool) => {
            sqlx::query_scalar(SELECT_MYSQL).bind(post).fetch_optional(pool).await?
        }
        Appender::Sqlite(pool) => {
            sqlx::query_scalar(SELECT).bind(post).fetch_optional(pool).await?
        }
    };
    Ok(found.unwrap_or(0))
}
