//! Pools whose requests are in shared memory: deaths, processes that write where they should not, many clients.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use pollux_sys::shared::{ReadOnlyPart, SharedPart, SharedWords};
use pollux_testing::{DEADLINE, Process, Signal};
use pollux_xatmi::client::{CallFlags, Client, ClientHello, Descriptor, Outgoing, Which};
use pollux_xatmi::control::{Answer, Request};
use pollux_xatmi::environment::Transport;
use pollux_xatmi::error::Code;
use pollux_xatmi::link::Received;

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals};

use crate::control::guest;
use crate::death::alone;
use crate::support::{ONE, TestPool, copies, echoes, kill_and_wait, say, signal, text};

pub(crate) const TESTS: &[crate::Test] = &[
    ("callers_of_a_pool_that_was_killed_are_answered", callers_of_a_pool_that_was_killed),
    ("a_client_outlives_a_pool_that_comes_back", a_client_outlives_a_pool),
    ("a_client_comes_to_a_pool_of_the_other_form", a_client_comes_to_a_pool_of_the_other_form),
    ("a_client_that_never_waits_comes_to_the_next_pool", a_client_that_never_waits),
    ("a_client_sees_the_services_of_the_next_manager", a_client_sees_the_services_of_the_next),
    ("a_client_can_write_no_records_and_change_no_size", a_client_can_write_no_records),
    ("calls_that_were_given_up_leave_room_for_others", calls_that_were_given_up),
    ("payloads_of_calls_that_were_given_up_are_let_go", payloads_of_calls_that_were_given_up),
    ("more_calls_than_a_ring_holds_are_refused_and_served_later", more_calls_than_a_ring_holds),
    ("workers_that_are_stopped_hold_up_no_call", workers_that_are_stopped),
    ("an_idle_worker_notices_the_end_of_its_manager_at_once", an_idle_worker_notices),
    ("a_forward_to_a_full_ring_ends_with_its_limit", a_forward_to_a_full_ring),
    ("a_client_that_writes_anywhere_harms_no_other_unseen", a_client_that_writes_anywhere),
    ("threads_that_come_and_go_find_room", threads_that_come_and_go),
    ("a_thousand_clients_call", a_thousand_clients),
    ("a_client_without_a_descriptor_for_the_memory_says_so", a_client_without_a_descriptor),
    ("a_client_that_cannot_follow_a_manager_keeps_its_calls", a_client_that_cannot_follow),
    ("a_worker_that_cannot_follow_a_manager_does_so_later", a_worker_that_cannot_follow),
    ("a_request_without_reply_is_served_where_workers_are_stopped", a_request_without_reply),
];

/// A call that the only worker is inside of, and stays.
fn hanging(pool: &mut TestPool, client: &mut Client) -> Descriptor {
    pool.until("the calls before it have ended", |pool| !pool.worker(1).is_busy);
    let call = client.call_async("HANG", &text("x"), CallFlags::NO_TIME).expect("room");
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    call
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
        client.answer(Which::One(call), CallFlags::NONE).expect_err("no worker serves it").code()
    };
    assert_eq!(ended(&mut client, call), Code::ServiceError, "its worker is dead");
    assert_eq!(ended(&mut client, waits), Code::NoEntry, "no worker offered it any more");
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
    let error = client.call("ECHO", &text("x"), CallFlags::NONE).expect_err("no worker offers it");
    assert_eq!(error.code(), Code::NoEntry);
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    echoes(&mut client, "second");
    echoes(&mut pool.client(), "another");
    pool.end();
}

/// Ends the pool and begins it anew with its calls in the other form.
fn turn_to(pool: &mut TestPool, transport: Transport) {
    pool.end();
    pool.travel_by(transport);
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
}

