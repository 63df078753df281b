//! More is ready than fits, of few descriptors and of thousands: nothing is lost, nothing starves, capacity is a
//! bound, and more may be ready at once than any completion queue holds.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_poller::{Events, Interest, Readiness, Trigger};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::objects::Object;
use crate::rig::{DEADLINE, Rig};
use crate::runner::report;
use crate::{Case, CaseResult, Deviation, case};

pub(crate) const FAIRNESS: &[Case] = &[
    case!(three_waits_of_two_see_all_six),
    case!(rounds_proceed_being_fair),
    case!(events_that_fit_come_in_one_wait),
    case!(events_that_fit_come_in_one_wait_edge, [Edge]),
    case!(capacity_is_never_exceeded),
    case!(one_event_at_a_time_sees_all),
    case!(edges_beyond_the_capacity_are_kept, [Edge]),
    case!(oneshots_beyond_the_capacity_are_kept, [Oneshot]),
    case!(a_busy_descriptor_starves_no_other),
    case!(a_wake_is_not_starved_by_events),
    case!(nothing_of_an_earlier_wait_stays),
    case!(deleting_between_waits_keeps_the_round, [Oneshot]),
];

pub(crate) const SCALE: &[Case] = &[
    case!(ten_thousand_idle_and_ten_active),
    case!(nine_thousand_ready_at_once_level),
    case!(nine_thousand_ready_at_once_edge, [Edge]),
    case!(nine_thousand_ready_at_once_oneshot, [Oneshot]),
    case!(nine_thousand_become_ready_while_watched_edge, [Edge]),
    case!(more_than_any_completion_queue_level),
    case!(more_than_any_completion_queue_edge, [Edge]),
    case!(all_are_exchanged_at_once_level),
    case!(all_are_exchanged_at_once_edge, [Edge]),
    case!(edges_work_on_after_an_overflow, [Edge]),
    case!(a_thousand_connections_come_and_go),
];

const READ: Interest = Interest::READABLE;
const MANY: u32 = 10_000;
const BURST: u32 = 9_000;

/// More than the completion queue of any backend holds.
const FLOOD: u32 = 19_000;

/// Descriptors that the poller, the test and the standard streams need besides.
const SPARE_FDS: u64 = 100;

/// `count` readable counters under slots 0...
fn ready_counters(rig: &mut Rig, count: u32, trigger: Trigger) -> Result<Vec<Object>, Deviation> {
    let mut counters = Vec::new();
    for slot in 0..count {
        let counter = rig.eventfd();
        counter.write(1).expect("room");
        rig.add(&counter, slot, Interest::READABLE, trigger)?;
        counters.push(counter);
    }
    Ok(counters)
}

/// How often each slot is seen in `waits` waits of `capacity`.
fn tally(rig: &mut Rig, waits: usize, capacity: usize) -> BTreeMap<u32, usize> {
    let mut tally = BTreeMap::new();
    for _ in 0..waits {
        for event in rig.wait(capacity, DEADLINE) {
            assert_eq!(event.readiness, Readiness::READABLE);
            *tally.entry(event.token.slot()).or_default() += 1;
        }
    }
    tally
}

fn three_waits_of_two_see_all_six(rig: &mut Rig) -> CaseResult {
    let _counters = ready_counters(rig, 6, Trigger::Level)?;
    let seen = tally(rig, 3, 2);
    assert_eq!(seen.len(), 6, "each of six within three waits of two: {seen:?}");
    Ok(())
}

fn rounds_proceed_being_fair(rig: &mut Rig) -> CaseResult {
    let _counters = ready_counters(rig, 6, Trigger::Level)?;
    let seen = tally(rig, 15, 2);
    assert_eq!(seen.len(), 6, "{seen:?}");
    let least = seen.values().min();
    let most = seen.values().max();
    assert_eq!((least, most), (Some(&5), Some(&5)), "thirty events over six: {seen:?}");
    Ok(())
}

