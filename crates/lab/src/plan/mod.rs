//! The plan: which arm runs at which point, how often, and for how long.
//!
//! Made from a [`Job`] and the limits of this machine, before anything is measured; `pollux lab
//! plan` prints it and the runner follows it. What the machine can't do is left out here, with
//! the reason, and never silently.

use std::fmt;
use std::time::Duration;

use pollux_engine::Driver;
use serde::Serialize;

use crate::arm::{Arm, ArmKind, Peer};
use crate::axis::{Axes, AxisKind, CPUS, Value, counted, size_of};
use crate::experiments::{Experiment, Generator, Metric};
use crate::form::Form;
use crate::hosts::Hosts;
use crate::job::{Job, Part, RAMP_TIME, default_baseline};
use crate::record::{ArmTimes, LeftOut, Look, Point};

mod arms;
mod fits;
mod pace;

pub use arms::{faults, missing_here};
pub use fits::Forecast;
pub(crate) use pace::{TURN, WAVES, least_units};
pub use pollux_doctor::Resources;
pub(crate) use pollux_report::number::minutes;
/// Name of the second copy of the baseline.
pub const SAME_AGAIN: &str = "A/A";
/// Fresh processes of all arms at a point, and their rounds.
const SET: &str = "set";

/// What a plan must know of the machine.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// Descriptors that one process may have.
    pub fds_max: u64,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// What all processes of a run share.
    pub resources: Resources,
    /// What first looks at arms found; none before they were made.
    pub looks: &'a [Look],
    /// What the run has taken already.
    pub spent: Duration,
    /// Why something cannot be obtained here, if it can't.
    pub missing: &'a dyn Fn(Requirement) -> Option<String>,
}

/// What a plan asks a machine for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// What makes the load of a point.
    Generator(Generator),
    /// Pollux on a driver.
    Driver(Driver),
    /// A way of the experiment's own, or another system.
    Peer(Peer),
    /// A bare server in a form.
    Form(Form),
}

/// What will be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The job, after the cuts.
    pub job: Job,
    /// The points in the order in which a block visits them.
    pub points: Vec<PlannedPoint>,
    /// What is not run, with the reason.
    pub left_out: Vec<LeftOut>,
    /// What first looks at arms found.
    pub looks: Vec<Look>,
    /// What the run had taken when this was planned.
    pub spent: Duration,
    /// What was cut to fit the budget, in words.
    pub cuts: Vec<String>,
    /// The time that it takes with everything cut, where that is more than the budget.
    pub least: Option<Duration>,
}

/// One point with its arms.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPoint {
    /// Index of the part of the job.
    pub part: usize,
    pub experiment: &'static dyn Experiment,
    /// Label and axis values.
    pub point: Point,
    /// The arms; the last is [`SAME_AGAIN`].
    pub arms: Vec<Arm>,
    /// How long each of them takes, where a look at it says so.
    pub times: Vec<Option<ArmTimes>>,
    /// Index of the arm that the others are compared with.
    pub baseline: usize,
    /// How it is measured.
    pub method: Method,
    /// Whether its part asks for rates.
    pub rates: bool,
    /// Which arms live at the same time, where they take turns: all of them, or as many as the
    /// machine can hold, each group with the baseline in it.
    pub groups: Vec<Vec<usize>>,
    /// Time before the window.
    pub ramp_time: Duration,
    /// Whether that was asked for: then each arm that takes turns is loaded for so long before each set.
    pub is_ramp_fixed: bool,
    /// Length of the window.
    pub runtime: Duration,
    /// Length of an interval.
    pub interval: Duration,
    /// What the whole job may take: nothing waits for longer.
    pub budget: Option<Duration>,
    /// Where servers listen, and where a load comes from that is another host's.
    pub hosts: Hosts,
}

/// How a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// What a unit of work costs, in interleaved turns.
    Turns,
    /// How much is done in a second, or what a program prints, in whole runs.
    Runs,
}

impl PlannedPoint {
    /// How long each arm that takes turns is loaded before each set, where that was asked for.
    pub(crate) fn fixed_ramp_time(&self) -> Option<Duration> {
        self.is_ramp_fixed.then_some(self.ramp_time)
    }

