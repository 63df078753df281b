//! What is special about the io_uring backend; what every backend has to do is in the conformance
//! suite.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_testing::or_skip;

use super::*;

type Pair = (UnixStream, UnixStream);

const EDGE: Registration = Registration::new(Interest::READABLE, Trigger::Edge);
const LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const ONESHOT: Registration = Registration::new(Interest::READABLE, Trigger::Oneshot);

fn pair() -> Pair {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    ours.set_nonblocking(true).expect("set");
    theirs.set_nonblocking(true).expect("set");
    (ours, theirs)
}

fn token(slot: usize) -> Token {
    Token::new(slot as u32, 0)
}

fn registered(poller: &mut UringPoll, count: usize, how: Registration) -> Vec<Pair> {
    let pairs: Vec<Pair> = (0..count).map(|_| pair()).collect();
    for (slot, (_, theirs)) in pairs.iter().enumerate() {
        poller.add(theirs.as_fd(), token(slot), how).expect("added");
    }
    pairs
}

fn send(pairs: &[Pair]) {
    for (ours, _) in pairs {
        (&*ours).write_all(b"x").expect("a byte sent");
    }
}

/// The tokens that one look finds, sorted.
fn look(poller: &mut UringPoll, capacity: usize) -> Vec<Token> {
    let mut events = Events::with_capacity(capacity);
    poller.wait(&mut events, Some(Duration::ZERO)).expect("looked");
    let mut tokens: Vec<Token> = events.iter().map(|event| event.token).collect();
    tokens.sort();
    tokens
}

fn counted(poller: &UringPoll) -> crate::CountersSnapshot {
    poller.counters().snapshot()
}

#[test]
fn one_wait_finds_more_than_the_kernel_finishes_in_one_enter() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let pairs = registered(&mut poller, 64, EDGE);
    assert_eq!(look(&mut poller, 128), []);
    send(&pairs);
    assert_eq!(look(&mut poller, 128), (0..64).map(token).collect::<Vec<_>>());
}

#[test]
fn a_look_that_finds_nothing_is_not_a_system_call() {
    for threads in [Threads::One, Threads::Several] {
        let Some(mut poller) = or_skip(UringPoll::open(threads, Expected::Many, Release::Later))
        else {
            return;
        };
        for how in [EDGE, LEVEL] {
            let pairs = registered(&mut poller, 8, how);
            look(&mut poller, 16);
            let armed = counted(&poller);
            (0..1_000).for_each(|_| assert_eq!(look(&mut poller, 16), []));
            let looked = counted(&poller).since(&armed);
            assert_eq!((looked.empty_waits, looked.system_calls), (1_000, 0), "{how:?}");
            send(&pairs);
            assert_eq!(look(&mut poller, 16).len(), 8, "{how:?}");
            pairs.iter().for_each(|(_, theirs)| poller.delete(theirs.as_fd()).expect("deleted"));
        }
    }
}

#[test]
fn an_overflow_of_the_completion_queue_loses_nothing() {
    let sizes = Sizes { submission: 4, completion: 4 };
    let Some(mut poller) = or_skip(UringPoll::with_sizes(sizes, Threads::One)) else { return };
    let pairs = registered(&mut poller, 64, EDGE);
    look(&mut poller, 128);
    for round in 0..4 {
        send(&pairs);
        let mut seen = Vec::new();
        // Multishots that the overflow ended report again when they are armed again.
        loop {
            let found = look(&mut poller, 128);
            if found.is_empty() {
                break;
            }
            seen.extend(found);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen, (0..64).map(token).collect::<Vec<_>>(), "round {round}");
        for (_, theirs) in &pairs {
            assert_eq!((&*theirs).read(&mut [0; 8]).expect("a byte"), 1);
        }
    }
    let counted = counted(&poller);
    assert!(counted.overflows > 0 && counted.rearms > 0, "{counted:?}");
}

#[test]
fn a_registration_that_fires_while_it_is_modified_is_reported_once() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let pairs = registered(&mut poller, 1, ONESHOT);
    assert_eq!(look(&mut poller, 8), []);
    send(&pairs);
    poller.modify(pairs[0].1.as_fd(), token(0), ONESHOT).expect("modified");
    assert_eq!(look(&mut poller, 8), [token(0)]);
    assert_eq!(look(&mut poller, 8), []);
    assert_eq!(counted(&poller).rearms, 1, "the update came too late and was made good");
}

