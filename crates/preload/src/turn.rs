//! The turn of a thread: from the return of a wait to the next wait, with what was called in it.
//!
//! Calls of one place in the program are one entry, made from the notes of the thread where the turn is kept.
//! An entry of an earlier turn is free: nothing is cleared when a turn begins.
//!
//! Between two calls of a busy program the kernel takes the processor's caches for itself, so what a call
//! touches for its figures costs more than what it computes. A call only leaves a note, in one line; what
//! follows from the notes is done in one go, before anything that depends on it: a wait, an update, a close,
//! an accept, or where the room is full.

use std::cell::Cell;

use pollux_sys::loop_stats::{
    CALLS_MAX, Call, CallRecord, Cell as Tally, Counter, Histogram, LONG_NS, NESTED_WAITS_MAX,
    NOTES_MAX, Site, turn_kinds,
};

use crate::descriptors::{self, Met};
use crate::filters;
use crate::kernel::kernels;

/// CPU time and switches of the thread are read anew where they are older than this: one system call. What
/// was used before a long turn counts as its own, at most a tenth of it.
const USAGE_AGE_NS: u64 = LONG_NS / 10;
/// The same for the time that the thread was ready and had no CPU: three system calls.
const DELAY_AGE_NS: u64 = 4 * USAGE_AGE_NS;
/// A wait of this length may have slept: to go to sleep and be woken takes longer than any shorter one.
const MAY_SLEEP_NS: u64 = 3_000;
/// Places in the program that call, for each turn. A power of two, as entries are found by the address.
const ENTRIES: usize = 16;

const NO_CALL: CallRecord = CallRecord {
    call: Call::Accept,
    times: 0,
    fd: -1,
    caller: 0,
    after_ns: 0,
    lasted_ns: 0,
    longest_ns: 0,
};

/// The turn of a thread. Every field is valid as zeros.
#[repr(C)]
pub(crate) struct Turn {
    /// When it began, on the processor's counter, which calls are timed by; 0 outside a turn.
    began_ticks: Cell<u64>,
    /// Turns so far.
    number: Cell<u64>,
    /// Waits so far: with those within turns.
    waits: Cell<u64>,
    /// The instance whose turn it is, plus one; 0 where that was closed.
    instance: Cell<i32>,
    /// Waits on others in this turn.
    nested: Cell<u32>,
    /// The same moment on the monotonic clock.
    began_ns: Cell<u64>,
    /// Of the wait before the turn.
    events: Cell<u64>,
    wait_caller: Cell<u64>,
    /// Calls that found no entry.
    left_out: Cell<u64>,
    /// The shortest turn that is kept.
    keep_above_ns: Cell<u64>,
    entries: [Entry; ENTRIES],
    /// Waits since the usage was read that may have slept.
    waits_since: Cell<u64>,
    usage: Cell<Usage>,
    delay: Cell<Delay>,
}

/// How long a thread was ready and had no CPU, by the kernel (`/proc/thread-self/schedstat`).
#[derive(Clone, Copy)]
struct Delay {
    at_ns: u64,
    /// Plus one; 0 where it is not known.
    ns: u64,
}

/// What one place called. Times are in ticks.
#[repr(C)]
struct Entry {
    /// The number of the turn.
    turn: Cell<u64>,
    caller: Cell<u64>,
    lasted: Cell<u64>,
    longest: Cell<u64>,
    /// When the longest began.
    after: Cell<u64>,
    times: Cell<u32>,
    /// Of the longest.
    fd: Cell<i32>,
    call: Cell<Call>,
}

/// What the kernel says of a thread, getrusage(2).
#[derive(Clone, Copy)]
struct Usage {
    at_ns: u64,
    cpu_ns: u64,
    /// Times that it went to sleep.
    sleeps: u64,
}

impl Turn {
    /// Names the turn, unlike those of other threads.
    pub(crate) fn name(&self) -> u64 {
        // Threads are further apart in memory than the turns that are compared.
        (std::ptr::from_ref(self) as u64) << 24 ^ self.waits.get()
    }

