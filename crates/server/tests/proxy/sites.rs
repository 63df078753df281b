//! Sites: which route has a request, by both versions of HTTP, and what a backend gets of its path.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use pollux_engine::Driver;
use pollux_http::h2::Ask;
use pollux_http::{Field, Method};
use pollux_server::config::ProxyConfig;
use pollux_settings::Given;
use tempfile::TempDir;

use crate::http2_client::{Answer, Client2};
use crate::identity::Identity;
use crate::tunnels::echoing;
use crate::{Backend, Client, Proxy, ok};

/// The settings of a file with sites, at a free port.
pub(crate) fn settings(text: &str) -> ProxyConfig {
    let text = format!("listen = \"127.0.0.1:0\"\n{text}");
    Given::from_toml(&text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn on_every_driver(text: &str, test: impl Fn(Driver, &Proxy)) {
    on_every_driver_with(text, |_| {}, test);
}

/// Runs a test with a proxy by this file, and with what else is set.
pub(crate) fn on_every_driver_with(
    text: &str,
    more: impl Fn(&mut ProxyConfig),
    test: impl Fn(Driver, &Proxy),
) {
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            *config = ProxyConfig { loops, monitoring, ..settings(text) };
            more(config);
        };
        if let Some(proxy) = Proxy::start(driver, &["127.0.0.1:1".parse().expect("one")], set) {
            test(driver, &proxy);
        }
    }
}

/// A backend that answers with the first line of the request, and with what it is asked for of its fields.
fn telling() -> Backend {
    Backend::answering(|head, _| {
        let line = head.lines().next()?.to_owned();
        let said = |name: &str| crate::field(head, name).unwrap_or("none").to_owned();
        let fields = if line.contains("/login") {
            format!("Location: /home\r\nX-Prefix: {}\r\n", said("X-Forwarded-Prefix"))
        } else {
            format!("X-Prefix: {}\r\n", said("X-Forwarded-Prefix"))
        };
        Some(ok(&fields, &line))
    })
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("docs")).expect("made");
    std::fs::write(folder.path().join("index.html"), "the root").expect("written");
    std::fs::write(folder.path().join("docs/index.html"), "the docs").expect("written");
    std::fs::write(folder.path().join("large.bin"), vec![b'x'; 300_000]).expect("written");
    folder
}

fn file(folder: &TempDir, backend: &Backend) -> String {
    let dir = folder.path().display();
    let address = backend.address;
    format!(
        "[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{address}\"\n\
         [[site]]\nhost = [\"www.example.org\", \"example.org\"]\ncanonical = true\nroute = [\n\
         {{ path = \"/\", dir = \"{dir}\" }},\n\
         {{ path = \"/files/\", dir = \"{dir}\", strip = \"/files\" }},\n\
         {{ path = \"/api/\", backend = \"api\", strip = \"/api\" }},\n\
         {{ path = \"/api/v2/\", backend = \"api\", strip = \"/api/v2\", add = \"/two\" }},\n\
         {{ path = \"/api/login\", method = [\"POST\"], backend = \"api\", strip = \"/api\" }},\n\
         {{ path = \"/blog/\", redirect = \"301 https://blog.example.org/{{rest}}{{query}}\" }},\n\
         {{ path = \"/reply\", reply = 5 }},\n\
         {{ path = \"/beta\", header = [\"X-Beta: 1\"], reply = 6 }},\n\
         {{ path = \"/beta\", reply = 7 }},\n\
         {{ path = \"/echo\", echo = true }},\n\
         ]\n\
         [[site]]\nhost = \"*.example.net\"\n[[site.route]]\npath = \"*.php\"\nbackend = \"api\"\n"
    )
}

