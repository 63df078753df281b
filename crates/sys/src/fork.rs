//! Tells a process from the children that it forked, without a system call.
//!
//! The poller asks before every change and every wait, where a `getpid(2)` would cost as much as
//! an empty look. A page that the kernel hands to children empty (`madvise(2)`, MADV_WIPEONFORK,
//! Linux 4.14) answers with one load. A child that shares its parent's memory (`vfork(2)`, threads)
//! is taken for the parent.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Of the process that made it.
#[derive(Debug)]
pub struct ForkMark {
    /// [`HERE`] in the process that made it, and zero in a child.
    word: NonNull<AtomicU32>,
    /// Zero everywhere and this process, where the kernel, or what stands in for it, wipes no
    /// pages.
    process: Option<libc::pid_t>,
}

const HERE: u32 = 1;

/// What one word needs; the kernel maps a whole page.
const LEN_BYTES: usize = size_of::<AtomicU32>();

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// Of `mmap(2)`: ENOMEM.
    pub fn new() -> io::Result<Self> {
        let mut mark = Self { word: map()?, process: None };
        let page = mark.word.as_ptr().cast();
        // SAFETY: the range is that of the mapping made above, which nobody else knows.
        let wiped = unsafe { libc::madvise(page, LEN_BYTES, libc::MADV_WIPEONFORK) };
        if wiped < 0 {
            mark.process = Some(process());
        } else {
            mark.word().store(HERE, Ordering::Relaxed);
        }
        Ok(mark)
    }

    /// Whether this is the process that made the mark.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.word().load(Ordering::Relaxed) == HERE || self.is_the_process()
    }

    #[cold]
    fn is_the_process(&self) -> bool {
        self.process.is_some_and(|made_it| made_it == process())
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping lives as long as the mark, is aligned to a page and holds a word;
        // zeroed memory, as it is when new and when wiped, is an atomic.
        unsafe { self.word.as_ref() }
    }
}

// SAFETY: the mapping is the mark's own and of the process; it holds an atomic.
unsafe impl Send for ForkMark {}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: the mapping is the mark's own, of this length, and ends with it. A child has a
        // copy of its own.
        unsafe { libc::munmap(self.word.as_ptr().cast(), LEN_BYTES) };
    }
}

/// A zeroed page.
fn map() -> io::Result<NonNull<AtomicU32>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
    let page = unsafe { libc::mmap(ptr::null_mut(), LEN_BYTES, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(page.cast()).expect("the kernel maps nothing at address 0"))
}

fn process() -> libc::pid_t {
    // SAFETY: takes nothing and always succeeds.
    unsafe { libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `mark` says in a child.
    fn is_here_in_a_child(mark: &ForkMark) -> bool {
        // SAFETY: other tests may run as threads of this process, so the child does nothing but
        // look and end.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", io::Error::last_os_error());
        if child == 0 {
            let status = i32::from(mark.is_here());
            // SAFETY: ends the child and nothing else.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: writes the status of our own child to a live local.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, libc::WIFEXITED(status)), (child, true));
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn a_mark_stays_behind_when_its_process_forks() {
        let mark = ForkMark::new().expect("one page");
        assert_eq!(mark.process, None, "MADV_WIPEONFORK is older than io_uring");
        assert!(mark.is_here());
        assert!(!is_here_in_a_child(&mark));
        assert!(mark.is_here(), "the child's is another page");
    }

    #[test]
    fn a_mark_whose_page_is_not_wiped_compares_processes() {
        let mark = ForkMark { word: map().expect("one page"), process: Some(process()) };
        assert!(mark.is_here());
        assert!(!is_here_in_a_child(&mark));
    }
}
