//! Bodies and texts rendered from templates (Jinja), for destinations that do not take the payload
//! as it is.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};

use crate::message::view::EventView;

/// Variables that a template may use.
const VARIABLES: [&str; 11] = [
    "id",
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "request_id",
    "content_hash",
    "created_at",
    "headers",
    "payload",
    "payload_text",
];
const TEMPLATE: &str = "template";

/// How values are escaped, so that a value cannot change the structure of the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "discord", feature = "slack")),
    allow(dead_code, reason = "each chat has its own")
)]
pub(crate) enum Escape {
    /// No escaping.
    None,
    /// As JSON, with quotes: `{"name": {{ payload.name }}}`. The rendered text must be valid JSON.
    Json,
    /// As Discord text: a value cannot end the code block that contains it.
    Discord,
    /// The same for Slack, where `<!channel>` would also notify everyone.
    Slack,
}

/// A compiled template.
pub(crate) struct Body {
    environment: Environment<'static>,
    escape: Escape,
    setting: &'static str,
    /// The [`VARIABLES`] that the template may contain; the others are neither passed nor parsed.
    variables: Vec<&'static str>,
}

impl Body {
    /// Compiles a template; `setting` is the name of its configuration key, for error messages.
    ///
    /// # Errors
    /// Says what is wrong and on which line, or which name is unknown.
    pub(crate) fn compile(
        setting: &'static str,
        text: &str,
        escape: Escape,
    ) -> Result<Self, String> {
        let mut environment = Environment::new();
        // Makes errors name the variable.
        environment.set_debug(true);
        environment.set_auto_escape_callback(move |_| match escape {
            Escape::Json => AutoEscape::Json,
            Escape::None | Escape::Discord | Escape::Slack => AutoEscape::None,
        });
        let chat: Option<fn(&str) -> String> = match escape {
            Escape::None | Escape::Json => None,
            Escape::Discord => Some(fenced),
            Escape::Slack => Some(slack),
        };
        if let Some(chat) = chat {
            environment.set_formatter(move |output, state, value| {
                let text = value.to_string();
                let plain = value.is_safe() || !text.contains(['&', '<', '>', '`']);
                let escaped = if plain { value.clone() } else { Value::from(chat(&text)) };
                minijinja::escape_formatter(output, state, &escaped)
            });
        }
        let wrong = |why: String| format!("`{setting}`: {why}");
        environment
            .add_template_owned(TEMPLATE, text.to_owned())
            .map_err(|error| wrong(error.to_string()))?;
        let compiled = environment.get_template(TEMPLATE);
        let named = compiled.map_err(|error| wrong(error.to_string()))?.undeclared_variables(false);
        let known = |name: &str| {
            VARIABLES.contains(&name) || environment.globals().any(|(global, _)| global == name)
        };
        if let Some(name) = named.iter().find(|name| !known(name)) {
            let allowed = VARIABLES.join(", ");
            return Err(wrong(format!("`{name}` is unknown; allowed are {allowed}")));
        }
        // The engine looks up filters and functions only when they are called. A trial run with
        // empty values, in which undefined fields are allowed, calls most of them.
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        let tried = environment.get_template(TEMPLATE).and_then(|t| t.render(sample()));
        if let Err(error) = tried
            && matches!(
                error.kind(),
                ErrorKind::UnknownFilter | ErrorKind::UnknownFunction | ErrorKind::UnknownTest
            )
        {
            return Err(wrong(error.to_string()));
        }
        // A missing field must be an error, not an empty string in a message. In an `if`, it is
        // false.
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        // Matches whole words: `payload_text` does not require the payload to be parsed.
        let word = |c: char| !c.is_alphanumeric() && c != '_';
        let is_in = |name: &&str| text.split(word).any(|found| found == *name);
        let variables = VARIABLES.into_iter().filter(is_in).collect();
        Ok(Self { environment, escape, setting, variables })
    }

    /// Renders the template for an event.
    ///
    /// # Errors
    /// Names the field that the event lacks.
    pub(crate) fn render(&self, view: &EventView<'_>) -> Result<String, String> {
        let wrong = |why: String| format!("`{}`: {why}", self.setting);
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        for name in &self.variables {
            context.insert(name, variable(name, view)?);
        }
        let rendered = self
            .environment
            .get_template(TEMPLATE)
            .and_then(|template| template.render(Value::from(context)))
            .map_err(|error| wrong(error.to_string()))?;
        if self.escape == Escape::Json
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&rendered)
        {
            return Err(wrong(format!(
                "it makes no JSON of this event ({error}); values are written with their quotes"
            )));
        }
        Ok(rendered)
    }
}

