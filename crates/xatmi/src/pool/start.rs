//! The start of a worker's process: program, arguments, environment, files, two descriptors.
//!
//! Only the pool's thread calls it, and no other thread of the process starts programs: between
//! the moment the two descriptors lose their close-on-exec flag and the moment they get it back
//! no other child can inherit them.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Access, FileType, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::log::Log;
use crate::access::{GROUP_VARIABLE, Group};
use crate::config::{Entry, ID_VARIABLE, PoolConfig};
use crate::memory::Files;
use crate::worker::{LINK_VARIABLE, MEMORY_VARIABLE, WAKE_VARIABLE, Wake};

/// Tells a worker, and what it starts, which pool it belongs to.
pub(super) const PREFIX_VARIABLE: &str = "NDRX_QPREFIX";

/// The program of the configuration: a script may run another one in its place.
pub(super) const PROGRAM_VARIABLE: &str = "POLLUX_POOL_PROGRAM";

/// Names of services, with commas, that a bridge may offer to other hosts: `exportsvcs`.
pub const EXPORTS_VARIABLE: &str = "POLLUX_POOL_EXPORTS";
/// Seconds between two service lists of a bridge, 0 for none: `brrefresh` in cycles.
pub const REFRESH_VARIABLE: &str = "POLLUX_POOL_REFRESH_S";
/// The program of bridges; it may stand beside that of the manager.
pub const BRIDGE_PROGRAM: &str = "tpbridge";

/// What a worker is started with.
pub(super) struct Start<'a> {
    pub(super) config: &'a PoolConfig,
    pub(super) entry: &'a Entry,
    pub(super) id: u32,
    pub(super) key: &'a str,
    pub(super) prefix: &'a str,
    pub(super) wake: Wake,
    pub(super) link: BorrowedFd<'a>,
    pub(super) slots: BorrowedFd<'a>,
    pub(super) slot: usize,
    /// The files of the memory that requests are in, and the number of the worker there.
    pub(super) memory: Option<(Files<BorrowedFd<'a>>, usize)>,
    /// Whose members may call.
    pub(super) group: Option<&'a Group>,
}

/// Keeps what the parent of this process has left open, beyond the standard three, from all
/// that it starts: a pool would hold their locks, and pipes whose readers wait for an end.
///
/// # Errors
/// EINVAL before Linux 5.11.
pub fn keep_from_children() -> io::Result<()> {
    pollux_sys::process::close_on_exec_from(3)
}

/// Starts the process.
///
/// # Errors
/// A sentence for people: no such program, a file that can't be opened, or what `fork(2)` and
/// `execve(2)` gave.
pub(super) fn spawn(start: &Start<'_>, log: &Log) -> Result<Child, String> {
    let entry = &start.entry.of_copy(start.id);
    let path = find(entry)?;
    let mut command = Command::new(&path);
    command.arg0(&entry.program);
    command.args(["-k", start.key, "-i", &start.id.to_string()]);
    command.args(&entry.system_options).arg("--").args(&entry.program_options);
    command.envs(entry.variables.iter().map(|(name, value)| (name, value)));
    let (link, slots) = (start.link.as_raw_fd(), start.slots.as_raw_fd());
    command.env(LINK_VARIABLE, format!("{link},{slots},{}", start.slot));
    match start.memory {
        Some((files, number)) => {
            let [records, claims, exchange] = files.map(|fd| fd.as_raw_fd());
            command.env(MEMORY_VARIABLE, format!("{records},{claims},{exchange},{number}"));
        }
        // This process may be a worker's child.
        None => {
            command.env_remove(MEMORY_VARIABLE);
        }
    }
    match start.group {
        Some(group) => command.env(GROUP_VARIABLE, group.id().to_string()),
        None => command.env_remove(GROUP_VARIABLE),
    };
    command.env(WAKE_VARIABLE, start.wake.name());
    command.env(PREFIX_VARIABLE, start.prefix);
    command.env(PROGRAM_VARIABLE, &entry.program);
    command.env(ID_VARIABLE, start.id.to_string());
    if entry.program == BRIDGE_PROGRAM {
        let settings = &start.config.settings;
        let refresh = settings.sanity * settings.bridge_refresh_cycles;
        command.env(EXPORTS_VARIABLE, start.config.exported_services.join(","));
        command.env(REFRESH_VARIABLE, refresh.as_secs().to_string());
    }
    command.stdin(Stdio::null()).process_group(0);
    let (out, error) = outputs(entry, log)?;
    command.stdout(out).stderr(error);
    let memory = start.memory.into_iter().flat_map(|(files, _)| files);
    let inherited: Vec<_> = [start.link, start.slots].into_iter().chain(memory).collect();
    let flagged = inherit(&inherited, FdFlags::empty());
    let spawned = flagged.and_then(|()| command.spawn());
    // Descriptors that stay without the flag would keep links open in every later worker.
    inherit(&inherited, FdFlags::CLOEXEC).map_err(|error| format!("fcntl F_SETFD: {error}"))?;
    spawned.map_err(|error| {
        let remedy = match error.kind() {
            // The file itself was found.
            io::ErrorKind::NotFound => {
                ": what its first line or its header names as interpreter is missing"
            }
            _ => "",
        };
        format!("{} could not be started: {error}{remedy}", path.display())
    })
}