    /// Whether there is one.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.began_ticks.get() != 0
    }

    /// Whether a wait on this instance is a part of the turn: that of a loop within a callback. One that continues
    /// for long takes the place of the first.
    pub(crate) fn has_nested(&self, epfd: i32) -> bool {
        let is_another = self.instance.get() != 0 && self.instance.get() != epfd + 1;
        if !self.is_under_way() || !is_another || self.nested.get() >= NESTED_WAITS_MAX {
            return false;
        }
        self.nested.set(self.nested.get() + 1);
        true
    }

    /// A wait within the turn is over.
    pub(crate) fn nested_ended(&self) {
        self.waits.set(self.waits.get() + 1);
    }

    /// A number is free.
    pub(crate) fn closed(&self, fd: i32) {
        if self.instance.get() == fd + 1 {
            self.instance.set(0);
        }
    }

    /// Begins behind a wait on an instance.
    pub(crate) fn begin(&self, epfd: i32, now_ns: u64, waited_ns: u64, events: u64, caller: u64) {
        let is_asked = !filters::is_set();
        if is_asked && now_ns.saturating_sub(self.delay.get().at_ns) > DELAY_AGE_NS {
            self.delay.set(Delay::read(now_ns));
        }
        self.waits.set(self.waits.get() + 1);
        self.instance.set(epfd + 1);
        self.nested.set(0);
        let usage = self.usage.get();
        if is_asked && now_ns.saturating_sub(usage.at_ns) > USAGE_AGE_NS {
            self.usage.set(Usage::read(now_ns));
            self.waits_since.set(0);
        } else if waited_ns >= MAY_SLEEP_NS {
            self.waits_since.set(self.waits_since.get() + 1);
        }
        self.number.set(self.number.get() + 1);
        self.events.set(events);
        self.wait_caller.set(caller);
        self.left_out.set(0);
        self.began_ns.set(now_ns);
        self.began_ticks.set(ticks());
    }

    /// Ends before a wait, if there is a turn. Its notes are asked for where it is kept.
    pub(crate) fn end<N: Iterator<Item = Note>>(
        &self,
        tally: Tally<'static>,
        now_ns: u64,
        notes: impl FnOnce() -> N,
    ) {
        let began_ticks = self.began_ticks.get();
        if began_ticks == 0 {
            return;
        }
        let lasted_ns = now_ns.saturating_sub(self.began_ns.get());
        tally.count(Counter::Turns);
        tally.add(Counter::TurnNs, lasted_ns);
        tally.time(Histogram::TurnLength, lasted_ns);
        if lasted_ns > self.keep_above_ns.get() || lasted_ns >= LONG_NS {
            notes().for_each(|note| self.called(&note));
            self.look_at(&tally, lasted_ns, began_ticks);
        }
        self.began_ticks.set(0);
    }

    /// There is none, and none was kept.
    pub(crate) fn forget(&self) {
        self.began_ticks.set(0);
        self.keep_above_ns.set(0);
    }

    /// Enters a call, timed by the processor's counter.
    #[cold]
    pub(crate) fn called(&self, note: &Note) {
        let began_ticks = self.began_ticks.get();
        if began_ticks == 0 {
            return;
        }
        let lasted = note.ended.saturating_sub(note.began);
        let after = note.began.saturating_sub(began_ticks);
        let turn = self.number.get();
        let place = place(note.caller);
        // The second one is for places whose addresses meet.
        for entry in [place, place ^ 1].map(|place| &self.entries[place]) {
            if entry.turn.get() != turn {
                entry.turn.set(turn);
                entry.call.set(note.call);
                entry.caller.set(note.caller);
                entry.times.set(0);
                entry.lasted.set(0);
                entry.longest.set(0);
            } else if entry.caller.get() != note.caller || entry.call.get() != note.call {
                continue;
            }
            entry.times.set(entry.times.get() + 1);
            entry.lasted.set(entry.lasted.get() + lasted);
            if lasted >= entry.longest.get() {
                entry.longest.set(lasted);
                entry.after.set(after);
                entry.fd.set(note.fd);
            }
            return;
        }
        self.left_out.set(self.left_out.get() + 1);
    }

    /// Keeps the turn, and judges it where it was long.
    #[cold]
    fn look_at(&self, tally: &Tally<'static>, lasted_ns: u64, began_ticks: u64) {
        // The turn was measured on both, so that it says how long a tick is.
        let ticks = ticks().saturating_sub(began_ticks).max(1);
        let ns = |of: u64| (u128::from(of) * u128::from(lasted_ns) / u128::from(ticks)) as u64;
        let mut calls = [NO_CALL; ENTRIES];
        let mut len = 0;
        for entry in self.entries.iter().filter(|entry| entry.turn.get() == self.number.get()) {
            calls[len] = entry.record(ns);
            len += 1;
        }
        let calls = &mut calls[..len];
        calls.sort_unstable_by_key(|call| std::cmp::Reverse(call.lasted_ns));
        let (calls, rest) = calls.split_at(len.min(CALLS_MAX));
        let left_out =
            rest.iter().fold(self.left_out.get(), |sum, call| sum + u64::from(call.times));
        let began_ns = self.began_ns.get();
        let mut cpu_ns = 0;
        let mut asleep_ns = 0;
        if lasted_ns >= LONG_NS && filters::is_set() {
            // Nothing that the kernel is asked for is known: what was not asleep in calls is not judged.
            asleep_ns = asleep_in(calls, lasted_ns);
            match asleep_ns {
                0 => tally.count(Counter::TurnsLong),
                _ => self.judge(tally, lasted_ns, 0, asleep_ns, calls),
            }
        } else if lasted_ns >= LONG_NS {
            let before = self.usage.get();
            let now = Usage::read(began_ns + lasted_ns);
            cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns).min(lasted_ns);
            // One more than the waits since then that may have been a sleep was in a call of this turn.
            let slept = now.sleeps.saturating_sub(before.sleeps) > self.waits_since.get();
            if slept {
                asleep_ns = self.asleep_ns(lasted_ns, cpu_ns, calls);
            }
            // The next turn begins with a reading of its own, as this one is old by then.
            self.judge(tally, lasted_ns, cpu_ns, asleep_ns, calls);
        }
        let figures = [began_ns, lasted_ns, cpu_ns, self.events.get(), left_out, asleep_ns];
        self.keep_above_ns.set(tally.turn(figures, calls));
    }

    /// How long a thread that went to sleep in this turn was asleep: off the CPU, and not ready.
    fn asleep_ns(&self, lasted_ns: u64, cpu_ns: u64, calls: &[CallRecord]) -> u64 {
        let before = self.delay.get();
        let now = Delay::read(self.began_ns.get() + lasted_ns);
        self.delay.set(now);
        let off_ns = lasted_ns - cpu_ns;
        if before.ns > 0 && now.ns > 0 {
            return off_ns.saturating_sub(now.ns.saturating_sub(before.ns));
        }
        // Where the kernel doesn't tell, by the calls that are known to sleep.
        off_ns.min(asleep_in(calls, lasted_ns))
    }

    fn judge(
        &self,
        tally: &Tally<'static>,
        lasted_ns: u64,
        cpu_ns: u64,
        asleep_ns: u64,
        calls: &[CallRecord],
    ) {
        tally.count(Counter::TurnsLong);
        let kinds = turn_kinds(lasted_ns, cpu_ns, asleep_ns);
        if kinds.computed {
            tally.count(Counter::TurnsComputed);
            tally.add(Counter::ComputedNs, cpu_ns);
            tally.site(Site::Computed, self.wait_caller.get());
        }
        if kinds.blocked {
            tally.count(Counter::TurnsBlocked);
            tally.add(Counter::BlockedNs, asleep_ns);
            let longest = calls.iter().max_by_key(|call| call.lasted_ns);
            match longest.filter(|call| call.lasted_ns >= asleep_ns / 2) {
                Some(longest) => tally.site(Site::Blocked, longest.caller),
                None => tally.site(Site::BlockedElsewhere, self.wait_caller.get()),
            }
        }
        if !kinds.computed && !kinds.blocked {
            tally.count(Counter::TurnsHeldUp);
        }
    }
}