/// Host, method, target, fields, then status and what stands in the answer.
type Row = (&'static str, Method<'static>, &'static str, &'static str, u16, &'static str);

const ROWS: [Row; 28] = [
    ("www.example.org", Method::Get, "/", "", 200, "the root"),
    ("WWW.Example.org.:8080", Method::Get, "/docs/", "", 200, "the docs"),
    ("www.example.org", Method::Get, "/docs", "", 301, "location: /docs/"),
    ("www.example.org", Method::Get, "/files/docs", "", 301, "location: /files/docs/"),
    ("www.example.org", Method::Get, "/files?a", "", 301, "location: /files/?a\n"),
    ("a.example.net", Method::Get, "//y/x.php", "", 200, "GET /y/x.php HTTP/1.1"),
    ("www.example.org", Method::Get, "/files/docs/", "", 200, "the docs"),
    ("www.example.org", Method::Get, "/none", "", 404, "404"),
    ("www.example.org", Method::Post, "/", "", 405, "allow: GET, HEAD"),
    ("www.example.org", Method::Get, "/api", "", 200, "GET / HTTP/1.1"),
    ("www.example.org", Method::Get, "/api/x?y=1", "", 200, "GET /x?y=1 HTTP/1.1"),
    ("www.example.org", Method::Get, "/api/x%41/../%7e", "", 200, "GET /~ HTTP/1.1"),
    ("www.example.org", Method::Get, "/%61pi//x//y", "", 200, "GET /x//y HTTP/1.1"),
    ("www.example.org", Method::Get, "/api/x", "", 200, "x-prefix: /api"),
    ("www.example.org", Method::Get, "/api/v2/x", "", 200, "GET /two/x HTTP/1.1"),
    ("www.example.org", Method::Get, "/apix", "", 404, "404"),
    ("www.example.org", Method::Post, "/api/login", "", 200, "location: /api/home"),
    ("www.example.org", Method::Get, "/api/..%2fetc", "", 400, "more than one reading"),
    ("www.example.org", Method::Get, "/a//../b", "", 400, "more than one reading"),
    (
        "www.example.org",
        Method::Get,
        "/blog/a/b?c",
        "",
        301,
        "location: https://blog.example.org/a/b?c",
    ),
    ("www.example.org", Method::Get, "/reply", "", 200, "pollu"),
    ("www.example.org", Method::Get, "/beta", "X-Beta: 1", 200, "content-length: 6"),
    ("www.example.org", Method::Get, "/beta", "X-Beta: 2", 200, "content-length: 7"),
    ("example.org", Method::Get, "/api/x?y", "", 301, "location: http://www.example.org/api/x?y"),
    (
        "example.org:81",
        Method::Post,
        "/api/x",
        "",
        308,
        "location: http://www.example.org:81/api/x",
    ),
    ("a.example.net", Method::Get, "/x/y.php", "", 200, "GET /x/y.php HTTP/1.1"),
    ("a.example.net", Method::Get, "/x/y.html", "", 404, "404"),
    ("example.net", Method::Get, "/x/y.php", "", 421, "no site here has this host"),
];

fn by_one(proxy: &Proxy, row: &Row) -> String {
    let (host, method, target, fields, ..) = row;
    let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
    let mut client = proxy.client();
    client.send(format!(
        "{} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\nContent-Length: 0\r\n\r\n",
        method.name()
    ));
    lower_names(&client.rest())
}

/// An answer with the names of its fields in small letters.
fn lower_names(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let line = |line: &str| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    };
    let head: Vec<String> = head.lines().map(line).collect();
    format!("{}\n\n{body}", head.join("\n"))
}

fn ask_two(client: &mut Client2, row: &Row, ends: bool) -> u32 {
    let (host, method, target, said, ..) = row;
    let said = said.split_once(": ");
    let fields: Vec<Field<'_>> =
        said.into_iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
    let ask =
        Ask { method: *method, scheme: "http", authority: host, path: target, fields: &fields };
    let stream = client.says(|connection, out| connection.ask(out, &ask, ends, ()));
    let stream = stream.expect("a stream is free");
    client.answers.insert(stream, Answer::default());
    stream
}

fn shown(answer: &Answer) -> String {
    let head = answer.heads.last().cloned().unwrap_or_default().replace('|', "\n");
    format!("{head}\n\n{}", String::from_utf8_lossy(&answer.body))
}

