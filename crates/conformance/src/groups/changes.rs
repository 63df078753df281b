//! Changes: which are refused with which errno, and batches, of which all are made in order, or all before the first
//! that failed.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pollux_poller::{Change, Error, Events, Interest, Readiness, Registration, Token, Trigger};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::rig::{DEADLINE, Rig, accepted, memfd, until_asleep};
use crate::{Case, CaseResult, Deviation, case};

pub(crate) const ERRNO: &[Case] = &[
    case!(a_second_add_is_eexist),
    case!(a_second_add_under_another_token_is_eexist),
    case!(modify_of_an_unknown_descriptor_is_enoent),
    case!(delete_of_an_unknown_descriptor_is_enoent),
    case!(a_second_delete_is_enoent),
    case!(a_regular_file_is_eperm, [Kernel]),
    case!(a_directory_is_eperm, [Kernel]),
    case!(a_device_without_readiness_is_eperm, [Kernel]),
    case!(a_path_descriptor_is_ebadf, [Kernel]),
    case!(a_file_of_proc_with_readiness_is_watched, [Kernel]),
    case!(an_empty_interest_is_accepted),
    case!(duplicates_are_registrations_of_their_own),
    case!(a_refused_add_keeps_the_registration),
    case!(a_refused_modify_keeps_the_registration),
    case!(deleted_can_be_added_again),
    case!(errors_say_what_to_do),
    case!(an_exclusive_registration_reports, [Exclusive]),
    case!(an_exclusive_registration_can_be_deleted, [Exclusive]),
    case!(exclusive_reaches_one_of_two_pollers_at_least, [Exclusive]),
    case!(exclusive_leaves_some_sleepers_asleep, [Kernel, Exclusive]),
    case!(exclusive_passes_over_a_poller_that_does_not_wait, [Kernel, Exclusive]),
    case!(exclusive_with_oneshot_is_einval),
    case!(exclusive_with_rdhup_is_einval),
    case!(exclusive_with_priority_is_einval),
    case!(modify_of_an_exclusive_registration_is_einval, [Exclusive]),
    case!(modify_to_exclusive_is_einval),
];

pub(crate) const BATCH: &[Case] = &[
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
const TOKEN: Token = Token::new(1, 0);

/// Insists on the error number that `epoll_ctl(2)` gives.
#[track_caller]
fn refused(outcome: Result<(), Error>, errno: Errno) {
    let error = outcome.expect_err("this has to be refused");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error:?}");
}

fn a_second_add_is_eexist(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let again = rig.poller.add(reader.as_fd(), TOKEN, READ);
    assert!(matches!(again, Err(Error::AlreadyRegistered { .. })), "{again:?}");
    refused(again, Errno::EXIST);
    Ok(())
}

fn a_second_add_under_another_token_is_eexist(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let again = rig.poller.add(reader.as_fd(), TOKEN.next_generation(), READ);
    writer.write(1).expect("room");
    let token = rig.wait(8, DEADLINE)[0].token;
    match again {
        Err(error) => {
            refused(Err(error), Errno::EXIST);
            assert_eq!(token, TOKEN, "the refused token is not used");
            Ok(())
        }
        Ok(()) => {
            assert_eq!(token, TOKEN.next_generation(), "the new registration replaced the old");
            rig.delete(&reader);
            rig.quiet();
            Err(Deviation::Replaces)
        }
    }
}

fn modify_of_an_unknown_descriptor_is_enoent(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    let outcome = rig.poller.modify(reader.as_fd(), TOKEN, READ);
    assert!(matches!(outcome, Err(Error::NotRegistered { .. })), "{outcome:?}");
    refused(outcome, Errno::NOENT);
    Ok(())
}

fn delete_of_an_unknown_descriptor_is_enoent(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    refused(rig.poller.delete(reader.as_fd()), Errno::NOENT);
    Ok(())
}

fn a_second_delete_is_enoent(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    rig.delete(&reader);
    refused(rig.poller.delete(reader.as_fd()), Errno::NOENT);
    Ok(())
}

/// Refused by add, or taken and reported as ready for what was asked.
fn always_ready(rig: &mut Rig, file: impl AsFd) -> CaseResult {
    let file = file.as_fd();
    match rig.poller.add(file, TOKEN, READ) {
        Err(error) => {
            assert!(matches!(error, Error::NotPollable { .. }), "{error:?}");
            refused(Err(error), Errno::PERM);
            refused(rig.poller.delete(file), Errno::NOENT);
            Ok(())
        }
        Ok(()) => {
            assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
            assert_eq!(rig.found(), [(1, Readiness::READABLE)], "level: again");
            rig.delete(file);
            rig.quiet();
            Err(Deviation::AcceptsFiles)
        }
    }
}

fn a_regular_file_is_eperm(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    always_ready(rig, memfd())
}

fn a_directory_is_eperm(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    always_ready(rig, File::open("/").expect("the root directory"))
}

