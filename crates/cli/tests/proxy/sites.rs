//! Sites by both commands: what `explain` and `--check` say, and settings that change under requests and an open tunnel.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use pollux_testing::{DEADLINE, Signal, wait_until};
use rustix::process::kill_process;

use crate::daemon::{tunnels, until};
use crate::stage::{Backend, Clients, Proxy, Server};

const FILE: &str = r#"
[[frontend]]
listen = "127.0.0.1:80"
redirect = "https"

[[frontend]]
listen = "127.0.0.1:443"
cert = "c.pem"
key = "k.pem"

[[backend]]
name = "api"
[[backend.server]]
address = "10.0.0.1:9000"

[[site]]
host = ["www.example.org", "example.org"]
canonical = true
route = [
  { path = "/", dir = "/srv/www", compress = true },
  { path = "/api/", backend = "api", strip = "/api" },
  { path = "/api/login", method = ["POST"], backend = "api", strip = "/api" },
  { path = "/blog/", redirect = "301 https://blog.example.org/{rest}" },
]
"#;

/// Exit code, standard output and standard error of `pollux serve explain` with this file.
fn explain(file: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("s.toml"), file).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["serve", "explain", "--config", "s.toml"]).args(words);
    ended(&mut command)
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let ended = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

/// As a user: a line of `pollux serve password`, the settings with it, and a request.
#[test]
fn a_line_that_was_made_for_a_user_is_taken_and_other_hashes_are_refused_by_their_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str, input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "password", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).expect("taken");
        drop(stdin);
        let ended = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("a text");
        (ended.status.code(), text(ended.stdout), text(ended.stderr))
    };
    let (code, line, wrong) = made("anna", "geheim\n");
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert!(line.starts_with("anna:$argon2id$v=19$m=19456,t=2,p=1$"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let (code, _, wrong) = made("an:na", "geheim\n");
    assert_eq!(code, Some(2), "{wrong}");
    assert!(wrong.contains("\"an:na\" has a colon, which ends a name; expected none"), "{wrong}");
    let file = "listen = \"127.0.0.1:0\"\n[[users]]\nname = \"staff\"\nfile = \"staff.users\"\n\
                [[site]]\nhost = \"*\"\nusers = \"staff\"\nroute = [ { path = \"/\", reply = 1 } ]\n";
    std::fs::write(folder.path().join("s.toml"), file).expect("written");
    let check = |users: &str| {
        std::fs::write(folder.path().join("staff.users"), users).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.current_dir(folder.path());
        ended(command.args(["serve", "--config", "s.toml", "--check"]))
    };
    let (code, said, wrong) = check(&line);
    assert_eq!(code, Some(0), "{wrong}");
    assert!(said.contains("  users staff\n"), "{said}");
    assert!(said.contains("users \"staff\": 1 name in staff.users\n"), "{said}");
    let (code, _, wrong) = check(&format!("{line}bert:$apr1$abc$def\n"));
    assert_ne!(code, Some(0));
    let why = "staff.users:2: bert's password is hashed by MD5 ($apr1$), which is guessed too fast; expected argon2id or \
               bcrypt: pollux serve password";
    assert!(wrong.contains(why), "{wrong}");
    let (_, said, _) = explain(file, &["http://a.example/"]);
    let expected = "users      staff: 401 without a name and password of staff.users\n";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn explain_says_which_route_answers_and_why_the_others_do_not() {
    let (code, said, wrong) = explain(FILE, &["GET https://www.example.org/api//%78?y=1"]);
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert_eq!(
        said,
        "request    GET https://www.example.org/api//%78?y=1\n\
         front end  127.0.0.1:443\n\
         cert       c.pem, whatever name is asked for\n\
         site       www.example.org example.org\n\
         path       /api//%78, read as /api/x\n\
         route      /api/login (POST): another path\n\
         route      /blog/: another path\n\
         route      /api/: takes it\n\
         route      /: not tried\n\
         answer     backend \"api\", without /api: asked for /x?y=1\n"
    );
    for (request, expected) in [
        ("https://www.example.org/api/login", "route      /api/login (POST): lacks method POST\n"),
        ("POST https://www.example.org/api/login", "asked for /login\n"),
        (
            "https://example.org/x",
            "answer     301 Moved Permanently, to https://www.example.org/x\n",
        ),
        (
            "http://example.org/x?y",
            "answer     301 Moved Permanently, to https://example.org/x?y\n",
        ),
        (
            "https://www.example.org/blog/a",
            "301 Moved Permanently, to https://blog.example.org/a\n",
        ),
        ("https://www.example.org/a", "answer     files below /srv/www: asked for /a\n"),
        ("https://other.example/", "421 Misdirected Request: no site has this host"),
        ("https://www.example.org/a%2fb", "answer     400 Bad Request: an escaped slash"),
        (
            "PURGE https://www.example.org/",
            "answer     501 Not Implemented: files below /srv/www, which does not take",
        ),
        (
            "POST https://www.example.org/",
            "answer     405 Method Not Allowed: files below /srv/www, which does not",
        ),
        (
            "TRACE https://www.example.org/api/",
            "answer     405 Method Not Allowed: backend \"api\"",
        ),
        (
            "PURGE https://www.example.org/api/",
            "answer     backend \"api\", without /api: asked for /\n",
        ),
    ] {
        let (code, said, wrong) = explain(FILE, &[request]);
        assert_eq!((code, wrong.as_str()), (Some(0), ""), "{request}");
        assert!(said.contains(expected), "{request}: {said}");
    }
    let (_, said, _) = explain("reply = 5", &["http://a/"]);
    assert!(
        said.contains("site       *, as there is no [[site]]\nanswer     a reply of 5 bytes\n"),
        "{said}"
    );
    let long = format!("http://www.example.org/{}", "a".repeat(2000));
    let (_, said, _) = explain(&format!("max_target = \"1KiB\"\n{FILE}"), &[&long]);
    assert!(said.contains("answer     414 URI Too Long"), "{said}");
    let plain = FILE.replace("cert = \"c.pem\"\nkey = \"k.pem\"", "");
    let (code, _, wrong) = explain(&plain, &["https://www.example.org/"]);
    assert!(
        code == Some(2) && wrong.contains("no front end speaks TLS, and none believes"),
        "{wrong}"
    );
    let header = FILE.replace("path = \"/blog/\",", "path = \"/blog/\", header = \"X-A: 1\",");
    let (_, said, _) = explain(&header, &["https://www.example.org/blog/", "-H", "X-A: 1"]);
    assert!(said.contains("route      /blog/ (header \"X-A: 1\"): takes it"), "{said}");
    let (_, said, _) = explain(&header, &["https://www.example.org/blog/"]);
    assert!(
        said.contains("route      /blog/ (header \"X-A: 1\"): lacks header \"X-A: 1\""),
        "{said}"
    );
}

#[test]
fn explain_answers_what_it_cannot_read_with_what_is_expected() {
    for (words, expected) in [
        (&["www.example.org"][..], "\"www.example.org\" is not a URI; expected a method"),
        (&["GET ftp://a/"], "ftp is neither http nor https; expected"),
        (&["http://a:x/"], "x is not a port; expected"),
        (&["http://a/", "-H", "X"], "\"X\" is not a field; expected \"NAME: VALUE\""),
    ] {
        let (code, said, wrong) = explain(FILE, words);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{words:?}");
        assert!(wrong.contains(expected), "{words:?}: {wrong}");
    }
    let (code, _, wrong) = explain("[[site]]\nhost = \"a b\"", &["http://a/"]);
    assert!(
        code == Some(2) && wrong.contains("s.toml:2:8: host = \"a b\": is not a name"),
        "{wrong}"
    );
}

#[test]
fn a_check_of_sites_names_their_routes_and_folders_that_are_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |text: &str| {
        std::fs::write(folder.path().join("s.toml"), text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.current_dir(folder.path()).args(["serve", "--config", "s.toml", "--check"]);
        ended(&mut command)
    };
    let text = "listen = \"127.0.0.1:0\"\n[[site]]\nhost = \"*\"\nroute = [\n\
                { path = \"/\", dir = \".\" },\n{ path = \"/old\", dir = \".\" },\n{ path = \"/a/*\", reply = 1 } ]\n";
    let (code, plan, wrong) = check(text);
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert!(
        plan.starts_with(
            "listen on 127.0.0.1:0: HTTP for the sites\n\
             site *\n  \
             /old  files below .\n  \
             /a/*  a reply of 1 bytes\n  \
             /     files below .\n"
        ),
        "{plan}"
    );
    let warning =
        "warning: s.toml:6:10: path: \"/old\" is this path alone; \"/old/\" takes all below it\n";
    assert!(plan.ends_with(warning), "{plan}");
    let (code, plan, wrong) = check(&text.replace("dir = \".\"", "dir = \"none\""));
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(wrong.contains("none"), "{wrong}");
}

/// The answer to a request of HTTP/1.1 on a connection of its own.
fn ask(address: SocketAddr, host: &str, target: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Sites of which the number is the length of a reply.
fn numbered(backend: SocketAddr, number: usize) -> String {
    format!(
        "[[backend]]\nname = \"echo\"\n[[backend.server]]\naddress = \"{backend}\"\n\
         [[site]]\nhost = \"a.example\"\nroute = [ {{ path = \"/\", reply = {number} }}, {{ path = \"/up/\", backend = \"echo\" }} ]\n\
         [[site]]\nhost = \"s{number}.example\"\nroute = [ {{ path = \"/\", reply = 1 }} ]\n"
    )
}

#[test]
fn sites_change_by_a_reload_and_no_request_fails() {
    const RELOADS: usize = 12;
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    let proxy = Proxy::start(&[], &numbered(backend.address, 100));
    let address = proxy.address;
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicU64::new(0));
    let ready = Arc::new(Barrier::new(4));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (is_over, asked, ready) =
                (Arc::clone(&is_over), Arc::clone(&asked), Arc::clone(&ready));
            std::thread::spawn(move || {
                ready.wait();
                while !is_over.load(SeqCst) {
                    let own = ask(address, "a.example", "/");
                    assert!(own.starts_with("HTTP/1.1 200 "), "{own}");
                    let body = own.split("\r\n\r\n").nth(1).expect("a body");
                    assert!((100..=100 + RELOADS).contains(&body.len()), "{own}");
                    let passed = ask(address, "a.example", "/up/x");
                    assert!(passed.starts_with("HTTP/1.1 200 "), "{passed}");
                    let unknown = ask(address, "none.example", "/");
                    assert!(unknown.starts_with("HTTP/1.1 421 "), "{unknown}");
                    asked.fetch_add(3, SeqCst);
                }
            })
        })
        .collect();
    ready.wait();
    for number in 101..=100 + RELOADS {
        proxy.write_settings(&[], &numbered(backend.address, number));
        let (is_right, said) = proxy.reload();
        assert!(is_right, "{said}");
        // What the worker before had accepted is its own to answer.
        let status = |site: usize| ask(address, &format!("s{site}.example"), "/")[9..12].to_owned();
        wait_until("the new site", || status(number) == "200");
        wait_until("the end of the one before", || status(number - 1) == "421");
    }
    // What is wrong changes nothing.
    proxy.write_settings(&[], "[[site]]\nhost = \"a.example\"\nroute = [ { path = \"/\" } ]\n");
    let (is_right, said) = proxy.reload();
    assert!(!is_right && said.contains("a route without an answer"), "{said}");
    let own = ask(address, &format!("s{}.example", 100 + RELOADS), "/");
    assert!(own.starts_with("HTTP/1.1 200 "), "{own}");
    is_over.store(true, SeqCst);
    clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    assert!(asked.load(SeqCst) > 0);
}

