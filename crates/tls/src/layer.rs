//! TLS of one connection, on either side.
//!
//! ```text
//!  bytes ─► decrypt ─► kept until used ─► session above ─► encrypt ─► write ─► bytes
//! ```
//!
//! What is said above before the handshake is through leaves behind it.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::Acceptor;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Connection, Error, HandshakeKind,
    InvalidMessage, OtherError, ProtocolVersion, ServerConfig, ServerConnection,
};

use crate::asking::AskingConfigs;
use crate::client_certs::{AuthorityId, ClientShown};

/// Room for decrypted bytes that a connection keeps while it has none: an idle one is to be small.
const REST_BYTES_MAX: usize = 1024;

/// TLS of one connection.
#[derive(Debug)]
pub struct Layer {
    connection: Connection,
    /// Decrypted bytes that were not used yet.
    plain: Vec<u8>,
    /// The peer has said that it sends no more (`close_notify`).
    is_closed: bool,
    /// Of a server that asks some clients for certificates.
    clients: Option<Box<Clients>>,
}

/// What a server asks its client for, by the name that it asks for.
struct Clients {
    configs: Arc<AskingConfigs>,
    state: Hello,
}

/// How far a handshake is whose configuration depends on its first message.
enum Hello {
    /// It has not come, or not whole.
    Awaited(Box<Acceptor>),
    /// It can't be answered; this is the alert that says so.
    Failed(Vec<u8>),
    /// It came, and the client is asked for a certificate of these, if it is.
    Read(Option<AuthorityId>),
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Layer {
    /// The side of a server.
    #[must_use]
    pub fn server(config: &Arc<ServerConfig>) -> Self {
        let connection = ServerConnection::new(Arc::clone(config));
        Self::of(connection.expect("the configuration was checked when it was made").into())
    }

    /// The side of a server whose clients are asked for certificates, by the names that they ask for.
    #[must_use]
    pub fn asking_server(configs: &Arc<AskingConfigs>) -> Self {
        let state = Hello::Awaited(Box::default());
        let clients = Some(Box::new(Clients { configs: Arc::clone(configs), state }));
        // In the place of the one that the hello will lead to.
        Self { clients, ..Self::server(&configs.plain) }
    }

    /// The side of a client that connects to a server of this name, which it is asked for and which its
    /// certificate has to have.
    #[must_use]
    pub fn client(config: &Arc<ClientConfig>, name: &ServerName<'static>) -> Self {
        let connection = ClientConnection::new(Arc::clone(config), name.clone());
        Self::of(connection.expect("the configuration was checked when it was made").into())
    }

    fn of(mut connection: Connection) -> Self {
        // What is sent above is bounded by the room that its sender has.
        connection.set_buffer_limit(None);
        Self { connection, plain: Vec::new(), is_closed: false, clients: None }
    }

    /// Whether the handshake is through.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Whether the handshake took up an earlier session, so that nothing was signed; false until it
    /// is through.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether the peer has said that it sends no more. An end of the transport alone proves
    /// nothing: it is not authenticated (RFC 8446 6.1).
    #[must_use]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes some of `rest`, and keeps what is decrypted of it. What follows the peer's end is dropped.
    ///
    /// # Errors
    /// It is not TLS, nothing that both sides can speak, or the peer can't be believed. [`Layer::fail`]
    /// has what is still to be written then.
    pub fn decrypt(&mut self, rest: &mut &[u8]) -> Result<(), Error> {
        let unread = |error: std::io::Error| Error::General(error.to_string());
        if self.is_closed {
            *rest = &[];
            return Ok(());
        }
        if self.awaits_hello() && !self.read_hello(rest)? {
            return Ok(());
        }
        // Nothing to read would be taken for the end.
        if !rest.is_empty() {
            self.connection.read_tls(rest).map_err(unread)?;
        }
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => return Err(self.named(error)),
        };
        self.is_closed |= state.peer_has_closed();
        let at = self.plain.len();
        let len = state.plaintext_bytes_to_read();
        self.plain.resize(at + len, 0);
        match len {
            0 => Ok(()),
            _ => self.connection.reader().read_exact(&mut self.plain[at..]).map_err(unread),
        }
    }

