//! What is refused, with which error, and that a refusal changes nothing: the errno table of
//! `epoll_ctl(2)`.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pollux_poller::{Error, Events, Interest, Readiness, Registration, Token, Trigger};
use rustix::fs::{Mode, OFlags};

use crate::rig::{DEADLINE, Rig, accepted, memfd, until_asleep};
use crate::{Case, Deviation, Verdict, case};

pub(crate) const CASES: &[Case] = &[
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
    case!(exclusive_with_oneshot_is_einval),
    case!(exclusive_with_rdhup_is_einval),
    case!(exclusive_with_priority_is_einval),
    case!(modify_of_an_exclusive_registration_is_einval, [Exclusive]),
    case!(modify_to_exclusive_is_einval),
];

const READ: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const TOKEN: Token = Token::new(1, 0);

/// Insists on the error number that `epoll_ctl(2)` gives.
#[track_caller]
fn refused(outcome: Result<(), Error>, errno: rustix::io::Errno) {
    let error = outcome.expect_err("this has to be refused");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error:?}");
}

fn a_second_add_is_eexist(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let again = rig.poller.add(reader.as_fd(), TOKEN, READ);
    assert!(matches!(again, Err(Error::AlreadyRegistered { .. })), "{again:?}");
    refused(again, rustix::io::Errno::EXIST);
    Ok(())
}

