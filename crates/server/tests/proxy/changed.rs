//! Answers of backends that are compressed on their way, or have a page in their place: by clients and backends of both
//! versions of HTTP.

use std::io::Read;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use pollux_http::Method;
use pollux_server::{Fault, ProxyCounter};

use crate::http2_backend::Peer2;
use crate::http2_client::Client2;
use crate::sites::on_every_driver_with;
use crate::{Backend, Client, Proxy, field, ok};

/// Backends that speak one version each, and routes to them below `/1/` and `/2/`, with these keys.
fn file(one: &Backend, two: &Backend, keys: &str) -> String {
    let section = |name: &str, protocol: &str, backend: &Backend| {
        format!(
            "[[backend]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\n[[backend.server]]\naddress = \"{}\"\n",
            backend.address
        )
    };
    format!(
        "{}{}[[site]]\nhost = \"*\"\n{keys}\nroute = [ {{ path = \"/1/\", backend = \"one\", strip = \"/1\" }},\n\
         {{ path = \"/2/\", backend = \"two\", strip = \"/2\" }} ]\n",
        section("one", "http/1.1", one),
        section("two", "h2c", two)
    )
}

fn text() -> String {
    (0..400).map(|line| format!("line {line} of a text that is long\n")).collect()
}

/// What there is of these bytes, as a client of this coding reads it.
fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut reader: Box<dyn Read + '_> = match coding {
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        _ => Box::new(bytes),
    };
    let mut out = Vec::new();
    let mut room = [0; 4096];
    while let Ok(read @ 1..) = reader.read(&mut room) {
        out.extend_from_slice(&room[..read]);
    }
    out
}

/// The body behind a head, by its length or in chunks.
fn body(client: &mut Client, head: &str) -> Vec<u8> {
    if let Some(len) = field(head, "Content-Length") {
        return client.bytes(len.parse().expect("a number"));
    }
    assert_eq!(field(head, "Transfer-Encoding"), Some("chunked"), "{head}");
    let mut body = Vec::new();
    loop {
        let piece = chunk(client);
        if piece.is_empty() {
            return body;
        }
        body.extend(piece);
    }
}

fn chunk(client: &mut Client) -> Vec<u8> {
    let line = client.until("\r\n");
    let len = usize::from_str_radix(line.trim_end(), 16).expect("a length in hex");
    let piece = client.bytes(len);
    assert_eq!(client.bytes(2), b"\r\n");
    piece
}

/// Status, fields and body of the answer to a request of one version of HTTP.
fn ask(proxy: &Proxy, two: bool, path: &str, fields: &[(&str, &str)]) -> (String, Vec<u8>) {
    let method = if path.ends_with("head") { Method::Head } else { Method::Get };
    if two {
        let mut client = Client2::connect(proxy);
        let stream = client.ask(method, path, fields, true);
        let answer = client.answer(stream);
        assert!(answer.is_whole, "{path}: {answer:?}");
        (answer.heads.last().expect("a head").replace('|', "\r\n"), answer.body.clone())
    } else {
        let mut client = proxy.client();
        let fields: String =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        client.send(format!("{} {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n", method.name()));
        let head = client.head();
        let body = if method == Method::Head { Vec::new() } else { body(&mut client, &head) };
        (head.replacen("HTTP/1.1 ", "", 1), body)
    }
}

/// What the backends say beside their text, by path.
const ANSWERS: [(&str, u16, &str); 13] = [
    (
        "/plain",
        200,
        "Content-Type: text/html; charset=utf-8\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\nContent-MD5: x\r\n",
    ),
    (
        "/weak",
        200,
        "Content-Type: application/json\r\nETag: W/\"1\"\r\nVary: Origin, accept-encoding\r\n",
    ),
    ("/head", 200, "Content-Type: text/html\r\nETag: \"1\"\r\n"),
    ("/png", 200, "Content-Type: image/png\r\nETag: \"1\"\r\n"),
    ("/untyped", 200, "ETag: \"1\"\r\n"),
    ("/coded", 200, "Content-Type: text/html\r\nContent-Encoding: x-own\r\n"),
    ("/kept", 200, "Content-Type: text/html\r\nCache-Control: public, No-Transform\r\n"),
    ("/events", 200, "Content-Type: text/event-stream\r\n"),
    ("/part", 206, "Content-Type: text/html\r\nContent-Range: bytes 0-9/100\r\n"),
    ("/missing", 404, "Content-Type: text/html\r\n"),
    ("/short", 200, "Content-Type: text/html\r\n"),
    ("/chunks", 200, "Content-Type: text/html\r\n"),
    ("/open", 200, "Content-Type: text/html\r\n"),
];

