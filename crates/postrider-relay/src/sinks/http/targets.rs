//! The URLs that the requests of a sink go to, by route.

use std::borrow::Cow;

use url::Url;

use crate::message::routes::{RouteSettings, Router};
use crate::message::template::{Template, percent_encoded};
use crate::message::view::EventView;
use crate::outcome::Outcome;

/// The URLs of a sink.
pub(crate) struct Targets {
    router: Router,
    /// For each template of the router: its host, if it does not depend on the event.
    hosts: Vec<Option<String>>,
    /// For each template of the router: the URL, if it does not depend on the event.
    urls: Vec<Option<Url>>,
    /// For each template of the router: the number of segments `.` and `..` that it contains
    /// itself.
    dots: Vec<usize>,
}

/// The target of one event.
pub(crate) struct Target<'a> {
    pub(crate) url: Url,
    /// `host:port`.
    pub(crate) host: Cow<'a, str>,
    /// Whether the host depends on the event: if it is invalid, the event is the cause.
    pub(crate) host_by_event: bool,
}

impl Targets {
    /// Parses the templates; `url` is the sink's own setting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub(crate) fn new(url: Option<&str>, routes: &[RouteSettings]) -> Result<Self, String> {
        let router = Router::new("url", url, routes)?;
        let (mut hosts, mut urls, mut dots) = (Vec::new(), Vec::new(), Vec::new());
        for (setting, template) in router.templates() {
            check(template).map_err(|error| format!("{setting} {error}"))?;
            hosts.push(fixed_host(template));
            urls.push(template.fixed().and_then(|url| Url::parse(url).ok()));
            dots.push(dot_segments(&template.outline("x")));
        }
        Ok(Self { router, hosts, urls, dots })
    }

    /// Returns the target of an event.
    ///
    /// # Errors
    /// `NoRoute` if there is none, `CannotEncode` if the event does not result in a valid URL.
    pub(crate) fn target(&self, view: &EventView<'_>) -> Result<Target<'_>, Outcome> {
        let cannot_encode = |error: String| Err(Outcome::CannotEncode { error });
        let picked = self.router.pick(view)?;
        let target = |url: Url| {
            let host = match &self.hosts[picked] {
                Some(host) => Cow::Borrowed(host.as_str()),
                None => Cow::Owned(host_of(&url).unwrap_or_default()),
            };
            Target { url, host, host_by_event: self.hosts[picked].is_none() }
        };
        if let Some(url) = &self.urls[picked] {
            return Ok(target(url.clone()));
        }
        let filled = self.router.fill(picked, view, percent_encoded)?;
        if dot_segments(&filled) > self.dots[picked] {
            return cannot_encode("the event puts `.` or `..` into the path of the URL".to_owned());
        }
        match Url::parse(&filled) {
            Ok(url) => Ok(target(url)),
            Err(error) => cannot_encode(format!("the event makes no valid URL: {error}")),
        }
    }

    /// Returns `host:port` for an event; empty if it has none.
    pub(crate) fn host(&self, view: &EventView<'_>) -> Cow<'_, str> {
        // Shortcut: most sinks have one host, and this is called several times per event.
        if let Some(only) = self.only_host() {
            return Cow::Borrowed(only);
        }
        match self.router.pick(view).map(|picked| &self.hosts[picked]) {
            Ok(Some(host)) => Cow::Borrowed(host),
            Ok(None) => self.target(view).map_or(Cow::Borrowed(""), |target| target.host),
            Err(_) => Cow::Borrowed(""),
        }
    }

    /// Returns the host of all events, if there is only one.
    pub(crate) fn only_host(&self) -> Option<&str> {
        match self.hosts.as_slice() {
            [Some(only), rest @ ..] if rest.iter().all(|host| host.as_ref() == Some(only)) => {
                Some(only)
            }
            _ => None,
        }
    }

    /// Returns the hosts that do not depend on events, each once.
    pub(crate) fn fixed_hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.hosts.iter().flatten().map(String::as_str).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

/// Checks a template. The message does not show it: a URL may contain secrets.
fn check(template: &Template) -> Result<(), String> {
    match Url::parse(&template.outline("1")) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        Ok(_) => Err("must start with http:// or https:// and name a host".to_owned()),
        Err(error) => Err(format!(
            "is not a URL ({error}); it starts with http:// or https:// and names a host"
        )),
    }
}

/// Counts the segments `.` and `..` before the query, as the most lenient server would read them:
/// it decodes until nothing is encoded any longer, treats `\` as `/`, and ignores parameters
/// (`..;a=b`) and everything after a decoded `?` or `#`.
pub(crate) fn dot_segments(url: &str) -> usize {
    let path = decoded(url.split(['?', '#']).next().unwrap_or_default());
    let is_dots = |segment: &&[u8]| {
        matches!(segment.split(|byte| b";?#".contains(byte)).next(), Some(b"." | b".."))
    };
    path.split(|byte| b"/\\".contains(byte)).filter(is_dots).count()
}

/// Decodes percent-encoding repeatedly until none is left, in one pass.
fn decoded(path: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut plain: Vec<u8> = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        plain.push(byte);
        // A decoded byte may complete another escape, as in `%25%32e`.
        while let [.., b'%', high, low] = plain.as_slice()
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            plain.truncate(plain.len() - 3);
            plain.push((high << 4) | low);
        }
    }
    plain
}