/// A number of the environment, or this one.
fn given(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |given| given.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

/// A WebSocket through the proxy, which comes back as it went.
struct Tunnel(TcpStream);

impl Tunnel {
    fn open(to: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(to).expect("connected");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        let head = "GET /ws/ HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        socket.write_all(head.as_bytes()).expect("sent");
        let head = until(&mut socket, b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
        Self(socket)
    }

    fn echo(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("taken");
        assert_eq!(until(&mut self.0, b"."), text.as_bytes());
    }
}

/// `POLLUX_SITES_RELOADS=500 POLLUX_PROXY_REQUESTS=50000 POLLUX_SITES_TUNNELS=50` does it as often.
#[test]
#[expect(clippy::print_stdout, reason = "figures where more reloads are asked for")]
fn tunnels_and_requests_outlive_sites_that_change_again_and_again() {
    let backend = Backend::start();
    let tunnels_to = tunnels();
    let reloads = given("POLLUX_SITES_RELOADS", 40);
    let requests_min = given("POLLUX_PROXY_REQUESTS", 4000);
    let tunnels_max = given("POLLUX_SITES_TUNNELS", 5);
    let opened_each = (reloads / tunnels_max).max(1);
    let sites = |number: u64| {
        let mut text = format!(
            "threads = 2\n[[backend]]\nname = \"app\"\n[[backend.server]]\naddress = \"{}\"\n\
             [[backend]]\nname = \"chat\"\n[[backend.server]]\naddress = \"{tunnels_to}\"\n\
             [[site]]\nhost = \"*\"\nroute = [ {{ path = \"/\", backend = \"app\" }}, {{ path = \"/ws/\", backend = \"chat\" }} ]\n",
            backend.address
        );
        for other in 0..1 + number % 7 {
            text += &format!(
                "[[site]]\nhost = \"s{number}-{other}.example\"\nroute = [ {{ path = \"/\", reply = 1 }} ]\n"
            );
        }
        text
    };
    let mut proxy = Proxy::start(&[], &sites(0));
    let worker = proxy.one_worker(&[]);
    let clients = Clients::start(proxy.address, 4);
    let mut all = vec![Tunnel::open(proxy.address)];
    let mut number = 0;
    while number < reloads || clients.right.load(SeqCst) < requests_min {
        number += 1;
        proxy.write_settings(&[], &sites(number));
        let (is_right, said) = proxy.reload();
        assert!(is_right, "{number}: {said}");
        if number % opened_each == 0 && (all.len() as u64) < tunnels_max {
            all.push(Tunnel::open(proxy.address));
        }
        let at = number as usize % all.len();
        all[at].echo(&format!("{number}."));
    }
    // They are in force once a reload says so, and no process was started for them.
    let asked = format!("s{number}-0.example");
    let own = ask(proxy.address, &asked, "/");
    assert!(own.starts_with("HTTP/1.1 200 "), "{own}");
    let before = ask(proxy.address, &format!("s{}-0.example", number - 1), "/");
    assert!(!before.starts_with("HTTP/1.1 200 "), "a backend has it: {before}");
    assert_eq!(proxy.workers(), [worker]);
    proxy.await_metric("pollux_proxy_reloads_in_place_total", "", number);
    proxy.await_metric("pollux_proxy_reloads_without_place_total", "", 0);
    let count = all.len();
    all.iter_mut().for_each(|tunnel| tunnel.echo("end."));
    let (right, failed) = clients.end();
    println!("{right} requests, {number} reloads, {count} tunnels: {} failed", failed.len());
    assert!(failed.is_empty(), "of {right}: {failed:?}");
    // What was counted of a route is counted on, and tunnels keep no settings.
    proxy.await_metric("pollux_route_answers_total", "site=\"*\",route=\"/\",code=\"2xx\"", right);
    proxy.await_metric("pollux_proxy_settings{", "", 2);
    drop(all);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields in the plainest form: literals without an index.
fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// The next frame of this type: its flags and payload.
fn next_frame(socket: &mut TcpStream, wanted: u8) -> (u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).expect("a frame");
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        socket.read_exact(&mut payload).expect("its payload");
        if head[3] == wanted {
            return (head[4], payload);
        }
    }
}

/// A WebSocket on a stream has left the settings that its route is of, in whose place those of today have none.
#[test]
fn a_tunnel_on_a_stream_outlives_its_route() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let backend = tunnels();
    let before = format!(
        "[[backend]]\nname = \"chat\"\n[[backend.server]]\naddress = \"{backend}\"\n\
         [[site]]\nhost = \"*\"\nroute = [ {{ path = \"/\", reply = 1, response_field = \"set A: a\" }}, \
         {{ path = \"/b\", reply = 2, response_field = \"set B: b\" }}, \
         {{ path = \"/ws/\", backend = \"chat\", max_body = 100, request_field = \"set C: c\" }} ]\n"
    );
    let after = format!(
        "[[backend]]\nname = \"chat\"\n[[backend.server]]\naddress = \"{backend}\"\n\
         [[site]]\nhost = \"*\"\nroute = [ {{ path = \"/\", reply = 1 }} ]\n"
    );
    let proxy = Proxy::start(&[], &before);
    let worker = proxy.one_worker(&[]);
    let mut socket = TcpStream::connect(proxy.address).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let asked = literals(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/ws/"),
        (":authority", "a.example"),
        ("sec-websocket-version", "13"),
    ]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let sent = [&preface[..], &frame(SETTINGS, 0, 0, b"")].concat();
    socket.write_all(&sent).expect("sent");
    next_frame(&mut socket, SETTINGS);
    let mut sent = frame(SETTINGS, 1, 0, b"");
    sent.extend(frame(HEADERS, END_HEADERS, 1, &asked));
    sent.extend(frame(DATA, 0, 1, b"one."));
    socket.write_all(&sent).expect("sent");
    assert_eq!(next_frame(&mut socket, DATA).1, b"one.");
    proxy.write_settings(&[], &after);
    assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
    socket.write_all(&frame(DATA, 0, 1, b"two.")).expect("sent");
    assert_eq!(next_frame(&mut socket, DATA).1, b"two.");
    socket.write_all(&frame(DATA, END_STREAM, 1, b"")).expect("sent");
    let (flags, payload) = next_frame(&mut socket, DATA);
    assert!(payload.is_empty() && flags & END_STREAM != 0, "{flags} {payload:?}");
    assert_eq!(proxy.workers(), [worker]);
}

