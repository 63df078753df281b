//! Threads, signals, fork(2) and execve(2); what close(2), dup(2) and close_range(2) do to instances and
//! registrations.

use std::io::{ErrorKind, Read, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, c_int, c_uint, c_void, epoll_event,
    pthread_t, sigset_t,
};

use pollux_testing::uninterrupted;

use super::{Found, Subject, answered, at_number, ctl, eventfd, found_on, high_pipe, ready};
use crate::calls;

const SOON: Duration = Duration::from_millis(60);
/// What a loaded machine takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A further number, which a new program has too.
fn inheritable(fd: RawFd) -> OwnedFd {
    // SAFETY: makes a new number and touches no memory.
    let number = unsafe { libc::dup(fd) };
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// How a program becomes another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// By fork(2) and execve(2).
    Forked,
    /// By posix_spawn(3), which the standard library prefers.
    Spawned,
}

/// What a wait finds on the number in another program, which adds `more` before.
fn in_a_new_program(start: Start, epoll: RawFd, more: &[RawFd]) -> String {
    let words = [&[epoll], more].concat().iter().map(RawFd::to_string).collect::<Vec<_>>();
    let mut program = Command::new(std::env::current_exe().expect("the own path"));
    program.args(["--exact", NEW_PROGRAM]).env(NUMBERS, words.join(" "));
    if start == Start::Forked {
        // SAFETY: does nothing; a program with such a step is started by fork and exec.
        unsafe { program.pre_exec(|| Ok(())) };
    }
    let output = program.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = said.lines().find(|line| line.starts_with("found "));
    found.unwrap_or_else(|| panic!("{epoll}: {said}")).to_owned()
}

/// The test that [`in_a_new_program`] starts.
const NEW_PROGRAM: &str = "this_is_a_new_program";
const NUMBERS: &str = "POLLUX_TEST_NUMBERS";

/// Waits on the first of the numbers that were handed over, once the others were added, and says what came.
pub(crate) fn be_a_new_program() {
    let Ok(numbers) = std::env::var(NUMBERS) else { return };
    let mut numbers = numbers.split(' ').map(|number| number.parse::<RawFd>().expect("a number"));
    let epoll = numbers.next().expect("the instance");
    for fd in numbers {
        assert_eq!(ctl(epoll, EPOLL_CTL_ADD, fd, Some((EPOLLIN as u32, 7))), 0);
    }
    let found = found_on(epoll, SOON);
    let line = format!("\nfound {found:?}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("it is read");
}

pub(super) fn a_child_shares_the_instance(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let fd = reader.as_raw_fd();
    // SAFETY: the child makes a few system calls and ends; nothing of what it uses is locked by
    // another thread, which the library sees to.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let deleted = subject.ctl(EPOLL_CTL_DEL, fd, 0, 0);
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(deleted) };
    }
    let mut status = 0;
    // SAFETY: writes to a live local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    format!("{} {status} {:?}", ended == child, subject.soon())
}

fn registrations_in_a_new_program(subject: &Subject, start: Start) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let inherited = inheritable(subject.number());
    let there = in_a_new_program(start, inherited.as_raw_fd(), &[]);
    format!("{there} {:?}", subject.found())
}

pub(super) fn a_new_program_has_the_registrations(subject: &Subject) -> String {
    registrations_in_a_new_program(subject, Start::Forked)
}

pub(super) fn a_spawned_program_has_the_registrations(subject: &Subject) -> String {
    registrations_in_a_new_program(subject, Start::Spawned)
}

pub(super) fn a_new_program_can_use_the_number(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let inherited = inheritable(subject.number());
    let more = inheritable(reader.as_raw_fd());
    in_a_new_program(Start::Forked, inherited.as_raw_fd(), &[more.as_raw_fd()])
}

pub(super) fn a_number_with_cloexec_is_closed_in_a_new_program(subject: &Subject) -> String {
    // A high number, which the new program gives to nothing else.
    let closed = at_number(subject, 606);
    in_a_new_program(Start::Forked, closed.as_raw_fd(), &[])
}

