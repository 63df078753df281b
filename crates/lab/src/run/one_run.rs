//! Runs one arm once, by itself, in a process of its own, and makes a measurement or a failure of what came back: of pollux
//! (`pollux lab measure`), or of an external command that prints its own figure.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use regex_lite::Regex;

use pollux_host::Reading;
use pollux_host::sources::Sources;
use pollux_stats::{Steadiness, steadiness};

use super::process_output::{ProcessOutput, run_to_end};
use crate::arm::{ArmKind, Program};
use crate::child::Task;
use crate::measure::{Done, Line, Pass};
use crate::plan::PlannedPoint;
use crate::record::{Interval, Measurement, Steady, SteadyKind};

/// Longest life of an external command: it has its own idea of ramp and runtime, but one that
/// takes so many times longer than the point's window is another experiment.
const COMMAND_WINDOWS_MAX: u32 = 20;
/// Grace on top, for windows of milliseconds.
const COMMAND_GRACE: Duration = Duration::from_secs(60);
/// Longest life of our own child beyond ramp and runtime.
const CHILD_GRACE: Duration = Duration::from_secs(90);
/// Fewer intervals than this say nothing about steadiness.
const INTERVALS_MIN: usize = 10;

/// What one run needs besides its arm and point.
pub(super) struct RunContext<'a> {
    pub(super) program: &'a Path,
    pub(super) seed: u64,
    pub(super) pass: Pass,
    pub(super) sources: &'a Sources,
    /// Shared by the runs of one record.
    pub(super) scratch: &'a Path,
    /// No external command may take longer than the whole budget.
    pub(super) budget: Option<Duration>,
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

/// What one run gave.
pub(super) struct Ran {
    pub(super) measurement: Measurement,
    /// Absent for external commands.
    pub(super) done: Option<Done>,
}

/// Runs `arm` at `point`; `on_interval` receives each interval.
pub(super) fn run(
    arm: &ArmKind,
    point: &PlannedPoint,
    context: &RunContext<'_>,
    on_interval: &mut dyn FnMut(&Interval),
) -> Result<Ran, String> {
    match arm {
        ArmKind::Program(program) => run_program(program, point, context),
        arm => run_measured(arm, point, context, on_interval),
    }
}

fn run_measured(
    arm: &ArmKind,
    point: &PlannedPoint,
    context: &RunContext<'_>,
    on_interval: &mut dyn FnMut(&Interval),
) -> Result<Ran, String> {
    let RunContext { seed, pass, sources, scratch, .. } = *context;
    let (task, program) = Task::of_run(arm, point, seed, pass, Some(sources), scratch);
    let input = serde_json::to_string(&task).expect("a spec is plain data");
    let mut process = Command::new(program.as_deref().unwrap_or(context.program));
    process.args(["lab", "measure"]);
    let deadline = (point.ramp_time + point.runtime) * 20 + CHILD_GRACE;
    let mut intervals = Vec::new();
    let mut done = None;
    let ended = run_to_end(process, &input, deadline, context.is_stopped, &mut |line| {
        match serde_json::from_str(line) {
            Ok(Line::Interval(interval)) => {
                on_interval(&interval);
                intervals.push(interval);
            }
            Ok(Line::Done(result)) => done = Some(*result),
            Ok(Line::Looked(_)) | Err(_) => {}
        }
    })?;
    match done {
        Some(done) if done.events_per_s <= 0.0 => Err("no event in the measured window".to_owned()),
        Some(done) if ended.status.success() => {
            Ok(Ran { measurement: measurement(&done, intervals), done: Some(done) })
        }
        _ => Err(ended.stderr_tail()),
    }
}

fn measurement(done: &Done, intervals: Vec<Interval>) -> Measurement {
    let rates: Vec<f64> = intervals.iter().map(|interval| interval.events_per_s).collect();
    Measurement {
        value: done.value,
        figures: done.figures.clone(),
        mechanism: done.mechanism.clone(),
        generator: done.generator.clone(),
        findings: done.findings.clone(),
        window_s: done.window_s,
        intervals,
        steadiness: steady(&rates),
        turns: None,
        worker_calls: done.worker_calls.clone(),
        cpu_ns: done.cpu_ns.clone(),
        process_cpu_ns: done.process_cpu_ns.clone(),
        events: Some(done.events),
    }
}

fn run_program(
    program: &Program,
    point: &PlannedPoint,
    context: &RunContext<'_>,
) -> Result<Ran, String> {
    let pattern = Regex::new(&program.pattern).map_err(|error| error.to_string())?;
    let words =
        shell_words::split(&with_axes(&program.command, point)).map_err(|e| e.to_string())?;
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    let mut process = Command::new(program);
    process.args(arguments);
    let longest = (point.ramp_time + point.runtime) * COMMAND_WINDOWS_MAX + COMMAND_GRACE;
    let deadline = context.budget.map_or(longest, |budget| budget.min(longest));
    let ended = run_to_end(process, "", deadline, context.is_stopped, &mut |_| {})?;
    let value = figure(&pattern, &ended)?;
    let not_ours = || Reading::unavailable("an external command");
    let measurement = Measurement {
        value,
        figures: BTreeMap::new(),
        mechanism: None,
        generator: None,
        findings: BTreeMap::new(),
        window_s: ended.elapsed.as_secs_f64(),
        intervals: Vec::new(),
        steadiness: steady(&[]),
        turns: None,
        worker_calls: Vec::new(),
        cpu_ns: not_ours(),
        process_cpu_ns: not_ours(),
        events: None,
    };
    Ok(Ran { measurement, done: None })
}

/// `{pipes}` and the like in a command stand for the point's value of that axis.
fn with_axes(line: &str, point: &PlannedPoint) -> String {
    point.point.axes.iter().fold(line.to_owned(), |line, (name, value)| {
        line.replace(&format!("{{{name}}}"), &value.to_string())
    })
}

fn figure(pattern: &Regex, ended: &ProcessOutput) -> Result<f64, String> {
    if !ended.status.success() {
        return Err(ended.stderr_tail());
    }
    let texts = [&ended.stdout, &ended.stderr];
    let found = texts.iter().flat_map(|text| pattern.captures_iter(text)).last();
    let group = found.and_then(|found| found.get(1));
    let figure = group.and_then(|group| group.as_str().replace([',', '_'], "").parse::<f64>().ok());
    match figure {
        Some(figure) if figure.is_finite() && figure > 0.0 => Ok(figure),
        Some(figure) => Err(format!("printed {figure}, which can't be compared")),
        None => Err(format!(
            "printed nothing that matches /{pattern}/ with a number in its first group; it said: {}",
            ended.stderr_tail()
        )),
    }
}

fn steady(rates: &[f64]) -> Steady {
    if rates.len() < INTERVALS_MIN {
        let detail = format!("{} intervals", rates.len());
        return Steady { kind: SteadyKind::TooShort, detail };
    }
    let (kind, detail) = match steadiness(rates) {
        Steadiness::Steady => (SteadyKind::Steady, "one rate".to_owned()),
        Steadiness::TooShort => (SteadyKind::TooShort, format!("{} intervals", rates.len())),
        Steadiness::Drift { slope_pct_per_window } => {
            (SteadyKind::Drift, format!("{slope_pct_per_window:+.0} % over the window"))
        }
        Steadiness::TwoRegime { change_index, before, after } => (
            SteadyKind::TwoRegime,
            format!("{before:.0}/s for {change_index} intervals, then {after:.0}/s"),
        ),
    };
    Steady { kind, detail }
}
