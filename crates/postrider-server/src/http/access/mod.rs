//! Access control: tokens with roles, sessions of the dashboard, limits per client.

mod guard;
mod limits;
mod sessions;
mod tokens;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use clap::ValueEnum;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use crate::config::{ApiSection, ConfigError, ServerSection};

pub(crate) use guard::{COOKIE, admit, cookie, protect, refuse_foreign_page, require};
pub(crate) use limits::{Limits, network};
pub(crate) use sessions::Sessions;
use tokens::Digest;
pub(crate) use tokens::{TokenRegistry, new_token};

/// What a caller may do; each role may do what the ones before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Look at everything.
    Viewer,
    /// Append, and act on events, dead letters, jobs, keys, outboxes and sinks.
    Operator,
    /// Change how relays work, and bring in events from files.
    Admin,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Viewer, Self::Operator, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("unknown role `{text}`; allowed: viewer, operator, admin"))
    }
}

/// How a caller showed who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// It did not need to: there is no token, and it is on this machine.
    Loopback,
    /// By a token.
    Token,
    /// By the cookie of a session.
    Session,
}

/// The sender of a request. The name is that of its credential: a request cannot choose it.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    pub(crate) way: Way,
    credential: Credential,
}

/// The credential that admitted a caller, to check later whether it is still valid.
#[derive(Debug, Clone, Copy)]
enum Credential {
    Loopback,
    Token(Digest),
    Session { id: Digest, token: Digest },
}

impl Caller {
    /// Returns the caller on this machine if there are no tokens.
    fn local() -> Self {
        let (way, credential) = (Way::Loopback, Credential::Loopback);
        Self { name: "local".into(), role: Role::Admin, way, credential }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // The guard adds the caller; a route outside the guard has none.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Problem::new(401, SIGN_IN))
    }
}

pub(crate) const SIGN_IN: &str = "send `Authorization: Bearer <token>`, or sign in with \
     POST /api/v1/session; `postrider token new` makes a token";

/// Everything that decides on access.
pub(crate) struct Access {
    /// `None`: there are no tokens, and clients on this machine are trusted.
    pub(crate) tokens: Option<TokenRegistry>,
    pub(crate) sessions: Sessions,
    pub(crate) limits: Limits,
}

impl Access {
    pub(crate) fn new(server: &ServerSection, api: &ApiSection) -> Result<Self, ConfigError> {
        Ok(Self {
            tokens: TokenRegistry::open(
                server.token.as_ref().map(|token| token.expose()),
                api.tokens.as_ref().map(|lines| lines.expose()),
                api.tokens_file.as_deref(),
            )?,
            sessions: Sessions::new(api.session_idle.0, api.session_max.0, api.sessions_max),
            limits: Limits::new(api.requests_per_s, api.sign_in_failures_per_min),
        })
    }
}
