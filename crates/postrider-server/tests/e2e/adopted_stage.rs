//! Tables of other programs, as they run in production, and an outbox that serves one of them.

use postrider::content_hash;
use postrider_store::{
    StoreKind,
    adopt::{AdoptedLetters, Adoption, StateWords},
};
use postrider_testkit::{TestDb, eventually};
use toml::Table;

use crate::scene::{OUTBOX, Place, Scene, Settings};

const PAGE: &str = include_str!("../../../../docs/adopted-tables.md");

/// A table of another program.
#[derive(Clone, Copy)]
pub(crate) struct Old {
    /// Its form in the configuration.
    pub(crate) form: &'static str,
    /// The SQL that made it.
    sql: &'static str,
    pub(crate) table: &'static str,
    pub(crate) id: &'static str,
    /// The column that shows the state, as SQL.
    state: &'static str,
    pub(crate) retries: Option<&'static str>,
    pub(crate) error: Option<&'static str>,
    /// Its dead-letter table, and the column there that names the row.
    pub(crate) letters: Option<(&'static str, &'static str)>,
    /// States of a row; `None`: it is gone.
    pub(crate) delivered: Option<&'static str>,
    pub(crate) dead: Option<&'static str>,
}

pub(crate) const API_CALL: Old = Old {
    form: "api-call",
    sql: include_str!("tables/api_call.sql"),
    table: "nexon_api_outbox",
    id: "id",
    state: "status",
    retries: Some("retry_count"),
    error: Some("last_error"),
    letters: Some(("nexon_api_dlq", "original_id")),
    delivered: None,
    dead: Some("DEAD_LETTER"),
};
pub(crate) const NOTIFICATION: Old = Old {
    form: "notification",
    sql: include_str!("tables/notification.sql"),
    table: "donation_outbox",
    letters: Some(("donation_dlq", "original_id")),
    delivered: Some("COMPLETED"),
    ..API_CALL
};
pub(crate) const BROKER: Old = Old {
    form: "broker",
    sql: include_str!("tables/broker.sql"),
    table: "transfer_events",
    id: "event_id",
    retries: Some("attempt_count"),
    letters: None,
    delivered: Some("PUBLISHED"),
    ..API_CALL
};
pub(crate) const HANDLER: Old = Old {
    form: "handler",
    sql: include_str!("tables/handler.sql"),
    table: "outbox_event",
    state: "CASE WHEN processed THEN 'DONE' ELSE 'PENDING' END",
    error: Some("error_message"),
    letters: Some(("outbox_event_dlq", "original_event_id")),
    delivered: Some("DONE"),
    dead: None,
    ..API_CALL
};
pub(crate) const DEBEZIUM: Old = Old {
    form: "debezium",
    sql: include_str!("tables/debezium_postgres.sql"),
    table: "outbox",
    state: "'PENDING'",
    retries: None,
    error: None,
    letters: None,
    delivered: None,
    dead: None,
    ..API_CALL
};
pub(crate) const DEBEZIUM_MYSQL: Old =
    Old { sql: include_str!("tables/debezium_mysql.sql"), ..DEBEZIUM };

