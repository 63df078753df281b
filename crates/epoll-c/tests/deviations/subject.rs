//! An epoll instance of the kernel's or on a mechanism, with one way to use it.
//!
//! `crates/preload` takes this file in with functions of its own in the place of `calls.rs`.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event};
use pollux_epoll_c::Mechanism;

use crate::calls;

/// How long something has to come: what a loaded machine takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing has to come.
const QUIET_MS: u64 = 60;
/// Room for the events of a script.
pub(crate) const ROOM: usize = 16;

/// What one wait found, sorted: data and events.
pub(crate) type Found = Vec<(u64, u32)>;

pub(crate) struct Subject {
    mechanism: Mechanism,
    epoll: OwnedFd,
}

impl AsRawFd for Subject {
    fn as_raw_fd(&self) -> RawFd {
        self.number()
    }
}

impl Subject {
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        let epoll = calls::create(mechanism, libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0, "{mechanism}: {}", Error::last_os_error());
        // SAFETY: made for us a moment ago.
        Self { mechanism, epoll: unsafe { OwnedFd::from_raw_fd(epoll) } }
    }

    /// Another instance on the same mechanism.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.mechanism)
    }

    /// Why another one is not made with these flags.
    pub(crate) fn refused(&self, flags: c_int) -> Result<usize, i32> {
        answered(calls::create(self.mechanism, flags))
    }

    pub(crate) fn into_number(self) -> OwnedFd {
        self.epoll
    }

    pub(crate) fn number(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// 0, or the errno.
    pub(crate) fn ctl(&self, op: c_int, fd: RawFd, events: u32, data: u64) -> i32 {
        ctl(self.number(), op, fd, Some((events, data)))
    }

    pub(crate) fn add(&self, fd: &impl AsRawFd, events: c_int, data: u64) -> i32 {
        self.ctl(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events as u32, data)
    }

    pub(crate) fn wait(&self, timeout: Duration) -> Found {
        found_on(self.number(), timeout).unwrap_or_else(|errno| panic!("wait: errno {errno}"))
    }

    /// What comes at last.
    pub(crate) fn found(&self) -> Found {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.wait(Duration::from_millis(QUIET_MS));
            if !found.is_empty() || Instant::now() > end {
                return found;
            }
        }
    }

    /// What comes soon: nothing, most often.
    pub(crate) fn soon(&self) -> Found {
        self.wait(Duration::from_millis(QUIET_MS))
    }
}

/// `epoll_ctl(2)`; without an event its pointer is NULL. 0, or the errno.
pub(crate) fn ctl(epoll: RawFd, op: c_int, fd: RawFd, event: Option<(u32, u64)>) -> i32 {
    let mut event = event.map(|(events, u64)| epoll_event { events, u64 });
    let event = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the pointer is null or leads to a live local.
    answered(unsafe { calls::ctl(epoll, op, fd, event) }).err().unwrap_or(0)
}

/// What `epoll_pwait2(2)` finds on a number, or the errno. A signal that the kernel sends to itself does not
/// end it: the end of a ring of this thread, which is tidied up later.
pub(crate) fn found_on(epoll: RawFd, timeout: Duration) -> Result<Found, i32> {
    let mut room = [epoll_event { events: 0, u64: 0 }; ROOM];
    let time = libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let found = loop {
        let (first, no_mask) = (room.as_mut_ptr(), ptr::null());
        // SAFETY: room for as many events as said, and a live time.
        let found = unsafe { calls::pwait2(epoll, first, ROOM as c_int, &raw const time, no_mask) };
        match answered(found) {
            Err(libc::EINTR) => {}
            found => break found?,
        }
    };
    let mut found: Found = room[..found].iter().map(|event| (event.u64, event.events)).collect();
    found.sort_unstable();
    Ok(found)
}

/// What a function answered, or the errno.
pub(crate) fn answered(result: c_int) -> Result<usize, i32> {
    let errno = || Error::last_os_error().raw_os_error().expect("an errno");
    usize::try_from(result).map_err(|_| errno())
}