/// Does `meanwhile` while another thread waits on an instance; what that found, or the errno.
pub(super) fn while_another_waits(epoll: RawFd, meanwhile: impl FnOnce()) -> Result<Found, i32> {
    thread::scope(|scope| {
        let (sender, tid) = channel();
        let waits = scope.spawn(move || {
            // SAFETY: takes no arguments.
            sender.send(unsafe { libc::gettid() }).expect("received");
            found_on(epoll, PATIENCE)
        });
        assert!(falls_asleep(tid.recv().expect("sent")), "the wait has ended");
        meanwhile();
        waits.join().expect("no panic")
    })
}

/// Waits until a thread of this process sleeps; false where it has ended instead.
pub(super) fn falls_asleep(tid: libc::pid_t) -> bool {
    let begun = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
        let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        match state {
            Some('S') => return true,
            // Joined by nobody yet, or gone.
            Some('Z' | 'X') | None => return false,
            Some(_) => {}
        }
        assert!(begun.elapsed() < PATIENCE, "thread {tid} does not sleep");
        pollux_testing::pause(begun);
    }
}

pub(super) fn what_another_thread_adds_ends_a_wait(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let found = while_another_waits(subject.number(), || {
        subject.add(&reader, EPOLLIN, 1);
    });
    format!("{found:?}")
}

pub(super) fn what_another_thread_deletes_is_silent(subject: &Subject) -> String {
    let ((silent, mut first), (reader, mut second)) = (pipe().expect(""), pipe().expect(""));
    subject.add(&silent, EPOLLIN, 1);
    subject.add(&reader, EPOLLIN, 2);
    let found = while_another_waits(subject.number(), || {
        subject.ctl(EPOLL_CTL_DEL, silent.as_raw_fd(), 0, 0);
        first.write_all(b"x").expect("room");
        second.write_all(b"x").expect("room");
    });
    format!("{found:?}")
}

pub(super) fn an_instance_that_is_closed_ends_no_wait(subject: &Subject) -> String {
    let (reader, mut writer) = pipe().expect("a pipe");
    let number = subject.another().into_number();
    let epoll = number.as_raw_fd();
    ctl(epoll, EPOLL_CTL_ADD, reader.as_raw_fd(), Some((EPOLLIN as u32, 1)));
    let found = while_another_waits(epoll, || {
        drop(number);
        writer.write_all(b"x").expect("room");
    });
    format!("{found:?}")
}

/// The signal of the next script alone.
const SIGNAL: c_int = libc::SIGUSR2;
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handle(_: c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// A wait with a mask that lets a signal through, then one with a mask that does not, each under way when
/// the signal comes: what they answered, and how often it was handled.
pub(super) fn a_signal_ends_a_wait_that_lets_it_through(subject: &Subject) -> String {
    // SAFETY: a set and an action consist of integers and addresses, for which zero is a value.
    let (mut one, none, mut action): (sigset_t, sigset_t, libc::sigaction) =
        unsafe { std::mem::zeroed() };
    // SAFETY: a live set and the number of a signal.
    unsafe { libc::sigaddset(&raw mut one, SIGNAL) };
    action.sa_sigaction = handle as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler only counts; the action is live.
    unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) };
    HANDLED.store(0, Ordering::Relaxed);
    let epoll = subject.number();
    let mut seen = Vec::new();
    // The second one ends by its timeout, on a busy machine perhaps before it was seen asleep.
    for (mask, timeouts_ms) in [(none, &[10_000][..]), (one, &[200, 2_000, 10_000])] {
        let mut answers = timeouts_ms.iter().filter_map(|timeout_ms| {
            thread::scope(|scope| {
                let (sender, tid) = channel();
                let waits = scope.spawn(move || {
                    // SAFETY: a live set; blocked in this thread but for the wait.
                    unsafe {
                        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const one, std::ptr::null_mut())
                    };
                    // SAFETY: takes no arguments.
                    sender.send(unsafe { libc::gettid() }).expect("received");
                    let mut room = [epoll_event { events: 0, u64: 0 }; 1];
                    // SAFETY: room for one event and a live set.
                    answered(unsafe {
                        calls::pwait(epoll, room.as_mut_ptr(), 1, *timeout_ms, &raw const mask)
                    })
                });
                let tid = tid.recv().expect("sent");
                let is_asleep = falls_asleep(tid);
                if is_asleep {
                    let pid = std::process::id();
                    // SAFETY: takes no pointer; a thread of this process.
                    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, SIGNAL) };
                }
                let answer = waits.join().expect("no panic");
                is_asleep.then_some(answer)
            })
        });
        let answer = answers.next().expect("a wait that is seen asleep");
        seen.push((answer, HANDLED.load(Ordering::Relaxed)));
    }
    format!("{seen:?}")
}

