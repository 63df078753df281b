//! Pools whose requests are in shared memory: what dies there, who writes there, how many come.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client, Which};
use pollux_xatmi::control::Request;
use pollux_xatmi::error::Code;

use crate::support::{PATIENCE, TestPool, kill_and_wait, say};

pub(crate) const TESTS: &[crate::Test] = &[
    ("callers_of_a_pool_that_was_killed_whole_are_told", callers_of_a_pool_that_was_killed),
    ("a_client_outlives_a_pool_that_comes_back", a_client_outlives_a_pool),
    ("calls_that_were_given_up_leave_room_for_others", calls_that_were_given_up),
    ("more_calls_than_a_ring_holds_are_refused_and_served_later", more_calls_than_a_ring_holds),
    ("clients_that_are_killed_in_mid_call_take_nothing_along", clients_that_are_killed),
    ("managers_that_are_killed_under_load_lose_no_call", managers_that_are_killed),
    ("a_client_that_writes_anywhere_harms_nobody_unseen", a_client_that_writes_anywhere),
    ("threads_that_come_and_go_find_room", threads_that_come_and_go),
    ("a_thousand_clients_call", a_thousand_clients),
];

const ONE: &str = "<server name='testsv'><srvid>1</srvid></server>";
const FOUR: &str = "<server name='testsv'><srvid>1</srvid><min>4</min><max>4</max></server>";

fn text(words: &str) -> Buffer {
    Buffer::string(words).expect("it fits")
}

fn echoes(client: &mut Client, words: &str) {
    let answer = client.call("ECHO", &text(words), CallFlags::NONE).expect("it serves");
    let buffer = answer.buffer.expect("it answers with data");
    assert!(buffer.as_bytes().starts_with(words.as_bytes()), "another's answer");
}

fn callers_of_a_pool_that_was_killed() {
    let mut pool = TestPool::start("", ONE);
    let worker = pool.pid(1);
    let mut client = pool.client();
    let call = client.call_async("HANG", &text("x"), CallFlags::NONE).expect("room");
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let waits = client.call_async("ECHO", &text("x"), CallFlags::NONE).expect("room");
    pool.kill_manager();
    kill_and_wait(worker);
    let began = Instant::now();
    pool.begin();
    let ended = |client: &mut Client, call| {
        client.answer(Which::One(call), CallFlags::NONE).expect_err("nobody serves it").code()
    };
    assert_eq!(ended(&mut client, call), Code::ServiceError, "its worker is dead");
    assert_eq!(ended(&mut client, waits), Code::NoEntry, "nobody offered it any more");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    pool.ask(&Request::Settle).expect("it is up");
    echoes(&mut client, "again");
    pool.end();
}

fn a_client_outlives_a_pool() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    echoes(&mut client, "first");
    pool.end();
    let error = client.call("ECHO", &text("x"), CallFlags::NONE).expect_err("nobody offers it");
    assert_eq!(error.code(), Code::NoEntry);
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    echoes(&mut client, "second");
    echoes(&mut pool.client(), "another");
    pool.end();
}

fn calls_that_were_given_up() {
    let mut pool = TestPool::start("", FOUR);
    let mut client = pool.client();
    for _ in 0..20 {
        let call = client.call_async("ECHO", &text("given up"), CallFlags::NONE).expect("room");
        client.cancel(call).expect("it is out");
        echoes(&mut client, "kept");
    }
    let calls: Vec<_> = (0..3)
        .map(|_| client.call_async("HANG", &text("x"), CallFlags::NONE).expect("room"))
        .collect();
    client.set_timeout(Duration::from_millis(100));
    for call in calls {
        let late = client.answer(Which::One(call), CallFlags::NO_BLOCK).expect_err("it hangs");
        assert_eq!(late.code(), Code::Block);
        client.cancel(call).expect("it is out");
    }
    client.set_timeout(PATIENCE);
    for number in 0..20 {
        echoes(&mut client, &format!("call {number} of the one that does not hang"));
    }
    let mut control = pollux_xatmi::control::Control::connect(&pool.prefix).expect("it runs");
    control.ask(&Request::End { now: true }, PATIENCE, |_| {}).expect("it ends");
    pool.ended();
}

fn more_calls_than_a_ring_holds() {
    const MOST: usize = 1_024;
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let hangs = client.call_async("HANG", &text("x"), CallFlags::NONE).expect("room");
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let send = |client: &mut Client| client.call_async("ECHO", &text("x"), CallFlags::NO_BLOCK);
    let calls: Vec<_> = (0..MOST).map(|_| send(&mut client).expect("room")).collect();
    assert_eq!(send(&mut client).expect_err("full").code(), Code::Block);
    kill_and_wait(pool.pid(1));
    for call in calls {
        client.answer(Which::One(call), CallFlags::NONE).expect("the next worker serves it");
    }
    let error = client.answer(Which::One(hangs), CallFlags::NONE).expect_err("its worker died");
    assert_eq!(error.code(), Code::ServiceError);
    pool.end();
}

