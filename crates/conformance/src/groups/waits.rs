//! How a wait ends: never before the time asked, counted in nanoseconds; by events; by wakers from this thread
//! and from others, before, during and after it.

use std::os::fd::AsFd;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use pollux_poller::{Events, Interest, Readiness, Trigger};

use crate::rig::{DEADLINE, Rig, until_asleep};
use crate::{Case, CaseResult, case};

pub(crate) const TIMEOUTS: &[Case] = &[
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

pub(crate) const WAKES: &[Case] = &[
    case!(a_wake_before_the_wait_ends_it),
    case!(a_wake_is_not_an_event),
    case!(a_wake_ends_one_wait_only),
    case!(many_wakes_are_merged_to_one),
    case!(a_wake_from_another_thread_before_the_wait),
    case!(a_wake_from_another_thread_during_the_wait, [Kernel]),
    case!(a_wake_ends_a_wait_without_end, [Kernel]),
    case!(no_wake_is_lost_between_two_threads, [Kernel]),
    case!(many_threads_wake_one_poller, [Kernel]),
    case!(a_wake_comes_together_with_events),
    case!(a_waker_wakes_its_own_poller_only),
    case!(a_waker_outlives_its_poller),
    case!(wakes_are_counted),
];

/// Long enough that its end is not taken for the end of a wait that was cut short.
const LONG: Duration = Duration::from_secs(60);

fn empty_wait(rig: &mut Rig, timeout: Duration) -> Duration {
    let before = rig.now();
    assert_eq!(rig.wait(8, timeout), []);
    rig.now() - before
}

fn zero_only_looks(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let shortest = (0..20).map(|_| empty_wait(rig, Duration::ZERO)).min();
    assert!(shortest < Some(Duration::from_millis(1)), "{shortest:?}");
    Ok(())
}

fn zero_sees_what_is_ready(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    writer.write(1).expect("room");
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    for _ in 0..3 {
        let seen = rig.wait(8, Duration::ZERO);
        assert_eq!(seen.len(), 1, "it is ready, so a look has to see it");
    }
    Ok(())
}

fn a_timeout_is_never_early(rig: &mut Rig) -> CaseResult {
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
fn two_hundred_microseconds_are_not_a_millisecond(rig: &mut Rig) -> CaseResult {
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

fn one_nanosecond_ends(rig: &mut Rig) -> CaseResult {
    for _ in 0..10 {
        empty_wait(rig, Duration::from_nanos(1));
    }
    Ok(())
}

fn ready_before_the_wait_ends_it_at_once(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    let before = rig.now();
    assert_eq!(rig.wait(8, LONG).len(), 1);
    assert!(rig.now() - before < DEADLINE);
    Ok(())
}

fn ready_during_the_wait_ends_it(rig: &mut Rig) -> CaseResult {
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

fn the_longest_timeout_is_accepted(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.wait(8, Duration::MAX).len(), 1);
    Ok(())
}

fn a_timeout_does_not_use_up_the_registration(rig: &mut Rig) -> CaseResult {
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

fn many_short_waits_keep_the_time(rig: &mut Rig) -> CaseResult {
    let before = rig.now();
    let asked = Duration::from_micros(50);
    for _ in 0..100 {
        empty_wait(rig, asked);
    }
    assert!(rig.now() - before >= asked * 100);
    Ok(())
}

/// Whether one wait, of at most `timeout`, was ended by a waker; an event must not come.
#[track_caller]
fn is_woken(rig: &mut Rig, timeout: Option<Duration>) -> bool {
    let mut events = Events::with_capacity(8);
    rig.poller.wait(&mut events, timeout).expect("wait");
    assert!(events.is_empty(), "a wake-up is not an event: {events:?}");
    events.is_woken()
}

fn a_wake_before_the_wait_ends_it(rig: &mut Rig) -> CaseResult {
    rig.poller.waker().wake();
    assert!(is_woken(rig, Some(DEADLINE)));
    Ok(())
}

fn a_wake_is_not_an_event(rig: &mut Rig) -> CaseResult {
    rig.poller.waker().wake();
    let mut events = Events::with_capacity(1);
    rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
    assert_eq!((events.len(), events.is_empty(), events.is_woken()), (0, true, true));
    let counted = rig.poller.counters().snapshot();
    assert_eq!((counted.events, counted.empty_waits, counted.wakes), (0, 1, 1));
    Ok(())
}

fn a_wake_ends_one_wait_only(rig: &mut Rig) -> CaseResult {
    for _ in 0..10 {
        rig.poller.waker().wake();
        assert!(is_woken(rig, Some(DEADLINE)));
        assert!(!is_woken(rig, Some(Duration::from_micros(100))));
    }
    Ok(())
}

fn many_wakes_are_merged_to_one(rig: &mut Rig) -> CaseResult {
    let waker = rig.poller.waker();
    for _ in 0..1000 {
        waker.wake();
    }
    assert!(is_woken(rig, Some(DEADLINE)));
    assert!(!is_woken(rig, Some(Duration::from_micros(100))));
    assert_eq!(rig.poller.counters().snapshot().wakes, 1);
    Ok(())
}

fn a_wake_from_another_thread_before_the_wait(rig: &mut Rig) -> CaseResult {
    let waker = rig.poller.waker();
    thread::spawn(move || waker.wake()).join().expect("waking does not panic");
    assert!(is_woken(rig, Some(DEADLINE)));
    Ok(())
}

/// Another thread wakes this one when it sleeps inside the wait.
fn woken_in_wait(rig: &mut Rig, timeout: Option<Duration>) {
    let waker = rig.poller.waker();
    let waiting = rustix::thread::gettid();
    let (go, gone) = mpsc::channel();
    let thread = thread::spawn(move || {
        gone.recv().expect("the waiting thread says when");
        until_asleep(waiting);
        waker.wake();
    });
    go.send(()).expect("the thread listens");
    assert!(is_woken(rig, timeout));
    thread.join().expect("waking does not panic");
}

fn a_wake_from_another_thread_during_the_wait(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    for _ in 0..5 {
        woken_in_wait(rig, Some(Duration::from_secs(60)));
    }
    Ok(())
}

fn a_wake_ends_a_wait_without_end(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    woken_in_wait(rig, None);
    woken_in_wait(rig, Some(Duration::MAX));
    Ok(())
}

fn no_wake_is_lost_between_two_threads(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    const ROUNDS: usize = 2000;
    let waker = rig.poller.waker();
    let (answer, answers) = mpsc::channel();
    let thread = thread::spawn(move || {
        for _ in 0..ROUNDS {
            waker.wake();
            answers.recv().expect("each wake is answered");
        }
    });
    for round in 0..ROUNDS {
        assert!(is_woken(rig, Some(DEADLINE)), "wake {round} was lost");
        answer.send(()).expect("the thread listens");
    }
    thread.join().expect("waking does not panic");
    Ok(())
}

fn many_threads_wake_one_poller(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    const THREADS: usize = 8;
    let start = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let waker = rig.poller.waker();
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                for _ in 0..500 {
                    waker.wake();
                }
            })
        })
        .collect();
    assert!(is_woken(rig, Some(DEADLINE)));
    for thread in threads {
        thread.join().expect("waking does not panic");
    }
    // Whatever came after the last wait merges into at most one more wake.
    is_woken(rig, Some(Duration::ZERO));
    assert!(!is_woken(rig, Some(Duration::from_millis(1))));
    rig.poller.waker().wake();
    assert!(is_woken(rig, Some(DEADLINE)), "the waker still works");
    Ok(())
}

