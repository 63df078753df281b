//! Results: every form of them is parsed by the program that it is for, while a load runs and after it; results that
//! were written are compared and added up; servers are compared in turns; trials make a search for the capacity.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use pollux_testing::{DEADLINE, Process, Signal, addresses, has};
use serde_json::Value;

use crate::endings::CLOSED;
use crate::figures::Responder;
use crate::{Nginx, Said, Server, command, interrupt_until_it_ends, load, load_well, started};

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn the_table_is_what_a_url_alone_gives() {
    let server = Server::start();
    let said = load_well(&["-d", "300ms", "-c", "2", "--think", "5ms", &server.url]);
    assert!(said.stdout.contains("answers") && said.stdout.contains("latency"), "{said:?}");
    assert!(said.stderr.contains("1s of warm-up") && said.stderr.contains("2 conn"), "{said:?}");
    // At least one line of progress; on a busy machine two seconds may share one.
    assert!(said.stderr.contains("/s  p50 "), "{said:?}");
    let quiet = load_well(&["-n", "200", "-c", "2", "--quiet", &server.url]);
    assert!(quiet.complaints().is_empty(), "{quiet:?}");
}

#[test]
fn a_locale_without_utf_8_gets_ascii_and_programs_get_the_same_signs() {
    let server = Server::start();
    let slo = ["-n", "200", "--warm-up", "0s", "-c", "2", "--slo", "p50=1us"];
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
    let run = ["-d", "1200ms", "--warm-up", "200ms", "-c", "2", "--think", "5ms", &server.url];
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
    let said = load_well(&["-n", "200", "-c", "2", "--json", "-", &server.url]);
    assert_eq!(said.json()["totals"]["answered"], 200);
    let said = load_well(&["-n", "200", "-c", "2", "--csv", "-", "-q", &server.url]);
    assert!(said.stdout.starts_with("start_s,"), "{said:?}");
    let said = load(&["--json", "-", "--as", "ab", &server.url]);
    assert!(said.code == Some(2) && said.stderr.contains("one result only"), "{said:?}");
}

#[test]
fn the_summaries_of_other_programs_have_their_key_lines() {
    let server = Server::start();
    for (style, lines) in [
        ("ab", &["Complete requests:      200", "Requests per second:", "Time per request:"][..]),
        ("wrk", &["Requests/sec:", "Latency Distribution", "2 connections"]),
        ("httperf", &["Total:", "Reply rate", "Errors: total"]),
    ] {
        let said = load_well(&["-n", "200", "-c", "2", "--as", style, &server.url]);
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

/// A full disk costs a file and not what was measured.
#[test]
fn a_file_that_can_no_longer_be_written_costs_neither_the_table_nor_the_other_files() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let csv = path(folder.path(), "seconds.csv");
    let run = ["-n", "50", "-c", "2", "-q", "--json", "/dev/full", "--csv", &csv, &server.url];
    let said = load(&run);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("error: /dev/full can't be written: No space left"), "{said:?}");
    assert!(said.stdout.contains("latency") && said.stdout.contains("50 of 50 sent"), "{said:?}");
    assert!(fs::read_to_string(&csv).expect("the other file").lines().count() > 1);
    // Nor does an output that nobody reads cost the files.
    let json = path(folder.path(), "result.json");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
    let mut unread = command(&["-n", "50", "-c", "2", "-q", "--json", &json, &server.url]);
    assert_eq!(Process::start(unread.stdout(full)).wait().code(), Some(1));
    assert!(fs::read_to_string(&json).expect("a result").contains("\"statuses\""));
    let search = ["--find-capacity", "--slo", "p50=2s", "--trial", "100ms", "-c", "8", "-q"];
    let said = load(&[&search[..], &["--json", "/dev/full", &server.url]].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("asked/s") && said.stderr.contains("/dev/full"), "{said:?}");
}

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
    let address = addresses(&run.wait_for_stderr_line("/metrics"))[0];
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
        // Hangs up on every client, until the generator has gone.
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
}

