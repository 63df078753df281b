//! TLS from clients, on every driver: requests and answers of all sizes, wrong bytes, ends and cuts.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Address, Driver, Listeners};
use pollux_server::ServerCounter;
use pollux_server::config::LogTarget;
use pollux_server::config::{Check, Mode, ProxyConfig, ServerTls};
use pollux_server::tls::Trust;
use pollux_server::{Fault, ProxyCounter, Resolver};

use crate::identity::{ClientStream, Identity, ServerStream, head, pattern};
use crate::{Backend, Proxy, field, on_all_drivers_at_once, on_every_driver};

/// Answers with the length of the body, the scheme, and so many bytes as the path says.
fn backend() -> Backend {
    Backend::answering(|head, client| {
        let len: usize = head.split(' ').nth(1)?[1..].parse().expect("a number");
        let asked = field(head, "Content-Length").map_or(0, |len| len.parse().expect("a number"));
        let is_right = client.bytes(asked) == pattern(asked);
        let scheme = field(head, "X-Forwarded-Proto").unwrap_or("none");
        let got = format!("X-Got: {asked} {is_right} {scheme}");
        let head = format!("HTTP/1.1 200 OK\r\n{got}\r\nContent-Length: {len}\r\n\r\n");
        Some([head.into_bytes(), pattern(len)].concat())
    })
}

#[test]
fn requests_and_answers_of_all_sizes_pass_through_tls() {
    let identity = Identity::make();
    let backend = backend();
    let secure = |config: &mut ProxyConfig| config.frontends[0].tls = identity.keys().into();
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        let mut stream = identity.connect(proxy.address);
        for (asked, answered) in SIZES {
            assert_eq!(
                ask(&mut stream, asked, answered),
                format!("{asked} true https"),
                "{driver}"
            );
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]), "{driver}");
        // The last answer, a page of the proxy's own, is followed by the end that TLS knows.
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("an end with close_notify");
        assert!(rest.starts_with("HTTP/1.1 400 "), "{driver}: {rest}");
        drop(stream);
        // Two requests in one record, and the end right behind them.
        let mut stream = identity.connect(proxy.address);
        stream
            .write_all(b"GET /3 HTTP/1.1\r\nHost: x\r\n\r\nGET /70000 HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("sent");
        stream.conn.send_close_notify();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("both answers");
        assert!(
            rest.len() > 70_003 && rest.ends_with(&pattern(70_000)),
            "{driver}: {}",
            rest.len()
        );
        drop(stream);
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn what_is_not_tls_is_refused_and_a_slow_handshake_ends() {
    let identity = Identity::make();
    let backend = backend();
    let secure = |_: Driver, config: &mut ProxyConfig| {
        config.frontends[0].tls = identity.keys().into();
        config.limits.clients.header_timeout = Duration::from_secs(1);
    };
    on_all_drivers_at_once(&[backend.address], secure, |driver, proxy| {
        let mut plain = proxy.client();
        plain.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let rest = plain.rest();
        assert!(rest.starts_with("HTTP/1.1 400 "), "{driver}: {rest}");
        assert!(rest.contains("sent to HTTPS port"), "{driver}: {rest}");
        let mut head = proxy.client();
        head.send("HEAD http://x/ HTTP/1.1\r\nHost: x\r\n\r\n");
        let rest = head.rest();
        assert!(
            rest.starts_with("HTTP/1.1 400 ") && rest.ends_with("\r\n\r\n"),
            "{driver}: {rest}"
        );
        let count = |counter| proxy.sum(|each| each.server.value(counter));
        assert_eq!(count(ServerCounter::TlsFailed), 2, "{driver}");
        let mut slow = proxy.client();
        slow.send([0x16, 0x03, 0x01]);
        slow.rest();
        assert_eq!(count(ServerCounter::TimeoutsHandshake), 1, "{driver}");
        proxy.await_that("no connection is left", |proxy| proxy.open_connections() == 0);
    });
}

#[test]
fn a_handshake_that_fails_ends_with_a_fatal_alert() {
    let identity = Identity::make();
    let backend = backend();
    let secure = |config: &mut ProxyConfig| config.frontends[0].tls = identity.keys().into();
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        crate::identity::failed_handshakes(&format!("{driver}"), || proxy.client().socket);
    });
}

#[test]
fn a_stream_in_tls_gets_an_alert_for_plain_http() {
    let identity = Identity::make();
    let backend = backend();
    let secure = |config: &mut ProxyConfig| {
        config.frontends[0].tls = identity.keys().into();
        config.frontends[0].mode = Mode::Tcp;
    };
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        let mut plain = proxy.client();
        plain.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let rest = plain.rest();
        assert!(!rest.contains("HTTP") && rest.starts_with('\x15'), "{driver}: {rest:?}");
    });
}

