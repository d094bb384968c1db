//! TLS for tests: a certificate, and a TLS terminator in front of a server without TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::TempFolder;

/// Configuration of an authority that signs every request with the names in it.
const AUTHORITY: &str = "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nrand_serial=yes\n\
    default_md=sha256\npolicy=any\ncopy_extensions=copy\nnew_certs_dir=.\n\
    certificate=ca.pem\nprivate_key=ca.key\nunique_subject=no\n[any]\ncommonName=supplied\n";

/// A certificate authority, in a folder.
pub(crate) struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Returns the authority that was made in a folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn make(folder: &Path) -> Self {
        let authority = Self::of(folder);
        std::fs::write(folder.join("ca.cnf"), AUTHORITY).unwrap();
        std::fs::write(folder.join("index.txt"), "").unwrap();
        authority.openssl(&[
            ["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"].as_slice(),
            &["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=Authority for tests"],
            &["-addext", "basicConstraints=critical,CA:TRUE"],
            &["-keyout", "ca.key", "-out", "ca.pem"],
        ]);
        authority
    }

    /// Returns its own certificate, which clients trust.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Makes a certificate for `localhost` and 127.0.0.1 for a key in the folder. Returns its path.
    pub(crate) fn sign(&self, key: &str, validity: Validity) -> PathBuf {
        self.openssl(&[
            ["req", "-new", "-key", key, "-out", "request.pem", "-subj", "/CN=localhost"]
                .as_slice(),
            &["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        ]);
        let (name, dates) = match validity {
            Validity::Current => ("current.pem", ["-days", "2"].as_slice()),
            Validity::Expired => {
                let dates = &["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"];
                ("expired.pem", dates.as_slice())
            }
        };
        let signed = ["ca", "-batch", "-config", "ca.cnf", "-notext", "-in", "request.pem"];
        self.openssl(&[signed.as_slice(), dates, &["-out", name]]);
        self.folder.join(name)
    }

    fn openssl(&self, arguments: &[&[&str]]) {
        let mut command = Command::new("openssl");
        let made = command.args(arguments.concat()).current_dir(&self.folder).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Validity {
    Current,
    /// It ended years ago.
    Expired,
}

/// A key and its certificates.
pub(crate) struct Certificate {
    folder: TempFolder,
    authority: Authority,
}

impl Certificate {
    pub(crate) fn make() -> Self {
        let folder = TempFolder::new();
        let authority = Authority::make(folder.path());
        let curve = "ec_paramgen_curve:prime256v1";
        authority.openssl(&[&[
            "genpkey",
            "-algorithm",
            "ec",
            "-pkeyopt",
            curve,
            "-out",
            "key.pem",
        ]]);
        Self { folder, authority }
    }

    /// Returns the certificate that a client has to trust, in PEM format.
    pub(crate) fn file(&self) -> PathBuf {
        self.authority.file()
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_with(&self.authority.sign("key.pem", Validity::Current))
    }

    /// Returns an acceptor with a certificate for the same key that expired years ago.
    fn expired_acceptor(&self) -> TlsAcceptor {
        self.acceptor_with(&self.authority.sign("key.pem", Validity::Expired))
    }

    fn acceptor_with(&self, certificate: &Path) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.folder.path().join("key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Accepts TLS connections and passes them on without TLS. It stops when dropped.
pub struct TlsFront {
    address: SocketAddr,
    certificate: Certificate,
    acceptor: Arc<Mutex<TlsAcceptor>>,
    /// Ends the connections that are open.
    open: Arc<Mutex<CancellationToken>>,
    stop: CancellationToken,
}

impl TlsFront {
    /// Starts in front of a server, given as `host:port`.
    ///
    /// # Panics
    /// If no port is free or there is no `openssl`.
    pub async fn before(server: &str) -> Self {
        Self::start(server, Greeting::None).await
    }

    /// As [`Self::before`], for a server that greets with a line before TLS begins.
    ///
    /// # Panics
    /// If no port is free or there is no `openssl`.
    pub async fn after_greeting(server: &str) -> Self {
        Self::start(server, Greeting::Line).await
    }

    async fn start(server: &str, greeting: Greeting) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, certificate) = (listener.local_addr().unwrap(), Certificate::make());
        let acceptor = Arc::new(Mutex::new(certificate.acceptor()));
        let (stop, server) = (CancellationToken::new(), server.to_owned());
        let open = Arc::new(Mutex::new(stop.child_token()));
        let (accepting, opened) = (Arc::clone(&acceptor), Arc::clone(&open));
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = accepting.lock().unwrap().clone();
                let ended = opened.lock().unwrap().clone();
                let passing = pass_on(acceptor, stream, server.clone(), greeting);
                tokio::spawn(ended.run_until_cancelled_owned(passing));
            }
        }));
        Self { address, certificate, acceptor, open, stop }
    }

    /// Lets the certificate expire: connections end, and new ones get the expired certificate.
    pub fn expire(&self) {
        self.show(self.certificate.expired_acceptor());
    }

    /// Replaces the certificate with a new one for the same key.
    pub fn renew(&self) {
        self.show(self.certificate.acceptor());
    }

    fn show(&self, acceptor: TlsAcceptor) {
        *self.acceptor.lock().unwrap() = acceptor;
        let ended = std::mem::replace(&mut *self.open.lock().unwrap(), self.stop.child_token());
        ended.cancel();
    }

    /// Returns its address as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the certificate that a client has to trust, in PEM format.
    pub fn ca(&self) -> PathBuf {
        self.certificate.file()
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a server sends before TLS begins.
#[derive(Clone, Copy)]
enum Greeting {
    None,
    Line,
}

/// Passes data until either side closes. Ends if the client does not trust the certificate.
async fn pass_on(
    acceptor: TlsAcceptor,
    mut client: TcpStream,
    server: String,
    greeting: Greeting,
) -> Option<()> {
    let mut server = BufReader::new(TcpStream::connect(server).await.ok()?);
    if let Greeting::Line = greeting {
        let mut line = String::new();
        server.read_line(&mut line).await.ok()?;
        client.write_all(line.as_bytes()).await.ok()?;
    }
    let mut client = acceptor.accept(client).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok()?;
    Some(())
}