fn a_client_comes_to_a_pool_of_the_other_form() {
    let _alone = alone();
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let mut idle = pool.client();
    let address = client.address();
    echoes(&mut client, "in memory");
    turn_to(&mut pool, Transport::Queues);
    echoes(&mut client, "by queues");
    echoes(&mut client, &"a long text, by queues ".repeat(100));
    turn_to(&mut pool, Transport::Memory);
    echoes(&mut client, "in memory again");
    echoes(&mut client, &"a long text, in memory ".repeat(100));
    echoes(&mut idle, "after both");
    assert_eq!((client.address(), client.counters().managers_followed), (address, 2));
    // Calls that are out when the other form comes: one that a worker has, and one that waits.
    let worker = pool.pid(1);
    let hangs = hanging(&mut pool, &mut client);
    let waits = client.call_async("ECHO", &text("x"), CallFlags::NO_TIME).expect("room");
    pool.kill_manager();
    kill_and_wait(worker);
    pool.travel_by(Transport::Queues);
    pool.begin();
    let ended = |client: &mut Client, call| {
        client.answer(Which::One(call), CallFlags::NO_TIME).expect_err("it is over").code()
    };
    assert_eq!(ended(&mut client, hangs), Code::ServiceError, "its worker is dead");
    assert_eq!(ended(&mut client, waits), Code::NoEntry, "no worker served it");
    pool.ask(&Request::Settle).expect("it is up");
    echoes(&mut client, "by queues again");
    let hangs = hanging(&mut pool, &mut client);
    kill_and_wait(pool.pid(1));
    turn_to(&mut pool, Transport::Memory);
    echoes(&mut client, "in memory at last");
    assert_eq!(ended(&mut client, hangs), Code::ServiceError);
    pool.end();
}

fn a_client_that_never_waits() {
    let _alone = alone();
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let worker = pool.pid(1);
    let hangs = hanging(&mut pool, &mut client);
    pool.kill_manager();
    kill_and_wait(worker);
    let mut code = || {
        client
            .answer(Which::One(hangs), CallFlags::NO_BLOCK)
            .expect_err("its worker is dead")
            .code()
    };
    assert_eq!(code(), Code::Block, "there is no other pool yet");
    pool.begin();
    let mut last = Code::Block;
    pool.until("the call ends", |_| {
        last = code();
        last != Code::Block
    });
    assert_eq!(last, Code::ServiceError);
    pool.ask(&Request::Settle).expect("it is up");
    echoes(&mut client, "in the memory of the next");
    pool.end();
}

fn a_client_sees_the_services_of_the_next() {
    const OTHER: &str = "<server name='testsv'><srvid>2</srvid><appopt>other</appopt></server>";
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let mut late = pool.client();
    echoes(&mut client, "the first manager");
    echoes(&mut late, "the same");
    let worker = pool.pid(1);
    pool.kill_manager();
    echoes(&mut client, "no manager");
    pool.configure("", &format!("{ONE}{OTHER}"));
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    client.call("OTHER", &text("x"), CallFlags::NONE).expect("the second manager offers it");
    assert_eq!((pool.pid(1), client.counters().managers_followed), (worker, 1));
    pool.configure("", ONE);
    pool.ask(&Request::Reload).expect("it is right");
    pool.until("the other one is gone", |pool| pool.workers().len() == 1);
    pool.until("its service is gone", |pool| !pool.has_queue("OTHER"));
    let error = client.call("OTHER", &text("x"), CallFlags::NONE).expect_err("withdrawn");
    assert_eq!(error.code(), Code::NoEntry);
    echoes(&mut client, "the second manager");
    // Of one that has called nothing since the first manager the request would wait without a waiter.
    pool.configure("", OTHER);
    pool.ask(&Request::Reload).expect("it is right");
    pool.until("its services are gone", |pool| !pool.has_queue("ECHO") && pool.has_queue("OTHER"));
    let error = late.call("ECHO", &text("x"), CallFlags::NONE).expect_err("withdrawn");
    assert_eq!((error.code(), late.counters().managers_followed), (Code::NoEntry, 1));
    pool.end();
}

