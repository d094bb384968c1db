//! Alerts by e-mail over SMTP. One channel reaches one address: a refused recipient does not affect
//! the others, and no retry sends them the message twice.

use std::time::Duration;

use async_trait::async_trait;
use lettre::message::header::{self, ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};

use super::{Channel, Message, NotSent, text};

/// Timeout of each step of the SMTP conversation.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MailSecurity {
    /// Plain at first, then STARTTLS is required (port 587).
    #[default]
    StartTls,
    /// TLS from the first byte (port 465).
    Tls,
    /// No encryption (port 25): for a server on the same machine or network.
    None,
}

impl MailSecurity {
    fn usual_port(self) -> u16 {
        match self {
            Self::StartTls => 587,
            Self::Tls => 465,
            Self::None => 25,
        }
    }
}

/// Settings of an e-mail channel.
#[derive(Clone)]
pub struct EmailSettings {
    /// Name in the configuration.
    pub name: String,
    /// The SMTP server.
    pub host: String,
    /// Port of the server; absent: the usual port for `security`.
    pub port: Option<u16>,
    /// How the connection is protected.
    pub security: MailSecurity,
    /// A certificate in PEM form, trusted in addition to those of the system.
    pub ca: Option<Vec<u8>>,
    /// User and password, if the server requires them.
    pub login: Option<(String, String)>,
    /// Sender: `Postrider <postrider@example.com>`.
    pub from: String,
    /// Recipient.
    pub to: String,
}

/// E-mail to one address.
pub struct EmailChannel {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    name: String,
    target: String,
    from: Mailbox,
    to: Mailbox,
}

impl EmailChannel {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: EmailSettings) -> Result<Self, String> {
        crate::tls::install_provider();
        let EmailSettings { name, host, port, security, ca, login, from, to } = settings;
        if login.is_some() && security == MailSecurity::None && !is_local(&host) {
            return Err("`security = \"none\"` would send the password in the clear: use \
                        \"starttls\" or \"tls\""
                .to_owned());
        }
        let mailbox = |key: &str, text: &str| {
            let parsed = text.parse::<Mailbox>();
            parsed.map_err(|error| format!("`{key}` = \"{text}\" is not an address: {error}"))
        };
        let (from, to) = (mailbox("from", &from)?, mailbox("to", &to)?);
        let mut parameters = TlsParameters::builder(host.clone());
        if let Some(pem) = ca {
            let certificate = Certificate::from_pem(&pem);
            let certificate = certificate.map_err(|error| format!("`ca`: {error}"))?;
            parameters = parameters.add_root_certificate(certificate);
        }
        let parameters = || parameters.build_rustls().map_err(|error| format!("TLS: {error}"));
        let tls = match security {
            MailSecurity::StartTls => Tls::Required(parameters()?),
            MailSecurity::Tls => Tls::Wrapper(parameters()?),
            MailSecurity::None => Tls::None,
        };
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)
            .port(port.unwrap_or(security.usual_port()))
            .tls(tls)
            .timeout(Some(TIMEOUT));
        if let Some((user, password)) = login {
            transport = transport.credentials(Credentials::new(user, password));
        }
        Ok(Self { transport: transport.build(), name, target: to.email.to_string(), from, to })
    }

    fn letter(&self, message: &Message) -> Result<lettre::Message, String> {
        let headline = text::headline(message);
        let body = format!(
            "{headline}\n\n{}\nwritten at: {}\nkind: {}\n",
            text::lines(&message.fields),
            message.at.to_rfc3339(),
            message.kind
        );
        // The id is the same for every attempt, so that a mailbox shows a message once even if its
        // answer was lost.
        let domain = self.from.email.domain();
        let letter = lettre::Message::builder()
            .from(self.from.clone())
            .to(self.to.clone())
            .subject(headline)
            .message_id(Some(format!("<{}@{domain}>", message.id)))
            .header(AutoSubmitted);
        let plain = SinglePart::builder().header(ContentType::TEXT_PLAIN).body(body);
        let built = match &message.event {
            None => letter.singlepart(plain),
            Some(event) => {
                let json = serde_json::to_vec_pretty(event).map_err(|error| error.to_string())?;
                let kind = ContentType::parse("application/json").map_err(|e| e.to_string())?;
                let event = Attachment::new("event.json".to_owned()).body(json, kind);
                letter.multipart(MultiPart::mixed().singlepart(plain).singlepart(event))
            }
        };
        built.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Channel for EmailChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn target(&self) -> &str {
        &self.target
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        let letter = self.letter(message).map_err(|error| NotSent { error, refused: true })?;
        match self.transport.send(letter).await {
            Ok(answer) => {
                let said = answer.message().collect::<Vec<_>>().join(" ");
                Ok(format!("{} {said}", answer.code()))
            }
            Err(error) => Err(NotSent { refused: error.is_permanent(), error: whole(&error) }),
        }
    }
}

/// Formats an error with its causes: the outermost one only says that the connection failed.
fn whole(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Prevents automatic replies, such as vacation notices, to alerts.
#[derive(Clone)]
struct AutoSubmitted;

impl header::Header for AutoSubmitted {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}
