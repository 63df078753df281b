//! A whole file, as a person writes one who comes from nginx: it runs, its routes answer, and each of ten mistakes in it is named with
//! its place and what would be right.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use pollux_testing::{DEADLINE, Process, addresses};
use pollux_tls::{HTTP_1_1, Trust, server_name, without_resumption};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

use crate::stage::Server;

const FILE: &str = r#"threads = 4
access_log = "access.log"
access_log_format = "json"
stats = "127.0.0.1:0"
control = "unix:control.sock"
request_id = "X-Request-Id"
trusted_proxies = ["10.0.0.0/8"]
include = ["sites/*.toml"]
[[frontend]]
listen = ["127.0.0.1:0"]
redirect = "https"
[[frontend]]
listen = ["127.0.0.2:0"]
certs = "certs"
[[limit]]
name = "login"
rate = "5/m"
burst = 10
[[users]]
name = "staff"
file = "staff.users"

[[backend]]
name = "api"
balance = "least"
sticky = "cookie"
health_check = "tcp"
[[backend.server]]
address = "localhost:${API_PORT:-9000}"
resolve = "30s"
max_connections = 200

[[backend]]
name = "chat"
[[backend.server]]
address = "127.0.0.1:${API_PORT:-9000}"

[[site]]
host = ["www.example.org", "example.org"]
canonical = true
response_field = ["set Strict-Transport-Security: max-age=31536000", "/assets/ 2xx set Cache-Control: max-age=86400"]
error_page = ["502 sorry.html", "503 sorry.html"]
route = [
  { path = "/", dir = "www", compress = true },
  { path = "/api/", backend = "api", strip = "/api", max_body = "20MiB" },
  { path = "/api/login", method = ["POST"], backend = "api", strip = "/api", limit = ["login"] },
  { path = "/ws/", backend = "chat", tunnel_timeout = "2h" },
  { path = "/blog/", redirect = "301 https://blog.example.org/{rest}" },
]
"#;
const ADMIN: &str = r#"[[site]]
host = ["admin.example.org"]
allow = ["192.0.2.0/24", "2001:db8::/48", "127.0.0.1"]
users = "staff"
[[site.route]]
path = "/"
backend = "api"
add = "/admin"
"#;

/// A folder with all that the file names; this is in front of its certificates.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    let hosts = ["www.example.org", "*.example.org", "example.org"];
    let hosts: Vec<String> = hosts.map(str::to_owned).into();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(hosts).expect("names");
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let cert = params.self_signed(&key).expect("signed");
    write("certs/www.pem", &cert.pem());
    write("certs/www.key", &key.serialize_pem());
    write("www/index.html", "the root");
    write("www/assets/a.css", "a {}");
    write("sorry.html", "sorry");
    write("p.toml", FILE);
    write("sites/admin.toml", ADMIN);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["serve", "password", "anna"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut made = command.spawn().expect("it runs");
    made.stdin.take().expect("a pipe").write_all(b"geheim\n").expect("taken");
    let made = made.wait_with_output().expect("it ends");
    write("staff.users", str::from_utf8(&made.stdout).expect("text"));
    folder
}

/// What `--check` says of the file with a part of it changed.
fn checked(folder: &Path, of: &str, from: &str, to: &str) -> (Option<i32>, String) {
    let text = fs::read_to_string(folder.join(of)).expect("a text");
    assert!(from.is_empty() || text.contains(from), "{from}");
    let changed = if from.is_empty() { format!("{text}{to}") } else { text.replacen(from, to, 1) };
    fs::write(folder.join(of), changed).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder).args(["serve", "--config", "p.toml", "--check"]);
    let ended = command.output().expect("it runs");
    fs::write(folder.join(of), text).expect("written");
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(said).expect("text"))
}