/// A backend in TLS, played for each connection.
fn secured(
    identity: &Arc<Identity>,
    play: impl Fn(u64, ServerStream) + Send + Sync + 'static,
) -> Backend {
    let identity = Arc::clone(identity);
    Backend::start(move |number, client| play(number, identity.accept(client.socket)))
}

/// Answers with how much it got, and so many bytes as the path says.
fn measure(stream: &mut ServerStream) {
    while measure_one(stream).is_some() {}
}

fn measure_one(stream: &mut ServerStream) -> Option<()> {
    let head = head(stream);
    let len: usize = head.split(' ').nth(1)?[1..].parse().ok()?;
    let asked = field(&head, "Content-Length").map_or(0, |len| len.parse().expect("a number"));
    let mut got = vec![0; asked];
    stream.read_exact(&mut got).ok()?;
    let is_right = got == pattern(asked);
    let sni = stream.conn.server_name().unwrap_or("none");
    let head = format!(
        "HTTP/1.1 200 OK\r\nX-Got: {asked} {is_right} {sni}\r\nContent-Length: {len}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&pattern(len)).ok()
}

fn believing(identity: &Identity) -> ServerTls {
    ServerTls { name: Some("localhost".to_owned()), trust: Trust::File(identity.ca()) }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn ask(stream: &mut (impl ReadWrite + ?Sized), asked: usize, answered: usize) -> String {
    let request =
        format!("POST /{answered} HTTP/1.1\r\nHost: x\r\nContent-Length: {asked}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    stream.write_all(&pattern(asked)).expect("sent");
    let head = head(stream);
    let mut body = vec![0; answered];
    stream.read_exact(&mut body).expect("a body");
    assert!(body == pattern(answered), "{head}");
    field(&head, "X-Got").unwrap_or(&head).to_owned()
}

/// Around the size of a record, of a room, and far beyond both: of a body, and of its answer.
const SIZES: [(usize, usize); 6] =
    [(0, 0), (1, 16_384), (16_385, 65_536), (70_000, 65_400), (1_000_000, 3_000_000), (5, 9)];

#[test]
fn requests_reach_a_backend_in_tls_over_one_connection_that_is_kept() {
    let identity = Arc::new(Identity::make());
    let backend = secured(&identity, |_, mut stream| measure(&mut stream));
    for clients_too in [false, true] {
        let set = |config: &mut ProxyConfig| {
            config.groups[0].tls = Some(believing(&identity));
            config.frontends[0].tls = clients_too.then(|| identity.keys()).into();
        };
        on_every_driver(&[backend.address], set, |driver, proxy| {
            let before = backend.accepted();
            let mut plain = proxy.client().socket;
            let mut secure = identity.connect(proxy.address);
            let client: &mut dyn ReadWrite = if clients_too { &mut secure } else { &mut plain };
            for (asked, answered) in SIZES {
                let got = ask(client, asked, answered);
                assert_eq!(got, format!("{asked} true localhost"), "{driver}");
            }
            assert_eq!(backend.accepted() - before, 1, "{driver}: one handshake for all");
            assert_eq!(proxy.count(ProxyCounter::Reuses), 5, "{driver}");
        });
    }
}

#[test]
fn a_connection_in_tls_is_taken_over_by_another_thread() {
    let identity = Arc::new(Identity::make());
    let backend = secured(&identity, |_, mut stream| measure(&mut stream));
    let set = |config: &mut ProxyConfig| {
        (config.loops.threads, config.loops.listeners) = (2, Listeners::Single);
        config.groups[0].servers[0].connections_max = Some(1);
        config.groups[0].tls = Some(believing(&identity));
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let before = backend.accepted();
        let mut clients = [proxy.client(), proxy.client()];
        for round in 0..20 {
            for client in &mut clients {
                let got = ask(&mut client.socket, round, 3 * round);
                assert_eq!(got, format!("{round} true localhost"), "{driver}");
            }
        }
        if driver == Driver::Completion {
            return;
        }
        assert_eq!(backend.accepted() - before, 1, "{driver}: one connection for both threads");
        assert!(proxy.count(ProxyCounter::TakenOver) >= 20, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Stale), 0, "{driver}");
    });
}

/// A certificate is for a name, and the settings have the name: without `--sni` it is what is asked for, in requests and
/// in checks, and the Host of these.
#[test]
fn a_backend_by_name_is_asked_for_that_name_and_has_to_prove_it() {
    let identity = Arc::new(Identity::make());
    let hosts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&hosts);
    let backend = secured(&identity, move |_, mut stream| {
        let head = head(&mut stream);
        let sni = stream.conn.server_name().unwrap_or("none").to_owned();
        let host = field(&head, "Host").unwrap_or_default().to_owned();
        seen.lock().expect("no panic").push((host, sni.clone()));
        let fields = format!("X-Got: {sni}\r\nConnection: close\r\n");
        let _ = stream.write_all(crate::ok(&fields, "").as_bytes());
    });
    let resolver = || Resolver::new(|_| Ok(vec![[127, 0, 0, 1].into()]));
    let port = backend.address.port();
    let to = |host: &str| vec![Address::Name { host: host.to_owned(), port }];
    let set = |config: &mut ProxyConfig| {
        config.groups[0].tls = Some(ServerTls { name: None, trust: Trust::File(identity.ca()) });
    };
    for driver in Driver::ALL {
        let checked = |config: &mut ProxyConfig| {
            set(config);
            config.groups[0].health.check = Check::Http("/".to_owned());
        };
        let Some(proxy) = Proxy::start_with(driver, to("localhost"), resolver(), checked) else {
            continue;
        };
        let mut client = proxy.client();
        client.ask("/0");
        assert_eq!(field(&client.head(), "X-Got"), Some("localhost"), "{driver}");
        proxy.await_that("a check", |_| {
            let check = (format!("localhost:{port}"), "localhost".to_owned());
            hosts.lock().expect("no panic").contains(&check)
        });
        assert!(!proxy.server().overview().backends[0].is_down(), "{driver}");
        hosts.lock().expect("no panic").clear();
        let other = Proxy::start_with(driver, to("other.example"), resolver(), set);
        let other = other.expect("the driver is there");
        let mut client = other.client();
        client.ask("/0");
        assert!(client.head().starts_with("HTTP/1.1 502 "), "{driver}");
        assert_eq!(other.faults(Fault::TlsFailed), 1, "{driver}");
    }
}

