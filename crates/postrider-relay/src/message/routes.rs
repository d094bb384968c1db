//! Routes: which destination of a sink an event goes to.

use std::borrow::Cow;

#[cfg(feature = "filters")]
use crate::message::filter::Filter;
use crate::message::template::{Encode, Template};
use crate::message::view::EventView;
use crate::outcome::Outcome;

/// A route as configured: which events take it, and where it leads.
#[derive(Debug, Clone, Default)]
pub struct RouteSettings {
    /// Pattern of event types, with `*` for any text; absent: all.
    pub event_type: Option<String>,
    /// Pattern of aggregate types, with `*` for any text; absent: all.
    pub aggregate_type: Option<String>,
    /// A condition in CEL; absent: no condition.
    pub filter: Option<String>,
    /// Template of the destination.
    pub to: String,
}

/// The condition of a route or a branch.
pub(crate) struct Route {
    event_type: Option<Pattern>,
    aggregate_type: Option<Pattern>,
    #[cfg(feature = "filters")]
    filter: Option<Filter>,
}

/// The routes of a sink. The first matching route wins; the sink's own setting comes last.
///
/// ```
/// # use postrider_relay::message::template;
/// # use postrider_relay::{EventView, RouteSettings, Router};
/// # fn check(event: &postrider_store::Event) -> Result<(), String> {
/// let refunds = RouteSettings {
///     event_type: Some("Refund*".to_owned()),
///     filter: Some("payload.amount > 1000".to_owned()),
///     to: "refunds-{header.region}".to_owned(),
///     ..RouteSettings::default()
/// };
/// let router = Router::new("topic", Some("{aggregate_type}"), &[refunds])?;
/// match router.resolve(&EventView::new(event), template::verbatim) {
///     Ok(topic) => println!("{topic}"),
///     Err(outcome) => println!("a dead letter: {outcome:?}"),
/// }
/// # Ok(()) }
/// ```
pub struct Router {
    setting: &'static str,
    routes: Vec<Route>,
    /// The templates of the routes, then the sink's own template, if it is set.
    templates: Vec<Template>,
}