#[test]
fn each_of_the_mistakes_that_people_make_is_named_with_its_place_and_what_is_right() {
    let folder = folder();
    let (code, said) = checked(folder.path(), "p.toml", "", "");
    assert_eq!(code, Some(0), "{said}");
    let mut wrong = Vec::new();
    for (of, from, to, expected) in [
        (
            "sites/admin.toml",
            "\"admin.example.org\"",
            "\"www.example.org\"",
            "sites/admin.toml:2:8: host: \"www.example.org\" belongs to the site in p.toml:39 as well; expected each name once",
        ),
        (
            "p.toml",
            "dir = \"www\", compress = true",
            "max_body = 7",
            "p.toml:44:3: a route without an answer; expected one of dir, backend, redirect, reply, echo, maintenance",
        ),
        (
            "p.toml",
            "dir = \"www\"",
            "dir = \"www\", backend = \"api\"",
            "p.toml:44:23: dir: can't be combined with backend; expected one of them",
        ),
        (
            "p.toml",
            "\"/ws/\"",
            "\"/api/\"",
            "p.toml:47:12: path: \"/api/\" is never reached: line 45 has the same path; expected a method or header here",
        ),
        (
            "p.toml",
            "\"/api/\"",
            "\"/api\"",
            "warning: p.toml:45:12: path: \"/api\" is this path alone; \"/api/\" takes all below it",
        ),
        (
            "p.toml",
            "\"www.example.org\"",
            "\"https://www.example.org:443\"",
            "p.toml:39:9: host = \"https://www.example.org:443\": has a scheme and a port; expected a name such as www.example.org",
        ),
        (
            "p.toml",
            "backend = \"api\"",
            "backend = \"apo\"",
            "p.toml:45:31: backend: no [[backend]] is called \"apo\"; did you mean \"api\"?",
        ),
        (
            "p.toml",
            "\"www.example.org\", \"example.org\"",
            "\"www.example.org\", \"shop.example.net\"",
            "p.toml:39:28: host: no certificate in certs is for shop.example.net",
        ),
        (
            "sites/admin.toml",
            "\"192.0.2.0/24\"",
            "\"192.0.2.17/24\"",
            "has bits behind its prefix; expected 192.0.2.0/24, or 192.0.2.17/32 for one address",
        ),
        (
            "staff.users",
            "$argon2id$",
            "$apr1$",
            "staff.users:1: anna's password is hashed by MD5 ($apr1$), which is guessed too fast; expected argon2id or bcrypt",
        ),
        // And those beside them.
        (
            "p.toml",
            "\"5/m\"",
            "\"5\"",
            "p.toml:17:8: rate = \"5\": lacks its time; expected 5/s, 5/m or 5/h",
        ),
        (
            "p.toml",
            "strip = \"/api\"",
            "strip = \"/v1\"",
            "strip: \"/v1\" does not stand at the beginning of path \"/api/\"; expected /api",
        ),
        (
            "p.toml",
            "301 https://blog.example.org/{rest}",
            "301 /blog/{rest}",
            "redirect: leads to itself: GET /blog/x",
        ),
        ("p.toml", "${API_PORT:-9000}", "${POLLUX_TEST_UNSET}", "POLLUX_TEST_UNSET"),
        (
            "p.toml",
            "sticky = \"cookie\"",
            "sticky_same_site = \"none\"",
            "p.toml:26:20: sticky_same_site: applies only to cookies that lead clients back; expected sticky as well",
        ),
        (
            "p.toml",
            "address = \"127.0.0.1:${API_PORT:-9000}\"",
            "address = \"127.0.0.1:9000\"\nresolve = \"never\"",
            "p.toml:37:11: resolve: applies only to servers that are names of hosts; expected none",
        ),
    ] {
        let (code, said) = checked(folder.path(), of, from, to);
        let is_warning = expected.starts_with("warning");
        let is_right = code == Some(if is_warning { 0 } else { 2 }) && said.contains(expected);
        if !is_right {
            wrong.push(format!("{to}: {code:?}\n{said}\n{expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The answer to a request on a connection of its own, in TLS where a name is asked for.
fn ask(to: SocketAddr, name: Option<&str>, method: &str, host: &str, target: &str) -> String {
    ask_with(to, name, (method, host, target), "")
}

/// The same with more fields.
fn ask_with(
    to: SocketAddr,
    name: Option<&str>,
    (method, host, target): (&str, &str, &str),
    fields: &str,
) -> String {
    let mut socket = TcpStream::connect(to).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n{fields}\r\n"
    );
    let mut answer = String::new();
    let Some(name) = name else {
        socket.write_all(head.as_bytes()).expect("sent");
        socket.read_to_string(&mut answer).expect("an answer");
        return answer;
    };
    let config = Trust::AnyCertificate.config(Some(HTTP_1_1)).expect("a configuration");
    let config = without_resumption(&config);
    let connection = ClientConnection::new(config, server_name(name).expect("a name"));
    let mut stream = StreamOwned::new(connection.expect("a client"), socket);
    stream.write_all(head.as_bytes()).expect("sent");
    stream.read_to_string(&mut answer).expect("an answer with its end");
    answer
}

#[test]
fn the_whole_file_runs_and_its_routes_answer() {
    let folder = folder();
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["serve", "--config", "p.toml"]);
    command.env("API_PORT", backend.address.port().to_string()).stdin(Stdio::null());
    let mut process = Process::start(&mut command);
    let line = process.wait_for_stderr_line("pollux serve: http");
    let all = addresses(&line);
    let [plain, secure] = all[..] else { panic!("two addresses: {line}") };
    let www = Some("www.example.org");
    for (to, name, method, host, target, parts) in [
        (
            plain,
            None,
            "GET",
            "www.example.org",
            "/x?y",
            &["301", "Location: https://www.example.org/x?y"][..],
        ),
        (plain, None, "GET", "other.example", "/", &["421"]),
        (
            secure,
            www,
            "GET",
            "www.example.org",
            "/",
            &["200", "the root", "Strict-Transport-Security: "],
        ),
        (
            secure,
            www,
            "GET",
            "www.example.org",
            "/assets/a.css",
            &["200", "Cache-Control: max-age=86400"],
        ),
        (secure, www, "GET", "www.example.org", "/none", &["404", "Strict-Transport-Security: "]),
        (
            secure,
            www,
            "GET",
            "www.example.org",
            "/blog/a/b",
            &["301", "Location: https://blog.example.org/a/b"],
        ),
        (
            secure,
            www,
            "POST",
            "www.example.org",
            "/api/login",
            &["200", "Set-Cookie: pollux_api=", "; Path=/; HttpOnly; SameSite=Lax; Secure\r\n"],
        ),
        (
            secure,
            Some("example.org"),
            "GET",
            "example.org",
            "/a",
            &["301", "Location: https://www.example.org/a"],
        ),
        (
            secure,
            Some("admin.example.org"),
            "GET",
            "admin.example.org",
            "/",
            &["401", "WWW-Authenticate: Basic realm=\"staff\""],
        ),
    ] {
        let answer = ask(to, name, method, host, target);
        assert!(answer.starts_with(&format!("HTTP/1.1 {} ", parts[0])), "{host}{target}: {answer}");
        for part in &parts[1..] {
            assert!(answer.contains(part), "{host}{target} lacks {part}: {answer}");
        }
    }
    let admin = ("GET", "admin.example.org", "/x");
    for (password, code) in [("YW5uYTpnZWhlaW0=", "200"), ("YW5uYTpnZWhlaW0h", "401")] {
        let field = format!("Authorization: Basic {password}\r\n");
        let answer = ask_with(secure, Some("admin.example.org"), admin, &field);
        assert_eq!(&answer[9..12], code, "{answer}");
    }
    let codes: Vec<String> = (0..11)
        .map(|_| ask(secure, www, "POST", "www.example.org", "/api/login")[9..12].to_owned())
        .collect();
    assert_eq!(codes.last().map(String::as_str), Some("429"), "{codes:?}");
    let read = || fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    pollux_testing::wait_until("all lines", || read().lines().count() >= 22);
    let log = read();
    assert!(log.contains("\"route\":\"/api/login (POST)\""), "{log}");
    let of_anna = log.lines().find(|line| line.contains("\"user\":\"anna\"")).expect("a line");
    let id = of_anna.split_once("\"request_id\":\"").map(|(_, rest)| &rest[..32]);
    assert!(id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())), "{of_anna}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["serve", "explain", "--config", "p.toml"]);
    command.args(["GET https://admin.example.org/", "--from", "198.51.100.1"]);
    let said = command.output().expect("it runs").stdout;
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("denies 198.51.100.1, which no allow names"), "{said}");
}
