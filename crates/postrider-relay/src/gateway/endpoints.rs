//! Endpoints of an upstream that fail independently: each has a breaker of its own.

/// Maximum number of endpoints: each call is compared with them, and each is a destination.
const ENDPOINTS_MAX: usize = 500;
const TEMPLATE_BYTES_MAX: usize = 200;

/// The endpoints named in the settings, and the host for all others.
#[derive(Debug)]
pub(super) struct Endpoints {
    host: String,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug)]
struct Endpoint {
    /// `None` stands for any single segment.
    segments: Vec<Option<String>>,
    destination: String,
}

impl Endpoints {
    /// Parses templates such as `/character/{id}`.
    ///
    /// # Errors
    /// Names the invalid template.
    pub(super) fn new(host: &str, templates: &[String]) -> Result<Self, String> {
        if templates.len() > ENDPOINTS_MAX {
            return Err(format!("`endpoints` has more than {ENDPOINTS_MAX} entries"));
        }
        let endpoint = |template: &String| {
            let segments = parsed(template).ok_or_else(|| {
                format!(
                    "`endpoints`: `{template}` is not a path like /character/{{id}}, in which \
                     {{…}} stands for one whole segment, of {TEMPLATE_BYTES_MAX} bytes at most"
                )
            })?;
            Ok(Endpoint { segments, destination: format!("{host}{template}") })
        };
        let endpoints = templates.iter().map(endpoint).collect::<Result<_, String>>()?;
        Ok(Self { host: host.to_owned(), endpoints })
    }

    /// Returns the host, if it is the destination of all calls.
    pub(super) fn only(&self) -> Option<&str> {
        self.endpoints.is_empty().then_some(self.host.as_str())
    }

    /// Returns the breaker of a call: the first endpoint that matches its path, or the host.
    pub(super) fn destination(&self, target: &str) -> &str {
        let path = target.split('?').next().unwrap_or_default();
        let fits = |endpoint: &&Endpoint| {
            let mut segments = path.split('/').skip(1);
            let all = endpoint.segments.iter().all(|wanted| match (wanted, segments.next()) {
                (Some(wanted), Some(segment)) => wanted == segment,
                (None, Some(segment)) => !segment.is_empty(),
                (_, None) => false,
            });
            all && segments.next().is_none()
        };
        let found = self.endpoints.iter().find(fits);
        found.map_or(&self.host, |endpoint| &endpoint.destination)
    }
}

fn parsed(template: &str) -> Option<Vec<Option<String>>> {
    let path = template.strip_prefix('/').filter(|_| template.len() <= TEMPLATE_BYTES_MAX)?;
    let segment = |segment: &str| match segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'))
    {
        Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Some(None),
        Some(_) => None,
        None => {
            let plain = segment.bytes().all(|b| b.is_ascii_graphic() && !b"{}?#\\".contains(&b));
            plain.then(|| Some(segment.to_owned()))
        }
    };
    path.split('/').map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(templates: &[&str]) -> Result<Endpoints, String> {
        let templates: Vec<String> = templates.iter().map(|text| (*text).to_owned()).collect();
        Endpoints::new("h:80", &templates)
    }

    #[test]
    fn a_call_belongs_to_the_first_endpoint_that_its_path_fits() {
        let all = endpoints(&["/character/me", "/character/{id}", "/guild/{id}/members"]).unwrap();
        for (target, destination) in [
            ("/character/42?world=1", "h:80/character/{id}"),
            ("/character/me", "h:80/character/me"),
            ("/guild/7/members", "h:80/guild/{id}/members"),
            ("/guild/7", "h:80"),
            ("/character/", "h:80"),
            ("/character/42/", "h:80"),
            ("/", "h:80"),
        ] {
            assert_eq!(all.destination(target), destination, "{target}");
        }
        assert_eq!((all.only(), endpoints(&[]).unwrap().only()), (None, Some("h:80")));
    }

    #[test]
    fn what_is_not_a_template_is_refused_by_name() {
        for wrong in ["", "character", "/a/{}", "/a/{b", "/a/x{b}", "/a?b", "/ä", "/a/{b}{c}"] {
            let error = endpoints(&[wrong]).unwrap_err();
            assert!(error.contains("`endpoints`"), "{wrong}: {error}");
        }
        assert!(endpoints(&["/"; 501]).is_err());
    }
}
