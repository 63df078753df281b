//! Whether a plan fits its budget, and its points this machine.
//!
//! What takes too long is cut in this order, each with a line that says so: blocks, then windows, then points in the
//! middle of long axes. Arms are never cut: the comparison is what the job is for.
//!
//! A process may have only so many descriptors. A point of `http` that needs more of them is run
//! on several server processes which share one port, each on the same driver with its share of
//! the connections; their CPU time is summed, and the point says how many they are.

use std::time::Duration;

use pollux_doctor::MEMORY_PARTS;
use pollux_poller::Facility;
use pollux_report::number;
use pollux_stats::{ROUNDS_MIN, SETS_MIN};
use pollux_sys::descriptors::RAISED_BY;

use super::pace::SLOW_TURNS_MIN;
use super::{Machine, Method, Plan, PlannedPoint, SAME_AGAIN, minutes};
use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::experiments::{Experiment, PROCESSES};
use crate::job::Part;
use crate::record::{LeftOut, Point};

/// Fewer whole runs than this have no useful interval.
const RUNS_MIN: u32 = 3;
/// The fewest and shortest turns of a set.
const TURNS_MIN: Duration = Duration::from_millis(60);
/// Intervals of a cut window: fewer say nothing about steadiness.
const INTERVALS_KEPT: u32 = 10;
/// The ramp is not made shorter than this.
const RAMP_MIN: Duration = Duration::from_millis(50);
/// What a turn costs with its lead-in, falling asleep and the words about it, over its length.
const TURN_COST: f64 = 1.35;
/// What a point costs on top of its runs: nothing is planned to the last second.
const MARGIN: f64 = 1.05;
/// Turns of the first set that say how long turns are, and those in which is counted.
const FIRST_SET_TURNS: u32 = 15;
/// What takes longer is named where a budget is too small.
const SLOW_S: f64 = 0.2;
/// What the least leaves of a budget goes to more turns of slow arms by this part.
const SLOW_PART: f64 = 0.5;
/// A least that is said to do is longer by this: looks differ.
const LEAST_MARGIN: f64 = 1.1;
/// The kernel spreads connections by hash: of thousands, no process gets so many times its share.
const SHARE_MAX: f64 = 1.05;

/// How long a plan will take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pub block: Duration,
    /// All planned blocks and the counting, request-time and profile passes.
    pub total: Duration,
}

impl Plan {
    /// How long this will take on a quiet machine; commands count as their point's window.
    #[must_use]
    pub fn forecast(&self) -> Forecast {
        let whole = self.time(&|point| point.runtime);
        // Sets have as many turns as fit.
        let total = self.job.budget.map_or(whole.total, |budget| whole.total.min(budget));
        Forecast { total: total.max(self.shortest().total), ..whole }
    }

    /// How long it takes with as few turns in each set as say something.
    fn shortest(&self) -> Forecast {
        self.time(&least_window)
    }

    /// How long the passes behind the last block take, which a budget has to leave room for.
    pub(crate) fn side_passes(&self) -> Duration {
        if self.job.times_requests { self.forecast().block } else { Duration::ZERO }
    }

    fn time(&self, window: &dyn Fn(&PlannedPoint) -> Duration) -> Forecast {
        let cost = |point| point_cost(point, window(point));
        let block: Duration = self.points.iter().map(cost).sum();
        let block = block.mul_f64(MARGIN);
        let job = &self.job;
        // What takes turns is counted and profiled within its first set.
        let has_runs = self.points.iter().any(|point| point.method == Method::Runs);
        let passes = u32::from(has_runs) * (1 + u32::from(job.profile_hz.is_some()));
        let passes = passes + u32::from(job.times_requests);
        let first: Duration = self.points.iter().map(first_set_cost).sum();
        Forecast { block, total: self.spent + block * (job.blocks + passes) + first }
    }

