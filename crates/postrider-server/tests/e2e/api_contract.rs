//! The OpenAPI document, and the page that shows the API.

use std::path::Path;

use postrider_testkit::Answer;

use crate::caller::{Caller, with_roles};
use crate::scene::{BINARY, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    schemathesis_finds_no_fault_and_no_answer_that_is_not_in_the_document,
});
mod on_one_store {
    crate::scene::tests!(sqlite {
        the_document_is_served_without_a_token,
        the_commands_of_the_page_work_as_they_stand_there,
    });
}

const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");
const PAGE: &str = include_str!("../../../../docs/api.md");

/// A change of the API changes the document, and the change is seen in review.
#[test]
fn the_document_in_the_repository_is_what_the_program_prints() {
    let printed = std::process::Command::new(BINARY).arg("openapi").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed == DOCUMENT, "run `postrider openapi > docs/openapi.json`: it is stale");
}

async fn the_document_is_served_without_a_token(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;
    let served = Caller::anonymous(&daemon).call("GET", "/api/v1/openapi.json", "").await;
    assert_eq!((served.status, served.body.as_str()), (200, DOCUMENT));
    assert_eq!(served.json()["openapi"], "3.1.0");
    daemon.stop().await;
}

/// Thousands of requests that fit the document, and as many that nearly do.
async fn schemathesis_finds_no_fault_and_no_answer_that_is_not_in_the_document(place: Place) {
    let Ok(program) = std::env::var("SCHEMATHESIS") else {
        return postrider_testkit::skip(
            place.test,
            "SCHEMATHESIS is not set; dev/test provides it",
        );
    };
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    let settings = Settings::new().api("sign_in_failures_per_min", 1_000_000);
    let [_, _, admin] = with_roles(&scene, settings.api("requests_per_s", 1_000_000)).await;
    scene.append_orders(5).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(5).await;
    // Things that are there, so that not every request is about nothing.
    let known = "[parameters]\noutbox = 'orders'\nsink = 'api'\n'path.id' = 3\n";
    std::fs::write(scene.site.path("schemathesis.toml"), known).unwrap();
    let mut command = tokio::process::Command::new(program);
    command.args(["run", &format!("http://{}/api/v1/openapi.json", daemon.address())]);
    command.args(["--header", &format!("Authorization: Bearer {admin}")]);
    // The stream does not end, and lines of JSON are not what it can make up.
    command.args(["--exclude-path", "/api/v1/stream"]);
    command.args(["--exclude-path", "/api/v1/dead-letters/import"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "30"]);
    command.args(["--seed", "1", "--no-color"]).current_dir(scene.site.folder());
    let ran = command.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.stop().await;
}

/// The blocks of the page, one after the other, in one shell.
async fn the_commands_of_the_page_work_as_they_stand_there(place: Place) {
    if std::process::Command::new("curl").arg("--version").output().is_err() {
        return postrider_testkit::skip(place.test, "there is no curl");
    }
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    let [_, _, admin] = with_roles(&scene, Settings::new()).await;
    scene.append_orders(5).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(5).await;
    scene.target.answer(Answer::ok());
    let blocks = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let script: String = blocks.collect();
    assert!(script.matches("call ").count() > 10, "the page was not understood: {script}");
    let folder = Path::new(BINARY).parent().unwrap().display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let ran = tokio::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", path)
        .env("POSTRIDER_URL", format!("http://{}", daemon.address()))
        .env("POSTRIDER_TOKEN", admin)
        .current_dir(scene.site.folder())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    for word in
        ["\"name\":\"ada\"", "retried_as", "\"dry_run\":true", "\"known\":3", "running_since"]
    {
        assert!(said.contains(word), "{word} is not in:\n{said}");
    }
    daemon.stop().await;
}

/// What the server refuses, the document does not allow: lengths, forms, fields that exclude one
/// another.
#[test]
fn the_document_has_the_limits_that_the_server_keeps() {
    let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
    assert_eq!(document["servers"][0]["url"], "/");
    let event = &document["components"]["schemas"]["NewEventBody"];
    assert_eq!(event["properties"]["event_type"]["maxLength"], 200);
    assert_eq!(event["properties"]["aggregate_id"]["maxLength"], 255);
    assert!(event["properties"]["deliver_after"]["pattern"].is_string(), "{event:#}");
    let one = &event["not"]["not"]["oneOf"];
    assert_eq!(one[0]["required"][0], "payload", "one of the two: {event:#}");
    assert_eq!(one[1]["required"][0], "payload_text", "one of the two: {event:#}");
    assert!(document["components"]["schemas"]["EditBody"]["not"].is_object(), "some edit");
    let many = &document["components"]["schemas"]["OneOrMany"]["oneOf"][1];
    assert_eq!((&many["minItems"], &many["maxItems"]), (&1.into(), &10_000.into()));
    let filter = &document["components"]["schemas"]["DeadLetterFilterBody"]["properties"];
    assert_eq!(filter["event_type"]["maxLength"], 1_000);
    for (path, item) in document["paths"].as_object().unwrap() {
        for parameter in item["get"]["parameters"].as_array().into_iter().flatten() {
            let schema = &parameter["schema"];
            let free = schema["type"] == "string"
                && schema["format"].is_null()
                && schema["enum"].is_null()
                && parameter["in"] == "query";
            assert!(!free || schema["maxLength"] == 1_000, "{path}: {parameter:#}");
        }
    }
}

/// What a route answers is described: no answer without a schema but the empty ones.
#[test]
fn every_answer_of_the_document_has_a_form_and_every_route_its_failures() {
    let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
    let mut routes = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, route) in item.as_object().unwrap() {
            let answers = route["responses"].as_object().unwrap();
            for status in ["400", "401", "403", "429", "500", "503", "504"] {
                assert!(answers.contains_key(status), "{method} {path} lacks {status}");
            }
            for (status, answer) in answers {
                let answer = match answer["$ref"].as_str() {
                    Some(name) => document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name}")),
                    None => answer,
                };
                let described = answer["content"].as_object().is_some_and(|c| !c.is_empty());
                assert!(described || status == "204", "{method} {path}: {status} has no form");
            }
            assert!(route["operationId"].is_string() && route["tags"].is_array());
            routes += 1;
        }
    }
    assert!(routes > 30, "{routes} routes");
}

/// Programs that make clients name their functions so.
#[test]
fn every_route_of_the_document_has_a_name_of_its_own() {
    let document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
    let items = document["paths"].as_object().unwrap().values();
    let routes = items.flat_map(|item| item.as_object().unwrap().values());
    let mut names: Vec<&str> =
        routes.map(|route| route["operationId"].as_str().unwrap_or_default()).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty() && !names.contains(&""), "{twice:?}");
}
