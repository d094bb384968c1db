//! The dashboard at `/`: a shell that the browser fills from the API. It contains no data, so
//! everyone may load it.
//!
//! Scripts and styles are served under a path with their hash and never change there. The shell
//! names that path and is revalidated on every load. See `docs/decisions/0066`.

mod assets;

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use super::ServerState;
use super::extract::InPath;
use super::problem::Problem;
use assets::{ASSETS, Asset, SHELL};

/// The dashboard's own paths: the browser tells them apart, and the server returns the same shell
/// for all of them.
const PLACES: [&str; 8] = [
    "/",
    "/events",
    "/events/{outbox}/{id}",
    "/dead-letters",
    "/dead-letters/{outbox}/{id}",
    "/outboxes",
    "/alerts",
    "/audit",
];

/// The shell as it is sent, with the tags that identify its version.
struct Shell {
    build: String,
    body: Bytes,
    tag: HeaderValue,
    /// For all scripts and styles: their paths tell them apart.
    asset_tag: HeaderValue,
}

static PAGE: LazyLock<Shell> = LazyLock::new(|| {
    let build = hash(ASSETS.iter().flat_map(|asset| [asset.name, asset.body]));
    // Preloading takes one round trip instead of one for each level of imports.
    let module = |asset: &&Asset| asset.name.ends_with(".js") && asset.name != "theme.js";
    let modules = ASSETS.iter().filter(module);
    let preloads: String = modules
        .map(|asset| format!("<link rel=\"modulepreload\" href=\"{}\">\n", path(&build, asset)))
        .collect();
    let body = SHELL.replace("<!--modules-->\n", &preloads).replace("{build}", &build);
    let quoted = |hash: &str| {
        let tag = HeaderValue::try_from(format!("\"{hash}\""));
        tag.unwrap_or(HeaderValue::from_static("\"\""))
    };
    let (tag, asset_tag) = (quoted(&hash([body.as_str()])), quoted(&build));
    Shell { build, body: body.into(), tag, asset_tag }
});

pub(super) fn routes() -> Router<ServerState> {
    let shells = PLACES.into_iter().fold(Router::new(), |all, path| all.route(path, get(shell)));
    shells.route("/page/{build}/{name}", get(asset))
}

async fn shell(headers: HeaderMap) -> Response {
    let page = &*PAGE;
    let tags = [(header::ETAG, page.tag.clone())];
    // The browser may keep it, but must revalidate it on every load.
    let cache = [(header::CACHE_CONTROL, "no-cache")];
    if is_known(&headers, &page.tag) {
        return (StatusCode::NOT_MODIFIED, tags, cache).into_response();
    }
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (tags, cache, kind, page.body.clone()).into_response()
}

/// Serves a script or a style. A wrong hash means that the dashboard in the browser belongs to
/// another version than this server, after an upgrade. An open dashboard has already loaded all its
/// files, and a new one requests the new files.
async fn asset(
    InPath((build, name)): InPath<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = ASSETS.iter().find(|asset| asset.name == name && PAGE.build == build);
    let asset = found.ok_or_else(|| {
        Problem::new(
            404,
            "the dashboard has no such file; if the server was upgraded, reload the dashboard",
        )
    })?;
    let cache = [(header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    let tag = [(header::ETAG, PAGE.asset_tag.clone())];
    if is_known(&headers, &PAGE.asset_tag) {
        return Ok((StatusCode::NOT_MODIFIED, tag, cache).into_response());
    }
    Ok((tag, cache, [(header::CONTENT_TYPE, asset.kind())], asset.body).into_response())
}

/// Returns whether the client already has the version with this tag. `If-None-Match` is a list,
/// possibly over several headers, whose tags may be weak, as made by a proxy that compresses (RFC
/// 9110, 13.1.2).
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).into_iter();
    given
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}

fn path(build: &str, asset: &Asset) -> String {
    format!("/page/{build}/{}", asset.name)
}

fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part.len().to_le_bytes());
        sha.update(part);
    }
    sha.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a file is missing in the list, the dashboard does not load.
    #[test]
    fn every_file_of_the_folder_is_served_and_no_other() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/page/assets");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        let mut served: Vec<_> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
        served.push("index.html".to_owned());
        files.sort();
        served.sort();
        assert_eq!(files, served);
    }

    #[test]
    fn a_tag_is_found_in_a_list_and_weak_or_not() {
        let tag = HeaderValue::from_static("\"a1\"");
        let known = |given: &[&str]| {
            let pair =
                |value: &&str| (header::IF_NONE_MATCH, HeaderValue::try_from(*value).unwrap());
            is_known(&given.iter().map(pair).collect(), &tag)
        };
        for given in
            [&["\"a1\""][..], &["W/\"a1\""], &["\"b\", W/\"a1\""], &["*"], &["\"b\"", "\"a1\""]]
        {
            assert!(known(given), "{given:?}");
        }
        for given in [&[][..], &["\"b\""], &["a1"], &["w/\"a1\""], &["\"a1"]] {
            assert!(!known(given), "{given:?}");
        }
    }

    /// The policy forbids inline scripts and styles; the browser would drop them, and the dashboard
    /// would show no error.
    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        for text in ASSETS.iter().map(|asset| asset.body).chain([SHELL]) {
            for forbidden in [" style=", "onclick=", "<style", "javascript:", "eval(", "innerHTML"]
            {
                assert!(!text.contains(forbidden), "{forbidden}");
            }
            for scheme in text.match_indices("://").map(|(at, _)| at) {
                let word = text[..scheme].rfind(|c: char| !c.is_ascii_alphabetic());
                let url = &text[word.map_or(0, |before| before + 1)..];
                let shown: String = url.chars().take(60).collect();
                assert!(url.starts_with("http://www.w3.org/"), "{shown}");
            }
        }
        let body = std::str::from_utf8(&PAGE.body).unwrap();
        assert!(!body.contains("{build}") && body.contains("modulepreload"), "{body}");
    }
}
