//! Users of sites: what clients of both versions get with a password and without, and what backends get of it, also where the
//! check takes its time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use pollux_engine::{Counter, Driver, ListenAddress};
use pollux_http::Method;
use pollux_server::config::{LogFormat, LogTarget, ProxyConfig};
use pollux_server::stats;
use pollux_settings::Given;

use crate::http2_client::Client2;
use crate::sites::on_every_driver_with;
use crate::{Backend, Client, Proxy, field, ok};

/// The value of Authorization with this name and password.
fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", Base64::encode_string(format!("{name}:{password}").as_bytes()))
}

/// A folder with a file of users, anna with "geheim".
struct Staff(tempfile::TempDir);

impl Staff {
    fn new() -> Self {
        let quick = bcrypt::hash_with_salt("geheim", 8, *b"0123456789abcdef").expect("hashed");
        assert!(bcrypt::verify("geheim", &quick.to_string()).expect("sound"));
        Self::of(&format!("# staff\nanna:{quick}\n"))
    }

    fn of(lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("staff.users"), lines).expect("written");
        Self(folder)
    }

    fn section(&self, more: &str) -> String {
        let file = self.0.path().join("staff.users");
        format!("[[users]]\nname = \"staff\"\nfile = \"{}\"\n{more}\n", file.display())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A backend that says who asks it, as it got it.
fn telling() -> Backend {
    Backend::answering(|head, _| {
        let said = |name: &str| field(head, name).unwrap_or("none").to_owned();
        let forged = field(head, "X_Remote_User").map_or("", |_| " and forged");
        Some(ok("", &format!("{} {}{forged}", said("X-Remote-User"), said("Authorization"))))
    })
}

fn backend(backend: &Backend) -> String {
    format!("[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{}\"\n", backend.address)
}

/// What a client gets for this request, without its body; the connection stays.
fn asks(
    client: &mut Client,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> (String, String) {
    let len = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {len}\r\n\r\n{body}"
    ));
    let head = client.head();
    let len = field(&head, "Content-Length").map_or(0, |len| len.parse().expect("a number"));
    let body = client.bytes(len);
    (head, String::from_utf8(body).expect("text"))
}

fn verdicts(proxy: &Proxy, what: &str) -> u64 {
    let page = stats::metrics(proxy.server().overview());
    let start = format!("pollux_proxy_passwords_total{{verdict=\"{what}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{page}")).parse().expect("a number")
}