/// Returns `host:port` of a URL.
pub(crate) fn host_of(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// Returns the host, unless it depends on the event.
fn fixed_host(template: &Template) -> Option<String> {
    // The host must be the same whatever the values of the fields are.
    let with = |stand_in: &str| host_of(&Url::parse(&template.outline(stand_in)).ok()?);
    with("1").filter(|host| with("2").as_ref() == Some(host))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::fuzz;

    fn targets(url: &str) -> Result<Targets, String> {
        Targets::new(Some(url), &[])
    }

    #[test]
    fn a_wrong_url_is_refused_by_its_setting_and_not_shown() {
        for url in ["http://h/{ocid}?hush", "http://h/{id", "ftp://h/hush", "/hush", "http://"] {
            let error = targets(url).err().unwrap();
            assert!(error.contains("`url`") && !error.contains("hush"), "{error}");
        }
        let to = RouteSettings { to: "hush".to_owned(), ..RouteSettings::default() };
        let error = Targets::new(None, &[to]).err().unwrap();
        assert!(error.contains("`to` of [[sink.route]] 1") && !error.contains("hush"), "{error}");
        assert!(targets("https://{aggregate_type}.example.com/{id}").is_ok());
    }

    #[test]
    fn the_host_is_fixed_unless_the_event_is_in_it() {
        let host = |url: &str| targets(url).unwrap().hosts.remove(0);
        assert_eq!(host("http://h:81/{id}").as_deref(), Some("h:81"));
        assert_eq!(host("https://h/a?{id}").as_deref(), Some("h:443"));
        assert_eq!(host("https://{id}@h/").as_deref(), Some("h:443"));
        assert_eq!(host("http://{aggregate_type}/x"), None);
        assert_eq!(host("http://h:{aggregate_id}/x"), None);
    }

    #[test]
    fn no_encoding_hides_a_segment_that_leads_elsewhere() {
        for hidden in [
            "/a/..",
            "/a/./b",
            "/a/..%2Fb",
            "/a%2f..",
            "/a/..%5cb",
            "/a\\..",
            "/a/..;x=1/b",
            "/..%3B/b",
            "/%2e%2E/b",
            "/%252e%252e/b",
            "/a/.%25252E%252Fb",
            "/a%5C.",
            "/a/.%25%32%65",
            "/a/%%32e.",
            "/a/..%3fb",
        ] {
            assert_eq!(dot_segments(hidden), 1, "{hidden}");
        }
        for plain in ["/", "/a..b/...", "/a%2Fb", "/100%25", "/a;b=..", "/%25..", "/a?b=/../"] {
            assert_eq!(dot_segments(plain), 0, "{plain}");
        }
    }

    /// Returns the path as a server reads it that decodes until nothing is encoded, treats `\` as
    /// `/`, ignores parameters and follows `..`.
    fn followed(path: &str) -> Vec<String> {
        let mut plain = path.as_bytes().to_vec();
        loop {
            let decoded = fuzz::percent_decoded(&String::from_utf8_lossy(&plain));
            if decoded == plain {
                break;
            }
            plain = decoded;
        }
        let mut segments: Vec<String> = Vec::new();
        for segment in String::from_utf8_lossy(&plain).split(['/', '\\']) {
            match segment.split(';').next().unwrap_or_default() {
                "" | "." => {}
                ".." => drop(segments.pop()),
                name => segments.push(name.to_owned()),
            }
        }
        segments
    }

    proptest! {
        /// Whatever an event contains, its request goes to the template's host and below its path.
        #[test]
        fn fuzz_urls(
            event in fuzz::event(),
            template in select(vec![
                "http://h:81/base/{aggregate_id}",
                "http://h:81/base/{aggregate_type}/{event_type}/x?{aggregate_id}",
                "http://h:81/base/x{aggregate_type}{aggregate_id}{event_type}#f",
                "http://h:81/base/.{aggregate_id}/%{event_type}",
                "http://h:81/base/{header.a}/{payload.a}",
                "http://{aggregate_id}@h:81/base/{id}/{event_id}",
            ]),
        ) {
            let targets = targets(template).unwrap();
            let view = EventView::new(&event);
            if let Ok(target) = targets.target(&view) {
                let url = target.url;
                let place = (url.scheme(), url.host_str(), url.port());
                prop_assert_eq!(place, ("http", Some("h"), Some(81)));
                prop_assert!(!target.host_by_event);
                let path = followed(url.path());
                prop_assert_eq!(path.first().map(String::as_str), Some("base"), "{}", url);
            }
        }

        /// The count of dot segments misses none that such a server follows.
        #[test]
        fn fuzz_urls_with_dots(
            path in "(/|\\\\|\\.|;|%2e|%2F|%5C|%3b|%3f|%25|%32|%65|%45|2|5|e|x){1,8}",
        ) {
            let path = format!("/base/x/{path}");
            let leads = followed(&path);
            let stays = leads.len() >= 2 && leads[0] == "base" && leads[1] == "x";
            prop_assert!(stays || dot_segments(&path) > 0, "{} is {:?}", path, leads);
        }
    }
}
