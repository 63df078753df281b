//! Runs against servers that speak TLS, on every driver: which certificates are trusted, and what fails.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{Crowd, Load, LoadError, Plan, RequestError, Target, Trust, Turns, ask};
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::{is_sound, on_every_driver, plan, try_run};

/// A body longer than a TLS record, so that an answer comes in several.
const BODY_BYTES: usize = 40_000;

/// A request that is answered by a body without a length.
const UNTIL_CLOSE: &[u8] = b"GET /until-close ";

/// A TLS server with a thread for each connection; its certificate is for `localhost`.
struct Encrypted {
    port: u16,
    certificate: PathBuf,
    _folder: tempfile::TempDir,
}

fn start() -> Encrypted {
    start_with(&certificate())
}

/// What a certificate for `localhost` says.
fn certificate() -> CertificateParams {
    CertificateParams::new(["localhost".to_owned()]).expect("a name")
}

/// A server whose certificate says `what`, signed by itself.
fn start_with(what: &CertificateParams) -> Encrypted {
    let signing_key = KeyPair::generate().expect("a key");
    let cert = what.self_signed(&signing_key).expect("made");
    let made = CertifiedKey { cert, signing_key };
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = folder.path().join("certificate.pem");
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    let chain: Vec<CertificateDer<'static>> = vec![made.cert.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || serve(config, stream));
        }
    });
    Encrypted { port, certificate, _folder: folder }
}

fn serve(config: Arc<ServerConfig>, stream: TcpStream) {
    let connection = ServerConnection::new(config).expect("a connection");
    let mut stream = StreamOwned::new(connection, stream);
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + BODY_BYTES, b'x');
    let mut kept = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        kept.extend_from_slice(&piece[..len]);
        while let Some(end) = kept.windows(4).position(|window| window == b"\r\n\r\n") {
            if kept.starts_with(UNTIL_CLOSE) {
                return end_of_tls_alone(stream);
            }
            kept.drain(..end + 4);
            if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

/// Ends the answer by close_notify and leaves the end of the connection to the client, as OpenSSL's
/// own server does.
fn end_of_tls_alone(mut stream: StreamOwned<ServerConnection, TcpStream>) {
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it";
    stream.write_all(answer).expect("the client reads");
    stream.conn.send_close_notify();
    stream.flush().expect("the client reads");
    let mut piece = [0; 4096];
    while matches!(stream.sock.read(&mut piece), Ok(1..)) {}
}

fn encrypted(driver: Driver, server: &Encrypted, host: &str, trust: Trust, requests: u64) -> Plan {
    let url = format!("https://{host}:{}/", server.port);
    Plan { trust, ..plan(driver, &url, 3, requests) }
}

#[test]
fn answers_come_through_tls_on_every_driver() {
    let server = start();
    let trust = Trust::File(server.certificate.clone());
    on_every_driver(
        |driver| {
            let plan = encrypted(driver, &server, "localhost", trust.clone(), 40);
            Plan { pipeline: 4, crowd: Crowd { dead: 2, ..Crowd::default() }, ..plan }
        },
        |outcome| {
            is_sound(outcome);
            let at =
                format!("{}: {:?} {:?}", outcome.setting.driver, outcome.totals, outcome.errors);
            assert_eq!((outcome.totals.right, outcome.errors.total()), (40, 0), "{at}");
            assert_eq!(outcome.totals.body_bytes_in, 40 * BODY_BYTES as u64, "{at}");
            assert_eq!((outcome.crowd[0].connected, outcome.crowd[0].answered), (2, 2), "{at}");
        },
    );
}

#[test]
fn a_connection_for_each_request_shakes_hands_each_time() {
    let server = start();
    let plan = encrypted(Driver::ALL[0], &server, "localhost", Trust::AnyCertificate, 9);
    let outcome = try_run(Plan { requests_per_connection: crate::some(1), ..plan });
    let outcome = outcome.expect("the first driver is everywhere");
    is_sound(&outcome);
    assert_eq!((outcome.totals.right, outcome.errors.total()), (9, 0), "{:?}", outcome.errors);
    assert!(outcome.totals.connects >= 9, "{:?}", outcome.totals);
}

#[test]
fn a_certificate_that_is_not_trusted_is_an_error_of_tls() {
    let server = start();
    let own = Trust::File(server.certificate.clone());
    // No authority signed it, and it is not the one that was asked for.
    for (trust, host) in [(Trust::Public, "localhost"), (own, "127.0.0.1")] {
        let plan = encrypted(Driver::ALL[0], &server, host, trust, 5);
        let outcome = try_run(plan).expect("the first driver is everywhere");
        assert_eq!((outcome.totals.answered, outcome.errors.tls), (0, 5), "{:?}", outcome.errors);
    }
}

/// Runs against `server` as `host`; says why the first connection failed.
fn first_failure(server: &Encrypted, host: &str, trust: Trust) -> String {
    let plan = encrypted(Driver::ALL[0], server, host, trust, 5);
    let outcome = try_run(plan).expect("the first driver is everywhere");
    assert_eq!((outcome.totals.answered, outcome.errors.tls), (0, 5), "{:?}", outcome.errors);
    outcome.first_failure.expect("a reason")
}

#[test]
fn a_handshake_that_fails_says_why_and_what_to_do() {
    let server = start();
    let own = Trust::File(server.certificate.clone());
    let mut old = certificate();
    old.not_after = date_time_ymd(2020, 1, 2);
    let expired = start_with(&old);
    for (server, host, trust, words) in [
        (&server, "localhost", Trust::Public, &["authority is unknown", "--cacert FILE"][..]),
        (&server, "127.0.0.1", own, &["the certificate is for \"localhost\", not \"127.0.0.1\""]),
        (
            &expired,
            "localhost",
            Trust::File(expired.certificate.clone()),
            &["expired on 2020-01-02", "--insecure"],
        ),
    ] {
        let why = first_failure(server, host, trust);
        assert!(why.starts_with(&format!("TLS with {host}:{} failed: ", server.port)), "{why}");
        assert!(words.iter().all(|words| why.contains(words)), "{why}");
    }
}

/// As `openssl req -x509` makes them: signed by itself, and an authority.
#[test]
fn a_certificate_that_signed_itself_is_believed_when_it_is_named() {
    let mut of_openssl = certificate();
    of_openssl.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let server = start_with(&of_openssl);
    let own = Trust::File(server.certificate.clone());
    let plan = encrypted(Driver::ALL[0], &server, "localhost", own.clone(), 6);
    let outcome = try_run(plan).expect("the first driver is everywhere");
    assert_eq!(outcome.totals.right, 6, "{:?}", outcome.first_failure);
    // Another server's is not.
    let other = start_with(&certificate());
    let why = first_failure(&other, "localhost", own.clone());
    assert!(why.contains("TLS with localhost"), "{why}");
    let why = first_failure(&server, "127.0.0.1", own);
    assert!(why.contains("for \"localhost\", not \"127.0.0.1\""), "{why}");
    // Where it was not named, what to do is said, and not what the library calls it.
    let why = first_failure(&server, "localhost", Trust::Public);
    assert!(why.contains("authority is unknown") && why.contains("--cacert FILE"), "{why}");
}

#[test]
fn a_body_that_close_notify_ends_is_an_answer() {
    let server = start();
    let url = format!("https://localhost:{}/until-close", server.port);
    on_every_driver(
        |driver| {
            let request_timeout = Duration::from_secs(5);
            Plan { trust: Trust::AnyCertificate, request_timeout, ..plan(driver, &url, 2, 6) }
        },
        |outcome| {
            assert_eq!((outcome.totals.right, outcome.errors.total()), (6, 0), "{outcome:?}");
        },
    );
}

#[test]
fn a_server_that_speaks_no_tls_is_an_error_of_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let url = format!("https://127.0.0.1:{port}/");
    let plan = Plan { trust: Trust::AnyCertificate, ..plan(Driver::ALL[0], &url, 1, 3) };
    let outcome = try_run(plan).expect("the first driver is everywhere");
    assert_eq!((outcome.totals.answered, outcome.errors.total()), (0, 3), "{:?}", outcome.errors);
    assert!(outcome.errors.tls > 0, "{:?}", outcome.errors);
    let why = outcome.first_failure.expect("a reason");
    assert!(why.contains("speak TLS (is it http://?)"), "{why}");
}

