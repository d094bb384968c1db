//! Destinations of events: routes, their filters, and templates.

use postrider_relay::{
    EventView, Outcome, RouteSettings, Router,
    message::template::{Template, percent_encoded, verbatim},
};
use postrider_store::Event;
use postrider_testkit::relay::held_event;

fn event() -> Event {
    Event {
        payload: r#"{"amount": 1500, "price": 9.5, "vip": true, "note": null, "big": 1e400,
            "customer": {"region": "eu", "tags": ["a", "b"]}, "items": [{"n": 1}, {"n": 3}]}"#
            .replace("1e400", "18446744073709551615"),
        headers: Some(r#"{"Region": "eu west", "n": 5}"#.to_owned()),
        request_id: Some("r-1".to_owned()),
        ..held_event(7)
    }
}

fn route(to: &str) -> RouteSettings {
    RouteSettings { to: to.to_owned(), ..RouteSettings::default() }
}

fn filtered(filter: &str) -> RouteSettings {
    RouteSettings { filter: Some(filter.to_owned()), ..route("yes") }
}

fn resolve(router: &Router, event: &Event) -> Result<String, String> {
    match router.resolve(&EventView::new(event), verbatim) {
        Ok(to) => Ok(to.into_owned()),
        Err(Outcome::NoRoute { error }) => Err(error),
        Err(other) => panic!("{other:?}"),
    }
}

fn fill(template: &str, event: &Event) -> Result<String, String> {
    let template = Template::parse(template).unwrap();
    template.fill(&EventView::new(event), verbatim).map(std::borrow::Cow::into_owned)
}

#[test]
fn a_template_takes_fields_headers_and_payload() {
    for (template, filled) in [
        ("orders", "orders"),
        ("", ""),
        ("{aggregate_type}", "order"),
        ("{aggregate_type}/{aggregate_id}/{event_type}", "order/order-7/OrderPlaced"),
        ("{id}-{request_id}", "7-r-1"),
        ("{header.region}/{header.N}", "eu west/5"),
        ("{payload.customer.region}", "eu"),
        ("{payload.customer.tags.1}", "b"),
        ("{payload.amount}/{payload.price}/{payload.vip}", "1500/9.5/true"),
        ("{payload.big}", "18446744073709551615"),
        ("{{{aggregate_type}}}:events", "{order}:events"),
        ("a}}b{{c", "a}b{c"),
    ] {
        assert_eq!(fill(template, &event()).as_deref(), Ok(filled), "{template}");
    }
    let template = Template::parse("{header.region}").unwrap();
    let (event, encoded) = (event(), "eu%20west");
    assert_eq!(template.fill(&EventView::new(&event), percent_encoded).unwrap(), encoded);
}