/// How long calls that may sleep lasted, where that is half of the turn or more.
fn asleep_in(calls: &[CallRecord], lasted_ns: u64) -> u64 {
    let in_calls_ns: u64 = calls.iter().map(|call| call.lasted_ns).sum();
    if in_calls_ns >= lasted_ns / 2 { in_calls_ns.min(lasted_ns) } else { 0 }
}

impl Entry {
    fn record(&self, ns: impl Fn(u64) -> u64) -> CallRecord {
        CallRecord {
            call: self.call.get(),
            times: self.times.get(),
            fd: self.fd.get(),
            caller: self.caller.get(),
            after_ns: ns(self.after.get()),
            lasted_ns: ns(self.lasted.get()),
            longest_ns: ns(self.longest.get()),
        }
    }
}

impl Usage {
    fn read(at_ns: u64) -> Self {
        // SAFETY: the record consists of integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the record is written to a live local.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            at_ns,
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
            sleeps: usage.ru_nvcsw.unsigned_abs(),
        }
    }
}

impl Delay {
    fn read(at_ns: u64) -> Self {
        Self { at_ns, ns: schedstat().and_then(|text| delay_of(&text)).map_or(0, |ns| ns + 1) }
    }
}

/// What the kernel says of this thread: its CPU time, how long it was ready without a CPU, its slices.
fn schedstat() -> Option<[u8; 64]> {
    const PATH: &std::ffi::CStr = c"/proc/thread-self/schedstat";
    let folder = libc::c_long::from(libc::AT_FDCWD);
    let path = PATH.as_ptr() as libc::c_long;
    let flags = libc::c_long::from(libc::O_RDONLY | libc::O_CLOEXEC);
    // SAFETY: a C string; the flags ask for no mode.
    let fd = unsafe { kernels(libc::SYS_openat, [folder, path, flags, 0, 0, 0]) };
    if fd < 0 {
        return None;
    }
    let mut text = [0; 64];
    let at = text.as_mut_ptr() as libc::c_long;
    let len = text.len() as libc::c_long;
    // SAFETY: so many bytes at a live local.
    let read = unsafe { kernels(libc::SYS_read, [fd, at, len, 0, 0, 0]) };
    // SAFETY: opened a moment ago, for this function alone.
    unsafe { kernels(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
    (read > 0).then_some(text)
}

/// The second number.
fn delay_of(text: &[u8]) -> Option<u64> {
    let mut words = text.split(|byte| matches!(byte, b' ' | b'\n' | 0));
    std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()
}

/// The entry of a place in the program, by the address that its call returns to.
#[inline]
fn place(caller: u64) -> usize {
    (caller ^ caller >> 4 ^ caller >> 8) as usize % ENTRIES
}

/// The monotonic clock, which the kernel lets a program read without a system call.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processor's counter of time: a few instructions, of a length that is constant within a turn.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The processor's counter of time: a few instructions, of a length that is constant within a turn.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets programs read this register, and reading changes nothing.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// A call that came back.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub(crate) call: Call,
    pub(crate) fd: i32,
    pub(crate) caller: u64,
    /// On the processor's counter.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) outcome: Outcome,
}

/// What a call means to its descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    None,
    Read,
    /// It would have blocked.
    ReadNothing,
    Written,
    /// Less than was given.
    WrittenShort,
    /// It would have blocked.
    WrittenNothing,
    /// It is about to be connected.
    Connecting,
}

