//! The border to C: no panic goes over it, and no thread is cancelled behind it.
//!
//! ```text
//!  C ──► contained("px_epoll_wait", …) ──► the library ──┬─► done
//!                                                        └─► panic: one line on standard error, and
//!                                                            errno is ENOTRECOVERABLE for this call
//! ```
//! What a call had taken it gives back while it unwinds (`waiters.rs`), so the next call finds the instance
//! usable. `libpollux_preload` uses the same border.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::c_int;

/// What `errno` is after a fault of the library itself: no call of epoll answers it otherwise.
pub const FAULT: c_int = libc::ENOTRECOVERABLE;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of this thread was, and why, in one line.
    static FAULT_SEEN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Every panic that this copy of the standard library sees is the library's own.
static OWNS_ALL: AtomicBool = AtomicBool::new(false);

// pthread_setcancelstate(3), which the crate libc does not have for Linux.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Does the work of a function that C calls: `call` is its name. Where it succeeds, errno is as it was.
///
/// # Errors
/// [`FAULT`] after a panic, which one line on standard error reports.
pub fn contained<T>(call: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    take_hook();
    let _cancelled_later = Uncancelled::new();
    let was_inside = IS_INSIDE.replace(true);
    // SAFETY: the C library gives the address of a live integer of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let done = caught(work);
    IS_INSIDE.set(was_inside);
    if matches!(done, Ok(Ok(_))) {
        // SAFETY: as above.
        unsafe { errno.write(before) };
    }
    done.unwrap_or_else(|fault| {
        report(call, "this call fails with ENOTRECOVERABLE", &fault);
        Err(io::Error::from_raw_os_error(FAULT))
    })
}

/// Where and why it panicked, in one line.
#[derive(Debug)]
pub struct Fault(String);

/// Does work that is called very often and on which no answer depends: nothing but the catching costs.
/// For a library that said [`own_all_panics`].
///
/// # Errors
/// The panic, which was not reported yet.
#[inline]
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    // What is half done is put in order while it unwinds.
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(noted)
}

#[cold]
fn noted(panicked: Box<dyn Any + Send>) -> Fault {
    // What was thrown may itself throw when it is dropped; it is a text, as a rule.
    std::mem::forget(panicked);
    Fault(FAULT_SEEN.take())
}