#[test]
fn who_has_a_password_is_served_and_all_others_get_401_of_both_versions() {
    let staff = Staff::new();
    let server = telling();
    let text = format!(
        "{}{}[[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [\n\
         {{ path = \"/\", backend = \"api\" }}, {{ path = \"/reply\", reply = 4 }},\n\
         {{ path = \"/echo\", echo = true }}, {{ path = \"/to\", redirect = \"302 /x\" }},\n\
         {{ path = \"/open\", backend = \"api\", users = \"none\" }} ]\n",
        staff.section("realm = \"the staff\"\npass_user = true"),
        backend(&server)
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let right = format!("Authorization: {}\r\n", basic("anna", "geheim"));
            let challenge = Some("Basic realm=\"the staff\", charset=\"UTF-8\"");
            let mut client = proxy.client();
            for (method, path, fields) in [
                ("GET", "/", String::new()),
                ("GET", "/reply", format!("Authorization: {}\r\n", basic("anna", "geheim!"))),
                ("GET", "/to", format!("Authorization: {}\r\n", basic("berta", "geheim"))),
                ("GET", "/echo", "Authorization: Bearer YW5uYTpnZWhlaW0=\r\n".to_owned()),
                ("GET", "/", "Authorization: Basic ?\r\n".to_owned()),
                ("GET", "/", format!("{right}{right}")),
            ] {
                // Without a body, behind which the connection would end.
                client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
                let head = client.head();
                assert!(
                    head.starts_with("HTTP/1.1 401 Unauthorized\r\n"),
                    "{driver} {path}: {head}"
                );
                assert_eq!(field(&head, "WWW-Authenticate"), challenge, "{driver} {path}");
                let len = field(&head, "Content-Length").expect("a length");
                client.bytes(len.parse().expect("a number"));
            }
            let forged = format!("{right}X-Remote-User: root\r\nX_Remote_User: root\r\n");
            for (method, path, body, expected) in [
                ("GET", "/", "", "anna none"),
                ("POST", "/", "abc", "anna none"),
                ("POST", "/echo", "a body", "a body"),
                ("GET", "/reply", "", "0123"),
                ("GET", "/", "", "anna none"),
            ] {
                let (head, body) = asks(&mut client, method, path, &forged, body);
                assert!(head.starts_with("HTTP/1.1 200 "), "{driver} {path}: {head}");
                assert_eq!(body.len(), expected.len(), "{driver} {path}: {body}");
                assert!(path == "/reply" || body == expected, "{driver} {path}: {body}");
            }
            // What a route without users passes on says nobody's name, and what its client sends to the backend stays.
            let (_, body) = asks(
                &mut client,
                "GET",
                "/open",
                "X-Remote-User: root\r\nAuthorization: A\r\n",
                "",
            );
            assert_eq!(body, "none A", "{driver}");
            let mut two = Client2::connect(proxy);
            let with =
                |two: &mut Client2, method: Method<'_>, path: &str, said: &str, ends: bool| {
                    let forged = [("x-remote-user", "root"), ("x_remote-user", "root")];
                    two.ask(method, path, &[("authorization", said), forged[0], forged[1]], ends)
                };
            for (path, said, status) in [
                ("/", basic("anna", "geheim"), "200"),
                ("/reply", basic("anna", "geheim"), "200"),
                ("/", basic("anna", "wrong"), "401"),
                ("/reply", String::new(), "401"),
            ] {
                let stream = with(&mut two, Method::Get, path, &said, true);
                let answer = two.answer(stream);
                assert_eq!(answer.status(), status, "{driver} {path}: {answer:?}");
                let head = answer.heads.last().expect("one");
                assert_eq!(
                    head.contains("www-authenticate: Basic realm="),
                    status == "401",
                    "{head}"
                );
                if path == "/" && status == "200" {
                    assert_eq!(answer.body, b"anna none", "{driver}");
                }
            }
            let said = verdicts(proxy, "right");
            assert_eq!(said, 1, "{driver}: once, for both connections");
            assert_eq!(verdicts(proxy, "wrong"), 3, "{driver}");
        },
    );
}

/// Settings of a proxy by this file, which says where it listens.
pub(crate) fn whole(text: &str, into: &mut ProxyConfig) {
    let read: ProxyConfig =
        Given::from_toml(text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"));
    let loops = into.loops.clone();
    let monitoring = into.monitoring.clone();
    *into = ProxyConfig { loops, monitoring, ..read };
}

#[test]
fn a_front_end_without_sites_says_nobodys_name_to_its_backend() {
    let staff = Staff::new();
    let server = telling();
    let text = format!(
        "{}{}[[frontend]]\nlisten = \"127.0.0.1:0\"\n\
         [[frontend]]\nlisten = \"127.0.0.1:0\"\nbackend = \"api\"\n\
         [[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [ {{ path = \"/\", backend = \"api\" }} ]\n",
        staff.section("pass_user = true"),
        backend(&server)
    );
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| whole(&text, config);
        let unused = "127.0.0.1:1".parse().expect("one");
        let Some(proxy) = Proxy::start(driver, &[unused], set) else { continue };
        let ListenAddress::Tcp(other) = proxy.server().addresses()[1] else { panic!("TCP") };
        let right = format!("Authorization: {}\r\n", basic("anna", "geheim"));
        let mut guarded = proxy.client();
        let mut open = Client::connect(other);
        for _ in 0..3 {
            assert_eq!(asks(&mut guarded, "GET", "/", &right, "").1, "anna none", "{driver}");
            assert_eq!(asks(&mut open, "GET", "/", "", "").1, "none none", "{driver}");
        }
    }
}

