//! Why a process cannot be followed.

use std::fmt;
use std::io;

use pollux_sys::perf::{TraceError, Tracepoint};
use rustix::io::Errno;

/// Descriptors that a thread takes on each CPU: one for each tracepoint, one for its way off the CPU.
const DESCRIPTORS: usize = super::calls::CALLS.len() + 1;

/// Why a process cannot be followed.
#[derive(Debug)]
pub enum AttachError {
    /// There is none with this number, or it has ended.
    Missing(u32),
    /// It is the process that asks.
    Own(u32),
    /// It is a thread of the kernel.
    Kernel(u32),
    /// Its program is for another kind of machine, as 32-bit ones are.
    OtherMachine(u32),
    /// It belongs to another user.
    Denied(u32, io::Error),
    /// The numbers of tracepoints could not be read.
    Tracepoints(io::Error),
    /// The kernel has no such tracepoint.
    NoTracepoint(Tracepoint),
    /// There are too few descriptors for so many threads.
    Descriptors(usize),
    /// The kernel refused the events.
    Refused(u32, io::Error),
}

impl AttachError {
    /// Whether it is about the process, and not about what this machine allows.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }

    pub(super) fn of_trace(error: TraceError, pid: u32, threads: usize) -> Self {
        match error {
            TraceError::Tracepoints(error) => Self::Tracepoints(error),
            TraceError::Missing(point) => Self::NoTracepoint(point),
            TraceError::Gone => Self::Missing(pid),
            TraceError::Refused(error) => match error.raw_os_error() {
                Some(code) if code == Errno::MFILE.raw_os_error() => Self::Descriptors(threads),
                _ => Self::Refused(pid, error),
            },
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(pid) => write!(f, "--attach {pid}: no process has this number"),
            Self::Own(pid) => {
                write!(f, "--attach {pid}: this is pollux itself; expected another process")
            }
            Self::Kernel(pid) => write!(
                f,
                "--attach {pid}: a thread of the kernel, which has no event loop; expected a process"
            ),
            Self::OtherMachine(pid) => write!(
                f,
                "--attach {pid}: its program is not a 64-bit one of this machine's kind, so its system \
                 calls have other numbers"
            ),
            Self::Denied(pid, error) => write!(
                f,
                "--attach {pid}: the process may not be looked at: {error}; run pollux as root or with \
                 CAP_PERFMON and CAP_SYS_PTRACE"
            ),
            Self::Tracepoints(error) => write!(
                f,
                "the kernel's tracepoints cannot be read: {error}; run pollux as root, or see `pollux \
                 doctor` (tracefs)"
            ),
            Self::NoTracepoint(point) => write!(
                f,
                "this kernel has no tracepoint {}:{}; it was built without CONFIG_FTRACE_SYSCALLS",
                point.group, point.name
            ),
            Self::Descriptors(threads) => write!(
                f,
                "{} descriptors are needed on each CPU ({} for each of {threads} threads), more than this \
                 process may have; raise RLIMIT_NOFILE (ulimit -n)",
                threads * DESCRIPTORS,
                DESCRIPTORS,
            ),
            Self::Refused(pid, error) => write!(
                f,
                "process {pid}: the kernel refused to trace it: {error}; run pollux as root or with \
                 CAP_PERFMON (`pollux doctor` shows what is missing)"
            ),
        }
    }
}

impl std::error::Error for AttachError {}
