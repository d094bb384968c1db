//! Named statements, cut out of their files, and the queries that they become with their values.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider::internal::statement;
use serde::Serialize;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::dialect::Dialect;

/// A statement of a file, without values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    pub(super) name: &'static str,
    /// Comments and SQL. Comments alone where each database has a statement of its own.
    pub(super) text: &'static str,
}

impl Statement {
    /// Begins a query that is about no outbox.
    pub(crate) fn query(self) -> Query<'static> {
        Query { statement: self, names: Vec::new(), filter: None, values: HashMap::new() }
    }

    /// Begins a query on an outbox.
    pub(crate) fn on(self, outbox: &Outbox) -> Query<'_> {
        let names = vec![("{outbox}", outbox.table())];
        Query { statement: self, names, filter: None, values: HashMap::new() }
    }
}

#[cfg(test)]
impl Statement {
    /// Renders the statement for a database, whatever the values are.
    pub(super) fn rendered(self, dialect: &Dialect, outbox: &Outbox) -> Result<String, String> {
        let sql = self.on(outbox).into(outbox).filtered(super::sql::DLQ_FILTER).sql(dialect);
        let mut rendered = Rendered::default();
        rendered.add(dialect, &sql)?;
        Ok(rendered.sql)
    }
}

/// A value of a statement. NULL has a type as well: PostgreSQL wants to know it.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(Option<String>),
    Integer(Option<i64>),
    Boolean(Option<bool>),
    Time(Option<DateTime<Utc>>),
    /// The identity of an event; one that is not a UUID equals none.
    Identity(Option<String>),
    /// The id of a batch.
    Id(Uuid),
    /// Row ids, for `{among …}`.
    Ids(Vec<i64>),
}

impl Value {
    /// Makes a JSON array of a list.
    pub(crate) fn json<T: Serialize>(list: &[T]) -> Self {
        Self::Text(serde_json::to_string(list).ok())
    }

    /// Makes the identity of an event.
    pub(crate) fn identity(event_id: &str) -> Self {
        Self::Identity(Some(event_id.to_owned()))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}
impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}
impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(ToOwned::to_owned))
    }
}
impl From<&Option<String>> for Value {
    fn from(text: &Option<String>) -> Self {
        Self::Text(text.clone())
    }
}
impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}
impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Integer(Some(number.into()))
    }
}
impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(Some(number.into()))
    }
}
impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Integer(number)
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(Some(value))
    }
}
impl From<Option<bool>> for Value {
    fn from(value: Option<bool>) -> Self {
        Self::Boolean(value)
    }
}
impl From<DateTime<Utc>> for Value {
    fn from(time: DateTime<Utc>) -> Self {
        Self::Time(Some(time))
    }
}
impl From<Option<DateTime<Utc>>> for Value {
    fn from(time: Option<DateTime<Utc>>) -> Self {
        Self::Time(time)
    }
}
impl From<Uuid> for Value {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}
impl From<Duration> for Value {
    /// Milliseconds, at most a hundred years: a time past the year 9999 would become NULL.
    fn from(duration: Duration) -> Self {
        const CENTURY_MS: i64 = 100 * 366 * 24 * 3600 * 1000;
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self::Integer(Some(millis.min(CENTURY_MS)))
    }
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub(crate) struct Query<'q> {
    statement: Statement,
    /// Marks for names that [`Outbox`] has validated.
    names: Vec<(&'static str, &'q str)>,
    filter: Option<Statement>,
    values: HashMap<&'static str, Value>,
}

impl<'q> Query<'q> {
    /// Names the outbox that a statement copies into, `{child}`.
    pub(crate) fn into(mut self, child: &'q Outbox) -> Self {
        self.names.push(("{child}", child.table()));
        self
    }

    /// Puts a condition in the place of `{filter}`.
    pub(crate) fn filtered(mut self, filter: Statement) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Gives the value of a parameter.
    pub(crate) fn bind(mut self, parameter: &'static str, value: impl Into<Value>) -> Self {
        self.values.insert(parameter, value.into());
        self
    }

