//! Whom a message wakes, and that none stays behind: the traps of exclusive wake-ups.

use std::os::fd::AsFd;

use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::link::ToWorker;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::slots::Total;

use crate::behaviours::EXITED;
use crate::caller::Caller;
use crate::stand_in::StandIn;

/// As many as show the effect (notes of the stall: 250) and a test machine starts in a second.
const WORKERS: usize = 60;
const MESSAGES: usize = 50;

#[test]
fn every_message_starts_a_worker_though_all_that_are_woken_stay_busy() {
    let mut pool = StandIn::new("stall", WORKERS);
    let gate = pool.gate();
    pool.start("HOLD", WORKERS);
    let mut callers: Vec<_> = (0..MESSAGES).map(|_| Caller::new(&pool.prefix, 1)).collect();
    for caller in &mut callers {
        caller.send(&mut pool, "HOLD", b"x");
    }
    // Nobody is through before all have begun, so a message left behind would be seen here.
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
fn stopping_half_of_the_workers_under_load_strands_nothing() {
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
    let mut pool = StandIn::new("nudge", 1);
    pool.make_queue("ECHO");
    let service = ServiceName::new("ECHO").expect("a name");
    let name = pool.prefix.service_queue(&service);
    // First in line is a worker that is woken and dies before it reads: a thread of this test.
    let (say, hear) = std::sync::mpsc::channel();
    let dying = std::thread::spawn(move || {
        let queue = MessageQueue::open(&name).expect("made");
        let mut poller = Mechanism::Epoll.open().expect("epoll");
        let how = Registration::new(Interest::READABLE, Trigger::Level).exclusive();
        poller.add(queue.as_fd(), Token::new(0, 0), how).expect("added");
        say.send(std::fs::read_link("/proc/thread-self").expect("proc")).expect("heard");
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, None).expect("epoll");
        events.len()
    });
    let stat = std::path::Path::new("/proc").join(hear.recv().expect("said")).join("stat");
    let is_asleep = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
    pool.wait_for("the thread to wait", |_| is_asleep());
    pool.start("ECHO", 1);
    let mut caller = Caller::new(&pool.prefix, 2);
    caller.send(&mut pool, "ECHO", b"stranded");
    assert_eq!(dying.join().expect("no panic"), 1);
    assert_eq!(pool.waiting("ECHO"), 1, "the worker was woken as well");
    pool.say(0, &ToWorker::Nudge);
    assert_eq!(caller.answer(&mut pool).bytes, b"stranded");
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
