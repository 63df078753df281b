//! Certificates and keys in PEM files: read once, and again when a server reloads.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, InconsistentKeys, ServerConfig};
use webpki::{EndEntityCert, KeyUsage};

use crate::inner_type;
use crate::trust::date;

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
        Ok(Pem { cert: contents(&self.cert)?, key: contents(&self.key)? })
    }

    pub(crate) fn certified(&self, pem: &Pem) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain = certificates_in(&self.cert, &pem.cert)?;
        let key = key(&self.key, &pem.key)?;
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
            Err(error) => Err(TlsError::of_file(&self.cert, of_certificate(&error))),
        }
    }

    /// That the key is not the first certificate's, and which certificate it is of where that is known.
    fn mismatch(&self, certified: &CertifiedKey) -> TlsError {
        let cert = self.cert.display();
        let key = self.key.display();
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
    /// server's order of cipher suites, and by ALPN the first of these protocols that the client knows, if they have
    /// names.
    ///
    /// # Errors
    /// A file can't be read, has nothing of its kind, or they don't belong together.
    pub fn open<'n>(
        keys: Keys,
        protocols: impl IntoIterator<Item = &'n [u8]>,
    ) -> Result<Self, TlsError> {
        let shown = Arc::new(Shown(RwLock::new(keys.certified(&keys.load()?)?)));
        let config = server_config(Arc::clone(&shown) as _, None, protocols)?;
        Ok(Self { keys, shown, config })
    }

    /// When what is shown expires, in seconds since 1970, where that can be read.
    #[must_use]
    pub fn expires_s(&self) -> Option<u64> {
        let shown = Arc::clone(&self.shown.0.read().expect("nothing panics under this lock"));
        let read = EndEntityCert::try_from(shown.cert.first()?).ok()?;
        Validity::of(&read).not_after.map(|end| end.as_secs())
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
        remarks(&self.keys.cert, &shown.cert, UnixTime::now())
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

/// What the connections of a listener have in common that are shown what this says, and asked for certificates, if they are.
pub(crate) fn server_config<'n>(
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    protocols: impl IntoIterator<Item = &'n [u8]>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::new(inner_type::provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what TLS needs");
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = crate::protocols(protocols);
    // All suites are strong; checkers mark down a server that leaves the choice to its clients.
    config.ignore_client_order = true;
    config.ticketer = ring::Ticketer::new().map_err(TlsError::new)?;
    Ok(Arc::new(config))
}

/// When a certificate is valid; none where that can't be read, or is before 1970.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Validity {
    pub(crate) not_before: Option<UnixTime>,
    pub(crate) not_after: Option<UnixTime>,
}

impl Validity {
    /// As the reason says for which it is refused at either end of time.
    pub(crate) fn of(certificate: &EndEntityCert<'_>) -> Self {
        let refused = |seconds: u64| {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let usage = KeyUsage::server_auth();
            certificate.verify_for_usage(&[], &[], &[], at, usage, None, None).err()
        };
        let not_before = match refused(0) {
            Some(webpki::Error::CertNotValidYet { not_before, .. }) => Some(not_before),
            _ => None,
        };
        let not_after = match refused(u64::MAX) {
            Some(webpki::Error::CertExpired { not_after, .. }) => Some(not_after),
            _ => None,
        };
        Self { not_before, not_after }
    }

    /// Whether it is valid then; also where that can't be read.
    pub(crate) fn holds(&self, at: UnixTime) -> bool {
        self.not_before.is_none_or(|begin| begin <= at)
            && self.not_after.is_none_or(|end| at <= end)
    }
}

/// A line for each thing that clients may refuse about the certificates of this file.
///
/// Nothing here keeps a server from starting: a certificate that expired is better renewed while the server
/// runs than while it does not.
pub(crate) fn remarks(path: &Path, chain: &[CertificateDer<'_>], now: UnixTime) -> Vec<String> {
    let path = path.display();
    // What can't be read is of a kind that only clients judge.
    let read = chain.iter().map(|one| EndEntityCert::try_from(one).ok());
    let read: Vec<Option<EndEntityCert<'_>>> = read.collect();
    let dates = read.iter().enumerate().filter_map(|(at, one)| {
        let why = out_of_date(one.as_ref()?, now)?;
        Some(format!("{path}: {} {why}", name(at)))
    });
    let pairs = read.windows(2).enumerate().filter_map(|(at, pair)| {
        let [Some(one), Some(next)] = pair else { return None };
        (one.issuer() != next.subject()).then_some(at)
    });
    let order = pairs.map(|at| {
        format!(
            "{path}: {} is not that of the issuer of {}; some clients refuse it: expected the server's own \
             first, and behind each the one of its issuer",
            name(at + 1),
            name(at)
        )
    });
    dates.chain(order).collect()
}

fn name(at: usize) -> String {
    match at {
        0 => "the certificate".to_owned(),
        at => format!("certificate {} in it", at + 1),
    }
}

/// Why this moment is not one of those that the certificate is for. Dates are looked at before all else,
/// so that no issuer has to be known.
fn out_of_date(certificate: &EndEntityCert<'_>, now: UnixTime) -> Option<String> {
    let usage = KeyUsage::server_auth();
    match certificate.verify_for_usage(&[], &[], &[], now, usage, None, None).err()? {
        webpki::Error::CertExpired { not_after, .. } => {
            Some(format!("expired on {}; clients refuse it: renew it", date(not_after)))
        }
        webpki::Error::CertNotValidYet { not_before, .. } => Some(format!(
            "is valid from {} on only; clients refuse it until then",
            date(not_before)
        )),
        _ => None,
    }
}

/// Most bytes of a file: some thousand certificates.
const BYTES_MAX: u64 = 2 << 20;
/// The first byte of a certificate or key in DER: a sequence.
const DER: u8 = 0x30;

/// The bytes of a file.
fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let wrong = |error: std::io::Error| TlsError::of_file(path, error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(TlsError::of_file(path, "longer than 2 MiB; expected a PEM file"));
    }
    Ok(bytes)
}

