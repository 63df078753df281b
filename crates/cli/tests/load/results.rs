//! Results that were written are compared and added up.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use pollux_testing::{Signal, has, wait_until};
use serde_json::Value;

use crate::endings::closed_port;
use crate::figures::Responder;
use crate::{Nginx, Said, Server, interrupt_until_it_ends, load, load_well, started};

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a plain name").to_owned()
}

#[test]
fn two_servers_in_turns_are_distinguished_in_both_orders() {
    let (light, heavy) =
        (Server::start(), Server::start_with(&["--reply", "256KiB", "--listen", "127.0.0.1:0"]));
    let pids = [&light, &heavy].map(Server::id);
    let run = ["turns", "-c", "4", "-d", "1ms", "--gate", "--json", "-"];
    let told = |before: usize, after: usize| {
        let urls = [&*light.url, &*heavy.url];
        let pids = ["--before-pid", &pids[before], "--after-pid", &pids[after]];
        load(&[&run[..], &pids, &[urls[before], urls[after]]].concat())
    };
    let worse = told(0, 1);
    assert_eq!(worse.code, Some(3), "{worse:?}");
    let rows = worse.json()["rows"].as_array().expect("rows").clone();
    let figures: Vec<&str> =
        rows.iter().map(|row| row["figure"].as_str().expect("a name")).collect();
    assert_eq!(figures, ["mean", "server CPU", "generator CPU"]);
    assert!(rows.iter().all(|row| row["change"] == "worse"), "{worse:?}");
    let better = told(1, 0);
    assert!(better.code == Some(0) && better.json()["rows"][1]["change"] == "better", "{better:?}");
}

#[test]
fn turns_need_two_urls_that_answer_and_no_flag_of_another_kind_of_load() {
    let server = Server::start();
    let url = &*server.url;
    for (flags, code, told) in [
        (&[url][..], 2, "1 URL given; expected two: of the server before, and of the one after"),
        (&[url, url, url], 2, "3 URLs given; expected two"),
        (&["--rate", "5", url, url], 2, "--rate: it is of no use in turns"),
        (&["--html", "x", url, url], 2, "--html: it is of no use in turns"),
        (&["--before-pid", "4194304", url, url], 2, "the server's process: 4194304: "),
        (&["--expect-status", "404", url, url], 1, "of a turn, or answered them wrongly; expected"),
        (&[url, &closed_port()], 1, "the second server, http://127.0.0.1:"),
    ] {
        let said = load(&[&["turns"], flags].concat());
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(told), "{told}: {said:?}");
    }
}

#[test]
fn the_first_interrupt_ends_turns_after_a_round_and_the_second_at_once() {
    let server = Server::start();
    let flags = ["turns", "-c", "2", "-d", "1h", &server.url, &server.url];
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let load = started(&flags);
        let before = server.requests();
        // It catches signals before it asks for anything.
        wait_until("requests", || server.requests() >= before + 100);
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
                &["-c", "2", "-d", "150ms", "--warm-up", "0s", "-q", "--server-pid", &pid][..],
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
    let server = Server::start();
    let files: Vec<String> =
        (0..10).map(|number| path(folder.path(), &format!("{number}.json"))).collect();
    for (number, file) in files.iter().enumerate() {
        // Slower by what a responder waits: 2 ms and more.
        let responder = (number % 2 == 1).then(|| Responder::start(2));
        let url = responder.as_ref().map_or(&*server.url, |responder| &*responder.url);
        load_well(&["-c", "2", "-n", "100", "-q", "--json", file, url]);
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = load(&[&["compare", "--gate"][..], &files].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    let row = said.stdout.lines().find(|line| line.starts_with("p50")).expect("a row");
    assert!(row.contains("times [") && row.ends_with("worse"), "{said:?}");
    let turned: Vec<&str> = files.iter().rev().copied().collect();
    let said = load(&[&["compare", "--gate"][..], &turned].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn parts_of_one_load_are_added_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (path(folder.path(), "one.json"), path(folder.path(), "two.json"));
    let server = Server::start();
    let run = |file: &str, connections: &str| {
        let flags = [
            "-c",
            connections,
            "-d",
            "500ms",
            "--warm-up",
            "0s",
            "-q",
            "--json",
            file,
            &server.url,
        ];
        started(&flags)
    };
    for part in [run(&one, "2"), run(&two, "3")] {
        let said = Said::of(part.ended());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let of = |file: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(file).expect("a result")).expect("JSON")
    };
    let said = load(&["merge", &one, &two, "--json", "-"]);
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
    let (spoiled, old) = (path(folder.path(), "spoiled.json"), path(folder.path(), "old.json"));
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

// The search for the capacity, with trials far too short for a result to be believed.

#[test]
fn a_rate_that_holds_is_found_and_every_trial_is_kept() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("capacity.json");
    let name = file.to_str().expect("UTF-8");
    let flags = ["--find-capacity", "--slo", "p50=2s", "--trial", "100ms", "-c", "8"];
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
fn an_objective_that_nothing_holds_is_an_exit_code() {
    let server = Server::start();
    let flags = ["--find-capacity", "--slo", "p50=1us", "--trial", "30ms", "-c", "1"];
    let said = load(&[&flags[..], &["--json", "-", "-q", &server.url]].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    assert_eq!(said.json()["highest_holding_per_s"], Value::Null);
    assert_eq!(said.stderr, "");
}

#[test]
fn without_a_server_there_is_no_search() {
    let said =
        load(&["--find-capacity", "--slo", "p99=5ms", "--trial", "2s", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("can't connect"), "{said:?}");
}
