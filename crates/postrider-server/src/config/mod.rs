//! The configuration: default < file < environment < flags.

mod adopt;
mod alerts;
mod auto_retry;
mod brokers;
mod buffer;
mod build;
#[cfg(test)]
#[cfg(all(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod defaults;
mod file;
#[cfg(test)]
mod fuzz;
mod gateway;
mod sink;
mod value;

use std::path::{Path, PathBuf};

pub(crate) use build::Built;
pub(crate) use file::{ApiSection, Config, ServerSection};
pub(crate) use gateway::BuiltGateway;

/// The default configuration, with comments; `postrider config` prints it.
pub(crate) const DEFAULT: &str = include_str!("default.toml");
/// Read when `--config` is not given and the file exists.
const FILE: &str = "postrider.toml";
const ENVIRONMENT_PREFIX: &str = "POSTRIDER_";
const ENVIRONMENT_SECTIONS: [&str; 5] = ["store", "server", "api", "relay", "telemetry"];

/// An error in the configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("configuration file `{path}` cannot be read: {error}")]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{origin}{place}: {message}")]
    Malformed { origin: String, place: String, message: String },
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Outbox(#[from] postrider::InvalidOutbox),
    #[error(transparent)]
    Sink(#[from] postrider_relay::SinkError),
}

impl From<ConfigError> for postrider_command::Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

/// Loads the configuration. `store_url` is the value of the flag.
pub(crate) fn load(path: Option<&Path>, store_url: Option<&str>) -> Result<Config, ConfigError> {
    let default_file = Path::new(FILE);
    let path = path.or_else(|| default_file.exists().then_some(default_file));
    let (origin, text) = match path {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
            (path.display().to_string(), text)
        }
        None => ("the default configuration".to_owned(), DEFAULT.to_owned()),
    };
    // Parses the text as it stands first, so that errors show its line.
    let in_file = |error| malformed(&origin, &text, &error);
    let mut table: toml::Table = toml::from_str(&text).map_err(in_file)?;
    let overrides = environment(std::env::vars())?;
    let overridden = !overrides.is_empty() || store_url.is_some();
    let from_file = toml::from_str::<Config>(&text);
    if !overridden {
        let config = from_file.map_err(in_file)?;
        return config.validated();
    }
    for (section, key, value) in overrides {
        set(&mut table, &section, &key, value);
    }
    if let Some(url) = store_url {
        set(&mut table, "store", "url", toml::Value::String(url.to_owned()));
    }
    let merged =
        toml::to_string(&table).map_err(|error| ConfigError::Invalid(error.to_string()))?;
    let config = toml::from_str::<Config>(&merged).map_err(|error| match from_file {
        // The error is in the file: show the file's own line.
        Err(error) => in_file(error),
        Ok(_) => malformed("configuration with environment and flags", &merged, &error),
    })?;
    config.validated()
}

/// Returns the error with its line number and key. It never contains the line itself, as `toml`
/// would show it: the value may be a password.
fn malformed(origin: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let place = error.span().map_or_else(String::new, |span| {
        let above = text.get(..span.start).unwrap_or_default().matches('\n').count();
        let line = text.lines().nth(above).unwrap_or_default();
        let key = line.split_once('=').map(|(key, _)| key.trim());
        // If a string is broken over lines, the text before a `=` may be part of a value.
        let is_plain = |key: &&str| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let key = key.filter(is_plain).map(|key| format!(", `{key}`"));
        format!(" line {}{}", above + 1, key.unwrap_or_default())
    });
    let (origin, message) = (origin.to_owned(), error.message().to_owned());
    ConfigError::Malformed { origin, place, message }
}

fn set(table: &mut toml::Table, section: &str, key: &str, value: toml::Value) {
    let entry = table.entry(section).or_insert_with(|| toml::Table::new().into());
    if let Some(section) = entry.as_table_mut() {
        section.insert(key.to_owned(), value);
    }
}

