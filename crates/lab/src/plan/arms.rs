//! The arms of a part: those that can run here, and the baseline twice; and what is wrong with arms of
//! the user before they are run: a program that is not there, a placeholder that is not an axis.
//!
//! The plan asks its caller what the machine lacks ([`missing_here`] for this one), so that tests can
//! plan for others.

use std::path::Path;
use std::process::{Command, Stdio};

use pollux_engine::Driver;
use pollux_host::{self as host, patience};

use super::{Machine, Method, Requirement, SAME_AGAIN, fits, left_out_of};
use crate::arm::{Arm, ArmKind, Peer, Program, missing_driver};
use crate::axis::{Axes, Value};
use crate::experiments::{Experiment, Generator, missing_form, missing_generator, running_fault};
use crate::job::{Job, Part};
use crate::record::{ArmTimes, LeftOut, Look, Point};

/// How much of its version a build is shown with.
const SAID_CHARS_MAX: usize = 80;

/// The arms of a part that can run here; the others go to `left_out`.
pub(super) fn available(
    part: &Part,
    missing: &dyn Fn(Requirement) -> Option<String>,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Arm> {
    let mut arms = Vec::new();
    for arm in &part.arms {
        match fault(part.experiment, &arm.kind, missing) {
            None => arms.push(arm.clone()),
            Some(reason) => left_out.push(left_out_of(part, "*", &arm.name, reason)),
        }
    }
    arms.extend(part.experiment.more_arms(&part.axes, &arms, &part.baseline));
    arms
}

/// Why an arm can't run here, if it can't.
fn fault(
    experiment: &dyn Experiment,
    arm: &ArmKind,
    missing: &dyn Fn(Requirement) -> Option<String>,
) -> Option<String> {
    match arm {
        ArmKind::Driver(driver) | ArmKind::Cyclic(driver) => {
            driver_fault(experiment, *driver, missing)
        }
        ArmKind::Build(build) => driver_fault(experiment, build.driver, missing),
        ArmKind::Way(name) => of_name(experiment.ways, name, missing),
        ArmKind::Peer(name) => of_name(experiment.peers, name, missing),
        ArmKind::Form(form) => missing(Requirement::Form(*form)),
        ArmKind::Server { .. } | ArmKind::Running { .. } => None,
        ArmKind::WithoutPoller | ArmKind::Program(_) => None,
    }
}

fn of_name(
    list: &[Peer],
    name: &str,
    missing: &dyn Fn(Requirement) -> Option<String>,
) -> Option<String> {
    missing(Requirement::Peer(*list.iter().find(|peer| peer.name == name)?))
}

fn driver_fault(
    experiment: &dyn Experiment,
    driver: Driver,
    missing: &dyn Fn(Requirement) -> Option<String>,
) -> Option<String> {
    if experiment.drivers.contains(&driver) {
        missing(Requirement::Driver(driver))
    } else {
        Some(format!("{experiment} asks a poller, and {driver} has none"))
    }
}

/// The arms that can run at a point; the others go to `left_out`.
pub(super) fn at(
    machine: &Machine<'_>,
    point: &Point,
    arms: &[Arm],
    part: &Part,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Arm> {
    let fault = |arm: &Arm| {
        let seen = || look(machine, part, point, arm).and_then(|look| look.fault_at(&point.axes));
        fits::arm_fault(machine, part.experiment, point, &arm.kind).or_else(seen)
    };
    let mut kept = Vec::new();
    for arm in arms {
        if let Some(fault) = look(machine, part, point, arm).and_then(|look| look.fault.as_ref()) {
            // Once, and not at every point.
            if !left_out.iter().any(|left| left.arm == arm.name && left.reason == *fault) {
                left_out.push(left_out_of(part, "*", &arm.name, fault.clone()));
            }
            continue;
        }
        match fault(arm) {
            None => kept.push(arm.clone()),
            Some(reason) => left_out.push(left_out_of(part, &point.label, &arm.name, reason)),
        }
    }
    kept
}

/// The look at an arm as it is started at a point, if there was one.
fn look<'a>(machine: &Machine<'a>, part: &Part, point: &Point, arm: &Arm) -> Option<&'a Look> {
    let name = part.experiment.name;
    machine.looks.iter().find(|look| look.is_of(name, &arm.name, &point.axes))
}

