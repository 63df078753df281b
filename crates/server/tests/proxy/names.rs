//! Servers by names: each address of a name is a backend, names move, lookups fail, and a start does without some of
//! them. The test answers the lookups.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_engine::{Address, Driver};
use pollux_server::ServerError;
use pollux_server::config::{Check, Mode, ProxyConfig, Resolve};
use pollux_server::stats::{metrics, servers, set_server};
use pollux_server::{Fault, ProxyCounter, Resolver};

use crate::{Backend, GET, Proxy, unreachable};

/// What the names of a test have.
#[derive(Clone, Default)]
struct Hosts {
    all: Arc<Mutex<HashMap<String, Vec<IpAddr>>>>,
    lookups: Arc<AtomicU64>,
}

impl Hosts {
    fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.all.lock().expect("no panic").insert(name.to_owned(), addresses.to_vec());
    }

    fn forget(&self, name: &str) {
        self.all.lock().expect("no panic").remove(name);
    }

    fn lookups(&self) -> u64 {
        self.lookups.load(SeqCst)
    }

    fn resolver(&self) -> Resolver {
        let hosts = self.clone();
        Resolver::new(move |name| {
            hosts.lookups.fetch_add(1, SeqCst);
            let found = hosts.all.lock().expect("no panic").get(name).cloned();
            found.ok_or_else(|| io::Error::other("Name or service not known"))
        })
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn name(host: &str, port: u16) -> Address {
    Address::Name { host: host.to_owned(), port }
}

/// A backend at this address that answers with its address and lives until it is dropped.
fn at(address: &str, port: u16) -> Backend {
    let to = SocketAddr::new(ip(address), port);
    let text = address.to_owned();
    Backend::start_at(to, move |_, mut client| {
        while !client.head().is_empty() {
            client.try_send(crate::ok("", &text));
        }
    })
}

/// The backend that answers a request on a new connection, or the status.
fn ask(proxy: &Proxy) -> String {
    let mut client = proxy.client();
    client.try_send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = client.rest();
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => body.to_owned(),
        _ => answer.get(9..12).unwrap_or_default().to_owned(),
    }
}

fn on_every_driver(
    hosts: &Hosts,
    backends: &[Address],
    set: impl Fn(&mut ProxyConfig),
    test: impl Fn(Driver, &Proxy),
) {
    for driver in Driver::ALL {
        let started = Proxy::start_with(driver, backends.to_vec(), hosts.resolver(), &set);
        if let Some(proxy) = started {
            test(driver, &proxy);
        }
    }
}

/// Where `localhost` is ::1 first and the server listens on 127.0.0.1, or the other way round.
#[test]
fn a_name_works_whichever_of_its_addresses_the_server_listens_on() {
    let one = at("127.0.0.1", 0);
    let hosts = Hosts::default();
    for addresses in [["127.0.0.3", "127.0.0.1"], ["127.0.0.1", "127.0.0.3"], ["::1", "127.0.0.1"]]
    {
        hosts.set("both.test", &addresses.map(ip));
        let to = [name("both.test", one.address.port())];
        on_every_driver(
            &hosts,
            &to,
            |_| {},
            |driver, proxy| {
                for _ in 0..8 {
                    assert_eq!(ask(proxy), "127.0.0.1", "{driver}: {addresses:?}");
                }
            },
        );
        let tcp = |config: &mut ProxyConfig| config.frontends[0].mode = Mode::Tcp;
        on_every_driver(&hosts, &to, tcp, |driver, proxy| {
            for _ in 0..4 {
                let mut client = proxy.client();
                client.send(GET);
                assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}: {addresses:?}");
            }
        });
    }
}

/// All but the last one of many addresses refuse connections.
#[test]
fn the_one_address_of_eight_that_answers_is_found_at_the_first_request() {
    let one = at("127.0.0.9", 0);
    let hosts = Hosts::default();
    hosts.set("many.test", &std::array::from_fn::<_, 8, _>(|n| ip(&format!("127.0.0.{}", n + 2))));
    let to = [name("many.test", one.address.port())];
    on_every_driver(
        &hosts,
        &to,
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
        },
    );
}

