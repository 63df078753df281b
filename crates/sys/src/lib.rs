//! Typed, descriptor-safe wrappers for the kernel interfaces that no well-kept crate covers.
//!
//! Besides the C interfaces (`xatmi-c`, `epoll-c`, `preload`) and one block in `peer-polling`, the only crate of the
//! workspace with `unsafe`: every block holds one operation and names the fact that it relies on; every public
//! function is safe. The poller and the lab call it. It knows nothing of pollers, holds no policy and never retries on its own.
//!
//! [`clock`] reads clocks, [`links`] follows symbolic links. Two modules stand on the others and hold no `unsafe`, which the compiler sees to: [`loop_stats`],
//! figures of a program in memory that it shares with its observer, and [`sandbox`], what a process gives up once it has
//! what it needs.

#![warn(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "pollux is for Linux on 64-bit little-endian machines (x86-64 is tested, aarch64 is compiled): no 32-bit, \
     big-endian or other system is supported"
);

pub mod aio;
pub mod clock;
pub mod descriptors;
pub mod epoll;
pub mod futex;
pub mod heap;
pub mod links;
pub mod loop_stats;
pub mod mqueue;
pub mod perf;
pub mod poll_select;
pub mod process;
pub mod ring;
pub mod sandbox;
pub mod shared;
pub mod socket;

/// The number of a system call, as this architecture has it.
pub type SystemCall = libc::c_long;
