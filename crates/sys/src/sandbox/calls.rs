//! System calls: the ones that a server makes once it serves, and seccomp(2) for all others.
//!
//! Nothing opens a socket, connects, starts a thread or a program, makes a ring, or looks into another
//! process. A call that is not on the list ends with EPERM and does nothing: libraries try new calls and
//! fall back to others, and that must not end a server.
//!
//! Most calls are allowed whatever their arguments are, so that the kernel decides them by a bit of its
//! own (since Linux 5.11) and runs no filter. Few have a condition, none of them on the way of a request.
//!
//! What a mechanism waits by is not listed here: it comes from the table of mechanisms, by way of the caller.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, apply_filter_all_threads,
};

use crate::SystemCall;
use crate::sandbox::{Unavailable, on_a_thread};

/// Allowed with any arguments.
const ALLOWED: &[SystemCall] = &[
    // Bytes of what is open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_lseek,
    libc::SYS_fadvise64,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    // Sockets that are open.
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    // Files, within what landlock leaves.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_getcwd,
    // Waiting, beside what the mechanism of a loop waits by.
    libc::SYS_ppoll,
    libc::SYS_timerfd_settime,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Memory that is not executed.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // The process itself; libraries take it that those which only tell can't fail.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_clock_getres,
    libc::SYS_times,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The same under the names that only old architectures have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[SystemCall] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_poll,
    libc::SYS_dup2,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[SystemCall] = &[];

/// What a process makes beside it whose job it is to connect, again and again: sockets, threads, loops and rings. It lists
/// none that runs a program, listens, or looks into another process.
pub const CALLS_OF_CLIENTS: &[SystemCall] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    // Names are asked for by it.
    libc::SYS_sendmmsg,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    // Threads. What clone3(2) is asked for lies in memory, where no filter sees it.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
];

/// What it takes beside these to choose the address that it connects from. Nothing listens for that.
pub const CALLS_OF_SOURCES: &[SystemCall] = &[libc::SYS_bind];

/// What a thread may say of itself: its name, and how exact its timers are.
const PRCTLS: [libc::c_int; 2] = [libc::PR_SET_NAME, libc::PR_SET_TIMERSLACK];

/// What may be asked of a descriptor: bytes that wait in it, whether it waits, and of a terminal what it is.
const IOCTLS: [libc::Ioctl; 5] =
    [libc::TIOCOUTQ, libc::FIONREAD, libc::FIONBIO, libc::TCGETS, libc::TIOCGWINSZ];

/// Forbids every thread of this process all calls but those of a server that serves, and `of_mechanisms`: those by which its loops
/// wait, which the table of mechanisms names (`crates/poller/src/mechanism.rs`). A client adds [`CALLS_OF_CLIENTS`].
///
/// # Errors
/// [`Unavailable`]: the kernel has no filters, or a thread has one of its own, or a call that is not on the list was
/// tried afterwards and not refused.
pub fn confine_calls(
    of_mechanisms: impl IntoIterator<Item = SystemCall>,
) -> Result<(), Unavailable> {
    apply_filter_all_threads(&program(of_mechanisms)?).map_err(explained)?;
    try_filter()
}

/// Whether [`confine_calls`] would be possible.
///
/// # Errors
/// As there.
pub fn try_calls() -> Result<(), Unavailable> {
    on_a_thread(|| {
        apply_filter(&program([])?).map_err(explained)?;
        try_filter()
    })
}

/// Makes a pipe, which is not on the list.
fn try_filter() -> Result<(), Unavailable> {
    match std::io::pipe() {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        _ => Err(Unavailable::because(
            "the kernel took the filter and still allows pipe2(2), which is not on its list",
        )),
    }
}

fn explained(error: seccompiler::Error) -> Unavailable {
    match error {
        seccompiler::Error::Seccomp(cause) if cause.raw_os_error() == Some(libc::EINVAL) => {
            Unavailable::because("this kernel has no filters: CONFIG_SECCOMP_FILTER")
        }
        seccompiler::Error::Seccomp(cause) => Unavailable::because(format!("seccomp: {cause}")),
        error => Unavailable::because(error),
    }
}

