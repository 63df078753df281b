//! Children: what they inherit, and that nothing they do with it hurts the parent.
#![expect(unsafe_code, reason = "std has no fork without exec")]

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use pollux_poller::{Change, Error, Events, Interest, Readiness, Registration, Token, Trigger};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use pollux_conformance::objects::Object;
use pollux_conformance::rig::{DEADLINE, Rig, Skipped};
use pollux_conformance::{Case, CaseResult, Deviation, case};

pub(crate) const CASES: &[Case] = &[
    case!(a_child_that_exits_leaves_the_parent_alone, [Kernel]),
    case!(a_child_that_drops_its_copy_leaves_the_parent_alone, [Kernel]),
    case!(a_child_that_drops_its_copy_keeps_its_memory, [Kernel]),
    case!(a_child_that_deletes_leaves_the_parents_registration, [Kernel]),
    case!(a_child_that_adds_and_modifies_changes_nothing_of_the_parents, [Kernel]),
    case!(a_child_that_waits_takes_nothing_from_the_parent, [Kernel]),
    case!(a_child_can_open_a_poller_of_its_own, [Kernel]),
    case!(a_child_that_dies_wakes_no_wait, [Kernel]),
    case!(bytes_that_a_child_writes_are_reported, [Kernel]),
    case!(a_file_that_a_child_inherited_lives_on, [Kernel]),
    case!(a_process_descriptor_is_readable_at_its_end, [Kernel]),
];

const READ: Interest = Interest::READABLE;
/// What a child exits with when all went well; a panic gives another status.
const FINE: i32 = 42;
/// The same, when it found nothing left for its backend.
const SKIPPED: i32 = 43;

/// Forks; `act` runs in the child, which ends behind it without running destructors.
fn child(act: impl FnOnce()) -> Pid {
    // SAFETY: this process has one thread, so the child may do everything.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "fork");
    if id == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        let status = match outcome {
            Ok(()) => FINE,
            Err(why) if why.is::<Skipped>() => SKIPPED,
            Err(_) => 1,
        };
        // SAFETY: ends this process and nothing else.
        unsafe { libc::_exit(status) };
    }
    Pid::from_raw(id).expect("not zero in the parent")
}

#[track_caller]
fn ended(child: Pid) {
    assert_eq!(status(child), Some(FINE), "the child failed");
}

fn status(child: Pid) -> Option<i32> {
    let ended = waitpid(Some(child), WaitOptions::empty()).expect("our child");
    ended.expect("it has ended").1.exit_status()
}

/// The parent's poller works: old registration, new registration, waker.
fn works(rig: &mut Rig, reader: &Object, writer: &Object) -> CaseResult {
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    reader.read(8).expect("it was written");
    rig.quiet();
    let (another, another_writer) = rig.pipe();
    rig.add(&another, 2, READ, Trigger::Level)?;
    another_writer.write(1).expect("room");
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    rig.delete(&another);
    rig.poller.waker().wake();
    let mut events = Events::with_capacity(8);
    rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
    assert!(events.is_woken(), "{events:?}");
    Ok(())
}

fn a_child_that_exits_leaves_the_parent_alone(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    ended(child(|| {}));
    works(rig, &reader, &writer)
}

fn a_child_that_drops_its_copy_leaves_the_parent_alone(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    let other = rig.open_another();
    let ours = std::mem::replace(&mut rig.poller, other);
    // In the child the poller is dropped; in the parent it comes back.
    let mut ours = Some(ours);
    ended(child(|| drop(ours.take())));
    rig.poller = ours.expect("the child took its copy, not ours");
    works(rig, &reader, &writer)
}

/// What a poller shares with the kernel may be missing in the child, and something else of the
/// child in its place: dropping the poller must not take that away.
fn a_child_that_drops_its_copy_keeps_its_memory(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let other = rig.open_another();
    let mut ours = Some(std::mem::replace(&mut rig.poller, other));
    ended(child(|| {
        // Large enough to be mapped each by itself, and enough to fill every gap.
        let buffers = vec![vec![7u8; 140_000]; 64];
        drop(ours.take());
        assert!(buffers.iter().flatten().all(|&byte| byte == 7));
    }));
    Ok(())
}

