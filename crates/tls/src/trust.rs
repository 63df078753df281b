//! Which certificates are believed, as a configuration of rustls that is made once, and why a handshake
//! failed.
//!
//! Only [`Trust::AnyCertificate`] accepts what it cannot check; it still checks that the server has the
//! key of the certificate that it shows.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::CertificateError::{
    self, ApplicationVerificationFailure, Expired, ExpiredContext, NotValidForName,
    NotValidForNameContext, NotValidYet, NotValidYetContext,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::keys::certificates;
use crate::{TlsError, protocols};

/// Whose certificates are accepted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Trust {
    /// Those of the public authorities, as Mozilla lists them.
    #[default]
    Public,
    /// Those of the authorities that this system trusts: where its distribution keeps them, or what
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    System,
    /// Those that the authorities in this PEM file have signed, and those in it.
    File(PathBuf),
    /// Of any server: the connection is encrypted, and the peer is not known.
    AnyCertificate,
}

impl Trust {
    /// What all connections with this trust have in common: TLS 1.2 and 1.3, and by ALPN the
    /// protocols of these names, the best first; nothing for one that has no name.
    ///
    /// # Errors
    /// A file of certificates can't be used, or this system trusts no authority.
    pub fn config<'n>(
        &self,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match self {
            Self::Public => {
                let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
                verifier(roots, &provider)?
            }
            Self::System => verifier(system()?, &provider)?,
            Self::File(path) => {
                let named = certificates(path)?;
                let mut roots = RootCertStore::empty();
                for certificate in &named {
                    let added = roots.add(certificate.clone());
                    added.map_err(|error| TlsError::of_file(path, error))?;
                }
                Arc::new(Named { named, others: verifier(roots, &provider)? })
            }
            Self::AnyCertificate => Arc::new(AnyWithKey(Arc::clone(&provider))),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has what TLS needs");
        let custom = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = custom.with_no_client_auth();
        config.alpn_protocols = protocols(names);
        Ok(Arc::new(config))
    }
}

/// The same, but each connection makes a full handshake: no session is kept to be resumed.
#[must_use]
pub fn without_resumption(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// The name of a server: one of DNS, or an address. An address is not sent to the server (RFC 6066 3).
///
/// # Errors
/// It is neither.
pub fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    let wrong = |_| format!("\"{text}\" is not a name that a certificate can have");
    ServerName::try_from(text.to_owned()).map_err(wrong)
}

/// The authorities that this system trusts. Some that can't be read are not a reason to do without the
/// others.
fn system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(TlsError::new(format!("this system has no certificates of authorities{why}")));
    }
    Ok(roots)
}

fn verifier(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    let verifier = builder.build().map_err(TlsError::new)?;
    Ok(verifier)
}

/// Believes a server that shows a certificate of the file itself, and those that the authorities
/// in it have signed. The first kind is what servers with a certificate that they signed themselves
/// show; many of these say that they are authorities, which no server's certificate may say
/// otherwise.
#[derive(Debug)]
struct Named {
    named: Vec<CertificateDer<'static>>,
    others: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let others = &self.others;
        match others.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
            // Dates are looked at before the issuer, so they are right here.
            Err(error) if self.named.contains(end_entity) && is_of_the_issuer(&error) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.others.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.others.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.others.supported_verify_schemes()
    }
}

/// Whether nothing is wrong with a certificate but its signer, or that it is an authority's: such
/// are most that a server has signed itself.
fn is_of_the_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            let error = other.downcast_ref::<webpki::Error>();
            error.is_some_and(|error| *error == webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

/// Accepts every certificate of a server that has its key.
#[derive(Debug)]
struct AnyWithKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyWithKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What a user can do about a certificate, in the words of the program that they use.
#[derive(Clone, Copy, Debug)]
pub struct Remedies {
    /// How an authority is named, such as `--cacert FILE`.
    pub name_authority: &'static str,
    /// How any certificate is accepted, such as `--insecure`.
    pub accept_any: &'static str,
    /// What to do where the server's certificate has another name.
    pub name_server: &'static str,
}

impl Remedies {
    /// Why a client's handshake failed, and what to do.
    #[must_use]
    pub fn why(&self, error: &Error) -> String {
        use Error::{AlertReceived, InvalidCertificate, InvalidMessage};
        let Self { name_authority, accept_any, name_server } = self;
        match error {
            error if is_of_the_issuer(error) => format!(
                "the certificate's authority is unknown; give its certificate with \
                 {name_authority}, or {accept_any} to accept any"
            ),
            InvalidCertificate(NotValidForNameContext { expected, presented }) => format!(
                "the certificate is for {}, not \"{}\"; {name_server}, or give {accept_any}",
                names(presented),
                expected.to_str()
            ),
            InvalidCertificate(NotValidForName) => {
                format!("the certificate is for another name; {name_server}, or give {accept_any}")
            }
            InvalidCertificate(ExpiredContext { not_after, .. }) => format!(
                "the certificate expired on {}; renew it, or give {accept_any}",
                date(*not_after)
            ),
            InvalidCertificate(Expired) => {
                format!("the certificate has expired; renew it, or give {accept_any}")
            }
            InvalidCertificate(NotValidYetContext { not_before, .. }) => format!(
                "the certificate is valid from {} on only; check the clock, or give {accept_any}",
                date(*not_before)
            ),
            InvalidCertificate(NotValidYet) => {
                format!("the certificate is not valid yet; check the clock, or give {accept_any}")
            }
            InvalidCertificate(ApplicationVerificationFailure) => {
                format!("the certificate was not accepted; {accept_any} accepts any")
            }
            InvalidCertificate(other) => {
                format!("the certificate can't be believed: {other}; {accept_any} accepts any")
            }
            InvalidMessage(_) => "the server does not speak TLS (is it http://?)".to_owned(),
            AlertReceived(alert) => format!("the server refused with the alert {alert:?}"),
            other => other.to_string(),
        }
    }
}

/// A moment as people write it.
pub(crate) fn date(at: UnixTime) -> String {
    let at = i64::try_from(at.as_secs()).ok().and_then(|at| Timestamp::from_second(at).ok());
    at.map_or_else(|| "–".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// `DnsName("a")` and `IpAddress(::1)`, as rustls shows names, in quotes; the first few of them.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 3;
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        format!("\"{}\"", inner.unwrap_or(name).trim_matches('"'))
    };
    let shown: Vec<String> = presented.iter().take(SHOWN).map(bare).collect();
    match presented.len() {
        0 => "no name".to_owned(),
        len if len > SHOWN => format!("{} and {} more", shown.join(", "), len - SHOWN),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_certificates_are_bare_and_few() {
        let presented = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<String> = presented(&["DnsName(\"a\")", "IpAddress(::1)", "b", "c", "d"]);
        assert_eq!(names(&all), "\"a\", \"::1\", \"b\" and 2 more");
        assert_eq!(names(&all[..1]), "\"a\"");
        assert_eq!(names(&[]), "no name");
    }
}