fn a_device_without_readiness_is_eperm(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    always_ready(rig, File::open("/dev/null").expect("a device"))
}

fn a_path_descriptor_is_ebadf(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let path = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let path = path.expect("the root directory");
    match rig.poller.add(path.as_fd(), TOKEN, READ) {
        Err(error) => {
            refused(Err(error), Errno::BADF);
            Ok(())
        }
        Ok(()) => {
            let seen = rig.found();
            assert_eq!(seen, [(1, Readiness::ERROR)], "the error of the kernel arrives later");
            Err(Deviation::ErrorLater)
        }
    }
}

fn a_file_of_proc_with_readiness_is_watched(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let mounts = File::open("/proc/self/mounts").expect("proc is mounted");
    rig.add(&mounts, 1, Interest::READABLE, Trigger::Level)?;
    let seen = rig.found();
    assert!(seen[0].1.is_readable(), "{seen:?}");
    Ok(())
}

fn an_empty_interest_is_accepted(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::NONE, Trigger::Level)?;
    writer.write(1).expect("room");
    rig.quiet();
    rig.modify(&reader, 2, Interest::READABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn duplicates_are_registrations_of_their_own(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    let twin = reader.dup();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    rig.add(&twin, 2, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    rig.both(1, 2);
    rig.delete(&reader);
    assert_eq!(rig.found(), [(2, Readiness::READABLE)], "deleting one leaves the other");
    Ok(())
}

fn a_refused_add_keeps_the_registration(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let other = Registration::new(Interest::NONE, Trigger::Level);
    rig.poller.add(reader.as_fd(), TOKEN, other).expect_err("it is there");
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn a_refused_modify_keeps_the_registration(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let impossible = Registration::new(Interest::NONE, Trigger::Oneshot).exclusive();
    let outcome = rig.poller.modify(reader.as_fd(), Token::new(9, 9), impossible);
    refused(outcome, Errno::INVAL);
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn deleted_can_be_added_again(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    for slot in 0..10 {
        rig.add(&reader, slot, Interest::READABLE, Trigger::Level)?;
        writer.write(1).expect("room");
        assert_eq!(rig.found(), [(slot, Readiness::READABLE)]);
        rig.delete(&reader);
        rig.quiet();
        reader.read(8).expect("it was written");
    }
    Ok(())
}

fn errors_say_what_to_do(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    let unknown = rig.poller.delete(reader.as_fd()).expect_err("never added").to_string();
    assert!(unknown.contains("add it first"), "{unknown}");
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let twice = rig.poller.add(reader.as_fd(), TOKEN, READ).expect_err("it is there").to_string();
    assert!(twice.contains("modify it, or delete it"), "{twice}");
    Ok(())
}

fn an_exclusive_registration_reports(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, READ.exclusive()))?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "level: again");
    reader.read(8).expect("it was written");
    rig.quiet();
    Ok(())
}

fn an_exclusive_registration_can_be_deleted(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, READ.exclusive()))?;
    rig.delete(&reader);
    writer.write(1).expect("room");
    rig.quiet();
    rig.add(&reader, 2, Interest::READABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn exclusive_reaches_one_of_two_pollers_at_least(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    let mut other = rig.open_another();
    let how = Registration::new(Interest::READABLE, Trigger::Edge).exclusive();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, how))?;
    accepted(other.add(reader.as_fd(), TOKEN, how))?;
    let mut events = Events::with_capacity(8);
    // Both are registered before anything happens.
    rig.quiet();
    other.wait(&mut events, Some(Duration::from_millis(1))).expect("wait");
    for _ in 0..10 {
        writer.write(1).expect("room");
        let here = rig.wait(8, Duration::from_millis(1)).len();
        other.wait(&mut events, Some(Duration::from_millis(1))).expect("wait");
        assert!(here + events.len() >= 1, "no poller reported new data");
        reader.read(8).expect("it was written");
    }
    Ok(())
}

/// The one thing that the flag is for. The write wakes its waiters before it returns.
fn exclusive_leaves_some_sleepers_asleep(rig: &mut Rig) -> CaseResult {
    const SLEEPERS: usize = 3;
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let how = Registration::new(Interest::READABLE, Trigger::Edge).exclusive();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, how))?;
    rig.delete(&reader);
    let open = rig.opener();
    let fd = reader.as_fd();
    let (ready, readies) = mpsc::channel();
    let (reported, reports) = mpsc::channel();
    thread::scope(move |scope| {
        for _ in 0..SLEEPERS {
            let open = open.clone();
            let ready = ready.clone();
            let reported = reported.clone();
            scope.spawn(move || {
                let mut rig = open().expect("one was opened already");
                rig.poller.add(fd, TOKEN, how).expect("as before");
                rig.quiet();
                ready.send((rustix::thread::gettid(), rig.poller.waker())).expect("awaited");
                let mut events = Events::with_capacity(8);
                rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
                reported.send(events.len()).expect("awaited");
            });
        }
        // A thread that fails leaves no sender behind: nothing waits for it then.
        drop((ready, reported));
        let sleepers: Vec<_> = readies.iter().take(SLEEPERS).collect();
        sleepers.iter().for_each(|(sleeper, _)| until_asleep(*sleeper));
        writer.write(1).expect("room");
        let first = reports.recv_timeout(DEADLINE).expect("no poller reported new data");
        sleepers.iter().for_each(|(_, waker)| waker.wake());
        let all = first + reports.iter().take(SLEEPERS - 1).sum::<usize>();
        assert!(
            (1..SLEEPERS).contains(&all),
            "{all} of {SLEEPERS} sleepers were woken by one byte"
        );
    });
    Ok(())
}

