//! The same sites as nginx, HAProxy and pollux have them (`examples/sites`): each is asked the same 200 requests, and answers are
//! alike in status, in the fields that matter, and, where a backend answers, in what that was asked and in its body.
//!
//! Pages of their own differ by intention: each program has its words for "not found", so their bodies and types are not compared.
//! What else differs stands in [`DIFFERENCES`], with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_testing::{DEADLINE, Process, addresses, has, skip, wait_until};

/// Requests of each pair.
const REQUESTS: usize = 200;
/// What stands in the files.
const LISTENS: &str = "127.0.0.1:8080";
const ONE: &str = "127.0.0.1:9001";
const TWO: &str = "127.0.0.1:9002";
/// Fields of answers that are compared, in small letters.
const FIELDS: [&str; 8] = [
    "location",
    "x-name",
    "x-asked",
    "x-served",
    "x-secret",
    "cache-control",
    "retry-after",
    "set-cookie",
];
const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];

struct Pair {
    name: &'static str,
    hosts: &'static [&'static str],
    targets: &'static [&'static str],
    /// Lines of heads, or nothing.
    lines: &'static [&'static str],
    /// Bodies, of POST alone.
    bodies: &'static [usize],
}

const ORG: &[&str] = &["www.example.org"];

const PAIRS: [Pair; 6] = [
    Pair {
        name: "hosts",
        hosts: &[
            "www.example.org",
            "WWW.Example.org",
            "example.org:8080",
            "a.example.net",
            "b.a.example.net:1",
            "example.net",
            "other.example",
            "xwww.example.org",
        ],
        targets: &["/", "/a", "/a/b?c=d&e", "/a%20b", "/index.html", "/?x", "/a.b~c_d-e"],
        lines: &["", "Cookie: a=1; b=2", "X-Forwarded-For: 192.0.2.7"],
        bodies: &[0, 5],
    },
    Pair {
        name: "paths",
        hosts: ORG,
        targets: &[
            "/",
            "/x",
            "/api",
            "/api/",
            "/api/x",
            "/api/x?y=1",
            "/apix",
            "/apix/y",
            "/feed.xml",
            "/feed.xml/",
            "/feed.xml?z",
            "/a.php",
            "/x/a.php?b=c",
            "/api/a.php",
            "/a.phpx",
            "/api?x",
            "/x/api/y",
            "/API/x",
        ],
        lines: &["", "Accept: text/html", "X-Forwarded-Proto: https"],
        bodies: &[0, 300],
    },
    Pair {
        name: "redirects",
        hosts: &["www.example.org", "example.org"],
        targets: &[
            "/",
            "/x?y=1",
            "/blog",
            "/blog/",
            "/blog/a/b",
            "/blog/a?b=c",
            "/blog?b",
            "/blogx",
            "/old",
            "/old/",
            "/old?x",
            "/new",
            "/x/blog/y",
        ],
        lines: &["", "Accept: */*"],
        bodies: &[0],
    },
    Pair {
        name: "conditions",
        hosts: ORG,
        targets: &[
            "/login",
            "/login?a",
            "/beta",
            "/q",
            "/q?v=2",
            "/q?v=1",
            "/q?v=22",
            "/q?a=1&v=2",
            "/q?v=2&v=1",
            "/q?w=2",
            "/beta/x",
        ],
        lines: &["", "X-Beta: 1", "X-Beta: 2", "x-beta: 1", "X-Betas: 1"],
        bodies: &[0, 5],
    },
    Pair {
        name: "access",
        hosts: ORG,
        targets: &[
            "/",
            "/x",
            "/admin/",
            "/admin/x",
            "/administrator",
            "/local/x",
            "/others/",
            "/others/x?y",
            "/upload/",
            "/upload/x",
            "/shop/",
            "/shop/x?y=1",
            "/shopx",
        ],
        lines: &["", "X-Forwarded-For: 192.0.2.7", "Accept: */*"],
        bodies: &[0, 1024, 2000],
    },
    Pair {
        name: "fields",
        hosts: &["www.example.org", "a.example:81"],
        targets: &["/", "/x?y", "/assets/a.css", "/assets/none", "/assetsx", "/none"],
        lines: &[
            "",
            "X-Debug: 1",
            "X-Env: test",
            "x-debug: 1",
            "X-Forwarded-For: 192.0.2.7",
            "Cookie: a=b",
        ],
        bodies: &[0, 5],
    },
];

