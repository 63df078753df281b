//! More is ready than fits: nothing is lost, nothing starves, capacity is a bound.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_poller::{Events, Interest, Readiness, Trigger};

use crate::objects::Object;
use crate::rig::{DEADLINE, Rig};
use crate::{Case, Verdict, case};

pub(crate) const CASES: &[Case] = &[
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

/// `count` readable counters under slots 0...
fn ready_counters(
    rig: &mut Rig,
    count: u32,
    trigger: Trigger,
) -> Result<Vec<Object>, crate::Deviation> {
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

fn three_waits_of_two_see_all_six(rig: &mut Rig) -> Verdict {
    let _counters = ready_counters(rig, 6, Trigger::Level)?;
    let seen = tally(rig, 3, 2);
    assert_eq!(seen.len(), 6, "each of six within three waits of two: {seen:?}");
    Ok(())
}

fn rounds_proceed_being_fair(rig: &mut Rig) -> Verdict {
    let _counters = ready_counters(rig, 6, Trigger::Level)?;
    let seen = tally(rig, 15, 2);
    assert_eq!(seen.len(), 6, "{seen:?}");
    let (least, most) = (seen.values().min(), seen.values().max());
    assert_eq!((least, most), (Some(&5), Some(&5)), "thirty events over six: {seen:?}");
    Ok(())
}

/// Sixty-four become ready at once, three times what io_uring finishes unasked.
fn whole(rig: &mut Rig, trigger: Trigger) -> Verdict {
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

fn events_that_fit_come_in_one_wait(rig: &mut Rig) -> Verdict {
    whole(rig, Trigger::Level)
}

fn events_that_fit_come_in_one_wait_edge(rig: &mut Rig) -> Verdict {
    whole(rig, Trigger::Edge)
}

fn capacity_is_never_exceeded(rig: &mut Rig) -> Verdict {
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

fn one_event_at_a_time_sees_all(rig: &mut Rig) -> Verdict {
    let _counters = ready_counters(rig, 5, Trigger::Level)?;
    let seen = tally(rig, 5, 1);
    assert_eq!(seen.len(), 5, "{seen:?}");
    Ok(())
}

/// All are reported exactly once, in waits of `capacity`.
fn kept(rig: &mut Rig, trigger: Trigger) -> Verdict {
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

fn edges_beyond_the_capacity_are_kept(rig: &mut Rig) -> Verdict {
    kept(rig, Trigger::Edge)
}

fn oneshots_beyond_the_capacity_are_kept(rig: &mut Rig) -> Verdict {
    kept(rig, Trigger::Oneshot)
}

fn a_busy_descriptor_starves_no_other(rig: &mut Rig) -> Verdict {
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

fn a_wake_is_not_starved_by_events(rig: &mut Rig) -> Verdict {
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

fn nothing_of_an_earlier_wait_stays(rig: &mut Rig) -> Verdict {
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

fn deleting_between_waits_keeps_the_round(rig: &mut Rig) -> Verdict {
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
