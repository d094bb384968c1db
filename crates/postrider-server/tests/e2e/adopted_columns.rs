//! Adopted tables: columns that are narrower, stricter or of another kind than what is put into
//! them.

use postrider_testkit::{Answer, TestServer, eventually};

use crate::adopted_stage::{by_hand, is_postgres, uuid};
use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, postgres_next, mariadb, mariadb_next, mysql: {
    narrow_columns_and_columns_that_must_not_be_empty_fail_no_settle,
    numbers_words_and_documents_that_must_not_be_empty_fail_no_settle,
    a_dead_letter_table_that_could_not_hold_what_it_gets_is_refused,
});

mod with_uuid {
    // MySQL has no such type.
    crate::on_stores!(postgres, mariadb: {
        an_id_may_be_text_in_one_table_and_a_uuid_in_the_other,
    });
    use super::an_id_may_be_text_in_one_table_and_a_uuid_in_the_other;
}

mod mariadb_and_mysql {
    crate::on_stores!(mariadb, mysql: {
        characters_that_a_column_lacks_fail_no_settle,
        a_dead_letter_table_that_would_lose_characters_is_refused,
    });
    use super::{
        a_dead_letter_table_that_would_lose_characters_is_refused,
        characters_that_a_column_lacks_fail_no_settle,
    };
}

async fn narrow_columns_and_columns_that_must_not_be_empty_fail_no_settle(place: Place) {
    let settings = by_hand(
        "table = 'narrow'
         [columns]
         id = 'id'
         aggregate_id = 'k'
         payload = 'body'
         status = 'state'
         last_error = 'error'
         locked_by = 'owner'
         locked_at = 'since'
         next_retry_at = 'due'
         updated_at = 'changed'
         [constants]
         aggregate_type = 'a'
         event_type = 'e'
         [states]
         pending = 'NEW'
         processing = 'BUSY'
         failed = 'AGAIN'
         completed = 'DONE'
         dead_letter = 'DEAD'
         [dead_letters]
         table = 'narrow_dlq'
         [dead_letters.columns]
         id = 'id'
         original_id = 'row_id'
         error_message = 'error'
         reason = 'why'
         error_detail = 'detail'
         failed_at = 'at'
         created_at = 'at'",
    );
    let Some(scene) = Scene::open_empty(place, &settings.outbox("max_retries", 1_000)).await else {
        return;
    };
    let (id, time) = match is_postgres(&scene.db) {
        true => ("BIGSERIAL", "TIMESTAMP"),
        false => ("BIGINT AUTO_INCREMENT", "DATETIME"),
    };
    let make = format!(
        "CREATE TABLE narrow (id {id} PRIMARY KEY, k VARCHAR(9), body TEXT NOT NULL,
             state VARCHAR(5) NOT NULL, error VARCHAR(8) NOT NULL, owner VARCHAR(3) NOT NULL,
             since {time} NOT NULL, due {time} NOT NULL, changed {time} NOT NULL);
         CREATE TABLE narrow_dlq (id {id} PRIMARY KEY, row_id BIGINT NOT NULL,
             error VARCHAR(4) NOT NULL, why VARCHAR(3) NOT NULL, detail VARCHAR(2) NOT NULL,
             at {time} NOT NULL)"
    );
    scene.db.execute(&make).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.target.answer(Answer::status(404));
    let insert = "INSERT INTO narrow (k, body, state, error, owner, since, due, changed) VALUES
                  ('x', '{}', 'NEW', '', '', '2020-01-01', '2020-01-01', '2020-01-01')";
    scene.db.execute(insert).await;
    let daemon = scene.site.start().await;
    let row = "SELECT concat(state, ' | ', error, ' | ', owner) FROM narrow
               WHERE due > '2025-01-01' AND since > '2025-01-01'";
    eventually("a failed attempt shows as far as there is room", async || {
        (scene.db.text(row).await.as_deref() == Some("AGAIN | HTTP 404 | ")).then_some(())
    })
    .await;
    scene.target.answer(Answer::status(422).body("no such thing"));
    scene.has_dead_letters(1).await;
    daemon.stop().await;
    assert_eq!(scene.db.text(row).await.unwrap(), "DEAD | HTTP 422 | ");
    let letter = "SELECT concat(error, ' | ', why, ' | ', detail)
                  FROM narrow_dlq WHERE at > '2025-01-01'";
    assert_eq!(scene.db.text(letter).await.unwrap(), "HTTP | rej | no");
    scene.balances(0, 1).await;
}

