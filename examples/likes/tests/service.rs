//! Checks what the example's README promises, also when the service is killed.

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use postrider_testkit::{
    TempFolder, TestDb,
    buffer::TestBuffer,
    eventually,
    http_client::{self, Response},
    on_each_store,
};

on_each_store!(
    every_like_that_was_answered_is_saved_once_though_the_service_is_killed,
    ids_that_differ_in_case_or_a_space_are_different_posts,
    a_table_that_cannot_be_added_to_ends_the_service_before_it_listens,
    a_relay_that_cannot_work_ends_the_service,
);

/// The service; killed when dropped.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn command(db: &TestDb, test: &TestBuffer, folder: &TempFolder) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_likes-example"));
        command
            .env("STORE_URL", &db.url)
            .env("REDIS_URL", &test.url)
            .env("BUFFER", test.buffer.name())
            .env("BACKUP_FOLDER", folder.path())
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped());
        command
    }

    fn start(db: &TestDb, test: &TestBuffer, folder: &TempFolder) -> Self {
        let mut command = Self::command(db, test, folder);
        let mut process = command.stderr(Stdio::null()).spawn().unwrap();
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
    // The test's default table has other columns.
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
        // Killed at any point of its worker.
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

async fn ids_that_differ_in_case_or_a_space_are_different_posts(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "likes-example").await else { return };
    db.execute("DROP TABLE likes").await;
    let folder = TempFolder::new();
    let service = Service::start(&db, &test, &folder);
    for (post, likes) in [("a", 1), ("A", 2), ("a%20", 3), ("%C3%A4", 4)] {
        for _ in 0..likes {
            assert_eq!(service.like(post).await.unwrap().status, 202);
        }
    }
    test.until_empty().await;
    for (post, likes) in [("a", 1), ("A", 2), ("a%20", 3), ("%C3%A4", 4)] {
        let shown = service.send("GET", &format!("/posts/{post}")).await.unwrap();
        assert!(shown.body.contains(&format!("\"likes\":{likes}")), "{post}: {}", shown.body);
    }
    test.assert_balanced(&db).await;
}

/// Runs the service until it ends by itself. Returns its output and its error.
async fn ends(db: &TestDb, test: &TestBuffer) -> (String, String) {
    let folder = TempFolder::new();
    let mut command = Service::command(db, test, &folder);
    let ended = tokio::task::spawn_blocking(move || command.stderr(Stdio::piped()).output());
    let output = ended.await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

async fn a_table_that_cannot_be_added_to_ends_the_service_before_it_listens(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "likes-example").await else { return };
    db.execute("DROP TABLE likes").await;
    db.execute("CREATE TABLE likes (post_id varchar(100), likes bigint)").await;
    let (printed, error) = ends(&db, &test).await;
    assert!(printed.is_empty(), "{printed}");
    assert!(error.contains("counts cannot be added to"), "{error}");
}

/// A service whose relay cannot work must end: it would accept likes and never save them.
async fn a_relay_that_cannot_work_ends_the_service(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "likes-example").await else { return };
    db.execute("DROP TABLE likes").await;
    db.refuse_relays().await;
    let (_, error) = ends(&db, &test).await;
    assert!(error.contains("no_relays_here"), "{error}");
}
