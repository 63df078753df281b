//! Sites that do not take everybody, add to fields, or are in maintenance: by the bytes that clients and backends get.

use pollux_http::Method;
use pollux_http::h2::Ask;
use pollux_server::ServerCounter;
use pollux_server::config::{LogFormat, LogTarget, ProxyConfig};

use crate::http2_client::{Answer, Client2};
use crate::passwords::whole;
use crate::sites::on_every_driver_with;
use crate::{Backend, Proxy, field, ok};

fn backend(address: std::net::SocketAddr) -> String {
    format!("[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{address}\"\n")
}

fn denied(proxy: &Proxy) -> u64 {
    proxy.sum(|each| each.server.value(ServerCounter::AccessDenied))
}

/// What a client of this address gets, as a PROXY head has it.
fn by_header(proxy: &Proxy, from: &str, request: &str) -> String {
    let mut client = proxy.client();
    let family = if from.contains(':') { "TCP6" } else { "TCP4" };
    let to = if from.contains(':') { "::1" } else { "127.0.0.1" };
    client.send(format!("PROXY {family} {from} {to} 1 80\r\n{request}"));
    client.rest()
}

#[test]
fn who_may_not_ask_gets_403_and_costs_no_backend_connection_and_no_100() {
    let server = Backend::answering(|_, _| Some(ok("", "in")));
    let text = format!(
        "accept_proxy = true\n{}[[site]]\nhost = \"*\"\nallow = [\"192.0.2.0/24\", \"2001:db8::/32\"]\ndeny = [\"192.0.2.128/25\"]\nroute = [\n\
         {{ path = \"/\", backend = \"api\" }}, {{ path = \"/reply\", reply = 2 }},\n\
         {{ path = \"/one/\", reply = 3, allow = [\"192.0.2.1\"] }} ]",
        backend(server.address)
    );
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            for (from, path, expected) in [
                ("192.0.2.1", "/", 200),
                ("192.0.2.1", "/reply", 200),
                ("192.0.2.1", "/one/", 200),
                ("192.0.2.2", "/one/", 403),
                ("2001:db8::7", "/", 200),
                ("2001:db8::7", "/one/", 403),
            ] {
                let answer = by_header(proxy, from, &get(path));
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {expected} ")),
                    "{driver} {from} {path}: {answer}"
                );
            }
            let before = denied(proxy);
            let accepted = server.accepted();
            let long = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n";
            let refused = [
                ("192.0.2.128", get("/")),
                ("192.0.2.200", get("/none")),
                ("203.0.113.1", get("/reply")),
                ("2001:db9::7", get("/")),
                // What it would be otherwise is nobody's business outside.
                ("203.0.113.1", get("/a%2fb")),
                (
                    "203.0.113.1",
                    "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
                ),
                (
                    "203.0.113.1",
                    "TRACE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
                ),
                ("203.0.113.1", long.to_owned()),
                (
                    "203.0.113.1",
                    long.replace("Content-Length: 1000000", "Transfer-Encoding: chunked"),
                ),
            ];
            for (from, request) in &refused {
                let answer = by_header(proxy, from, request);
                assert!(answer.starts_with("HTTP/1.1 403 "), "{driver} {from} {request}: {answer}");
                assert!(answer.ends_with("403 Forbidden\n"), "{driver} {from} {request}: {answer}");
            }
            assert_eq!(denied(proxy) - before, refused.len() as u64, "{driver}");
            assert_eq!(server.accepted(), accepted, "{driver}");
        },
    );
}

