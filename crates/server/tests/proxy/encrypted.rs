//! TLS from clients, on every driver: requests and answers of all sizes, wrong bytes, ends and cuts.

use std::io::{Read, Write};
use std::time::Duration;

use pollux_server::ServerCounter;
use pollux_server::proxy::ProxyConfig;

use crate::identity::{Identity, head, pattern};
use crate::stage::{Backend, field, on_every_driver};

/// Answers with the length of the body, the scheme, and so many bytes as the path says.
fn backend() -> Backend {
    Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            let Some(path) = head.split(' ').nth(1) else { return };
            let len: usize = path[1..].parse().expect("a number");
            let asked = field(&head, "Content-Length").and_then(|len| len.parse().ok());
            let got = client.bytes(asked.unwrap_or(0));
            let scheme = field(&head, "X-Forwarded-Proto").unwrap_or("none");
            let is_right = got.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8);
            client.try_send(format!(
                "HTTP/1.1 200 OK\r\nX-Got: {} {is_right} {scheme}\r\nContent-Length: {len}\r\n\r\n",
                got.len()
            ));
            client.try_send(pattern(len));
        }
    })
}

#[test]
fn requests_and_answers_of_all_sizes_pass_through_tls() {
    let (identity, backend) = (Identity::make(), backend());
    let secure = |config: &mut ProxyConfig| config.frontends[0].tls = Some(identity.keys());
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        let mut stream = identity.connect(proxy.address);
        // Around the size of a record, of a room, and far beyond both.
        for (asked, answered) in [
            (0, 0),
            (1, 16_384),
            (16_385, 65_536),
            (70_000, 65_400),
            (1_000_000, 3_000_000),
            (5, 9),
        ] {
            let request =
                format!("POST /{answered} HTTP/1.1\r\nHost: x\r\nContent-Length: {asked}\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("sent");
            stream.write_all(&pattern(asked)).expect("sent");
            let head = head(&mut stream);
            let expected = format!("{asked} true https");
            assert_eq!(field(&head, "X-Got"), Some(expected.as_str()), "{driver}");
            let mut body = vec![0; answered];
            stream.read_exact(&mut body).expect("a body");
            assert!(body == pattern(answered), "{driver}");
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
        proxy.await_that("no request is under way", |proxy| {
            proxy
                .server()
                .overview()
                .loops
                .iter()
                .all(|each| each.proxy.as_ref().is_some_and(|it| it.backends()[0].in_use() == 0))
        });
    });
}

#[test]
fn what_is_not_tls_is_refused_and_a_slow_handshake_ends() {
    let (identity, backend) = (Identity::make(), backend());
    let secure = |config: &mut ProxyConfig| {
        config.frontends[0].tls = Some(identity.keys());
        config.limits.header_timeout = Duration::from_millis(200);
    };
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        let mut plain = proxy.client();
        plain.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        // An alert, and nothing that is HTTP.
        assert!(!plain.rest().contains("HTTP"), "{driver}");
        assert_eq!(proxy.count_of_server(ServerCounter::TlsFailed), 1, "{driver}");
        let mut slow = proxy.client();
        slow.send([0x16, 0x03, 0x01]);
        slow.rest();
        assert_eq!(proxy.count_of_server(ServerCounter::TimeoutsHandshake), 1, "{driver}");
        proxy.await_that("no connection is left", |proxy| proxy.open_connections() == 0);
    });
}
