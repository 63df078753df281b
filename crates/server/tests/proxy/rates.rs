//! Rates: how many requests of a client a route takes, by both versions of HTTP, and what the others get.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use pollux_engine::Driver;
use pollux_http::Method;
use pollux_server::config::ProxyConfig;
use pollux_server::{ServerCounter, stats};
use pollux_settings::Given;

use crate::http2_client::Client2;
use crate::passwords::paced;
use crate::{Backend, Client, Proxy, field, ok};

fn on_every_driver(text: &str, test: impl Fn(Driver, &Proxy)) {
    let text = format!("listen = \"127.0.0.1:0\"\n{text}");
    let read = || -> ProxyConfig {
        Given::from_toml(&text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"))
    };
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            *config = ProxyConfig { loops, monitoring, ..read() };
        };
        if let Some(proxy) = Proxy::start(driver, &["127.0.0.1:1".parse().expect("one")], set) {
            test(driver, &proxy);
        }
    }
}

/// Three requests an hour, four at once, and no limit for the rest of the site.
fn file(backend: &Backend, more: &str) -> String {
    format!(
        "[[limit]]\nname = \"few\"\nrate = \"3/h\"\nburst = 4\n{more}\n\
         [[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{}\"\n\
         [[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/free\", reply = 4 }},\n\
         {{ path = \"/few/\", backend = \"api\", limit = \"few\" }},\n\
         {{ path = \"/few/reply\", reply = 5, limit = [\"few\"] }},\n\
         {{ path = \"/few/echo\", echo = true, limit = [\"few\"] }} ]\n",
        backend.address
    )
}

fn backend() -> Backend {
    Backend::answering(|head, _| Some(ok("", head.lines().next()?)))
}

#[test]
fn requests_beyond_a_burst_get_429_with_the_time_to_wait_whatever_would_answer_them() {
    let backend = backend();
    on_every_driver(&file(&backend, ""), |driver, proxy| {
        let mut client = proxy.client();
        let mut ask = |method: &str, path: &str, body: &str| {
            let len = body.len();
            client.send(format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n"
            ));
            client.send(body);
            let head = client.head();
            let len =
                field(&head, "Content-Length").map_or(0, |len| len.parse().expect("a number"));
            client.bytes(len);
            head
        };
        // The very head again is charged as well.
        for (method, path, body) in [
            ("GET", "/few/a", ""),
            ("GET", "/few/a", ""),
            ("GET", "/few/reply", ""),
            ("POST", "/few/echo", "abc"),
        ] {
            let head = ask(method, path, body);
            assert!(head.starts_with("HTTP/1.1 200 "), "{driver} {path}: {head}");
        }
        for path in ["/few/a", "/few/reply", "/few/a"] {
            let head = ask("GET", path, "");
            assert!(head.starts_with("HTTP/1.1 429 "), "{driver} {path}: {head}");
            let wait: u64 = field(&head, "Retry-After").expect("a time").parse().expect("a number");
            assert!((1195..=1200).contains(&wait), "{driver}: {wait}");
            assert_eq!(field(&head, "Cache-Control"), Some("no-store"), "{driver}");
        }
        assert!(ask("GET", "/free", "").starts_with("HTTP/1.1 200 "), "{driver}");
        // Nothing of its body is read, so the connection ends.
        let refused = ask("POST", "/few/echo", "");
        assert!(refused.starts_with("HTTP/1.1 429 "), "{driver}: {refused}");
        let page = stats::metrics(proxy.server().overview());
        assert!(
            page.contains("pollux_proxy_limit_refused_total{limit=\"few\"} 4\n"),
            "{driver}: {page}"
        );
        assert!(page.contains("pollux_proxy_limit_evictions_total{limit=\"few\"} 0\n"), "{driver}");
    });
}

#[test]
fn a_burst_of_equal_heads_in_one_segment_is_charged_one_by_one() {
    let backend = backend();
    on_every_driver(&file(&backend, ""), |driver, proxy| {
        let mut client = proxy.client();
        client.send("GET /few/reply HTTP/1.1\r\nHost: x\r\n\r\n".repeat(7));
        let mut statuses = Vec::new();
        for _ in 0..7 {
            let head = client.head();
            let len = field(&head, "Content-Length").expect("a length");
            client.bytes(len.parse().expect("a number"));
            statuses.push(head[9..12].to_owned());
        }
        assert_eq!(statuses, ["200", "200", "200", "200", "429", "429", "429"], "{driver}");
    });
}

