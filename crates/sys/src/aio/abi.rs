//! Layouts and system calls of AIO, as in the kernel's `linux/aio_abi.h`. Nothing here owns or checks anything.

use std::io;
use std::sync::atomic::AtomicU32;

use crate::poll_select::{MASK_BYTES, MaskArgument, SignalMask};

/// The kernel's name for a context; it is also the address of its completion ring.
pub(super) type ContextId = libc::c_ulong;

/// IOCB_CMD_POLL: a one-shot poll with a mask of 16 bits.
pub(super) const COMMAND_POLL: u16 = 5;

/// What a completion ring that user space may read begins with.
pub(super) const RING_MAGIC: u32 = 0xa10a_10a1;

/// `struct iocb`. The kernel copies it at submission and writes `key` back, which
/// `io_cancel(2)` wants to see again at the same address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Iocb {
    pub(super) data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    command: u16,
    priority: i16,
    fd: u32,
    /// The poll mask, in its lowest 16 bits; all others must be clear.
    buffer: u64,
    len_bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

impl Iocb {
    pub(super) fn poll(fd: i32, events: u16, data: u64) -> Self {
        Self {
            data,
            key: 0,
            rw_flags: 0,
            command: COMMAND_POLL,
            priority: 0,
            fd: fd as u32,
            buffer: u64::from(events),
            len_bytes: 0,
            offset: 0,
            reserved: 0,
            flags: 0,
            eventfd: 0,
        }
    }
}

/// `struct io_event`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct IoEvent {
    pub(super) data: u64,
    /// Address of the iocb.
    pub(super) iocb: u64,
    pub(super) result: i64,
    result2: i64,
}

/// `struct aio_ring`: the head of the completion ring; events follow.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RingHeader {
    id: u32,
    pub(super) events: u32,
    pub(super) head: AtomicU32,
    pub(super) tail: AtomicU32,
    pub(super) magic: u32,
    compat_features: u32,
    pub(super) incompat_features: u32,
    pub(super) header_len_bytes: u32,
}

const _: () = {
    assert!(size_of::<Iocb>() == 64);
    assert!(std::mem::offset_of!(Iocb, command) == 16);
    assert!(std::mem::offset_of!(Iocb, fd) == 20);
    assert!(std::mem::offset_of!(Iocb, buffer) == 24);
    assert!(std::mem::offset_of!(Iocb, eventfd) == 60);
    assert!(size_of::<IoEvent>() == 32);
    assert!(std::mem::offset_of!(IoEvent, result) == 16);
    assert!(size_of::<RingHeader>() == 32);
    assert!(std::mem::offset_of!(RingHeader, head) == 8);
    assert!(std::mem::offset_of!(RingHeader, tail) == 12);
};

fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `io_setup(2)` for `requests` requests in flight.
pub(super) fn setup(requests: u32) -> io::Result<ContextId> {
    let mut id: ContextId = 0;
    // SAFETY: the kernel writes one context id to a live local, which is zero as it demands.
    checked(unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut id) })?;
    Ok(id)
}

/// `io_destroy(2)`: cancels everything in flight and waits for it.
///
/// # Safety
/// The completion ring of `id` is unmapped: it must not be read afterwards.
pub(super) unsafe fn destroy(id: ContextId) -> io::Result<usize> {
    // SAFETY: passes a number; what it unmaps is given up by the caller.
    checked(unsafe { libc::syscall(libc::SYS_io_destroy, id) })
}

/// `io_submit(2)`: how many of `batch` were accepted, or why the first was not.
///
/// # Safety
/// Every pointer leads to a live [`Iocb`] that is not touched elsewhere during the call, of a
/// command that takes no buffer.
pub(super) unsafe fn submit(id: ContextId, batch: &mut [*mut Iocb]) -> io::Result<usize> {
    let (count, first) = (batch.len() as libc::c_long, batch.as_mut_ptr());
    // SAFETY: `first` and `count` are those of a live slice, whose elements the caller vouches for.
    checked(unsafe { libc::syscall(libc::SYS_io_submit, id, count, first) })
}

/// `io_cancel(2)`.
///
/// # Safety
/// `iocb` leads to a live [`Iocb`].
pub(super) unsafe fn cancel(id: ContextId, iocb: *mut Iocb) -> io::Result<usize> {
    // The kernel no longer fills it in: the result comes through the ring.
    let mut unused = IoEvent::default();
    // SAFETY: the kernel reads the key at `iocb`, alive by the caller's word, and may write one
    // event to a live local.
    checked(unsafe { libc::syscall(libc::SYS_io_cancel, id, iocb, &raw mut unused) })
}

/// The number of `io_pgetevents(2)`, which the C library's header does not have on all architectures:
/// that of x86-64, and the one that newer architectures share.
pub(super) const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// `io_getevents(2)`, with a mask `io_pgetevents(2)`: waits for at least `least` events and takes what
/// fits into `events`.
pub(super) fn take_events(
    id: ContextId,
    least: usize,
    events: &mut [IoEvent],
    timeout: Option<&mut libc::timespec>,
    mask: Option<&SignalMask>,
) -> io::Result<usize> {
    let (least, most) = (least as libc::c_long, events.len() as libc::c_long);
    let time = timeout.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let first = events.as_mut_ptr();
    if mask.is_some() {
        let mask = MaskArgument { mask: SignalMask::pointer(mask), len_bytes: MASK_BYTES };
        let (number, mask) = (IO_PGETEVENTS, &raw const mask);
        // SAFETY: as below; the mask's structure is a local, and the mask in it live.
        return checked(unsafe { libc::syscall(number, id, least, most, first, time, mask) });
    }
    // SAFETY: the kernel writes at most `most` events into a live exclusive slice of that
    // length; `time` is null or points to a live timespec.
    checked(unsafe { libc::syscall(libc::SYS_io_getevents, id, least, most, first, time) })
}
