//! Certificates and keys in PEM files, read once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::protocols;

/// Where a server's certificate and key are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    /// A PEM file: the server's certificate first, then those that lead to an authority.
    pub cert: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

/// Something that is needed for TLS and can't be used.
#[derive(Debug)]
pub struct TlsError {
    /// The file, if it is one.
    path: Option<PathBuf>,
    why: String,
}

impl TlsError {
    pub(crate) fn of_file(path: &Path, why: impl fmt::Display) -> Self {
        Self { path: Some(path.to_owned()), why: why.to_string() }
    }

    /// Something that is no file.
    pub fn new(why: impl fmt::Display) -> Self {
        Self { path: None, why: why.to_string() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for TlsError {}

impl Keys {
    /// Reads both, and what connections have in common: TLS 1.2 and 1.3, and by ALPN the protocol of
    /// this name, if it has one.
    ///
    /// # Errors
    /// A file can't be read, has nothing of its kind, or they don't belong together.
    pub fn read(&self, protocol: Option<&[u8]>) -> Result<Arc<ServerConfig>, TlsError> {
        let certificates = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
            TlsError::of_file(&self.key, format!("{error}; expected a PEM file with a key"))
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what TLS needs");
        let config = builder.with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.map_err(|error| TlsError::of_file(&self.key, error))?;
        config.alpn_protocols = protocols(protocol);
        Ok(Arc::new(config))
    }
}

/// The certificates of a PEM file; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error: rustls::pki_types::pem::Error| TlsError::of_file(path, error);
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() {
        let why = "no certificate in it; expected a PEM file with CERTIFICATE";
        return Err(TlsError::of_file(path, why));
    }
    Ok(found)
}
