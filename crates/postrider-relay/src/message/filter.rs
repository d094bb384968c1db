//! Filters of routes, in CEL: `payload.amount > 1000 && headers.region == "eu"`.

use std::collections::HashMap;
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Env, ExecutionError, Program, Value};
use serde_json::Value as Json;

use crate::message::view::EventView;

/// Variables that a filter may use.
const VARIABLES: [&str; 7] = [
    "event_type",
    "event_id",
    "aggregate_type",
    "aggregate_id",
    "request_id",
    "headers",
    "payload",
];

/// A condition on an event.
pub(crate) struct Filter {
    text: String,
    program: Program,
    env: Arc<Env>,
    /// The [`VARIABLES`] that it uses; the others are neither passed nor parsed.
    variables: Vec<&'static str>,
}

impl Filter {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Shows where the syntax error is, or which name is unknown and which names are allowed.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        let env = Arc::new(Env::stdlib());
        let wrong = |why: String| format!("filter `{text}`: {why}");
        let program = env.compile(text).map_err(|error| wrong(error.to_string()))?;
        let references = program.references();
        let (named, called) = (references.variables(), references.functions());
        let mut bound = Vec::new();
        bound_names(program.expression(), &mut bound);
        let known = |name: &str| VARIABLES.contains(&name) || bound.contains(&name);
        let unknown = |name: &&&str| !known(name) && is_undeclared(&env, name);
        if let Some(name) = named.iter().find(unknown) {
            let allowed = VARIABLES.join(", ");
            return Err(wrong(format!("`{name}` is unknown; allowed are {allowed}")));
        }
        let is_word = |name: &&&str| name.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_missing = |name: &&str| {
            let calls = [format!("{name}()"), format!("''.{name}()")];
            calls.iter().all(|call| is_undeclared(&env, call))
        };
        if let Some(name) = called.iter().filter(is_word).find(|name| is_missing(name)) {
            return Err(wrong(format!("there is no function `{name}`")));
        }
        let variables = VARIABLES.into_iter().filter(|name| named.contains(name)).collect();
        Ok(Self { text: text.to_owned(), variables, program, env })
    }

    /// Returns whether the event satisfies the condition. A missing field makes it false.
    ///
    /// # Errors
    /// If the result is not a boolean, or an operation does not apply to the field's type: an event
    /// that the filter was not written for must not silently take another route.
    pub(crate) fn matches(&self, view: &EventView<'_>) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        for name in &self.variables {
            context.add_variable_from_value(*name, variable(name, view)?);
        }
        let wrong = |why: String| Err(format!("filter `{}` {why}", self.text));
        match self.program.execute(&context) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(other) => wrong(format!("is neither true nor false but {:?}", other.type_of())),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => wrong(format!("cannot be applied: {error}")),
        }
    }
}

/// Returns whether the error is about a missing field, including a field of a value that cannot
/// have fields.
fn is_absence(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_) => true,
        ExecutionError::NoSuchOverload(overload) => matches!(overload.function(), "_._" | "_[_]"),
        _ => false,
    }
}

/// Returns whether evaluating the expression on its own finds an undeclared name.
fn is_undeclared(env: &Arc<Env>, expression: &str) -> bool {
    let context = Context::with_env(Arc::clone(env));
    let answer = env.compile(expression).map(|program| program.execute(&context));
    matches!(answer, Ok(Err(ExecutionError::UndeclaredReference(_))))
}