/// Where the program of `entry` is, in the PATH that it would run with. A bridge may also stand beside
/// the program of this process.
///
/// # Errors
/// A sentence for people.
pub fn find(entry: &Entry) -> Result<PathBuf, String> {
    let own = entry.variables.iter().find(|(name, _)| name == "PATH");
    let path = own.map(|(_, value)| value.into()).or_else(|| std::env::var_os("PATH"));
    let path = path.unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let mut candidates = folders.map(|folder| folder.join(&entry.program));
    let found = candidates.find(|file| is_executable(file));
    let beside = || bridge_beside().filter(|_| entry.program == BRIDGE_PROGRAM);
    found.or_else(beside).ok_or_else(|| {
        let (program, path) = (&entry.program, path.to_string_lossy());
        let nor =
            if program == BRIDGE_PROGRAM { ", nor beside the pool's own program" } else { "" };
        format!(
            "no executable {program} in PATH ({path}){nor}; add the folder that holds it to PATH"
        )
    })
}

/// The bridge in the folder of this process's program.
fn bridge_beside() -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok()?;
    let bridge = own.parent()?.join(BRIDGE_PROGRAM);
    is_executable(&bridge).then_some(bridge)
}

/// Which of the files for its output could not be opened, and why; nothing is made for the look.
#[must_use]
pub fn output_faults(entry: &Entry) -> Vec<String> {
    let outputs = entry.ids().map(|id| entry.of_copy(id).output);
    let files = outputs.flat_map(|output| [output.error, output.out]).flatten();
    // Most often all copies have the same.
    let files: BTreeSet<PathBuf> = files.collect();
    files.iter().filter_map(|file| output_fault(file)).collect()
}

fn output_fault(file: &Path) -> Option<String> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let found = match rustix::fs::stat(file) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            Err(Errno::ISDIR)
        }
        Ok(_) => access(file, Access::WRITE_OK),
        Err(Errno::NOENT) => access(folder, Access::WRITE_OK | Access::EXEC_OK),
        Err(errno) => Err(errno),
    };
    found.err().map(|errno| output_error(file, &errno.into()))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.is_file())
        && access(file, Access::EXEC_OK).is_ok()
}

fn inherit(descriptors: &[BorrowedFd<'_>], flags: FdFlags) -> io::Result<()> {
    for descriptor in descriptors {
        fcntl_setfd(descriptor, flags)?;
    }
    Ok(())
}

/// Standard output and standard error: files that are appended to, else the manager's log.
fn outputs(entry: &Entry, log: &Log) -> Result<(File, File), String> {
    let open = |path: &Path| append_to(path).map_err(|error| output_error(path, &error));
    let log = || log.handle().map_err(|error| format!("the log: {error}"));
    let error = match &entry.output.error {
        Some(path) => open(path)?,
        None => log()?,
    };
    let out = match &entry.output.out {
        Some(path) => open(path)?,
        None => error.try_clone().map_err(|error| format!("dup: {error}"))?,
    };
    Ok((out, error))
}

/// Opens a file for output. A pipe without a reader is an error at once; one that is read is waited
/// for as usual, by the worker.
fn append_to(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let file =
        options.create(true).append(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn output_error(path: &Path, error: &io::Error) -> String {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "; make the folder, or give another file by -e or -o",
        Some(Errno::NXIO) => ": it is a pipe without a reader",
        _ => "; give another file by -e or -o",
    };
    format!("output file {}: {error}{remedy}", path.display())
}
