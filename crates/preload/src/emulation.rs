//! epoll on another mechanism than the kernel's own, where the environment names one.
//!
//! All of it is `pollux-epoll-c`; here its hooks are called. What that calls of the C library comes
//! through the names of this library, where a mark of the thread lets it pass.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec};
use pollux_epoll_c::{Facility, Identity, Instance, Instances, Mechanism, border};

use crate::thread::{Thread, errno, set_errno};

static INSTANCES: Instances = Instances::new(Identity::Hooked);

/// What was chosen: not read yet, the kernel's own, or one of [`Mechanism::PLAIN`] by its place.
static CHOSEN: AtomicUsize = AtomicUsize::new(UNREAD);
const UNREAD: usize = usize::MAX;
const KERNELS: usize = usize::MAX - 1;

/// The most numbers of a set of select(2).
const FD_SETSIZE: c_int = libc::FD_SETSIZE as c_int;

/// How long a wait may last.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    None,
    Time(Duration),
    /// A negative time, or one with too many nanoseconds: EINVAL.
    Invalid,
}

impl Limit {
    /// Negative means without a limit.
    pub(crate) fn of_ms(timeout: c_int) -> Self {
        u64::try_from(timeout).map_or(Self::None, |ms| Self::Time(Duration::from_millis(ms)))
    }

    pub(crate) fn of(timeout: Option<&timespec>) -> Self {
        let Some(time) = timeout else { return Self::None };
        match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
            (Ok(s), Ok(ns)) if ns < 1_000_000_000 => Self::Time(Duration::new(s, ns)),
            _ => Self::Invalid,
        }
    }
}

/// The mechanism, if it is not the kernel's epoll.
#[inline]
fn chosen() -> Option<Mechanism> {
    let mut chosen = CHOSEN.load(Relaxed);
    if chosen == UNREAD {
        chosen = read();
        CHOSEN.store(chosen, Relaxed);
    }
    Mechanism::PLAIN.get(chosen).copied()
}

#[cold]
fn read() -> usize {
    const VARIABLE: &CStr = c"PX_POLLER";
    // SAFETY: the name is a C string.
    let name = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if name.is_null() {
        return KERNELS;
    }
    // SAFETY: the value is a C string of the environment.
    let name = unsafe { CStr::from_ptr(name) };
    let is_it = |one: &Mechanism| one.name().as_bytes() == name.to_bytes();
    let place = Mechanism::PLAIN.iter().position(is_it);
    place.filter(|place| Mechanism::PLAIN[*place] != Mechanism::Epoll).unwrap_or(KERNELS)
}

/// A new instance, or an error; nothing where it is the kernel's to make.
pub(crate) fn create(flags: c_int) -> Option<c_int> {
    if !is_asked() || closes_past() {
        return None;
    }
    let mechanism = chosen()?;
    answered(inside("epoll_create", || INSTANCES.create(mechanism, flags).map(Some)))
}

/// The update of an instance; nothing where it is the kernel's.
///
/// # Safety
/// `event` is null or leads to an event, as epoll_ctl(2) asks for.
pub(crate) unsafe fn ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> Option<c_int> {
    if !is_asked() {
        return None;
    }
    let is_read = op != libc::EPOLL_CTL_DEL && !event.is_null();
    answered(inside("epoll_ctl", || {
        if INSTANCES.find(epfd).is_none() && INSTANCES.find(fd).is_none() {
            return Ok(None);
        }
        // SAFETY: the caller's promise; C programs pack it or not, so it is read by bytes.
        let event = is_read.then(|| unsafe { event.read_unaligned() });
        INSTANCES.ctl(epfd, op, fd, event).map(|()| Some(0))
    }))
}

/// What the kernel's epoll behind the number of an instance has: to add it there is EEXIST.
pub(crate) fn tag(epfd: c_int) -> Option<c_int> {
    inside("epoll_ctl", || Ok(INSTANCES.find(epfd).and_then(Instance::tag))).ok()?
}