/// What is not alike: a pair, a target, what nginx, HAProxy and pollux answer (a status, and which backend was asked), and why pollux
/// does as it does.
const DIFFERENCES: [(&str, &str, [&str; 3], &str); 6] = [
    ("paths", "/a%2Fb", ["200 one", "200 one", "400"], "a slash that is escaped has two readings"),
    (
        "paths",
        "/x/../api/y",
        ["200 two", "200 one", "200 two"],
        "a path is resolved before its route is looked for, and passed on as it was read",
    ),
    ("paths", "/%61pi/y", ["200 two", "200 one", "200 two"], "so are escapes of letters"),
    (
        "conditions",
        "/q?V=2",
        ["200 two", "200 one", "200 one"],
        "capital and small letters are two names in a query",
    ),
    (
        "access",
        "/admin",
        ["301", "200 one", "403"],
        "a folder is the folder without its slash as well, for those whom it keeps out too",
    ),
    ("access", "/%61dmin/", ["403", "200 one", "403"], "no spelling of a path passes by its route"),
];

/// Each says what it was asked; a path that ends in `none` is not there.
fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || while answer(&mut socket, name).is_some() {});
        }
    });
    address
}

fn answer(socket: &mut TcpStream, name: &str) -> Option<()> {
    let head = head_of(socket)?;
    let field = |name: &str| value(&head, name).unwrap_or("-").to_owned();
    let mut body = vec![0; field("content-length").parse().unwrap_or(0)];
    socket.read_exact(&mut body).ok()?;
    let line = head.lines().next()?.strip_suffix(" HTTP/1.1")?.to_owned();
    let fields =
        ["host", "x-forwarded-for", "x-forwarded-proto", "x-env", "x-debug", "x-beta", "cookie"];
    let fields = fields.map(field).join("|");
    let asked = format!("{line} {fields} {}", body.len());
    let path = line.split(' ').nth(1)?.split('?').next()?;
    let status = if path.ends_with("none") { "404 Not Found" } else { "200 OK" };
    let text = format!("{name} was asked {asked}");
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nX-Name: {name}\r\nX-Asked: {asked}\r\nX-Secret: 1\r\nX-Served: backend\r\n\
         Set-Cookie: s=1\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    if !line.starts_with("HEAD ") {
        answer += &text;
    }
    socket.write_all(answer.as_bytes()).ok()
}

/// A head, with its empty line; none at the end.
fn head_of(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn value<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// What is compared of an answer.
#[derive(PartialEq, Eq, Debug)]
struct Answer {
    status: String,
    fields: BTreeMap<&'static str, Vec<String>>,
    /// Of a backend.
    body: Option<String>,
}

impl Answer {
    fn summary(&self) -> String {
        match self.fields.get("x-name") {
            Some(name) => format!("{} {}", self.status, name.join(",")),
            None => self.status.clone(),
        }
    }
}

fn ask(to: SocketAddr, request: &str) -> Answer {
    let mut socket = TcpStream::connect(to).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    socket.write_all(request.as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap_or_else(|error| panic!("{request}: {error}"));
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{request}: {text}"));
    let all = |name: &str| {
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned()).collect::<Vec<String>>()
    };
    let mut fields: BTreeMap<_, _> =
        FIELDS.iter().map(|name| (*name, all(name))).filter(|(_, all)| !all.is_empty()).collect();
    let body = fields.contains_key("x-name").then(|| body.to_owned());
    // HAProxy's own refusals say so by themselves.
    if body.is_none() && fields.get("cache-control").is_some_and(|all| *all == ["no-cache"]) {
        fields.remove("cache-control");
    }
    Answer { status: head[9..12].to_owned(), fields, body }
}

fn request(method: &str, host: &str, target: &str, line: &str, body: usize) -> String {
    let line = if line.is_empty() { String::new() } else { format!("{line}\r\n") };
    let length = if body > 0 { format!("Content-Length: {body}\r\n") } else { String::new() };
    let body = "x".repeat(body);
    format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{line}{length}\r\n{body}"
    )
}

