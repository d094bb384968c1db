//! Connections to the store that a command was given.

use std::sync::Arc;

use postrider_store::{ConnectOptions, Database};

use crate::Failure;

/// Connects. An error names the store without its password.
pub async fn connect(
    url: &str,
    connections_max: u32,
    create: bool,
) -> Result<Arc<dyn Database>, Failure> {
    let options = ConnectOptions { connections_max, create };
    postrider_store::connect(url, &options)
        .await
        .map_err(|error| Failure::Connect { url: without_password(url), error })
}

/// Returns a store URL without its password and parameters (which may hold a password as well), for
/// messages.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // Split at the last `@`: a password that is not percent-encoded may contain `@`, `?` and `/`.
    let (user, host) = match rest.rsplit_once('@') {
        Some((login, host)) => (login.split(':').next().map(|user| format!("{user}@")), host),
        None => (None, rest),
    };
    let host = host.split('?').next().unwrap_or_default();
    format!("{scheme}://{}{host}", user.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let url = without_password("postgres://app:hun@ter2@db:5432/app?x=1");
        assert_eq!(url, "postgres://app@db:5432/app");
        let url = without_password("postgres://db:5432/app?user=app&password=hunter2");
        assert_eq!(url, "postgres://db:5432/app");
        assert_eq!(without_password("sqlite:./a.db"), "sqlite:./a.db");
    }
}