#[test]
fn an_edge_registration_modified_in_the_act_stays_armed() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let pairs = registered(&mut poller, 1, EDGE);
    assert_eq!(look(&mut poller, 8), []);
    // An equal token asks for an update of the poll, another one for a poll of its own.
    for slot in [0, 0, 1, 2, 2] {
        send(&pairs);
        poller.modify(pairs[0].1.as_fd(), token(slot), EDGE).expect("modified");
        assert_eq!(look(&mut poller, 8), [token(slot)]);
        send(&pairs);
        assert_eq!(look(&mut poller, 8), [token(slot)], "still armed");
    }
}

#[test]
fn a_modify_to_a_condition_that_holds_is_reported_at_once() {
    for how in [EDGE, LEVEL, ONESHOT] {
        let Some(mut poller) =
            or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
        else {
            return;
        };
        let pairs = registered(&mut poller, 1, how);
        assert_eq!(look(&mut poller, 8), []);
        let writable = Registration { interest: Interest::WRITABLE, ..how };
        poller.modify(pairs[0].1.as_fd(), token(0), writable).expect("modified");
        assert_eq!(look(&mut poller, 8), [token(0)], "{how:?}");
        assert_eq!(counted(&poller).updates_sent, 2, "an add and an update");
    }
}

#[test]
fn a_claim_of_the_kernel_that_does_not_hold_is_not_reported() {
    for trigger in [Trigger::Edge, Trigger::Level, Trigger::Oneshot] {
        let Some(mut poller) =
            or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
        else {
            return;
        };
        let both = Interest::READABLE | Interest::PRIORITY;
        let pairs = registered(&mut poller, 1, Registration::new(both, trigger));
        let other = [pair()];
        let urgent = Registration::new(Interest::PRIORITY, trigger);
        poller.add(other[0].1.as_fd(), token(1), urgent).expect("added");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let readable = Registration::new(Interest::READABLE, trigger);
        poller.add(reader.as_fd(), token(2), readable).expect("added");
        assert_eq!(look(&mut poller, 8), []);
        send(&pairs);
        send(&other);
        drop(writer);
        let mut seen = Vec::new();
        let mut events = Events::with_capacity(8);
        for round in 0..4 {
            if round == 2 && trigger != Trigger::Oneshot {
                send(&pairs);
                send(&other);
            }
            poller.wait(&mut events, Some(Duration::ZERO)).expect("looked");
            seen.extend(events.iter().copied());
        }
        seen.sort_by_key(|event| event.token);
        seen.dedup();
        let socket = crate::Event { token: token(0), readiness: Readiness::READABLE };
        let pipe = crate::Event { token: token(2), readiness: Readiness::HUP };
        assert_eq!(seen, [socket, pipe], "{trigger:?}");
    }
}

#[test]
fn an_exclusive_registration_is_served_and_cannot_be_changed() {
    for how in [EDGE.exclusive(), LEVEL.exclusive()] {
        let Some(mut poller) =
            or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
        else {
            return;
        };
        let pairs = registered(&mut poller, 1, how);
        assert_eq!(look(&mut poller, 8), []);
        send(&pairs);
        assert_eq!(look(&mut poller, 8), [token(0)]);
        let refused = poller.modify(pairs[0].1.as_fd(), token(0), EDGE);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
}

#[test]
fn changes_that_cancel_out_cost_nothing_and_others_ride_with_one_wait() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let (_ours, theirs) = pair();
    poller.add(theirs.as_fd(), token(1), EDGE).expect("added");
    poller.delete(theirs.as_fd()).expect("deleted");
    look(&mut poller, 8);
    assert_eq!((counted(&poller).updates_merged, counted(&poller).updates_sent), (2, 0));

    poller.add(theirs.as_fd(), token(1), EDGE).expect("added");
    look(&mut poller, 8);
    let before = counted(&poller);
    poller.delete(theirs.as_fd()).expect("deleted");
    poller.add(theirs.as_fd(), token(1), EDGE).expect("added again");
    look(&mut poller, 8);
    let since = counted(&poller).since(&before);
    assert_eq!((since.updates_merged, since.updates_sent), (0, 2), "the file may be another");
    assert!(since.system_calls <= 2, "{since:?}");

    let before = counted(&poller);
    poller.modify(theirs.as_fd(), token(1), EDGE).expect("modified");
    poller.modify(theirs.as_fd(), token(1), EDGE).expect("modified again");
    look(&mut poller, 8);
    let since = counted(&poller).since(&before);
    assert_eq!((since.updates_merged, since.updates_sent, since.system_calls), (1, 1, 1));
}

