//! A sink that this program was built without.

use postrider_relay::sinks::NullSink;
use serde::Deserialize;

use crate::config::ConfigError;
use crate::config::sink::RateSection;

/// The keys of its section that every kind of sink has.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Absent {
    pub(crate) name: String,
    pub(crate) rate: Option<RateSection>,
}

impl Absent {
    pub(crate) fn build(&self) -> Result<NullSink, ConfigError> {
        Err(ConfigError::Invalid(format!(
            "[[sink]] `{}`: this program was built without sinks of that kind; build it with the \
             cargo feature that is named like the kind",
            self.name
        )))
    }
}
