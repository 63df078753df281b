//! Each kind of error, that a request is counted once, and plans that are refused before anything is opened.

use std::net::TcpListener;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{Arrival, Errors, FindingKind, Load, Outcome, Pace, Plan, Stage, Target};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use crate::{OK, Peer, Server, is_sound, on_every_driver, plan};

/// Every one of ten requests fails in the same way.
fn all_fail(
    conduct: impl Fn(Peer) + Send + Sync + 'static,
    change: impl Fn(&mut Plan),
    expected: Errors,
    answered: u64,
) {
    let server = Server::start(conduct);
    let make = |driver: Driver| {
        let mut plan = plan(driver, &server.url("/"), 2, 10);
        change(&mut plan);
        plan
    };
    on_every_driver(make, |outcome| {
        is_sound(outcome);
        let at = &outcome.setting.driver;
        assert_eq!((outcome.errors, outcome.totals.answered), (expected, answered), "{at}");
        assert_eq!((outcome.totals.due, outcome.totals.sent), (10, 10), "{at}");
    });
}

#[test]
fn a_server_that_resets() {
    let conduct = |mut peer: Peer| {
        peer.request();
        peer.reset();
    };
    all_fail(conduct, |_| {}, Errors { reset: 10, ..Errors::default() }, 0);
}

#[test]
fn a_server_that_ends_in_the_middle_of_its_answer() {
    let conduct = |mut peer: Peer| {
        peer.request();
        peer.send(&OK[..OK.len() - 2]);
    };
    all_fail(conduct, |_| {}, Errors { short: 10, ..Errors::default() }, 0);
}

#[test]
fn a_server_that_ends_before_its_answer() {
    let conduct = |mut peer: Peer| drop(peer.request());
    all_fail(conduct, |_| {}, Errors { short: 10, ..Errors::default() }, 0);
}

#[test]
fn a_server_that_speaks_no_http() {
    let conduct = |mut peer: Peer| peer.answer_all(b"220 mail at your service\r\n\r\n");
    all_fail(conduct, |_| {}, Errors { malformed: 10, ..Errors::default() }, 0);
}

#[test]
fn a_server_that_never_answers() {
    let conduct = |mut peer: Peer| peer.stay_silent();
    let change = |plan: &mut Plan| plan.request_timeout = Duration::from_millis(20);
    all_fail(conduct, change, Errors { timeout: 10, ..Errors::default() }, 0);
}

#[test]
fn answers_with_a_wrong_status_are_answers() {
    const WRONG: &[u8] = b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n";
    let conduct = |mut peer: Peer| peer.answer_all(WRONG);
    all_fail(conduct, |_| {}, Errors { status: 10, ..Errors::default() }, 10);
}

#[test]
fn answers_of_another_length_are_answers() {
    let conduct = |mut peer: Peer| peer.answer_all(OK);
    let change = |plan: &mut Plan| plan.expect.body_bytes = Some(6);
    all_fail(conduct, change, Errors { mismatch: 10, ..Errors::default() }, 10);
}

#[test]
fn an_answer_that_nobody_asked_for() {
    let server = Server::start(|mut peer| peer.answer_all(&[OK, OK].concat()));
    on_every_driver(
        |driver| plan(driver, &server.url("/"), 1, 10),
        |outcome| assert!(outcome.errors.malformed > 0, "{:?}", outcome.errors),
    );
}

fn has_no_answers(outcome: &Outcome) -> bool {
    outcome.findings.first().is_some_and(|found| found.kind == FindingKind::NoAnswers)
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    on_every_driver(
        |driver| plan(driver, &url, 2, 6),
        |outcome| {
            assert_eq!(outcome.errors, Errors { connect: 6, ..Errors::default() });
            assert_eq!((outcome.totals.due, outcome.totals.sent), (6, 0));
            assert!(has_no_answers(outcome), "{:?}", outcome.findings);
        },
    );
}

#[test]
fn a_backlog_that_is_full_lets_connects_time_out() {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&listener, &std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0)).expect("bound");
    listen(&listener, 0).expect("listens");
    let address = getsockname(&listener).expect("an address");
    let address = std::net::SocketAddr::try_from(address).expect("of TCP");
    let _full = std::net::TcpStream::connect(address).expect("the one that there is room for");
    on_every_driver(
        |driver| {
            let mut plan = plan(driver, &format!("http://{address}/"), 1, 2);
            plan.connect_timeout = Duration::from_millis(30);
            plan
        },
        |outcome| assert_eq!(outcome.errors, Errors { timeout: 2, ..Errors::default() }),
    );
}

type Change = fn(&mut Plan);

const WRONG: [(&str, Change); 15] = [
    ("URL", |plan| plan.targets.clear()),
    ("URL", |plan| plan.targets[0].weight = 0),
    ("URL", |plan| plan.targets.push(Target::parse("http://127.0.0.2:1/", None).expect("a URL"))),
    ("URL", |plan| {
        plan.targets.push(Target::parse("https://127.0.0.1:1/", None).expect("a URL"));
    }),
    ("request", |plan| plan.targets[0].fields.push(("A B".into(), "c".into()))),
    ("--threads", |plan| plan.threads = 0),
    ("--connections", |plan| plan.connections = 0),
    ("--connections", |plan| plan.crowd.dead = u32::MAX / 2),
    ("--pipeline", |plan| plan.pipeline = 0),
    ("--duration", |plan| plan.end.requests = None),
    ("--timeout", |plan| plan.request_timeout = Duration::ZERO),
    ("--think", |plan| {
        plan.pipeline = 2;
        plan.think_time = Duration::from_secs(1);
    }),
    ("--source", |plan| plan.sources.push("::1".parse().expect("an address"))),
    ("--rate", |plan| {
        let stage = Stage { from_per_s: f64::NAN, to_per_s: 1.0, lasts: None };
        plan.pace = Pace::Open { arrival: Arrival::Constant, stages: vec![stage] };
    }),
    ("--rate", |plan| {
        let stage = Stage { from_per_s: 9.0, to_per_s: 0.0, lasts: Some(Duration::from_secs(1)) };
        plan.pace = Pace::Open { arrival: Arrival::Constant, stages: vec![stage] };
    }),
];

#[test]
fn plans_without_sense_are_refused() {
    for (number, (what, change)) in WRONG.iter().enumerate() {
        let mut plan = plan("poll".parse().expect("a driver"), "http://127.0.0.1:1/", 1, 1);
        change(&mut plan);
        let error = Load::start(plan).expect_err(what).to_string();
        assert!(error.starts_with(&format!("{what}: ")), "{number}: {error}");
    }
}

#[test]
fn a_thread_that_cannot_begin_ends_the_others() {
    let mut plan = plan("poll".parse().expect("a driver"), "http://127.0.0.1:1/", 2, 1);
    plan.threads = 2;
    plan.cpus = Some("0,1023".parse().expect("a list"));
    let error = Load::start(plan).expect_err("there is no such CPU").to_string();
    assert!(error.starts_with("--cpus: "), "{error}");
}
