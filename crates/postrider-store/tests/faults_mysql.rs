//! Broken networks, on the `mysql` store. (SQLite has no network.)
#![cfg(feature = "mysql")]

postrider_testkit::store_faults!(mysql);