impl Old {
    /// An insert as the old programs make it. `state` is `None` for what they leave to the default.
    pub(crate) fn insert(&self, number: usize, state: Option<&str>) -> String {
        let (column, value) = match state {
            Some(state) if self.form == "handler" => {
                (", processed", format!(", {}", state == "DONE"))
            }
            Some(state) => (", status", format!(", '{state}'")),
            None => ("", String::new()),
        };
        match self.form {
            "api-call" => format!(
                "INSERT INTO nexon_api_outbox (ocid, endpoint{column})
                 VALUES ('ocid-{number}', '/character/basic'{value})"
            ),
            "notification" => {
                let (request, payload) = (format!("req-{number}"), r#"{"points":5}"#);
                let hash = content_hash(Some(&request), "DONATION_SENT", payload);
                format!(
                    "INSERT INTO donation_outbox
                         (request_id, event_type, payload, content_hash, created_at{column})
                     VALUES ('{request}', 'DONATION_SENT', '{payload}', '{hash}', NOW(){value})"
                )
            }
            "broker" => format!(
                "INSERT INTO transfer_events (aggregate_type, aggregate_id, event_type, payload,
                     headers{column})
                 VALUES ('account', 'acc-{number}', 'TransferCompleted', '{{\"n\":{number}}}',
                     '{{\"traced\":\"yes\"}}'{value})"
            ),
            "handler" => format!(
                "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload,
                     created_at, updated_at{column})
                 VALUES ('OrderPlaced', 'order', 'o-{number}', '{{}}', NOW(), NOW(){value})"
            ),
            _ => format!(
                "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
                 VALUES ('{}', 'order', 'o-{number}', 'OrderPlaced', '{{}}')",
                uuid(number)
            ),
        }
    }

    /// As the configuration says it, for calls of the store itself.
    pub(crate) fn adoption(&self, keep_delivered: bool) -> Adoption {
        let full = self.full();
        let map = |key: &str| full.get(key).cloned().unwrap_or_else(|| Table::new().into());
        let dead_letters = full.get("dead_letters").map(|letters| AdoptedLetters {
            table: letters["table"].as_str().unwrap().to_owned(),
            columns: letters["columns"].clone().try_into().unwrap(),
        });
        Adoption {
            table: self.table.to_owned(),
            time_zone: "UTC".to_owned(),
            columns: map("columns").try_into().unwrap(),
            constants: map("constants").try_into().unwrap(),
            states: StateWords::default(),
            dead_letters,
            keep_delivered,
        }
    }

    /// What the line of the page stands for.
    pub(crate) fn full(&self) -> Table {
        let start = format!("```toml\n# form = \"{}\", in full\n", self.form);
        let full = PAGE.split(&start).nth(1).unwrap().split("```").next().unwrap();
        let full: Table = toml::from_str(full).unwrap();
        let mut adopt = full["outbox"]["adopt"].as_table().unwrap().clone();
        adopt.entry("table").or_insert_with(|| self.table.into());
        adopt
    }

    /// The configuration of its outbox, from the page: the preset of the one line, and what the
    /// line stands for.
    pub(crate) fn settings(&self) -> Settings {
        let line = PAGE.split("```toml\n").skip(1).find_map(|block| {
            let block: Table = toml::from_str(block.split("```").next()?).ok()?;
            let outbox = block.get("outbox")?.as_array()?.first()?.clone();
            (outbox["adopt"].get("form")?.as_str()? == self.form).then_some(outbox)
        });
        let line = line.unwrap_or_else(|| panic!("the page has no line for {}", self.form));
        Settings::new()
            .outbox("preset", line["preset"].as_str().unwrap())
            .outbox("adopt", toml::Value::Table(self.full()))
    }

    pub(crate) fn settings_with(&self, key: &str, value: impl Into<toml::Value>) -> Settings {
        self.settings().adopt(key, value)
    }
}

pub(crate) fn uuid(number: usize) -> String {
    format!("11111111-2222-4333-8444-{number:012x}")
}

/// An outbox that serves a table which is described by hand.
pub(crate) fn by_hand(adopt: &str) -> Settings {
    let adopt: Table = toml::from_str(adopt).unwrap();
    Settings::new().outbox("preset", "broker").outbox("adopt", adopt)
}

/// A scene with the old table and nothing else yet.
pub(crate) async fn with_old_table(place: Place, old: Old, settings: &Settings) -> Option<Scene> {
    let scene = Scene::open_empty(place, settings).await?;
    scene.db.execute(old.sql).await;
    Some(scene)
}

/// A scene whose outbox serves the old table.
pub(crate) async fn adopted(place: Place, old: Old) -> Option<Scene> {
    let scene = with_old_table(place, old, &old.settings()).await?;
    let told = scene.site.run(&["migrate"]).await.exits(0);
    assert!(told.stdout.contains(&format!("serves table {}", old.table)), "{told:?}");
    Some(scene)
}

