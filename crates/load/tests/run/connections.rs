//! What connections carry and where they come from: shapes of requests and answers, sources, the crowd; each kind of
//! error, that a request is counted once, and plans that are refused before anything is opened.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollux_engine::{Driver, ListenAddress};
use pollux_load::{
    Arrival, Crowd, CrowdOutcome, End, Errors, FindingKind, Load, Outcome, Pace, Plan, Stage,
    Target,
};
use pollux_testing::{Refusing, wait_until};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use crate::{
    OK, Peer, Server, at_once, delay, is_sound, on_every_driver, plan, start_unix, try_run,
};

#[test]
fn answers_of_every_framing_are_read() {
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    const UNTIL_CLOSE: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nhello";
    const INTERIM: &[u8] =
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for (answer, closes) in [(CHUNKED, false), (UNTIL_CLOSE, true), (INTERIM, false)] {
        let server = Server::start(move |mut peer| {
            if closes {
                peer.request();
                peer.send(answer);
            } else {
                peer.answer_all(answer);
            }
        });
        on_every_driver(
            |driver| plan(driver, &server.url("/"), 2, 20),
            |outcome| {
                is_sound(outcome);
                assert_eq!((outcome.totals.right, outcome.errors.total()), (20, 0));
                assert_eq!(outcome.totals.body_bytes_in, 100);
                assert_eq!(outcome.totals.bytes_in, 20 * answer.len() as u64);
            },
        );
    }
}

#[test]
fn an_answer_in_pieces_has_its_first_byte_before_its_last() {
    let server = Server::start(|mut peer| {
        let (first, second) = OK.split_at(10);
        while peer.request().is_some() && peer.send(first) {
            delay(Duration::from_millis(20));
            peer.send(second);
        }
    });
    on_every_driver(
        |driver| plan(driver, &server.url("/"), 1, 3),
        |outcome| {
            is_sound(outcome);
            let latency = outcome.latency.min_ns().expect("answers");
            let first_byte = outcome.first_byte.min_ns().expect("answers");
            assert!(latency >= 19_000_000 && first_byte < latency, "{first_byte} {latency}");
        },
    );
}

#[test]
fn the_server_says_when_a_connection_ends() {
    const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let server = Server::start(|mut peer| {
        for answer in [OK, OK, LAST] {
            if peer.request().is_none() || !peer.send(answer) {
                return;
            }
        }
    });
    on_every_driver(
        |driver| plan(driver, &server.url("/"), 1, 30),
        |outcome| {
            assert_eq!((outcome.totals.right, outcome.errors.total()), (30, 0));
            assert!((10..=11).contains(&outcome.totals.connects), "{}", outcome.totals.connects);
        },
    );
}

/// Sixteen requests are read before any is answered, and the length of each answer shows
/// to which request it belongs.
#[test]
fn pipelined_answers_belong_to_their_requests() {
    let seen: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let counted = Arc::clone(&seen);
    let server = Server::start(move |mut peer| {
        loop {
            let mut answers = Vec::new();
            for _ in 0..16 {
                let Some(head) = peer.request() else { return };
                let path = head.split(' ').nth(1).expect("a path").to_owned();
                let body: &[u8] = if path == "/short" { b"abc" } else { b"abcdefg" };
                answers.extend_from_slice(
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
                );
                answers.extend_from_slice(body);
                *counted.lock().expect("no panic").entry(path).or_default() += 1;
            }
            peer.send(&answers);
        }
    });
    on_every_driver(
        |driver| {
            seen.lock().expect("no panic").clear();
            let mut plan = plan(driver, &server.url("/short"), 1, 1_600);
            plan.pipeline = 16;
            let mut long = Target::parse(&server.url("/long"), None).expect("a URL");
            long.weight = 3;
            plan.targets.push(long);
            plan
        },
        |outcome| {
            is_sound(outcome);
            assert_eq!((outcome.totals.right, outcome.errors.total()), (1_600, 0));
            let [short, long] = &outcome.targets[..] else { panic!("two targets") };
            let seen = seen.lock().expect("no panic");
            assert_eq!((short.answered, long.answered), (seen["/short"], seen["/long"]));
            assert_eq!(outcome.totals.body_bytes_in, 3 * short.answered + 7 * long.answered);
            assert_eq!(short.latency.count() + long.latency.count(), 1_600);
            // One in four; six standard deviations of the binomial.
            assert!(short.answered.abs_diff(400) < 104, "{}", short.answered);
        },
    );
}

