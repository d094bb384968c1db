//! Broken networks, on the `postgres` store. (SQLite has no network.)
#![cfg(feature = "postgres")]

postrider_testkit::store_faults!(postgres);