#[test]
fn streams_are_charged_once_each_also_those_whose_bodies_come_later() {
    let backend = backend();
    on_every_driver(&file(&backend, ""), |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let echo = client.ask(Method::Post, "/few/echo", &[], false);
        let reply = client.ask(Method::Post, "/few/reply", &[], false);
        client.send(echo, b"later", true);
        client.send(reply, b"later", true);
        assert_eq!(client.answer(echo).status(), "200", "{driver}");
        assert_eq!(client.answer(reply).status(), "200", "{driver}");
        for (path, status) in [
            ("/few/x", "200"),
            ("/few/x", "200"),
            ("/few/x", "429"),
            ("/few/reply", "429"),
            ("/free", "200"),
        ] {
            let stream = client.get(path);
            let answer = client.answer(stream);
            assert_eq!(answer.status(), status, "{driver} {path}");
            let head = answer.heads.last().cloned().unwrap_or_default();
            assert_eq!(head.contains("retry-after: "), status == "429", "{driver} {path}: {head}");
        }
    });
}

#[test]
fn behind_a_trusted_proxy_each_of_its_clients_has_the_rate_for_itself() {
    let backend = backend();
    let text = format!("trusted_proxies = [\"127.0.0.0/8\"]\n{}", file(&backend, ""));
    on_every_driver(&text, |driver, proxy| {
        let mut client = proxy.client();
        let mut ask = |said: &str| {
            client.send(format!("GET /few/reply HTTP/1.1\r\nHost: x\r\n{said}\r\n"));
            let head = client.head();
            let len = field(&head, "Content-Length").expect("a length");
            client.bytes(len.parse().expect("a number"));
            head[9..12].to_owned()
        };
        let of = |address: &str| format!("X-Forwarded-For: {address}\r\n");
        let one = of("192.0.2.1");
        // What stands in front of it anybody may have written.
        let forged = of("203.0.113.5, 192.0.2.1");
        for (said, status) in [
            (&one, "200"),
            (&forged, "200"),
            (&one, "200"),
            (&forged, "200"),
            (&one, "429"),
            (&forged, "429"),
            (&of("192.0.2.2"), "200"),
            (&of("2001:db8::1"), "200"),
            // The proxy itself.
            (&String::new(), "200"),
        ] {
            assert_eq!(ask(said), status, "{driver} {said}");
        }
        let mut two = Client2::connect(proxy);
        for (address, status) in [("192.0.2.1", "429"), ("192.0.2.3", "200")] {
            let fields = [("x-forwarded-for", address)];
            let stream = two.ask(Method::Get, "/few/reply", &fields, true);
            assert_eq!(two.answer(stream).status(), status, "{driver} {address}");
        }
    });
}

#[test]
fn a_dry_run_lets_all_pass_and_counts() {
    let backend = backend();
    on_every_driver(&file(&backend, "dry_run = true"), |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for _ in 0..9 {
            let stream = client.get("/few/reply");
            assert_eq!(client.answer(stream).status(), "200", "{driver}");
        }
        let page = stats::metrics(proxy.server().overview());
        assert!(
            page.contains("pollux_proxy_limit_excused_total{limit=\"few\"} 5\n"),
            "{driver}: {page}"
        );
    });
}

#[test]
fn a_client_has_as_many_connections_as_it_may_and_another_one_when_one_of_them_ends() {
    let text = "[[frontend]]\nlisten = \"127.0.0.1:0\"\nconnections = 2\n\
                [[site]]\nhost = \"*\"\nroute = [ { path = \"/\", reply = 4 } ]\n";
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            let read: ProxyConfig = Given::from_toml(text, "p.toml").read().expect("right");
            *config = ProxyConfig { loops, monitoring, ..read };
        };
        let unused = "127.0.0.1:1".parse().expect("one");
        let Some(proxy) = Proxy::start(driver, &[unused], set) else { continue };
        let is_served = |client: &mut Client| {
            client.try_send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let head = client.head();
            if head.is_empty() {
                return false;
            }
            assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
            client.bytes(4);
            true
        };
        let mut one = proxy.client();
        let mut two = proxy.client();
        assert!(is_served(&mut one) && is_served(&mut two), "{driver}");
        let mut three = proxy.client();
        assert!(!is_served(&mut three), "{driver}");
        let refused =
            |proxy: &Proxy| proxy.sum(|each| each.server.value(ServerCounter::ClientsRefused));
        assert_eq!(refused(&proxy), 1, "{driver}");
        assert!(is_served(&mut one), "{driver}: those that are there are as before");
        drop(two);
        proxy.await_that("a place is free", |proxy| is_served(&mut proxy.client()));
    }
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("read");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib = line.trim().strip_suffix(" kB").expect("its unit");
    kib.parse::<u64>().expect("a number") << 10
}

