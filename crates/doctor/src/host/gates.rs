//! Was the machine quiet enough for a run to be believed?
//!
//! The runner samples the machine before and after each run, makes a [`GateReading`] of the
//! difference and asks [`GateReading::judge`]. A disturbed run is marked and its block repeated; it
//! is never thrown away here. A gate that could not be read disturbs nothing: its reading says
//! `n/a`, and the report shows that.
//!
//! What a run does to itself must never count as a disturbance. So our own CPU time is taken off
//! before foreign CPU is judged, and our own waiting for a CPU before the waiting of others is:
//! two threads on two CPUs that wake each other, or 250 processes on one queue, wait a lot and are
//! no reason to distrust the run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Reading;
use super::machine::{CpuTicks, HostSample};

/// Ticks, over all CPUs, below which shares of CPU time are not given: one tick would then be more
/// than one percent, as large as the limits themselves. Half a second on two CPUs.
const TICKS_MIN: u64 = 100;

/// What the run itself used between the two samples, all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnUse {
    /// CPU time of the run's processes and of ourselves.
    pub cpu: Duration,
    /// Time the run's threads were ready but had no CPU, added up over threads (second field of
    /// `schedstat`). `None` if the processes did not report it: pressure is then not judged.
    pub runqueue_wait: Option<Duration>,
}

/// Makes readings from pairs of samples.
#[derive(Clone, Copy, Debug)]
pub struct Gate;

/// What happened on the machine between two samples. Shares go from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReading {
    /// Seconds between the samples.
    pub wall_s: f64,
    /// CPU time the hypervisor gave to others, of all CPU time.
    pub steal_share: Reading<f64>,
    /// Time in which some task, ours or not, waited for a CPU, of wall time. For the eye: it is
    /// judged only after our own waiting is taken off.
    pub psi_some_share: Reading<f64>,
    /// The least share of time in which a task that is not ours must have waited for a CPU.
    pub foreign_wait_share: Reading<f64>,
    /// CPU time used by neither us nor the kernel's packet delivery, of all CPU time.
    pub foreign_cpu_share: Reading<f64>,
    /// Microseconds our control group was kept off the CPU by its quota.
    pub throttled_us: Reading<u64>,
    /// Context switches of the whole machine for each second.
    pub ctxt_per_s: Reading<f64>,
}

/// The largest readings that still count as quiet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateLimits {
    /// Default 0.02: a stolen share moves rates by about as much, and smaller effects than 3 % are
    /// not claimed.
    pub steal_share_max: f64,
    /// Default 0.10: a fifth of a CPU on two CPUs; kernel threads and our own terminal stay below.
    pub foreign_cpu_share_max: f64,
    /// Default 0.20: kernel threads that wait for busy measured threads reach some percent, a
    /// second load on the machine reaches 25 to 50 percent.
    pub foreign_wait_share_max: f64,
    /// Default 0: a quota that bites even once stops all threads for most of a 100 ms period.
    pub throttled_us_max: u64,
}

/// Why a run is not to be trusted by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// One clause for each limit that was passed, with figure and limit. Never empty.
    pub reasons: Vec<String>,
}

impl Gate {
    /// Compares two samples, `before` taken first; `own` is what the run itself used in between.
    #[must_use]
    pub fn between(before: &HostSample, after: &HostSample, own: &OwnUse) -> GateReading {
        let wall = after.taken_at.saturating_duration_since(before.taken_at);
        let ticks = grown(&before.cpu, &after.cpu, |a, b| b.since(a)).and_then(enough);
        let waits = grown(&before.cpu_waits_us, &after.cpu_waits_us, |a, b| b.saturating_sub(*a))
            .map(Duration::from_micros);
        let switches = grown(&before.switches, &after.switches, |a, b| b.saturating_sub(*a));
        let delivery = grown(&before.softirq_threads_cpu, &after.softirq_threads_cpu, |a, b| {
            b.saturating_sub(*a)
        });
        // Where the delivery threads cannot be seen, their time stays in the foreign share.
        let known = own.cpu + delivery.value().copied().unwrap_or_default();
        GateReading {
            wall_s: wall.as_secs_f64(),
            steal_share: ticks.clone().map(|t| share(t.steal as f64, t.total() as f64)),
            psi_some_share: waits.clone().map(|waits| share_of(waits, wall)),
            foreign_wait_share: foreign_wait_share(waits, own.runqueue_wait, wall),
            foreign_cpu_share: ticks.map(|ticks| foreign_cpu_share(&ticks, known)),
            throttled_us: grown(&before.throttled_us, &after.throttled_us, |a, b| {
                b.saturating_sub(*a)
            }),
            ctxt_per_s: switches.map(|count| share(count as f64, wall.as_secs_f64())),
        }
    }
}

impl GateReading {
    /// The limits that were passed, or `None` for a quiet run.
    #[must_use]
    pub fn judge(&self, limits: &GateLimits) -> Option<Disturbance> {
        let shares = [
            ("CPU time stolen by the hypervisor", &self.steal_share, limits.steal_share_max),
            (
                "CPU time used by other programs",
                &self.foreign_cpu_share,
                limits.foreign_cpu_share_max,
            ),
            (
                "other programs waiting for a CPU",
                &self.foreign_wait_share,
                limits.foreign_wait_share_max,
            ),
        ];
        let mut reasons: Vec<String> = shares
            .into_iter()
            .filter_map(|(what, reading, limit)| passed(what, reading, limit))
            .collect();
        if let Some(us) = self.throttled_us.value().filter(|us| **us > limits.throttled_us_max) {
            let limit = limits.throttled_us_max;
            reasons.push(format!("throttled by the CPU quota for {us} us (limit {limit} us)"));
        }
        (!reasons.is_empty()).then_some(Disturbance { reasons })
    }
}

