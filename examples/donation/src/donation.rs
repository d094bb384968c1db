//! Requests, receipts, and the reasons for a refusal.

use postrider::{AppendError, LockError, Transience, transience};
use serde::{Deserialize, Serialize};

/// Maximum number of characters in ids and fingerprints.
const ID_CHARS_MAX: usize = 50;

/// A request to donate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Donation {
    /// Chosen by the caller, who repeats the request with the same id if no answer arrived.
    pub(crate) request_id: String,
    pub(crate) guest_id: String,
    /// Identifies the admin who receives the points, and shows that the caller knows the admin.
    pub(crate) admin_fingerprint: String,
    pub(crate) amount: i64,
}

impl Donation {
    /// Refuses invalid requests before anything is looked up.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        for (field, value) in [
            ("request_id", &self.request_id),
            ("guest_id", &self.guest_id),
            ("admin_fingerprint", &self.admin_fingerprint),
        ] {
            check_id(field, value)?;
        }
        match self.amount {
            1.. => Ok(()),
            amount => Err(Refusal::Malformed(format!(
                "amount is {amount}; a donation is a whole number of points, at least 1"
            ))),
        }
    }
}

/// A guest or admin with points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) points: i64,
    /// Set for admins, `None` for guests.
    #[serde(default, skip_serializing)]
    pub(crate) fingerprint: Option<String>,
}

impl Member {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_id("id", &self.id)?;
        if let Some(fingerprint) = &self.fingerprint {
            check_id("fingerprint", fingerprint)?;
        }
        match self.points {
            0.. => Ok(()),
            points => Err(Refusal::Malformed(format!("points is {points}; it cannot be negative"))),
        }
    }
}

/// Allows only ids that survive a log line, a URL and a collation.
fn check_id(field: &'static str, value: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    match !value.is_empty() && value.len() <= ID_CHARS_MAX && value.chars().all(plain) {
        true => Ok(()),
        false => Err(Refusal::Malformed(format!(
            "{field} is malformed; use 1 to {ID_CHARS_MAX} letters, digits and - _ . :"
        ))),
    }
}

/// The result of a donation, also returned for a repeated request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Receipt {
    pub(crate) request_id: String,
    pub(crate) guest_id: String,
    pub(crate) admin_id: String,
    pub(crate) amount: i64,
    /// Points that the guest had left.
    pub(crate) guest_points: i64,
    pub(crate) donated_at: String,
}

/// A receipt, and whether it belongs to an earlier request with the same id.
#[derive(Debug)]
pub(crate) struct Donated {
    pub(crate) receipt: Receipt,
    pub(crate) repeated: bool,
}

/// The reason why there was no donation. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Malformed(String),
    #[error("no admin has this fingerprint")]
    UnknownAdmin,
    #[error("there is no guest `{0}`")]
    UnknownGuest(String),
    #[error("there is a member `{0}` already, or another one has the fingerprint")]
    MemberExists(String),
    #[error("the guest has {points} points, which is less than {amount}")]
    Insufficient { points: i64, amount: i64 },
    #[error("the admin's account is full: it cannot hold {0} more points")]
    Overflow(i64),
    #[error("request_id `{0}` was used for another donation; a new donation needs a new id")]
    Conflict(String),
    #[error("{0}")]
    Locked(#[from] LockError),
    #[error("the event could not be appended: {0}")]
    Append(#[from] AppendError),
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
}

impl Refusal {
    /// Returns whether the same transaction may succeed if it is repeated immediately: after a
    /// deadlock, or if another one was first with the same request id.
    pub(crate) fn may_repeat(&self) -> bool {
        let error = match self {
            Self::Database(error)
            | Self::Append(AppendError::Database(error))
            | Self::Locked(LockError::Database { cause: error, .. }) => error,
            _ => return false,
        };
        let raced = error.as_database_error().is_some_and(|error| error.is_unique_violation());
        raced || transience(error) == Transience::Busy
    }
}
