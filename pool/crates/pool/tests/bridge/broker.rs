//! What a broker and its other clients may do to the bridges.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pollux_testing::{Broker, DEADLINE, RawClient, Signal, wait_for, wait_until};
use pollux_xatmi::client::{CallError, CallFlags};
use pollux_xatmi::error::Code;

use crate::{Plan, Pool, content, text};

/// The time limit of a call that is to fail.
const LIMIT: Duration = Duration::from_secs(1);
const CALLERS: usize = 6;
/// TPSUCCESS and TPEXIT.
const EXIT: &str = "Pollux-Rval: 134217730";

/// A broker that is stopped in mid-load: each call ends within its time, with a documented error.
pub(crate) fn stands_still() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client_of("ECHO");
    let hello = text("hello");

    let is_over = AtomicBool::new(false);
    let has_timed_out = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = || {
            let mut client = there.client();
            client.set_timeout(LIMIT);
            while !is_over.load(Relaxed) {
                let began = Instant::now();
                if let Err(error) = client.call("ECHO", &hello, CallFlags::NONE) {
                    let known = [Code::Time, Code::ServiceError, Code::NoEntry];
                    assert!(known.contains(&error.code()), "{error}");
                    has_timed_out.fetch_or(error.code() == Code::Time, Relaxed);
                }
                let took = began.elapsed();
                assert!(took < LIMIT + DEADLINE, "{took:?}");
            }
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(load)).collect();
        broker.signal(Signal::STOP);
        wait_until("a call's time is over", || has_timed_out.load(Relaxed));
        broker.signal(Signal::CONT);
        wait_for("calls are answered again", || client.call("ECHO", &hello, CallFlags::NONE).ok());
        is_over.store(true, Relaxed);
        for caller in callers {
            caller.join().expect("each call ended in time");
        }
    });
    drop(client);
    here.end();
    there.end();
}

/// Name and password are taken from the address; wrong ones stand in the log, the right ones nowhere.
pub(crate) fn wants_a_password() {
    let broker = Broker::start(&["--user", "teller", "--pass", "s3cret"]);
    let with = |login: &str| broker.url().replace("nats://", &format!("nats://{login}@"));
    let right = with("teller:s3cret");
    let wrong = with("teller:gues5");
    let here = Pool::start(&Plan {
        name: "h",
        nats: &right,
        exports: "ECHO",
        services: "ECHO",
        ..Plan::EMPTY
    });
    let there = Pool::start(&Plan { name: "t", nats: &right, services: "OTHER", ..Plan::EMPTY });
    let locked_out =
        Pool::start(&Plan { name: "w", nats: &wrong, services: "OTHER", ..Plan::EMPTY });
    let mut client = there.client();
    let answer = wait_for("the service is there", || {
        client.call("ECHO", &text("hello"), CallFlags::NONE).ok()
    });
    assert_eq!(content(&answer), b"hello\0");
    wait_for("the log says why", || {
        locked_out.log().to_lowercase().contains("authorization").then_some(())
    });
    for pool in [&here, &there, &locked_out] {
        let log = pool.log();
        assert!(!log.contains("s3cret") && !log.contains("gues5"), "{log}");
    }
    let mut client = locked_out.client();
    let error = client.call("ECHO", &text("hello"), CallFlags::NONE).expect_err("no such service");
    assert_eq!(error.code(), Code::NoEntry);
    drop(client);
    [here, there, locked_out].into_iter().for_each(Pool::end);
}

/// A client of the broker that is not a bridge sends what no bridge would.
pub(crate) fn unknown_senders_disturb_no_call() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client_of("ECHO");
    let hello = text("hello");
    let bridges = [here.bridges(), there.bridges()];
    let mut raw = broker.raw();

    garbage(&mut raw);
    let answer = client.call("ECHO", &hello, CallFlags::NONE).expect("an answer");
    assert_eq!(content(&answer), b"hello\0");

    // A pool that there is not offers a service, and answers as it likes.
    raw.subscribe("pollux.test.call.STRANGE", "bridges");
    let list = br#"{"pool":"strange","services":["STRANGE"],"refresh_s":60}"#;
    raw.publish("pollux.test.news", "", list);
    let ok = None;
    let reply = "Pollux-Reply: 1";
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
            let asked = raw.next_message();
            let inbox = asked.reply.expect("it waits for an answer");
            // A reply to another call comes first, and is dropped.
            raw.publish_with(&format!("{inbox}9"), "", &[reply, EXIT, "Pollux-Urcode: 6"], b"");
            raw.publish_with(&inbox, "", headers, payload);
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
fn garbage(raw: &mut RawClient) {
    let call = "pollux.test.call.ECHO";
    let long = vec![0xff; 900_000];
    for payload in [&b""[..], b"\x00\x01\xff", b"[[[[", &long] {
        for subject in [call, "pollux.test.news", "pollux.test.list"] {
            raw.publish(subject, "", payload);
            raw.publish_with(subject, call, &["Pollux-Type: UBF", "Pollux-Size: 1000000"], payload);
            raw.publish_with(
                subject,
                subject,
                &["Pollux-Reply: 1", EXIT, "Pollux-Urcode: 0"],
                payload,
            );
        }
    }
    let sized = ["Pollux-Request: 1", "Pollux-Type: CARRAY", "Pollux-Size: 67108864"];
    raw.publish_with(call, call, &sized, b"x");
    let without_end = "Pollux-Timeout-Ms: 18446744073709551615";
    raw.publish_with(call, "pollux.test.news", &["Pollux-Request: 1", without_end], b"");
}
