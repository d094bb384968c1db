//! Column types of an adopted table.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::adopt::{Column, Kind};
use crate::columns::sql;
use crate::contract::Result;

/// Returns the columns of a table; empty if the table does not exist.
pub(super) async fn columns(connection: &mut PgConnection, table: &str) -> Result<Vec<Column>> {
    let found = sqlx::query(sql!("sql/adopt.sql", "adopt_columns"))
        .bind(table)
        .fetch_all(connection)
        .await?;
    found.iter().map(column).collect()
}

fn column(found: &PgRow) -> Result<Column> {
    let (base, class): (String, String) = (found.try_get("base")?, found.try_get("class")?);
    let kind = match base.as_str() {
        "int2" | "int4" | "int8" => Kind::Integer,
        "bool" => Kind::Boolean,
        "varchar" | "bpchar" | "text" | "citext" => Kind::Text,
        "json" | "jsonb" => Kind::Json,
        "uuid" => Kind::Uuid,
        "timestamp" => Kind::LocalTime,
        "timestamptz" => Kind::Instant,
        _ if class == "e" => Kind::Words(found.try_get("words")?),
        _ => Kind::Other,
    };
    let type_name: String = found.try_get("type_name")?;
    Ok(Column {
        keeps_text: type_name != "jsonb",
        name: found.try_get("name")?,
        kind,
        type_name,
        chars_max: found.try_get("chars_max")?,
        bytes_max: None,
        charset: None,
        not_null: found.try_get("not_null")?,
        has_default: found.try_get("has_default")?,
        unique: found.try_get("is_unique")?,
    })
}
