//! What can be said of external programs before they are run: whether they are there, and whether their
//! placeholders are axes.

use std::path::Path;

use crate::arm::{Arm, ArmKind, Program};
use crate::experiments::{Experiment, running_fault};
use crate::host::programs;
use crate::job::Job;

/// What is wrong with the arms that a user brought, a line for each mistake.
#[must_use]
pub fn faults(job: &Job) -> Vec<String> {
    let mut faults = Vec::new();
    for part in &job.parts {
        for Arm { name, kind } in &part.arms {
            let fault = fault(kind, part.experiment).map(|what| format!("arm {name}: {what}"));
            faults.extend(fault.filter(|fault| !faults.contains(fault)));
        }
    }
    faults
}

fn fault(kind: &ArmKind, experiment: &dyn Experiment) -> Option<String> {
    let (command, more): (_, &[&str]) = match kind {
        ArmKind::Program(Program { command, .. }) => (command, &[]),
        ArmKind::Server { command } => (command, experiment.places),
        ArmKind::Running { pid, address } => return running_fault(*pid, *address),
        ArmKind::Build(build) if !programs::is_program(&build.program) => {
            let path = build.program.display();
            return Some(format!("{path}: no such program; expected a build of pollux"));
        }
        _ => return None,
    };
    placeholder_fault(command, more, experiment).or_else(|| absent(command))
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
    Some(format!(
        "{{{wrong}}} stands for nothing in {experiment}; expected {}",
        expected.join(", ")
    ))
}

/// A program that is not there: every run of it would fail.
fn absent(command: &str) -> Option<String> {
    let words = shell_words::split(command).ok()?;
    let program = words.first().filter(|word| !word.contains('{'))?;
    let is_there = match program.contains('/') {
        true => programs::is_program(Path::new(program)),
        false => programs::find(program).is_some(),
    };
    (!is_there).then(|| format!("{program}: no such program; expected a path or a name in PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
                "arm mine: {connections} stands for nothing in pipes; expected {pipes}, {rule}, {messages}, \
             {message_bytes}"
            ]
        );
    }
}