    #[inline]
    fn awaits_hello(&self) -> bool {
        self.clients.as_ref().is_some_and(|clients| matches!(clients.state, Hello::Awaited(_)))
    }

    /// Reads on for the first message of a client, by which the configuration is chosen; whether that is done.
    #[cold]
    fn read_hello(&mut self, rest: &mut &[u8]) -> Result<bool, Error> {
        let Some(Clients { configs, state }) = self.clients.as_deref_mut() else { return Ok(true) };
        let Hello::Awaited(acceptor) = state else { return Ok(true) };
        acceptor.read_tls(rest).map_err(|error| Error::General(error.to_string()))?;
        let (error, alert, name) = match acceptor.accept() {
            Ok(None) => return Ok(false),
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                let (config, asked) = configs.of(name.as_deref());
                match accepted.into_connection(Arc::clone(config)) {
                    Ok(mut connection) => {
                        connection.set_buffer_limit(None);
                        self.connection = connection.into();
                        *state = Hello::Read(asked);
                        return Ok(true);
                    }
                    Err((error, alert)) => (error, alert, name),
                }
            }
            Err((error, alert)) => (error, alert, None),
        };
        let mut alert = alert;
        let mut bytes = Vec::new();
        alert.write_all(&mut bytes).expect("memory takes everything");
        *state = Hello::Failed(bytes);
        Err(without_certificate(error, || name))
    }

    /// What the handshake, which is through, has shown of a client that was asked for a certificate; none of one that was
    /// not asked.
    #[must_use]
    pub fn client_shown(&self) -> Option<ClientShown> {
        let Clients { configs, state } = self.clients.as_deref()?;
        let Hello::Read(Some(asked)) = state else { return None };
        let chain = self.connection.peer_certificates().unwrap_or_default();
        Some(configs.shown(*asked, chain, UnixTime::now()))
    }

    /// Whether something was decrypted that was not used yet.
    #[must_use]
    #[inline]
    pub fn has_input(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Takes what was decrypted and not used: [`Layer::used`] gives back what is left of it.
    pub fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.plain)
    }

    /// So much of `input` was used.
    pub fn used(&mut self, mut input: Vec<u8>, used: usize) {
        input.drain(..used);
        if !input.is_empty() || input.capacity() <= REST_BYTES_MAX {
            self.plain = input;
        }
    }

    /// Encrypts what was said above.
    pub fn encrypt(&mut self, plain: &[u8]) {
        self.connection.writer().write_all(plain).expect("memory takes everything");
    }

    /// Whether this is the side of a server.
    #[must_use]
    #[inline]
    pub fn is_server(&self) -> bool {
        matches!(self.connection, Connection::Server(_))
    }

    /// The last bytes of a connection that failed by `error`: what waited, and the fatal alert behind it that
    /// says why (RFC 8446 6.2). Nothing more is to be encrypted or written then.
    ///
    /// Nothing behind a fatal alert of the peer, which has to be left unanswered. Nothing, too, where
    /// rustls made no alert and this side encrypts already: such an alert can't be made from outside, and a
    /// `close_notify` would be that of a regular end.
    pub fn fail(&mut self, error: &Error) -> Vec<u8> {
        let mut last = Vec::new();
        if let Some(Clients { state: Hello::Failed(alert), .. }) = self.clients.as_deref_mut() {
            last.append(alert);
        }
        while self.connection.wants_write() {
            self.connection.write_tls(&mut last).expect("memory takes everything");
        }
        if ends_in_alert(&last) {
            if NoCertificate::of(error).is_some()
                && let Some(alert) = last.last_mut()
            {
                // In the clear, as nothing is agreed on yet; rustls says access_denied.
                *alert = UNRECOGNIZED_NAME;
            }
            return last;
        }
        let is_of_peer = matches!(error, Error::AlertReceived(_));
        if is_of_peer || self.is_encrypting() {
            return Vec::new();
        }
        let alert = u8::from(alert_for(error));
        last.extend_from_slice(&[ALERT, 3, 3, 0, 2, FATAL, alert]);
        last
    }

    /// The same error, with the name for which there is no certificate.
    #[cold]
    fn named(&self, error: Error) -> Error {
        match &self.connection {
            Connection::Server(server) => {
                without_certificate(error, || server.server_name().map(str::to_owned))
            }
            Connection::Client(_) => error,
        }
    }

    /// The name that the client has asked for, on the side of a server; none before that is known.
    #[must_use]
    pub fn asked_name(&self) -> Option<&str> {
        match &self.connection {
            Connection::Server(server) => server.server_name(),
            Connection::Client(_) => None,
        }
    }

    /// Whether what is sent next would be encrypted.
    fn is_encrypting(&self) -> bool {
        match self.connection.protocol_version() {
            None => false,
            // A server that resumes says its last word first.
            Some(ProtocolVersion::TLSv1_2) => self.is_open() || self.is_resumed(),
            Some(_) => true,
        }
    }

    /// Says that no more comes.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether something is to be written.
    #[must_use]
    #[inline]
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes some of it into `room`; says how many bytes.
    pub fn write(&mut self, mut room: &mut [u8]) -> usize {
        self.connection.write_tls(&mut room).expect("memory takes what fits")
    }

    /// Version and cipher suite that both sides agreed on, as rustls names them
    /// (`TLSv1_3 TLS13_AES_128_GCM_SHA256`); none before that.
    #[must_use]
    pub fn suite(&self) -> Option<String> {
        let version = self.connection.protocol_version()?;
        let suite = self.connection.negotiated_cipher_suite()?.suite();
        Some(format!("{} {}", version.as_str()?, suite.as_str()?))
    }

    /// The protocol that both sides agreed on by ALPN.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }
}

