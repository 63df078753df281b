//! Closing what is still registered, and numbers that are used again.
//!
//! The contract asks callers to delete first. These scripts break that rule on purpose: what
//! must never happen is an event of the old file under the token of its successor.

use std::os::fd::AsFd;
use std::time::Duration;

use pollux_poller::{Error, Interest, Keeps, Registration, Token, Trigger};

use crate::objects::Object;
use crate::rig::{Rig, accepted};
use crate::{Case, CaseResult, Deviation, case};

pub(crate) const CASES: &[Case] = &[
    case!(delete_and_close_is_received_by_the_peer),
    case!(a_file_closed_without_delete_is_silent),
    case!(a_file_closed_without_delete_is_received_by_the_peer),
    case!(a_reused_number_reports_only_the_new_file),
    case!(a_reused_number_reports_only_the_new_file_edge, [Edge]),
    case!(a_reused_number_reports_only_the_new_file_oneshot, [Oneshot]),
    case!(readiness_from_before_the_close_is_not_delivered),
    case!(a_number_reused_without_add_is_not_watched),
    case!(a_hundred_reuses_of_one_number),
    case!(reuse_after_delete_is_clean),
    case!(reuse_after_delete_is_clean_edge, [Edge]),
    case!(an_equal_token_is_served_after_delete),
    case!(a_modified_number_reports_nothing_of_the_closed_file),
    case!(a_duplicate_keeps_the_file_watched),
    case!(a_duplicate_does_not_leak_into_the_successor),
    case!(a_wait_that_finds_only_stale_events_continues),
    case!(a_forgotten_and_closed_file_is_silent),
    case!(a_forgotten_and_closed_file_is_received_by_the_peer),
    case!(a_number_reused_after_forget_reports_only_the_new_file),
    case!(a_number_reused_after_forget_reports_only_the_new_file_edge, [Edge]),
    case!(a_number_reused_after_forget_reports_only_the_new_file_oneshot, [Oneshot]),
    case!(a_number_reused_after_forget_within_one_turn_is_watched),
    case!(a_forgotten_file_is_silent_even_before_it_is_closed),
    case!(a_unknown_can_not_be_forgotten),
    case!(forgetting_costs_no_more_calls_than_deleting),
];

const READ: Interest = Interest::READABLE;

/// Registers `object` as slot 1 of `generation`.
fn add(rig: &mut Rig, object: &Object, generation: u32, trigger: Trigger) -> CaseResult {
    let how = Registration::new(READ, trigger);
    accepted(rig.poller.add(object.as_fd(), Token::new(1, generation), how))
}

/// Every generation that is reported in a few short waits.
fn generations(rig: &mut Rig) -> Vec<u32> {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let events = rig.wait(64, Duration::from_millis(2));
        seen.extend(events.iter().map(|event| event.token.generation()));
    }
    seen.dedup();
    seen
}

fn delete_and_close_is_received_by_the_peer(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    rig.delete(&ours);
    ours.close();
    rig.quiet();
    for _ in 0..100 {
        if theirs.is_peer_gone() {
            return Ok(());
        }
        rig.quiet();
    }
    panic!("the peer never sees the close");
}

fn a_file_closed_without_delete_is_silent(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    ours.close();
    // Where the file is held, a reader is still there.
    let is_held = theirs.write(1).is_ok();
    match generations(rig)[..] {
        [] if !is_held => Ok(()),
        [] | [0] => Err(Deviation::HoldsFiles),
        ref seen => panic!("generations {seen:?}"),
    }
}

fn a_file_closed_without_delete_is_received_by_the_peer(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    ours.close();
    rig.quiet();
    let holds = rig.poller.caps().holds_files;
    assert_eq!(theirs.is_peer_gone(), !holds, "as the capabilities say");
    if holds { Err(Deviation::HoldsFiles) } else { Ok(()) }
}

/// The old file becomes ready after its number was given to a new one.
fn reused(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, trigger)?;
    rig.quiet();
    let (new, new_writer) = rig.successor(old);
    add(rig, &new, 1, trigger)?;
    let _ = old_writer.write(1);
    assert_eq!(generations(rig), [0; 0], "nothing happened to the new file");
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [1]);
    assert_eq!(rig.poller.counters().snapshot().closed_without_delete, 1);
    Ok(())
}

fn a_reused_number_reports_only_the_new_file(rig: &mut Rig) -> CaseResult {
    reused(rig, Trigger::Level)
}

fn a_reused_number_reports_only_the_new_file_edge(rig: &mut Rig) -> CaseResult {
    reused(rig, Trigger::Edge)
}

fn a_reused_number_reports_only_the_new_file_oneshot(rig: &mut Rig) -> CaseResult {
    reused(rig, Trigger::Oneshot)
}

