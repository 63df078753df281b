//! What a program calls between two waits: timed, and held against what events said; and by what it becomes
//! another program.
//!
//! The functions that may sleep are here so that a turn which blocks can be explained. The variants
//! that check the length of a buffer are those of programs built with `_FORTIFY_SOURCE`.
//!
//! A child of vfork(2) shares the memory of its parent: until the child is gone or another program, its calls are
//! not counted. Forks are seen in `names.rs`.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    FILE, addrinfo, clockid_t, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval, useconds_t,
};
use pollux_sys::loop_stats::{Call, Counter, Site};

use crate::descriptors::{self, Met};
use crate::names::{look_up, taken, unknown};
use crate::thread::{Thread, errno, set_errno};
use crate::turn::Outcome;
use crate::{attach, emulation, filters, rings};

/// Takes names whose calls are timed. Behind the arrow stands what is made of the result, with the bytes that
/// were given where something is written.
macro_rules! timed {
    ($($name:ident / $count:tt ($($arg:ident: $type:ty),*) -> $ret:ty, $call:ident($fd:expr) => $then:ident$(($given:expr))?;)+) => {
        $(timed! { Counting, {}; $name / $count ($($arg: $type),*) -> $ret, $call($fd) => $then$(($given))?; })+
    };
    // With what is done before.
    ($for:ident, $before:block; $name:ident / $count:tt ($($arg:ident: $type:ty),*) -> $ret:ty, $call:ident($fd:expr) => $then:ident$(($given:expr))?;) => {
        taken! { $for: $name / $count ($($arg: $type),*; caller) -> $ret {
            let Some(real) = real() else { return unknown() as $ret };
            $before
            let thread = NAME.thread();
            let began = thread.begin();
            // SAFETY: the caller's own arguments.
            let result = unsafe { real($($arg),*) };
            let outcome = $then(result as ssize_t $(, if result < 0 { 0 } else { $given })?);
            thread.end(Call::$call, $fd, caller as u64, began, outcome);
            result
        } }
    };
}