/// Writes one line to standard error: what failed, what becomes of it, and where it was.
#[cold]
pub fn report(call: &str, outcome: &str, Fault(fault): &Fault) {
    let line = format!("pollux: {call}: fault in the library, {outcome}; please report: {fault}\n");
    // Where standard error is closed there is no place to report to.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// For a library with a standard library of its own (a `cdylib`): no panic prints but through [`report`].
pub fn own_all_panics() {
    OWNS_ALL.store(true, Relaxed);
    take_hook();
}

/// Notes panics behind the border instead of printing them; others are as before.
fn take_hook() {
    static TAKEN: Once = Once::new();
    TAKEN.call_once(|| {
        // A thread that panics already may not set a hook.
        if std::thread::panicking() {
            return;
        }
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if OWNS_ALL.load(Relaxed) || IS_INSIDE.get() {
                note(info);
            } else {
                before(info);
            }
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let said = info.payload_as_str().unwrap_or("no words").replace('\n', " ");
    let place = info.location().map(|place| format!("{place}: ")).unwrap_or_default();
    // Borrowed only where a panic comes out of this very function.
    let _ = FAULT_SEEN.try_with(|seen| seen.try_borrow_mut().map(|mut seen| *seen = place + &said));
}

/// Until it is dropped, `pthread_cancel(3)` waits: it would end the thread in the middle of whatever it does.
struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    fn new() -> Self {
        let mut before = PTHREAD_CANCEL_DISABLE;
        // SAFETY: the state is one of the two that there are, and the old one is written to a live local.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state was given out by the same function; the old one is not asked for.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use libc::epoll_event;
    use pollux_poller::{
        Caps, Counters, Error, Events, Mechanism, Poller, Registration, SignalMask, Token, Waker,
    };

    use super::*;
    use crate::Instance;
    use crate::c::{INSTANCES, px_epoll_create_on, px_epoll_ctl, px_epoll_wait};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A poller that panics: as soon as the test says so in a wait, or at a change.
    struct Faulty {
        inner: Box<dyn Poller + Send>,
        panics: Option<Receiver<()>>,
    }

    impl Poller for Faulty {
        fn add(&mut self, fd: BorrowedFd<'_>, of: Token, how: Registration) -> Result<(), Error> {
            self.inner.add(fd, of, how)
        }

        fn modify(&mut self, _: BorrowedFd<'_>, _: Token, _: Registration) -> Result<(), Error> {
            panic!("planted\nin a change")
        }

        fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
            self.inner.delete(fd)
        }

        fn wait(&mut self, _: &mut Events, _: Option<Duration>) -> Result<(), Error> {
            let panics = self.panics.take().expect("one wait");
            panics.recv_timeout(PATIENCE).expect("the test continues");
            panic!("planted in a wait")
        }

        fn set_signal_mask(&mut self, _: Option<SignalMask>) {}

        fn waker(&self) -> Waker {
            self.inner.waker()
        }

        fn caps(&self) -> &Caps {
            self.inner.caps()
        }

        fn counters(&self) -> &Arc<Counters> {
            self.inner.counters()
        }
    }

    fn make_faulty(instance: &Instance, mechanism: Mechanism, panics: Option<Receiver<()>>) {
        let inner = mechanism.open_for(pollux_poller::Threads::Several).expect("opened");
        instance.replace_poller(Box::new(Faulty { inner, panics }));
    }

    /// The result of a C function, with errno.
    fn errno_of(result: c_int) -> (c_int, Option<c_int>) {
        (result, io::Error::last_os_error().raw_os_error().filter(|_| result < 0))
    }

    fn waited(epoll: c_int) -> ((c_int, Option<c_int>), u64) {
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event, and one is announced.
        let found = errno_of(unsafe { px_epoll_wait(epoll, &raw mut event, 1, 20_000) });
        (found, event.u64)
    }

    fn change(epoll: c_int, op: c_int, fd: BorrowedFd<'_>, data: u64) -> (c_int, Option<c_int>) {
        let event = epoll_event { events: libc::EPOLLIN as u32, u64: data };
        // SAFETY: an event that is alive.
        errno_of(unsafe { px_epoll_ctl(epoll, op, fd.as_raw_fd(), &raw const event) })
    }

    /// Three panics, after each of which the instance does what was asked of it.
    fn panic_three_times(mechanism: Mechanism) {
        let name = std::ffi::CString::new(mechanism.name()).expect("no NUL");
        // SAFETY: a string.
        let epoll = unsafe { px_epoll_create_on(name.as_ptr(), libc::EPOLL_CLOEXEC) };
        // SAFETY: made a moment ago.
        let closed_at_the_end = unsafe { OwnedFd::from_raw_fd(epoll) };
        let instance = INSTANCES.find(epoll).expect("an instance");
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"x").expect("room");
        assert_eq!(change(epoll, libc::EPOLL_CTL_ADD, reader.as_fd(), 1), (0, None));
        let fault = (-1, Some(FAULT));

        let (sender, panics) = channel();
        make_faulty(instance, mechanism, Some(panics));
        sender.send(()).expect("received");
        assert_eq!(waited(epoll).0, fault);
        assert_eq!(waited(epoll), ((1, None), 1), "with a poller that was opened anew");

        make_faulty(instance, mechanism, None);
        assert_eq!(change(epoll, libc::EPOLL_CTL_MOD, reader.as_fd(), 2), fault);
        assert_eq!(waited(epoll), ((1, None), 2), "what was noted before the panic stands");

        let (sender, panics) = channel();
        make_faulty(instance, mechanism, Some(panics));
        std::thread::scope(|scope| {
            let sits = scope.spawn(|| waited(epoll).0);
            let end = Instant::now() + PATIENCE;
            let until = |is_so: &dyn Fn() -> bool| {
                while !is_so() {
                    assert!(Instant::now() < end, "{instance:?}");
                    std::thread::yield_now();
                }
            };
            until(&|| instance.threads() == (1, 0));
            let queues = scope.spawn(|| waited(epoll));
            until(&|| instance.threads() == (2, 1));
            sender.send(()).expect("received");
            assert_eq!(sits.join().expect("no panic"), fault);
            assert_eq!(queues.join().expect("no panic"), ((1, None), 2), "it continued");
        });
        assert_eq!(instance.threads(), (0, 0));
        drop(closed_at_the_end);
    }

    /// In a process of its own, whose standard error is looked at.
    #[test]
    fn a_panic_is_an_errno_and_one_line_and_the_instance_works_on() {
        const PLANTED: &str = "POLLUX_TEST_PLANTED";
        if std::env::var_os(PLANTED).is_some() {
            // Always allowed, and one of them knows tokens by number, the other by position.
            [Mechanism::Poll, Mechanism::Select].into_iter().for_each(panic_three_times);
            return;
        }
        let name = "border::tests::a_panic_is_an_errno_and_one_line_and_the_instance_works_on";
        let mut again = Command::new(std::env::current_exe().expect("the own path"));
        again.args([name, "--exact", "--nocapture"]).env(PLANTED, "1");
        let output = again.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
        let lines: Vec<&str> = said.lines().collect();
        let of_wait = "pollux: px_epoll_wait: fault in the library, this call fails with ENOTRECOVERABLE; \
                       please report: crates/epoll-c/src/border.rs:";
        let of_ctl = of_wait.replace("px_epoll_wait", "px_epoll_ctl");
        assert_eq!(lines.len(), 6, "{said}");
        for (line, (start, end)) in lines.iter().zip(
            [
                (of_wait, ": planted in a wait"),
                (&of_ctl, ": planted in a change"),
                (of_wait, ": planted in a wait"),
            ]
            .into_iter()
            .cycle(),
        ) {
            assert!(line.starts_with(start) && line.ends_with(end), "{line}");
        }
    }
}