fn readiness_from_before_the_close_is_not_delivered(rig: &mut Rig) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    old_writer.write(1).expect("room");
    let (new, new_writer) = rig.successor(old);
    add(rig, &new, 1, Trigger::Level)?;
    assert_eq!(generations(rig), [0; 0], "what was ready is gone");
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [1]);
    Ok(())
}

fn a_number_reused_without_add_is_not_watched(rig: &mut Rig) -> CaseResult {
    let (old, _old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    let (_new, new_writer) = rig.successor(old);
    new_writer.write(1).expect("room");
    match generations(rig)[..] {
        [] => Ok(()),
        [0] => Err(Deviation::WatchesNumbers),
        ref seen => panic!("generations {seen:?}"),
    }
}

fn a_hundred_reuses_of_one_number(rig: &mut Rig) -> CaseResult {
    let (mut reader, mut writer) = rig.pipe();
    for generation in 0..100 {
        add(rig, &reader, generation, Trigger::Level)?;
        writer.write(1).expect("room");
        let token = rig.wait(64, crate::rig::DEADLINE)[0].token;
        assert_eq!(token, Token::new(1, generation));
        writer.close();
        (reader, writer) = rig.successor(reader);
    }
    Ok(())
}

fn clean(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, trigger)?;
    rig.quiet();
    old_writer.write(1).expect("room");
    rig.delete(&old);
    let (new, new_writer) = rig.successor(old);
    add(rig, &new, 1, trigger)?;
    assert_eq!(generations(rig), [0; 0]);
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [1]);
    assert_eq!(rig.poller.counters().snapshot().closed_without_delete, 0);
    Ok(())
}

fn reuse_after_delete_is_clean(rig: &mut Rig) -> CaseResult {
    clean(rig, Trigger::Level)
}

fn reuse_after_delete_is_clean_edge(rig: &mut Rig) -> CaseResult {
    clean(rig, Trigger::Edge)
}

fn a_duplicate_keeps_the_file_watched(rig: &mut Rig) -> CaseResult {
    let (ours, writer) = rig.pipe();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    let twin = ours.dup();
    ours.close();
    writer.write(1).expect("the twin keeps the reader open");
    let seen = generations(rig);
    assert_eq!(twin.read(8), Ok(1), "the data is there");
    match seen[..] {
        [0] => Ok(()),
        [] => Err(Deviation::ForgetsClosed),
        ref seen => panic!("generations {seen:?}"),
    }
}

fn a_duplicate_does_not_leak_into_the_successor(rig: &mut Rig) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    let twin = old.dup();
    let (new, new_writer) = rig.successor(old);
    add(rig, &new, 1, Trigger::Level)?;
    old_writer.write(1).expect("the twin keeps the reader open");
    assert_eq!(generations(rig), [0; 0], "the old file is not registered any more");
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [1]);
    assert_eq!(twin.read(8), Ok(1));
    Ok(())
}

/// Everything as the contract asks, but the generation: a promise that the file is the same.
fn an_equal_token_is_served_after_delete(rig: &mut Rig) -> CaseResult {
    let (old, _old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    rig.delete(&old);
    let (new, new_writer) = rig.successor(old);
    add(rig, &new, 0, Trigger::Level)?;
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [0]);
    Ok(())
}

fn a_modified_number_reports_nothing_of_the_closed_file(rig: &mut Rig) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    let (new, new_writer) = rig.successor(old);
    let how = Registration::new(READ, Trigger::Level);
    let outcome = rig.poller.modify(new.as_fd(), Token::new(1, 1), how);
    // Changes that ride with a wait are made before the old file wakes anything.
    rig.quiet();
    let _ = old_writer.write(1);
    assert_eq!(generations(rig), [0; 0], "nothing happened to the new file");
    match outcome {
        Ok(()) => {
            new_writer.write(1).expect("room");
            assert_eq!(generations(rig), [1]);
            Err(Deviation::ModifiesSuccessor)
        }
        Err(error) => {
            assert!(matches!(error, Error::NotRegistered { .. }), "{error:?}");
            Ok(())
        }
    }
}

fn a_wait_that_finds_only_stale_events_continues(rig: &mut Rig) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    let _twin = old.dup();
    let (new, _new_writer) = rig.successor(old);
    add(rig, &new, 1, Trigger::Level)?;
    old_writer.write(1).expect("the twin keeps the reader open");
    let before = rig.now();
    let timeout = Duration::from_millis(20);
    assert!(rig.wait(8, timeout).is_empty());
    if rig.now() - before < timeout { Err(Deviation::EndsEarly) } else { Ok(()) }
}

#[track_caller]
fn forget(rig: &mut Rig, object: &Object) {
    rig.poller.forget(object.as_fd()).expect("a registered descriptor");
}

