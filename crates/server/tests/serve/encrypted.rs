//! TLS of the server, on every driver: answers of all sizes, resumed sessions, wrong bytes, ends,
//! cuts, and a certificate that changes while connections are open.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_server::tls::{Certificate, Keys};
use pollux_server::{Server, ServerCounter};
use pollux_testing::{DEADLINE, uninterrupted};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion};

use crate::identity::{ClientStream, Identity, head, pattern};
use crate::{address, client, count, end, start_on};

/// Around the size of what is read at once, of a record, of a room, and far beyond all.
const SIZES: [usize; 8] = [0, 1, 16_384, 32_768, 32_769, 65_536, 65_537, 3_000_001];

/// Starts the server on each driver in turn; one that is not available is named.
fn on_every_driver(identity: &Identity, settings: &str, test: impl Fn(Driver, &Server)) {
    let Keys { cert, key } = identity.keys();
    for driver in Driver::ALL {
        let text = format!("{settings}\ncert = {cert:?}\nkey = {key:?}");
        if let Some(server) = start_on(driver.name(), &text) {
            test(driver, &server);
            end(server);
        }
    }
}

/// The body that the head announces.
fn body(stream: &mut impl Read, head: &str) -> Vec<u8> {
    let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; len.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    body
}

fn ask(stream: &mut ClientStream, request: &str) -> (String, Vec<u8>) {
    stream.write_all(request.as_bytes()).expect("sent");
    let head = head(stream);
    let body = if request.starts_with("HEAD") { Vec::new() } else { body(stream, &head) };
    (head, body)
}

fn get(path: &str, more: &str) -> String {
    format!("GET /{path} HTTP/1.1\r\nHost: x\r\n{more}\r\n")
}

/// A client that speaks this version only and remembers sessions.
fn client_of(identity: &Identity, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(identity.ca()).expect("an authority");
    roots.add(ca).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[version]).expect("known");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

fn site(folder: &Path) -> String {
    for size in SIZES {
        std::fs::write(folder.join(size.to_string()), pattern(size)).expect("written");
    }
    format!("dir = {folder:?}")
}

#[test]
fn files_of_all_sizes_and_their_parts_come_through_tls() {
    let identity = Identity::make();
    let folder = tempfile::tempdir().expect("a folder");
    on_every_driver(&identity, &site(folder.path()), |driver, server| {
        let mut stream = identity.connect(address(server));
        for size in SIZES {
            let (head, body) = ask(&mut stream, &get(&size.to_string(), ""));
            assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
            assert!(body == pattern(size), "{driver}: {size}");
            let whole = format!("HEAD /{size} HTTP/1.1\r\nHost: x\r\n\r\n");
            let (head, _) = ask(&mut stream, &whole);
            assert!(head.contains(&format!("\r\nContent-Length: {size}\r\n")), "{driver}: {head}");
        }
        for (from, to) in [(5, 5), (7, 100_007), (2_900_000, 3_000_000)] {
            let range = format!("Range: bytes={from}-{to}\r\n");
            let (head, body) = ask(&mut stream, &get("3000001", &range));
            assert!(head.starts_with("HTTP/1.1 206 "), "{driver}: {head}");
            assert!(body == pattern(3_000_001)[from..=to], "{driver}: {from}-{to}");
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]), "{driver}");
        // Many requests at once, large and small, are answered in their order; then the end.
        let mut burst = String::new();
        for size in SIZES {
            burst.write_str(&get(&size.to_string(), "")).expect("memory");
        }
        burst.push_str(&get("1", "Connection: close\r\n"));
        stream.write_all(burst.as_bytes()).expect("sent");
        for size in SIZES.into_iter().chain([1]) {
            let head = head(&mut stream);
            assert!(body(&mut stream, &head) == pattern(size), "{driver}: {size} in a burst");
        }
        let rest = stream.read(&mut [0; 9]).expect("an end with close_notify");
        assert_eq!(rest, 0, "{driver}");
    });
}

#[test]
fn bodies_are_read_and_sent_back_through_tls() {
    let identity = Identity::make();
    on_every_driver(&identity, "echo = true\nmax_body = \"4MiB\"", |driver, server| {
        let mut stream = identity.connect(address(server));
        // Those that the buffers on the way take: nothing is read meanwhile.
        for size in SIZES.into_iter().filter(|size| *size < 100_000) {
            let request = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n");
            let mut sent = request.into_bytes();
            sent.extend(pattern(size));
            stream.write_all(&sent).expect("sent");
            let head = head(&mut stream);
            assert!(body(&mut stream, &head) == pattern(size), "{driver}: {size}");
        }
    });
}

#[test]
fn sessions_are_resumed_by_tickets_in_both_versions() {
    let identity = Identity::make();
    on_every_driver(&identity, "reply = 5\nthreads = 2", |driver, server| {
        for version in [&TLS12, &TLS13] {
            let client = client_of(&identity, version);
            for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
                let mut stream = identity.connect_as(&client, address(server));
                let (_, body) = ask(&mut stream, &get("", ""));
                assert_eq!(body, b"pollu", "{driver}");
                assert_eq!(stream.conn.protocol_version(), Some(version.version), "{driver}");
                assert_eq!(stream.conn.handshake_kind(), Some(expected), "{driver} {version:?}");
            }
        }
        let counts = [ServerCounter::Handshakes, ServerCounter::HandshakesResumed];
        assert_eq!(counts.map(|counter| count(server, counter)), [6, 4], "{driver}");
    });
}

