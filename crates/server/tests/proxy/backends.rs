//! Which backend gets a request, how backends go down and come up again, and orders for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use pollux_engine::{Driver, ListenAddress};
use pollux_server::config::{Balance, Check, Mode, ProxyConfig};
use pollux_server::stats::{servers, set_server};
use pollux_server::{Fault, ProxyCounter};
use serde_json::Value;

use crate::{Backend, Client, Proxy, field, ok, on_every_driver, unreachable};

/// Answers with a name, and checks as `is_well` says.
fn named(name: &'static str, is_well: &Arc<AtomicBool>) -> Backend {
    let is_well = Arc::clone(is_well);
    Backend::answering(move |head, _| {
        if !head.starts_with("GET /health ") {
            return Some(ok(&format!("X-Name: {name}\r\n"), "hi"));
        }
        assert_eq!(field(head, "User-Agent"), Some("pollux-check"), "{head}");
        let status = if is_well.load(SeqCst) { "200 OK" } else { "500 Sick" };
        Some(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
    })
}

/// Two that are well.
fn two() -> [Backend; 2] {
    ["one", "two"].map(|name| named(name, &Arc::new(AtomicBool::new(true))))
}

/// The backend that answers a request.
fn ask(proxy: &Proxy, path: &str) -> String {
    ask_at(proxy.address, path)
}

fn ask_at(address: SocketAddr, path: &str) -> String {
    let mut client = Client::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    let head = client.head();
    field(&head, "X-Name").unwrap_or_else(|| head.lines().next().unwrap_or("")).to_owned()
}

/// How many of `count` requests each of the two answers.
fn spread(proxy: &Proxy, count: usize) -> (usize, usize) {
    let names: Vec<_> = (0..count).map(|number| ask(proxy, &format!("/{number}"))).collect();
    let of = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(of("one") + of("two"), count, "{names:?}");
    (of("one"), of("two"))
}

#[test]
fn requests_are_spread_by_turn_by_weight_and_by_hash() {
    let [one, two] = two();
    let both = [one.address, two.address];
    on_every_driver(
        &both,
        |config| config.groups[0].servers[1].weight = 3,
        |driver, proxy| {
            assert_eq!(spread(proxy, 8), (2, 6), "{driver}");
            let overview = proxy.server().overview();
            let name = one.address.to_string();
            assert!(set_server(overview, &name, &["weight", "9"]).contains("    9"), "{driver}");
            assert_eq!(spread(proxy, 8), (6, 2), "{driver}");
            assert!(set_server(overview, &name, &["drain"]).contains("drain"), "{driver}");
            assert_eq!(spread(proxy, 4), (0, 4), "{driver}");
            let shown = set_server(overview, &name, &["ready"]);
            assert!(!shown.contains("drain"), "{driver}: {shown}");
            assert!(spread(proxy, 8).0 > 0, "{driver}");
            assert!(set_server(overview, &name, &["weight", "0"]).starts_with("expected a weight"));
            assert!(set_server(overview, "x", &["drain"]).starts_with("no such server"));
        },
    );
    on_every_driver(
        &both,
        |config| config.groups[0].balance = Balance::Path,
        |driver, proxy| {
            let (first, second) = spread(proxy, 40);
            assert!(first > 5 && second > 5, "{driver}: {first} and {second}");
            let again = ask(proxy, "/a?b");
            assert!((0..5).all(|_| ask(proxy, "/a?b") == again), "{driver}");
        },
    );
    on_every_driver(
        &both,
        |config| config.groups[0].balance = Balance::Client,
        |driver, proxy| {
            let (first, second) = spread(proxy, 6);
            assert!(first == 0 || second == 0, "{driver}: one client, {first} and {second}");
        },
    );
}

#[test]
fn backends_that_are_all_drained_get_no_request_nor_stream() {
    for mode in [Mode::Http, Mode::Tcp] {
        let [one, two] = two();
        let set = |config: &mut ProxyConfig| config.frontends[0].mode = mode;
        on_every_driver(&[one.address, two.address], set, |driver, proxy| {
            let before = one.accepted() + two.accepted();
            let overview = proxy.server().overview();
            let names = [one.address.to_string(), two.address.to_string()];
            names.iter().for_each(|name| drop(set_server(overview, name, &["drain"])));
            let mut client = proxy.client();
            client.try_send("GET / HTTP/1.0\r\n\r\n");
            let answer = client.rest();
            match mode {
                Mode::Http => assert!(answer.starts_with("HTTP/1.1 503 "), "{driver}: {answer}"),
                Mode::Tcp => assert_eq!(answer, "", "{driver}"),
            }
            proxy.await_that("the fault", |proxy| proxy.faults(Fault::AllDrained) == 1);
            assert_eq!(one.accepted() + two.accepted(), before, "{driver}");
            drop(set_server(overview, &names[1], &["ready"]));
            let mut client = proxy.client();
            client.ask("/");
            assert!(client.head().contains("X-Name: two"), "{driver}");
        });
    }
}

#[test]
fn a_backend_that_fails_is_left_alone_and_tried_again_after_a_while() {
    let [one, _] = two();
    let set = |config: &mut ProxyConfig| {
        config.groups[0].health.fall = 2;
        config.groups[0].health.down_time = Duration::from_secs(3600);
    };
    on_every_driver(&[one.address, unreachable()], set, |driver, proxy| {
        // Every request is answered: a connect that fails is tried elsewhere.
        assert!((0..12).all(|_| ask(proxy, "/") == "one"), "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 2, "{driver}: it was tried twice");
        let shown = servers(proxy.server().overview());
        assert!(
            shown.lines().nth(2).is_some_and(|line| line.contains("down")),
            "{driver}: {shown}"
        );
    });
    let shortly = |config: &mut ProxyConfig| {
        config.groups[0].health.fall = 1;
        config.groups[0].health.down_time = Duration::from_millis(1);
    };
    on_every_driver(&[one.address, unreachable()], shortly, |driver, proxy| {
        proxy.await_that("another try", |proxy| {
            assert_eq!(ask(proxy, "/"), "one", "{driver}");
            proxy.count(ProxyCounter::Retries) >= 3
        });
    });
}

#[test]
fn checks_take_a_backend_out_and_bring_it_back() {
    let is_well = Arc::new(AtomicBool::new(true));
    let (one, [_, two]) = (named("one", &is_well), two());
    let set = |config: &mut ProxyConfig| {
        config.groups[0].health.check = Check::Http("/health".to_owned());
        config.groups[0].health.interval = Duration::from_millis(20);
        config.groups[0].health.timeout = Duration::from_secs(20);
    };
    on_every_driver(&[one.address, two.address], set, |driver, proxy| {
        is_well.store(true, SeqCst);
        let state = |proxy: &Proxy| proxy.server().overview().backends[0].is_down();
        assert_eq!(spread(proxy, 4), (2, 2), "{driver}");
        is_well.store(false, SeqCst);
        proxy.await_that("its fall", state);
        assert_eq!(spread(proxy, 4), (0, 4), "{driver}");
        is_well.store(true, SeqCst);
        proxy.await_that("its rise", |proxy| !state(proxy));
        // It is given its share little by little.
        proxy.await_that("its requests", |proxy| ask(proxy, "/") == "one");
        assert!(proxy.count(ProxyCounter::Checks) >= 5, "{driver}");
    });
    let tcp = |config: &mut ProxyConfig| {
        config.groups[0].health.check = Check::Tcp;
        config.groups[0].health.interval = Duration::from_millis(20);
    };
    on_every_driver(&[unreachable(), two.address], tcp, |driver, proxy| {
        let is_down = |proxy: &Proxy| proxy.server().overview().backends[0].is_down();
        proxy.await_that("its fall", is_down);
        assert_eq!(spread(proxy, 4), (0, 4), "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 0, "{driver}: no request found it out");
    });
}

/// Two addresses of one proxy, each with backends, a balance and checks of its own.
#[test]
fn each_front_end_leads_to_its_own_backends() {
    let sick = Arc::new(AtomicBool::new(false));
    let ([one, _], two) = (two(), named("two", &sick));
    let add = |config: &mut ProxyConfig| {
        let mut group = config.groups[0].clone();
        "second".clone_into(&mut group.name);
        group.servers[0].address = two.address.into();
        group.health.check = Check::Http("/health".to_owned());
        group.health.interval = Duration::from_millis(20);
        (group.health.fall, group.health.rise) = (1, 1);
        config.groups.push(group);
        let mut other = config.frontends[0].clone();
        other.group = Some(1);
        config.frontends.push(other);
        config.loops.threads = 2;
    };
    on_every_driver(&[one.address], add, |driver, proxy| {
        let address = |at: usize| match proxy.server().addresses()[at] {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => panic!("TCP"),
        };
        for (at, name) in [(0, "one"), (1, "two"), (0, "one"), (1, "two")] {
            assert_eq!(ask_at(address(at), "/"), name, "{driver}");
        }
        // Only the second group has checks; a sick backend that is the only one is still tried.
        let state = |at: usize| proxy.server().overview().backends[at].is_down();
        proxy.await_that("the check fails", |_| state(1));
        assert!(!state(0), "{driver}");
        assert_eq!(ask_at(address(1), "/"), "two", "{driver}");
        sick.store(true, SeqCst);
        proxy.await_that("the check passes", |_| !state(1));
        sick.store(false, SeqCst);
    });
}

fn get(proxy: &Proxy, path: &str) -> (String, String) {
    let Some(ListenAddress::Tcp(address)) = proxy.server().stats_address() else { panic!("TCP") };
    let mut client = Client::connect(*address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    (client.head(), client.rest())
}

#[test]
fn the_live_page_is_one_file_and_shows_what_the_metrics_count() {
    let backend = Backend::polite();
    let proxy = Proxy::start(Driver::Completion, &[backend.address, unreachable()], |config| {
        config.loops.poller = None;
        config.monitoring.stats = Some("127.0.0.1:0".parse().expect("one"));
        config.groups[0].health.fall = 1;
    });
    let proxy = proxy.expect("some driver is available");
    for _ in 0..4 {
        assert_eq!(ask(&proxy, "/"), "HTTP/1.1 200 OK", "the other one is tried");
    }
    proxy.server().overview().backends[0].set_draining(true);
    let (head, page) = get(&proxy, "/status");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/html"), "{head}");
    assert!(page.contains("fetch(\"status.json\"") && !page.contains("http"), "all is in it");
    let (head, figures) = get(&proxy, "/status.json");
    assert!(head.contains("application/json"), "{head}");
    let figures: Value = serde_json::from_str(&figures).expect("JSON");
    assert_eq!(figures["requests"], 4);
    let [first, second] = [0, 1].map(|place| &figures["servers"][place]);
    assert_eq!(
        (&first["name"], &first["state"]),
        (&backend.address.to_string().into(), &"drain".into())
    );
    assert_eq!(
        (&first["answered"], &first["failed"], &first["active"]),
        (&4.into(), &0.into(), &0.into())
    );
    assert!(first["wait_us"].as_u64().is_some_and(|waited| waited > 0), "{first}");
    assert_eq!(
        (&second["state"], &second["failed"], &second["falls"]),
        (&"down".into(), &1.into(), &1.into())
    );
    assert_eq!(figures["faults"].as_object().map(serde_json::Map::len), Some(Fault::ALL.len()));
    let (_, metrics) = get(&proxy, "/metrics");
    assert!(metrics.contains("pollux_proxy_backend_up"), "{metrics}");
}