#[test]
fn two_servers_in_turns_are_distinguished_in_both_orders() {
    // Beside others on the CPUs few turns may leave it unclear, and more of them tell. The other direction is wrong at once.
    let is_judged = |before: &str, after: &str, expected: &str| {
        let started = |reply| Server::start_with(&["--reply", reply, "--listen", "127.0.0.1:0"]);
        let [before, after] = [before, after].map(started);
        let pids = ["--before-pid", &before.id(), "--after-pid", &after.id()];
        let mut unclear = Vec::new();
        for lasts in ["1ms", "4s", "16s"] {
            let run = ["turns", "-c", "1", "-d", lasts, "--gate", "--json", "-"];
            let said = load(&[&run[..], &pids, &[&before.url, &after.url]].concat());
            let rows = said.json()["rows"].as_array().expect("rows").clone();
            let of = |name| rows.iter().map(move |row| row[name].as_str().expect("a text"));
            assert!(of("figure").eq(["mean", "server CPU", "generator CPU"]), "{said:?}");
            assert!(of("change").all(|each| [expected, "unclear"].contains(&each)), "{said:?}");
            let is_worse = of("change").any(|each| each == "worse");
            assert_eq!(said.code, Some(if is_worse { 3 } else { 0 }), "{said:?}");
            // Times may be unclear all the while, but CPU time is not.
            if of("change").skip(1).all(|each| each == expected) {
                return;
            }
            unclear.push(said);
        }
        panic!("not {expected} in any of {unclear:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| is_judged("128", "256KiB", "worse"));
        is_judged("256KiB", "128", "better");
    });
}

#[test]
fn turns_need_two_servers_that_answer_as_expected() {
    let server = Server::start();
    let url = &*server.url;
    for (flags, code, words) in [
        (&["--before-pid", "4194304", url, url][..], 2, "the server's process: 4194304: "),
        (
            &["--expect-status", "404", url, url],
            1,
            "had another status than expected; the first: HTTP/1.1 200 OK); check it with: pollux load http",
        ),
        (&[url, CLOSED], 1, "the second server, http://127.0.0.1:"),
        (&[url, CLOSED], 1, "Connection refused"),
    ] {
        let said = load(&[&["turns"], flags].concat());
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(words), "{words}: {said:?}");
    }
}

#[test]
fn the_first_interrupt_ends_turns_after_a_round_and_the_second_at_once() {
    let server = Server::start();
    let flags = ["turns", "-c", "2", "-d", "1h", &server.url, &server.url];
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let load = started(&flags);
        server.answers(100);
        load.signal(signal);
        let said = Said::of(load.ended());
        let is_early = said.stderr.contains("of at least 4 sets of turns");
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(is_early != said.stdout.starts_with("figure"), "{said:?}");
    }
    // It never answers, so that a round takes as long as a request may.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("bound"));
    let mut load = started(&["turns", "-c", "1", "--timeout", "1h", &url, &url]);
    let _asked = silent.accept().expect("it connects");
    interrupt_until_it_ends(&mut load);
    assert_eq!(load.wait().code(), Some(130));
}