#[test]
fn a_stream_that_waited_through_an_order_for_maintenance_needs_a_password_all_the_same() {
    let staff = Staff::new();
    let large = staff.path().join("large.bin");
    std::fs::File::create(large).and_then(|file| file.set_len(64 << 20)).expect("made");
    let control = staff.path().join("control");
    let text = format!(
        "{}[[site]]\nhost = \"x\"\nusers = \"staff\"\nroute = [ {{ path = \"/\", reply = 4 }}, \
         {{ path = \"/large.bin\", dir = \"{}\", users = \"none\" }} ]\n",
        staff.section(""),
        staff.path().display()
    );
    let set = |config: &mut ProxyConfig| config.monitoring.control = Some(control.clone());
    on_every_driver_with(&text, set, |driver, proxy| {
        let order = |order: &str| {
            let mut socket = UnixStream::connect(&control).expect("connected");
            socket.write_all(format!("maintenance x {order}\nquit\n").as_bytes()).expect("sent");
            let mut said = String::new();
            socket.read_to_string(&mut said).expect("an answer");
            assert!(said.contains("site x: "), "{driver}: {said}");
        };
        let mut two = Client2::connect(proxy);
        let large = two.get("/large.bin");
        // All buffers between the two are full.
        let mut before = 0;
        let mut since = Instant::now();
        pollux_testing::wait_until("nothing more is taken", || {
            let sent = proxy.count_of_engine(Counter::BytesOut);
            if sent != before {
                (before, since) = (sent, Instant::now());
            }
            sent > 0 && since.elapsed() > Duration::from_millis(200)
        });
        order("on");
        let stream = two.get("/secret");
        proxy.await_that("it has come", |proxy| proxy.sum(|each| each.server.streams_open()) == 2);
        order("off");
        assert_eq!(two.answer(large).body.len(), 64 << 20, "{driver}");
        let answer = two.answer(stream);
        assert_eq!(answer.status(), "503", "{driver}: {answer:?}");
        assert_eq!(two.answer_to("/secret").status(), "401", "{driver}");
    });
}

#[test]
fn what_leads_to_https_names_nobody_in_the_log() {
    let staff = Staff::new();
    let path = staff.path().join("log");
    let text = format!(
        "{}[[frontend]]\nlisten = \"127.0.0.1:0\"\nredirect = \"https\"\n\
         [[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [ {{ path = \"/\", reply = 4 }} ]\n",
        staff.section("")
    );
    for driver in Driver::ALL {
        std::fs::write(&path, "").expect("emptied");
        let set = |config: &mut ProxyConfig| {
            whole(&text, config);
            config.monitoring.access_log = Some(LogTarget::File(path.clone()));
            config.monitoring.access_log_format = LogFormat::Common;
        };
        let unused = "127.0.0.1:1".parse().expect("one");
        let Some(proxy) = Proxy::start(driver, &[unused], set) else { continue };
        let right = format!("Authorization: {}\r\n", basic("admin", "x"));
        let (head, _) = asks(&mut proxy.client(), "GET", "/", &right, "");
        assert!(head.starts_with("HTTP/1.1 301 "), "{driver}: {head}");
        let lines = || std::fs::read_to_string(&path).expect("read");
        pollux_testing::wait_until("its line is there", || lines().lines().count() == 1);
        assert!(lines().starts_with("127.0.0.1 - - ["), "{driver}: {}", lines());
    }
}

