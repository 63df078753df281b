//! What a caller sees when queues are full, withdrawn, or hold other messages, and when many call at once.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pollux_stats::Rng;
use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::client::{CallFlags, Client, Descriptor, Outgoing, Which};
use pollux_xatmi::error::Code;
use pollux_xatmi::wire::Reply;

use crate::support::{NONE, PATIENCE, Pool, SHORT, get, said, sleeps, text, until};

/// poll(2), where the machine has it beside ppoll(2).
#[cfg(target_arch = "x86_64")]
const POLL: Option<libc::c_long> = Some(libc::SYS_poll);
#[cfg(not(target_arch = "x86_64"))]
const POLL: Option<libc::c_long> = None;

const CALLERS: u64 = 6;
const STEPS: u64 = 250;
const SERVICES: [&str; 3] = ["ONE", "TWO", "THREE"];

#[test]
fn a_full_queue_is_reported_or_waited_for() {
    let pool = Pool::start();
    let queue = pool.queue("FULL", 2);
    let mut client = pool.client();
    for _ in 0..2 {
        client.send_only("FULL", Outgoing::NONE, CallFlags::NO_BLOCK).expect("room");
    }
    let full = client.call("FULL", &text("x"), CallFlags::NO_BLOCK).expect_err("full");
    assert_eq!(full.code(), Code::Block);
    assert_eq!(client.calls_out(), 0);
    client.set_next_timeout(Some(SHORT));
    let before = Instant::now();
    let late = client.call("FULL", &text("x"), NONE).expect_err("it stays full");
    assert_eq!(late.code(), Code::Time);
    assert!(before.elapsed() >= SHORT);

    let waits = client.counters().waits_for_room;
    assert!(waits > 0, "it was polled for room");
    let (report, reported) = mpsc::channel();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            report.send(rustix::thread::gettid()).expect("the test listens");
            client.send_only("FULL", Outgoing::NONE, NONE)
        });
        let sender = reported.recv_timeout(PATIENCE).expect("it began");
        until("the sender waits for room", || sleeps(sender));
        queue.receive(&mut [0; 1024]).expect("two are in it");
        sending.join().expect("no panic").expect("there was room");
    });
    assert!(client.counters().waits_for_room > waits);
    assert_eq!(queue.state().expect("open").messages_waiting, 2);
}

#[test]
fn of_the_threads_that_wait_for_room_one_polls_and_all_get_through() {
    const THREADS: usize = 6;
    let pool = Pool::start();
    let queue = pool.queue("FULL", 1);
    let mut first = pool.client();
    first.send_only("FULL", Outgoing::NONE, NONE).expect("room");
    let (report, reported) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let report = report.clone();
            let mut client = pool.client();
            scope.spawn(move || {
                report.send(rustix::thread::gettid()).expect("the test listens");
                client.send_only("FULL", Outgoing::NONE, NONE).expect("room in the end");
            });
        }
        let threads: Vec<_> = (0..THREADS)
            .map(|_| reported.recv_timeout(PATIENCE).expect("it began").as_raw_nonzero().get())
            .collect();
        until("one polls and the others wait for their turn", || {
            let calls = threads.iter().map(|thread| {
                let path = format!("/proc/self/task/{thread}/syscall");
                let line = std::fs::read_to_string(path).unwrap_or_default();
                line.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(-1)
            });
            let calls: Vec<libc::c_long> = calls.collect();
            let waiting = |call| calls.iter().filter(|found| **found == call).count();
            let polling = waiting(libc::SYS_ppoll) + POLL.map_or(0, waiting);
            (polling, waiting(libc::SYS_futex)) == (1, THREADS - 1)
        });
        for _ in 0..=THREADS {
            until("a message", || queue.receive(&mut [0; 1024]).is_ok());
        }
    });
    assert_eq!(queue.state().expect("open").messages_waiting, 0);
}

#[test]
fn replies_are_taken_while_room_is_waited_for() {
    // The service answers each request at once and takes the next one only when its answer went:
    // with queues of few messages each would wait for the other.
    let mut pool = Pool::start();
    pool.serve_echo();
    let mut client = pool.client();
    let cds: Vec<_> = (0..200)
        .map(|n| client.call_async("ECHO", &text(&n.to_string()), NONE).expect("sent"))
        .collect();
    for (n, cd) in cds.into_iter().enumerate().rev() {
        assert_eq!(get(&mut client, Which::One(cd)), Ok((cd, n.to_string())));
    }
}

#[test]
fn a_withdrawn_service_is_gone_and_back_when_offered_again() {
    let mut pool = Pool::start();
    pool.serve_echo();
    let mut client = pool.client();
    client.call("ECHO", &text("x"), NONE).expect("served");
    pool.withdraw("ECHO");
    until("it was noticed", || {
        // The old thread still serves the queue without a name.
        let called = client.call("ECHO", &text("x"), NONE);
        called.is_err_and(|error| error.code() == Code::NoEntry)
    });
    pool.serve_echo();
    client.call("ECHO", &text("x"), NONE).expect("served by others");
}

#[test]
fn a_wait_for_room_ends_when_the_service_is_withdrawn() {
    let pool = Pool::start();
    let queue = pool.queue("FULL", 1);
    let mut client = pool.client();
    client.send_only("FULL", Outgoing::NONE, NONE).expect("room");
    let (report, reported) = mpsc::channel();
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            report.send(rustix::thread::gettid()).expect("the test listens");
            client.call("FULL", &text("x"), NONE)
        });
        let caller = reported.recv_timeout(PATIENCE).expect("it began");
        until("the caller waits for room", || sleeps(caller));
        pool.withdraw("FULL");
        // As the manager does: what waits in a withdrawn queue is taken out.
        queue.receive(&mut [0; 1024]).expect("the first one");
        let gone = calling.join().expect("no panic").expect_err("it is not offered");
        assert_eq!(gone.code(), Code::NoEntry);
    });
}

