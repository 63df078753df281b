//! The process of a worker: its start, its end of the link, its slot, and the descriptor that reports its end.
//!
//! It is started here, or taken over from an earlier manager; then it is not a child of this process and only
//! its process descriptor reports that it ended, not how. Only the pool's thread starts, and no other thread of
//! the process starts programs: between the moment the descriptors for the worker lose their close-on-exec flag and
//! the moment they get it back no other child can inherit them.
//!
//! For `pollux pool check` a program is asked without a pool which services it offers: it is started as a worker is,
//! up to its start function (tpsvrinit), names the services that it wants to offer, and is refused: no queue is made,
//! nothing is served, and it ends. Its output is discarded. It has a process group of its own, which is killed
//! when its time is over.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_host::NOTIFY_VARIABLE;
use pollux_poller::Token;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, FileType, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

use super::options::Log;
use super::poller::{PoolPoller, Source};
use crate::config::{
    Entry, ID_VARIABLE, NAME_VARIABLE, OPTIONS_VARIABLE, Output, PoolConfig, joined,
};
use crate::environment::{GROUP_VARIABLE, Group};
use crate::error::Code;
use crate::link::{Advert, PeerLink, Received, ToManager, ToWorker};
use crate::memory::Files;
use crate::queue::Prefix;
use crate::slots::{Caller, Slot, Slots, UnsentReply};
use crate::worker::{
    GivenOutput, LINK_VARIABLE, MEMORY_VARIABLE, OUTPUT_VARIABLE, WAKE_VARIABLE, Wake,
};

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

/// How long a program may take to say what it offers.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What tells one state of a file from another: device, file, length, last change.
pub(super) type Stamp = (u64, u64, u64, i64, i64);

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

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    child: Option<Child>,
    pidfd: OwnedFd,
    pidfd_token: Token,
    pub(super) link: Option<(PeerLink, Token)>,
    slot_handle: Option<SlotHandle>,
    /// Its number in the memory that requests are in, where they are.
    pub(super) number: Option<usize>,
    /// What it offers.
    pub(super) adverts: Vec<Advert>,
    /// What keeps it from its work, as it says.
    pub(super) trouble: Option<String>,
    /// The file of its program as it was at its start, where that is looked at.
    pub(super) program_stamp: Option<Stamp>,
}

/// A slot of a worker.
#[derive(Debug, Clone)]
pub(super) struct SlotHandle {
    pub(super) slots: Rc<Slots>,
    pub(super) index: usize,
}

/// Keeps what the parent of this process has left open, beyond the standard three, from all
/// that it starts: a pool would hold their locks, and pipes whose readers wait for an end.
///
/// # Errors
/// EINVAL before Linux 5.11.
pub fn keep_from_children() -> io::Result<()> {
    pollux_sys::process::close_on_exec_from(3)
}

/// Gives up the terminal of the session, for this process and all that it starts. A service that asks there, as getpass(3)
/// and ssh(1) do, would stop its worker as a job in the background, and would ask the person at that terminal.
///
/// # Errors
/// Of `open(2)` and `ioctl(2)`.
pub fn leave_terminal() -> io::Result<()> {
    pollux_sys::process::leave_terminal()
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
    let own = ["-k", start.key, "-i", &start.id.to_string()].map(str::to_owned);
    let between = ["--".to_owned()];
    let options: Vec<String> =
        [&own[..], &entry.system_options, &between, &entry.program_options].concat();
    match entry.command(&options) {
        Some(words) => {
            command.args(words.iter().skip(1));
        }
        None => {
            command.arg0(&entry.program).args(&options);
        }
    }
    command.env(OPTIONS_VARIABLE, joined(&options)).env(NAME_VARIABLE, &entry.program);
    for name in &entry.cleared {
        command.env_remove(name);
    }
    command.envs(entry.variables.iter().map(|(name, value)| (name, value)));
    let link = start.link.as_raw_fd();
    let slots = start.slots.as_raw_fd();
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
    // The state of the pool is the manager's to report.
    command.env_remove(NOTIFY_VARIABLE);
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
    let given = GivenOutput::variable(out.as_fd(), error.as_fd());
    command.env(OUTPUT_VARIABLE, given.map_err(|error| format!("fstat: {error}"))?);
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
    let command = entry.command(&[]).and_then(|words| words.into_iter().next());
    let given = entry.full_path.clone().filter(|_| command.is_none());
    let given =
        given.or_else(|| command.as_ref().filter(|word| word.contains('/')).map(PathBuf::from));
    if let Some(file) = given {
        let why = || format!("{} is not an executable file", file.display());
        return if is_executable(&file) { Ok(file) } else { Err(why()) };
    }
    let folders = std::env::split_paths(&path);
    let name = command.unwrap_or_else(|| entry.program.clone());
    let mut candidates = folders.map(|folder| folder.join(&name));
    let found = candidates.find(|file| is_executable(file));
    let beside = || bridge_beside().filter(|_| entry.program == BRIDGE_PROGRAM);
    found.or_else(beside).ok_or_else(|| {
        let program = &name;
        let path = first_folders(&path);
        let nor =
            if program == BRIDGE_PROGRAM { ", nor beside the pool's own program" } else { "" };
        format!(
            "no executable {program} in PATH ({path}){nor}; add the folder that holds it to PATH"
        )
    })
}

