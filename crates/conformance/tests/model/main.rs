//! The simulated kernel: beside the real pollers, by scripts and by random operations; and what it adds to a kernel:
//! virtual time, scripts, faults, and wakes by other threads. None of the latter takes real time.

mod against_epoll;
mod random_operations;

use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::Duration;

use pollux_conformance::sim::{Errno, ScriptedFault, SimFd, World};
use pollux_poller::{Error, Events, Interest, Poller, Readiness, Registration, Token, Trigger};

const READ_LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const READ_EDGE: Registration = Registration::new(Interest::READABLE, Trigger::Edge);
const HOUR: Duration = Duration::from_secs(3600);

fn seen(poller: &mut dyn Poller, timeout: Option<Duration>) -> Vec<(u32, Readiness)> {
    let mut events = Events::with_capacity(16);
    poller.wait(&mut events, timeout).expect("no fault is scripted here");
    events.iter().map(|event| (event.token.slot(), event.readiness)).collect()
}

#[test]
fn a_timeout_passes_in_virtual_time_at_once() {
    let world = World::new();
    let mut poller = world.open();
    assert_eq!(seen(&mut *poller, Some(HOUR)), []);
    assert_eq!(world.now(), HOUR);
}

#[test]
fn a_wait_ends_at_the_first_scripted_action_that_makes_something_ready() {
    let world = World::new();
    let mut poller = world.open();
    let (reader, writer) = world.pipe();
    poller.add(reader.as_fd(), Token::new(7, 0), READ_LEVEL).expect("a pipe can be watched");
    world.at(HOUR, |world| world.at(HOUR * 3, |_| ()));
    world.at(HOUR * 2, move |world| assert_eq!(world.write(&writer, 1), Ok(1)));
    assert_eq!(seen(&mut *poller, None)[0].0, 7);
    assert_eq!(world.now(), HOUR * 2);
}

#[test]
fn an_action_at_the_deadline_still_counts() {
    let world = World::new();
    let mut poller = world.open();
    let (reader, writer) = world.pipe();
    poller.add(reader.as_fd(), Token::new(7, 0), READ_LEVEL).expect("a pipe can be watched");
    world.at(HOUR, move |world| assert_eq!(world.write(&writer, 1), Ok(1)));
    assert_eq!(seen(&mut *poller, Some(HOUR)).len(), 1);
}

#[test]
fn a_wake_from_another_thread_ends_a_wait_that_has_nothing_else() {
    let world = World::new();
    let mut poller = world.open();
    let waker = poller.waker();
    let mut events = Events::with_capacity(4);
    let thread = std::thread::spawn(move || waker.wake());
    poller.wait(&mut events, None).expect("no fault is scripted");
    assert!(events.is_woken() && events.is_empty());
    thread.join().expect("waking does not panic");
    poller.waker().wake();
    poller.waker().wake();
    poller.wait(&mut events, None).expect("no fault is scripted");
    assert_eq!((events.is_woken(), poller.counters().snapshot().wakes), (true, 2));
    poller.wait(&mut events, Some(HOUR)).expect("no fault is scripted");
    assert!(!events.is_woken(), "wakes are merged");
}

#[test]
fn a_signal_ends_only_a_wait_that_sleeps() {
    let world = World::new();
    let mut poller = world.open();
    let (reader, writer) = world.pipe();
    poller.add(reader.as_fd(), Token::new(1, 0), READ_LEVEL).expect("a pipe can be watched");
    assert_eq!(world.write(&writer, 1), Ok(1));
    world.fault(ScriptedFault::Interrupt);
    let mut events = Events::with_capacity(4);
    poller.wait(&mut events, None).expect("something is ready");
    assert!(!events.is_interrupted() && events.len() == 1);
    assert_eq!(world.read(&reader, 1), Ok(1));
    poller.wait(&mut events, Some(HOUR)).expect("a signal is not an error");
    assert!(events.is_interrupted() && events.is_empty());
    assert_eq!((world.now(), poller.counters().snapshot().interrupts), (Duration::ZERO, 1));
}

#[test]
fn refusals_and_failures_hit_the_next_call_once() {
    let world = World::new();
    let mut poller = world.open();
    let (reader, _writer) = world.pipe();
    let mut add = || poller.add(reader.as_fd(), Token::new(1, 0), READ_LEVEL);
    world.fault(ScriptedFault::RefuseAdd(Errno::NOSPC));
    let refused = add().expect_err("the fault is scripted");
    assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    add().expect("the fault is used up");
    world.fault(ScriptedFault::WaitError(Errno::BADF));
    let mut events = Events::with_capacity(4);
    let failed = poller.wait(&mut events, None).expect_err("the fault is scripted");
    assert!(matches!(failed, Error::System { .. }), "{failed}");
    poller.wait(&mut events, Some(HOUR)).expect("the fault is used up");
}

