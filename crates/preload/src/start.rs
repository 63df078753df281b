//! The start of the library, the forks of its process, and the end.
//!
//! It starts when it is loaded, as the program may be another user's later; or at the first call of a name that
//! is taken, if that comes earlier. A forked child has the memory of its parent: its thread needs a cell of its
//! own, and it has a copy of each instance of epoll.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pollux_epoll_c::border;

use crate::thread::Thread;
use crate::{attach, emulation};

/// Set by the thread that starts the library, for good.
static IS_TRIED: AtomicBool = AtomicBool::new(false);
/// Set when that is over: what `attach.rs` and `emulation.rs` say holds for good.
static IS_SETTLED: AtomicBool = AtomicBool::new(false);

/// Called by the dynamic linker.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    once();
}

/// Called by the dynamic linker when the process ends by exit(3).
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;

extern "C" fn ended() {
    let thread = Thread::here();
    thread.counting("the end of the process", || thread.settle());
}

/// Starts at the first call. Says whether that is over; if not, this thread or another one is at it.
pub(crate) fn once() -> bool {
    if !IS_TRIED.load(Relaxed) && !IS_TRIED.swap(true, Relaxed) {
        border::own_all_panics();
        let thread = Thread::here();
        thread.inside(|| thread.counting("the start of the library", attach::attach));
        if attach::is_counted() || emulation::is_chosen() {
            // SAFETY: the functions live as long as the program: a library that is preloaded stays.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        }
        // Release: a thread that sees this sees what was found.
        IS_SETTLED.store(true, Release);
    }
    IS_SETTLED.load(Acquire)
}

unsafe extern "C" fn before() {
    emulation::before_fork();
}

unsafe extern "C" fn in_parent() {
    emulation::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    Thread::here().forget();
    emulation::after_fork_in_child();
}