#[test]
fn a_trusted_proxy_says_who_asks_and_one_connection_may_carry_several() {
    let server = Backend::answering(|_, _| Some(ok("", "in")));
    let text = format!(
        "trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n{}[[site]]\nhost = \"*\"\nallow = \"192.0.2.0/24\"\n\
         [[site.route]]\npath = \"/\"\nbackend = \"api\"\n",
        backend(server.address)
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            let mut two = Client2::connect(proxy);
            for (said, status) in [
                ("192.0.2.1", "200"),
                ("192.0.2.1", "200"),
                ("203.0.113.1", "403"),
                ("192.0.2.1", "200"),
                ("192.0.2.1, 203.0.113.1", "403"),
                ("203.0.113.1, 192.0.2.1, 10.1.2.3", "200"),
                ("203.0.113.1, unknown", "403"),
                ("10.0.0.1", "403"),
            ] {
                client
                    .send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {said}\r\n\r\n"));
                let head = client.head();
                assert!(
                    head.starts_with(&format!("HTTP/1.1 {status} ")),
                    "{driver} {said}: {head}"
                );
                let len = field(&head, "Content-Length").expect("a length");
                client.bytes(len.parse().expect("a number"));
                let field = pollux_http::Field { name: "x-forwarded-for", value: said.as_bytes() };
                let ask = Ask {
                    method: Method::Get,
                    scheme: "http",
                    authority: "a",
                    path: "/",
                    fields: &[field],
                };
                let stream = two.says(|connection, out| connection.ask(out, &ask, true, ()));
                let stream = stream.expect("a stream is free");
                two.answers.insert(stream, Answer::default());
                assert_eq!(two.answer(stream).status(), status, "{driver} {said}");
            }
        },
    );
}

#[test]
fn a_route_may_cut_off_who_may_not_ask_and_the_log_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let text = "[[site]]\nhost = \"*\"\nroute = [{ path = \"/\", reply = 2 },\n\
                { path = \"/no/\", reply = 3, deny = [\"127.0.0.0/8\"], deny_with = \"close\" }]\n";
    let set = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
    };
    on_every_driver_with(text, set, |driver, proxy| {
        let before = denied(proxy);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /no/ HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answers = client.rest();
        assert!(
            answers.starts_with("HTTP/1.1 200 ") && answers.ends_with("\r\n\r\npo"),
            "{driver}: {answers}"
        );
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{driver}: {answers}");
        let mut client = Client2::connect(proxy);
        let stream = client.get("/no/");
        client.until(|client| client.answers[&stream].is_over());
        assert!(client.answers[&stream].heads.is_empty(), "{driver}");
        assert_eq!(client.answer_to("/").status(), "200", "{driver}");
        assert_eq!(denied(proxy) - before, 2, "{driver}");
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        proxy.await_that("its lines", |_| read().lines().count() >= 4);
        let cut = read().lines().filter(|line| line.contains(" client_not_allowed")).count();
        assert_eq!(cut, 2, "{driver}: {}", read());
        std::fs::write(&path, "").expect("emptied");
    });
}

