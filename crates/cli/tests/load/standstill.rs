//! Servers that stand still, or never answer: how long, what it costs, and which side is the cause.
//!
//! A stop is a real `SIGSTOP` of a server's process, or a server in the test that answers only
//! while it is allowed to. Bounds below are those of what was done; none above are needed but those
//! that show that a run ended by itself and not by a time limit.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use pollux_testing::Signal;
use serde_json::Value;

use crate::{Said, Server, kinds, load, started, wait};

/// How long servers are stopped here.
const STOP: Duration = Duration::from_millis(1_200);
/// What a clock of twentieths of a second and the way to the server may take off it.
const SLACK_S: f64 = 0.2;
/// Runs until one has a CPU of its own while a server stands still.
const TRIES: u32 = 5;

/// Users who think leave the CPUs to the runs beside.
const CLOSED: &[&str] = &["-c", "4", "--think", "10ms"];
const OPEN: &[&str] = &["-c", "4", "--rate", "200"];

/// Runs at both paces at the same time, each beside a server of its own: nearly all of it is waiting.
fn at_both_paces<S>(server: impl Fn() -> S + Sync, run: impl Fn(&S, &[&str]) + Sync) {
    std::thread::scope(|scope| {
        for pace in [CLOSED, OPEN] {
            scope.spawn(|| run(&server(), pace));
        }
    });
}

fn max_s(json: &Value) -> f64 {
    json["latency"]["max_ns"].as_f64().expect("a longest latency") / 1e9
}

/// Exit code 3, the finding with its seconds, and the longest latency of a request that waited. A run
/// that lost its own CPU says so and counts less; only such a one is tried again.
#[expect(clippy::print_stdout, reason = "a run that is tried again says why")]
fn is_reported(least: Duration, mut run: impl FnMut() -> Said) {
    for left in (0..TRIES).rev() {
        let said = run();
        let json = said.json();
        let stalls = json["generator"]["stalls"].as_array().expect("stalls");
        match missing(&said, &json, least.as_secs_f64() - SLACK_S) {
            None => return,
            Some(what) if left > 0 && !stalls.is_empty() => {
                println!("once more, for the generator was away ({stalls:?}): {what}");
            }
            Some(what) => panic!("{what}: {said:?}"),
        }
    }
}

/// What a run beside a server that stood still for `least_s` does not report.
fn missing(said: &Said, json: &Value, least_s: f64) -> Option<String> {
    let lasted_s = json["standstills"][0]["lasted_s"].as_f64().unwrap_or(0.0);
    let words = "nothing was answered for ";
    if !kinds(json).contains(&"outage") {
        Some("no finding".to_owned())
    } else if said.code != Some(3) {
        Some(format!("exit code {:?}", said.code))
    } else if lasted_s < least_s {
        Some(format!("still for {lasted_s} s, not {least_s}"))
    } else if max_s(json) < least_s {
        Some(format!("a longest latency of {} s", max_s(json)))
    } else if !said.stderr.contains(words) {
        Some(format!("no \"{words}\""))
    } else {
        None
    }
}

/// Stops `server` soon after the start of a load, for [`STOP`].
fn stopped(server: &Server, flags: &[&str]) -> Said {
    let load = started(&[flags, &["--json", "-", &server.url]].concat());
    server.answers(20);
    server.signal(Signal::STOP);
    wait(STOP);
    server.signal(Signal::CONT);
    Said::of(load.ended())
}

/// Servers that stand still at four moments of a run, all at the same time.
#[test]
fn a_server_that_stood_still_is_a_finding_with_seconds() {
    std::thread::scope(|scope| {
        for moment in [in_the_middle, from_the_warm_up_on, before_the_start, over_the_end] {
            scope.spawn(move || at_both_paces(Server::start, moment));
        }
        scope.spawn(in_the_middle_on_two_threads);
    });
}

fn in_the_middle(server: &Server, pace: &[&str]) {
    let flags = [pace, &["-d", "2500ms", "--warm-up", "0s"]].concat();
    is_reported(STOP, || stopped(server, &flags));
}

fn from_the_warm_up_on(server: &Server, pace: &[&str]) {
    let flags = [pace, &["-d", "1500ms", "--warm-up", "1s"]].concat();
    is_reported(STOP, || stopped(server, &flags));
}

fn before_the_start(server: &Server, pace: &[&str]) {
    let flags = [pace, &["-d", "1s", "--warm-up", "1s", "--json", "-", &server.url]].concat();
    is_reported(Duration::from_secs(1), || {
        server.signal(Signal::STOP);
        let mut load = started(&flags);
        load.wait_for_stderr_line("1.0 s");
        server.signal(Signal::CONT);
        Said::of(load.ended())
    });
}

