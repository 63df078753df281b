//! What bridges bear: messages around the longest that the broker takes, many callers, unknown senders, ends
//! while calls are under way.

use std::io::Write;
use std::time::{Duration, Instant};

use pollux_testing::{Signal, wait_for, wait_until};
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallError, CallFlags, Client, Outgoing, Which};
use pollux_xatmi::error::Code;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use crate::broker::{Broker, Raw};
use crate::pools::{Plan, Pool, content, text};

const PAYLOAD_MAX: usize = 16_384;
/// More than the headers of any message here.
const HEADERS_MAX: usize = 400;
/// The time limit of a call whose reply may be lost.
const LIMIT: Duration = Duration::from_secs(3);
/// Far less than a call may take.
const AT_ONCE: Duration = Duration::from_secs(20);

/// A request or a reply that does not fit, with its headers, is an error now and not after the time
/// of the call; and the bridge says why in its log.
pub(crate) fn what_is_too_long_is_refused_at_once() {
    let mut config = tempfile::NamedTempFile::new().expect("a file");
    writeln!(config, "max_payload: {PAYLOAD_MAX}").expect("written");
    config.flush().expect("written");
    let broker = Broker::start(&["-c", &config.path().to_string_lossy()]);
    let url = broker.url();
    let services = Plan { nats: &url, exports: "ECHO,GROW", ..Plan::EMPTY };
    let here = Pool::start(&Plan { name: "here", services: "ECHO GROW", ..services });
    let there = Pool::start(&Plan { name: "there", services: "OTHER", exports: "", ..services });
    let mut client = there.client();
    wait_for("the service is there", || client.call("GROW", &text("1"), CallFlags::NONE).ok());
    let mut outcomes = [0, 0];
    let sizes = (PAYLOAD_MAX - HEADERS_MAX..=PAYLOAD_MAX + 7).step_by(37).chain([5 * PAYLOAD_MAX]);
    for size in sizes {
        let sent = Buffer::carray(&vec![5; size]).expect("bytes");
        let asked = text(&size.to_string());
        for (service, request) in [("ECHO", &sent), ("GROW", &asked)] {
            let began = Instant::now();
            match client.call(service, request, CallFlags::NONE) {
                Ok(answer) => {
                    assert_eq!(answer.len_bytes, size, "{service}");
                    outcomes[0] += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::ServiceError, "{service} {size}: {error}");
                    outcomes[1] += 1;
                }
            }
            assert!(began.elapsed() < AT_ONCE, "{service} {size}: {:?}", began.elapsed());
        }
    }
    assert!(outcomes.iter().all(|count| *count > 2), "{outcomes:?}");
    // A limit that is lowered while bridges are connected: the broker closes the one that does not know it yet.
    // Over here that is known at once; over there it takes the reply along.
    client.set_timeout(LIMIT);
    let half = Buffer::carray(&vec![5; PAYLOAD_MAX / 2]).expect("bytes");
    client.call("ECHO", &half, CallFlags::NONE).expect("it fits");
    std::fs::write(config.path(), format!("max_payload: {}\n", PAYLOAD_MAX / 4)).expect("written");
    broker.signal(Signal::HUP);
    wait_for("the lower limit is in force", || {
        let began = Instant::now();
        let ended = client.call("ECHO", &half, CallFlags::NONE);
        assert!(began.elapsed() < LIMIT + AT_ONCE, "{:?}", began.elapsed());
        let code = ended.err()?.code();
        assert!(matches!(code, Code::ServiceError | Code::Time), "{code:?}");
        Some(())
    });
    wait_for("short calls go over", || client.call("ECHO", &text("x"), CallFlags::NONE).ok());
    for pool in [&here, &there] {
        assert!(pool.log().contains("max_payload"), "{}", pool.log());
    }
    drop(client);
    here.end();
    there.end();
}

// Far more callers than bridges: every caller waits for a turn, and none for ever.

/// Each has a reply queue, of which a machine has 256.
const CALLERS: usize = 50;
/// Calls that each of them has out at the same time.
const CALLS: usize = 4;

