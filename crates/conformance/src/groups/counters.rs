//! What a poller says about itself: counters and capabilities.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pollux_poller::{Error, FilePolicy, Interest, Keeps, Registration, Token, Trigger};

use crate::rig::{DEADLINE, Rig, accepted, memfd};
use crate::{Case, CaseResult, Deviation, case};

pub(crate) const CASES: &[Case] = &[
    case!(a_new_poller_has_counted_nothing),
    case!(waits_and_empty_waits_are_counted),
    case!(events_fall_into_the_histogram),
    case!(updates_asked_are_merged_or_sent),
    case!(refused_updates_change_nothing_that_is_sent),
    case!(waiting_is_counted_in_system_calls),
    case!(what_keeps_numbers_alone_hands_all_descriptors_over_with_each_wait),
    case!(counters_can_be_read_from_another_thread),
    case!(counters_outlive_the_poller),
    case!(the_capabilities_name_the_backend),
    case!(every_refusal_is_in_the_capabilities),
    case!(the_file_policy_is_what_happens, [Kernel]),
    case!(two_pollers_watch_one_file),
];

pub(crate) const OF_NUMBERS: &[Case] = &[case!(stale_events_are_counted, [Kernel])];

const READ: Interest = Interest::READABLE;

fn a_new_poller_has_counted_nothing(rig: &mut Rig) -> CaseResult {
    let counted = rig.open_another().counters().snapshot();
    let about_the_caller =
        [counted.waits, counted.events, counted.updates_asked, counted.wakes, counted.interrupts];
    assert_eq!(about_the_caller, [0; 5], "{counted:?}");
    assert_eq!(counted.events_per_wait.iter().sum::<u64>(), 0);
    Ok(())
}

fn waits_and_empty_waits_are_counted(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    for _ in 0..5 {
        rig.wait(8, Duration::ZERO);
    }
    writer.write(1).expect("room");
    for _ in 0..3 {
        rig.wait(8, DEADLINE);
    }
    let counted = rig.poller.counters().snapshot();
    assert_eq!((counted.waits, counted.empty_waits, counted.events), (8, 5, 3));
    Ok(())
}

fn events_fall_into_the_histogram(rig: &mut Rig) -> CaseResult {
    let counters: Vec<_> = (0..5).map(|_| rig.eventfd()).collect();
    for (slot, counter) in (0..).zip(&counters) {
        counter.write(1).expect("room");
        rig.add(counter, slot, READ, Trigger::Level)?;
    }
    rig.wait(8, DEADLINE);
    let before = rig.poller.counters().snapshot();
    let seen: usize = (0..4).map(|_| rig.wait(8, DEADLINE).len()).sum();
    rig.wait(1, DEADLINE);
    let counted = rig.poller.counters().snapshot().since(&before);
    assert_eq!(seen, 20, "five level events in each of four waits");
    assert_eq!(counted.events_per_wait[..4], [0, 1, 0, 4], "1 and 4 to 7");
    assert_eq!(counted.events_per_wait.iter().sum::<u64>(), counted.waits);
    Ok(())
}

fn updates_asked_are_merged_or_sent(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.modify(&reader, 2, READ, Trigger::Level)?;
    rig.modify(&reader, 3, Interest::NONE, Trigger::Level)?;
    rig.delete(&reader);
    rig.quiet();
    let counted = rig.poller.counters().snapshot();
    assert_eq!(counted.updates_asked, 4);
    let accounted = counted.updates_merged + counted.updates_sent;
    if rig.poller.caps().deferred_changes {
        assert!(counted.updates_merged > 0, "four changes of one descriptor: {counted:?}");
    }
    assert_eq!(accounted, counted.updates_asked, "{counted:?}");
    Ok(())
}

fn refused_updates_change_nothing_that_is_sent(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    let how = Registration::new(READ, Trigger::Oneshot).exclusive();
    rig.poller.add(reader.as_fd(), Token::new(1, 0), how).expect_err("impossible everywhere");
    rig.poller.delete(reader.as_fd()).expect_err("never added");
    rig.quiet();
    assert_eq!(rig.poller.counters().snapshot().updates_sent, 0);
    Ok(())
}

fn waiting_is_counted_in_system_calls(rig: &mut Rig) -> CaseResult {
    let before = rig.poller.counters().snapshot();
    for _ in 0..10 {
        rig.wait(8, Duration::from_micros(100));
    }
    let calls = rig.poller.counters().snapshot().since(&before).system_calls;
    assert!((10..=40).contains(&calls), "{calls} calls for ten waits");
    Ok(())
}

/// A duplicate keeps the old file alive, so that its events continue.
fn stale_events_are_counted(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (old, old_writer) = rig.pipe();
    rig.add(&old, 1, READ, Trigger::Level)?;
    let _twin = old.dup();
    let (new, _new_writer) = rig.successor(old);
    rig.poller
        .add(new.as_fd(), Token::new(1, 1), Registration::new(READ, Trigger::Level))
        .expect("the number is free");
    old_writer.write(1).expect("the twin keeps the reader open");
    rig.quiet();
    let counted = rig.poller.counters().snapshot();
    assert_eq!((counted.closed_without_delete, counted.events), (1, 0));
    if counted.stale_events == 0 { Err(Deviation::NothingStale) } else { Ok(()) }
}