    /// How many turns slow arms have in each set of a point: two, and as many more as a part of what the least leaves of
    /// the budget has time for; as many as the others where there is no budget.
    pub(crate) fn slow_turns(&self, point: &PlannedPoint, rounds: u32) -> u32 {
        let Some(budget) = self.job.budget else { return rounds };
        let left = budget.saturating_sub(self.shortest().total).mul_f64(SLOW_PART);
        let sets = f64::from(self.job.blocks) * self.points.len() as f64;
        let round = point.slow_round().as_secs_f64().max(f64::MIN_POSITIVE);
        let more = (left.as_secs_f64() / sets / round) as u32;
        SLOW_TURNS_MIN.saturating_add(more).min(rounds.max(SLOW_TURNS_MIN))
    }

    /// The least time that the first set at a point takes.
    pub(crate) fn least_of_point(&self, point: &PlannedPoint) -> Duration {
        point_cost(point, least_window(point)) + first_set_cost(point)
    }

    /// Why this plan must not be run, if so: with everything cut that can be it would still take
    /// longer than its budget, and with less it decides nothing.
    #[must_use]
    pub fn budget_fault(&self) -> Option<String> {
        let budget = self.job.budget?;
        let least = self.least?;
        let parts: Vec<&str> = self.job.parts.iter().map(|part| part.name.as_str()).collect();
        let fewer = match parts.as_slice() {
            [_] => String::new(),
            _ => format!(", or fewer parts with --only ({})", self.least_by_part().join(", ")),
        };
        let slow = self.slowest_in_words();
        let whole_s = least.as_secs_f64().ceil();
        Some(format!(
            "a budget of {} decides nothing: with the fewest {}s, windows and points this job takes \
             about {}{slow}; give --budget {whole_s:.0}s{fewer}",
            minutes(budget),
            self.unit(),
            minutes(least),
        ))
    }

    /// The parts that have points, each with the least time that it takes.
    fn least_by_part(&self) -> Vec<String> {
        let parts = self.job.parts.iter().enumerate();
        let least = |(index, part): (usize, &Part)| {
            let points = self.points.iter().filter(|point| point.part == index);
            let each = points.map(|point| {
                point_cost(point, least_window(point)).mul_f64(MARGIN) * self.job.blocks
                    + first_set_cost(point)
            });
            let sum: Duration = each.sum();
            (!sum.is_zero()).then(|| format!("{}: {}", part.name, minutes(sum + self.spent)))
        };
        parts.filter_map(least).collect()
    }

    /// The arm whose turns or starts take longest, where they take long.
    fn slowest_in_words(&self) -> String {
        let slow = self.looks.iter().filter_map(|look| {
            let start = look.startup_s.unwrap_or(0.0);
            let wave = look.wave_s.unwrap_or(0.0);
            let longest = start.max(wave);
            (longest >= SLOW_S).then_some((longest, look, start, wave))
        });
        let Some((_, look, start, wave)) = slow.max_by(|one, other| one.0.total_cmp(&other.0))
        else {
            return String::new();
        };
        let start = number::time(start * 1e9);
        let wave = number::time(wave * 1e9);
        let requests = number::plural(look.wave_requests, "request");
        format!(", as {} takes {start} to start and {wave} for {requests} at once", look.arm)
    }

    /// Cuts until the forecast fits the budget or nothing is left to cut.
    pub(super) fn fit_budget(&mut self) {
        let Some(budget) = self.job.budget else { return };
        let blocks = self.job.blocks;
        let windows = self.windows();
        while self.shortest().total > budget {
            if !(self.cut_block() || self.cut_windows() || self.cut_point()) {
                let shortest = self.shortest().total;
                let margin = if self.looks.is_empty() { 1.0 } else { LEAST_MARGIN };
                self.least = Some(shortest.mul_f64(margin));
                break;
            }
        }
        if self.job.blocks != blocks {
            self.cuts.push(format!("{} {}s instead of {blocks}", self.job.blocks, self.unit()));
        }
        if self.windows() != windows {
            let now = self.windows();
            let then = windows;
            self.cuts.push(format!("longest window {now:?} instead of {then:?}"));
        }
        // Sets are added one by one as long as there is time for another.
        if self.points.iter().all(|point| point.method == Method::Runs) {
            self.job.blocks_max = self.job.blocks_max.min(self.job.blocks);
        }
    }