/// Each way to write a file of the pool's memory that this process has a descriptor of, or to change its
/// size; those that worked.
fn ways_to_write(fd: &OwnedFd) -> Vec<&'static str> {
    const PAGE: u64 = 4096;
    let file = File::from(fd.try_clone().expect("a descriptor"));
    let len = file.metadata().expect("a file").len();
    let mut worked = Vec::new();
    let mut note = |way, is_done: bool| worked.extend(is_done.then_some(way));
    note("shrink", file.set_len(0).is_ok());
    note("grow", file.set_len(len + PAGE).is_ok());
    note("seal", fcntl_add_seals(fd, SealFlags::WRITE).is_ok());
    note("seal for the future", fcntl_add_seals(fd, SealFlags::FUTURE_WRITE).is_ok());
    // What it does is not undone, so it comes where writing is forbidden only.
    if SharedPart::map(fd.as_fd(), 0, 1).is_ok() {
        note("map to write", true);
        return worked;
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    note("write", file.write_at(&[1], 0).is_ok());
    note("punch a hole", fallocate(fd, punch, 0, PAGE).is_ok());
    note("map whole to write", SharedWords::from_fd(fd.try_clone().expect("one")).is_ok());
    worked
}

/// Lines of `/proc/PID/maps` for a file of the memory of the pool: those that may be written, and all.
fn mapped(pid: u32, pool: &TestPool, which: &str) -> (usize, usize) {
    let name = format!("/memfd:pollux-pool-{which}:{} ", pool.prefix);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("proc is mounted");
    let its: Vec<&str> = maps.lines().filter(|line| line.contains(&name)).collect();
    (its.iter().filter(|line| line.contains(" rw-s ")).count(), its.len())
}

fn a_client_can_write_no_records() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    echoes(&mut client, "well");
    let own = std::process::id();
    let worker = pool.pid(1);
    assert_eq!([mapped(own, &pool, "records"), mapped(worker, &pool, "records")], [(0, 1); 2]);
    assert_eq!([mapped(own, &pool, "claims"), mapped(worker, &pool, "claims")], [(0, 0), (1, 1)]);
    assert_eq!([mapped(own, &pool, "exchange"), mapped(worker, &pool, "exchange")], [(1, 1); 2]);
    // A client that does what it likes with its descriptors.
    let queue = pool.prefix.reply_queue(own, 1_000_002).to_string_lossy().into_owned();
    let hello = ClientHello { pid: own, context: 1_000_002, nonce: 1, queue, memory: None };
    let mut link = guest(&pool);
    link.send(&Request::Client(hello)).expect("room");
    let received = link.receive_within::<Answer>(DEADLINE).expect("an answer");
    let Received::Message(Answer::Welcome(_), descriptors) = received else {
        panic!("{received:?}")
    };
    let [records, exchange]: [OwnedFd; 2] = descriptors.try_into().expect("two files");
    // As root opens it, and as no other user does.
    let again = format!("/proc/self/fd/{}", records.as_raw_fd());
    let again = File::options().read(true).write(true).open(again).map(OwnedFd::from);
    for fd in again.iter().chain([&records]) {
        assert_eq!(ways_to_write(fd), [""; 0]);
    }
    assert_eq!(ways_to_write(&exchange), ["map to write"]);
    echoes(&mut client, "none of it worked");
    // The manager that was the only one to write them is gone; the next one writes its own.
    pool.kill_manager();
    assert_eq!(ways_to_write(&records), [""; 0]);
    ReadOnlyPart::map_all(records.as_fd()).expect("they may be read all the same");
    pool.begin();
    pool.ask(&Request::Settle).expect("it is taken over");
    echoes(&mut client, "new records");
    assert_eq!((pool.pid(1), pool.count("worker_adoptions")), (worker, 1));
    assert_eq!([mapped(own, &pool, "records"), mapped(worker, &pool, "records")], [(0, 1); 2]);
    pool.end();
}

fn calls_that_were_given_up() {
    let mut pool = TestPool::start("", &copies(4));
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
    client.set_timeout(DEADLINE);
    for number in 0..20 {
        echoes(&mut client, &format!("call {number} of the one that does not hang"));
    }
    let mut control = pollux_xatmi::control::Control::connect(&pool.prefix).expect("it runs");
    control.ask(&Request::End { now: true }, DEADLINE, |_| {}).expect("it ends");
    pool.ended();
}