/// The instance of the thread that is cancelled, its number, and the timeout of its wait.
static CANCELLED: [AtomicI32; 3] = [AtomicI32::new(0), AtomicI32::new(0), AtomicI32::new(0)];

/// A thread whose only point of cancellation is a wait without an event. It holds nothing, and is not one of the
/// standard library's, which could not be cancelled.
extern "C-unwind" fn waits_once(_: *mut c_void) -> *mut c_void {
    // SAFETY: takes no arguments.
    CANCELLED[1].store(unsafe { libc::gettid() }, Ordering::Release);
    let mut room = [epoll_event { events: 0, u64: 0 }; 1];
    let no_mask = std::ptr::null();
    let epoll = CANCELLED[0].load(Ordering::Acquire);
    let timeout_ms = CANCELLED[2].load(Ordering::Acquire);
    // SAFETY: room for one event.
    unsafe { calls::pwait(epoll, room.as_mut_ptr(), 1, timeout_ms, no_mask) };
    std::ptr::null_mut()
}

pub(super) fn a_thread_is_cancelled_in_a_wait(subject: &Subject) -> String {
    // The crate libc has none of them for Linux, or not with a function that may unwind.
    unsafe extern "C" {
        fn pthread_create(
            thread: *mut pthread_t,
            attributes: *const c_void,
            start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
        fn pthread_cancel(thread: pthread_t) -> c_int;
    }
    // Where it is not cancelled it ends by its timeout, on a busy machine perhaps before it was seen asleep.
    let outcomes = [300, 3_000, 10_000].into_iter().find_map(|timeout_ms| {
        CANCELLED[0].store(subject.number(), Ordering::Release);
        CANCELLED[1].store(0, Ordering::Release);
        CANCELLED[2].store(timeout_ms, Ordering::Release);
        let mut thread = 0;
        let none = std::ptr::null_mut();
        // SAFETY: a live local, and a function of this type.
        let created = unsafe { pthread_create(&raw mut thread, none, waits_once, none) };
        let end = Instant::now() + PATIENCE;
        while CANCELLED[1].load(Ordering::Acquire) == 0 {
            assert!(Instant::now() < end, "it did not start");
            thread::yield_now();
        }
        let is_asleep = falls_asleep(CANCELLED[1].load(Ordering::Acquire));
        // SAFETY: a thread that was not joined.
        let cancelled = unsafe { pthread_cancel(thread) };
        let mut result = none;
        // SAFETY: as above, and a live local.
        let joined = unsafe { libc::pthread_join(thread, &raw mut result) };
        is_asleep.then_some((created, cancelled, joined, result.addr() == usize::MAX))
    });
    let (created, cancelled, joined, is_cancelled) = outcomes.expect("a wait that is seen asleep");
    format!("{created} {cancelled} {joined}, PTHREAD_CANCELED: {is_cancelled}")
}

/// Whether the peer of a socket reads its end. The kernel lets go of the file of a cancelled request some time
/// after the call that cancels it.
fn end_of(peer: &mut UnixStream) -> Result<usize, ErrorKind> {
    peer.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    read_in_time(peer)
}

/// What a socket with a time limit reads. EINTR is tried again: a call with such a limit may end so beside a ring that
/// several threads share, as the page says.
pub(super) fn read_in_time(peer: &mut UnixStream) -> Result<usize, ErrorKind> {
    uninterrupted(|| peer.read(&mut [0])).map_err(|error| error.kind())
}

/// What the peer of a closed socket sees.
fn after_close(subject: &Subject, is_deleted: bool) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    if is_deleted {
        subject.ctl(EPOLL_CTL_DEL, ours.as_raw_fd(), 0, 0);
    }
    drop(ours);
    let after = subject.soon();
    let read = end_of(&mut peer);
    format!("{before:?} {after:?} {read:?}")
}