#[test]
fn what_is_not_tls_is_refused_and_a_handshake_has_its_time_from_the_accept() {
    let identity = Identity::make();
    let settings = "reply = 5\nheader_timeout = \"300ms\"";
    on_every_driver(&identity, settings, |driver, server| {
        let mut plain = client(server);
        plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut rest = Vec::new();
        plain.read_to_end(&mut rest).expect("a page and the end");
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.starts_with("HTTP/1.1 400 "), "{driver}: {rest}");
        assert!(rest.contains("sent to HTTPS port"), "{driver}: {rest}");
        assert_eq!(count(server, ServerCounter::TlsFailed), 1, "{driver}");
        // However it is cut on its way, and whatever it asks.
        for (method, target, has_body) in [
            ("GET", "/", true),
            ("TRACE", "/", true),
            ("CONNECT", "a:1", true),
            ("HEAD", "/", false),
        ] {
            let mut plain = client(server);
            plain.set_nodelay(true).expect("set");
            for byte in format!("{method} {target} HTTP/1.1\r\n").as_bytes() {
                // The verdict may be there before the line is whole.
                if plain.write_all(&[*byte]).is_err() {
                    break;
                }
            }
            let mut rest = String::new();
            plain.read_to_string(&mut rest).expect("a page and the end");
            assert!(rest.starts_with("HTTP/1.1 400 "), "{driver}: {method}: {rest}");
            assert_eq!(!rest.ends_with("\r\n\r\n"), has_body, "{driver}: {method}: {rest}");
        }
        // Byte by byte a record never ends; its deadline does not move.
        let mut slow = client(server);
        let begun = Instant::now();
        slow.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat();
        let mut bytes = hello.iter();
        let ended = loop {
            assert!(begun.elapsed() < DEADLINE, "{driver}: a slow handshake continues");
            if let Some(byte) = bytes.next()
                && slow.write_all(&[*byte]).is_err()
            {
                break begun.elapsed();
            }
            match uninterrupted(|| slow.read(&mut [0; 9])) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                _ => break begun.elapsed(),
            }
        };
        assert!(ended >= Duration::from_millis(250), "{driver}: {ended:?}");
        assert_eq!(count(server, ServerCounter::TimeoutsHandshake), 1, "{driver}");
        assert_eq!(count(server, ServerCounter::TimeoutsSilent), 0, "{driver}");
        // One that has shaken hands and asks for nothing is silent, as without TLS.
        let mut silent = identity.connect(address(server));
        silent.flush().expect("a handshake");
        assert_eq!(silent.read(&mut [0; 9]).expect("an end with close_notify"), 0, "{driver}");
        assert_eq!(count(server, ServerCounter::TimeoutsSilent), 1, "{driver}");
    });
}

#[test]
fn a_handshake_that_fails_ends_with_a_fatal_alert() {
    let identity = Identity::make();
    on_every_driver(&identity, "reply = 5", |driver, server| {
        crate::identity::failed_handshakes(&format!("{driver}"), || client(server));
    });
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_through_tls_is_never_taken_for_whole() {
    let identity = Identity::make();
    let folder = tempfile::tempdir().expect("a folder");
    let settings = format!("dir = {:?}", folder.path());
    on_every_driver(&identity, &settings, |driver, server| {
        // More than all buffers on the way take.
        let path = folder.path().join("large");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(256 << 20).expect("set");
        let mut stream = identity.connect(address(server));
        stream.write_all(get("large", "").as_bytes()).expect("sent");
        let head = head(&mut stream);
        assert!(head.contains("\r\nContent-Length: 268435456\r\n"), "{driver}: {head}");
        file.set_len(1 << 20).expect("cut");
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).expect_err("no close_notify");
        assert!(
            matches!(end.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset),
            "{driver}: {end}"
        );
        assert!(rest.len() < 268_435_456, "{driver}");
    });
}

#[test]
fn a_new_certificate_is_shown_to_new_connections_and_a_wrong_one_changes_nothing() {
    let first = Identity::make();
    let second = Identity::make();
    let certificate = Certificate::open(first.keys(), None).expect("right");
    let shows = |identity: &Identity| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = listener.local_addr().expect("bound");
        let config = Arc::clone(certificate.config());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut socket, _) = listener.accept().expect("accepted");
                let mut server = rustls::ServerConnection::new(config).expect("sound");
                while server.is_handshaking() {
                    if server.complete_io(&mut socket).is_err() {
                        break;
                    }
                }
            });
            let mut stream = identity.connect(to);
            stream.flush().is_ok()
        })
    };
    assert!(shows(&first) && !shows(&second));
    let copy = |name: &str| {
        let from = second.keys();
        let to = first.keys();
        let of = |keys: &Keys| if name == "cert" { keys.cert.clone() } else { keys.key.clone() };
        std::fs::copy(of(&from), of(&to)).expect("copied");
    };
    copy("cert");
    let message = certificate
        .keys()
        .load()
        .and_then(|pem| certificate.renew(&pem))
        .expect_err("half of it is new")
        .to_string();
    assert!(message.contains("not the private key of the first certificate in"), "{message}");
    assert!(shows(&first) && !shows(&second), "the old one is shown on");
    copy("key");
    certificate.keys().load().and_then(|pem| certificate.renew(&pem)).expect("both are new");
    assert!(shows(&second) && !shows(&first));
}
