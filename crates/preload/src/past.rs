//! Epoll that is used past the C library: by system calls of the program's own (rustix), or by rings of io_uring that
//! are not read.
//!
//! The kernel shows what an instance watches (`/proc/self/fdinfo`). What it has and no call that was seen has registered
//! came past the library. That is looked at before the first waits of a thread on an instance, ever more rarely, and at
//! the end of the process, where instances that were made past the library are found too. Where another mechanism has
//! the place of the kernel's epoll the instance is the kernel's from then on, as only that sees what is ready; one
//! line on standard error says so.

use std::ffi::c_int;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pollux_sys::loop_stats::Counter;

use crate::thread::{Thread, errno, set_errno};
use crate::{attach, descriptors, emulation, filters};

/// Waits of a thread by which a change of the instance is looked at.
const CHANGES_MAX: u32 = 1024;

/// What is looked at before a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// All that the kernel has, and all that is registered or held.
    All,
    /// Whether something was closed, of few registrations or of what the last wait reported: a program closes that.
    Closes,
    Nothing,
}

/// How much is looked at before this wait.
#[inline]
pub(crate) fn due(thread: &Thread, epfd: c_int) -> Look {
    let (waits, last) = thread.looks.get();
    let waits = waits.wrapping_add(1);
    thread.looks.set((waits, epfd));
    let is_due = waits.is_power_of_two() || waits < CHANGES_MAX;
    if !is_due || filters::is_set() {
        Look::Nothing
    } else if waits.is_power_of_two() || last != epfd {
        Look::All
    } else {
        Look::Closes
    }
}

/// Looks at an instance before a wait on it.
#[cold]
pub(crate) fn look(epfd: c_int, look: Look) {
    let thread = Thread::here();
    if !thread.is_own() || !(attach::is_counted() || emulation::is_chosen()) {
        return;
    }
    let before = errno();
    if emulation::is_chosen() {
        emulation::closed_past(epfd, look == Look::All);
        say_of_closes();
    }
    if look != Look::All {
        set_errno(before);
        return;
    }
    let past = registered_past(thread, epfd);
    if past > 0 {
        thread.counting("epoll_wait", || {
            let tally = thread.tally_or_claim();
            tally.inspect(|tally| tally.add(Counter::PastRegistrations, past));
        });
    }
    set_errno(before);
}

/// Whether a wait failed as something was closed past the library: the instance is the kernel's then.
pub(crate) fn is_closed(epfd: c_int) -> bool {
    let is_so = !filters::is_set() && emulation::closed_past(epfd, true);
    say_of_closes();
    is_so
}

/// Says once that descriptors were closed past the library, where that was found.
pub(crate) fn say_of_closes() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if emulation::closes_past() && !IS_SAID.swap(true, Relaxed) {
        say(
            Thread::here(),
            "closed descriptors past the C library: the kernel's epoll serves its instances",
        );
    }
}

/// What an instance watches that was registered past the library.
fn registered_past(thread: &Thread, epfd: c_int) -> u64 {
    if emulation::is_chosen() {
        let past = emulation::give_back(epfd) as u64;
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if past > 0 && !IS_SAID.swap(true, Relaxed) {
            say(
                thread,
                "registered descriptors past the C library: the kernel's epoll serves that instance",
            );
        }
        return past;
    }
    if !descriptors::is_instance(epfd) {
        return 0;
    }
    let watched = thread.inside(|| watched_by(epfd)).unwrap_or_default();
    watched.into_iter().filter(|fd| !descriptors::has(epfd, *fd)).count() as u64
}

/// Notes the instances that this program was given.
pub(crate) fn note_the_start() {
    open_numbers().filter(|fd| watched_by(*fd).is_some()).for_each(descriptors::is_now_instance);
}

/// Looks for instances that nobody made by the C library's names, at the end of the process.
pub(crate) fn look_at_the_end() {
    if filters::is_set() {
        return;
    }
    let thread = Thread::here();
    let before = errno();
    let is_past = |fd: &c_int| {
        !is_known(*fd)
            && watched_by(*fd).is_some_and(|watched| !watched.is_empty())
            && !open_numbers()
                .any(|other| (is_known(other) || other < *fd) && may_be_same(*fd, other))
    };
    let mut found: Vec<c_int> = thread.inside(|| open_numbers().filter(is_past).collect());
    if !found.is_empty() {
        // What aio cannot poll, and listeners, it watches by an epoll of its own.
        let held = emulation::held(0, u32::MAX);
        found.retain(|fd| !held.contains(fd));
    }
    let instances = found.len();
    if instances > 0 {
        thread.counting("the end of the process", || {
            let tally = thread.tally_or_claim();
            tally.inspect(|tally| tally.add(Counter::PastInstances, instances as u64));
        });
        if emulation::is_chosen() {
            say(thread, "made calls of epoll past the C library: those went to the kernel's epoll");
        }
    }
    set_errno(before);
}

/// Whether an instance was made by the C library's names.
fn is_known(fd: c_int) -> bool {
    descriptors::is_instance(fd) || emulation::is_instance(fd)
}

/// Whether two numbers of instances name one open file, as after dup(2). Where the kernel does not tell, as kcmp(2) is
/// forbidden in containers and fcntl(2) does since Linux 6.10, those may be one that watch the same.
fn may_be_same(fd: c_int, other: c_int) -> bool {
    const KCMP_FILE: c_int = 0;
    let pid = std::process::id();
    // SAFETY: numbers alone.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, fd, other) } {
        0 => return true,
        1.. => return false,
        _ => {}
    }
    // SAFETY: numbers alone.
    match unsafe { libc::fcntl(fd, F_DUPFD_QUERY, other) } {
        0 => false,
        1.. => true,
        _ => lines_of(fd) == lines_of(other),
    }
}

/// Of `linux/fcntl.h`.
const F_DUPFD_QUERY: c_int = 1024 + 3;

/// Why an instance is the kernel's.
pub(crate) const LINKED: &str = "updated epoll by linked or drained requests of io_uring: the kernel's epoll serves that instance";

/// Says something once, in one line, where it is so.
pub(crate) fn say_if(is_so: bool, what: &str) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if is_so && !IS_SAID.swap(true, Relaxed) {
        say(Thread::here(), what);
    }
}

/// One line of the whole process.
fn say(thread: &Thread, what: &str) {
    thread.inside(|| {
        let line = format!("pollux run: process {} {what}\n", std::process::id());
        // Where standard error is closed nobody reads it.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

fn open_numbers() -> impl Iterator<Item = c_int> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the kernel says that an instance watches; nothing where the number is none of an instance.
fn watched_by(fd: c_int) -> Option<Vec<c_int>> {
    let of = |line: &String| line.split_whitespace().next()?.parse().ok();
    Some(lines_of(fd)?.iter().filter_map(of).collect())
}

/// Of each descriptor that an instance watches its number, events and data, and which file it is.
fn lines_of(fd: c_int) -> Option<Vec<String>> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if link.as_os_str() != "anon_inode:[eventpoll]" {
        return None;
    }
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    Some(text.lines().filter_map(|line| line.strip_prefix("tfd:")).map(str::to_owned).collect())
}