    /// Whether the same is measured there.
    fn is_twin(&self, other: &Self) -> bool {
        let windows = |point: &Self| (point.ramp_time, point.runtime, point.interval, point.rates);
        self.part != other.part
            && self.experiment == other.experiment
            && self.point.axes == other.point.axes
            && self.arms == other.arms
            && self.baseline == other.baseline
            && windows(self) == windows(other)
    }

    /// What is measured here.
    #[must_use]
    pub fn metric(&self) -> Metric {
        match self.method {
            Method::Turns => self.experiment.cost.metric,
            Method::Runs => self.experiment.metric(&self.point.axes, self.rates),
        }
    }
}

impl Plan {
    /// Makes the plan for `job` on this `machine`.
    #[must_use]
    pub fn make(mut job: Job, machine: &Machine<'_>) -> Self {
        let Machine { cpus, missing, .. } = *machine;
        let mut cuts = if cpus < 2 { share_one_cpu(&mut job) } else { Vec::new() };
        let mut left_out = Vec::new();
        let mut points = Vec::new();
        for (index, part) in job.parts.iter_mut().enumerate() {
            let arms = arms::available(part, missing, &mut left_out);
            if !arms.iter().any(|arm| arm.name == part.baseline) {
                let lacking = format!("its baseline {} can't run here", part.baseline);
                let Some(other) = default_baseline(part.experiment, &arms) else {
                    left_out.push(left_out_of(part, "*", "*", lacking));
                    continue;
                };
                cuts.push(format!(
                    "{}: {lacking}; the others are compared with {other}",
                    part.name
                ));
                part.baseline = other;
            }
            for point in points_of(part) {
                let point = match fits::on(machine, part.experiment, point) {
                    Ok(point) => point,
                    Err((label, reason)) => {
                        left_out.push(left_out_of(part, &label, "*", reason));
                        continue;
                    }
                };
                let rivals = |arms: &[Arm]| arms.iter().any(|arm| arm.name != part.baseline);
                let had_rivals = rivals(&arms);
                let arms = arms::at(machine, &point, &arms, part, &mut left_out);
                let Some(baseline) = arms.iter().position(|arm| arm.name == part.baseline) else {
                    let reason = format!("its baseline {} is not run there", part.baseline);
                    left_out.push(left_out_of(part, &point.label, "*", reason));
                    continue;
                };
                if had_rivals && !rivals(&arms) && !machine.looks.is_empty() {
                    let reason = format!("nothing is left there to compare with {}", part.baseline);
                    left_out.push(left_out_of(part, &point.label, "*", reason));
                    continue;
                }
                let arms = arms::with_same_again(arms, baseline);
                let times = arms::times(machine, part, &point, &arms, baseline);
                let method = arms::method(part, &point, &arms, baseline);
                let groups = fits::groups(machine, part.experiment, &point, &arms, baseline);
                points.push(PlannedPoint {
                    part: index,
                    experiment: part.experiment,
                    point,
                    arms,
                    times,
                    baseline,
                    method,
                    rates: part.rates,
                    groups,
                    ramp_time: part.ramp_time.unwrap_or(RAMP_TIME),
                    is_ramp_fixed: part.ramp_time.is_some(),
                    runtime: part.runtime,
                    interval: part.interval,
                    budget: job.budget,
                    hosts: job.hosts.clone(),
                });
            }
        }
        let looks = machine.looks.to_vec();
        let spent = machine.spent;
        let mut plan = Self { job, points, left_out, looks, spent, cuts, least: None };
        plan.leave_out_twins();
        plan.fit_budget();
        plan
    }

    /// Leaves out points that are measured by a later part as well: flags for all parts can make the same of them.
    fn leave_out_twins(&mut self) {
        let mut index = 0;
        while let Some(point) = self.points.get(index) {
            let mut later = self.points[index + 1..].iter();
            let Some(twin) = later.find(|other| other.is_twin(point)) else {
                index += 1;
                continue;
            };
            let reason = format!("the same as in {}, where it is measured", self.part_name(twin));
            let point = self.points.remove(index);
            let part = &self.job.parts[point.part];
            self.left_out.push(left_out_of(part, &point.point.label, "*", reason));
        }
    }