/// Requests and replies that are longer than a message, given up in the ring, in the service and answered:
/// a sender holds 64 of them at most.
fn payloads_of_calls_that_were_given_up() {
    const MOST: usize = 64;
    let _alone = alone();
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let long = text(&"long ".repeat(2_000));
    for number in 0..3 * MOST {
        let call = client.call_async("ECHO", &long, CallFlags::NO_TIME).expect("room");
        if number % 3 == 0 {
            echoes(&mut client, "served behind it, so that it is answered");
        }
        client.cancel(call).expect("it is out");
        if number % 3 == 1 {
            echoes(&mut client, "served behind it, so that it is out of the ring");
        }
    }
    for _ in 0..MOST {
        let calls =
            [(); 2].map(|()| client.call_async("ECHO", &long, CallFlags::NO_TIME).expect("room"));
        calls.into_iter().for_each(|call| client.cancel(call).expect("it is out"));
        echoes(&mut client, "both are out of the ring");
    }
    let answer = client.call("ECHO", &long, CallFlags::NONE).expect("both sides have space");
    assert!(answer.buffer.is_some_and(|buffer| buffer.as_bytes() == long.as_bytes()));
    pool.end();
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

fn workers_that_are_stopped() {
    // Without the client's look the last worker would find it after 20 s.
    const LONGEST: Duration = Duration::from_secs(10);
    // The manager looks for wakes that were lost in each check cycle: none comes here.
    let mut pool = TestPool::start("<sanity>600</sanity>", &copies(4));
    let mut client = pool.client();
    echoes(&mut client, "all are there");
    // The lowest idle one is woken first.
    let stopped = [1, 2, 3].map(|id| pool.pid(id));
    stopped.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let began = Instant::now();
    echoes(&mut client, "one is left");
    let took = began.elapsed();
    stopped.iter().for_each(|pid| signal(*pid, Signal::CONT));
    assert!(took < LONGEST, "{took:?}");
    pool.end();
}

fn an_idle_worker_notices() {
    if !pollux_sys::futex::has_vector() {
        return pollux_testing::skip(
            "a worker looks at its link every 20 s here: no futex_waitv(2) (Linux 5.16, or a filter)",
        );
    }
    // Without a word from the kernel it looks every 20 s.
    const LONGEST: Duration = Duration::from_secs(10);
    let mut pool = TestPool::start("", ONE);
    let worker = pool.pid(1);
    let linked = sockets(worker);
    pool.kill_manager();
    let killed = Instant::now();
    while sockets(worker) >= linked {
        assert!(killed.elapsed() < LONGEST, "it still has its link after {:?}", killed.elapsed());
        pollux_testing::pause(killed);
    }
    pool.begin();
    pool.ask(&Request::Settle).expect("it is taken over");
    assert_eq!(pool.pid(1), worker);
    echoes(&mut pool.client(), "taken over");
    pool.end();
}

/// Sockets of a process: a worker has one less without a link.
fn sockets(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
}

fn a_forward_to_a_full_ring() {
    const MOST: usize = 1_024;
    const GATE: &str = "<server name='testsv'><srvid>1</srvid><appopt>gate</appopt></server>";
    let mut pool = TestPool::start("", GATE);
    let gate = gate(&pool);
    let mut client = pool.client();
    let path = text(gate.to_str().expect("plain"));
    let gated = client.call_async("GATE", &path, CallFlags::NONE).expect("room");
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let send = |client: &mut Client, service| {
        client.call_async(service, &text("x"), CallFlags::NO_BLOCK).expect("room")
    };
    let passed = send(&mut client, "PASS");
    let calls: Vec<_> = (0..MOST).map(|_| send(&mut client, "ECHO")).collect();
    // Now it reads, and what it offers next is PASS: the ring of ECHO is full, and no other worker empties it.
    open_gate(&gate);
    let mut answer = |call| client.answer(Which::One(call), CallFlags::NONE);
    answer(gated).expect("it was let through");
    assert_eq!(answer(passed).expect_err("no room").code(), Code::Limit);
    calls.into_iter().for_each(|call| drop(answer(call).expect("it is served")));
    let again = client.call("PASS", &text("y"), CallFlags::NONE).expect("there is room now");
    assert!(again.buffer.is_some_and(|buffer| buffer.as_bytes().starts_with(b"y")));
    pool.end();
}

fn a_client_that_writes_anywhere() {
    const SECONDS: u64 = 5;
    let mut pool = TestPool::start("", &copies(4));
    let mut scribbler = Process::start(&mut pool.role("scribbler"));
    let mut client = pool.client();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    client.set_timeout(Duration::from_secs(2));
    let mut answers = 0;
    let mut errors = 0;
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
    scribbler.kill();
    // Whatever it broke is repaired within some check cycles.
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
    let mut pool = TestPool::start("", &copies(4));
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
    let mut pool = TestPool::start("", &copies(4));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| pool.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        echoes(client, &format!("client {number}"));
    }
    drop(clients);
    pool.end();
}

