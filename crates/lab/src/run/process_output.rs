//! The process of a run, until it ended.
//!
//! Fresh processes: one for each run of an arm of pollux, one for each external command. Each leads its own process
//! group, so that Ctrl-C on the terminal reaches only the runner, which lets the run end. Output is read while it runs
//! and is bounded; one that outlives its deadline is killed with its whole group.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use pollux_host::{self as processes, patience};
use pollux_settings::command::output::error_chain;

/// Most bytes kept of what a process prints; the rest is read and dropped.
const OUTPUT_MAX: usize = 4 << 20;

/// What a process left behind.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    /// How it ended.
    pub(super) status: ExitStatus,
    /// Its standard output.
    pub(super) stdout: String,
    /// Its standard error.
    pub(super) stderr: String,
    /// Wall time.
    pub(super) elapsed: Duration,
}

impl ProcessOutput {
    /// The last that a failed process of the lab said, or how it ended where it said nothing.
    pub(super) fn words(&self) -> String {
        match self.stderr.trim() {
            "" => self.status.to_string(),
            said => said.strip_prefix("error: ").unwrap_or(said).to_owned(),
        }
    }

    /// The last lines of what a failed process said, for a message.
    pub(super) fn stderr_tail(&self) -> String {
        const LINES: usize = 3;
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
        let last = last.strip_prefix("error: ").unwrap_or(&last);
        if last.is_empty() { self.status.to_string() } else { format!("{}: {last}", self.status) }
    }
}

/// Runs `command` to its end with `input` on standard input; `on_line` receives each line of its
/// standard output when it comes. `is_stopped` is asked while waiting.
pub(super) fn run_to_end(
    command: Command,
    input: &str,
    deadline: Duration,
    is_stopped: &dyn Fn() -> bool,
    on_line: &mut dyn FnMut(&str),
) -> Result<ProcessOutput, String> {
    let start = Instant::now();
    let mut process = started(command)?;
    if !input.is_empty() {
        process.write_line(input);
    }
    process.end_input();
    let mut stdout = String::new();
    let mut stderr = String::new();
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
    while let Ok(Some(line)) = process.line_within(patience::LAST_WORDS) {
        keep(&mut stderr, &line);
    }
    Ok(ProcessOutput { status, stdout, stderr, elapsed })
}

/// Starts `command` in a group of its own.
pub(super) fn started(command: Command) -> Result<processes::Program, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    processes::Program::start_group(&program, command).map_err(|error| match error {
        processes::Error::Setup { cause, .. } => format!("could not start {program}: {cause}"),
        error => error_chain(&error),
    })
}

/// Why a process is not waited for any longer.
pub(super) fn stopped_or(error: processes::Error) -> String {
    match error {
        processes::Error::Interrupted => "stopped by the user".to_owned(),
        error => error_chain(&error),
    }
}

fn keep(text: &mut String, line: &str) {
    if text.len() + line.len() < OUTPUT_MAX {
        text.push_str(line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use pollux_testing::DEADLINE;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(
        script: &str,
        deadline: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<ProcessOutput, String> {
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
        assert!(ended.stderr_tail().ends_with("err"));
    }

    #[test]
    fn what_outlives_its_deadline_or_is_stopped_is_killed_with_its_children() {
        let short = Duration::from_millis(50);
        let late = "did not end within 50.0ms and was killed";
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
