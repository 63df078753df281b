//! Was the machine quiet enough for a run to be believed?
//!
//! The runner samples the machine before and after each run, makes a [`GateReading`] of the
//! difference and asks for its [`GateReading::disturbances`]. A disturbed run is marked and its block
//! repeated; it is never thrown away here. A gate that could not be read disturbs nothing: its reading
//! says `n/a`, and the report shows that.
//!
//! What a run does to itself must never count as a disturbance: our own CPU time is taken off before
//! foreign CPU is judged, and waiting for a CPU is shown but not judged, as two threads that wake each
//! other, or 250 processes on one queue, wait a lot by themselves.

use std::time::Duration;

use super::Reading;
use super::machine::{CpuTicks, HostSample};

/// Ticks, over all CPUs, below which shares of CPU time are not given: one tick would then be more
/// than one percent, as large as the limits themselves. Half a second on two CPUs.
const TICKS_MIN: u64 = 100;
/// The largest stolen share of a quiet run: it moves rates by about as much, and smaller effects than
/// 3 % are not claimed.
pub const STEAL_SHARE_MAX: f64 = 0.02;
/// The largest foreign share of a quiet run: a fifth of a CPU on two CPUs; kernel threads and our own
/// terminal stay below.
pub const FOREIGN_CPU_SHARE_MAX: f64 = 0.10;

/// What happened on the machine between two samples. Shares go from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct GateReading {
    /// CPU time the hypervisor gave to others, of all CPU time.
    pub steal_share: Reading<f64>,
    /// Time in which some task, ours or not, waited for a CPU, of wall time. Not judged, because our
    /// own threads wait too.
    pub psi_some_share: Reading<f64>,
    /// CPU time used by neither us nor the kernel's packet delivery, of all CPU time.
    pub foreign_cpu_share: Reading<f64>,
    /// Microseconds our control group was kept off the CPU by its quota.
    pub throttled_us: Reading<u64>,
}

impl GateReading {
    /// Compares two samples, `before` taken first; `own` is the CPU time that the run's processes and
    /// we ourselves used in between.
    #[must_use]
    pub fn between(before: &HostSample, after: &HostSample, own: Duration) -> Self {
        let wall = after.taken_at.saturating_duration_since(before.taken_at);
        let ticks = grown(&before.cpu, &after.cpu, |a, b| b.since(a)).and_then(enough);
        let waits = grown(&before.cpu_waits_us, &after.cpu_waits_us, |a, b| b.saturating_sub(*a))
            .map(Duration::from_micros);
        let delivery = grown(&before.softirq_threads_cpu, &after.softirq_threads_cpu, |a, b| {
            b.saturating_sub(*a)
        });
        // Where the delivery threads cannot be seen, their time stays in the foreign share.
        let known = own + delivery.value().copied().unwrap_or_default();
        Self {
            steal_share: ticks.clone().map(|t| share(t.steal as f64, t.total() as f64)),
            psi_some_share: waits.map(|waits| share(waits.as_secs_f64(), wall.as_secs_f64())),
            foreign_cpu_share: ticks.map(|ticks| foreign_cpu_share(&ticks, known)),
            throttled_us: grown(&before.throttled_us, &after.throttled_us, |a, b| {
                b.saturating_sub(*a)
            }),
        }
    }

    /// Why the run is not to be trusted by itself: a clause for each limit that was passed, with figure
    /// and limit. Empty for a quiet run. A quota that bites even once stops all threads for most of a
    /// 100 ms period, so any throttling counts.
    #[must_use]
    pub fn disturbances(&self) -> Vec<String> {
        let shares = [
            ("CPU time stolen by the hypervisor", &self.steal_share, STEAL_SHARE_MAX),
            ("CPU time used by other programs", &self.foreign_cpu_share, FOREIGN_CPU_SHARE_MAX),
        ];
        let passed = |(what, reading, limit): (&str, &Reading<f64>, f64)| {
            let share = reading.value().filter(|share| **share > limit)?;
            Some(format!("{what}: {:.1} % (limit {:.1} %)", share * 100.0, limit * 100.0))
        };
        let throttled = self.throttled_us.value().filter(|us| **us > 0);
        let throttled =
            throttled.map(|us| format!("throttled by the CPU quota for {us} us (limit 0 us)"));
        shares.into_iter().filter_map(passed).chain(throttled).collect()
    }
}

