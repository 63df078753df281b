//! Certificates for tests, and both ends of TLS in the hands of a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use pollux_server::tls::{Certificate, Keys, Trust};
use pollux_testing::DEADLINE;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

pub(crate) type ClientStream = StreamOwned<ClientConnection, TcpStream>;
pub(crate) type ServerStream = StreamOwned<ServerConnection, TcpStream>;

/// A certificate for these names, signed by an authority of its own, in files.
pub(crate) struct Identity {
    folder: tempfile::TempDir,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    pub(crate) fn make() -> Self {
        Self::of(&["localhost", "127.0.0.1"])
    }

    pub(crate) fn of(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut authority = CertificateParams::new(Vec::new()).expect("no names");
        // No two authorities have the same name.
        let name = folder.path().to_string_lossy();
        authority.distinguished_name.push(DnType::CommonName, name.as_ref());
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let root = authority.self_signed(&authority_key).expect("signed");
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let cert = params.signed_by(&key, &issuer).expect("signed");
        let write = |name, text| std::fs::write(folder.path().join(name), text).expect("written");
        write("ca.pem", root.pem());
        write("cert.pem", cert.pem());
        write("key.pem", key.serialize_pem());
        let ca = folder.path().join("ca.pem");
        let keys = keys(&folder);
        let client = Trust::File(ca).config(Some(pollux_tls::HTTP_1_1)).expect("an authority");
        let server = Certificate::open(keys, Some(pollux_tls::HTTP_1_1)).expect("a certificate");
        let server = Arc::clone(server.config());
        Self { folder, client, server }
    }

    pub(crate) fn keys(&self) -> Keys {
        keys(&self.folder)
    }

    /// The authority's certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> ClientStream {
        self.connect_as(&self.client, to)
    }

    /// The same with a client that speaks this protocol, which the server has to agree to.
    pub(crate) fn connect_by(&self, to: SocketAddr, protocol: &[u8]) -> ClientStream {
        let client = Trust::File(self.ca()).config(Some(protocol)).expect("an authority");
        let mut stream = self.connect_as(&client, to);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(protocol));
        stream
    }

    pub(crate) fn connect_as(&self, client: &Arc<ClientConfig>, to: SocketAddr) -> ClientStream {
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::clone(client), name).expect("sound");
        let socket = TcpStream::connect(to).expect("connected");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.set_nodelay(true).expect("set");
        StreamOwned::new(client, socket)
    }

    /// The server's end of a connection, which speaks these protocols.
    pub(crate) fn accept_by(&self, socket: TcpStream, protocols: &[&[u8]]) -> ServerStream {
        let mut server = ServerConfig::clone(&self.server);
        server.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let server = ServerConnection::new(Arc::new(server)).expect("sound");
        StreamOwned::new(server, socket)
    }

    /// The server's end of a connection.
    pub(crate) fn accept(&self, socket: TcpStream) -> ServerStream {
        let server = ServerConnection::new(Arc::clone(&self.server)).expect("sound");
        StreamOwned::new(server, socket)
    }
}

fn keys(folder: &tempfile::TempDir) -> Keys {
    let at = |name| folder.path().join(name);
    Keys { cert: at("cert.pem"), key: at("key.pem") }
}

/// Plays beginnings of TLS that go wrong, each on a connection of its own, and looks at how it ends: with one fatal
/// alert, and never with the `close_notify` of a regular end (RFC 8446 6.2).
pub(crate) fn failed_handshakes(of: &str, connect: impl Fn() -> TcpStream) {
    // The first bytes of a ClientHello, in a record of their own.
    let begun = [&[0x16, 3, 1, 0, 50, 1, 0, 1, 0xfc, 3, 3][..], &[7; 44]].concat();
    let large = [&[0x16, 3, 3, 0, 0x68, 1, 0xff, 0xff, 0xff][..], &[7; 100]].concat();
    let with = |more: &[u8]| [&begun, more].concat();
    for (name, bytes, alerts) in [
        ("data within a hello", with(&[0x17, 3, 3, 0, 0]), &[10][..]),
        ("a warning within a hello", with(&[0x15, 3, 3, 0, 2, 1, 0x5a]), &[10]),
        ("a hello that is too large", large, &[47, 50]),
        ("data first", vec![0x17, 3, 3, 0, 1, 0], &[10, 50]),
        ("a hello of one byte", vec![0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0], &[50]),
        ("no TLS", b"\x01\x02\x03\x04\x05\x06".to_vec(), &[10, 50]),
        ("a fatal alert", vec![0x15, 3, 3, 0, 2, 2, 40], &[]),
    ] {
        let mut socket = connect();
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.write_all(&bytes).expect("sent");
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap_or_else(|error| panic!("{of}, {name}: {error}"));
        match (alerts, rest.as_slice()) {
            ([], []) => {}
            (_, [0x15, 3, _, 0, 2, 2, alert]) if alerts.contains(alert) => {}
            _ => panic!("{of}, {name}: {rest:?}, expected one of {alerts:?}"),
        }
    }
}

/// The next head; what there is of one at the end of the connection, or where it breaks.
pub(crate) fn head(stream: &mut (impl Read + ?Sized)) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_exact(&mut byte).is_err() {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("a text")
}

/// Bytes whose place shows. They are copied turn by turn: byte by byte, megabytes take seconds without optimisation.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let turn: Vec<u8> = (0..251).collect();
    let mut bytes = turn.repeat(len.div_ceil(turn.len()));
    bytes.truncate(len);
    bytes
}
