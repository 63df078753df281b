//! Every form of a result, parsed by the program that it is for.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use pollux_testing::{DEADLINE, Signal, addresses, has};
use serde_json::Value;

use crate::{Nginx, Server, command, load, load_well, started};

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn the_table_is_what_a_url_alone_gives() {
    let server = Server::start();
    let said = load_well(&["-d", "300ms", "-c", "2", &server.url]);
    assert!(said.stdout.contains("answers") && said.stdout.contains("latency"), "{said:?}");
    assert!(said.stderr.contains("1s of warm-up") && said.stderr.contains("2 conn"), "{said:?}");
    // At least one line of progress; on a busy machine two seconds may share one.
    assert!(said.stderr.contains("/s  p50 "), "{said:?}");
    let quiet = load_well(&["-n", "2000", "-c", "2", "--quiet", &server.url]);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn a_locale_without_utf_8_gets_ascii_and_programs_get_the_same_signs() {
    let server = Server::start();
    let slo = ["-d", "300ms", "--warm-up", "0s", "-c", "2", "--slo", "p50=1us"];
    let said = |locale, form: &[&str]| {
        let mut command = command(&[&slo[..], form, &[&server.url]].concat());
        let output = command.env("LC_ALL", locale).output().expect("pollux starts");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    };
    let [table, lines] = said("C", &[]);
    assert!(table.is_ascii() && table.contains("p50 at most 1.00 us"), "{table}");
    assert!(lines.is_ascii() && lines.contains("  p50 "), "{lines}");
    assert!(said("C.UTF-8", &[])[0].contains("p50 at most 1.00 µs"));
    let [json, findings] = said("C", &["--json", "-"]);
    assert!(json.contains("p50 at most 1.00 µs"), "{json}");
    assert!(findings.is_ascii() && findings.contains("1.00 us"), "{findings}");
}

#[test]
fn every_file_is_whole_and_can_be_read() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let [json, hlog, csv, html] =
        ["a.json", "a.hlog", "a.csv", "a.html"].map(|name| path(folder.path(), name));
    fs::write(&json, "what was there before").expect("written");
    let files = ["--json", &json, "--hlog", &hlog, "--csv", &csv, "--html", &html];
    let run = ["-d", "1200ms", "--warm-up", "200ms", "-c", "2", &server.url];
    let said = load_well(&[&files[..], &run[..]].concat());
    assert!(said.stdout.contains("latency"), "{said:?}");

    let value: Value = serde_json::from_slice(&fs::read(&json).expect("a file")).expect("JSON");
    assert_eq!(
        (&value["setting"]["connections"], &value["errors"]["reset"]),
        (&2.into(), &0.into())
    );
    let seconds = value["seconds"].as_array().expect("seconds").len();
    assert!(seconds >= 2, "{seconds}");

    let log = fs::read(&hlog).expect("a file");
    let entries = IntervalLogIterator::new(&log).map(|entry| entry.expect("a log"));
    let intervals = entries.filter(|entry| matches!(entry, LogEntry::Interval(_))).count();
    assert_eq!(intervals, seconds);

    let rows = fs::read_to_string(&csv).expect("a file");
    let columns: Vec<usize> = rows.lines().map(|row| row.split(',').count()).collect();
    assert_eq!(columns.len(), seconds + 1);
    assert!(columns[0] > 8 && columns.iter().all(|each| *each == columns[0]), "{rows}");

    let page = fs::read_to_string(&html).expect("a file");
    assert!(page.starts_with("<!") && page.contains("</html>") && page.contains("<svg"));
    let names = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(names, 4, "nothing is left beside the files");
}

#[test]
fn standard_output_takes_one_of_them_instead_of_the_table() {
    let server = Server::start();
    let said = load_well(&["-n", "2000", "-c", "2", "--json", "-", &server.url]);
    assert_eq!(said.json()["totals"]["answered"], 2_000);
    let said = load_well(&["-n", "2000", "-c", "2", "--csv", "-", "-q", &server.url]);
    assert!(said.stdout.starts_with("start_s,"), "{said:?}");
    let said = load(&["--json", "-", "--as", "ab", &server.url]);
    assert!(said.code == Some(2) && said.stderr.contains("one result only"), "{said:?}");
}

#[test]
fn the_summaries_of_other_programs_have_their_key_lines() {
    let server = Server::start();
    for (style, lines) in [
        ("ab", &["Complete requests:      2000", "Requests per second:", "Time per request:"][..]),
        ("wrk", &["Requests/sec:", "Latency Distribution", "2 connections"]),
        ("httperf", &["Total:", "Reply rate", "Errors: total"]),
    ] {
        let said = load_well(&["-n", "2000", "-c", "2", "--as", style, &server.url]);
        for line in lines {
            assert!(said.stdout.contains(line), "no \"{line}\" as {style}:\n{}", said.stdout);
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_reported_before_the_run() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = path(folder.path(), "no/such/folder/a.json");
    for place in [&nowhere, folder.path().to_str().expect("UTF-8")] {
        let said = load(&["-n", "1", "--json", place, &server.url]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains(place) && said.stdout.is_empty(), "{said:?}");
    }
    assert_eq!(server.requests(), 0);
}

// How far a run is, for Prometheus while it runs.

fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
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
    let address = addresses(&run.says("/metrics"))[0];
    // A silent one delays no other.
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
    run.signal(Signal::INT);
    assert_eq!(run.wait().code(), Some(130));
    page
}

#[test]
fn nginx_under_load_is_seen_by_a_scraper() {
    if !has("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("page"), "hello").expect("written");
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