#[test]
fn each_request_has_the_answer_of_its_route_by_both_versions() {
    let folder = folder();
    let backend = telling();
    on_every_driver(&file(&folder, &backend), |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for row in &ROWS {
            let (host, _, target, _, status, part) = row;
            let one = by_one(proxy, row);
            assert!(
                one.starts_with(&format!("HTTP/1.1 {status} ")),
                "{driver} {host} {target}: {one}"
            );
            assert!(one.contains(part), "{driver} {host} {target}: {one}");
            let stream = ask_two(&mut client, row, true);
            let two = shown(&client.answer(stream));
            assert!(two.starts_with(&status.to_string()), "{driver} {host} {target}: {two}");
            assert!(two.contains(part), "{driver} {host} {target}: {two}");
        }
        // All at once.
        let streams: BTreeMap<u32, &Row> =
            ROWS.iter().map(|row| (ask_two(&mut client, row, true), row)).collect();
        for (stream, (host, _, target, _, status, part)) in streams {
            let two = shown(&client.answer(stream));
            assert!(two.starts_with(&status.to_string()), "{driver} {host} {target}: {two}");
            assert!(two.contains(part), "{driver} {host} {target}: {two}");
        }
    });
}

#[test]
fn requests_of_one_segment_are_answered_in_their_order_whatever_answers_them() {
    let folder = folder();
    let backend = telling();
    let asked = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: www.example.org\r\n\r\n");
    let targets = [
        "/",
        "/api/a",
        "/reply",
        "/api/a",
        "/api/a",
        "/none",
        "/blog/x",
        "/large.bin",
        "/api/b",
        "/",
    ];
    let parts = [
        "the root", "GET /a ", "pollu", "GET /a ", "GET /a ", "404", "blog", "xxx", "GET /b ",
        "the root",
    ];
    on_every_driver(&file(&folder, &backend), |driver, proxy| {
        let all: String = targets.iter().map(|target| asked(target)).collect();
        for split in [all.len(), 1, 30, 71, 150] {
            let mut client = proxy.client();
            for piece in all.as_bytes().chunks(split) {
                client.send(piece);
            }
            for (target, part) in targets.iter().zip(parts) {
                let head = client.head();
                let len = crate::field(&head, "Content-Length").expect("a length");
                let body = client.bytes(len.parse().expect("a number"));
                let answer = format!("{head}{}", String::from_utf8_lossy(&body));
                assert!(answer.contains(part), "{driver} {split} {target}: {head}");
            }
        }
    });
}

#[test]
fn bodies_are_read_by_the_handler_of_the_route_and_have_its_limit() {
    let folder = folder();
    let backend = telling();
    let text = format!("max_body = \"100KiB\"\n{}", file(&folder, &backend));
    on_every_driver(&text, |driver, proxy| {
        let head = |target: &str, framing: &str| {
            format!("POST {target} HTTP/1.1\r\nHost: www.example.org\r\n{framing}\r\n\r\n")
        };
        let mut client = proxy.client();
        client.send(format!("{}hello", head("/echo", "Content-Length: 5")));
        assert!(client.head().contains("Content-Length: 5"), "{driver}");
        assert_eq!(client.bytes(5), b"hello", "{driver}");
        client.send(head("/echo", "Transfer-Encoding: chunked\r\nExpect: 100-continue"));
        assert!(client.head().starts_with("HTTP/1.1 100 "), "{driver}");
        client.send("3\r\nabc\r\n0\r\n\r\n");
        assert!(client.head().contains("chunked"), "{driver}");
        assert_eq!(client.until("0\r\n\r\n"), "3\r\nabc\r\n0\r\n\r\n", "{driver}");
        client.send(format!("{}hello", head("/reply", "Content-Length: 5")));
        assert!(client.head().contains("Content-Length: 5"), "{driver}");
        assert_eq!(client.bytes(5), b"pollu", "{driver}");
        // The next one of the connection is for a backend.
        client.send(format!("{}hello", head("/api/x", "Content-Length: 5")));
        let answer = client.head();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{driver}: {answer}");
        for (target, framing, status) in [
            ("/echo", "Content-Length: 200000", "413"),
            ("/docs/", "Content-Length: 5", "405"),
            ("/blog/", "Content-Length: 5", "301"),
            ("/nosuch/", "Transfer-Encoding: chunked", "405"),
        ] {
            let mut client = proxy.client();
            client.send(head(target, framing));
            let answer = client.head();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{driver} {target}: {answer}"
            );
        }
        let mut client = Client2::connect(proxy);
        for (target, body, status) in
            [("/echo", 70_000, "200"), ("/reply", 70_000, "200"), ("/echo", 200_000, "413")]
        {
            let row = ("www.example.org", Method::Post, target, "", 0, "");
            let stream = ask_two(&mut client, &row, false);
            client.send_some(stream, &vec![b'x'; body.min(60_000)], false);
            if status == "200" {
                client.send(stream, &vec![b'x'; body - 60_000], true);
            } else {
                let field = Field { name: "content-length", value: b"200000" };
                let ask = Ask {
                    method: Method::Post,
                    scheme: "http",
                    authority: "www.example.org",
                    path: target,
                    fields: &[field],
                };
                let refused = client.says(|connection, out| connection.ask(out, &ask, false, ()));
                let refused = refused.expect("a stream is free");
                client.answers.insert(refused, Answer::default());
                assert_eq!(client.answer(refused).status(), status, "{driver}");
                client.reset(stream, pollux_http::h2::ErrorCode::CANCEL);
                continue;
            }
            let answer = client.answer(stream);
            assert_eq!(answer.status(), status, "{driver} {target}");
            let expected = if target == "/echo" { body } else { 5 };
            assert_eq!(answer.body.len(), expected, "{driver} {target}");
        }
    });
}

