//! Lines of the access log: the same columns whatever became of a request, and nothing of it hidden.

use std::path::Path;

use pollux_server::config::ProxyConfig;
use pollux_server::config::{LogFormat, LogTarget};

use crate::{Backend, Proxy, field, ok, on_every_driver};

/// Plays `scene` on every driver with a log in this form, and returns the lines that it has then.
fn lines(form: LogFormat, count: usize, scene: impl Fn(&Proxy)) -> Vec<Vec<String>> {
    let backend = Backend::answering(|head, client| match field(head, "X-Silent") {
        // Until the proxy leaves.
        Some(_) => {
            client.rest();
            None
        }
        None => Some(ok("", "hi")),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
        config.monitoring.access_log_format = form;
    };
    let all = std::cell::RefCell::new(Vec::new());
    on_every_driver(&[backend.address], log, |_, proxy| {
        scene(proxy);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        proxy.await_that("every line", |_| read(&path).lines().count() >= count);
        all.borrow_mut().push(read(&path).lines().map(str::to_owned).collect());
        std::fs::write(&path, "").expect("emptied");
    });
    all.into_inner()
}

/// Requests that no backend gets.
const REFUSED: [(&str, u16, &str); 7] = [
    ("GET / HTTP/1.1\r\n\r\n", 400, "client_bad_request"),
    ("BAD\r\n\r\n", 400, "client_bad_request"),
    ("TRACE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, "client_bad_request"),
    ("POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417, "client_bad_request"),
    ("GET / HTTP/2.0\r\n\r\n", 505, "client_bad_request"),
    ("GET https://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 421, "client_bad_request"),
    ("OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n", 204, "ok"),
];

fn ask_all(proxy: &Proxy) {
    for (request, status, _) in REFUSED {
        let mut client = proxy.client();
        client.send(request);
        let answer = client.rest();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    let mut client = proxy.client();
    client.send("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.rest();
}

#[test]
fn lines_of_refused_requests_have_the_columns_of_all_others() {
    for all in lines(LogFormat::Common, REFUSED.len() + 1, ask_all) {
        for (line, (_, status, end)) in all.iter().zip(REFUSED) {
            let (_, behind) = line.rsplit_once('"').expect("a request line");
            let columns: Vec<&str> = behind.split_whitespace().collect();
            let [logged, _, backend, times, how] = columns[..] else { panic!("{line}") };
            assert_eq!(logged, status.to_string(), "{line}");
            assert_eq!((backend, times, how), ("-", "-/-/-/-", end), "{line}");
        }
        let last = all.last().expect("lines");
        assert!(last.contains("/last") && last.ends_with(" ok"), "{last}");
    }
}

#[test]
fn no_field_hides_a_request_that_is_refused() {
    let hidden = [
        ("POST /e", "Expect: tea\r\nContent-Length: 1\r\n", 417),
        ("POST /l", "Content-Length: 1\r\nContent-Length: 2\r\n", 400),
        ("POST /t", "Transfer-Encoding: gzip\r\n", 400),
        ("POST /b", "Content-Length: 99999999999\r\n", 413),
        ("GET /\"x", "Bad Name: x\r\n", 400),
    ];
    let ask = |proxy: &Proxy| {
        for (line, fields, status) in hidden {
            let mut client = proxy.client();
            client.send(format!(
                "{line} HTTP/1.1\r\nHost: x\r\nUser-Agent: evil\r\nReferer: r\r\n{fields}\r\n"
            ));
            let answer = client.rest();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        }
    };
    for all in lines(LogFormat::Combined, hidden.len(), ask) {
        for (line, (asked, fields, status)) in all.iter().zip(hidden) {
            let asked = asked.replace('"', "\\x22");
            assert!(line.contains(&format!("] \"{asked} HTTP/1.1\" {status} ")), "{line}");
            let is_whole = line.contains("\"r\" \"evil\" - -/-/-/- client_bad_request");
            assert!(is_whole, "{fields}: {line}");
        }
    }
}

#[test]
fn each_line_in_json_says_how_it_ended() {
    for all in lines(LogFormat::Json, REFUSED.len() + 1, ask_all) {
        for (line, (_, status, end)) in all.iter().zip(REFUSED) {
            assert!(line.contains(&format!("\"status\":{status},")), "{line}");
            // Without a request line there is no version.
            assert_eq!(line.contains("\"version\":"), !line.contains("\"method\":\"\""), "{line}");
            assert!(line.contains(&format!("\"tries\":0,\"end\":\"{end}\"}}")), "{line}");
        }
    }
}

#[test]
fn a_client_that_goes_before_its_answer_is_499() {
    let leave = |proxy: &Proxy| {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: x\r\nX-Silent: 1\r\n\r\n");
        proxy.await_that("the request at its backend", |proxy| proxy.in_use() == 1);
        client.reset();
    };
    for all in lines(LogFormat::Json, 1, leave) {
        assert!(all[0].contains("\"status\":499,"), "{}", all[0]);
        assert!(all[0].contains("\"end\":\"client_gone\""), "{}", all[0]);
    }
}

#[test]
fn no_byte_hides_what_a_client_calls_itself() {
    let ask = |proxy: &Proxy| {
        let mut client = proxy.client();
        client.send(
            b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: evil\xe4scanner \xc3\xa9\r\nReferer: \xff\r\n\
              Connection: close\r\n\r\n",
        );
        client.rest();
    };
    for all in lines(LogFormat::Combined, 1, ask) {
        let said = r#" "\xff" "evil\xe4scanner \xc3\xa9" "#;
        assert!(all[0].contains(said), "{}", all[0]);
    }
}