    fn windows(&self) -> Duration {
        self.points.iter().map(|point| point.runtime).max().unwrap_or_default()
    }

    fn cut_block(&mut self) -> bool {
        let takes_turns = self.points.iter().any(|point| point.method == Method::Turns);
        let can = self.job.blocks > if takes_turns { SETS_MIN } else { RUNS_MIN };
        self.job.blocks -= u32::from(can);
        can
    }

    fn cut_windows(&mut self) -> bool {
        let mut has_cut = false;
        for point in &mut self.points {
            let ramp_time = point.ramp_time;
            let runtime = point.runtime;
            if !point.is_ramp_fixed {
                point.ramp_time = (ramp_time / 2).max(RAMP_MIN).min(ramp_time);
            }
            point.runtime = (runtime / 2).max(runtime_min(point)).min(runtime);
            point.interval = point.interval.min(point.runtime / INTERVALS_KEPT);
            has_cut |= (point.ramp_time, point.runtime) != (ramp_time, runtime);
        }
        has_cut
    }

    /// Drops a point whose neighbours in its part both stay, the costliest first.
    fn cut_point(&mut self) -> bool {
        let inner = (1..self.points.len().saturating_sub(1)).filter(|&index| {
            let part = self.points[index].part;
            self.points[index - 1].part == part && self.points[index + 1].part == part
        });
        let Some(costliest) = inner.max_by_key(|&index| {
            let point = &self.points[index];
            point_cost(point, point.runtime)
        }) else {
            return false;
        };
        let cut = self.points.remove(costliest);
        self.left_out.push(LeftOut {
            experiment: self.part_name(&cut).to_owned(),
            point: cut.point.label,
            arm: "*".to_owned(),
            reason: "cut to fit the budget".to_owned(),
        });
        true
    }
}

fn least_window(point: &PlannedPoint) -> Duration {
    match point.method {
        Method::Turns => runtime_min(point).min(point.runtime),
        Method::Runs => point.runtime,
    }
}

/// What a block costs at a point. Arms that were looked at take what was seen; the others what such arms took when that
/// was measured. In turns all arms start and end at the same time.
fn point_cost(point: &PlannedPoint, window: Duration) -> Duration {
    let whole = match point.method {
        Method::Turns => window.max(point.window_min()).mul_f64(TURN_COST),
        Method::Runs => window,
    };
    let start = point.experiment.needs(&point.point.axes).start;
    let mut sum = Duration::ZERO;
    let mut together = Duration::ZERO;
    for (arm, times) in point.arms.iter().zip(&point.times) {
        let Some(times) = times else {
            sum += point.ramp_time + whole + start;
            continue;
        };
        sum += start;
        match point.method {
            Method::Runs => {
                sum += times.start + times.end + point.ramp_time + whole + times.wave * 2;
            }
            Method::Turns => {
                together = together.max(times.start + times.end);
                // Its connections are opened with a request on each, or one is tried, and it is asked once more at its
                // end.
                sum += times.wave + times.wave.min(times.request);
                let Some(pace) = point.pace(&arm.name) else { continue };
                let fewest = PlannedPoint::fewest_turns(&pace, ROUNDS_MIN);
                sum += if pace.is_slow { fewest } else { fewest.max(whole) + times.wave };
            }
        }
    }
    sum + together
}

/// What the first set at a point costs beside what every set does: how long turns are is found out, and what is done in
/// them is counted.
fn first_set_cost(point: &PlannedPoint) -> Duration {
    let each = point.arms.iter().map(|arm| match point.pace(&arm.name) {
        Some(pace) if pace.is_slow => pace.turn,
        Some(pace) => pace.turn * FIRST_SET_TURNS,
        None if point.method == Method::Turns => point.turn_min() * FIRST_SET_TURNS,
        None => Duration::ZERO,
    });
    each.sum()
}