const TYPED: &str = "table = 'typed'
    [columns]
    id = 'id'
    aggregate_id = 'customer'
    event_type = 'kind'
    payload = 'body'
    headers = 'extra'
    request_id = 'request'
    [constants]
    aggregate_type = 'customer'
    [dead_letters]
    table = 'typed_dlq'
    [dead_letters.columns]
    id = 'id'
    original_id = 'row_id'
    aggregate_id = 'customer'
    event_type = 'kind'
    payload = 'body'
    headers = 'extra'
    request_id = 'request'
    retry_count = 'tries'
    resolved = 'done'
    resolved_at = 'done_at'
    resolved_by = 'done_by'";

async fn numbers_words_and_documents_that_must_not_be_empty_fail_no_settle(place: Place) {
    let Some(scene) = Scene::open_empty(place, &by_hand(TYPED)).await else { return };
    let (id, kind, json, instant) = match is_postgres(&scene.db) {
        true => {
            scene.db.execute("CREATE TYPE kind AS ENUM ('PLACED', 'PAID')").await;
            ("BIGSERIAL", "kind", "JSONB", "TIMESTAMPTZ")
        }
        false => ("BIGINT AUTO_INCREMENT", "ENUM('PLACED', 'PAID')", "JSON", "DATETIME"),
    };
    let make = format!(
        "CREATE TABLE typed (id {id} PRIMARY KEY, customer INT NOT NULL, kind {kind} NOT NULL,
             body {json}, extra {json}, request BIGINT UNIQUE);
         CREATE TABLE typed_dlq (id {id} PRIMARY KEY, row_id BIGINT NOT NULL,
             customer BIGINT NOT NULL, kind {kind} NOT NULL, body {json} NOT NULL,
             extra {json} NOT NULL, request BIGINT NOT NULL, tries SMALLINT NOT NULL,
             done BOOLEAN NOT NULL, done_at {instant} NOT NULL, done_by VARCHAR(3) NOT NULL)"
    );
    scene.db.execute(&make).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.target.answer(Answer::status(422));
    let insert = r#"INSERT INTO typed (customer, kind, body, extra, request) VALUES
                    (7, 'PAID', '{"n": 1}', '{"traced": "yes"}', 55),
                    (8, 'PLACED', NULL, NULL, NULL)"#;
    scene.db.execute(insert).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(2).await;
    daemon.stop().await;
    let shown = async |condition: &str| {
        scene.db.integer(&format!("SELECT count(*) FROM typed_dlq WHERE {condition}")).await
    };
    // A document of MySQL does not equal its text.
    let json = |text: &str| match scene.db.server {
        TestServer::Mysql => format!("CAST('{text}' AS JSON)"),
        _ => format!("'{text}'"),
    };
    let (body, extra, none) = (json(r#"{"n": 1}"#), json(r#"{"traced": "yes"}"#), json("{}"));
    let whole = format!(
        "customer = 7 AND kind = 'PAID' AND body = {body} AND request = 55 AND extra = {extra} \
         AND tries = 1"
    );
    assert_eq!(shown(&whole).await, 1);
    let empty = format!("customer = 8 AND body = {none} AND extra = {none} AND request = 0");
    assert_eq!(shown(&empty).await, 1);
    let ids: Vec<String> =
        scene.dead_letters().await.iter().map(|letter| letter["id"].to_string()).collect();
    assert_eq!(scene.json(&["dlq", "resolve", &ids[0], "--operator", "olga"]).await["done"], 1);
    assert_eq!(shown("done AND done_by = 'olg'").await, 1);
    let _ = scene.site.run(&["dlq", "reopen", &ids[0]]).await.exits(0);
    assert_eq!(shown("NOT done AND done_by = ''").await, 2);
    scene.balances(0, 2).await;
}

/// What a migration says to a dead-letter table that is made of these columns.
async fn refused(scene: &Scene, columns: &str, words: &[&str]) {
    scene.db.execute(&format!("CREATE TABLE typed_dlq ({columns})")).await;
    let _ = scene.site.run(&["migrate"]).await.exits(1).says(words);
    scene.db.execute("DROP TABLE typed_dlq").await;
}

async fn a_dead_letter_table_that_could_not_hold_what_it_gets_is_refused(place: Place) {
    let letters = |columns: &str| {
        by_hand(&format!(
            "table = 'typed'
             columns = {{ id = 'id', aggregate_id = 'customer', event_type = 'kind', \
             payload = 'body' }}
             constants = {{ aggregate_type = 'customer' }}
             [dead_letters]
             table = 'typed_dlq'
             columns = {{ id = 'id', original_id = 'row_id', {columns} }}"
        ))
    };
    let Some(scene) = Scene::open_empty(place, &letters("payload = 'body'")).await else { return };
    let (id, json) = match is_postgres(&scene.db) {
        true => ("BIGSERIAL PRIMARY KEY", "JSONB"),
        false => ("BIGINT AUTO_INCREMENT PRIMARY KEY", "JSON"),
    };
    let make = format!(
        "CREATE TABLE typed (id {id}, customer VARCHAR(20) NOT NULL, kind INT, body TEXT NOT NULL)"
    );
    scene.db.execute(&make).await;
    let own = format!("id {id}, row_id BIGINT NOT NULL");
    let words = ["typed_dlq", "`body`", "cannot hold every payload", "make it text"];
    refused(&scene, &format!("{own}, body {json}"), &words).await;
    // Shorter than what fits into the other; on MariaDB in characters, there in bytes.
    let words = ["typed_dlq", "`body`", "too small", "make it larger"];
    refused(&scene, &format!("{own}, body VARCHAR(16000)"), &words).await;
    let words = ["typed_dlq", "`id`", "has no default"];
    refused(&scene, "id BIGINT PRIMARY KEY, row_id BIGINT NOT NULL, body TEXT", &words).await;
    scene.configure(&letters("aggregate_id = 'customer'"));
    let words = ["typed_dlq", "`customer`", "cannot hold every aggregate_id", "make it text"];
    refused(&scene, &format!("{own}, customer BIGINT"), &words).await;
    scene.configure(&letters("event_type = 'kind'"));
    let words = ["typed_dlq", "`kind`", "smallint", "cannot hold every event_type"];
    refused(&scene, &format!("{own}, kind SMALLINT"), &words).await;
    scene.configure(&letters("headers = 'extra'"));
    refused(&scene, &format!("{own}, extra BIGINT"), &["`extra`", "cannot hold headers"]).await;
}

/// A table of words in one character set, and of letters in another.
fn words_in(charset: &str, letters: &str) -> String {
    format!(
        "CREATE TABLE words (id BIGINT AUTO_INCREMENT PRIMARY KEY, k VARCHAR(9), body TEXT NOT NULL,
             state VARCHAR(12) NOT NULL DEFAULT 'PENDING', error VARCHAR(20), changed DATETIME,
             answer TEXT)
             CHARACTER SET {charset};
         CREATE TABLE words_dlq (id BIGINT AUTO_INCREMENT PRIMARY KEY, row_id BIGINT NOT NULL,
             body TEXT NOT NULL, detail VARCHAR(6) NOT NULL, done BOOLEAN NOT NULL,
             done_by VARCHAR(6), note VARCHAR(8)) CHARACTER SET {letters}"
    )
}

