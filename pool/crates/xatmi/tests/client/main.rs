//! The calling side over real queues, with threads in the place of the manager and of workers.

mod queues;
mod support;

use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{Arriving, CallError, CallFlags, Client, Descriptor, Outgoing, Which};
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::large::{Outbox, fetch, fetch_all};
use pollux_xatmi::wire::{Body, LargeRef, Payload, Reply};

use crate::support::{
    NONE, PATIENCE, Pool, SHORT, get, next_held, said, serve_held, sleeps, text, until,
};

const MIB: usize = 1 << 20;

fn no_buffer(_: &Arriving) -> Result<&'static mut [u8], Error> {
    panic!("no reply is expected")
}

#[test]
fn a_call_brings_back_what_the_service_returned() {
    let mut pool = Pool::start();
    pool.serve_echo();
    let mut client = pool.client();
    for round in 0..100 {
        let asked = format!("round {round}");
        let answer = client.call("ECHO", &text(&asked), NONE).expect("served");
        assert_eq!(said(answer.buffer), asked);
    }
    assert_eq!(client.counters().sent, 100);
    assert_eq!(client.counters().delivered, 100);
    assert_eq!(client.calls_out(), 0);
}

#[test]
fn a_service_that_fails_delivers_its_buffer_and_code() {
    let mut pool = Pool::start();
    pool.serve("FAIL", |request, replier| {
        let nonce = request.client.nonce;
        let call_id = request.call_id;
        let payload = request.payload;
        let error = Some(Code::ServiceFailed);
        replier.send(
            request,
            &Reply { nonce, call_id, error, rval: 1, urcode: -7, is_abort_only: false, payload },
        );
    });
    let mut client = pool.client();
    let failed = client.call("FAIL", &text("why"), NONE).expect_err("it fails");
    assert_eq!(failed.code(), Code::ServiceFailed);
    let CallError::Failed(answer) = failed else { panic!("TPESVCFAIL brings the buffer") };
    assert_eq!((answer.urcode, answer.rval), (-7, 1));
    assert_eq!(said(answer.buffer), "why");
    assert_eq!(client.urcode(), -7);
}

#[test]
fn an_error_number_in_the_reply_is_what_the_caller_gets() {
    let mut pool = Pool::start();
    pool.serve("DIES", |request, replier| {
        let nonce = request.client.nonce;
        let call_id = request.call_id;
        replier.send(request, &Reply::failing(nonce, call_id, Code::ServiceError));
    });
    let mut client = pool.client();
    for _ in 0..3 {
        let died = client.call("DIES", &text("x"), NONE).expect_err("it died");
        assert_eq!(died.code(), Code::ServiceError);
    }
    assert_eq!(client.calls_out(), 0);
}

#[test]
fn an_unknown_service_is_not_offered() {
    let pool = Pool::start();
    let mut client = pool.client();
    for name in ["NOBODY", "", "A/B", "A NAME THAT IS LONGER THAN THIRTY BYTES"] {
        let error = client.call(name, &text("x"), NONE).expect_err(name);
        assert_eq!(error.code(), Code::NoEntry, "{name}");
    }
}

#[test]
fn without_a_pool_the_error_says_what_to_do() {
    let pool = Pool::start();
    let environment = pool.environment();
    drop(pool);
    let error = Client::open(&environment).expect_err("no pool");
    assert_eq!(error.code(), Code::System);
    assert!(error.to_string().contains("pollux pool start"), "{error}");
}

