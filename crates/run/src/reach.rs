//! Which programs are out of reach of a preloaded library. Each is recognised from its file, before
//! anything is started.
//!
//! What can only be seen later (a program that starts another one of these, or makes its system calls
//! itself) shows in the result: such a process has no figures.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::{getgid, getuid};

use crate::symbols::Elf;

/// The machine that this program is for (EM_X86_64, EM_AARCH64).
pub(crate) const MACHINE: u64 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
/// Scripts that are run by scripts, at most.
const SCRIPTS_MAX: usize = 4;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;
const EXECUTES: u32 = 0o111;

/// Why a program or a process cannot be watched: one line that names it, and what helps where something
/// does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfReach {
    is_missing: bool,
    text: String,
}

impl OutOfReach {
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

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OutOfReach {}

/// Finds a program as execvp(3) does and looks at its file, or at that of its script's interpreter.
///
/// # Errors
/// Why it is out of reach.
pub fn within_reach(name: &str) -> Result<PathBuf, OutOfReach> {
    let path = find(name)?;
    look_at(&path, SCRIPTS_MAX)?;
    Ok(path)
}

fn look_at(path: &Path, scripts_left: usize) -> Result<(), OutOfReach> {
    let refused = |why: &str| OutOfReach::new(format!("{}: {why}", path.display()));
    let unreadable = |error: std::io::Error| refused(&format!("cannot be read: {error}"));
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    let Some(elf) = Elf::read(path).map_err(unreadable)? else {
        return match interpreter_of(path).filter(|_| scripts_left > 0) {
            Some(interpreter) => look_at(&interpreter, scripts_left - 1),
            None => Err(refused("neither a 64-bit ELF program nor a script")),
        };
    };
    if elf.machine() != MACHINE {
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
fn find(name: &str) -> Result<PathBuf, OutOfReach> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.mode() & EXECUTES != 0)
    };
    let paths: Vec<PathBuf> = match name.contains('/') {
        true => vec![PathBuf::from(name)],
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
        }
    };
    if let Some(program) = paths.iter().find(|path| is_program(path)) {
        return Ok(program.clone());
    }
    let there = paths.into_iter().find(|path| path.exists());
    Err(match there {
        None => OutOfReach::missing(format!("{name}: program not found")),
        Some(path) => OutOfReach::new(format!(
            "{}: not a file that may be executed; expected a program or a script with the x bit",
            path.display()
        )),
    })
}
