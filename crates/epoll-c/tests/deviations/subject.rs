//! An epoll instance of the kernel's or on a mechanism, with one way to use it.

use std::io::{Error, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event};
use pollux_epoll_c::{Identity, Instances, Mechanism};

use crate::mechanisms::allowed;

/// How long something has to come: what a loaded machine takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing has to come.
const QUIET_MS: u64 = 60;

/// What one wait found, sorted: data and events.
pub(crate) type Found = Vec<(u64, u32)>;

pub(crate) struct Subject {
    instances: &'static Instances,
    epoll: OwnedFd,
}

impl Subject {
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        let instances = Box::leak(Box::new(Instances::new(Identity::Checked)));
        let epoll = instances.create(mechanism, libc::EPOLL_CLOEXEC).expect("created");
        // SAFETY: made for us a moment ago.
        Self { instances, epoll: unsafe { OwnedFd::from_raw_fd(epoll) } }
    }

    pub(crate) fn instances(&self) -> &'static Instances {
        self.instances
    }

    pub(crate) fn number(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// 0, or the errno.
    pub(crate) fn ctl(&self, op: c_int, fd: RawFd, events: u32, data: u64) -> i32 {
        let event = Some(epoll_event { events, u64: data });
        match self.instances.ctl(self.number(), op, fd, event) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().expect("an errno"),
        }
    }

    pub(crate) fn add(&self, fd: &impl AsRawFd, events: c_int, data: u64) -> i32 {
        self.ctl(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events as u32, data)
    }

    pub(crate) fn wait(&self, timeout: Duration) -> Found {
        let mut room = [MaybeUninit::<epoll_event>::uninit(); 16];
        let found = match self.instances.find(self.number()) {
            Some(instance) => {
                instance.wait(self.number(), &mut room, Some(timeout), None).expect("waited")
            }
            None => self.wait_in_kernel(&mut room, timeout),
        };
        // SAFETY: that many were written.
        let of = |event: &MaybeUninit<epoll_event>| unsafe { event.assume_init() };
        let mut found: Found = room[..found].iter().map(of).map(|e| (e.u64, e.events)).collect();
        found.sort_unstable();
        found
    }

    fn wait_in_kernel(
        &self,
        room: &mut [MaybeUninit<epoll_event>; 16],
        timeout: Duration,
    ) -> usize {
        let (first, timeout) = (room.as_mut_ptr().cast(), timeout.as_millis() as c_int);
        loop {
            // SAFETY: room for as many events as said.
            let found = unsafe { libc::epoll_wait(self.number(), first, 16, timeout) };
            match usize::try_from(found) {
                Ok(found) => return found,
                // The end of a ring of this thread, which the kernel tidies up behind its back.
                Err(_) => assert_eq!(Error::last_os_error().kind(), ErrorKind::Interrupted),
            }
        }
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

impl Drop for Subject {
    /// Nobody else asks these instances again, and AIO contexts are few.
    fn drop(&mut self) {
        self.instances.closing(self.number());
    }
}

/// Every mechanism but the kernel's own that this machine allows.
pub(crate) fn mechanisms() -> impl Iterator<Item = Mechanism> {
    allowed().filter(|mechanism| *mechanism != Mechanism::Epoll)
}