#[test]
fn the_log_names_site_and_route_whatever_answers() {
    let server = Backend::answering(|_, _| Some(ok("", "in")));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let text = format!(
        "{}[[site]]\nhost = [\"a.example\", \"b.example\"]\nroute = [\n\
         {{ path = \"/api/\", backend = \"api\" }}, {{ path = \"/no/\", reply = 1, deny = \"0.0.0.0/0\" }},\n\
         {{ path = \"*.php\", redirect = \"302 /\" }} ]",
        backend(server.address)
    );
    let set = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
        config.monitoring.access_log_format = LogFormat::Json;
    };
    let rows = [
        ("b.example", "/api/x", "\"a.example\",\"route\":\"/api/\""),
        ("b.example", "/api/x", "\"a.example\",\"route\":\"/api/\""),
        ("A.Example", "/no/", "\"a.example\",\"route\":\"/no/\""),
        ("a.example", "/x.php", "\"a.example\",\"route\":\"*.php\""),
        ("a.example", "/none", "\"a.example\""),
        ("c.example", "/api/", ""),
    ];
    on_every_driver_with(&text, set, |driver, proxy| {
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let mut two = Client2::connect(proxy);
        for (host, target, _) in rows {
            let mut client = proxy.client();
            client.send(format!(
                "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            ));
            client.rest();
            let ask = Ask {
                method: Method::Get,
                scheme: "http",
                authority: host,
                path: target,
                fields: &[],
            };
            let stream = two.says(|connection, out| connection.ask(out, &ask, true, ()));
            let stream = stream.expect("a stream is free");
            two.answers.insert(stream, Answer::default());
            two.answer(stream);
        }
        proxy.await_that("its lines", |_| read().lines().count() >= 2 * rows.len());
        for (host, target, expected) in rows {
            let target = format!("\"target\":\"{target}\"");
            let said = |line: &str| match line.split_once("\"site\":") {
                Some((_, rest)) => rest.split(",\"backend\"").next().unwrap_or_default().to_owned(),
                None => String::new(),
            };
            let lines = read();
            let of: Vec<String> =
                lines.lines().filter(|line| line.contains(&target)).map(said).collect();
            let own = of.iter().filter(|said| *said == expected).count();
            assert!(own >= 2, "{driver} {host} {target}: {of:?}");
        }
        std::fs::write(&path, "").expect("emptied");
        let page = pollux_server::stats::metrics(proxy.server().overview());
        for (route, class, expected) in
            [("/api/", "2xx", 4), ("/no/", "4xx", 2), ("/no/", "2xx", 0), ("*.php", "3xx", 2)]
        {
            let label = format!("site=\"a.example\",route=\"{route}\",code=\"{class}\"");
            let of = page.lines().filter(|line| line.contains(&label));
            let sum: u64 = of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
            assert_eq!(sum, expected, "{driver} {label}");
        }
    });
}

/// The fields of an answer whose names begin with X-, and its body.
fn shown(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let own = head.lines().filter(|line| line.to_ascii_lowercase().starts_with("x-"));
    own.chain([body]).collect::<Vec<_>>().join("|")
}

#[test]
fn fields_and_pages_of_front_end_site_and_route_add_up_in_every_kind_of_answer() {
    let server = Backend::answering(|head, _| {
        let seen: Vec<&str> = head.lines().filter(|line| line.starts_with("X-R")).collect();
        Some(ok("X-Front: backend\r\n", &seen.join(",")))
    });
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let site = write("site.html", "site page");
    let route = write("route.html", "route page");
    write("index.html", "a file");
    let dir = folder.path().display();
    let text = format!(
        "response_field = [\"set X-Front: front\", \"set X-All: front\"]\nrequest_field = [\"set X-R1: front\"]\n{}\
         [[backend]]\nname = \"none\"\n[[backend.server]]\naddress = \"{}\"\n\
         [[site]]\nhost = \"*\"\nresponse_field = [\"set X-All: site\", \"4xx set X-Site: 4\"]\nrequest_field = [\"set X-R2: site\"]\n\
         error_page = [\"404 {site}\", \"503 {site}\"]\nroute = [\n\
         {{ path = \"/api/\", backend = \"api\" }},\n\
         {{ path = \"/more/\", backend = \"api\", response_field = [\"set X-All: route\"], request_field = [\"set X-R1: route\"] }},\n\
         {{ path = \"/gone/\", backend = \"none\", error_page = [\"503 {route}\"], response_field = [\"set X-All: route\"] }},\n\
         {{ path = \"/also-gone/\", backend = \"none\" }},\n\
         {{ path = \"/reply\", reply = 2, response_field = [\"add X-All: route\"] }},\n\
         {{ path = \"/echo\", echo = true, response_field = [\"set X-All: route\"] }},\n\
         {{ path = \"/files/\", dir = \"{dir}\", strip = \"/files\", error_page = [\"404 {route}\"] }},\n\
         {{ path = \"/led\", redirect = \"302 /x\", response_field = [\"set X-All: route\"] }} ]",
        backend(server.address),
        crate::unreachable()
    );
    let rows = [
        ("/api/", "X-Front: front|X-All: site|X-R1: front,X-R2: site"),
        ("/more/", "X-Front: front|X-All: route|X-R2: site,X-R1: route"),
        ("/gone/", "X-Front: front|X-All: route|route page"),
        ("/also-gone/", "X-Front: front|X-All: site|site page"),
        ("/reply", "X-Front: front|X-All: site|X-All: route|po"),
        ("/files/", "X-Front: front|X-All: site|a file"),
        ("/files/none", "X-Front: front|X-All: site|X-Site: 4|route page"),
        ("/none", "X-Front: front|X-All: site|X-Site: 4|site page"),
        ("/led", "X-Front: front|X-All: route|302 Found\n"),
    ];
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            // Twice, as the second may come of what is kept of the first.
            for (path, expected) in rows.into_iter().chain(rows) {
                let mut client = proxy.client();
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
                assert_eq!(shown(&client.rest()), expected, "{driver} {path}");
            }
            let mut client = proxy.client();
            client.send("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(shown(&client.rest()), "X-Front: front|X-All: route|hi", "{driver}");
            // A body that is too long by its head has the fields of its route as well.
            let mut client = proxy.client();
            client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
            let answer = client.rest();
            assert!(answer.starts_with("HTTP/1.1 413 "), "{driver}: {answer}");
            assert!(
                shown(&answer).starts_with("X-Front: front|X-Site: 4|X-All: route|"),
                "{driver}: {answer}"
            );
            let mut client = Client2::connect(proxy);
            for (path, expected) in rows {
                let answer = client.answer_to(path);
                let head = answer.heads.last().expect("a head").replace('|', "\r\n");
                let text = format!("{head}\r\n\r\n{}", String::from_utf8_lossy(&answer.body));
                assert_eq!(
                    shown(&text).to_ascii_lowercase(),
                    expected.to_ascii_lowercase(),
                    "{driver} {path}"
                );
            }
        },
    );
}

