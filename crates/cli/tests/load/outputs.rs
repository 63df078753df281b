//! Every form of a result, read by what reads it in earnest.

use std::fs;
use std::path::Path;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

use crate::run::{Server, command, load, load_well};

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