fn runtime_min(point: &PlannedPoint) -> Duration {
    let least = point.experiment.needs(&point.point.axes).runtime_min;
    match point.method {
        Method::Turns if !point.experiment.cost.is_shared => {
            least.min(TURNS_MIN).max(point.window_min())
        }
        _ => least,
    }
}

/// The point as it can be run on `machine`.
///
/// # Errors
/// Its label, and why it can't be run.
pub(super) fn on(
    machine: &Machine<'_>,
    experiment: &dyn Experiment,
    mut point: Point,
) -> Result<Point, (String, String)> {
    match processes(machine, experiment, &point) {
        Ok(1) => Ok(point),
        Ok(processes) => {
            point.label += &format!(", {processes} processes");
            point.axes.set(PROCESSES, Value::Number(processes));
            Ok(point)
        }
        Err(reason) => Err((point.label, reason)),
    }
}

/// Why an arm can't be run at a point that others can be run at.
pub(super) fn arm_fault(
    machine: &Machine<'_>,
    experiment: &dyn Experiment,
    point: &Point,
    arm: &ArmKind,
) -> Option<String> {
    if let Some(fault) = experiment.arm_fault(&point.axes, arm) {
        return Some(fault);
    }
    let processes = point.axes.get(PROCESSES).and_then(Value::number)?;
    match arm {
        arm if arm.driver().is_some_and(|driver| driver.facility() == Facility::AioContext) => {
            let each = experiment.needs(&point.axes).fds as f64 * SHARE_MAX / processes as f64;
            // A context doubles when it is full, and the smaller one stands meanwhile.
            let size = (each as u64 + 1).next_power_of_two();
            let needed = size * processes + size / 2;
            let free = machine.resources.aio_slots.filter(|free| needed > *free)?;
            Some(format!(
                "{processes} processes need {needed} slots of AIO contexts, and {free} are free: \
                 raise fs.aio-max-nr"
            ))
        }
        _ => None,
    }
}

/// Which arms can live at the same time: as many as there is memory for, and no two that take
/// nearly all of something. The baseline is in every group, and its second copy wherever a third arm
/// fits.
pub(super) fn groups(
    machine: &Machine<'_>,
    experiment: &dyn Experiment,
    point: &Point,
    arms: &[Arm],
    baseline: usize,
) -> Vec<Vec<usize>> {
    let each = experiment.needs(&point.axes).memory_bytes;
    let free = machine.resources.memory_bytes.unwrap_or(u64::MAX) / MEMORY_PARTS;
    let most = free.checked_div(each).unwrap_or(u64::MAX).max(2);
    let takes_all = |index: &usize| experiment.takes_all(&arms[*index].kind);
    let copy = arms.iter().position(|arm| arm.name == SAME_AGAIN);
    let copy = copy.filter(|_| most > 2);
    let always: Vec<usize> = [Some(baseline), copy].into_iter().flatten().collect();
    let mut groups = vec![always.clone()];
    for arm in (0..arms.len()).filter(|arm| !always.contains(arm)) {
        let fits = |group: &&mut Vec<usize>| {
            let is_taken = group.iter().any(takes_all);
            (group.len() as u64) < most && !(is_taken && takes_all(&arm))
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(arm),
            None => groups.push(always.iter().copied().chain([arm]).collect()),
        }
    }
    groups
}

