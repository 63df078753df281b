//! A subject that is a program of its own, with one measured thread: C programs that the lab builds.
//!
//! The program says `ready` when it is set up; for each line with a number of nanoseconds on its
//! standard input it works for so long and says how many units it did; both lines end with the CPU
//! time in nanoseconds that its measured thread has used so far. It ends when its input does.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::{Described, Life, Stint, Subject};
use crate::error::MeasureError;

/// A program that takes turns.
pub(crate) struct Program {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// CPU time of its measured thread at the end of its last turn.
    used: Duration,
}

impl Program {
    /// Starts `command` and waits until it is ready; `name` stands for it in messages.
    pub(crate) fn start(name: &str, mut command: Command) -> Result<Self, MeasureError> {
        let setup = |cause| MeasureError::Setup { what: format!("the program for {name}"), cause };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(setup)?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it was made a pipe"));
        let (name, used) = (name.to_owned(), Duration::ZERO);
        let mut program = Self { name, child, stdin, stdout, used };
        match program.word()?.as_str() {
            "ready" => Ok(program),
            other => Err(program.failed(&format!("said \"{other}\" before it was ready"))),
        }
    }

    /// The first word of the next line, behind which the CPU time stands.
    fn word(&mut self) -> Result<String, MeasureError> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        if read.map_err(MeasureError::io("read"))? == 0 {
            return Err(self.failed("ended too early"));
        }
        let parts = line.split_once(' ');
        let parts = parts.and_then(|(word, ns)| Some((word, ns.trim().parse::<u64>().ok()?)));
        let Some((word, ns)) = parts else {
            return Err(self.failed(&format!("said \"{}\"", line.trim())));
        };
        self.used = Duration::from_nanos(ns);
        Ok(word.to_owned())
    }

    fn failed(&self, what: &str) -> MeasureError {
        MeasureError::Program { program: self.name.clone(), what: what.to_owned() }
    }
}

impl Subject for Program {
    fn turn(&mut self, stint: Stint) -> Result<u64, MeasureError> {
        let mut stdin = self.stdin.as_ref().expect("open until the end");
        let told = writeln!(stdin, "{}", stint.length.as_nanos());
        told.map_err(MeasureError::io("write"))?;
        let word = self.word()?;
        word.parse().map_err(|_| self.failed(&format!("said \"{word}\", not a number of units")))
    }

    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(self.used)
    }

    fn threads(&mut self) -> Vec<(u32, u32)> {
        vec![(self.child.id(), self.child.id())]
    }

    fn described(&self) -> Described {
        Described::default()
    }

    fn end(mut self: Box<Self>) -> Result<Life, MeasureError> {
        drop(self.stdin.take());
        let status = self.child.wait();
        let status = status.map_err(MeasureError::io("waitid"))?;
        match status.success() {
            true => Ok(Life::default()),
            false => Err(self.failed(&format!("ended with {status}"))),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
