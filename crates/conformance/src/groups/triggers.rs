//! When a condition is reported, and when again: level, edge and oneshot on every kind of
//! object, then the corners of each.

use std::os::fd::AsFd;
use std::time::Duration;

use pollux_poller::{Interest, Readiness, Trigger};

use crate::objects::Object;
use crate::rig::{Rig, slots};
use crate::{Case, CaseResult, Deviation, Need, case};

pub(crate) const CASES: &[Case] = &[
    scripted("level_repeats_until_read_on_a_pipe", &[], |rig| level(rig, Rig::pipe_ends)),
    scripted("level_repeats_until_read_on_a_socket", &[], |rig| level(rig, Rig::socket_ends)),
    scripted("level_repeats_until_read_on_tcp", TCP, |rig| level(rig, Rig::tcp_pair)),
    scripted("level_repeats_until_read_on_a_counter", &[], |rig| level(rig, Rig::counter_ends)),
    scripted("level_repeats_until_read_on_a_queue", &[], |rig| level(rig, Rig::queue_ends)),
    scripted("edge_answers_10101_on_a_pipe", EDGE, |rig| edge(rig, Rig::pipe_ends)),
    scripted("edge_answers_10101_on_a_socket", EDGE, |rig| edge(rig, Rig::socket_ends)),
    scripted("edge_answers_10101_on_tcp", TCP_EDGE, |rig| edge(rig, Rig::tcp_pair)),
    scripted("edge_answers_10101_on_a_counter", EDGE, |rig| edge(rig, Rig::counter_ends)),
    scripted("edge_answers_10101_on_a_queue", EDGE, |rig| edge(rig, Rig::queue_ends)),
    scripted("oneshot_answers_once_on_a_pipe", ONESHOT, |rig| oneshot(rig, Rig::pipe_ends)),
    scripted("oneshot_answers_once_on_a_socket", ONESHOT, |rig| oneshot(rig, Rig::socket_ends)),
    scripted("oneshot_answers_once_on_tcp", TCP_ONESHOT, |rig| oneshot(rig, Rig::tcp_pair)),
    scripted("oneshot_answers_once_on_a_counter", ONESHOT, |rig| oneshot(rig, Rig::counter_ends)),
    scripted("oneshot_answers_once_on_a_queue", ONESHOT, |rig| oneshot(rig, Rig::queue_ends)),
    case!(edge_reports_what_is_ready_at_add, [Edge]),
    case!(edge_is_silent_after_a_partial_read, [Edge]),
    case!(edge_reports_a_full_stream_that_was_drained, [Edge]),
    case!(edge_reports_what_came_between_delete_and_add, [Edge]),
    case!(oneshot_reports_what_is_ready_at_add, [Oneshot]),
    case!(oneshot_stays_disarmed_for_new_data, [Oneshot]),
    case!(oneshot_modified_while_ready_reports_again, [Oneshot]),
    case!(oneshot_can_be_deleted_while_disarmed, [Oneshot]),
    case!(level_writable_is_always_reported),
    case!(a_full_stream_is_not_writable),
    case!(both_directions_come_in_one_event),
    case!(only_what_was_asked_is_reported),
    case!(modify_changes_the_token),
    case!(modify_changes_the_interest),
    case!(modify_to_none_silences),
    case!(modify_from_level_to_edge, [Edge]),
    case!(modify_from_edge_to_level, [Edge]),
    case!(modify_from_oneshot_to_level, [Oneshot]),
    case!(a_deleted_descriptor_is_silent),
    case!(delete_takes_what_was_already_ready),
    case!(level_is_silent_about_what_was_read_before_the_wait),
    case!(edge_is_silent_about_what_was_read_before_the_wait, [Edge]),
    case!(oneshot_is_silent_about_what_was_read_before_the_wait, [Oneshot]),
];

const TCP: &[Need] = &[Need::Kernel];
const EDGE: &[Need] = &[Need::Edge];
const ONESHOT: &[Need] = &[Need::Oneshot];
const TCP_EDGE: &[Need] = &[Need::Kernel, Need::Edge];
const TCP_ONESHOT: &[Need] = &[Need::Kernel, Need::Oneshot];