impl Default for GateLimits {
    fn default() -> Self {
        Self {
            steal_share_max: 0.02,
            foreign_cpu_share_max: 0.10,
            foreign_wait_share_max: 0.20,
            throttled_us_max: 0,
        }
    }
}

fn passed(what: &str, reading: &Reading<f64>, limit: f64) -> Option<String> {
    let share = reading.value().filter(|share| **share > limit)?;
    Some(format!("{what}: {:.1} % (limit {:.1} %)", share * 100.0, limit * 100.0))
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

/// Pressure is at most our own waiting plus that of others, so the rest is certainly foreign.
///
/// Our waiting is added up over threads and pressure counts a moment once, however many wait, so
/// this errs on the side of calling a run quiet; foreign load that competes shows as CPU time too.
fn foreign_wait_share(
    waits: Reading<Duration>,
    own: Option<Duration>,
    wall: Duration,
) -> Reading<f64> {
    waits.and_then(|waits| match own {
        Some(own) => Reading::Value(share_of(waits.saturating_sub(own), wall)),
        None => Reading::unavailable("the run did not report how long its own threads waited"),
    })
}

fn share_of(part: Duration, whole: Duration) -> f64 {
    share(part.as_secs_f64(), whole.as_secs_f64())
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
            switches: Reading::Value(1000 + waits_us),
            cpu_waits_us: Reading::Value(waits_us),
            throttled_us: Reading::unavailable("no quota"),
            softirq_threads_cpu: Reading::unavailable("hidden"),
        }
    }

    fn hz() -> u64 {
        rustix::param::clock_ticks_per_second()
    }

    /// Ten seconds on two CPUs, all of it busy but `idle_s`.
    fn ten_seconds(idle_s: u64, steal_s: u64, waits_us: u64) -> (HostSample, HostSample) {
        let start = Instant::now();
        let ticks = CpuTicks {
            user: (20 - idle_s - steal_s) * hz(),
            idle: idle_s * hz(),
            steal: steal_s * hz(),
            ..CpuTicks::default()
        };
        let before = sample(start, CpuTicks::default(), 0);
        (before, sample(start + Duration::from_secs(10), ticks, waits_us))
    }

    fn own(cpu_s: u64, wait_s: u64) -> OwnUse {
        OwnUse { cpu: Duration::from_secs(cpu_s), runqueue_wait: Some(Duration::from_secs(wait_s)) }
    }

    #[test]
    fn two_own_threads_that_fill_two_cpus_and_wait_for_each_other_are_not_disturbance() {
        let (before, after) = ten_seconds(0, 0, 9_000_000);
        let reading = Gate::between(&before, &after, &own(20, 9));
        assert_eq!(reading.psi_some_share, Reading::Value(0.9));
        assert_eq!(reading.foreign_wait_share, Reading::Value(0.0));
        assert_eq!(reading.foreign_cpu_share, Reading::Value(0.0));
        assert_eq!(reading.judge(&GateLimits::default()), None);
    }

    #[test]
    fn the_same_pressure_without_waiting_of_ours_is_somebody_elses() {
        let (before, after) = ten_seconds(0, 0, 9_000_000);
        let reading = Gate::between(&before, &after, &own(20, 1));
        let disturbance = reading.judge(&GateLimits::default()).expect("disturbed");
        assert_eq!(
            disturbance.reasons,
            ["other programs waiting for a CPU: 80.0 % (limit 20.0 %)"]
        );
    }

    #[test]
    fn foreign_load_and_steal_are_named_with_figure_and_limit() {
        let (before, after) = ten_seconds(4, 1, 0);
        let reading = Gate::between(&before, &after, &own(10, 0));
        let disturbance = reading.judge(&GateLimits::default()).expect("disturbed");
        assert_eq!(
            disturbance.reasons,
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
        let reading = Gate::between(&before, &after, &own(7, 0));
        assert_eq!(reading.foreign_cpu_share, Reading::Value(0.0));
    }

    #[test]
    fn a_window_too_short_for_ticks_gives_no_shares_instead_of_wild_ones() {
        let start = Instant::now();
        let before = sample(start, CpuTicks::default(), 0);
        let ticks = CpuTicks { user: 5, ..CpuTicks::default() };
        let after = sample(start + Duration::from_millis(25), ticks, 0);
        let reading = Gate::between(&before, &after, &OwnUse::default());
        assert!(reading.steal_share.reason().is_some_and(|why| why.contains("5 CPU ticks")));
        assert!(reading.foreign_wait_share.reason().is_some());
        assert_eq!(reading.judge(&GateLimits::default()), None);
    }

    #[test]
    fn any_throttling_disturbs_and_survives_the_result_file() {
        let (mut before, mut after) = ten_seconds(20, 0, 0);
        before.throttled_us = Reading::Value(10);
        after.throttled_us = Reading::Value(52);
        let reading = Gate::between(&before, &after, &OwnUse::default());
        let disturbance = reading.judge(&GateLimits::default()).expect("disturbed");
        assert_eq!(disturbance.reasons, ["throttled by the CPU quota for 42 us (limit 0 us)"]);
        let json = serde_json::to_string(&reading).expect("json");
        let back: GateReading = serde_json::from_str(&json).expect("our own json");
        assert_eq!(back, reading);
    }
}
