//! Descriptors and times of a server's own: callbacks between requests (`tpext_...` of `atmi.h`).
//!
//! A thread waits for the descriptors and the time, and has the server's own thread make the calls; it waits again when
//! they were made.
//!
//! ```text
//!  thread: epoll ──ready──▶ eventfd ─────▶ server's thread, between requests: callbacks
//!     ▲                                                                         │
//!     └───────────────────────────── handled ◀──────────────────────────────────┘
//! ```
//!
//! epoll(7) watches open files, not numbers. One whose number was closed stays while a duplicate of it is open somewhere, in
//! a child of the server say, and cannot be taken off by a number that is not its own any more. So each descriptor has a
//! token that no other had: events of one that is forgotten are recognised, and have all that is left watched by a new epoll.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pollux_xatmi::error::Code;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::fault::{self, Fault, NO_FUNCTION};
use crate::registry::{attend, registry, without_signals};
use crate::server::end_as_failed;

/// Called for a descriptor.
type OnEvents = unsafe extern "C" fn(c_int, u32, *mut c_void) -> c_int;
/// Called for a time, or before the server waits.
type OnTime = unsafe extern "C" fn() -> c_int;

/// Events that are taken at once.
const EVENTS_MAX: usize = 64;
/// What stands for the time among the descriptors.
const OF_TIME: u64 = u64::MAX;
/// Longest period: that of 31 bits.
const PERIOD_MAX: c_int = i32::MAX;

thread_local! {
    /// Of the server whose own thread this is; made by the first descriptor or time.
    static POLLERS: RefCell<Option<Pollers>> = const { RefCell::new(None) };
    static BEFORE_WAIT: Cell<Option<OnTime>> = const { Cell::new(None) };
}

struct Pollers {
    epoll: OwnedFd,
    /// By their tokens.
    descriptors: BTreeMap<u64, Descriptor>,
    /// The token of the next one.
    next: u64,
    period: Option<(OwnedFd, OnTime)>,
}

/// A descriptor of the server, with its function.
#[derive(Clone, Copy)]
struct Descriptor {
    fd: c_int,
    flags: EventFlags,
    each: OnEvents,
    data: *mut c_void,
    /// Whether it was to be called once (EPOLLONESHOT), and was.
    is_spent: bool,
}

/// What the thread waits for from now on, where that is another one than before.
type NextEpoll = Option<OwnedFd>;

fn os(what: &'static str) -> impl Fn(Errno) -> Fault {
    move |errno| Fault::new(Code::Os.number(), format!("{what}: {errno}"))
}

impl Pollers {
    /// Begins to wait, in a thread.
    fn begin() -> Result<Self, Fault> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create1"))?;
        let failed = |error: std::io::Error| Fault::new(Code::Os.number(), format!("dup: {error}"));
        let watched = epoll.try_clone().map_err(failed)?;
        let (handled, is_handled) = channel();
        let is_rung = Arc::new(AtomicBool::new(false));
        let rung = Arc::clone(&is_rung);
        let ring = attend(Box::new(move || {
            // It may have been woken for something else.
            if rung.swap(false, Ordering::SeqCst) {
                call_back(&handled);
            }
        }))?;
        let watch = move || wait_for_events(watched, &ring, &is_rung, &is_handled);
        let thread = without_signals(|| {
            std::thread::Builder::new().name("pollux-pollers".to_owned()).spawn(watch)
        });
        thread.map_err(|error| Fault::new(Code::Os.number(), format!("no thread: {error}")))?;
        Ok(Self { epoll, descriptors: BTreeMap::new(), next: 0, period: None })
    }

    /// The token of a descriptor; of several that had this number, of the last.
    fn token_of(&self, fd: c_int) -> Option<u64> {
        let mut last = self.descriptors.iter().rev();
        last.find(|(_, descriptor)| descriptor.fd == fd).map(|(token, _)| *token)
    }

    fn add(&mut self, source: BorrowedFd<'_>, descriptor: Descriptor) -> Result<(), Fault> {
        let token = self.next;
        let added = epoll::add(&self.epoll, source, EventData::new_u64(token), descriptor.flags);
        if added == Err(Errno::EXIST) {
            let detail = format!("descriptor {} has a function already", descriptor.fd);
            return Err(Fault::new(Code::Match.number(), detail));
        }
        added.map_err(os("epoll_ctl"))?;
        // Of a file that was closed: this number is another one's now.
        if let Some(before) = self.token_of(descriptor.fd) {
            self.descriptors.remove(&before);
        }
        self.descriptors.insert(token, descriptor);
        self.next += 1;
        Ok(())
    }

    fn remove(&mut self, fd: c_int, source: BorrowedFd<'_>) -> Result<(), Fault> {
        let Some(token) = self.token_of(fd) else {
            let detail = format!("descriptor {fd} has no function");
            return Err(Fault::new(Code::Match.number(), detail));
        };
        self.descriptors.remove(&token);
        // One that was closed has left by itself, or is forgotten when it has events.
        let _ = epoll::delete(&self.epoll, source);
        Ok(())
    }

    /// Watches what is left by a new epoll, without descriptors that are forgotten.
    fn begin_anew(&mut self) -> rustix::io::Result<OwnedFd> {
        let new = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some((timer, _)) = &self.period {
            epoll::add(&new, timer, EventData::new_u64(OF_TIME), EventFlags::IN)?;
        }
        let old = &self.epoll;
        self.descriptors.retain(|token, descriptor| {
            // SAFETY: epoll_ctl(2) refuses one that is not open.
            let Ok(source) = (unsafe { borrowed(descriptor.fd) }) else { return false };
            let token = EventData::new_u64(*token);
            let flags = descriptor.flags;
            // What has this number now may be another file than was added: the old one does not know that.
            let is_watched = epoll::modify(old, source, token, flags).is_ok();
            is_watched && (descriptor.is_spent || epoll::add(&new, source, token, flags).is_ok())
        });
        let watched = new.try_clone().map_err(|_| Errno::MFILE)?;
        self.epoll = new;
        Ok(watched)
    }
}

