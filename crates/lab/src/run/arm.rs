//! Runs one arm once and makes a measurement or a failure of what came back; the passes beside the timing (counting,
//! the times of requests, the profile); and what the record says of the builds of pollux that are measured, this
//! program and those that are arms. Two builds of the same version differ in their size and their date at least, so
//! both are shown.
//!
//! Fresh processes: one for each run of an arm of pollux, one for each external command. Each leads its own process
//! group, so that Ctrl-C on the terminal reaches only the runner, which lets the run end. Output is read while it runs
//! and is bounded; one that outlives its deadline is killed with its whole group.
//!
//! A pass runs the arms that it is for once at each point, apart from the blocks, because looking disturbs. Nothing of
//! it is compared.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pollux_processes as processes;
use regex_lite::Regex;

use super::{RunLabel, Runner, State};
use crate::arm::{Arm, ArmKind, Build, Program};
use crate::child::Task;
use crate::error::in_words;
use crate::host::Reading;
use crate::host::sources::Sources;
use crate::job::Job;
use crate::measure::{Done, Line, Pass, RunSpec};
use crate::plan::{Method, PlannedPoint, SAME_AGAIN};
use crate::record::{
    CountingRun, Fact, Interval, LeftOut, Measurement, Profile, Record, RequestTimesRun, Steady,
    SteadyKind, SymbolShare,
};
use crate::stats::{Direction, Steadiness, steadiness};

/// Longest life of an external command: it has its own idea of ramp and runtime, but one that
/// takes so many times longer than the point's window is another experiment.
const COMMAND_WINDOWS_MAX: u32 = 20;
/// Grace on top, for windows of milliseconds.
const COMMAND_GRACE: Duration = Duration::from_secs(60);
/// Longest life of our own child beyond ramp and runtime.
const CHILD_GRACE: Duration = Duration::from_secs(90);
/// Fewer intervals than this say nothing about steadiness.
const INTERVALS_MIN: usize = 10;
/// Most bytes kept of what a process prints; the rest is read and dropped.
const OUTPUT_MAX: usize = 4 << 20;
/// How long standard error may stay open when its process and all of the group have ended.
const STDERR_PATIENCE: Duration = Duration::from_secs(2);
/// The counting pass takes at most this share of a budget; what it did not reach is `n/a`.
const COUNTING_SHARE: f64 = 0.3;

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

/// What the process of an arm receives when it takes turns, and another build that it is, if so.
pub(super) fn spec_of(
    arm: &ArmKind,
    point: &PlannedPoint,
    seed: u64,
    scratch: &Path,
) -> (Task, Option<PathBuf>) {
    spec(arm, point, seed, Pass::Timing, None, scratch)
}

/// A run as its process reads it, and another build of pollux that the process is, if so.
fn spec(
    arm: &ArmKind,
    point: &PlannedPoint,
    seed: u64,
    pass: Pass,
    sources: Option<&Sources>,
    scratch: &Path,
) -> (Task, Option<PathBuf>) {
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
    };
    (Task { experiment: point.experiment, spec }, program)
}

