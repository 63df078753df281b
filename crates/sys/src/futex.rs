//! Sleeping on a word that several processes map, and waking who sleeps there (`futex(2)`).
//!
//! The service pool's requests in shared memory use it. The words are of 64 bits, as all of
//! [`shared`](crate::shared); the kernel compares the lower half.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// The lower half of a word begins here (bytes).
const LOW_HALF: usize = if cfg!(target_endian = "big") { 4 } else { 0 };
const NANOSECONDS: u64 = 1_000_000_000;
/// A futex of 32 bits that other processes share (`linux/futex.h`, FUTEX2_SIZE_U32).
const SIZE_U32: u32 = 2;

/// `struct futex_waitv`.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Sleeps while the lower half of `word` is `expected`: until a wake, until the monotonic clock shows
/// `until_ns`, or until a signal handler ran.
///
/// Where the kernel has `futex_waitv(2)` (5.16), a handler with SA_RESTART does not end the wait.
/// Spurious returns are possible: look at the word afterwards.
///
/// # Errors
/// EAGAIN when the word is something else already, ETIMEDOUT, EINTR.
pub fn wait(word: &AtomicU64, expected: u32, until_ns: Option<u64>) -> io::Result<()> {
    static HAS_VECTOR: OnceLock<bool> = OnceLock::new();
    let until = until_ns.map(|until_ns| libc::timespec {
        tv_sec: (until_ns / NANOSECONDS) as libc::time_t,
        tv_nsec: (until_ns % NANOSECONDS) as libc::c_long,
    });
    let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let address = low_half(word);
    if until.is_null() || !HAS_VECTOR.get_or_init(has_vector) {
        let (operation, any) = (libc::FUTEX_WAIT_BITSET, libc::FUTEX_BITSET_MATCH_ANY);
        // SAFETY: the address is within a live word, and the time is a live local or none.
        return checked(unsafe {
            libc::syscall(libc::SYS_futex, address, operation, expected, until, 0, any)
        });
    }
    let waiter = Waiter {
        value: expected.into(),
        address: address.addr() as u64,
        flags: SIZE_U32,
        reserved: 0,
    };
    let one = std::ptr::from_ref(&waiter);
    // SAFETY: one waiter of the kernel's layout whose address is within a live word, and a live time.
    checked(unsafe {
        libc::syscall(libc::SYS_futex_waitv, one, 1, 0, until, libc::CLOCK_MONOTONIC)
    })
}

/// Wakes at most `count` of those who sleep on `word`; a write before it is seen by them.
pub fn wake(word: &AtomicU64, count: u32) {
    let address = low_half(word);
    // SAFETY: the address is within a live word; the kernel only uses it as a name.
    let woken = unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, count) };
    debug_assert!(woken >= 0, "a mapped word can be woken on");
}

/// Whether the kernel knows `futex_waitv(2)`: it refuses a wait for nothing in its own way.
fn has_vector() -> bool {
    let none = std::ptr::null::<Waiter>();
    // SAFETY: a wait for no word reads nothing.
    let waited = unsafe { libc::syscall(libc::SYS_futex_waitv, none, 0, 0, none, 0) };
    waited < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

fn low_half(word: &AtomicU64) -> *const u8 {
    word.as_ptr().cast::<u8>().cast_const().wrapping_add(LOW_HALF)
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::shared::SharedWords;

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
    fn a_wait_ends_at_its_time() {
        let words = SharedWords::create(1).expect("memory");
        let late = wait(&words[0], 0, Some(1)).expect_err("long past");
        assert_eq!(late.raw_os_error(), Some(libc::ETIMEDOUT));
        let other = wait(&words[0], 1, Some(1)).expect_err("it is something else");
        assert_eq!(other.raw_os_error(), Some(libc::EAGAIN));
    }
}