#[test]
fn a_file_of_a_route_comes_whole_by_both_versions() {
    let folder = folder();
    let backend = telling();
    on_every_driver(&file(&folder, &backend), |driver, proxy| {
        let row = ("www.example.org", Method::Get, "/files/large.bin", "", 200, "");
        let one = by_one(proxy, &row);
        let body = one.split("\n\n").nth(1).expect("a body");
        assert_eq!(body.len(), 300_000, "{driver}");
        let mut client = Client2::connect(proxy);
        let streams: Vec<u32> = (0..4).map(|_| ask_two(&mut client, &row, true)).collect();
        for stream in streams {
            assert_eq!(client.answer(stream).body.len(), 300_000, "{driver}");
        }
    });
}

#[test]
fn sites_need_no_backend() {
    let text = "[[site]]\nhost = \"*\"\n[[site.route]]\npath = \"/\"\nreply = 3\n";
    on_every_driver(text, |driver, proxy| {
        let mut client: Client = proxy.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        let answer = client.rest();
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("pol"),
            "{driver}: {answer}"
        );
        let mut client = proxy.client();
        client
            .send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\nCONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
        let answers = client.rest();
        assert!(answers.starts_with("HTTP/1.1 204 "), "{driver}: {answers}");
        assert!(answers.contains("\r\n\r\nHTTP/1.1 405 "), "{driver}: {answers}");
    });
}

#[test]
fn a_front_end_leads_to_https_but_for_those_who_issue_certificates() {
    let text = "[[frontend]]\nlisten = \"127.0.0.1:0\"\nredirect = \"https\"\n\
                [[site]]\nhost = [\"www.example.org\", \"*\"]\n[[site.route]]\npath = \"/\"\nreply = 3\n";
    let config: ProxyConfig = Given::from_toml(text, "p").read().expect("right");
    for driver in Driver::ALL {
        let set = |into: &mut ProxyConfig| {
            let loops = into.loops.clone();
            let monitoring = into.monitoring.clone();
            *into = ProxyConfig { loops, monitoring, ..config.clone() };
        };
        let Some(proxy) = Proxy::start(driver, &["127.0.0.1:1".parse().expect("one")], set) else {
            continue;
        };
        for (host, method, target, status, part) in [
            (
                "www.example.org:80",
                Method::Get,
                "/a//b?c",
                301,
                "location: https://www.example.org/a//b?c\n",
            ),
            ("www.example.org", Method::Post, "/a", 308, "location: https://www.example.org/a\n"),
            ("www.example.org", Method::Get, "/.well-known/acme-challenge/x", 200, "pol"),
            ("other.example", Method::Get, "/", 301, "location: https://other.example/\n"),
            ("", Method::Get, "/evil.example/x", 421, "no site here has this host"),
        ] {
            let row = (host, method, target, "", status, part);
            let one = by_one(&proxy, &row);
            assert!(one.starts_with(&format!("HTTP/1.1 {status} ")), "{driver} {target}: {one}");
            assert!(one.contains(part), "{driver} {target}: {one}");
        }
    }
}