/// The growth of a counter; the first missing end gives the reason.
fn grown<T, U>(
    before: &Reading<T>,
    after: &Reading<T>,
    difference: impl FnOnce(&T, &T) -> U,
) -> Reading<U> {
    before.as_ref().and_then(|a| after.as_ref().map(|b| difference(a, b)))
}

fn enough(ticks: CpuTicks) -> Reading<CpuTicks> {
    let total = ticks.total();
    if total < TICKS_MIN {
        let fault = format!("only {total} CPU ticks between the samples, {TICKS_MIN} are needed");
        return Reading::unavailable(fault);
    }
    Reading::Value(ticks)
}

/// Seconds are compared because ticks are whole and our own time is exact; below zero is rounding.
fn foreign_cpu_share(ticks: &CpuTicks, known: Duration) -> f64 {
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let foreign_s = (ticks.busy() as f64 * tick_s - known.as_secs_f64()).max(0.0);
    share(foreign_s, ticks.total() as f64 * tick_s)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sample(taken_at: Instant, cpu: CpuTicks, waits_us: u64) -> HostSample {
        HostSample {
            taken_at,
            cpu: Reading::Value(cpu),
            cpu_waits_us: Reading::Value(waits_us),
            throttled_us: Reading::unavailable("no quota"),
            softirq_threads_cpu: Reading::unavailable("hidden"),
        }
    }

    /// Ten seconds on two CPUs, all of it busy but `idle_s`.
    fn ten_seconds(idle_s: u64, steal_s: u64, waits_us: u64) -> (HostSample, HostSample) {
        let start = Instant::now();
        let hz = rustix::param::clock_ticks_per_second();
        let ticks = CpuTicks {
            user: (20 - idle_s - steal_s) * hz,
            idle: idle_s * hz,
            steal: steal_s * hz,
            ..CpuTicks::default()
        };
        let before = sample(start, CpuTicks::default(), 0);
        (before, sample(start + Duration::from_secs(10), ticks, waits_us))
    }

    #[test]
    fn two_own_threads_that_fill_two_cpus_and_wait_for_each_other_are_not_disturbance() {
        let (before, after) = ten_seconds(0, 0, 9_000_000);
        let reading = GateReading::between(&before, &after, Duration::from_secs(20));
        assert_eq!(reading.psi_some_share, Reading::Value(0.9));
        assert_eq!(reading.foreign_cpu_share, Reading::Value(0.0));
        assert!(reading.disturbances().is_empty());
    }

    #[test]
    fn foreign_load_and_steal_are_named_with_figure_and_limit() {
        let (before, after) = ten_seconds(4, 1, 0);
        let reading = GateReading::between(&before, &after, Duration::from_secs(10));
        assert_eq!(
            reading.disturbances(),
            [
                "CPU time stolen by the hypervisor: 5.0 % (limit 2.0 %)",
                "CPU time used by other programs: 25.0 % (limit 10.0 %)"
            ]
        );
    }

    #[test]
    fn the_kernels_packet_delivery_is_not_foreign() {
        let (mut before, mut after) = ten_seconds(10, 0, 0);
        before.softirq_threads_cpu = Reading::Value(Duration::from_secs(100));
        after.softirq_threads_cpu = Reading::Value(Duration::from_secs(103));
        let reading = GateReading::between(&before, &after, Duration::from_secs(7));
        assert_eq!(reading.foreign_cpu_share, Reading::Value(0.0));
    }

    #[test]
    fn a_window_too_short_for_ticks_gives_no_shares_instead_of_wild_ones() {
        let start = Instant::now();
        let before = sample(start, CpuTicks::default(), 0);
        let ticks = CpuTicks { user: 5, ..CpuTicks::default() };
        let after = sample(start + Duration::from_millis(25), ticks, 0);
        let reading = GateReading::between(&before, &after, Duration::ZERO);
        assert!(reading.steal_share.reason().is_some_and(|why| why.contains("5 CPU ticks")));
        assert!(reading.disturbances().is_empty());
    }

    #[test]
    fn any_throttling_disturbs() {
        let (mut before, mut after) = ten_seconds(20, 0, 0);
        before.throttled_us = Reading::Value(10);
        after.throttled_us = Reading::Value(52);
        let reading = GateReading::between(&before, &after, Duration::ZERO);
        assert_eq!(reading.disturbances(), ["throttled by the CPU quota for 42 us (limit 0 us)"]);
    }
}
