//! The conformance suite of stores, on the `sqlite` store.
#![cfg(feature = "sqlite")]

postrider_testkit::store_conformance!(sqlite);