impl Router {
    /// Builds the routes. `setting` is the name of the sink's own setting (`topic`, `url` …), for
    /// error messages, and `default` its value.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(
        setting: &'static str,
        default: Option<&str>,
        routes: &[RouteSettings],
    ) -> Result<Self, String> {
        if default.is_none() && routes.is_empty() {
            return Err(format!("nothing says where to; set `{setting}`, or a [[sink.route]]"));
        }
        let (mut built, mut templates) = (Vec::new(), Vec::new());
        for (number, route) in routes.iter().enumerate() {
            let wrong = |error| format!("[[sink.route]] {}: {error}", number + 1);
            built.push(Route::new(route).map_err(wrong)?);
            let to = Template::parse(&route.to).map_err(|error| format!("`to`: {error}"));
            templates.push(to.map_err(wrong)?);
        }
        if let Some(default) = default {
            let default = Template::parse(default);
            templates.push(default.map_err(|error| format!("`{setting}`: {error}"))?);
        }
        Ok(Self { setting, routes: built, templates })
    }

    /// Returns all templates with the names of their settings: those of the routes, then the sink's
    /// own.
    pub fn templates(&self) -> impl Iterator<Item = (String, &Template)> {
        let all = self.templates.iter().enumerate();
        all.map(|(number, template)| (self.setting_of(number), template))
    }

    /// Returns the index of the first matching route in [`Router::templates`].
    ///
    /// # Errors
    /// `NoRoute` if no route matches, or if a filter cannot be applied to this event.
    pub fn pick(&self, view: &EventView<'_>) -> Result<usize, Outcome> {
        for (number, route) in self.routes.iter().enumerate() {
            let takes = route.takes(view).map_err(|error| Outcome::NoRoute {
                error: format!("[[sink.route]] {}: {error}", number + 1),
            })?;
            if takes {
                return Ok(number);
            }
        }
        if self.templates.len() > self.routes.len() {
            return Ok(self.routes.len());
        }
        Err(Outcome::NoRoute {
            error: format!(
                "no [[sink.route]] takes event type `{}` of aggregate type `{}`, and `{}` is not \
                 set",
                view.event.event_type, view.event.aggregate_type, self.setting
            ),
        })
    }

    /// Returns the destination of an event.
    ///
    /// # Errors
    /// `NoRoute`, which makes the event a dead letter at once, if no route matches or the event
    /// lacks a field.
    pub fn resolve<'a>(
        &'a self,
        view: &EventView<'a>,
        encode: Encode,
    ) -> Result<Cow<'a, str>, Outcome> {
        self.fill(self.pick(view)?, view, encode)
    }

    /// Returns the destination that an event shares with all others that fail together with it; see
    /// [`Template::fill_kind`].
    ///
    /// # Errors
    /// Same as [`Router::resolve`].
    pub fn resolve_kind<'a>(&'a self, view: &EventView<'a>) -> Result<Cow<'a, str>, Outcome> {
        let template = &self.templates[self.pick(view)?];
        template.fill_kind(view).map_err(|error| Outcome::NoRoute { error })
    }

    /// Returns the destination of every event, if there is only one.
    pub fn only(&self) -> Option<&str> {
        match self.templates.as_slice() {
            [only] if self.routes.is_empty() => only.fixed(),
            _ => None,
        }
    }

    /// Returns the destination by the template that [`Router::pick`] chose.
    ///
    /// # Errors
    /// `NoRoute` if the event lacks a field.
    pub fn fill<'a>(
        &'a self,
        picked: usize,
        view: &EventView<'a>,
        encode: Encode,
    ) -> Result<Cow<'a, str>, Outcome> {
        self.templates[picked].fill(view, encode).map_err(|error| Outcome::NoRoute {
            error: format!("{}: {error}", self.setting_of(picked)),
        })
    }

    /// Returns one of [`Router::templates`], by the index that [`Router::pick`] returned.
    pub fn template(&self, number: usize) -> &Template {
        &self.templates[number]
    }

    fn setting_of(&self, number: usize) -> String {
        match self.routes.get(number) {
            Some(_) => format!("`to` of [[sink.route]] {}", number + 1),
            None => format!("`{}`", self.setting),
        }
    }
}

impl Route {
    pub(crate) fn new(settings: &RouteSettings) -> Result<Self, String> {
        #[cfg(not(feature = "filters"))]
        if settings.filter.is_some() {
            return Err("`filter`: this program was built without the feature `filters`".to_owned());
        }
        Ok(Self {
            event_type: settings.event_type.as_deref().map(Pattern::new),
            aggregate_type: settings.aggregate_type.as_deref().map(Pattern::new),
            #[cfg(feature = "filters")]
            filter: settings.filter.as_deref().map(Filter::compile).transpose()?,
        })
    }

    pub(crate) fn takes(&self, view: &EventView<'_>) -> Result<bool, String> {
        let fits = |pattern: &Option<Pattern>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
        };
        if !fits(&self.event_type, &view.event.event_type)
            || !fits(&self.aggregate_type, &view.event.aggregate_type)
        {
            return Ok(false);
        }
        #[cfg(feature = "filters")]
        if let Some(filter) = &self.filter {
            return filter.matches(view);
        }
        Ok(true)
    }
}

/// Text in which `*` stands for any text, including none.
#[derive(Debug, Clone)]
struct Pattern {
    pieces: Vec<String>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { pieces: text.split('*').map(str::to_owned).collect() }
    }

    fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            return self.pieces.first().is_some_and(|whole| whole == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        // Matching each piece as early as possible leaves the most text for the pieces after it.
        for piece in middle {
            match rest.find(piece.as_str()) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, wanted) in [
            ("OrderPlaced", "OrderPlaced", true),
            ("OrderPlaced", "OrderPlaced2", false),
            ("OrderPlaced", "orderplaced", false),
            ("Order*", "Order", true),
            ("Order*", "OrderPlaced", true),
            ("Order*", "Reorder", false),
            ("*Placed", "OrderPlaced", true),
            ("*Placed", "OrderPlacedAgain", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("**", "x", true),
            ("", "", true),
            ("", "x", false),
            ("*é*", "café au lait", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), wanted, "{pattern} {text}");
        }
    }
}
