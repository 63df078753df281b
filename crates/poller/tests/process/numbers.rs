//! Numbers that name no open file: an error on every backend, and no memory for them.
#![expect(unsafe_code, reason = "only an unsafe borrow can name what is not open")]

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use pollux_poller::{Interest, Readiness, Registration, Token, Trigger};
use rustix::io::Errno;

use crate::suite::rig::Rig;
use crate::suite::{Case, Deviation, Verdict, case};

pub(crate) const CASES: &[Case] = &[
    case!(a_closed_number_is_ebadf, [Kernel]),
    case!(a_number_closed_since_the_add_does_no_harm, [Kernel]),
    case!(a_negative_number_is_ebadf, [Kernel]),
    case!(a_number_far_above_the_highest_open_one_is_ebadf, [Kernel]),
];

const READ: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const TOKEN: Token = Token::new(1, 0);

/// What a poller may need beside its numbers, in pages of memory: 64 MiB.
const PAGES_MAX: usize = (64 << 20) / 4096;

/// The number `raw`, open or not.
fn number(raw: RawFd) -> BorrowedFd<'static> {
    // SAFETY: nothing is done with it but to hand it to a poller, which owns nothing by it. It is
    // not -1, the one value that the type can't hold.
    unsafe { BorrowedFd::borrow_raw(raw) }
}

/// Address space of this process, in pages.
fn pages() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    statm.split(' ').next().and_then(|size| size.parse().ok()).expect("a number stands first")
}

/// Every change of `raw` is refused, and the poller continues.
fn refused(rig: &mut Rig, raw: RawFd) -> Verdict {
    let before = pages();
    let added = rig.poller.add(number(raw), TOKEN, READ).expect_err("not open");
    assert_eq!(added.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{raw}: {added:?}");
    let modified = rig.poller.modify(number(raw), TOKEN, READ).expect_err("not there");
    let deleted = rig.poller.delete(number(raw)).expect_err("not there");
    for error in [modified, deleted] {
        assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()), "{raw}: {error:?}");
    }
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 2, Interest::READABLE, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    rig.delete(&reader);
    rig.quiet();
    let grown = pages().saturating_sub(before);
    assert!(grown < PAGES_MAX, "{grown} pages for number {raw}");
    Ok(())
}

fn a_closed_number_is_ebadf(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    // The poller has seen the number, so no backend has to ask whether it has a place for it.
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    rig.quiet();
    rig.delete(&reader);
    let raw = reader.as_fd().as_raw_fd();
    reader.close();
    match rig.poller.add(number(raw), TOKEN, READ) {
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{error:?}");
            rig.poller.delete(number(raw)).expect_err("refused, so not there");
            rig.quiet();
            Ok(())
        }
        Ok(()) => {
            assert_eq!(rig.found(), [(1, Readiness::ERROR)], "the error of the kernel arrives");
            rig.quiet();
            rig.poller.delete(number(raw)).expect("until it is deleted");
            rig.quiet();
            Err(Deviation::ErrorLater)
        }
    }
}

/// The contract asks for delete before close. A caller that forgets it gets an error event at most, and the
/// next file of that number is watched.
fn a_number_closed_since_the_add_does_no_harm(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let (reader, writer) = {
        let raw = reader.as_fd().as_raw_fd();
        reader.close();
        let seen = rig.wait(8, std::time::Duration::from_millis(2));
        let is_error = |event: &pollux_poller::Event| event.readiness == Readiness::ERROR;
        assert!(seen.len() <= 1 && seen.iter().all(is_error), "{seen:?}");
        rig.quiet();
        let (reader, writer) = rig.pipe();
        assert_eq!(reader.as_fd().as_raw_fd(), raw, "the lowest free number");
        (reader, writer)
    };
    let how = Registration::new(Interest::READABLE, Trigger::Level);
    rig.poller.add(reader.as_fd(), Token::new(1, 1), how).expect("another file");
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn a_negative_number_is_ebadf(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    // -100 is AT_FDCWD.
    [-2, -100, i32::MIN].into_iter().try_for_each(|raw| refused(rig, raw))
}

fn a_number_far_above_the_highest_open_one_is_ebadf(rig: &mut Rig) -> Verdict {
    rig.needs_kernel()?;
    [1 << 20, 1 << 28, 1 << 30, i32::MAX].into_iter().try_for_each(|raw| refused(rig, raw))
}