    /// Name of the part that a point belongs to: `experiment` in results.
    pub(crate) fn part_name(&self, point: &PlannedPoint) -> &str {
        &self.job.parts[point.part].name
    }

    /// Why a gate can't stand on this plan, if so: it has nothing that could be worse than a baseline.
    #[must_use]
    pub fn gate_fault(&self) -> Option<String> {
        // The baseline and its second copy.
        if self.points.iter().any(|point| point.arms.len() > 2) {
            return None;
        }
        let baseline = self.points.first().map_or("", |point| &point.arms[point.baseline].name);
        let mut missing: Vec<String> = Vec::new();
        for LeftOut { arm, reason, .. } in self.left_out.iter().filter(|left| left.arm != "*") {
            let line = format!(" ({arm} is left out: {reason})");
            if !missing.contains(&line) {
                missing.push(line);
            }
        }
        Some(format!(
            "--gate: nothing to compare with the baseline {baseline}{}; expected --arm with another arm",
            missing.concat()
        ))
    }

    /// Servers of the user that nobody has looked at yet.
    #[must_use]
    pub fn unlooked(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for arm in self.points.iter().flat_map(|point| &point.arms) {
            let is_server = matches!(arm.kind, ArmKind::Server { .. } | ArmKind::Running { .. });
            let is_known = arm.name == SAME_AGAIN || names.contains(&arm.name.as_str());
            let was_looked_at = self.looks.iter().any(|look| look.arm == arm.name);
            if is_server && !is_known && !was_looked_at {
                names.push(&arm.name);
            }
        }
        names
    }

    /// What is repeated, as results call it: sets where arms take turns at every point, else blocks.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let has_runs = self.points.iter().any(|point| point.method == Method::Runs);
        if has_runs { "block" } else { SET }
    }

    /// Runs in one block.
    #[must_use]
    pub fn runs_per_block(&self) -> usize {
        self.points.iter().map(|point| point.arms.len()).sum()
    }
}

/// With one CPU there is nothing to keep apart: threads share it, and a server shares it with its load
/// generator.
fn share_one_cpu(job: &mut Job) -> Vec<String> {
    let mut cuts = Vec::new();
    for part in &mut job.parts {
        let [split, free] = CPUS.map(Value::of);
        for axis in part.experiment.axes.iter().filter(|axis| axis.kind == AxisKind::Cpus) {
            if let Some(values) = part.axes.get_mut(axis.name)
                && values.contains(&split)
            {
                *values = vec![free.clone()];
                cuts.push(format!(
                    "{}: one CPU for all threads, {} = {free}",
                    part.name, axis.name
                ));
            }
        }
        if part.experiment.is_server() {
            cuts.push(format!("{}: one CPU for server and load generator", part.name));
        }
    }
    cuts
}

/// What is left out of a part, by point and arm; `*` stands for all.
fn left_out_of(part: &Part, point: &str, arm: &str, reason: String) -> LeftOut {
    let experiment = part.name.clone();
    LeftOut { experiment, point: point.to_owned(), arm: arm.to_owned(), reason }
}

/// Every combination of the values of all axes, the first axis slowest.
fn points_of(part: &Part) -> Vec<Point> {
    let mut combinations = vec![Axes::default()];
    for axis in part.experiment.axes {
        let values = &part.axes[axis.name];
        combinations = combinations
            .into_iter()
            .flat_map(|axes| {
                values.iter().map(move |value| {
                    let mut axes = axes.clone();
                    axes.set(axis.name, value.clone());
                    axes
                })
            })
            .collect();
    }
    combinations
        .into_iter()
        .map(|axes| Point { label: label(part.experiment, &axes), axes })
        .collect()
}

