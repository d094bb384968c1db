//! The conformance suite of stores, on the `mysql` store with MySQL.
#![cfg(feature = "mysql")]

postrider_testkit::store_conformance!(mysql);
