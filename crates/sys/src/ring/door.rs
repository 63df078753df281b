//! The system call that enters a ring, by descriptor or by registered index.
//!
//! Both kinds of ring call it. A registered index spares the kernel the look-up and the
//! reference count of the descriptor, which threads of one process share. It holds the ring
//! open, though: the owner must give it back before it drops the ring.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use io_uring::EnterFlags;
use io_uring::types::Timespec;

use crate::signals::{MASK_BYTES, SignalMask};

/// The way into one ring, for the thread that opened it.
#[derive(Debug)]
pub(super) struct Door {
    ring: RawFd,
    registered: Option<u32>,
}

/// `struct io_uring_rsrc_update` of the kernel's interface.
#[repr(C)]
struct Registration {
    index: u32,
    reserved: u32,
    ring: u64,
}

/// `struct io_uring_getevents_arg` of the kernel's interface: addresses as numbers.
#[repr(C)]
struct Extended {
    mask: u64,
    mask_len_bytes: u32,
    reserved: u32,
    time: u64,
}

pub(super) const REGISTER_RING_FDS: libc::c_uint = 20;
pub(super) const UNREGISTER_RING_FDS: libc::c_uint = 21;
/// The first argument of the call is a registered index.
const ENTER_REGISTERED_RING: u32 = 1 << 4;
/// Asks the kernel to choose the index.
const ANY_INDEX: u32 = u32::MAX;

impl Door {
    /// The way in by the ring's descriptor.
    pub(super) fn of(ring: RawFd) -> Self {
        Self { ring, registered: None }
    }

    /// Changes to a registered index (Linux 5.18; a thread has 16 of them).
    ///
    /// # Errors
    /// EINVAL: the kernel is too old. EBUSY: no index is free. The descriptor stays in use.
    pub(super) fn register(&mut self) -> io::Result<()> {
        let mut wanted = Registration { index: ANY_INDEX, reserved: 0, ring: self.ring as u64 };
        self.registration(REGISTER_RING_FDS, &mut wanted)?;
        self.registered = Some(wanted.index);
        Ok(())
    }

    /// Changes back to the descriptor, so that closing it closes the ring.
    pub(super) fn unregister(&mut self) {
        let Some(index) = self.registered.take() else { return };
        let mut gone = Registration { index, reserved: 0, ring: 0 };
        // A fork's child has no registered index, and there is nothing to undo then.
        let _ = self.registration(UNREGISTER_RING_FDS, &mut gone);
    }

    /// `io_uring_enter(2)`: hands `queued` requests over and says how many were taken.
    ///
    /// Safe, because what the queued requests reference was answered for when they were queued.
    pub(super) fn enter(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.enter_by(queued, completions_min, flags, timeout, None)
    }

    /// As `enter`, with a signal mask for the time of the call.
    pub(super) fn enter_masked(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.enter_by(queued, completions_min, flags, timeout, Some(mask))
    }

    fn enter_by(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<usize> {
        if timeout.is_none() && mask.is_none() {
            return self.call(queued, completions_min, flags, None);
        }
        let time = timeout.map(Timespec::from);
        let extended = Extended {
            mask: SignalMask::pointer(mask) as u64,
            mask_len_bytes: MASK_BYTES as u32,
            reserved: 0,
            time: time.as_ref().map_or(ptr::null(), ptr::from_ref) as u64,
        };
        self.call(queued, completions_min, flags | EnterFlags::EXT_ARG, Some(&extended))
    }

    fn call(
        &self,
        queued: u32,
        completions_min: u32,
        flags: EnterFlags,
        extended: Option<&Extended>,
    ) -> io::Result<usize> {
        let (ring, flags) = match self.registered {
            Some(index) => (libc::c_long::from(index), flags.bits() | ENTER_REGISTERED_RING),
            None => (libc::c_long::from(self.ring), flags.bits()),
        };
        let (args, size) = match extended {
            Some(extended) => (ptr::from_ref(extended), size_of::<Extended>()),
            None => (ptr::null(), 0),
        };
        let number = libc::SYS_io_uring_enter;
        // SAFETY: the call's own argument is null, or with EXT_ARG the very structure that the
        // flag announces, which with its time and mask lives in the frames above until the call is
        // over. What queued requests reference is kept valid by those who queued them.
        let taken =
            unsafe { libc::syscall(number, ring, queued, completions_min, flags, args, size) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    fn registration(&self, code: libc::c_uint, what: &mut Registration) -> io::Result<()> {
        let what = ptr::from_mut(what);
        // SAFETY: both codes read and write one `io_uring_rsrc_update`, which is what `what`
        // points to, during the call only.
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_register, self.ring, code, what, 1_u32) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