/// What distinguishes a point from others: the first axis always, the rest where they leave their only
/// default; words as they are, counts with the axis' name.
pub(crate) fn label(experiment: &dyn Experiment, axes: &Axes) -> String {
    let mut words = Vec::new();
    for (index, axis) in experiment.axes.iter().enumerate() {
        let Some(value) = axes.get(axis.name) else { continue };
        if index > 0 && axis.defaults() == [value.clone()] {
            continue;
        }
        match axis.kind {
            AxisKind::Word(_) | AxisKind::WordOrAgent(..) | AxisKind::Cpus | AxisKind::Path => {
                words.push(value.to_string());
            }
            AxisKind::Version(_) => {
                words.push(format!("{}/{value}", axis.name.to_uppercase()));
            }
            AxisKind::Count(..) => words.push(counted(value, axis.name)),
            AxisKind::Bytes(..) => words.push(format!("{} {}", size_of(value), axis.name)),
            AxisKind::Manner(_) | AxisKind::WordOrCount(..) => {
                words.push(format!("{value} {}", axis.name));
            }
            AxisKind::Either { .. } if *value == Value::Switch(false) => {
                words.push(format!("no {}", axis.name));
            }
            AxisKind::Either { .. } => words.push(axis.name.to_owned()),
            AxisKind::Switch => {}
        }
    }
    words.join(", ")
}

/// The plan for scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSummary {
    /// Name of the job.
    pub job: String,
    pub blocks: u32,
    /// Most blocks, when intervals stay wide.
    pub blocks_max: u32,
    /// Runs in one block.
    pub runs_per_block: usize,
    /// Expected time in all.
    pub forecast_s: f64,
    pub points: Vec<PointSummary>,
    /// What is not run.
    pub left_out: Vec<LeftOut>,
    /// What was cut.
    pub cuts: Vec<String>,
}

/// One point of a plan for scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PointSummary {
    /// The part of the job.
    pub experiment: String,
    pub point: String,
    /// Names of the arms.
    pub arms: Vec<String>,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// Time before the window.
    pub ramp_time_s: f64,
    /// Length of the window.
    pub runtime_s: f64,
}

impl Plan {
    /// The plan as data.
    #[must_use]
    pub fn summary(&self) -> PlanSummary {
        let points = self.points.iter().map(|point| PointSummary {
            experiment: self.part_name(point).to_owned(),
            point: point.point.label.clone(),
            arms: point.arms.iter().map(|arm| arm.name.clone()).collect(),
            baseline: point.arms[point.baseline].name.clone(),
            ramp_time_s: point.ramp_time.as_secs_f64(),
            runtime_s: point.runtime.as_secs_f64(),
        });
        PlanSummary {
            job: self.job.name.clone(),
            blocks: self.job.blocks,
            blocks_max: self.job.blocks_max,
            runs_per_block: self.runs_per_block(),
            forecast_s: self.forecast().total.as_secs_f64(),
            points: points.collect(),
            left_out: self.left_out.clone(),
            cuts: self.cuts.clone(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forecast = self.forecast();
        let Job { name, blocks, blocks_max, .. } = &self.job;
        let most = if blocks_max > blocks {
            format!(", up to {blocks_max} while intervals are wide")
        } else {
            String::new()
        };
        let sets = if *blocks == 1 { "1 set".to_owned() } else { format!("{blocks} sets") };
        let what = match (self.unit(), self.points.len()) {
            (SET, 1) => format!("{sets} of fresh processes"),
            (SET, points) => format!("{sets} of fresh processes at each of {points} points"),
            _ => format!("{} runs in each of {blocks} blocks", self.runs_per_block()),
        };
        let at_most = if self.job.budget.is_some() { "at most" } else { "about" };
        writeln!(f, "job {name}: {what}{most}; {at_most} {}", minutes(forecast.total))?;
        let widest = self.points.iter().map(|point| point.point.label.chars().count()).max();
        let widest = widest.unwrap_or_default();
        for point in &self.points {
            let names: Vec<&str> = point.arms.iter().map(|arm| arm.name.as_str()).collect();
            let name = self.part_name(point);
            let label = &point.point.label;
            let ramp = point.ramp_time;
            let runtime = point.runtime;
            let times = format!("ramp {ramp:?}, window {runtime:?}");
            writeln!(f, "  {name:<10} {label:<widest$}  {times:<26}  {}", names.join(", "))?;
        }
        let is_command = |arm: &&Arm| arm.kind.is_program();
        let mut printed = Vec::new();
        for point in &self.points {
            for arm in point.arms.iter().filter(is_command) {
                let line = format!("arm {} has to print {}", arm.name, point.metric());
                if !printed.contains(&line) {
                    writeln!(f, "{line}")?;
                    printed.push(line);
                }
            }
        }
        for look in &self.looks {
            writeln!(f, "looked at {}: {}", look.arm, look.in_words())?;
        }
        for left in &self.left_out {
            let LeftOut { experiment, point, arm, reason } = left;
            writeln!(f, "left out: {experiment}, point {point}, arm {arm}: {reason}")?;
        }
        for cut in &self.cuts {
            writeln!(f, "changed: {cut}")?;
        }
        Ok(())
    }
}

/// A machine of which nothing limits a plan but its descriptors.
#[cfg(test)]
pub(crate) const PLAIN_MACHINE: Machine<'_> = Machine {
    fds_max: 20_000,
    cpus: 2,
    resources: Resources { memory_bytes: None, aio_slots: None },
    looks: &[],
    spent: Duration::ZERO,
    missing: &|_| None,
};

#[cfg(test)]
mod tests {
    use pollux_poller::Mechanism;