#[test]
fn the_successor_of_a_file_closed_without_delete_receives_only_of_itself() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let ((first, held), (second, other)) = (pair(), pair());
    let mut fd = OwnedFd::from(held);
    poller.add(fd.as_fd(), token(1), EDGE).expect("added");
    assert_eq!(look(&mut poller, 8), []);
    rustix::io::dup2(&other, &mut fd).expect("another file under the same number");
    (&first).write_all(b"x").expect("the armed poll holds the old file open");
    poller.add(fd.as_fd(), token(1).next_generation(), EDGE).expect("added over it");
    assert_eq!(look(&mut poller, 8), []);
    (&second).write_all(b"x").expect("a byte sent");
    assert_eq!(look(&mut poller, 8), [token(1).next_generation()]);
    assert_eq!(counted(&poller).closed_without_delete, 1);
}

#[test]
fn events_that_did_not_fit_are_polled_anew_before_they_are_reported() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let pairs = registered(&mut poller, 6, LEVEL);
    send(&pairs);
    assert_eq!(look(&mut poller, 2), [token(0), token(1)]);
    assert_eq!((&pairs[2].1).read(&mut [0; 8]).expect("a byte"), 1);
    assert_eq!(look(&mut poller, 2), [token(3)], "token 2 took the room and was not ready");
    assert_eq!(look(&mut poller, 2), [token(4), token(5)]);
    assert_eq!(look(&mut poller, 2), [token(0), token(1)]);
}

#[test]
fn a_condition_that_is_not_wanted_does_not_spin() {
    for how in [LEVEL, ONESHOT] {
        let Some(mut poller) =
            or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
        else {
            return;
        };
        let (ours, mut theirs) = pair();
        while theirs.write(&[0; 4096]).is_ok() {}
        ours.shutdown(std::net::Shutdown::Write).expect("half closed");
        let writable = Registration { interest: Interest::WRITABLE, ..how };
        poller.add(theirs.as_fd(), token(1), writable).expect("added");
        let mut events = Events::with_capacity(8);
        poller.wait(&mut events, Some(Duration::from_millis(20))).expect("waited");
        assert!(events.is_empty(), "only RDHUP holds");
        assert!(counted(&poller).system_calls < 8, "{:?}", counted(&poller));
        while (&ours).read(&mut [0; 4096]).is_ok_and(|taken| taken > 0) {}
        assert_eq!(look(&mut poller, 8), [token(1)], "{how:?}");
        let again = look(&mut poller, 8);
        assert_eq!(again.is_empty(), how.trigger == Trigger::Oneshot);
    }
}

#[test]
fn a_regular_file_is_ready_and_does_not_spin() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let file = std::fs::File::open(std::env::current_exe().expect("this test")).expect("open");
    poller.add(file.as_fd(), token(1), EDGE).expect("added");
    let found = (0..8).filter(|_| !look(&mut poller, 8).is_empty()).count();
    assert!((1..=2).contains(&found), "an edge is reported and then over: {found}");
    poller.modify(file.as_fd(), token(1), LEVEL).expect("modified");
    assert!((0..8).all(|_| look(&mut poller, 8) == [token(1)]));
    let nothing = Registration { interest: Interest::NONE, ..LEVEL };
    poller.modify(file.as_fd(), token(1), nothing).expect("modified");
    assert_eq!(look(&mut poller, 8), [token(1)], "the kernel says EINVAL, once");
    assert_eq!(look(&mut poller, 8), []);
}

