//! The interface of `epoll(7)` over any mechanism of `pollux-poller`, and the C library with it.
//!
//! C programs call the `px_` functions of `pollux/epoll.h`; a library that takes the plain names of
//! epoll stands on [`Instances`], which this crate is as a Rust library. What differs from the kernel's
//! own epoll is one table ([`deviations`]), and a test compares everything else with it.
//!
//! # For a library that takes the plain names
//! ```
//! use pollux_epoll_c::{Identity, Instances, Mechanism};
//!
//! static INSTANCES: Instances = Instances::new(Identity::Hooked);
//!
//! let epoll = INSTANCES.create(Mechanism::Poll, libc::EPOLL_CLOEXEC)?;
//! // Every call on a number asks first; `None` is a number of the kernel's, which gets the call as it is.
//! let instance = INSTANCES.find(epoll).expect("made above");
//! let mut room = [std::mem::MaybeUninit::uninit(); 4];
//! assert_eq!(instance.wait(epoll, &mut room, Some(std::time::Duration::ZERO), None)?, 0);
//! // Before the real close(2), and before dup2(2) replaces a number:
//! INSTANCES.closing(epoll);
//! assert!(INSTANCES.find(epoll).is_none());
//! # std::io::Result::Ok(())
//! ```
//! * [`Instances::create`] on [`Mechanism::Epoll`] makes an epoll of the kernel's and keeps nothing:
//!   all that follows goes straight there.
//! * [`Instances::ctl`] and [`Instance::wait`] are `epoll_ctl(2)` and `epoll_pwait2(2)`; errors carry
//!   the errno ([`std::io::Error::raw_os_error`]).
//! * Hooks: [`Instances::closing`], [`Instances::closing_range`], [`Instances::duplicated`], and around
//!   `fork(2)` [`Instances::before_fork`] with [`Instances::after_fork_in_parent`] or
//!   [`Instances::after_fork_in_child`]; [`Instances::guard_forks`] has them called by
//!   `pthread_atfork(3)`; around `execve(2)` [`Instances::before_exec`]. With [`Identity::Hooked`] the hooks are all that is known of closed numbers;
//!   with [`Identity::Checked`] each look-up asks the kernel, and no hook is needed.
//!
//! # How it works
//! Every instance has a kernel epoll of its own, whose descriptor is what the program gets. It is
//! empty but for a tag, so it costs nothing while events come by the mechanism. It gives the number
//! its life (inheritance, `CLOEXEC`, `dup`), proves what a number names (the tag), answers what
//! `epoll_ctl(2)` says of files and nesting, and takes over when the instance is itself watched.
//!
//! | file | subject |
//! |---|---|
//! | `c.rs` | the `px_` functions |
//! | `border.rs` | no panic goes over to C |
//! | `instances.rs` | numbers and what they name; close, dup and fork |
//! | `instance.rs` | one instance: its life, changes and events |
//! | `waiters.rs` | the threads that wait on an instance: one on its poller, with others queued behind it |
//! | `registrations.rs` | what the program wants and what was applied to the poller; no system call |
//! | `kernel.rs` | the system calls |
//! | `deviations.rs` | where the mechanisms differ from the kernel's epoll |
//!
//! # The files of an installation
//! What C programs are built with, which `cargo xtask install` lays out (`xtask/src/install.rs`):
//!
//! ```text
//! PREFIX/include/pollux/epoll.h
//! PREFIX/lib/libpollux_epoll.so.0
//! PREFIX/lib/libpollux_epoll.so -> it
//! PREFIX/lib/pkgconfig/pollux-epoll.pc
//! ```

pub mod border;
pub mod c;
pub mod deviations;
mod instance;
mod instances;
mod kernel;
mod registrations;
mod waiters;

pub use instance::Instance;
pub use instances::{Handed, Identity, Instances};
pub use pollux_poller::{Facility, Mechanism};

/// The name that the dynamic linker looks for.
pub const SONAME: &str = env!("POLLUX_EPOLL_SONAME");

/// The file that cargo builds, in `target/PROFILE/deps` and `target/PROFILE`.
pub const BUILT_NAME: &str = "libpollux_epoll_c.so";

/// The header, as it stands below `include`, with its text.
pub const HEADER: (&str, &str) = ("pollux/epoll.h", include_str!("../include/pollux/epoll.h"));

/// The name at link time.
pub const LINK_NAME: &str = "libpollux_epoll.so";