    use super::*;
    use crate::job::of_text;

    /// The plan for `streams` with these lines.
    fn plan(lines: &str, machine: &Machine<'_>) -> Plan {
        Plan::make(of_text(&format!("[[job]]\nexperiment = \"streams\"\n{lines}\n")), machine)
    }

    fn arm_names(plan: &Plan) -> Vec<&str> {
        plan.points[0].arms.iter().map(|arm| arm.name.as_str()).collect()
    }

    #[test]
    fn one_cpu_is_shared_and_the_plan_says_so() {
        let plan = plan("arms = \"epoll\"", &Machine { cpus: 1, ..PLAIN_MACHINE });
        assert_eq!(plan.points[0].point.axes.word("cpus"), Some("free"));
        assert_eq!(plan.cuts.len(), 1);
    }

    #[test]
    fn a_list_of_values_makes_a_point_of_each_and_the_baseline_runs_twice() {
        let lines = "arms = [\"epoll\", \"poll\"]\ntransport = [\"pipe\", \"tcp\"]";
        let plan = plan(lines, &PLAIN_MACHINE);
        let labels: Vec<_> = plan.points.iter().map(|point| point.point.label.as_str()).collect();
        assert_eq!(labels, ["pipe", "tcp"]);
        assert_eq!(arm_names(&plan), ["epoll", "poll", "A/A"]);
        assert_eq!(plan.runs_per_block(), 6);
    }

    #[test]
    fn a_point_beyond_the_descriptor_limit_is_left_out_with_the_reason() {
        let plan = plan("nfds = [100, 16000]", &PLAIN_MACHINE);
        assert_eq!(plan.points.len(), 1);
        assert!(plan.left_out[0].reason.contains("needs 32064 descriptors"));
    }

    #[test]
    fn an_unavailable_mechanism_is_left_out_and_an_unavailable_baseline_gives_way() {
        let without = |refused: &[Mechanism]| {
            let missing = |wanted| match wanted {
                Requirement::Driver(Driver::Readiness(one)) if refused.contains(&one) => {
                    Some("forbidden".to_owned())
                }
                _ => None,
            };
            let machine = Machine { missing: &missing, ..PLAIN_MACHINE };
            plan("arms = [\"epoll\", \"uring-poll\"]", &machine)
        };
        let plan = without(&[Mechanism::UringPoll]);
        assert_eq!(arm_names(&plan), ["epoll", "A/A"]);
        assert_eq!(plan.left_out[0].arm, "uring-poll");
        let plan = without(&[Mechanism::Epoll]);
        assert_eq!(arm_names(&plan), ["uring-poll", "A/A"]);
        assert_eq!(plan.job.parts[0].baseline, "uring-poll");
        assert!(plan.cuts[0].contains("baseline epoll can't run here"), "{:?}", plan.cuts);
        let plan = without(&[Mechanism::Epoll, Mechanism::UringPoll]);
        assert!(plan.points.is_empty() && plan.left_out.len() == 3);
    }