fn what_keeps_numbers_alone_hands_all_descriptors_over_with_each_wait(rig: &mut Rig) -> CaseResult {
    let pipes = [rig.pipe(), rig.pipe()];
    for (slot, (reader, _)) in (0..).zip(&pipes) {
        rig.add(reader, slot, READ, Trigger::Level)?;
    }
    for _ in 0..3 {
        rig.wait(8, Duration::ZERO);
    }
    let handed = rig.poller.counters().snapshot().descriptors_handed;
    match rig.backend().keeps() {
        // Both pipes and the waker.
        Keeps::Number => assert_eq!(handed, 9),
        Keeps::Request | Keeps::Registration => assert_eq!(handed, 0),
    }
    Ok(())
}

fn counters_can_be_read_from_another_thread(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    writer.write(1).expect("room");
    rig.add(&reader, 1, READ, Trigger::Level)?;
    let counters = Arc::clone(rig.poller.counters());
    rig.wait(8, DEADLINE);
    let seen = thread::spawn(move || counters.snapshot()).join().expect("reading never panics");
    assert_eq!((seen.waits, seen.events), (1, 1));
    Ok(())
}

fn counters_outlive_the_poller(rig: &mut Rig) -> CaseResult {
    let poller = rig.open_another();
    let counters = Arc::clone(poller.counters());
    drop(poller);
    assert_eq!(counters.snapshot().waits, 0);
    Ok(())
}

fn the_capabilities_name_the_backend(rig: &mut Rig) -> CaseResult {
    let caps = rig.poller.caps();
    assert_eq!(caps.backend, rig.backend());
    assert!(caps.level, "every backend has level triggers");
    assert_ne!(caps.fds_max, Some(0));
    Ok(())
}

/// Tries every registration there is: refused exactly where the capabilities say so.
fn every_refusal_is_in_the_capabilities(rig: &mut Rig) -> CaseResult {
    let caps = rig.poller.caps().clone();
    let bits = [Interest::READABLE, Interest::WRITABLE, Interest::PRIORITY, Interest::RDHUP];
    for combination in 0..16 {
        let set = (0..4).filter(|bit| combination & (1 << bit) != 0);
        let interest = set.fold(Interest::NONE, |all, bit| all | bits[bit]);
        for trigger in [Trigger::Level, Trigger::Edge, Trigger::Oneshot] {
            for exclusive in [false, true] {
                let how = Registration { interest, trigger, exclusive };
                let has_priority = interest.contains(Interest::PRIORITY);
                let has_rdhup = interest.contains(Interest::RDHUP);
                let fits_exclusive =
                    caps.exclusive && trigger != Trigger::Oneshot && !has_priority && !has_rdhup;
                let is_served = caps.serves(trigger)
                    && (caps.rdhup || !has_rdhup)
                    && (!exclusive || fits_exclusive);
                let (fd, _other) = rig.socketpair();
                match rig.poller.add(fd.as_fd(), Token::new(1, 0), how) {
                    Ok(()) => {
                        assert!(is_served, "{how:?} was taken, against the capabilities");
                        rig.wait(8, Duration::ZERO);
                        rig.delete(&fd);
                    }
                    Err(Error::Unsupported { backend, .. }) => {
                        assert!(!is_served, "{how:?} was refused, against the capabilities");
                        assert_eq!(backend, caps.backend);
                    }
                    Err(error) => panic!("{how:?}: {error}"),
                }
            }
        }
    }
    Ok(())
}

fn the_file_policy_is_what_happens(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let policy = rig.poller.caps().files;
    let file = memfd();
    let outcome =
        rig.poller.add(file.as_fd(), Token::new(1, 0), Registration::new(READ, Trigger::Level));
    match (policy, outcome) {
        (FilePolicy::Refused, Err(Error::NotPollable { .. })) => Ok(()),
        (FilePolicy::AlwaysReady, Ok(())) => {
            assert_eq!(rig.wait(8, DEADLINE).len(), 1);
            Err(Deviation::AcceptsFiles)
        }
        (policy, outcome) => panic!("{policy:?}, but {outcome:?}"),
    }
}

fn two_pollers_watch_one_file(rig: &mut Rig) -> CaseResult {
    let mut other = rig.open_another();
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    accepted(other.add(reader.as_fd(), Token::new(2, 0), Registration::new(READ, Trigger::Level)))?;
    writer.write(1).expect("room");
    assert_eq!(rig.wait(8, DEADLINE)[0].token, Token::new(1, 0));
    let mut events = pollux_poller::Events::with_capacity(8);
    other.wait(&mut events, Some(DEADLINE)).expect("wait");
    assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [Token::new(2, 0)]);
    Ok(())
}