#[test]
fn a_route_in_maintenance_answers_503_with_its_page_whatever_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("sorry.html");
    std::fs::write(&page, "back soon").expect("written");
    let text = format!(
        "[[site]]\nhost = \"*\"\nroute = [{{ path = \"/\", maintenance = \"{}\" }}, {{ path = \"/.well-known/\", reply = 2 }}]",
        page.display()
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            for method in ["GET", "POST", "DELETE", "OPTIONS"] {
                let mut client = proxy.client();
                client.send(format!(
                    "{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
                ));
                let answer = client.rest();
                assert!(answer.starts_with("HTTP/1.1 503 "), "{driver} {method}: {answer}");
                assert!(answer.ends_with("\r\n\r\nback soon"), "{driver} {method}: {answer}");
                for (name, value) in [
                    ("Retry-After", "300"),
                    ("Cache-Control", "no-store"),
                    ("Content-Type", "text/html; charset=utf-8"),
                ] {
                    assert_eq!(field(&answer, name), Some(value), "{driver} {method}: {answer}");
                }
            }
            let mut client = Client2::connect(proxy);
            let answer = client.answer_to("/x");
            assert_eq!((answer.status(), &answer.body[..]), ("503", &b"back soon"[..]), "{driver}");
            assert_eq!(client.answer_to("/.well-known/x").body, b"po", "{driver}");
        },
    );
}

#[test]
fn clients_are_led_by_the_slash_before_a_backend_is_asked() {
    let server = Backend::answering(|head, _| Some(ok("", head.lines().next()?)));
    let text = format!(
        "{}[[site]]\nhost = \"*\"\nroute = [\n\
         {{ path = \"/add/\", backend = \"api\", slash = \"add\" }}, {{ path = \"/bare/\", backend = \"api\", slash = \"remove\" }} ]",
        backend(server.address)
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            for (method, path, expected) in [
                ("GET", "/add/x?y", "HTTP/1.1 301 Moved Permanently|/add/x/?y"),
                ("POST", "/add/x", "HTTP/1.1 308 Permanent Redirect|/add/x/"),
                ("GET", "/add/x/", "HTTP/1.1 200 OK|GET /add/x/ HTTP/1.1"),
                ("GET", "/add/a.css", "HTTP/1.1 200 OK|GET /add/a.css HTTP/1.1"),
                ("GET", "/bare/x/", "HTTP/1.1 301 Moved Permanently|/bare/x"),
                ("GET", "/bare/", "HTTP/1.1 301 Moved Permanently|/bare"),
                ("GET", "/bare", "HTTP/1.1 200 OK|GET /bare HTTP/1.1"),
                ("GET", "//bare//x//", "HTTP/1.1 301 Moved Permanently|/bare//x"),
            ] {
                let mut client = proxy.client();
                client.send(format!(
                    "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                ));
                let answer = client.rest();
                let line = answer.lines().next().unwrap_or_default();
                let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
                let said = field(&answer, "Location").unwrap_or(body);
                assert_eq!(format!("{line}|{said}"), expected, "{driver} {method} {path}");
            }
        },
    );
}

#[test]
fn a_location_at_the_host_that_was_asked_for_gets_its_prefix_back() {
    let server = Backend::answering(|head, _| {
        let host = field(head, "Host")?;
        Some(format!(
            "HTTP/1.1 302 Found\r\nLocation: https://{host}/login\r\nContent-Length: 0\r\n\r\n"
        ))
    });
    let text = format!(
        "{}[[site]]\nhost = \"*\"\nroute = [{{ path = \"/app/\", backend = \"api\", strip = \"/app\" }}, {{ path = \"/\", backend = \"api\" }}]",
        backend(server.address)
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            // One after the other, and the same again: what is kept of an answer is not for another host.
            for host in ["a.example", "a.example", "b.example:81", "a.example", "a.example"] {
                for (path, led) in
                    [("/app/x", "/app/login"), ("/app/x", "/app/login"), ("/x", "/login")]
                {
                    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                    let head = client.head();
                    let expected = format!("https://{host}{led}");
                    assert_eq!(
                        field(&head, "Location"),
                        Some(&*expected),
                        "{driver} {host} {path}"
                    );
                }
            }
        },
    );
}