/// Collects the names that the expression itself binds, such as `item` in
/// `payload.items.exists(item, item.count > 1)`.
fn bound_names<'e>(expression: &'e IdedExpr, names: &mut Vec<&'e str>) {
    match &expression.expr {
        Expr::Call(call) => {
            call.target.iter().for_each(|target| bound_names(target, names));
            call.args.iter().for_each(|argument| bound_names(argument, names));
        }
        Expr::Comprehension(each) => {
            names.push(&each.iter_var);
            names.extend(each.iter_var2.as_deref());
            for part in
                [&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
            {
                bound_names(part, names);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|element| bound_names(element, names)),
        Expr::Select(select) => bound_names(&select.operand, names),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    bound_names(&entry.key, names);
                    bound_names(&entry.value, names);
                }
            }
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

fn variable(name: &str, view: &EventView<'_>) -> Result<Value, String> {
    let event = view.event;
    Ok(match name {
        "event_type" => event.event_type.as_str().into(),
        "event_id" => event.event_id.as_str().into(),
        "aggregate_type" => event.aggregate_type.as_str().into(),
        "aggregate_id" => event.aggregate_id.as_str().into(),
        "request_id" => event.request_id.as_deref().map_or(Value::Null, Value::from),
        "headers" => {
            let headers = view.headers()?.iter().map(|(name, value)| {
                // Header names are lowercased, because they are compared ignoring case everywhere
                // else.
                (name.to_ascii_lowercase(), Value::from(value.as_str()))
            });
            Value::Map(headers.collect::<HashMap<_, _>>().into())
        }
        // A payload that is not JSON is a string, which has no fields.
        _ => view.payload()?.map_or_else(|| event.payload.as_str().into(), value_of),
    })
}

/// Converts JSON to CEL. Whole numbers become `int` where possible: CEL cannot add a `uint` and an
/// `int`, as in `payload.count + 1`.
fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::Int(value),
            (None, Some(value)) => Value::UInt(value),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(elements) => {
            Value::List(Arc::new(elements.iter().map(value_of).collect::<Vec<_>>()))
        }
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), value_of(value)));
            Value::Map(members.collect::<HashMap<_, _>>().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_store::Event;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::fuzz;

    const LEAVES: [&str; 24] = [
        "payload",
        "payload.a",
        "payload.b",
        "payload.a.b",
        "payload.a[0]",
        "payload['c']",
        "headers.a",
        "headers['b']",
        "event_type",
        "request_id",
        "aggregate_id",
        "true",
        "false",
        "null",
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "1e308",
        "2u",
        "'a'",
        "[1, 'a', payload.b]",
        "{'a': payload.a}",
    ];
    const SHAPES: [&str; 25] = [
        "(A == B)",
        "(A != B)",
        "(A > B)",
        "(A <= B)",
        "(A + B)",
        "(A - B)",
        "(A * B)",
        "(A / B)",
        "(A % B)",
        "(A && B)",
        "(A || B)",
        "(A ? B : A)",
        "(A in B)",
        "(!A)",
        "(-A)",
        "size(A)",
        "string(A)",
        "int(A)",
        "double(A)",
        "has(payload.a)",
        "A.contains('a')",
        "A.startsWith(B)",
        "A.exists(x, x == B)",
        "A.all(x, x != B)",
        "A.map(x, x + B).size()",
    ];

    /// Generates expressions from the grammar, a few levels deep.
    fn expressions() -> BoxedStrategy<String> {
        let leaf = select(LEAVES.to_vec()).prop_map(str::to_owned);
        let inner = leaf.prop_recursive(3, 16, 2, |inner| {
            (select(SHAPES.to_vec()), inner.clone(), inner).prop_map(|(shape, a, b)| {
                let parts: Vec<String> =
                    shape.split('A').map(|part| part.replace('B', &b)).collect();
                parts.join(&a)
            })
        });
        inner.boxed()
    }

    #[test]
    fn an_expression_that_is_nested_too_deeply_is_refused() {
        for (open, close) in [("(", ")"), ("[", "]")] {
            let text = format!("{}1{}", open.repeat(5_000), close.repeat(5_000));
            assert!(Filter::compile(&text).is_err(), "{open}");
        }
    }

    proptest! {
        /// A filter returns a result or an error: never true for both an expression and its
        /// negation.
        #[test]
        fn fuzz_filters(expression in expressions(), event in fuzz::event()) {
            let view = EventView::new(&event);
            let answer =
                |text: &str| Filter::compile(text).and_then(|filter| filter.matches(&view));
            let (yes, no) = (answer(&expression), answer(&format!("!({expression})")));
            prop_assert!(!(yes == Ok(true) && no == Ok(true)), "{}", expression);
            for answer in [yes, no] {
                let why = answer.err().unwrap_or_else(|| "filter".to_owned());
                let named = ["filter", "payload", "headers"].iter().any(|name| why.contains(name));
                prop_assert!(named, "{}", why);
            }
        }

        /// Text that is not an expression is refused.
        #[test]
        fn fuzz_filters_that_are_damaged(
            text in fuzz::damaged(expressions().prop_map(String::into_bytes)),
            depth in 0..40_usize,
        ) {
            let text = String::from_utf8_lossy(&text);
            let text = format!("{}{text}{}", "(".repeat(depth), ")".repeat(depth));
            if let Err(error) = Filter::compile(&text) {
                prop_assert!(error.starts_with("filter `"), "{}", error);
            }
        }

        /// Numbers and strings of the payload are compared by their own types.
        #[test]
        fn fuzz_filters_compare(a in any::<i32>(), b in any::<i32>(), text in fuzz::text()) {
            let event = Event {
                payload: serde_json::json!({ "a": a, "text": text }).to_string(),
                headers: Some(serde_json::json!({ "A": text }).to_string()),
                ..fuzz::sample()
            };
            let view = EventView::new(&event);
            let matches = |text: &str| Filter::compile(text).unwrap().matches(&view).unwrap();
            prop_assert_eq!(matches(&format!("payload.a > {b}")), a > b);
            prop_assert_eq!(matches(&format!("payload.a == {b}")), a == b);
            prop_assert!(matches("payload.text == headers.a && payload.a == payload.a + 0"));
            prop_assert!(!matches("payload.none == 1 || headers.none == 'x'"));
        }
    }
}