#[test]
fn pairs_of_runs_on_nginx_are_compared_with_its_cpu_time() {
    if !has("nginx") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("page"), "hello").expect("written");
    let nginx = Nginx::start(folder.path());
    let pid = nginx.pid().to_string();
    let files: Vec<String> =
        (0..6).map(|number| path(folder.path(), &format!("{number}.json"))).collect();
    for file in &files {
        load_well(
            &[
                &["-c", "2", "-n", "2000", "--warm-up", "0s", "-q", "--server-pid", &pid][..],
                &["--unix", &nginx.socket, "--json", file, "http://localhost/page"],
            ]
            .concat(),
        );
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = load(&[&["compare", "--json"][..], &files].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let found = said.json();
    assert_eq!(found["pairs"], 3);
    let rows = found["rows"].as_array().expect("rows");
    let figures: Vec<_> = rows.iter().map(|row| row["figure"].as_str().expect("a name")).collect();
    let all = ["rate", "mean", "p50", "p90", "p99", "p99.9", "server CPU", "generator CPU"];
    assert_eq!(figures, all);
    assert!(rows.iter().all(|row| row["interval"].is_array()), "{found:#}");
    // The same pair turned around has the changes turned around.
    let [there, back] = [[files[0], files[1]], [files[1], files[0]]].map(|pair| {
        let said = load(&["compare", "--json", pair[0], pair[1]]);
        said.json()["rows"][0]["ratio"].as_f64().expect("a ratio")
    });
    assert!((there * back - 1.0).abs() < 1e-9, "{there} {back}");
    let table = load(&["compare", files[0], files[1]]);
    assert!(table.stdout.contains("3 pairs and more, run in turns"), "{table:?}");
}

#[test]
fn a_server_that_got_slower_is_worse() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<String> =
        (0..8).map(|number| path(folder.path(), &format!("{number}.json"))).collect();
    for (number, file) in files.iter().enumerate() {
        // What a responder waits is far longer than a busy machine takes for an answer, and so is what it waits more.
        let quick = |_| Duration::from_millis(20);
        let slow = |_| Duration::from_millis(200);
        let responder = Responder::start(8, if number % 2 == 1 { slow } else { quick });
        let said = load(&["-c", "8", "-n", "40", "-q", "--json", file, &responder.url]);
        // With findings where the machine held the generator itself up.
        assert!(matches!(said.code, Some(0 | 3)), "{said:?}");
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = load(&[&["compare", "--gate"][..], &files].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    let row = said.stdout.lines().find(|line| line.starts_with("p50")).expect("a row");
    assert!(row.contains("times [") && row.ends_with("worse"), "{said:?}");
    let reason = said.stderr.lines().last().expect("a reason");
    assert!(reason.starts_with("--gate: ") && reason.contains(" times ["), "{reason}");
    assert!(
        reason.contains("; a change that is certain fails; ") && reason.ends_with(" worse too"),
        "{reason}"
    );
    let turned: Vec<&str> = files.iter().rev().copied().collect();
    let said = load(&[&["compare", "--gate"][..], &turned].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn parts_of_one_load_are_added_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = path(folder.path(), "one.json");
    let two = path(folder.path(), "two.json");
    let server = Server::start();
    let merged_after = |time: &str| {
        let run = |file: &str, connections: &str| {
            let flags = ["-d", time, "--warm-up", "0s", "--think", "5ms", "-q", "-c", connections];
            started(&[&flags[..], &["--json", file, &server.url]].concat())
        };
        for part in [run(&one, "2"), run(&two, "3")] {
            let said = Said::of(part.ended());
            assert_eq!(said.code, Some(0), "{said:?}");
        }
        load(&["merge", &one, &two, "--json", "-"])
    };
    // Processes that don't start at the same time have to run for longer.
    let mut merged = ["300ms", "1s", "4s", "16s"].into_iter().map(merged_after);
    let said = merged.find(|said| !said.stderr.contains("at the same time for"));
    let said = said.expect("runs at the same time");
    let of = |file: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(file).expect("a result")).expect("JSON")
    };
    assert_eq!(said.code, Some(0), "{said:?}");
    let sum = said.json();
    let count = |result: &Value| result["latency"]["count"].as_u64().expect("a count");
    assert_eq!(count(&sum), count(&of(&one)) + count(&of(&two)));
    assert_eq!(sum["setting"]["connections"], 5);
    // What is added up can be added up and shown again.
    let both = path(folder.path(), "both.json");
    let page = path(folder.path(), "both.html");
    let said = load(&["merge", &one, &two, "--json", &both, "--html", &page]);
    assert!(said.stdout.contains("5 connections, 2 threads"), "{said:?}");
    assert!(fs::read_to_string(&page).expect("a page").contains("</html>"));
    let said = load(&["compare", &both, &one]);
    assert!(
        said.code == Some(2) && said.stderr.contains("different loads: connections"),
        "{said:?}"
    );
    let said = load(&["compare", "--across", &both, &one]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn what_is_not_a_result_is_refused_with_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = path(folder.path(), "good.json");
    let server = Server::start();
    load_well(&["-c", "1", "-n", "10", "-q", "--json", &good, &server.url]);
    let nothing = path(folder.path(), "nothing.json");
    let url = "http://127.0.0.1:1/";
    assert_ne!(load(&["-c", "1", "-n", "1", "-q", "--json", &nothing, url]).code, Some(0));
    let spoiled = path(folder.path(), "spoiled.json");
    let old = path(folder.path(), "old.json");
    fs::write(&spoiled, "{\"schema\": \"pollux-load-outcome\", \"version\": 4}").expect("written");
    fs::write(&old, "{\"schema\": \"pollux-load-outcome\", \"version\": 3}").expect("written");
    let missing = path(folder.path(), "missing.json");
    for (words, code, says) in [
        (
            &["compare", &good, &spoiled][..],
            1,
            "spoiled.json: not a result of pollux load: missing field",
        ),
        (&["compare", &good, &old], 1, "old.json: version 3 has no histograms; run the load again"),
        (&["compare", &good, &missing], 1, "missing.json: No such file"),
        (&["compare", "--across", &good, &nothing], 2, "the result after has no answers"),
        (&["compare", &good, &good], 2, "before and after are the same run; expected two"),
        (&["compare", &good, &good, &good], 2, "3 results; expected pairs"),
        (&["compare", &good, &good, &good, &good], 2, "2 pairs; expected one, or 3 and more"),
        (&["merge", &good, &spoiled], 1, "spoiled.json: "),
        (&["merge", &good], 2, "2 values required"),
    ] {
        let said = load(words);
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert!(said.stderr.contains(says), "{words:?}: {said:?}");
    }
    let own = std::process::id().to_string();
    let said = load(&["-n", "1", "--server-pid", &own, &server.url]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("one of those that it started; give the"), "{said:?}");
    let said = load(&["-n", "1", "--server-pid", "4194304", &server.url]);
    assert!(
        said.code == Some(2) && said.stderr.contains("process 4194304 can't be observed"),
        "{said:?}"
    );
}

#[test]
fn a_rate_that_holds_is_found_and_every_trial_is_kept() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("capacity.json");
    let name = file.to_str().expect("UTF-8");
    let flags = ["--find-capacity", "--slo", "p50=2s", "--trial", "200ms", "-c", "8"];
    let said = load(&[&flags[..], &["--json", name, &server.url]].concat());
    // A busy machine may make the generator the bottleneck; the search ends all the same.
    assert!(matches!(said.code, Some(0 | 3)), "{said:?}");
    for words in ["p50 at most 2.00 s", "asked/s", "capacity:"] {
        assert!(said.stdout.contains(words), "no {words} in {}", said.stdout);
    }
    let json: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    let trials = json["trials"].as_array().expect("trials");
    assert!(trials.len() >= 4, "{json}");
    let lines =
        said.stdout.lines().filter(|line| line.contains("  holds") || line.contains("fails"));
    assert!(lines.count() >= trials.len(), "{}", said.stdout);
    let held = |trial: &&Value| trial["broken_by"].is_null();
    let highest = trials.iter().filter(held).filter_map(|trial| trial["rate_per_s"].as_f64());
    let highest = highest.fold(0.0, f64::max);
    let found = json["highest_holding_per_s"].as_f64().unwrap_or_default();
    assert!(found > 0.0 && found <= highest, "{found} of {highest}");
}

#[test]
fn a_search_has_a_page_with_its_trials() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let page = path(folder.path(), "capacity.html");
    let flags = ["--find-capacity", "--slo", "p50=2s", "--trial", "200ms", "-c", "8", "-q"];
    let said = load(&[&flags[..], &["--html", &page, &server.url]].concat());
    assert!(matches!(said.code, Some(0 | 3)), "{said:?}");
    let page = fs::read_to_string(&page).expect("a page");
    for words in ["p50 at most 2.00 s", "Trials", "<svg", "</html>", "holds"] {
        assert!(page.contains(words), "no {words}: {}", said.stdout);
    }
}