/// How long each of the arms takes at a point, where a look says so; the second copy of the baseline takes as long as
/// the first.
pub(super) fn times(
    machine: &Machine<'_>,
    part: &Part,
    point: &Point,
    arms: &[Arm],
    baseline: usize,
) -> Vec<Option<ArmTimes>> {
    let connections = point.axes.get("connections").map_or(1, |_| point.axes.number("connections"));
    let times = |arm: &Arm| {
        let arm = if arm.name == SAME_AGAIN { &arms[baseline] } else { arm };
        Some(look(machine, part, point, arm)?.times(connections))
    };
    arms.iter().map(times).collect()
}

/// How the arms of a point are measured: in turns, where each of them can take some, and where the
/// baseline leaves enough of everything for a copy of itself.
pub(super) fn method(part: &Part, point: &Point, arms: &[Arm], baseline: usize) -> Method {
    let is_program = |arm: &Arm| matches!(arm.kind, ArmKind::Program(_) | ArmKind::WithoutPoller);
    let is_alone = part.experiment.takes_all(&arms[baseline].kind);
    let takes_turns = !part.rates && !is_alone && part.experiment.takes_turns(&point.axes);
    if takes_turns && !arms.iter().any(is_program) { Method::Turns } else { Method::Runs }
}

/// The arms, and the baseline once more.
pub(super) fn with_same_again(mut arms: Vec<Arm>, baseline: usize) -> Vec<Arm> {
    let kind = arms[baseline].kind.clone();
    arms.push(Arm { name: SAME_AGAIN.to_owned(), kind });
    arms
}

/// What is wrong with the arms that a user brought, and with a load from another host, a line for each mistake.
#[must_use]
pub fn faults(job: &Job) -> Vec<String> {
    let mut faults = Vec::from_iter(agent_fault(job));
    for part in &job.parts {
        for Arm { name, kind } in &part.arms {
            let command_fault =
                command_fault(kind, part.experiment).map(|what| format!("arm {name}: {what}"));
            faults.extend(command_fault.filter(|command_fault| !faults.contains(command_fault)));
        }
    }
    faults
}

/// What an agent can't do: it gives a load in turns.
fn agent_fault(job: &Job) -> Option<String> {
    let is_agent = |value: &Value| {
        let axes: Axes = [("generator", value.clone())].into_iter().collect();
        Generator::agent(&axes).is_some()
    };
    let mut parts = job.parts.iter().filter(|part| {
        part.axes.get("generator").is_some_and(|values| values.iter().any(is_agent))
    });
    let part = parts.find(|part| part.rates || job.times_requests)?;
    let flag = if part.rates { "--rates" } else { "--request-times" };
    Some(format!(
        "{flag}: an agent gives a load in turns, which say what a request costs, and this needs whole runs; expected \
         neither with agent:NAME (`pollux load --agents` measures rates)"
    ))
}

fn command_fault(kind: &ArmKind, experiment: &dyn Experiment) -> Option<String> {
    let (command, more): (_, &[&str]) = match kind {
        ArmKind::Program(Program { command, .. }) => (command, &[]),
        ArmKind::Server { command } => (command, experiment.placeholders),
        ArmKind::Running { pid, address } => return running_fault(*pid, *address),
        ArmKind::Build(build) if !host::is_program(&build.program) => {
            let path = build.program.display();
            return Some(format!("{path}: no such program; expected a build of pollux"));
        }
        ArmKind::Build(build) => return build_fault(&build.program),
        _ => return None,
    };
    placeholder_fault(command, more, experiment).or_else(|| absent(command))
}

