//! Sends single HTTP requests with full control of the headers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::PATIENCE;

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as text.
    pub body: String,
}

impl Response {
    /// Parses the body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}\nin: {self:#?}"))
    }
}

/// Sends one request on its own connection. `Host` is the address unless `headers` contain one.
///
/// # Errors
/// If there is no connection, or no response within [`PATIENCE`].
pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Response, String> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    let exchange = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.map_err(text)?.into_parts();
        let body = body.collect().await.map_err(text)?.to_bytes();
        let headers = parts.headers.iter().map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        Ok(Response {
            status: parts.status.as_u16(),
            headers: headers.collect(),
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    };
    tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer in time".to_owned())?
}

/// A response whose body arrives in pieces.
#[derive(Debug)]
pub struct Followed {
    /// Status code.
    pub status: u16,
    body: hyper::body::Incoming,
}

impl Followed {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Panics
    /// If nothing arrives within [`PATIENCE`].
    pub async fn next(&mut self) -> Option<String> {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
        let frame = frame.expect("something comes, or the end")?.ok()?;
        frame.into_data().ok().map(|data| String::from_utf8_lossy(&data).into_owned())
    }
}

/// Gets a path, and returns as soon as the headers have arrived.
///
/// # Errors
/// If there is no connection, or no response within [`PATIENCE`].
pub async fn follow(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Followed, String> {
    let mut request = Request::builder().uri(path).header("host", address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let exchange = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.map_err(text)?.into_parts();
        Ok(Followed { status: parts.status.as_u16(), body })
    };
    tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer in time".to_owned())?
}

fn text(error: hyper::Error) -> String {
    error.to_string()
}
