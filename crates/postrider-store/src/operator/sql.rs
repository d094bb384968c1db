//! Every statement of operator work. A constant whose name is not in the file does not compile, and
//! an unused constant is a warning; the tests below keep the rest.

use super::statement::Statement;
use crate::columns::sql;

/// Cuts statements out of a file, each into a constant.
macro_rules! statements {
    ($list:ident = $file:literal: $($constant:ident = $name:literal),+ $(,)?) => {
        $(
            pub(crate) const $constant: Statement =
                Statement { name: $name, text: sql!($file, $name) };
        )+

        #[cfg(test)]
        const $list: (&str, &[Statement]) = (include_str!($file), &[$($constant),+]);
    };
}

statements! { IN_AUDIT = "sql/audit.sql":
    AUDIT = "audit",
    AUDIT_ALL = "audit_all",
    AUDIT_BELOW = "audit_below",
    AUDIT_LIST = "audit_list",
}

statements! { IN_BATCHES = "sql/batches.sql":
    BATCH_RECORD = "batch_record",
    BATCH_STATE = "batch_state",
    BATCH_LOCK = "batch_lock",
    BATCH_CHANGE = "batch_change",
    BATCH_ENTRIES = "batch_entries",
    BATCH_LEDGER = "batch_ledger",
    BATCH_LEDGERS = "batch_ledgers",
    CLEAN_BATCHES = "clean_batches",
}

statements! { IN_CONSUMER = "sql/consumer.sql":
    INBOX_KNOWN = "inbox_known",
    INBOX_LETTER_ASKED = "inbox_letter_asked",
    INBOX_APPLIED = "inbox_applied",
    INBOX_LETTER_DONE = "inbox_letter_done",
    INBOX_LETTER_FAILED = "inbox_letter_failed",
}

statements! { IN_DEAD_LETTERS = "sql/dead_letters.sql":
    DLQ_LIST = "dlq_list",
    DLQ_FILTER = "dlq_filter",
    DLQ_BELOW = "dlq_below",
    DLQ_COUNT = "dlq_count",
    DLQ_COUNT_OPEN = "dlq_count_open",
    DLQ_GROUPS = "dlq_groups",
    DLQ_GROUPS_OPEN = "dlq_groups_open",
    DLQ_SAMPLES = "dlq_samples",
    DLQ_SHOW = "dlq_show",
    DLQ_BY_EVENT = "dlq_by_event",
    DLQ_LOCK = "dlq_lock",
    DLQ_RETRY = "dlq_retry",
    DLQ_RESOLVE = "dlq_resolve",
    DLQ_REOPEN = "dlq_reopen",
    DLQ_RESEND_EXPIRY = "dlq_resend_expiry",
    DLQ_IS_LIVE = "dlq_is_live",
    DLQ_IMPORT = "dlq_import",
    DLQ_IS_CLOSED = "dlq_is_closed",
    DLQ_LAST = "dlq_last",
    DLQ_WINDOW = "dlq_window",
    DLQ_NEXT = "dlq_next",
    DLQ_LOCK_ALL = "dlq_lock_all",
    DLQ_RETRY_ALL = "dlq_retry_all",
    DLQ_RESOLVE_ALL = "dlq_resolve_all",
    DLQ_OLDEST = "dlq_oldest",
    DLQ_UNSEEN = "dlq_unseen",
    DLQ_FINGERPRINT = "dlq_fingerprint",
}

statements! { IN_EVENTS = "sql/events.sql":
    EVENTS = "events",
    EVENTS_FILTER = "events_filter",
    EVENTS_BELOW = "events_below",
    EVENTS_COUNT = "events_count",
    ARCHIVED_EVENTS = "archived_events",
    ARCHIVED_FILTER = "archived_filter",
    ARCHIVED_BELOW = "archived_below",
    ARCHIVED_COUNT = "archived_count",
    ARCHIVED_LAST = "archived_last",
    ARCHIVED_WINDOW = "archived_window",
    ARCHIVED_NEXT = "archived_next",
    REPLAY = "replay",
    ATTEMPTS = "attempts",
    CANARY = "canary",
}

