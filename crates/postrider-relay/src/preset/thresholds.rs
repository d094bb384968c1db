//! Thresholds for alerts.

/// The thresholds of one outbox; `None` and `false` switch an alert off. Each preset has its own,
/// and each can be overridden.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Alerts above this number of live events.
    pub pending_max: Option<u64>,
    /// Alerts above this number of attempts that one relay spent without delivery within a minute.
    pub failed_per_minute_max: Option<u64>,
    /// Alerts above this number of failed events that wait for another attempt.
    pub failed_rows_max: Option<u64>,
    /// Alerts at this number of unresolved dead letters.
    pub unresolved_at: Option<u64>,
    /// Alerts above this share of retries among one relay's attempts of 5 minutes, 0 to 1.
    pub retry_rate_max: Option<f64>,
    /// Alerts below this share of one relay's calls of 5 minutes that found the destination up, 0
    /// to 1.
    pub availability_min: Option<f64>,
    /// Alerts on each new dead letter.
    pub dead_letters: bool,
    /// Alerts on each event whose content does not match its hash.
    pub integrity: bool,
    /// Alerts on events recovered from relays that died.
    pub stalled_recovered: bool,
    /// Alerts on dead letters that were written to the backup file.
    pub backups: bool,
    /// Alerts on dead letters that could not be saved anywhere else.
    pub critical_failures: bool,
}

impl Thresholds {
    /// The thresholds of the preset `api-call`, on which the others are based.
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

    /// The thresholds of `notification` and `handler`.
    pub const PEOPLE: Self =
        Self { pending_max: Some(1_000), failed_per_minute_max: Some(10), ..Self::API_CALL };

    /// The thresholds of `broker`.
    pub const BROKER: Self =
        Self { failed_per_minute_max: None, failed_rows_max: Some(100), ..Self::API_CALL };
}
