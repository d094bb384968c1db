//! Column types of an adopted table.

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use crate::adopt::{Column, Kind};
use crate::columns::sql;
use crate::contract::Result;

/// Returns the columns of a table; empty if the table does not exist.
pub(super) async fn columns(connection: &mut MySqlConnection, table: &str) -> Result<Vec<Column>> {
    let found = sqlx::query(sql!("sql/adopt.sql", "adopt_columns"))
        .bind(table)
        .bind(table)
        .bind(table)
        .fetch_all(connection)
        .await?;
    found.iter().map(column).collect()
}

fn column(found: &MySqlRow) -> Result<Column> {
    let (base, type_name): (String, String) = (found.try_get("base")?, found.try_get("type_name")?);
    let kind = match base.as_str() {
        "tinyint" if type_name.starts_with("tinyint(1)") => Kind::Boolean,
        "bit" if type_name == "bit(1)" => Kind::Boolean,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Integer,
        "json" => Kind::Json,
        // MariaDB's JSON is an alias for text with a check.
        _ if found.try_get("is_json")? => Kind::Json,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Kind::Text,
        "uuid" => Kind::Uuid,
        "datetime" => Kind::LocalTime,
        "timestamp" => Kind::Instant,
        "enum" => Kind::Words(words(&type_name)),
        _ => Kind::Other,
    };
    // MySQL stores a document; MariaDB's type is longtext.
    let keeps_text = base != "json";
    Ok(Column {
        keeps_text,
        name: found.try_get("name")?,
        kind,
        type_name,
        chars_max: found.try_get("chars_max")?,
        bytes_max: found.try_get("bytes_max")?,
        charset: found.try_get("charset")?,
        not_null: found.try_get("not_null")?,
        has_default: found.try_get("has_default")?,
        unique: found.try_get("is_unique")?,
    })
}

/// Parses the words of `enum('A','B')`.
fn words(type_name: &str) -> Vec<String> {
    type_name.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}
