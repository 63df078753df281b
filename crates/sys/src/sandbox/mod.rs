//! What a process gives up once it has what it needs, so that an attacker that takes it over gets no further:
//! paths by landlock(7), system calls by seccomp(2).
//!
//! ```text
//!  one thread, everything open ─► confine_files ─► threads start ─► confine_calls ─► serve
//!                                  │ they inherit it                  │ all of them at once
//!                                  ▼                                  ▼
//!                               Reach: paths                       calls.rs: one list, and the calls of mechanisms
//! ```
//!
//! A server calls it between opening its sockets and serving, an agent before it takes orders; `pollux doctor` tries both parts on a
//! thread of its own. There is no way back, and nothing here ends a process: what the kernel refuses is
//! an errno. What a kernel lacks is an [`Unavailable`], and what follows is the caller's to decide. Each part is tried
//! once it is in force: that the kernel, or what stands in its place in a container, answered "done" proves nothing.
#![forbid(unsafe_code)]

mod calls;
mod files;

use std::fmt;

pub use calls::{CALLS_OF_CLIENTS, CALLS_OF_SOURCES, confine_calls, try_calls};
pub use files::{AllowedPaths, Confined, Use, confine_files, try_files};

/// A part that this kernel, or the state of the process, does not allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unavailable {
    /// Why, and what would allow it where something would.
    pub reason: String,
}

impl Unavailable {
    fn because(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Unavailable {}

/// Has this thread, and those that it starts, and the programs that they run, gain no rights by a program's
/// owner or capabilities (`PR_SET_NO_NEW_PRIVS`). Both other parts need it and set it too.
///
/// # Errors
/// [`Unavailable`]: a kernel before 3.5, or one that took the call and set nothing.
pub fn refuse_privileges() -> Result<(), Unavailable> {
    rustix::thread::set_no_new_privs(true).map_err(Unavailable::because)?;
    match rustix::thread::no_new_privs() {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Unavailable::because("the kernel took PR_SET_NO_NEW_PRIVS and did not set it"))
        }
        Err(error) => Err(Unavailable::because(error)),
    }
}

/// Runs `confine` on a thread that ends with it, as neither part can be taken back.
fn on_a_thread<T: Send + 'static>(
    confine: impl FnOnce() -> Result<T, Unavailable> + Send + 'static,
) -> Result<T, Unavailable> {
    let thread = std::thread::Builder::new().name("sandbox".to_owned()).spawn(confine);
    let thread = thread.map_err(|error| Unavailable::because(format!("no thread: {error}")))?;
    thread.join().expect("nothing panics in it")
}