    #[test]
    fn a_baseline_that_leaves_no_room_for_its_copy_is_measured_alone() {
        let method = |baseline: &str| {
            let text = format!(
                "[[job]]\nexperiment = \"herd\"\narms = [\"raw-c\", \"pool\"]\n\
                 baseline = \"{baseline}\"\n"
            );
            Plan::make(of_text(&text), &PLAIN_MACHINE).points[0].method
        };
        assert_eq!((method("raw-c"), method("pool")), (Method::Turns, Method::Runs));
    }

    #[test]
    fn a_point_that_flags_make_of_two_parts_is_measured_once() {
        let part = |name: &str| format!("[[job]]\nname = \"{name}\"\nexperiment = \"http\"\n");
        let text = part("one") + "keepalive = false\n" + &part("two") + "keepalive = false\n";
        let plan = Plan::make(of_text(&text), &PLAIN_MACHINE);
        let parts: Vec<_> = plan.points.iter().map(|point| plan.part_name(point)).collect();
        assert_eq!(parts, ["two"; 3]);
        let reasons: Vec<_> = plan.left_out.iter().map(|left| left.reason.as_str()).collect();
        assert!(reasons.contains(&"the same as in two, where it is measured"), "{reasons:?}");
    }

    const HTTP: &str = "[[job]]\nexperiment = \"http\"\nconnections = 16\npipeline = [1, 16]\n\
        arms = [\"epoll\", { name = \"mine\", server = \"mine {port}\" }]\nbaseline = \"epoll\"\n";

    fn look() -> Look {
        let axes = points_of(&of_text(HTTP).parts[0])[0].axes.clone();
        Look {
            experiment: "http".to_owned(),
            arm: "mine".to_owned(),
            axes: Look::axes_of(&axes),
            ..Look::default()
        }
    }

    #[test]
    fn what_a_look_found_wrong_is_named_once_and_the_arm_has_no_run() {
        let fault = Some("answered GET / with 403".to_owned());
        let looks = [Look { fault: fault.clone(), ..look() }];
        let plan = Plan::make(of_text(HTTP), &Machine { looks: &looks, ..PLAIN_MACHINE });
        assert_eq!(plan.points, [], "nothing is left to compare");
        let named: Vec<_> = plan.left_out.iter().filter(|left| left.arm == "mine").collect();
        assert_eq!((named.len(), named[0].point.as_str()), (1, "*"), "{named:?}");
        assert_eq!(Some(named[0].reason.clone()), fault);
        // With a third arm the others are compared.
        let text = HTTP.replace("\"epoll\",", "\"epoll\", \"poll\",");
        let plan = Plan::make(of_text(&text), &Machine { looks: &looks, ..PLAIN_MACHINE });
        assert_eq!((arm_names(&plan), plan.points.len()), (vec!["epoll", "poll", "A/A"], 2));
    }

    #[test]
    fn what_an_arm_can_not_do_takes_it_out_where_it_is_asked() {
        let looks = [Look { keeps_connections: Some(false), ..look() }];
        let plan = Plan::make(of_text(HTTP), &Machine { looks: &looks, ..PLAIN_MACHINE });
        assert_eq!(plan.points.len(), 1, "{:?}", plan.left_out);
        assert!(plan.left_out[0].reason.starts_with("it closes the connection"));
    }