pub(crate) fn many_callers_share_two_bridges() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client();
    wait_for("the service is there", || client.call("ECHO", &text("x"), CallFlags::NONE).ok());
    drop(client);
    let clients: Vec<Client> = (0..CALLERS).map(|_| there.client()).collect();
    std::thread::scope(|scope| {
        for (number, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                let words = |call| format!("caller {number}, call {call}");
                let send = |call| {
                    let request = text(&words(call));
                    let request = Outgoing::of(&request, 0).expect("text");
                    client.send_request("ECHO", request, CallFlags::NONE).expect("sent")
                };
                let out: Vec<_> = (0..CALLS).map(send).collect();
                for (call, descriptor) in out.into_iter().enumerate() {
                    let answer = client.answer(Which::One(descriptor), CallFlags::NONE);
                    let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", words(call)));
                    assert_eq!(content(&answer), format!("{}\0", words(call)).as_bytes());
                }
            });
        }
    });
    here.end();
    there.end();
}

// A client of the broker that is not a bridge sends what no bridge would.

/// TPSUCCESS and TPEXIT.
const EXIT: &str = "Pollux-Rval: 134217730";

pub(crate) fn unknown_senders_disturb_no_call() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client();
    let hello = text("hello");
    wait_for("the service is there", || client.call("ECHO", &hello, CallFlags::NONE).ok());
    let bridges = [here.bridges(), there.bridges()];
    let mut raw = broker.raw();

    garbage(&mut raw);
    let answer = client.call("ECHO", &hello, CallFlags::NONE).expect("an answer");
    assert_eq!(content(&answer), b"hello\0");

    // A pool that there is not offers a service, and answers as it likes.
    raw.subscribe("pollux.test.call.STRANGE", "bridges");
    let list = br#"{"pool":"strange","services":["STRANGE"],"refresh_s":60}"#;
    raw.publish_bare("pollux.test.news", list);
    let (ok, reply) = (None, "Pollux-Reply: 1");
    let said: [(&[&str], &[u8], Option<Code>); 7] = [
        (&[reply, EXIT, "Pollux-Urcode: 5"], b"", ok),
        (&["Pollux-Request: 1", EXIT, "Pollux-Urcode: 5"], b"", Some(Code::ServiceError)),
        (&[reply, "Pollux-Error: 4711"], b"", Some(Code::ServiceError)),
        (
            &[reply, EXIT, "Pollux-Urcode: 5", "Pollux-Type: UBF", "Pollux-Size: 64"],
            b"no fields",
            Some(Code::ServiceError),
        ),
        (
            &[reply, EXIT, "Pollux-Urcode: 5", "Pollux-Type: CARRAY", "Pollux-Size: 99999999999"],
            b"x",
            Some(Code::ServiceError),
        ),
        (&["Pollux-Reply: 9", EXIT, "Pollux-Urcode: 5"], b"", Some(Code::ServiceError)),
        (&[], b"\x00\xff", Some(Code::ServiceError)),
    ];
    for (headers, payload, expected) in said {
        let called = std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                wait_for("the service is known", || {
                    match client.call("STRANGE", &hello, CallFlags::NONE) {
                        Err(error) if error.code() == Code::NoEntry => None,
                        ended => Some(ended),
                    }
                })
            });
            let asked = raw.next();
            let inbox = asked.reply.expect("it waits for an answer");
            // A reply to another call comes first, and is dropped.
            raw.publish(&format!("{inbox}9"), "", &[reply, EXIT, "Pollux-Urcode: 6"], b"");
            raw.publish(&inbox, "", headers, payload);
            call.join().expect("it ended")
        });
        assert_eq!(called.as_ref().err().map(CallError::code), expected, "{headers:?}");
        if let Ok(answer) = called {
            assert_eq!(answer.urcode, 5);
        }
    }
    client.call("ECHO", &hello, CallFlags::NONE).expect("an answer");
    assert_eq!([here.bridges(), there.bridges()], bridges, "no bridge was started anew");
    wait_until("the log counts them", || here.log().contains("none of a bridge's"));
    drop(client);
    here.end();
    there.end();
}

