//! Suites of TLS 1.3 that have an alert for a record without an inner type.
//!
//! RFC 8446 5.4: a record that is zeros alone, once it is decrypted, ends the connection with
//! `unexpected_message`. rustls sees it and queues no alert, and once it has failed none can be made from
//! outside. For a protected `change_cipher_spec`, which the same section refuses, it does queue that very alert;
//! so a decrypter in between reports the one as the other. The suites of a server are these; nothing else
//! about them differs from those of ring.

use std::sync::LazyLock;

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, Error, PeerMisbehaved, SupportedCipherSuite,
    Tls13CipherSuite,
};

/// That of ring, with these suites.
pub(crate) fn provider() -> CryptoProvider {
    // They live as long as the process: a suite is known by its place in memory.
    static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
        LazyLock::new(|| ring::default_provider().cipher_suites.into_iter().map(wrapped).collect());
    CryptoProvider { cipher_suites: SUITES.clone(), ..ring::default_provider() }
}

fn wrapped(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else { return suite };
    let CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit } = suite.common;
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: Box::leak(Box::new(Wrapped(suite.aead_alg))),
        quic: suite.quic,
    })))
}

struct Wrapped(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Wrapped {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Decrypter(self.0.decrypter(key, iv)))
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }
}

struct Decrypter(Box<dyn MessageDecrypter>);

impl MessageDecrypter for Decrypter {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        self.0.decrypt(record, sequence).map_err(|error| match error {
            Error::PeerMisbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext) => {
                PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into()
            }
            error => error,
        })
    }
}
