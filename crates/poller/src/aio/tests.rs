//! What is special to AIO; the rest is in the conformance suite.

use super::*;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

const LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const ONESHOT: Registration = Registration::new(Interest::READABLE, Trigger::Oneshot);
const NOW: Option<Duration> = Some(Duration::ZERO);

fn small() -> Aio {
    Aio::with_slots(4, Release::Later, None).expect("AIO")
}

fn ready_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    writer.write_all(b"x").expect("room");
    (reader, writer)
}

fn ready_pair() -> (UnixStream, UnixStream) {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.write_all(b"x").expect("room");
    (ours, peer)
}

fn slots(aio: &mut Aio, timeout: Option<Duration>) -> Vec<u32> {
    let mut events = Events::with_capacity(64);
    aio.wait(&mut events, timeout).expect("wait");
    events.iter().map(|event| event.token.slot()).collect()
}

#[test]
fn one_submit_carries_all_changes_and_what_is_armed_again() {
    let mut aio = Aio::open(Release::Later, None).expect("AIO");
    let pipes: Vec<_> = (0..10).map(|_| ready_pipe()).collect();
    for (slot, (reader, _)) in (0..).zip(&pipes) {
        aio.add(reader.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
    }
    let looked = aio.counters().snapshot().system_calls;
    assert_eq!(looked, 10, "each addition looks what kind of file it is");
    let all: Vec<u32> = (0..10).collect();
    assert_eq!(slots(&mut aio, None), all);
    assert_eq!(slots(&mut aio, None), all);
    let seen = aio.counters().snapshot();
    // Each wait is one io_submit; the completions were read in user space.
    assert_eq!((seen.system_calls - looked, seen.updates_sent, seen.rearms), (2, 10, 10));
}

#[test]
fn an_addition_and_its_deletion_cancel_out_and_leave_no_gap() {
    let mut aio = small();
    let first = ready_pipe();
    let second = ready_pipe();
    for _ in 0..100 {
        aio.add(first.0.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
        aio.add(second.0.as_fd(), Token::new(2, 0), LEVEL).expect("vacant");
        aio.delete(first.0.as_fd()).expect("registered");
        aio.delete(second.0.as_fd()).expect("registered");
    }
    assert_eq!(aio.queue, [Key::WAKER], "the queue does not grow");
    let seen = aio.counters().snapshot();
    let counts = (seen.updates_asked, seen.updates_merged, seen.system_calls);
    assert_eq!(counts, (400, 400, 200), "each addition looks what kind of file it is");
}

#[test]
fn a_larger_context_takes_over_what_was_armed_and_what_was_not_read() {
    let mut aio = small();
    let mut pipes: Vec<_> = (0..3).map(|_| pipe().expect("a pipe")).collect();
    for (slot, (reader, _)) in (0..).zip(&pipes) {
        aio.add(reader.as_fd(), Token::new(slot, 0), ONESHOT).expect("vacant");
    }
    assert!(slots(&mut aio, NOW).is_empty());
    // It completes in the ring that goes away.
    pipes[1].1.write_all(b"x").expect("room");
    let more: Vec<_> = (0..30).map(|_| ready_pipe()).collect();
    for (slot, (reader, _)) in (3..).zip(&more) {
        aio.add(reader.as_fd(), Token::new(slot, 0), ONESHOT).expect("vacant");
    }
    assert_eq!(aio.context.capacity(), 64);
    pipes[0].1.write_all(b"x").expect("room");
    aio.waker().wake();
    let mut events = Events::with_capacity(64);
    let mut seen = Vec::new();
    let mut wakes = 0;
    while seen.len() < 32 || wakes == 0 {
        aio.wait(&mut events, Some(Duration::from_secs(20))).expect("wait");
        assert!(!events.is_empty() || events.is_woken(), "{seen:?} {wakes}");
        wakes += u32::from(events.is_woken());
        seen.extend(events.iter().map(|event| event.token.slot()));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1].into_iter().chain(3..33).collect::<Vec<u32>>());
    assert_eq!(aio.counters().snapshot().rearms, 3);
}

#[test]
fn more_cancelled_polls_than_slots_only_delay_the_arming() {
    let mut aio = small();
    let pipes: Vec<_> = (0..3).map(|_| pipe().expect("a pipe")).collect();
    for (slot, (reader, _)) in (0..).zip(&pipes) {
        aio.add(reader.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
    }
    assert!(slots(&mut aio, NOW).is_empty());
    let writable = Interest::WRITABLE;
    let mut both = Vec::new();
    for (slot, (reader, writer)) in (3..).zip(&pipes) {
        aio.delete(reader.as_fd()).expect("registered");
        let how = Registration::new(writable, Trigger::Oneshot);
        aio.add(writer.as_fd(), Token::new(slot, 0), how).expect("vacant");
    }
    while both.len() < 3 {
        let found = slots(&mut aio, Some(Duration::from_secs(20)));
        assert!(!found.is_empty(), "{both:?}");
        both.extend(found);
    }
    both.sort_unstable();
    assert_eq!(both, [3, 4, 5]);
    assert_eq!(aio.counters().snapshot().stale_events, 0);
}

#[test]
fn a_completion_from_before_a_change_of_token_is_stale_and_found_anew() {
    let mut aio = small();
    let (reader, mut writer) = pipe().expect("a pipe");
    aio.add(reader.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert!(slots(&mut aio, NOW).is_empty());
    writer.write_all(b"x").expect("room");
    aio.modify(reader.as_fd(), Token::new(2, 0), LEVEL).expect("registered");
    assert_eq!(slots(&mut aio, None), [2]);
    assert_eq!(aio.counters().snapshot().stale_events, 1);
}

#[test]
fn a_change_that_the_armed_poll_serves_already_costs_nothing() {
    let mut aio = small();
    let (reader, mut writer) = pipe().expect("a pipe");
    aio.add(reader.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert!(slots(&mut aio, NOW).is_empty());
    aio.modify(reader.as_fd(), Token::new(1, 0), ONESHOT).expect("registered");
    let seen = aio.counters().snapshot();
    // The look at its kind, and one io_submit.
    assert_eq!((seen.system_calls, seen.updates_merged), (2, 1));
    writer.write_all(b"x").expect("room");
    assert_eq!(slots(&mut aio, None), [1]);
    assert!(slots(&mut aio, NOW).is_empty(), "it is a oneshot now");
}

#[test]
fn completions_that_do_not_fit_stay_in_the_ring_and_waits_go_round() {
    let mut aio = small();
    let pipes: Vec<_> = (0..3).map(|_| ready_pipe()).collect();
    for (slot, (reader, _)) in (0..).zip(&pipes) {
        aio.add(reader.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
    }
    let mut events = Events::with_capacity(2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        aio.wait(&mut events, None).expect("wait");
        seen.extend(events.iter().map(|event| event.token.slot()));
    }
    assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_number_closed_before_it_is_armed_again_is_dropped() {
    let mut aio = small();
    let (reader, _writer) = ready_pipe();
    let high = rustix::io::fcntl_dupfd_cloexec(&reader, 1400).expect("numbers up to 1400");
    aio.add(high.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert_eq!(slots(&mut aio, None), [1]);
    drop(high);
    assert!(slots(&mut aio, NOW).is_empty());
    let closed = aio.counters().snapshot().closed_without_delete;
    assert_eq!((closed, aio.table.len()), (1, 0));
}

#[test]
fn an_open_descriptor_that_the_kernel_refuses_is_reported_as_an_error_once() {
    use rustix::fs::{Mode, OFlags};
    let mut aio = small();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let path = rustix::fs::open("/dev/null", flags, Mode::empty()).expect("a path");
    aio.add(path.as_fd(), Token::new(1, 0), LEVEL).expect("errors are deferred");
    let mut events = Events::with_capacity(4);
    aio.wait(&mut events, NOW).expect("wait");
    let seen: Vec<Readiness> = events.iter().map(|event| event.readiness).collect();
    assert_eq!(seen, [Readiness::ERROR]);
    assert!(slots(&mut aio, NOW).is_empty());
    aio.delete(path.as_fd()).expect("still registered");
}

#[test]
fn a_level_registration_falls_silent_when_its_data_is_read() {
    let mut aio = small();
    let (mut reader, _writer) = ready_pipe();
    aio.add(reader.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert_eq!(slots(&mut aio, None), [1]);
    assert_eq!(slots(&mut aio, None), [1]);
    reader.read_exact(&mut [0]).expect("one byte");
    assert!(slots(&mut aio, NOW).is_empty());
}

#[test]
fn doubling_stops_where_old_and_new_no_longer_fit_together() {
    assert_eq!(grown_within(1024, 65_536), 32_768);
    assert_eq!(grown_within(1024, 3071), 1024);
    assert_eq!(grown_within(1024, 3072), 2048);
}

#[test]
fn a_deleted_listener_takes_nobody_where_it_is_watched_beside() {
    for round in 0..20 {
        let mut aio = Aio::open(Release::AtOnce, None).expect("AIO");
        let (ours, _peer) = UnixStream::pair().expect("a pair");
        aio.add(ours.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
        assert!(slots(&mut aio, NOW).is_empty());
        assert!(aio.beside.is_none(), "a connection is polled by AIO");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        aio.add(listener.as_fd(), Token::new(2, 0), LEVEL).expect("vacant");
        assert!(slots(&mut aio, NOW).is_empty());
        let client = std::net::TcpStream::connect(address).expect("it listens");
        assert_eq!(slots(&mut aio, None), [2]);
        drop((client, listener.accept().expect("a client")));
        aio.delete(listener.as_fd()).expect("registered");
        drop(listener);
        std::net::TcpStream::connect(address).expect_err(&format!("closed, in round {round}"));
    }
}

#[test]
fn a_deleted_pipe_is_broken_at_once_where_it_is_watched_beside() {
    for round in 0..20 {
        let mut aio = Aio::open(Release::AtOnce, None).expect("AIO");
        let (reader, mut writer) = ready_pipe();
        aio.add(reader.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
        assert_eq!(slots(&mut aio, None), [1]);
        aio.delete(reader.as_fd()).expect("registered");
        drop(reader);
        let refused = writer.write_all(b"x").expect_err(&format!("closed, in round {round}"));
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn a_listener_is_not_starved_by_a_connection_that_is_always_ready() {
    let mut aio = Aio::open(Release::AtOnce, None).expect("AIO");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    aio.add(listener.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    let pairs = [ready_pair(), ready_pair()];
    for (slot, (ours, _)) in (2..).zip(&pairs) {
        aio.add(ours.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
    }
    let address = listener.local_addr().expect("bound");
    let _client = std::net::TcpStream::connect(address).expect("it listens");
    let mut events = Events::with_capacity(1);
    let mut seen = [0; 4];
    for _ in 0..12 {
        aio.wait(&mut events, None).expect("wait");
        let found = events.iter().next().expect("something is ready");
        seen[found.token.slot() as usize] += 1;
    }
    assert!(seen[1..].iter().all(|times| *times >= 3), "{seen:?}");
}

#[test]
fn a_closed_listener_that_lives_on_by_a_duplicate_does_not_keep_the_poller_busy() {
    let mut aio = Aio::open(Release::AtOnce, None).expect("AIO");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    aio.add(ours.as_fd(), Token::new(3, 0), LEVEL).expect("vacant");
    aio.add(listener.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert!(slots(&mut aio, NOW).is_empty());
    let other = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let _duplicate = listener.try_clone().expect("a number");
    let mut number = OwnedFd::from(listener);
    rustix::io::dup2(&other, &mut number).expect("both are open");
    aio.add(number.as_fd(), Token::new(2, 0), LEVEL).expect("another file");
    let _client = std::net::TcpStream::connect(address).expect("the duplicate listens");
    let calls = aio.counters().snapshot().system_calls;
    assert!(slots(&mut aio, Some(Duration::from_millis(30))).is_empty());
    let seen = aio.counters().snapshot();
    assert!(seen.stale_events == 1 && seen.system_calls - calls < 20, "{seen:?}");
    let _client = std::net::TcpStream::connect(other.local_addr().expect("bound"));
    assert_eq!(slots(&mut aio, None), [2]);
    let _ = other.accept().expect("a client");
    // Completions end the wait on the other epoll as well.
    let waker = aio.waker();
    std::thread::scope(|scope| {
        scope.spawn(move || waker.wake());
        let mut events = Events::with_capacity(4);
        aio.wait(&mut events, None).expect("wait");
        assert!(events.is_woken() && events.is_empty());
        scope.spawn(|| peer.write_all(b"x").expect("room"));
        assert_eq!(slots(&mut aio, None), [3]);
    });
}

#[test]
fn a_oneshot_that_fired_beside_the_context_stays_silent_where_the_epoll_is_opened_anew() {
    let mut aio = Aio::open(Release::AtOnce, None).expect("AIO");
    let (spent, mut writer) = ready_pipe();
    aio.add(spent.as_fd(), Token::new(1, 0), ONESHOT).expect("vacant");
    assert_eq!(slots(&mut aio, None), [1]);
    aio.open_beside_anew().expect("descriptors are left");
    assert!(slots(&mut aio, NOW).is_empty());
    aio.modify(spent.as_fd(), Token::new(2, 0), ONESHOT).expect("registered");
    assert_eq!(slots(&mut aio, None), [2]);
    writer.write_all(b"x").expect("room");
    aio.delete(spent.as_fd()).expect("registered");
    assert!(slots(&mut aio, NOW).is_empty());
}

#[test]
fn a_socket_that_listens_only_later_is_watched_beside_from_then_on() {
    let mut aio = Aio::open(Release::AtOnce, None).expect("AIO");
    let family = rustix::net::AddressFamily::INET;
    let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    aio.add(socket.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert_eq!(slots(&mut aio, None), [1], "it is hung up");
    rustix::net::listen(&socket, 5).expect("to a port of the kernel's choice");
    assert!(slots(&mut aio, NOW).is_empty());
    let states: Vec<State> = aio.table.iter().map(|entry| entry.state).collect();
    assert!(matches!(states[..], [State::Beside { .. }]), "{states:?}");
    let listener = std::net::TcpListener::from(socket);
    let port = listener.local_addr().expect("bound").port();
    let _client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    assert_eq!(slots(&mut aio, None), [1]);
}

/// A pipe whose number reads and writes: two queues of waiters, which the kernel refuses to poll while it is empty.
fn for_both_directions() -> (std::fs::File, PipeReader) {
    let (reader, _) = pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let both = std::fs::OpenOptions::new().read(true).write(true).open(path);
    (both.expect("a pipe is opened again"), reader)
}

#[test]
fn a_file_with_two_queues_of_waiters_is_watched_beside_what_is_armed() {
    let mut aio = Aio::open(Release::Later, None).expect("AIO");
    let (armed, mut writer) = pipe().expect("a pipe");
    aio.add(armed.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
    assert!(slots(&mut aio, NOW).is_empty());

    let (mut both, _reader) = for_both_directions();
    aio.add(both.as_fd(), Token::new(2, 0), LEVEL).expect("vacant");
    assert!(slots(&mut aio, NOW).is_empty(), "it is not ready");
    both.write_all(b"x").expect("room");
    assert_eq!(slots(&mut aio, None), [2]);
    assert_eq!(slots(&mut aio, None), [2], "it is level");
    writer.write_all(b"x").expect("room");
    let mut seen: Vec<u32> = (0..3).flat_map(|_| slots(&mut aio, None)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [1, 2], "what was armed before is found too");
    both.read_exact(&mut [0]).expect("a byte");

    // A wake, and what is armed, end a wait that sleeps beside the context.
    (&armed).read_exact(&mut [0]).expect("a byte");
    while !slots(&mut aio, NOW).is_empty() {}
    let waker = aio.waker();
    std::thread::scope(|scope| {
        scope.spawn(move || waker.wake());
        let mut events = Events::with_capacity(4);
        aio.wait(&mut events, None).expect("wait");
        assert!(events.is_woken() && events.is_empty());
        scope.spawn(|| writer.write_all(b"x").expect("room"));
        aio.wait(&mut events, None).expect("wait");
        assert_eq!(events.iter().map(|event| event.token.slot()).collect::<Vec<_>>(), [1]);
    });

    aio.modify(both.as_fd(), Token::new(3, 0), ONESHOT).expect("registered");
    both.write_all(b"x").expect("room");
    aio.delete(armed.as_fd()).expect("registered");
    assert_eq!(slots(&mut aio, None), [3]);
    assert!(slots(&mut aio, NOW).is_empty(), "it is a oneshot now");
    aio.modify(both.as_fd(), Token::new(4, 0), LEVEL).expect("registered");
    assert_eq!(slots(&mut aio, None), [4]);
    aio.delete(both.as_fd()).expect("registered");
    assert!(slots(&mut aio, NOW).is_empty());
    aio.add(both.as_fd(), Token::new(5, 0), LEVEL).expect("vacant");
    assert_eq!(slots(&mut aio, None), [5]);
}

/// What wakes a wait was not looked at by the submission that the wait began with.
#[test]
fn ordinary_data_that_comes_while_a_wait_blocks_is_not_priority() {
    let mut aio = Aio::open(Release::Later, None).expect("AIO");
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    let interest = Interest::READABLE | Interest::PRIORITY;
    let how = Registration::new(interest, Trigger::Level);
    aio.add(ours.as_fd(), Token::new(1, 0), how).expect("vacant");
    let mut events = Events::with_capacity(8);
    // A wait that finds nothing, until it blocks.
    aio.flush(&mut events).expect("armed");
    assert!(!aio.harvest(&mut events).expect("read"));
    peer.write_all(b"x").expect("room");
    let is_over = aio.block(&mut events, Some(Duration::from_secs(10))).expect("a completion");
    assert!(!is_over && events.is_empty(), "it is doubted, and looked at again");
    aio.wait(&mut events, Some(Duration::from_secs(10))).expect("wait");
    let found: Vec<_> = events.iter().map(|event| event.readiness).collect();
    assert_eq!(found, [Readiness::READABLE]);
}