#[test]
fn each_address_of_a_name_is_a_server_with_its_share_and_its_checks() {
    let one = at("127.0.0.1", 0);
    let two = at("127.0.0.2", one.address.port());
    let hosts = Hosts::default();
    hosts.set("two.test", &[ip("127.0.0.2"), ip("127.0.0.1"), ip("127.0.0.4"), ip("127.0.0.2")]);
    let set = |config: &mut ProxyConfig| {
        let health = &mut config.groups[0].health;
        health.check = Check::Http("/".to_owned());
        health.interval = Duration::from_millis(20);
        health.fall = 1;
    };
    let to = [name("two.test", one.address.port())];
    on_every_driver(&hosts, &to, set, |driver, proxy| {
        let overview = proxy.server().overview();
        let shown = || servers(overview);
        let line = |address: &str| {
            let text = shown();
            let line = text.lines().find(|line| line.starts_with(address)).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{driver}: {address}: {text}"))
        };
        proxy.await_that("the fall of the one that is not there", |_| {
            line("127.0.0.4").contains(" down ")
        });
        assert_eq!(shown().lines().count(), 4, "{driver}: {}", shown());
        let answers: Vec<String> = (0..8).map(|_| ask(proxy)).collect();
        let count = |of: &str| answers.iter().filter(|each| *each == of).count();
        assert_eq!((count("127.0.0.1"), count("127.0.0.2")), (4, 4), "{driver}: {answers:?}");
        // A command means all of them by the name, and one by its address.
        let named = format!("two.test:{}", one.address.port());
        assert_eq!(
            set_server(overview, &named, &["weight", "9"]).matches("  9 ").count(),
            3,
            "{driver}"
        );
        let _ = set_server(overview, &two.address.to_string(), &["drain"]);
        assert!((0..4).all(|_| ask(proxy) == "127.0.0.1"), "{driver}");
    });
}

#[test]
fn a_name_that_moves_is_followed_and_what_was_kept_to_the_old_address_ends() {
    let hosts = Hosts::default();
    let old = at("127.0.0.2", 0);
    let new = at("127.0.0.3", old.address.port());
    // The old one still answers: only the interval tells.
    let set = |config: &mut ProxyConfig| config.limits.lookup_interval = Duration::from_millis(50);
    let to = [name("move.test", old.address.port())];
    hosts.set("move.test", &[ip("127.0.0.2")]);
    on_every_driver(&hosts, &to, set, |driver, proxy| {
        hosts.set("move.test", &[ip("127.0.0.2")]);
        proxy.await_that("the first address", |proxy| ask(proxy) == "127.0.0.2");
        let _ = set_server(proxy.server().overview(), &old.address.to_string(), &["weight", "7"]);
        hosts.set("move.test", &[ip("127.0.0.3")]);
        proxy.await_that("the second address", |proxy| ask(proxy) == "127.0.0.3");
        assert!((0..4).all(|_| ask(proxy) == "127.0.0.3"), "{driver}");
        let shown = servers(proxy.server().overview());
        assert_eq!(shown.lines().count(), 2, "{driver}: {shown}");
        let line = shown.lines().nth(1).expect("the second address");
        assert!(
            line.starts_with(&new.address.to_string()) && line.contains("  7 "),
            "{driver}: {shown}"
        );
        // One kept connection, to the new one.
        proxy.await_that("the end of what was kept", |proxy| proxy.open_connections() == 1);
    });
}

/// A request that is under way when its server's name moves comes to its end.
#[test]
fn a_request_under_way_is_answered_by_the_address_that_has_it() {
    let hosts = Hosts::default();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let old = Backend::start_at("127.0.0.2:0".parse().expect("one"), move |_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            if head.starts_with("GET /hold ") {
                wait.lock().expect("no panic").recv().expect("message");
            }
            client.try_send(crate::ok("", "127.0.0.2"));
        }
    });
    let new = at("127.0.0.3", old.address.port());
    let set = |config: &mut ProxyConfig| {
        // What one client is answered by is where the loop of the other one sends requests, too.
        config.loops.threads = 1;
        config.limits.lookup_interval = Duration::from_millis(50);
    };
    hosts.set("move.test", &[ip("127.0.0.2")]);
    let to = [name("move.test", old.address.port())];
    on_every_driver(&hosts, &to, set, |driver, proxy| {
        hosts.set("move.test", &[ip("127.0.0.2")]);
        proxy.await_that("the first address", |proxy| ask(proxy) == "127.0.0.2");
        proxy.await_that("the end of what was asked", |proxy| proxy.in_use() == 0);
        let mut client = proxy.client();
        client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
        proxy.await_that("the request", |proxy| proxy.in_use() == 1);
        hosts.set("move.test", &[ip("127.0.0.3")]);
        proxy.await_that("the second address", |proxy| ask(proxy) == "127.0.0.3");
        let shown = servers(proxy.server().overview());
        assert!(!shown.contains(&old.address.to_string()), "{driver}: {shown}");
        assert!(shown.contains(&new.address.to_string()), "{driver}: {shown}");
        release.send(()).expect("it waits");
        let answer = client.until("127.0.0.2");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{driver}: {answer}");
        client.send(GET);
        let answer = client.until("127.0.0.3");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{driver}: {answer}");
    });
}