fn words() -> Settings {
    by_hand(
        "table = 'words'
         [columns]
         id = 'id'
         aggregate_id = 'k'
         payload = 'body'
         status = 'state'
         last_error = 'error'
         updated_at = 'changed'
         response = 'answer'
         [constants]
         aggregate_type = 'a'
         event_type = 'e'
         [dead_letters]
         table = 'words_dlq'
         [dead_letters.columns]
         id = 'id'
         original_id = 'row_id'
         payload = 'body'
         error_detail = 'detail'
         resolved = 'done'
         resolved_by = 'done_by'
         resolution_note = 'note'",
    )
    .sink("keep_response", true)
}

fn states(pending: &str) -> toml::Table {
    [("pending".to_owned(), pending.into())].into_iter().collect()
}

async fn characters_that_a_column_lacks_fail_no_settle(place: Place) {
    for (charset, letter, resolution, answers) in [
        ("latin1", "café | é?? no", "olga? | ça va ??", 1),
        ("utf8mb3", "café | é日? no", "olga日 | ça va 日?", 2),
        ("utf8mb4", "café | é日😀 no", "olga日 | ça va 日😀", 2),
    ] {
        let Some(scene) = Scene::open_empty(place, &words()).await else { return };
        scene.db.execute(&words_in(charset, charset)).await;
        let _ = scene.site.run(&["migrate"]).await.exits(0);
        scene.target.answer(Answer::status(422).body("é日😀 no such thing"));
        scene.db.execute("INSERT INTO words (k, body) VALUES ('x', 'café')").await;
        let daemon = scene.site.start().await;
        scene.has_dead_letters(1).await;
        daemon.stop().await;
        let shown = "SELECT concat(body, ' | ', detail) FROM words_dlq";
        assert_eq!(scene.db.text(shown).await.unwrap(), letter, "{charset}");
        let resolve = ["dlq", "resolve", "1", "--note", "ça va 日😀", "--operator", "olga日"];
        assert_eq!(scene.json(&resolve).await["done"], 1);
        let shown = "SELECT concat(done_by, ' | ', note) FROM words_dlq WHERE done";
        assert_eq!(scene.db.text(shown).await.unwrap(), resolution, "{charset}");
        // An answer as a whole, or not at all.
        let daemon = scene.site.start().await;
        for (number, answer) in ["é", "日"].into_iter().enumerate() {
            scene.target.answer(Answer::status(200).body(answer));
            scene.db.execute("INSERT INTO words (k, body) VALUES ('y', '')").await;
            let delivered = "SELECT count(*) FROM words WHERE state = 'COMPLETED'";
            eventually("it is delivered", async || {
                (scene.db.integer(delivered).await > number as i64).then_some(())
            })
            .await;
        }
        daemon.stop().await;
        let kept = "SELECT count(*) FROM words WHERE CONVERT(answer USING utf8mb4) IN ('é', '日')";
        assert_eq!(scene.db.integer(kept).await, answers, "{charset}");
        let kept = "SELECT count(*) FROM words WHERE answer IS NOT NULL";
        assert_eq!(scene.db.integer(kept).await, answers, "{charset}");
        scene.balances(2, 1).await;
    }
}