/// So many of all combinations, spread over them.
fn requests(pair: &Pair) -> Vec<String> {
    let mut all = Vec::new();
    for target in pair.targets {
        for host in pair.hosts {
            for method in METHODS {
                for line in pair.lines {
                    for body in pair.bodies {
                        if *body == 0 || method == "POST" {
                            all.push(request(method, host, target, line, *body));
                        }
                    }
                }
            }
        }
    }
    assert!(all.len() >= REQUESTS, "{}: {}", pair.name, all.len());
    (0..REQUESTS).map(|at| all[at * all.len() / REQUESTS].clone()).collect()
}

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound")
}

struct Programs {
    /// nginx, HAProxy and pollux.
    addresses: [SocketAddr; 3],
    _processes: [Process; 3],
    _folder: tempfile::TempDir,
}

/// The three programs with the files of this pair.
fn started(pair: &str) -> Programs {
    let folder = tempfile::tempdir().expect("a folder");
    let files = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/sites").join(pair);
    let backends = [backend("one"), backend("two")].map(|address| address.to_string());
    let at = folder.path().to_str().expect("a plain name");
    let written = |name: &str, listens: &str| {
        let text = fs::read_to_string(files.join(name)).expect("a file of the pair");
        let text = text.replace(LISTENS, listens);
        let text = text.replace(ONE, &backends[0]).replace(TWO, &backends[1]);
        // Where the package has them only root may write.
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
            .concat();
        let text = text.replace("http {", &format!("http {{ access_log off; {temporary}"));
        fs::write(folder.path().join(name), text).expect("written");
    };
    let [nginx_at, haproxy_at] = [free(), free()];
    written("nginx.conf", &nginx_at.to_string());
    written("haproxy.cfg", &haproxy_at.to_string());
    written("pollux.toml", "127.0.0.1:0");
    if let Ok(page) = fs::read(files.join("sorry.html")) {
        fs::write(folder.path().join("sorry.html"), page).expect("written");
    }
    let start = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(Path::new(at)).args(words).stdin(Stdio::null());
        Process::start(&mut command)
    };
    let globals = format!("daemon off; master_process off; pid {at}/pid;");
    let nginx = start("nginx", &["-p", at, "-c", "nginx.conf", "-e", "stderr", "-g", &globals]);
    let haproxy = start("haproxy", &["-db", "-q", "-f", "haproxy.cfg"]);
    let mut pollux = start(env!("CARGO_BIN_EXE_pollux"), &["serve", "--config", "pollux.toml"]);
    let line = pollux.wait_for_stderr_line("pollux serve: http");
    for address in [nginx_at, haproxy_at] {
        wait_until(address, || TcpStream::connect(address).is_ok());
    }
    let addresses = [nginx_at, haproxy_at, addresses(&line)[0]];
    Programs { addresses, _processes: [nginx, haproxy, pollux], _folder: folder }
}

fn is_missing() -> bool {
    let missing = ["nginx", "haproxy"].into_iter().find(|program| !has(program));
    if let Some(program) = missing {
        skip(format_args!("{program} is not installed"));
    }
    missing.is_some()
}

#[test]
fn the_same_site_answers_alike_by_nginx_haproxy_and_pollux() {
    if is_missing() {
        return;
    }
    let mut unlike = Vec::new();
    for pair in &PAIRS {
        let programs = started(pair.name);
        let mut by_backend = 0;
        for request in requests(pair) {
            let [nginx, haproxy, pollux] = programs.addresses.map(|to| ask(to, &request));
            by_backend += usize::from(pollux.body.is_some());
            for (name, other) in [("nginx", nginx), ("HAProxy", haproxy)] {
                if other != pollux {
                    let name = format!("{}: {request}{name}: {other:?}", pair.name);
                    unlike.push(format!("{name}\npollux: {pollux:?}"));
                }
            }
        }
        assert!(by_backend > REQUESTS / 10, "{}: {by_backend} came to a backend", pair.name);
    }
    assert!(unlike.is_empty(), "{} are not alike:\n{}", unlike.len(), unlike.join("\n\n"));
}

#[test]
fn what_differs_is_what_is_meant_to() {
    if is_missing() {
        return;
    }
    for pair in ["paths", "conditions", "access"] {
        let programs = started(pair);
        for (_, target, expected, why) in DIFFERENCES.iter().filter(|row| row.0 == pair) {
            let request = request("GET", "www.example.org", target, "", 0);
            let said = programs.addresses.map(|to| ask(to, &request).summary());
            assert_eq!(said, *expected, "{pair} {target}: {why}");
        }
    }
}
