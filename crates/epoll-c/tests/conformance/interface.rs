//! The epoll interface in the shape of a poller: tokens are data, and nothing is kept.
//!
//! What the capabilities of the mechanism deny is refused here, as the interface does it in the next
//! best way, which `tests/deviations` is about.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t};
use pollux_epoll_c::c;
use pollux_poller::{
    Caps, Counters, Error, Events, FilePolicy, Mechanism, Poller, Readiness, Registration,
    SignalMask, Token, Trigger, Waker,
};

use crate::Way;

/// An instance that the C functions made.
pub(crate) struct Interface {
    epoll: OwnedFd,
    caps: Caps,
    waker: Waker,
    counters: Arc<Counters>,
    /// Who changes it and who waits; nobody: this thread.
    callers: Option<[Caller; 2]>,
}

/// A call of a function of the interface: with the events that it wrote.
type Call = Box<dyn FnOnce() -> Answer + Send>;
type Answer = io::Result<Vec<epoll_event>>;

/// A thread that makes calls, until this is dropped.
struct Caller {
    calls: Sender<Call>,
    answers: Receiver<Answer>,
}

impl Caller {
    fn start() -> Self {
        let (calls, next) = channel::<Call>();
        let (answered, answers) = channel();
        std::thread::spawn(move || next.iter().all(|call| answered.send(call()).is_ok()));
        Self { calls, answers }
    }

    fn call(&self, call: Call) -> Answer {
        self.calls.send(call).expect("it listens as long as this is here");
        self.answers.recv().expect("no function panics")
    }
}

impl Interface {
    pub(crate) fn open(mechanism: Mechanism, way: Way) -> Result<Self, Error> {
        let mut caps = mechanism.open()?.caps().clone();
        (caps.files, caps.deferred_changes) = (FilePolicy::Refused, false);
        let name = std::ffi::CString::new(mechanism.name()).expect("no NUL");
        // SAFETY: a string.
        let epoll = unsafe { c::px_epoll_create_on(name.as_ptr(), libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(Error::System {
                call: "px_epoll_create_on",
                cause: io::Error::last_os_error(),
            });
        }
        // SAFETY: made a moment ago.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let callers = (way == Way::Threads).then(|| [Caller::start(), Caller::start()]);
        let (waker, counters) = (Waker::new()?, Arc::default());
        let made = Self { epoll, caps, waker, counters, callers };
        let wake = epoll_event { events: libc::EPOLLIN as u32, u64: WAKE };
        made.change(libc::EPOLL_CTL_ADD, made.waker.fd(), wake)?;
        // A ring for several threads is opened when the second one waits: before the script begins.
        for caller in made.callers.iter().flatten() {
            caller
                .call(wait(made.epoll.as_raw_fd(), 1, Some(Duration::ZERO)))
                .expect("nothing yet");
        }
        if way == Way::Child {
            go_on_as_child();
        }
        Ok(made)
    }

    fn change(&self, op: c_int, fd: BorrowedFd<'_>, event: epoll_event) -> Result<(), Error> {
        let (epoll, raw) = (self.epoll.as_raw_fd(), fd.as_raw_fd());
        let call = Box::new(move || {
            // SAFETY: an event that is alive.
            answered(unsafe { c::px_epoll_ctl(epoll, op, raw, &raw const event) }).map(|_| vec![])
        });
        let done = match &self.callers {
            Some([changes, _]) => changes.call(call),
            None => call(),
        };
        let Err(cause) = done else { return Ok(()) };
        Err(match cause.raw_os_error() {
            Some(libc::EEXIST) => Error::AlreadyRegistered { fd: raw },
            Some(libc::ENOENT) => Error::NotRegistered { fd: raw },
            Some(libc::EBADF) => Error::NotOpen { fd: raw },
            // What can't be added was not: epoll_ctl(2) says EPERM of it for the other operations too.
            Some(libc::EPERM) if op != libc::EPOLL_CTL_ADD => Error::NotRegistered { fd: raw },
            Some(libc::EPERM) => Error::NotPollable { fd: raw },
            _ => Error::System { call: "px_epoll_ctl", cause },
        })
    }
}

/// The result of a function, with its errno.
fn answered(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn wait(epoll: RawFd, capacity: usize, timeout: Option<Duration>) -> Call {
    Box::new(move || {
        let mut room = vec![epoll_event { events: 0, u64: 0 }; capacity];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(1 << 40) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (first, len) = (room.as_mut_ptr(), capacity as c_int);
        let no_mask = std::ptr::null::<sigset_t>();
        // SAFETY: room for as many events as said, and a time that is null or live.
        let found = answered(unsafe { c::px_epoll_pwait2(epoll, first, len, time, no_mask) })?;
        room.truncate(found);
        Ok(room)
    })
}

/// Forks: the child goes on with the script, and this process ends as it does. Instances that the script
/// makes later are the child's own.
fn go_on_as_child() {
    static HAS_FORKED: AtomicBool = AtomicBool::new(false);
    if HAS_FORKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: this process has one thread, so the child finds nothing locked.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        return;
    }
    let mut status = 0;
    // SAFETY: writes to a live local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    let is_well = ended == child && status == 0;
    // SAFETY: ends this process and nothing else; what was printed is the child's.
    unsafe { libc::_exit(i32::from(!is_well)) };
}

/// The data of the waker; tokens end below.
const WAKE: u64 = u64::MAX;

fn event(token: Token, how: Registration) -> epoll_event {
    let mut events = how.interest.poll_mask();
    for (flag, is_meant) in [
        (libc::EPOLLET, how.trigger == Trigger::Edge),
        (libc::EPOLLONESHOT, how.trigger == Trigger::Oneshot),
        (libc::EPOLLEXCLUSIVE, how.exclusive),
    ] {
        events |= if is_meant { flag as u32 } else { 0 };
    }
    epoll_event { events, u64: u64::from(token.generation()) << 32 | u64::from(token.slot()) }
}

impl Poller for Interface {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        self.change(libc::EPOLL_CTL_ADD, fd, event(token, how))
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        self.change(libc::EPOLL_CTL_MOD, fd, event(token, how))
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.change(libc::EPOLL_CTL_DEL, fd, epoll_event { events: 0, u64: 0 })
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        let call = wait(self.epoll.as_raw_fd(), events.capacity(), timeout);
        let found = match &self.callers {
            Some([_, waits]) => waits.call(call),
            None => call(),
        };
        match found {
            Ok(found) => {
                for epoll_event { events: mask, u64: data } in found {
                    if data == WAKE {
                        self.waker.acknowledge_level();
                        events.set_woken();
                        continue;
                    }
                    let token = Token::new(data as u32, (data >> 32) as u32);
                    events.push(token, Readiness::from_poll_mask(mask));
                }
            }
            Err(cause) => {
                if cause.kind() != io::ErrorKind::Interrupted {
                    return Err(Error::System { call: "px_epoll_pwait2", cause });
                }
                events.set_interrupted();
            }
        }
        Ok(())
    }

    fn set_signal_mask(&mut self, _mask: Option<SignalMask>) {
        unreachable!("no script sets one");
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