#[test]
fn a_request_larger_than_any_buffer_is_sent_whole() {
    const BODY: usize = 300_000;
    let server = Server::start(|mut peer| {
        while let Some(head) = peer.request() {
            assert!(head.starts_with("POST /in HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("\r\nX-One: two\r\n"), "{head}");
            let body = peer.body(BODY).expect("a body");
            assert!(body.iter().all(|byte| *byte == 7));
            peer.send(OK);
        }
    });
    on_every_driver(
        |driver| {
            let mut plan = plan(driver, &server.url("/in"), 2, 6);
            plan.targets[0].method = "POST".to_owned();
            plan.targets[0].fields.push(("X-One".to_owned(), "two".to_owned()));
            plan.targets[0].body = vec![7; BODY];
            plan.pipeline = 2;
            plan
        },
        |outcome| {
            assert_eq!((outcome.totals.right, outcome.errors.total()), (6, 0));
            assert!(outcome.totals.bytes_out > 6 * BODY as u64);
        },
    );
}

#[test]
fn unix_sockets() {
    let folder = tempfile::tempdir().expect("a folder");
    on_every_driver(
        |driver| {
            let path = folder.path().join(driver.name());
            start_unix(&path, 3, OK);
            let mut plan = plan(driver, "http://127.0.0.1/", 3, 60);
            plan.targets = vec![
                Target::parse(
                    "http://localhost/x",
                    Some(&ListenAddress::Unix(path.clone()).into()),
                )
                .expect("a URL"),
            ];
            plan
        },
        |outcome| assert_eq!((outcome.totals.right, outcome.errors.total()), (60, 0)),
    );
}

#[test]
fn connections_come_from_the_sources_in_turn() {
    let from: Arc<Mutex<BTreeMap<IpAddr, u32>>> = Arc::default();
    let seen = Arc::clone(&from);
    let server = Server::start(move |mut peer| {
        let from = peer.from.expect("TCP").ip();
        *seen.lock().expect("no panic").entry(from).or_default() += 1;
        peer.answer_all(OK);
    });
    let sources: [IpAddr; 2] = [[127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
    on_every_driver(
        |driver| {
            from.lock().expect("no panic").clear();
            let mut plan = plan(driver, &server.url("/"), 4, 40);
            plan.sources = sources.to_vec();
            plan
        },
        |outcome| {
            assert_eq!(outcome.totals.right, 40);
            let from = from.lock().expect("no panic");
            assert_eq!(sources.map(|source| from[&source]), [2, 2]);
        },
    );
}

fn kinds(crowd: &[CrowdOutcome]) -> Vec<(&'static str, u32, u32)> {
    crowd.iter().map(|kind| (kind.kind, kind.asked, kind.connected)).collect()
}

#[test]
fn they_stand_there_while_others_work() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    // A machine that is busy needs longer until a slow one has said all of its request.
    let lasts = [0.25, 1.0, 4.0, 16.0].map(Duration::from_secs_f64);
    let has_run = |driver: Driver, after: Duration| {
        let mut plan = plan(driver, &server.url("/"), 2, 1);
        plan.end = End { requests: None, after: Some(after) };
        let drip = Duration::from_millis(1);
        plan.crowd = Crowd { dead: 20, silent: 10, slow: 5, drip };
        plan.threads = 2;
        let outcome = try_run(plan)?;
        let crowd = &outcome.crowd;
        assert_eq!(kinds(crowd), [("dead", 20, 20), ("silent", 10, 10), ("slow", 5, 5)]);
        let [dead, silent, slow] = &crowd[..] else { panic!("three kinds") };
        assert_eq!((dead.answered, silent.answered), (20, 0));
        for kind in crowd {
            assert_eq!((kind.open_at_end, kind.refused), (kind.asked, 0), "{kind:?}");
        }
        assert!(outcome.totals.right > 0);
        assert_eq!((outcome.totals.connects, outcome.errors.total()), (2, 0));
        Some(slow.answered >= 1)
    };
    at_once(|driver| {
        let mut ran = lasts.into_iter().map_while(|after| has_run(driver, after)).peekable();
        let is_there = ran.peek().is_some();
        assert!(
            !is_there || ran.any(|is_answered| is_answered),
            "{driver}: no slow one was answered"
        );
        is_there
    });
}

#[test]
fn what_the_server_does_to_them_is_counted() {
    // The silent ones come first: four are closed, four reset. The active one is answered then.
    let counts: Arc<[AtomicU32; 2]> = Arc::default();
    let counted = Arc::clone(&counts);
    let server = Server::start(move |mut peer| {
        let [before, ended] = &*counted;
        match peer.number - before.load(SeqCst) {
            0..4 => {
                delay(Duration::from_millis(30));
                peer.close();
            }
            4..8 => peer.reset(),
            _ => {
                wait_until("eight ends", || ended.load(SeqCst) == 8);
                // What was reset may arrive a little later on a busy machine.
                delay(Duration::from_millis(50));
                return peer.answer_all(OK);
            }
        }
        ended.fetch_add(1, SeqCst);
    });
    on_every_driver(
        |driver| {
            counts[0].store(server.accepted.load(SeqCst), SeqCst);
            counts[1].store(0, SeqCst);
            let mut plan = plan(driver, &server.url("/"), 1, 1);
            plan.crowd.silent = 8;
            plan
        },
        |outcome| {
            let [silent] = &outcome.crowd[..] else { panic!("one kind") };
            // A reset may come so early that the connect fails with it.
            assert_eq!(silent.reset_by_server + silent.refused, 4, "{silent:?}");
            assert_eq!((silent.closed_by_server, silent.open_at_end), (4, 0), "{silent:?}");
            let (_, longest) = silent.closed_after_s.expect("some were closed");
            // The generator sees a connection later than the server does.
            assert!((0.005..10.0).contains(&longest), "{silent:?}");
        },
    );
}

#[test]
fn those_that_are_refused_are_counted() {
    let nobody = Refusing::bind();
    let url = format!("http://{}/", nobody.address());
    on_every_driver(
        |driver| {
            let mut plan = plan(driver, &url, 1, 1);
            plan.crowd.dead = 7;
            plan
        },
        |outcome| {
            let [dead] = &outcome.crowd[..] else { panic!("one kind") };
            assert_eq!((dead.connected, dead.refused), (0, 7));
        },
    );
}

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

/// A reader sees which statuses came, and what the server said when it refused for the first time, whether its answer
/// came in one piece or byte by byte.
#[test]
fn each_status_is_counted_and_the_first_wrong_answer_is_kept() {
    const LATER: &[u8] = b"HTTP/1.1 503 Later\r\nContent-Length: 5\r\n\r\nbu\x1bsy";
    const MOVED: &[u8] =
        b"HTTP/1.1 302 Found\r\nLocation: /login\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    const MANY: &[u8] = b"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n";
    for is_split in [false, true] {
        let server = Server::start(move |mut peer| {
            for answer in [OK, LATER, MOVED, MANY, MANY].iter().cycle() {
                let pieces = answer.chunks(if is_split { 7 } else { answer.len() });
                if peer.request().is_none() || !pieces.into_iter().all(|piece| peer.send(piece)) {
                    return;
                }
            }
        });
        on_every_driver(
            |driver| plan(driver, &server.url("/"), 1, 10),
            |outcome| {
                is_sound(outcome);
                let counts: Vec<_> = outcome.statuses.iter().map(|(a, b)| (*a, *b)).collect();
                assert_eq!(counts, [(200, 2), (302, 2), (429, 4), (503, 2)]);
                let wrong = outcome.first_wrong.as_ref().expect("one");
                assert_eq!(
                    (&*wrong.status_line, &*wrong.body),
                    ("HTTP/1.1 503 Later", "bu\\u{1b}sy")
                );
                let redirect = outcome.first_redirect.as_ref().expect("one");
                assert_eq!(redirect.location.as_deref(), Some("/login"));
                let said =
                    |kind| outcome.findings.iter().find(|one| one.kind == kind).expect("one");
                assert!(said(FindingKind::Redirected).text.ends_with("the first to /login"));
                assert!(said(FindingKind::ManyErrors).text.ends_with("HTTP/1.1 503 Later"));
            },
        );
    }
}

/// As servers send that trace, or set many cookies.
#[test]
fn answers_with_many_fields_and_long_heads_are_read() {
    let fields: String = (0..120).map(|number| format!("X-{number}: 1\r\n")).collect();
    let long: String =
        (0..6).map(|number| format!("X-{number}: {}\r\n", "y".repeat(7_000))).collect();
    let with = |fields: &str| {
        format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 5\r\n\r\nhello").into_bytes()
    };
    for answer in [with(&fields), with(&long)] {
        assert_is_read(answer);
    }
}

/// As old servers and load balancers send.
#[test]
fn answers_with_padded_chunk_sizes_are_read() {
    const PADDED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0005  \r\nhello\r\n0 \r\n\r\n";
    assert_is_read(PADDED.to_vec());
}

/// An answer whose body is five bytes is read by every driver.
fn assert_is_read(answer: Vec<u8>) {
    let server = Server::start(move |mut peer| peer.answer_all(&answer));
    on_every_driver(
        |driver| plan(driver, &server.url("/"), 2, 10),
        |outcome| {
            let at = format!("{:?} {:?}", outcome.errors, outcome.first_wrong);
            assert_eq!((outcome.totals.right, outcome.totals.body_bytes_in), (10, 50), "{at}");
        },
    );
}

#[test]
fn what_cannot_be_read_is_shown_with_the_reason() {
    let server = Server::start(|mut peer| peer.answer_all(b"220 mail at your service\r\n\r\n"));
    let outcome = try_run(plan("poll".parse().expect("a driver"), &server.url("/"), 1, 2));
    let wrong = outcome.expect("poll is everywhere").first_wrong.expect("one");
    assert_eq!(wrong.status_line, "220 mail at your service");
    assert!(wrong.why.is_some(), "{wrong:?}");
}

#[test]
fn answers_of_another_length_are_answers() {
    let conduct = |mut peer: Peer| peer.answer_all(OK);
    let change = |plan: &mut Plan| plan.expect.body_bytes = Some(6);
    all_fail(conduct, change, Errors { mismatch: 10, ..Errors::default() }, 10);
}

#[test]
fn an_answer_without_a_request_is_malformed() {
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
fn a_connect_that_is_refused_is_an_error() {
    let nobody = Refusing::bind();
    let url = format!("http://{}/", nobody.address());
    on_every_driver(
        |driver| plan(driver, &url, 2, 6),
        |outcome| {
            assert_eq!(
                outcome.errors,
                Errors { connect: 6, connect_refused: 6, ..Errors::default() }
            );
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
        let is_named = error.strip_prefix(what).is_some_and(|rest| rest.starts_with([':', ' ']));
        assert!(is_named, "{number}: {error}");
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