/// The server is gone and its name has another address, long before the interval is over.
#[test]
fn a_server_that_fails_is_looked_up_early_and_not_too_often() {
    let hosts = Hosts::default();
    let port = unreachable().port();
    let set = |config: &mut ProxyConfig| config.limits.lookup_interval = Duration::from_secs(3600);
    let to = [name("gone.test", port)];
    for driver in [Driver::ALL[0], Driver::ALL[Driver::ALL.len() - 1]] {
        hosts.set("gone.test", &[ip("127.0.0.2")]);
        let Some(proxy) = Proxy::start_with(driver, to.to_vec(), hosts.resolver(), set) else {
            continue;
        };
        let before = hosts.lookups();
        let began = Instant::now();
        for _ in 0..50 {
            assert_eq!(ask(&proxy), "503", "{driver}");
        }
        let most = 1 + began.elapsed().as_secs();
        assert!(hosts.lookups() - before <= most, "{driver}: one a second at most");
        hosts.set("gone.test", &[ip("127.0.0.3")]);
        let _new = at("127.0.0.3", port);
        proxy.await_that("the new address", |proxy| ask(proxy) == "127.0.0.3");
    }
}

#[test]
fn a_lookup_that_fails_changes_nothing() {
    let hosts = Hosts::default();
    let one = at("127.0.0.2", 0);
    let set = |config: &mut ProxyConfig| config.limits.lookup_interval = Duration::from_millis(20);
    hosts.set("dns.test", &[ip("127.0.0.2")]);
    let to = [name("dns.test", one.address.port())];
    on_every_driver(&hosts, &to, set, |driver, proxy| {
        hosts.forget("dns.test");
        let failed = |proxy: &Proxy| {
            let page = metrics(proxy.server().overview());
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix("pollux_proxy_lookups_failed_total "));
            line.and_then(|count| count.parse::<u64>().ok()).expect("a count")
        };
        proxy.await_that("lookups that fail", |proxy| failed(proxy) >= 3);
        assert!((0..4).all(|_| ask(proxy) == "127.0.0.2"), "{driver}");
        hosts.set("dns.test", &[ip("127.0.0.2")]);
    });
}

#[test]
fn a_start_does_without_an_unknown_name_of_several_and_says_so_where_none_is_known() {
    let hosts = Hosts::default();
    let one = at("127.0.0.1", 0);
    let late = at("127.0.0.6", one.address.port());
    let set = |config: &mut ProxyConfig| config.limits.lookup_interval = Duration::from_millis(50);
    let both = [one.address.into(), name("late.test", one.address.port())];
    on_every_driver(&hosts, &both, set, |driver, proxy| {
        hosts.forget("late.test");
        proxy.await_that("the known one alone", |proxy| (0..4).all(|_| ask(proxy) == "127.0.0.1"));
        hosts.set("late.test", &[late.address.ip()]);
        proxy.await_that("the other one", |proxy| ask(proxy) == "127.0.0.6");
        assert_eq!(proxy.count(ProxyCounter::Retries), 0, "{driver}");
        hosts.forget("late.test");
    });
    let mut config =
        ProxyConfig::new(vec!["127.0.0.1:0".parse().expect("one")], vec![name("no.test", 80)]);
    config.monitoring.is_quiet = true;
    let Err(error) = pollux_server::Server::start_proxy_with(&config, hosts.resolver()) else {
        panic!("it has no server");
    };
    assert!(matches!(error, ServerError::NoAddress { .. }), "{error}");
    let expected = "no server of the backend \"default\" has an address: \"no.test\" can't be looked up: Name or service \
                    not known; expected a name that this machine can look up (getent ahosts NAME), or another address";
    assert_eq!(error.to_string(), expected);
}

