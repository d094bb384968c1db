//! Requests of random bytes: the daemon answers what it understands, and nothing makes it fail.

use postrider_testkit::PATIENCE;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite { fuzz_requests });
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let pieces = [
        "GET ",
        "POST ",
        "HEAD ",
        "DELETE ",
        "OPTIONS * ",
        "/",
        "/api/v1/outboxes",
        "/api/v1/whoami",
        "/api/v1/session",
        "/api/v1/outboxes/orders/events",
        "?limit=",
        "?",
        "&",
        "%ff",
        "%00",
        "..",
        "/gateway/x",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "host: localhost\r\n",
        "host: a b\r\n",
        "content-length: 2\r\n",
        "content-length: -2\r\n",
        "content-type: application/json\r\n",
        "transfer-encoding: chunked\r\n",
        "authorization: Bearer x\r\n",
        "if-none-match: W/\r\n",
        "cookie: postrider_session=\r\n",
        "\r\n",
        "{}",
        "[]",
        "{\"aggregate_type\":\"a\",",
        "\"payload\":",
        "5\r\n{\"a\":\r\n",
        "0\r\n\r\n",
        "expect: 100-continue\r\n",
    ];
    let whole = "GET /api/v1/outboxes HTTP/1.1\r\nhost: localhost\r\n";
    let piece = prop_oneof![
        6 => proptest::sample::select(pieces.to_vec()).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => Just(whole.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..24),
    ];
    vec(piece, 1..16).prop_map(|pieces| pieces.concat())
}

async fn fuzz_requests(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new().api("requests_per_s", 1_000_000)).await
    else {
        return;
    };
    let daemon = scene.site.start().await;
    let mut runner = TestRunner::default();
    for _ in 0..runner.config().cases {
        let request = request().new_tree(&mut runner).unwrap().current();
        let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
        drop(stream.write_all(&request).await);
        drop(stream.shutdown().await);
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let shown = String::from_utf8_lossy(&request);
        drop(read.unwrap_or_else(|_| panic!("no end of the answer to {shown:?}")));
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("HTTP/1.1 50"), "{shown:?}: {answer}");
    }
    daemon.ready().await;
    let log = daemon.stop().await;
    assert!(!log.contains("panicked"), "{log}");
}