/// Sample values for a trial run: empty texts, with `headers` and `payload` undefined.
fn sample() -> Value {
    let absent = ["headers", "payload"];
    let texts = VARIABLES.into_iter().filter(|name| !absent.contains(name));
    texts.map(|name| (name, Value::from(""))).collect()
}

fn variable(name: &str, view: &EventView<'_>) -> Result<Value, String> {
    let event = view.event;
    Ok(match name {
        "id" => Value::from(event.id),
        "event_id" => Value::from(event.event_id.as_str()),
        "event_type" => Value::from(event.event_type.as_str()),
        "aggregate_type" => Value::from(event.aggregate_type.as_str()),
        "aggregate_id" => Value::from(event.aggregate_id.as_str()),
        "request_id" => event.request_id.as_deref().map_or(Value::from(()), Value::from),
        "content_hash" => event.content_hash.as_deref().map_or(Value::from(()), Value::from),
        "created_at" => Value::from(event.created_at.to_rfc3339()),
        "headers" => Value::from(Serde(view.headers()?)),
        "payload" => match view.payload()? {
            Some(json) => Value::from(Serde(json)),
            None => Value::from(event.payload.as_str()),
        },
        _ => Value::from(event.payload.as_str()),
    })
}

/// Inserts a zero-width space between backticks, and around a backtick at either end of the value.
/// Three in a row would end a code block, even when two of them belong to another value.
fn fenced(text: &str) -> String {
    let apart = text.replace("``", "`\u{200b}`\u{200b}");
    let space = |is_there: bool| if is_there { "\u{200b}" } else { "" };
    let (before, after) = (space(apart.starts_with('`')), space(apart.ends_with('`')));
    format!("{before}{apart}{after}")
}

