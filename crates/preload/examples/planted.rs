//! The library with two more names, both of which panic: what counts in `getppid`, and what stands in the
//! place of the kernel's call in `getpgrp`. `tests/plain_names/main.rs` puts it before a program.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[path = "../src/attach.rs"]
mod attach;
#[path = "../src/calls.rs"]
mod calls;
#[path = "../src/descriptors.rs"]
mod descriptors;
#[path = "../src/emulation.rs"]
mod emulation;
#[path = "../src/filters.rs"]
mod filters;
#[path = "../src/kernel.rs"]
mod kernel;
#[path = "../src/locks.rs"]
mod locks;
#[path = "../src/lockup.rs"]
mod lockup;
#[path = "../src/names.rs"]
mod names;
#[path = "../src/past.rs"]
mod past;
#[path = "../src/ports.rs"]
mod ports;
#[path = "../src/rings.rs"]
mod rings;
#[path = "../src/syscall.rs"]
mod syscall;
#[path = "../src/thread.rs"]
mod thread;
#[path = "../src/turn.rs"]
mod turn;
#[path = "../src/waits.rs"]
mod waits;

use libc::pid_t;

use crate::names::{taken, unknown};
use crate::thread::Thread;

taken! { Both: getppid / 0 (; _caller) -> pid_t {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the call takes no arguments.
    let result = unsafe { real() };
    Thread::here().counting::<()>("getppid", || panic!("planted where it counts"));
    result
} }

taken! { Both: getpgrp / 0 (; _caller) -> pid_t {
    let done = emulation::inside("getpgrp", || panic!("planted in place of the call"));
    // SAFETY: the call takes no arguments.
    emulation::answered(done).or_else(|| real().map(|real| unsafe { real() })).unwrap_or(0)
} }
