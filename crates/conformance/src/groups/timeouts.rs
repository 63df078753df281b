//! How long a wait lasts: never less than asked, counted in nanoseconds, ended by events.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pollux_poller::{Events, Interest, Readiness, Trigger};

use crate::rig::{DEADLINE, Rig, until_asleep};
use crate::{Case, Verdict, case};

pub(crate) const CASES: &[Case] = &[
    case!(zero_only_looks),
    case!(zero_sees_what_is_ready),
    case!(a_timeout_is_never_early),
    case!(two_hundred_microseconds_are_not_a_millisecond),
    case!(one_nanosecond_ends),
    case!(ready_before_the_wait_ends_it_at_once),
    case!(ready_during_the_wait_ends_it, [Kernel]),
    case!(the_longest_timeout_is_accepted),
    case!(a_timeout_does_not_use_up_the_registration),
    case!(many_short_waits_keep_the_time),
];

/// Long enough that its end is not taken for the end of a wait that was cut short.
const LONG: Duration = Duration::from_secs(60);

fn empty_wait(rig: &mut Rig, timeout: Duration) -> Duration {
    let before = rig.now();
    assert_eq!(rig.wait(8, timeout), []);
    rig.now() - before
}

fn zero_only_looks(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let shortest = (0..20).map(|_| empty_wait(rig, Duration::ZERO)).min();
    assert!(shortest < Some(Duration::from_millis(1)), "{shortest:?}");
    Ok(())
}

fn zero_sees_what_is_ready(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    writer.write(1).expect("room");
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    for _ in 0..3 {
        let seen = rig.wait(8, Duration::ZERO);
        assert_eq!(seen.len(), 1, "it is ready, so a look has to see it");
    }
    Ok(())
}

fn a_timeout_is_never_early(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    for nanoseconds in [1, 999, 50_000, 200_001, 999_999, 1_000_001, 3_456_789, 12_000_000] {
        let asked = Duration::from_nanos(nanoseconds);
        let took = empty_wait(rig, asked);
        assert!(took >= asked, "asked for {asked:?}, ended after {took:?}");
    }
    Ok(())
}

/// A busy machine delays most waits, but not every one of so many. Without `epoll_pwait2` they are
/// rounded up, and the capabilities say so.
fn two_hundred_microseconds_are_not_a_millisecond(rig: &mut Rig) -> Verdict {
    if rig.poller.caps().timeout_step > Duration::from_nanos(1) {
        assert_eq!(rig.poller.caps().timeout_step, Duration::from_millis(1));
        assert!(empty_wait(rig, Duration::from_micros(200)) >= Duration::from_millis(1));
        return Ok(());
    }
    let mut took = (0..500).map(|_| empty_wait(rig, Duration::from_micros(200)));
    let is_fine = took.any(|took| took < Duration::from_micros(900));
    assert!(is_fine, "500 waits of 200 µs, and each took 900 µs or more: rounded up");
    Ok(())
}

fn one_nanosecond_ends(rig: &mut Rig) -> Verdict {
    for _ in 0..10 {
        empty_wait(rig, Duration::from_nanos(1));
    }
    Ok(())
}

fn ready_before_the_wait_ends_it_at_once(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    let before = rig.now();
    assert_eq!(rig.wait(8, LONG).len(), 1);
    assert!(rig.now() - before < DEADLINE);
    Ok(())
}

fn ready_during_the_wait_ends_it(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let (go, gone) = mpsc::channel();
    let waiting = rustix::thread::gettid();
    thread::scope(|scope| {
        let writer = writer.as_fd();
        scope.spawn(move || {
            gone.recv().expect("the waiting thread says when");
            until_asleep(waiting);
            rustix::io::write(writer, b"x").expect("room");
        });
        go.send(()).expect("the thread listens");
        let mut events = Events::with_capacity(8);
        rig.poller.wait(&mut events, Some(LONG)).expect("wait");
        let seen: Vec<Readiness> = events.iter().map(|event| event.readiness).collect();
        assert_eq!(seen, [Readiness::READABLE]);
    });
    Ok(())
}

fn the_longest_timeout_is_accepted(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.wait(8, Duration::MAX).len(), 1);
    Ok(())
}

fn a_timeout_does_not_use_up_the_registration(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    for _ in 0..5 {
        empty_wait(rig, Duration::from_micros(100));
        writer.write(1).expect("room");
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
        reader.read(8).expect("it was written");
    }
    Ok(())
}

fn many_short_waits_keep_the_time(rig: &mut Rig) -> Verdict {
    let before = rig.now();
    let asked = Duration::from_micros(50);
    for _ in 0..100 {
        empty_wait(rig, asked);
    }
    assert!(rig.now() - before >= asked * 100);
    Ok(())
}