/// How many notes a thread has. Every field is valid as zeros.
#[repr(C)]
pub(crate) struct Notes {
    len: Cell<u32>,
    /// Those whose outcome is known to the descriptors.
    settled: Cell<u32>,
}

impl Notes {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len.get() as usize >= NOTES_MAX
    }

    /// Adds a note where there is room.
    #[inline]
    pub(crate) fn add(&self, tally: Tally<'static>, note: Note) {
        let len = self.len.get();
        if (len as usize) < NOTES_MAX {
            tally.note(len as usize, note.packed());
            self.len.set(len + 1);
        }
    }

    /// Lets descriptors and counters know of the notes that are new.
    pub(crate) fn settle(&self, tally: Tally<'static>) {
        let new = self.settled.replace(self.len.get())..self.len.get();
        let mut transfers = 0;
        let mut again = 0;
        for note in new.filter_map(|index| Note::unpacked(tally.noted(index as usize)?)) {
            let Some(met) = note.outcome.happened_to(note.fd) else { continue };
            transfers += 1;
            again += u64::from(matches!(met, Met::Nothing | Met::NothingAfterEvent));
            if met == Met::NothingAfterEvent {
                tally.count(Counter::AgainAfterEvent);
                tally.site(Site::AgainAfterEvent, note.caller);
            }
        }
        tally.add(Counter::Transfers, transfers);
        tally.add(Counter::Again, again);
    }

    /// All that there are.
    pub(crate) fn all(&self, tally: Tally<'static>) -> impl Iterator<Item = Note> {
        (0..self.len.get()).filter_map(move |index| Note::unpacked(tally.noted(index as usize)?))
    }

    /// None is left.
    pub(crate) fn clear(&self) {
        self.len.set(0);
        self.settled.set(0);
    }
}

impl Note {
    /// Bits of the last word: 0–31 descriptor, 32–39 call, 40–47 outcome.
    #[inline]
    fn packed(self) -> [u64; 4] {
        let last =
            u64::from(self.fd as u32) | (self.call as u64) << 32 | (self.outcome as u64) << 40;
        [self.caller, self.began, self.ended, last]
    }

    fn unpacked([caller, began, ended, last]: [u64; 4]) -> Option<Self> {
        let call = Call::numbered(last >> 32 & 0xff)?;
        Some(Self {
            call,
            fd: last as i32,
            caller,
            began,
            ended,
            outcome: Outcome::numbered(last >> 40),
        })
    }
}

impl Outcome {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Read,
        Self::ReadNothing,
        Self::Written,
        Self::WrittenShort,
        Self::WrittenNothing,
        Self::Connecting,
    ];

    fn numbered(number: u64) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::None)
    }

    /// Lets the descriptor know. What a transfer met; nothing where it was none.
    pub(crate) fn happened_to(self, fd: i32) -> Option<Met> {
        match self {
            Self::None => None,
            Self::Read => Some(descriptors::read(fd, false)),
            Self::ReadNothing => Some(descriptors::read(fd, true)),
            Self::Written => Some(descriptors::written(fd, false, false)),
            Self::WrittenShort => Some(descriptors::written(fd, false, true)),
            Self::WrittenNothing => Some(descriptors::written(fd, true, false)),
            Self::Connecting => {
                descriptors::connecting(fd);
                None
            }
        }
    }
}