fn over_the_end(server: &Server, pace: &[&str]) {
    let flags = [pace, &["-d", "1500ms", "--warm-up", "0s", "--json", "-", &server.url]].concat();
    is_reported(Duration::from_secs(1), || {
        let load = started(&flags);
        server.answers(20);
        server.signal(Signal::STOP);
        let said = Said::of(load.ended());
        server.signal(Signal::CONT);
        assert!(said.json()["unanswered"]["count"].as_u64() >= Some(1), "{said:?}");
        said
    });
}

fn in_the_middle_on_two_threads() {
    let server = Stoppable::start(usize::MAX);
    let flags =
        [CLOSED, &["-d", "2s", "--warm-up", "500ms", "-t", "2", "--json", "-", &server.url]];
    let flags = flags.concat();
    is_reported(STOP, || {
        let mut load = started(&flags);
        load.wait_for_stderr_line("0.5 s");
        server.answers(false);
        wait(STOP);
        server.answers(true);
        Said::of(load.ended())
    });
}

#[test]
fn a_generator_that_was_stopped_does_not_blame_the_server() {
    let server = Server::start();
    let flags = ["-d", "2s", "--warm-up", "0s", "--json", "-", &server.url];
    let load = started(&[CLOSED, &flags].concat());
    server.answers(20);
    load.signal(Signal::STOP);
    wait(STOP);
    load.signal(Signal::CONT);
    let said = Said::of(load.ended());
    let json = said.json();
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(kinds(&json).contains(&"generator-stalled"), "{said:?}");
    assert!(!kinds(&json).contains(&"outage"), "{said:?}");
}

/// Answers while it is allowed to, with a thread for each connection; those beyond `served_max` are
/// accepted and never answered.
struct Stoppable {
    url: String,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Stoppable {
    fn start(served_max: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let gate = Arc::new((Mutex::new(true), Condvar::new()));
        let inner = Arc::clone(&gate);
        // Ends with the test's process.
        std::thread::spawn(move || {
            let mut unserved = Vec::new();
            for (number, stream) in listener.incoming().flatten().enumerate() {
                if number >= served_max {
                    unserved.push(stream);
                    continue;
                }
                let gate = Arc::clone(&inner);
                std::thread::spawn(move || answer(&stream, &gate));
            }
        });
        Self { url, gate }
    }

    fn answers(&self, does: bool) {
        *self.gate.0.lock().expect("not poisoned") = does;
        self.gate.1.notify_all();
    }
}

fn answer(stream: &TcpStream, (may, changed): &(Mutex<bool>, Condvar)) {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while matches!(lines.read_line(&mut line), Ok(1..)) {
        if line == "\r\n" {
            let open = changed.wait_while(may.lock().expect("not poisoned"), |may| !*may);
            drop(open.expect("not poisoned"));
            let mut stream = stream;
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
        line.clear();
    }
}

#[test]
fn connections_that_are_never_served_neither_lower_the_rate_nor_lengthen_the_run() {
    let servers = [Stoppable::start(2), Stoppable::start(2)];
    let run = ["-d", "1s", "--warm-up", "200ms", "-c", "8", "--think", "5ms"];
    // One that waited for all answers would be killed before.
    let json = started(&[&run[..], &["--timeout", "1h", "--json", "-", &servers[0].url]].concat());
    let table = started(&[&run[..], &["-q", &servers[1].url]].concat());
    let [said, table] = [json, table].map(|load| Said::of(load.ended()));
    let json = said.json();
    let measured_s = json["measured_s"].as_f64().expect("a time");
    // Of a second; a busy machine adds to it, but not what is waited for.
    assert!((0.9..30.0).contains(&measured_s), "{said:?}");
    assert_eq!(json["unanswered"]["count"], 6, "{said:?}");
    assert!(json["waited_s"].as_f64() >= Some(0.2), "{said:?}");
    assert!(kinds(&json).contains(&"unanswered") && said.code == Some(3), "{said:?}");
    // Those that it serves were answered to the end; no more requests came on them.
    assert!(!kinds(&json).contains(&"outage"), "{said:?}");
    assert!(table.stdout.contains("never answered"), "{table:?}");
}

#[test]
fn a_duration_is_kept_on_a_server_that_never_answers() {
    at_both_paces(
        || Stoppable::start(0),
        |server, pace| {
            let began = Instant::now();
            let run = ["-d", "1500ms", "--timeout", "1h", "-q", &server.url];
            let said = load(&[pace, &run].concat());
            // Alone it takes 1.5 s; the warm-up in which nothing was answered is a part of them.
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(1_500), "{took:?}");
            assert_eq!(said.code, Some(1), "{said:?}");
            assert!(said.stdout.contains("Nothing was answered"), "{said:?}");
            assert!(!said.stdout.contains("dead connections"), "{said:?}");
        },
    );
}
