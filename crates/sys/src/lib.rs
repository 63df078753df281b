//! Typed, descriptor-safe wrappers for the kernel interfaces that no well-kept crate covers.
//!
//! Besides the C interfaces (`xatmi-c`, `epoll-c`, `preload`) and one block in `peer-polling`, the only crate of the
//! workspace with `unsafe`: every block holds one operation and names the fact that it relies on; every public
//! function is safe. The poller and the lab call it. It knows nothing of pollers, holds no policy and never retries on its own.

pub mod aio;
pub mod descriptors;
pub mod epoll;
pub mod futex;
pub mod mqueue;
pub mod perf;
pub mod poll_select;
pub mod process;
pub mod ring;
pub mod shared;
pub mod socket;
