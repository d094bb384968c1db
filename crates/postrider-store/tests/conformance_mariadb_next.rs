//! The conformance suite of stores, on the `mysql` store with the newest MariaDB.
#![cfg(feature = "mysql")]

postrider_testkit::store_conformance!(mariadb_next);