/// What comes of each step stands by itself, on the terminal and on the page.
#[test]
fn the_steps_of_a_schedule_are_shown_one_by_one() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let page = path(folder.path(), "steps.html");
    let run = ["--rate", "50@1s,150@1s", "--warm-up", "0s", "-c", "8", "-q", "--html", &page];
    let said = load(&[&run[..], &[&*server.url]].concat());
    let rows: Vec<&str> =
        said.stdout.lines().filter(|line| line.contains(" to ") && line.contains(" s ")).collect();
    let [first, second] = rows[..] else { panic!("two steps: {said:?}") };
    assert!(first.contains("0 to 1 s") && first.contains(" 50"), "{first}");
    assert!(second.contains("1 to 2 s") && second.contains(" 150"), "{second}");
    let page = fs::read_to_string(&page).expect("a page");
    assert!(page.contains("Steps of the schedule") && page.contains(">asked</text>"), "{page}");
}

#[test]
fn an_objective_that_nothing_holds_is_an_exit_code() {
    let server = Server::start();
    let flags = ["--find-capacity", "--slo", "p50=1us", "--trial", "30ms", "-c", "1"];
    let said = load(&[&flags[..], &["--json", "-", "-q", &server.url]].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    assert_eq!(said.json()["highest_holding_per_s"], Value::Null);
    assert!(said.complaints().is_empty(), "{said:?}");
}

#[test]
fn without_a_server_there_is_no_search() {
    let said =
        load(&["--find-capacity", "--slo", "p99=5ms", "--trial", "2s", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("can't connect"), "{said:?}");
}