impl Scene {
    /// Waits until every row of the old table shows that state; `None`: until it is empty.
    pub(crate) async fn shows(&self, old: Old, state: Option<&str>, rows: i64) {
        let (table, shown) = (old.table, old.state);
        let query = match state {
            Some(state) => format!("SELECT count(*) FROM {table} WHERE {shown} = '{state}'"),
            None => format!("SELECT count(*) FROM {table}"),
        };
        let rows = if state.is_some() { rows } else { 0 };
        eventually(&format!("{rows} rows show {state:?}"), async || {
            (self.db.integer(&query).await == rows).then_some(())
        })
        .await;
    }

    /// Rows of the old table that fit a condition.
    pub(crate) async fn old_rows(&self, old: Old, condition: &str) -> i64 {
        self.db.integer(&format!("SELECT count(*) FROM {} WHERE {condition}", old.table)).await
    }

    /// Rows of the old dead-letter table that fit a condition.
    pub(crate) async fn old_letters(&self, old: Old, condition: &str) -> i64 {
        let Some((table, _)) = old.letters else { return 0 };
        self.db.integer(&format!("SELECT count(*) FROM {table} WHERE {condition}")).await
    }

    /// Imports what the old table had before; answers events and dead letters that were taken.
    pub(crate) async fn takes(&self) -> (u64, u64) {
        let adopt = ["outbox", "adopt", OUTBOX, "--json"];
        let taken = self.site.run(&adopt).await.exits(0).json();
        (taken["events"].as_u64().unwrap(), taken["dead_letters"].as_u64().unwrap())
    }

    /// The identities that the receiver has taken.
    pub(crate) fn identities(&self) -> usize {
        self.target.taken().len()
    }

    /// The end of every test: appended, delivered and dead as counted by the ledger.
    pub(crate) async fn balances(&self, delivered: usize, dead: usize) {
        let ledger = self.reconcile().await;
        assert_eq!(ledger["outbox"], OUTBOX);
        assert_eq!(ledger["delivered"]["count"], delivered, "{ledger:#}");
        assert_eq!(ledger["dead"]["count"], dead, "{ledger:#}");
        assert_eq!(ledger["pending"]["count"], 0, "{ledger:#}");
    }
}

/// Whether a test runs on PostgreSQL; otherwise it is MariaDB or MySQL.
pub(crate) fn is_postgres(db: &TestDb) -> bool {
    db.store.kind() == StoreKind::Postgres
}

/// One test per case on each of the tables.
macro_rules! on_old_tables {
    ($cases:tt) => {
        mod api_call {
            crate::adopted_stage::cases!(mariadb, API_CALL, $cases);
        }
        mod api_call_on_mysql {
            crate::adopted_stage::cases!(mysql, API_CALL, $cases);
        }
        mod notification {
            crate::adopted_stage::cases!(mariadb, NOTIFICATION, $cases);
        }
        mod notification_on_mysql {
            crate::adopted_stage::cases!(mysql, NOTIFICATION, $cases);
        }
        mod notification_on_mariadb_next {
            crate::adopted_stage::cases!(mariadb_next, NOTIFICATION, $cases);
        }
        mod broker {
            crate::adopted_stage::cases!(postgres, BROKER, $cases);
        }
        mod broker_on_postgres_next {
            crate::adopted_stage::cases!(postgres_next, BROKER, $cases);
        }
        mod handler {
            crate::adopted_stage::cases!(mariadb, HANDLER, $cases);
        }
        mod handler_on_mysql {
            crate::adopted_stage::cases!(mysql, HANDLER, $cases);
        }
        mod debezium_postgres {
            crate::adopted_stage::cases!(postgres, DEBEZIUM, $cases);
        }
        mod debezium_mysql {
            crate::adopted_stage::cases!(mariadb, DEBEZIUM_MYSQL, $cases);
        }
        mod debezium_on_mysql {
            crate::adopted_stage::cases!(mysql, DEBEZIUM_MYSQL, $cases);
        }
    };
}
pub(crate) use on_old_tables;

macro_rules! cases {
    ($store:ident, $old:ident, { $($case:ident),* $(,)? }) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let server = postrider_testkit::test_server!($store);
                let test = concat!(module_path!(), "::", stringify!($case));
                let place = crate::scene::Place::new(server, test);
                super::$case(place, crate::adopted_stage::$old).await;
            }
        )*
    };
}
pub(crate) use cases;
