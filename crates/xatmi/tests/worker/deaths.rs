//! Workers that end, well or badly, and managers that do.

use pollux_xatmi::error::Code;
use pollux_xatmi::large::Outbox;
use pollux_xatmi::link::{Link, Received, ToManager, ToWorker};
use pollux_xatmi::slots::{Caller as Waiting, Promise, Slots, State, Total};
use pollux_xatmi::wire::{Body, Payload};
use rustix::net::{SocketFlags, accept_with};

use crate::behaviours::{EXITED, PANICKED, REFUSED};
use crate::caller::{Caller, How, carray};
use crate::stand_in::{MESSAGE_LEN_BYTES, StandIn};

#[test]
fn a_killed_worker_leaves_the_name_of_its_caller() {
    let mut pool = StandIn::new("killed", 2);
    let _gate = pool.gate();
    pool.start("HOLD,ECHO", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    assert_eq!(pool.slot(0).occupation().state, State::Idle);
    let call_id = caller.send(&mut pool, "HOLD", b"x");
    pool.wait_for("the service to run", |pool| pool.busy() == 1);
    pool.workers[0].child.kill().expect("alive");
    assert_eq!(pool.exit_code(0), None);
    let left = pool.slot(0).occupation();
    let waiting = Waiting {
        pid: caller.address.pid,
        context: caller.address.context,
        call_id,
        nonce: caller.address.nonce,
    };
    assert_eq!((left.state, left.caller, left.wants_reply), (State::Busy, waiting, true));
    assert_eq!(left.service, 0);
    assert!(left.since_ns > 0);
}

#[test]
fn a_worker_that_is_stopped_leaves_the_names_of_callers_who_have_no_reply_yet() {
    let mut pool = StandIn::new("left", 1);
    pool.start("ECHO", 1);
    let mut idle = Caller::new(&pool.prefix, 1);
    let calls = [1, 2, 3].map(|_| idle.send(&mut pool, "ECHO", b"x"));
    pool.wait_for("two replies that wait", |pool| pool.total(Total::Parked) == 2);
    pool.say(0, &ToWorker::Stop);
    assert_eq!(pool.exit_code(0), Some(0));
    assert_eq!(idle.answer(&mut pool).call_id, calls[0]);
    assert_eq!(idle.take(), None);
    let (pid, context, nonce) = (idle.address.pid, idle.address.context, idle.address.nonce);
    let waiting = |call_id| Waiting { pid, context, call_id, nonce };
    assert_eq!(Promise::all(&pool.slots, 0), [waiting(calls[1]), waiting(calls[2])]);
    assert_eq!(pool.total(Total::Dropped), 2);
}

#[test]
fn a_panic_is_answered_and_ends_the_worker() {
    let mut pool = StandIn::new("panic", 1);
    pool.start("PANIC", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    assert_eq!(caller.call(&mut pool, "PANIC", b"x").error, Some(Code::ServiceError));
    assert_eq!(pool.exit_code(0), Some(PANICKED));
    assert!(pool.log(0).contains("the service is broken"));
    assert_eq!(pool.slot(0).occupation().state, State::Idle, "its caller was told");
}

#[test]
fn a_service_ends_its_worker_after_the_reply() {
    let mut pool = StandIn::new("exit", 1);
    pool.start("EXIT", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    let answer = caller.call(&mut pool, "EXIT", b"bye");
    assert_eq!((answer.error, &answer.bytes[..]), (None, &b"bye"[..]));
    assert_eq!(pool.exit_code(0), Some(EXITED));
    pool.wait_for("the shut_down", |pool| pool.workers[0].heard.contains(&ToManager::Bye));
}

#[test]
fn a_worker_that_ends_holds_its_last_reply_until_that_is_read() {
    let mut pool = StandIn::new("last-words", 1);
    pool.start("EXIT", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    let mut outbox = Outbox::default();
    let sent = vec![7; 2 * MESSAGE_LEN_BYTES as usize];
    let body = Body::Large(outbox.put(&sent, 0, None, 1).expect("a memfd"));
    let payload = Payload { buffer_size_bytes: sent.len() as u64, body, ..carray(b"") };
    caller.try_send("EXIT", payload, How::default()).expect("room");
    pool.wait_for("the end of the call", |pool| {
        pool.total(Total::Calls) == 1 && pool.slot(0).occupation().state == State::Idle
    });
    // It waits for its reader, or is gone already.
    let stat = format!("/proc/{}/stat", pool.workers[0].child.id());
    pool.wait_for("the worker to have nothing more to do", |_| {
        let stat = std::fs::read_to_string(&stat).expect("a child, which nobody collected");
        stat.rsplit_once(')').is_some_and(|(_, rest)| [" S", " Z"].contains(&&rest[..2]))
    });
    assert_eq!(caller.answer(&mut pool).bytes, sent);
    assert_eq!(pool.exit_code(0), Some(EXITED));
}

#[test]
fn a_start_that_is_refused_is_told_with_its_reason() {
    let mut pool = StandIn::new("refused", 1);
    pool.spawn("REFUSE");
    assert_eq!(pool.exit_code(0), Some(REFUSED));
    pool.wait_for("the reason", |pool| {
        let heard = &pool.workers[0].heard;
        heard
            .iter()
            .any(|said| matches!(said, ToManager::Refused { why } if why.contains("not today")))
    });
    assert_eq!(pool.slot(0).occupation().state, State::Starting);
}

#[test]
fn a_worker_answers_pings_and_stops_after_the_call_at_hand() {
    let mut pool = StandIn::new("stop", 1);
    let gate = pool.gate();
    pool.start("HOLD", 1);
    pool.say(0, &ToWorker::Ping { number: 9 });
    let pong = ToManager::Pong { number: 9 };
    pool.wait_for("the answer", |pool| pool.workers[0].heard.contains(&pong));
    let mut caller = Caller::new(&pool.prefix, 2);
    caller.send(&mut pool, "HOLD", b"x");
    pool.wait_for("the service to run", |pool| pool.busy() == 1);
    pool.say(0, &ToWorker::Stop);
    drop(gate);
    assert_eq!(caller.answer(&mut pool).error, None);
    assert_eq!(pool.exit_code(0), Some(0));
}

#[test]
fn a_worker_that_is_told_to_stop_while_it_starts_ends() {
    let mut pool = StandIn::new("stop-early", 1);
    pool.spawn("ECHO");
    // It reads this before the answer to its adverts.
    pool.say(0, &ToWorker::Stop);
    assert_eq!(pool.exit_code(0), Some(0));
}

#[test]
fn a_worker_without_a_manager_serves_on_and_is_adopted_by_the_next() {
    let mut pool = StandIn::new("orphan", 1);
    pool.start("ECHO", 1);
    // The manager dies: its end of the link closes.
    let (_, nobody) = Link::pair().expect("a pair");
    pool.workers[0].link = Link::new(nobody);
    let mut caller = Caller::new(&pool.prefix, 2);
    assert_eq!(caller.call(&mut pool, "ECHO", b"still here").bytes, b"still here");

    let control = pool.control_socket();
    let mut link = Link::new(accept_with(&control, SocketFlags::CLOEXEC).expect("the orphan"));
    let patience = std::time::Duration::from_secs(30);
    let Ok(Received::Message(said, mut beside)) = link.receive_within(patience) else {
        panic!("the orphan says nothing")
    };
    let ToManager::Adopt { srvid: 0, pid, slot: 0, services, .. } = said else {
        panic!("{said:?}")
    };
    assert_eq!(pid, pool.workers[0].child.id());
    assert_eq!(services[0].name, "ECHO");
    let slots = Slots::from_fd(beside.pop().expect("the memory")).expect("the memory");
    assert_eq!(slots.slot(0).expect("one").occupation().state, State::Idle);
    assert_eq!(caller.call(&mut pool, "ECHO", b"adopted").bytes, b"adopted");
    link.send(&ToWorker::Stop).expect("it reads");
    assert_eq!(pool.exit_code(0), Some(0));
}
