//! The measuring process: what the runner orders, and what it does.
//!
//! The runner starts a fresh process for each arm and hands it a [`Task`], which is made of the arm and the planned point. `pollux lab subject` calls
//! [`take_orders`], which does turns as they are ordered; `pollux lab measure` calls [`measure()`], which does
//! one run by itself. Both read the types that the plan was made of.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_host::Reading;
use pollux_host::counting::Counting;
use pollux_host::sources::Sources;
use pollux_stats::Direction;
use serde::{Deserialize, Serialize};

use crate::arm::{ArmKind, Build};
use crate::axis::Axis;
use crate::error::MeasureError;
use crate::experiments::Experiment;
use crate::measure::{self, Done, Pass, Profiling, RunSpec};
use crate::plan::PlannedPoint;
use crate::record::{Interval, Look, MEMORY_PER_CONNECTION, OPEN_DESCRIPTORS};
use crate::subject::{Counted, Figure, Reply, Subject, SubjectCommand, TurnSize};
use crate::warm_up::{Until, warm_up};

/// What is measured: an arm of an experiment at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    #[serde(with = "by_name")]
    pub experiment: &'static dyn Experiment,
    #[serde(flatten)]
    pub spec: RunSpec,
}

impl Task {
    /// What the process of an arm receives when it takes turns, and another build that it is, if so.
    pub(crate) fn in_turns(
        arm: &ArmKind,
        point: &PlannedPoint,
        seed: u64,
        scratch: &Path,
    ) -> (Self, Option<PathBuf>) {
        Self::of_run(arm, point, seed, Pass::Timing, None, scratch)
    }

    /// What it receives for a run by itself, with the same.
    pub(crate) fn of_run(
        arm: &ArmKind,
        point: &PlannedPoint,
        seed: u64,
        pass: Pass,
        sources: Option<&Sources>,
        scratch: &Path,
    ) -> (Self, Option<PathBuf>) {
        let kills = point.kills(arm);
        // A build that is a server is measured like any other; what has its workload in the measuring
        // process is that process.
        let (arm, program) = match arm {
            ArmKind::Build(Build { program, driver }) if !point.experiment.has_processes => {
                (ArmKind::Driver(*driver), Some(program.clone()))
            }
            arm => (arm.clone(), None),
        };
        let spec = RunSpec {
            arm,
            axes: point.point.axes.clone(),
            seed,
            ramp_ms: point.ramp_time.as_millis() as u64,
            runtime_ms: point.runtime.as_millis() as u64,
            interval_ms: point.interval.as_millis() as u64,
            is_rate: point.metric().direction == Direction::HigherIsBetter,
            pass,
            sources: sources.filter(|_| pass == Pass::Counting).cloned(),
            scratch: scratch.to_owned(),
            budget_ms: point.budget.map(|budget| budget.as_millis() as u64),
            hosts: point.hosts.clone(),
            kills,
        };
        (Self { experiment: point.experiment, spec }, program)
    }

    /// Reads what the runner has written.
    ///
    /// # Errors
    /// [`MeasureError::Spec`]: it is not a task, or a value is none of its axis.
    pub fn read(text: &str) -> Result<Self, MeasureError> {
        let task: Self = parsed(text)?;
        let axes = task.experiment.axes;
        let is_wrong = |axis: &&Axis| task.spec.axes.get(axis.name).is_none_or(|v| !axis.holds(v));
        match axes.iter().find(is_wrong) {
            None => Ok(task),
            Some(axis) => {
                let name = axis.name;
                let kind = axis.kind();
                let what = format!("the axis {name} has no value; expected {}", kind.accepts());
                Err(MeasureError::Spec(what))
            }
        }
    }
}

/// Runs `task` once and measures it; `on_interval` receives each interval when it ends. A workload in
/// processes of its own asks `is_interrupted` while it waits, and ends what it started.
///
/// The calling process should do nothing else.
///
/// # Errors
/// [`MeasureError`] when the workload can't be set up, fails, or falls silent.
pub fn measure(
    task: &Task,
    on_interval: &mut dyn FnMut(&Interval),
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    task.experiment.measure(&task.spec, on_interval, is_interrupted)
}

/// Looks at what the task would measure, before anything is planned.
///
/// # Errors
/// [`MeasureError`]: it can't be measured.
pub fn look(task: &Task, is_interrupted: &dyn Fn() -> bool) -> Result<Look, MeasureError> {
    task.experiment.look(&task.spec, is_interrupted)
}

/// An experiment by its name.
mod by_name {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::experiments::{self, Experiment};

    pub(super) fn serialize<S: Serializer>(
        experiment: &&'static dyn Experiment,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(experiment.name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<&'static dyn Experiment, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || serde::de::Error::custom(format!("no experiment is called {name}"));
        experiments::by_name(&name).ok_or_else(unknown)
    }
}