/// Has the server's thread look, each time that something is ready.
fn wait_for_events(
    mut epoll: OwnedFd,
    ring: &OwnedFd,
    is_rung: &AtomicBool,
    is_handled: &Receiver<NextEpoll>,
) {
    loop {
        let mut ready = [PollFd::new(&epoll, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut ready, None)).is_err() {
            return;
        }
        is_rung.store(true, Ordering::SeqCst);
        let rung = retry_on_intr(|| rustix::io::write(ring, &1_u64.to_ne_bytes()));
        // A server that has ended answers no more.
        let Some(next) = rung.ok().and_then(|_| is_handled.recv().ok()) else { return };
        epoll = next.unwrap_or(epoll);
    }
}

/// Makes the calls for what is ready.
fn call_back(handled: &Sender<NextEpoll>) {
    let mut is_unknown = false;
    for (token, flags) in taken() {
        if token == OF_TIME {
            let each = POLLERS.with_borrow(|all| all.as_ref()?.period.as_ref().map(|of| of.1));
            // SAFETY: tpext_addperiodcb was given it for this.
            end_if_failed(each.is_none_or(|each| unsafe { each() } == 0));
            continue;
        }
        let descriptor = POLLERS.with_borrow_mut(|all| {
            let descriptor = all.as_mut()?.descriptors.get_mut(&token)?;
            descriptor.is_spent = descriptor.flags.contains(EventFlags::ONESHOT);
            Some(*descriptor)
        });
        // One of the calls before may have taken it off, and sees to it that it has no further events.
        let Some(Descriptor { fd, each, data, .. }) = descriptor else {
            is_unknown = true;
            continue;
        };
        // SAFETY: tpext_addpollerfd was given both for this.
        end_if_failed(unsafe { each(fd, flags, data) } == 0);
    }
    // Without a descriptor for a new one it is tried again with the next event, which comes at once.
    let begin_anew = |all: &mut Option<Pollers>| all.as_mut()?.begin_anew().ok();
    let next = if is_unknown { POLLERS.with_borrow_mut(begin_anew) } else { None };
    // The thread ends with the process.
    let _ = handled.send(next);
}

/// What is ready at this moment; the time is read.
fn taken() -> Vec<(u64, u32)> {
    POLLERS.with_borrow(|all| {
        let Some(all) = all else { return Vec::new() };
        let mut events =
            [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&all.epoll, &mut events, Some(&none)).unwrap_or(0);
        let of = |event: &Event| {
            // The kernel's struct is packed.
            let data = event.data;
            let flags = event.flags;
            (data.u64(), flags.bits())
        };
        let taken: Vec<(u64, u32)> = events[..count].iter().map(of).collect();
        if let Some((timer, _)) = &all.period
            && taken.iter().any(|(token, _)| *token == OF_TIME)
        {
            let _ = rustix::io::read(timer, &mut [0_u8; 8]);
        }
        taken
    })
}