/// The first in the line of waiters has taken what it was woken for, and is busy.
fn exclusive_passes_over_a_poller_that_does_not_wait(rig: &mut Rig) -> CaseResult {
    /// How long a poller that is not woken is waited for.
    const SILENCE: Duration = Duration::from_millis(300);
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let how = Registration::new(Interest::READABLE, Trigger::Edge).exclusive();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, how))?;
    rig.quiet();
    let open = rig.opener();
    let fd = reader.as_fd();
    let (ready, readies) = mpsc::channel();
    let found = thread::scope(move |scope| {
        let sleeps = scope.spawn(move || {
            let mut rig = open().expect("one was opened already");
            rig.poller.add(fd, TOKEN, how).expect("as before");
            rig.quiet();
            ready.send((rustix::thread::gettid(), rig.poller.waker())).expect("awaited");
            let mut events = Events::with_capacity(8);
            rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
            events.len()
        });
        let (sleeper, waker) = readies.recv().expect("it starts");
        until_asleep(sleeper);
        writer.write(1).expect("room");
        let begun = Instant::now();
        while !sleeps.is_finished() && begun.elapsed() < SILENCE {
            pollux_testing::pause(begun);
        }
        waker.wake();
        sleeps.join().expect("no panic")
    });
    if found == 0 { Err(Deviation::TakesWakes) } else { Ok(()) }
}

/// Refused by every backend, be it for the flag or for the combination.
fn impossible(rig: &mut Rig, how: Registration) -> CaseResult {
    let (reader, writer) = rig.pipe();
    let outcome = rig.poller.add(reader.as_fd(), TOKEN, how);
    assert!(matches!(outcome, Err(Error::Unsupported { .. })), "{outcome:?}");
    refused(outcome, Errno::INVAL);
    writer.write(1).expect("room");
    rig.quiet();
    Ok(())
}

fn exclusive_with_oneshot_is_einval(rig: &mut Rig) -> CaseResult {
    impossible(rig, Registration::new(Interest::READABLE, Trigger::Oneshot).exclusive())
}

fn exclusive_with_rdhup_is_einval(rig: &mut Rig) -> CaseResult {
    let interest = Interest::READABLE | Interest::RDHUP;
    impossible(rig, Registration::new(interest, Trigger::Level).exclusive())
}

fn exclusive_with_priority_is_einval(rig: &mut Rig) -> CaseResult {
    let interest = Interest::READABLE | Interest::PRIORITY;
    impossible(rig, Registration::new(interest, Trigger::Level).exclusive())
}

fn modify_of_an_exclusive_registration_is_einval(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, READ.exclusive()))?;
    refused(rig.poller.modify(reader.as_fd(), Token::new(2, 0), READ), Errno::INVAL);
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "unchanged");
    Ok(())
}

fn modify_to_exclusive_is_einval(rig: &mut Rig) -> CaseResult {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let outcome = rig.poller.modify(reader.as_fd(), TOKEN, READ.exclusive());
    refused(outcome, Errno::INVAL);
    Ok(())
}

fn token(slot: u32) -> Token {
    Token::new(slot, 0)
}

fn a_batch_applies_all(rig: &mut Rig) -> CaseResult {
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

fn an_empty_batch_is_nothing(rig: &mut Rig) -> CaseResult {
    rig.poller.apply(&[]).expect("nothing can fail");
    assert_eq!(rig.poller.counters().snapshot().updates_asked, 0);
    rig.quiet();
    Ok(())
}

fn a_batch_stops_at_the_first_error(rig: &mut Rig) -> CaseResult {
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

fn a_batch_error_carries_index_and_errno(rig: &mut Rig) -> CaseResult {
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

fn add_modify_and_delete_in_one_batch_leave_nothing(rig: &mut Rig) -> CaseResult {
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

fn delete_and_add_in_one_batch_change_the_token(rig: &mut Rig) -> CaseResult {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    let changes = [Change::Delete(reader.as_fd()), Change::Add(reader.as_fd(), token(2), READ)];
    rig.poller.apply(&changes).expect("both are possible");
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn the_last_modify_of_a_batch_counts(rig: &mut Rig) -> CaseResult {
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

fn a_batch_of_a_thousand(rig: &mut Rig) -> CaseResult {
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
