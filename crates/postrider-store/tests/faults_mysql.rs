//! Broken networks, on the `mysql` store. (SQLite has no network.)
#![cfg(feature = "mysql")]

mod mariadb {
    postrider_testkit::store_faults!(mariadb);
}
mod mysql {
    postrider_testkit::store_faults!(mysql);
}
