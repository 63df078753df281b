//! Services of one pool called from another: while all goes well, while the broker dies, and what bridges bear: messages
//! around the longest that the broker takes, many callers, ends while calls are under way.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pollux_testing::{Broker, DEADLINE, RawClient, Signal, wait_for, wait_until};
use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallError, CallFlags, Client, Outgoing, Which};
use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::{FieldId, FieldType};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use crate::server::EXIT_URCODE;
use crate::{Plan, Pool, content, text};

/// The time limit of a call under load, or of one whose reply may be lost.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Callers at the same time: more than the bridge has copies, so that some find all of them busy.
const CALLERS: usize = 6;
const LARGE_BYTES: usize = 300_000;

const PAYLOAD_MAX: usize = 16_384;
/// More than the headers of any message here.
const HEADERS_MAX: usize = 400;
/// Far less than a call may take.
const AT_ONCE: Duration = Duration::from_secs(20);
/// Far more callers than bridges: every caller waits for a turn, and none for ever. Each has a reply queue, of
/// which a machine has 256.
const CALLERS_MANY: usize = 50;
/// Calls that each of them has out at the same time.
const CALLS: usize = 4;

pub(crate) fn pools_outlive_their_broker() {
    let mut broker = Broker::start(&[]);
    let url = broker.url();
    let here = Pool::start(&Plan {
        name: "here",
        nats: &url,
        exports: "ECHO,FAIL",
        services: "ECHO FAIL HIDDEN",
        ..Plan::EMPTY
    });
    let there = Pool::start(&Plan { name: "there", nats: &url, services: "OTHER", ..Plan::EMPTY });
    let mut client = there.client();
    let hello = text("hello");

    let answer = wait_for("the other pool's service is there", || {
        client.call("ECHO", &hello, CallFlags::NONE).ok()
    });
    assert_eq!(content(&answer), b"hello\0");
    let hidden = client.call("HIDDEN", &hello, CallFlags::NONE).expect_err("not exported");
    assert_eq!(hidden.code(), Code::NoEntry);

    let is_over = AtomicBool::new(false);
    let has_broken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = || under_load(&there, &is_over, &has_broken);
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(load)).collect();
        broker.kill();
        wait_for("callers get an error while the broker is away", || {
            has_broken.load(Relaxed).then_some(())
        });
        wait_for("ps shows what is wrong with the bridges", || {
            let causes = there.causes_of_bridges();
            let is_shown =
                |cause: &String| cause.starts_with("no connection to the broker nats://");
            (causes.len() == 2 && causes.iter().all(is_shown)).then_some(())
        });
        broker.start_again();
        wait_for("the service is back", || client.call("ECHO", &hello, CallFlags::NONE).ok());
        wait_for("nothing is wrong any more", || {
            there.causes_of_bridges().is_empty().then_some(())
        });
        is_over.store(true, Relaxed);
        for caller in callers {
            caller.join().expect("each call ended as it may");
        }
    });

    here.command(&["stop", "--name", "echosv"]);
    wait_for("a service that is gone is unknown", || {
        let error = client.call("ECHO", &hello, CallFlags::NONE).err()?;
        (error.code() == Code::NoEntry).then_some(())
    });
    drop(client);
    here.end();
    there.end();
}

/// Calls until the end; each call ends in success or in an error that the documents name.
fn under_load(pool: &Pool, is_over: &AtomicBool, has_broken: &AtomicBool) {
    let mut client = pool.client();
    client.set_timeout(CALL_LIMIT);
    let request = text("load");
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        match client.call("ECHO", &request, CallFlags::NONE) {
            Ok(answer) => assert_eq!(content(&answer), b"load\0"),
            Err(error) => {
                let known = [Code::ServiceError, Code::NoEntry, Code::Time];
                assert!(known.contains(&error.code()), "{error}");
                has_broken.store(true, Relaxed);
            }
        }
        assert!(began.elapsed() < CALL_LIMIT + DEADLINE, "{:?}", began.elapsed());
    }
}