    #[test]
    fn an_arm_that_serves_one_connection_at_a_time_is_left_out_of_replies_and_uploads() {
        const ARMS: &str = "arms = [\"epoll\", \"poll\", { name = \"mine\", server = \"mine {port}\" }]\nbaseline = \"epoll\"\n";
        let part = |(name, keys): (&str, &str)| {
            format!("[[job]]\nname = \"{name}\"\nexperiment = \"http\"\n{keys}\n{ARMS}")
        };
        let parts = [
            ("replies", "connections = 16\nreply_bytes = \"64KiB\""),
            ("uploads", "connections = 8\nrequest_bytes = \"256KiB\""),
            ("one", "connections = 1"),
            ("short", "connections = 32\nkeepalive = false"),
        ];
        let job = of_text(&parts.map(part).concat());
        let seen = |part: &Part| {
            let axes = Look::axes_of(&points_of(part)[0].axes);
            let keeps_connections = Some(true);
            Look { axes, keeps_connections, serves_several: Some(false), ..look() }
        };
        let looks: Vec<Look> = job.parts.iter().map(seen).collect();
        let plan = Plan::make(job, &Machine { looks: &looks, ..PLAIN_MACHINE });
        assert_eq!(plan.points.len(), 4, "the others are compared everywhere: {:?}", plan.left_out);
        for point in &plan.points {
            let name = plan.part_name(point);
            let takes_part = point.arms.iter().any(|arm| arm.name == "mine");
            assert_eq!(takes_part, ["one", "short"].contains(&name), "{name}: {:?}", point.arms);
        }
        let out: Vec<_> = plan.left_out.iter().filter(|left| left.arm == "mine").collect();
        assert_eq!(out.len(), 2, "{out:?}");
        for (left, connections) in out.iter().zip([16, 8]) {
            let why = format!("it serves one connection at a time: of {connections} that are kept");
            assert!(left.reason.starts_with(&why), "{left:?}");
        }
    }

    #[test]
    fn a_slow_arm_is_planned_for_and_a_budget_that_it_does_not_fit_is_refused_with_the_least() {
        let text = HTTP.replace("[1, 16]", "1");
        let slow = Look { answer_s: Some(1.0), wave_s: Some(1.0), wave_requests: 16, ..look() };
        let looks = [Look { startup_s: Some(4.0), shutdown_s: Some(0.1), ..slow }];
        let machine = Machine { looks: &looks, spent: Duration::from_secs(6), ..PLAIN_MACHINE };
        let planned = |budget_s| {
            let mut job = of_text(&text);
            job.budget = Some(Duration::from_secs(budget_s));
            Plan::make(job, &machine)
        };
        let small = planned(20);
        let least = small.least.expect("five starts alone take 20 s").as_secs_f64().ceil() as u64;
        assert!((30..90).contains(&least), "{least}");
        let fault = small.budget_fault().expect("refused");
        assert!(fault.contains(&format!("give --budget {least}s")), "{fault}");
        assert!(fault.contains("mine"), "{fault}");
        assert_eq!(planned(least + 1).budget_fault(), None);
    }

    #[test]
    fn a_gate_needs_an_arm_beside_the_baseline() {
        let gate_fault = |arms: &str| plan(&format!("arms = {arms}"), &PLAIN_MACHINE).gate_fault();
        assert_eq!(gate_fault("[\"epoll\", \"poll\"]"), None);
        let alone =
            "--gate: nothing to compare with the baseline epoll; expected --arm with another arm";
        assert_eq!(gate_fault("\"epoll\"").as_deref(), Some(alone));
        let fault = |wanted| match wanted {
            Requirement::Driver(Driver::Readiness(Mechanism::Poll)) => Some("forbidden".to_owned()),
            _ => None,
        };
        let machine = Machine { missing: &fault, ..PLAIN_MACHINE };
        let said = plan("arms = [\"epoll\", \"poll\"]", &machine).gate_fault();
        let said = said.expect("poll can't run");
        assert!(said.contains("epoll (poll is left out: forbidden); expected"), "{said}");
    }

    #[test]
    fn no_poller_adds_two_arms_that_change_one_factor_each() {
        let plan = plan("arms = \"epoll-et\"\nno_poller = true", &PLAIN_MACHINE);
        assert_eq!(arm_names(&plan), ["epoll-et", "epoll-et cyclic", "no poller cyclic", "A/A"]);
    }
}
