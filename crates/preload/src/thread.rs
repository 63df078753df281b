//! What a thread knows of its turn: when it began, what was called in it.
//!
//! All of it is plain memory of the thread, without a destructor, so it is there in every moment of
//! its life and in signal handlers.

use std::cell::Cell;

use pollux_epoll_c::border::{self, Fault};
use pollux_loop_stats::{CALLS_MAX, Call, CallRecord, Cell as Tally, Counter, Histogram, Site};

use crate::attach;
use crate::real::{errno, set_errno};

/// From here on a turn is long.
const LONG_NS: u64 = 10_000_000;
/// CPU time and switches of the thread are read anew where they are older than this: one system call. What
/// was used before a long turn counts as its own, at most a tenth of it.
const USAGE_AGE_NS: u64 = LONG_NS / 10;
/// A wait of this length slept.
const SLEPT_NS: u64 = 50_000;
/// A wait of this length may have slept: to go to sleep and be woken takes longer than any shorter one.
const MAY_SLEEP_NS: u64 = 3_000;

const NO_CALL: CallRecord =
    CallRecord { call: Call::Accept, times: 0, fd: -1, caller: 0, after_ns: 0, lasted_ns: 0 };

thread_local! {
    pub(crate) static THREAD: Thread = const { Thread::new() };
}

/// A thread of the program.
pub(crate) struct Thread {
    tally: Cell<Option<Tally<'static>>>,
    /// The tally of a thread that called vfork: whoever runs now may be its child.
    parked: Cell<Option<Tally<'static>>>,
    /// Who called vfork; 0 where nobody did.
    vforked: Cell<u32>,
    /// Within this library: what it calls itself is none of the program's.
    is_inside: Cell<bool>,
    pid: Cell<u32>,
    /// 0 outside a turn.
    began_ns: Cell<u64>,
    /// The same moment on the processor's counter, which calls are timed by.
    began_ticks: Cell<u64>,
    /// Turns so far.
    turns: Cell<u64>,
    /// Of the wait before the turn.
    events: Cell<u64>,
    wait_caller: Cell<u64>,
    calls: [Cell<CallRecord>; CALLS_MAX],
    calls_len: Cell<usize>,
    calls_left_out: Cell<u64>,
    /// No call that is kept was shorter, once as many as fit are kept.
    calls_shortest: Cell<u64>,
    /// The shortest turn that is kept.
    keep_above_ns: Cell<u64>,
    usage: Cell<Usage>,
    /// Waits since the usage was read that may have slept.
    waits_since: Cell<u64>,
    /// Data of the event of the wait before, plus one.
    pub(crate) last_single: Cell<u64>,
}

/// What the kernel says of a thread, getrusage(2).
#[derive(Clone, Copy, Default)]
struct Usage {
    at_ns: u64,
    cpu_ns: u64,
    /// Times that it went to sleep.
    sleeps: u64,
}

impl Thread {
    const fn new() -> Self {
        Self {
            tally: Cell::new(None),
            parked: Cell::new(None),
            vforked: Cell::new(0),
            is_inside: Cell::new(false),
            pid: Cell::new(0),
            began_ns: Cell::new(0),
            began_ticks: Cell::new(0),
            turns: Cell::new(0),
            events: Cell::new(0),
            wait_caller: Cell::new(0),
            calls: [const { Cell::new(NO_CALL) }; CALLS_MAX],
            calls_len: Cell::new(0),
            calls_left_out: Cell::new(0),
            calls_shortest: Cell::new(0),
            keep_above_ns: Cell::new(0),
            usage: Cell::new(Usage { at_ns: 0, cpu_ns: 0, sleeps: 0 }),
            waits_since: Cell::new(0),
            last_single: Cell::new(0),
        }
    }

