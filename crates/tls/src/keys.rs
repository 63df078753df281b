//! Certificates and keys in PEM files: read once, and again when a server is told to.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, ServerConfig};

use crate::protocols;

/// Where the certificate and key of a server are, or those of a client that has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    /// A PEM file: the server's certificate first, then those that lead to an authority.
    pub cert: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

/// What stands in the two files.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Pem {
    /// The certificates.
    pub cert: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

/// Most bytes of either file: some thousand certificates.
const PEM_BYTES_MAX: u64 = 2 << 20;

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
    /// Reads both, and what connections have in common: see [`Certificate::open`].
    ///
    /// # Errors
    /// As [`Certificate::open`].
    pub fn read(&self, protocol: Option<&[u8]>) -> Result<Arc<ServerConfig>, TlsError> {
        Certificate::open(self.clone(), protocol).map(|certificate| certificate.config)
    }

    /// The same configuration of a client, which shows this certificate where a server asks for one.
    ///
    /// # Errors
    /// A file can't be used, or the two do not belong together.
    pub fn shown_by(&self, config: &ClientConfig) -> Result<Arc<ClientConfig>, TlsError> {
        let certified = self.certified(&self.load()?)?;
        let mut config = config.clone();
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(Arc::new(config))
    }

    /// Reads both files as they are.
    ///
    /// # Errors
    /// One can't be read, or is longer than 2 MiB.
    pub fn load(&self) -> Result<Pem, TlsError> {
        Ok(Pem { cert: contents(&self.cert)?, key: contents(&self.key)? })
    }

    fn certified(&self, pem: &Pem) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain = parsed(&self.cert, &pem.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError::of_file(&self.key, NO_KEY),
            error => {
                TlsError::of_file(&self.key, format!("{error}; expected a PEM file with a key"))
            }
        })?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let certified = certified.map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                let cert = self.cert.display();
                let why = format!(
                    "not the private key of the first certificate in {cert}; expected the two to \
                     belong together"
                );
                TlsError::of_file(&self.key, why)
            }
            Error::InvalidCertificate(_) => TlsError::of_file(&self.cert, error),
            error => TlsError::of_file(&self.key, error),
        })?;
        Ok(Arc::new(certified))
    }
}

/// What is said of a file in which no key was found.
const NO_KEY: &str =
    "no private key that can be read in it; expected a PEM file with a key that is not encrypted";

/// A certificate that a server shows, and that can be read anew while it does.
#[derive(Clone, Debug)]
pub struct Certificate {
    keys: Keys,
    shown: Arc<Shown>,
    config: Arc<ServerConfig>,
}

/// What new connections are shown; those that are open keep what they have seen.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().expect("nothing panics under this lock")))
    }
}

impl Certificate {
    /// Reads the files, and makes what connections have in common: TLS 1.2 and 1.3, tickets to resume
    /// sessions by (their keys are this process's own and change every six hours), no early data, the
    /// server's order of cipher suites, and by ALPN the protocol of this name, if it has one.
    ///
    /// # Errors
    /// A file can't be read, has nothing of its kind, or they don't belong together.
    pub fn open(keys: Keys, protocol: Option<&[u8]>) -> Result<Self, TlsError> {
        let shown = Arc::new(Shown(RwLock::new(keys.certified(&keys.load()?)?)));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what TLS needs");
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&shown) as _;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = protocols(protocol);
        // All suites are strong; checkers mark down a server that leaves the choice to its clients.
        config.ignore_client_order = true;
        config.ticketer = ring::Ticketer::new().map_err(TlsError::new)?;
        Ok(Self { keys, shown, config: Arc::new(config) })
    }

    /// What connections have in common.
    #[must_use]
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Where it is read from.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Shows what its files have now to connections that come from now on.
    ///
    /// # Errors
    /// As [`Certificate::open`]; the old certificate is shown on then.
    pub fn renew(&self, pem: &Pem) -> Result<(), TlsError> {
        let new = self.keys.certified(pem)?;
        *self.shown.0.write().expect("nothing panics under this lock") = new;
        Ok(())
    }
}

/// The certificates of a PEM file; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    parsed(path, &contents(path)?)
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let wrong = |error: std::io::Error| TlsError::of_file(path, error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(TlsError::of_file(path, "longer than 2 MiB; expected a PEM file"));
    }
    Ok(bytes)
}

/// The certificates in the bytes of this file.
fn parsed(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error: pem::Error| TlsError::of_file(path, error);
    let found = CertificateDer::pem_slice_iter(bytes);
    let found = found.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() {
        let why = "no certificate in it; expected a PEM file with CERTIFICATE";
        return Err(TlsError::of_file(path, why));
    }
    Ok(found)
}