/// More moves than a name has places, each with a request: a place is used again.
#[test]
fn a_name_moves_on_and_on() {
    let hosts = Hosts::default();
    let first = at("127.0.1.1", 0);
    let others: Vec<Backend> =
        (2..24).map(|n| at(&format!("127.0.1.{n}"), first.address.port())).collect();
    let set = |config: &mut ProxyConfig| config.limits.lookup_interval = Duration::from_millis(5);
    hosts.set("on.test", &[first.address.ip()]);
    let to = [name("on.test", first.address.port())];
    for driver in [Driver::ALL[0], Driver::ALL[Driver::ALL.len() - 1]] {
        let Some(proxy) = Proxy::start_with(driver, to.to_vec(), hosts.resolver(), set) else {
            continue;
        };
        for backend in others.iter().chain([&first]) {
            hosts.set("on.test", &[backend.address.ip()]);
            let expected = backend.address.ip().to_string();
            proxy.await_that("the next address", |proxy| ask(proxy) == expected);
        }
    }
}

/// Clients on kept connections ask on and on while the name moves to and fro: every request is answered well.
#[test]
fn a_name_that_moves_under_load_fails_no_request() {
    const MOVES: u64 = 20;
    const CLIENTS: usize = 4;
    let hosts = Hosts::default();
    let first = at("127.0.0.4", 0);
    let second = at("127.0.0.5", first.address.port());
    let places = [first.address.ip(), second.address.ip()];
    let set = |config: &mut ProxyConfig| {
        config.loops.threads = 2;
        config.limits.lookup_interval = Duration::from_millis(5);
    };
    let to = [name("swing.test", first.address.port())];
    hosts.set("swing.test", &places[..1]);
    for driver in [Driver::ALL[0], Driver::ALL[Driver::ALL.len() - 1]] {
        let Some(proxy) = Proxy::start_with(driver, to.to_vec(), hosts.resolver(), set) else {
            continue;
        };
        let moves = AtomicU64::new(0);
        let answered: u64 = std::thread::scope(|threads| {
            let load = || {
                let mut client = proxy.client();
                let mut answered = 0;
                while moves.load(SeqCst) < MOVES {
                    client.send(GET);
                    let head = client.head();
                    assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
                    let body = String::from_utf8(client.bytes(9)).expect("an address");
                    assert!(places.contains(&ip(&body)), "{driver}: {body}");
                    answered += 1;
                }
                answered
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| threads.spawn(load)).collect();
            for number in 1..=MOVES {
                let place = places[number as usize % 2];
                hosts.set("swing.test", &[place]);
                let expected = place.to_string();
                proxy.await_that("the other address", |proxy| ask(proxy) == expected);
                moves.store(number, SeqCst);
            }
            clients.into_iter().map(|client| client.join().expect("answered throughout")).sum()
        });
        assert!(answered >= MOVES, "{driver}: {answered}");
    }
}

/// All addresses change at once, and again, while each has a request under way: there is always one to ask.
#[test]
fn a_name_that_moves_from_all_its_addresses_to_others_is_answered_throughout() {
    const EACH: u8 = 16;
    let start = |n: u8, port: u16| {
        let to = SocketAddr::new([127, 0, 2, n].into(), port);
        Backend::start_at(to, move |_, mut client| {
            loop {
                let head = client.head();
                if head.starts_with("GET /hold ") {
                    drop(client.rest());
                    return;
                }
                if head.is_empty() {
                    return;
                }
                client.try_send(crate::ok("", &to.ip().to_string()));
            }
        })
    };
    let first = start(1, 0);
    let backends: Vec<Backend> = (2..=3 * EACH).map(|n| start(n, first.address.port())).collect();
    let all: Vec<IpAddr> =
        [&first].into_iter().chain(&backends).map(|it| it.address.ip()).collect();
    let sets: Vec<&[IpAddr]> = all.chunks(EACH.into()).collect();
    let hosts = Hosts::default();
    let set = |config: &mut ProxyConfig| {
        config.loops.threads = 1;
        config.limits.lookup_interval = Duration::from_millis(50);
        // What a client held ends with it.
        config.limits.answers_half_closed = false;
    };
    let to = [name("all.test", first.address.port())];
    for driver in [Driver::ALL[0], Driver::ALL[Driver::ALL.len() - 1]] {
        hosts.set("all.test", sets[0]);
        let Some(proxy) = Proxy::start_with(driver, to.to_vec(), hosts.resolver(), set) else {
            continue;
        };
        // Those of a set that get new requests.
        let shown = |of: &[IpAddr]| {
            let text = servers(proxy.server().overview());
            of.iter().filter(|ip| text.contains(&format!("{ip}:"))).count()
        };
        let answered_by = || {
            let answer = ask(&proxy);
            answer.parse::<IpAddr>().unwrap_or_else(|_| panic!("{driver}: {answer}"))
        };
        // Its loop has them too once one of them answers.
        let await_set = |of: &[IpAddr]| {
            proxy.await_that("the addresses", |_| {
                shown(of) == of.len() && shown(&all) == of.len() && of.contains(&answered_by())
            });
        };
        let hold = |so_many: u64| {
            let clients: Vec<crate::Client> = (0..EACH)
                .map(|_| {
                    let mut client = proxy.client();
                    client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
                    client
                })
                .collect();
            proxy.await_that("the requests", |proxy| proxy.in_use() == so_many);
            clients
        };
        await_set(sets[0]);
        let of_first = hold(EACH.into());
        hosts.set("all.test", sets[1]);
        await_set(sets[1]);
        let _of_second = hold(2 * u64::from(EACH));
        hosts.set("all.test", sets[2]);
        // No place is free: one address that the name has no more is asked.
        proxy.await_that("the second move", |_| {
            answered_by();
            shown(sets[1]) == 1
        });
        assert_eq!(shown(sets[2]), 0, "{driver}");
        for _ in 0..8 {
            answered_by();
        }
        drop(of_first);
        await_set(sets[2]);
    }
}