fn length_of(path: &str) -> usize {
    if path == "/short" { 100 } else { text().len() }
}

fn answer_of(path: &str) -> (u16, String, String) {
    let (_, status, fields) = ANSWERS.iter().find(|(of, ..)| *of == path).expect("a row");
    (*status, (*fields).to_owned(), text()[..length_of(path)].to_owned())
}

fn backends() -> [Backend; 2] {
    let one = Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            let Some(path) = head.split(' ').nth(1) else { return };
            let (status, fields, body) = answer_of(path);
            let begin = format!("HTTP/1.1 {status} Said\r\n{fields}");
            match path {
                "/head" => {
                    client.try_send(format!("{begin}Content-Length: {}\r\n\r\n", body.len()));
                }
                "/open" => return client.try_send(format!("{begin}\r\n{body}")),
                "/chunks" => {
                    client.try_send(format!("{begin}Transfer-Encoding: chunked\r\n\r\n"));
                    for piece in body.as_bytes().chunks(1000) {
                        let piece = String::from_utf8_lossy(piece);
                        client.try_send(format!("{:x}\r\n{piece}\r\n", piece.len()));
                    }
                    client.try_send("0\r\n\r\n");
                }
                _ => {
                    client.try_send(format!("{begin}Content-Length: {}\r\n\r\n{body}", body.len()));
                }
            }
        }
    });
    let two = Backend::answering2(|asked| {
        let (status, fields, body) = answer_of(asked.path());
        let is_said = !matches!(asked.path(), "/open" | "/chunks");
        let len =
            if is_said { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
        let body = if asked.path() == "/head" { Vec::new() } else { body.into_bytes() };
        (format!("HTTP/1.1 {status} Said\r\n{fields}{len}"), body)
    });
    [one, two]
}

#[test]
fn answers_are_compressed_for_clients_that_take_it_and_say_what_they_depend_on() {
    let [one, two] = backends();
    let file = file(&one, &two, "compress = true");
    on_every_driver_with(
        &file,
        |_| {},
        |driver, proxy| {
            for (is_two, backend) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
                for (path, status, said) in ANSWERS {
                    let expected = text()[..length_of(path)].to_owned();
                    let is_taken = matches!(path, "/plain" | "/weak" | "/chunks" | "/open");
                    for (accepted, coding) in [
                        ("gzip", "gzip"),
                        ("gzip, br;q=0.5", "gzip"),
                        ("br, zstd, gzip", "br"),
                        ("zstd", "zstd"),
                        ("identity", ""),
                        ("", ""),
                    ] {
                        let what = format!("{driver} {is_two} {backend} {path} {accepted:?}");
                        let fields = [("accept-encoding", accepted)];
                        let fields = if accepted.is_empty() { &fields[..0] } else { &fields[..] };
                        let (head, body) = ask(proxy, is_two, &format!("/{backend}{path}"), fields);
                        assert!(head.starts_with(&status.to_string()), "{what}: {head}");
                        let coding = if is_taken { coding } else { "" };
                        let own = if path == "/coded" { "x-own" } else { coding };
                        assert_eq!(
                            field(&head, "Content-Encoding").unwrap_or(""),
                            own,
                            "{what}: {head}"
                        );
                        let varies = head.to_ascii_lowercase().matches("accept-encoding").count();
                        assert_eq!(varies, usize::from(is_taken), "{what}: {head}");
                        if path == "/head" {
                            assert_eq!(
                                field(&head, "Content-Length"),
                                Some(&*expected.len().to_string())
                            );
                            continue;
                        }
                        assert_eq!(decoded(coding, &body), expected.as_bytes(), "{what}");
                        let is_changed = !coding.is_empty();
                        assert_eq!(
                            is_changed,
                            body.len() < expected.len() / 2,
                            "{what}: {}",
                            body.len()
                        );
                        assert!(
                            !is_changed || field(&head, "Content-Length").is_none(),
                            "{what}: {head}"
                        );
                        let tag = field(&head, "ETag");
                        let expected = match (path, is_changed) {
                            ("/weak", _) => Some("W/\"1\""),
                            _ if !said.contains("ETag") => None,
                            (_, true) => Some("W/\"1\""),
                            (_, false) => Some("\"1\""),
                        };
                        assert_eq!(tag, expected, "{what}");
                        let of_bytes = ["Accept-Ranges", "Content-MD5"];
                        let has_some = of_bytes.iter().any(|name| field(&head, name).is_some());
                        assert_eq!(has_some, path == "/plain" && !is_changed, "{what}: {head}");
                    }
                }
            }
            // Four ways, four answers, four codings that clients have named.
            assert_eq!(proxy.count(ProxyCounter::AnswersCompressed), 64, "{driver}");
            assert_eq!(proxy.count(ProxyCounter::CompressionsPutOff), 0, "{driver}");
            let [taken, made] = [ProxyCounter::CompressBytes, ProxyCounter::CompressedBytes];
            assert_eq!(proxy.count(taken), 64 * text().len() as u64, "{driver}");
            assert!(proxy.count(made) < proxy.count(taken) / 2, "{driver}");
        },
    );
}

