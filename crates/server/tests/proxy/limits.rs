//! How large heads may be, in both directions: what nginx takes passes by default, and settings move
//! each limit.

use pollux_server::Fault;
use pollux_server::config::ProxyConfig;

use crate::{Backend, field, ok, on_every_driver};

/// A request with these lines behind Host.
fn request(target: &str, lines: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
}

fn lines(count: usize) -> String {
    (0..count).map(|at| format!("X-{at}: 1\r\n")).collect()
}

fn cookies() -> String {
    (0..4).map(|at| format!("Cookie: c{at}={}\r\n", "a".repeat(7 * 1024))).collect()
}

/// A backend that says how many bytes of head it got, and has as many fields of its own as the path says.
fn backend() -> Backend {
    Backend::answering(|head, _| {
        let path = head.split(' ').nth(1).expect("a path");
        let fields = match path.strip_prefix("/fields/") {
            Some(count) => lines(count.parse().expect("a number")),
            None => path.strip_prefix("/cookies").map_or_else(String::new, |_| cookies()),
        };
        Some(ok(&fields, &format!("{} bytes", head.len())))
    })
}

#[test]
fn heads_that_nginx_takes_pass_both_ways() {
    let backend = backend();
    backend.on_every_driver(|driver, proxy| {
        let long = format!("/{}", "t".repeat(8099));
        for (target, fields, answered) in [
            ("/", lines(120), 0),
            ("/", cookies(), 0),
            (long.as_str(), String::new(), 0),
            ("/", lines(900), 0),
            ("/fields/120", String::new(), 120),
            ("/cookies", cookies(), 4),
        ] {
            let asked = request(target, &fields);
            let mut client = proxy.client();
            client.send(&asked);
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {asked:.60}: {head:.60}");
            // The backend got no less than what was asked, and the client no field less.
            let len = field(&head, "Content-Length").expect("a length").parse().expect("a number");
            let body = String::from_utf8(client.bytes(len)).expect("text");
            let seen: usize = body.split(' ').next().expect("a word").parse().expect("a number");
            assert!(seen >= asked.len(), "{driver}: {seen} of {}", asked.len());
            let own = ["X-", "Cookie"].map(|name| head.matches(&format!("\n{name}")).count());
            assert_eq!(own.iter().sum::<usize>(), answered, "{driver}: {asked:.60}");
        }
    });
}

#[test]
fn limits_of_heads_move_and_a_refusal_names_them() {
    let backend = backend();
    let small = |config: &mut ProxyConfig| {
        config.limits.clients.heads.bytes_max = 2048;
        config.limits.clients.heads.fields_max = 10;
        config.limits.clients.heads.target_bytes_max = 1024;
    };
    on_every_driver(&[backend.address], small, |driver, proxy| {
        let long = format!("/{}", "t".repeat(1024));
        let value = format!("X: {}\r\n", "y".repeat(2048));
        for (asked, status, named) in [
            (request("/", &lines(9)), 200, ""),
            (request("/", &lines(10)), 431, "max_fields = 10 ("),
            (request("/", &value), 431, "max_head = 2048 bytes ("),
            (request(&long[..1024], ""), 200, ""),
            (request(&long, ""), 414, "max_target = 1024 bytes ("),
        ] {
            let mut client = proxy.client();
            client.send(&asked);
            let head = client.head();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{driver}: {head}");
            if !named.is_empty() {
                let body = client.rest();
                assert!(body.contains(named), "{driver}: {body}");
            }
        }
        // Of answers, too.
        let before = proxy.faults(Fault::BadAnswer);
        let mut client = proxy.client();
        for (path, status) in [("/fields/8", 200), ("/fields/10", 502), ("/cookies", 502)] {
            client.ask(path);
            let head = client.head();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{driver}: {path}: {head}");
            let len = field(&head, "Content-Length").expect("a length").parse().expect("a number");
            client.bytes(len);
        }
        assert_eq!(proxy.faults(Fault::BadAnswer) - before, 2, "{driver}");
    });
}

#[test]
fn fields_of_the_connection_end_at_the_proxy_however_many_there_are() {
    let backend = Backend::answering(|head, _| {
        let left = head.lines().filter(|line| line.starts_with("X-") && line.ends_with(": 1"));
        Some(ok("", &left.count().to_string()))
    });
    backend.on_every_driver(|driver, proxy| {
        let named: Vec<String> = (0..900).map(|at| format!("x-{at}")).collect();
        let connection = format!("Connection: {}\r\n", named.join(","));
        let mut client = proxy.client();
        client.send(request("/", &(lines(902) + &connection)));
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        assert_eq!(client.bytes(1), b"2", "{driver}: the two that it does not name");
    });
}
