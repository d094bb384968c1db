//! A mail server that speaks SMTP as a test specifies, and records its messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::PATIENCE;
use crate::tls::Certificate;

/// An accepted message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Recipients of the envelope.
    pub to: Vec<String>,
    /// Headers and body, as sent.
    pub text: String,
    /// The user who logged in.
    pub user: Option<String>,
    /// Whether the connection was encrypted.
    pub encrypted: bool,
}

impl Mail {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.text.split("\r\n\r\n").next()?.replace("\r\n ", " ");
        let start = format!("{}:", name.to_ascii_lowercase());
        head.lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&start))
            .map(|line| line[start.len()..].trim().to_owned())
    }
}

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTls {
    /// Not at all.
    None,
    /// From the first byte.
    Wrapped,
    /// After STARTTLS; no message is accepted before.
    StartTls,
}

struct Rules {
    tls: MailTls,
    acceptor: Option<TlsAcceptor>,
    login: Option<(String, String)>,
    refused: Vec<String>,
    down: AtomicBool,
    mails: watch::Sender<Vec<Mail>>,
}

/// The server; it stops when dropped.
pub struct MailServer {
    address: SocketAddr,
    rules: Arc<Rules>,
    stop: CancellationToken,
    certificate: Option<Certificate>,
}

impl MailServer {
    /// Starts a server without TLS or login that accepts everything.
    pub async fn start() -> Self {
        Self::with(MailTls::None, None, &[]).await
    }

    /// Starts a server with a login, and recipients that it refuses. Its certificate is for
    /// `localhost`.
    pub async fn with(tls: MailTls, login: Option<(&str, &str)>, refused: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = (tls != MailTls::None).then(Certificate::make);
        let rules = Arc::new(Rules {
            tls,
            acceptor: certificate.as_ref().map(Certificate::acceptor),
            login: login.map(|(user, password)| (user.to_owned(), password.to_owned())),
            refused: refused.iter().map(|to| (*to).to_owned()).collect(),
            down: AtomicBool::new(false),
            mails: watch::Sender::default(),
        });
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (serving, ended) = (Arc::clone(&rules), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let conversation = converse(stream, Arc::clone(&serving));
                tokio::spawn(ended.clone().run_until_cancelled_owned(conversation));
            }
        }));
        Self { address, rules, stop, certificate }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the path of its certificate in PEM format.
    ///
    /// # Panics
    /// Without TLS.
    pub fn certificate(&self) -> std::path::PathBuf {
        self.certificate.as_ref().unwrap().file()
    }

    /// Starts or stops answering every client with "421 service not available".
    pub fn set_down(&self, down: bool) {
        self.rules.down.store(down, Ordering::SeqCst);
    }

    /// Returns the messages accepted so far.
    pub fn mails(&self) -> Vec<Mail> {
        self.rules.mails.borrow().clone()
    }

    /// Waits for a message whose subject contains the text.
    ///
    /// # Panics
    /// After [`PATIENCE`], showing the subjects that came instead.
    pub async fn until(&self, subject: &str) -> Mail {
        let fits = |mail: &Mail| mail.header("subject").is_some_and(|s| s.contains(subject));
        let mut mails = self.rules.mails.subscribe();
        let found = mails.wait_for(|mails| mails.iter().any(fits));
        if tokio::time::timeout(PATIENCE, found).await.is_err() {
            let came: Vec<_> = self.mails().iter().map(|mail| mail.header("subject")).collect();
            panic!("within {PATIENCE:?}, no mail about `{subject}` came, but {came:#?}");
        }
        self.mails().into_iter().find(fits).unwrap()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves one connection. `None` ends it.
async fn converse(stream: TcpStream, rules: Arc<Rules>) -> Option<()> {
    match rules.tls {
        MailTls::Wrapped => {
            let stream = rules.acceptor.clone()?.accept(stream).await.ok()?;
            Session::new(&rules, true).run(stream, true).await.map(drop)
        }
        MailTls::None => Session::new(&rules, false).run(stream, true).await.map(drop),
        MailTls::StartTls => {
            let stream = Session::new(&rules, false).run(stream, true).await??;
            let stream = rules.acceptor.clone()?.accept(stream).await.ok()?;
            Session::new(&rules, true).run(stream, false).await.map(drop)
        }
    }
}

struct Session<'a> {
    rules: &'a Rules,
    encrypted: bool,
    user: Option<String>,
    to: Vec<String>,
}