statements! { IN_INBOX = "sql/inbox.sql":
    INBOX_LEDGER = "inbox_ledger",
    INBOX_LETTERS = "inbox_letters",
    INBOX_LETTER_LOCK = "inbox_letter_lock",
    INBOX_LETTER_RESOLVE = "inbox_letter_resolve",
    INBOX_LETTER_ASK = "inbox_letter_ask",
    CLEAN_INBOX_FIND = "clean_inbox_find",
    CLEAN_INBOX = "clean_inbox",
    CLEAN_INBOX_LEDGER = "clean_inbox_ledger",
    CLEAN_INBOX_LETTERS = "clean_inbox_letters",
    FOLD_INBOX_LEDGER_LAST = "fold_inbox_ledger_last",
    FOLD_INBOX_LEDGER_FIND = "fold_inbox_ledger_find",
    FOLD_INBOX_LEDGER = "fold_inbox_ledger",
    FOLD_INBOX_LEDGER_DELETE = "fold_inbox_ledger_delete",
}

statements! { IN_JOBS = "sql/jobs.sql":
    JOB_CREATE = "job_create",
    JOB_BY_REQUEST_KEY = "job_by_request_key",
    JOB_LIST = "job_list",
    JOB_TAKE = "job_take",
    JOB_LOCK = "job_lock",
    JOB_SAVE = "job_save",
    JOB_END = "job_end",
    JOB_STATE = "job_state",
    JOB_STOP = "job_stop",
    JOB_RESUME = "job_resume",
    CLEAN_JOBS = "clean_jobs",
}

statements! { IN_LEDGER = "sql/ledger.sql":
    LEDGER = "ledger",
    STATISTICS = "statistics",
    UNRESOLVED = "unresolved",
    OLDEST = "oldest",
}

statements! { IN_PAUSES = "sql/pauses.sql":
    PAUSES = "pauses",
    PAUSE = "pause",
    RESUME = "resume",
}

#[cfg(test)]
mod tests {
    use super::super::dialect::Dialect;
    use super::super::session::Connection;
    use super::super::statement::names;
    use super::*;
    use postrider::Outbox;

    const FILES: &[(&str, &[Statement])] = &[
        IN_AUDIT,
        IN_BATCHES,
        IN_CONSUMER,
        IN_DEAD_LETTERS,
        IN_EVENTS,
        IN_INBOX,
        IN_JOBS,
        IN_LEDGER,
        IN_PAUSES,
    ];

    fn dialects() -> Vec<Dialect> {
        vec![
            #[cfg(feature = "postgres")]
            sqlx::PgConnection::DIALECT,
            #[cfg(feature = "mysql")]
            sqlx::MySqlConnection::DIALECT,
            #[cfg(feature = "sqlite")]
            sqlx::SqliteConnection::DIALECT,
        ]
    }

    fn all() -> impl Iterator<Item = Statement> {
        FILES.iter().flat_map(|(_, statements)| statements.iter().copied())
    }

    #[test]
    fn each_statement_of_a_file_is_a_constant() {
        for (file, statements) in FILES {
            let constants: Vec<&str> = statements.iter().map(|statement| statement.name).collect();
            assert_eq!(names(file), constants);
        }
    }

    #[test]
    fn a_database_s_own_statement_replaces_one_that_exists() {
        for dialect in dialects() {
            for name in names(dialect.statements) {
                let shared = name.strip_suffix("_settings").unwrap_or(name);
                assert!(
                    all().any(|statement| statement.name == shared),
                    "there is no shared statement {shared}"
                );
            }
        }
    }

    #[test]
    fn every_database_has_every_statement() {
        let outbox = Outbox::new("orders").unwrap();
        for dialect in dialects() {
            for statement in all() {
                let sql = statement.rendered(&dialect, &outbox).unwrap();
                assert!(!sql.is_empty(), "each database needs a {} of its own", statement.name);
                assert!(!sql.contains(['{', '}']) || sql.contains("'{}'"), "{sql}");
            }
        }
    }
}