#[test]
fn requests_whose_check_is_under_way_keep_their_order_and_their_bodies() {
    let (staff, server) = (
        Staff::new(),
        Backend::answering(|head, client| {
            let len = field(head, "Content-Length").map_or(0, |len| len.parse().expect("a number"));
            let body = client.bytes(len);
            Some(ok(
                "",
                &format!(
                    "{} {}",
                    &head[..head.find(" HTTP").unwrap_or(0)],
                    String::from_utf8_lossy(&body)
                ),
            ))
        }),
    );
    let text = format!(
        "{}{}[[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [ {{ path = \"/\", backend = \"api\" }}, {{ path = \"/echo\", echo = true }} ]\n",
        staff.section(""),
        backend(&server)
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let said = basic("anna", "geheim");
            let mut client = proxy.client();
            let one = |method: &str, path: &str, body: &str| {
                let len = body.len();
                format!(
                    "{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {said}\r\nContent-Length: {len}\r\n\r\n{body}"
                )
            };
            client.send(
                [one("POST", "/1", "abc"), one("GET", "/2", ""), one("POST", "/echo", "xyz")]
                    .concat(),
            );
            for expected in ["POST /1 abc", "GET /2 ", "xyz"] {
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
                let len =
                    field(&head, "Content-Length").expect("a length").parse().expect("a number");
                assert_eq!(String::from_utf8_lossy(&client.bytes(len)), expected, "{driver}");
            }
            // Another password is looked at anew, with streams at once: the bodies come while that is so.
            let wrong = basic("anna", "other");
            let mut two = Client2::connect(proxy);
            let fields = [("authorization", said.as_str())];
            let streams = ["/1", "/2", "/echo"]
                .map(|path| (path, two.ask(Method::Post, path, &fields, false)));
            let refused = two.ask(Method::Post, "/3", &[("authorization", wrong.as_str())], false);
            for (_, stream) in streams {
                two.send(stream, b"a piece, ", false);
            }
            two.send(refused, b"not for anybody", true);
            for (_, stream) in streams {
                two.send(stream, b"and the rest", true);
            }
            for (path, stream) in streams {
                let answer = two.answer(stream);
                assert_eq!(answer.status(), "200", "{driver} {path}: {answer:?}");
                assert!(
                    answer.body.ends_with(b"a piece, and the rest") || path != "/echo",
                    "{driver} {path}: {answer:?}"
                );
            }
            assert_eq!(two.answer(refused).status(), "401", "{driver}");
        },
    );
}

#[test]
fn a_client_that_ends_its_side_in_the_check_of_its_password_gets_what_it_would_behind_it() {
    let staff = Staff::new();
    let server = telling();
    let text = format!(
        "body_timeout = \"2s\"\n{}{}[[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [ {{ path = \"/\", backend = \"api\" }}, {{ path = \"/reply\", reply = 4 }} ]\n",
        staff.section(""),
        backend(&server)
    );
    // By a password that no check has seen.
    let said = basic("anna", "geheim");
    for (target, len, answers, expected) in [
        ("/", 0, "answer", "HTTP/1.1 200 "),
        ("/reply", 0, "answer", "HTTP/1.1 200 "),
        ("/", 5, "answer", ""),
        ("/reply", 5, "answer", ""),
        ("/", 0, "drop", ""),
    ] {
        let text = format!("half_close = \"{answers}\"\n{text}");
        on_every_driver_with(
            &text,
            |_| {},
            |driver, proxy| {
                let mut client = proxy.client();
                client.send(format!(
                    "POST {target} HTTP/1.1\r\nHost: a\r\nAuthorization: {said}\r\nContent-Length: {len}\r\n\r\n"
                ));
                client.end();
                while client.more() {}
                let answer = client.rest();
                assert!(
                    answer.starts_with(expected) && answer.is_empty() == expected.is_empty(),
                    "{driver} {target} {len} {answers}: {answer}"
                );
                assert_eq!(verdicts(proxy, "right"), 1, "{driver}");
            },
        );
    }
}

#[test]
fn wrong_passwords_are_too_many_after_ten_and_other_clients_are_served() {
    let staff = Staff::new();
    let text = format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n{}[[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/in\", reply = 4, users = \"staff\" }}, {{ path = \"/\", reply = 5 }} ]\n",
        staff.section("")
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            let mut ask = |from: &str, password: &str| {
                let said = basic("anna", password);
                client.send(format!("GET /in HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {from}\r\nAuthorization: {said}\r\n\r\n"));
                let head = client.head();
                let len = field(&head, "Content-Length").expect("a length");
                client.bytes(len.parse().expect("a number"));
                (head[9..12].to_owned(), field(&head, "Retry-After").map(str::to_owned))
            };
            for number in 0..10 {
                assert_eq!(
                    ask("192.0.2.1", &format!("wrong {number}")).0,
                    "401",
                    "{driver} {number}"
                );
            }
            let mut is_over = false;
            // The machine may take its time with ten checks, in which one more is forgiven.
            for number in 10..20 {
                let (status, wait) = ask("192.0.2.1", &format!("wrong {number}"));
                if status == "429" {
                    let wait: u64 = wait.expect("a time").parse().expect("a number");
                    assert!((1..=6).contains(&wait), "{driver}: {wait}");
                    is_over = true;
                    break;
                }
            }
            assert!(is_over, "{driver}");
            assert!(verdicts(proxy, "throttled") > 0, "{driver}");
            assert_eq!(ask("192.0.2.2", "geheim").0, "200", "{driver}");
            // What is known to be right costs nobody a check.
            assert_eq!(ask("192.0.2.1", "geheim").0, "200", "{driver}");
            assert!(verdicts(proxy, "kept") > 0, "{driver}");
        },
    );
}

