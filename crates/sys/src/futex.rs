//! Sleeping on a word that several processes map, and waking its waiters (`futex(2)`).
//!
//! The service pool's requests in shared memory use it. The words are of 64 bits, as all of
//! [`shared`](crate::shared); the kernel compares the lower half. A mapping that can only be read is
//! enough to sleep and to wake.

use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::shared::SharedPart;

/// The lower half of a word begins here (bytes).
const LOW_HALF: usize = if cfg!(target_endian = "big") { 4 } else { 0 };
const NANOSECONDS: u64 = 1_000_000_000;
/// A futex of 32 bits that other processes share (`linux/futex.h`, FUTEX2_SIZE_U32).
const SIZE_U32: u32 = 2;
/// The number of futex_wait(2), which is one on all machines and which libc does not have.
const SYS_FUTEX_WAIT: libc::c_long = 455;
/// Woken by each wake.
const ANY_WAKER: libc::c_ulong = libc::FUTEX_BITSET_MATCH_ANY as u32 as libc::c_ulong;

/// Where a word is that lives as long as `'a`, for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    low_half: *const u8,
    word: PhantomData<&'a AtomicU64>,
}

/// `struct futex_waitv`.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// A word that says in its lower half which thread owns it, and that the kernel marks when that thread
/// ends, however it ends, waking one of its sleepers (`get_robust_list(2)`).
///
/// The mark is [`OWNER_DIED`] in place of the number of the thread. As long as this lives, the kernel
/// watches no robust mutex of the C library that the thread takes; it does again afterwards.
#[derive(Debug)]
pub struct Owned {
    part: Arc<SharedPart>,
    at: usize,
    /// It knows where this is.
    #[expect(dead_code, reason = "the kernel reads it at the thread's end")]
    head: Box<RobustHead>,
    /// The list of the C library.
    before: (*const RobustHead, usize),
    /// The kernel's lists belong to threads.
    of_thread: PhantomData<*const ()>,
}

/// The owner of an [`Owned`] word is gone (`linux/futex.h`).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// A thread may sleep on the word: without this bit the kernel wakes none.
const WAITERS: u32 = 0x8000_0000;

/// `struct robust_list_head`: one entry, `entry`, whose word is `offset` bytes from it.
#[repr(C)]
#[derive(Debug)]
struct RobustHead {
    list: *const RobustEntry,
    offset: libc::c_long,
    pending: *const RobustEntry,
    /// The kernel receives the length without it.
    entry: RobustEntry,
}

/// `struct robust_list`.
#[repr(C)]
#[derive(Debug)]
struct RobustEntry {
    next: *const RobustEntry,
}

/// Bytes of [`RobustHead`] that the kernel knows.
const ROBUST_HEAD_LEN: usize = 3 * size_of::<usize>();

impl Owned {
    /// Makes this thread the owner of word `at`.
    ///
    /// # Errors
    /// ENOSYS.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn take(part: Arc<SharedPart>, at: usize) -> io::Result<Self> {
        let mut before = (ptr::null(), 0_usize);
        let head = &raw mut before.0;
        let len = &raw mut before.1;
        // SAFETY: both places are live locals of the kernel's types; 0 is this thread.
        checked(unsafe { libc::syscall(libc::SYS_get_robust_list, 0, head, len) })?;
        let entry = RobustEntry { next: ptr::null() };
        let mut head =
            Box::new(RobustHead { list: ptr::null(), offset: 0, pending: ptr::null(), entry });
        // A list of one that ends where it began: the head's first field is an entry too.
        head.entry.next = ptr::from_ref(&*head).cast();
        head.list = &raw const head.entry;
        head.offset =
            Address::from(&part[at]).low_half.addr().wrapping_sub(head.list.addr()) as libc::c_long;
        // Before the store: of a thread that ends in between the word says nothing, and the kernel leaves
        // it alone. The other way round it would name a dead owner for good.
        set_robust_list(&raw const *head, ROBUST_HEAD_LEN)?;
        // SAFETY: the call takes numbers only.
        let thread = unsafe { libc::gettid() } as u32;
        part[at].store((thread | WAITERS).into(), Ordering::SeqCst);
        let owned = Self { part, at, head, before, of_thread: PhantomData };
        wake(owned.word(), u32::MAX >> 1);
        Ok(owned)
    }

    fn word(&self) -> &AtomicU64 {
        &self.part[self.at]
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let restored = set_robust_list(self.before.0, self.before.1);
        debug_assert!(restored.is_ok(), "it was the thread's before: {restored:?}");
        self.word().store(OWNER_DIED.into(), Ordering::SeqCst);
        wake(self.word(), u32::MAX >> 1);
    }
}