/// How many processes the server of a point takes; one where it is not a server.
fn processes(
    machine: &Machine<'_>,
    experiment: &dyn Experiment,
    point: &Point,
) -> Result<u64, String> {
    if let Some(fault) = experiment.point_fault(&point.axes) {
        return Err(fault);
    }
    if let Some(generator) = experiment.generator(&point.axes)
        && let Some(reason) = (machine.missing)(super::Requirement::Generator(generator))
    {
        return Err(reason);
    }
    let needs = experiment.needs(&point.axes);
    let fds_max = machine.fds_max;
    let spare = needs.fds_spare;
    let fits = |needed: u64| match needed + spare {
        needed if needed > fds_max => Err(format!(
            "needs {needed} descriptors, this machine allows {fds_max} per process: raise the \
             hard limit ({RAISED_BY})"
        )),
        _ => Ok(1),
    };
    fits(needs.generator_fds)?;
    if let Some(free) = machine.resources.memory_bytes
        && needs.memory_bytes > free / MEMORY_PARTS
    {
        let mib = |bytes: u64| bytes >> 20;
        return Err(format!(
            "needs about {} MiB of memory for its connections, and {} MiB are free",
            mib(needs.memory_bytes),
            mib(free)
        ));
    }
    if needs.processes_max == 1 || fits(needs.fds).is_ok() {
        return fits(needs.fds);
    }
    let each = fds_max.saturating_sub(spare).max(1);
    let processes = (needs.fds as f64 * SHARE_MAX / each as f64).ceil() as u64;
    if processes > needs.processes_max { fits(needs.fds) } else { Ok(processes) }
}

#[cfg(test)]
mod tests {
    use pollux_engine::Driver;
    use pollux_poller::Mechanism;

    use super::*;
    use crate::arm::RAW_URING;
    use crate::axis::Axes;
    use crate::experiments::known;
    use crate::job;
    use crate::plan::{PLAIN_MACHINE, Requirement, Resources};

    fn quick(budget_s: u64) -> Plan {
        let mut job = job::find("quick").expect("the default job");
        job.budget = Some(Duration::from_secs(budget_s));
        Plan::make(job, &PLAIN_MACHINE)
    }

    #[test]
    fn a_budget_is_kept_or_refused_with_the_least_that_decides() {
        let fault = quick(10).budget_fault().expect("ten seconds decide nothing");
        let least = quick(10).least.expect("a least").as_secs_f64().ceil() as u64;
        assert!(fault.starts_with("a budget of 10 s decides nothing"), "{fault}");
        assert!(fault.contains(&format!("give --budget {least}s, or fewer parts")), "{fault}");
        for enough in [least, 10 * least] {
            let plan = quick(enough);
            assert_eq!(plan.budget_fault(), None, "{enough} s");
            assert!(plan.forecast().total <= Duration::from_secs(enough), "{enough} s");
        }
    }

    #[test]
    fn turns_of_an_agent_are_as_long_in_the_forecast_as_they_are() {
        let forecast = |generator: &str, runtime_ms: u64| {
            let mut job = job::find("quick").expect("the default job");
            job.budget = None;
            job.parts.retain(|part| part.experiment.name == "http");
            for part in &mut job.parts {
                part.axes.insert("generator".to_owned(), vec![Value::of(generator)]);
                part.runtime = Duration::from_millis(runtime_ms);
            }
            let plan = Plan::make(job, &PLAIN_MACHINE);
            let arms: usize = plan.points.iter().map(|point| point.arms.len()).sum();
            assert!(arms > 2, "{:?}", plan.left_out);
            (plan.forecast().block.as_secs_f64() / arms as f64, plan)
        };
        let (here_s, _) = forecast("pollux", 60);
        let (agent_s, plan) = forecast("agent:a", 60);
        // Eight turns of 50 ms at least, each with its lead-in.
        assert!(here_s < 0.4 && agent_s > 8.0 * 0.05 * 1.25, "{here_s} {agent_s}");
        let first = plan.points.iter().map(first_set_cost).sum::<Duration>();
        assert!(first > Duration::from_millis(600), "{first:?}");
        let mut small = plan;
        small.job.budget = Some(Duration::from_secs(1));
        small.fit_budget();
        assert!(small.points.iter().all(|point| runtime_min(point) == Duration::from_millis(400)));
        let (long_s, _) = forecast("agent:a", 2_000);
        let (long_here_s, _) = forecast("pollux", 2_000);
        // Windows that hold more turns than the fewest are as long as before.
        assert!(long_s - long_here_s < 0.2, "{long_here_s} {long_s}");
    }

