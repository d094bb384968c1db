//! The conformance suite of stores, on the `mysql` store.
#![cfg(feature = "mysql")]

postrider_testkit::store_conformance!(mysql);
