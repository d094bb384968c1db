//! Building blocks of the relay's tests.

mod alerts;
mod run;
mod sink;

pub use alerts::RecordedAlerts;
pub use run::{RunningRelay, held_event, quick_config, quick_preset};
pub use sink::{Act, Log, ScriptedSink};

/// Generates one test per case and store: `on_each_store!(a_case, another_case)`, where each case
/// is an `async fn(db: TestDb)` next to it.
#[macro_export]
macro_rules! on_each_store {
    ($($cases:tt)*) => {
        $crate::on_each_server!($($cases)*);
        mod sqlite {
            $crate::on_store!(sqlite: $($cases)*);
        }
    };
}

/// Generates one test per case and server.
#[macro_export]
macro_rules! on_each_server {
    ($($cases:tt)*) => {
        mod postgres {
            $crate::on_store!(postgres: $($cases)*);
        }
        $crate::on_mysql_and_mariadb!($($cases)*);
    };
}

/// Generates one test per case and server that the store `mysql` works with.
#[macro_export]
macro_rules! on_mysql_and_mariadb {
    ($($cases:tt)*) => {
        mod mariadb {
            $crate::on_store!(mariadb: $($cases)*);
        }
        mod mysql {
            $crate::on_store!(mysql: $($cases)*);
        }
    };
}

/// Generates one test per case on one store.
#[doc(hidden)]
#[macro_export]
macro_rules! on_store {
    ($store:ident: $($case:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let name = concat!(module_path!(), "::", stringify!($case));
                let kind = $crate::test_server!($store);
                if let Some(db) = $crate::TestDb::open(kind, name).await {
                    super::$case(db).await;
                }
            }
        )*
    };
}