    fn point(experiment: &str, axes: &[(&str, &str)]) -> Point {
        let mut all = Axes::defaults(known(experiment).axes);
        for (name, value) in axes {
            all.set(name, Value::of(value));
        }
        Point { label: "here".to_owned(), axes: all }
    }

    fn dead(count: &str, machine: &Machine<'_>) -> Result<Point, (String, String)> {
        let axes = [("connections", "100"), ("dead", count)];
        on(machine, known("http"), point("http", &axes))
    }

    const RESOURCES: Resources = Resources { memory_bytes: Some(8 << 30), aio_slots: Some(65_536) };
    const MACHINE: Machine<'_> = Machine { resources: RESOURCES, ..PLAIN_MACHINE };

    #[test]
    fn a_server_beyond_the_descriptor_limit_takes_several_processes() {
        let one = dead("18000", &MACHINE).expect("it fits");
        assert_eq!((one.label.as_str(), one.axes.get(PROCESSES)), ("here", None));
        for (count, processes) in [("30000", "2"), ("45000", "3"), ("60000", "4")] {
            let point = dead(count, &MACHINE).expect("it fits");
            assert_eq!(point.label, format!("here, {processes} processes"));
            assert_eq!(point.axes.get(PROCESSES), Some(&Value::of(processes)));
        }
        let (label, reason) = dead("500000", &PLAIN_MACHINE).expect_err("too many");
        assert_eq!(label, "here");
        assert!(reason.contains("descriptors"), "{reason}");
    }

    #[test]
    fn memory_and_the_generator_set_limits_of_their_own() {
        let resources = Resources { memory_bytes: Some(1 << 30), ..RESOURCES };
        let small = Machine { resources, ..MACHINE };
        let (_, reason) = dead("60000", &small).expect_err("too much");
        assert_eq!(
            reason,
            "needs about 939 MiB of memory for its connections, and 1024 MiB are free"
        );
        assert!(dead("18000", &small).is_ok());
        assert!(dead("60000", &PLAIN_MACHINE).is_ok());

        let many = point("http", &[("connections", "30000")]);
        let (_, reason) = on(&MACHINE, known("http"), many).expect_err("one generator");
        assert!(reason.contains("needs 30320 descriptors"), "{reason}");

        let missing = |wanted| {
            (wanted == Requirement::Generator(crate::experiments::Generator::Wrk))
                .then(|| "wrk is not installed".to_owned())
        };
        let without = Machine { missing: &missing, ..MACHINE };
        let wrk = point("http", &[("generator", "wrk")]);
        let (_, reason) = on(&without, known("http"), wrk).expect_err("no wrk");
        assert_eq!(reason, "wrk is not installed");
        assert!(dead("0", &without).is_ok());
    }