pub(super) fn a_file_closed_without_del_is_closed(subject: &Subject) -> String {
    after_close(subject, false)
}

pub(super) fn a_file_closed_after_del_is_closed(subject: &Subject) -> String {
    after_close(subject, true)
}

pub(super) fn a_number_used_again_without_add_is_silent(subject: &Subject) -> String {
    let (reader, _writer) = high_pipe(600);
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    drop(reader);
    let (other, _other) = ready();
    let _other = at_number(&other, 600);
    format!("{before:?} {:?}", subject.soon())
}

pub(super) fn a_number_used_again_can_be_added(subject: &Subject) -> String {
    let (reader, writer) = high_pipe(601);
    subject.add(&reader, EPOLLIN, 1);
    drop((reader, writer));
    let (other, _other) = ready();
    let other = at_number(&other, 601);
    let modified = subject.ctl(EPOLL_CTL_MOD, other.as_raw_fd(), EPOLLIN as u32, 2);
    let deleted = subject.ctl(EPOLL_CTL_DEL, other.as_raw_fd(), 0, 0);
    let added = subject.add(&other, EPOLLIN, 3);
    format!("{modified} {deleted} {added} {:?}", subject.found())
}

pub(super) fn a_duplicate_keeps_a_registration(subject: &Subject) -> String {
    let (reader, mut writer) = high_pipe(602);
    let twin = reader.try_clone().expect("a duplicate");
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    drop(reader);
    writer.write_all(b"x").expect("room");
    let after = subject.soon();
    drop(twin);
    format!("{before:?} {after:?}")
}

pub(super) fn a_duplicate_is_a_registration_of_its_own(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let twin = reader.try_clone().expect("a duplicate");
    let added = [subject.add(&reader, EPOLLIN, 1), subject.add(&twin, EPOLLIN, 2)];
    let mut seen = subject.found();
    for _ in 0..20 {
        seen.extend(subject.found());
        seen.sort_unstable();
        seen.dedup();
        if seen.len() > 1 {
            break;
        }
    }
    subject.ctl(EPOLL_CTL_DEL, twin.as_raw_fd(), 0, 0);
    format!("{added:?} {seen:?} {:?}", subject.found())
}

pub(super) fn another_eventfd_of_the_number_is_another_file(subject: &Subject) -> String {
    let first = at_number(&eventfd(), 603);
    subject.add(&first, EPOLLIN, 1);
    drop(first);
    let second = at_number(&eventfd(), 603);
    format!("{}", subject.add(&second, EPOLLIN, 2))
}

/// What the peer of a socket sees, once `close` has closed the number of it that is registered.
fn after(subject: &Subject, close: impl FnOnce(RawFd)) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    close(ours.into_raw_fd());
    let after = subject.soon();
    let read = end_of(&mut peer);
    format!("{before:?} {after:?} {read:?}")
}

pub(super) fn a_file_closed_by_close_range_is_closed(subject: &Subject) -> String {
    after(subject, |fd| {
        let fd = c_uint::try_from(fd).expect("open");
        assert_eq!(close_range(fd, fd, 0), 0);
    })
}

pub(super) fn a_file_closed_by_fclose_is_closed(subject: &Subject) -> String {
    after(subject, |fd| {
        // SAFETY: a number of this script's alone, and a string.
        let stream = unsafe { libc::fdopen(fd, c"r+".as_ptr()) };
        assert!(!stream.is_null(), "a stream");
        // SAFETY: made above.
        assert_eq!(unsafe { libc::fclose(stream) }, 0);
    })
}

