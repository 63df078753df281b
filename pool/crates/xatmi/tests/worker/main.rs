//! Workers as processes, with a small stand-in for the manager: requests and replies, as a caller sees them.
//!
//! Each worker is this binary, started again: [`a_worker_process`] is its main function, and
//! [`function`] its services.

mod ends_and_wakes;
mod stand_in;

use std::ffi::OsString;
use std::fs::File;
use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client, Outgoing, Welcome};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::Code;
use pollux_xatmi::large::Outbox;
use pollux_xatmi::link::{PeerLink, Received, ToManager, ToWorker};
use pollux_xatmi::queue::{ServiceName, monotonic_ns};
use pollux_xatmi::slots::{Total, name_hash};
use pollux_xatmi::wire::{Body, Payload};
use pollux_xatmi::worker::{
    Done, Ending, Incoming, RVAL_EXIT, RVAL_SUCCESS, Registry, Return, Worker,
};
use rustix::net::{SocketFlags, accept_with};

use crate::stand_in::{Caller, How, MESSAGE_LEN_BYTES, StandIn, carray, is_full};

/// Which services the process offers, with commas between them.
const SERVICES: &str = "POLLUX_TEST_SERVICES";
/// A file that keeps services busy as long as the test has it locked.
const GATE: &str = "POLLUX_TEST_GATE";
/// What to add to the command line.
const ARGUMENTS: &str = "POLLUX_TEST_ARGUMENTS";

/// The exit code of a worker that the start function refused.
const REFUSED: i32 = 3;
/// The exit code of a worker that panicked.
const PANICKED: i32 = 4;
/// The exit code of a worker that returned with TPEXIT.
const EXITED: i32 = 5;

/// Not a test of its own: the body of the processes that the tests start.
#[test]
fn a_worker_process() {
    if std::env::var_os(pollux_xatmi::worker::LINK_VARIABLE).is_some() {
        std::process::exit(run());
    }
}

/// Runs a worker to its end; its exit code.
fn run() -> i32 {
    let worker = Worker::from_environment().expect("started by a test");
    let registry = worker.registry();
    let services = std::env::var(SERVICES).expect("set by the test");
    let more = std::env::var(ARGUMENTS).unwrap_or_default();
    let arguments = ["worker"].into_iter().chain(more.split_whitespace()).map(OsString::from);
    let init = |_: &[OsString]| {
        if services == "REFUSE" {
            return Err("not today".to_owned());
        }
        // Those that the program was built with, and others.
        let (built_in, added) = services.split_once('|').unwrap_or((&services, ""));
        for part in [built_in, added] {
            for service in part.split(',').filter(|service| !service.is_empty()) {
                let offered = registry.advertise(service, service, function(service, &registry));
                offered.map_err(|error| error.to_string())?;
            }
            if part == built_in {
                registry.built_in_end();
            }
        }
        Ok(())
    };
    match worker.run(arguments, init, || {}) {
        Ok(Ending::Stopped) => 0,
        Ok(Ending::Exited) => EXITED,
        Ok(Ending::Panicked { .. }) => PANICKED,
        Ok(Ending::Abandoned) => 6,
        Err(error) if error.code() == Code::Init => REFUSED,
        Err(error) => panic!("{error}"),
    }
}

