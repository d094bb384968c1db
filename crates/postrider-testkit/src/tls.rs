//! TLS for tests: a certificate, and a TLS terminator in front of a server without TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::TempFolder;

/// Configuration of a CA that signs every request with the names in it.
const EXPIRED_CA: &str = "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nrand_serial=yes\n\
    default_md=sha256\npolicy=any\ncopy_extensions=copy\nnew_certs_dir=.\n\
    [any]\ncommonName=supplied\n";

/// A self-signed certificate for `localhost` and 127.0.0.1.
pub(crate) struct Certificate {
    folder: TempFolder,
}

impl Certificate {
    pub(crate) fn make() -> Self {
        let certificate = Self { folder: TempFolder::new() };
        let mut made = openssl(&["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
        certificate.run(
            made.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"])
                .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext"])
                .args(["basicConstraints=critical,CA:FALSE", "-keyout", "key.pem"])
                .args(["-out", "cert.pem"]),
        );
        certificate
    }

    /// Returns its path in PEM format.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_with(&self.file())
    }

    /// Returns an acceptor with a certificate for the same key that expired years ago.
    fn expired_acceptor(&self) -> TlsAcceptor {
        let subject = ["-subj", "/CN=localhost", "-addext"];
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let config = self.folder.path().join("ca.cnf");
        std::fs::write(config, EXPIRED_CA).unwrap();
        std::fs::write(self.folder.path().join("index.txt"), "").unwrap();
        let mut asked = openssl(&["req", "-new", "-key", "key.pem", "-out", "request.pem"]);
        self.run(asked.args(subject).arg(names));
        let mut signed = openssl(&["ca", "-batch", "-selfsign", "-config", "ca.cnf", "-notext"]);
        let signed = signed.args(["-keyfile", "key.pem", "-in", "request.pem"]);
        let dates = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"];
        self.run(signed.args(dates).args(["-out", "expired.pem"]));
        self.acceptor_with(&self.folder.path().join("expired.pem"))
    }

    fn run(&self, command: &mut Command) {
        let made = command.current_dir(self.folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
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
                let passing = pass_on(acceptor, stream, server.clone());
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

/// Passes data until either side closes. Ends if the client does not trust the certificate.
async fn pass_on(acceptor: TlsAcceptor, stream: TcpStream, server: String) {
    let Ok(mut client) = acceptor.accept(stream).await else { return };
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
}

fn openssl(arguments: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(arguments);
    command
}
