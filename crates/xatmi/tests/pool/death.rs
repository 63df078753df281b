//! Pools whose parts are killed, stopped or hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pollux_testing::DEADLINE;
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::CallFlags;
use pollux_xatmi::control::{Control, Request};
use pollux_xatmi::error::Code;
use rustix::process::Signal;

use crate::support::{TestPool, kill_and_wait, say, signal, signal_if_there};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_killed_worker_comes_back", a_killed_worker_comes_back),
    (
        "the_caller_of_a_worker_that_dies_is_answered_at_once",
        the_caller_of_a_worker_that_dies_is_answered,
    ),
    ("a_worker_that_stands_still_is_ended_and_replaced", a_worker_that_stands_still_is_replaced),
    ("callers_in_the_queue_are_answered_when_the_pool_ends", callers_in_the_queue_are_answered),
    ("workers_outlive_a_killed_manager_and_are_taken_over", workers_outlive_a_killed_manager),
    ("queues_of_a_pool_that_was_killed_whole_are_replaced", queues_of_a_killed_pool_are_replaced),
    ("deaths_under_load_lose_no_call_and_mix_up_none", deaths_under_load),
    ("an_end_at_once_kills_what_hangs", an_end_at_once_kills_what_hangs),
];

/// Those that speak of queues themselves.
pub(crate) const QUEUE_TESTS: &[crate::Test] =
    &[("clients_outlive_a_killed_manager_and_leave_no_queue", clients_outlive_a_killed_manager)];

const ONE: &str = "<server name='testsv'><srvid>1</srvid></server>";

fn text(words: &str) -> Buffer {
    Buffer::string(words).expect("it fits")
}

fn a_killed_worker_comes_back() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>2</min><max>2</max></server>";
    let mut pool = TestPool::start("", servers);
    let before = pool.pid(1);
    signal(before, Signal::KILL);
    pool.until("it is replaced", |pool| {
        let row = pool.worker(1);
        row.state == "up" && row.restarts == 1 && row.pid != Some(before)
    });
    assert_eq!(pool.worker(2).restarts, 0);
    assert!(pool.log().contains("was ended by signal 9"), "{}", pool.log());
    let mut client = pool.client();
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    pool.end();
}

fn the_caller_of_a_worker_that_dies_is_answered() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let began = Instant::now();
    let error = client.call("CRASH", &text("x"), CallFlags::NONE).expect_err("it dies");
    // The time-out of the call is a minute.
    assert_eq!(error.code(), Code::ServiceError);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The only worker comes back, and the queue stood meanwhile.
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("it serves again");
    assert_eq!((pool.count("worker_ends_busy"), pool.count("answers_sent")), (1, 1));
    pool.end();
}

fn a_worker_that_stands_still_is_replaced() {
    let servers = "<server name='testsv'><srvid>1</srvid><pingtime>1</pingtime>\
                   <ping_max>1</ping_max><killtime>1</killtime></server>";
    let mut pool = TestPool::start("", servers);
    let before = pool.pid(1);
    signal(before, Signal::STOP);
    pool.until("it is replaced", |pool| {
        let row = pool.worker(1);
        row.state == "up" && row.restarts > 0 && row.pid != Some(before)
    });
    let log = pool.log();
    for number in ["is sent signal 2", "is sent signal 15", "is sent signal 9"] {
        assert!(log.contains(number), "{number}: {log}");
    }
    // The new one stands as well, or a busy machine had it ended too: either way it is answered.
    pool.until("it serves", |pool| pool.worker(1).state == "up");
    pool.end();
}

fn callers_in_the_queue_are_answered() {
    let servers = "<server name='testsv'><srvid>1</srvid><end_max>1</end_max></server>";
    let mut pool = TestPool::start("", servers);
    let call = |pool: &TestPool| {
        let mut client = pool.client();
        std::thread::spawn(move || {
            let error = client.call("HANG", &text("x"), CallFlags::NONE).expect_err("it hangs");
            (error.code(), Instant::now())
        })
    };
    let inside = call(&pool);
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let waiting = [call(&pool), call(&pool), call(&pool)];
    pool.until("three wait", |pool| waiting_in(pool, "HANG") == 3);
    let ordered = Instant::now();
    pool.end();
    for caller in waiting {
        let (code, at) = caller.join().expect("no panic");
        assert_eq!(code, Code::NoEntry);
        assert!(at - ordered < Duration::from_secs(20), "{:?}", at - ordered);
    }
    assert_eq!(inside.join().expect("no panic").0, Code::ServiceError);
}