fn slack(text: &str) -> String {
    fenced(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use postrider_store::Event;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::value::RawValue;

    use super::*;
    use crate::fuzz;

    fn event(payload: &str) -> Event {
        Event {
            payload: payload.to_owned(),
            headers: Some(r#"{"tenant": "t1"}"#.to_owned()),
            ..fuzz::sample()
        }
    }

    fn render(template: &str, escape: Escape, payload: &str) -> Result<String, String> {
        let body = Body::compile("body", template, escape).unwrap();
        body.render(&EventView::new(&event(payload)))
    }

    #[test]
    fn a_template_sees_the_event_its_headers_and_its_payload() {
        for (template, rendered) in [
            (
                "{{ id }} {{ event_id }} {{ event_type }}",
                "7 0198c0de-0000-7000-8000-000000000007 OrderPlaced",
            ),
            ("{{ aggregate_type }}/{{ aggregate_id }}/{{ headers.tenant }}", "order/o-7/t1"),
            ("{{ payload.lines[0].n + 1 }}", "3"),
            ("{% for line in payload.lines %}{{ line.n }};{% endfor %}", "2;5;"),
            ("{{ payload_text[:8] }}", r#"{"lines""#),
            ("{{ payload.vip | default('no') }}", "no"),
            ("{% if payload.vip %}vip{% else %}guest{% endif %}", "guest"),
            ("{{ created_at[:10] }}", "1970-01-01"),
        ] {
            let payload = r#"{"lines": [{"n": 2}, {"n": 5}]}"#;
            assert_eq!(render(template, Escape::None, payload).as_deref(), Ok(rendered));
        }
    }

    #[test]
    fn a_value_stays_a_value() {
        let name = r#"{"name": "Eve\", \"admin\": \"yes <!channel> & co"}"#;
        let json = render(r#"{"name": {{ payload.name }}}"#, Escape::Json, name).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 1);
        assert_eq!(json["name"], r#"Eve", "admin": "yes <!channel> & co"#);
        let whole = render("{{ payload }}", Escape::Json, r#"{"a": [1, null]}"#).unwrap();
        assert_eq!(whole.replace(' ', ""), r#"{"a":[1,null]}"#);
        let text = render("<!here> {{ payload.name }}", Escape::Slack, name).unwrap();
        assert_eq!(text, r#"<!here> Eve", "admin": "yes &lt;!channel&gt; &amp; co"#);
    }

    #[test]
    fn the_text_of_a_payload_is_shown_whatever_its_depth() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let shown = render("{{ payload_text[:3] }}", Escape::Discord, &deep);
        assert_eq!(shown.as_deref(), Ok("[[["));
        let error = render("{{ payload }}", Escape::Discord, &deep).unwrap_err();
        assert!(error.contains("127 levels"), "{error}");
    }

    #[test]
    fn backticks_of_several_values_do_not_end_a_block_of_code() {
        let payload = r#"{"a": "`", "b": "``", "c": "```"}"#;
        let template = "```{{ payload.a }}{{ payload.a }}{{ payload.a }}{{ payload.b }}\
                        {{ payload.c }}{{ payload.a }}```";
        for escape in [Escape::Discord, Escape::Slack] {
            let rendered = render(template, escape, payload).unwrap();
            assert_eq!(rendered.matches("```").count(), 2, "{rendered}");
        }
    }

    #[test]
    fn what_the_event_lacks_is_named() {
        for (template, escape, named) in [
            ("{{ payload.discount }}", Escape::None, "payload.discount"),
            ("{{ payload.a.b }}", Escape::None, "payload.a"),
            ("{{ headers.region }}", Escape::None, "headers.region"),
            ("{% for x in payload.lines %}{% endfor %}", Escape::None, "payload.lines"),
            (r#"{"id": "{{ event_id }}"}"#, Escape::Json, "quotes"),
        ] {
            let error = render(template, escape, "{}").unwrap_err();
            assert!(error.contains(named) && error.contains("`body`"), "{error}");
        }
        assert!(render("{{ payload.a }}", Escape::None, "no json").is_err());
    }

    #[test]
    fn what_is_wrong_in_itself_is_found_before_any_event() {
        for (template, word) in [
            ("{{ event_type", "template:1"),
            ("{% if %}", "template:1"),
            ("\n{{ evnt_type }}", "`evnt_type`"),
            ("{{ event_type | shout }}", "shout"),
        ] {
            let error = Body::compile("text", template, Escape::None).err().unwrap_or_default();
            assert!(error.contains(word) && error.contains("`text`"), "{template}: {error}");
        }
    }

    const PIECES: [&str; 20] = [
        "{{ payload }}",
        "{{ payload.a",
        "{{ headers.a }}",
        "{{ payload_text[:9] }}",
        "{{ event_type | upper }}",
        "{{ range(",
        "{% for x in payload %}",
        "{% endfor %}",
        "{% if headers.a %}",
        "{% else %}",
        "{% endif %}",
        "{% raw %}",
        "{# ",
        " #}",
        "}}",
        "%}",
        "((((((((",
        "[[[[[[[[",
        "not not not not ",
        "|length|tojson",
    ];

    proptest! {
        /// Values in a JSON body are read back unchanged, and nothing is added.
        #[test]
        fn fuzz_bodies_of_json(values in (fuzz::json(), fuzz::json(), fuzz::text())) {
            let (a, b, text) = values;
            let payload = serde_json::json!({ "a": a, "b": b, "text": text });
            let template =
                r#"{"a": {{ payload.a }}, "text": [{{ payload.text }}], "b": {{ payload.b }}}"#;
            let rendered = render(template, Escape::Json, &payload.to_string()).unwrap();
            let rendered: serde_json::Value = serde_json::from_str(&rendered).unwrap();
            prop_assert_eq!(rendered, serde_json::json!({ "a": a, "text": [text], "b": b }));
        }

        /// No value ends the code block that contains it, or notifies anyone.
        #[test]
        fn fuzz_bodies_of_chats(event in fuzz::event()) {
            let template = "```\n{{ payload_text }}{{ event_type }}{{ aggregate_id }}\n```";
            for escape in [Escape::Discord, Escape::Slack] {
                let body = Body::compile("text", template, escape).unwrap();
                let rendered = body.render(&EventView::new(&event)).unwrap();
                prop_assert_eq!(rendered.matches("```").count(), 2, "{}", rendered);
                prop_assert!(escape == Escape::Discord || !rendered.contains('<'));
            }
        }

        /// Any text is either refused as a template or rendered. A JSON body is always valid JSON.
        #[test]
        fn fuzz_bodies(
            parts in proptest::collection::vec(
                prop_oneof![
                    3 => select(PIECES.to_vec()).prop_map(str::to_owned),
                    1 => fuzz::text(),
                ],
                1..8,
            ),
            event in fuzz::event(),
        ) {
            for escape in [Escape::None, Escape::Json] {
                match Body::compile("body", &parts.concat(), escape) {
                    Ok(body) => {
                        let rendered = body.render(&EventView::new(&event));
                        let json = rendered.as_deref().map(serde_json::from_str::<&RawValue>);
                        prop_assert!(escape == Escape::None || !matches!(json, Ok(Err(_))));
                    }
                    Err(error) => prop_assert!(error.contains("`body`"), "{}", error),
                }
            }
        }
    }
}
