//! The registry of the server whose own thread this is, and what other threads wake it for.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use pollux_xatmi::error::Code;
use pollux_xatmi::worker::Registry;
use rustix::event::{EventfdFlags, eventfd};

use crate::fault::Fault;

/// What is called on the server's own thread, between requests, when it was woken.
type Each = Box<dyn FnMut()>;

thread_local! {
    static REGISTRY: RefCell<Option<Registry>> = const { RefCell::new(None) };
    /// The eventfd that wakes this thread, once it was asked for.
    static WAKE: RefCell<Option<OwnedFd>> = const { RefCell::new(None) };
    static EACH: RefCell<Vec<Each>> = const { RefCell::new(Vec::new()) };
}

/// A server begins to run on this thread, or has ended.
pub(crate) fn set(registry: Option<Registry>) {
    REGISTRY.set(registry);
}

/// The registry of the server whose own thread this is.
pub(crate) fn registry() -> Result<Registry, Fault> {
    let found = REGISTRY.try_with(|registry| registry.borrow().clone()).ok().flatten();
    found.ok_or_else(|| {
        let detail = "services are offered by a server, on its own thread, from tpsvrinit on";
        Fault::new(Code::Protocol.number(), detail)
    })
}

/// Calls `each` on this thread, between requests, whenever the eventfd that this gives was written to; also where that was done
/// for another one.
///
/// # Errors
/// TPEPROTO: it is not a server's own thread; TPEOS.
pub(crate) fn attend(each: Each) -> Result<OwnedFd, Fault> {
    let registry = registry()?;
    let failed = |error: std::io::Error| Fault::new(Code::Os.number(), format!("eventfd: {error}"));
    let wake = WAKE.with_borrow_mut(|wake| {
        if let Some(wake) = wake {
            return wake.try_clone().map_err(failed);
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let watched = made.try_clone().map_err(failed)?;
        // A thread that waits for it takes no signal of the program's either.
        without_signals(|| registry.attend(watched, call_each))?;
        wake.insert(made).try_clone().map_err(failed)
    })?;
    EACH.with_borrow_mut(|all| all.push(each));
    Ok(wake)
}

/// Starts a thread that no signal comes to: a handler of the server runs in a thread of the server, whose wait it
/// interrupts, and with the errors and the context of that one.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut every = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes a set into the room that it is given.
    unsafe { libc::sigfillset(every.as_mut_ptr()) };
    // SAFETY: the set was just written, and there is room for the one before.
    let is_set =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, every.as_ptr(), before.as_mut_ptr()) }
            == 0;
    let started = start();
    if is_set {
        // SAFETY: the set was written by the call that succeeded.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    started
}

fn call_each() {
    // One of them may add another.
    let mut all = EACH.take();
    all.iter_mut().for_each(|each| each());
    EACH.with_borrow_mut(|added| {
        all.append(added);
        *added = all;
    });
}
