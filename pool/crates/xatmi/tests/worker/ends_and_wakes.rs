//! Workers and managers that end, well or badly, and which worker a message wakes: the traps of exclusive
//! wake-ups.

use std::os::fd::AsFd;

use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::error::Code;
use pollux_xatmi::large::Outbox;
use pollux_xatmi::link::{PeerLink, Received, ToManager, ToWorker};
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::slots::{Caller as Waiting, Slots, State, Total, UnsentReply};
use pollux_xatmi::wire::{Body, Payload};
use rustix::net::{SocketFlags, accept_with};

use crate::stand_in::{Caller, How, MESSAGE_LEN_BYTES, StandIn, carray};
use crate::{EXITED, PANICKED, REFUSED};

/// As many as show the effect (notes of the stall: 250) and a test machine starts in a second.
const WORKERS: usize = 60;
const MESSAGES: usize = 50;

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
fn a_worker_that_is_stopped_leaves_the_names_of_callers_without_a_reply() {
    let (mut pool, mut idle) = StandIn::serving("left", "ECHO", 1);
    let calls = [1, 2, 3].map(|_| idle.send(&mut pool, "ECHO", b"x"));
    pool.wait_for("two replies that wait", |pool| pool.total(Total::Deferred) == 2);
    pool.say(0, &ToWorker::Stop);
    assert_eq!(pool.exit_code(0), Some(0));
    assert_eq!(idle.answer(&mut pool).call_id, calls[0]);
    assert_eq!(idle.take(), None);
    let pid = idle.address.pid;
    let context = idle.address.context;
    let nonce = idle.address.nonce;
    let waiting = |call_id| Waiting { pid, context, call_id, nonce };
    assert_eq!(UnsentReply::all(&pool.slots, 0), [waiting(calls[1]), waiting(calls[2])]);
    assert_eq!(pool.total(Total::Dropped), 2);
}

#[test]
fn a_panic_is_answered_and_ends_the_worker() {
    let (mut pool, mut caller) = StandIn::serving("panic", "PANIC", 2);
    assert_eq!(caller.call(&mut pool, "PANIC", b"x").error, Some(Code::ServiceError));
    assert_eq!(pool.exit_code(0), Some(PANICKED));
    assert!(pool.log(0).contains("the service is broken"));
    assert_eq!(pool.slot(0).occupation().state, State::Idle, "its caller was answered");
}

#[test]
fn a_service_ends_its_worker_after_the_reply() {
    let (mut pool, mut caller) = StandIn::serving("exit", "EXIT", 2);
    let answer = caller.call(&mut pool, "EXIT", b"bye");
    assert_eq!((answer.error, &answer.bytes[..]), (None, &b"bye"[..]));
    assert_eq!(pool.exit_code(0), Some(EXITED));
    pool.wait_for("the shut_down", |pool| pool.workers[0].received.contains(&ToManager::Bye));
}

#[test]
fn a_worker_that_ends_holds_its_last_reply_until_that_is_read() {
    let (mut pool, mut caller) = StandIn::serving("last-words", "EXIT", 2);
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
        let stat = std::fs::read_to_string(&stat).expect("a child, which was not reaped");
        stat.rsplit_once(')').is_some_and(|(_, rest)| [" S", " Z"].contains(&&rest[..2]))
    });
    assert_eq!(caller.answer(&mut pool).bytes, sent);
    assert_eq!(pool.exit_code(0), Some(EXITED));
}