/// What the proxy said of a request to this backend: to the client, and in the error log.
fn refused(driver: Driver, backend: SocketAddr, tls: &ServerTls) -> Option<(String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("error.log");
    let proxy = Proxy::start(driver, &[backend], |config| {
        config.groups[0].tls = Some(tls.clone());
        config.monitoring.error_log = LogTarget::File(log.clone());
        config.monitoring.log_level = pollux_server::config::LogLevel::Warn;
    })?;
    let mut client = proxy.client();
    client.send("GET /5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = client.rest();
    assert_eq!(proxy.faults(Fault::TlsFailed), u64::from(!answer.contains(" 200 ")), "{driver}");
    drop(proxy);
    Some((answer, std::fs::read_to_string(&log).unwrap_or_default()))
}

#[test]
fn a_backend_that_cannot_be_believed_gets_no_request_and_the_log_says_why() {
    let identity = Arc::new(Identity::make());
    let other = Identity::make();
    let elsewhere = Arc::new(Identity::of(&["elsewhere.example"]));
    let good = secured(&identity, |_, mut stream| measure(&mut stream));
    let misnamed = secured(&elsewhere, |_, mut stream| measure(&mut stream));
    let plain = Backend::start(|_, mut client| {
        client.bytes(1);
        client.try_send("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let gone = Backend::start(|_, client| drop(client));
    let by_address = |trust| ServerTls { name: None, trust };
    let file = |identity: &Identity| Trust::File(identity.ca());
    let cases = [
        (good.address, by_address(file(&identity)), ""),
        (good.address, by_address(Trust::AnyCertificate), ""),
        (misnamed.address, by_address(Trust::AnyCertificate), ""),
        (
            good.address,
            by_address(file(&other)),
            "authority is unknown; give its certificate with --ca",
        ),
        (
            misnamed.address,
            by_address(file(&elsewhere)),
            "is for \"elsewhere.example\", not \"127.0.0.1\"",
        ),
        (plain.address, by_address(Trust::AnyCertificate), "does not speak TLS"),
        (gone.address, by_address(Trust::AnyCertificate), "ended the connection in the handshake"),
    ];
    for driver in Driver::ALL {
        for (backend, tls, why) in &cases {
            let Some((answer, log)) = refused(driver, *backend, tls) else { continue };
            if why.is_empty() {
                assert!(answer.starts_with("HTTP/1.1 200 "), "{driver}: {answer}{log}");
                continue;
            }
            assert!(answer.starts_with("HTTP/1.1 502 "), "{driver}: {answer}{log}");
            let expected = format!("TLS with the backend {backend} failed: ");
            assert!(log.contains(&expected) && log.contains(why), "{driver}: {why}\n{log}");
        }
    }
}

#[test]
fn checks_speak_tls_and_a_request_goes_to_the_backend_that_can_be_believed() {
    let identity = Arc::new(Identity::make());
    let other = Arc::new(Identity::make());
    let good = secured(&identity, |_, mut stream| measure(&mut stream));
    let bad = secured(&other, |_, mut stream| measure(&mut stream));
    let set = |config: &mut ProxyConfig| config.groups[0].tls = Some(believing(&identity));
    on_every_driver(&[bad.address, good.address], set, |driver, proxy| {
        for _ in 0..4 {
            assert_eq!(ask(&mut proxy.client().socket, 7, 8), "7 true localhost", "{driver}");
        }
        assert!(proxy.count(ProxyCounter::Retries) >= 1, "{driver}");
    });
    for check in [Check::Tcp, Check::Http("/5".to_owned())] {
        let set = |config: &mut ProxyConfig| {
            config.groups[0].tls = Some(believing(&identity));
            let health = &mut config.groups[0].health;
            (health.check, health.rise, health.fall) = (check.clone(), 1, 1);
            health.interval = Duration::from_millis(10);
        };
        on_every_driver(&[bad.address, good.address], set, |driver, proxy| {
            let backends = &proxy.server().overview().backends;
            proxy.await_that("the fall", |_| backends[0].is_down());
            proxy.await_that("more checks", |proxy| proxy.count(ProxyCounter::Checks) > 8);
            assert!(!backends[1].is_down(), "{driver}: {check:?}");
        });
    }
}

#[test]
fn an_answer_until_the_end_is_whole_only_when_the_backend_says_that_it_ends() {
    let identity = Arc::new(Identity::make());
    let backend = secured(&identity, |_, mut stream| {
        let head = head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome").expect("taken");
        if head.starts_with("GET /whole") {
            stream.conn.send_close_notify();
        }
        stream.flush().expect("taken");
    });
    let set = |config: &mut ProxyConfig| config.groups[0].tls = Some(believing(&identity));
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send("GET /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(client.rest().ends_with("0\r\n\r\n"), "{driver}");
        let mut client = proxy.client();
        client.send("GET /cut HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(!client.rest().ends_with("0\r\n\r\n"), "{driver}: a part passes for the whole");
        proxy.await_that("it is counted", |proxy| proxy.faults(Fault::Cut) == 1);
    });
}

/// What a backend of streams does: it reads to the end, then says what it got, and ends. Of a cut it
/// tells the test nothing: the other side is cut.
fn recite(stream: &mut (impl Read + Write)) {
    let mut got = Vec::new();
    if stream.read_to_end(&mut got).is_ok() {
        let is_right = got == pattern(got.len());
        let _ = write!(stream, "{} {is_right}", got.len());
        let _ = stream.write_all(&pattern(500_000));
    }
}

fn end(stream: &mut ClientStream) {
    stream.conn.send_close_notify();
    stream.flush().expect("taken");
}

#[test]
fn streams_are_in_tls_on_either_side_and_on_both() {
    let identity = Arc::new(Identity::make());
    let secure = secured(&identity, |_, mut stream| {
        recite(&mut stream);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let plain = Backend::start(|_, mut client| recite(&mut client.socket));
    let expected = [b"300000 true".to_vec(), pattern(500_000)].concat();
    for (of_clients, of_servers) in [(true, false), (false, true), (true, true)] {
        let backend = if of_servers { &secure } else { &plain };
        let set = |config: &mut ProxyConfig| {
            config.frontends[0].mode = Mode::Tcp;
            config.frontends[0].tls = of_clients.then(|| identity.keys()).into();
            config.groups[0].tls = of_servers.then(|| believing(&identity));
        };
        on_every_driver(&[backend.address], set, |driver, proxy| {
            let mut got = Vec::new();
            if of_clients {
                let mut stream = identity.connect(proxy.address);
                stream.write_all(&pattern(300_000)).expect("sent");
                end(&mut stream);
                stream.read_to_end(&mut got).expect("an end that is said");
            } else {
                let mut client = proxy.client();
                client.send(pattern(300_000));
                client.end();
                client.socket.read_to_end(&mut got).expect("an end");
            }
            assert!(got == expected, "{driver}: {} bytes", got.len());
            proxy.await_that("all connections close", |proxy| proxy.open_connections() == 0);
            assert_eq!(proxy.faults(Fault::ClientGone) + proxy.faults(Fault::Cut), 0, "{driver}");
        });
    }
}

#[test]
fn a_stream_in_tls_that_is_cut_does_not_end() {
    let identity = Arc::new(Identity::make());
    // Says something, and goes without the end that TLS has.
    let backend = secured(&identity, |_, mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        stream.write_all(b"some").expect("taken");
    });
    let set = |config: &mut ProxyConfig| {
        config.frontends[0].mode = Mode::Tcp;
        config.groups[0].tls = Some(believing(&identity));
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send("x");
        let mut got = Vec::new();
        let end = client.socket.read_to_end(&mut got);
        assert!(end.is_err(), "{driver}: an end behind {got:?}");
        proxy.await_that("it is counted", |proxy| proxy.faults(Fault::Cut) == 1);
    });
}