/// The flag for deferred work is set after the work was added, by a thread that may be late.
#[test]
fn a_look_ends_when_the_flag_for_deferred_work_outlives_the_work() {
    const ROUNDS: usize = 100_000;
    const OVER: usize = usize::MAX;
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Few, Release::Later))
    else {
        return;
    };
    let (ours, theirs) = pair();
    poller.add(theirs.as_fd(), token(0), EDGE).expect("added");
    let round = &AtomicUsize::new(0);
    let wrong = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut sent = 0;
            while round.load(Ordering::Acquire) != OVER {
                if round.load(Ordering::Acquire) > sent {
                    (&ours).write_all(b"x")?;
                    sent += 1;
                }
                std::hint::spin_loop();
            }
            std::io::Result::Ok(())
        });
        let mut events = Events::with_capacity(8);
        let wrong = (1..=ROUNDS).find_map(|next| {
            round.store(next, Ordering::Release);
            (0..next % 512).for_each(|_| std::hint::spin_loop());
            let waited = poller.wait(&mut events, Some(Duration::from_secs(10)));
            let read = (&theirs).read(&mut [0]);
            let left = look(&mut poller, 8);
            let is_right = waited.is_ok() && events.len() == 1 && read.is_ok() && left.is_empty();
            (!is_right).then(|| format!("{next}: {waited:?} {events:?}, {read:?}, {left:?}"))
        });
        round.store(OVER, Ordering::Release);
        sender.join().expect("no panic").expect("room");
        wrong
    });
    assert_eq!(wrong, None);
}

#[test]
fn a_look_that_has_nothing_to_submit_or_to_fetch_is_not_a_system_call() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let _pairs = registered(&mut poller, 1, EDGE);
    look(&mut poller, 8);
    let before = counted(&poller);
    look(&mut poller, 8);
    let has_flag = poller.caps().notes[0].contains("TASKRUN_FLAG");
    assert!(!has_flag || counted(&poller).since(&before).system_calls == 0);
}

#[test]
fn a_descriptor_that_the_kernel_cannot_poll_is_reported_with_an_error() {
    let Some(mut poller) = or_skip(UringPoll::open(Threads::One, Expected::Many, Release::Later))
    else {
        return;
    };
    let flags = rustix::fs::OFlags::PATH;
    let path = rustix::fs::open("/", flags, rustix::fs::Mode::empty()).expect("open");
    poller.add(path.as_fd(), token(1), EDGE).expect("refused only by the kernel, later");
    let mut events = Events::with_capacity(8);
    poller.wait(&mut events, Some(Duration::ZERO)).expect("looked");
    let readiness: Vec<Readiness> = events.iter().map(|event| event.readiness).collect();
    assert_eq!(readiness, [Readiness::ERROR]);
    assert_eq!(look(&mut poller, 8), []);
}

#[test]
fn a_wake_ends_a_wait_after_the_waker_lost_its_poll_to_an_overflow() {
    let sizes = Sizes { submission: 4, completion: 4 };
    let Some(mut poller) = or_skip(UringPoll::with_sizes(sizes, Threads::One)) else { return };
    let pairs = registered(&mut poller, 16, EDGE);
    look(&mut poller, 32);
    for _ in 0..4 {
        send(&pairs);
        poller.waker().wake();
        while !look(&mut poller, 32).is_empty() {}
        poller.waker().wake();
        let mut events = Events::with_capacity(1);
        while !events.is_woken() {
            let patience = Some(Duration::from_secs(5));
            poller.wait(&mut events, patience).expect("waited");
            assert!(events.is_woken() || !events.is_empty(), "the wake was lost");
        }
    }
}

#[test]
fn deleting_more_than_one_queue_of_registrations_delivers_nothing_of_them() {
    let sizes = Sizes { submission: 8, completion: 16 };
    let Some(mut poller) = or_skip(UringPoll::with_sizes(sizes, Threads::One)) else { return };
    let pairs = registered(&mut poller, 100, EDGE);
    look(&mut poller, 128);
    send(&pairs);
    for (_, theirs) in &pairs {
        poller.delete(theirs.as_fd()).expect("deleted");
    }
    assert_eq!(look(&mut poller, 128), []);
    assert_eq!(look(&mut poller, 128), []);
    assert_eq!(poller.table.len(), 0);
}

const ALL_TRIGGERS: [Registration; 3] = [LEVEL, EDGE, ONESHOT];

