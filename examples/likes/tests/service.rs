//! The service does what its README says, also when it is killed.

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use postrider_testkit::buffer::TestBuffer;
use postrider_testkit::http_client::{self, Response};
use postrider_testkit::{TempFolder, TestDb, eventually, on_each_store};

on_each_store!(every_like_that_was_answered_is_saved_once_though_the_service_is_killed);

/// The service; killed when dropped.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(db: &TestDb, test: &TestBuffer, folder: &TempFolder) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_likes-example"))
            .env("STORE_URL", &db.url)
            .env("REDIS_URL", &test.url)
            .env("BUFFER", test.buffer.name())
            .env("BACKUP_FOLDER", folder.path())
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once("//").expect("the address").1.to_owned();
        Self { process, address }
    }

    async fn send(&self, method: &str, path: &str) -> Option<Response> {
        let address = self.address.parse().unwrap();
        http_client::send(address, method, path, &[], "").await.ok()
    }

    async fn like(&self, post: &str) -> Option<Response> {
        let path = format!("/posts/{post}/like");
        self.send("POST", &path).await
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

async fn every_like_that_was_answered_is_saved_once_though_the_service_is_killed(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "likes-example").await else { return };
    // The test's table has other columns.
    db.execute("DROP TABLE likes").await;
    let folder = TempFolder::new();
    let mut answered = 0;
    for _ in 0..3 {
        let service = Service::start(&db, &test, &folder);
        for n in 0..100 {
            let response = service.like(&format!("post-{}", n % 7)).await.unwrap();
            assert_eq!(response.status, 202, "{}", response.body);
            answered += 1;
        }
        // Killed wherever its worker is.
    }
    let service = Service::start(&db, &test, &folder);
    let too_long = service.like(&"x".repeat(101)).await.unwrap();
    assert_eq!(too_long.status, 400, "{}", too_long.body);
    test.until_empty().await;
    let sum = "SELECT SUM(likes) FROM likes";
    eventually("all is saved", async || (db.integer(sum).await == answered).then_some(())).await;
    let saved = db.integer("SELECT likes FROM likes WHERE post_id = 'post-0'").await;
    let shown = service.send("GET", "/posts/post-0").await.unwrap();
    assert!(shown.body.contains(&format!("\"likes\":{saved}")), "{}", shown.body);
    test.assert_balanced(&db).await;
}
