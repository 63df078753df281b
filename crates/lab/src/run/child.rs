//! Fresh processes: one for each run of an arm of pollux, one for each external command.
//!
//! A child leads its own process group, so that Ctrl-C on the terminal reaches only the runner,
//! which lets the run end. When it ends, what it left running in its group is killed. Our own
//! children also die with the runner; an external command outlives a runner that is killed. Output is read while the child runs and
//! is bounded; a child that outlives its deadline is killed with its whole group.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Most bytes kept of what a child says; the rest is read and dropped.
const OUTPUT_MAX: usize = 4 << 20;
/// Longest line that is looked at.
pub(super) const LINE_MAX: u64 = 1 << 20;

/// What a child process left behind.
#[derive(Debug)]
pub(super) struct Ended {
    /// How it ended.
    pub(super) status: ExitStatus,
    /// Its standard output.
    pub(super) stdout: String,
    /// Its standard error.
    pub(super) stderr: String,
    /// Wall time.
    pub(super) elapsed: Duration,
}

/// Why a child gave no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    #[error("could not start {program}: {cause}")]
    Start { program: String, cause: io::Error },
    #[error("did not end within {0:.1?} and was killed")]
    Deadline(Duration),
    #[error("stopped by the user")]
    Stopped,
    #[error("could not be waited for: {0}")]
    Wait(io::Error),
}

enum Said {
    Out(String),
    Err(String),
    Closed,
}

/// Runs `command` to its end with `input` on standard input; `on_line` receives each line of its
/// standard output when it comes. `is_stopped` is asked while waiting.
pub(super) fn run(
    mut command: Command,
    input: &str,
    deadline: Duration,
    is_stopped: &dyn Fn() -> bool,
    on_line: &mut dyn FnMut(&str),
) -> Result<Ended, ChildError> {
    let start = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|cause| ChildError::Start { program, cause })?;
    let mut child = Guard::of(child);
    if let Some(mut stdin) = child.child.stdin.take() {
        // A child that does not read its input says on standard error why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let lines = listen(&mut child.child);
    let (mut stdout, mut stderr, mut open) = (String::new(), String::new(), 2);
    while open > 0 {
        if is_stopped() {
            return Err(ChildError::Stopped);
        }
        // Asked before each line: a child that never falls silent has a deadline as well.
        if start.elapsed() > deadline {
            return Err(ChildError::Deadline(deadline));
        }
        match lines.recv_timeout(PATIENCE) {
            Ok(Said::Out(line)) => {
                on_line(&line);
                keep(&mut stdout, &line);
            }
            Ok(Said::Err(line)) => keep(&mut stderr, &line),
            Ok(Said::Closed) => open -= 1,
            // Silent, and perhaps over: what it left behind may hold its output open.
            Err(RecvTimeoutError::Timeout) if child.has_ended() => child.kill_group(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().map_err(ChildError::Wait)?;
    Ok(Ended { status, stdout, stderr, elapsed: start.elapsed() })
}

/// How long a stop or a deadline may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(200);

/// Kills what is left of a child's group, whatever happened.
pub(super) struct Guard {
    child: Child,
    is_reaped: bool,
}

impl Guard {
    /// Of a process that leads its own group.
    pub(super) fn of(child: Child) -> Self {
        Self { child, is_reaped: false }
    }

    /// Whether the child has ended; it stays a zombie, so that its number is not used again.
    pub(super) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = self.pid().map(|pid| waitid(WaitId::Pid(pid), options));
        !matches!(ended, Some(Ok(None)))
    }

    /// Waits for the child's end, then ends what it left behind in its group.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(pid) = self.pid() {
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        }
        self.kill_group();
        self.is_reaped = true;
        self.child.wait()
    }

    /// Ends everything in the child's group. Nothing is there any more, in the best case.
    pub(super) fn kill_group(&self) {
        if let Some(group) = self.pid() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill_group();
            let _ = self.child.wait();
        }
    }
}

/// What a child says, line by line as it comes.
fn listen(child: &mut Child) -> Receiver<Said> {
    let (sender, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        read_lines(stdout, sender.clone(), Said::Out);
    }
    if let Some(stderr) = child.stderr.take() {
        read_lines(stderr, sender, Said::Err);
    }
    lines
}

fn read_lines(from: impl Read + Send + 'static, to: Sender<Said>, wrap: fn(String) -> Said) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(1..) = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            if to.send(wrap(String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
            line.clear();
        }
        // The receiver may have given up on the child.
        let _ = to.send(Said::Closed);
    });
}

fn keep(text: &mut String, line: &str) {
    if text.len() + line.len() <= OUTPUT_MAX {
        text.push_str(line);
    }
}

/// The last lines of what a failed child said, for a message.
pub(super) fn last_words(ended: &Ended) -> String {
    const LINES: usize = 3;
    let text = if ended.stderr.trim().is_empty() { &ended.stdout } else { &ended.stderr };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    if last.is_empty() { ended.status.to_string() } else { format!("{}: {last}", ended.status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn output_comes_line_by_line_and_whole() {
        let mut lines = Vec::new();
        let ended =
            run(shell("cat; echo err >&2; exit 3"), "a\nb\n", LONG, &|| false, &mut |line| {
                lines.push(line.to_owned());
            });
        let ended = ended.expect("the shell runs");
        assert_eq!(lines, ["a\n", "b\n"]);
        assert_eq!((ended.stderr.as_str(), ended.status.code()), ("err\n", Some(3)));
        assert!(last_words(&ended).ends_with("err"));
    }

    #[test]
    fn a_child_beyond_its_deadline_is_killed_with_its_children() {
        let start = Instant::now();
        let ended = run(shell("sleep 60 & wait"), "", Duration::ZERO, &|| false, &mut |_| {});
        assert!(matches!(ended, Err(ChildError::Deadline(_))), "{ended:?}");
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_child_that_never_falls_silent_is_killed_at_its_deadline() {
        let deadline = Duration::from_millis(50);
        let ended = run(shell("yes 55"), "", deadline, &|| false, &mut |_| {});
        assert!(matches!(ended, Err(ChildError::Deadline(_))), "{ended:?}");
    }

    #[test]
    fn what_a_child_leaves_running_is_not_waited_for() {
        let start = Instant::now();
        let ended = run(shell("echo 123; sleep 60 & exit 0"), "", LONG, &|| false, &mut |_| {});
        let ended = ended.expect("the shell ended well");
        assert_eq!((ended.stdout.as_str(), ended.status.code()), ("123\n", Some(0)));
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_stop_ends_the_child() {
        let ended = run(shell("sleep 60"), "", LONG, &|| true, &mut |_| {});
        assert!(matches!(ended, Err(ChildError::Stopped)), "{ended:?}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let ended = run(Command::new("./no-such-program"), "", LONG, &|| false, &mut |_| {});
        assert!(ended.expect_err("missing").to_string().contains("./no-such-program"));
    }
}
