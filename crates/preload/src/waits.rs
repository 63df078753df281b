//! The functions of epoll: epoll_create(2), epoll_ctl(2), epoll_wait(2) and their kin.

use std::ffi::c_int;
use std::ptr;

use libc::{epoll_event, sigset_t, timespec};
use pollux_sys::loop_stats::{Call, Cell as Tally, Counter, Histogram, Site};

use crate::descriptors::{self, Owner, Update};
use crate::emulation::{self, Limit};
use crate::names::{taken, unknown};
use crate::thread::{Thread, errno, set_errno};
use crate::turn::{Outcome, now_ns};
use crate::{attach, past};

/// A wait that ends sooner found its events ready.
const AT_ONCE_NS: u64 = 20_000;

taken! { Both: epoll_create / 1 (size: c_int; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own argument.
    create(0, size > 0, || unsafe { real(size) })
} }

taken! { Both: epoll_create1 / 1 (flags: c_int; _caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own argument.
    create(flags, true, || unsafe { real(flags) })
} }

taken! { Both: epoll_ctl / 4 (epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event; caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own arguments.
    let kernel = || unsafe { real(epfd, op, fd, event) };
    // SAFETY: as above.
    unsafe { control((epfd, op, fd), event, caller as u64, kernel) }
} }

taken! { Both: epoll_wait / 4 (epfd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int; caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    let asked = WaitArgs { epfd, events, most, limit: Limit::of_ms(timeout), caller };
    // SAFETY: the caller's own arguments.
    let kernel = || unsafe { real(epfd, events, most, timeout) };
    // SAFETY: as above.
    unsafe { wait(&asked, ptr::null(), kernel) }
} }

taken! { Both: epoll_pwait / 5 (epfd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t; caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    let asked = WaitArgs { epfd, events, most, limit: Limit::of_ms(timeout), caller };
    // SAFETY: the caller's own arguments.
    let kernel = || unsafe { real(epfd, events, most, timeout, mask) };
    // SAFETY: as above.
    unsafe { wait(&asked, mask, kernel) }
} }

taken! { Both: epoll_pwait2 / 5 (epfd: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t; caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    // SAFETY: the caller's own argument, which the kernel reads as well; null means without a limit.
    let limit = Limit::of(unsafe { timeout.as_ref() });
    let asked = WaitArgs { epfd, events, most, limit, caller };
    // SAFETY: the caller's own arguments.
    let kernel = || unsafe { real(epfd, events, most, timeout, mask) };
    // SAFETY: as above.
    unsafe { wait(&asked, mask, kernel) }
} }

/// epoll_create1(2); `is_sound` says whether the kernel takes the arguments, and `kernel` asks it.
pub(crate) fn create(flags: c_int, is_sound: bool, kernel: impl FnOnce() -> c_int) -> c_int {
    let made = is_sound.then(|| emulation::create(flags)).flatten();
    if emulation::closes_past() {
        past::say_of_closes();
    }
    created(made.unwrap_or_else(kernel))
}

/// epoll_ctl(2), which `kernel` asks for where it is the kernel's.
///
/// # Safety
/// `event` is null or leads to an event, as epoll_ctl(2) asks for.
pub(crate) unsafe fn control(
    (epfd, op, fd): (c_int, c_int, c_int),
    event: *mut epoll_event,
    caller: u64,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { emulation::ctl(epfd, op, fd, event) }.unwrap_or_else(kernel);
    if !attach::is_counted() {
        return result;
    }
    let before = errno();
    // SAFETY: the kernel took the event, so it can be read; a deletion needs none.
    let read = || unsafe { event.read_unaligned() };
    let event = (result >= 0 && op != libc::EPOLL_CTL_DEL).then(read);
    updated((epfd, op, fd), event, caller, result >= 0);
    set_errno(before);
    result
}

/// Counts an update that was asked for.
pub(crate) fn updated(
    update: (c_int, c_int, c_int),
    event: Option<epoll_event>,
    caller: u64,
    is_done: bool,
) {
    let thread = Thread::here();
    thread.counting("epoll_ctl", || {
        let Some(tally) = thread.tally_or_claim() else { return };
        thread.settle();
        if is_done {
            controlled(thread, &tally, update, event, caller);
        } else {
            tally.count(Counter::ControlsFailed);
        }
    });
}

/// epoll_pwait2(2), which `kernel` asks for where it is the kernel's.
///
/// # Safety
/// `asked.events` leads to `asked.most` events, `mask` is null or leads to a set.
pub(crate) unsafe fn wait(
    asked: &WaitArgs,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    let WaitArgs { epfd, events, most, limit, .. } = *asked;
    match past::due(Thread::here(), epfd) {
        past::Look::Nothing => {}
        look => past::look(epfd, look),
    }
    waited(asked, || {
        // SAFETY: the caller's promise.
        match unsafe { emulation::wait(epfd, events, most, limit, mask) } {
            // What the library waits by was closed: the kernel's epoll has its place.
            Some(-1) if errno() == libc::EBADF && past::is_closed(epfd) => kernel(),
            answer => answer.unwrap_or_else(kernel),
        }
    })
}

/// A wait as it was asked for.
pub(crate) struct WaitArgs {
    pub(crate) epfd: c_int,
    pub(crate) events: *mut epoll_event,
    pub(crate) most: c_int,
    pub(crate) limit: Limit,
    pub(crate) caller: usize,
}