#[test]
fn a_name_that_has_only_the_address_of_the_proxy_is_not_called_drained() {
    for mode in [Mode::Http, Mode::Tcp] {
        crate::at_once(|driver| {
            let one = Backend::start_at("127.0.0.2:0".parse().expect("one"), |_, mut client| {
                if !client.head().is_empty() {
                    client.try_send(crate::ok("", "127.0.0.2"));
                }
            });
            let hosts = Hosts::default();
            hosts.set("self.test", &[ip("127.0.0.2")]);
            let to = vec![name("self.test", one.address.port())];
            let set = |config: &mut ProxyConfig| {
                config.limits.lookup_interval = Duration::from_millis(50);
                let own = SocketAddr::new(ip("127.0.0.7"), one.address.port());
                config.frontends[0].listen = vec![own.into()];
                config.frontends[0].mode = mode;
            };
            let started = Proxy::start_with(driver, to, hosts.resolver(), set);
            let Some(proxy) = started else { return };
            proxy.await_that("the address", |proxy| ask(proxy) == "127.0.0.2");
            hosts.set("self.test", &[ip("127.0.0.7")]);
            proxy.await_that("none", |proxy| ask(proxy) != "127.0.0.2");
            proxy.await_that("the fault", |proxy| proxy.faults(Fault::NoAddress) > 0);
            assert_eq!(proxy.faults(Fault::AllDrained), 0, "{driver}");
        });
    }
}

/// Of two names one says that it is never looked up again, the other one how often.
#[test]
fn a_server_says_how_often_its_name_is_looked_up() {
    let backend = at("127.0.0.1", 0);
    let port = backend.address.port();
    let counts = Arc::<Mutex<HashMap<String, u64>>>::default();
    for driver in [Driver::ALL[0], Driver::ALL[Driver::ALL.len() - 1]] {
        counts.lock().expect("no panic").clear();
        let counted = Arc::clone(&counts);
        let resolver = Resolver::new(move |name| {
            *counted.lock().expect("no panic").entry(name.to_owned()).or_default() += 1;
            Ok(vec![ip("127.0.0.1")])
        });
        let set = |config: &mut ProxyConfig| {
            config.limits.lookup_interval = Duration::from_secs(3600);
            config.groups[0].servers[0].resolve = Some(Resolve::Never);
            config.groups[0].servers[1].resolve = Some(Resolve::Every(Duration::from_millis(20)));
        };
        let to = ["stays.test", "moves.test", "usual.test"].map(|host| name(host, port));
        let Some(proxy) = Proxy::start_with(driver, to.to_vec(), resolver, set) else { continue };
        let of = |name: &str| counts.lock().expect("no panic").get(name).copied().unwrap_or(0);
        proxy.await_that("lookups", |_| of("moves.test") >= 8);
        assert_eq!((of("stays.test"), of("usual.test")), (1, 1), "{driver}");
        assert_eq!(ask(&proxy), "127.0.0.1", "{driver}");
    }
}
