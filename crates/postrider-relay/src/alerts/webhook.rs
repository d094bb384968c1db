//! Alerts as JSON to a webhook.

use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response};
use url::Url;

use super::{Channel, Message, NotSent};
use crate::http::{Signer, connection_error};

/// A webhook.
pub struct WebhookChannel {
    client: reqwest::Client,
    name: String,
    target: String,
    url: Url,
    signer: Signer,
}

impl WebhookChannel {
    /// Creates a channel to this URL. With secrets, requests are signed by the Standard Webhooks
    /// specification.
    ///
    /// # Errors
    /// If the URL or a secret is not valid, or the HTTP client cannot be created.
    pub fn new(
        name: impl Into<String>,
        url: &str,
        signing_secrets: &[String],
    ) -> Result<Self, String> {
        let (url, target) = host_of(url)?;
        let client = crate::http::client(Duration::from_secs(10))?;
        let signer = Signer::new(signing_secrets)?;
        Ok(Self { client, name: name.into(), target, url, signer })
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn target(&self) -> &str {
        &self.target
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        let body = serde_json::to_string(message).map_err(|e| NotSent::for_now(e.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.signer.sign(&mut headers, &message.id, Utc::now(), &body);
        answered(sent(self.client.post(self.url.clone()).headers(headers).body(body)).await?)
    }
}

/// Parses an HTTP URL, and returns it with its host for display. Errors do not show the URL: it is
/// a secret.
pub(super) fn host_of(url: &str) -> Result<(Url, String), String> {
    let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let host = parsed.as_ref().and_then(|url| url.host_str().map(str::to_owned));
    parsed.zip(host).ok_or_else(|| "`url` is not a URL like https://example.com/hook".to_owned())
}

/// Sends a request. Errors do not contain the URL.
pub(super) async fn sent(request: RequestBuilder) -> Result<Response, NotSent> {
    let answer = request.send().await;
    answer.map_err(|error| NotSent::for_now(connection_error(&error)))
}

/// Interprets the response. Status 400, 413, 415 and 422 are about the message; others may be
/// temporary.
pub(super) fn answered(answer: Response) -> Result<String, NotSent> {
    let status = answer.status();
    if status.is_success() {
        return Ok(format!("HTTP {status}"));
    }
    let refused = matches!(status.as_u16(), 400 | 413 | 415 | 422);
    Err(NotSent { error: format!("answered HTTP {status}"), refused })
}