fn function(service: &str, registry: &Registry) -> Box<dyn FnMut(Incoming) -> Done> {
    let registry = registry.clone();
    let mut client = None;
    match service {
        "FAIL" => Box::new(|request| Done::failure(request.buffer)),
        "NOTHING" => Box::new(|_| Done::NoReturn),
        "PANIC" => Box::new(|_| panic!("the service is broken")),
        "EXIT" => Box::new(|request| returning(request, RVAL_SUCCESS | RVAL_EXIT, 0)),
        "HOLD" => Box::new(|request| {
            pass_gate();
            Done::success(request.buffer)
        }),
        "RELAY" => Box::new(|request| forward(request, "ECHO")),
        "TWICE" => Box::new(|request| forward(request, "RELAY")),
        "ASTRAY" => Box::new(|request| forward(request, "NOBODY")),
        "ADVERTISE" => Box::new(move |request| {
            let name = text(&request);
            let offered = registry.advertise(&name, "echo", |later| Done::success(later.buffer));
            let code = offered.map_or_else(|error| error.code().number(), |()| 0);
            returning(request, RVAL_SUCCESS, code.into())
        }),
        "WITHDRAW" => Box::new(move |request| {
            let code = registry.unadvertise(&text(&request));
            let code = code.map_or_else(|error| error.code().number(), |()| 0);
            returning(request, RVAL_SUCCESS, code.into())
        }),
        "NESTED" => Box::new(move |request| {
            let environment = Environment::of_process().expect("set by the test");
            let client = client.get_or_insert_with(|| Client::open(&environment).expect("a pool"));
            let mut room = [0; 64];
            let bytes = &request.buffer.as_ref().expect("sent with one").as_bytes()[..4];
            let sent = Outgoing {
                buffer_type: Some(pollux_xatmi::buffer::BufferType::Carray),
                buffer_size_bytes: 64,
                has_info: false,
                bytes,
            };
            let arrived = client.call_into("ECHO", sent, CallFlags::NONE, |arriving| {
                Ok(&mut room[..arriving.len_bytes])
            });
            let len = arrived.expect("answered").payload.len_bytes;
            Done::success(Buffer::carray(&room[..len]).expect("small"))
        }),
        _ => Box::new(|request| returning(request, RVAL_SUCCESS, 42)),
    }
}

/// The request's data, sent back as it came.
fn returning(request: Incoming, rval: i32, urcode: i64) -> Done {
    let Incoming { buffer, len_bytes, .. } = request;
    let soft_error = None;
    let is_abort_only = false;
    let call_info = None;
    Done::Return(Return { rval, urcode, buffer, len_bytes, call_info, soft_error, is_abort_only })
}

fn forward(request: Incoming, service: &str) -> Done {
    let service = ServiceName::new(service).expect("a name");
    let Incoming { buffer, len_bytes, .. } = request;
    Done::Forward { service, buffer, len_bytes, call_info: None, priority: None }
}

fn text(request: &Incoming) -> String {
    let buffer = request.buffer.as_ref().expect("sent with one");
    String::from_utf8(buffer.as_bytes()[..request.len_bytes].to_vec()).expect("text")
}

fn pass_gate() {
    let path = std::env::var_os(GATE).expect("set by the test");
    let gate = File::open(path).expect("made by the test");
    rustix::fs::flock(gate, rustix::fs::FlockOperation::LockShared).expect("a lock");
}

#[test]
fn a_service_answers_with_its_verdict_and_is_counted() {
    let (mut pool, mut caller) = StandIn::serving("verdict", "ECHO,FAIL,NOTHING", 2);
    let answer = caller.call(&mut pool, "ECHO", b"ping");
    assert_eq!((answer.error, answer.urcode, &answer.bytes[..]), (None, 42, &b"ping"[..]));
    let answer = caller.call(&mut pool, "FAIL", b"pong");
    assert_eq!(answer.error, Some(Code::ServiceFailed));
    assert_eq!(&answer.bytes[..4], b"pong");
    let answer = caller.call(&mut pool, "NOTHING", b"");
    assert_eq!((answer.error, answer.bytes.len()), (Some(Code::ServiceError), 0));
    pool.stop();
    let totals = pool.slot(0).totals();
    let services = pool.slot(0).services();
    assert_eq!((totals[Total::Calls], totals[Total::Failed]), (3, 2));
    let echo = services.iter().find(|tally| tally.name_hash == name_hash("ECHO"));
    let echo = echo.expect("offered");
    assert_eq!((echo.ok, echo.failed), (1, 0));
    assert!(echo.max_ns > 0 && echo.last_ns == echo.max_ns);
    assert_eq!(pool.workers[0].received.last(), Some(&ToManager::Bye));
}

