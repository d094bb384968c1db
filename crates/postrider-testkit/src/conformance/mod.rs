//! The suite that every store passes.
//!
//! Each case is one `async fn(db: TestDb)`, named as the sentence it proves, and works through the
//! traits of `postrider::store` and the application's `append` only; raw SQL is for sabotage. What
//! a store cannot do is read from its `capabilities()`, and the case then asserts the declared
//! alternative.

pub mod append;
pub mod steps;

/// One test per case for a store: `store_conformance!(postgres)`.
#[macro_export]
macro_rules! store_conformance {
    ($store:ident) => {
        $crate::store_cases!($store, append: [
            a_committed_event_is_claimable_with_all_of_its_fields,
        ]);
    };
}

/// One test per case of a theme.
#[doc(hidden)]
#[macro_export]
macro_rules! store_cases {
    ($store:ident, $theme:ident: [$($case:ident),* $(,)?]) => {
        mod $theme {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    let kind = $crate::store_kind!($store);
                    if let Some(db) = $crate::TestDb::open(kind, name).await {
                        $crate::conformance::$theme::$case(db).await;
                    }
                }
            )*
        }
    };
}

/// From the name of a store's module to its kind.
#[doc(hidden)]
#[macro_export]
macro_rules! store_kind {
    (postgres) => {
        postrider::store::StoreKind::Postgres
    };
    (mysql) => {
        postrider::store::StoreKind::Mysql
    };
    (sqlite) => {
        postrider::store::StoreKind::Sqlite
    };
}
