//! Requests as no honest client sends them: each is refused by the ledger, and none costs much.

use std::net::SocketAddr;

use postrider::NewEvent;
use postrider_testkit::{
    PATIENCE, eventually,
    http::{Receiver, Reply},
    http_client::send,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::caller::{Caller, with_roles};
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        a_sign_in_reads_no_more_than_a_token_needs,
        a_client_that_takes_nothing_of_its_answers_loses_its_connection,
        types_without_number_do_not_make_an_answer_without_end,
        without_a_token_nobody_behind_a_proxy_is_admin,
        a_page_of_another_site_calls_no_upstream,
        a_request_names_one_host,
        a_body_that_is_broken_is_not_called_too_large,
        a_connection_that_closes_says_so_before,
    });
}

/// What the server answers to these bytes until it closes the connection.
async fn raw(daemon: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(daemon).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_all(stream).await
}

/// The same for a client that sends nothing after them.
async fn cut_off(daemon: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(daemon).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(stream).await
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A reset is an end as well.
    drop(read.expect("the server answers and closes"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// The same for a client that goes on sending: the first bytes of the answer.
async fn first_line(daemon: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(daemon).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await;
    let length = read.expect("the server answers").unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

async fn a_sign_in_reads_no_more_than_a_token_needs(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;
    let head = "POST /api/v1/session HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\n";
    let start = format!(r#"{{"token":"{}"#, "x".repeat(4_096));
    let announced = format!("{head}content-length: 5000000\r\n\r\n{start}");
    let chunked =
        format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{start}\r\n", start.len());
    for request in [announced, chunked] {
        let answer = first_line(daemon.address(), &request).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    daemon.stop().await;
}

async fn a_client_that_takes_nothing_of_its_answers_loses_its_connection(place: Place) {
    let settings = Settings::new().server("connections_per_address_max", 4);
    let settings = settings.server("write_timeout", "300ms");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    // More than what the two ends keep for the connection.
    let ask = "GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(300);
    let held = eventually("all places of the address are taken", async || {
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
            // One that was refused cannot be written to.
            drop(stream.write_all(ask.as_bytes()).await);
            held.push(stream);
        }
        daemon.get("/healthz").await.is_err().then_some(held)
    });
    let held = held.await;
    eventually("their places are free again", async || daemon.get("/healthz").await.ok()).await;
    drop(held);
    daemon.stop().await;
}

async fn types_without_number_do_not_make_an_answer_without_end(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let event = |number: usize, kind: &str| NewEvent::new("order", number.to_string(), kind, "{}");
    let mut events: Vec<_> =
        (0..300).map(|number| event(number, &format!("Order{number:03}Placed"))).collect();
    events.extend((0..5).map(|number| event(number, "Usual")));
    let committed = scene.append(&events).await;
    let daemon = scene.site.start().await;
    scene.received(&committed).await;
    scene.drained().await;
    let outbox = Caller::anonymous(&daemon).get("/api/v1/outboxes/orders").await;
    let by_type = outbox["by_type"].as_array().unwrap();
    assert_eq!(by_type.len(), 100, "{outbox:#}");
    assert!(by_type.iter().any(|line| line["event_type"] == "Usual"), "those with most events");
    assert_eq!(outbox["other_types"]["types"], 201, "{outbox:#}");
    assert_eq!(outbox["other_types"]["appended"], 201, "{outbox:#}");
    assert_eq!(outbox["appended"], 305, "{outbox:#}");
    daemon.stop().await;
}

async fn without_a_token_nobody_behind_a_proxy_is_admin(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    for header in ["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1", "Via: 1.1 nginx"] {
        let request = format!(
            "GET /api/v1/whoami HTTP/1.1\r\nhost: localhost\r\n{header}\r\nconnection: \
             close\r\n\r\n"
        );
        let answer = raw(daemon.address(), &request).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("proxy"), "{answer}");
    }
    daemon.stop().await;
    let [viewer, ..] = with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;
    let bearer = format!("bearer {viewer}");
    let headers = [("x-forwarded-for", "192.0.2.1"), ("authorization", bearer.as_str())];
    let named = send(daemon.address(), "GET", "/api/v1/whoami", &headers, "").await.unwrap();
    assert_eq!(named.status, 200, "a proxy in front is what tokens are for: {named:?}");
    daemon.stop().await;
}

async fn a_page_of_another_site_calls_no_upstream(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let upstream = Receiver::start(|_| Reply::Status(200)).await;
    let config = std::fs::read_to_string(scene.site.path("postrider.toml")).unwrap();
    scene.site.configure(&format!(
        "{config}\n[[outbox]]\nname = 'calls'\npreset = 'api-call'\nsink = 'shop'\n\
         dedupe = 'open'\n[[gateway]]\nname = 'shop'\nurl = '{}'\n",
        upstream.url("/v1")
    ));
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    let daemon = scene.site.start().await;
    let get = async |headers: &[(&str, &str)]| {
        send(daemon.address(), "GET", "/gateway/shop/stock", headers, "").await.unwrap().status
    };
    assert_eq!(get(&[("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(get(&[("origin", "https://evil.example")]).await, 403);
    assert_eq!(upstream.received().requests.len(), 0, "nothing reached the upstream");
    assert_eq!((get(&[]).await, get(&[("sec-fetch-site", "none")]).await), (200, 200));
    daemon.stop().await;
}

async fn a_request_names_one_host(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    for (target, hosts, status) in [
        ("/api/v1/whoami", "host: localhost\r\n", "200"),
        ("/api/v1/whoami", "", "400"),
        ("/api/v1/whoami", "host: localhost\r\nhost: evil.example\r\n", "400"),
        ("/api/v1/whoami", "host: evil.example\r\nhost: localhost\r\n", "400"),
        ("http://evil.example/api/v1/whoami", "host: localhost\r\n", "400"),
        ("http://localhost/api/v1/whoami", "host: localhost\r\n", "200"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        let answer = raw(daemon.address(), &request).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{target} {hosts:?}: {answer}");
    }
    let probe = raw(daemon.address(), "GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(probe.starts_with("HTTP/1.0 200 "), "{probe}");
    daemon.stop().await;
}

async fn a_body_that_is_broken_is_not_called_too_large(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    let head = "POST /api/v1/outboxes/orders/events HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\n";
    for body in [
        "content-length: 500\r\n\r\n{\"aggregate_type\"",
        "transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n10\r\n{}",
    ] {
        let answer = cut_off(daemon.address(), &format!("{head}{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
        assert!(!answer.contains("larger"), "{answer}");
    }
    assert_eq!(scene.db.count("").await, 0);
    daemon.stop().await;
}

async fn a_connection_that_closes_says_so_before(place: Place) {
    let settings = Settings::new().server("body_bytes_max", 1_000);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    let head = "POST /api/v1/outboxes/orders/events HTTP/1.1\r\nhost: localhost\r\n";
    let json = "content-type: application/json\r\n";
    let announced = "content-length: 100000\r\n\r\n{";
    let chunked = format!("transfer-encoding: chunked\r\n\r\n7d0\r\n{}\r\n", "x".repeat(2_000));
    for (request, status) in [
        (format!("{head}{json}{announced}"), "413"),
        (format!("{head}{json}{chunked}"), "413"),
        (format!("{head}content-type: text/plain\r\n{announced}"), "415"),
    ] {
        let answer = first_line(daemon.address(), &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    }
    let whole = format!("{head}{json}content-length: 2\r\n\r\n{{}}");
    let answer = first_line(daemon.address(), &whole).await;
    assert!(!answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    daemon.stop().await;
}