/// A process that calls until it is killed.
fn caller(pool: &TestPool) -> std::process::Child {
    let mut process = pool.role("caller").stdout(Stdio::piped()).spawn().expect("a client");
    let mut said = String::new();
    let stdout = process.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut said).expect("a line");
    assert_eq!(said, "open\n");
    process
}

fn clients_that_are_killed() {
    const KILLS: usize = 40;
    let mut pool = TestPool::start("", FOUR);
    let mut client = pool.client();
    for number in 0..KILLS {
        let mut process = caller(&pool);
        echoes(&mut client, &format!("before the end of {number}"));
        process.kill().expect("ours");
        process.wait().expect("ours");
        echoes(&mut client, &format!("after the end of {number}"));
    }
    let calls: u64 = pool.workers().iter().map(|row| row.calls).sum();
    say(&format!("{KILLS} clients killed, {calls} calls"));
    assert_eq!((client.counters().malformed, client.counters().foreign), (0, 0));
    assert_eq!(pool.count("rings_rebuilt"), 0);
    pool.end();
}

fn managers_that_are_killed() {
    let app = "<restart_to_check>50</restart_to_check>";
    let mut pool = TestPool::start(app, FOUR);
    let before: Vec<u32> = (1..=4).map(|id| pool.pid(id)).collect();
    let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|number| {
            let (mut client, is_over) = (pool.client(), Arc::clone(&is_over));
            let calls = Arc::clone(&calls);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    echoes(&mut client, &format!("caller {number}"));
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..3 {
        pool.kill_manager();
        pool.begin();
        pool.ask(&Request::Settle).expect("all are taken over");
    }
    let seen = calls.load(Ordering::Relaxed);
    pool.until("calls go on", |_| calls.load(Ordering::Relaxed) > seen);
    is_over.store(true, Ordering::Relaxed);
    callers.into_iter().for_each(|caller| caller.join().expect("no call is lost"));
    let after: Vec<u32> = (1..=4).map(|id| pool.pid(id)).collect();
    assert_eq!(before, after);
    pool.end();
}

fn a_client_that_writes_anywhere() {
    const SECONDS: u64 = 5;
    let mut pool = TestPool::start("", FOUR);
    let mut scribbler = pool.role("scribbler").spawn().expect("a client");
    let (mut client, until) = (pool.client(), Instant::now() + Duration::from_secs(SECONDS));
    client.set_timeout(Duration::from_secs(2));
    let (mut answers, mut errors) = (0, 0);
    while Instant::now() < until {
        let words = format!("{answers} {errors}");
        match client.call("ECHO", &text(&words), CallFlags::NONE) {
            Ok(answer) => {
                answers += 1;
                let buffer = answer.buffer.expect("it answers with data");
                assert!(buffer.as_bytes().starts_with(words.as_bytes()), "wrong data");
            }
            Err(_) => errors += 1,
        }
    }
    scribbler.kill().expect("ours");
    scribbler.wait().expect("ours");
    // Whatever it broke is mended within some check cycles.
    pool.until("it serves as before", |pool| {
        let mut client = pool.client();
        client.set_timeout(Duration::from_secs(2));
        (0..100).all(|_| client.call("ECHO", &text("x"), CallFlags::NONE).is_ok())
    });
    let rebuilt = pool.count("rings_rebuilt");
    say(&format!("a scribbler: {answers} answers, {errors} errors, {rebuilt} rings rebuilt"));
    assert!(rebuilt == 0 || pool.log().contains("was broken and is rebuilt"), "{}", pool.log());
    pool.end();
}

fn threads_that_come_and_go() {
    const THREADS: usize = 40;
    const TIMES: usize = 20;
    let mut pool = TestPool::start("", FOUR);
    let environment = pool.environment();
    for _ in 0..TIMES {
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let environment = &environment;
                scope.spawn(move || {
                    let mut client = Client::open(environment).expect("room");
                    echoes(&mut client, &format!("thread {number}"));
                });
            }
        });
    }
    assert!(pool.count("client_contexts") >= (THREADS * TIMES) as u64);
    pool.end();
}

fn a_thousand_clients() {
    const CLIENTS: usize = 1_000;
    let mut pool = TestPool::start("", FOUR);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| pool.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        echoes(client, &format!("client {number}"));
    }
    drop(clients);
    pool.end();
}