fn a_client_without_a_descriptor() {
    let mut pool = TestPool::start("", ONE);
    let said = Process::run(&mut pool.role("crowded")).stderr;
    assert!(said.contains("TPEOS") && said.contains("no descriptor for the memory"), "{said}");
    pool.end();
}

/// The answers of a call that a worker has, and of further ones, at the limit on descriptors.
fn a_client_that_cannot_follow() {
    let gates = "<server name='testsv'><srvid>1</srvid><min>2</min><max>2</max>\
                 <appopt>gate</appopt></server>";
    let mut pool = TestPool::start("<restart_to_check>50</restart_to_check>", gates);
    let gate = gate(&pool);
    let mut client = Process::start(pool.role("returning").stdin(Stdio::piped()));
    let mut orders = client.take_stdin();
    writeln!(orders, "{}", gate.display()).expect("it reads");
    client.wait_for_stderr_line("a call is out");
    pool.kill_manager();
    pool.begin();
    pool.until("the idle worker is taken over", |pool| pool.count("worker_adoptions") == 1);
    writeln!(orders, "call with one descriptor").expect("it reads");
    client.wait_for_stderr_line("called");
    pool.until("the manager has seen it go", |pool| {
        pool.count("client_contexts") > pool.clients() as u64
    });
    writeln!(orders, "call with more").expect("it reads");
    client.wait_for_stderr_line("followed");
    open_gate(&gate);
    client.wait_for_stderr_line("answered");
    assert!(client.wait().success());
    pool.end();
}

fn a_worker_that_cannot_follow() {
    const CROWD: &str = "<server name='testsv'><srvid>1</srvid><appopt>crowd</appopt></server>";
    let mut pool = TestPool::start("", CROWD);
    let worker = pool.pid(1);
    let mut client = pool.client();
    let mut call = |service| client.call(service, &text("x"), CallFlags::NONE);
    call("CROWD").expect("it has no descriptor left");
    pool.kill_manager();
    pool.begin();
    pool.until("it reports again", |pool| pool.count("worker_adoptions") > 1);
    call("ROOM").expect("it has descriptors again");
    pool.until("it works by the records of this manager", |_| call("GROW").is_ok());
    call("GROWN").expect("it is offered");
    assert_eq!(pool.pid(1), worker);
    pool.end();
}

fn a_request_without_reply() {
    // No check cycle comes here, and the worker that is left looks after 20 s.
    const LONGEST: Duration = Duration::from_secs(10);
    let mut pool = TestPool::start("<sanity>600</sanity>", &copies(4));
    let mut client = pool.client();
    echoes(&mut client, "all are there");
    let calls = |pool: &TestPool| pool.workers().iter().map(|row| row.calls).sum::<u64>();
    let stopped = [1, 2, 3].map(|id| pool.pid(id));
    stopped.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let before = calls(&pool);
    let began = Instant::now();
    let hello = text("x");
    let request = Outgoing::of(&hello, 0).expect("a text");
    client.send_only("ECHO", request, CallFlags::NONE).expect("room");
    while calls(&pool) == before && began.elapsed() < LONGEST {
        pollux_testing::pause(began);
    }
    let took = began.elapsed();
    stopped.iter().for_each(|pid| signal(*pid, Signal::CONT));
    assert!(took < LONGEST, "{took:?}");
    pool.end();
}

/// A pipe that a service waits for.
fn gate(pool: &TestPool) -> PathBuf {
    let gate = pool.folder.path().join("gate");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, mode).expect("a pipe");
    gate
}

fn open_gate(gate: &Path) {
    let opened = File::options().write(true).open(gate);
    opened.and_then(|mut gate| gate.write_all(b"!")).expect("the worker reads");
}
