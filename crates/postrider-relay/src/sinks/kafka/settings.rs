//! Settings of a Kafka sink, and the resulting configuration of librdkafka.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rdkafka::ClientConfig;

use crate::message::envelope::EnvelopeSettings;
use crate::message::routes::RouteSettings;

/// Settings of a Kafka sink.
#[derive(Clone)]
pub struct KafkaSettings {
    /// Name in the configuration.
    pub name: String,
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// Template of the topic for events that no route takes.
    pub topic: Option<String>,
    /// Routes to other topics.
    pub routes: Vec<RouteSettings>,
    /// Form of the message.
    pub envelope: EnvelopeSettings,
    /// Time that a message may wait for others to share its request.
    pub linger: Duration,
    /// `none`, `gzip`, `snappy` or `lz4`.
    pub compression: String,
    /// Maximum bytes of a message: key, payload and headers.
    pub message_bytes_max: usize,
    /// TLS to the brokers.
    pub tls: Option<Tls>,
    /// Login at the brokers.
    pub sasl: Option<Sasl>,
    /// Further properties of librdkafka.
    pub options: BTreeMap<String, String>,
}

/// TLS files in PEM form.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Trusted certificates; absent: those of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate, if the brokers require one.
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate.
    pub key: Option<PathBuf>,
}

/// A login.
#[derive(Clone)]
pub struct Sasl {
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub mechanism: String,
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Whether to log in without TLS, where anyone on the network path can read and change what is
    /// sent.
    pub without_tls: bool,
}

const COMPRESSIONS: [&str; 4] = ["none", "gzip", "snappy", "lz4"];
/// Range that the client library accepts.
const MESSAGE_BYTES: std::ops::RangeInclusive<usize> = 1_000..=1_000_000_000;
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
/// Maximum KiB that wait in one producer: two batches of the relay.
const QUEUE_KIB_MAX: &str = "16384";
/// Size at which record batches are sent; topics accept it by default.
pub(super) const BATCH_BYTES_MAX: usize = 1_000_000;
/// How long an unknown topic is assumed to be still propagating, including one that the broker
/// creates itself.
const TOPIC_WAIT_MS: &str = "5000";
/// A broker that came back is found within this time.
const RECONNECT_MS_MAX: &str = "1000";
/// Properties that delivery relies on, and those with a setting of their own.
const RESERVED: [&str; 21] = [
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "enable.gapless.guarantee",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "queue.buffering.max.kbytes",
    "transactional.id",
    "partitioner",
    "partitioner_cb",
    "bootstrap.servers",
    "metadata.broker.list",
    "linger.ms",
    "queue.buffering.max.ms",
    "compression.type",
    "compression.codec",
    "message.max.bytes",
    "sasl.password",
    "security.protocol",
];

/// How a producer treats the messages after one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// They are sent: order does not matter.
    Free,
    /// The producer stops: nothing may arrive after a gap.
    Ordered,
    /// Each message has a record batch to itself, so that an answer is about it alone.
    Alone,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Free, Self::Ordered, Self::Alone];
}

impl KafkaSettings {
    /// Creates settings with the defaults, for one topic.
    pub fn new(name: &str, brokers: &str, topic: &str) -> Self {
        Self {
            name: name.to_owned(),
            brokers: brokers.to_owned(),
            topic: Some(topic.to_owned()),
            routes: Vec::new(),
            envelope: EnvelopeSettings::default(),
            linger: Duration::from_millis(1),
            compression: "none".to_owned(),
            message_bytes_max: 1_000_000,
            tls: None,
            sasl: None,
            options: BTreeMap::new(),
        }
    }