/// On all subjects of the domain: no headers, wrong headers, replies for requests, answers that lead
/// back to where they came from.
fn garbage(raw: &mut Raw) {
    let call = "pollux.test.call.ECHO";
    let long = vec![0xff; 900_000];
    for payload in [&b""[..], b"\x00\x01\xff", b"[[[[", &long] {
        for subject in [call, "pollux.test.news", "pollux.test.who"] {
            raw.publish_bare(subject, payload);
            raw.publish(subject, call, &["Pollux-Type: UBF", "Pollux-Size: 1000000"], payload);
            raw.publish(subject, subject, &["Pollux-Reply: 1", EXIT, "Pollux-Urcode: 0"], payload);
        }
    }
    let sized = ["Pollux-Request: 1", "Pollux-Type: CARRAY", "Pollux-Size: 67108864"];
    raw.publish(call, call, &sized, b"x");
    let without_end = "Pollux-Timeout-Ms: 18446744073709551615";
    raw.publish(call, "pollux.test.news", &["Pollux-Request: 1", without_end], b"");
}

// Bridges that end, by an order and by a signal, while calls are under way.

pub(crate) fn a_bridge_that_ends_owes_nothing() {
    let broker = Broker::start(&[]);
    let url = broker.url();
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let services = format!("HOLD={} ECHO", fifo.display());
    let here = Pool::start(&Plan {
        name: "here",
        nats: &url,
        exports: "HOLD",
        services: &services,
        ..Plan::EMPTY
    });
    let there = Pool::start(&Plan { name: "there", nats: &url, services: "OTHER", ..Plan::EMPTY });
    let mut client = there.client();
    // A service has begun to read; it continues when this is dropped.
    let gate = || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        open(&fifo, flags, Mode::empty()).ok()
    };
    let held = || wait_for("the service reads", gate);
    let mut raw = broker.raw();
    raw.subscribe("answers", "");
    let is_offered = |raw: &mut Raw| {
        raw.publish("pollux.test.call.HOLD", "answers", &["Pollux-Request: 0"], b"");
        !raw.next().bytes.starts_with(b"NATS/1.0 503")
    };
    wait_until("the service is offered", || is_offered(&mut raw));

    // Asked to stop during a call: the call is answered first, and no other is taken.
    let hold = |client: &mut Client| {
        wait_for("the service is known", || {
            match client.call("HOLD", &text("x"), CallFlags::NONE) {
                Err(error) if error.code() == Code::NoEntry => None,
                ended => Some(ended),
            }
        })
    };
    std::thread::scope(|scope| {
        let call = scope.spawn(|| hold(&mut client));
        let held_up = held();
        let stopping = here.started(&["stop", "--name", "tpbridge"]);
        wait_until("no bridge takes requests", || !is_offered(&mut raw));
        drop(held_up);
        let ended = call.join().expect("it ended");
        assert_eq!(content(&ended.expect("the bridge waited for it")), b"x\0");
        assert!(stopping.ended().status.success());
    });

    // Killed on the other side, the outcome of the call is not known: its time runs out. Killed here, it
    // is known at once.
    here.command(&["start", "--name", "tpbridge"]);
    client.set_timeout(LIMIT);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| hold(&mut client));
        let held_up = held();
        here.signal_bridges(Signal::KILL);
        let error = call.join().expect("it ended").expect_err("its answer is lost");
        assert_eq!(error.code(), Code::Time);
        drop(held_up);
    });
    wait_until("the service has continued", || gate().is_none());
    client.set_timeout(AT_ONCE * 2);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| hold(&mut client));
        let held_up = held();
        let began = Instant::now();
        there.signal_bridges(Signal::KILL);
        let error = call.join().expect("it ended").expect_err("nobody waits for its answer");
        assert_eq!(error.code(), Code::ServiceError);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        drop(held_up);
    });
    drop(client);
    here.end();
    there.end();
}
