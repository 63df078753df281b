//! When a condition is reported, how often, and by which bits; what each call refuses, and how long it
//! waits.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT,
    EPOLLOUT, c_int, epoll_event, timespec,
};

use super::{ROOM, Subject, answered, ctl, eventfd, ready};
use crate::calls;

pub(super) fn a_level_repeats_until_it_is_read(subject: &Subject) -> String {
    let (mut reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, u64::MAX);
    let seen = [subject.found(), subject.found()];
    reader.read_exact(&mut [0]).expect("a byte");
    format!("{seen:?} {:?}", subject.soon())
}

pub(super) fn an_edge_is_reported_once(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    format!("{:?} {:?}", subject.found(), subject.soon())
}

pub(super) fn an_edge_is_reported_again_after_mod(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    let flags = (EPOLLIN | EPOLLET) as u32;
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), flags, 2);
    let second = subject.found();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {second:?} {:?}", subject.found())
}

pub(super) fn an_edge_that_was_emptied_comes_again(subject: &Subject) -> String {
    let (mut reader, mut writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    reader.read_exact(&mut [0]).expect("a byte");
    let emptied = subject.soon();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {emptied:?} {:?}", subject.found())
}

pub(super) fn an_edge_that_was_left_comes_again_with_more(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {:?}", subject.found())
}

pub(super) fn an_edge_for_room_comes_again_when_there_is_some(subject: &Subject) -> String {
    let (mut ours, mut peer) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, EPOLLOUT | EPOLLET, 1);
    let first = subject.found();
    while ours.write(&[0; 4096]).is_ok() {}
    let full = subject.soon();
    while peer.read(&mut [0; 4096]).is_ok() {}
    format!("{first:?} {full:?} {:?}", subject.found())
}

pub(super) fn an_edge_with_oneshot_is_silent_until_mod(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    let once = EPOLLIN | EPOLLET | EPOLLONESHOT;
    subject.add(&reader, once, 1);
    let mut seen = vec![subject.found()];
    writer.write_all(b"x").expect("room");
    seen.push(subject.soon());
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), once as u32, 2);
    seen.push(subject.found());
    format!("{seen:?}")
}

pub(super) fn an_edge_reports_all_that_holds(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    let first = subject.found();
    peer.write_all(b"x").expect("room");
    format!("{first:?} {:?}", subject.found())
}

pub(super) fn a_oneshot_reports_all_that_holds(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | libc::EPOLLRDHUP | EPOLLONESHOT, 1);
    let before = subject.soon();
    peer.write_all(b"x").expect("room");
    peer.shutdown(Shutdown::Write).expect("shut down");
    format!("{before:?} {:?}", subject.found())
}

pub(super) fn a_oneshot_is_reported_once_for_each_mod(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let once = EPOLLIN | EPOLLONESHOT;
    subject.add(&reader, once, 1);
    let mut seen = vec![subject.found(), subject.soon()];
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), once as u32, 2);
    seen.extend([subject.found(), subject.soon()]);
    format!("{seen:?}")
}

pub(super) fn a_disarmed_oneshot_is_silent_about_a_hang_up(subject: &Subject) -> String {
    let (reader, writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLONESHOT, 1);
    let first = subject.found();
    drop(writer);
    format!("{first:?} {:?}", subject.soon())
}

pub(super) fn what_was_read_before_the_wait_is_silent(subject: &Subject) -> String {
    let (mut reader, mut writer) = UnixStream::pair().expect("a pair");
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    writer.write_all(b"x").expect("room");
    reader.read_exact(&mut [0]).expect("a byte");
    format!("{before:?} {:?} {:?}", subject.soon(), subject.soon())
}

pub(super) fn a_hang_up_has_a_bit_of_its_own(subject: &Subject) -> String {
    let (reader, writer) = pipe().expect("a pipe");
    subject.add(&reader, EPOLLIN, 1);
    drop(writer);
    format!("{:?}", subject.found())
}

pub(super) fn a_hang_up_is_reported_without_interest(subject: &Subject) -> String {
    let (reader, writer) = pipe().expect("a pipe");
    subject.add(&reader, 0, 1);
    drop(writer);
    format!("{:?}", subject.soon())
}

pub(super) fn the_end_of_the_peers_writing_has_a_bit(subject: &Subject) -> String {
    let (ours, peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | libc::EPOLLRDHUP, 1);
    peer.shutdown(Shutdown::Write).expect("shut down");
    format!("{:?}", subject.found())
}

pub(super) fn normal_data_has_a_name_of_its_own(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.write_all(b"x").expect("room");
    subject.add(&ours, libc::EPOLLRDNORM | libc::EPOLLWRNORM, 1);
    format!("{:?}", subject.found())
}

