//! What is known of a thread: whether it has figures, whether what it calls is the program's, and its errno.
//!
//! All of it is plain memory of the thread, zero at its start and without a destructor, so it is there in
//! every moment of its life and in signal handlers. It is reached by an offset that the dynamic linker
//! fixes when the program starts (the initial-exec model), for a library that is loaded with it: two
//! instructions, where a library that may be loaded later calls `__tls_get_addr` each time.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::ffi::c_int;

use pollux_epoll_c::border::{self, Fault};
use pollux_sys::loop_stats::{Call, Cell as Tally};

use crate::turn::{Note, Notes, Outcome, Turn, ticks};
use crate::{attach, filters};

/// A thread of the program. Every field is valid as zeros.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Its figures, while what it calls is the program's.
    tally: Cell<Option<Tally<'static>>>,
    notes: Notes,
    pub(crate) turn: Turn,
    /// The figures while this library is what calls.
    kept: Cell<Option<Tally<'static>>>,
    /// The figures of a thread that called vfork: what runs now may be its child.
    parked: Cell<Option<Tally<'static>>>,
    /// The process that called vfork; 0 where none did.
    vforked: Cell<u32>,
    /// How deep within this library: what it calls itself is none of the program's.
    depth: Cell<u32>,
    pid: Cell<u32>,
    /// Waits so far, and the instance of the last one.
    pub(crate) looks: Cell<(u32, i32)>,
    /// Data of the event of the wait before, plus one.
    pub(crate) last_single: Cell<u64>,
}

// A `Thread` of zeros in each thread.
global_asm!(
    ".section .tbss.pollux_preload_thread, \"awT\", @nobits",
    ".balign {align}",
    ".globl pollux_preload_thread",
    ".hidden pollux_preload_thread",
    ".type pollux_preload_thread, @tls_object",
    ".size pollux_preload_thread, {size}",
    "pollux_preload_thread:",
    ".zero {size}",
    ".previous",
    align = const align_of::<Thread>(),
    size = const size_of::<Thread>(),
);

