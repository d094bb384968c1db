//! TLS for tests: a certificate, and an end of TLS in front of a server that has none.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::TempFolder;

/// A certificate for `localhost` and 127.0.0.1 that is signed by itself.
pub(crate) struct Certificate {
    folder: TempFolder,
}

impl Certificate {
    pub(crate) fn make() -> Self {
        let folder = TempFolder::new();
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"])
            .args(["subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext"])
            .args(["basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { folder }
    }

    /// In PEM form.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_file(self.file()).unwrap();
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

/// Takes connections with TLS and passes them on without. It ends when dropped.
pub struct TlsFront {
    address: SocketAddr,
    certificate: Certificate,
    stop: CancellationToken,
}

impl TlsFront {
    /// In front of a server, given as `host:port`.
    ///
    /// # Panics
    /// Where no port is free or there is no `openssl`.
    pub async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, certificate) = (listener.local_addr().unwrap(), Certificate::make());
        let (acceptor, server) = (certificate.acceptor(), server.to_owned());
        let stop = CancellationToken::new();
        let ended = stop.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let passing = pass_on(acceptor.clone(), stream, server.clone());
                tokio::spawn(ended.clone().run_until_cancelled_owned(passing));
            }
        }));
        Self { address, certificate, stop }
    }

    /// Where it listens, as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What a client has to trust, in PEM form.
    pub fn ca(&self) -> PathBuf {
        self.certificate.file()
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Until either side closes. A client that does not trust the certificate is its own matter.
async fn pass_on(acceptor: TlsAcceptor, stream: TcpStream, server: String) {
    let Ok(mut client) = acceptor.accept(stream).await else { return };
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
}