/// Reads `POSTRIDER_STORE__URL=x` as `("store", "url", x)`. A value is read as a number only if the
/// default has a number there; a token of digits stays text.
fn environment(
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Vec<(String, String, toml::Value)>, ConfigError> {
    let default: toml::Table = toml::from_str(DEFAULT)
        .map_err(|error| malformed("the default configuration", DEFAULT, &error))?;
    let mut overrides = Vec::new();
    for (name, value) in variables {
        let Some((section, key)) =
            name.strip_prefix(ENVIRONMENT_PREFIX).and_then(|rest| rest.split_once("__"))
        else {
            continue;
        };
        let (section, key) = (section.to_lowercase(), key.to_lowercase());
        if !ENVIRONMENT_SECTIONS.contains(&section.as_str()) {
            return Err(ConfigError::Invalid(format!(
                "environment variable `{name}`: only keys of [{}] can be set this way; [[outbox]], \
                 [[sink]], [[gateway]] and [[alert]] are lists, set them in the file",
                ENVIRONMENT_SECTIONS.join("], [")
            )));
        }
        let number = default.get(&section).and_then(|section| section.get(&key));
        let value = match (number, value.parse()) {
            (Some(toml::Value::Integer(_)), Ok(number)) => toml::Value::Integer(number),
            _ => toml::Value::String(value),
        };
        overrides.push((section, key, value));
    }
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> (tempdir::TempDir, PathBuf) {
        let folder = tempdir::TempDir::new();
        let path = folder.path().join("postrider.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    /// A folder that is removed on drop.
    mod tempdir {
        pub(super) struct TempDir(std::path::PathBuf);
        impl TempDir {
            pub(super) fn new() -> Self {
                let path = std::env::temp_dir().join(format!("postrider-{}", uuid::Uuid::new_v4()));
                std::fs::create_dir_all(&path).unwrap();
                Self(path)
            }
            pub(super) fn path(&self) -> &std::path::Path {
                &self.0
            }
        }
        impl Drop for TempDir {
            fn drop(&mut self) {
                drop(std::fs::remove_dir_all(&self.0));
            }
        }
    }

    #[test]
    fn the_commented_default_is_valid_and_complete() {
        let config: Config = toml::from_str(DEFAULT).unwrap();
        let built = config.validated().unwrap().build().unwrap();
        assert_eq!(built.outboxes.len(), 1);
        assert_eq!(built.outboxes[0].preset, postrider_relay::Preset::broker());
    }

    /// Every line `# key = value` of the default is an existing key with a valid value.
    #[test]
    fn commented_keys_of_the_default_exist() {
        let text = fuzz::whole();
        let config: Config = toml::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        config.validated().unwrap().build().unwrap();
    }

    #[test]
    fn a_value_is_not_shown_as_if_it_were_a_key() {
        for text in [
            "[store]\nurl 'postgres://app:hunter2@db/app?a=b'",
            "[store]\nurl =\npostgres://app:hunter2@db/app?a=b",
            "[store]\nurl = '''\npostgres://app:hunter2@db/app?a=b",
        ] {
            let (_folder, path) = write(text);
            let error = load(Some(&path), None).unwrap_err().to_string();
            assert!(error.contains("line ") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        for (text, words) in [
            ("[store]\nurll = 'x'", vec!["urll", "url"]),
            ("[[outbox]]\nname='a'\npreset='brokr'\nsink='s'", vec!["brokr", "broker", "api-call"]),
            ("[[outbox]]\nname='a\"b'\npreset='broker'\nsink='s'", vec!["a\"b", "lower-case"]),
            ("[[outbox]]\nname='a'\npreset='broker'\nsink='nowhere'", vec!["nowhere", "sink"]),
            ("[relay]\nlease = '8 parsecs'", vec!["8 parsecs", "30s"]),
            ("[relay]\nheartbeat_every = '500000000000y'", vec!["500000000000y", "100 years"]),
            ("[relay]\nlease = '2s'\nheartbeat_every = '2s'", vec!["heartbeat_every", "lease"]),
            ("[relay]\ntime_zone = 'Mars/Base'", vec!["Mars/Base", "time_zone"]),
            ("[api]\nstream_every = '1m'", vec!["stream_every", "60s", "20s"]),
            ("[server]\nlisten = '0.0.0.0:80'", vec!["0.0.0.0:80", "token"]),
            ("[[sink]]\nname='s'\nkind='kafkaa'", vec!["kafkaa", "http"]),
            ("[[sink]]\nname=''\nkind='log'", vec!["[[sink]]", "`name`", "empty"]),
            ("[[sink]]\nname='s'\nkind='kafka'\ntopic='t'", vec!["brokers"]),
            (
                "[[sink]]\nname='s'\nkind='rabbitmq'\nurl='http://hunter2'\nexchange='e'",
                vec!["`s`", "`url`", "amqps://"],
            ),
            (
                "[[sink]]\nname='s'\nkind='kafka'\nbrokers='h:1'\ntopic='{x}'",
                vec!["`s`", "topic", "{x}", "{aggregate_type}"],
            ),
            (
                "[[sink]]\nname='s'\nkind='kafka'\nbrokers='h:1'\ntopic='t'\ncompression='rar'",
                vec!["`s`", "rar", "lz4"],
            ),
            ("[[sink]]\nname='s'\nkind='http'", vec!["url", "sink.route"]),
            ("[[sink]]\nname='s'\nkind='http'\nurl='http://h'\nform='xml'", vec!["xml", "plain"]),
            ("[[sink]]\nname='s'\nkind='http'\nurl='http://h'\nbody='{{ x }}'", vec!["`s`", "`x`"]),
            (
                "[[sink]]\nname='s'\nkind='http'\nurl='http://h'\nbody_file='/no/such'",
                vec!["`s`", "body_file", "/no/such"],
            ),
            (
                "[[sink]]\nname='s'\nkind='slack'\nurl='http://h'\ntext='a'\nbody='1'",
                vec!["`s`", "`text`", "`body`"],
            ),
            (
                "[[sink]]\nname='s'\nkind='redis'\nurl='redis://h'\nstream='{{x}'",
                vec!["`s`", "`stream`", "{aggregate_id}"],
            ),
            (
                "[[sink]]\nname='s'\nkind='redis'\nurl='redis://h'\n[[sink.route]]\nto='a'\n\
                 filter='amount > 5'",
                vec!["`s`", "[[sink.route]] 1", "amount > 5", "payload"],
            ),
            ("[[sink]]\nname='s'\nkind='log'\nrate={events_per_s=0}", vec!["events_per_s", "`s`"]),
            ("[[sink]]\nname='s'\nkind='log'\nrate={per_s=1}", vec!["per_s", "burst"]),
            ("[[sink]]\nname='s'\nkind='http'\nurl='http://h/{x}'", vec!["{x}", "{aggregate_id}"]),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.alerts]\npending_max=-1",
                vec!["line 9, `pending_max`", "off"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.alerts]\nretry_rate_max=50",
                vec!["`a`", "retry_rate_max", "0 to 1"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.alerts]\npending=5",
                vec!["pending", "pending_max"],
            ),
            (
                "[[buffer]]\nname='b'\nurl='redis://h'\nkey='likes'\ntable='t'\nkey_column='k'\n\
                 count_column='c'",
                vec!["`b`", "`key`", "likes", "{buffer:b}"],
            ),
            (
                "[[buffer]]\nname='b'\nurl='redis://h'\ntable='t'\nkey_column='k;'\n\
                 count_column='c'",
                vec!["`b`", "`k;`"],
            ),
            ("[[buffer]]\nname='b'\nurl='redis://h'", vec!["`b`", "`table`", "`outbox`"]),
            (
                "[[buffer]]\nname='a'\nurl='redis://h'\ntable='t'\nkey_column='k'\n\
                 count_column='c'\n\
                 [[buffer]]\nname='b'\nurl='redis://h:6379'\nkey='{buffer:a}'\ntable='u'\n\
                 key_column='k'\ncount_column='c'",
                vec!["`b`", "`key`", "{buffer:a}", "`a`"],
            ),
            (
                "[[buffer]]\nname='b'\nurl='redis://h'\noutbox='o'\naggregate_type='a'\n\
                 event_type='e'",
                vec!["`b`", "outbox = \"o\"", "[[outbox]]"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.adopt]\nform='debezium'",
                vec!["`a`", "[outbox.adopt]", "table"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.adopt]\nform='oracle'",
                vec!["oracle", "debezium", "api-call"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.adopt]\ntable='t; DROP'\n[outbox.adopt.columns]\nid='id'\npayload='p'",
                vec!["`a`", "t; DROP", "letters, digits"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.adopt]\ntable='t'\n[outbox.adopt.columns]\nid='id'\nbody='p'",
                vec!["body", "payload"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 [outbox.adopt]\nform='handler'\ntime_zone='nine hours'",
                vec!["nine hours", "+09:00"],
            ),
            (
                "[[sink]]\nname='s'\nkind='log'\n[[outbox]]\nname='a'\npreset='broker'\nsink='s'\n\
                 adopt={form='handler'}\n[[outbox]]\nname='b'\npreset='broker'\nsink='s'\n\
                 adopt={form='handler'}",
                vec!["`b`", "outbox_event", "another outbox"],
            ),
            ("[[alert]]\nkind='pager'", vec!["pager", "discord", "email"]),
            ("[[alert]]\nkind='slack'\nurl='hush'", vec!["slack", "`url`", "https://"]),
            (
                "[[alert]]\nkind='slack'\nurl='http://h'\n[[alert]]\nkind='slack'\nurl='http://i'",
                vec!["`slack`", "`name`"],
            ),
            (
                "[[alert]]\nkind='email'\nhost='h'\nfrom='a@b.c'\nto=[]",
                vec!["`email`", "`to`", "address"],
            ),
            (
                "[[alert]]\nkind='email'\nhost='h'\nfrom='a@b.c'\nto=['d@e.f']\nuser='u'",
                vec!["`user`", "`password`"],
            ),
            ("[telemetry]\notlp_endpoint = 'hush'", vec!["[telemetry]", "otlp_endpoint", "4318"]),
            ("[relay]\nmonitor_every = '1ms'", vec!["monitor_every", "100ms"]),
            (
                "[[gateway]]\nname='g'\nurl='http://h'",
                vec!["[[gateway]] `g`", "sink = \"g\"", "open"],
            ),
            (
                "[[outbox]]\nname='a'\npreset='api-call'\nsink='g'\n\
                 [[gateway]]\nname='g'\nurl='http://h'",
                vec!["[[gateway]] `g`", "[[outbox]] `a`", "dedupe = \"open\""],
            ),
            (
                "[[outbox]]\nname='a'\npreset='api-call'\nsink='g'\ndedupe='open'\n\
                 [[gateway]]\nname='g'\nurl='ftp://hush'",
                vec!["[[gateway]] `g`", "`url`", "https://"],
            ),
            (
                "[[outbox]]\nname='a'\npreset='api-call'\nsink='g'\ndedupe='open'\n\
                 [[gateway]]\nname='g'\nurl='http://h'\nmethods=['GETT']",
                vec!["`methods`", "GETT", "POST"],
            ),
            (
                "[[outbox]]\nname='a'\npreset='api-call'\nsink='g'\ndedupe='open'\n\
                 [[gateway]]\nname='g'\nurl='http://h'\ntimeout='1m'",
                vec!["timeout = 60s", "request_timeout"],
            ),
            (
                "[[outbox]]\nname='a'\npreset='api-call'\nsink='g'\ndedupe='open'\n\
                 [[gateway]]\nname='g'\nurl='http://h'\nforward_headers=['cookie']",
                vec!["forward_headers", "`cookie`", "`headers`"],
            ),
            (
                "[[outbox]]\nname='a'\npreset='api-call'\nsink='g'\ndedupe='open'\n\
                 [[gateway]]\nname='g'\nurl='http://h'\ncache='redis://h'\ncache_bytes_max=1",
                vec!["cache_bytes_max", "maxmemory"],
            ),
            (
                "[[sink]]\nname='g'\nkind='log'\n[[gateway]]\nname='g'\nurl='http://h'\n\
                 [[outbox]]\nname='a'\npreset='api-call'\nsink='g'\ndedupe='open'",
                vec!["[[gateway]] `g`", "this name"],
            ),
        ] {
            let (_folder, path) = write(text);
            let error = load(Some(&path), None)
                .and_then(Config::build)
                .map(|_| ())
                .expect_err(text)
                .to_string();
            for word in words {
                assert!(error.contains(word), "{text}: `{word}` is not in: {error}");
            }
        }
    }

    #[test]
    fn a_mistake_is_shown_with_its_line_and_key_but_without_its_value() {
        for text in [
            "[store]\nulr = 'postgres://app:hunter2@db/app'",
            "[store]\nurl = 'postgres://app:hunter2@db/app",
            "[server]\ntoken = ['hunter2']",
            "[server]\ntoken = 123456789",
        ] {
            let (_folder, path) = write(text);
            let key = text.lines().nth(1).unwrap().split(' ').next().unwrap();
            for flag in [None, Some("sqlite:flag.db")] {
                let error = load(Some(&path), flag).unwrap_err().to_string();
                assert!(error.contains(&format!("line 2, `{key}`")), "{error}");
                assert!(!error.contains("hunter2") && !error.contains("123456"), "{error}");
            }
        }
    }

    #[test]
    fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
        let variables = [
            ("POSTRIDER_STORE__URL", "sqlite:env.db"),
            ("POSTRIDER_STORE__CONNECTIONS_MAX", "3"),
            ("OTHER", "x"),
        ];
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let found = environment(variables.iter().map(own)).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].2, toml::Value::Integer(3));
        let token = [("POSTRIDER_SERVER__TOKEN", "1234567890123456")];
        let found = environment(token.iter().map(own)).unwrap();
        assert_eq!(found[0].2, toml::Value::String("1234567890123456".to_owned()));
        let list = [("POSTRIDER_OUTBOX__NAME", "x")];
        let error = environment(list.iter().map(own)).unwrap_err().to_string();
        assert!(error.contains("POSTRIDER_OUTBOX__NAME") && error.contains("[store]"), "{error}");
        let (_folder, path) = write("[store]\nurl = 'sqlite:file.db'");
        let config = load(Some(&path), Some("sqlite:flag.db")).unwrap();
        assert_eq!(config.store.url.expose(), "sqlite:flag.db");
    }
}