/// Sixty-four become ready at once, three times what io_uring finishes unasked.
fn whole(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let mut counters = Vec::new();
    for slot in 0..64 {
        let counter = rig.eventfd();
        rig.add(&counter, slot, Interest::READABLE, trigger)?;
        counters.push(counter);
    }
    rig.quiet();
    for counter in &counters {
        counter.write(1).expect("room");
    }
    assert_eq!(rig.wait(64, DEADLINE).len(), 64, "all are ready and all fit");
    Ok(())
}

fn events_that_fit_come_in_one_wait(rig: &mut Rig) -> CaseResult {
    whole(rig, Trigger::Level)
}

fn events_that_fit_come_in_one_wait_edge(rig: &mut Rig) -> CaseResult {
    whole(rig, Trigger::Edge)
}

fn capacity_is_never_exceeded(rig: &mut Rig) -> CaseResult {
    let _counters = ready_counters(rig, 20, Trigger::Level)?;
    for capacity in [1, 3, 7, 19, 20, 21] {
        let seen = rig.wait(capacity, DEADLINE);
        assert!((1..=capacity).contains(&seen.len()), "{} of {capacity}", seen.len());
        let mut slots: Vec<u32> = seen.iter().map(|event| event.token.slot()).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), seen.len(), "one event for each descriptor in one wait");
    }
    Ok(())
}

fn one_event_at_a_time_sees_all(rig: &mut Rig) -> CaseResult {
    let _counters = ready_counters(rig, 5, Trigger::Level)?;
    let seen = tally(rig, 5, 1);
    assert_eq!(seen.len(), 5, "{seen:?}");
    Ok(())
}

/// All are reported exactly once, in waits of `capacity`.
fn kept(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let _counters = ready_counters(rig, 100, trigger)?;
    let mut seen = BTreeMap::new();
    loop {
        let events = rig.wait(7, Duration::from_millis(5));
        if events.is_empty() {
            break;
        }
        for event in events {
            *seen.entry(event.token.slot()).or_insert(0) += 1;
        }
    }
    assert_eq!(seen.len(), 100, "nothing is lost");
    assert!(seen.values().all(|times| *times == 1), "nothing is repeated: {seen:?}");
    Ok(())
}

fn edges_beyond_the_capacity_are_kept(rig: &mut Rig) -> CaseResult {
    kept(rig, Trigger::Edge)
}

fn oneshots_beyond_the_capacity_are_kept(rig: &mut Rig) -> CaseResult {
    kept(rig, Trigger::Oneshot)
}

fn a_busy_descriptor_starves_no_other(rig: &mut Rig) -> CaseResult {
    let _busy = ready_counters(rig, 3, Trigger::Level)?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 99, Interest::READABLE, Trigger::Level)?;
    for _ in 0..10 {
        writer.write(1).expect("room");
        let seen = tally(rig, 4, 1);
        assert!(seen.contains_key(&99), "four waits of one over four ready: {seen:?}");
        reader.read(8).expect("it was written");
    }
    Ok(())
}

fn a_wake_is_not_starved_by_events(rig: &mut Rig) -> CaseResult {
    let _counters = ready_counters(rig, 6, Trigger::Level)?;
    let waker = rig.poller.waker();
    let mut events = Events::with_capacity(2);
    for _ in 0..10 {
        waker.wake();
        let mut waits = 0;
        loop {
            rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
            waits += 1;
            if events.is_woken() {
                break;
            }
            assert!(waits < 8, "seven things are ready, and eight waits of two saw no wake");
        }
    }
    Ok(())
}

fn nothing_of_an_earlier_wait_stays(rig: &mut Rig) -> CaseResult {
    let counters = ready_counters(rig, 3, Trigger::Level)?;
    rig.poller.waker().wake();
    let mut events = Events::with_capacity(8);
    while !events.is_woken() {
        rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
    }
    for counter in &counters {
        rig.delete(counter);
    }
    rig.poller.wait(&mut events, Some(Duration::ZERO)).expect("wait");
    assert!(events.is_empty() && !events.is_woken(), "{events:?}");
    Ok(())
}