/// Each client asks twice, one behind the other, and has one request an hour.
///
/// `POLLUX_FLOOD_CLIENTS=1000000` has so many, and judges the times of another route with and without them, and the memory that
/// they cost: run it alone, with `--nocapture`, on a machine that does nothing else.
#[test]
fn a_flood_of_clients_of_ipv6_leaves_other_routes_alone_and_takes_a_table() {
    // Few at once: what is asked for is how much a table takes, and not how long a turn of the loop is.
    const BATCH: u32 = 4;
    const SLOTS: u64 = 65_536;
    let said = std::env::var("POLLUX_FLOOD_CLIENTS").ok();
    let is_judged = said.is_some();
    let clients = said.map_or(20_000, |text| text.parse::<u32>().expect("a number"));
    let clients = clients.next_multiple_of(BATCH);
    let text = "trusted_proxies = [\"127.0.0.0/8\"]\n[[limit]]\nname = \"one\"\nrate = \"1/h\"\nburst = 1\n\
                [[site]]\nhost = \"*\"\nroute = [\n{ path = \"/one\", reply = 4, limit = [\"one\"] },\n\
                { path = \"/\", reply = 5 } ]\n";
    on_every_driver(text, |driver, proxy| {
        let turn = Duration::from_millis(if is_judged { 2000 } else { 50 });
        let without = paced(proxy, turn);
        let before = resident_bytes();
        let is_over = AtomicBool::new(false);
        let with = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut times = Vec::new();
                while !is_over.load(SeqCst) {
                    times.extend(paced(proxy, Duration::from_millis(20)));
                }
                times.sort();
                times
            });
            let mut flood = proxy.client();
            for batch in 0..clients / BATCH {
                let asks = |number: u32| {
                    let client = batch * BATCH + number;
                    let from = format!("2001:db8:{:x}:{:x}::1", client >> 16, client & 0xffff);
                    let ask =
                        format!("GET /one HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {from}\r\n\r\n");
                    ask.repeat(2)
                };
                flood.send((0..BATCH).map(asks).collect::<String>());
                for _ in 0..BATCH {
                    for expected in ["200", "429"] {
                        let head = flood.head();
                        assert_eq!(&head[9..12], expected, "{driver} {batch}: {head}");
                        let len = field(&head, "Content-Length").expect("a length");
                        flood.bytes(len.parse().expect("a number"));
                    }
                }
            }
            is_over.store(true, SeqCst);
            other.join().expect("it ends")
        });
        // The times are the test's own.
        let own = size_of_val(&*with);
        let grown = resident_bytes().saturating_sub(before + own as u64);
        let page = stats::metrics(proxy.server().overview());
        let count = |name: &str| {
            let start = format!("pollux_proxy_limit_{name}_total{{limit=\"one\"}} ");
            let line = page.lines().find_map(|line| line.strip_prefix(&start));
            line.expect("a line").parse::<u64>().expect("a number")
        };
        let clients = u64::from(clients);
        assert_eq!(count("refused"), clients, "{driver}");
        assert!(count("evictions") >= clients.saturating_sub(SLOTS), "{driver}");
        assert!(count("evictions") < clients, "{driver}");
        let p99 = |times: &[Duration]| times[times.len() * 99 / 100];
        let without = p99(&without);
        let with = p99(&with);
        let said =
            format!("p99 {without:?} without, {with:?} with {clients} clients, {grown} bytes more");
        writeln!(std::io::stderr(), "{driver}: {said}").expect("it is open");
        if is_judged {
            assert!(with <= 2 * without, "{driver}: {said}");
            assert!(grown <= 4 << 20, "{driver}: {said}");
        }
    });
}