/// Another program than pollux, by what it says of its version: every run of it would fail.
fn build_fault(program: &Path) -> Option<String> {
    let path = program.display();
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped());
    let said = host::Program::start(&path.to_string(), command)
        .and_then(|mut running| running.output_within(patience::VERSION_SAID, &|| false));
    let said = match said {
        Ok(said) => said.lines().next().unwrap_or_default().to_owned(),
        Err(error) => return Some(format!("{path}: {error}; expected a build of pollux")),
    };
    let is_pollux = said.starts_with("pollux ");
    let short: String = said.chars().take(SAID_CHARS_MAX).collect();
    (!is_pollux)
        .then(|| format!("{path}: answers --version with \"{short}\"; expected a build of pollux"))
}

/// A `{NAME}` that nothing stands for. Braces around anything but a name are the program's own.
fn placeholder_fault(command: &str, more: &[&str], experiment: &dyn Experiment) -> Option<String> {
    let known: Vec<&str> =
        more.iter().copied().chain(experiment.axes.iter().map(|axis| axis.name)).collect();
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    // What stands behind a dollar sign is the program's own variable.
    let line = command.replace("${", "$");
    let mut names = line.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    let wrong = names.find(|name| is_name(name) && !known.contains(name))?;
    let expected: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
    Some(format!("{{{wrong}}} has no meaning in {experiment}; expected {}", expected.join(", ")))
}

/// A program that is not there: every run of it would fail.
fn absent(command: &str) -> Option<String> {
    let words = shell_words::split(command).ok()?;
    let program = words.first().filter(|word| !word.contains('{'))?;
    let is_there = if program.contains('/') {
        host::is_program(Path::new(program))
    } else {
        host::find_program(program).is_some()
    };
    (!is_there).then(|| format!("{program}: no such program; expected a path or a name in PATH"))
}

/// Why this machine can't give what is wanted, if it can't: each reason names the remedy where
/// one is known.
#[must_use]
pub fn missing_here(wanted: Requirement) -> Option<String> {
    match wanted {
        Requirement::Generator(generator) => missing_generator(generator),
        Requirement::Driver(driver) => missing_driver(driver),
        Requirement::Peer(peer) => (peer.missing)(),
        Requirement::Form(form) => missing_form(form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_measures_no_rates() {
        let job = |line: &str| {
            let text = format!("[[job]]\nexperiment = \"http\"\ngenerator = \"agent:a\"\n{line}");
            crate::job::of_text(&text)
        };
        assert_eq!(faults(&job("")), [""; 0]);
        let said = faults(&job("rates = true"));
        assert!(said.len() == 1 && said[0].starts_with("--rates: an agent gives"), "{said:?}");
    }

    fn job(line: &str) -> Job {
        let text = format!(
            "[[job]]\nexperiment = \"pipes\"\n\
         arms = [\"epoll\", {{ name = \"mine\", command = '{line}', pattern = '(.*)' }}]\n"
        );
        crate::job::of_text(&text)
    }

    #[test]
    fn a_program_that_is_not_there_and_a_placeholder_that_is_not_an_axis_are_found_before_the_run()
    {
        assert_eq!(faults(&job("sh -c {pipes}")), [""; 0]);
        assert_eq!(faults(&job("sh -c \"${HOME} { b }\"")), [""; 0], "a shell's own braces");
        let said = faults(&job("./nosuch {pipes}"));
        assert_eq!(
            said,
            ["arm mine: ./nosuch: no such program; expected a path or a name in PATH"]
        );
        let said = faults(&job("sh {connections}"));
        assert_eq!(
            said,
            [
                "arm mine: {connections} has no meaning in pipes; expected {pipes}, {rule}, {messages}, \
         {message_bytes}"
            ]
        );
    }
}
