//! From when on something is worth an alert.

/// The thresholds of one outbox; `None` and `false` are off. A preset has its own, and each can be
/// overridden.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// More live events than this.
    pub pending_max: Option<u64>,
    /// More attempts spent without delivery than this, by one relay within a minute.
    pub failed_per_minute_max: Option<u64>,
    /// More events that failed and wait than this.
    pub failed_rows_max: Option<u64>,
    /// This many unresolved dead letters, or more.
    pub unresolved_at: Option<u64>,
    /// A larger share of retries among one relay's attempts of 5 minutes, 0 to 1.
    pub retry_rate_max: Option<f64>,
    /// A smaller share of one relay's calls of 5 minutes that found the destination up, 0 to 1.
    pub availability_min: Option<f64>,
    /// Each new dead letter.
    pub dead_letters: bool,
    /// Each event whose content does not fit its hash.
    pub integrity: bool,
    /// Events recovered from relays that died.
    pub stalled_recovered: bool,
    /// Dead letters that went into the backup file.
    pub backups: bool,
    /// Dead letters that could be saved nowhere else.
    pub critical_failures: bool,
}

impl Thresholds {
    /// Those of the preset `api-call`, which the others change.
    pub const API_CALL: Self = Self {
        pending_max: Some(10_000),
        failed_per_minute_max: Some(100),
        failed_rows_max: None,
        unresolved_at: Some(10),
        retry_rate_max: Some(0.5),
        availability_min: Some(0.95),
        dead_letters: true,
        integrity: true,
        stalled_recovered: true,
        backups: true,
        critical_failures: true,
    };

    /// Those of `notification` and `handler`.
    pub const PEOPLE: Self =
        Self { pending_max: Some(1_000), failed_per_minute_max: Some(10), ..Self::API_CALL };

    /// Those of `broker`.
    pub const BROKER: Self =
        Self { failed_per_minute_max: None, failed_rows_max: Some(100), ..Self::API_CALL };
}