fn program(of_mechanisms: impl IntoIterator<Item = SystemCall>) -> Result<BpfProgram, Unavailable> {
    let architecture = std::env::consts::ARCH;
    let target = architecture.try_into();
    let target = target
        .map_err(|_| Unavailable::because(format!("no filter is made for {architecture}")))?;
    let forbidden = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = rules(of_mechanisms).and_then(|rules| {
        SeccompFilter::new(rules, forbidden, SeccompAction::Allow, target)?.try_into()
    });
    Ok(filter.expect("the list is a valid filter"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(
    of_mechanisms: impl IntoIterator<Item = SystemCall>,
) -> Result<Rules, seccompiler::BackendError> {
    let known = ALLOWED.iter().chain(ALLOWED_OLD).copied();
    let allowed = known.chain(of_mechanisms).map(|call| (call, Vec::new()));
    let conditional = [
        (libc::SYS_mmap, vec![not_executable()?]),
        (libc::SYS_mprotect, vec![not_executable()?]),
        (libc::SYS_ioctl, IOCTLS.iter().map(|code| of_request(*code)).collect::<Result<_, _>>()?),
        (libc::SYS_prctl, PRCTLS.iter().map(|code| of_code(*code)).collect::<Result<_, _>>()?),
        (libc::SYS_tgkill, vec![argument(0, std::process::id().into())?]),
        // Limits are read, of this process.
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![is_equal(0, 0)?, is_equal(2, 0)?])?]),
    ];
    Ok(allowed.chain(conditional).collect())
}

/// No memory becomes code.
fn not_executable() -> Result<SeccompRule, seccompiler::BackendError> {
    let execute = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    SeccompRule::new(vec![SeccompCondition::new(2, SeccompCmpArgLen::Dword, execute, 0)?])
}

/// A request is 32 bits wide, in a type that differs between C libraries.
fn of_request(code: libc::Ioctl) -> Result<SeccompRule, seccompiler::BackendError> {
    let code = u64::from(code as u32);
    let is_code = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, code)?;
    SeccompRule::new(vec![is_code])
}

/// What prctl(2) is asked for is 32 bits wide too.
fn of_code(code: libc::c_int) -> Result<SeccompRule, seccompiler::BackendError> {
    let code = u64::from(code.cast_unsigned());
    let is_code = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, code)?;
    SeccompRule::new(vec![is_code])
}

fn argument(index: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![is_equal(index, value)?])
}

fn is_equal(index: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_on_the_list_leads_out() {
        let rules = rules([libc::SYS_epoll_ctl]).expect("valid");
        assert!(rules.contains_key(&libc::SYS_epoll_ctl), "that of a mechanism");
        for call in [
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_kill,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_register,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_memfd_create,
            libc::SYS_mount,
            libc::SYS_renameat2,
            libc::SYS_linkat,
            libc::SYS_fchmodat,
        ] {
            assert!(!rules.contains_key(&call), "{call}");
        }
    }

    #[test]
    fn nothing_on_the_list_of_clients_runs_a_program_or_listens() {
        let of_both = CALLS_OF_CLIENTS.iter().chain(CALLS_OF_SOURCES).copied();
        let rules = rules(of_both).expect("valid");
        assert!(rules.contains_key(&libc::SYS_connect));
        assert!(!CALLS_OF_CLIENTS.contains(&libc::SYS_bind));
        for call in [
            libc::SYS_listen,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_pidfd_getfd,
            libc::SYS_kill,
            libc::SYS_bpf,
            libc::SYS_memfd_create,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
        ] {
            assert!(!rules.contains_key(&call), "{call}");
        }
    }

    #[test]
    fn a_filter_that_is_not_in_force_is_not_claimed() {
        let claimed = try_filter().expect_err("this thread has no filter");
        assert!(claimed.reason.contains("still allows pipe2(2)"), "{claimed}");
    }

    #[test]
    fn a_filter_is_made_for_this_machine() {
        let length = program([]).expect("a known architecture").len();
        assert!((100..4096).contains(&length), "{length} instructions");
    }
}