impl<'a> Session<'a> {
    fn new(rules: &'a Rules, encrypted: bool) -> Self {
        Self { rules, encrypted, user: None, to: Vec::new() }
    }

    /// Runs until QUIT, or until STARTTLS, which returns the stream.
    async fn run<S>(&mut self, stream: S, greets: bool) -> Option<Option<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stream = BufReader::new(stream);
        if self.rules.down.load(Ordering::SeqCst) {
            stream.write_all(b"421 closed for today\r\n").await.ok()?;
            return None;
        }
        if greets {
            stream.write_all(b"220 mail.test ESMTP\r\n").await.ok()?;
        }
        loop {
            let line = read_line(&mut stream).await?;
            let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let answer = match verb.as_str() {
                "EHLO" => self.abilities(),
                "STARTTLS" => {
                    stream.write_all(b"220 go ahead\r\n").await.ok()?;
                    return Some(Some(stream.into_inner()));
                }
                "AUTH" => self.log_in(&line).to_owned(),
                "MAIL" => self.may_send().to_owned(),
                "RCPT" => self.recipient(&line),
                "DATA" => {
                    stream.write_all(b"354 end with a dot\r\n").await.ok()?;
                    self.take(&mut stream).await?
                }
                "QUIT" => {
                    stream.write_all(b"221 bye\r\n").await.ok()?;
                    return Some(None);
                }
                _ => "250 fine".to_owned(),
            };
            stream.write_all(format!("{answer}\r\n").as_bytes()).await.ok()?;
        }
    }

    fn abilities(&self) -> String {
        let mut lines = vec!["250-mail.test"];
        if self.rules.tls == MailTls::StartTls && !self.encrypted {
            lines.push("250-STARTTLS");
        }
        if self.rules.login.is_some() {
            lines.push("250-AUTH PLAIN");
        }
        lines.push("250 8BITMIME");
        lines.join("\r\n")
    }

    /// Parses `AUTH PLAIN` with NUL, user, NUL, password in base64.
    fn log_in(&mut self, line: &str) -> &'static str {
        let decoded = line.rsplit(' ').next().map(base64_decoded).unwrap_or_default();
        let parts: Vec<&str> = decoded.split('\0').collect();
        let given = match parts.as_slice() {
            [_, user, password] => Some(((*user).to_owned(), (*password).to_owned())),
            _ => None,
        };
        if given.is_some() && given == self.rules.login {
            self.user = given.map(|(user, _)| user);
            return "235 welcome";
        }
        "535 wrong user or password"
    }

    fn may_send(&mut self) -> &'static str {
        self.to.clear();
        if self.rules.tls == MailTls::StartTls && !self.encrypted {
            return "530 STARTTLS first";
        }
        if self.rules.login.is_some() && self.user.is_none() {
            return "530 log in first";
        }
        "250 fine"
    }

    fn recipient(&mut self, line: &str) -> String {
        let to = line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        if self.rules.refused.contains(&to) {
            return format!("550 no mailbox {to}");
        }
        self.to.push(to);
        "250 fine".to_owned()
    }

    async fn take<S>(&mut self, stream: &mut BufReader<S>) -> Option<String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut text = String::new();
        loop {
            let line = read_line(stream).await?;
            if line == "." {
                break;
            }
            text.push_str(line.strip_prefix('.').unwrap_or(&line));
            text.push_str("\r\n");
        }
        let (to, user) = (std::mem::take(&mut self.to), self.user.clone());
        let mail = Mail { to, text, user, encrypted: self.encrypted };
        self.rules.mails.send_modify(|mails| mails.push(mail));
        Some(format!("250 queued as {}", self.rules.mails.borrow().len()))
    }
}

async fn read_line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut line = String::new();
    match stream.read_line(&mut line).await {
        Ok(1..) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
        _ => None,
    }
}

fn base64_decoded(text: &str) -> String {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
