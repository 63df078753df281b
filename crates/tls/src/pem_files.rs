//! What stands in PEM files, and what is wrong with one, in the words of those that make them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::Error;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// Most bytes of a file: some thousand certificates.
const BYTES_MAX: u64 = 2 << 20;
/// The first byte of a certificate or key in DER: a sequence.
const DER: u8 = 0x30;

/// The bytes of a file.
pub(crate) fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
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
    chain(path, &contents(path)?)
}

/// The certificates in the bytes of this file; at least one.
pub(crate) fn chain(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(bytes);
    let found = found.collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| TlsError::of_file(path, of_pem(&error, "CERTIFICATE")))?;
    match found.is_empty() {
        true => Err(TlsError::of_file(path, nothing(bytes, "certificate", "CERTIFICATE"))),
        false => Ok(found),
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
pub(crate) fn of_certificate(error: &Error) -> String {
    let text = error.to_string();
    let why = match text.rsplit_once("UnsupportedCertVersion") {
        Some(_) => "it is of an old version of X.509",
        None => "it can't be read",
    };
    format!("its first certificate can't be used: {why}; expected X.509 version 3 ({text})")
}