/// The certificates of a file; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates_in(path, &contents(path)?)
}

/// The certificates in the bytes of this file; at least one.
fn certificates_in(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(bytes);
    let found = found.collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| TlsError::of_file(path, of_pem(&error, "CERTIFICATE")))?;
    if found.is_empty() {
        Err(TlsError::of_file(path, nothing(bytes, "certificate", "CERTIFICATE")))
    } else {
        Ok(found)
    }
}

/// The first private key in the bytes of this file.
pub(crate) fn key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let has = |words: &[u8]| bytes.windows(words.len()).any(|part| part == words);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        let why = "its private key is encrypted; expected one that is not, as openssl pkey -in FILE writes it";
        return Err(TlsError::of_file(path, why));
    }
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            TlsError::of_file(path, nothing(bytes, "private key", "PRIVATE KEY"))
        }
        error => TlsError::of_file(path, of_pem(&error, "PRIVATE KEY")),
    })
}

/// That there is nothing of this kind in it.
fn nothing(bytes: &[u8], kind: &str, label: &str) -> String {
    match bytes.first() {
        None => format!("the file is empty; expected a PEM file with {label}"),
        Some(&DER) => format!(
            "no {kind} in it, as it is in DER; expected a PEM file with {label} (openssl reads the one with \
             -inform DER and writes the other)"
        ),
        Some(_) => format!("no {kind} in it; expected a PEM file with {label}"),
    }
}

/// What is wrong with the form of a file.
fn of_pem(error: &pem::Error, label: &str) -> String {
    let why = match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let marker = String::from_utf8_lossy(end_marker);
            format!("the file ends before END {}: it is cut", marker.escape_debug())
        }
        pem::Error::IllegalSectionStart { line } => {
            let line = String::from_utf8_lossy(line);
            format!("the line \"{}\" begins no section", line.trim_end().escape_debug())
        }
        pem::Error::Base64Decode(_) => {
            "what stands between BEGIN and END of a section is not base64".to_owned()
        }
        other => other.to_string(),
    };
    format!("{why}; expected a PEM file with {label}")
}

/// What is wrong with a certificate that can't be read.
fn of_certificate(error: &Error) -> String {
    let text = error.to_string();
    let why = match text.rsplit_once("UnsupportedCertVersion") {
        Some(_) => "it is of an old version of X.509",
        None => "it can't be read",
    };
    format!("its first certificate can't be used: {why}; expected X.509 version 3 ({text})")
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    #[test]
    fn dates_and_the_order_of_a_chain_are_reported_and_nothing_of_a_sound_one() {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).expect("no name");
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let key = || KeyPair::generate().expect("a key");
        let root = CertifiedIssuer::self_signed(authority("root"), key()).expect("signed");
        let middle = CertifiedIssuer::signed_by(authority("middle"), key(), &root).expect("signed");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let begin = params.not_before;
        let end = params.not_after;
        let leaf = params.signed_by(&key(), &middle).expect("signed");
        let [leaf, middle, root] = [leaf.der().clone(), middle.der().clone(), root.der().clone()];
        let of = |chain: &[&CertificateDer<'static>], at_s: i64| {
            let chain: Vec<_> = chain.iter().map(|one| (*one).clone()).collect();
            let at_s = u64::try_from(at_s).expect("after 1970");
            let now = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
            remarks(Path::new("c.pem"), &chain, now)
        };
        let now = begin.unix_timestamp() + 1_000_000;
        for sound in [vec![&leaf], vec![&leaf, &middle], vec![&leaf, &middle, &root]] {
            assert_eq!(of(&sound, now), Vec::<String>::new());
        }
        let swapped = of(&[&leaf, &root, &middle], now);
        assert!(swapped.len() == 2, "{swapped:?}");
        assert!(swapped[0].starts_with(
            "c.pem: certificate 2 in it is not that of the issuer of the certificate; some clients"
        ));
        let late = of(&[&leaf, &middle], end.unix_timestamp() + 1);
        assert!(late[0].starts_with("c.pem: the certificate expired on 4096-01-01"), "{late:?}");
        assert!(late[1].starts_with("c.pem: certificate 2 in it expired on "), "{late:?}");
        let early = of(&[&leaf], begin.unix_timestamp() - 1);
        assert!(
            early.len() == 1 && early[0].contains("the certificate is valid from 1975-01-01"),
            "{early:?}"
        );
    }
}
