//! What a program calls between two waits: timed, and held against what events said.
//!
//! The functions that may sleep are here so that a turn which blocks can be explained. The variants
//! that check the length of a buffer are those of programs built with `_FORTIFY_SOURCE`.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use libc::{
    addrinfo, clockid_t, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd, sigset_t,
    size_t, sockaddr, socklen_t, ssize_t, timespec, timeval, useconds_t,
};
use pollux_loop_stats::{Call, Cell as Tally, Counter, Site};

use crate::attach;
use crate::descriptors::{self, Met};
use crate::emulation;
use crate::names::taken;
use crate::real::{errno, real, unknown};
use crate::thread::{THREAD, Thread, ticks};

/// What a call did.
struct Did<'a> {
    thread: &'a Thread,
    tally: Option<Tally<'static>>,
    fd: c_int,
    result: ssize_t,
    caller: u64,
}

/// Takes names whose calls are timed. Behind the arrow stands what is made of the result, with the bytes that
/// were given where something is written.
macro_rules! timed {
    ($($name:ident / $count:tt ($($arg:ident: $type:ty),*) -> $ret:ty, $call:ident($fd:expr) => $then:ident$(($given:expr))?;)+) => {
        $(taken! { $name / $count ($($arg: $type),*; caller) -> $ret {
            let Some(real) = real!($name: fn($($type),*) -> $ret) else { return unknown() as $ret };
            if !attach::is_counted() {
                // SAFETY: the caller's own arguments.
                return unsafe { real($($arg),*) };
            }
            THREAD.with(|thread| {
                let tally = thread.tally();
                let began = tally.map(|_| ticks());
                // SAFETY: the caller's own arguments.
                let result = unsafe { real($($arg),*) };
                let (fd, caller): (c_int, u64) = ($fd, caller as u64);
                thread.counting(stringify!($name), || {
                    if let Some(began) = began {
                        thread.called(Call::$call, fd, caller, began, ticks());
                    }
                    let did = Did { thread, tally, fd, result: result as ssize_t, caller };
                    did.$then($(if result < 0 { 0 } else { $given })?);
                });
                result
            })
        } })+
    };
}

