//! What belongs to a connection: cookies, the certificate of a client, where it goes to, who asks.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::path::Path;

use crate::lists::{answering, recorder};
use crate::{Nginx, load};
use pollux_testing::has;

/// Lets clients in that show the cookie that it sets.
const ASKS_FOR_A_COOKIE: &str = "location / {
    add_header Set-Cookie \"seen=yes; Path=/\" always;
    if ($cookie_seen != yes) { return 401; } }";

#[test]
fn nginx_has_its_cookie_back_on_each_connection() {
    if !has("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("page"), "hello").expect("written");
    let nginx = Nginx::start_with(folder.path(), ASKS_FOR_A_COOKIE);
    let run = ["-c", "3", "-n", "300", "-q", "--unix", &nginx.socket, "--json", "-"];
    // The first answer of each connection is what sets it, also where each request has a socket of its own.
    for (flags, right, wrong) in
        [(&["--cookies"][..], 297, 3), (&["--cookies", "--no-keepalive"], 297, 3), (&[], 0, 300)]
    {
        let said = load(&[&run[..], flags, &["http://localhost/page"]].concat());
        let json = said.json();
        assert_eq!(json["totals"]["right"], right, "{flags:?}: {said:?}");
        assert_eq!(json["errors"]["status"], wrong, "{flags:?}: {said:?}");
        let set = if flags.is_empty() { 0 } else { 300 };
        assert_eq!(json["totals"]["cookies_set"], set, "{flags:?}: {said:?}");
    }
}

#[test]
fn cookies_without_end_and_without_names_are_refused_and_counted() {
    let many: String = (0..60).map(|number| format!("Set-Cookie: n{number}=1\r\n")).collect();
    let odd = format!("Set-Cookie: =x\r\nset-cookie:\r\nSet-Cookie: long={}\r\n", "x".repeat(5000));
    let answer = format!("HTTP/1.1 200 OK\r\n{many}{odd}Content-Length: 2\r\n\r\nok");
    let (url, serving) = answering(1, answer.leak().as_bytes());
    let said = load(&["-c", "1", "-n", "3", "-q", "--cookies", "--json", "-", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let totals = &said.json()["totals"];
    // Ten and two of them in each answer; a field without anything sets nothing.
    assert_eq!((&totals["cookies_set"], &totals["cookies_refused"]), (&150.into(), &36.into()));
    let asked = serving.join().expect("it served");
    let sent = |request: &str| {
        let fields: Vec<_> = request
            .lines()
            .filter_map(|line| line.strip_prefix("Cookie: "))
            .map(str::to_owned)
            .collect();
        fields
    };
    assert!(sent(&asked[0][0]).is_empty());
    for request in &asked[0][1..] {
        let fields = sent(request);
        assert_eq!(fields.len(), 1, "one field: {request}");
        assert_eq!(fields[0].split("; ").count(), 50);
        assert!(fields[0].starts_with("n0=1; n1=1; "), "{request}");
    }
}

#[test]
fn a_cookie_field_of_its_own_and_cookies_that_are_kept_exclude_each_other() {
    let said = load(&["--cookies", "-H", "Cookie: a=1", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("--cookies: a request has a Cookie field of its own"), "{said:?}");
}

/// A certificate that signs itself, with its key, in files of this name.
fn certificate(folder: &Path, name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let path =
        |kind: &str| folder.join(format!("{name}.{kind}")).to_str().expect("plain").to_owned();
    std::fs::write(path("pem"), made.cert.pem()).expect("written");
    std::fs::write(path("key"), made.signing_key.serialize_pem()).expect("written");
    (path("pem"), path("key"))
}

#[test]
fn nginx_accepts_clients_with_a_known_certificate() {
    if !has("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (server, server_key) = certificate(folder.path(), "server");
    let (client, client_key) = certificate(folder.path(), "client");
    let (other, other_key) = certificate(folder.path(), "other");
    std::fs::write(folder.path().join("page"), "hello").expect("written");
    let name = folder.path().to_str().expect("plain");
    let nginx = Nginx::start_with(
        folder.path(),
        &format!(
            "listen unix:{name}/tls.sock ssl; ssl_certificate {server}; ssl_certificate_key {server_key};
             ssl_client_certificate {client}; ssl_verify_client on;"
        ),
    );
    let socket = format!("{name}/tls.sock");
    assert!(!nginx.socket.is_empty());
    let run = ["-c", "2", "-n", "100", "-q", "--insecure", "--json", "-", "--unix", &socket];
    // nginx answers 400 to a client that shows none, or one that it does not know.
    for (flags, right) in [
        (&["--cert", &client, "--key", &client_key][..], 100),
        (&["--cert", &other, "--key", &other_key], 0),
        (&[], 0),
    ] {
        let said = load(&[&run[..], flags, &["https://localhost/page"]].concat());
        let json = said.json();
        assert_eq!(json["totals"]["right"], right, "{flags:?}: {said:?}");
        assert_eq!(json["errors"]["status"], 100 - right, "{flags:?}: {said:?}");
    }
    for (flags, says) in [
        (
            &["--cert", &client, "--key", &other_key][..],
            "not the private key of the first certificate",
        ),
        (&["--cert", &client], "a certificate needs its key"),
        (&["--cert", &client_key, "--key", &client_key], "client.key: "),
    ] {
        let said = load(&[&run[..], flags, &["https://localhost/page"]].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(says), "{says}: {said:?}");
    }
    let said = load(&["--cert", &client, "--key", &client_key, "http://127.0.0.1:1/"]);
    assert!(
        said.code == Some(2) && said.stderr.contains("an http:// URL is not encrypted"),
        "{said:?}"
    );
}

/// An address for a server that can't be asked which port it was given: free a moment ago, and of an IP address
/// on which nothing else here listens.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.8.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

#[test]
fn another_address_than_the_urls_is_connected_to() {
    let (url, serving) = recorder(1);
    let address = url.strip_prefix("http://").expect("a URL");
    let said = load(&["-c", "1", "-n", "2", "-q", "--connect-to", address, "http://www.example/x"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for request in &serving.join().expect("it served")[0] {
        assert!(request.starts_with("GET /x HTTP/1.1\r\nHost: www.example\r\n"), "{request}");
    }
    let closed = "127.0.0.1:1";
    let said = load(&["-c", "1", "-n", "2", "-q", "--connect-to", closed, "http://www.example/x"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains(closed), "{said:?}");
    if !has("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("page"), "hello").expect("written");
    let address = free_address().to_string();
    let words = format!(
        "listen {address}; server_name www.example; if ($host != www.example) {{ return 404; }}"
    );
    let _nginx = Nginx::start_with(folder.path(), &words);
    for (host, right) in [("www.example", 50), ("other.example", 0)] {
        let url = format!("http://{host}/page");
        let said =
            load(&["-c", "1", "-n", "50", "-q", "--json", "-", "--connect-to", &address, &url]);
        assert_eq!(said.json()["totals"]["right"], right, "{said:?}");
    }
}

#[test]
fn a_server_that_hangs_up_on_clients_with_a_password_fails_each_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let misbehaving = std::thread::spawn(move || {
        for _ in 0..10 {
            let mut client = listener.accept().expect("a client").0;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("a request");
                head.push(byte[0]);
            }
            assert!(String::from_utf8_lossy(&head).contains("Authorization: Basic YTpi\r\n"));
            // The client may have gone.
            let _ = client.shutdown(Shutdown::Both);
        }
    });
    let said = load(&["-c", "1", "-n", "10", "-q", "--user", "a:b", "--json", "-", &url]);
    let errors = &said.json()["errors"];
    let count = |kind: &str| errors[kind].as_u64().expect("a count");
    assert_eq!(count("short") + count("reset"), 10, "{said:?}");
    assert_ne!(said.code, Some(0), "{said:?}");
    misbehaving.join().expect("it served");
}

#[test]
fn the_percentiles_that_were_asked_for_are_shown() {
    let asked = ["-q", "--percentiles", "50,99.99"];
    if has("nginx") {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("page"), "hello").expect("written");
        let nginx = Nginx::start(folder.path());
        let run = ["-c", "2", "-n", "400", "--unix", &nginx.socket, "http://localhost/page"];
        let said = load(&[&asked[..], &run].concat());
        let head = said.stdout.lines().find(|line| line.contains("p50")).expect("a head");
        assert!(head.contains("p99.99") && !head.contains("p75"), "{said:?}");
        let said = load(&[&asked[..], &["--json", "-"], &run].concat());
        let quantiles = said.json()["latency"]["quantiles"].as_array().expect("a list").clone();
        assert!(quantiles.iter().any(|one| one["quantile"] == 0.9999), "{quantiles:?}");
    }
    // Of a server that never answers whole there are none.
    let (url, serving) = answering(2, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    let run = ["-c", "2", "-n", "2", "--timeout", "300ms", &url];
    let said = load(&[&asked[..], &run].concat());
    let at = said.stdout.lines().position(|line| line.contains("p99.99")).expect("a head");
    let latency = said.stdout.lines().nth(at + 1).expect("a row");
    assert!(latency.starts_with("latency") && latency.contains("n/a"), "{said:?}");
    assert_ne!(said.code, Some(0));
    drop(serving);
}
