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

/// The library libev.
pub(super) const LIBEV: Peer = Peer { name: LIBRARIES[0].name, missing: || missing(&LIBRARIES[0]) };
/// The library libuv.
pub(super) const LIBUV: Peer = Peer { name: LIBRARIES[1].name, missing: || missing(&LIBRARIES[1]) };
/// The library libevent.
pub(super) const LIBEVENT: Peer =
    Peer { name: LIBRARIES[2].name, missing: || missing(&LIBRARIES[2]) };

/// How a library is called by compiler, linker and Debian.
pub(super) struct Library {
    name: &'static str,
    define: &'static str,
    header: &'static str,
    link: &'static str,
    package: &'static str,
}

const LIBRARIES: [Library; 3] = [
    Library {
        name: "libev",
        define: "WITH_LIBEV",
        header: "ev.h",
        link: "ev",
        package: "libev-dev",
    },
    Library {
        name: "libuv",
        define: "WITH_LIBUV",
        header: "uv.h",
        link: "uv",
        package: "libuv1-dev",
    },
    Library {
        name: "libevent",
        define: "WITH_LIBEVENT",
        header: "event2/event.h",
        link: "event",
        package: "libevent-dev",
    },
];

/// The library of this name.
pub(super) fn called(name: &str) -> Option<&'static Library> {
    LIBRARIES.iter().find(|library| library.name == name)
}

/// Why its program can't be built here, with the package to install.
fn missing(library: &Library) -> Option<String> {
    if let Some(reason) = crate::host::programs::missing("cc", "gcc") {
        return Some(reason);
    }
    let Library { header, package, .. } = library;
    let mut compiler = Command::new("cc");
    compiler.args(["-E", "-include", header, "-x", "c", "/dev/null"]);
    let ran = compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = ran.is_ok_and(|status| status.success());
    (!is_there)
        .then(|| format!("{header} is not installed here (Debian: apt-get install {package})"))
}

/// Starts its program, which works in the turns.
pub(super) fn start(library: &Library, spec: &RunSpec) -> Result<Program, MeasureError> {
    let mut command = Command::new(built(library, &spec.scratch)?);
    for axis in ["pairs", "active", "writes"] {
        command.arg(spec.count(axis).to_string());
    }
    Program::start(library.name, command)
}

/// The program; it stays in the private folder for the runs that follow.
fn built(library: &Library, scratch: &Path) -> Result<PathBuf, MeasureError> {
    let (define, link) = (format!("-D{}", library.define), format!("-l{}", library.link));
    let program = format!("chain-{}", library.name);
    Ok(compiler::built(scratch, &program, PROGRAM, &[&define, &link])?)
}