timed! {
    read / 3 (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t, Read(fd) => outcome_of_read;
    __read_chk / 4 (fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t, Read(fd) => outcome_of_read;
    readv / 3 (fd: c_int, to: *const iovec, parts: c_int) -> ssize_t, Readv(fd) => outcome_of_read;
    recv / 4 (fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t, Recv(fd) => outcome_of_read;
    __recv_chk / 5 (fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t, Recv(fd) => outcome_of_read;
    recvfrom / 6 (fd: c_int, to: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t, Recvfrom(fd) => outcome_of_read;
    recvmsg / 3 (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, Recvmsg(fd) => outcome_of_read;
    recvmmsg / 5 (fd: c_int, messages: *mut mmsghdr, most: c_uint, flags: c_int, timeout: *mut timespec) -> c_int, Recvmmsg(fd) => outcome_of_read;
    pread / 4 (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t, Pread(fd) => outcome_of_none;
    pread64 / 4 (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t, Pread(fd) => outcome_of_none;
    pwrite / 4 (fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t, Pwrite(fd) => outcome_of_none;
    pwrite64 / 4 (fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t, Pwrite(fd) => outcome_of_none;
    connect / 3 (fd: c_int, peer: *const sockaddr, peer_len: socklen_t) -> c_int, Connect(fd) => outcome_of_connect;
    fsync / 1 (fd: c_int) -> c_int, Fsync(fd) => outcome_of_none;
    fdatasync / 1 (fd: c_int) -> c_int, Fdatasync(fd) => outcome_of_none;
    flock / 2 (fd: c_int, operation: c_int) -> c_int, Flock(fd) => outcome_of_none;
    nanosleep / 2 (time: *const timespec, left: *mut timespec) -> c_int, Nanosleep(-1) => outcome_of_none;
    clock_nanosleep / 4 (clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int, ClockNanosleep(-1) => outcome_of_none;
    usleep / 1 (time: useconds_t) -> c_int, Usleep(-1) => outcome_of_none;
    sleep / 1 (time: c_uint) -> c_uint, Sleep(-1) => outcome_of_none;
    waitpid / 3 (pid: pid_t, status: *mut c_int, options: c_int) -> pid_t, Waitpid(-1) => outcome_of_none;
    write / 3 (fd: c_int, from: *const c_void, len: size_t) -> ssize_t, Write(fd) => outcome_of_write(len);
    writev / 3 (fd: c_int, from: *const iovec, parts: c_int) -> ssize_t, Writev(fd) => outcome_of_write(sum(from, parts.unsigned_abs() as usize));
    send / 4 (fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t, Send(fd) => outcome_of_write(len);
    sendto / 6 (fd: c_int, from: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t, Sendto(fd) => outcome_of_write(len);
    sendmsg / 3 (fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, Sendmsg(fd) => outcome_of_write(of_message(message));
    sendmmsg / 4 (fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, Sendmmsg(fd) => outcome_of_write(count as usize);
    sendfile / 4 (fd: c_int, file: c_int, at: *mut off_t, len: size_t) -> ssize_t, Sendfile(fd) => outcome_of_write(len);
    sendfile64 / 4 (fd: c_int, file: c_int, at: *mut off_t, len: size_t) -> ssize_t, Sendfile(fd) => outcome_of_write(len);
    splice / 6 (from: c_int, from_at: *mut off_t, fd: c_int, at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t, Splice(fd) => outcome_of_write(len);
    getaddrinfo / 4 (node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo) -> c_int, Getaddrinfo(-1) => outcome_of_none;
}

pub(crate) use timed;

// An instance among the descriptors becomes an epoll of the kernel's, which alone can be looked at so.
timed! { Both, { emulation::polled(fds, count) }; poll / 3 (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, Poll(-1) => outcome_of_none; }
timed! { Both, { emulation::polled(fds, count) }; __poll_chk / 4 (fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int, Poll(-1) => outcome_of_none; }
timed! { Both, { emulation::polled(fds, count) }; ppoll / 4 (fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int, Ppoll(-1) => outcome_of_none; }
timed! { Both, { emulation::polled(fds, count) }; __ppoll_chk / 5 (fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int, Ppoll(-1) => outcome_of_none; }
timed! { Both, { emulation::selected(count, [reads, writes, others]) }; select / 5 (count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval) -> c_int, Select(-1) => outcome_of_none; }
timed! { Both, { emulation::selected(count, [reads, writes, others]) }; pselect / 6 (count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int, Pselect(-1) => outcome_of_none; }

/// Takes the names of accept.
macro_rules! accepting {
    ($($name:ident / $count:tt ($fd:ident: c_int $(, $arg:ident: $type:ty)*), $call:ident;)+) => {
        $(taken! { Counting: $name / $count ($fd: c_int $(, $arg: $type)*; caller) -> c_int {
            let Some(real) = real() else { return unknown() };
            let thread = NAME.thread();
            let began = thread.begin();
            // SAFETY: the caller's own arguments.
            let result = unsafe { real($fd $(, $arg)*) };
            let before = errno();
            thread.end(Call::$call, $fd, caller as u64, began, Outcome::None);
            thread.counting(stringify!($name), || accepted(thread, $fd, caller as u64, began, result));
            set_errno(before);
            result
        } })+
    };
}

accepting! {
    accept / 3 (fd: c_int, peer: *mut sockaddr, peer_len: *mut socklen_t), Accept;
    accept4 / 4 (fd: c_int, peer: *mut sockaddr, peer_len: *mut socklen_t, flags: c_int), Accept4;
}

taken! { Both: close / 1 (fd: c_int; caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    if is_held(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    closing(fd);
    let thread = NAME.thread();
    let began = thread.begin();
    // SAFETY: the caller's own argument.
    let result = unsafe { real(fd) };
    thread.end(Call::Close, fd, caller as u64, began, Outcome::None);
    result
} }

taken! { Both: close_range / 3 (first: c_uint, last: c_uint, flags: c_int; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own arguments, or a part of the range.
    close_range_by(first, last, flags, |first, last| unsafe { real(first, last, flags) })
} }

/// Whether a number is this library's own, so that it is closed to the program.
pub(crate) fn is_held(fd: c_int) -> bool {
    u32::try_from(fd).is_ok_and(|fd| !emulation::held(fd, fd).is_empty())
}

/// close_range(2), in parts that `close` closes.
pub(crate) fn close_range_by(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    mut close: impl FnMut(c_uint, c_uint) -> c_int,
) -> c_int {
    closing_range(first, last, flags);
    let mut result = 0;
    beside_held(first, last, |first, last| result = result.min(close(first, last)));
    result
}

/// Closes a range in parts, around the numbers that are this library's own.
fn beside_held(first: c_uint, last: c_uint, mut close: impl FnMut(c_uint, c_uint)) {
    let mut from = first;
    for held in emulation::held(first, last) {
        let held = held.unsigned_abs();
        if held > from {
            close(from, held - 1);
        }
        from = held + 1;
    }
    // A range that is none the kernel refuses itself.
    if from <= last || from == first {
        close(from, last);
    }
}

/// A number is about to be closed: said before, as behind it another thread may already have the number.
pub(crate) fn closing(fd: c_int) {
    freed("close", || forget(fd), || emulation::closing(fd));
}

/// The same for close_range(2). Flags that the kernel does not know are refused, and nothing is closed.
fn closing_range(first: c_uint, last: c_uint, flags: c_int) {
    if flags.unsigned_abs() & !libc::CLOSE_RANGE_UNSHARE == 0 {
        freed(
            "close_range",
            || forget_range(first, last),
            || emulation::closing_range(first, last),
        );
    }
}

/// A number is about to be closed by a ring.
pub(crate) fn closing_by_ring(fd: c_int, closes: rings::Closes) {
    match closes {
        rings::Closes::Now => closing(fd),
        rings::Closes::Later => freed("close", || forget(fd), || ()),
    }
}

fn forget(fd: c_int) {
    Thread::here().turn.closed(fd);
    descriptors::closed(fd);
    rings::closing(fd);
}

fn forget_range(first: c_uint, last: c_uint) {
    descriptors::closed_range(first, last);
    rings::closing_range(first, last);
}

taken! { Both: closefrom / 1 (first: c_int; _caller) -> () {
    let Some(real) = real() else { return };
    let from = first.max(0).unsigned_abs();
    freed("closefrom", || forget_range(from, c_uint::MAX), || emulation::closing_range(from, c_uint::MAX));
    beside_held(from, c_uint::MAX, |first, last| {
        if last == c_uint::MAX {
            // Numbers are not negative.
            let first = c_int::try_from(first).unwrap_or(c_int::MAX);
            // SAFETY: the caller's own argument, or what is behind the last number of this library.
            unsafe { real(first) };
        } else {
            let number = libc::SYS_close_range;
            // Where the kernel is older than it, these stay open.
            let _ = emulation::inside("closefrom", || {
                // SAFETY: takes no pointer; a part of the caller's own range.
                Ok(unsafe { libc::syscall(number, first, last, 0) })
            });
        }
    });
} }

/// The number of a stream, which is about to be closed; -1 for a stream in memory, which has none.
///
/// # Safety
/// The stream is open.
unsafe fn closing_of(stream: *mut FILE) -> c_int {
    let before = errno();
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::fileno(stream) };
    set_errno(before);
    if fd >= 0 {
        closing(fd);
    }
    fd
}

/// Takes names that close the number of a stream.
macro_rules! closing_stream {
    ($($name:ident $call:ident),+) => {
        $(taken! { Both: $name / 1 (stream: *mut FILE; caller) -> c_int {
            let Some(real) = real() else { return unknown() };
            // SAFETY: the caller's own argument, which is a stream that is open.
            let fd = unsafe { closing_of(stream) };
            let thread = NAME.thread();
            let began = thread.begin();
            // SAFETY: the caller's own argument.
            let result = unsafe { real(stream) };
            thread.end(Call::$call, fd, caller as u64, began, Outcome::None);
            result
        } })+
    };
}

closing_stream! { fclose Close, pclose Waitpid }

/// Takes names that open another file in the place of a stream's, by its number as a rule.
macro_rules! reopening {
    ($($name:ident),+) => {
        $(taken! { Both: $name / 3 (path: *const c_char, mode: *const c_char, stream: *mut FILE; _caller) -> *mut FILE {
            let Some(real) = real() else {
                unknown();
                return std::ptr::null_mut();
            };
            // SAFETY: the caller's own argument, which is a stream that is open.
            unsafe { closing_of(stream) };
            // SAFETY: the caller's own arguments.
            unsafe { real(path, mode, stream) }
        } })+
    };
}

reopening! { freopen, freopen64 }

taken! { Emulation: dup / 1 (from: c_int; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own argument.
    let result = unsafe { real(from) };
    duplicated(from, result);
    result
} }

taken! { Emulation: fcntl / 3 (fd: c_int, command: c_int, argument: c_ulong; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own arguments; a command without a third one ignores what stands there.
    let result = unsafe { real(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        duplicated(fd, result);
    }
    result
} }

taken! { Emulation: fcntl64 / 3 (fd: c_int, command: c_int, argument: c_ulong; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own arguments; a command without a third one ignores what stands there.
    let result = unsafe { real(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        duplicated(fd, result);
    }
    result
} }

taken! { Both: dup2 / 2 (from: c_int, to: c_int; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    replaced(from, to, 0);
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(from, to) };
    duplicated(from, result);
    result
} }

taken! { Both: dup3 / 3 (from: c_int, to: c_int, flags: c_int; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    replaced(from, to, flags);
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(from, to, flags) };
    duplicated(from, result);
    result
} }

/// A number is about to get another file, unless the kernel refuses that.
pub(crate) fn replaced(from: c_int, to: c_int, flags: c_int) {
    let before = errno();
    // SAFETY: F_GETFD takes no pointer and changes nothing.
    let is_open = filters::is_set() || unsafe { libc::fcntl(from, libc::F_GETFD) } >= 0;
    set_errno(before);
    if is_open && to != from && flags & !libc::O_CLOEXEC == 0 {
        freed("dup2", || forget(to), || emulation::closing(to));
    }
}

/// Numbers are about to be free: what is known of them is forgotten, and instances are notified.
fn freed(call: &str, forget: impl FnOnce(), notify: impl FnOnce()) {
    let thread = Thread::here();
    if thread.is_own() {
        let before = errno();
        thread.counting(call, || {
            thread.settle();
            forget();
        });
        notify();
        set_errno(before);
    }
}

/// A file has a further number.
pub(crate) fn duplicated(from: c_int, to: c_int) {
    if to >= 0 && Thread::here().is_own() {
        emulation::duplicated(from, to);
    }
}

/// The bytes of all parts of a write that the kernel took.
pub(crate) fn sum(parts: *const iovec, count: usize) -> usize {
    let len = |index| {
        // SAFETY: the kernel read so many parts at the address.
        let part = unsafe { parts.add(index) };
        // SAFETY: as above.
        unsafe { (*part).iov_len }
    };
    (0..count).map(len).sum()
}

/// The bytes of a message that the kernel took.
pub(crate) fn of_message(message: *const msghdr) -> usize {
    // SAFETY: the kernel read the message at the address.
    let message = unsafe { &*message };
    sum(message.msg_iov, message.msg_iovlen)
}

#[inline]
fn would_block(result: ssize_t) -> bool {
    result < 0 && errno() == libc::EAGAIN
}

#[inline]
pub(crate) fn outcome_of_none(_: ssize_t) -> Outcome {
    Outcome::None
}

#[inline]
pub(crate) fn outcome_of_read(result: ssize_t) -> Outcome {
    if would_block(result) { Outcome::ReadNothing } else { Outcome::Read }
}

#[inline]
pub(crate) fn outcome_of_write(result: ssize_t, given: usize) -> Outcome {
    match usize::try_from(result) {
        Ok(written) if written < given => Outcome::WrittenShort,
        Err(_) if would_block(result) => Outcome::WrittenNothing,
        _ => Outcome::Written,
    }
}

#[inline]
pub(crate) fn outcome_of_connect(result: ssize_t) -> Outcome {
    let is_under_way = result < 0 && errno() == libc::EINPROGRESS;
    if is_under_way { Outcome::Connecting } else { Outcome::None }
}

/// Notes what accept returned.
pub(crate) fn accepted(thread: &Thread, listener: c_int, caller: u64, began: u64, result: c_int) {
    // Read before anything changes it: the number that is new may have been another file's.
    let would_block = would_block(result as ssize_t);
    thread.settle();
    let met = descriptors::read(listener, would_block);
    if result >= 0 {
        descriptors::closed(result);
        thread.tally_or_claim().inspect(|tally| tally.count(Counter::Accepted));
    }
    // A thread whose first call this is has not waited for it.
    let Some(tally) = thread.tally().filter(|_| began != 0) else { return };
    match met {
        Met::SomethingAfterEvent if result >= 0 => tally.count(Counter::AcceptsWoken),
        Met::NothingAfterEvent => {
            tally.count(Counter::AcceptsEmpty);
            tally.site(Site::AcceptEmpty, caller);
        }
        _ => {}
    }
}

/// Strings, the last of which is null.
pub(crate) type Words = *const *const c_char;

/// Takes names of exec(3): those whose number of arguments is given. Behind the arrow stands the environment of the
/// new program.
macro_rules! exec {
    ($($name:ident / $count:tt ($($arg:ident: $type:ty),*) => $environment:expr;)+) => {
        $(taken! { Both: $name / $count ($($arg: $type),*; _caller) -> c_int {
            let Some(real) = real() else { return unknown() };
            // SAFETY: the caller's own arguments.
            started($environment, || unsafe { real($($arg),*) })
        } })+
    };
}

exec! {
    execve / 3 (path: *const c_char, words: Words, environment: Words) => environment;
    execv / 2 (path: *const c_char, words: Words) => own();
    execvp / 2 (file: *const c_char, words: Words) => own();
    execvpe / 3 (file: *const c_char, words: Words, environment: Words) => environment;
    fexecve / 3 (fd: c_int, words: Words, environment: Words) => environment;
    execveat / 5 (folder: c_int, path: *const c_char, words: Words, environment: Words, flags: c_int) => environment;
}

/// Becomes another program, which may or may not be counted. The C library calls none of these names
/// itself.
pub(crate) fn started(environment: Words, exec: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: exec(3) asks for such an environment.
    let is_counted = attach::is_counted() && unsafe { attach::is_in(environment) };
    attach::starting(is_counted, || emulation::executed(exec))
}

/// The environment of this program.
fn own() -> Words {
    // The C library's variable, which the crate libc does not have.
    unsafe extern "C" {
        static environ: Words;
    }
    // SAFETY: a program that changes it while another thread executes it has lost already.
    unsafe { environ }
}

/// Returns the function to continue with; the parent's thread waits until its child is gone.
extern "C" fn before_vfork() -> *mut c_void {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    Thread::here().park();
    if REAL.load(Relaxed).is_null() {
        REAL.store(look_up(c"vfork"), Relaxed);
    }
    REAL.load(Relaxed)
}

/// vfork(2): continued with the stack as it was, since it returns twice.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        before = sym before_vfork,
    )
}

/// vfork(2): continued with the stack as it was, since it returns twice.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -16]!",
        "bl {before}",
        "ldp x29, x30, [sp], 16",
        "br x0",
        before = sym before_vfork,
    )
}
