//! `[outbox.adopt]`: a table of another program that an outbox serves.

use std::collections::BTreeMap;

use postrider_store::adopt::{AdoptedLetters, Adoption, Field, LetterField, StateWords};
use serde::Deserialize;

/// Clock of a table whose times have no zone, by default.
pub(super) const TIME_ZONE: &str = "UTC";

/// The section as it stands in the file and in the named forms.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdoptSection {
    form: Option<Form>,
    table: Option<String>,
    time_zone: Option<String>,
    columns: BTreeMap<Field, String>,
    constants: BTreeMap<Field, String>,
    states: BTreeMap<StateName, String>,
    dead_letters: Option<LettersSection>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LettersSection {
    table: Option<String>,
    columns: BTreeMap<LetterField, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Pending,
    Processing,
    Failed,
    Completed,
    DeadLetter,
}

/// Widely used tables that have a named form, so that users need not describe them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    ApiCall,
    Notification,
    Broker,
    Handler,
    Debezium,
}

impl Form {
    fn section(self) -> Result<AdoptSection, String> {
        let text = match self {
            Self::ApiCall => include_str!("forms/api-call.toml"),
            Self::Notification => include_str!("forms/notification.toml"),
            Self::Broker => include_str!("forms/broker.toml"),
            Self::Handler => include_str!("forms/handler.toml"),
            Self::Debezium => include_str!("forms/debezium.toml"),
        };
        toml::from_str(text).map_err(|error| format!("form {self:?}: {error}"))
    }
}

impl AdoptSection {
    /// Builds the mapping. An error does not name the outbox: the caller adds it.
    pub(super) fn build(&self, keep_delivered: bool) -> Result<Adoption, String> {
        let whole = match self.form {
            Some(form) => self.over(form.section()?),
            None => self.clone(),
        };
        let table = whole.table.ok_or("[outbox.adopt]: `table` is missing: it names the table")?;
        let dead_letters = match whole.dead_letters {
            Some(letters) => Some(AdoptedLetters {
                table: letters.table.ok_or(
                    "[outbox.adopt.dead_letters]: `table` is missing: it names the table of dead \
                     letters",
                )?,
                columns: mapped(letters.columns),
            }),
            None => None,
        };
        let adoption = Adoption {
            table,
            time_zone: whole.time_zone.unwrap_or_else(|| TIME_ZONE.to_owned()),
            columns: mapped(whole.columns),
            constants: mapped(whole.constants),
            states: words(whole.states),
            // An empty name removes the table of the form.
            dead_letters: dead_letters.filter(|letters| !letters.table.is_empty()),
            keep_delivered,
        };
        adoption.validate().map_err(|error| format!("[outbox.adopt] {error}"))?;
        Ok(adoption)
    }

    /// Layers this section over a form: keys that are set here override the form's, one by one.
    fn over(&self, form: Self) -> Self {
        let dead_letters = match (&self.dead_letters, form.dead_letters) {
            (Some(own), Some(form)) => Some(LettersSection {
                table: own.table.clone().or(form.table),
                columns: layered(form.columns, &own.columns),
            }),
            (own, form) => own.clone().or(form),
        };
        Self {
            form: None,
            table: self.table.clone().or(form.table),
            time_zone: self.time_zone.clone().or(form.time_zone),
            columns: layered(form.columns, &self.columns),
            constants: layered(form.constants, &self.constants),
            states: layered(form.states, &self.states),
            dead_letters,
        }
    }
}

fn layered<K: Copy + Ord>(
    mut below: BTreeMap<K, String>,
    above: &BTreeMap<K, String>,
) -> BTreeMap<K, String> {
    below.extend(above.iter().map(|(key, value)| (*key, value.clone())));
    below
}

/// Drops the keys whose value is empty: an empty value removes the form's key.
fn mapped<K: Ord>(keys: BTreeMap<K, String>) -> BTreeMap<K, String> {
    keys.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn words(given: BTreeMap<StateName, String>) -> StateWords {
    let mut words = StateWords::default();
    for (state, word) in given {
        *match state {
            StateName::Pending => &mut words.pending,
            StateName::Processing => &mut words.processing,
            StateName::Failed => &mut words.failed,
            StateName::Completed => &mut words.completed,
            StateName::DeadLetter => &mut words.dead_letter,
        } = word;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/adopted-tables.md");

    /// The page describes each table twice: in one line, and in full. Both must be the same.
    #[test]
    fn the_forms_are_what_the_page_says() {
        let mut compared = 0;
        for block in PAGE.split("```toml\n").skip(1) {
            let text = block.split("```").next().unwrap();
            let table: toml::Table = toml::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let Some(outboxes) = table.get("outbox").and_then(|outboxes| outboxes.as_array())
            else {
                continue;
            };
            let section: AdoptSection = outboxes[0]["adopt"].clone().try_into().unwrap();
            let Some(form) = section.form else { continue };
            let full = full_description(section.table.as_deref(), form);
            assert_eq!(section.build(true).unwrap(), full.build(true).unwrap(), "{form:?}");
            compared += 1;
        }
        assert_eq!(compared, 5, "a form is not on the page");
    }

    /// Returns the block of the page that starts with `# form = "…", in full`.
    fn full_description(table: Option<&str>, form: Form) -> AdoptSection {
        let name = format!("{form:?}");
        let kebab = match form {
            Form::ApiCall => "api-call".to_owned(),
            _ => name.to_lowercase(),
        };
        let start = format!("```toml\n# form = \"{kebab}\", in full\n");
        let block = PAGE.split(&start).nth(1).unwrap_or_else(|| panic!("no {start}"));
        let text = block.split("```").next().unwrap();
        let parsed: toml::Table = toml::from_str(text).unwrap();
        let mut section: AdoptSection = parsed["outbox"]["adopt"].clone().try_into().unwrap();
        section.table = section.table.or(table.map(str::to_owned));
        section
    }

    #[test]
    fn an_empty_value_takes_away_what_a_form_says() {
        let section: AdoptSection = toml::from_str(
            "form = 'api-call'\ntime_zone = '+09:00'\n[columns]\nlocked_by = ''\n\
             [constants]\naggregate_type = 'player'\n[dead_letters]\ntable = ''",
        )
        .unwrap();
        let built = section.build(false).unwrap();
        assert!(!built.columns.contains_key(&Field::LockedBy));
        assert_eq!(built.columns[&Field::AggregateId], "ocid");
        assert_eq!(built.constants[&Field::AggregateType], "player");
        assert_eq!((built.dead_letters, built.time_zone.as_str()), (None, "+09:00"));
    }

    #[test]
    fn a_delivered_row_that_is_kept_needs_a_time() {
        let section: AdoptSection = toml::from_str(
            "table = 't'\n[columns]\nid = 'id'\naggregate_type = 'a'\naggregate_id = 'a'\n\
             event_type = 'e'\npayload = 'p'\nstatus = 's'",
        )
        .unwrap();
        let error = section.build(true).unwrap_err();
        assert!(error.contains("delivered_at") && error.contains("on_success"), "{error}");
        assert!(section.build(false).is_ok());
    }
}