#[test]
fn certificates_that_cannot_be_read_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").expect("written");
    for path in [empty, folder.path().join("absent.pem")] {
        let target = Target::parse("https://127.0.0.1:1/", None).expect("a URL");
        let plan = plan(Driver::ALL[0], "https://127.0.0.1:1/", 1, 1);
        let plan = Plan { targets: vec![target], trust: Trust::File(path.clone()), ..plan };
        match Load::start(plan) {
            Err(LoadError::Plan { what: "--cacert", why }) => {
                assert!(why.contains(path.to_str().expect("text")), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_request_is_asked_in_tls_and_its_answer_says_what_was_spoken() {
    let server = start();
    let target = Target::parse(&format!("https://localhost:{}/", server.port), None);
    let target = target.expect("a URL");
    let patience = Duration::from_secs(20);
    let trust = Trust::File(server.certificate.clone());
    let answered = ask(&target, &trust, patience).expect("an answer");
    assert_eq!((answered.status, answered.body_bytes), (200, BODY_BYTES as u64));
    let spoken = answered.tls.expect("what was spoken");
    assert!(spoken.starts_with("TLSv1_3 TLS13_"), "{spoken}");
    let untrusted = ask(&target, &Trust::Public, patience);
    assert!(matches!(untrusted, Err(RequestError::Tls(_))), "{untrusted:?}");
}

#[test]
fn connections_in_tls_stay_open_between_turns() {
    let server = start();
    let trust = Trust::File(server.certificate.clone());
    let driver = "epoll".parse().expect("a driver");
    let mut turns = Turns::open(encrypted(driver, &server, "localhost", trust, 1)).expect("open");
    for requests in [1, 20] {
        let turned = turns.turn(Duration::from_secs(20), Some(requests)).expect("a turn");
        assert_eq!((turned.right, turned.failed), (requests, 0));
    }
}