#[test]
fn a_request_goes_from_service_to_service_and_the_last_one_answers() {
    let mut pool = StandIn::new("forward", 3);
    pool.start("TWICE,ASTRAY", 1);
    pool.start("RELAY", 1);
    pool.start("ECHO", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    let answer = caller.call(&mut pool, "TWICE", b"far");
    assert_eq!((answer.error, &answer.bytes[..]), (None, &b"far"[..]));
    let answer = caller.call(&mut pool, "ASTRAY", b"lost");
    assert_eq!(answer.error, Some(Code::ServiceError));
    let without = How { is_without_reply: true, ..How::default() };
    caller.send_how(&mut pool, "TWICE", b"quiet", without);
    pool.wait_for("the whole chain twice and ASTRAY", |pool| pool.total(Total::Calls) == 7);
    pool.stop();
    assert_eq!(caller.take(), None);
}

#[test]
fn a_caller_without_reply_is_not_answered() {
    let (mut pool, mut caller) = StandIn::serving("noreply", "ECHO,NOTHING", 2);
    let without = How { is_without_reply: true, ..How::default() };
    caller.send_how(&mut pool, "ECHO", b"x", without);
    caller.send_how(&mut pool, "NOTHING", b"x", without);
    pool.wait_for("both calls", |pool| pool.total(Total::Calls) == 2);
    pool.stop();
    assert_eq!(caller.take(), None);
}

#[test]
fn a_caller_that_does_not_read_blocks_no_other_and_gets_its_replies_later() {
    let (mut pool, mut idle) = StandIn::serving("deferred", "ECHO", 2);
    for number in 0..6_u8 {
        idle.send(&mut pool, "ECHO", &[number]);
    }
    pool.wait_for("four replies that wait", |pool| pool.total(Total::Deferred) == 4);
    let mut brisk = Caller::new(&pool.prefix, 2);
    for _ in 0..20 {
        assert_eq!(brisk.call(&mut pool, "ECHO", b"me").bytes, b"me");
    }
    let seen: Vec<_> = (0..6).map(|_| idle.answer(&mut pool).bytes[0]).collect();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    pool.stop();
    assert_eq!(pool.total(Total::Dropped), 0);
}

#[test]
fn a_deferred_reply_is_dropped_when_its_deadline_is_over() {
    let (mut pool, mut idle) = StandIn::serving("expired", "ECHO", 1);
    // Far enough away that the second is served, near enough for a short test.
    let deadline_ns = monotonic_ns() + Duration::from_millis(1500).as_nanos() as u64;
    idle.send(&mut pool, "ECHO", b"fits");
    idle.send_how(&mut pool, "ECHO", b"late", How { deadline_ns, ..How::default() });
    pool.wait_for("a reply that waits", |pool| pool.total(Total::Deferred) == 1);
    pool.wait_for("its end", |pool| pool.total(Total::Dropped) == 1);
    assert!(monotonic_ns() >= deadline_ns);
    assert_eq!(idle.answer(&mut pool).bytes, b"fits");
    pool.stop();
    assert_eq!(idle.take(), None);
}

#[test]
fn replies_for_a_caller_that_is_gone_are_counted_and_its_queue_is_closed() {
    let mut pool = StandIn::new("gone", 1);
    let gate = pool.gate();
    pool.start("HOLD,ECHO", 1);
    let mut leaving = Caller::new(&pool.prefix, 1);
    leaving.send(&mut pool, "HOLD", b"x");
    pool.wait_for("the service to run", |pool| pool.busy() == 1);
    drop(leaving);
    drop(gate);
    pool.wait_for("the reply to find its caller gone", |pool| pool.total(Total::Gone) == 1);
    let mut full = Caller::new(&pool.prefix, 1);
    full.send(&mut pool, "ECHO", b"fits");
    full.send(&mut pool, "ECHO", b"waits");
    pool.wait_for("a reply that waits", |pool| pool.total(Total::Deferred) == 1);
    drop(full);
    pool.say(0, &ToWorker::Sweep);
    pool.wait_for("the queue to be closed", |pool| pool.total(Total::Gone) == 2);
    let held = format!("/proc/{}/fd", pool.workers[0].child.id());
    let held = std::fs::read_dir(held)
        .expect("alive")
        .filter_map(|fd| std::fs::read_link(fd.expect("listed").path()).ok());
    let mut held = held.map(|path| path.to_string_lossy().into_owned());
    assert!(!held.any(|path| path.contains("clt,reply")), "a queue of the dead is held open");
    pool.stop();
}

#[test]
fn requests_that_are_late_are_not_served() {
    let mut pool = StandIn::new("late", 1);
    let gate = pool.gate();
    pool.start("HOLD,ECHO", 1);
    let mut caller = Caller::new(&pool.prefix, 4);
    caller.send(&mut pool, "HOLD", b"");
    pool.wait_for("the service to run", |pool| pool.busy() == 1);
    let deadline_ns = monotonic_ns() + 1_000_000;
    caller.send_how(&mut pool, "ECHO", b"late", How { deadline_ns, ..How::default() });
    let on_time = caller.send(&mut pool, "ECHO", b"on time");
    pool.wait_for("the deadline", |_| monotonic_ns() > deadline_ns);
    drop(gate);
    assert_eq!(caller.answer(&mut pool).call_id, 1);
    assert_eq!(caller.answer(&mut pool).call_id, on_time);
    pool.stop();
    assert_eq!((pool.total(Total::Late), pool.total(Total::Calls)), (1, 2));
}

#[test]
fn other_bytes_are_counted_and_the_next_request_is_served() {
    let (mut pool, mut caller) = StandIn::serving("malformed", "ECHO", 4);
    let queue = pool.queue("ECHO");
    for length in [0, 1, 79, 200, 1024] {
        queue.send(&vec![0xa5; length], 0).expect("room");
    }
    pool.wait_for("five of them", |pool| pool.total(Total::Malformed) == 5);
    // Text without its end, and a memfd that is closed: both callers are answered.
    let kind = Some(pollux_xatmi::buffer::BufferType::String);
    let endless = Payload {
        buffer_type: kind,
        buffer_size_bytes: 8,
        has_info: false,
        body: Body::Inline(b"abc"),
    };
    caller.try_send("ECHO", endless, How::default()).expect("room");
    assert_eq!(caller.answer(&mut pool).error, Some(Code::ServiceError));
    let mut outbox = Outbox::default();
    let large = outbox.put(b"gone", 0, None, 1).expect("a memfd");
    outbox.release(large.inode);
    let body = Body::Large(large);
    let lost = Payload { buffer_type: kind, buffer_size_bytes: 8, has_info: false, body };
    caller.try_send("ECHO", lost, How::default()).expect("room");
    assert_eq!(caller.answer(&mut pool).error, Some(Code::ServiceError));
    assert_eq!(caller.call(&mut pool, "ECHO", b"fine").bytes, b"fine");
    pool.stop();
    assert_eq!((pool.total(Total::Malformed), pool.total(Total::Calls)), (7, 1));
}

#[test]
fn data_that_is_longer_than_a_message_goes_both_ways() {
    let mut pool = StandIn::new("large", 2);
    pool.start("ECHO", 1);
    pool.start("RELAY", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    let mut outbox = Outbox::default();
    for service in ["ECHO", "RELAY"] {
        let large = outbox.put(&sent, 0, None, 1).expect("a memfd");
        let body = Body::Large(large);
        let size = sent.len() as u64;
        let payload = Payload { buffer_size_bytes: size, body, ..carray(b"") };
        caller.try_send(service, payload, How::default()).expect("room");
        assert_eq!(caller.answer(&mut pool).bytes, sent, "{service}");
    }
    outbox.sweep(1);
    assert!(outbox.is_empty(), "the worker did not mark what it took");
    pool.stop();
}

#[test]
fn services_come_and_go_while_a_service_runs() {
    let (mut pool, mut caller) = StandIn::serving("dynamic", "ADVERTISE,WITHDRAW,ECHO", 2);
    let mut ask = |pool: &mut StandIn, service, name: &str| {
        caller.call(pool, service, name.as_bytes()).urcode
    };
    assert_eq!(ask(&mut pool, "ADVERTISE", "LATER"), 0);
    assert_eq!(ask(&mut pool, "ADVERTISE", "LATER"), 0, "the same function is fine");
    assert_eq!(ask(&mut pool, "LATER", "x"), 0);
    assert_eq!(ask(&mut pool, "ADVERTISE", "ECHO"), i64::from(Code::Match.number()));
    assert_eq!(ask(&mut pool, "ADVERTISE", "A,B"), i64::from(Code::Invalid.number()));
    assert_eq!(ask(&mut pool, "WITHDRAW", "NEVER"), i64::from(Code::NoEntry.number()));
    assert_eq!(ask(&mut pool, "WITHDRAW", "LATER"), 0);
    assert_eq!(ask(&mut pool, "WITHDRAW", "WITHDRAW"), 0, "itself, while it runs");
    let gone = ToManager::Unadvertise { name: "LATER".into() };
    pool.wait_for("the manager to receive it", |pool| pool.workers[0].received.contains(&gone));
    caller.send(&mut pool, "LATER", b"nobody");
    caller.call(&mut pool, "ADVERTISE", b"LATER");
    assert_eq!(&caller.answer(&mut pool).bytes[..6], b"nobody", "offered again, it is served");
    pool.stop();
}

#[test]
fn a_service_calls_another_one_while_it_runs() {
    let mut pool = StandIn::new("nested", 2);
    pool.start("NESTED", 1);
    pool.start("ECHO", 1);
    let control = pool.control_socket();
    let welcome = Welcome {
        message_len_bytes: MESSAGE_LEN_BYTES,
        reply_depth: 2,
        timeout_s: 30,
        pool: "nested".to_owned(),
        memory: None,
        has_made_queue: false,
        priorities: Vec::new(),
    };
    let manager = std::thread::spawn(move || {
        let client = accept_with(&control, SocketFlags::CLOEXEC).expect("the service");
        let mut link = PeerLink::new(client);
        let patience = Duration::from_secs(30);
        let hello = link.receive_within::<serde_json::Value>(patience).expect("a greeting");
        assert!(matches!(hello, Received::Message(said, _) if said.get("Client").is_some()));
        link.send(&serde_json::json!({ "Welcome": welcome })).expect("it reads");
        link
    });
    let mut caller = Caller::new(&pool.prefix, 2);
    for _ in 0..3 {
        assert_eq!(&caller.call(&mut pool, "NESTED", b"deep").bytes[..4], b"deep");
    }
    pool.stop();
    assert_eq!(pool.total(Total::Calls), 6);
    drop(manager.join().expect("it was greeted"));
}

#[test]
fn a_worker_with_more_replies_than_it_may_keep_waits_and_then_serves() {
    let (mut pool, mut idle) = StandIn::serving("overfull", "ECHO", 1);
    let deadline_ns = monotonic_ns() + Duration::from_secs(3).as_nanos() as u64;
    // One that fits, 256 that are kept, and some for which there is no place.
    for _ in 0..262 {
        idle.send_how(&mut pool, "ECHO", b"x", How { deadline_ns, ..How::default() });
    }
    let mut brisk = Caller::new(&pool.prefix, 1);
    assert_eq!(brisk.call(&mut pool, "ECHO", b"me").bytes, b"me");
    pool.wait_for("the end of unread replies", |pool| {
        pool.total(Total::Dropped) + pool.total(Total::Late) == 261
    });
    pool.stop();
}

#[test]
fn a_worker_full_of_replies_for_dead_clients_serves_again_soon() {
    let (mut pool, mut idle) = StandIn::serving("graveyard", "ECHO", 1);
    // One that fits, 256 that are kept for a minute, and one for which there is no place.
    for _ in 0..258 {
        idle.send(&mut pool, "ECHO", b"x");
    }
    pool.wait_for("a worker that can keep no more", |pool| {
        pool.total(Total::Deferred) == 256 && pool.busy() == 1
    });
    drop(idle);
    let mut brisk = Caller::new(&pool.prefix, 1);
    let since = Instant::now();
    assert_eq!(brisk.call(&mut pool, "ECHO", b"me").bytes, b"me");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    pool.stop();
    assert_eq!(pool.total(Total::Gone), 257);
}

#[test]
fn a_long_reply_behind_deferred_ones_finds_its_way_into_shorter_messages() {
    let mut pool = StandIn::new("shorter", 1);
    pool.start("ECHO", 1);
    let mut idle = Caller::with_messages(&pool.prefix, 1, MESSAGE_LEN_BYTES / 2);
    let long = [7; MESSAGE_LEN_BYTES as usize * 3 / 4];
    for bytes in [&b"fits"[..], b"waits", &long] {
        idle.send(&mut pool, "ECHO", bytes);
    }
    pool.wait_for("two replies that wait", |pool| pool.total(Total::Deferred) == 2);
    for bytes in [&b"fits"[..], b"waits", &long] {
        assert_eq!(idle.answer(&mut pool).bytes, bytes);
    }
    pool.stop();
}

#[test]
fn a_request_that_waits_for_a_withdrawn_service_is_answered() {
    let mut pool = StandIn::new("passed-on", 1);
    pool.start("RELAY", 1);
    pool.make_queue("ECHO");
    let mut caller = Caller::new(&pool.prefix, 2);
    while caller.try_send("ECHO", carray(b"not served"), How::default()).is_ok() {}
    let call_id = caller.send(&mut pool, "RELAY", b"x");
    pool.wait_for("a request that waits", |pool| pool.total(Total::Deferred) == 1);
    let name = pool.prefix.service_queue(&ServiceName::new("ECHO").expect("a name"));
    MessageQueue::unlink(&name).expect("it stands");
    pool.say(0, &ToWorker::Sweep);
    let answer = caller.answer(&mut pool);
    assert_eq!((answer.call_id, answer.error), (call_id, Some(Code::ServiceError)));
    pool.stop();
}

#[test]
fn the_command_line_renames_masks_and_warns() {
    let mut pool = StandIn::new("options", 1);
    pool.arguments = "-e /dev/null -r -n FAIL -n E4 -s E2/E4/E3:ECHO -S E5:ECHO -Q".to_owned();
    pool.start("ECHO,FAIL", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    assert_eq!(caller.call(&mut pool, "E3", b"x").urcode, 42);
    assert_eq!(offered(&pool), ["ECHO", "E2", "E3", "E5"]);
    pool.stop();
    assert!(pool.log(0).contains("option -Q"));
}

#[test]
fn services_that_a_program_was_built_with_are_left_out() {
    let mut pool = StandIn::new("builtin", 1);
    pool.arguments = "-B -S E5:ECHO".to_owned();
    pool.start("ECHO|FAIL", 1);
    let offered = offered(&pool);
    assert_eq!(offered, ["FAIL", "E5"]);
    pool.stop();
}

/// Names of the services that the first worker offers.
fn offered(pool: &StandIn) -> Vec<String> {
    let services = pool.workers[0].received.iter().filter_map(|said| match said {
        ToManager::Advertise { services } => Some(services),
        _ => None,
    });
    services.flatten().map(|service| service.name.clone()).collect()
}

#[test]
fn a_full_service_queue_is_an_error_for_the_sender_and_loses_nothing() {
    let mut pool = StandIn::new("full", 1);
    let gate = pool.gate();
    pool.start("HOLD", 1);
    let mut caller = Caller::new(&pool.prefix, 10);
    caller.send(&mut pool, "HOLD", b"");
    pool.wait_for("the service to run", |pool| pool.busy() == 1);
    let how = How::default();
    let sent = (0..20).take_while(|_| caller.try_send("HOLD", carray(b""), how).is_ok()).count();
    assert_eq!(sent, 10);
    assert!(is_full(&caller.try_send("HOLD", carray(b""), how).expect_err("full")));
    drop(gate);
    let answered: Vec<_> = (0..11).map(|_| caller.answer(&mut pool).call_id).collect();
    assert_eq!(answered, (1..=11).collect::<Vec<_>>());
    pool.stop();
    let name = pool.prefix.service_queue(&ServiceName::new("HOLD").expect("a name"));
    assert!(MessageQueue::open(&name).is_ok(), "a worker removes no queue");
}