/// The folders of a PATH for a message, which may stand there for each of many programs.
fn first_folders(path: &OsStr) -> String {
    const FOLDERS_SHOWN: usize = 3;
    let mut folders = std::env::split_paths(path).map(|folder| folder.display().to_string());
    let shown: Vec<_> = folders.by_ref().take(FOLDERS_SHOWN).collect();
    match folders.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
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
pub(super) fn outputs(entry: &Entry, log: &Log) -> Result<(File, File), String> {
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

impl Process {
    /// Watches a child that was just started.
    pub(super) fn of_child(
        id: u32,
        child: Child,
        link: PeerLink,
        slot_handle: SlotHandle,
        poller: &mut PoolPoller,
    ) -> io::Result<Self> {
        let mut process = match Self::of_pid(id, child.id(), poller) {
            Ok(process) => process,
            Err(error) => {
                end_unwatched(child);
                return Err(error);
            }
        };
        process.child = Some(child);
        process.slot_handle = Some(slot_handle);
        if let Err(error) = process.connect(id, link, poller) {
            poller.remove(process.pidfd.as_fd(), process.pidfd_token);
            if let Some(child) = process.child.take() {
                end_unwatched(child);
            }
            return Err(error);
        }
        Ok(process)
    }

    /// Watches a process of an earlier manager.
    pub(super) fn of_pid(id: u32, pid: u32, poller: &mut PoolPoller) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())?;
        let pidfd_token = poller.add(pidfd.as_fd(), Source::Process(id))?;
        let adverts = Vec::new();
        Ok(Self {
            pid,
            child: None,
            pidfd,
            pidfd_token,
            link: None,
            slot_handle: None,
            number: None,
            adverts,
            trouble: None,
            program_stamp: None,
        })
    }

    /// Takes a link to it.
    pub(super) fn connect(
        &mut self,
        id: u32,
        link: PeerLink,
        poller: &mut PoolPoller,
    ) -> io::Result<()> {
        let token = poller.add(link.as_fd(), Source::Link(id))?;
        self.link = Some((link, token));
        Ok(())
    }

    /// Takes the slot that it writes.
    pub(super) fn take_slot(&mut self, slot_handle: SlotHandle) {
        self.slot_handle = Some(slot_handle);
    }

    /// Its slot, which is there as soon as its link is.
    pub(super) fn slot(&self) -> Option<Slot<'_>> {
        let slot_handle = self.slot_handle.as_ref()?;
        slot_handle.slots.slot(slot_handle.index)
    }

    /// The request that it had taken and not begun when it died.
    pub(super) fn inbox(&self) -> Option<Vec<u8>> {
        let slot_handle = self.slot_handle.as_ref()?;
        Some(slot_handle.slots.inbox(slot_handle.index)?.content())
    }

    /// Whose answers it had and could not send before it died.
    pub(super) fn unsent_replies(&self) -> Vec<Caller> {
        let slot_handle = self.slot_handle.as_ref();
        slot_handle
            .map(|slot_handle| UnsentReply::all(&slot_handle.slots, slot_handle.index))
            .unwrap_or_default()
    }

    /// Kills what is left of the group. The number is the worker's until it is collected; of one
    /// that was taken over, which others collect, until nothing of its group is left.
    fn end_group(&self) {
        let is_ours = self.child.is_some() || !pollux_host::is_running(self.pid);
        let number = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(number) = number.filter(|_| is_ours) {
            // None is left, as nearly always.
            let _ = kill_process_group(number, Signal::KILL);
        }
    }

    /// Its slot, to be given back; none of one that has not reported yet.
    pub(super) fn slot_handle(&self) -> Option<&SlotHandle> {
        self.slot_handle.as_ref()
    }

    /// Sends a signal to exactly this process.
    pub(super) fn signal(&self, number: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Lets go of the link.
    pub(super) fn disconnect(&mut self, poller: &mut PoolPoller) {
        if let Some((link, token)) = self.link.take() {
            poller.remove(link.as_fd(), token);
        }
    }

    /// Collects the dead process, with what it has started and left in its process group; how it
    /// ended, for people.
    pub(super) fn reap(mut self, poller: &mut PoolPoller) -> String {
        self.end_group();
        self.disconnect(poller);
        poller.remove(self.pidfd.as_fd(), self.pidfd_token);
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => ending(status),
            Some(Err(error)) => format!("ended; its status can't be read: {error}"),
            None => "ended; it was a child of an earlier manager".to_owned(),
        }
    }
}