    /// Its figures, if it has any.
    #[inline]
    pub(crate) fn tally(&self) -> Option<Tally<'static>> {
        self.tally.get().or_else(|| self.unpark()).filter(|_| !self.is_inside.get())
    }

    /// Its figures, from now on.
    #[inline]
    pub(crate) fn tally_or_claim(&self) -> Option<Tally<'static>> {
        self.tally().or_else(|| self.claim())
    }

    #[cold]
    fn claim(&self) -> Option<Tally<'static>> {
        // What could not be had once is not asked for again.
        if self.pid.get() == u32::MAX || !self.is_own() || self.is_inside.get() {
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
        self.vforked.get() == 0 && !self.is_inside.get()
    }

    #[inline]
    fn unpark(&self) -> Option<Tally<'static>> {
        let parent = self.vforked.get();
        if parent == 0 || own_pid() != parent {
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
        self.is_inside.get()
    }

    /// Does something that is not the program's.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.is_inside.replace(true);
        let done = work();
        self.is_inside.set(before);
        done
    }

    /// Counts what the program did by `call`: a fault in that ends the figures of this thread and nothing
    /// else. The call itself is never made in here: a thread may be cancelled in it.
    #[inline]
    pub(crate) fn counting<T: Default>(&self, call: &str, work: impl FnOnce() -> T) -> T {
        border::caught(work).unwrap_or_else(|fault| self.give_up(call, &fault))
    }

    #[cold]
    fn give_up<T: Default>(&self, call: &str, fault: &Fault) -> T {
        let before = errno();
        self.forget();
        self.pid.set(u32::MAX);
        self.inside(|| border::tell(call, "the thread is no longer counted", fault));
        set_errno(before);
        T::default()
    }

    /// Leaves the figures to the parent.
    pub(crate) fn forget(&self) {
        self.tally.set(None);
        self.parked.set(None);
        self.vforked.set(0);
        self.pid.set(0);
        self.began_ns.set(0);
        self.keep_above_ns.set(0);
    }

    /// Names the turn, unlike those of other threads.
    pub(crate) fn turn(&self) -> u64 {
        // Threads are further apart in memory than the turns that anybody compares.
        (std::ptr::from_ref(self) as u64) << 24 ^ self.turns.get()
    }

    /// Begins a turn behind a wait.
    pub(crate) fn begin(&self, now_ns: u64, waited_ns: u64, events: u64, caller: u64) {
        let usage = self.usage.get();
        let is_old = now_ns.saturating_sub(usage.at_ns) > USAGE_AGE_NS || waited_ns > SLEPT_NS;
        if is_old {
            self.usage.set(Usage::read(now_ns));
            self.waits_since.set(0);
        } else if waited_ns >= MAY_SLEEP_NS {
            self.waits_since.set(self.waits_since.get() + 1);
        }
        self.turns.set(self.turns.get() + 1);
        self.events.set(events);
        self.wait_caller.set(caller);
        self.calls_len.set(0);
        self.calls_left_out.set(0);
        self.calls_shortest.set(0);
        self.began_ns.set(now_ns);
        self.began_ticks.set(ticks());
    }

    /// Ends the turn before a wait, if there is one.
    pub(crate) fn end(&self, tally: &Tally<'static>, now_ns: u64) {
        let began_ns = self.began_ns.replace(0);
        if began_ns == 0 {
            return;
        }
        let lasted_ns = now_ns.saturating_sub(began_ns);
        tally.count(Counter::Turns);
        tally.add(Counter::TurnNs, lasted_ns);
        tally.time(Histogram::TurnLength, lasted_ns);
        if lasted_ns > self.keep_above_ns.get() || lasted_ns >= LONG_NS {
            self.look_at(tally, began_ns, lasted_ns);
        }
    }

    /// Keeps a turn, and judges it where it was long.
    #[cold]
    fn look_at(&self, tally: &Tally<'static>, began_ns: u64, lasted_ns: u64) {
        // The turn was measured on both, so that it says how long a tick is.
        let ticks = ticks().saturating_sub(self.began_ticks.get()).max(1);
        let ns = |of: u64| (u128::from(of) * u128::from(lasted_ns) / u128::from(ticks)) as u64;
        let mut calls = [NO_CALL; CALLS_MAX];
        for (to, from) in calls.iter_mut().zip(&self.calls) {
            let call = from.get();
            let (after_ns, lasted_ns) = (ns(call.after_ns), ns(call.lasted_ns));
            *to = CallRecord { after_ns, lasted_ns, ..call };
        }
        let calls = &calls[..self.calls_len.get().min(CALLS_MAX)];
        let mut cpu_ns = 0;
        if lasted_ns >= LONG_NS {
            let (before, now) = (self.usage.get(), Usage::read(began_ns + lasted_ns));
            cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns).min(lasted_ns);
            // One more than the waits since then that may have been a sleep was in a call of this turn.
            let slept = now.sleeps.saturating_sub(before.sleeps) > self.waits_since.get();
            // The next turn begins with a reading of its own, as this one is old by then.
            self.judge(tally, lasted_ns, cpu_ns, slept, calls);
        }
        let figures = [began_ns, lasted_ns, cpu_ns, self.events.get(), self.calls_left_out.get()];
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
        let longest = calls.iter().max_by_key(|call| call.lasted_ns);
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

    /// Notes a call of the turn, by the processor's counter; its times become nanoseconds where the turn
    /// is kept.
    #[inline]
    pub(crate) fn called(&self, call: Call, fd: i32, caller: u64, began: u64, ended: u64) {
        if self.began_ns.get() == 0 {
            return;
        }
        let lasted_ns = ended.saturating_sub(began);
        let len = self.calls_len.get().min(CALLS_MAX);
        if let Some(last) = self.calls[..len].last() {
            let before = last.get();
            if before.call == call && before.caller == caller {
                let (times, lasted_ns) = (before.times + 1, before.lasted_ns + lasted_ns);
                last.set(CallRecord { times, lasted_ns, ..before });
                return;
            }
        }
        let after_ns = began.saturating_sub(self.began_ticks.get());
        let record = CallRecord { call, times: 1, fd, caller, after_ns, lasted_ns };
        if let Some(free) = self.calls.get(len) {
            free.set(record);
            self.calls_len.set(len + 1);
        } else {
            self.calls_left_out.set(self.calls_left_out.get() + 1);
            if lasted_ns > self.calls_shortest.get() {
                self.keep_for_the_shortest(record);
            }
        }
    }
}

impl Thread {
    /// Keeps a call in the place of the shortest one, if it was longer. Rare: each makes the shortest longer.
    fn keep_for_the_shortest(&self, record: CallRecord) {
        let shortest = || self.calls.iter().min_by_key(|call| call.get().lasted_ns);
        if let Some(shortest) = shortest().filter(|call| call.get().lasted_ns < record.lasted_ns) {
            shortest.set(record);
        }
        self.calls_shortest.set(shortest().map_or(0, |call| call.get().lasted_ns));
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

fn own_pid() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::getpid() }.unsigned_abs()
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
