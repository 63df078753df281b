//! Certificates of clients: the authorities that they are asked for, and what is found out about one that was shown.
//!
//! A handshake takes any certificate whose key the client has, or none. Whether it is believed is found out once the handshake
//! is through, for each connection anew, one that takes up an earlier session too: so no ticket outlives its certificate, or
//! the trust in it, and who is refused can be answered, which an alert can't.

use std::fmt;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme, SupportedCipherSuite,
};
use webpki::EndEntityCert;

use crate::keys::{TlsError, certificates};
use crate::subject;
use crate::trust::date;

/// Most bytes of all certificates that a client may show: a connection, and its tickets, keep them.
const CHAIN_BYTES_MAX: usize = 16 * 1024;
/// Longest text of a subject.
const SUBJECT_BYTES_MAX: usize = 1024;

/// A list of authorities, by its place in [`Named::authorities`](crate::Named::authorities).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthorityId(u16);

impl AuthorityId {
    /// That of the place.
    ///
    /// # Panics
    /// When that is beyond 65,535: settings have fewer sites.
    #[must_use]
    pub fn of_place(place: usize) -> Self {
        Self(u16::try_from(place).expect("settings have fewer sites"))
    }

    pub(crate) fn place(self) -> usize {
        self.0.into()
    }
}

/// What a handshake has shown of its client, which was asked for a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientShown {
    /// Of these authorities.
    pub asked: AuthorityId,
    pub verdict: ClientVerdict,
}

/// What is known of a client that was asked for a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientVerdict {
    /// It has shown none.
    Nothing,
    /// One of the authorities says who it is.
    Believed(ClientIdentity),
    /// It has shown one that is not believed, and why, in words.
    Refused(String),
}

/// Who a client is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    /// As `CN=anna,O=Example`: visible ASCII and spaces, 1 KiB at most.
    pub subject: String,
    /// Of the whole certificate, in hex.
    pub sha256: String,
}

/// Authorities whose clients are known.
#[derive(Debug)]
pub(crate) struct ClientAuthority {
    path: PathBuf,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthority {
    pub(crate) fn read(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            added.map_err(|error| TlsError::of_file(path, error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        let verifier = builder.build().map_err(|error| TlsError::of_file(path, error))?;
        Ok(Self { path: path.to_owned(), verifier })
    }

    /// What asks for certificates of these in a handshake.
    pub(crate) fn asks(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asks(Arc::clone(&self.verifier)))
    }

    /// What is known by these certificates, the client's own first.
    pub(crate) fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> ClientVerdict {
        let Some((own, others)) = chain.split_first() else { return ClientVerdict::Nothing };
        if let Err(error) = self.verifier.verify_client_cert(own, others, now) {
            return ClientVerdict::Refused(self.why(&error));
        }
        let read = EndEntityCert::try_from(own).ok();
        let subject = read.and_then(|read| subject::text(read.subject()));
        match subject {
            Some(subject) if subject.len() <= SUBJECT_BYTES_MAX => {
                ClientVerdict::Believed(ClientIdentity { subject, sha256: sha256(own) })
            }
            Some(_) => ClientVerdict::Refused(format!(
                "its subject is longer than {SUBJECT_BYTES_MAX} bytes"
            )),
            None => ClientVerdict::Refused("its subject can't be read".to_owned()),
        }
    }

    fn why(&self, error: &Error) -> String {
        use CertificateError::{
            BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext,
            NotValidYet, NotValidYetContext, UnknownIssuer,
        };
        let Error::InvalidCertificate(error) = error else { return error.to_string() };
        match error {
            ExpiredContext { not_after, .. } => format!("it expired on {}", date(*not_after)),
            Expired => "it has expired".to_owned(),
            NotValidYetContext { not_before, .. } => {
                format!("it is valid from {} on only", date(*not_before))
            }
            NotValidYet => "it is not valid yet".to_owned(),
            // An authority of the same name has a key of its own.
            UnknownIssuer | BadSignature => {
                format!("no authority of {} has issued it", self.path.display())
            }
            InvalidPurpose | InvalidPurposeContext { .. } => {
                "it is not for clients (extended key usage)".to_owned()
            }
            other => other.to_string(),
        }
    }
}

/// The digest of these bytes, in hex.
fn sha256(bytes: &[u8]) -> String {
    let SupportedCipherSuite::Tls13(suite) = ring::cipher_suite::TLS13_AES_128_GCM_SHA256 else {
        unreachable!("a suite of TLS 1.3, which has this digest");
    };
    let digest = suite.common.hash_provider.hash(bytes);
    let mut text = String::with_capacity(2 * digest.as_ref().len());
    for byte in digest.as_ref() {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// Asks for a certificate and takes each whose key the client has.
#[derive(Debug)]
struct Asks(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asks {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = own.len() + others.iter().map(|other| other.len()).sum::<usize>();
        if bytes > CHAIN_BYTES_MAX {
            let why = CertificateError::Other(OtherError(Arc::new(LongChain)));
            return Err(Error::InvalidCertificate(why));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A client has shown more than is kept.
#[derive(Debug)]
struct LongChain;

impl fmt::Display for LongChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificates of more than {CHAIN_BYTES_MAX} bytes")
    }
}

impl std::error::Error for LongChain {}