fn created(fd: c_int) -> c_int {
    let before = errno();
    if fd >= 0 && attach::is_counted() {
        let thread = Thread::here();
        thread.counting("epoll_create", || {
            descriptors::is_now_instance(fd);
            thread.tally_or_claim().inspect(|tally| tally.count(Counter::Creates));
        });
    }
    set_errno(before);
    fd
}

fn controlled(
    thread: &Thread,
    tally: &Tally<'static>,
    (epfd, op, fd): (c_int, c_int, c_int),
    event: Option<epoll_event>,
    caller: u64,
) {
    let turn = thread.turn.name();
    let (mask, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    let (counter, update) = match op {
        libc::EPOLL_CTL_ADD => (Counter::Adds, descriptors::added(epfd, fd, mask, data, turn)),
        libc::EPOLL_CTL_MOD => (Counter::Mods, descriptors::modified(epfd, fd, mask, data, turn)),
        _ => (Counter::Dels, descriptors::deleted(epfd, fd, turn)),
    };
    tally.count(counter);
    for (bit, counter) in [
        (libc::EPOLLET, Counter::Edges),
        (libc::EPOLLONESHOT, Counter::Oneshots),
        (libc::EPOLLEXCLUSIVE, Counter::Exclusives),
    ] {
        if mask & bit as u32 != 0 {
            tally.count(counter);
        }
    }
    let Update { is_same, is_cancelled, is_back, is_unneeded, is_anew } = update;
    for (is_so, counter, site) in [
        (is_same, Counter::ModsSame, Some(Site::Cancelled)),
        (is_cancelled, Counter::Cancelled, Some(Site::Cancelled)),
        (is_back, Counter::ModsBack, None),
        (is_unneeded, Counter::WritableUnneeded, Some(Site::WritableUnneeded)),
        (is_anew, Counter::Readds, Some(Site::Readd)),
    ] {
        if is_so {
            tally.count(counter);
            site.inspect(|site| tally.site(*site, caller));
        }
    }
}

/// Does a wait and counts it.
fn waited(asked: &WaitArgs, wait: impl FnOnce() -> c_int) -> c_int {
    if !attach::is_counted() {
        return wait();
    }
    let thread = Thread::here();
    let Some(tally) = thread.tally_or_claim() else { return wait() };
    if thread.turn.has_nested(asked.epfd) {
        return waited_within(thread, &tally, asked, wait);
    }
    let began_ns = now_ns();
    thread.counting("epoll_wait", || thread.end_turn(tally, began_ns));
    let result = wait();
    let before = errno();
    let ended_ns = now_ns();
    thread.counting("epoll_wait", || {
        let waited_ns = ended_ns.saturating_sub(began_ns);
        tally.add(Counter::WaitNs, waited_ns);
        count(thread, &tally, asked, result, waited_ns);
        let events = u64::try_from(result).unwrap_or(0);
        thread.turn.begin(asked.epfd, ended_ns, waited_ns, events, asked.caller as u64);
    });
    set_errno(before);
    result
}

/// The same within the turn of another instance: a call of that turn, whose time is the turn's.
fn waited_within(
    thread: &Thread,
    tally: &Tally<'static>,
    asked: &WaitArgs,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    thread.counting("epoll_wait", || thread.settle());
    let began_ns = now_ns();
    let began = thread.begin();
    let result = wait();
    let before = errno();
    thread.end(Call::EpollWait, asked.epfd, asked.caller as u64, began, Outcome::None);
    thread.counting("epoll_wait", || {
        tally.count(Counter::NestedWaits);
        count(thread, tally, asked, result, now_ns().saturating_sub(began_ns));
        thread.turn.nested_ended();
    });
    set_errno(before);
    result
}

fn count(thread: &Thread, tally: &Tally<'static>, asked: &WaitArgs, result: c_int, waited_ns: u64) {
    let caller = asked.caller as u64;
    tally.count(Counter::Waits);
    tally.time(Histogram::WaitLength, waited_ns);
    let Ok(events) = usize::try_from(result) else {
        let is_signal = errno() == libc::EINTR;
        tally.count(if is_signal { Counter::Interrupted } else { Counter::WaitsFailed });
        return;
    };
    tally.events(events as u64);
    if events == 0 {
        let is_poll = matches!(asked.limit, Limit::Time(time) if time.is_zero());
        tally.count(if is_poll { Counter::EmptyPolls } else { Counter::TimedOut });
        return;
    }
    tally.add(Counter::Events, events as u64);
    let mut stale = 0;
    let mut unknown = 0;
    let mut last = 0;
    for index in 0..events {
        // SAFETY: the kernel wrote so many events to the address.
        let at = unsafe { asked.events.add(index) };
        // SAFETY: as above.
        let event = unsafe { at.read_unaligned() };
        last = event.u64;
        match descriptors::delivered(asked.epfd, event.events, event.u64) {
            Owner::Known => {}
            Owner::Stale => stale += 1,
            Owner::Unknown => unknown += 1,
        }
    }
    tally.add(Counter::Stale, stale);
    tally.add(Counter::Unknown, unknown);
    if result == asked.most {
        tally.count(Counter::Full);
    }
    let before = thread.last_single.replace(last.wrapping_add(1));
    let is_another = before != 0 && before != last.wrapping_add(1);
    if asked.most == 1 && is_another && waited_ns < AT_ONCE_NS {
        tally.count(Counter::OneByOne);
        tally.site(Site::OneByOne, caller);
    }
}