fn workers_outlive_a_killed_manager() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>3</min><max>3</max></server>";
    let mut pool = TestPool::start("<restart_to_check>50</restart_to_check>", servers);
    let before = [1, 2, 3].map(|id| pool.pid(id));
    let mut client = pool.client();
    pool.kill_manager();
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("the manager is not asked");
    signal(before[2], Signal::KILL);
    pool.begin();
    pool.ask(&Request::Settle).expect("all are up");
    assert_eq!([1, 2].map(|id| pool.pid(id)), [before[0], before[1]]);
    assert_ne!(pool.pid(3), before[2]);
    assert_eq!(pool.count("worker_adoptions"), 2);
    pool.client().call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    // What was taken over is watched as well as what was started.
    signal(before[0], Signal::KILL);
    pool.until("it is replaced", |pool| {
        let row = pool.worker(1);
        row.state == "up" && row.pid != Some(before[0])
    });
    drop(client);
    pool.end();
}

fn queues_of_a_killed_pool_are_replaced() {
    let mut pool = TestPool::start("", ONE);
    let worker = pool.pid(1);
    pool.kill_manager();
    kill_and_wait(worker);
    assert!(pool.has_queue("ECHO"), "no manager could remove it");
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    pool.client().call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    pool.end();
}

fn clients_outlive_a_killed_manager() {
    let mut pool = TestPool::start("", ONE);
    let mut client = crate::life::Context::begin(&pool);
    pool.kill_manager();
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    assert!(client.has_queue(), "it lives");
    client.kill();
    pool.until("its queue is removed", |_| !client.has_queue());
    pool.end();
}

/// Every call ends in its own answer or in an error that callers know, and nothing stays behind.
fn deaths_under_load() {
    const DEATHS: usize = 30;
    const CALLERS: usize = 4;
    let servers = "<server name='testsv'><srvid>1</srvid><min>16</min><max>16</max></server>";
    let mut pool = TestPool::start("<restart_max>1</restart_max>", servers);
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (mut client, is_over) = (pool.client(), Arc::clone(&is_over));
            client.set_timeout(Duration::from_secs(10));
            std::thread::spawn(move || {
                let (mut answers, mut errors) = (0_u64, 0_u64);
                while !is_over.load(Ordering::Relaxed) {
                    let words = format!("{caller} {answers}");
                    match client.call("ECHO", &text(&words), CallFlags::NONE) {
                        Ok(answer) => {
                            answers += 1;
                            let buffer = answer.buffer.expect("it answers with data");
                            assert!(buffer.as_bytes().starts_with(words.as_bytes()));
                        }
                        Err(error) => {
                            errors += 1;
                            let known = [Code::ServiceError, Code::Time];
                            assert!(known.contains(&error.code()), "{error}");
                        }
                    }
                }
                (answers, errors)
            })
        })
        .collect();
    for death in 0..DEATHS {
        // The head of the wait list, which has most of the work, more often than the others.
        let id = 1 + (death * 7 % 16) as u32;
        let mut victim = None;
        pool.until("a worker is there to be killed", |pool| {
            victim = pool.worker(id).pid;
            victim.is_some()
        });
        signal_if_there(victim.expect("found above"), Signal::KILL);
    }
    is_over.store(true, Ordering::Relaxed);
    let sums = callers.into_iter().map(|caller| caller.join().expect("no mix-up"));
    let (answers, errors) = sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    say(&format!("{DEATHS} deaths under load: {answers} answers, {errors} errors"));
    assert!(answers > 0);
    pool.end();
}

fn an_end_at_once_kills_what_hangs() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let caller = std::thread::spawn(move || client.call("HANG", &text("x"), CallFlags::NONE));
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let mut control = Control::connect(&pool.prefix).expect("it runs");
    control.ask(&Request::End { now: true }, DEADLINE, |_| {}).expect("it ends");
    let error = caller.join().expect("no panic").expect_err("its worker was killed");
    assert_eq!(error.code(), Code::ServiceError);
    pool.ended();
}

fn waiting_in(pool: &TestPool, service: &str) -> u32 {
    pool.queues().iter().filter(|row| row.service == service).map(|row| row.depth).sum()
}
