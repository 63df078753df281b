//! Time in a loop: its clocks, which are read once a turn, and the date that the loops of a group share.
//!
//! ```text
//!  begin_turn ──► sessions ──► begin_wait ──► wait, or spin … spin ──► begin_turn
//!       └───────── work_ns ─────────┘└──────────── wait_ns ────────────────┘
//! ```
//!
//! Each arrow above a span is one read of the monotonic clock, which takes no system call. A
//! loop that polls busily reads it in every spin, but into its own memory only: writing a date
//! that all loops share in every spin has cost servers with many cores most of their time. The
//! shared one is written when a turn begins, and only if it is far enough behind.
//!
//! Only the loops call this. Sessions and timers read no clock: they are given the [`Now`] of the turn, and
//! compute with [`Moment`]s.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pollux_sys::clock;
use rustix::time::{ClockId, clock_gettime};

use crate::{Counter, Counters};

/// How far the shared date may be behind before a loop that comes by moves it.
const SHARED_DATE_STEP: Duration = Duration::from_micros(32);

/// The latest moment that any loop of a group shared.
///
/// Any thread may read it, which is cheaper than a clock: nothing writes it more than once in
/// 32 µs, give or take loops that do so at the same time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SharedDate(AtomicU64);

impl SharedDate {
    /// The latest moment shared; it never goes back. Zero before the first turn of the first
    /// loop, and as old as the last turn when all loops sleep.
    #[must_use]
    pub fn latest(&self) -> Moment {
        Moment::from_nanos(self.0.load(Relaxed))
    }

    /// Moves the date on if it is far enough behind; says whether it was written.
    fn publish(&self, at: Moment) -> bool {
        let is_behind = at - self.latest() >= SHARED_DATE_STEP;
        if is_behind {
            self.0.fetch_max(at.as_nanos(), Relaxed);
        }
        is_behind
    }
}

/// What time it is for one loop.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Now,
    shared: Arc<SharedDate>,
    /// Up to when time was counted as work or as waiting.
    counted_until: Moment,
    is_waiting: bool,
}

impl Clock {
    /// Reads the clocks for the first time; what comes until `begin_wait` counts as work.
    pub(crate) fn new(shared: Arc<SharedDate>) -> Self {
        let now = Now { at: monotonic(), unix_s: unix_s() };
        Self { now, shared, counted_until: now.at, is_waiting: false }
    }

    /// What the clocks said when the turn began, or in the last spin.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Ends the work of a turn and says when that is, which [`Clock::now`] does not: sessions
    /// may have worked long. A loop that will not wait at all may leave it out.
    pub(crate) fn begin_wait(&mut self, counters: &Counters) -> Moment {
        let read = monotonic();
        self.count_until(read, counters);
        self.is_waiting = true;
        read
    }

    /// The date within a wait that spins. Writes nothing that another thread reads.
    pub(crate) fn spin(&mut self) -> Moment {
        self.advance(monotonic())
    }

    /// Ends a wait: reads the clocks for the turn that begins, moves the shared date.
    pub(crate) fn begin_turn(&mut self, counters: &Counters) -> Now {
        self.begin_turn_at(monotonic(), unix_s(), counters)
    }

    fn begin_turn_at(&mut self, read: Moment, unix_s: u64, counters: &Counters) -> Now {
        let at = self.advance(read);
        self.now.unix_s = unix_s;
        self.count_until(at, counters);
        self.is_waiting = false;
        if self.shared.publish(at) {
            counters.count(Counter::DateWrites);
        }
        self.now
    }

    /// The monotonic clock should not go back; where a virtual machine lets it, it stands.
    fn advance(&mut self, read: Moment) -> Moment {
        self.now.at = self.now.at.max(read);
        self.now.at
    }

    fn count_until(&mut self, until: Moment, counters: &Counters) {
        let counter = if self.is_waiting { Counter::WaitNs } else { Counter::WorkNs };
        let spent = until - self.counted_until;
        counters.add(counter, spent.as_nanos() as u64);
        self.counted_until = self.counted_until.max(until);
    }
}

fn monotonic() -> Moment {
    Moment::from_nanos(clock::monotonic().as_nanos() as u64)
}

