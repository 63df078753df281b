//! Cookies that lead clients back to the server that they had, by both versions of HTTP and to backends of either.

use std::collections::BTreeSet;

use pollux_engine::Driver;
use pollux_http::Method;
use pollux_server::ProxyCounter::{StickyKept, StickyMoved, StickySet};
use pollux_server::config::ProxyConfig;
use pollux_settings::Given;

use crate::http2_client::Client2;
use crate::{Backend, Proxy, field, ok};

/// Answers with its name, and the cookies that it saw.
fn named(name: &'static str) -> Backend {
    Backend::answering(move |head, _| {
        let cookies = field(head, "Cookie").unwrap_or("none").to_owned();
        let mut fields = format!("X-Name: {name}\r\nX-Cookies: {cookies}\r\n");
        if head.starts_with("GET /cached ") {
            fields += "Cache-Control: max-age=60\r\n";
        }
        if head.starts_with("GET /own ") {
            fields += "Set-Cookie: own=1\r\n";
        }
        Some(ok(&fields, ""))
    })
}

/// The same by HTTP/2.
fn named2(name: &'static str) -> Backend {
    Backend::answering2(move |_| (format!("HTTP/1.1 200 OK\r\nX-Name: {name}\r\n"), Vec::new()))
}

fn file(backends: &[Backend], more: &str) -> String {
    let server = |backend: &Backend| format!("[[server]]\naddress = \"{}\"\n", backend.address);
    let servers: String = backends.iter().map(server).collect();
    format!("listen = \"127.0.0.1:0\"\nsticky = \"cookie\"\n{more}\n{servers}")
}

fn on_every_driver(text: &str, test: impl Fn(Driver, &Proxy)) {
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            let read: ProxyConfig = Given::from_toml(text, "p.toml").read().expect("right");
            *config = ProxyConfig { loops, monitoring, ..read };
        };
        if let Some(proxy) = Proxy::start(driver, &["127.0.0.1:1".parse().expect("one")], set) {
            test(driver, &proxy);
        }
    }
}

/// An answer as both versions have it: its fields in small letters, one line each.
#[derive(Debug)]
struct Said(String);

impl Said {
    fn field(&self, name: &str) -> Option<&str> {
        field(&self.0, name)
    }

    fn name(&self) -> String {
        self.field("x-name").expect("a backend answered").to_owned()
    }

    /// The cookie that it sets, as clients send it.
    fn cookie(&self) -> Option<String> {
        let set = self.field("set-cookie").filter(|set| set.starts_with("pollux_"))?;
        Some(set.split(';').next().expect("one").to_owned())
    }
}

/// A client of either version; each request on a new connection, or on one.
enum Asks<'p> {
    One(&'p Proxy),
    Kept(crate::Client),
    Two(Box<Client2>),
}

impl Asks<'_> {
    fn ask(&mut self, path: &str, cookies: &str) -> Said {
        let line =
            if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
        let one = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{line}\r\n");
        match self {
            Self::One(proxy) => {
                let mut client = proxy.client();
                client.send(one);
                Said(client.head())
            }
            Self::Kept(client) => {
                client.send(one);
                Said(client.head())
            }
            Self::Two(client) => {
                let fields: &[(&str, &str)] =
                    if cookies.is_empty() { &[] } else { &[("Cookie", cookies)] };
                let stream = client.ask(Method::Get, path, fields, true);
                let answer = client.answer(stream);
                Said(answer.heads.last().expect("a head").replace('|', "\r\n"))
            }
        }
    }
}

fn all(proxy: &Proxy) -> [Asks<'_>; 3] {
    [Asks::One(proxy), Asks::Kept(proxy.client()), Asks::Two(Box::new(Client2::connect(proxy)))]
}

#[test]
fn a_client_with_a_cookie_has_the_same_server_again_and_others_are_spread() {
    for protocol in ["http/1.1", "h2c"] {
        let make = if protocol == "h2c" { named2 } else { named };
        let backends = ["a", "b", "c"].map(make);
        let text = file(&backends, &format!("protocol = \"{protocol}\""));
        on_every_driver(&text, |driver, proxy| {
            for mut client in all(proxy) {
                let mut had = BTreeSet::new();
                for _ in 0..3 {
                    let first = client.ask("/", "");
                    let cookie = first.cookie().unwrap_or_else(|| panic!("{driver}: {first:?}"));
                    assert_eq!(first.field("cache-control"), Some("private"), "{driver}");
                    had.insert(first.name());
                    for _ in 0..4 {
                        let again = client.ask("/", &format!("u=1; {cookie}; v=2"));
                        assert_eq!(again.name(), first.name(), "{driver} {protocol}");
                        assert_eq!(again.cookie(), None, "{driver}: {again:?}");
                        assert_eq!(again.field("cache-control"), None, "{driver}");
                    }
                }
                assert_eq!(had.len(), 3, "{driver}: each one has a client");
            }
            let counts = [StickySet, StickyKept, StickyMoved].map(|of| proxy.count(of));
            assert_eq!(counts, [9, 36, 0], "{driver}");
        });
    }
}