pub(super) fn bands_are_reported(subject: &Subject) -> String {
    let (ours, _peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLOUT | libc::EPOLLWRBAND, 1);
    format!("{:?}", subject.found())
}

pub(super) fn unknown_and_ignored_flags_are_taken(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let flags = EPOLLIN as u32 | libc::EPOLLWAKEUP as u32 | 1 << 20;
    let added = subject.ctl(EPOLL_CTL_ADD, reader.as_raw_fd(), flags, 1);
    format!("{added} {:?}", subject.found())
}

pub(super) fn poll_and_select_see_that_an_instance_is_ready(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let mut fd = libc::pollfd { fd: subject.number(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one element at a live local.
    let polled = unsafe { libc::poll(&raw mut fd, 1, 20) };
    let another = subject.another();
    another.add(&reader, EPOLLIN, 1);
    // SAFETY: a set consists of integers, for which zero is a value.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: a number below FD_SETSIZE and a live set.
    unsafe { libc::FD_SET(another.number(), &raw mut set) };
    let none = std::ptr::null_mut();
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
    // SAFETY: a live set and a live time.
    let selected =
        unsafe { libc::select(another.number() + 1, &raw mut set, none, none, &raw mut time) };
    format!("{polled} {selected} {:?} {:?}", subject.found(), another.found())
}

pub(super) fn an_instance_within_another_is_reported_through_it(subject: &Subject) -> String {
    let inner = subject.another();
    let (mut reader, mut writer) = ready();
    inner.add(&reader, EPOLLIN, 1);
    subject.add(&inner, EPOLLIN, 2);
    let seen = [subject.found(), inner.found()];
    reader.read_exact(&mut [0]).expect("a byte");
    let emptied = [subject.soon(), inner.soon()];
    writer.write_all(b"x").expect("room");
    let again = [subject.found(), inner.found()];
    let deleted = subject.ctl(EPOLL_CTL_DEL, inner.number(), 0, 0);
    format!("{seen:?} {emptied:?} {again:?} {deleted} {:?}", subject.soon())
}

pub(super) fn an_instance_within_another_by_edge_is_reported_once(subject: &Subject) -> String {
    let inner = subject.another();
    let (reader, _writer) = ready();
    inner.add(&reader, EPOLLIN, 1);
    subject.add(&inner, EPOLLIN | EPOLLET, 2);
    format!("{:?} {:?}", subject.found(), subject.soon())
}

pub(super) fn files_without_readiness_are_refused(subject: &Subject) -> String {
    let refused = |path: &str, options: &mut std::fs::OpenOptions| {
        let file = options.open(path).expect("everywhere");
        [subject.add(&file, EPOLLIN, 1), subject.ctl(EPOLL_CTL_DEL, file.as_raw_fd(), 0, 0)]
    };
    let mut read = std::fs::OpenOptions::new();
    read.read(true);
    let mut seen: Vec<[i32; 2]> = ["/proc/self/exe", "/", "/dev/null", "/proc/self/mounts"]
        .map(|path| refused(path, &mut read))
        .into();
    use std::os::unix::fs::OpenOptionsExt;
    seen.push(refused("/", read.custom_flags(libc::O_PATH)));
    format!("{seen:?}")
}

pub(super) fn exclusive_goes_by_its_rules(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let alone = EPOLLIN | EPOLLEXCLUSIVE;
    let fd = reader.as_raw_fd();
    let refused = [
        subject.add(&reader, alone | EPOLLONESHOT, 1),
        subject.add(&reader, alone | libc::EPOLLPRI, 1),
        subject.add(&reader, alone | libc::EPOLLRDHUP, 1),
        subject.ctl(EPOLL_CTL_MOD, fd, alone as u32, 1),
    ];
    let added = subject.add(&reader, alone, 1);
    let modified = subject.ctl(EPOLL_CTL_MOD, fd, EPOLLIN as u32, 1);
    let seen = subject.found();
    format!("{refused:?} {added} {modified} {seen:?} {}", subject.ctl(EPOLL_CTL_DEL, fd, 0, 0))
}

/// Every operation on files of every kind, with and without what an event may have: each answer in
/// a line of its own. Registrations are set up anew before each.
pub(super) fn changes_are_refused_as_the_manual_says(subject: &Subject) -> String {
    let ((free, _w1), (level, _w2), (alone, _w3)) =
        (pipe().expect("a pipe"), pipe().expect("a pipe"), pipe().expect("a pipe"));
    let another = subject.another();
    let counter = eventfd();
    let file = |path: &str| File::open(path).expect("everywhere");
    let program = file("/proc/self/exe");
    let null = file("/dev/null");
    let epoll = subject.number();
    let files: [(&str, RawFd); 11] = [
        ("a pipe", free.as_raw_fd()),
        ("a registered pipe", level.as_raw_fd()),
        ("an exclusive pipe", alone.as_raw_fd()),
        ("an eventfd", counter.as_raw_fd()),
        ("itself", epoll),
        ("another instance", another.number()),
        ("a regular file", program.as_raw_fd()),
        ("/dev/null", null.as_raw_fd()),
        ("-1", -1),
        ("a closed number", 1 << 20),
        ("the lowest number", RawFd::MIN),
    ];
    let exclusive = EPOLLEXCLUSIVE as u32;
    let input = EPOLLIN as u32;
    let events = [
        Some(0),
        Some(input),
        Some(input | EPOLLET as u32),
        Some(input | EPOLLONESHOT as u32),
        Some(input | libc::EPOLLWAKEUP as u32),
        Some(input | 1 << 20),
        Some(exclusive),
        Some(exclusive | input | EPOLLET as u32 | EPOLLOUT as u32),
        Some(exclusive | libc::EPOLLERR as u32 | libc::EPOLLHUP as u32),
        Some(exclusive | input | EPOLLONESHOT as u32),
        Some(exclusive | libc::EPOLLPRI as u32),
        Some(exclusive | libc::EPOLLRDHUP as u32),
        Some(exclusive | libc::EPOLLRDNORM as u32),
        Some(u32::MAX),
        None,
    ];
    let mut seen = String::new();
    for (name, fd) in files {
        for op in [EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 0, 4, -1] {
            let answers = events.map(|events| {
                for (_, fd) in files {
                    ctl(epoll, EPOLL_CTL_DEL, fd, None);
                }
                assert_eq!(ctl(epoll, EPOLL_CTL_ADD, level.as_raw_fd(), Some((input, 1))), 0);
                let one = Some((input | exclusive, 1));
                assert_eq!(ctl(epoll, EPOLL_CTL_ADD, alone.as_raw_fd(), one), 0);
                ctl(epoll, op, fd, events.map(|events| (events, 2)))
            });
            writeln!(seen, "operation {op} on {name}: {answers:?}").expect("room");
        }
    }
    for (name, epoll) in [("a pipe", free.as_raw_fd()), ("-1", -1), ("a closed number", 1 << 20)] {
        let level = level.as_raw_fd();
        let answers = [
            ctl(epoll, EPOLL_CTL_ADD, level, Some((input, 1))),
            ctl(epoll, EPOLL_CTL_ADD, level, None),
            ctl(epoll, EPOLL_CTL_DEL, level, None),
            ctl(epoll, EPOLL_CTL_ADD, program.as_raw_fd(), Some((input, 1))),
            ctl(epoll, EPOLL_CTL_ADD, epoll, Some((input, 1))),
        ];
        writeln!(seen, "on {name} in the place of an instance: {answers:?}").expect("room");
    }
    seen
}

pub(super) fn waits_are_refused_as_the_manual_says(subject: &Subject) -> String {
    let (reader, _writer) = pipe().expect("a pipe");
    let mut seen = String::new();
    let mut room = [epoll_event { events: 0, u64: 0 }; ROOM];
    let first = room.as_mut_ptr();
    let instances = [subject.number(), reader.as_raw_fd(), -1, 1 << 20]
        .map(|epoll| (epoll == subject.number(), epoll));
    for (is_one, epoll) in instances {
        for most in [0, -1, c_int::MIN, 1, ROOM as c_int, c_int::MAX / 12 + 1, c_int::MAX] {
            // SAFETY: nothing is ready, so nothing is written.
            let wait = answered(unsafe { calls::pwait(epoll, first, most, 0, std::ptr::null()) });
            writeln!(seen, "{most} events ({is_one}): {wait:?}").expect("room");
        }
        for (tv_sec, tv_nsec) in [(0, 1_000_000_000), (-1, 0), (0, -1), (0, 999_999)] {
            for most in [1, 0] {
                let time = timespec { tv_sec, tv_nsec };
                let no_mask = std::ptr::null();
                // SAFETY: nothing is ready, so nothing is written; the time is live.
                let wait = unsafe { calls::pwait2(epoll, first, most, &raw const time, no_mask) };
                let wait = answered(wait);
                writeln!(seen, "{tv_sec} s {tv_nsec} ns, {most} ({is_one}): {wait:?}")
                    .expect("room");
            }
        }
    }
    seen
}

pub(super) fn instances_are_refused_as_the_manual_says(subject: &Subject) -> String {
    let flags = [1, libc::EPOLL_CLOEXEC | 1, -1, libc::O_NONBLOCK];
    format!("{:?}", flags.map(|flags| subject.refused(flags)))
}

/// Whether the end of a wait comes neither before its time nor much later, and whether one without an end
/// returns what is ready.
pub(super) fn a_wait_lasts_as_long_as_it_was_asked_to(subject: &Subject) -> String {
    let epoll = subject.number();
    let mut room = [epoll_event { events: 0, u64: 0 }; ROOM];
    let first = room.as_mut_ptr();
    let no_mask = std::ptr::null();
    let lasts = |time: Duration, wait: &mut dyn FnMut() -> c_int| {
        let start = Instant::now();
        // A ring that a script before closed tidies up in this thread, which ends a wait on the kernel's epoll.
        let mut found = answered(wait());
        while found == Err(libc::EINTR) {
            found = answered(wait());
        }
        (found, start.elapsed() >= time, start.elapsed() < time + Duration::from_secs(5))
    };
    let mut seen = Vec::new();
    for ms in [0, 1, 35] {
        // SAFETY: nothing is ready, so nothing is written.
        let mut wait = || unsafe { calls::pwait(epoll, first, 1, ms, no_mask) };
        seen.push(lasts(Duration::from_millis(ms.unsigned_abs().into()), &mut wait));
    }
    for tv_nsec in [1, 300_000, 2_100_000] {
        let time = timespec { tv_sec: 0, tv_nsec };
        // SAFETY: as above; the time is live.
        let mut wait = || unsafe { calls::pwait2(epoll, first, 1, &raw const time, no_mask) };
        seen.push(lasts(Duration::from_nanos(tv_nsec.unsigned_abs()), &mut wait));
    }
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    for ms in [-1, -5, c_int::MIN, c_int::MAX] {
        // SAFETY: room for so many events.
        let mut wait = || unsafe { calls::pwait(epoll, first, ROOM as c_int, ms, no_mask) };
        seen.push(lasts(Duration::ZERO, &mut wait));
    }
    for tv_sec in [1 << 40, i64::MAX] {
        let time = timespec { tv_sec, tv_nsec: 999_999_999 };
        // SAFETY: as above; the time is live.
        let mut wait = || unsafe { calls::pwait2(epoll, first, 1, &raw const time, no_mask) };
        seen.push(lasts(Duration::ZERO, &mut wait));
    }
    // SAFETY: as above; no time.
    let mut wait = || unsafe { calls::pwait2(epoll, first, 1, std::ptr::null(), no_mask) };
    seen.push(lasts(Duration::ZERO, &mut wait));
    format!("{seen:?}")
}

pub(super) fn nesting_ends_where_the_manual_says(subject: &Subject) -> String {
    let input = Some((EPOLLIN as u32, 1));
    let chain: Vec<Subject> = (0..8).map(|_| subject.another()).collect();
    let links: Vec<i32> = chain
        .windows(2)
        .map(|pair| ctl(pair[1].number(), EPOLL_CTL_ADD, pair[0].number(), input))
        .collect();
    let circle = ctl(chain[0].number(), EPOLL_CTL_ADD, chain[2].number(), input);
    let itself = ctl(chain[0].number(), EPOLL_CTL_ADD, chain[0].number(), input);
    format!("{links:?} {circle} {itself}")
}

/// NULL in the place of room for events: while nothing is ready, and once something is.
pub(super) fn a_null_buffer_is_accepted_while_nothing_is_ready(subject: &Subject) -> String {
    let wait = || {
        let nothing = std::ptr::null_mut();
        let no_mask = std::ptr::null();
        // SAFETY: NULL is judged by the callee.
        answered(unsafe { calls::pwait(subject.number(), nothing, 1, 0, no_mask) })
    };
    let empty = wait();
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    format!("{empty:?} {:?} {:?}", wait(), subject.found())
}

/// What becomes of a process whose event lies at an address that is not mapped.
pub(super) fn a_pointer_into_nothing_is_efault(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    // SAFETY: the child makes one call and ends; the library sees to its locks.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a live record.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
        let nowhere = std::ptr::without_provenance_mut(8);
        // SAFETY: none: that is what the script is about.
        let added =
            unsafe { calls::ctl(subject.number(), EPOLL_CTL_ADD, reader.as_raw_fd(), nowhere) };
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(answered(added).err().unwrap_or(0)) };
    }
    let mut status = 0;
    // SAFETY: writes to a live local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    format!("code {:?}", libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)))
}
