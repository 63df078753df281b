//! Processes: which one this is, what a parent left open for it, what the kernel books for one.
//!
//! [`ForkMark`] distinguishes a process from the children that it forked, without a system call. The poller asks before
//! every change and every wait, where a `getpid(2)` would cost as much as an empty look. A page that the kernel hands to children empty (`madvise(2)`, MADV_WIPEONFORK,
//! Linux 4.14) answers with one load. A child that shares its parent's memory (`vfork(2)`, threads)
//! is taken for the parent.
//!
//! Descriptors that a parent left open for its child are known to it only by their numbers: a worker of the
//! service pool duplicates each number that its environment names; a pool that continues behind the terminal
//! keeps from its workers what its own parent left open. A number alone proves no ownership:
//! [`duplicate_inherited`] hands out another descriptor of the same file, [`take_inherited`] asks for the mark
//! of what a parent left open.
//!
//! [`exec_with_signals_blocked`] makes another program of this process, which misses no signal.
//!
//! A pool is in the session of the command that started it and gives up that session's terminal
//! ([`leave_terminal`]): its workers are not to ask there.
//!
//! The lab reads around turns what the kernel books for a process; that is not for a hot path.
//!
//! [`ignores`] says whether a signal was set to be ignored by what started the process, as nohup(1) does.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Whether this process ignores the signal of this number; false where `/proc` can't be read. A program that is to
/// survive its terminal (nohup(1)) is started so, and catches no SIGHUP then.
#[must_use]
pub fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, signal)
}

/// Whether the signal is in the mask of ignored ones (proc(5)): the lowest bit is signal 1.
fn is_in_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

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
        // SAFETY: the range is that of the mapping made above, which is known here only.
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
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANON;
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

/// The group of this process; none where it lies outside of the PID namespace, whose kernel then says 0
/// (`pid_namespaces(7)`): of the first process that unshare(1) or a container starts.
#[must_use]
pub fn group() -> Option<NonZeroU32> {
    // SAFETY: takes nothing and always succeeds.
    let group = unsafe { libc::getpgrp() };
    u32::try_from(group).ok().and_then(NonZeroU32::new)
}

/// Duplicates descriptor `number`, and marks both it and the duplicate to be closed on exec, so
/// that the children of this process don't keep the file open.
///
/// The original stays open until the process ends.
///
/// # Errors
/// EBADF when the number names no open file, EMFILE.
pub fn duplicate_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers; for a number that is not open it gives EBADF.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor, and it has no other owner.
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    // SAFETY: the call takes integers and changes a flag that matters only at an exec.
    let marked = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(copy) }
}

/// Takes descriptor `number`, which a parent left open: the original is closed, so that the file is
/// closed with what is handed out.
///
/// Only a descriptor above standard error that is not marked to be closed on exec is taken: a parent
/// must leave it so, and this process marks everything that it opens itself.
///
/// # Errors
/// EBADF when the number names no such descriptor, EMFILE.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers; for a number that is not open it gives EBADF.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if number <= libc::STDERR_FILENO || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let copy = duplicate_inherited(number)?;
    // SAFETY: the call takes an integer; nothing in this process owns the number, as it was not marked
    // to be closed on exec.
    unsafe { libc::close(number) };
    Ok(copy)
}

/// Becomes the program at this path, with these words of a command line and these variables (execve(2)); it returns only where
/// that fails. All signals are blocked meanwhile, and in the new program until it calls [`unblock_signals`]: none ends it before
/// it catches them. For a process of one thread.
#[must_use]
pub fn exec_with_signals_blocked(
    program: &Path,
    words: &[OsString],
    variables: &[(OsString, OsString)],
) -> io::Error {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let variable = |(name, value): &(OsString, OsString)| {
        text(&[name.as_bytes(), b"=", value.as_bytes()].concat())
    };
    let all = || {
        let words =
            words.iter().map(|word| text(word.as_bytes())).collect::<io::Result<Vec<_>>>()?;
        let variables = variables.iter().map(variable).collect::<io::Result<Vec<_>>>()?;
        Ok::<_, io::Error>((text(program.as_os_str().as_bytes())?, words, variables))
    };
    let (program, words, variables) = match all() {
        Ok(all) => all,
        Err(error) => return error,
    };
    let pointers = |texts: &[CString]| {
        let texts = texts.iter().map(|text| text.as_ptr());
        texts.chain([ptr::null()]).collect::<Vec<_>>()
    };
    let argv = pointers(&words);
    let envp = pointers(&variables);
    let mut every = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes a set into the room that it is given.
    unsafe { libc::sigfillset(every.as_mut_ptr()) };
    set_signal_mask(&every);
    // SAFETY: the program and both lists are texts that end with a zero byte, the lists end with a null pointer, and all of them
    // live here.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    let error = io::Error::last_os_error();
    unblock_signals();
    error
}

/// Blocks no signal any more; those that have waited come.
pub fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes a set into the room that it is given.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    set_signal_mask(&none);
}