/// Buffers of every type, long ones and none; failures, forwards, calls within calls, calls without
/// a reply, names that mean something to the broker; and a service that ends its worker ends no
/// bridge.
pub(crate) fn every_kind_of_call_and_buffer_goes_over() {
    let broker = Broker::start(&[]);
    let url = broker.url();
    let exported = "ECHO,FAIL,EXIT,ODD.NAME,ODD*,ODD>";
    let here = Pool::start(&Plan {
        name: "here",
        nats: &url,
        exports: exported,
        services: &exported.replace(',', " "),
        ..Plan::EMPTY
    });
    let there =
        Pool::start(&Plan { name: "there", nats: &url, services: "PASS NEST", ..Plan::EMPTY });
    let mut client = there.client();
    let hello = text("hello");
    wait_for("the other pool's services are there", || {
        client.call("ODD>", &hello, CallFlags::NONE).ok()
    });

    let mut fields = Buffer::new(BufferType::Ubf, "", 1024).expect("a buffer");
    let account = FieldId::new(FieldType::String, 1001);
    fields.fields_mut().expect("fields").add(account, "ACC00000000001").expect("room");
    let json = Buffer::alloc("JSON", "", 64).expect("a buffer");
    let large = Buffer::carray(&vec![7; LARGE_BYTES]).expect("bytes");
    for sent in [&hello, &fields, &json, &large] {
        let answer = client.call("ECHO", sent, CallFlags::NONE).expect("it echoes");
        let buffer = answer.buffer.as_ref().expect("data");
        assert_eq!(buffer.buffer_type(), sent.buffer_type());
        let used = sent.used_len(sent.size()).expect("sound");
        assert_eq!(content(&answer), &sent.as_bytes()[..used]);
    }
    for service in ["ODD.NAME", "ODD*", "PASS", "NEST"] {
        let answer = client.call(service, &hello, CallFlags::NONE);
        let answer = answer.unwrap_or_else(|error| panic!("{service}: {error}"));
        assert_eq!(content(&answer), b"hello\0", "{service}");
    }
    match client.call("FAIL", &hello, CallFlags::NONE).expect_err("it fails") {
        CallError::Failed(answer) => assert_eq!(content(&answer), b"hello\0"),
        CallError::Error(error) => panic!("{error}"),
    }
    let request = Outgoing::of(&hello, 0).expect("text");
    client.send_only("ECHO", request, CallFlags::NONE).expect("sent");
    let none = Outgoing::NONE;
    let descriptor = client.send_request("ECHO", none, CallFlags::NONE).expect("sent");
    let which = Which::One(descriptor);
    assert!(client.answer(which, CallFlags::NONE).expect("nothing").buffer.is_none());

    let bridges = there.bridges();
    let answer = wait_for("the worker that ended is back", || {
        client.call("EXIT", &hello, CallFlags::NONE).ok()
    });
    assert_eq!(answer.urcode, EXIT_URCODE);
    client.call("ECHO", &hello, CallFlags::NONE).expect("the bridge continued");
    assert_eq!(there.bridges(), bridges, "no bridge was started anew");
    drop(client);
    here.end();
    there.end();
}

/// Service lists are not repeated here (`brrefresh` 0), and these bridges are asleep when they are sent.
pub(crate) fn news_that_passed_are_asked_for() {
    let mut broker = Broker::start(&[]);
    let url = broker.url();
    let silent = Plan { nats: &url, services: "ECHO", refresh_s: 0, ..Plan::EMPTY };
    let here = Pool::start(&Plan { name: "here", exports: "ECHO,LATER", ..silent });
    let there = Pool::start(&Plan { name: "there", services: "OTHER", ..silent });
    let mut client = there.client_of("ECHO");
    there.signal_bridges(Signal::STOP);
    broker.kill();
    broker.start_again();
    let mut raw = broker.raw();
    raw.subscribe("pollux.test.news", "");
    here.command(&["start", "--id", "5"]);
    let is_list = |bytes: &[u8]| bytes.windows(7).any(|part| part == b"\"LATER\"");
    // Each of both bridges over there says so once.
    for _ in 0..2 {
        while !is_list(&raw.next_message().bytes) {}
    }
    there.signal_bridges(Signal::CONT);
    wait_for("the new service is there", || client.call("LATER", &text("x"), CallFlags::NONE).ok());
    drop(client);
    here.end();
    there.end();
}

