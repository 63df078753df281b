//! What a plan's trust means for rustls: certificates that are read once, before a run.
//!
//! Only [`Trust::Anybody`] accepts what it cannot check; it still checks that the server has the
//! key of the certificate that it shows.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::{LoadError, Trust};

/// What all encrypted connections of a run have in common.
///
/// # Errors
/// [`LoadError::Plan`] when a file of certificates can't be used.
pub(crate) fn client_config(trust: &Trust) -> Result<Arc<ClientConfig>, LoadError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Public => {
            let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
            believing(roots, &provider)?
        }
        Trust::File(path) => {
            let named = read(path)?;
            let mut roots = RootCertStore::empty();
            for certificate in &named {
                let wrong = |error: rustls::Error| refused(format!("{}: {error}", path.display()));
                roots.add(certificate.clone()).map_err(wrong)?;
            }
            Arc::new(Named { named, others: believing(roots, &provider)? })
        }
        Trust::Anybody => Arc::new(Believing(Arc::clone(&provider))),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has what TLS needs");
    let custom = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = custom.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn believing(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, LoadError> {
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    let verifier = builder.build().map_err(|error| refused(error.to_string()))?;
    Ok(verifier)
}

/// The certificates of a PEM file; at least one.
fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let wrong = |why: String| refused(format!("{}: {why}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let found: Result<Vec<_>, _> = found.collect();
    match found.map_err(|error| wrong(error.to_string()))? {
        none if none.is_empty() => {
            Err(wrong("no certificate in it; expected a PEM file with CERTIFICATE".to_owned()))
        }
        some => Ok(some),
    }
}

fn refused(why: String) -> LoadError {
    LoadError::Plan { what: "--cacert", why }
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
    ) -> Result<ServerCertVerified, rustls::Error> {
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
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.others.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.others.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.others.supported_verify_schemes()
    }
}

/// Whether nothing is wrong with a certificate but who signed it, or that it is an authority's: such
/// are most that a server has signed itself.
pub(crate) fn is_of_the_issuer(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            let error = other.downcast_ref::<webpki::Error>();
            error.is_some_and(|error| *error == webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

/// Believes every certificate.
#[derive(Debug)]
struct Believing(Arc<CryptoProvider>);

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
