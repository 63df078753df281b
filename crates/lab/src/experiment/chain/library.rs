//! The chain on C libraries: one small program, built for each with the compiler of the machine.
//!
//! The program stands beside this file and says what it prints. It is built once for each record,
//! into the private folder of its runs, and its own process is what is measured.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Peer;
use crate::error::MeasureError;
use crate::host::compiler;
use crate::measure::{Gauge, Notice, RunSpec};

const PROGRAM: &str = include_str!("library.c");

/// How a library is called by compiler and linker.
struct Library {
    define: &'static str,
    header: &'static str,
    link: &'static str,
}

fn library(peer: Peer) -> Option<Library> {
    Some(match peer {
        Peer::Libev => Library { define: "WITH_LIBEV", header: "ev.h", link: "ev" },
        Peer::Libuv => Library { define: "WITH_LIBUV", header: "uv.h", link: "uv" },
        Peer::Libevent => {
            Library { define: "WITH_LIBEVENT", header: "event2/event.h", link: "event" }
        }
        _ => return None,
    })
}

/// Why the program for `peer` can't be built here, with the package to install.
pub(crate) fn missing(peer: Peer) -> Option<String> {
    let library = library(peer)?;
    if let Some(reason) = compiler::missing() {
        return Some(reason);
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-E", "-include", library.header, "-x", "c", "/dev/null"]);
    let ran = compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = ran.is_ok_and(|status| status.success());
    let package = peer.package().unwrap_or_default();
    (!is_there).then(|| {
        format!("{} is not installed here (Debian: apt-get install {package})", library.header)
    })
}

/// Runs the program of `peer` and passes on what it says.
pub(super) fn run(peer: Peer, spec: &RunSpec, gauge: &Gauge) -> Result<(), MeasureError> {
    let program = built(peer, &spec.scratch)?;
    let mut command = Command::new(program);
    for axis in ["pairs", "active", "writes"] {
        command.arg(spec.word(axis)?);
    }
    command.args([spec.ramp_ms, spec.runtime_ms, spec.interval_ms].map(|ms| ms.to_string()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let setup = |cause| MeasureError::Setup { what: format!("the program for {peer}"), cause };
    let mut running = Running(command.spawn().map_err(setup)?);
    let stdout = running.0.stdout.take().expect("it was made a pipe");
    let stdin = running.0.stdin.take().expect("it was made a pipe");
    match listen(stdout, stdin, gauge)? {
        true => Ok(()),
        false => Err(failed(peer, "ended before its window did")),
    }
}

/// The program; it stays in the private folder for the runs that follow.
fn built(peer: Peer, scratch: &Path) -> Result<PathBuf, MeasureError> {
    let library = library(peer).ok_or_else(|| failed(peer, "is no C library"))?;
    let (define, link) = (format!("-D{}", library.define), format!("-l{}", library.link));
    compiler::built(scratch, &format!("chain-{peer}"), PROGRAM, &[&define, &link])
}

/// Passes on what the program says; whether it came to the end of its window.
fn listen(stdout: ChildStdout, mut stdin: ChildStdin, gauge: &Gauge) -> Result<bool, MeasureError> {
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|cause| MeasureError::Io { call: "read", cause })?;
        if gauge.is_stopped() {
            return Ok(true);
        }
        match parsed(&line) {
            Some(Said::Ready(pid)) => gauge.announce(Notice::ready_elsewhere(pid), None),
            Some(Said::Open) => {
                gauge.open_window();
                // A program that has ended says no more, and that is seen below.
                let _ = stdin.write_all(b"\n");
            }
            Some(Said::At(events)) => gauge.events.store(events, Relaxed),
            Some(Said::Close(events, elapsed)) => {
                gauge.events.store(events, Relaxed);
                gauge.close_window(events, elapsed);
                return Ok(true);
            }
            None => return Err(MeasureError::Protocol(format!("the program said \"{line}\""))),
        }
    }
    Ok(false)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Ready(u32),
    Open,
    At(u64),
    Close(u64, Duration),
}

fn parsed(line: &str) -> Option<Said> {
    let mut words = line.split_ascii_whitespace();
    let said = match words.next()? {
        "ready" => Said::Ready(words.next()?.parse().ok()?),
        "open" => Said::Open,
        "at" => Said::At(words.next()?.parse().ok()?),
        "close" => {
            let events = words.next()?.parse().ok()?;
            Said::Close(events, Duration::from_nanos(words.next()?.parse().ok()?))
        }
        _ => return None,
    };
    words.next().is_none().then_some(said)
}

fn failed(peer: Peer, what: &str) -> MeasureError {
    MeasureError::Program { program: peer.name().to_owned(), what: what.to_owned() }
}

/// The program while it runs; whatever happens, it ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_says_is_understood_and_nothing_else() {
        assert_eq!(parsed("ready 17"), Some(Said::Ready(17)));
        assert_eq!(parsed("open"), Some(Said::Open));
        assert_eq!(parsed("at 20200"), Some(Said::At(20_200)));
        let close = Said::Close(30_300, Duration::from_micros(31));
        assert_eq!(parsed("close 30300 31000"), Some(close));
        for line in ["", "ready", "at x", "close 1", "open 1", "perhaps"] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    #[test]
    fn only_libraries_are_built() {
        assert!(library(Peer::Libuv).is_some() && library(Peer::Nginx).is_none());
    }
}