/// Both pools have a service and offer it to the other; then neither has it.
pub(crate) fn a_service_that_no_pool_has_goes_round_in_no_circle() {
    let broker = Broker::start(&[]);
    let url = broker.url();
    let both = Plan { nats: &url, exports: "ECHO", services: "ECHO", ..Plan::EMPTY };
    let pools = ["here", "there"].map(|name| Pool::start(&Plan { name, ..both }));
    let hello = text("hello");
    let mut clients = pools.each_ref().map(Pool::client);
    for client in &mut clients {
        client.set_timeout(CALL_LIMIT);
        client.call("ECHO", &hello, CallFlags::NONE).expect("it is at home");
    }
    pools[0].command(&["stop", "--name", "echosv"]);
    wait_for("the other pool's service stands in", || {
        clients[0].call("ECHO", &hello, CallFlags::NONE).ok()
    });
    pools[1].command(&["stop", "--name", "echosv"]);
    for client in &mut clients {
        wait_for("no pool has the service", || {
            let began = Instant::now();
            let ended = client.call("ECHO", &hello, CallFlags::NONE);
            assert!(began.elapsed() < CALL_LIMIT + DEADLINE, "{:?}", began.elapsed());
            (ended.err()?.code() == Code::NoEntry).then_some(())
        });
    }
    drop(clients);
    pools.into_iter().for_each(Pool::end);
}

/// Bridges carry calls: a conversation is refused, nothing is sent, and later calls succeed.
pub(crate) fn conversations_are_refused_at_once() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client_of("ECHO");
    let hello = text("hello");
    let request = Outgoing::of(&hello, 6).expect("a text");
    for has_control in [true, false] {
        let began = Instant::now();
        let error = client
            .converse("ECHO", request, has_control, CallFlags::NONE)
            .expect_err("a service of another pool");
        assert_eq!(error.code(), Code::Protocol, "{error}");
        assert!(error.detail().contains("bridges carry no conversations"), "{error}");
        assert!(began.elapsed() < CALL_LIMIT, "{:?}", began.elapsed());
    }
    client.call("ECHO", &hello, CallFlags::NONE).expect("a call goes over");
    let log = there.log();
    let refusal = "a conversation with ECHO was refused: bridges carry calls only";
    assert!(log.contains(refusal), "{log}");
    drop(client);
    here.end();
    there.end();
}

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
    let mut client = there.client_of("GROW");
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
    client.set_timeout(CALL_LIMIT);
    let half = Buffer::carray(&vec![5; PAYLOAD_MAX / 2]).expect("bytes");
    client.call("ECHO", &half, CallFlags::NONE).expect("it fits");
    std::fs::write(config.path(), format!("max_payload: {}\n", PAYLOAD_MAX / 4)).expect("written");
    broker.signal(Signal::HUP);
    wait_for("the lower limit is in force", || {
        let began = Instant::now();
        let ended = client.call("ECHO", &half, CallFlags::NONE);
        assert!(began.elapsed() < CALL_LIMIT + AT_ONCE, "{:?}", began.elapsed());
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

pub(crate) fn many_callers_share_two_bridges() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    drop(there.client_of("ECHO"));
    let clients: Vec<Client> = (0..CALLERS_MANY).map(|_| there.client()).collect();
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

/// By an order and by a signal, while calls are under way.
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
    let is_offered = |raw: &mut RawClient| {
        raw.publish_with("pollux.test.call.HOLD", "answers", &["Pollux-Request: 0"], b"");
        !raw.next_message().bytes.starts_with(b"NATS/1.0 503")
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
    client.set_timeout(CALL_LIMIT);
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