/// The same error, with the name for which there is no certificate, where that is why.
fn without_certificate(error: Error, name: impl FnOnce() -> Option<String>) -> Error {
    match error {
        Error::General(why) if why == NONE_RESOLVED => {
            Error::Other(OtherError(Arc::new(NoCertificate { name: name() })))
        }
        error => error,
    }
}

/// What rustls says where no certificate was chosen.
const NONE_RESOLVED: &str = "no server certificate chain resolved";
/// The alert for that (RFC 6066 3).
const UNRECOGNIZED_NAME: u8 = 112;

/// Why a client got no certificate: none is for what it asked for.
#[derive(Debug)]
pub struct NoCertificate {
    /// None where it asked for no name.
    name: Option<String>,
}

impl NoCertificate {
    /// Whether a connection failed by that.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Other(OtherError(other)) => other.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for NoCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            // It has the letters of a name alone.
            Some(name) => write!(f, "no certificate is for {name}, which it asks for"),
            None => f.write_str("it asks for no name, and no certificate is for such clients"),
        }
    }
}

impl std::error::Error for NoCertificate {}

/// Type of a record with an alert.
const ALERT: u8 = 21;
/// Type of a record whose content is encrypted in TLS 1.3, its type too.
const OPAQUE: u8 = 23;
/// Level of an alert that ends the connection.
const FATAL: u8 = 2;

/// Records that are alerts: type, and length of what is behind the head of 5 bytes. An alert is two bytes; encrypted
/// in TLS 1.3 with its type and a tag of 16, in 1.2 with a tag, and with AES a nonce of 8 too.
const ALERTS: [(u8, usize); 4] =
    [(ALERT, 2), (OPAQUE, 2 + 1 + 16), (ALERT, 2 + 16), (ALERT, 8 + 2 + 16)];

/// Whether the last record is an alert. Looked at from its end: the first record may have left in part.
fn ends_in_alert(records: &[u8]) -> bool {
    ALERTS.into_iter().any(|(kind, len)| {
        let start = records.len().checked_sub(5 + len);
        let head = start.and_then(|start| records.get(start..start + 5));
        head == Some(&[kind, 3, 3, 0, len as u8])
    })
}

