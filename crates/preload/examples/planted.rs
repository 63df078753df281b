//! The library with two more names, both of which panic: what counts in `getppid`, and what stands in the
//! place of the kernel's call in `getpgrp`. `tests/panics` puts it before a program.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[path = "../src/attach.rs"]
mod attach;
#[path = "../src/calls.rs"]
mod calls;
#[path = "../src/descriptors.rs"]
mod descriptors;
#[path = "../src/emulation.rs"]
mod emulation;
#[path = "../src/lives.rs"]
mod lives;
#[path = "../src/names.rs"]
mod names;
#[path = "../src/real.rs"]
mod real;
#[path = "../src/thread.rs"]
mod thread;
#[path = "../src/waits.rs"]
mod waits;

use libc::pid_t;

use crate::names::taken;
use crate::real::{real, unknown};
use crate::thread::THREAD;

taken! { getppid / 0 (; _caller) -> pid_t {
    let Some(real) = real!(getppid: fn() -> pid_t) else { return unknown() };
    // SAFETY: the call takes no arguments.
    let result = unsafe { real() };
    THREAD.with(|thread| thread.counting::<()>("getppid", || panic!("planted where it counts")));
    result
} }

taken! { getpgrp / 0 (; _caller) -> pid_t {
    let done = emulation::inside("getpgrp", || panic!("planted in place of the call"));
    emulation::answered(done).unwrap_or(0)
} }
