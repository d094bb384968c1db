//! Files with payloads in them: who can read them.

use std::os::unix::fs::PermissionsExt;

use postrider_testkit::Installation;

use crate::scene::BINARY;

async fn with_default_configuration() -> Installation {
    let site = Installation::new(BINARY, "");
    let default = site.run(&["config"]).await.exits(0).stdout;
    site.configure(&default.replace("127.0.0.1:7070", "127.0.0.1:0"));
    site
}

fn set_mode(site: &Installation, name: &str, mode: u32) {
    std::fs::set_permissions(site.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_reads_the_embedded_database() {
    let site = with_default_configuration().await;
    let daemon = site.start().await;
    for name in ["postrider.db", "postrider.db-wal", "postrider.db-shm"] {
        let path = site.path(&format!("postrider-data/{name}"));
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}: {mode:o}");
    }
    daemon.stop().await;
    set_mode(&site, "postrider-data/postrider.db", 0o644);
    let told = site.run(&["doctor"]).await;
    let _ = told.shows(&["every user", "0644", "chmod o-rwx"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_folder_that_every_user_can_write_is_refused() {
    let site = with_default_configuration().await;
    let _ = site.run(&["migrate"]).await.exits(0);
    let folder = "postrider-data/dead-letters";
    std::fs::create_dir(site.path(folder)).unwrap();
    set_mode(&site, folder, 0o777);
    for command in [&["run", "--check"][..], &["run"]] {
        let _ = site.run(command).await.exits(2).says(&["backup_folder", "every user", "chmod"]);
    }
    let _ = site.run(&["doctor"]).await.exits(1).shows(&["backup folder", "every user"]);
    std::fs::remove_dir(site.path(folder)).unwrap();
    std::fs::create_dir(site.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(site.path("elsewhere"), site.path(folder)).unwrap();
    let _ = site.run(&["run", "--check"]).await.exits(2).says(&["symbolic link"]);
}

/// Found at the start, not when a dead letter has nowhere else to go.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_folder_that_cannot_be_written_is_refused() {
    let site = with_default_configuration().await;
    let _ = site.run(&["migrate"]).await.exits(0);
    let folder = site.path("postrider-data/dead-letters");
    let refused = async || {
        for command in [&["run", "--check"][..], &["run"]] {
            let words = ["backup_folder", "dead-letters", "cannot be written", "another folder"];
            let _ = site.run(command).await.exits(2).says(&words);
        }
    };
    // Rights do not bind root, but this does.
    std::fs::write(&folder, "a file").unwrap();
    refused().await;
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir_all(folder.join("dead-letters.jsonl")).unwrap();
    refused().await;
    std::fs::remove_dir_all(&folder).unwrap();
    let _ = site.run(&["run", "--check"]).await.exits(0);
    assert!(!folder.exists(), "a check leaves nothing behind");
    std::fs::create_dir(&folder).unwrap();
    let _ = site.run(&["run", "--check"]).await.exits(0);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a check leaves nothing behind");
}