/// Makes the watched end and the end that is written to.
type Ends = fn(&Rig) -> Result<(Object, Object), Deviation>;

const fn scripted(
    name: &'static str,
    needs: &'static [Need],
    run: fn(&mut Rig) -> CaseResult,
) -> Case {
    Case { name, needs, run }
}

/// Reads until it would block.
fn drain(object: &Object) {
    while object.read(1 << 12).is_ok_and(|len| len > 0) {}
}

fn level(rig: &mut Rig, ends: Ends) -> CaseResult {
    let (reader, writer) = ends(rig)?;
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    for _ in 0..3 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    }
    drain(&reader);
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

/// Write 1, repeat 0, write with unread data 1, repeat 0, modify 1.
fn edge(rig: &mut Rig, ends: Ends) -> CaseResult {
    let (reader, writer) = ends(rig)?;
    rig.add(&reader, 1, Interest::READABLE, Trigger::Edge)?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "new data, though the old is unread");
    rig.quiet();
    rig.modify(&reader, 2, Interest::READABLE, Trigger::Edge)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)], "modify looks anew");
    rig.quiet();
    Ok(())
}

fn oneshot(rig: &mut Rig, ends: Ends) -> CaseResult {
    let (reader, writer) = ends(rig)?;
    rig.add(&reader, 1, Interest::READABLE, Trigger::Oneshot)?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    drain(&reader);
    writer.write(1).expect("room");
    rig.quiet();
    rig.modify(&reader, 2, Interest::READABLE, Trigger::Oneshot)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn edge_reports_what_is_ready_at_add(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.socketpair();
    writer.write(1).expect("room");
    rig.add(&reader, 1, Interest::READABLE, Trigger::Edge)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn edge_is_silent_after_a_partial_read(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.socketpair();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Edge)?;
    writer.write(8).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    assert_eq!(reader.read(3), Ok(3));
    rig.quiet();
    drain(&reader);
    rig.quiet();
    Ok(())
}

fn edge_reports_a_full_stream_that_was_drained(rig: &mut Rig) -> CaseResult {
    let (left, right) = rig.socketpair();
    while left.write(1 << 12).is_ok() {}
    rig.add(&left, 1, Interest::WRITABLE, Trigger::Edge)?;
    rig.quiet();
    drain(&right);
    assert_eq!(rig.settled(), [(1, Readiness::WRITABLE)]);
    rig.quiet();
    Ok(())
}

fn edge_reports_what_came_between_delete_and_add(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Edge)?;
    rig.delete(&reader);
    writer.write(1).expect("room");
    rig.quiet();
    rig.add(&reader, 2, Interest::READABLE, Trigger::Edge)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn oneshot_reports_what_is_ready_at_add(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.socketpair();
    writer.write(1).expect("room");
    rig.add(&reader, 1, Interest::READABLE, Trigger::Oneshot)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn oneshot_stays_disarmed_for_new_data(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.socketpair();
    let both = Interest::READABLE | Interest::WRITABLE;
    rig.add(&reader, 1, both, Trigger::Oneshot)?;
    assert_eq!(rig.found(), [(1, Readiness::WRITABLE)], "one condition disarms for both");
    writer.write(1).expect("room");
    rig.quiet();
    Ok(())
}

fn oneshot_modified_while_ready_reports_again(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    for _ in 0..5 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
        rig.quiet();
        rig.modify(&reader, 1, Interest::READABLE, Trigger::Oneshot)?;
    }
    Ok(())
}

fn oneshot_can_be_deleted_while_disarmed(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.delete(&reader);
    rig.quiet();
    rig.add(&reader, 2, Interest::READABLE, Trigger::Oneshot)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn level_writable_is_always_reported(rig: &mut Rig) -> CaseResult {
    let (left, _right) = rig.socketpair();
    rig.add(&left, 1, Interest::WRITABLE, Trigger::Level)?;
    for _ in 0..3 {
        assert_eq!(rig.found(), [(1, Readiness::WRITABLE)]);
    }
    Ok(())
}

fn a_full_stream_is_not_writable(rig: &mut Rig) -> CaseResult {
    let (left, right) = rig.socketpair();
    rig.add(&left, 1, Interest::WRITABLE, Trigger::Level)?;
    while left.write(1 << 12).is_ok() {}
    rig.quiet();
    drain(&right);
    assert_eq!(rig.found(), [(1, Readiness::WRITABLE)]);
    Ok(())
}

fn both_directions_come_in_one_event(rig: &mut Rig) -> CaseResult {
    let (left, right) = rig.socketpair();
    right.write(1).expect("room");
    rig.add(&left, 1, Interest::READABLE | Interest::WRITABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE | Readiness::WRITABLE)]);
    Ok(())
}