/// Hands an instance to the kernel's epoll where descriptors were registered past the C library. How many.
pub(crate) fn give_back(epfd: c_int) -> usize {
    let given = inside("epoll_wait", || {
        let past = INSTANCES.find(epfd).map_or(0, |instance| instance.registered_past(epfd));
        if past > 0 {
            INSTANCES.watched(epfd)?;
        }
        Ok(past)
    });
    given.unwrap_or(0)
}

/// Hands the instance that a number names to the kernel's epoll. Says whether it was none before.
pub(crate) fn hand_over(epfd: c_int) -> bool {
    is_asked()
        && inside("epoll_ctl", || {
            let instance = INSTANCES.find(epfd);
            let is_new = instance.is_some_and(|one| one.mechanism() != Mechanism::Epoll);
            INSTANCES.watched(epfd).map(|()| is_new)
        })
        .unwrap_or(false)
}

/// The same for all instances that watch a number.
pub(crate) fn hand_over_watching(fd: c_int) -> bool {
    is_asked()
        && inside("close", || Ok(INSTANCES.watching(fd)))
            .unwrap_or_default()
            .into_iter()
            .filter(|epfd| hand_over(*epfd))
            .count()
            > 0
}

/// Looks whether descriptors of an instance were closed past the C library: all, or those that its last wait
/// reported. Then the kernel's epoll serves all instances of the process from now on.
pub(crate) fn closed_past(epfd: c_int, is_whole: bool) -> bool {
    is_asked()
        && inside("epoll_wait", || Ok(INSTANCES.closed_past(epfd, is_whole))).unwrap_or(false)
}

/// Whether descriptors were found closed so.
#[inline]
pub(crate) fn closes_past() -> bool {
    INSTANCES.closes_past()
}

/// Whether a number is that of an instance.
pub(crate) fn is_instance(fd: c_int) -> bool {
    inside("epoll_wait", || Ok(INSTANCES.find(fd).is_some())).unwrap_or(true)
}

/// A wait on an instance; nothing where it is the kernel's.
///
/// # Safety
/// `events` leads to `most` events, `mask` is null or leads to a set, as epoll_pwait(2) asks for.
pub(crate) unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: Limit,
    mask: *const sigset_t,
) -> Option<c_int> {
    if !is_asked() {
        return None;
    }
    let refused = |errno| Err(io::Error::from_raw_os_error(errno));
    answered(inside("epoll_wait", || {
        let Some(instance) = INSTANCES.find(epfd) else { return Ok(None) };
        let timeout = match limit {
            Limit::None => None,
            Limit::Time(time) => Some(time),
            Limit::Invalid => return refused(libc::EINVAL),
        };
        let len = match usize::try_from(most) {
            Ok(0) | Err(_) => return refused(libc::EINVAL),
            Ok(_) if events.is_null() => return refused(libc::EFAULT),
            Ok(len) => len,
        };
        let first = events.cast::<MaybeUninit<epoll_event>>();
        // SAFETY: the caller's promise; the type asks for nothing of what is there.
        let room = unsafe { slice::from_raw_parts_mut(first, len) };
        // SAFETY: the caller's promise.
        let mask = unsafe { mask.as_ref() };
        let found = instance.wait(epfd, room, timeout, mask)?;
        Ok(Some(c_int::try_from(found).unwrap_or(c_int::MAX)))
    }))
}

pub(crate) fn closing(fd: c_int) {
    notify("close", || INSTANCES.closing(fd));
}

pub(crate) fn closing_range(first: u32, last: u32) {
    notify("close_range", || INSTANCES.closing_range(first, last));
}

/// The numbers from `first` to `last` that are this library's own, in order: they are closed to the program.
pub(crate) fn held(first: u32, last: u32) -> Vec<RawFd> {
    if !is_asked() || INSTANCES.is_empty() || !Thread::here().is_own() {
        return Vec::new();
    }
    inside("close", || Ok(INSTANCES.held(first, last))).unwrap_or_default()
}