fn run_measured(
    arm: &ArmKind,
    point: &PlannedPoint,
    context: &RunContext<'_>,
    on_interval: &mut dyn FnMut(&Interval),
) -> Result<Ran, String> {
    let RunContext { seed, pass, sources, scratch, .. } = *context;
    let (task, program) = spec(arm, point, seed, pass, Some(sources), scratch);
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
            Err(_) => {}
        }
    })?;
    match done {
        Some(done) if done.events_per_s <= 0.0 => Err("no event in the measured window".to_owned()),
        Some(done) if ended.status.success() => {
            Ok(Ran { measurement: measurement(&done, intervals), done: Some(done) })
        }
        _ => Err(last_words(&ended)),
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

fn figure(pattern: &Regex, ended: &Ended) -> Result<f64, String> {
    if !ended.status.success() {
        return Err(last_words(ended));
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
            last_words(ended)
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

/// A fact for `own`, the program that measures, and for each build of any part, each once.
pub(super) fn facts(own: &Path, job: &Job) -> Vec<Fact> {
    let mut seen: Vec<(&str, &Path)> = vec![("pollux", own)];
    for arm in job.parts.iter().flat_map(|part| &part.arms) {
        let build = arm.kind.build().map(|build| (arm.name.as_str(), build.program.as_path()));
        seen.extend(build.filter(|build| !seen.contains(build)));
    }
    let fact = |(name, program): &(&str, &Path)| Fact {
        name: format!("build {name}"),
        reading: Reading::from_io(&program.display().to_string(), described(program)),
    };
    seen.iter().map(fact).collect()
}

fn described(program: &Path) -> io::Result<String> {
    let file = std::fs::metadata(program)?;
    let modified = jiff::Timestamp::try_from(file.modified()?).map_err(io::Error::other)?;
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    let version = String::from_utf8_lossy(&output.stdout);
    let version = version.lines().next().unwrap_or("says no version");
    let (path, len_bytes) = (program.display(), file.len());
    Ok(format!("{version}, {len_bytes} bytes, made {modified:.0}, {path}"))
}

/// What a process left behind.
#[derive(Debug)]
struct Ended {
    /// How it ended.
    status: ExitStatus,
    /// Its standard output.
    stdout: String,
    /// Its standard error.
    stderr: String,
    /// Wall time.
    elapsed: Duration,
}

/// Runs `command` to its end with `input` on standard input; `on_line` receives each line of its
/// standard output when it comes. `is_stopped` is asked while waiting.
fn run_to_end(
    command: Command,
    input: &str,
    deadline: Duration,
    is_stopped: &dyn Fn() -> bool,
    on_line: &mut dyn FnMut(&str),
) -> Result<Ended, String> {
    let start = Instant::now();
    let mut process = started(command)?;
    if !input.is_empty() {
        process.write_line(input);
    }
    process.end_input();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let late = || format!("did not end within {deadline:.1?} and was killed");
    loop {
        // Asked before each line: one that never falls silent has a deadline as well.
        let left = deadline.checked_sub(start.elapsed()).ok_or_else(late)?;
        match process.output_line_within(left, is_stopped) {
            Ok(Some(line)) => {
                on_line(&line);
                keep(&mut stdout, &line);
            }
            Ok(None) => break,
            Err(processes::Error::Deadline { .. }) => return Err(late()),
            Err(error) => return Err(stopped_or(error)),
        }
    }
    let left = deadline.saturating_sub(start.elapsed());
    if !process.ends_within(left, is_stopped).map_err(stopped_or)? {
        return Err(late());
    }
    let status = process.status().ok_or("could not be waited for")?;
    let elapsed = start.elapsed();
    while let Ok(Some(line)) = process.line_within(STDERR_PATIENCE) {
        keep(&mut stderr, &line);
    }
    Ok(Ended { status, stdout, stderr, elapsed })
}

/// Starts `command` in a group of its own.
pub(super) fn started(command: Command) -> Result<processes::Program, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    processes::Program::start_group(&program, command).map_err(|error| match error {
        processes::Error::Setup { cause, .. } => format!("could not start {program}: {cause}"),
        error => in_words(&error),
    })
}

/// Why a process is not waited for any longer.
pub(super) fn stopped_or(error: processes::Error) -> String {
    match error {
        processes::Error::Interrupted => "stopped by the user".to_owned(),
        error => in_words(&error),
    }
}

fn keep(text: &mut String, line: &str) {
    if text.len() + line.len() < OUTPUT_MAX {
        text.push_str(line);
        text.push('\n');
    }
}

/// The last lines of what a failed process said, for a message.
fn last_words(ended: &Ended) -> String {
    const LINES: usize = 3;
    let text = if ended.stderr.trim().is_empty() { &ended.stdout } else { &ended.stderr };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    if last.is_empty() { ended.status.to_string() } else { format!("{}: {last}", ended.status) }
}

impl Runner<'_> {
    pub(super) fn counting_pass(&mut self, state: &mut State) {
        let limit = self.plan.job.budget.map(|budget| budget.mul_f64(COUNTING_SHARE));
        // What fails here fails again in the timing pass, where it is recorded.
        let _ = self.side_pass(Pass::Counting, limit, &is_counted, &mut |label, done| {
            let events = (done.events, done.counters, done.events_per_wait_histogram);
            state.record.counting.push(counting_run(label, events, done.kernel));
        });
    }

    /// Only where the job asks for it and the arm is a server of pollux.
    pub(super) fn request_times_pass(&mut self, state: &mut State) {
        if !self.plan.job.times_requests {
            return;
        }
        let wanted = &can_time_requests;
        let record = &mut state.record;
        let failed = self.side_pass(Pass::RequestTimes, None, wanted, &mut |label, done| {
            let Some(times) = done.request_times else { return };
            record.request_times.push(RequestTimesRun {
                experiment: label.experiment.clone(),
                point: label.point.clone(),
                arm: label.arm.clone(),
                times,
            });
        });
        left_out(record, failed);
    }

    pub(super) fn profile_pass(&mut self, state: &mut State) {
        let Some(rate_hz) = self.plan.job.profile_hz else { return };
        let record = &mut state.record;
        let pass = Pass::Profile { rate_hz };
        let failed = self.side_pass(pass, None, &is_counted, &mut |label, done| {
            let Some(samples) = done.samples else { return };
            record.profiles.push(profile_of(label, samples, done.symbols));
        });
        left_out(record, failed);
    }

    /// Each of the wanted arms once at each point, apart from the timing. What fails is given back
    /// with its reason.
    fn side_pass(
        &mut self,
        pass: Pass,
        limit: Option<Duration>,
        is_wanted: &dyn Fn(&PlannedPoint, &Arm) -> bool,
        keep: &mut dyn FnMut(&RunLabel, Done),
    ) -> Vec<(RunLabel, String)> {
        let (plan, start) = (self.plan, Instant::now());
        let mut failed = Vec::new();
        for point in &plan.points {
            for arm in &point.arms {
                let is_over = limit.is_some_and(|limit| start.elapsed() > limit);
                // What takes turns is counted and profiled in turns.
                let has_turns = point.method == Method::Turns && pass != Pass::RequestTimes;
                let is_left = arm.name == SAME_AGAIN || has_turns || !is_wanted(point, arm);
                if is_left || is_over || self.stop.is_asked() {
                    continue;
                }
                let label = self.label(None, point, arm, pass);
                match self.one_run(&label, point, arm, 0) {
                    Ok(Ran { done: Some(done), .. }) => keep(&label, done),
                    Ok(_) => {}
                    // The user ended it, not the arm.
                    Err(_) if self.stop.is_urgent() => {}
                    Err(reason) => failed.push((label, reason)),
                }
            }
        }
        failed
    }
}

/// What was counted of an arm: events with the poller's counters and waits, and what the kernel counted.
pub(super) fn counting_run(
    label: &RunLabel,
    (events, counters, events_per_wait_histogram): (u64, BTreeMap<String, u64>, Vec<u64>),
    kernel: BTreeMap<String, Reading<u64>>,
) -> CountingRun {
    let RunLabel { experiment, point, arm, .. } = label.clone();
    CountingRun { experiment, point, arm, events, counters, events_per_wait_histogram, kernel }
}

pub(super) fn profile_of(
    label: &RunLabel,
    samples: Reading<u64>,
    symbols: Vec<SymbolShare>,
) -> Profile {
    let RunLabel { experiment, point, arm, .. } = label.clone();
    Profile { experiment, point, arm, samples, symbols }
}

/// Runs of a pass that failed, which no other pass repeats.
pub(super) fn left_out(record: &mut Record, failed: Vec<(RunLabel, String)>) {
    record.left_out.extend(failed.into_iter().map(|(label, reason)| {
        let what = match label.pass {
            Pass::RequestTimes => "its times inside the server",
            _ => "its profile",
        };
        let RunLabel { experiment, point, arm, .. } = label;
        LeftOut { experiment, point, arm, reason: format!("{what}: {reason}") }
    }));
}

/// What runs a command can't be looked into.
pub(super) fn is_counted(_: &PlannedPoint, arm: &Arm) -> bool {
    !arm.kind.is_program()
}

fn can_time_requests(point: &PlannedPoint, arm: &Arm) -> bool {
    point.experiment.times_requests && matches!(arm.kind, ArmKind::Driver(_) | ArmKind::Build(_))
}

#[cfg(test)]
mod tests {
    use pollux_testing::DEADLINE;

    use super::*;

    #[test]
    fn a_program_is_distinguished_from_another_and_a_missing_one_says_so() {
        let program = std::env::current_exe().expect("this test");
        let said = described(&program).expect("it is there");
        assert!(said.contains(" bytes, made 20") && said.ends_with(&*program.to_string_lossy()));
        assert!(described(Path::new("no/such/pollux")).is_err());
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(
        script: &str,
        deadline: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Ended, String> {
        run_to_end(shell(script), "", deadline, is_stopped, &mut |_| {})
    }

    #[test]
    fn output_comes_line_by_line_and_whole() {
        let mut lines = Vec::new();
        let command = shell("cat; echo err >&2; exit 3");
        let ended = run_to_end(command, "a\nb", DEADLINE, &|| false, &mut |line| {
            lines.push(line.to_owned());
        });
        let ended = ended.expect("the shell runs");
        assert_eq!(lines, ["a", "b"]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("a\nb\n", "err\n"));
        assert_eq!(ended.status.code(), Some(3));
        assert!(last_words(&ended).ends_with("err"));
    }

    #[test]
    fn what_outlives_its_deadline_or_is_stopped_is_killed_with_its_children() {
        let (short, late) = (Duration::from_millis(50), "did not end within 50.0ms and was killed");
        let cases = [
            ("sleep 600 & wait", short, false, late),
            ("yes 55", short, false, late),
            ("exec >&-; sleep 600", short, false, late),
            ("sleep 600", DEADLINE, true, "stopped by the user"),
        ];
        for (script, deadline, stops, expected) in cases {
            let error = run(script, deadline, &|| stops).expect_err("killed");
            assert_eq!(error, expected, "{script}");
        }
    }

    #[test]
    fn what_a_child_leaves_running_is_not_waited_for() {
        let ended =
            run("echo 123; sleep 600 & exit 0", DEADLINE, &|| false).expect("it ended well");
        assert_eq!((ended.stdout.as_str(), ended.status.code()), ("123\n", Some(0)));
    }

    #[test]
    fn a_missing_program_is_named() {
        let missing = Command::new("./no-such-program");
        let error = run_to_end(missing, "", DEADLINE, &|| false, &mut |_| {}).expect_err("missing");
        assert!(error.contains("could not start ./no-such-program"), "{error}");
    }
}
