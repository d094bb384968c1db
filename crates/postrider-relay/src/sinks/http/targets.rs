//! Where the requests of a sink go: routes that lead to URLs.

use std::borrow::Cow;

use url::Url;

use crate::routes::{RouteSettings, Router};
use crate::sink::Outcome;
use crate::template::{Template, percent_encoded};
use crate::view::EventView;

/// The URLs of a sink.
pub(crate) struct Targets {
    router: Router,
    /// Of each template of the router: its host, where the event has no say in it.
    hosts: Vec<Option<String>>,
    /// Of each template of the router: the URL, where the event has no say in it.
    urls: Vec<Option<Url>>,
    /// Of each template of the router: segments `.` and `..` that it has itself.
    dots: Vec<usize>,
}

/// Where one event goes.
pub(crate) struct Target<'a> {
    pub(crate) url: Url,
    /// `host:port`.
    pub(crate) host: Cow<'a, str>,
    /// The event put something into the host: what is wrong with it, is wrong with the event.
    pub(crate) host_by_event: bool,
}

impl Targets {
    /// Reads the templates; `url` is the sink's own setting.
    ///
    /// # Errors
    /// Names the setting that is wrong.
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

    /// The URL for an event.
    ///
    /// # Errors
    /// `NoRoute` if there is none, `Unfit` if the event makes no URL of it.
    pub(crate) fn target(&self, view: &EventView<'_>) -> Result<Target<'_>, Outcome> {
        let unfit = |error: String| Err(Outcome::Unfit { error });
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
            return unfit("the event puts `.` or `..` into the path of the URL".to_owned());
        }
        match Url::parse(&filled) {
            Ok(url) => Ok(target(url)),
            Err(error) => unfit(format!("the event makes no valid URL: {error}")),
        }
    }

    /// `host:port` for an event; empty if it has none.
    pub(crate) fn host(&self, view: &EventView<'_>) -> Cow<'_, str> {
        // Nothing to decide: most sinks have one host, and this is asked several times per event.
        if let Some(only) = self.only_host() {
            return Cow::Borrowed(only);
        }
        match self.router.pick(view).map(|picked| &self.hosts[picked]) {
            Ok(Some(host)) => Cow::Borrowed(host),
            Ok(None) => self.target(view).map_or(Cow::Borrowed(""), |target| target.host),
            Err(_) => Cow::Borrowed(""),
        }
    }

    /// The host of all events, where there is only one.
    pub(crate) fn only_host(&self) -> Option<&str> {
        match self.hosts.as_slice() {
            [Some(only), rest @ ..] if rest.iter().all(|host| host.as_ref() == Some(only)) => {
                Some(only)
            }
            _ => None,
        }
    }

    /// The hosts that are known without an event, each once.
    pub(crate) fn fixed_hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.hosts.iter().flatten().map(String::as_str).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

/// The message does not show the template: a URL may carry secrets.
fn check(template: &Template) -> Result<(), String> {
    match Url::parse(&template.outline("1")) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        Ok(_) => Err("must start with http:// or https:// and name a host".to_owned()),
        Err(error) => {
            Err(format!("is no URL ({error}); it starts with http:// or https:// and names a host"))
        }
    }
}

/// Counts the segments `.` and `..` before the query, as the most lenient server would read them: it
/// decodes `%2f`, `%5c` and `%2e` (also where the `%` is encoded), takes `\` for `/`, and ignores
/// parameters (`..;a=b`).
pub(crate) fn dot_segments(url: &str) -> usize {
    let path = lenient(url.split(['?', '#']).next().unwrap_or_default());
    let is_dots = |segment: &&str| matches!(segment.split(';').next(), Some("." | ".."));
    path.split(['/', '\\']).filter(is_dots).count()
}

/// Decodes the characters that a path is divided by.
fn lenient(path: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(path.len()), path);
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let code = rest.trim_start_matches("25");
        let decoded = match code.get(..2) {
            Some("2e" | "2E") => '.',
            Some("2f" | "2F") => '/',
            Some("5c" | "5C") => '\\',
            Some("3b" | "3B") => ';',
            _ => {
                plain.push('%');
                continue;
            }
        };
        plain.push(decoded);
        rest = &code[2..];
    }
    plain.push_str(rest);
    plain
}

/// `host:port` of a URL.
pub(crate) fn host_of(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The host, unless the template puts something of the event into it.
fn fixed_host(template: &Template) -> Option<String> {
    // The same host whatever stands for the fields.
    let with = |stand_in: &str| host_of(&Url::parse(&template.outline(stand_in)).ok()?);
    with("1").filter(|host| with("2").as_ref() == Some(host))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(dot_segments(hidden), 1, "{hidden}");
        }
        for plain in ["/", "/a..b/...", "/a%2Fb", "/100%25", "/a;b=..", "/%25..", "/a?b=/../"] {
            assert_eq!(dot_segments(plain), 0, "{plain}");
        }
    }
}
