//! The library that `pollux run` puts before the C library of a program (LD_PRELOAD, ld.so(8)).
//!
//! It takes the names of epoll and of what is called between two waits, passes each call on to the
//! kernel, and counts. Where another mechanism is chosen, the calls of epoll go to `pollux-epoll-c`. The
//! program sees the same results and the same errno; no descriptor of it is kept, nothing is printed, and
//! nothing on the way of a call locks or allocates, but where it registers by a ring of io_uring.
//!
//! Each file uses only files below it:
//!
//! | file | subject |
//! |---|---|
//! | `waits.rs` | the functions of epoll |
//! | `calls.rs` | what is timed within a turn: transfers, accept, close, what may sleep; exec and vfork |
//! | `syscall.rs` | calls by their number: the same ways, and rings of io_uring |
//! | `ports.rs` | bind(2) to a port that a ring holds longer than its process |
//! | `kernel.rs` | system calls by their instruction |
//! | `rings.rs` | registrations by such a ring, counted |
//! | `locks.rs` | where a thread may sleep without a descriptor: locks, conditions, processes |
//! | `lockup.rs` | where a program asks for a filter of system calls |
//! | `past.rs` | epoll that is used past the C library |
//! | `names.rs` | the names that are taken: where their calls go, with the address that they return to; the start of the library, forks, the end |
//! | `emulation.rs` | epoll on another mechanism than the kernel's, where the environment names one |
//! | `filters.rs` | whether there is one: no calls of the library's own from then on |
//! | `thread.rs` | what is known of a thread: whether it has figures, whether its calls are the program's |
//! | `turn.rs` | its turn: when it began, what was called in it, noted at once and looked at later |
//! | `attach.rs` | the shared memory: found, named |
//! | `descriptors.rs` | what is known of each descriptor: registered how, ready, closed |
//!
//! For x86-64 and aarch64: for the second one it was built with `aarch64-linux-gnu-gcc` as linker and run under
//! qemu-user, where programs of `crates/cli/tests/run` had their exact counts on epoll, select and poll; tests run
//! on the machine's own architecture only.
//!
//! A thread has figures from its first call of epoll or its first accepted connection on; others
//! only pay for the look. Figures are approximations where threads change one descriptor at once.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod attach;
mod calls;
mod descriptors;
mod emulation;
mod filters;
mod kernel;
mod locks;
mod lockup;
mod names;
mod past;
mod ports;
mod rings;
mod syscall;
mod thread;
mod turn;
mod waits;