pub(super) fn a_file_that_dup2_replaced_is_closed(subject: &Subject) -> String {
    let (silent, _writer) = pipe().expect("a pipe");
    let mut number = -1;
    let seen = after(subject, |fd| {
        number = fd;
        // SAFETY: takes no pointer; the number is this script's.
        assert_eq!(unsafe { libc::dup2(silent.as_raw_fd(), fd) }, fd);
    });
    // SAFETY: it names a pipe of this script's.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    seen
}

pub(super) fn a_duplicate_of_an_instance_names_it(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let first = subject.another().into_number();
    let added = ctl(first.as_raw_fd(), EPOLL_CTL_ADD, reader.as_raw_fd(), IN);
    let twin = at_number(&first, 604);
    drop(first);
    let modified = ctl(604, EPOLL_CTL_MOD, reader.as_raw_fd(), Some((EPOLLIN as u32, 2)));
    let found = found_on(604, SOON);
    drop(twin);
    let closed = [ctl(604, EPOLL_CTL_DEL, reader.as_raw_fd(), None)];
    format!("{added} {modified} {found:?} {closed:?} {:?}", found_on(604, SOON))
}

pub(super) fn a_file_that_takes_the_number_of_an_instance_is_none(subject: &Subject) -> String {
    let (reader, writer) = ready();
    let number = subject.another().into_number();
    let epoll = number.as_raw_fd();
    let fd = reader.as_raw_fd();
    let added = ctl(epoll, EPOLL_CTL_ADD, fd, IN);
    // SAFETY: takes no pointer; the number is this script's.
    let replaced = unsafe { libc::dup2(writer.as_raw_fd(), epoll) } == epoll;
    let used = [ctl(epoll, EPOLL_CTL_ADD, fd, IN), ctl(epoll, EPOLL_CTL_DEL, fd, None)];
    format!("{added} {replaced} {used:?} {:?}", found_on(epoll, SOON))
}

pub(super) fn an_instance_at_the_number_of_another_is_empty(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let first = at_number(&subject.another().into_number(), 605);
    let added = ctl(605, EPOLL_CTL_ADD, reader.as_raw_fd(), IN);
    let seen = found_on(605, SOON);
    drop(first);
    let _second = at_number(&subject.another().into_number(), 605);
    let empty = found_on(605, SOON);
    let again = ctl(605, EPOLL_CTL_ADD, reader.as_raw_fd(), IN);
    format!("{added} {seen:?} {empty:?} {again} {:?}", found_on(605, SOON))
}

/// Calls that close nothing, as what they are asked for cannot be: an instance and its registrations
/// are as before.
pub(super) fn calls_that_fail_close_nothing(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let mut seen = Vec::new();
    for fd in [subject.number(), reader.as_raw_fd()] {
        let unsigned = c_uint::try_from(fd).expect("open");
        // SAFETY: takes no pointer, and the first number is that of no file.
        seen.push(answered(unsafe { libc::dup2(-1, fd) }));
        // SAFETY: as above.
        seen.push(answered(unsafe { libc::dup3(-1, fd, 0) }));
        // SAFETY: takes no pointer; the flag is none.
        seen.push(answered(unsafe { libc::dup3(0, fd, 1) }));
        // SAFETY: takes no pointer; both numbers are the same.
        seen.push(answered(unsafe { libc::dup3(fd, fd, 0) }));
        // SAFETY: as above: dup2(2) answers with the number.
        seen.push(answered(unsafe { libc::dup2(fd, fd) }).map(|number| usize::from(number == 0)));
        seen.push(answered(close_range(unsigned, unsigned, 1 << 10)));
        seen.push(answered(close_range(unsigned, unsigned - 1, 0)));
        seen.push(answered(close_range(unsigned, unsigned, CLOEXEC)));
    }
    format!("{seen:?} {:?}", subject.found())
}

/// CLOSE_RANGE_CLOEXEC of linux/close_range.h.
const CLOEXEC: c_int = 1 << 2;
const IN: Option<(u32, u64)> = Some((EPOLLIN as u32, 1));

pub(super) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // The C library's function, which the crate libc does not have.
    unsafe extern "C" {
        fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    }
    // SAFETY: takes no pointer; the numbers are those of the script.
    unsafe { close_range(first, last, flags) }
}
