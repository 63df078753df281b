//! The chain on C libraries: one small program, built for each with the compiler of the machine.
//!
//! The program stands beside this file and says what it prints. It is built once for each record,
//! into the private folder of its runs, and its own process is what is measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::arm::Peer;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::turns::Program;
use pollux_processes::compiler;

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
    if let Some(reason) = crate::host::programs::missing("cc", "gcc") {
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

/// Starts the program of `peer`, which works in the turns.
pub(super) fn start(peer: Peer, spec: &RunSpec) -> Result<Program, MeasureError> {
    let mut command = Command::new(built(peer, &spec.scratch)?);
    for axis in ["pairs", "active", "writes"] {
        command.arg(spec.count(axis).to_string());
    }
    Program::start(peer.name(), command)
}

/// The program; it stays in the private folder for the runs that follow.
fn built(peer: Peer, scratch: &Path) -> Result<PathBuf, MeasureError> {
    let library = library(peer).ok_or_else(|| failed(peer, "is no C library"))?;
    let (define, link) = (format!("-D{}", library.define), format!("-l{}", library.link));
    let program = format!("chain-{peer}");
    Ok(compiler::built(scratch, &program, PROGRAM, &[&define, &link])?)
}

fn failed(peer: Peer, what: &str) -> MeasureError {
    MeasureError::Program { program: peer.name().to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_are_built() {
        assert!(library(Peer::Libuv).is_some() && library(Peer::Nginx).is_none());
    }
}
