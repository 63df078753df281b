//! bind(2) to a port that a process had which was killed.
//!
//! A ring of io_uring holds the sockets that it polls until the kernel has ended it, in a thread of its own: some
//! milliseconds longer than waitpid(2) knows its process. Listeners are watched otherwise; to do so with sockets of UDP
//! would be a system call more for each wait of a server. So a program on uring-poll that finds a port in use asks again
//! for a while, and a server that is started again has its port.

use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

use libc::{sockaddr, socklen_t};

use crate::names::{taken, unknown};
use crate::thread::{Thread, errno, set_errno};
use crate::{emulation, filters};

/// How long a port may be in use by a process that is gone: on a busy machine ten times of what is measured, and no
/// more than a program that finds its port taken may wait for the answer.
const FREE_WITHIN: Duration = Duration::from_millis(100);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

taken! { Emulation: bind / 3 (fd: c_int, address: *const sockaddr, len: socklen_t; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    let before = errno();
    // SAFETY: the caller's own arguments.
    let bind = || unsafe { real(fd, address, len) };
    let first = bind();
    let is_due = || emulation::is_on_rings() && !filters::is_set();
    if first == 0 || errno() != libc::EADDRINUSE || !is_due() {
        return first;
    }
    // SAFETY: the kernel has read the address.
    if !unsafe { names_a_port(address, len) } {
        set_errno(libc::EADDRINUSE);
        return first;
    }
    again(bind, before)
} }

/// Asks again while the port is in use, and time is left.
fn again(bind: impl Fn() -> c_int, before: c_int) -> c_int {
    let thread = Thread::here();
    let end = Instant::now() + FREE_WITHIN;
    loop {
        thread.inside(|| thread::sleep(PAUSE));
        let result = bind();
        if result == 0 {
            set_errno(before);
            return result;
        }
        if errno() != libc::EADDRINUSE || Instant::now() >= end {
            return result;
        }
    }
}

/// Whether an address is one of IPv4 or IPv6 with a port that the program chose: the kernel's own choice finds none in
/// use only where all are, and names of unix sockets are files.
///
/// # Safety
/// `address` leads to an address of `len` bytes.
unsafe fn names_a_port(address: *const sockaddr, len: socklen_t) -> bool {
    // What both begin with: family and port.
    type Begin = [u16; 2];
    if (len as usize) < size_of::<Begin>() {
        return false;
    }
    // SAFETY: the caller's promise, and it is as long.
    let [family, port] = unsafe { address.cast::<Begin>().read_unaligned() };
    matches!(c_int::from(family), libc::AF_INET | libc::AF_INET6) && port != 0
}