/// Every method that talks to the kernel is refused in a child, in words that say what to do.
#[track_caller]
fn refused(outcome: Result<(), Error>) {
    let error = outcome.expect_err("this poller is the parent's").to_string();
    assert!(error.contains("the process that opened it"), "{error}");
}

fn a_child_that_deletes_leaves_the_parents_registration(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    ended(child(|| {
        refused(rig.poller.delete(reader.as_fd()));
        refused(rig.poller.forget(reader.as_fd()));
        refused(rig.poller.apply(&[Change::Delete(reader.as_fd())]).map_err(|error| match error {
            Error::Batch { index: 0, cause } => *cause,
            other => panic!("{other:?}"),
        }));
    }));
    works(rig, &reader, &writer)
}

fn a_child_that_adds_and_modifies_changes_nothing_of_the_parents(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let (other, other_writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    ended(child(|| {
        let how = Registration::new(Interest::NONE, Trigger::Level);
        refused(rig.poller.modify(reader.as_fd(), Token::new(9, 0), how));
        let how = Registration::new(READ, Trigger::Level);
        refused(rig.poller.add(other.as_fd(), Token::new(9, 0), how));
    }));
    other_writer.write(1).expect("room");
    rig.quiet();
    works(rig, &reader, &writer)
}

/// A oneshot event is there once for all processes that share an epoll instance.
fn a_child_that_waits_takes_nothing_from_the_parent(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Oneshot)?;
    rig.quiet();
    writer.write(1).expect("room");
    ended(child(|| {
        let mut events = Events::with_capacity(8);
        refused(rig.poller.wait(&mut events, Some(Duration::ZERO)));
    }));
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn a_child_can_open_a_poller_of_its_own(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    let open = rig.opener();
    let child = child(|| {
        let mut rig = open().expect("as in the parent");
        let (reader, writer) = rig.pipe();
        rig.add(&reader, 1, READ, Trigger::Level).expect("as in the parent");
        works(&mut rig, &reader, &writer).expect("as in the parent");
    });
    match status(child) {
        Some(SKIPPED) => rig.skip("a child found no AIO polls left that other programs hold"),
        status => assert_eq!(status, Some(FINE), "the child failed"),
    }
    works(rig, &reader, &writer)
}

fn a_child_that_dies_wakes_no_wait(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    ended(child(|| {}));
    rig.quiet();
    Ok(())
}

fn bytes_that_a_child_writes_are_reported(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    let child = child(|| {
        writer.write(1).expect("room");
    });
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    ended(child);
    Ok(())
}

/// The parent closes without delete while the child still has the file open.
fn a_file_that_a_child_inherited_lives_on(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let (release, released) = std::os::unix::net::UnixStream::pair().expect("a pair");
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    let mut kept_here = Some(release);
    let child = child(|| {
        drop(kept_here.take());
        // Blocks until the parent closes its end.
        let _ = rustix::io::read(&released, &mut [0u8; 1]);
    });
    reader.close();
    writer.write(1).expect("the child keeps the reader open");
    let seen = rig.wait(8, Duration::from_millis(20));
    drop(kept_here);
    ended(child);
    match seen[..] {
        [] => Err(Deviation::ForgetsClosed),
        [event] if event.token.slot() == 1 => Ok(()),
        ref seen => panic!("{seen:?}"),
    }
}

fn a_process_descriptor_is_readable_at_its_end(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (release, released) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut kept_here = Some(release);
    let child = child(|| {
        drop(kept_here.take());
        let _ = rustix::io::read(&released, &mut [0u8; 1]);
    });
    let descriptor: OwnedFd = pidfd_open(child, PidfdFlags::empty()).expect("our child");
    rig.add(descriptor.as_fd(), 1, READ, Trigger::Level)?;
    rig.quiet();
    drop(kept_here);
    let seen = rig.found();
    assert!(seen[0].1.is_readable(), "{seen:?}");
    ended(child);
    Ok(())
}
