//! Certificates and keys in PEM files: read once, and again when a server reloads.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, InconsistentKeys, ServerConfig};

use crate::{chain, pem_files, protocols};

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

    /// Something that is not a file.
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
        Ok(Pem { cert: pem_files::contents(&self.cert)?, key: pem_files::contents(&self.key)? })
    }

    fn certified(&self, pem: &Pem) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain = pem_files::chain(&self.cert, &pem.cert)?;
        let key = pem_files::key(&self.key, &pem.key)?;
        let provider = ring::default_provider();
        // Neither of rustls's own words for this says what it can use.
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|_| TlsError::of_file(&self.key, UNUSABLE_KEY))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Where the key does not say what it is of, the first handshake will.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Arc::new(certified))
            }
            Err(Error::InconsistentKeys(_)) => Err(self.mismatch(&certified)),
            Err(error) => Err(TlsError::of_file(&self.cert, pem_files::of_certificate(&error))),
        }
    }

    /// That the key is not the first certificate's, and which certificate it is of where that is known.
    fn mismatch(&self, certified: &CertifiedKey) -> TlsError {
        let (cert, key) = (self.cert.display(), self.key.display());
        let later = (1..certified.cert.len()).find(|at| {
            let rest = certified.cert[*at..].to_vec();
            CertifiedKey::new(rest, Arc::clone(&certified.key)).keys_match().is_ok()
        });
        match later {
            Some(at) => TlsError::of_file(
                &self.cert,
                format!(
                    "the certificate of the key in {key} is number {} in it; expected it first, and behind \
                     it those that lead to an authority",
                    at + 1
                ),
            ),
            None => TlsError::of_file(
                &self.key,
                format!(
                    "not the private key of the first certificate in {cert}; expected the two to belong \
                     together"
                ),
            ),
        }
    }
}

/// What is said of a key that rustls can't sign with.
const UNUSABLE_KEY: &str = "a private key that is broken, or of a kind that can't be used; expected RSA of \
                            2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519";

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

    /// What clients will not like about it, in lines, although it can be shown: dates, and the order of
    /// the certificates.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let shown = Arc::clone(&self.shown.0.read().expect("nothing panics under this lock"));
        chain::remarks(&self.keys.cert, &shown.cert, UnixTime::now())
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
