//! `pollux serve` before `h2load` while it reads its settings anew, and while it ends.

use std::net::SocketAddr;
use std::process::Command;
use std::thread::JoinHandle;

use pollux_testing::{Signal, has, wait_for};

use crate::child::Server;
use crate::daemon::Served;

const REQUESTS: &str = "20000";

/// What h2load says at its end of its requests.
#[derive(Debug)]
struct Load {
    total: u64,
    started: u64,
    succeeded: u64,
}

/// Has h2load ask; what it said.
fn load(address: SocketAddr, flags: &[&str]) -> JoinHandle<Load> {
    let mut command = Command::new("h2load");
    command.args(flags).arg(format!("http://{address}/"));
    std::thread::spawn(move || {
        let output = command.output().expect("it was found");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find_map(|line| line.strip_prefix("requests: "));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [total, started, _, succeeded, ..] = numbers[..] else { panic!("{said}") };
        Load { total, started, succeeded }
    })
}

#[test]
fn no_request_fails_while_settings_are_read_anew() {
    if !has("h2load") {
        return;
    }
    for driver in ["epoll-et", "uring"] {
        for streams in ["1", "16"] {
            let settings = |bytes: u32| format!("reply = {bytes}\npoller = \"{driver}\"\n");
            let served = Served::start(&settings(128));
            let flags = ["-n", REQUESTS, "-c", "64", "-m", streams];
            let load = load(served.address, &flags);
            let mut reloads = 0_u32;
            while !load.is_finished() {
                reloads += 1;
                served.write(&settings(128 + reloads % 2));
                served.signal(Signal::HUP);
                wait_for("a reload", || {
                    let (_, body) = served.connect().get("/");
                    (body.len() == 128 + reloads as usize % 2).then_some(())
                });
            }
            let load = load.join().expect("it ends");
            println!("{driver}: {streams} streams, {reloads} times: {load:?}");
            assert_eq!((load.total, load.succeeded), (20_000, 20_000), "{load:?}");
            served.end();
        }
    }
}

#[test]
fn a_server_that_is_ended_answers_every_request_that_was_begun() {
    if !has("h2load") {
        return;
    }
    for driver in ["epoll-et", "uring"] {
        for streams in ["1", "16"] {
            let folder = tempfile::tempdir().expect("a folder");
            let log = folder.path().join("log");
            let flags = ["--reply", "128", "--access-log", log.to_str().expect("a plain path")];
            let Some(server) = Server::start(driver, &flags) else { continue };
            // More than it will answer before it ends.
            let load = load(server.address, &["-n", "9000000", "-c", "64", "-m", streams]);
            server.await_that("thousands of answers", |now| now.sum("http_answers_total") > 5000);
            server.end();
            let load = load.join().expect("it ends");
            // h2load opens no connection anew, and counts what it would have sent next as begun. What has reached the server
            // stands in its log.
            let log = std::fs::read_to_string(&log).expect("a log");
            let answered = log.lines().filter(|line| line.ends_with("\" 200 128")).count() as u64;
            println!("{driver}: {streams} streams: {load:?}, {answered} in the log");
            assert!(answered > 5000 && load.started < load.total, "{load:?}");
            assert_eq!(log.lines().count() as u64, answered, "only those");
            assert_eq!(load.succeeded, answered, "{load:?}");
        }
    }
}