/// The alert for an error for which rustls has made none.
fn alert_for(error: &Error) -> AlertDescription {
    match error {
        Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => {
            AlertDescription::IllegalParameter
        }
        Error::InvalidMessage(_) => AlertDescription::DecodeError,
        Error::PeerIncompatible(_) => AlertDescription::HandshakeFailure,
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => AlertDescription::UnexpectedMessage,
        Error::DecryptError => AlertDescription::BadRecordMac,
        Error::InvalidCertificate(_) => AlertDescription::BadCertificate,
        _ => AlertDescription::InternalError,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rustls::crypto::cipher::{InboundOpaqueMessage, OutboundChunks, OutboundPlainMessage};
    use rustls::{ConnectionTrafficSecrets, ContentType};

    use super::*;
    use crate::{Certificate, HTTP_1_1, Keys, Trust, server_name};

    /// Carries what one has to say to the other one, in pieces of so many bytes.
    fn carry(from: &mut Layer, to: &mut Layer, piece_bytes: usize) {
        let mut wire = [0; 1024];
        while from.wants_write() {
            let len = from.write(&mut wire);
            for mut piece in wire[..len].chunks(piece_bytes) {
                while !piece.is_empty() {
                    to.decrypt(&mut piece).expect("sound");
                }
            }
        }
    }

    /// A server's and a client's configuration that fit together.
    pub(crate) fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let folder = tempfile::tempdir().expect("a folder");
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("signed");
        let keys = Keys { cert: folder.path().join("cert"), key: folder.path().join("key") };
        std::fs::write(&keys.cert, cert.pem()).expect("written");
        std::fs::write(&keys.key, key.serialize_pem()).expect("written");
        let server =
            Certificate::open(keys.clone(), Some(HTTP_1_1)).expect("a certificate and its key");
        let client = Trust::File(keys.cert).config(Some(HTTP_1_1)).expect("a certificate");
        (Arc::clone(server.config()), client)
    }

    #[test]
    fn a_record_of_zeros_alone_is_answered_with_unexpected_message() {
        let (server, client) = configs();
        let mut client = ClientConfig::clone(&client);
        client.enable_secret_extraction = true;
        let mut server = Layer::server(&server);
        let mut client =
            Layer::client(&Arc::new(client), &server_name("localhost").expect("a name"));
        while client.wants_write() || server.wants_write() {
            carry(&mut client, &mut server, 1024);
            carry(&mut server, &mut client, 1024);
        }
        let suite = client.connection.negotiated_cipher_suite().expect("agreed on");
        let aead = suite.tls13().expect("TLS 1.3").aead_alg;
        let Connection::Client(connection) = client.connection else { panic!("a client") };
        let secrets = connection.dangerous_extract_secrets().expect("allowed");
        let parts = |secrets| match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => panic!("a suite of ring"),
        };
        let (sequence, keys) = secrets.tx;
        let (key, iv) = parts(keys);
        let zeros = OutboundPlainMessage {
            typ: ContentType::from(0),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(&[0; 7]),
        };
        let record = aead.encrypter(key, iv).encrypt(zeros, sequence).expect("encrypted").encode();
        let error = server.decrypt(&mut record.as_slice()).expect_err("no content");
        let mut last = server.fail(&error);
        assert_eq!(last[..5], [OPAQUE, 3, 3, 0, 19], "an alert and nothing else: {last:?}");
        let (sequence, keys) = secrets.rx;
        let (key, iv) = parts(keys);
        let sealed = InboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            &mut last[5..],
        );
        let alert = aead.decrypter(key, iv).decrypt(sealed, sequence).expect("ours");
        assert_eq!((alert.typ, alert.payload), (ContentType::Alert, &[FATAL, 10][..]));
    }

    #[test]
    fn both_sides_meet_in_memory_however_the_bytes_are_cut() {
        let (server, client) = configs();
        for piece_bytes in [1, 7, 1024] {
            let mut server = Layer::server(&server);
            let mut client = Layer::client(&client, &server_name("localhost").expect("a name"));
            // Said before the handshake is through: it leaves behind it.
            client.encrypt(b"early");
            while client.wants_write() || server.wants_write() {
                carry(&mut client, &mut server, piece_bytes);
                carry(&mut server, &mut client, piece_bytes);
            }
            assert!(server.is_open() && client.is_open());
            assert_eq!(server.protocol(), Some(HTTP_1_1));
            let input = server.take_input();
            assert_eq!(input, b"early");
            server.used(input, 2);
            assert!(server.has_input() && !client.has_input());
            server.encrypt(b"answer");
            server.close();
            carry(&mut server, &mut client, piece_bytes);
            assert_eq!(
                (client.take_input().as_slice(), client.is_closed()),
                (&b"answer"[..], true)
            );
            assert!(!server.is_closed(), "one side has ended, the other one may continue");
            assert_eq!(server.take_input(), b"rly");
        }
    }
}