pub(crate) fn duplicated(old: c_int, new: c_int) {
    notify("dup", || INSTANCES.duplicated(old, new));
}

/// Descriptors that are about to be looked at by poll(2): of an instance only the kernel's epoll tells more.
pub(crate) fn polled(fds: *const pollfd, count: nfds_t) {
    if INSTANCES.is_empty() || fds.is_null() {
        return;
    }
    let len = usize::try_from(count).unwrap_or(0);
    // Another address than NULL is the caller's promise; each element is read alone.
    let fd_of = |index: usize| {
        // SAFETY: poll(2) asks for so many elements.
        let element = unsafe { fds.add(index) };
        // SAFETY: as above.
        unsafe { (*element).fd }
    };
    watched((0..len).map(fd_of));
}

/// The same for select(2).
pub(crate) fn selected(count: c_int, sets: [*const fd_set; 3]) {
    if INSTANCES.is_empty() {
        return;
    }
    let is_in = |fd: c_int| {
        // SAFETY: select(2) asks for sets of so many numbers, or NULL.
        sets.iter().any(|set| !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) })
    };
    watched((0..count.min(FD_SETSIZE)).filter(|fd| is_in(*fd)));
}

fn watched(numbers: impl Iterator<Item = c_int>) {
    // Without memory for that it stays as it was, and silent.
    notify("poll", || numbers.for_each(|fd| drop(INSTANCES.watched(fd))));
}

pub(crate) fn before_fork() {
    notify("fork", || INSTANCES.before_fork());
}

pub(crate) fn after_fork_in_parent() {
    notify("fork", || INSTANCES.after_fork_in_parent());
}

pub(crate) fn after_fork_in_child() {
    notify("fork", || INSTANCES.after_fork_in_child());
}

/// The process ends by exit(3).
pub(crate) fn ending() {
    notify("exit", || INSTANCES.ending());
}

/// Becomes another program by `exec`, which comes back only when that failed. Instances that the new program
/// has too are the kernel's there; where that can't be, the answer is the errno why.
pub(crate) fn executed(exec: impl FnOnce() -> c_int) -> c_int {
    if !is_asked() {
        return exec();
    }
    let handed = match inside("execve", || INSTANCES.before_exec()) {
        Ok(handed) => handed,
        Err(error) => return answered(Err(error)).unwrap_or(-1),
    };
    let result = exec();
    let why = errno();
    // A fault in it was reported already.
    let _ = inside("execve", || {
        drop(handed);
        Ok(())
    });
    set_errno(why);
    result
}

/// Does what the program asked for by `call`, behind the border of `pollux-epoll-c`.
pub(crate) fn inside<T>(call: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    Thread::here().inside(|| border::contained(call, work))
}

/// Notifies the instances of something that they give no answer to.
fn notify(call: &str, work: impl FnOnce()) {
    if is_asked() {
        let done = inside(call, || {
            work();
            Ok(())
        });
        // A fault was reported already, and the program's call is made all the same.
        drop(done);
    }
}

/// Whether the program asks, and what it waits for is polled by rings of io_uring.
pub(crate) fn is_on_rings() -> bool {
    chosen().is_some_and(|mechanism| mechanism.facility() == Facility::Ring) && is_asked()
}

/// Whether calls of epoll go to another mechanism than the kernel's own.
#[inline]
pub(crate) fn is_chosen() -> bool {
    chosen().is_some()
}

/// Whether a mechanism was chosen and the program asks, not this library.
fn is_asked() -> bool {
    is_chosen() && !Thread::here().is_inside()
}

/// The answer of a C function, if there is one.
pub(crate) fn answered(done: io::Result<Option<c_int>>) -> Option<c_int> {
    done.unwrap_or_else(|error| {
        set_errno(error.raw_os_error().unwrap_or(libc::EIO));
        Some(-1)
    })
}