#[test]
fn the_log_has_the_user_of_a_request_that_was_let_through() {
    let staff = Staff::new();
    let server = telling();
    let path = staff.path().join("log");
    let text = format!(
        "{}{}[[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [\n\
         {{ path = \"/\", backend = \"api\" }}, {{ path = \"/reply\", reply = 4 }}, {{ path = \"/open\", reply = 4, users = \"none\" }} ]\n",
        staff.section(""),
        backend(&server)
    );
    for format in [LogFormat::Common, LogFormat::Combined, LogFormat::Json] {
        let set = |config: &mut ProxyConfig| {
            config.monitoring.access_log = Some(LogTarget::File(path.clone()));
            config.monitoring.access_log_format = format;
        };
        on_every_driver_with(&text, set, |driver: Driver, proxy| {
            std::fs::write(&path, "").expect("emptied");
            let mut client = proxy.client();
            let right = format!("Authorization: {}\r\n", basic("anna", "geheim"));
            let wrong = format!("Authorization: {}\r\n", basic("anna", "wrong"));
            for (path, said) in
                [("/a", &right), ("/reply", &right), ("/open", &right), ("/wrong", &wrong)]
            {
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{said}\r\n"));
                let head = client.head();
                let len = field(&head, "Content-Length").expect("a length");
                client.bytes(len.parse().expect("a number"));
            }
            let lines = || std::fs::read_to_string(&path).expect("read");
            pollux_testing::wait_until("all lines are there", || lines().lines().count() == 4);
            for (line, has_user) in lines().lines().zip([true, true, false, false]) {
                let (with, without) = match format {
                    LogFormat::Json => ("\"user\":\"anna\"", "\"user\""),
                    _ => ("127.0.0.1 - anna [", "anna"),
                };
                assert_eq!(line.contains(with), has_user, "{driver}: {line}");
                assert_eq!(line.contains(without), has_user, "{driver}: {line}");
            }
        });
    }
}

/// One check of this takes a quarter of a second or more, in which all requests have come: so many wait then.
const SLOW: &str = "anna:$argon2id$v=19$m=65536,t=8,p=1$c2FsdHNhbHRzYWx0$RdescudvJCsgt3ub+b5dWRWJTmaaJObGRdescudvJCs\n";

#[test]
fn more_checks_than_may_wait_get_503_and_other_routes_are_served_meanwhile() {
    let staff = Staff::of(SLOW);
    let text = format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n{}[[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/in\", reply = 4, users = \"staff\" }}, {{ path = \"/\", reply = 5 }} ]\n",
        staff.section("")
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let mut two = Client2::connect(proxy);
            let mut streams = Vec::new();
            let full = || verdicts(proxy, "queue_full") > 0;
            for number in 0..95 {
                let (from, said) =
                    (format!("192.0.2.{number}"), basic("anna", &number.to_string()));
                let fields = [("authorization", said.as_str()), ("x-forwarded-for", from.as_str())];
                streams.push(two.ask(Method::Get, "/in", &fields, true));
            }
            let last = *streams.last().expect("some");
            let answer = two.answer(last);
            assert_eq!(answer.status(), "503", "{driver}: {answer:?}");
            assert!(
                answer.heads.last().expect("one").contains("retry-after: 5"),
                "{driver}: {answer:?}"
            );
            assert!(full(), "{driver}");
            // On the same connection and on another one.
            let free = two.get("/");
            assert_eq!(two.answer(free).status(), "200", "{driver}");
            let mut client = proxy.client();
            assert!(
                asks(&mut client, "GET", "/", "", "").0.starts_with("HTTP/1.1 200 "),
                "{driver}"
            );
            // What nobody waits for any more is not checked: then one that comes new has its turn at once.
            two.leave();
            pollux_testing::wait_until("the checks are abandoned", || {
                verdicts(proxy, "abandoned") >= 60
            });
        },
    );
}