fn set_robust_list(head: *const RobustHead, len: usize) -> io::Result<()> {
    // SAFETY: a list that lives as long as it is set: of `Owned`, or the one that was set before.
    checked(unsafe { libc::syscall(libc::SYS_set_robust_list, head, len) })
}

/// Sleeps while the lower half of `word` is `expected`: until a wake, until the monotonic clock shows
/// `until_ns`, or until a signal handler ran.
///
/// Where the kernel has `futex_wait(2)` (6.7) or `futex_waitv(2)` (5.16), a handler with SA_RESTART does not end the wait.
/// Spurious returns are possible: look at the word afterwards.
///
/// # Errors
/// EAGAIN when the word is something else already, ETIMEDOUT, EINTR.
pub fn wait<'a>(
    word: impl Into<Address<'a>>,
    expected: u32,
    until_ns: Option<u64>,
) -> io::Result<()> {
    let word = word.into();
    let until = until_ns.map(timespec);
    let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
    let address = word.low_half;
    match if until.is_null() { TimedWait::Interruptible } else { timed_wait() } {
        TimedWait::One => {
            let expected = libc::c_ulong::from(expected);
            let clock = libc::CLOCK_MONOTONIC;
            // SAFETY: the address is within a live word, and the time is a live local.
            checked(unsafe {
                libc::syscall(SYS_FUTEX_WAIT, address, expected, ANY_WAKER, SIZE_U32, until, clock)
            })
        }
        TimedWait::Vector => {
            let waiter = Waiter::on(word, expected);
            let one = ptr::from_ref(&waiter);
            // SAFETY: one waiter of the kernel's layout whose address is within a live word, and a live time.
            checked(unsafe {
                libc::syscall(libc::SYS_futex_waitv, one, 1, 0, until, libc::CLOCK_MONOTONIC)
            })
        }
        TimedWait::Interruptible => {
            let operation = libc::FUTEX_WAIT_BITSET;
            let any = libc::FUTEX_BITSET_MATCH_ANY;
            // SAFETY: the address is within a live word, and the time is a live local or none.
            checked(unsafe {
                libc::syscall(libc::SYS_futex, address, operation, expected, until, 0, any)
            })
        }
    }
}

/// As [`wait`] on both words at once, each with what it is expected to be. Without [`has_vector`] it is a wait
/// on the first.
///
/// # Errors
/// As [`wait`].
pub fn wait_for_either(words: [(Address<'_>, u32); 2], until_ns: u64) -> io::Result<()> {
    if !has_vector() {
        return wait(words[0].0, words[0].1, Some(until_ns));
    }
    let waiters = words.map(|(word, expected)| Waiter::on(word, expected));
    let first = waiters.as_ptr();
    let until = timespec(until_ns);
    let until = ptr::from_ref(&until);
    // SAFETY: two waiters of the kernel's layout with addresses within live words, and a live time.
    checked(unsafe {
        libc::syscall(libc::SYS_futex_waitv, first, 2, 0, until, libc::CLOCK_MONOTONIC)
    })
}

/// Wakes at most `count` sleepers of `word`, which see a write that was made before.
pub fn wake<'a>(word: impl Into<Address<'a>>, count: u32) {
    let address = word.into().low_half;
    // SAFETY: the address is within a live word; the kernel only uses it as a name.
    let woken = unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, count) };
    debug_assert!(woken >= 0, "a mapped word can be woken on");
}

