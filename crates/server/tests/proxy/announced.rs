//! The PROXY protocol: from clients that are proxies, and to backends that want the client's address.

use std::io::Read;
use std::sync::mpsc::channel;
use std::time::Duration;

use pollux_http::{ProxyHeader, ProxyVersion};
use pollux_server::proxy::ProxyCounter;

use crate::stage::{Backend, field, on_every_driver};

/// Answers each request with the client that the proxy names.
fn naming_the_client() -> Backend {
    Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            let Some(named) = field(&head, "X-Forwarded-For") else { return };
            client.try_send(format!(
                "HTTP/1.1 200 OK\r\nX-Client: {named}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    })
}

#[test]
fn a_client_is_the_one_that_the_proxy_in_front_names() {
    let backend = naming_the_client();
    let accept = |config: &mut pollux_server::proxy::ProxyConfig| {
        config.frontends[0].accepts_header = true;
        config.limits.header_timeout = Duration::from_millis(300);
    };
    on_every_driver(&[backend.address], accept, |driver, proxy| {
        const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let own = "127.0.0.1";
        let mut binary = Vec::new();
        let [source, destination] =
            ["[2001:db8::7]:9", "[::1]:80"].map(|it| it.parse().expect("one"));
        ProxyHeader::Of { source, destination }.write(ProxyVersion::V2, &mut binary);
        let line = b"PROXY TCP4 10.1.2.3 10.0.0.1 4000 80\r\n".to_vec();
        for (header, named) in [
            (line.clone(), "10.1.2.3"),
            (binary, "2001:db8::7"),
            (b"PROXY UNKNOWN\r\n".to_vec(), own),
        ] {
            // With the request behind it, and byte by byte; the next request needs none.
            let mut client = proxy.client();
            client.send([header.as_slice(), GET.as_bytes()].concat());
            assert_eq!(field(&client.head(), "X-Client"), Some(named), "{driver}");
            client.send(GET);
            assert_eq!(field(&client.head(), "X-Client"), Some(named), "{driver}");
            let mut client = proxy.client();
            for byte in &header {
                client.send([*byte]);
            }
            client.send(GET);
            assert_eq!(field(&client.head(), "X-Client"), Some(named), "{driver}");
        }
        // Required where it is switched on; and a second one is not a request.
        for wrong in [GET.as_bytes(), b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", b"PROXY\r\n"] {
            let mut client = proxy.client();
            client.send(wrong);
            assert_eq!(client.rest(), "", "{driver}");
        }
        assert_eq!(proxy.count(ProxyCounter::HeadersRefused), 3, "{driver}");
        let mut client = proxy.client();
        client.send([line.as_slice(), line.as_slice()].concat());
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{driver}");
        // A part of one has the time of a head.
        let mut client = proxy.client();
        client.send("PROXY TC");
        assert_eq!(client.rest(), "", "{driver}");
    });
}

#[test]
fn a_backend_learns_whose_connection_it_is_and_no_other_client_has_it() {
    let (seen, sees) = channel();
    let backend = Backend::start(move |_, mut client| {
        let mut bytes = Vec::new();
        let (header, len) = loop {
            let mut byte = [0];
            if client.socket.read(&mut byte).is_ok_and(|len| len == 1) {
                bytes.push(byte[0]);
            } else {
                return;
            }
            match ProxyHeader::parse(&bytes) {
                Ok(Some(found)) => break found,
                Ok(None) => {}
                Err(wrong) => panic!("{wrong}: {bytes:?}"),
            }
        };
        assert_eq!(len, bytes.len());
        if client.head().starts_with("GET / ") {
            let _ = seen.send(header);
            client.try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let send = |config: &mut pollux_server::proxy::ProxyConfig| {
            config.groups[0].sends_header = Some(version);
        };
        on_every_driver(&[backend.address], send, |driver, proxy| {
            let before = backend.accepted();
            for _ in 0..2 {
                let mut client = proxy.client();
                for _ in 0..2 {
                    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
                    assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
                    let source = client.socket.local_addr().expect("connected");
                    let expected = ProxyHeader::Of { source, destination: proxy.address };
                    assert_eq!(sees.recv(), Ok(expected), "{driver}");
                }
            }
            assert_eq!(backend.accepted() - before, 4, "{driver}");
        });
    }
}