#[test]
fn a_manager_that_refuses_or_speaks_otherwise_is_reported() {
    for (answer, part) in [
        (r#"{"Refused":{"why":"the pool is stopping"}}"#, "the pool is stopping"),
        (
            r#"{"Welcome":{"message_len_bytes":1,"reply_depth":2,"timeout_s":6,"pool":"t"}}"#,
            "version",
        ),
        ("nonsense", "version"),
    ] {
        let pool = Pool::welcoming(answer);
        let error = Client::open(&pool.environment()).expect_err(answer);
        assert_eq!(error.code(), Code::System);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_slow_service_times_out_near_the_limit_and_its_late_reply_is_dropped() {
    let mut pool = Pool::start();
    let held = serve_held(&mut pool, "HELD");
    pool.serve_echo();
    let mut client = pool.client();
    client.set_next_timeout(Some(SHORT));
    let before = Instant::now();
    let late = client.call("HELD", &text("slow"), NONE).expect_err("no answer comes");
    let took = before.elapsed();
    assert_eq!(late.code(), Code::Time);
    assert!(took >= SHORT && took < SHORT + Duration::from_secs(20), "{took:?}");
    next_held(&held).answer(&pool);
    let answer = client.call("ECHO", &text("next"), NONE).expect("served");
    assert_eq!(said(answer.buffer), "next", "not the late one");
    assert_eq!(client.counters().late, 1);
    assert_eq!(client.timeout(), Duration::from_secs(60), "only the next call was meant");
}

#[test]
fn after_a_time_out_the_descriptor_may_be_asked_again() {
    let mut pool = Pool::start();
    let held = serve_held(&mut pool, "HELD");
    let mut client = pool.client();
    client.set_timeout(SHORT);
    let cd = client.call_async("HELD", &text("slow"), NONE).expect("sent");
    assert_eq!(get(&mut client, Which::One(cd)), Err(Code::Time));
    let slow = next_held(&held);
    // A pause between two waits takes nothing from the second.
    std::thread::sleep(SHORT * 2);
    let before = Instant::now();
    assert_eq!(get(&mut client, Which::One(cd)), Err(Code::Time), "it waits as long as was set");
    assert!(before.elapsed() >= SHORT / 2);
    client.set_timeout(PATIENCE);
    slow.answer(&pool);
    assert_eq!(get(&mut client, Which::One(cd)), Ok((cd, "slow".to_owned())));
    assert_eq!(get(&mut client, Which::One(cd)), Err(Code::BadDescriptor), "used up");
}

#[test]
fn without_time_limits_a_call_waits_as_long_as_it_takes() {
    let mut pool = Pool::start();
    let held = serve_held(&mut pool, "HELD");
    let mut client = pool.client();
    client.set_timeout(Duration::from_millis(1));
    let cd = client.call_async("HELD", &text("x"), CallFlags::NO_TIME).expect("sent");
    let slow = next_held(&held);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let answer = client.answer(Which::One(cd), CallFlags::NO_TIME);
            said(answer.expect("it comes").buffer)
        });
        slow.answer(&pool);
        assert_eq!(waiting.join().expect("no panic"), "x");
    });
}

#[test]
fn a_cancelled_call_never_surfaces() {
    let mut pool = Pool::start();
    let held = serve_held(&mut pool, "HELD");
    let mut client = pool.client();
    let first = client.call_async("HELD", &text("first"), NONE).expect("sent");
    let second = client.call_async("HELD", &text("second"), NONE).expect("sent");
    client.cancel(first).expect("it is out");
    assert_eq!(client.cancel(first).expect_err("once").code(), Code::BadDescriptor);
    assert_eq!(get(&mut client, Which::One(first)), Err(Code::BadDescriptor));
    next_held(&held).answer(&pool);
    next_held(&held).answer(&pool);
    assert_eq!(get(&mut client, Which::Any), Ok((second, "second".to_owned())));
    assert_eq!(get(&mut client, Which::Any), Err(Code::BadDescriptor), "none is out");
    assert_eq!(client.counters().late, 1);
}

#[test]
fn replies_find_their_calls_in_any_order_and_none_is_lost() {
    let mut pool = Pool::start();
    let held = serve_held(&mut pool, "HELD");
    pool.serve_echo();
    let mut client = pool.client();
    let ask = |client: &mut Client, what: &str| {
        client.call_async("HELD", &text(what), NONE).expect("sent")
    };
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|what| ask(&mut client, what));
    let asked: Vec<_> = (0..4).map(|_| next_held(&held)).collect();
    // A call in between takes what came for others, and keeps it.
    asked[3].answer(&pool);
    asked[1].answer(&pool);
    let answer = client.call("ECHO", &text("between"), NONE).expect("served");
    assert_eq!(said(answer.buffer), "between");
    asked[0].answer(&pool);
    asked[2].answer(&pool);
    assert_eq!(get(&mut client, Which::One(c)), Ok((c, "c".to_owned())));
    assert_eq!(get(&mut client, Which::One(b)), Ok((b, "b".to_owned())));
    assert_eq!(get(&mut client, Which::Any), Ok((d, "d".to_owned())), "kept first");
    assert_eq!(get(&mut client, Which::Any), Ok((a, "a".to_owned())));
    assert_eq!(client.calls_out(), 0);
    assert!(client.counters().kept >= 3);
}