#[test]
fn a_route_may_take_longer_or_shorter_bodies_than_others_from_the_start_on() {
    let backend = Backend::answering(|head, client| {
        match crate::field(head, "Content-Length") {
            Some(len) => drop(client.bytes(len.parse().expect("a number"))),
            // All of it, or what there is of one that is cut.
            None => drop(client.until("\r\n0\r\n\r\n")),
        }
        Some(ok("", "taken"))
    });
    let text = format!(
        "max_body = \"20KiB\"\n[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{}\"\n\
         [[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/long/\", backend = \"api\", max_body = \"100KiB\" }},\n\
         {{ path = \"/usual/\", backend = \"api\" }},\n\
         {{ path = \"/short/\", backend = \"api\", max_body = 10 }},\n\
         {{ path = \"/own\", reply = 3, max_body = 10 }}, {{ path = \"/echo\", echo = true, max_body = \"50KiB\" }} ]",
        backend.address
    );
    let rows = [
        ("/long/", 100 * 1024, "200"),
        ("/long/", 100 * 1024 + 1, "413"),
        ("/usual/", 20 * 1024, "200"),
        ("/usual/", 20 * 1024 + 1, "413"),
        ("/short/", 10, "200"),
        ("/short/", 11, "413"),
        ("/own", 10, "200"),
        ("/own", 11, "413"),
        ("/echo", 50 * 1024, "200"),
        ("/echo", 50 * 1024 + 1, "413"),
    ];
    on_every_driver(&text, |driver, proxy| {
        for (path, len, status) in rows {
            let body = "x".repeat(len);
            let head =
                |framing: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            let before = backend.accepted();
            let mut client = proxy.client();
            client.send(head(&format!("Content-Length: {len}")));
            if status == "413" {
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 413 "), "{driver} {path} {len}: {head}");
                let page = client.rest();
                assert!(
                    page.contains("max_body") && page.ends_with("(RFC 9110 15.5.14)\n"),
                    "{driver}: {page}"
                );
                // No backend was asked for what is refused by its head.
                assert_eq!(backend.accepted(), before, "{driver}");
            } else {
                client.send(&body);
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 200 "), "{driver} {path} {len}: {head}");
            }
            // A body that does not say its length.
            let mut client = proxy.client();
            client.send(head("Transfer-Encoding: chunked"));
            client.try_send(format!("{len:x}\r\n{body}\r\n0\r\n\r\n"));
            let head = client.head();
            // An echo has begun by then, and is cut.
            if path != "/echo" || status == "200" {
                let line = format!("HTTP/1.1 {status} ");
                assert!(head.starts_with(&line), "{driver} {path} {len}: {head}");
            }
        }
        let mut client = Client2::connect(proxy);
        for (path, len, status) in rows.into_iter().filter(|row| row.0 != "/echo") {
            let row = ("a", Method::Post, path, "", 0, "");
            let stream = ask_two(&mut client, &row, false);
            let body = vec![b'x'; len];
            let mut sent = 0;
            // No further than to an answer that comes first.
            while sent < len && client.answers[&stream].heads.is_empty() {
                sent += client.send_some(stream, &body[sent..], true);
                if sent < len {
                    assert!(client.more(), "{driver} {path} {len}: the connection ended");
                }
            }
            let answer = client.answer(stream);
            assert_eq!(answer.status(), status, "{driver} {path} {len}");
        }
    });
}

#[test]
fn sites_in_tls_answer_by_both_versions_and_know_their_scheme() {
    let identity = Identity::make();
    let folder = folder();
    let backend = telling();
    let keys = identity.keys();
    let file = file(&folder, &backend);
    let text = format!("cert = {:?}\nkey = {:?}\n{file}", keys.cert, keys.key);
    on_every_driver(&text, |driver, proxy| {
        let mut stream = identity.connect_by(proxy.address, b"http/1.1");
        for (host, target, part) in [
            ("www.example.org", "/files/docs/", "the docs"),
            ("www.example.org", "/files/large.bin", "xxxx"),
            ("example.org", "/x", "https://www.example.org/x\r\n"),
            ("www.example.org", "/api/x", "GET /x HTTP/1.1"),
            ("other.example", "/", "no site here has this host"),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("sent");
            let head = crate::identity::head(&mut stream);
            let len = crate::field(&head, "Content-Length").expect("a length");
            let mut body = vec![0; len.parse().expect("a number")];
            stream.read_exact(&mut body).expect("a body");
            let answer = format!("{head}{}", String::from_utf8_lossy(&body));
            assert!(answer.contains(part), "{driver} {host} {target}: {head}");
        }
        let mut client = Client2::on(identity.connect_by(proxy.address, b"h2"), 1 << 20);
        let get = |client: &mut Client2<_>, target| {
            let ask = Ask {
                method: Method::Get,
                scheme: "https",
                authority: "www.example.org",
                path: target,
                fields: &[],
            };
            let stream = client.says(|connection, out| connection.ask(out, &ask, true, ()));
            let stream = stream.expect("a stream is free");
            client.answers.insert(stream, Answer::default());
            client.answer(stream)
        };
        assert_eq!(get(&mut client, "/files/large.bin").body.len(), 300_000, "{driver}");
        assert_eq!(get(&mut client, "/api/y").body, b"GET /y HTTP/1.1", "{driver}");
    });
}