/// `mask` was written by one of the calls that make a set.
fn set_signal_mask(mask: &MaybeUninit<libc::sigset_t>) {
    // SAFETY: the set was written whole, the mask before is not asked for; with a constant for how the call does not fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut()) };
}

/// Marks all descriptors from `first` on, open at this moment, to be closed on exec, so that what
/// this process starts does not keep the files open (`close_range(2)`).
///
/// # Errors
/// EINVAL before Linux 5.11, ENOSYS before 5.9.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    let last = libc::c_uint::MAX;
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: the call takes integers and changes flags that matter only at an exec.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if marked < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives up the controlling terminal of this process and of those that it starts from now on, and stays in its session:
/// `/dev/tty` is ENXIO then, as in a session without a terminal, and what reads from it is not stopped as a job in the
/// background. Keys of the terminal still signal this process while its group is the one in the foreground.
///
/// The leader of a session keeps it: with the leader all others would lose it, and be hung up (`tty_ioctl(4)`, TIOCNOTTY).
///
/// # Errors
/// Of `open(2)`, and of `ioctl(2)`. Without a terminal there is nothing to do.
pub fn leave_terminal() -> io::Result<()> {
    // SAFETY: the call takes an integer; 0 is this process, of which it cannot fail.
    let session = unsafe { libc::getsid(0) };
    if session.cast_unsigned() == std::process::id() {
        return Ok(());
    }
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty");
    let terminal = match terminal {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENOENT)) => {
            return Ok(());
        }
        opened => opened?,
    };
    // SAFETY: the descriptor is open, and this request has no argument.
    let left = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
    if left < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// CPU time of a process: of all its threads, those that have ended included, exact at the moment
/// of the call also while they run (`clock_getcpuclockid(3)`).
///
/// The figures of `/proc/PID/schedstat` are up to a tick behind while a thread runs.
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it may not be looked at.
pub fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for one clock id, and the call keeps no pointer to it.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one timespec, and the call keeps no pointer to it.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_mask_has_signal_1_in_its_lowest_bit() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert_eq!(
            [1, 2, 13, 0, 65].map(|signal| is_in_mask(status, signal)),
            [true, false, true, false, false]
        );
        assert!(!is_in_mask("", 1));
        // The runtime of Rust ignores SIGPIPE.
        assert!(ignores(libc::SIGPIPE) && !ignores(libc::SIGTERM));
    }

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

    #[test]
    fn descriptors_that_a_parent_left_open_are_taken_once_and_none_of_ours() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        take_inherited(there.as_raw_fd()).expect_err("marked, so ours");
        take_inherited(2).expect_err("standard error");
        take_inherited(-1).expect_err("no number");
        // Far above what other tests have open at this moment, and below what another one marks.
        const NUMBER: i32 = 800;
        // SAFETY: the call takes integers; the number is ours alone.
        let left = unsafe { libc::fcntl(there.as_raw_fd(), libc::F_DUPFD, NUMBER) };
        assert!(left >= NUMBER);
        drop(there);
        let taken = take_inherited(left).expect("left open");
        take_inherited(left).expect_err("taken already");
        drop(taken);
        let mut text = String::new();
        here.read_to_string(&mut text).expect("the end: the other side is closed");
        assert!(text.is_empty());
    }

    #[test]
    fn a_marked_descriptor_is_closed_on_exec_and_stays_open_here() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        // Far above what other tests have open at this moment.
        const NUMBER: i32 = 900;
        // SAFETY: the call takes integers; the number is ours alone.
        let copy = unsafe { libc::fcntl(there.as_raw_fd(), libc::F_DUPFD, NUMBER) };
        assert!(copy >= NUMBER);
        // SAFETY: the kernel just made this descriptor, and it has no other owner.
        let mut copy = unsafe { UnixStream::from_raw_fd(copy) };
        close_on_exec_from(NUMBER as u32).expect("Linux 5.11");
        // SAFETY: the call takes integers.
        let flags = unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        copy.write_all(b"x").expect("it is open");
        here.read_exact(&mut [0]).expect("one byte");
    }

    #[test]
    fn the_duplicate_is_the_same_file_and_a_closed_number_is_an_error() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let number = there.as_raw_fd();
        let copy = duplicate_inherited(number).expect("it is open");
        assert_ne!(copy.as_raw_fd(), number);
        let mut copy = UnixStream::from(copy);
        copy.write_all(b"x").expect("connected");
        let mut byte = [0];
        here.read_exact(&mut byte).expect("one byte");
        assert_eq!(byte, *b"x");
        let error = duplicate_inherited(RawFd::MAX).expect_err("never open");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_process_has_used_what_its_threads_have() {
        let before = process_cpu_time(std::process::id()).expect("our own clock");
        let spun = std::thread::spawn(|| (0..3_000_000u64).fold(1, |a, b| a ^ b.rotate_left(3)));
        assert_ne!(spun.join().expect("arithmetic"), 0);
        let after = process_cpu_time(std::process::id()).expect("our own clock");
        assert!(after > before, "{before:?} to {after:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = process_cpu_time(u32::MAX).expect_err("no such process");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