#[test]
fn a_reply_is_asked_for_without_waiting() {
    let mut pool = Pool::start();
    let held = serve_held(&mut pool, "HELD");
    let mut client = pool.client();
    let none = client.wait_reply(Which::Any, CallFlags::NO_BLOCK, no_buffer).expect_err("none out");
    assert_eq!((none.code(), none.descriptor), (Code::Block, None));
    let cd = client.call_async("HELD", &text("x"), NONE).expect("sent");
    let none = client.wait_reply(Which::One(cd), CallFlags::NO_BLOCK, no_buffer);
    assert_eq!(none.expect_err("not yet").code(), Code::Block);
    next_held(&held).answer(&pool);
    let answer = client.answer(Which::One(cd), CallFlags::NO_BLOCK).expect("it is there");
    assert_eq!(said(answer.buffer), "x");
}

#[test]
fn descriptors_are_positive_and_do_not_come_back_soon() {
    let mut pool = Pool::start();
    pool.serve_echo();
    let mut client = pool.client();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..2000 {
        let cd = client.call_async("ECHO", &text("x"), NONE).expect("sent");
        assert!(cd.number() > 0 && seen.insert(cd.number()), "{cd:?}");
        get(&mut client, Which::One(cd)).expect("served");
    }
    for wrong in [0, -1, 1, i32::MAX, i32::MIN, 9999] {
        let wrong = Descriptor::from_number(wrong);
        assert_eq!(get(&mut client, Which::One(wrong)), Err(Code::BadDescriptor));
        assert_eq!(client.cancel(wrong).expect_err("none").code(), Code::BadDescriptor);
    }
}

#[test]
fn no_more_calls_are_out_than_there_are_descriptors() {
    let mut pool = Pool::start();
    pool.serve("SINK", |_, _| {});
    pool.serve_echo();
    let mut client = pool.client();
    let cds: Vec<_> = (0..16_384)
        .map(|_| client.send_request("SINK", Outgoing::NONE, NONE).expect("there is one left"))
        .collect();
    let error = client.send_request("SINK", Outgoing::NONE, NONE).expect_err("all are out");
    assert_eq!(error.code(), Code::Limit);
    assert_eq!(client.call("ECHO", &text("x"), NONE).expect_err("all").code(), Code::Limit);
    client.send_only("SINK", Outgoing::NONE, NONE).expect("it has no descriptor");
    client.cancel(cds[77]).expect("it is out");
    let answer = client.call("ECHO", &text("one"), NONE).expect("one is free again");
    assert_eq!(said(answer.buffer), "one");
}

#[test]
fn a_client_that_cannot_wait_fails_at_once_when_it_holds_all_large_payloads_that_it_may() {
    let _memfds = MEMFDS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pool = Pool::start();
    pool.serve("SINK", |_, _| {});
    let mut client = pool.client();
    let bytes = vec![7; 100_000];
    let large = Outgoing {
        buffer_type: Some(BufferType::Carray),
        buffer_size_bytes: bytes.len(),
        has_info: false,
        bytes: &bytes,
    };
    let no_block = NONE | CallFlags::NO_BLOCK;
    // The queue is full now and then, too.
    let bound = (0..100_000).find_map(|_| {
        let error = client.send_request("SINK", large, no_block).err()?;
        error.to_string().contains("large payloads").then_some(error)
    });
    assert_eq!(bound.expect("there is one").code(), Code::Block);
}