#[test]
fn a_refused_start_reports_its_reason() {
    let mut pool = StandIn::new("refused", 1);
    pool.spawn("REFUSE");
    assert_eq!(pool.exit_code(0), Some(REFUSED));
    pool.wait_for("the reason", |pool| {
        let received = &pool.workers[0].received;
        received
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
    pool.wait_for("the answer", |pool| pool.workers[0].received.contains(&pong));
    let mut caller = Caller::new(&pool.prefix, 2);
    caller.send(&mut pool, "HOLD", b"x");
    pool.wait_for("the service to run", |pool| pool.busy() == 1);
    pool.say(0, &ToWorker::Stop);
    drop(gate);
    assert_eq!(caller.answer(&mut pool).error, None);
    assert_eq!(pool.exit_code(0), Some(0));
}

#[test]
fn a_worker_that_is_asked_to_stop_while_it_starts_ends() {
    let mut pool = StandIn::new("stop-early", 1);
    pool.spawn("ECHO");
    // It reads this before the answer to its adverts.
    pool.say(0, &ToWorker::Stop);
    assert_eq!(pool.exit_code(0), Some(0));
}

#[test]
fn a_worker_without_a_manager_still_serves_and_is_adopted_by_the_next() {
    let mut pool = StandIn::new("orphan", 1);
    pool.start("ECHO", 1);
    // The manager dies: its end of the link closes.
    let (_, closed) = PeerLink::pair().expect("a pair");
    pool.workers[0].link = PeerLink::new(closed);
    let mut caller = Caller::new(&pool.prefix, 2);
    assert_eq!(caller.call(&mut pool, "ECHO", b"still here").bytes, b"still here");

    let control = pool.control_socket();
    let mut link = PeerLink::new(accept_with(&control, SocketFlags::CLOEXEC).expect("the orphan"));
    let patience = std::time::Duration::from_secs(30);
    let Ok(Received::Message(said, mut beside)) = link.receive_within(patience) else {
        panic!("the orphan sends nothing")
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

#[test]
fn every_message_starts_a_worker_though_all_that_are_woken_stay_busy() {
    let mut pool = StandIn::new("stall", WORKERS);
    let gate = pool.gate();
    pool.start("HOLD", WORKERS);
    let mut callers: Vec<_> = (0..MESSAGES).map(|_| Caller::new(&pool.prefix, 1)).collect();
    for caller in &mut callers {
        caller.send(&mut pool, "HOLD", b"x");
    }
    // No call ends before all have begun, so a message left behind would be seen here.
    pool.wait_for("all of them to be at work at once", |pool| pool.busy() == MESSAGES);
    assert_eq!(pool.waiting("HOLD"), 0);
    drop(gate);
    for caller in &callers {
        assert_eq!(caller.answer(&mut pool).error, None);
    }
    pool.stop();
}

#[test]
fn workers_that_end_after_one_message_leave_none_behind() {
    let mut pool = StandIn::new("hang", WORKERS);
    pool.start("EXIT", WORKERS);
    let mut caller = Caller::new(&pool.prefix, 10);
    let mut answered = 0;
    for _ in 0..WORKERS {
        caller.send(&mut pool, "EXIT", b"x");
        answered += std::iter::from_fn(|| caller.take()).count();
    }
    while answered < WORKERS {
        caller.answer(&mut pool);
        answered += 1;
    }
    for worker in 0..WORKERS {
        assert_eq!(pool.exit_code(worker), Some(EXITED));
    }
    assert_eq!(pool.waiting("EXIT"), 0);
}

#[test]
fn stopping_half_of_the_workers_under_load_leaves_no_request_unserved() {
    let mut pool = StandIn::new("halved", 20);
    pool.start("ECHO", 20);
    let mut callers: Vec<_> = (0..10).map(|_| Caller::new(&pool.prefix, 2)).collect();
    for round in 0..20 {
        for caller in &mut callers {
            caller.send(&mut pool, "ECHO", b"x");
        }
        if round < 10 {
            pool.say(round, &ToWorker::Stop);
        }
        for caller in &callers {
            assert_eq!(caller.answer(&mut pool).error, None);
        }
    }
    pool.stop();
}

#[test]
fn a_wake_that_died_with_its_worker_is_mended_by_a_nudge() {
    let mut pool = StandIn::new("wake_all", 1);
    pool.make_queue("ECHO");
    let service = ServiceName::new("ECHO").expect("a name");
    let name = pool.prefix.service_queue(&service);
    // First in line is a worker that is woken and dies before it reads: a thread of this test.
    let (report, reported) = std::sync::mpsc::channel();
    let dying = std::thread::spawn(move || {
        let queue = MessageQueue::open(&name).expect("made");
        let mut poller = Mechanism::Epoll.open().expect("epoll");
        let how = Registration::new(Interest::READABLE, Trigger::Level).exclusive();
        poller.add(queue.as_fd(), Token::new(0, 0), how).expect("added");
        report.send(std::fs::read_link("/proc/thread-self").expect("proc")).expect("received");
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, None).expect("epoll");
        events.len()
    });
    let stat = std::path::Path::new("/proc").join(reported.recv().expect("reported")).join("stat");
    let is_asleep = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
    pool.wait_for("the thread to wait", |_| is_asleep());
    pool.start("ECHO", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    caller.send(&mut pool, "ECHO", b"unserved");
    assert_eq!(dying.join().expect("no panic"), 1);
    assert_eq!(pool.waiting("ECHO"), 1, "the worker was woken as well");
    pool.say(0, &ToWorker::Nudge);
    assert_eq!(caller.answer(&mut pool).bytes, b"unserved");
    pool.stop();
    assert_eq!(pool.total(Total::Nudged), 1);
}

#[test]
fn the_switch_of_the_experiment_registers_plainly_and_the_default_exclusively() {
    for (wake, is_exclusive) in [("one", true), ("all", false)] {
        let mut pool = StandIn::new(&format!("wake-{wake}"), 1);
        pool.wake = wake;
        pool.start("ECHO", 1);
        let masks = epoll_masks(pool.workers[0].child.id());
        let exclusive = 1 << 28;
        let found = masks.iter().filter(|mask| *mask & exclusive != 0).count();
        assert_eq!(found, usize::from(is_exclusive), "{wake}: {masks:x?}");
        assert!(masks.len() >= 2, "the queue and the link: {masks:x?}");
        let mut caller = Caller::new(&pool.prefix, 2);
        assert_eq!(caller.call(&mut pool, "ECHO", b"x").bytes, b"x");
        pool.stop();
    }
}

/// The event masks of all that a process watches (`proc_pid_fdinfo(5)`).
fn epoll_masks(pid: u32) -> Vec<u32> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("alive");
    let texts = folder.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
    let mask = |line: &str| {
        let (_, rest) = line.strip_prefix("tfd:")?.split_once("events:")?;
        u32::from_str_radix(rest.split_whitespace().next()?, 16).ok()
    };
    texts.flat_map(|text| text.lines().filter_map(mask).collect::<Vec<_>>()).collect()
}
