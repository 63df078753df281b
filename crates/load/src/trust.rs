//! What a plan's trust means for rustls: certificates that are read once, before a run.
//!
//! Only [`Trust::Anybody`] accepts what it cannot check; it still checks that the server has the
//! key of the certificate that it shows.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

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
        Trust::File(path) => believing(read(path)?, &provider)?,
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

fn read(path: &Path) -> Result<RootCertStore, LoadError> {
    let wrong = |why: String| refused(format!("{}: {why}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in found {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("no certificate in it; a PEM file with CERTIFICATE is right".to_owned()));
    }
    Ok(roots)
}

fn refused(why: String) -> LoadError {
    LoadError::Plan { what: "--cacert", why }
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
