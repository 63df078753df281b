//! A program that runs with the library before its C library, its descendants, and the memory that they
//! write to; and which programs are out of reach of that library.
//!
//! Those are recognised from their file, before anything is started. What can only be seen later (a program that
//! starts another one of these, or makes its system calls itself) shows in the result: such a process has no figures.
//!
//! The observer adopts what the program leaves behind (PR_SET_CHILD_SUBREAPER), so a server that goes
//! into the background is observed to its end as well.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{fmt, io};

use pollux_host::descendants;
use pollux_host::symbols::Elf;
use pollux_sys::loop_stats::{Region, VARIABLE, WORDS};
use pollux_sys::shared::SharedWords;
use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getgid, getuid, kill_process, set_child_subreaper, wait,
};

use crate::Summary;
use crate::summary::Source;

/// Scripts that are run by scripts, at most.
const SCRIPTS_MAX: usize = 4;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;
const EXECUTES: u32 = 0o111;
/// The variable that names the mechanism, as for programs that link `libpollux_epoll`.
const POLLER: &str = "PX_POLLER";
/// The variable of the dynamic linker.
const PRELOAD: &str = "LD_PRELOAD";
/// The file of the library that stands before the program's C library.
const LIBRARY: &str = "libpollux_preload.so";

/// Why a program or a process cannot be observed: one line that names it, and what helps where something
/// does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotObservable {
    is_missing: bool,
    text: String,
}

impl NotObservable {
    pub(crate) fn new(text: String) -> Self {
        Self { is_missing: false, text }
    }

    pub(crate) fn missing(text: String) -> Self {
        Self { is_missing: true, text }
    }

    /// Whether there is no such program or process.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }
}

impl fmt::Display for NotObservable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NotObservable {}

/// Finds a program as execvp(3) does and looks at its file, or at that of its script's interpreter.
///
/// # Errors
/// Why it is out of reach.
pub fn within_reach(name: &str) -> Result<PathBuf, NotObservable> {
    let path = find(name)?;
    look_at(&path, SCRIPTS_MAX)?;
    Ok(path)
}

fn look_at(path: &Path, scripts_left: usize) -> Result<(), NotObservable> {
    let refused = |why: &str| NotObservable::new(format!("{}: {why}", path.display()));
    let unreadable = |error: io::Error| refused(&format!("cannot be read: {error}"));
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    let Some(elf) = Elf::read(path).map_err(unreadable)? else {
        return match interpreter_of(path).filter(|_| scripts_left > 0) {
            Some(interpreter) => look_at(&interpreter, scripts_left - 1),
            None => Err(refused("neither a 64-bit ELF program nor a script")),
        };
    };
    if !elf.is_for_this_machine() {
        return Err(refused("a program for another kind of machine"));
    }
    // In both cases the dynamic linker takes no library from outside.
    if changes_user(&metadata) {
        return Err(refused(
            "a setuid or setgid program, for which the dynamic linker takes no library from outside; \
             run it as the user and group that it changes to",
        ));
    }
    if gains_capabilities(path) {
        return Err(refused(
            "its file gives it capabilities (getcap), so the dynamic linker takes no library from \
             outside; run it as root, or a copy without them",
        ));
    }
    if elf.has_section(".note.go.buildid") || elf.has_section(".go.buildinfo") {
        return Err(refused(
            "a Go program, which makes its system calls without the C library; none of them could be \
             seen",
        ));
    }
    match elf.interpreter() {
        None => Err(refused(
            "a static program, which no library can be put before; link it dynamically",
        )),
        Some(linker) if !linker.contains("ld-linux") => Err(refused(&format!(
            "its dynamic linker is {linker}; the library is for programs of the GNU C library"
        ))),
        Some(_) => Ok(()),
    }
}

/// Whether a program runs as another user or group than this one: to be setuid alone changes nothing.
fn changes_user(of: &Metadata) -> bool {
    let has = |bits: u32| of.mode() & bits == bits;
    has(SET_USER) && of.uid() != getuid().as_raw()
        || has(SET_GROUP | GROUP_EXECUTES) && of.gid() != getgid().as_raw()
}

/// Whether the file of a program gives capabilities (`capabilities(7)`) that this user does not have anyhow.
fn gains_capabilities(path: &Path) -> bool {
    let mut value = [0; 64];
    !getuid().is_root() && getxattr(path, "security.capability", &mut value).is_ok()
}

/// The program that the kernel runs for a script; that of `env` is looked for as env(1) does.
fn interpreter_of(script: &Path) -> Option<PathBuf> {
    const LINE_BYTES_MAX: usize = 256;
    let text = std::fs::read(script).ok()?;
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let first = PathBuf::from(words.next()?);
    if first.file_name()? != "env" {
        return Some(first);
    }
    find(words.find(|word| !word.starts_with('-') && !word.contains('='))?).ok()
}

/// The file of a program: a path, or a name that is looked for in PATH.
fn find(name: &str) -> Result<PathBuf, NotObservable> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.mode() & EXECUTES != 0)
    };
    let paths: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
    };
    if let Some(program) = paths.iter().find(|path| is_program(path)) {
        return Ok(program.clone());
    }
    let there = paths.into_iter().find(|path| path.exists());
    Err(match there {
        None => NotObservable::missing(format!("{name}: program not found")),
        Some(path) => NotObservable::new(format!(
            "{}: not a file that may be executed; expected a program or a script with the x bit",
            path.display()
        )),
    })
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
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
    pub arguments: &'a [OsString],
    /// The mechanism that takes the place of the kernel's epoll, by its name.
    pub poller: Option<&'static str>,
    /// Whether its calls are counted.
    pub counts: bool,
}

/// A program that was started.
pub struct Session {
    words: SharedWords,
    /// The library, where it is named by this descriptor.
    _library: Option<File>,
    /// Not a `pollux_host::Program`, which ends its process when it is dropped and waits for that one alone.
    child: Child,
    ended: Option<ExitStatus>,
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
        let (mut preload, library) = preloaded(start.library)?;
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
        Ok(Self { words, _library: library, child, ended: None, is_empty: false, began })
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
    pub fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get().unsigned_abs() == self.child.id() {
                        let signal = status.terminating_signal().map(ExitStatus::Signal);
                        let code = status.exit_status().map(ExitStatus::Code);
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

/// How the variable names the library: by its path; where that has what separates names or stands for something else
/// there (`ld.so(8)`), by a descriptor of this process, which has to stay open.
fn preloaded(library: &Path) -> io::Result<(OsString, Option<File>)> {
    let is_special = |byte: &u8| matches!(byte, b' ' | b':' | b'$');
    let path = library.as_os_str();
    if !path.as_bytes().iter().any(is_special) {
        return Ok((path.to_owned(), None));
    }
    let file = File::open(library)?;
    let name = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((name.into(), Some(file)))
}

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