/// A clock that is set before 1970 shows 1970.
fn unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// A point on the monotonic clock, in nanoseconds since the machine started.
///
/// ```
/// use pollux_engine::Moment;
/// use std::time::Duration;
///
/// let begin = Moment::from_nanos(1_000);
/// let deadline = begin + Duration::from_secs(5);
/// assert_eq!(deadline - begin, Duration::from_secs(5));
/// assert_eq!(begin - deadline, Duration::ZERO, "never less than nothing");
/// assert!(deadline < Moment::NEVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Later than every other moment: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanoseconds` after the machine started.
    #[must_use]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the machine started.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whether this is a point in time at all, and not [`Moment::NEVER`].
    #[must_use]
    pub const fn is_finite(self) -> bool {
        self.0 != u64::MAX
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    /// Saturates at [`Moment::NEVER`].
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

impl Sub for Moment {
    type Output = Duration;
    /// Time from `earlier` to this moment; zero when it is later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What the clocks said at the start of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For deadlines and durations.
    pub at: Moment,
    /// For dates: seconds since 1970, UTC. May jump when the machine's clock is set.
    pub unix_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn clock() -> (Clock, Counters) {
        (Clock::new(Arc::new(SharedDate::default())), Counters::default())
    }

    fn turn(clock: &mut Clock, at_ns: u64, counters: &Counters) -> u64 {
        clock.begin_turn_at(Moment::from_nanos(at_ns), 0, counters).at.as_nanos()
    }

    #[test]
    fn a_clock_that_jumps_never_goes_back() {
        let (mut clock, counters) = clock();
        let start_ns = clock.now().at.as_nanos();
        assert_eq!(turn(&mut clock, start_ns + HOUR_NS, &counters), start_ns + HOUR_NS);
        for back_ns in [50_000_000, HOUR_NS, start_ns + HOUR_NS] {
            let read_ns = start_ns + HOUR_NS - back_ns;
            assert_eq!(turn(&mut clock, read_ns, &counters), start_ns + HOUR_NS);
        }
        assert_eq!(clock.shared.latest(), clock.now().at);
        assert_eq!(turn(&mut clock, start_ns + HOUR_NS + 1, &counters), start_ns + HOUR_NS + 1);
        assert_eq!(counters.value(Counter::WorkNs), HOUR_NS + 1, "no time is counted twice");
    }

    #[test]
    fn the_wall_clock_may_jump() {
        let (mut clock, counters) = clock();
        let at = clock.now().at;
        for unix_s in [2_000_000_000, 1_000_000_000, 1_000_003_600] {
            assert_eq!(clock.begin_turn_at(at, unix_s, &counters), Now { at, unix_s });
        }
    }

    #[test]
    fn work_and_waiting_add_up_to_the_time_that_went_by() {
        let (mut clock, counters) = clock();
        let begin = clock.now().at;
        for turn in 0..1_000 {
            // A loop that has something to do does not wait.
            if turn % 3 != 0 {
                clock.begin_wait(&counters);
            }
            clock.begin_turn(&counters);
        }
        let counted_ns = counters.value(Counter::WorkNs) + counters.value(Counter::WaitNs);
        assert_eq!(Duration::from_nanos(counted_ns), clock.now().at - begin);
    }

    #[test]
    fn a_spin_is_waiting_and_not_work() {
        let (mut clock, counters) = clock();
        clock.begin_wait(&counters);
        let work_ns = counters.value(Counter::WorkNs);
        let began = clock.counted_until;
        while clock.spin() - began < Duration::from_millis(1) {}
        clock.begin_turn(&counters);
        assert_eq!(counters.value(Counter::WorkNs), work_ns);
        assert!(counters.value(Counter::WaitNs) >= 1_000_000);
    }

    #[test]
    fn spinning_writes_nothing_shared_and_leaving_it_writes_once() {
        let shared = Arc::new(SharedDate::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut clock = Clock::new(Arc::clone(&shared));
                    let counters = Counters::default();
                    for leave in 0..10 {
                        (0..10_000).for_each(|_| assert!(clock.spin().is_finite()));
                        assert!(counters.value(Counter::DateWrites) <= leave);
                        clock.begin_turn(&counters);
                        assert!(shared.latest() + SHARED_DATE_STEP > clock.now().at);
                    }
                });
            }
        });
        let (mut alone, counters) = clock();
        alone.begin_turn(&counters);
        let shared = alone.shared.latest();
        while alone.spin() - shared < SHARED_DATE_STEP * 10 {}
        assert_eq!(alone.shared.latest(), shared, "a spin moved the shared date");
        assert_eq!(counters.value(Counter::DateWrites), 1);
    }

    #[test]
    fn turns_within_a_step_write_the_shared_date_once() {
        let (mut clock, counters) = clock();
        let start_ns = clock.now().at.as_nanos();
        let step_ns = SHARED_DATE_STEP.as_nanos() as u64;
        let offsets_ns = [0, 1, step_ns / 2, step_ns - 1, step_ns, step_ns + 1, 2 * step_ns];
        for offset_ns in offsets_ns {
            turn(&mut clock, start_ns + offset_ns, &counters);
        }
        assert_eq!(counters.value(Counter::DateWrites), 3);
        assert_eq!(clock.shared.latest().as_nanos(), start_ns + 2 * step_ns);
    }

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let early = Moment::from_nanos(5);
        assert_eq!(early + Duration::MAX, Moment::NEVER);
        assert_eq!(early - Moment::from_nanos(7), Duration::ZERO);
        assert_eq!((early + Duration::from_nanos(3)).as_nanos(), 8);
    }
}