#[test]
fn backends_do_not_see_the_cookie_and_other_ones_pass_as_they_came() {
    let backends = [named("a"), named("b")];
    on_every_driver(&file(&backends, "sticky_cookie = \"route\""), |driver, proxy| {
        for mut client in all(proxy) {
            for (sent, seen) in [
                ("", "none"),
                ("a=1; b=\"x, y\"", "a=1; b=\"x, y\""),
                ("route=00000000000000ff", "none"),
                ("a=1; route=x; b=2", "a=1; b=2"),
                ("aroute=1; route=; routeb=2", "aroute=1; routeb=2"),
            ] {
                let said = client.ask("/", sent);
                assert_eq!(said.field("x-cookies"), Some(seen), "{driver} {sent}: {said:?}");
                let set = said.field("set-cookie").expect("none of them has its mark");
                let (value, attributes) = set.split_once("; ").expect("attributes");
                assert!(value.starts_with("route=") && value.len() == 22, "{driver}: {set}");
                assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax", "{driver}");
            }
            let cached = client.ask("/cached", "");
            assert_eq!(cached.field("cache-control"), Some("max-age=60"), "{driver}");
            let own = client.ask("/own", "");
            let sets = own.0.lines().filter(|line| line.to_ascii_lowercase().starts_with("set-"));
            assert_eq!(sets.count(), 2, "{driver}: that of the backend and this one: {own:?}");
        }
    });
}

#[test]
fn a_client_whose_server_gets_no_requests_has_another_one_and_its_cookie() {
    let backends = [named("a"), named("b")];
    on_every_driver(&file(&backends, "fall = 1"), |driver, proxy| {
        for mut client in all(proxy) {
            let first = client.ask("/", "");
            let cookie = first.cookie().expect("one");
            let all = &proxy.server().overview().backends;
            let place = usize::from(first.name() == "b");
            all[place].set_draining(true);
            let other = client.ask("/", &cookie);
            assert_ne!(other.name(), first.name(), "{driver}: it is drained");
            let moved = other.cookie().expect("that of the other one");
            assert_ne!(moved, cookie, "{driver}");
            all[place].set_draining(false);
            for _ in 0..4 {
                assert_eq!(client.ask("/", &moved).name(), other.name(), "{driver}");
                assert_eq!(client.ask("/", &cookie).name(), first.name(), "{driver}: it is back");
            }
            // One that nobody has.
            let forged = client.ask("/", "pollux_default=0000000000000001");
            assert!(forged.cookie().is_some(), "{driver}");
        }
        assert_eq!(proxy.count(StickyMoved), 6, "{driver}");
    });
}

#[test]
fn a_server_that_is_gone_costs_its_clients_no_request() {
    for driver in Driver::ALL {
        // No connection is left that outlives it.
        let once = |name: &'static str| {
            Backend::start(move |_, mut client| {
                if !client.head().is_empty() {
                    let fields = format!("X-Name: {name}\r\nConnection: close\r\n");
                    client.try_send(ok(&fields, ""));
                }
            })
        };
        let stays = once("a");
        let gone = once("b");
        let backends = [stays, gone];
        let text = file(&backends, "down_time = \"1h\"\nfall = 1");
        let [stays, gone] = backends;
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            let read: ProxyConfig = Given::from_toml(&text, "p.toml").read().expect("right");
            *config = ProxyConfig { loops, monitoring, ..read };
        };
        let address = "127.0.0.1:1".parse().expect("one");
        let Some(proxy) = Proxy::start(driver, &[address], set) else { continue };
        let mut client = Asks::One(&proxy);
        let both = [client.ask("/", ""), client.ask("/", "")];
        let of_gone = both.iter().find(|said| said.name() == "b").expect("both are asked");
        let cookie = of_gone.cookie().expect("one");
        drop(gone);
        for _ in 0..3 {
            let said = client.ask("/", &cookie);
            assert!(
                said.0.starts_with("HTTP/1.1 200 ") && said.name() == "a",
                "{driver}: {said:?}"
            );
            assert!(said.cookie().is_some_and(|new| new != cookie), "{driver}: {said:?}");
        }
        drop(stays);
    }
}

#[test]
fn a_websocket_sets_the_cookie_and_has_its_server_again() {
    let agreeing = |name: &'static str| {
        Backend::answering(move |_, _| {
            Some(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 X-Name: {name}\r\n\r\n"
            ))
        })
    };
    let backends = [agreeing("a"), agreeing("b")];
    on_every_driver(&file(&backends, ""), |driver, proxy| {
        let ask = |cookie: &str| {
            let mut client = proxy.client();
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{cookie}\r\n"
            ));
            Said(client.head())
        };
        let first = ask("");
        let cookie = first.cookie().unwrap_or_else(|| panic!("{driver}: {first:?}"));
        for _ in 0..3 {
            let again = ask(&format!("Cookie: {cookie}\r\n"));
            assert!(again.0.starts_with("HTTP/1.1 101 "), "{driver}: {again:?}");
            assert_eq!((again.name(), again.cookie()), (first.name(), None), "{driver}");
        }
    });
}