/// Ends the server when a callback said so.
fn end_if_failed(is_well: bool) {
    if !is_well {
        end_as_failed();
    }
}

/// Does something with the descriptors of the server.
fn with<T>(work: impl FnOnce(&mut Pollers) -> Result<T, Fault>) -> Result<T, Fault> {
    registry()?;
    POLLERS.with_borrow_mut(|all| {
        if all.is_none() {
            *all = Some(Pollers::begin()?);
        }
        work(all.as_mut().expect("it was made"))
    })
}

/// A descriptor of the caller's.
///
/// # Safety
/// It is open while the result is used.
unsafe fn borrowed<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Fault> {
    if fd < 0 {
        return Err(Fault::invalid(format!("{fd} is not a descriptor")));
    }
    // SAFETY: it is not -1, and the caller's promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Calls `each` between requests when `fd` has one of the events of epoll(7).
///
/// # Safety
/// `each` is a function of this type or NULL, and may be given `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpext_addpollerfd(
    fd: c_int,
    events: u32,
    data: *mut c_void,
    each: Option<OnEvents>,
) -> c_int {
    fault::atmi(-1, || {
        let each = each.ok_or_else(|| Fault::invalid(NO_FUNCTION))?;
        // SAFETY: epoll_ctl(2) refuses one that is not open.
        let source = unsafe { borrowed(fd) }?;
        let flags = EventFlags::from_bits_retain(events);
        let descriptor = Descriptor { fd, flags, each, data, is_spent: false };
        with(|all| all.add(source, descriptor).map(|()| 0))
    })
}

/// Has a descriptor no function any more.
#[unsafe(no_mangle)]
pub extern "C" fn tpext_delpollerfd(fd: c_int) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: epoll_ctl(2) refuses one that is not open.
        let source = unsafe { borrowed(fd) }?;
        with(|all| all.remove(fd, source).map(|()| 0))
    })
}

/// Calls `each` between requests each so many seconds; no function, or no second, ends that.
///
/// # Safety
/// `each` is a function of this type or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpext_addperiodcb(seconds: c_int, each: Option<OnTime>) -> c_int {
    fault::atmi(-1, || {
        if !(0..=PERIOD_MAX).contains(&seconds) {
            return Err(Fault::invalid(format!("{seconds} seconds: expected 0 or more")));
        }
        with(|all| {
            // It leaves epoll with its last descriptor.
            all.period = None;
            let Some(each) = each.filter(|_| seconds > 0) else { return Ok(0) };
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer =
                timerfd_create(TimerfdClockId::Monotonic, flags).map_err(os("timerfd_create"))?;
            let every = Duration::from_secs(u64::from(seconds.cast_unsigned()));
            let every =
                Timespec::try_from(every).map_err(|_| Fault::invalid("the period is too long"))?;
            let times = Itimerspec { it_interval: every, it_value: every };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)
                .map_err(os("timerfd_settime"))?;
            let token = EventData::new_u64(OF_TIME);
            epoll::add(&all.epoll, timer.as_fd(), token, EventFlags::IN)
                .map_err(os("epoll_ctl"))?;
            all.period = Some((timer, each));
            Ok(0)
        })
    })
}

/// Ends what tpext_addperiodcb began.
#[unsafe(no_mangle)]
pub extern "C" fn tpext_delperiodcb() -> c_int {
    fault::atmi(-1, || {
        with(|all| {
            all.period = None;
            Ok(0)
        })
    })
}

/// Calls `each` whenever the server is about to wait for requests.
///
/// # Safety
/// `each` is a function of this type or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpext_addb4pollcb(each: Option<OnTime>) -> c_int {
    fault::atmi(-1, || {
        let registry = registry()?;
        let each = each.ok_or_else(|| Fault::invalid(NO_FUNCTION))?;
        BEFORE_WAIT.set(Some(each));
        registry.before_waits(Some(Rc::new(|| {
            if let Some(each) = BEFORE_WAIT.get() {
                // SAFETY: tpext_addb4pollcb was given it for this.
                end_if_failed(unsafe { each() } == 0);
            }
        })));
        Ok(0)
    })
}

/// Ends what tpext_addb4pollcb began.
#[unsafe(no_mangle)]
pub extern "C" fn tpext_delb4pollcb() -> c_int {
    fault::atmi(-1, || {
        registry()?.before_waits(None);
        BEFORE_WAIT.set(None);
        Ok(0)
    })
}