#[test]
fn a_field_that_the_event_lacks_is_named() {
    for (template, named) in [
        ("{header.tenant}", "{header.tenant}"),
        ("{payload.customer.name}", "{payload.customer.name}"),
        ("{payload.note}", "{payload.note}"),
        ("{payload.customer.tags.2}", "{payload.customer.tags.2}"),
        ("{payload.customer}", "a list or an object"),
    ] {
        let error = fill(template, &event()).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    let text = Event { payload: "no json".to_owned(), request_id: None, ..event() };
    assert!(fill("{payload.amount}", &text).unwrap_err().contains("not JSON"));
    assert!(fill("{request_id}", &text).unwrap_err().contains("{request_id}"));
    let garbled = Event { headers: Some("[1]".to_owned()), ..event() };
    assert!(fill("{header.region}", &garbled).unwrap_err().contains("JSON object"));
}

#[test]
fn a_wrong_template_is_refused_and_shows_no_more_than_the_mistake() {
    for template in ["a{x}hush", "{header.}hush", "{payload.}", "{}", "{", "a}b", "{payload}"] {
        let error = Template::parse(template).unwrap_err();
        assert!(error.contains("{aggregate_id}") && !error.contains("hush"), "{error}");
    }
}

#[test]
fn the_first_route_that_fits_wins_and_the_own_setting_is_the_last() {
    let routes = [
        RouteSettings { event_type: Some("Refund*".to_owned()), ..route("refunds") },
        RouteSettings { aggregate_type: Some("order".to_owned()), ..route("orders") },
        RouteSettings { event_type: Some("*".to_owned()), ..filtered("payload.amount > 1") },
        route("late"),
    ];
    let of = |kind: &str, aggregate: &str, payload: &str| Event {
        event_type: kind.to_owned(),
        aggregate_type: aggregate.to_owned(),
        payload: payload.to_owned(),
        ..event()
    };
    let router = Router::new("topic", Some("default"), &routes[..3]).unwrap();
    assert_eq!(resolve(&router, &of("RefundPaid", "order", "{}")).unwrap(), "refunds");
    assert_eq!(resolve(&router, &of("Paid", "order", r#"{"amount":5}"#)).unwrap(), "orders");
    assert_eq!(resolve(&router, &of("Paid", "user", r#"{"amount":5}"#)).unwrap(), "yes");
    assert_eq!(resolve(&router, &of("Paid", "user", r#"{"amount":1}"#)).unwrap(), "default");
    let router = Router::new("topic", None, &routes[..3]).unwrap();
    let error = resolve(&router, &of("Paid", "user", "{}")).unwrap_err();
    for word in ["`Paid`", "`user`", "`topic`"] {
        assert!(error.contains(word), "{error}");
    }
    let router = Router::new("topic", None, &routes).unwrap();
    assert_eq!(resolve(&router, &of("Paid", "user", "{}")).unwrap(), "late");
}

#[test]
fn a_filter_sees_type_aggregate_headers_and_payload() {
    for (filter, wanted) in [
        ("event_type == 'OrderPlaced'", true),
        ("aggregate_type == 'order' && aggregate_id.startsWith('order-')", true),
        ("request_id == 'r-1' && event_id != ''", true),
        ("headers.region == 'eu west' && headers['n'] == '5'", true),
        ("payload.amount > 1000 && payload.amount + 1 == 1501", true),
        ("payload.price < 10.0 && payload.price > 9", true),
        ("payload.vip", true),
        ("!payload.vip", false),
        ("payload.note == null", true),
        ("payload.customer.region in ['eu', 'us']", true),
        ("'b' in payload.customer.tags && size(payload.items) == 2", true),
        ("payload.items.exists(item, item.n > 2)", true),
        ("payload.items.all(item, item.n > 2)", false),
        ("has(payload.customer.region) && !has(payload.customer.name)", true),
        ("type(payload.vip) == bool", true),
        ("payload.big > 1000", true),
    ] {
        let router = Router::new("topic", Some("no"), &[filtered(filter)]).unwrap();
        let taken = resolve(&router, &event());
        assert_eq!(taken.as_deref(), Ok(if wanted { "yes" } else { "no" }), "{filter}");
    }
}

#[test]
fn a_field_that_is_absent_is_no_match_but_one_of_another_kind_is_a_dead_letter() {
    let text = Event { payload: "no json".to_owned(), ..event() };
    let list = Event { payload: "[1, 2]".to_owned(), ..event() };
    for event in [&event(), &text, &list] {
        for filter in [
            "payload.discount > 5",
            "payload.note.inner.more == 1",
            "payload.vip.inner == 1",
            "headers.tenant == 'x'",
            "payload.customer.tags[7] == 'x'",
        ] {
            let router = Router::new("topic", Some("no"), &[filtered(filter)]).unwrap();
            assert_eq!(resolve(&router, event).as_deref(), Ok("no"), "{filter}: {event:?}");
        }
    }
    for filter in ["payload.amount > 'much'", "payload.amount", "payload.amount / 0 == 1"] {
        let router = Router::new("topic", Some("no"), &[filtered(filter)]).unwrap();
        let error = resolve(&router, &event()).unwrap_err();
        assert!(error.contains(filter) && error.contains("[[sink.route]] 1"), "{error}");
    }
}

#[test]
fn what_is_wrong_in_itself_is_found_before_any_event() {
    for (routes, words) in [
        (vec![], ["`topic`", "[[sink.route]]"]),
        (vec![route("x"), route("{x}")], ["[[sink.route]] 2", "`to`"]),
        (vec![filtered("payload.amount >")], ["[[sink.route]] 1", "payload.amount >"]),
        (vec![filtered("amount > 5")], ["`amount`", "payload"]),
        (vec![filtered("event_type == 'a' && tpye == 'x'")], ["`tpye`", "event_type"]),
        (vec![filtered("event_type == 'a' && payload.x.startWith('a')")], ["startWith", "filter"]),
        (vec![filtered("shout(event_type) == 'A'")], ["shout", "filter"]),
        (vec![filtered("")], ["filter", "[[sink.route]] 1"]),
        (vec![filtered("'")], ["filter", "[[sink.route]] 1"]),
    ] {
        let error = Router::new("topic", None, &routes).err().unwrap();
        for word in words {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
    }
}

/// Treated as text, which has no fields, it would pass every filter on a field that must be absent.
#[test]
fn a_payload_that_is_nested_too_deeply_passes_no_filter() {
    let nested = |levels: usize| {
        let payload = format!(r#"{{"blocked": {}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
        Event { payload, ..event() }
    };
    let filter = "!has(payload.blocked)";
    let router = Router::new("url", Some("no"), &[filtered(filter)]).unwrap();
    assert_eq!(resolve(&router, &nested(100)).as_deref(), Ok("no"));
    let error = resolve(&router, &nested(200)).unwrap_err();
    assert!(error.contains("127 levels"), "{error}");
    assert!(fill("{payload.blocked}", &nested(200)).unwrap_err().contains("127 levels"));
}