/// A request of HTTP/1.1 whose body is still to come.
struct Upload(TcpStream);

impl Upload {
    fn begin(to: SocketAddr, host: &str, target: &str) -> Self {
        let mut socket = TcpStream::connect(to).expect("connected");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).expect("sent");
        // It is decided on by then.
        let head = until(&mut socket, b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 100 "), "{}", head.escape_ascii());
        Self(socket)
    }

    /// The answer, with that to another request behind it.
    fn end(mut self, host: &str) -> String {
        let next = format!("okGET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        self.0.write_all(next.as_bytes()).expect("sent");
        let mut answers = String::new();
        self.0.read_to_string(&mut answers).expect("answers");
        answers
    }
}

#[test]
fn a_request_ends_by_the_settings_by_which_it_began_whatever_is_reloaded_meanwhile() {
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    let sites = |number: usize, more: &str| {
        format!(
            "access_log = \"log\"\naccess_log_format = \"json\"\n[[backend]]\nname = \"echo\"\n[[backend.server]]\naddress = \"{}\"\n\
             [[site]]\nhost = \"s{number}.example\"\nresponse_field = \"set X-Site: s{number}\"\n\
             route = [ {{ path = \"/\", reply = {number}, max_body = 2 }}, {{ path = \"/up/\", backend = \"echo\", strip = \"/up\" }}, \
             {{ path = \"/echo\", echo = true }} ]\n{more}",
            backend.address
        )
    };
    let proxy = Proxy::start(&[], &sites(100, ""));
    let worker = proxy.one_worker(&[]);
    let begun =
        ["/", "/up/x", "/echo"].map(|target| Upload::begin(proxy.address, "s100.example", target));
    proxy.write_settings(
        &[],
        &sites(200, "[[site]]\nhost = \"a.example\"\nroute = [ { path = \"/\", reply = 1 } ]\n"),
    );
    assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
    assert_eq!(proxy.workers(), [worker]);
    proxy.await_metric("pollux_proxy_settings{", "", 2);
    for (upload, ends) in begun.into_iter().zip(["pollux 0123456789", "ok", "ok"]) {
        let answers = upload.end("s200.example");
        let (first, second) = answers
            .split_once("HTTP/1.1 200 OK\r\n")
            .expect("two")
            .1
            .split_once("HTTP/1.1 ")
            .expect("two");
        assert!(first.contains("X-Site: s100\r\n") && first.contains(ends), "{answers}");
        assert!(second.starts_with("200 ") && second.contains("X-Site: s200\r\n"), "{answers}");
        assert!(second.contains("Content-Length: 200\r\n"), "{answers}");
    }
    // Their lines in the log name the site that they had.
    let lines = |site: &str| {
        let log = std::fs::read_to_string(proxy.file("log")).expect("a log");
        let name = format!("\"site\":\"{site}\"");
        log.lines().filter(|line| line.contains(&name)).count()
    };
    wait_until("the lines of all", || (lines("s100.example"), lines("s200.example")) == (3, 3));
    proxy.await_metric("pollux_proxy_settings{", "", 1);
    assert!(ask(proxy.address, "s100.example", "/").starts_with("HTTP/1.1 421 "));
}

#[test]
fn a_reload_goes_by_another_worker_where_requests_keep_as_many_settings_as_there_may_be() {
    const KEPT: usize = 7;
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    let mut proxy = Proxy::start(&[], &numbered(backend.address, 100));
    let first = proxy.one_worker(&[]);
    let mut begun = vec![Upload::begin(proxy.address, "s100.example", "/")];
    for number in 101..=100 + KEPT {
        proxy.write_settings(&[], &numbered(backend.address, number));
        let (is_right, said) = proxy.reload();
        assert!(is_right, "{said}");
        begun.push(Upload::begin(proxy.address, &format!("s{number}.example"), "/"));
    }
    assert_eq!(proxy.workers(), [first]);
    proxy.await_metric("pollux_proxy_settings{", "", KEPT as u64 + 1);
    proxy.write_settings(&[], &numbered(backend.address, 1));
    let (is_right, said) = proxy.reload();
    assert!(is_right, "{said}");
    proxy.wait_for_stderr_line("requests under way still go by 7 earlier settings");
    assert_eq!(proxy.workers().len(), 2, "the first one has what it had");
    proxy.await_metric("pollux_proxy_reloads_without_place_total", "", 1);
    for upload in begun {
        let answers = upload.end("a.example");
        assert!(answers.starts_with("HTTP/1.1 200 OK\r\n"), "{answers}");
    }
    proxy.one_worker(&[first]);
    assert!(ask(proxy.address, "s1.example", "/").starts_with("HTTP/1.1 200 "));
}

#[test]
fn clients_that_asked_too_often_stay_refused_by_a_reload_and_by_the_death_of_a_worker() {
    let settings = |rate: &str, len: usize| {
        format!(
            "[[limit]]\nname = \"few\"\nrate = \"{rate}\"\nburst = 2\n\
             [[site]]\nhost = \"a.example\"\nroute = [ {{ path = \"/\", reply = {len}, limit = \"few\" }} ]\n"
        )
    };
    let proxy = Proxy::start(&[], &settings("2/h", 1));
    let status = || ask(proxy.address, "a.example", "/")[9..12].to_owned();
    assert_eq!([status(), status(), status()], ["200", "200", "429"]);
    let first = proxy.workers();
    proxy.write_settings(&[], &settings("3/h", 2));
    let (is_right, said) = proxy.reload();
    assert!(is_right, "{said}");
    assert_eq!((proxy.workers(), status().as_str()), (first.clone(), "429"), "in place");
    proxy.write_settings(&[], &format!("threads = 2\n{}", settings("2/h", 2)));
    let (is_right, said) = proxy.reload();
    assert!(is_right, "{said}");
    let second = proxy.one_worker(&first);
    assert_eq!(status(), "429", "by the worker behind a reload");
    kill_process(second, Signal::KILL).expect("it runs");
    proxy.one_worker(&[second]);
    assert_eq!(status(), "429", "by the one behind one that was killed");
    // Another name is another table.
    proxy.write_settings(&[], &settings("2/h", 2).replace("few", "more"));
    let (is_right, said) = proxy.reload();
    assert!(is_right, "{said}");
    wait_until("the new limit", || status() == "200");
}

#[test]
fn either_command_serves_sites() {
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    for proxy in [
        Proxy::start(&[], &numbered(backend.address, 7)),
        Proxy::start_as_server(&[], &numbered(backend.address, 7)),
    ] {
        assert!(ask(proxy.address, "A.example:80", "/").ends_with("\r\n\r\npollux "));
        assert!(ask(proxy.address, "a.example", "/up/x").starts_with("HTTP/1.1 200 "));
        assert!(ask(proxy.address, "b.example", "/").starts_with("HTTP/1.1 421 "));
    }
}

#[test]
fn files_that_are_included_are_read_with_the_places_of_their_own_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("written");
    };
    std::fs::create_dir(folder.path().join("sites")).expect("made");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command
            .current_dir(folder.path())
            .args(["serve"])
            .args(words)
            .env("POLLUX_TEST_PORT", "9000");
        ended(&mut command)
    };
    let check = || run(&["--config", "s.toml", "--check"]);
    write(
        "s.toml",
        "include = [\"sites/*.toml\"]\nlisten = \"127.0.0.1:0\"\n\
         [[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"127.0.0.1:${POLLUX_TEST_PORT}\"\n",
    );
    let site = |host: &str, answer: &str| {
        format!("# one\n[[site]]\nhost = \"{host}\"\n[[site.route]]\npath = \"/\"\n{answer}\n")
    };
    write("sites/a.toml", &site("www.example.org", "backend = \"api\""));
    write("sites/b.toml", &site("${POLLUX_TEST_HOST:-b.example}", "reply = 2"));
    write("sites/.c.toml", "no settings");
    write("sites/c.toml.bak", "no settings");
    let (code, plan, wrong) = check();
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert!(
        plan.contains(
            "site www.example.org\n  /  backend \"api\"\nsite b.example\n  /  a reply of 2 bytes\n"
        ),
        "{plan}"
    );
    assert!(plan.contains("127.0.0.1:9000"), "{plan}");
    let (_, said, _) = run(&["explain", "--config", "s.toml", "http://b.example/"]);
    assert!(said.contains("answer     a reply of 2 bytes: asked for /\n"), "{said}");
    for (b, expected) in [
        (
            site("www.example.org", "reply = 2"),
            "sites/b.toml:3:8: host: \"www.example.org\" belongs to the site in sites/a.toml:3 as well; expected each name once",
        ),
        (
            site("b.example", "repyl = 2"),
            "sites/b.toml:6:1: unknown key \"repyl\" in [[site.route]]",
        ),
        (
            site("b.example", "backend = \"${POLLUX_TEST_NONE}\""),
            "sites/b.toml:6:11: backend = \"${POLLUX_TEST_NONE}\": POLLUX_TEST_NONE is not set in the environment",
        ),
        (
            "listen = \":80\"\n".to_owned(),
            "sites/b.toml:1:1: expected sections in double brackets alone",
        ),
        ("[[site]\n".to_owned(), "sites/b.toml:1:"),
    ] {
        write("sites/b.toml", &b);
        let (code, said, wrong) = check();
        assert_eq!((code, said.as_str()), (Some(2), ""), "{b}");
        assert!(wrong.contains(expected), "{b}: {wrong}");
    }
    write("s.toml", "include = \"none/*.toml\"\nlisten = \"127.0.0.1:0\"\n");
    let (code, _, wrong) = check();
    assert!(
        code == Some(2) && wrong.contains("s.toml:1:11: include = \"none/*.toml\": No such file"),
        "{wrong}"
    );
}

