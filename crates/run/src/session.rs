//! A program that runs with the library before its C library, its descendants, and the memory that they
//! write to.
//!
//! The observer adopts what the program leaves behind (PR_SET_CHILD_SUBREAPER), so a server that goes
//! into the background is watched to its end as well.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pollux_loop_stats::{Region, VARIABLE, WORDS};
use pollux_processes::descendants;
use pollux_sys::shared::SharedWords;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

use crate::Summary;
use crate::summary::Source;

/// The variable that names the mechanism, as for programs that link `libpollux_epoll`.
const POLLER: &str = "PX_POLLER";
/// The variable of the dynamic linker.
const PRELOAD: &str = "LD_PRELOAD";

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What is started, and how.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The library that goes before the program's C library.
    pub library: &'a Path,
    /// The program's file.
    pub program: &'a Path,
    /// The name that it is called by.
    pub name: &'a str,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// The mechanism that takes the place of the kernel's epoll, by its name.
    pub poller: Option<&'static str>,
    /// Whether its calls are counted.
    pub counts: bool,
}

/// A program that was started.
pub struct Session {
    words: SharedWords,
    /// Not a `pollux_processes::Program`, which ends its process when it is dropped and waits for that one alone.
    child: Child,
    ended: Option<Ended>,
    is_empty: bool,
    began: Instant,
}

impl Session {
    /// Starts a program, which keeps this process's standard streams, folder and environment.
    ///
    /// # Errors
    /// No memory, or the program could not be started.
    pub fn start(start: Start<'_>) -> io::Result<Self> {
        let words = SharedWords::create(WORDS)?;
        Region::begin(&words).expect("as many words as it has");
        // Processes that are started later have no descriptor of ours, but this name.
        let path = format!("/proc/{}/fd/{}", std::process::id(), words.as_fd().as_raw_fd());
        let mut preload = start.library.as_os_str().to_owned();
        if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut command = Command::new(start.program);
        command.arg0(start.name).args(start.arguments).env(PRELOAD, preload);
        // Not what another run of this kind set for this process.
        command.env_remove(VARIABLE).env_remove(POLLER);
        command.envs(start.counts.then_some((VARIABLE, path)));
        command.envs(start.poller.map(|name| (POLLER, name)));
        let began = Instant::now();
        let child = command.spawn()?;
        Ok(Self { words, child, ended: None, is_empty: false, began })
    }

    /// The program's first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the processes that have ended by now. How the first one ended, once it did.
    ///
    /// # Errors
    /// What waitpid(2) said.
    pub fn reap(&mut self) -> io::Result<Option<Ended>> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get().unsigned_abs() == self.child.id() {
                        let signal = status.terminating_signal().map(Ended::Signal);
                        let code = status.exit_status().map(Ended::Code);
                        self.ended = signal.or(code);
                    }
                }
                Ok(None) => return Ok(self.ended),
                Err(Errno::CHILD) => {
                    self.is_empty = true;
                    return Ok(self.ended);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether all processes that the program started are gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_empty
    }

    /// Sends a signal to the first process, or to all that it left behind.
    pub fn signal(&self, signal: Signal) {
        let pids = match self.ended {
            None => vec![self.child.id()],
            // They became children of this process, or are children of such.
            Some(_) => descendants(std::process::id()),
        };
        for pid in pids.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            // One that ended meanwhile needs none.
            let _ = kill_process(pid, signal);
        }
    }

    /// The time since the start.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        self.began.elapsed()
    }

    /// The figures so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let region = Region::of(&self.words).expect("made at the start");
        Summary::of(region, self.lasted(), Source::Library)
    }
}

/// The file of the library that stands before the program's C library.
const LIBRARY: &str = "libpollux_preload.so";

/// Finds the library where cargo builds it, beside the program, and where `cargo xtask install` puts it.
///
/// # Errors
/// The places where it was looked for.
pub fn library(own_folder: Option<&Path>) -> Result<PathBuf, String> {
    let places: Vec<PathBuf> = own_folder.map(places).into_iter().flatten().collect();
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!(
            "{LIBRARY} was not found: expected {}; in the sources of pollux, `cargo build --release` makes \
             it, and `cargo xtask install --prefix DIR` installs it",
            places.join(", or ")
        )
    })
}

fn places(own: &Path) -> [PathBuf; 3] {
    // Cargo puts a dependency's library into deps; one beside the program may be of an earlier build.
    [own.join("deps").join(LIBRARY), own.join(LIBRARY), own.join("../lib/pollux").join(LIBRARY)]
}
