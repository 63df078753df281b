//! The turn of a thread: from the return of a wait to the next wait, with what was called in it.
//!
//! Calls of one place in the program are one entry, made from the notes of the thread where the turn is kept.
//! An entry of an earlier turn is free: nothing is cleared when a turn begins.

use std::cell::Cell;

use pollux_loop_stats::{CALLS_MAX, Call, CallRecord, Cell as Tally, Counter, Histogram, Site};

use crate::notes::Note;

/// From here on a turn is long.
const LONG_NS: u64 = 10_000_000;
/// CPU time and switches of the thread are read anew where they are older than this: one system call. What
/// was used before a long turn counts as its own, at most a tenth of it.
const USAGE_AGE_NS: u64 = LONG_NS / 10;
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
        (std::ptr::from_ref(self) as u64) << 24 ^ self.number.get()
    }

    /// Begins behind a wait.
    pub(crate) fn begin(&self, now_ns: u64, waited_ns: u64, events: u64, caller: u64) {
        let usage = self.usage.get();
        if now_ns.saturating_sub(usage.at_ns) > USAGE_AGE_NS {
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
        if lasted_ns >= LONG_NS {
            let (before, now) = (self.usage.get(), Usage::read(began_ns + lasted_ns));
            cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns).min(lasted_ns);
            // One more than the waits since then that may have been a sleep was in a call of this turn.
            let slept = now.sleeps.saturating_sub(before.sleeps) > self.waits_since.get();
            // The next turn begins with a reading of its own, as this one is old by then.
            self.judge(tally, lasted_ns, cpu_ns, slept, calls);
        }
        let figures = [began_ns, lasted_ns, cpu_ns, self.events.get(), left_out];
        self.keep_above_ns.set(tally.turn(figures, calls));
    }

    fn judge(
        &self,
        tally: &Tally<'static>,
        lasted_ns: u64,
        cpu_ns: u64,
        slept: bool,
        calls: &[CallRecord],
    ) {
        tally.count(Counter::TurnsLong);
        let in_calls_ns: u64 = calls.iter().map(|call| call.lasted_ns).sum();
        let longest = calls.iter().max_by_key(|call| call.longest_ns);
        if let Some(longest) = longest.filter(|_| slept && in_calls_ns >= lasted_ns / 2) {
            tally.count(Counter::TurnsBlocked);
            tally.add(Counter::BlockedNs, lasted_ns);
            tally.site(Site::Blocked, longest.caller);
        } else if cpu_ns >= lasted_ns / 2 {
            tally.count(Counter::TurnsComputed);
            tally.add(Counter::ComputedNs, lasted_ns);
            tally.site(Site::Computed, self.wait_caller.get());
        }
    }
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