/// Answers of another route, one at a time over this time; how long they took, in order.
pub(crate) fn paced(proxy: &Proxy, over: Duration) -> Vec<Duration> {
    let mut client = proxy.client();
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < over {
        let asked = Instant::now();
        let (head, _) = asks(&mut client, "GET", "/", "", "");
        times.push(asked.elapsed());
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    times.sort();
    times
}

/// `POLLUX_FLOOD_S=10` has it last so many seconds, with and without the flood in turns, and judges the times: run it with
/// `--nocapture` on a machine that does nothing else.
#[test]
fn a_flood_of_wrong_passwords_leaves_other_routes_alone() {
    let staff = Staff::new();
    let seconds: Option<f64> =
        std::env::var("POLLUX_FLOOD_S").ok().map(|text| text.parse().expect("seconds"));
    if seconds.is_some() {
        // As users have it: what is judged is what that costs.
        let anna = pollux_server::password_line("anna", "geheim").expect("made");
        std::fs::write(staff.path().join("staff.users"), anna).expect("written");
    }
    let text = format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n{}[[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/in\", reply = 4, users = \"staff\" }}, {{ path = \"/\", reply = 5 }} ]\n",
        staff.section("")
    );
    // 64 streams, as many as may wait; short and few where no times are judged: hashes cost a lot.
    let each = if seconds.is_some() { 16 } else { 2 };
    let turn = Duration::from_secs_f64(seconds.map_or(0.05, |seconds| seconds / 8.0));
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let is_flooding = AtomicBool::new(false);
            let is_over = AtomicBool::new(false);
            let flooded = AtomicU64::new(0);
            let mut times = [Vec::new(), Vec::new()];
            std::thread::scope(|scope| {
                let flood = |thread: u32| {
                    let is_flooding = &is_flooding;
                    let is_over = &is_over;
                    let flooded = &flooded;
                    scope.spawn(move || {
                        let mut two = Client2::connect(proxy);
                        let mut number = 0_u32;
                        while !is_over.load(SeqCst) {
                            if !is_flooding.load(SeqCst) {
                                std::thread::park();
                                continue;
                            }
                            // Each try from another address, of another /64.
                            let streams: Vec<u32> = (0..each)
                                .map(|_| {
                                    number += 1;
                                    let from = format!("2001:db8:{thread:x}:{number:x}::1");
                                    let said = basic("anna", &format!("{thread} {number}"));
                                    let fields = [
                                        ("authorization", said.as_str()),
                                        ("x-forwarded-for", from.as_str()),
                                    ];
                                    two.ask(Method::Get, "/in", &fields, true)
                                })
                                .collect();
                            for stream in streams {
                                let answer = two.answer(stream);
                                assert!(["401", "503"].contains(&answer.status()), "{answer:?}");
                                flooded.fetch_add(1, SeqCst);
                            }
                        }
                    })
                };
                let floods: Vec<_> = (0..4).map(flood).collect();
                let wake = || floods.iter().for_each(|flood| flood.thread().unpark());
                for round in 0..8 {
                    is_flooding.store(round % 2 == 1, SeqCst);
                    wake();
                    times[round % 2].extend(paced(proxy, turn));
                }
                is_over.store(true, SeqCst);
                wake();
            });
            let [without, with] = times.map(|mut times| {
                times.sort();
                times[times.len() * 99 / 100]
            });
            let flooded = flooded.into_inner();
            let said = format!("p99 {without:?} without, {with:?} with a flood of {flooded}");
            writeln!(std::io::stderr(), "{driver}: {said}").expect("it is open");
            assert!(flooded > 0 && verdicts(proxy, "right") == 0, "{driver}");
            if seconds.is_some() {
                assert!(
                    with <= 2 * without,
                    "{driver}: {without:?} without, {with:?} with the flood"
                );
            }
        },
    );
}