fn a_second_add_under_another_token_is_eexist(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let again = rig.poller.add(reader.as_fd(), TOKEN.next_generation(), READ);
    writer.write(1).expect("room");
    let token = rig.wait(8, DEADLINE)[0].token;
    match again {
        Err(error) => {
            refused(Err(error), rustix::io::Errno::EXIST);
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

fn modify_of_an_unknown_descriptor_is_enoent(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    let outcome = rig.poller.modify(reader.as_fd(), TOKEN, READ);
    assert!(matches!(outcome, Err(Error::NotRegistered { .. })), "{outcome:?}");
    refused(outcome, rustix::io::Errno::NOENT);
    Ok(())
}

fn delete_of_an_unknown_descriptor_is_enoent(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    refused(rig.poller.delete(reader.as_fd()), rustix::io::Errno::NOENT);
    Ok(())
}

fn a_second_delete_is_enoent(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    rig.delete(&reader);
    refused(rig.poller.delete(reader.as_fd()), rustix::io::Errno::NOENT);
    Ok(())
}

/// Refused by add, or taken and reported as ready for what was asked.
fn always_ready(rig: &mut Rig, file: impl AsFd) -> Verdict {
    let file = file.as_fd();
    match rig.poller.add(file, TOKEN, READ) {
        Err(error) => {
            assert!(matches!(error, Error::NotPollable { .. }), "{error:?}");
            refused(Err(error), rustix::io::Errno::PERM);
            refused(rig.poller.delete(file), rustix::io::Errno::NOENT);
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

fn a_regular_file_is_eperm(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    always_ready(rig, memfd())
}

fn a_directory_is_eperm(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    always_ready(rig, File::open("/").expect("the root directory"))
}

fn a_device_without_readiness_is_eperm(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    always_ready(rig, File::open("/dev/null").expect("a device"))
}

fn a_path_descriptor_is_ebadf(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let path = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let path = path.expect("the root directory");
    match rig.poller.add(path.as_fd(), TOKEN, READ) {
        Err(error) => {
            refused(Err(error), rustix::io::Errno::BADF);
            Ok(())
        }
        Ok(()) => {
            let seen = rig.found();
            assert_eq!(seen, [(1, Readiness::ERROR)], "the error of the kernel arrives later");
            Err(Deviation::ErrorLater)
        }
    }
}

fn a_file_of_proc_with_readiness_is_watched(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let mounts = File::open("/proc/self/mounts").expect("proc is mounted");
    rig.add(&mounts, 1, Interest::READABLE, Trigger::Level)?;
    let seen = rig.found();
    assert!(seen[0].1.is_readable(), "{seen:?}");
    Ok(())
}

fn an_empty_interest_is_accepted(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::NONE, Trigger::Level)?;
    writer.write(1).expect("room");
    rig.quiet();
    rig.modify(&reader, 2, Interest::READABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn duplicates_are_registrations_of_their_own(rig: &mut Rig) -> Verdict {
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

fn a_refused_add_keeps_the_registration(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let other = Registration::new(Interest::NONE, Trigger::Level);
    rig.poller.add(reader.as_fd(), TOKEN, other).expect_err("it is there");
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn a_refused_modify_keeps_the_registration(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let impossible = Registration::new(Interest::NONE, Trigger::Oneshot).exclusive();
    let outcome = rig.poller.modify(reader.as_fd(), Token::new(9, 9), impossible);
    refused(outcome, rustix::io::Errno::INVAL);
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn deleted_can_be_added_again(rig: &mut Rig) -> Verdict {
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

fn errors_say_what_to_do(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    let unknown = rig.poller.delete(reader.as_fd()).expect_err("never added").to_string();
    assert!(unknown.contains("add it first"), "{unknown}");
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let twice = rig.poller.add(reader.as_fd(), TOKEN, READ).expect_err("it is there").to_string();
    assert!(twice.contains("modify it, or delete it"), "{twice}");
    Ok(())
}

fn an_exclusive_registration_reports(rig: &mut Rig) -> Verdict {
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

fn an_exclusive_registration_can_be_deleted(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, READ.exclusive()))?;
    rig.delete(&reader);
    writer.write(1).expect("room");
    rig.quiet();
    rig.add(&reader, 2, Interest::READABLE, Trigger::Level)?;
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    Ok(())
}

fn exclusive_reaches_one_of_two_pollers_at_least(rig: &mut Rig) -> Verdict {
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
fn exclusive_leaves_some_sleepers_asleep(rig: &mut Rig) -> Verdict {
    const SLEEPERS: usize = 3;
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let how = Registration::new(Interest::READABLE, Trigger::Edge).exclusive();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, how))?;
    rig.delete(&reader);
    let (open, fd) = (rig.opener(), reader.as_fd());
    let (ready, readies) = mpsc::channel();
    let (reported, reports) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..SLEEPERS {
            let (ready, reported) = (ready.clone(), reported.clone());
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

/// Refused by every backend, be it for the flag or for the combination.
fn impossible(rig: &mut Rig, how: Registration) -> Verdict {
    let (reader, writer) = rig.pipe();
    let outcome = rig.poller.add(reader.as_fd(), TOKEN, how);
    assert!(matches!(outcome, Err(Error::Unsupported { .. })), "{outcome:?}");
    refused(outcome, rustix::io::Errno::INVAL);
    writer.write(1).expect("room");
    rig.quiet();
    Ok(())
}

fn exclusive_with_oneshot_is_einval(rig: &mut Rig) -> Verdict {
    impossible(rig, Registration::new(Interest::READABLE, Trigger::Oneshot).exclusive())
}

fn exclusive_with_rdhup_is_einval(rig: &mut Rig) -> Verdict {
    let interest = Interest::READABLE | Interest::RDHUP;
    impossible(rig, Registration::new(interest, Trigger::Level).exclusive())
}

fn exclusive_with_priority_is_einval(rig: &mut Rig) -> Verdict {
    let interest = Interest::READABLE | Interest::PRIORITY;
    impossible(rig, Registration::new(interest, Trigger::Level).exclusive())
}

fn modify_of_an_exclusive_registration_is_einval(rig: &mut Rig) -> Verdict {
    let (reader, writer) = rig.pipe();
    accepted(rig.poller.add(reader.as_fd(), TOKEN, READ.exclusive()))?;
    refused(rig.poller.modify(reader.as_fd(), Token::new(2, 0), READ), rustix::io::Errno::INVAL);
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "unchanged");
    Ok(())
}

fn modify_to_exclusive_is_einval(rig: &mut Rig) -> Verdict {
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let outcome = rig.poller.modify(reader.as_fd(), TOKEN, READ.exclusive());
    refused(outcome, rustix::io::Errno::INVAL);
    Ok(())
}