timed! {
    read / 3 (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t, Read(fd) => read;
    __read_chk / 4 (fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t, Read(fd) => read;
    readv / 3 (fd: c_int, to: *const iovec, parts: c_int) -> ssize_t, Readv(fd) => read;
    recv / 4 (fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t, Recv(fd) => read;
    __recv_chk / 5 (fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t, Recv(fd) => read;
    recvfrom / 6 (fd: c_int, to: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t, Recvfrom(fd) => read;
    recvmsg / 3 (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, Recvmsg(fd) => read;
    recvmmsg / 5 (fd: c_int, messages: *mut mmsghdr, most: c_uint, flags: c_int, timeout: *mut timespec) -> c_int, Recvmmsg(fd) => read;
    pread / 4 (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t, Pread(fd) => nothing;
    pread64 / 4 (fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t, Pread(fd) => nothing;
    pwrite / 4 (fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t, Pwrite(fd) => nothing;
    pwrite64 / 4 (fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t, Pwrite(fd) => nothing;
    accept / 3 (fd: c_int, peer: *mut sockaddr, peer_len: *mut socklen_t) -> c_int, Accept(fd) => accepted;
    accept4 / 4 (fd: c_int, peer: *mut sockaddr, peer_len: *mut socklen_t, flags: c_int) -> c_int, Accept4(fd) => accepted;
    connect / 3 (fd: c_int, peer: *const sockaddr, peer_len: socklen_t) -> c_int, Connect(fd) => connected;
    fsync / 1 (fd: c_int) -> c_int, Fsync(fd) => nothing;
    fdatasync / 1 (fd: c_int) -> c_int, Fdatasync(fd) => nothing;
    flock / 2 (fd: c_int, operation: c_int) -> c_int, Flock(fd) => nothing;
    nanosleep / 2 (time: *const timespec, left: *mut timespec) -> c_int, Nanosleep(-1) => nothing;
    clock_nanosleep / 4 (clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int, ClockNanosleep(-1) => nothing;
    usleep / 1 (time: useconds_t) -> c_int, Usleep(-1) => nothing;
    sleep / 1 (time: c_uint) -> c_uint, Sleep(-1) => nothing;
    poll / 3 (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, Poll(-1) => nothing;
    __poll_chk / 4 (fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int, Poll(-1) => nothing;
    ppoll / 4 (fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int, Ppoll(-1) => nothing;
    select / 5 (count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval) -> c_int, Select(-1) => nothing;
    pselect / 6 (count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int, Pselect(-1) => nothing;
    waitpid / 3 (pid: pid_t, status: *mut c_int, options: c_int) -> pid_t, Waitpid(-1) => nothing;
    write / 3 (fd: c_int, from: *const c_void, len: size_t) -> ssize_t, Write(fd) => written(len);
    writev / 3 (fd: c_int, from: *const iovec, parts: c_int) -> ssize_t, Writev(fd) => written(sum(from, parts.unsigned_abs() as usize));
    send / 4 (fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t, Send(fd) => written(len);
    sendto / 6 (fd: c_int, from: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t, Sendto(fd) => written(len);
    sendmsg / 3 (fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, Sendmsg(fd) => written(of_message(message));
    sendmmsg / 4 (fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, Sendmmsg(fd) => written(count as usize);
    sendfile / 4 (fd: c_int, file: c_int, at: *mut off_t, len: size_t) -> ssize_t, Sendfile(fd) => written(len);
    sendfile64 / 4 (fd: c_int, file: c_int, at: *mut off_t, len: size_t) -> ssize_t, Sendfile(fd) => written(len);
    splice / 6 (from: c_int, from_at: *mut off_t, fd: c_int, at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t, Splice(fd) => written(len);
    getaddrinfo / 4 (node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo) -> c_int, Getaddrinfo(-1) => nothing;
}

taken! { close / 1 (fd: c_int; caller) -> c_int {
    let Some(real) = real!(close: fn(c_int) -> c_int) else { return unknown() };
    if !attach::is_counted() && !emulation::is_chosen() {
        // SAFETY: the caller's own argument.
        return unsafe { real(fd) };
    }
    let tally = THREAD.with(Thread::tally);
    // Before the call: behind it another thread may already have the number.
    freed("close", || descriptors::closed(fd), || emulation::closing(fd));
    let began = tally.map(|_| ticks());
    // SAFETY: the caller's own argument.
    let result = unsafe { real(fd) };
    if let Some(began) = began {
        let called = |thread: &Thread| thread.called(Call::Close, fd, caller as u64, began, ticks());
        THREAD.with(|thread| thread.counting("close", || called(thread)));
    }
    result
} }

taken! { close_range / 3 (first: c_uint, last: c_uint, flags: c_int; _caller) -> c_int {
    let Some(real) = real!(close_range: fn(c_uint, c_uint, c_int) -> c_int) else { return unknown() };
    let closes = flags.unsigned_abs() & libc::CLOSE_RANGE_CLOEXEC == 0;
    if closes {
        let forget = || descriptors::closed_range(first, last);
        freed("close_range", forget, || emulation::closing_range(first, last));
    }
    // SAFETY: the caller's own arguments.
    unsafe { real(first, last, flags) }
} }

taken! { closefrom / 1 (first: c_int; _caller) -> () {
    let Some(real) = real!(closefrom: fn(c_int) -> ()) else { return };
    let from = first.max(0).unsigned_abs();
    let forget = || descriptors::closed_range(from, c_uint::MAX);
    freed("closefrom", forget, || emulation::closing_range(from, c_uint::MAX));
    // SAFETY: the caller's own argument.
    unsafe { real(first) }
} }

taken! { dup / 1 (from: c_int; _caller) -> c_int {
    let Some(real) = real!(dup: fn(c_int) -> c_int) else { return unknown() };
    // SAFETY: the caller's own argument.
    let result = unsafe { real(from) };
    duplicated(from, result);
    result
} }

taken! { fcntl / 3 (fd: c_int, command: c_int, argument: c_ulong; _caller) -> c_int {
    let Some(real) = real!(fcntl: fn(c_int, c_int, c_ulong) -> c_int) else { return unknown() };
    // SAFETY: the caller's own arguments; a command without a third one ignores what stands there.
    let result = unsafe { real(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        duplicated(fd, result);
    }
    result
} }

taken! { fcntl64 / 3 (fd: c_int, command: c_int, argument: c_ulong; _caller) -> c_int {
    let Some(real) = real!(fcntl64: fn(c_int, c_int, c_ulong) -> c_int) else { return unknown() };
    // SAFETY: the caller's own arguments; a command without a third one ignores what stands there.
    let result = unsafe { real(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        duplicated(fd, result);
    }
    result
} }

taken! { dup2 / 2 (from: c_int, to: c_int; _caller) -> c_int {
    let Some(real) = real!(dup2: fn(c_int, c_int) -> c_int) else { return unknown() };
    replaced(from, to);
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(from, to) };
    duplicated(from, result);
    result
} }

taken! { dup3 / 3 (from: c_int, to: c_int, flags: c_int; _caller) -> c_int {
    let Some(real) = real!(dup3: fn(c_int, c_int, c_int) -> c_int) else { return unknown() };
    replaced(from, to);
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(from, to, flags) };
    duplicated(from, result);
    result
} }

/// A number is about to get another file.
fn replaced(from: c_int, to: c_int) {
    if to != from {
        freed("dup2", || descriptors::closed(to), || emulation::closing(to));
    }
}

/// Numbers are about to be free: what is known of them is forgotten, and instances are told.
fn freed(call: &str, forget: impl FnOnce(), tell: impl FnOnce()) {
    THREAD.with(|thread| {
        if thread.is_own() {
            thread.counting(call, forget);
            tell();
        }
    });
}

/// A file has a further number.
fn duplicated(from: c_int, to: c_int) {
    if to >= 0 && THREAD.with(Thread::is_own) {
        emulation::duplicated(from, to);
    }
}

/// The bytes of all parts of a write that the kernel took.
fn sum(parts: *const iovec, count: usize) -> usize {
    let len = |index| {
        // SAFETY: the kernel read so many parts at the address.
        let part = unsafe { parts.add(index) };
        // SAFETY: as above.
        unsafe { (*part).iov_len }
    };
    (0..count).map(len).sum()
}

/// The bytes of a message that the kernel took.
fn of_message(message: *const msghdr) -> usize {
    // SAFETY: the kernel read the message at the address.
    let message = unsafe { &*message };
    sum(message.msg_iov, message.msg_iovlen)
}

impl Did<'_> {
    fn would_block(&self) -> bool {
        self.result < 0 && errno() == libc::EAGAIN
    }

    fn nothing(&self) {}

    fn read(&self) {
        self.transferred(descriptors::read(self.fd, self.would_block()));
    }

    fn written(&self, given: usize) {
        let is_short = usize::try_from(self.result).is_ok_and(|written| written < given);
        self.transferred(descriptors::written(self.fd, self.would_block(), is_short));
    }

    fn transferred(&self, met: Met) {
        let Some(tally) = self.tally else { return };
        tally.count(Counter::Transfers);
        if matches!(met, Met::Nothing | Met::NothingAfterEvent) {
            tally.count(Counter::Again);
        }
        if met == Met::NothingAfterEvent {
            tally.count(Counter::AgainAfterEvent);
            tally.site(Site::AgainAfterEvent, self.caller);
        }
    }

    fn accepted(&self) {
        let met = descriptors::read(self.fd, self.would_block());
        if let Ok(fd) = c_int::try_from(self.result)
            && fd >= 0
        {
            // Whatever was known of the number was another file's.
            descriptors::closed(fd);
            let before = errno();
            self.thread.tally_or_claim().inspect(|tally| tally.count(Counter::Accepted));
            crate::real::set_errno(before);
        }
        let Some(tally) = self.tally else { return };
        match met {
            Met::SomethingAfterEvent if self.result >= 0 => tally.count(Counter::AcceptsWoken),
            Met::NothingAfterEvent => {
                tally.count(Counter::AcceptsEmpty);
                tally.site(Site::AcceptEmpty, self.caller);
            }
            _ => {}
        }
    }

    fn connected(&self) {
        if self.result < 0 && errno() == libc::EINPROGRESS {
            descriptors::connecting(self.fd);
        }
    }
}