fn deleting_between_waits_keeps_the_round(rig: &mut Rig) -> CaseResult {
    let counters = ready_counters(rig, 10, Trigger::Oneshot)?;
    let first: Vec<u32> = rig.wait(4, DEADLINE).iter().map(|event| event.token.slot()).collect();
    let deleted: Vec<u32> = (0..10).filter(|slot| !first.contains(slot)).take(3).collect();
    for slot in &deleted {
        rig.delete(&counters[*slot as usize]);
    }
    let rest: Vec<u32> = rig.settled().iter().map(|(slot, _)| *slot).collect();
    assert_eq!(rest.len(), 10 - first.len() - deleted.len());
    assert!(rest.iter().all(|slot| !first.contains(slot) && !deleted.contains(slot)));
    Ok(())
}

/// `wanted`, or what the limits of this machine and the backend allow, and then says so.
fn affordable(rig: &Rig, wanted: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    let needed = limit.maximum.unwrap_or(u64::MAX).min(u64::from(wanted) + SPARE_FDS);
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < needed {
        let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
        current = needed;
    }
    let by_limit = u32::try_from(current - SPARE_FDS).unwrap_or(u32::MAX);
    let by_caps = rig.poller.caps().fds_max.unwrap_or(usize::MAX);
    let count = wanted.min(by_limit).min(u32::try_from(by_caps).unwrap_or(u32::MAX));
    if count < wanted {
        report(&format!("{count} descriptors instead of {wanted} ... "));
    }
    count
}

fn watched(rig: &mut Rig, wanted: u32, trigger: Trigger) -> Result<Vec<Object>, Deviation> {
    let count = affordable(rig, wanted);
    let mut counters = Vec::new();
    for slot in 0..count {
        let counter = rig.eventfd();
        rig.add(&counter, slot, READ, trigger)?;
        counters.push(counter);
    }
    Ok(counters)
}

/// How often each of `count` slots was reported until it was quiet, or until `all` were seen.
fn reports(rig: &mut Rig, count: usize, capacity: usize, stops_at_all: bool) -> Vec<u32> {
    let mut times = vec![0; count];
    let mut seen = 0;
    let mut events = Events::with_capacity(capacity);
    loop {
        let patience = if seen < count { DEADLINE } else { Duration::from_millis(2) };
        rig.poller.wait(&mut events, Some(patience)).expect("wait");
        for event in &events {
            assert_eq!(event.readiness, Readiness::READABLE);
            let times = &mut times[event.token.slot() as usize];
            seen += usize::from(*times == 0);
            *times += 1;
        }
        if events.is_empty() || (stops_at_all && seen == count) {
            assert_eq!(seen, count, "descriptors reported of {count} ready");
            return times;
        }
    }
}

fn ten_thousand_idle_and_ten_active(rig: &mut Rig) -> CaseResult {
    let counters = watched(rig, MANY, Trigger::Level)?;
    let stride = counters.len() / 10;
    let active: Vec<u32> = (0..10).map(|index| (index * stride) as u32).collect();
    for round in 0..3 {
        for slot in &active {
            counters[*slot as usize].write(1).expect("room");
        }
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < active.len() {
            let events = rig.wait(64, DEADLINE);
            assert!(!events.is_empty(), "round {round}: {seen:?} of {active:?}");
            seen.extend(events.iter().map(|event| event.token.slot()));
        }
        assert!(seen.iter().all(|slot| active.contains(slot)), "{seen:?}");
        for slot in &active {
            counters[*slot as usize].read(8).expect("it was written");
        }
        rig.quiet();
    }
    Ok(())
}