#[test]
fn spurious_edges_and_overflows_repeat_only_what_holds() {
    let world = World::new();
    let mut poller = world.open();
    let (full, writer) = world.pipe();
    let (empty, _writer) = world.pipe();
    for (slot, fd) in [(1, &full), (2, &empty)] {
        poller.add(fd.as_fd(), Token::new(slot, 0), READ_EDGE).expect("a pipe can be watched");
    }
    assert_eq!(world.write(&writer, 1), Ok(1));
    let event = [(1, Readiness::READABLE)];
    assert_eq!(seen(&mut *poller, Some(HOUR)), event);
    assert_eq!(seen(&mut *poller, Some(HOUR)), []);
    for fd in [&full, &empty] {
        world.fault(ScriptedFault::Spurious(fd.as_fd().as_raw_fd()));
    }
    assert_eq!(seen(&mut *poller, Some(HOUR)), event);
    world.fault(ScriptedFault::Overflow);
    assert_eq!(seen(&mut *poller, Some(HOUR)), event);
    assert_eq!(poller.counters().snapshot().overflows, 1);
}

#[test]
fn only_one_of_two_exclusive_pollers_is_woken_while_it_sleeps() {
    let world = World::new();
    let mut first = world.open();
    let mut second = world.open();
    let (reader, writer) = world.pipe();
    for poller in [&mut first, &mut second] {
        let how = READ_EDGE.exclusive();
        poller.add(reader.as_fd(), Token::new(1, 0), how).expect("a pipe can be watched");
    }
    let (writer, world_writer) = shared(writer);
    world.at(HOUR, move |world| assert_eq!(world.write(&world_writer, 1), Ok(1)));
    assert_eq!(seen(&mut *first, None), [(1, Readiness::READABLE)]);
    assert_eq!(seen(&mut *second, Some(HOUR)), [], "the wake stopped at the first");
    // No wait sleeps now, so none stops this one.
    assert_eq!(world.write(&writer, 1), Ok(1));
    assert_eq!(seen(&mut *first, Some(HOUR)).len(), 1);
    assert_eq!(seen(&mut *second, Some(HOUR)).len(), 1);
}

fn shared(fd: SimFd) -> (Rc<SimFd>, Rc<SimFd>) {
    let fd = Rc::new(fd);
    (Rc::clone(&fd), fd)
}

#[test]
fn errors_and_urgent_data_of_sockets_are_reported() {
    let world = World::new();
    let mut poller = world.open();
    let (socket, _peer) = world.socketpair();
    let how = Registration::new(Interest::PRIORITY, Trigger::Level);
    poller.add(socket.as_fd(), Token::new(1, 0), how).expect("a socket can be watched");
    world.set_priority(&socket, true);
    assert_eq!(seen(&mut *poller, Some(HOUR)), [(1, Readiness::PRIORITY)]);
    world.set_priority(&socket, false);
    world.set_error(&socket);
    assert_eq!(seen(&mut *poller, Some(HOUR)), [(1, Readiness::ERROR)]);
    assert_eq!(world.read(&socket, 1), Err(Errno::CONNRESET));
    assert_eq!(seen(&mut *poller, Some(HOUR)), []);
}

#[test]
fn a_queue_is_watched_like_a_file() {
    let world = World::new();
    let mut poller = world.open();
    let queue = world.queue(2);
    let both = Registration::new(Interest::READABLE | Interest::WRITABLE, Trigger::Edge);
    poller.add(queue.as_fd(), Token::new(1, 0), both).expect("a queue can be watched");
    assert_eq!(seen(&mut *poller, Some(HOUR)), [(1, Readiness::WRITABLE)]);
    assert_eq!((world.write(&queue, 9), world.write(&queue, 9)), (Ok(9), Ok(9)));
    assert_eq!(seen(&mut *poller, Some(HOUR)), [(1, Readiness::READABLE)]);
    assert_eq!(world.read(&queue, 64), Ok(9));
    let all = Readiness::READABLE | Readiness::WRITABLE;
    assert_eq!(seen(&mut *poller, Some(HOUR)), [(1, all)]);
}

#[test]
fn a_descriptor_of_no_world_is_refused() {
    let mut poller = World::new().open();
    let foreign = std::io::stdin();
    let refused = poller.add(foreign.as_fd(), Token::new(1, 0), READ_LEVEL);
    assert!(matches!(refused, Err(Error::NotPollable { fd: 0 })), "{refused:?}");
}