fn for_programs() -> Option<UringPoll> {
    or_skip(UringPoll::open(Threads::One, Expected::Few, Release::AtOnce))
}

/// How many events one wait of at most 20 s finds, with room for one event and for more.
fn found(poller: &mut UringPoll) -> usize {
    let mut events = Events::with_capacity(4);
    poller.wait(&mut events, Some(Duration::from_secs(20))).expect("a wait");
    events.len()
}

#[test]
fn a_listener_is_not_held_by_the_ring() {
    for how in ALL_TRIGGERS {
        let Some(mut poller) = for_programs() else { return };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        poller.add(listener.as_fd(), token(1), how).expect("added");
        assert!(look(&mut poller, 4).is_empty());
        let client = std::net::TcpStream::connect(address).expect("it listens");
        assert_eq!(found(&mut poller), 1);
        let again = usize::from(how.trigger == Trigger::Level);
        assert_eq!(look(&mut poller, 4).len(), again, "{how:?}");
        drop((listener.accept().expect("a client"), client));
        assert!(look(&mut poller, 4).is_empty());
        // Closed without `delete`, and without a call on the poller.
        drop(listener);
        let refused = std::net::TcpStream::connect(address).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused), "{how:?}");
    }
}

#[test]
fn a_socket_that_listens_after_it_was_added_is_not_held_by_the_ring() {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    for (how, has_polled) in ALL_TRIGGERS.map(|how| (how, true)).into_iter().chain([(EDGE, false)])
    {
        let Some(mut poller) = for_programs() else { return };
        let later = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&later, &std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0)).expect("a port");
        let address =
            std::net::SocketAddr::try_from(getsockname(&later).expect("bound")).expect("TCP");
        poller.add(later.as_fd(), token(1), how).expect("added");
        if has_polled {
            assert_eq!(found(&mut poller), 1, "hung up, as sockets are that do not listen");
        }
        listen(&later, 8).expect("bound");
        if how.trigger == Trigger::Oneshot {
            poller.modify(later.as_fd(), token(1), how).expect("registered");
        }
        let _ = look(&mut poller, 4);
        let client = std::net::TcpStream::connect(address).expect("it listens");
        assert_eq!(found(&mut poller), 1, "{how:?}");
        let _ = look(&mut poller, 4);
        assert_eq!(poller.beside.as_ref().map(|beside| beside.count), Some(1), "{how:?}");
        drop((client, later));
        let refused = std::net::TcpStream::connect(address).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused), "{how:?}");
    }
}

#[test]
fn neither_listeners_nor_streams_wait_for_ever_where_there_is_room_for_one() {
    let Some(mut poller) = for_programs() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let _client = std::net::TcpStream::connect(listener.local_addr().expect("bound"));
    let pairs = registered(&mut poller, 2, LEVEL);
    send(&pairs);
    poller.add(listener.as_fd(), token(2), LEVEL).expect("added");
    let mut counts = [0; 3];
    for _ in 0..60 {
        look(&mut poller, 1).into_iter().for_each(|token| counts[token.slot() as usize] += 1);
    }
    assert!(counts.iter().all(|&count| count >= 10), "{counts:?}");
}

#[test]
fn a_closed_listener_that_lives_on_by_a_duplicate_does_not_keep_the_poller_busy() {
    let Some(mut poller) = for_programs() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    poller.add(listener.as_fd(), token(1), LEVEL).expect("added");
    assert!(look(&mut poller, 4).is_empty());
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let _duplicate = listener.try_clone().expect("a number");
    let mut number = OwnedFd::from(listener);
    rustix::io::dup2(&other, &mut number).expect("both are open");
    poller.add(number.as_fd(), token(2), LEVEL).expect("another file");
    let _client = std::net::TcpStream::connect(address).expect("the duplicate listens");
    let mut events = Events::with_capacity(4);
    let calls = counted(&poller).system_calls;
    poller.wait(&mut events, Some(Duration::from_millis(30))).expect("a wait");
    assert!(events.is_empty(), "{events:?}");
    let seen = counted(&poller);
    assert!(seen.stale_events == 1 && seen.system_calls - calls < 20, "{seen:?}");
    let _client = std::net::TcpStream::connect(other.local_addr().expect("bound"));
    assert_eq!(look(&mut poller, 4), [token(2)]);
}