async fn a_dead_letter_table_that_would_lose_characters_is_refused(place: Place) {
    let Some(scene) = Scene::open_empty(place, &words()).await else { return };
    for (charset, letters, words) in [
        ("utf8mb4", "latin1", ["`body`", "latin1", "utf8mb4", "convert it"]),
        ("utf8mb4", "utf8mb3", ["`body`", "utf8mb3", "utf8mb4", "convert it"]),
        // A character has one byte here, and up to four there.
        ("latin1", "utf8mb4", ["`body`", "(text)", "too small", "make it larger"]),
    ] {
        scene.db.execute(&words_in(charset, letters)).await;
        let _ = scene.site.run(&["migrate"]).await.exits(1).says(&words);
        scene.db.execute("DROP TABLE words; DROP TABLE words_dlq").await;
    }
    scene.db.execute(&words_in("latin1", "latin1")).await;
    scene.configure(&words().adopt("states", toml::Value::Table(states("待つ"))));
    let told = scene.site.run(&["migrate"]).await.exits(1);
    let _ = told.says(&["`state`", "待つ", "states.pending"]);
    scene.db.execute("DROP TABLE words; DROP TABLE words_dlq").await;
    scene.db.execute(&words_in("utf8mb3", "utf8mb4")).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.db.execute("INSERT INTO words (k, body, state) VALUES ('x', '{}', '待つ')").await;
    assert_eq!(scene.db.count("").await, 1, "a word of their language");
}