/// Sets up the subject of the spec on the first line of `orders`, then does what the following
/// lines say, with a reply on `replies` for each. Returns at the order to end, or when no orders
/// follow; what the subject started has ended then.
///
/// # Errors
/// [`MeasureError`]: a line is not an order, or the subject could not be set up or failed.
pub fn take_orders(
    orders: &mut dyn BufRead,
    replies: &mut dyn Write,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<(), MeasureError> {
    let Some(task) = line(orders)? else { return Ok(()) };
    let Task { experiment, spec } = Task::read(&task)?;
    let mut subject = experiment.start(&spec, is_interrupted)?;
    let described = subject.described();
    is_as_asked(spec.arm.driver(), described.mechanism.as_deref())?;
    say(replies, &Reply::Ready(described))?;
    while let Some(order) = line(orders)? {
        let reply = match parsed(&order)? {
            SubjectCommand::Turn { lead_in_us, length_us, parts, units } => {
                let [lead_in, length] = [lead_in_us, length_us].map(Duration::from_micros);
                let share = lead_in_us as f64 / length_us.max(1) as f64;
                let lead_units = units.map(|units| (units as f64 * share).ceil() as u64);
                let lead_in = TurnSize { length: lead_in, units: lead_units };
                Reply::Turned(turn(&mut *subject, lead_in, TurnSize { length, units }, parts)?)
            }
            SubjectCommand::Count { turns, length_us, units, sources } => {
                let counting = Counting::start(&subject.threads(), &sources);
                let mut counted = counted(&mut *subject, turns, turn_size(length_us, units))?;
                counted.kernel = counting.stop();
                // The process that works is the last one: a worker, where there are some.
                if let Some((pid, _)) = subject.threads().last() {
                    counted.kernel.insert(OPEN_DESCRIPTORS.to_owned(), open_descriptors(*pid));
                }
                if let Some(memory) = subject.memory_per_connection() {
                    counted.kernel.insert(MEMORY_PER_CONNECTION.to_owned(), memory);
                }
                Reply::Counted(Box::new(counted))
            }
            SubjectCommand::Profile { turns, length_us, units, rate_hz } => {
                let profiling =
                    subject.threads().last().map(|(pid, _)| Profiling::start(*pid, rate_hz));
                let mut counted = counted(&mut *subject, turns, turn_size(length_us, units))?;
                (counted.samples, counted.symbols) =
                    profiling.map_or((None, Vec::new()), Profiling::finish);
                Reply::Counted(Box::new(counted))
            }
            SubjectCommand::Load { length_us, units, until_flat } => {
                let until = match units {
                    _ if until_flat => Until::Flat,
                    Some(units) => Until::Units(units),
                    None => Until::TimeOver,
                };
                let length = Duration::from_micros(length_us);
                Reply::Loaded(warm_up(&mut *subject, until, length)?)
            }
            SubjectCommand::Renew => match subject.renew()? {
                Some(life) => Reply::Ended(life),
                None => return say(replies, &Reply::Ended(subject.end()?)),
            },
            SubjectCommand::End => {
                return say(replies, &Reply::Ended(subject.end()?));
            }
        };
        say(replies, &reply)?;
    }
    Ok(())
}

/// How many descriptors a process has open.
fn open_descriptors(pid: u32) -> Reading<u64> {
    let folder = format!("/proc/{pid}/fd");
    Reading::from_io(&folder, std::fs::read_dir(&folder)).map(|fds| fds.count() as u64)
}

/// A lead-in, then the parts of a turn.
fn turn(
    subject: &mut dyn Subject,
    lead_in: TurnSize,
    part: TurnSize,
    parts: u32,
) -> Result<Vec<Figure>, MeasureError> {
    if !lead_in.length.is_zero() {
        subject.turn(lead_in)?;
    }
    let mut figures = Vec::with_capacity(parts as usize);
    let mut before = subject.cpu_time()?;
    let mut own_before = subject.own_time();
    for _ in 0..parts {
        let start = Instant::now();
        let units = subject.turn(part)?;
        let wall = start.elapsed();
        let after = subject.cpu_time()?;
        let cpu = after.saturating_sub(std::mem::replace(&mut before, after));
        let own_after = subject.own_time();
        let own = own_after.saturating_sub(std::mem::replace(&mut own_before, own_after));
        let [cpu_ns, wall_ns, own_ns] = [cpu, wall, own].map(|time| time.as_nanos() as u64);
        figures.push(Figure { units, cpu_ns, wall_ns, own_ns });
    }
    Ok(figures)
}

/// Turns without figures of their own, with the poller's counters around them.
fn counted(subject: &mut dyn Subject, turns: u32, size: TurnSize) -> Result<Counted, MeasureError> {
    let before = subject.counters();
    let loop_before = subject.loop_counters();
    let mut units = 0;
    for _ in 0..turns {
        units += subject.turn(size)?;
    }
    let counted = subject.counters().zip(before).map(|(after, before)| after.since(&before));
    let (mut counters, events_per_wait_histogram) = measure::polled(counted);
    if !loop_before.is_empty() {
        counters.extend(measure::since(subject.loop_counters(), &loop_before));
    }
    Ok(Counted { units, counters, events_per_wait_histogram, ..Counted::default() })
}

fn turn_size(length_us: u64, units: Option<u64>) -> TurnSize {
    TurnSize { length: Duration::from_micros(length_us), units }
}

/// What was opened must be what was asked for: figures under a wrong name are worse than none.
fn is_as_asked(asked: Option<Driver>, got: Option<&str>) -> Result<(), MeasureError> {
    match (asked, got) {
        (Some(asked), got) if got != Some(asked.name()) => {
            let got = got.unwrap_or("no mechanism").to_owned();
            Err(MeasureError::WrongMechanism { asked, got })
        }
        _ => Ok(()),
    }
}

fn line(orders: &mut dyn BufRead) -> Result<Option<String>, MeasureError> {
    let mut line = String::new();
    let read = orders.read_line(&mut line);
    let len = read.map_err(MeasureError::io("read"))?;
    Ok((len > 0).then_some(line))
}

fn parsed<T: serde::de::DeserializeOwned>(line: &str) -> Result<T, MeasureError> {
    serde_json::from_str(line).map_err(|error| MeasureError::Spec(error.to_string()))
}

fn say(replies: &mut dyn Write, reply: &Reply) -> Result<(), MeasureError> {
    let mut text = serde_json::to_string(reply).expect("plain data");
    text.push('\n');
    let said = replies.write_all(text.as_bytes()).and_then(|()| replies.flush());
    said.map_err(MeasureError::io("write"))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::arm::Arm;
    use crate::axis::Axes;
    use crate::experiments::known;
    use crate::subject::Life;

    fn task(poller: &str) -> Task {
        let experiment = known("pipes");
        let arm = Arm::driver(poller.parse().expect("a driver")).kind;
        let spec = RunSpec::of(arm, Axes::defaults(experiment.axes));
        Task { experiment, spec }
    }

    /// What a subject answers to these orders.
    fn answers(poller: &str, orders: &[SubjectCommand]) -> Result<Vec<Reply>, MeasureError> {
        let mut text = serde_json::to_string(&task(poller)).expect("plain data") + "\n";
        for order in orders {
            text += &serde_json::to_string(order).expect("plain data");
            text.push('\n');
        }
        let mut said = Vec::new();
        // Subjects keep their thread on a CPU, so this one is another thread's.
        let served = std::thread::scope(|scope| {
            let serve = || take_orders(&mut Cursor::new(text), &mut said, &|| false);
            scope.spawn(serve).join().expect("no panic")
        });
        served?;
        let said = String::from_utf8(said).expect("text");
        Ok(said.lines().map(|line| serde_json::from_str(line).expect("a reply")).collect())
    }

    #[test]
    fn a_subject_gives_a_figure_for_each_part_of_a_turn_and_counts_what_it_did() {
        let turn = SubjectCommand::Turn { lead_in_us: 100, length_us: 1000, parts: 2, units: None };
        let count = SubjectCommand::Count {
            turns: 3,
            length_us: 500,
            units: None,
            sources: Sources::probe(),
        };
        let answers = answers("epoll", &[turn, count, SubjectCommand::End]).expect("it ends well");
        let [Reply::Ready(described), Reply::Turned(figures), Reply::Counted(counted), end] =
            &answers[..]
        else {
            panic!("{answers:?}");
        };
        assert_eq!(described.mechanism.as_deref(), Some("epoll"));
        assert_eq!(figures.len(), 2);
        assert!(figures.iter().all(|figure| figure.cost_ns().is_some()), "{figures:?}");
        assert!(counted.units > 0 && counted.counters["events"] >= counted.units, "{counted:?}");
        assert_eq!(end, &Reply::Ended(Life::default()));
    }

    #[test]
    fn a_subject_without_orders_ends_and_nonsense_is_refused() {
        assert_eq!(answers("epoll", &[]).expect("it ends well").len(), 1);
        let error = take_orders(&mut Cursor::new("{}\n"), &mut Vec::new(), &|| false);
        assert!(matches!(error, Err(MeasureError::Spec(_))), "{error:?}");
        assert!(answers("uring", &[]).is_err());
    }
}
