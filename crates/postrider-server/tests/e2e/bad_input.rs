//! What is wrong is named, with what to do; nothing is half-written, and no password is shown.

use std::os::unix::fs::PermissionsExt;

use postrider_store::StoreKind;
use postrider_testkit::{Installation, Ran};

use crate::scene::{BINARY, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    missing_tables_are_named_with_the_command_that_makes_them,
});
mod servers {
    use super::a_user_without_rights_is_told_which_are_missing;
    crate::on_stores!(postgres, mariadb, mysql: {
        a_user_without_rights_is_told_which_are_missing
    });
}

const PASSWORD: &str = "hunter2-very-secret";

/// What any failed command must do: say `words`, exit with `code`, keep the password to itself.
fn refuses(ran: Ran, code: i32, words: &[&str]) {
    let ran = ran.exits(code).says(words);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.contains(PASSWORD), "the password is shown:\n{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

/// No file has been made but the configuration.
fn untouched(site: &Installation) {
    let entries = std::fs::read_dir(site.folder()).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["postrider.toml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_url_that_leads_nowhere_is_named() {
    let site = Installation::new(BINARY, "");
    let default = site.run(&["config"]).await.exits(0).stdout;
    site.configure(&default.replace("127.0.0.1:7070", "127.0.0.1:0"));
    let login = format!("app:{PASSWORD}");
    // Port 1 of this machine: nothing listens there.
    let urls = [
        (format!("oracle://{login}@db/app"), ["oracle", "postgres://", "sqlite:"]),
        (format!("postgres://{login}@127.0.0.1:1/app"), ["127.0.0.1:1", "[store]", "runs"]),
        (format!("mysql://{login}@127.0.0.1:1/app"), ["127.0.0.1:1", "[store]", "runs"]),
        (
            format!("postgres://127.0.0.1:1/app?user=app&password={PASSWORD}"),
            ["127.0.0.1:1", "[store]", "runs"],
        ),
        (format!("postgres://{login}@[bad/app"), ["[store]", "url", "--store"]),
        ("sqlite:missing/file.db".to_owned(), ["missing/file.db", "postrider migrate", "[store]"]),
        ("sqlite::memory:".to_owned(), [":memory:", "survives", "sqlite:path"]),
    ];
    // Side by side: a pool asks a server that refuses again and again, for 10 s.
    let refusals = urls.iter().map(async |(url, words)| {
        // The daemon would make a missing file.
        let starts = if url.contains("missing") { &["reconcile"] } else { &["run"] };
        for command in [&["stats"][..], starts, &["run", "--check"]] {
            let args = [&["--store", url.as_str()][..], command].concat();
            refuses(site.run(&args).await, 1, words);
        }
    });
    futures_util::future::join_all(refusals).await;
    untouched(&site);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_the_configuration_are_named_with_what_is_allowed() {
    let site = Installation::new(BINARY, "");
    let secret_line = format!("[store]\nulr = 'postgres://app:{PASSWORD}@db/app'");
    let broken_line = format!("[store]\nurl = 'postgres://app:{PASSWORD}@db/app");
    let outbox = "[[outbox]]\nname = 'orders'\npreset = 'broker'\nsink = 's'\n";
    let sink = "[[sink]]\nname = 's'\nkind = 'log'\n";
    for (config, words) in [
        (secret_line.as_str(), ["line 2", "`ulr`", "`url`"]),
        (&broken_line, ["line 2", "`url`", "postrider.toml"]),
        (&format!("{outbox}batchh = 5\n{sink}"), ["line 5", "`batchh`", "`batch`"]),
        (&format!("{}{sink}", outbox.replace("broker", "brokr")), ["brokr", "api-call", "broker"]),
        (&format!("{outbox}table = 'a\"b'\n{sink}"), ["a\"b", "lower-case", "digits"]),
        (&format!("{outbox}table = \"a'; DROP TABLE x\"\n{sink}"), ["DROP", "lower-case", "_"]),
        (&format!("{outbox}batch = 0\n{sink}"), ["batch = 0", "1 to 10000", "orders"]),
        (
            &format!("{outbox}batch_bytes_max = 0\n{sink}"),
            ["batch_bytes_max = 0", "at least 1", "orders"],
        ),
        (outbox, ["sink = \"s\"", "none", "orders"]),
        (&format!("{outbox}{outbox}{sink}"), ["orders", "another", "name"]),
        ("[store]\nurl = 'env:E2E_NOT_SET'", ["E2E_NOT_SET", "not set", "line 2"]),
        ("[server]\ntoken = 'file:/no/such'", ["/no/such", "cannot be read", "line 2"]),
        ("[server]\ntoken = 'short'", ["token", "16", "characters"]),
        ("[server]\nlisten = '0.0.0.0:7070'", ["0.0.0.0:7070", "token", "127.0.0.1"]),
        ("[relay]\nlease = 'long'", ["long", "30s", "line 2"]),
    ] {
        site.configure(config);
        for command in ["run", "migrate", "stats"] {
            refuses(site.run(&[command]).await, 2, &words);
        }
        untouched(&site);
    }
    site.configure("");
    refuses(site.run(&["run"]).await, 2, &["[[outbox]]", "postrider config"]);
    let away = ["--config", "away.toml", "stats"];
    refuses(site.run(&away).await, 2, &["away.toml", "cannot be read"]);
    refuses(site.run(&["--log", "a=[", "stats"]).await, 2, &["--log", "info"]);
    untouched(&site);
    let store = format!("mysqll://app:{PASSWORD}@db/app");
    let by_environment = [("POSTRIDER_STORE__URL", store.as_str())];
    refuses(site.run_with(&["stats"], &by_environment, "").await, 1, &["mysqll", "mysql://"]);
    let number = [("POSTRIDER_STORE__CONNECTIONS_MAX", "many")];
    let ran = site.run_with(&["stats"], &number, "").await;
    refuses(ran, 2, &["environment", "connections_max", "many"]);
}

async fn missing_tables_are_named_with_the_command_that_makes_them(place: Place) {
    let Some(scene) = Scene::open_empty(place, &Settings::new()).await else { return };
    let site = &scene.site;
    if place.kind == StoreKind::Sqlite {
        scene.db.execute("CREATE TABLE business (number INTEGER)").await;
    }
    let fields = ["--aggregate-type", "a", "--aggregate-id", "b", "--event-type", "c"];
    let append = [&["append", "-o", "orders"][..], &fields].concat();
    for command in [
        &["stats"][..],
        &["reconcile"],
        &["dlq", "list"],
        &["events", "list"],
        &append,
        &["run", "--check"],
    ] {
        refuses(site.run(command).await, 1, &["postrider migrate"]);
    }
    if place.kind != StoreKind::Sqlite {
        // A server's tables belong to their owner; the embedded file belongs to the daemon.
        refuses(site.run(&["run"]).await, 1, &["postrider migrate"]);
    }
    let _ = site.run(&["migrate"]).await.exits(0);
    // An outbox that was added to the configuration only.
    scene.configure(&Settings::new().outbox("name", "invoices"));
    refuses(site.run(&["stats"]).await, 1, &["invoices", "postrider migrate"]);
    scene.configure(&Settings::new());
    let large = "x".repeat(4 * 1024 * 1024 + 1);
    let payload = [&append[..], &["--payload", "-"]].concat();
    let ran = site.run_with(&payload, &[], &large).await;
    refuses(ran, 1, &["payload", "4194304"]);
    assert_eq!(scene.db.count("").await, 0);
    scene.reconcile().await;
}

/// A user who may look, but not touch.
async fn a_user_without_rights_is_told_which_are_missing(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let name = format!("e2e_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    let database = scene.db.url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let (make, forget) = match place.kind {
        StoreKind::Postgres => (
            format!(
                "CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}';
                 GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"
            ),
            format!("DROP OWNED BY {name}; DROP ROLE {name}"),
        ),
        // Also at localhost: a server may have an anonymous user there, who would come first.
        _ => (
            format!(
                "CREATE USER {name} IDENTIFIED BY '{PASSWORD}',
                             {name}@localhost IDENTIFIED BY '{PASSWORD}';
                 GRANT SELECT ON {database}.* TO {name}, {name}@localhost"
            ),
            format!("DROP USER {name}, {name}@localhost"),
        ),
    };
    scene.db.execute(&make).await;
    let (scheme, rest) = scene.db.url.split_once("://").unwrap();
    let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
    let url = format!("{scheme}://{name}:{PASSWORD}@{server}");
    let as_user =
        async |command: &[&str]| scene.site.run(&[&["--store", &url][..], command].concat()).await;
    let fields = ["--aggregate-type", "a", "--aggregate-id", "b", "--event-type", "c"];
    let viewed = as_user(&["stats"]).await;
    let refused = [
        as_user(&["run"]).await,
        as_user(&["migrate"]).await,
        as_user(&[&["append", "-o", "orders"][..], &fields].concat()).await,
    ];
    let wrong = url.replace(PASSWORD, "wrong");
    let turned_away = scene.site.run(&["--store", &wrong, "stats"]).await;
    // Before anything can fail: the user belongs to the server, not to this test's database.
    scene.db.execute(&forget).await;
    let _ = viewed.exits(0);
    for ran in refused {
        refuses(ran, 1, &["denied", "postrider migrate --print"]);
    }
    if place.kind == StoreKind::Mysql {
        // A test server of PostgreSQL may trust everybody on this machine.
        refuses(turned_away, 1, &["denied", "[store]", &name]);
    }
    assert_eq!(scene.db.integer("SELECT count(*) FROM postrider_relays").await, 0);
    scene.settle_up(&[], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let site = Installation::new(BINARY, "");
    let default = site.run(&["config"]).await.exits(0).stdout;
    site.configure(&default.replace("127.0.0.1:7070", &address));
    refuses(site.run(&["run"]).await, 1, &[&address, "cannot listen", "`listen` in [server]"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_file_is_named_with_the_right_that_is_missing() {
    let site = Installation::new(BINARY, "");
    let default = site.run(&["config"]).await.exits(0).stdout;
    site.configure(&default);
    let _ = site.run(&["migrate"]).await.exits(0);
    let mode = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(site.path(name), permissions).unwrap();
    };
    for name in ["postrider.db", "postrider.db-wal", "postrider.db-shm"] {
        let name = format!("postrider-data/{name}");
        if site.path(&name).exists() {
            mode(&name, 0o444);
        }
    }
    mode("postrider-data", 0o555);
    let nobody = as_nobody(&site);
    let unprivileged = nobody.as_ref().map_or(BINARY, |script| script.to_str().unwrap());
    let reader = site.with_binary(unprivileged);
    let append = ["append", "--aggregate-type", "a", "--aggregate-id", "b", "--event-type", "c"];
    for command in [&["run"][..], &["migrate"], &append] {
        refuses(reader.run(command).await, 1, &["readonly", "right to write", "folder"]);
    }
    mode("postrider-data", 0o755);
}

/// Rights do not bind root: then a script runs the binary as nobody.
fn as_nobody(site: &Installation) -> Option<std::path::PathBuf> {
    if std::fs::write(site.path("postrider-data/probe"), "").is_err() {
        return None;
    }
    std::fs::remove_file(site.path("postrider-data/probe")).unwrap();
    let binary = site.path("postrider");
    std::fs::hard_link(BINARY, &binary)
        .or_else(|_| std::fs::copy(BINARY, &binary).map(|_| ()))
        .unwrap();
    let script = site.path("as-nobody");
    let text = format!(
        "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {} \"$@\"\n",
        binary.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(script)
}
