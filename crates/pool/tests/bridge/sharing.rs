//! Services of one pool called from another, while all goes well and while the broker dies.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, Signal, wait_for};
use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallError, CallFlags, Outgoing};
use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::{FieldId, FieldType};

use crate::broker::Broker;
use crate::pools::{EXIT_URCODE, Plan, Pool, content, text};

/// The time limit of a call under load.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Callers at the same time: more than the bridge has copies, so that some find all of them busy.
const CALLERS: usize = 6;
const LARGE_BYTES: usize = 300_000;

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

    let (is_over, has_broken) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let load = || under_load(&there, &is_over, &has_broken);
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(load)).collect();
        broker.kill();
        wait_for("callers get an error while the broker is away", || {
            has_broken.load(Relaxed).then_some(())
        });
        broker.start_again();
        wait_for("the service is back", || client.call("ECHO", &hello, CallFlags::NONE).ok());
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
    let which = pollux_xatmi::client::Which::One(descriptor);
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
    let mut client = there.client();
    wait_for("the service is there", || client.call("ECHO", &text("x"), CallFlags::NONE).ok());
    there.signal_bridges(Signal::STOP);
    broker.kill();
    broker.start_again();
    let mut raw = broker.raw();
    raw.subscribe("pollux.test.news", "");
    here.command(&["start", "--id", "5"]);
    let is_list = |bytes: &[u8]| bytes.windows(7).any(|part| part == b"\"LATER\"");
    // Each of both bridges over there says so once.
    for _ in 0..2 {
        while !is_list(&raw.next().bytes) {}
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
    let mut client = there.client();
    let hello = text("hello");
    wait_for("the service is there", || client.call("ECHO", &hello, CallFlags::NONE).ok());
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