impl Thread {
    /// That of the calling thread.
    #[inline]
    pub(crate) fn here() -> &'static Self {
        // SAFETY: the place is that of a `Thread`.
        unsafe { Self::at(Self::place()) }
    }

    /// Where each thread has its own, from what the processor knows as the thread's address.
    #[inline]
    pub(crate) fn place() -> isize {
        let place: isize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads what the dynamic linker wrote when the program started.
        unsafe {
            asm!(
                "mov {place}, qword ptr [rip + pollux_preload_thread@GOTTPOFF]",
                place = out(reg) place,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!(
                "adrp {place}, :gottprel:pollux_preload_thread",
                "ldr {place}, [{place}, :gottprel_lo12:pollux_preload_thread]",
                place = out(reg) place,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        place
    }

    /// That of the calling thread, which alone may have it.
    ///
    /// # Safety
    /// `place` is what [`Self::place`] says.
    #[inline]
    pub(crate) unsafe fn at(place: isize) -> &'static Self {
        let own: *const u8;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the first word of what a thread's own segment begins with is its address.
        unsafe {
            asm!(
                "mov {own}, qword ptr fs:[0]",
                own = out(reg) own,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads a register.
        unsafe {
            asm!(
                "mrs {own}, tpidr_el0",
                own = out(reg) own,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        let there = own.wrapping_offset(place).cast::<Self>();
        // SAFETY: the block there is as large and as aligned as a `Thread`, of which zeros are one, and it is
        // there as long as the thread.
        unsafe { &*there }
    }

    /// Its figures, if it has any.
    #[inline]
    pub(crate) fn tally(&self) -> Option<Tally<'static>> {
        match self.tally.get() {
            None => self.unpark(),
            tally => tally,
        }
    }

    /// When a call begins that leaves a note; 0 in a thread without figures.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        if self.tally.get().is_none() || self.notes.is_full() {
            return self.begin_anyhow();
        }
        ticks()
    }

    #[cold]
    fn begin_anyhow(&self) -> u64 {
        let Some(tally) = self.tally() else { return 0 };
        if self.notes.is_full() {
            self.counting("a call", || {
                self.notes.settle(tally);
                self.notes.all(tally).for_each(|note| self.turn.called(&note));
                self.notes.clear();
            });
        }
        ticks()
    }

    /// Leaves the note of a call that came back. Where it began without figures its outcome is noted at once.
    #[inline]
    pub(crate) fn end(&self, call: Call, fd: i32, caller: u64, began: u64, outcome: Outcome) {
        match self.tally.get() {
            Some(tally) if began != 0 => {
                let ended = ticks();
                self.notes.add(tally, Note { call, fd, caller, began, ended, outcome });
            }
            _ => self.end_anyhow(call, fd, outcome),
        }
    }

    #[cold]
    fn end_anyhow(&self, call: Call, fd: i32, outcome: Outcome) {
        self.counting(call.name(), || outcome.happened_to(fd));
    }

    /// Whether it has figures and is between two waits.
    #[inline]
    pub(crate) fn is_in_turn(&self) -> bool {
        self.tally.get().is_some() && self.turn.is_under_way()
    }

    /// Looks at the notes that are new, before something that depends on them.
    #[inline]
    pub(crate) fn settle(&self) {
        if let Some(tally) = self.tally.get() {
            self.notes.settle(tally);
        }
    }

    /// Ends the turn before a wait, if there is one.
    pub(crate) fn end_turn(&self, tally: Tally<'static>, now_ns: u64) {
        self.notes.settle(tally);
        self.turn.end(tally, now_ns, || self.notes.all(tally));
        self.notes.clear();
    }

    /// Its figures, from now on.
    #[inline]
    pub(crate) fn tally_or_claim(&self) -> Option<Tally<'static>> {
        self.tally().or_else(|| self.claim())
    }

    #[cold]
    fn claim(&self) -> Option<Tally<'static>> {
        // What could not be obtained once is not asked for again.
        if self.pid.get() == u32::MAX || !self.is_own() {
            return None;
        }
        let pid = own_pid();
        let tally = self.counting("the first call", || attach::claim(pid));
        self.pid.set(if tally.is_some() { pid } else { u32::MAX });
        self.tally.set(tally);
        tally
    }

    /// Whether what happens is the program's own, and not of a child that shares its memory, nor of this
    /// library.
    pub(crate) fn is_own(&self) -> bool {
        if self.vforked.get() != 0 {
            self.unpark();
        }
        self.vforked.get() == 0 && self.depth.get() == 0
    }

    #[cold]
    fn unpark(&self) -> Option<Tally<'static>> {
        let parent = self.vforked.get();
        if parent == 0 || self.depth.get() != 0 || own_pid() != parent {
            return None;
        }
        self.vforked.set(0);
        self.tally.set(self.parked.take());
        self.tally.get()
    }

    /// Takes no figures until it is sure that the process is the same.
    pub(crate) fn park(&self) {
        if self.vforked.get() == 0 {
            self.vforked.set(own_pid());
            self.parked.set(self.tally.take());
        }
    }

    /// Whether this library is what calls.
    pub(crate) fn is_inside(&self) -> bool {
        self.depth.get() != 0
    }

    /// Does something that is not the program's.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.depth.replace(self.depth.get() + 1) == 0 {
            self.kept.set(self.tally.take());
        }
        let done = work();
        self.depth.set(self.depth.get() - 1);
        if self.depth.get() == 0 {
            // Nothing where a signal handler forked meanwhile and this is the child.
            self.tally.set(self.kept.take());
        }
        done
    }

    /// Counts what the program did by `call`: a fault in that ends the figures of this thread and nothing
    /// else. The call itself is never made in here: a thread may be cancelled in it.
    #[inline]
    pub(crate) fn counting<T: Default>(&self, call: &str, work: impl FnOnce() -> T) -> T {
        border::caught(work).unwrap_or_else(|fault| self.give_up(call, &fault))
    }

    /// Has no figures from now on.
    #[cold]
    fn give_up<T: Default>(&self, call: &str, fault: &Fault) -> T {
        let before = errno();
        self.forget();
        self.pid.set(u32::MAX);
        self.inside(|| border::report(call, "the thread is no longer counted", fault));
        set_errno(before);
        T::default()
    }

    /// Leaves the figures to the parent.
    pub(crate) fn forget(&self) {
        self.tally.set(None);
        self.kept.set(None);
        self.parked.set(None);
        self.vforked.set(0);
        self.pid.set(0);
        self.notes.clear();
        self.turn.forget();
    }
}

/// The thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives the address of a live integer of this thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place }
}

/// Sets the thread's errno.
pub(crate) fn set_errno(to: c_int) {
    // SAFETY: the C library gives the address of a live integer of this thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = to };
}

fn own_pid() -> u32 {
    if let Some(pid) = filters::pid() {
        return pid;
    }
    // SAFETY: the call takes no arguments.
    unsafe { libc::getpid() }.unsigned_abs()
}