#[test]
fn the_memory_of_the_caller_is_written_and_its_refusal_is_the_error() {
    let mut pool = Pool::start();
    pool.serve_echo();
    let mut client = pool.client();
    let request = Outgoing {
        buffer_type: Some(BufferType::Carray),
        buffer_size_bytes: 512,
        has_info: false,
        bytes: b"abc",
    };
    let mut memory = [0; 8];
    let mut seen = None;
    let arrived = client.call_into("ECHO", request, NONE, |arriving| {
        seen = Some(*arriving);
        Ok(&mut memory[..arriving.len_bytes])
    });
    let arrived = arrived.expect("served");
    let wanted =
        Arriving { buffer_type: Some(BufferType::Carray), buffer_size_bytes: 512, len_bytes: 3 };
    assert_eq!(seen, Some(wanted));
    assert_eq!(arrived.payload, wanted);
    assert_eq!(&memory[..4], b"abc\0");

    let refused = client.call_into("ECHO", request, NONE, |_| {
        Err(Error::new(Code::OutputType, "another type is wanted"))
    });
    assert_eq!(refused.expect_err("refused").code(), Code::OutputType);
    let nothing = client.call_into("ECHO", Outgoing::NONE, NONE, |arriving| {
        assert_eq!((arriving.buffer_type, arriving.len_bytes), (None, 0));
        Ok(&mut [])
    });
    nothing.expect("no buffer either way");
    let untyped = Outgoing { bytes: b"x", ..Outgoing::NONE };
    let invalid = client.call_into("ECHO", untyped, NONE, no_buffer).expect_err("no type");
    assert_eq!(invalid.code(), Code::Invalid);
}

#[test]
fn an_answer_of_another_type_is_refused_where_that_is_asked_for() {
    let mut pool = Pool::start();
    pool.serve_echo();
    pool.serve("BYTES", |request, replier| {
        let buffer_type = Some(BufferType::Carray);
        replier.answer(request, Payload { buffer_type, ..request.payload });
    });
    let mut client = pool.client();
    let asked = text("x");
    client.call("BYTES", &asked, NONE).expect("any type will do");
    client.call("ECHO", &asked, CallFlags::NO_CHANGE).expect("the same type");
    let refused = client.call("BYTES", &asked, CallFlags::NO_CHANGE).expect_err("another type");
    assert_eq!(refused.code(), Code::OutputType);
    assert_eq!(client.calls_out(), 0);
}

#[test]
fn clients_of_one_process_have_queues_of_their_own_which_go_with_them() {
    let mut pool = Pool::start();
    pool.serve_echo();
    let clients: Vec<_> = (0..5).map(|_| pool.client()).collect();
    let names: std::collections::HashSet<_> = clients
        .iter()
        .map(|client| pool.prefix.reply_queue(client.address().pid, client.address().context))
        .collect();
    assert_eq!(names.len(), 5);
    assert!(pool.greeted.lock().expect("no panic").iter().all(|(hello, _)| {
        hello.starts_with(r#"{"Client":{"pid":"#) && hello.contains(",clt,reply,")
    }));
    std::thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || {
                for _ in 0..20 {
                    client.call("ECHO", &text("x"), NONE).expect("served");
                }
            });
        }
    });
    for name in names {
        let gone = MessageQueue::open(&name).expect_err("it went");
        assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    }
}

/// Held by tests that have memfds: one of them counts those of the whole process.
static MEMFDS: Mutex<()> = Mutex::new(());

fn memfds() -> usize {
    let is_memfd = |fd: &std::fs::DirEntry| {
        let link = std::fs::read_link(fd.path());
        link.is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:pollux-payload"))
    };
    let open = std::fs::read_dir("/proc/self/fd").expect("a listing");
    open.filter(|fd| fd.as_ref().is_ok_and(is_memfd)).count()
}

