//! Sites by both commands: what `explain` and `--check` say, and settings that change under requests and an open tunnel.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use pollux_testing::{DEADLINE, wait_until};

use crate::stage::{Proxy, Server};

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

#[test]
fn explain_says_which_route_answers_and_why_the_others_do_not() {
    let (code, said, wrong) = explain(FILE, &["GET https://www.example.org/api//%78?y=1"]);
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert_eq!(
        said,
        "request    GET https://www.example.org/api//%78?y=1\n\
         front end  127.0.0.1:443\n\
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
    let (address, is_over) = (proxy.address, Arc::new(AtomicBool::new(false)));
    let (asked, ready) = (Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(4)));
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