fn a_wake_comes_together_with_events(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    rig.poller.waker().wake();
    let mut events = Events::with_capacity(8);
    let mut is_woken = false;
    let mut is_ready = false;
    for _ in 0..3 {
        rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
        is_woken |= events.is_woken();
        is_ready |= !events.is_empty();
    }
    assert!(is_woken && is_ready, "woken: {is_woken}, ready: {is_ready}");
    Ok(())
}

fn a_waker_wakes_its_own_poller_only(rig: &mut Rig) -> CaseResult {
    let mut other = rig.open_another();
    other.waker().wake();
    assert!(!is_woken(rig, Some(Duration::from_millis(1))));
    let mut events = Events::with_capacity(8);
    other.wait(&mut events, Some(DEADLINE)).expect("wait");
    assert!(events.is_woken());
    Ok(())
}

fn a_waker_outlives_its_poller(rig: &mut Rig) -> CaseResult {
    let other = rig.open_another();
    let waker = other.waker();
    drop(other);
    waker.wake();
    waker.wake();
    assert!(!is_woken(rig, Some(Duration::from_micros(100))));
    Ok(())
}

fn wakes_are_counted(rig: &mut Rig) -> CaseResult {
    for _ in 0..7 {
        rig.poller.waker().wake();
        assert!(is_woken(rig, Some(DEADLINE)));
    }
    let counted = rig.poller.counters().snapshot();
    assert_eq!((counted.wakes, counted.waits, counted.events), (7, 7, 0));
    Ok(())
}