#[test]
fn replies_to_other_calls_and_other_bytes_are_dropped_and_counted() {
    let mut pool = Pool::start();
    pool.serve("ODD", |request, replier| {
        let nonce = request.client.nonce;
        let call_id = request.call_id;
        let good = Reply::failing(nonce, call_id, Code::ServiceError);
        replier.send_bytes(request, b"short");
        replier.send_bytes(request, &[0xa5; 200]);
        replier.send_bytes(request, b"");
        replier.send(request, &Reply { nonce: !nonce, ..good });
        replier.send(request, &Reply { call_id: call_id + (1 << 14), ..good });
        replier.send(request, &Reply { call_id: call_id + 1, ..good });
        replier.send(request, &Reply { call_id: u64::MAX, ..good });
        replier.answer(request, request.payload);
    });
    let mut client = pool.client();
    let answer = client.call("ODD", &text("through it all"), NONE).expect("served at last");
    assert_eq!(said(answer.buffer), "through it all");
    let counters = client.counters();
    assert_eq!((counters.malformed, counters.foreign, counters.late), (3, 1, 3));
}

#[test]
fn a_flood_of_nonsense_does_not_outlast_the_time_limit() {
    let mut pool = Pool::start();
    let (done, is_done) = mpsc::channel::<()>();
    pool.serve("FLOOD", move |request, replier| {
        let name = replier.prefix.reply_queue(request.client.pid, request.client.context);
        let queue = MessageQueue::open(&name).expect("the caller waits");
        while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let _ = queue.send(b"nonsense", 0);
        }
    });
    let mut client = pool.client();
    client.set_timeout(SHORT);
    let late = client.call("FLOOD", &text("x"), NONE).expect_err("no reply comes");
    assert_eq!(late.code(), Code::Time);
    assert!(client.counters().malformed > 0);
    drop(done);
}

/// Serves requests: most are answered, some twice, some never, some with an error.
fn serve(pool: &mut Pool, service: &str, seed: u64) {
    let mut random = Rng::seeded(seed);
    pool.serve(service, move |request, replier| match random.below(20) {
        0 => {}
        1 => {
            let nonce = request.client.nonce;
            let call_id = request.call_id;
            replier.send(request, &Reply::failing(nonce, call_id, Code::ServiceError));
        }
        2 => {
            replier.answer(request, request.payload);
            replier.answer(request, request.payload);
        }
        _ => replier.answer(request, request.payload),
    });
}

/// One caller: sends, asks, gives up, in any order; every answer must be that of its call.
fn call_at_random(client: &mut Client, caller: u64) -> [u32; 3] {
    let mut random = Rng::stream(1, caller);
    let mut out: HashMap<Descriptor, String> = HashMap::new();
    let [mut right, mut failed, mut late] = [0; 3];
    for step in 0..STEPS {
        let any = out.keys().nth(random.below(out.len().max(1))).copied();
        let which = match (random.below(8), any) {
            (0, Some(descriptor)) => {
                client.cancel(descriptor).expect("it is out");
                out.remove(&descriptor);
                continue;
            }
            (1 | 2, Some(descriptor)) => Which::One(descriptor),
            (3, Some(_)) => Which::Any,
            _ => {
                let service = SERVICES[random.below(3)];
                let said = format!("{caller}-{step}");
                match client.call_async(service, &text(&said), NONE) {
                    Ok(descriptor) => {
                        assert_eq!(out.insert(descriptor, said), None, "given out while open");
                    }
                    Err(error) => assert_eq!(error.code(), Code::Time, "the queue stayed full"),
                }
                continue;
            }
        };
        match get(client, which) {
            Ok((descriptor, said)) => {
                assert_eq!(out.remove(&descriptor), Some(said), "another call's reply");
                right += 1;
            }
            // The error does not name its call, so all of these are given up.
            Err(Code::ServiceError) => {
                failed += 1;
                for (descriptor, _) in out.drain() {
                    let _ = client.cancel(descriptor);
                }
            }
            Err(Code::Time) => late += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    [right, failed, late]
}

#[test]
fn no_reply_reaches_another_call() {
    let mut pool = Pool::start();
    for (number, service) in SERVICES.iter().enumerate() {
        serve(&mut pool, service, 77 + number as u64);
    }
    let sums = std::thread::scope(|scope| {
        let callers: Vec<_> = (1..=CALLERS)
            .map(|caller| {
                let mut client = pool.client();
                client.set_timeout(Duration::from_millis(40));
                scope.spawn(move || (call_at_random(&mut client, caller), client.counters()))
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect::<Vec<_>>()
    });
    let sum = |of: usize| sums.iter().map(|(counts, _)| counts[of]).sum::<u32>();
    assert!(sum(0) > 0 && sum(1) > 0 && sum(2) > 0, "right, failed and late: {sums:?}");
    let dropped: u64 = sums.iter().map(|(_, counters)| counters.late).sum();
    assert!(dropped > 0, "second answers and those of cancelled calls were dropped");
    for (_, counters) in sums {
        assert_eq!((counters.malformed, counters.foreign), (0, 0));
    }
}
