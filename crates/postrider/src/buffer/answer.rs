//! Converts replies of Redis to values.

use redis::{RedisError, Value};

use super::BufferError;

/// A field and its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// Returns the error for a reply that no script gives. What the server did is unknown then.
pub(super) fn strange() -> BufferError {
    BufferError::Unavailable("the answer is not what the command gives".to_owned())
}

pub(super) fn integer(value: Value) -> Result<i64, BufferError> {
    match value {
        Value::Int(number) => Ok(number),
        Value::ServerError(error) => Err(BufferError::refused(&RedisError::from(error))),
        _ => Err(strange()),
    }
}

/// Parses a flat list of alternating names and values.
pub(super) fn bytes_pairs(value: Value) -> Result<Vec<Pair>, BufferError> {
    let Value::Array(values) = value else { return Err(strange()) };
    let mut values = values.into_iter();
    let mut pairs = Vec::with_capacity(values.len() / 2);
    while let Some(name) = values.next() {
        let (Value::BulkString(name), Some(Value::BulkString(value))) = (name, values.next())
        else {
            return Err(strange());
        };
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// Like [`bytes_pairs`], with both as text.
pub(super) fn text_pairs(value: Value) -> Result<Vec<(String, String)>, BufferError> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| strange());
    let pairs = bytes_pairs(value)?.into_iter();
    pairs.map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}

/// Returns a text, in whichever type the server sends it.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}
