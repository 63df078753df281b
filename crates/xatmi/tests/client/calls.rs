//! Calls over real queues: what a caller sees when services answer, fail, are slow or unknown.

use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::client::{Arriving, CallError, CallFlags, Client, Descriptor, Outgoing, Which};
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::wire::{Payload, Reply};

use crate::held::{NONE, SHORT, get, next, said, serve_held, text};
use crate::support::{PATIENCE, Pool};

fn nobody(_: &Arriving) -> Result<&'static mut [u8], Error> {
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
        let (nonce, call_id, payload) = (request.client.nonce, request.call_id, request.payload);
        let error = Some(Code::ServiceFailed);
        replier.send(request, &Reply { nonce, call_id, error, rval: 1, urcode: -7, payload });
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
        let (nonce, call_id) = (request.client.nonce, request.call_id);
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
fn nobody_offers_an_unknown_service() {
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
    let late = client.call("HELD", &text("slow"), NONE).expect_err("nobody answers");
    let took = before.elapsed();
    assert_eq!(late.code(), Code::Time);
    assert!(took >= SHORT && took < SHORT + Duration::from_secs(2), "{took:?}");
    next(&held).answer(&pool);
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
    client.set_timeout(PATIENCE);
    let slow = next(&held);
    let before = Instant::now();
    assert_eq!(get(&mut client, Which::One(cd)), Err(Code::Time), "it waits as long as was set");
    assert!(before.elapsed() >= SHORT / 2);
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
    let slow = next(&held);
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
    next(&held).answer(&pool);
    next(&held).answer(&pool);
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
    let asked: Vec<_> = (0..4).map(|_| next(&held)).collect();
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
    let none = client.wait_reply(Which::Any, CallFlags::NO_BLOCK, nobody).expect_err("none out");
    assert_eq!((none.code(), none.descriptor), (Code::Block, None));
    let cd = client.call_async("HELD", &text("x"), NONE).expect("sent");
    let none = client.wait_reply(Which::One(cd), CallFlags::NO_BLOCK, nobody);
    assert_eq!(none.expect_err("not yet").code(), Code::Block);
    next(&held).answer(&pool);
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
fn the_memory_of_the_caller_is_written_and_its_refusal_is_the_error() {
    let mut pool = Pool::start();
    pool.serve_echo();
    let mut client = pool.client();
    let request =
        Outgoing { buffer_type: Some(BufferType::Carray), buffer_size_bytes: 512, bytes: b"abc" };
    let mut memory = [0; 8];
    let mut told = None;
    let arrived = client.call_into("ECHO", request, NONE, |arriving| {
        told = Some(*arriving);
        Ok(&mut memory[..arriving.len_bytes])
    });
    let arrived = arrived.expect("served");
    let wanted =
        Arriving { buffer_type: Some(BufferType::Carray), buffer_size_bytes: 512, len_bytes: 3 };
    assert_eq!(told, Some(wanted));
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
    let invalid = client.call_into("ECHO", untyped, NONE, nobody).expect_err("no type");
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
