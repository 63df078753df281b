//! Descriptor numbers: high ones, the limits of a process, and numbers that name no open file, which are an
//! error on every backend and cost no memory.
#![expect(unsafe_code, reason = "only an unsafe borrow can name what is not open")]

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use pollux_poller::{Interest, Readiness, Registration, Token, Trigger};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use pollux_conformance::rig::{Rig, memfd};
use pollux_conformance::{Case, CaseResult, Deviation, aio_polls, case};

pub(crate) const CASES: &[Case] = &[
    case!(numbers_beyond_1024_are_watched, [Kernel]),
    case!(the_highest_number_is_watched, [Kernel]),
    case!(numbers_above_a_lowered_limit_are_watched, [Kernel]),
    case!(opening_without_a_free_descriptor_is_an_error, [Kernel]),
    case!(a_dropped_poller_leaves_no_descriptor, [Kernel]),
    case!(the_descriptors_of_a_poller_are_closed_by_exec, [Kernel]),
    case!(watched_descriptors_are_never_closed, [Kernel]),
    case!(a_closed_number_is_ebadf, [Kernel]),
    case!(a_number_closed_since_the_add_does_no_harm, [Kernel]),
    case!(a_negative_number_is_ebadf, [Kernel]),
    case!(a_number_far_above_the_highest_open_one_is_ebadf, [Kernel]),
];

const READ: Interest = Interest::READABLE;

fn soft_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u32::MAX))
}

fn set_soft_limit(current: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })
        .expect("below the hard limit");
}

/// A ready pipe whose reader has the lowest free number from `number` on.
fn ready_at(rig: &Rig, number: u64) -> (OwnedFd, pollux_conformance::objects::Object) {
    let (reader, writer) = rig.pipe();
    let number = i32::try_from(number).expect("descriptors are small numbers");
    let high = fcntl_dupfd_cloexec(&reader, number).expect("below the limit");
    assert!(high.as_raw_fd() >= number);
    writer.write(1).expect("room");
    (high, writer)
}

/// Level and delete work on it.
fn watched(rig: &mut Rig, fd: &OwnedFd) -> CaseResult {
    rig.add(fd, 1, READ, Trigger::Level)?;
    for _ in 0..2 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    }
    rig.delete(fd);
    rig.quiet();
    Ok(())
}

fn numbers_beyond_1024_are_watched(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    for number in [1023, 1024, 1500] {
        let (high, _writer) = ready_at(rig, number);
        watched(rig, &high)?;
    }
    Ok(())
}

fn the_highest_number_is_watched(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (high, _writer) = ready_at(rig, soft_limit().min(1 << 20) - 1);
    watched(rig, &high)
}

fn numbers_above_a_lowered_limit_are_watched(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (high, _writer) = ready_at(rig, 1200);
    set_soft_limit(64);
    watched(rig, &high)
}

fn opening_without_a_free_descriptor_is_an_error(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let limit = soft_limit();
    set_soft_limit(64);
    let mut filling = Vec::new();
    while let Ok(fd) = fcntl_dupfd_cloexec(std::io::stdin(), 0) {
        filling.push(fd);
    }
    let open = rig.opener();
    // One more free descriptor each time, so that every step of opening fails once.
    let mut refusals = 0;
    loop {
        match open() {
            Ok(_) => break,
            Err(error) => {
                assert!(error.raw_os_error().is_some(), "{error:?}");
                refusals += 1;
            }
        }
        drop(filling.pop().expect("some number of descriptors is enough"));
    }
    assert!(refusals > 0, "a waker alone needs a descriptor");
    set_soft_limit(limit);
    Ok(())
}

fn open_numbers() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").expect("proc is mounted");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut numbers: Vec<i32> =
        names.map(|name| name.to_str().expect("digits").parse().expect("digits")).collect();
    // The directory was open while it was read.
    numbers.retain(|number| fs::exists(format!("/proc/self/fdinfo/{number}")).expect("readable"));
    numbers.sort_unstable();
    numbers
}

fn a_dropped_poller_leaves_no_descriptor(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, _writer) = rig.pipe();
    let before = open_numbers();
    let polls_before = aio_polls::held();
    for _ in 0..20 {
        let mut other = rig.opener()().expect("as before");
        other.add(&reader, 1, READ, Trigger::Level)?;
        other.quiet();
    }
    assert_eq!(open_numbers(), before);
    assert_eq!(aio_polls::held(), polls_before);
    Ok(())
}

fn the_descriptors_of_a_poller_are_closed_by_exec(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let before = open_numbers();
    let other = rig.open_another();
    let made: Vec<i32> =
        open_numbers().into_iter().filter(|number| !before.contains(number)).collect();
    assert!(!made.is_empty(), "the waker at least");
    for number in made {
        // Opening the link gives another file, so its flags are read from the description.
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).expect("open");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
        let flags = u32::from_str_radix(flags.trim(), 8).expect("octal");
        let cloexec = rustix::fs::OFlags::CLOEXEC.bits();
        assert!(flags & cloexec != 0, "descriptor {number} would survive exec: {info}");
    }
    drop(other);
    Ok(())
}

fn watched_descriptors_are_never_closed(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let file = memfd();
    let (reader, _writer) = rig.pipe();
    {
        let mut other = rig.opener()().expect("as before");
        other.add(&reader, 1, READ, Trigger::Level)?;
        // Refused or not: it stays open.
        let _ = other.poller.add(file.as_fd(), Token::new(2, 0), LEVEL);
        other.wait(8, std::time::Duration::ZERO);
    }
    assert_eq!(fcntl_getfd(&reader), Ok(FdFlags::CLOEXEC));
    assert_eq!(fcntl_getfd(&file), Ok(FdFlags::CLOEXEC));
    Ok(())
}

const LEVEL: Registration = Registration::new(READ, Trigger::Level);
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
fn refused(rig: &mut Rig, raw: RawFd) -> CaseResult {
    let before = pages();
    let added = rig.poller.add(number(raw), TOKEN, LEVEL).expect_err("not open");
    assert_eq!(added.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{raw}: {added:?}");
    let modified = rig.poller.modify(number(raw), TOKEN, LEVEL).expect_err("not there");
    let deleted = rig.poller.delete(number(raw)).expect_err("not there");
    for error in [modified, deleted] {
        assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()), "{raw}: {error:?}");
    }
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 2, READ, Trigger::Level)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(2, Readiness::READABLE)]);
    rig.delete(&reader);
    rig.quiet();
    let grown = pages().saturating_sub(before);
    assert!(grown < PAGES_MAX, "{grown} pages for number {raw}");
    Ok(())
}

fn a_closed_number_is_ebadf(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    // The poller has seen the number, so no backend has to ask whether it has a place for it.
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
    rig.quiet();
    rig.delete(&reader);
    let raw = reader.as_fd().as_raw_fd();
    reader.close();
    match rig.poller.add(number(raw), TOKEN, LEVEL) {
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
fn a_number_closed_since_the_add_does_no_harm(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, READ, Trigger::Level)?;
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
    rig.poller.add(reader.as_fd(), Token::new(1, 1), LEVEL).expect("another file");
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    Ok(())
}

fn a_negative_number_is_ebadf(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    // -100 is AT_FDCWD.
    [-2, -100, i32::MIN].into_iter().try_for_each(|raw| refused(rig, raw))
}

fn a_number_far_above_the_highest_open_one_is_ebadf(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    [1 << 20, 1 << 28, 1 << 30, i32::MAX].into_iter().try_for_each(|raw| refused(rig, raw))
}
