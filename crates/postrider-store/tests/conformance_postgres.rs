//! The conformance suite of stores, on the `postgres` store.
#![cfg(feature = "postgres")]

postrider_testkit::store_conformance!(postgres);
