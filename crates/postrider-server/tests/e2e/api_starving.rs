//! Clients without a token take neither the time nor the places of others.

use std::net::SocketAddr;

use postrider_testkit::{PATIENCE, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::caller::with_roles;
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        a_body_that_never_ends_is_cut_off_where_no_token_is_needed,
        one_address_that_holds_connections_leaves_the_others_theirs,
    });
}

/// All that the server says until it hangs up.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(PATIENCE, read).await.expect("the server never hangs up");
    // A reset is an end as well: the server did not read what was sent.
    drop(read);
    String::from_utf8_lossy(&answer).into_owned()
}

async fn a_body_that_never_ends_is_cut_off_where_no_token_is_needed(place: Place) {
    let settings = Settings::new().api("request_timeout", "300ms");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    with_roles(&scene, settings).await;
    let daemon = scene.site.start().await;
    for method in ["POST", "DELETE"] {
        let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
        let head = format!(
            "{method} /api/v1/session HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = until_closed(&mut stream).await;
        let status = if method == "POST" { "504" } else { "204" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method}: {answer}");
    }
    daemon.stop().await;
}

/// What `/healthz` answers to a client with that address; nothing if the connection is refused.
async fn health(daemon: SocketAddr, from: [u8; 4]) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let mut stream = socket.connect(daemon).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    // The server may have hung up already.
    drop(stream.write_all(request).await);
    until_closed(&mut stream).await
}

async fn one_address_that_holds_connections_leaves_the_others_theirs(place: Place) {
    let settings = Settings::new().server("connections_per_address_max", 4);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    let (greedy, other) = ([127, 0, 0, 1], [127, 0, 0, 2]);
    // Connections of the start-up probe may still be on their way out.
    let held = eventually("all places of the address are taken", async || {
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(TcpStream::connect(daemon.address()).await.unwrap());
        }
        health(daemon.address(), greedy).await.is_empty().then_some(held)
    });
    let held = held.await;
    let answer = health(daemon.address(), other).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(daemon.log().contains("connections_per_address_max"), "{}", daemon.log());
    drop(held);
    eventually("a place is free again", async || {
        health(daemon.address(), greedy).await.starts_with("HTTP/1.1 200 ").then_some(())
    })
    .await;
    daemon.stop().await;
}
