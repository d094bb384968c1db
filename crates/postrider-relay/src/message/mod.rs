//! From an event to a message: views, templates, filters, routes, bodies, envelopes.

#[cfg(feature = "http")]
pub(crate) mod body;
pub(crate) mod envelope;
#[cfg(feature = "filters")]
pub(crate) mod filter;
pub(crate) mod routes;
pub mod template;
pub(crate) mod view;

pub use envelope::*;
