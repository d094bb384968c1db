//! HTTP clients, and the messages of connection errors.

use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Proxy};
use url::Url;

use super::guard::{Denied, PublicAddresses};

/// Creates a client for the settings of a sink: through a proxy, or only to public addresses. The
/// certificates in `ca` are trusted in addition to those of the system.
pub(crate) fn client_for(
    timeout: Duration,
    proxy: Option<&str>,
    deny_private_addresses: bool,
    ca: Option<&Path>,
) -> Result<Client, String> {
    let mut builder = builder(timeout);
    if let Some(ca) = ca {
        builder = builder.tls_certs_merge(certificates(ca)?);
    }
    if let Some(proxy) = proxy {
        if deny_private_addresses {
            return Err(
                "`proxy` and `deny_private_addresses` exclude each other: it is the proxy \
                        that looks up names, so that it must refuse private addresses"
                    .to_owned(),
            );
        }
        // The library's errors may show the URL, and with it the password.
        let parsed = Url::parse(proxy).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let proxy = parsed.and_then(|url| Proxy::all(url).ok()).ok_or_else(|| {
            "`proxy` is not a URL like http://user:password@proxy.example.com:3128".to_owned()
        })?;
        builder = builder.proxy(proxy);
    }
    if deny_private_addresses {
        // A proxy of the environment would look up the names, without the guard.
        builder = builder.no_proxy().dns_resolver(PublicAddresses);
    }
    build(builder)
}

/// Reads the certificates of a file in PEM form.
fn certificates(ca: &Path) -> Result<Vec<Certificate>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("`tls.ca` = `{}`: {error}", ca.display());
    let pem = std::fs::read(ca).map_err(|error| wrong(&error))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&error))?;
    match found.is_empty() {
        true => Err(wrong(&"it holds no certificate in PEM form")),
        false => Ok(found),
    }
}

/// Creates a client with this timeout that does not follow redirects.
pub(crate) fn client(timeout: Duration) -> Result<Client, String> {
    build(builder(timeout))
}

fn builder(timeout: Duration) -> ClientBuilder {
    crate::tls::install_provider();
    Client::builder()
        .timeout(timeout)
        .connect_timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
}

fn build(builder: ClientBuilder) -> Result<Client, String> {
    builder.build().map_err(|error| format!("no HTTP client: {error}"))
}

/// Describes a connection error without the URL, which may contain secrets.
pub(crate) fn connection_error(error: &reqwest::Error) -> String {
    let mut text = match () {
        () if error.is_timeout() => "timeout".to_owned(),
        () if error.is_connect() => "cannot connect".to_owned(),
        () => "connection lost".to_owned(),
    };
    for cause in causes(error) {
        text = format!("{text}: {cause}");
    }
    text
}

/// Returns the refusal of the guard, if that caused the error.
pub(crate) fn denied(error: &reqwest::Error) -> Option<&Denied> {
    causes(error).find_map(|cause| cause.downcast_ref::<Denied>())
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}