#[test]
fn what_has_two_readings_is_refused_before_a_backend_sees_it() {
    let server = Backend::answering(|head, _| Some(ok("", head.lines().next()?)));
    let text = format!(
        "{}[[site]]\nhost = [\"[2001:db8:0::1]\", \"*\"]\nroute = [{{ path = \"/\", backend = \"api\" }}, {{ path = \"/admin/\", reply = 2 }}]\n\
         [[site]]\nhost = \"[::1]\"\nroute = [{{ path = \"/\", reply = 5 }}]",
        backend(server.address)
    );
    on_every_driver_with(
        &text,
        |_| {},
        |driver, proxy| {
            for (request, status, part) in [
                (
                    "GET /admin;a=1/x HTTP/1.1\r\nHost: a",
                    400,
                    "a ; in the path leads to another route",
                ),
                ("GET /x;a=1/y HTTP/1.1\r\nHost: a", 200, "GET /x;a=1/y HTTP/1.1"),
                ("GET /x HTTP/1.1\r\nHost: %61dmin.example", 400, "an escape in the host"),
                ("GET /x HTTP/1.1\r\nHost: [0:0:0::1]:81", 200, "pollu"),
                ("OPTIONS http://a HTTP/1.1\r\nHost: a", 204, "Allow: GET, HEAD"),
                ("OPTIONS http://a/ HTTP/1.1\r\nHost: a", 200, "OPTIONS / HTTP/1.1"),
            ] {
                let mut client = proxy.client();
                client.send(format!("{request}\r\nConnection: close\r\n\r\n"));
                let answer = client.rest();
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {status} ")),
                    "{driver} {request}: {answer}"
                );
                assert!(answer.contains(part), "{driver} {request}: {answer}");
            }
        },
    );
}

#[test]
fn who_issues_certificates_asks_a_site_that_is_not_for_everybody() {
    let text = "accept_proxy = true\n[[site]]\nhost = \"*\"\nallow = \"192.0.2.1\"\nroute = [\n\
                { path = \"/\", reply = 1 }, { path = \"/.well-known/acme-challenge/\", reply = 2 },\n\
                { path = \"/.well-known/acme-challenge/own/\", reply = 3, allow = \"192.0.2.2\" } ]";
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    on_every_driver_with(
        text,
        |_| {},
        |driver, proxy| {
            for (from, path, status) in [
                ("192.0.2.1", "/", 200),
                ("203.0.113.1", "/", 403),
                ("203.0.113.1", "/.well-known/acme-challenge/token", 200),
                ("203.0.113.1", "/.well-known/acme-challenge/../../x", 403),
                ("203.0.113.1", "/.well-known/acme-challenge/%2e%2e/x", 403),
                ("203.0.113.1", "/.well-known/acme", 403),
                ("203.0.113.1", "/.well-known/acme-challenge/own/token", 403),
                ("192.0.2.2", "/.well-known/acme-challenge/own/token", 200),
            ] {
                let answer = by_header(proxy, from, &get(path));
                let expected = format!("HTTP/1.1 {status} ");
                assert!(answer.starts_with(&expected), "{driver} {from} {path}: {answer}");
            }
        },
    );
}