/// Everything is ready before the first wait.
fn burst(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let counters = watched(rig, BURST, trigger)?;
    for counter in &counters {
        counter.write(1).expect("room");
    }
    let repeats = trigger == Trigger::Level;
    let times = reports(rig, counters.len(), 1024, repeats);
    if trigger == Trigger::Oneshot {
        assert!(times.iter().all(|times| *times == 1), "oneshot: each exactly once");
    }
    for counter in &counters {
        rig.delete(counter);
    }
    rig.quiet();
    Ok(())
}

fn nine_thousand_ready_at_once_level(rig: &mut Rig) -> CaseResult {
    burst(rig, Trigger::Level)
}

fn nine_thousand_ready_at_once_edge(rig: &mut Rig) -> CaseResult {
    burst(rig, Trigger::Edge)
}

fn nine_thousand_ready_at_once_oneshot(rig: &mut Rig) -> CaseResult {
    burst(rig, Trigger::Oneshot)
}

/// The registrations reach the kernel first; then all fire between two waits.
fn fired(rig: &mut Rig, wanted: u32, trigger: Trigger) -> CaseResult {
    let counters = watched(rig, wanted, trigger)?;
    rig.quiet();
    for counter in &counters {
        counter.write(1).expect("room");
    }
    reports(rig, counters.len(), Events::CAPACITY_MAX, trigger == Trigger::Level);
    Ok(())
}

fn nine_thousand_become_ready_while_watched_edge(rig: &mut Rig) -> CaseResult {
    fired(rig, BURST, Trigger::Edge)
}

fn more_than_any_completion_queue_level(rig: &mut Rig) -> CaseResult {
    fired(rig, FLOOD, Trigger::Level)
}

fn more_than_any_completion_queue_edge(rig: &mut Rig) -> CaseResult {
    fired(rig, FLOOD, Trigger::Edge)
}

/// Every registration is taken out and entered again under another token between two waits:
/// for a ring three requests or completions each.
fn exchanged(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let counters = watched(rig, FLOOD, trigger)?;
    rig.quiet();
    for counter in &counters {
        counter.write(1).expect("room");
    }
    let count = counters.len() as u32;
    for (slot, counter) in (0..).zip(&counters) {
        rig.delete(counter);
        rig.add(counter, count - 1 - slot, READ, trigger)?;
    }
    let times = reports(rig, counters.len(), Events::CAPACITY_MAX, trigger == Trigger::Level);
    if trigger == Trigger::Edge && rig.poller.counters().snapshot().overflows == 0 {
        assert!(times.iter().all(|times| *times == 1), "repeated without an overflow");
    }
    for counter in &counters {
        counter.read(8).expect("it was written");
    }
    rig.quiet();
    counters[0].write(1).expect("room");
    assert_eq!(rig.found(), [(count - 1, Readiness::READABLE)], "under the new token");
    Ok(())
}

fn all_are_exchanged_at_once_level(rig: &mut Rig) -> CaseResult {
    exchanged(rig, Trigger::Level)
}

fn all_are_exchanged_at_once_edge(rig: &mut Rig) -> CaseResult {
    exchanged(rig, Trigger::Edge)
}

fn edges_work_on_after_an_overflow(rig: &mut Rig) -> CaseResult {
    let counters = watched(rig, FLOOD, Trigger::Edge)?;
    rig.quiet();
    for _ in 0..2 {
        for counter in &counters {
            counter.write(1).expect("room");
        }
        reports(rig, counters.len(), 512, false);
        for counter in &counters {
            counter.read(8).expect("it was written");
        }
        rig.quiet();
    }
    Ok(())
}

fn a_thousand_connections_come_and_go(rig: &mut Rig) -> CaseResult {
    for slot in 0..1000 {
        let (ours, theirs) = rig.socketpair();
        rig.add(&ours, slot, READ, Trigger::Level)?;
        theirs.write(1).expect("room");
        assert_eq!(rig.found(), [(slot, Readiness::READABLE)]);
        rig.delete(&ours);
        ours.close();
        theirs.close();
    }
    rig.quiet();
    Ok(())
}
