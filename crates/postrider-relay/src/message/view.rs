//! An event as routes, templates and message forms see it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use postrider_store::Event;
use serde_json::Value;

/// An event whose headers and payload are parsed once, on first use.
#[derive(Debug)]
pub struct EventView<'a> {
    /// The event itself.
    pub event: &'a Event,
    headers: OnceLock<Result<BTreeMap<String, String>, String>>,
    payload: OnceLock<serde_json::Result<Value>>,
}

impl<'a> EventView<'a> {
    /// Creates a view; nothing is parsed yet.
    pub fn new(event: &'a Event) -> Self {
        Self { event, headers: OnceLock::new(), payload: OnceLock::new() }
    }

    /// Returns the event's headers.
    ///
    /// # Errors
    /// If the column does not hold a JSON object.
    pub fn headers(&self) -> Result<&BTreeMap<String, String>, String> {
        self.headers.get_or_init(|| self.event.headers()).as_ref().map_err(Clone::clone)
    }

    /// Returns a header, ignoring the case of its name.
    ///
    /// # Errors
    /// If the column does not hold a JSON object.
    pub fn header(&self, name: &str) -> Result<Option<&str>, String> {
        let headers = self.headers()?;
        let exact = headers.get(name);
        let found = exact.or_else(|| {
            headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, v)| v)
        });
        Ok(found.map(String::as_str))
    }

    /// Returns the payload as JSON; `None` if it is not JSON.
    ///
    /// # Errors
    /// If it is nested too deeply to be parsed. Treated as text without fields, it would bypass
    /// conditions on its fields.
    pub fn payload(&self) -> Result<Option<&Value>, String> {
        let parsed = self.payload.get_or_init(|| serde_json::from_str(&self.event.payload));
        match parsed {
            Ok(value) => Ok(Some(value)),
            // The library identifies this error only by its message.
            Err(error) if error.to_string().starts_with("recursion limit exceeded") => {
                Err("the payload has more than 127 levels of lists and objects".to_owned())
            }
            Err(_) => Ok(None),
        }
    }
}
