//! How far a run is, for Prometheus while it runs.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::{Pid, Signal, kill_process};

use crate::nginx::{Nginx, has_nginx};
use crate::run::{PATIENCE, Server, load, started};

fn asked(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The value of a line of the page.
fn value(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Scrapes a run until this was counted, and ends it.
fn scrape(flags: &[&str], name: &str) -> String {
    let mut run = started(&[&["--prometheus", "127.0.0.1:0", "-d", "1h", "-q"], flags].concat());
    let mut stderr = BufReader::new(run.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    let url = line.trim().rsplit(' ').next().expect("a URL").to_owned();
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.expect("an address");
    // One that says nothing holds nobody up.
    let mut silent = TcpStream::connect(address).expect("it listens");
    asked(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    silent.set_nonblocking(true).expect("set");
    let kept = silent.read(&mut [0; 9]).expect_err("it was waited for to its end");
    assert_eq!(kept.kind(), ErrorKind::WouldBlock);
    let page = loop {
        let page = asked(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        if value(&page, name).is_some_and(|count| count > 0.0) {
            break page;
        }
    };
    let elsewhere = asked(address, "GET /else HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(elsewhere.starts_with("HTTP/1.1 404 "), "{elsewhere}");
    let posted = asked(address, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    kill_process(Pid::from_child(&run), Signal::INT).expect("it is ours");
    assert_eq!(run.wait().expect("it ends").code(), Some(130));
    page
}

#[test]
fn nginx_under_load_is_seen_by_a_scraper() {
    if !has_nginx() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("page"), "hello").expect("written");
    let nginx = Nginx::start(folder.path());
    let flags = ["-c", "2", "--rate", "200", "--unix", &nginx.socket, "http://localhost/page"];
    let page = scrape(&flags, "pollux_load_answers_total{class=\"2xx\"}");
    assert!(
        page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
        "{page}"
    );
    assert_eq!(value(&page, "pollux_load_phase{phase=\"measuring\"}"), Some(1.0), "{page}");
    assert_eq!(value(&page, "pollux_load_connections_open"), Some(2.0), "{page}");
    assert!(value(&page, "pollux_load_last_second_latency_seconds{quantile=\"0.5\"}").is_some());
}

#[test]
fn what_a_server_does_wrong_is_seen_by_a_scraper() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let misbehaving = std::thread::spawn(move || {
        // Hangs up on everybody, until the generator has gone.
        while let Ok((mut client, _)) = listener.accept() {
            let mut request = [0; 512];
            match client.read(&mut request) {
                Ok(1..) => drop(client.write_all(b"no HTTP at all\r\n\r\n")),
                _ => return,
            }
        }
    });
    let page = scrape(
        &["-c", "1", "--rate", "50", "--warm-up", "0s", &url],
        "pollux_load_errors_total{kind=\"malformed\"}",
    );
    assert_eq!(value(&page, "pollux_load_answers_total{class=\"2xx\"}"), Some(0.0), "{page}");
    drop(TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/')));
    misbehaving.join().expect("it served");
}

#[test]
fn an_address_in_use_is_reported_before_the_run() {
    let server = Server::start();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let said = load(&["--prometheus", &address, "-n", "1", &server.url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.stderr.contains(&format!("--prometheus: {address} can't be listened on")),
        "{said:?}"
    );
    let said = load(&["--prometheus", "somewhere", "-n", "1", &server.url]);
    assert!(said.code == Some(2) && said.stderr.contains("127.0.0.1:9100"), "{said:?}");
}