/// A child whose end would not be seen must not continue. SIGKILL ends a fresh process at once.
fn end_unwatched(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The names of the services that the program of `entry` offers at its start.
///
/// # Errors
/// A sentence for people: the program is missing, refused to start, ended or said nothing within
/// 10 seconds; bridges are not asked.
pub fn services_of(
    config: &PoolConfig,
    entry: &Entry,
    prefix: &Prefix,
) -> Result<Vec<String>, String> {
    if entry.program == BRIDGE_PROGRAM {
        return Err("a bridge offers what other hosts have".to_owned());
    }
    let Some(id) = entry.ids().next() else { return Ok(Vec::new()) };
    let system = |error: io::Error| error.to_string();
    let (ours, theirs) = PeerLink::pair().map_err(system)?;
    let slots = Slots::create(1).map_err(system)?;
    let silent = Entry { output: Output::default(), ..entry.clone() };
    let start = Start {
        config,
        entry: &silent,
        id,
        key: &prefix.as_str()[1..],
        prefix: prefix.as_str(),
        wake: Wake::default(),
        link: theirs.as_fd(),
        slots: slots.as_fd(),
        slot: 0,
        memory: None,
        group: None,
    };
    let nowhere = Log::append_to(Path::new("/dev/null")).map_err(system)?;
    let child = spawn(&start, &nowhere)?;
    drop(theirs);
    let mut link = PeerLink::new(ours);
    let answer = listen(&mut link, Instant::now() + ANSWER_TIME);
    drop(link);
    end(child);
    answer
}

/// What the program says until it has named its services, or ended.
fn listen(link: &mut PeerLink, until: Instant) -> Result<Vec<String>, String> {
    let mut services = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match link.receive_within(left) {
            Ok(Received::Message(ToManager::Advertise { services: adverts }, _)) => {
                services = adverts.into_iter().map(|advert| advert.name).collect();
                let code = Code::Protocol.number();
                let why = "it was only asked".to_owned();
                // One that is gone says so at the next look.
                let _ = link.send(&ToWorker::NotAdvertised { code, why });
            }
            Ok(Received::Message(ToManager::Ready, _)) => {
                // It offers nothing, and would wait for what it is to do.
                let _ = link.send(&ToWorker::Stop);
                return Ok(services);
            }
            Ok(Received::Message(ToManager::Refused { why }, _)) if services.is_empty() => {
                return Err(why);
            }
            Ok(Received::Message(ToManager::Refused { .. }, _)) => return Ok(services),
            Ok(Received::Message(..) | Received::Nothing) => {}
            Ok(Received::Ended) => return Err("it ended without a word of its services".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let seconds = ANSWER_TIME.as_secs();
                return Err(format!("it did not say what it offers within {seconds} s"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Waits for the end of a program that was refused, for a second; then it is killed, and what it
/// started in any case.
fn end(mut child: Child) {
    let number = Pid::from_child(&child);
    let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
    if let Ok(ended) = pidfd_open(number, PidfdFlags::empty()) {
        // Ended, late or interrupted: it goes now.
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience));
    }
    // The process id stays its own until it is collected; mostly the group is empty.
    let _ = kill_process_group(number, Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_named_by_its_first_folders() {
        assert_eq!(first_folders(OsStr::new("/a:/b")), "/a, /b");
        assert_eq!(first_folders(OsStr::new("/a:/b:/c:/d:/e")), "/a, /b, /c and 2 more");
        assert_eq!(first_folders(OsStr::new("")), "");
    }
}
