//! Certificates and keys of a server, read once, before it starts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Where a server's certificate and key are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    /// A PEM file: the server's certificate first, then those that lead to an authority.
    pub cert: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

/// A file that can't be used.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for TlsError {}

impl Keys {
    /// Reads both, and what connections have in common: TLS 1.2 and 1.3, HTTP/1.1 by ALPN.
    ///
    /// # Errors
    /// A file can't be read, has nothing of its kind, or they don't belong together.
    pub fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let wrong = |path: &Path, why: String| TlsError { path: path.to_owned(), why };
        let cert = |error: rustls::pki_types::pem::Error| wrong(&self.cert, error.to_string());
        let found = CertificateDer::pem_file_iter(&self.cert).map_err(cert)?;
        let certificates = found.collect::<Result<Vec<_>, _>>().map_err(cert)?;
        if certificates.is_empty() {
            let why = "no certificate in it; expected a PEM file with CERTIFICATE".to_owned();
            return Err(wrong(&self.cert, why));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
            wrong(&self.key, format!("{error}; expected a PEM file with a key"))
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what TLS needs");
        let config = builder.with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.map_err(|error| wrong(&self.key, error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