async fn an_id_may_be_text_in_one_table_and_a_uuid_in_the_other(place: Place) {
    let settings = by_hand(
        "table = 'pieces'
         [columns]
         id = 'id'
         aggregate_id = 'k'
         payload = 'body'
         content_hash = 'hash'
         status = 'state'
         updated_at = 'changed'
         [constants]
         aggregate_type = 'a'
         event_type = 'e'
         [dead_letters]
         table = 'pieces_dlq'
         [dead_letters.columns]
         id = 'id'
         original_id = 'piece'
         aggregate_id = 'k'
         payload = 'body'
         resolved = 'done'",
    );
    for (own, original) in [("UUID", "VARCHAR(40)"), ("VARCHAR(36)", "UUID")] {
        let Some(scene) = Scene::open_empty(place, &settings).await else { return };
        let (id, time) = match is_postgres(&scene.db) {
            true => ("BIGSERIAL", "TIMESTAMP"),
            false => ("BIGINT AUTO_INCREMENT", "DATETIME"),
        };
        let (dead, sent_again, new) = (uuid(1), uuid(2), uuid(3));
        let make = format!(
            "CREATE TABLE pieces (id {own} PRIMARY KEY, k VARCHAR(9), body TEXT NOT NULL,
                 hash VARCHAR(64), state VARCHAR(12) NOT NULL DEFAULT 'PENDING', changed {time});
             CREATE TABLE pieces_dlq (id {id} PRIMARY KEY, piece {original} NOT NULL, k VARCHAR(9),
                 body TEXT NOT NULL, done BOOLEAN NOT NULL DEFAULT FALSE);
             INSERT INTO pieces (id, k, body, state) VALUES ('{dead}', 'x', '', 'DEAD_LETTER'),
                 ('{sent_again}', 'x', '', 'PENDING');
             INSERT INTO pieces_dlq (piece, k, body) VALUES \
             ('{dead}', 'x', ''), ('{sent_again}', 'x', '')"
        );
        scene.db.execute(&make).await;
        let _ = scene.site.run(&["migrate"]).await.exits(0);
        assert_eq!(scene.takes().await, (1, 1));
        if own != "UUID" && is_postgres(&scene.db) {
            // Its row would not be found again by the identity.
            let shout = "INSERT INTO pieces (id, k, body) VALUES
                         ('AAAAAAAA-2222-4333-8444-000000000001', 'x', '')";
            let refused = scene.db.try_execute(shout).await.unwrap_err().to_string();
            assert!(refused.contains("not a UUID in lower case"), "{refused}");
        }
        scene.target.answer(Answer::status(422));
        let insert = format!("INSERT INTO pieces (id, k, body) VALUES ('{new}', 'y', '')");
        scene.db.execute(&insert).await;
        let daemon = scene.site.start().await;
        scene.has_dead_letters(3).await;
        daemon.stop().await;
        let open = async |id: &str| {
            let open = format!("SELECT count(*) FROM pieces_dlq WHERE piece = '{id}' AND NOT done");
            scene.db.integer(&open).await
        };
        assert_eq!(open(&new).await, 1);
        let letters = scene.dead_letters().await;
        let of_new = letters.iter().find(|letter| letter["event_id"] == new.as_str()).unwrap();
        let id = of_new["id"].to_string();
        assert_eq!(scene.json(&["dlq", "resolve", &id]).await["done"], 1);
        assert_eq!(open(&new).await, 0);
        let _ = scene.site.run(&["dlq", "reopen", &id]).await.exits(0);
        assert_eq!(open(&new).await, 1);
        scene.target.answer(Answer::ok());
        assert_eq!(scene.json(&["dlq", "retry", "--all"]).await["done"], 3);
        let waiting = "SELECT count(*) FROM pieces WHERE state = 'PENDING'";
        assert_eq!(scene.db.integer(waiting).await, 3);
        let daemon = scene.site.start().await;
        scene.drained().await;
        daemon.stop().await;
        let delivered = "SELECT count(*) FROM pieces WHERE state = 'COMPLETED'";
        assert_eq!(scene.db.integer(delivered).await, 3, "{own}, {original}");
        assert_eq!(open(&new).await + open(&dead).await + open(&sent_again).await, 0);
    }
}
