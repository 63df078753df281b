//! TLS without I/O, for servers and clients, and below sessions of the engine.
//!
//! | part | one job |
//! |---|---|
//! | `layer` | one connection: bytes of the wire in and out, plain bytes out and in |
//! | `encrypted` | a session of the engine above such a connection, which does not know of it |
//! | `keys` | the certificate that a server shows, its PEM files, and what clients may refuse about it |
//! | `named` | the certificates of a folder, and which of them a client is shown by the name that it asks for |
//! | `client_certs` | authorities whose certificates clients are asked for, and what is found out about one |
//! | `asking` | by the name that a client asks for, what it is asked for itself |
//! | `subject` | the subject of a certificate as text |
//! | `inner_type` | suites that answer a record without an inner type as the standard says |
//! | `trust` | which certificates are believed, and why a handshake failed |
//!
//! Everything is rustls with its ring provider, TLS 1.2 and 1.3. Nothing here knows a socket; files are
//! read when a configuration is made, and a server's certificate again when it reloads.
#![forbid(unsafe_code)]

mod asking;
mod client_certs;
mod encrypted;
mod inner_type;
mod keys;
mod layer;
mod named;
mod subject;
mod trust;

pub use asking::AskingConfigs;
pub use client_certs::{AuthorityId, ClientIdentity, ClientShown, ClientVerdict};
pub use encrypted::{Encrypted, HoldsTls, Opening, PlaintextSession, SharedTls, Tls};
pub use keys::{Certificate, Keys, Pem, TlsError};
pub use layer::{Layer, NoCertificate};
pub use named::{CERTIFICATES_MAX, Certificates, Named, OfHosts, Otherwise, Pair, ShownId};
pub use rustls::pki_types::ServerName;
pub use rustls::{AlertDescription, ClientConfig, Error, ServerConfig};
pub use trust::{Remedies, Trust, server_name, without_resumption};

/// The name of HTTP/1.1 in ALPN (RFC 7301 6).
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// The name of HTTP/2 in ALPN.
pub const HTTP_2: &[u8] = b"h2";

/// What a configuration says in ALPN, the best first; nothing for a protocol that has no name.
fn protocols<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Vec<Vec<u8>> {
    names.into_iter().map(<[u8]>::to_vec).collect()
}