#[test]
fn explain_says_who_may_ask_and_by_which_rule() {
    let file = FILE.replace(
        "canonical = true",
        "canonical = true\nallow = [\"192.0.2.0/24\"]\ndeny = [\"192.0.2.9\"]",
    );
    let file = format!("trusted_proxies = [\"10.0.0.1\"]\n{file}");
    for (words, expected) in [
        (&["--from", "192.0.2.1"][..], "access     takes 192.0.2.1, by allow 192.0.2.0/24\n"),
        (&["--from", "192.0.2.1"], "answer     files below /srv/www: asked for /\n"),
        (&["--from", "192.0.2.9"], "access     denies 192.0.2.9, by deny 192.0.2.9\n"),
        (&["--from", "192.0.2.9"], "answer     403 Forbidden\n"),
        (&["--from", "203.0.113.1"], "access     denies 203.0.113.1, which no allow names\n"),
        (&["--from", "10.0.0.1", "-H", "X-Forwarded-For: 192.0.2.1"], "takes 192.0.2.1, by"),
        (&[], "access     denies an address that is not known (--from says one)"),
    ] {
        let words = [&["https://www.example.org/"][..], words].concat();
        let (code, said, wrong) = explain(&file, &words);
        assert_eq!((code, wrong.as_str()), (Some(0), ""), "{words:?}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    let (_, said, _) = explain(FILE, &["https://www.example.org:9999/"]);
    assert!(said.contains("127.0.0.1:443, which does not listen at this port"), "{said}");
    let file = "[[frontend]]\nlisten = \":80\"\nbackend = \"a\"\n[[backend]]\nname = \"a\"\n[[backend.server]]\naddress = \"10.0.0.1:80\"\n";
    let (_, said, _) = explain(file, &["TRACE http://x/"]);
    assert!(said.contains("answer     405 Method Not Allowed: backend \"a\", which"), "{said}");
}

#[test]
fn an_order_for_maintenance_outlives_reloads_and_workers_and_is_obeyed_by_repeated_requests() {
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    let proxy = Proxy::start(&[], &numbered(backend.address, 7));
    let order = |host: &str, order: &str| {
        let control = format!("unix:{}", proxy.file("k.sock").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["proxy", "maintenance", host, order, "--control", &control]);
        let (code, _, said) = ended(&mut command);
        (code == Some(0), said)
    };
    let status = |target: &str| ask(proxy.address, "a.example", target)[9..12].to_owned();
    // Its head is kept by then.
    let mut socket = TcpStream::connect(proxy.address).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let mut again = || {
        socket.write_all(b"GET /up/x HTTP/1.1\r\nHost: a.example\r\n\r\n").expect("sent");
        let mut line = [0; 12];
        socket.read_exact(&mut line).expect("an answer");
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("a head");
            rest.push(byte[0]);
        }
        let head = String::from_utf8(rest).expect("a text").to_ascii_lowercase();
        let len = head.split("content-length: ").nth(1).expect("a length");
        let len = len.split("\r\n").next().expect("a line").parse().expect("a number");
        socket.read_exact(&mut vec![0; len]).expect("a body");
        String::from_utf8(line.to_vec()).expect("a text")
    };
    assert_eq!((again().as_str(), again().as_str()), ("HTTP/1.1 200", "HTTP/1.1 200"));
    let (is_done, said) = order("A.example", "on");
    assert!(is_done && said.contains("site a.example: maintenance"), "{said}");
    assert_eq!(again(), "HTTP/1.1 503");
    drop(socket);
    assert_eq!(
        ["/", "/up/x", "/none/..", "/.well-known/../up/x", "/.well-known/%2e./up/x"].map(status),
        ["503"; 5]
    );
    assert_eq!(status("/.well-known/x"), "200");
    assert!(ask(proxy.address, "s7.example", "/").starts_with("HTTP/1.1 200 "));
    proxy.write_settings(&[], &numbered(backend.address, 8));
    let (is_right, said) = proxy.reload();
    assert!(is_right, "{said}");
    wait_until("the new worker", || ask(proxy.address, "s8.example", "/")[9..12] == *"200");
    assert_eq!(status("/"), "503");
    let other = format!("threads = 2\n{}", numbered(backend.address, 8));
    let worker = proxy.one_worker(&[]);
    proxy.write_settings(&[], &other);
    let (is_right, said) = proxy.reload();
    assert!(is_right, "{said}");
    proxy.one_worker(&[worker]);
    assert_eq!(status("/"), "503", "by another worker");
    assert!(
        proxy
            .control("maintenance\nquit\n")
            .contains("site a.example: maintenance\nsite s8.example: ready")
    );
    let (is_done, said) = order("none.example", "on");
    assert!(!is_done && said.contains("no site has the host \"none.example\""), "{said}");
    let (is_done, said) = order("a.example", "off");
    assert!(is_done && said.contains("site a.example: ready"), "{said}");
    assert_eq!(status("/"), "200");
}