    #[test]
    fn several_processes_share_what_the_system_has_of_aio() {
        let fault = |machine: &Machine<'_>, count: &str, kind: &ArmKind| {
            let point = dead(count, machine).expect("it fits");
            arm_fault(machine, known("http"), &point, kind)
        };
        let aio = ArmKind::Driver(Driver::Readiness(Mechanism::Aio));
        assert_eq!(fault(&MACHINE, "18000", &aio), None);
        assert_eq!(fault(&MACHINE, "45000", &aio), None);
        let reason = fault(&MACHINE, "60000", &aio).expect("no room");
        assert!(reason.starts_with("4 processes need 73728 slots"), "{reason}");
        assert_eq!(fault(&PLAIN_MACHINE, "60000", &aio), None);
        let epoll = ArmKind::Driver(Driver::Readiness(Mechanism::Epoll));
        assert_eq!(fault(&MACHINE, "60000", &epoll), None);
        assert_eq!(fault(&MACHINE, "18000", &ArmKind::Peer("nginx".to_owned())), None);
        assert!(fault(&MACHINE, "30000", &ArmKind::Peer("nginx".to_owned())).is_some());
        assert_eq!(fault(&MACHINE, "30000", &Arm::peer(RAW_URING).kind), None);
    }

    #[test]
    fn what_takes_no_uploads_is_left_out_with_the_reason() {
        let upload = point("http", &[("request_bytes", "65536")]);
        let fault = |name: &str, point: &Point| {
            arm_fault(&MACHINE, known("http"), point, &ArmKind::Peer(name.to_owned()))
        };
        for (name, why) in [
            ("nginx", "before it has read the body"),
            ("haproxy", "before it has read the body"),
            ("h2o", "from files"),
            ("lighttpd", "from files"),
        ] {
            assert!(fault(name, &upload).is_some_and(|reason| reason.contains(why)), "{name}");
            assert_eq!(fault(name, &point("http", &[])), None);
        }
        assert_eq!(fault("raw-epoll", &upload), None);
        let through = point("proxy", &[("request_bytes", "65536")]);
        let nginx = ArmKind::Peer("nginx".to_owned());
        assert_eq!(arm_fault(&MACHINE, known("proxy"), &through, &nginx), None);
        let splice = ArmKind::Peer("haproxy-splice".to_owned());
        let spliced = |axes: &[(&str, &str)]| {
            arm_fault(&MACHINE, known("proxy"), &point("proxy", axes), &splice)
        };
        assert_eq!(spliced(&[("request_bytes", "16384")]), None);
        assert_eq!(spliced(&[("reply_bytes", "1048576")]), None);
        let short = spliced(&[("reply_bytes", "16383")]).expect("it fits a buffer");
        assert!(short.ends_with("nothing is spliced; haproxy stands for it"), "{short}");
        let tls = spliced(&[("reply_bytes", "1048576"), ("encrypted", "true")]);
        assert!(tls.is_some_and(|reason| reason.contains("in TLS")));
        let framed = spliced(&[("reply_bytes", "1048576"), ("http", "2")]);
        assert!(framed.is_some_and(|reason| reason.contains("nothing of HTTP/2")));
        let file = point("http", &[("request_bytes", "1"), ("file", "true")]);
        let (_, reason) = on(&MACHINE, known("http"), file).expect_err("no POST of a file");
        assert!(reason.ends_with("expected request_bytes = 0, or no --from-file"), "{reason}");
    }

    #[test]
    fn each_stream_through_a_proxy_has_a_connection_behind_it() {
        let needs = |axes: &[(&str, &str)]| known("proxy").needs(&point("proxy", axes).axes);
        let plain = needs(&[("connections", "64")]);
        assert_eq!((plain.fds, plain.generator_fds), (128, 64));
        let framed = needs(&[("connections", "64"), ("http", "2"), ("streams", "16")]);
        assert_eq!((framed.fds, framed.generator_fds), (64 + 1024, 64));
        assert!(framed.memory_bytes > 8 * plain.memory_bytes, "{framed:?}");
        let fault = |axes: &[(&str, &str)]| {
            on(&MACHINE, known("proxy"), point("proxy", axes)).expect_err("no such point").1
        };
        assert!(fault(&[("streams", "16")]).contains("expected --http 2"));
        let once = [("http", "2"), ("streams", "16"), ("keepalive", "false")];
        assert!(fault(&once).contains("one request for each connection"));
        let (_, reason) = on(
            &MACHINE,
            known("proxy"),
            point("proxy", &[("connections", "200"), ("http", "2"), ("streams", "256")]),
        )
        .expect_err("too many for a process");
        assert!(reason.contains("descriptors"), "{reason}");
    }

    #[test]
    fn a_pool_runs_on_queues_and_nothing_else() {
        let fault = |source| {
            let point = point("herd", &[("source", source)]);
            arm_fault(&MACHINE, known("herd"), &point, &ArmKind::Peer("pool".to_owned()))
        };
        assert_eq!(fault("queue"), None);
        assert!(fault("pipe").is_some_and(|reason| reason.contains("queues")));
    }

    #[test]
    fn what_is_not_a_server_stays_in_one_process() {
        let pipes = point("pipes", &[("pipes", "16000")]);
        let (_, reason) = on(&MACHINE, known("pipes"), pipes).expect_err("too many");
        assert!(reason.contains("needs 32064 descriptors"), "{reason}");
    }
}