    /// Checks what can be wrong without asking a broker.
    ///
    /// # Errors
    /// Names the setting, its value and what is allowed.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = |broker: &str| broker.trim().is_empty() || broker.contains(char::is_control);
        if self.brokers.split(',').any(wrong) {
            return Err(format!(
                "brokers `{}`: write host:port, several separated by commas",
                self.brokers.escape_debug()
            ));
        }
        if !COMPRESSIONS.contains(&self.compression.as_str()) {
            let (value, allowed) = (&self.compression, COMPRESSIONS.join(", "));
            return Err(format!("compression `{value}` is unknown; allowed: {allowed}"));
        }
        if !MESSAGE_BYTES.contains(&self.message_bytes_max) {
            return Err(format!(
                "message_bytes_max `{}` is not within {} and {}",
                self.message_bytes_max,
                MESSAGE_BYTES.start(),
                MESSAGE_BYTES.end()
            ));
        }
        if let Some(sasl) = &self.sasl
            && !MECHANISMS.contains(&sasl.mechanism.as_str())
        {
            let (value, allowed) = (&sasl.mechanism, MECHANISMS.join(", "));
            return Err(format!("sasl.mechanism `{value}` is unknown; allowed: {allowed}"));
        }
        if self.tls.is_none() && self.sasl.as_ref().is_some_and(|sasl| !sasl.without_tls) {
            return Err("`sasl` without `tls` shows the login to everybody on the way; add \
                        `tls = {}`, or set `without_tls = true` in `sasl`"
                .to_owned());
        }
        if let Some(tls) = &self.tls {
            for (name, path) in [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)] {
                let Some(path) = path else { continue };
                std::fs::File::open(path).map_err(|error| {
                    format!("tls.{name} `{}` cannot be read: {error}", path.display())
                })?;
            }
            if tls.cert.is_some() != tls.key.is_some() {
                return Err("tls.cert and tls.key belong together; one is missing".to_owned());
            }
        }
        if let Some(name) = self.options.keys().find(|name| RESERVED.contains(&name.as_str())) {
            return Err(format!(
                "options.{name} cannot be set here: delivery rests on its value, or it has a \
                 setting of its own"
            ));
        }
        for kind in Kind::ALL {
            self.client_config(kind, BATCH_BYTES_MAX)
                .create_native_config()
                .map_err(|error| format!("options or limits: {error}"))?;
        }
        Ok(())
    }

    /// Builds the configuration of a producer. `batch_bytes_max` is the size at which a record
    /// batch is sent.
    pub(super) fn client_config(&self, kind: Kind, batch_bytes_max: usize) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("client.id", "postrider")
            .set("batch.size", batch_bytes_max.to_string())
            .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX)
            .set("topic.metadata.propagation.max.ms", TOPIC_WAIT_MS)
            .set("socket.nagle.disable", "true");
        for (name, value) in &self.options {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("enable.gapless.guarantee", (kind == Kind::Ordered).to_string())
            .set("partitioner", "murmur2_random")
            // Never: a message that times out leaves a gap. The relay's deadline decides.
            .set("message.timeout.ms", "0")
            .set("queue.buffering.max.kbytes", QUEUE_KIB_MAX)
            .set("compression.type", &self.compression)
            .set("message.max.bytes", self.message_bytes_max.to_string());
        match kind {
            Kind::Alone => config.set("batch.num.messages", "1").set("linger.ms", "0"),
            Kind::Free | Kind::Ordered => {
                config.set("linger.ms", (self.linger.as_secs_f64() * 1_000.0).to_string())
            }
        };
        self.secure(&mut config);
        config
    }

    fn secure(&self, config: &mut ClientConfig) {
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(tls) = &self.tls {
            let text = |path: &PathBuf| path.display().to_string();
            let ca = tls.ca.as_ref().map_or_else(|| "probe".to_owned(), text);
            config.set("ssl.ca.location", ca);
            if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
                config.set("ssl.certificate.location", text(cert));
                config.set("ssl.key.location", text(key));
            }
        }
        if let Some(sasl) = &self.sasl {
            config.set("sasl.mechanism", &sasl.mechanism);
            config.set("sasl.username", &sasl.username);
            config.set("sasl.password", &sasl.password);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> KafkaSettings {
        KafkaSettings::new("kafka", "localhost:9092", "orders")
    }

    #[test]
    fn wrong_settings_are_named() {
        let sasl = |mechanism: &str| Sasl {
            mechanism: mechanism.to_owned(),
            username: "u".to_owned(),
            password: "hunter2".to_owned(),
            without_tls: false,
        };
        let option = |name: &str| BTreeMap::from([(name.to_owned(), "nonsense".to_owned())]);
        let tls = Tls { ca: Some("/no/such.pem".into()), ..Tls::default() };
        let half = Tls { cert: Some("/dev/null".into()), ..Tls::default() };
        for (settings, words) in [
            (KafkaSettings { brokers: "a:1,,".to_owned(), ..settings() }, "brokers"),
            (KafkaSettings { brokers: "a:1\0".to_owned(), ..settings() }, "brokers"),
            (KafkaSettings { compression: "rar".to_owned(), ..settings() }, "compression"),
            (KafkaSettings { sasl: Some(sasl("GSSAPI")), ..settings() }, "sasl.mechanism"),
            (KafkaSettings { sasl: Some(sasl("PLAIN")), ..settings() }, "without_tls"),
            (KafkaSettings { sasl: Some(sasl("SCRAM-SHA-512")), ..settings() }, "without_tls"),
            (KafkaSettings { tls: Some(tls), ..settings() }, "tls.ca"),
            (KafkaSettings { tls: Some(half), ..settings() }, "tls.key"),
            (KafkaSettings { options: option("acks"), ..settings() }, "options.acks"),
            (KafkaSettings { options: option("no.such"), ..settings() }, "no.such"),
            (
                KafkaSettings { options: option("socket.timeout.ms"), ..settings() },
                "socket.timeout",
            ),
            (KafkaSettings { message_bytes_max: 1, ..settings() }, "message_bytes_max `1`"),
        ] {
            let error = settings.check().unwrap_err();
            assert!(error.contains(words) && !error.contains("hunter2"), "{words}: {error}");
        }
    }

    #[test]
    fn a_login_without_tls_must_be_asked_for() {
        let (mechanism, username) = ("PLAIN".to_owned(), "u".to_owned());
        let sasl = Sasl { mechanism, username, password: "p".to_owned(), without_tls: true };
        let settings = KafkaSettings { sasl: Some(sasl), ..settings() };
        settings.check().unwrap();
        let config = settings.client_config(Kind::Free, BATCH_BYTES_MAX);
        assert_eq!(config.get("security.protocol"), Some("sasl_plaintext"));
    }

    #[test]
    fn every_kind_of_producer_waits_for_all_replicas_and_never_times_out() {
        let settings = KafkaSettings {
            sasl: Some(Sasl {
                mechanism: "SCRAM-SHA-512".to_owned(),
                username: "u".to_owned(),
                password: "p".to_owned(),
                without_tls: false,
            }),
            tls: Some(Tls::default()),
            linger: Duration::from_micros(1_500),
            ..settings()
        };
        settings.check().unwrap();
        for kind in Kind::ALL {
            let config = settings.client_config(kind, BATCH_BYTES_MAX);
            assert_eq!(config.get("acks"), Some("all"));
            assert_eq!(config.get("message.timeout.ms"), Some("0"));
            assert_eq!(config.get("security.protocol"), Some("sasl_ssl"));
            let gapless = (kind == Kind::Ordered).to_string();
            assert_eq!(config.get("enable.gapless.guarantee"), Some(gapless.as_str()));
        }
        assert_eq!(settings.client_config(Kind::Free, 1).get("linger.ms"), Some("1.5"));
    }
}
