//! The epoll interface in the shape of a poller: tokens are data, and nothing is kept.
//!
//! What the capabilities of the mechanism deny is refused here, as the interface does it in the next
//! best way, which `tests/deviations` is about.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t};
use pollux_epoll_c::c;
use pollux_poller::{
    Caps, Counters, Error, Events, FilePolicy, Mechanism, Poller, Readiness, Registration,
    SignalMask, Token, Trigger, Waker,
};

/// An instance that the C functions made.
pub(crate) struct Interface {
    epoll: OwnedFd,
    caps: Caps,
    waker: Waker,
    counters: Arc<Counters>,
}

impl Interface {
    pub(crate) fn open(mechanism: Mechanism) -> Result<Self, Error> {
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
        let made = Self { epoll, caps, waker: Waker::new()?, counters: Arc::default() };
        let wake = epoll_event { events: libc::EPOLLIN as u32, u64: WAKE };
        made.change(libc::EPOLL_CTL_ADD, made.waker.fd(), wake)?;
        Ok(made)
    }

    fn change(&self, op: c_int, fd: BorrowedFd<'_>, event: epoll_event) -> Result<(), Error> {
        let (epoll, raw) = (self.epoll.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: a live local.
        if unsafe { c::px_epoll_ctl(epoll, op, raw, &raw const event) } == 0 {
            return Ok(());
        }
        let cause = io::Error::last_os_error();
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
        let mut room = vec![MaybeUninit::<epoll_event>::uninit(); events.capacity()];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(1 << 40) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (first, len) = (room.as_mut_ptr().cast(), room.len() as c_int);
        let (epoll, no_mask) = (self.epoll.as_raw_fd(), std::ptr::null::<sigset_t>());
        // SAFETY: room for as many events as said, and a time that is null or live.
        let found = unsafe { c::px_epoll_pwait2(epoll, first, len, time, no_mask) };
        match usize::try_from(found) {
            Ok(found) => {
                for event in &room[..found] {
                    // SAFETY: that many were written.
                    let epoll_event { events: mask, u64: data } = unsafe { event.assume_init() };
                    if data == WAKE {
                        self.waker.acknowledge_level();
                        events.set_woken();
                        continue;
                    }
                    let token = Token::new(data as u32, (data >> 32) as u32);
                    events.push(token, Readiness::from_poll_mask(mask));
                }
            }
            Err(_) => {
                let cause = io::Error::last_os_error();
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
