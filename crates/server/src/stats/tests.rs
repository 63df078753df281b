//! What the endpoints show, from counters that were set by hand.

use std::time::Duration;

use pollux_engine::{CloseCause, Now, Rehearsal};
use pollux_http::{Method, Status};
use pollux_poller::Mechanism;

use super::*;
use crate::counters::ServerCounter;
use crate::{HttpSession, Shared};

fn overview(with_poller: bool) -> Arc<Overview> {
    let source = |requests: usize| {
        let server = ServerCounters::default();
        for _ in 0..requests {
            server.count_request(Method::Get);
            server.count_answer(Status::OK);
        }
        server.add(ServerCounter::TimeoutsIdle, 2);
        server.times().record(1500);
        let poller = with_poller.then(Arc::default);
        LoopSource { engine: Arc::default(), poller, server: Arc::new(server), proxy: None }
    };
    let descriptors = || Ok(vec![vec!["fd 5 readable".to_owned(); 3000], Vec::new()]);
    Arc::new(Overview {
        backends: Arc::default(),
        passing: None,
        started: Instant::now(),
        driver: Driver::Readiness(Mechanism::EpollEt),
        facts: vec![("listen".to_owned(), "127.0.0.1:1".to_owned())].into(),
        notes: Vec::new(),
        loops: vec![source(3), source(4)],
        descriptors: Box::new(descriptors),
        supervised: Supervised::default(),
    })
}

fn ask(play: &mut Rehearsal<ControlSession>, line: &str) -> String {
    play.feed(line.as_bytes());
    String::from_utf8(play.take_output()).expect("text")
}

fn control() -> Rehearsal<ControlSession> {
    Rehearsal::new(ControlShared::new(overview(true)), Now::default())
}

/// Help and type stand before the lines of each family, once, and every line has a value. Help
/// is a phrase, without a full stop, and names the unit of a family that has one.
fn check_format(page: &str) {
    let mut families: Vec<&str> = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a help text");
            assert!(!families.contains(&name) && !help.is_empty(), "{line}");
            assert!(!help.ends_with('.'), "{line}");
            let help = help.to_lowercase();
            assert_eq!(name.contains("_seconds"), help.contains("seconds"), "{line}");
            assert!(!help.contains("nanoseconds"), "{line}");
            families.push(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split(' ').next(), families.last().copied(), "{line}");
        } else if !line.starts_with('#') {
            let family = families.last().expect("a family first");
            assert!(line.starts_with(family), "{line} after {family}");
            let (_, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[test]
fn metrics_are_well_formed_and_live() {
    let page = metrics(&overview(true));
    check_format(&page);
    for line in [
        "pollux_http_requests_total{loop=\"0\",method=\"get\"} 3",
        "pollux_http_answers_total{loop=\"1\",class=\"2xx\"} 4",
        "pollux_http_timeouts_idle_total{loop=\"0\"} 2",
        "pollux_loops{poller=\"epoll-et\"} 2",
        "pollux_poller_waits_total{loop=\"1\"} 0",
        "pollux_poller_events_per_wait_bucket{loop=\"0\",le=\"+Inf\"} 0",
        "pollux_loop_work_seconds_total{loop=\"0\"} 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in\n{page}");
    }
}

#[test]
fn a_loop_without_a_poller_says_so_instead_of_zero() {
    let page = metrics(&overview(false));
    check_format(&page);
    assert!(page.contains("# pollux_poller_*: n/a") && !page.contains("pollux_poller_waits"));
    assert!(activity(&overview(false)).contains("n/a (the completion loop has no poller)"));
}

#[test]
fn the_metrics_endpoint_answers_only_for_its_page() {
    let mut play: Rehearsal<HttpSession> =
        Rehearsal::new(Shared::for_metrics(overview(true)), Now::default());
    play.feed(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = String::from_utf8(play.take_output()).expect("text");
    assert!(answer.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    check_format(body);
    play.feed(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(play.take_output().starts_with(b"HTTP/1.1 404 "));
    play.feed(b"POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(play.take_output().starts_with(b"HTTP/1.1 405 "));
}

#[test]
fn commands_are_answered_one_by_one() {
    let mut play = control();
    let answers = ask(&mut play, "show  info\r\nshow activity\n");
    assert!(answers.contains("poller: epoll-et\nloops: 2\nlisten: 127.0.0.1:1\n\n"), "{answers}");
    let row = answers.lines().find(|line| line.starts_with("requests get")).expect("a row");
    assert_eq!(row.split_whitespace().skip(2).collect::<Vec<_>>(), ["7", "3", "4"]);
    assert!(!answers.contains("requests post"));
    assert!(ask(&mut play, "quit\n").is_empty());
    assert_eq!(play.closed(), Some(CloseCause::Session));
}

#[test]
fn a_long_answer_comes_whole_before_the_next() {
    let mut play = control();
    let answer = ask(&mut play, "show fd\nhelp\n");
    assert!(answer.starts_with("loop 0: 3000 descriptors\n  fd 5 readable\n"));
    assert!(answer.contains("loop 1: 0 descriptors\n\ncommands:\n"));
}

#[test]
fn an_idle_client_is_closed_but_not_in_the_middle_of_an_answer() {
    let mut play = control();
    play.stall();
    play.feed(b"show fd\n");
    play.pass(Duration::from_secs(301));
    assert_eq!(play.closed(), None);
    play.flow();
    assert!(play.take_output().ends_with(b"loop 1: 0 descriptors\n\n"));
    play.pass(Duration::from_secs(301));
    assert_eq!(play.closed(), Some(CloseCause::Session));
}

#[test]
fn what_is_not_understood_is_answered_with_help() {
    let mut play = control();
    let answer = ask(&mut play, "show errors\u{1b}[2J\n");
    assert!(answer.starts_with("unknown command \"show errors[2J\"\ncommands:\n"), "{answer}");
    assert!(ask(&mut play, &"x".repeat(2000)).contains("at most 1024"));
    assert_eq!(play.closed(), Some(CloseCause::Session));
}
