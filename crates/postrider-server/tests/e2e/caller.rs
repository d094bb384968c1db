//! Somebody who calls the API, with a token or without.

use postrider_testkit::{
    Daemon,
    http_client::{Response, send},
};
use serde_json::Value;

use crate::scene::{Scene, Settings};

/// A daemon and who talks to it.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) daemon: &'a Daemon,
    pub(crate) token: Option<&'a str>,
}

impl<'a> Caller<'a> {
    /// Without a token.
    pub(crate) fn anonymous(daemon: &'a Daemon) -> Self {
        Self { daemon, token: None }
    }

    pub(crate) fn with(daemon: &'a Daemon, token: &'a str) -> Self {
        Self { daemon, token: Some(token) }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Response {
        let bearer = format!("Bearer {}", self.token.unwrap_or_default());
        let mut headers = vec![("content-type", "application/json")];
        if self.token.is_some() {
            headers.push(("authorization", &bearer));
        }
        send(self.daemon.address(), method, path, &headers, body.to_owned()).await.unwrap()
    }

    /// Gets what must be there.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> impl Future<Output = Value> {
        self.expect("GET", path, "", 200)
    }

    /// Posts what must be accepted.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> impl Future<Output = Value> {
        self.expect("POST", path, body.to_string(), 200)
    }

    /// Calls, and fails unless the status is that.
    #[track_caller]
    pub(crate) fn expect(
        &self,
        method: &str,
        path: &str,
        body: impl Into<String>,
        status: u16,
    ) -> impl Future<Output = Value> {
        let (place, body) = (std::panic::Location::caller(), body.into());
        async move {
            let answer = self.call(method, path, &body).await;
            assert_eq!(answer.status, status, "{method} {path} at {place}: {answer:#?}");
            answer.json()
        }
    }
}

/// A token of that role, made by the command, as it stands in the file.
pub(crate) async fn new_token(scene: &Scene, name: &str, role: &str) -> (String, String) {
    let args = ["token", "new", "--name", name, "--role", role, "--json"];
    let made = scene.site.run(&args).await.exits(0).json();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("token"), text("line"))
}

/// Tokens of `vera` (viewer), `otto` (operator) and `ada` (admin), in a file that the daemons read.
pub(crate) async fn with_roles(scene: &Scene, settings: Settings) -> [String; 3] {
    let (viewer, first) = new_token(scene, "vera", "viewer").await;
    let (operator, second) = new_token(scene, "otto", "operator").await;
    let (admin, third) = new_token(scene, "ada", "admin").await;
    write_tokens(scene, &[&first, &second, &third]);
    scene.configure(&settings.api("tokens_file", "tokens").api("requests_per_s", 10_000));
    [viewer, operator, admin]
}

pub(crate) fn write_tokens(scene: &Scene, lines: &[&str]) {
    std::fs::write(scene.site.path("tokens"), lines.join("\n")).unwrap();
}