impl<'a> From<&'a AtomicU64> for Address<'a> {
    fn from(word: &'a AtomicU64) -> Self {
        Self::of_mapped(word.as_ptr())
    }
}

impl Address<'_> {
    /// The address of a word in a mapping, which the caller keeps as long as `'a`.
    pub(crate) fn of_mapped(word: *const impl Sized) -> Self {
        Self { low_half: word.cast::<u8>().wrapping_add(LOW_HALF), word: PhantomData }
    }
}

impl Waiter {
    fn on(word: Address<'_>, expected: u32) -> Self {
        let address = word.low_half.addr() as u64;
        Self { value: expected.into(), address, flags: SIZE_U32, reserved: 0 }
    }
}

/// How a wait with an end is asked for.
#[derive(Clone, Copy)]
enum TimedWait {
    /// `futex_wait(2)`, Linux 6.7.
    One,
    /// `futex_waitv(2)`: it allocates, and costs a quarter of a microsecond more.
    Vector,
    /// `futex(2)`: with an end, each handler ends it.
    Interruptible,
}

/// The best one that there is; filters of containers may forbid any.
fn timed_wait() -> TimedWait {
    static TIMED_WAIT: OnceLock<TimedWait> = OnceLock::new();
    *TIMED_WAIT.get_or_init(|| {
        let address = ptr::null::<u64>();
        let none = ptr::null::<libc::timespec>();
        let nobody: libc::c_ulong = 0;
        // The kernel refuses a wait that nobody can end in its own way.
        // SAFETY: a wait that is refused reads nothing.
        let waited =
            unsafe { libc::syscall(SYS_FUTEX_WAIT, address, nobody, nobody, SIZE_U32, none, 0) };
        if waited < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            TimedWait::One
        } else if has_vector() {
            TimedWait::Vector
        } else {
            TimedWait::Interruptible
        }
    })
}

/// Whether one wait can be for two words: by `futex_waitv(2)`, Linux 5.16, which filters of containers may forbid.
#[must_use]
pub fn has_vector() -> bool {
    static HAS_VECTOR: OnceLock<bool> = OnceLock::new();
    *HAS_VECTOR.get_or_init(|| {
        let none = ptr::null::<Waiter>();
        // The kernel refuses a wait for nothing in its own way.
        // SAFETY: a wait for no word reads nothing.
        let waited = unsafe { libc::syscall(libc::SYS_futex_waitv, none, 0, 0, none, 0) };
        waited < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
    })
}

