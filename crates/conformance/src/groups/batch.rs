//! Batches of changes: all in order, or all before the first that failed.

use std::os::fd::AsFd;

use pollux_poller::{Change, Error, Interest, Readiness, Registration, Token, Trigger};
use rustix::io::Errno;

use crate::rig::Rig;
use crate::{Case, Verdict, case};

pub(crate) const CASES: &[Case] = &[
    case!(a_batch_applies_all),
    case!(an_empty_batch_is_nothing),
    case!(a_batch_stops_at_the_first_error),
    case!(a_batch_error_carries_index_and_errno),
    case!(add_modify_and_delete_in_one_batch_leave_nothing),
    case!(delete_and_add_in_one_batch_change_the_token),
    case!(the_last_modify_of_a_batch_counts),
    case!(a_batch_of_a_thousand),
];

const READ: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const WRITE: Registration = Registration::new(Interest::WRITABLE, Trigger::Level);

fn token(slot: u32) -> Token {
    Token::new(slot, 0)
}

fn a_batch_applies_all(rig: &mut Rig) -> Verdict {
    let (first, first_writer) = rig.pipe();
    let (second, second_writer) = rig.pipe();
    let changes = [
        Change::Add(first.as_fd(), token(1), READ),
        Change::Add(second.as_fd(), token(2), READ),
        Change::Add(first_writer.as_fd(), token(3), WRITE),
        Change::Modify(second.as_fd(), token(4), READ),
        Change::Delete(first_writer.as_fd()),
    ];
    rig.poller.apply(&changes).expect("all are possible");
    first_writer.write(1).expect("room");
    second_writer.write(1).expect("room");
    rig.both(1, 4);
    Ok(())
}

fn an_empty_batch_is_nothing(rig: &mut Rig) -> Verdict {
    rig.poller.apply(&[]).expect("nothing can fail");
    assert_eq!(rig.poller.counters().snapshot().updates_asked, 0);
    rig.quiet();
    Ok(())
}

fn a_batch_stops_at_the_first_error(rig: &mut Rig) -> Verdict {
    let (first, first_writer) = rig.pipe();
    let (second, second_writer) = rig.pipe();
    let (unknown, _unknown_writer) = rig.pipe();
    let changes = [
        Change::Add(first.as_fd(), token(1), READ),
        Change::Delete(unknown.as_fd()),
        Change::Add(second.as_fd(), token(2), READ),
    ];
    let error = rig.poller.apply(&changes).expect_err("the second change is impossible");
    assert!(matches!(error, Error::Batch { index: 1, .. }), "{error:?}");
    first_writer.write(1).expect("room");
    second_writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "what came before stands");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "what came after was not tried");
    rig.poller.add(second.as_fd(), token(2), READ).expect("it was not tried");
    Ok(())
}

fn a_batch_error_carries_index_and_errno(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    let changes =
        [Change::Add(reader.as_fd(), token(1), READ), Change::Add(reader.as_fd(), token(1), READ)];
    let error = rig.poller.apply(&changes).expect_err("the same twice");
    assert_eq!(error.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    assert!(error.to_string().contains('1'), "{error}");
    let cause = std::error::Error::source(&error).expect("the reason").to_string();
    assert!(cause.contains("registered already"), "{cause}");
    Ok(())
}

fn add_modify_and_delete_in_one_batch_leave_nothing(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    writer.write(1).expect("room");
    let changes = [
        Change::Add(reader.as_fd(), token(1), READ),
        Change::Modify(reader.as_fd(), token(2), READ),
        Change::Delete(reader.as_fd()),
    ];
    rig.poller.apply(&changes).expect("all are possible");
    rig.quiet();
    let again = rig.poller.delete(reader.as_fd()).expect_err("nothing is left");
    assert!(matches!(again, Error::NotRegistered { .. }), "{again:?}");
    Ok(())
}

fn delete_and_add_in_one_batch_change_the_token(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    let changes = [Change::Delete(reader.as_fd()), Change::Add(reader.as_fd(), token(2), READ)];
    rig.poller.apply(&changes).expect("both are possible");
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn the_last_modify_of_a_batch_counts(rig: &mut Rig) -> Verdict {
    let (ours, theirs) = rig.socketpair();
    theirs.write(1).expect("room");
    rig.add(&ours, 1, Interest::NONE, Trigger::Level)?;
    let changes = [
        Change::Modify(ours.as_fd(), token(2), WRITE),
        Change::Modify(ours.as_fd(), token(3), READ),
    ];
    rig.poller.apply(&changes).expect("both are possible");
    assert_eq!(rig.found(), [(3, Readiness::READABLE)]);
    Ok(())
}

fn a_batch_of_a_thousand(rig: &mut Rig) -> Verdict {
    let limit = rig.poller.caps().fds_max.unwrap_or(usize::MAX);
    let count = limit.min(1000) as u32;
    let counters: Vec<_> = (0..count).map(|_| rig.eventfd()).collect();
    let adds: Vec<Change<'_>> = (0u32..)
        .zip(&counters)
        .map(|(slot, counter)| Change::Add(counter.as_fd(), token(slot), READ))
        .collect();
    rig.poller.apply(&adds).expect("all are possible");
    counters[counters.len() - 1].write(1).expect("room");
    assert_eq!(rig.found(), [(count - 1, Readiness::READABLE)]);
    let deletes: Vec<Change<'_>> =
        counters.iter().map(|counter| Change::Delete(counter.as_fd())).collect();
    rig.poller.apply(&deletes).expect("all are possible");
    rig.quiet();
    Ok(())
}