#[test]
fn types_and_lengths_are_those_that_the_settings_name_and_old_clients_get_what_they_know() {
    let [one, two] = backends();
    let keys = "compress = true\ncompress_types = [\"image/*\"]\ncompress_min = 100";
    on_every_driver_with(
        &file(&one, &two, keys),
        |_| {},
        |driver, proxy| {
            let gzip = [("Accept-Encoding", "gzip")];
            for (path, is_compressed) in [("/1/png", true), ("/1/plain", false), ("/2/png", true)] {
                let (head, body) = ask(proxy, false, path, &gzip);
                assert_eq!(
                    field(&head, "Content-Encoding").is_some(),
                    is_compressed,
                    "{driver} {path}"
                );
                assert_eq!(body.len() < 2000, is_compressed, "{driver} {path}");
            }
            let stays = [("Accept-Encoding", "gzip"), ("Cache-Control", "no-transform")];
            let (head, _) = ask(proxy, false, "/1/png", &stays);
            assert_eq!(field(&head, "Content-Encoding"), None, "{driver}");
            assert_eq!(field(&head, "Vary"), Some("Accept-Encoding"), "{driver}");
            let mut old = proxy.client();
            old.send("GET /1/png HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
            let answer = old.rest();
            assert!(answer.ends_with(&text()), "{driver}: {answer}");
        },
    );
}

/// A backend that sends a piece of text each time it gets one, and ends the answer when nobody tells it any more.
fn piece_by_piece(told: Receiver<String>) -> Backend {
    let told = Mutex::new(told);
    Backend::start(move |_, mut client| {
        if client.head().is_empty() {
            return;
        }
        client.try_send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for piece in told.lock().expect("one").iter() {
            client.try_send(format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        client.try_send("0\r\n\r\n");
    })
}

#[test]
fn what_a_backend_has_sent_is_with_the_client_while_it_pauses() {
    for is_two in [false, true] {
        for coding in ["gzip", "br", "zstd"] {
            for driver in pollux_engine::Driver::ALL {
                let (tell, told): (Sender<String>, _) = channel();
                let one = piece_by_piece(told);
                let two = Backend::silent();
                let text = file(&one, &two, "compress = true");
                let set = |config: &mut pollux_server::config::ProxyConfig| {
                    let loops = config.loops.clone();
                    let monitoring = config.monitoring.clone();
                    let read = crate::sites::settings(&text);
                    *config = pollux_server::config::ProxyConfig { loops, monitoring, ..read };
                };
                let Some(proxy) = Proxy::start(driver, &[one.address], set) else { continue };
                let what = format!("{driver} {is_two} {coding}");
                let pieces: Vec<String> =
                    (0..5).map(|it| format!("piece {it}, {it}, {it}\n")).collect();
                let mut got = Vec::new();
                let mut so_far = String::new();
                if is_two {
                    let mut client = Client2::connect(&proxy);
                    let fields = [("accept-encoding", coding)];
                    let stream = client.ask(Method::Get, "/1/", &fields, true);
                    for piece in &pieces {
                        tell.send(piece.clone()).expect("it listens");
                        so_far.push_str(piece);
                        client.until(|client| {
                            let body = &client.answers[&stream].body;
                            decoded(coding, body) == so_far.as_bytes()
                        });
                        assert!(!client.answers[&stream].is_whole, "{what}");
                    }
                    drop(tell);
                    got.extend_from_slice(&client.answer(stream).body);
                } else {
                    let mut client = proxy.client();
                    client.send(format!(
                        "GET /1/ HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n"
                    ));
                    for piece in &pieces {
                        tell.send(piece.clone()).expect("it listens");
                        so_far.push_str(piece);
                        if got.is_empty() {
                            let head = client.head();
                            assert_eq!(field(&head, "Content-Encoding"), Some(coding), "{what}");
                        }
                        while decoded(coding, &got) != so_far.as_bytes() {
                            let more = chunk(&mut client);
                            assert!(!more.is_empty(), "{what}: the answer ended");
                            got.extend(more);
                        }
                    }
                    drop(tell);
                    loop {
                        let more = chunk(&mut client);
                        if more.is_empty() {
                            break;
                        }
                        got.extend(more);
                    }
                }
                assert_eq!(decoded(coding, &got), so_far.as_bytes(), "{what}");
            }
        }
    }
}

#[test]
fn a_long_body_goes_through_whole_however_its_backend_and_its_client_are_connected() {
    let body: String = (0..20_000).map(|it| format!("{:x} ", it * 2_654_435_761_u64)).collect();
    let length = body.len();
    let of_one = body.clone();
    let of_two = body.clone().into_bytes();
    let one = Backend::answering(move |_, _| Some(ok("Content-Type: text/plain\r\n", &of_one)));
    let two = Backend::answering2(move |_| {
        ("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n".to_owned(), of_two.clone())
    });
    on_every_driver_with(
        &file(&one, &two, "compress = true"),
        |_| {},
        |driver, proxy| {
            for backend in [1, 2] {
                for coding in ["gzip", "br", "zstd"] {
                    let fields = [("accept-encoding", coding)];
                    let path = format!("/{backend}/");
                    for is_two in [false, true] {
                        let (_, got) = ask(proxy, is_two, &path, &fields);
                        let got = decoded(coding, &got);
                        let what = format!(
                            "{driver} {backend} {coding} {is_two}: {} of {length}",
                            got.len()
                        );
                        assert!(got == body.as_bytes(), "{what}");
                    }
                    // One whose window is small.
                    let mut client = Client2::with_window(proxy, 1000);
                    let stream = client.ask(Method::Get, &path, &fields, true);
                    let got = decoded(coding, &client.answer(stream).body);
                    assert!(got == body.as_bytes(), "{driver} {backend} {coding}: {}", got.len());
                }
            }
        },
    );
}

#[test]
fn no_more_answers_are_compressed_at_once_than_may_be_and_others_pass_as_they_are() {
    let one = Backend::start(|_, mut client| {
        let head = client.head();
        let fields = "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n";
        client.try_send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n5\r\nbegin\r\n"));
        if !head.is_empty() {
            // Until the proxy has had enough of it.
            drop(client.rest());
        }
    });
    let two = Backend::silent();
    on_every_driver_with(
        &file(&one, &two, "compress = true"),
        |_| {},
        |driver, proxy| {
            let begin = || {
                let mut client = proxy.client();
                client.send("GET /1/ HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
                let head = client.head();
                assert_eq!(field(&head, "Vary"), Some("Accept-Encoding"), "{driver}: {head}");
                let is_compressed = field(&head, "Content-Encoding").is_some();
                (client, is_compressed)
            };
            let mut open: Vec<_> = (0..64).map(|_| begin()).collect();
            assert!(open.iter().all(|(_, is_compressed)| *is_compressed), "{driver}");
            let (_plain, is_compressed) = begin();
            assert!(!is_compressed, "{driver}");
            assert_eq!(proxy.count(ProxyCounter::CompressionsPutOff), 1, "{driver}");
            let (gone, _) = open.pop().expect("one");
            gone.reset();
            proxy.await_that("its place is free", |_| begin().1);
        },
    );
}

/// A folder with pages for two statuses.
fn pages() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("sorry.html"), "<p>sorry").expect("written");
    std::fs::write(folder.path().join("none.json"), "{\"none\":1}").expect("written");
    let at = folder.path().display();
    let keys = format!(
        "error_page = [\"502 {at}/sorry.html\", \"503 {at}/sorry.html\", \"404 {at}/none.json\"]\nintercept = [\"5xx\", \"404\"]"
    );
    (folder, keys)
}

#[test]
fn a_page_takes_the_place_of_an_error_of_a_backend_and_its_connection_is_used_again() {
    let (_folder, keys) = pages();
    let one = Backend::answering(|head, _| {
        let status = head.split(['/', ' ']).nth(2)?.to_owned();
        let body = "the backend's own";
        let fields = "Content-Type: text/plain\r\nX-Own: 1\r\n";
        Some(format!(
            "HTTP/1.1 {status} Said\r\n{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    });
    let two = Backend::answering2(|asked| {
        let status = &asked.path()[1..];
        (format!("HTTP/1.1 {status} Said\r\nX-Own: 1\r\n"), b"the backend's own".to_vec())
    });
    on_every_driver_with(
        &file(&one, &two, &keys),
        |_| {},
        |driver, proxy| {
            let accepted = one.accepted();
            let mut replaced = 0;
            for (is_two, backend) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
                for (status, accept, expected) in [
                    ("502", "", "<p>sorry"),
                    ("503", "text/html, application/json", "<p>sorry"),
                    ("503", "application/json", "the backend's own"),
                    ("404", "application/json", "{\"none\":1}"),
                    ("404", "*/*", "{\"none\":1}"),
                    ("500", "", "the backend's own"),
                    ("403", "", "the backend's own"),
                    ("200", "", "the backend's own"),
                ] {
                    let fields = [("accept", accept)];
                    let fields = if accept.is_empty() { &fields[..0] } else { &fields[..] };
                    let (head, body) = ask(proxy, is_two, &format!("/{backend}/{status}"), fields);
                    let what = format!("{driver} {is_two} {backend} {status} {accept}: {head}");
                    assert!(head.starts_with(status), "{what}");
                    assert_eq!(String::from_utf8_lossy(&body), expected, "{what}");
                    let is_own = expected == "the backend's own";
                    assert_eq!(field(&head, "X-Own").is_some(), is_own, "{what}");
                    let said = format!("pollux;received-status={status}");
                    let expected = Some(&*said).filter(|_| !is_own);
                    assert_eq!(field(&head, "Proxy-Status"), expected, "{what}");
                    replaced += u64::from(!is_own);
                }
            }
            assert_eq!(
                proxy.faults(Fault::Replaced(pollux_http::Status::BAD_GATEWAY)),
                replaced,
                "{driver}"
            );
            assert_eq!(one.accepted() - accepted, 1, "{driver}: one connection carried all");
        },
    );
}

#[test]
fn the_rest_of_an_error_that_a_page_replaced_is_waited_for_by_nobody() {
    let (_folder, keys) = pages();
    let (tell, told) = channel::<()>();
    let told = Mutex::new(told);
    let one = Backend::start(move |_, mut client| {
        loop {
            let head = client.head();
            let Some(path) = head.split(' ').nth(1) else { return };
            let len = if path == "/long" { 1 << 20 } else { 100 };
            client.try_send(format!("HTTP/1.1 502 Said\r\nContent-Length: {len}\r\n\r\nbegin"));
            told.lock().expect("one").recv().expect("it is sent");
            client.try_send(vec![b'x'; len - 5]);
        }
    });
    let two = Backend::of_http2(|_, mut peer: Peer2| {
        while let Some((stream, _)) = peer.next_whole() {
            peer.says(|peer, out| {
                peer.send_head(out, stream, b"HTTP/1.1 502 Said\r\n\r\n", false);
            });
            assert!(peer.until(|peer| peer.resets.iter().any(|(reset, _)| *reset == stream)));
        }
    });
    on_every_driver_with(
        &file(&one, &two, &keys),
        |_| {},
        |driver, proxy| {
            let accepted = one.accepted();
            for is_two in [false, true] {
                for path in ["/1/late", "/1/long", "/2/"] {
                    // The backend sends the rest once the client has its page.
                    let (head, body) = ask(proxy, is_two, path, &[]);
                    assert!(head.starts_with("502"), "{driver} {path}: {head}");
                    assert_eq!(body, b"<p>sorry", "{driver} {path}");
                    if path != "/2/" {
                        tell.send(()).expect("it listens");
                        let is_kept = path == "/1/late";
                        let open = || proxy.pool().idle;
                        proxy.await_that("its end", |_| (open() > 0) == is_kept);
                    }
                }
            }
            // A long rest has cost one connection each time, a short one none.
            assert_eq!(one.accepted() - accepted, 2, "{driver}");
        },
    );
}