    /// Returns the settings that a database has for this statement's transaction.
    #[cfg(feature = "postgres")]
    pub(crate) fn settings(&self, dialect: &Dialect) -> Option<&'static str> {
        dialect.own(&format!("{}_settings", self.statement.name))
    }

    /// Renders the statement for a database, with the values in the order of their placeholders.
    pub(crate) fn render(
        self,
        dialect: &Dialect,
    ) -> Result<(AssertSqlSafe<String>, Vec<Value>), sqlx::Error> {
        let name = self.statement.name;
        let wrong =
            |what: String| sqlx::Error::InvalidArgument(format!("statement {name}: {what}"));
        let mut rendered = Rendered::default();
        rendered.add(dialect, &self.sql(dialect)).map_err(wrong)?;
        let value = |parameter: &String| {
            let value = self.values.get(parameter.as_str()).cloned();
            value.ok_or_else(|| wrong(format!("no value for :{parameter}")))
        };
        let is_used = |value: &str| rendered.parameters.iter().any(|used| used == value);
        debug_assert!(self.values.keys().all(|value| is_used(value)), "{name} leaves a value out");
        let values = rendered.parameters.iter().map(value).collect::<Result<_, _>>()?;
        Ok((AssertSqlSafe(rendered.sql), values))
    }

    /// Puts names and filter into the statement. Only names that were validated, and texts of this
    /// program, get into it: values are parameters.
    fn sql(&self, dialect: &Dialect) -> String {
        let mut sql = sql_of(self.statement, dialect);
        if let Some(filter) = self.filter {
            sql = sql.replace("{filter}", &sql_of(filter, dialect));
        }
        self.names.iter().fold(sql, |sql, (mark, name)| sql.replace(mark, name))
    }
}

/// Returns a statement, the database's own if it has one, without comments.
fn sql_of(statement: Statement, dialect: &Dialect) -> String {
    let text = dialect.own(statement.name).unwrap_or(statement.text);
    let lines = text.lines().filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// A statement that is being rendered for a database.
#[derive(Default)]
struct Rendered {
    sql: String,
    parameters: Vec<String>,
}

impl Rendered {
    /// Adds a text: `'literals'` as they are, `"names"` in the database's quotes, `:parameters` as
    /// placeholders, `{markers}` as the dialect has them.
    fn add(&mut self, dialect: &Dialect, text: &str) -> Result<(), String> {
        let mut rest = text;
        while let Some(at) = rest.find(['\'', '"', ':', '{']) {
            let (before, from) = rest.split_at(at);
            self.sql.push_str(before);
            rest = match from.as_bytes() {
                [b'\'', ..] => {
                    let end = from[1..].find('\'').ok_or("a literal has no end")? + 2;
                    self.sql.push_str(&from[..end]);
                    &from[end..]
                }
                [b'"', ..] => {
                    self.sql.push(dialect.quote);
                    &from[1..]
                }
                [b':', b':', ..] => {
                    self.sql.push_str("::");
                    &from[2..]
                }
                [b':', ..] => {
                    let (name, after) = split_word(&from[1..]);
                    self.parameter(dialect, name);
                    after
                }
                _ => {
                    let (marker, after) = from[1..].split_once('}').ok_or("a marker has no end")?;
                    let sql = dialect.expand(marker);
                    self.add(dialect, &sql.ok_or(format!("unknown marker {{{marker}}}"))?)?;
                    after
                }
            };
        }
        self.sql.push_str(rest);
        Ok(())
    }

    fn parameter(&mut self, dialect: &Dialect, name: &str) {
        if !dialect.numbered {
            self.sql.push('?');
            return self.parameters.push(name.to_owned());
        }
        let known = self.parameters.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.parameters.push(name.to_owned());
            self.parameters.len() - 1
        });
        self.sql.push_str(&format!("${}", at + 1));
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
    text.split_at(end.unwrap_or(text.len()))
}

/// Finds a statement in a file at run time.
pub(super) fn find(file: &'static str, name: &str) -> Option<&'static str> {
    let mut parts = file.split(statement::NAME);
    parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
}

/// Lists the names of a file's statements.
#[cfg(test)]
pub(super) fn names(file: &'static str) -> Vec<&'static str> {
    file.lines().filter_map(|line| line.strip_prefix(statement::NAME)).collect()
}