fn only_what_was_asked_is_reported(rig: &mut Rig) -> CaseResult {
    let (left, right) = rig.socketpair();
    right.write(1).expect("room");
    rig.add(&left, 1, Interest::WRITABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(1, Readiness::WRITABLE)]);
    rig.modify(&left, 1, Interest::READABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.modify(&left, 1, Interest::PRIORITY, Trigger::Level)?;
    rig.quiet();
    Ok(())
}

fn modify_changes_the_token(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.modify(&reader, 7, Interest::READABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(7, Readiness::READABLE)]);
    Ok(())
}

fn modify_changes_the_interest(rig: &mut Rig) -> CaseResult {
    let (left, right) = rig.socketpair();
    rig.add(&left, 1, Interest::READABLE, Trigger::Level)?;
    rig.quiet();
    rig.modify(&left, 1, Interest::READABLE | Interest::WRITABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(1, Readiness::WRITABLE)]);
    rig.modify(&left, 1, Interest::READABLE, Trigger::Level)?;
    rig.quiet();
    right.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn modify_to_none_silences(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    rig.modify(&reader, 1, Interest::NONE, Trigger::Level)?;
    rig.quiet();
    Ok(())
}

fn modify_from_level_to_edge(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.modify(&reader, 1, Interest::READABLE, Trigger::Edge)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn modify_from_edge_to_level(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Edge)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    rig.modify(&reader, 1, Interest::READABLE, Trigger::Level)?;
    for _ in 0..3 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    }
    Ok(())
}

fn modify_from_oneshot_to_level(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    rig.modify(&reader, 1, Interest::READABLE, Trigger::Level)?;
    for _ in 0..3 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    }
    Ok(())
}

fn a_deleted_descriptor_is_silent(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    rig.delete(&reader);
    writer.write(1).expect("room");
    rig.quiet();
    Ok(())
}

fn delete_takes_what_was_already_ready(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    let (other, other_writer) = rig.pipe();
    rig.add(reader.as_fd(), 1, Interest::READABLE, Trigger::Level)?;
    rig.add(other.as_fd(), 2, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    other_writer.write(1).expect("room");
    rig.both(1, 2);
    rig.delete(&reader);
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

/// Ready while it is watched, and over before anybody waits. A socket: pipes are watched otherwise where files must be
/// let go of at once.
fn silent_about_what_is_over(rig: &mut Rig, trigger: Trigger) -> CaseResult {
    let (reader, writer) = rig.socketpair();
    rig.add(&reader, 1, Interest::READABLE, trigger)?;
    rig.quiet();
    writer.write(1).expect("room");
    reader.read(8).expect("it was written");
    let seen = slots(&rig.wait(8, Duration::from_millis(5)));
    rig.quiet();
    match seen[..] {
        [] => Ok(()),
        [(1, Readiness::READABLE)] => Err(Deviation::ReportsWhatIsOver),
        ref seen => panic!("{seen:?}"),
    }
}

fn level_is_silent_about_what_was_read_before_the_wait(rig: &mut Rig) -> CaseResult {
    silent_about_what_is_over(rig, Trigger::Level)
}

fn edge_is_silent_about_what_was_read_before_the_wait(rig: &mut Rig) -> CaseResult {
    silent_about_what_is_over(rig, Trigger::Edge)
}

fn oneshot_is_silent_about_what_was_read_before_the_wait(rig: &mut Rig) -> CaseResult {
    silent_about_what_is_over(rig, Trigger::Oneshot)
}