/// One test, as it counts the memfds of the whole process.
#[test]
fn a_mebibyte_goes_both_ways_and_few_memfds_are_kept() {
    let _memfds = MEMFDS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pool = Pool::start();
    let mut outbox = Outbox::default();
    // Gives the data back with another first byte; to a short request a reply from nowhere.
    pool.serve("LARGE", move |request, replier| {
        let Body::Large(place) = request.payload.body else {
            let nowhere = LargeRef { pid: 1, fd: 0, inode: 1, len_bytes: 9 };
            let body = Body::Large(nowhere);
            return replier.answer(request, Payload { body, ..request.payload });
        };
        let mut bytes = vec![0; place.len_bytes as usize];
        fetch(&place, &mut bytes).expect("the caller holds it");
        bytes[0] = b'!';
        let reply = outbox.put(&bytes, 0, Some(request.client.pid), 1).expect("held");
        let payload = Payload { body: Body::Large(reply), ..request.payload };
        replier.answer(request, payload);
    });
    let mut client = pool.client();
    let sent = b"0123456".repeat(MIB / 7 + 1)[..MIB].to_vec();
    let buffer = Buffer::carray(&sent).expect("it fits");
    let is_right = |bytes: &[u8]| bytes[0] == b'!' && bytes[1..] == sent[1..];

    for _ in 0..100 {
        let answer = client.call("LARGE", &buffer, NONE).expect("served");
        let buffer = answer.buffer.expect("data");
        assert!(answer.len_bytes == MIB && is_right(&buffer.as_bytes()[..MIB]));
        assert!(memfds() <= 2, "one reply of the last call and none of its requests");
    }

    // Kept, then asked for.
    let first = client.call_async("LARGE", &buffer, NONE).expect("sent");
    let second = client.call_async("LARGE", &buffer, NONE).expect("sent");
    for cd in [second, first] {
        let answer = client.answer(Which::One(cd), NONE).expect("served");
        assert!(is_right(&answer.buffer.expect("data").as_bytes()[..MIB]));
    }

    // Cancelled: the late reply is dropped and its memfd let go.
    let cancelled = client.call_async("LARGE", &buffer, NONE).expect("sent");
    client.cancel(cancelled).expect("it is out");
    for _ in 0..2 {
        client.call("LARGE", &buffer, NONE).expect("served");
    }
    assert_eq!(client.counters().late, 1);
    assert!(memfds() <= 5, "{} are open: two that each side keeps, and a reply", memfds());

    // Without replies; each is released when it was read.
    for _ in 0..200 {
        client.send_only("LARGE", Outgoing::of(&buffer, MIB).expect("sound"), NONE).expect("sent");
    }
    let small = Outgoing {
        buffer_type: Some(BufferType::Carray),
        buffer_size_bytes: 1,
        has_info: false,
        bytes: b"x",
    };
    let unreadable = client.call_into("LARGE", small, NONE, |_| Ok(Vec::leak(vec![0; 9])));
    assert_eq!(unreadable.expect_err("nowhere").code(), Code::ServiceError);
    drop(client);
    drop(pool);
    until("no memfd is left", || memfds() == 0);

    a_client_that_ends_holds_its_last_request_until_that_is_read();
    a_reply_for_an_earlier_owner_of_the_queue_is_released();
    assert_eq!(memfds(), 0);
}

fn a_reply_for_an_earlier_owner_of_the_queue_is_released() {
    let mut pool = Pool::start();
    let mut outbox = Outbox::default();
    let large = outbox.put(b"for another client", 0, None, 1).expect("held");
    pool.serve("ODD", move |request, replier| {
        let nonce = !request.client.nonce;
        let call_id = request.call_id;
        let payload = Payload { body: Body::Large(large), ..request.payload };
        let error = None;
        let rval = 0;
        let urcode = 0;
        let is_abort_only = false;
        let foreign = Reply { nonce, call_id, error, rval, urcode, is_abort_only, payload };
        replier.send(request, &foreign);
        replier.answer(request, request.payload);
    });
    let mut client = pool.client();
    client.call("ODD", &Buffer::carray(b"x").expect("short"), NONE).expect("served");
    assert_eq!(client.counters().foreign, 1);
    outbox.sweep(1);
    assert!(outbox.is_empty(), "no other client would read it");
}

fn a_client_that_ends_holds_its_last_request_until_that_is_read() {
    let mut pool = Pool::start();
    let (go, may_go) = mpsc::channel::<()>();
    let (report, reported) = mpsc::channel();
    pool.serve("LATER", move |request, _| {
        let Body::Large(place) = request.payload.body else { return };
        may_go.recv_timeout(PATIENCE).expect("let go");
        let _ = report.send(fetch_all(&place).map(|bytes| bytes.len()));
    });
    let mut client = pool.client();
    let buffer = Buffer::carray(&[7; 10_000]).expect("it fits");
    client.send_only("LATER", Outgoing::of(&buffer, 10_000).expect("sound"), NONE).expect("sent");
    let (say, said) = mpsc::channel();
    let ending = std::thread::spawn(move || {
        say.send(rustix::thread::gettid()).expect("the test listens");
        drop(client);
    });
    let tid = said.recv_timeout(PATIENCE).expect("it began");
    until("the client waits", || ending.is_finished() || sleeps(tid));
    go.send(()).expect("it waits");
    let taken = reported.recv_timeout(PATIENCE).expect("it was read");
    assert_eq!(taken.expect("the client holds it"), 10_000);
    ending.join().expect("no panic");
}