#[test]
fn an_upgrade_goes_by_its_route() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        assert!(head.starts_with("GET /room?a HTTP/1.1\r\n"), "{head}");
        client.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        );
        let bytes = client.bytes(4);
        client.send(bytes);
    });
    let text = format!(
        "[[backend]]\nname = \"chat\"\n[[backend.server]]\naddress = \"{}\"\n[[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/\", reply = 1 }}, {{ path = \"/ws/\", backend = \"chat\", strip = \"/ws\" }} ]",
        backend.address
    );
    on_every_driver(&text, |driver, proxy| {
        let mut client = proxy.client();
        client.send(
            "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /ws/room?a HTTP/1.1\r\nHost: x\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        assert_eq!(client.bytes(1), b"p", "{driver}");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 101 "), "{driver}: {head}");
        client.send("ping");
        assert_eq!(client.rest(), "ping", "{driver}");
    });
}

#[test]
fn a_stream_becomes_a_websocket_by_the_route_of_a_backend_and_by_no_handler() {
    let backend = echoing();
    let text = format!(
        "[[backend]]\nname = \"chat\"\n[[backend.server]]\naddress = \"{}\"\n[[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/\", reply = 1 }}, {{ path = \"/echo\", echo = true }}, {{ path = \"/old\", redirect = \"302 /ws/\" }},\n\
         {{ path = \"/ws/\", backend = \"chat\", strip = \"/ws\" }} ]",
        backend.address
    );
    on_every_driver(&text, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for (path, status) in [("/", "501"), ("/echo", "501"), ("/old", "302")] {
            let stream = client.ask_for("websocket", path, &[]);
            client.until(|client| !client.answers[&stream].heads.is_empty());
            assert_eq!(client.answers[&stream].status(), status, "{driver} {path}");
        }
        let stream = client.ask_for("websocket", "/ws/room", &[]);
        client.until(|client| !client.answers[&stream].heads.is_empty());
        assert_eq!(client.answers[&stream].status(), "200", "{driver}");
        client.send(stream, b"ping", false);
        assert_eq!(client.bytes(stream, 4), b"ping", "{driver}");
        assert_eq!(client.answer_to("/").body, b"p", "{driver}");
    });
}

#[test]
fn all_spellings_of_a_path_go_to_the_same_server_where_that_is_chosen_by_path() {
    let named = |name: &'static str| Backend::answering(move |_, _| Some(ok("", name)));
    let backends = [named("a"), named("b"), named("c"), named("d")];
    let servers = backends
        .iter()
        .map(|backend| format!("[[backend.server]]\naddress = \"{}\"\n", backend.address));
    let servers: String = servers.collect();
    let text = format!(
        "[[backend]]\nname = \"all\"\nbalance = \"path\"\n{servers}[[site]]\nhost = \"*\"\n\
         route = [{{ path = \"/\", backend = \"all\" }}]"
    );
    on_every_driver(&text, |driver, proxy| {
        for number in 0..8 {
            let mut answers = Vec::new();
            for target in
                [format!("/p{number}"), format!("/%70{number}"), format!("/x/../p{number}")]
            {
                let mut client = proxy.client();
                client.ask(&target);
                client.head();
                answers.push(client.bytes(1));
            }
            assert!(
                answers.iter().all(|answer| *answer == answers[0]),
                "{driver} {number}: {answers:?}"
            );
        }
    });
}
