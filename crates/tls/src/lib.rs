//! TLS without I/O, for servers and for those that connect to them.
//!
//! | part | one job |
//! |---|---|
//! | `layer` | one connection: bytes of the wire in and out, plain bytes out and in |
//! | `keys` | the certificate that a server shows |
//! | `pem_files` | what stands in PEM files, and what is wrong with one |
//! | `chain` | what clients will not like about a certificate that is shown |
//! | `trust` | which certificates are believed |
//! | `why` | why a handshake failed, and the remedy |
//!
//! Everything is rustls with its ring provider, TLS 1.2 and 1.3. Nothing here knows a socket; files are
//! read when a configuration is made, and a server's certificate again when it reloads.
#![forbid(unsafe_code)]

mod chain;
mod keys;
mod layer;
mod pem_files;
mod trust;
mod why;

pub use keys::{Certificate, Keys, Pem, TlsError};
pub use layer::Layer;
pub use rustls::pki_types::ServerName;
pub use rustls::{ClientConfig, Error, ServerConfig};
pub use trust::{Trust, server_name, without_resumption};
pub use why::Remedies;

/// The name of HTTP/1.1 in ALPN (RFC 7301 6).
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// What a configuration says in ALPN; nothing for a protocol that has no name.
fn protocols(name: Option<&[u8]>) -> Vec<Vec<u8>> {
    name.into_iter().map(<[u8]>::to_vec).collect()
}
