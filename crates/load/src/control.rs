//! What the threads of a run agree on: when it begins, that it is to stop, that all are done.
//!
//! A few atomic words, and what each thread has counted. Threads look at them between turns, never in the hot
//! path.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pollux_sys::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::{Errors, Totals};

/// From when all are ready to when requests begin: all threads have seen it by then.
const START_AFTER: Duration = Duration::from_millis(2);

/// A server that has not answered so long after the warm-up gets no more than the run's time.
const VAIN_AFTER: Duration = Duration::from_secs(1);

/// What sets the time at which requests begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// The last thread that is ready.
    WhenReady,
    /// Who prepared the run.
    WhenTold,
}

/// Which part of a run it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Connections are opened, those of the crowd first.
    SettingUp,
    /// Requests are sent and not counted.
    WarmUp,
    /// Requests are sent and counted.
    Measuring,
    /// No more requests are sent; what is under way is waited for.
    Finishing,
}

/// What the threads agree on.
#[derive(Debug)]
pub(crate) struct Control {
    threads: u32,
    warm_up: Duration,
    /// How long the run is to last, warm-up aside.
    after: Option<Duration>,
    start: Start,
    ready: AtomicU32,
    /// Zero until all are ready.
    origin_ns: AtomicU64,
    is_stopped: AtomicBool,
    was_ended_early: AtomicBool,
    was_answered: AtomicBool,
    was_connected: AtomicBool,
    is_misunderstood: AtomicBool,
    first_failure: OnceLock<String>,
    is_broken: AtomicBool,
    is_finishing: AtomicBool,
    finished: AtomicU32,
    crowd_connected: AtomicU32,
    /// What each thread has counted so far, without its warm-up.
    counts: Box<[Mutex<Counts>]>,
}

/// What a thread has counted.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) totals: Totals,
    pub(crate) errors: Errors,
}

impl Counts {
    pub(crate) fn add(&mut self, totals: &Totals, errors: &Errors) {
        self.totals.add(totals);
        self.errors.add(errors);
    }
}

impl Control {
    /// For so many threads.
    pub(crate) fn new(
        threads: u32,
        warm_up: Duration,
        after: Option<Duration>,
        start: Start,
    ) -> Self {
        Self {
            threads,
            warm_up,
            after,
            start,
            ready: AtomicU32::new(0),
            origin_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            was_ended_early: AtomicBool::new(false),
            was_answered: AtomicBool::new(false),
            was_connected: AtomicBool::new(false),
            is_misunderstood: AtomicBool::new(false),
            first_failure: OnceLock::new(),
            is_broken: AtomicBool::new(false),
            is_finishing: AtomicBool::new(false),
            finished: AtomicU32::new(0),
            crowd_connected: AtomicU32::new(0),
            counts: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// A thread has counted this so far.
    pub(crate) fn counted(&self, thread: u32, counts: &Counts) {
        let kept = &self.counts[thread as usize];
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = *counts;
    }

    /// What all have counted.
    pub(crate) fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for counts in &self.counts {
            let Counts { totals, errors } = *counts.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(&totals, &errors);
        }
        all
    }

    /// A thread has its connections; the last one sets the time at which requests begin, unless another does.
    pub(crate) fn ready(&self) {
        let is_last = self.ready.fetch_add(1, SeqCst) + 1 == self.threads;
        if is_last && self.start == Start::WhenReady {
            self.begin_at(monotonic_ns() + START_AFTER.as_nanos() as u64);
        }
    }

    /// Whether all threads have their connections.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(SeqCst) == self.threads
    }

    /// Sets the time at which requests begin, once.
    pub(crate) fn begin_at(&self, origin_ns: u64) {
        // The first time counts; threads may have seen it.
        let _ = self.origin_ns.compare_exchange(0, origin_ns, SeqCst, SeqCst);
    }

    /// When requests begin, once that is known.
    pub(crate) fn origin_ns(&self) -> Option<u64> {
        Some(self.origin_ns.load(SeqCst)).filter(|origin_ns| *origin_ns > 0)
    }

    /// When they begin to count.
    pub(crate) fn measure_from_ns(&self) -> Option<u64> {
        self.origin_ns().map(|origin_ns| origin_ns + self.warm_up.as_nanos() as u64)
    }

    /// Ends the run early, as its user wishes.
    pub(crate) fn end_early(&self) {
        self.was_ended_early.store(true, SeqCst);
        self.stop();
    }

    pub(crate) fn was_ended_early(&self) -> bool {
        self.was_ended_early.load(SeqCst)
    }

    /// An active connection had its first answer.
    pub(crate) fn answered(&self) {
        self.was_answered.store(true, SeqCst);
    }

    pub(crate) fn was_answered(&self) -> bool {
        self.was_answered.load(SeqCst)
    }

    /// An active connection came about.
    pub(crate) fn connected(&self) {
        self.was_connected.store(true, SeqCst);
    }

    pub(crate) fn was_connected(&self) -> bool {
        self.was_connected.load(SeqCst)
    }

    /// The server speaks another protocol than the URL says.
    pub(crate) fn misunderstood(&self) {
        self.is_misunderstood.store(true, SeqCst);
    }

    pub(crate) fn is_misunderstood(&self) -> bool {
        self.is_misunderstood.load(SeqCst)
    }

    /// One did not; the first reason is kept.
    pub(crate) fn failed(&self, why: &str) {
        self.first_failure.get_or_init(|| why.to_owned());
    }

    pub(crate) fn first_failure(&self) -> Option<&str> {
        self.first_failure.get().map(String::as_str)
    }

    /// Whether the run has lasted as long as it was to, without an answer: a warm-up
    /// that warmed nothing is a part of its time. A longer warm-up is waited for nevertheless.
    pub(crate) fn has_elapsed_unanswered(&self, now_ns: u64) -> bool {
        let (Some(origin_ns), Some(after)) = (self.origin_ns(), self.after) else { return false };
        let enough = after.max(self.warm_up.saturating_add(VAIN_AFTER)).as_nanos() as u64;
        now_ns >= origin_ns.saturating_add(enough) && !self.was_answered()
    }

    /// Ends the run.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(SeqCst)
    }

    /// Ends the run because a thread failed: no other thread waits for it any more.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, SeqCst);
        self.stop();
    }

    /// A thread sends no more.
    pub(crate) fn finishing(&self) {
        self.is_finishing.store(true, SeqCst);
    }

    /// A thread waits for nothing any more.
    pub(crate) fn finished(&self) {
        self.finished.fetch_add(1, SeqCst);
    }

    /// Whether all threads have what they were waiting for, or one of them never will.
    pub(crate) fn are_all_finished(&self) -> bool {
        self.is_broken.load(SeqCst) || self.finished.load(SeqCst) >= self.threads
    }

    pub(crate) fn crowd_grew(&self, by: u32) {
        self.crowd_connected.fetch_add(by, SeqCst);
    }

    pub(crate) fn crowd_connected(&self) -> u32 {
        self.crowd_connected.load(SeqCst)
    }

    /// Which part of the run it is, and the time since requests began.
    pub(crate) fn phase(&self) -> (Phase, Duration) {
        let Some(origin_ns) = self.origin_ns() else { return (Phase::SettingUp, Duration::ZERO) };
        let elapsed = Duration::from_nanos(monotonic_ns().saturating_sub(origin_ns));
        let phase = if self.is_finishing.load(SeqCst) {
            Phase::Finishing
        } else if elapsed < self.warm_up {
            Phase::WarmUp
        } else {
            Phase::Measuring
        };
        (phase, elapsed)
    }
}