fn a_forgotten_and_closed_file_is_silent(rig: &mut Rig) -> CaseResult {
    let (ours, writer) = rig.pipe();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    forget(rig, &ours);
    ours.close();
    assert_eq!(generations(rig), [0; 0], "what was ready is gone");
    writer.write(1).expect_err("the reader is closed");
    assert_eq!(rig.poller.counters().snapshot().closed_without_delete, 0);
    Ok(())
}

fn a_forgotten_and_closed_file_is_received_by_the_peer(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    forget(rig, &ours);
    ours.close();
    for _ in 0..100 {
        rig.quiet();
        if theirs.is_peer_gone() {
            return Ok(());
        }
    }
    panic!("the peer never sees the close");
}

fn reused_after_forget(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, trigger)?;
    rig.quiet();
    old_writer.write(1).expect("room");
    forget(rig, &old);
    let (new, new_writer) = rig.successor(old);
    assert_eq!(generations(rig), [0; 0], "the new file was not added yet");
    add(rig, &new, 1, trigger)?;
    assert_eq!(generations(rig), [0; 0], "nothing happened to the new file");
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [1]);
    assert_eq!(rig.poller.counters().snapshot().closed_without_delete, 0);
    Ok(())
}

fn a_number_reused_after_forget_reports_only_the_new_file(rig: &mut Rig) -> CaseResult {
    reused_after_forget(rig, Trigger::Level)
}

fn a_number_reused_after_forget_reports_only_the_new_file_edge(rig: &mut Rig) -> CaseResult {
    reused_after_forget(rig, Trigger::Edge)
}

fn a_number_reused_after_forget_reports_only_the_new_file_oneshot(rig: &mut Rig) -> CaseResult {
    reused_after_forget(rig, Trigger::Oneshot)
}

/// No wait between forgetting, closing and adding: an equal token must not hide the change.
fn a_number_reused_after_forget_within_one_turn_is_watched(rig: &mut Rig) -> CaseResult {
    let (old, old_writer) = rig.pipe();
    add(rig, &old, 0, Trigger::Level)?;
    rig.quiet();
    old_writer.write(1).expect("room");
    forget(rig, &old);
    let (new, new_writer) = rig.successor(old);
    add(rig, &new, 0, Trigger::Level)?;
    assert_eq!(generations(rig), [0; 0], "nothing happened to the new file");
    new_writer.write(1).expect("room");
    assert_eq!(generations(rig), [0]);
    Ok(())
}

fn a_forgotten_file_is_silent_even_before_it_is_closed(rig: &mut Rig) -> CaseResult {
    let (ours, writer) = rig.pipe();
    add(rig, &ours, 0, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    forget(rig, &ours);
    rig.quiet();
    if rig.backend().keeps() == Keeps::Registration {
        let stale = rig.poller.counters().snapshot().stale_events;
        assert!(stale > 0, "no call was made, so the kernel continues to report, which is counted");
    }
    Ok(())
}

fn a_unknown_can_not_be_forgotten(rig: &mut Rig) -> CaseResult {
    let (ours, _theirs) = rig.pipe();
    let unknown = rig.poller.forget(ours.as_fd()).expect_err("never added");
    assert!(matches!(unknown, Error::NotRegistered { .. }), "{unknown:?}");
    add(rig, &ours, 0, Trigger::Level)?;
    forget(rig, &ours);
    let again = rig.poller.forget(ours.as_fd()).expect_err("forgotten already");
    assert!(matches!(again, Error::NotRegistered { .. }), "{again:?}");
    Ok(())
}

/// One call less where closing does the work; every update is accounted for everywhere.
fn forgetting_costs_no_more_calls_than_deleting(rig: &mut Rig) -> CaseResult {
    let (deleted, _writer) = rig.pipe();
    let (forgotten, _other_writer) = rig.pipe();
    add(rig, &deleted, 0, Trigger::Level)?;
    rig.add(&forgotten, 2, READ, Trigger::Level)?;
    rig.quiet();
    let start = rig.poller.counters().snapshot();
    rig.delete(&deleted);
    let after_delete = rig.poller.counters().snapshot();
    forget(rig, &forgotten);
    let after_forget = rig.poller.counters().snapshot();
    let delete_calls = after_delete.since(&start).system_calls;
    let forget_calls = after_forget.since(&after_delete).system_calls;
    if rig.backend().keeps() == Keeps::Registration {
        assert_eq!((delete_calls, forget_calls), (1, 0));
    }
    assert!(forget_calls <= delete_calls, "{forget_calls} calls instead of {delete_calls}");
    forgotten.close();
    rig.quiet();
    let counted = rig.poller.counters().snapshot().since(&start);
    assert_eq!(counted.updates_asked, 2);
    assert_eq!(counted.updates_merged + counted.updates_sent, 2, "{counted:?}");
    Ok(())
}
