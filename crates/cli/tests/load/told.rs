//! What a run that failed says: the reason in words, at once, and what to do.

use std::io::BufReader;

use rustix::process::{Pid, Signal, kill_process};

use crate::endings::nobody;
use crate::run::{Server, load, read_until, started, text_of};

#[test]
fn a_server_that_is_not_there_is_told_at_once_and_not_after_the_warm_up() {
    let said = load(&["-d", "60s", "--warm-up", "60s", "-c", "4", &nobody()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("Connection refused"), "{said:?}");
    assert!(!said.stderr.contains("/s  p50"), "a second went by: {said:?}");
}

#[test]
fn a_server_without_tls_is_named_as_that() {
    let server = Server::start();
    let url = server.url.replace("http:", "https:");
    let said = load(&["-d", "60s", "--warm-up", "60s", "-c", "4", "--insecure", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("does not speak TLS (is it http://?)"), "{said:?}");
}

#[test]
fn a_source_that_is_not_ours_is_not_called_a_port_that_is_missing() {
    let said = load(&["-n", "1", "--source", "192.0.2.1", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("192.0.2.1 is not an address of this machine"), "{said:?}");
}

#[test]
fn an_interrupt_in_the_warm_up_is_called_that() {
    let server = Server::start();
    let mut load = started(&["-d", "60s", "--warm-up", "60s", "-c", "2", &server.url]);
    let mut stderr = BufReader::new(load.stderr.take().expect("piped"));
    read_until(&mut stderr, "1.0 s");
    kill_process(Pid::from_child(&load), Signal::INT).expect("it runs");
    let said = text_of(load.stdout.take().expect("piped"));
    assert_eq!(load.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.contains("ended in its warm-up"), "{said}");
    assert!(!said.contains("longer time"), "{said}");
}

#[test]
fn an_objective_judges_every_run() {
    let server = Server::start();
    let run = ["-n", "2000", "-c", "2", "-q"];
    let missed = load(&[&run[..], &["--slo", "p50=1us", &server.url]].concat());
    assert_eq!(missed.code, Some(3), "{missed:?}");
    assert!(missed.stdout.contains("p50 at most 1.00 µs"), "{missed:?}");
    for (objective, code, is_held) in [("p50=1us", Some(3), false), ("p99=9s", Some(0), true)] {
        let said = load(&[&run[..], &["--slo", objective, "--json", "-", &server.url]].concat());
        let json = said.json();
        assert_eq!((said.code, &json["objective"]["is_held"]), (code, &is_held.into()), "{said:?}");
    }
    let html = load(&[&run[..], &["--slo", "p99=9s", "--html", "-", &server.url]].concat());
    assert!(html.stdout.contains("p99 at most 9.00 s"), "{html:?}");
}
