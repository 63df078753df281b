//! Ends of streams: half-close, close, reset, refusal, and which interests report them.

use pollux_poller::{Interest, Readiness, Trigger};

use crate::rig::Rig;
use crate::{Case, CaseResult, Deviation, case};

pub(crate) const CASES: &[Case] = &[
    case!(a_half_close_is_readable),
    case!(a_half_close_is_readable_and_rdhup, [Rdhup]),
    case!(rdhup_alone_can_be_watched, [Rdhup]),
    case!(a_half_close_is_not_rdhup_unasked),
    case!(a_close_of_the_peer_is_hup, [Hangup]),
    case!(a_close_of_the_peer_is_rdhup_and_hup, [Rdhup]),
    case!(a_writer_gone_is_hup, [Hangup]),
    case!(an_end_of_a_pipe_is_not_an_error),
    case!(a_writer_gone_leaves_the_data_readable, [Hangup]),
    case!(a_reader_gone_is_an_error_for_the_writer, [Hangup]),
    case!(hup_is_reported_with_an_empty_interest),
    case!(hup_is_reported_to_writers_only, [Hangup]),
    case!(a_close_over_unread_data_is_an_error, [Hangup]),
    case!(hup_repeats_under_level, [Hangup]),
    case!(edge_reports_a_half_close_and_then_a_close, [Edge, Rdhup]),
    case!(edge_reports_hup_once, [Edge]),
    case!(oneshot_is_disarmed_for_hup, [Oneshot, Hangup]),
    case!(oneshot_modified_to_none_reports_hup, [Oneshot]),
];

const READ: Interest = Interest::READABLE;

fn a_half_close_is_readable(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, READ, Trigger::Level)?;
    rig.quiet();
    theirs.shutdown_write();
    rig.reported(1, READ, Readiness::READABLE)
}

fn a_half_close_is_readable_and_rdhup(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    let asked = Interest::READABLE | Interest::WRITABLE | Interest::RDHUP;
    rig.add(&ours, 1, asked, Trigger::Level)?;
    theirs.shutdown_write();
    let wanted = Readiness::READABLE | Readiness::WRITABLE | Readiness::RDHUP;
    rig.reported(1, asked, wanted)
}

fn rdhup_alone_can_be_watched(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, Interest::RDHUP, Trigger::Level)?;
    theirs.write(1).expect("room");
    rig.quiet();
    theirs.shutdown_write();
    rig.reported(1, Interest::RDHUP, Readiness::RDHUP)
}

fn a_half_close_is_not_rdhup_unasked(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, Interest::WRITABLE, Trigger::Level)?;
    theirs.shutdown_write();
    rig.reported(1, Interest::WRITABLE, Readiness::WRITABLE)
}

fn a_close_of_the_peer_is_hup(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, READ, Trigger::Level)?;
    rig.quiet();
    theirs.close();
    rig.reported(1, READ, Readiness::READABLE | Readiness::HUP)
}

fn a_close_of_the_peer_is_rdhup_and_hup(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    let asked = Interest::READABLE | Interest::WRITABLE | Interest::RDHUP;
    rig.add(&ours, 1, asked, Trigger::Level)?;
    theirs.close();
    let wanted = Readiness::READABLE | Readiness::WRITABLE | Readiness::RDHUP | Readiness::HUP;
    rig.reported(1, asked, wanted)
}

fn a_writer_gone_is_hup(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    writer.close();
    rig.reported(1, READ, Readiness::HUP)
}

/// The kernel wakes a pipe's reader with error and hang-up together.
fn an_end_of_a_pipe_is_not_an_error(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    writer.close();
    let first = rig.found();
    assert!(!first[0].1.contains(Readiness::ERROR), "{first:?}");
    Ok(())
}

fn a_writer_gone_leaves_the_data_readable(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    writer.write(1).expect("room");
    writer.close();
    rig.reported(1, READ, Readiness::READABLE | Readiness::HUP)
}

fn a_reader_gone_is_an_error_for_the_writer(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&writer, 1, Interest::WRITABLE, Trigger::Level)?;
    reader.close();
    rig.reported(1, Interest::WRITABLE, Readiness::WRITABLE | Readiness::ERROR)
}

fn hup_is_reported_with_an_empty_interest(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, Interest::NONE, Trigger::Level)?;
    theirs.write(1).expect("room");
    rig.quiet();
    theirs.close();
    rig.reported_unasked(1, Interest::NONE, Readiness::HUP)
}

fn hup_is_reported_to_writers_only(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, Interest::WRITABLE, Trigger::Level)?;
    theirs.close();
    rig.reported(1, Interest::WRITABLE, Readiness::WRITABLE | Readiness::HUP)
}

/// What the peer did not read is lost, and that is an error.
fn a_close_over_unread_data_is_an_error(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    ours.write(1).expect("room");
    rig.add(&ours, 1, READ, Trigger::Level)?;
    rig.quiet();
    theirs.close();
    rig.reported(1, READ, Readiness::READABLE | Readiness::HUP | Readiness::ERROR)
}

fn hup_repeats_under_level(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, READ, Trigger::Level)?;
    theirs.close();
    for _ in 0..3 {
        let seen = rig.found();
        assert!(seen[0].1.is_readable(), "{seen:?}");
    }
    rig.reported(1, READ, Readiness::READABLE | Readiness::HUP)
}

fn edge_reports_a_half_close_and_then_a_close(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.socketpair();
    rig.add(&ours, 1, Interest::READABLE | Interest::RDHUP, Trigger::Edge)?;
    rig.quiet();
    theirs.shutdown_write();
    let half = Readiness::READABLE | Readiness::RDHUP;
    assert_eq!(rig.settled(), [(1, half)]);
    theirs.close();
    assert_eq!(rig.settled(), [(1, half | Readiness::HUP)]);
    rig.quiet();
    Ok(())
}

fn edge_reports_hup_once(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Edge)?;
    writer.close();
    assert_eq!(rig.settled(), [(1, Readiness::HUP)]);
    rig.quiet();
    Ok(())
}

fn oneshot_is_disarmed_for_hup(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    writer.close();
    rig.quiet();
    rig.modify(&reader, 1, READ, Trigger::Oneshot)?;
    let seen = rig.found();
    if seen == [(1, Readiness::READABLE)] && !rig.poller.caps().hangup {
        return Err(Deviation::HangupAsReadable);
    }
    assert_eq!(seen, [(1, Readiness::READABLE | Readiness::HUP)]);
    Ok(())
}

fn oneshot_modified_to_none_reports_hup(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    writer.close();
    rig.modify(&reader, 1, Interest::NONE, Trigger::Oneshot)?;
    rig.reported_unasked(1, Interest::NONE, Readiness::HUP)
}
