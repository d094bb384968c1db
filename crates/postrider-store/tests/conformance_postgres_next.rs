//! The conformance suite of stores, on the `postgres` store with the newest PostgreSQL.
#![cfg(feature = "postgres")]

postrider_testkit::store_conformance!(postgres_next);