fn timespec(until_ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (until_ns / NANOSECONDS) as libc::c_long,
        tv_nsec: (until_ns % NANOSECONDS) as libc::c_long,
    }
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::shared::{PublishedWords, ReadOnlyPart, SharedWords};

    #[test]
    fn a_sleeper_is_woken_by_a_word_that_another_mapping_wrote() {
        let ours = SharedWords::create(1).expect("memory");
        let fd = std::os::fd::AsFd::as_fd(&ours).try_clone_to_owned().expect("a descriptor");
        let theirs = SharedWords::from_fd(fd).expect("the same memory");
        for until_ns in [None, Some(u64::MAX / 2)] {
            ours[0].store(7 << 32, Ordering::SeqCst);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while ours[0].load(Ordering::SeqCst) as u32 == 0 {
                        let waited = wait(&ours[0], 0, until_ns);
                        let is_late =
                            |error: &io::Error| error.raw_os_error() == Some(libc::EAGAIN);
                        assert!(waited.as_ref().map_or_else(is_late, |()| true), "{waited:?}");
                    }
                });
                theirs[0].fetch_or(1, Ordering::SeqCst);
                wake(&theirs[0], 1);
            });
        }
    }

    #[test]
    fn the_end_of_an_owner_is_marked_and_wakes_a_sleeper() {
        let words = PublishedWords::create_named(c"pollux-owned", 2).expect("memory");
        let read = ReadOnlyPart::map_all(std::os::fd::AsFd::as_fd(&words)).expect("readable");
        let flag = SharedWords::create(1).expect("memory");
        let part = words.part();
        // Without futex_waitv(2), which filters of containers forbid too, nothing wakes it: it looks again and again.
        let until_ns = if has_vector() { u64::MAX / 2 } else { 1 };
        for ends_in_order in [true, false] {
            std::thread::scope(|scope| {
                let (says, owns) = std::sync::mpsc::channel();
                let (ends, is_ended) = std::sync::mpsc::channel::<()>();
                scope.spawn(move || {
                    let owned = Owned::take(Arc::clone(part), 1).expect("a list");
                    says.send(()).expect("a thread waits");
                    // Ends when the other side is dropped.
                    let _ = is_ended.recv();
                    if ends_in_order {
                        drop(owned);
                    } else {
                        // As a thread that is killed: nothing is run.
                        std::mem::forget(owned);
                    }
                });
                owns.recv().expect("it is the owner");
                let owner = read.word(1) as u32;
                assert_ne!(owner & !(OWNER_DIED | WAITERS), 0);
                drop(ends);
                // As a worker, which can only read it.
                while read.word(1) as u32 & OWNER_DIED == 0 {
                    // EAGAIN when it was quicker.
                    let words = [((&flag[0]).into(), 0), (read.address(1), owner)];
                    let _ = wait_for_either(words, until_ns);
                }
                wake(read.address(1), 1);
            });
        }
    }

    #[test]
    fn a_handler_that_restarts_calls_ends_no_wait() {
        use std::sync::atomic::AtomicU32;

        static HANDLED: AtomicU32 = AtomicU32::new(0);
        extern "C" fn count(_: libc::c_int) {
            HANDLED.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: all zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler only counts, and no other test uses this signal.
        let installed =
            unsafe { libc::sigaction(libc::SIGURG, &raw const action, ptr::null_mut()) };
        assert_eq!(installed, 0);
        if matches!(timed_wait(), TimedWait::Interruptible) {
            pollux_testing::skip("neither futex_wait(2) nor futex_waitv(2) here");
            return;
        }
        let words = SharedWords::create(1).expect("memory");
        std::thread::scope(|scope| {
            let (says, is_sleeper) = std::sync::mpsc::channel();
            let word = &words[0];
            let sleeper = scope.spawn(move || {
                // SAFETY: the call takes nothing.
                says.send(unsafe { libc::pthread_self() }).expect("the test waits");
                while word.load(Ordering::SeqCst) == 0 {
                    let waited = wait(word, 0, Some(u64::MAX / 2));
                    let errno = waited.err().and_then(|error| error.raw_os_error());
                    assert!(matches!(errno, None | Some(libc::EAGAIN)), "{errno:?}");
                }
            });
            let thread = is_sleeper.recv().expect("it runs");
            while HANDLED.load(Ordering::SeqCst) < 1_000 && !sleeper.is_finished() {
                // SAFETY: the thread ends after the store below, or is joined by the scope.
                unsafe { libc::pthread_kill(thread, libc::SIGURG) };
                std::thread::yield_now();
            }
            word.store(1, Ordering::SeqCst);
            wake(word, 1);
        });
    }

    #[test]
    fn a_wait_ends_at_its_time() {
        let words = SharedWords::create(1).expect("memory");
        let late = wait(&words[0], 0, Some(1)).expect_err("long past");
        assert_eq!(late.raw_os_error(), Some(libc::ETIMEDOUT));
        let other = wait(&words[0], 1, Some(1)).expect_err("it is something else");
        assert_eq!(other.raw_os_error(), Some(libc::EAGAIN));
    }
}