#[test]
fn what_is_answered_here_has_an_id_as_well_and_so_has_what_comes_by_a_front_end_without_sites() {
    let server = Backend::answering(|head, _| {
        let said = field(head, "X-Request-Id").unwrap_or("none").to_owned();
        Some(ok("X-Request-Id: of the backend\r\n", &said))
    });
    let gone = pollux_testing::Refusing::bind();
    let nobody = gone.address();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    std::fs::write(folder.path().join("a.txt"), "a file").expect("written");
    let sites = format!(
        "request_id = \"X-Request-Id\"\nrequest_id_answer = true\n{}[[backend]]\nname = \"gone\"\n[[backend.server]]\naddress = \"{nobody}\"\n\
         FRONT[[site]]\nhost = \"a\"\nroute = [ {{ path = \"/\", backend = \"api\" }}, {{ path = \"/reply\", reply = 3 }}, \
         {{ path = \"/echo\", echo = true }}, {{ path = \"/files/\", dir = \"{}\", strip = \"/files\" }}, {{ path = \"/gone\", backend = \"gone\" }}, \
         {{ path = \"/to\", redirect = \"302 /x\" }}, {{ path = \"/closed\", reply = 1, deny = \"0.0.0.0/0\" }} ]\n",
        backend(server.address),
        folder.path().display()
    );
    let set = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
        config.monitoring.access_log_format = LogFormat::Json;
    };
    let is_made = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    on_every_driver_with(&sites.replace("FRONT", ""), set, |driver, proxy| {
        std::fs::write(&path, "").expect("emptied");
        let mut ids = Vec::new();
        for (request, status) in [
            ("GET /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: forged\r\n\r\n", 200),
            ("GET /reply HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("POST /reply HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok", 200),
            ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok", 200),
            ("GET /files/a.txt HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("GET /files/none HTTP/1.1\r\nHost: a\r\n\r\n", 404),
            ("GET /to HTTP/1.1\r\nHost: a\r\n\r\n", 302),
            ("GET /closed HTTP/1.1\r\nHost: a\r\n\r\n", 403),
            ("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n", 503),
            ("GET / HTTP/1.1\r\nHost: unknown\r\n\r\n", 421),
            ("DELETE /files/a.txt HTTP/1.1\r\nHost: a\r\n\r\n", 405),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 204),
            ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
            ("GET /%2F HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ] {
            let mut client = proxy.client();
            client.send(request);
            let head = client.head();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{driver} {request}: {head}");
            let id = field(&head, "X-Request-Id")
                .unwrap_or_else(|| panic!("{driver} {request}: {head}"));
            assert!(is_made(id), "{driver} {request}: {head}");
            assert_eq!(
                head.to_ascii_lowercase().matches("x-request-id").count(),
                1,
                "{driver}: {head}"
            );
            ids.push(id.to_owned());
        }
        let mut two = Client2::connect(proxy);
        for target in ["/x", "/reply", "/files/a.txt", "/files/none", "/to", "/gone"] {
            let stream = two.get(target);
            let answer = two.answer(stream);
            let head = answer.heads.last().expect("one");
            let id = head
                .split("x-request-id: ")
                .nth(1)
                .unwrap_or_else(|| panic!("{driver} {target}: {head}"));
            ids.push(id[..32].to_owned());
        }
        let lines = || std::fs::read_to_string(&path).expect("read");
        proxy.await_that("all lines", |_| lines().lines().count() == ids.len());
        for id in &ids {
            assert!(is_made(id), "{driver}: {id}");
            let own = format!("\"request_id\":\"{id}\"");
            assert_eq!(lines().matches(&own).count(), 1, "{driver} {id}: {}", lines());
        }
    });
    let front = "[[frontend]]\nlisten = \"127.0.0.1:0\"\nbackend = \"api\"\n[[frontend]]\nlisten = \"127.0.0.1:0\"\n";
    let fronts = sites.replace("FRONT", front);
    let both = |config: &mut ProxyConfig| {
        whole(&fronts, config);
        set(config);
    };
    on_every_driver_with(&sites.replace("FRONT", ""), both, |driver, proxy| {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: any\r\nX-Request-Id: forged\r\n\r\n");
        let head = client.head();
        let len = field(&head, "Content-Length").expect("a length").parse().expect("a number");
        let body = String::from_utf8(client.bytes(len)).expect("text");
        assert!(is_made(&body), "{driver}: {body}");
        assert_eq!(field(&head, "X-Request-Id"), Some(body.as_str()), "{driver}: {head}");
    });
}

#[test]
fn each_request_to_a_backend_has_an_id_that_log_and_answer_have_too() {
    let server = Backend::answering(|head, _| {
        let said = field(head, "X-Request-Id").unwrap_or("none").to_owned();
        // Its own is not passed on beside that of the proxy.
        Some(ok("X-Request-Id: of the backend\r\n", &said))
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let file = |trusted: &str, answers: &str| {
        format!(
            "{trusted}request_id = \"X-Request-Id\"\n{answers}{}[[site]]\nhost = \"*\"\n\
             route = [ {{ path = \"/\", backend = \"api\" }} ]\n",
            backend(server.address)
        )
    };
    let set = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
        config.monitoring.access_log_format = LogFormat::Json;
    };
    let is_made = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let ask = |client: &mut crate::Client, said: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{said}\r\n"));
        let head = client.head();
        let len = field(&head, "Content-Length").expect("a length");
        let body = client.bytes(len.parse().expect("a number"));
        (head, String::from_utf8(body).expect("text"))
    };
    on_every_driver_with(&file("", "request_id_answer = true\n"), set, |driver, proxy| {
        std::fs::write(&path, "").expect("emptied");
        let mut client = proxy.client();
        let mut ids = Vec::new();
        // The last ones have the very head again.
        for said in
            ["X-Request-Id: forged\r\n", "", "", "", "X-Request-Id: a\r\nx-request-id: b\r\n"]
        {
            let (head, id) = ask(&mut client, said);
            assert!(is_made(&id), "{driver}: {id}");
            assert_eq!(field(&head, "X-Request-Id"), Some(id.as_str()), "{driver}: {head}");
            assert_eq!(
                head.to_ascii_lowercase().matches("x-request-id").count(),
                1,
                "{driver}: {head}"
            );
            ids.push(id);
        }
        let mut two = Client2::connect(proxy);
        for _ in 0..3 {
            let stream = two.get("/");
            let answer = two.answer(stream);
            let id = String::from_utf8(answer.body.clone()).expect("text");
            assert!(is_made(&id), "{driver}: {answer:?}");
            let head = answer.heads.last().expect("one");
            assert!(head.contains(&format!("x-request-id: {id}")), "{driver}: {head}");
            ids.push(id);
        }
        let lines = || std::fs::read_to_string(&path).expect("read");
        proxy.await_that("all lines", |_| lines().lines().count() == ids.len());
        for id in &ids {
            let own = format!("\"request_id\":\"{id}\"");
            assert_eq!(lines().matches(&own).count(), 1, "{driver}: {}", lines());
        }
    });
    let trusted = file("trusted_proxies = \"127.0.0.1\"\n", "");
    on_every_driver_with(&trusted, set, |driver, proxy| {
        let mut client = proxy.client();
        for (said, is_kept) in [("abc", true), ("abc", true), ("a b", false), ("abd", true)] {
            let (head, id) = ask(&mut client, &format!("X-Request-Id: {said}\r\n"));
            assert_eq!(id == said, is_kept, "{driver}: {id}");
            assert!(is_kept || is_made(&id), "{driver}: {id}");
            // Clients get that of the backend alone.
            assert_eq!(field(&head, "X-Request-Id"), Some("of the backend"), "{driver}: {head}");
        }
    });
}
