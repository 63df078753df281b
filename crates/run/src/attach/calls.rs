//! The system calls that are followed, and what their records mean.
//!
//! | calls | on entry | on exit |
//! |---|---|---|
//! | epoll_wait, epoll_pwait, epoll_pwait2 | the turn ends | events, and a turn begins |
//! | epoll_ctl | the update | failures only |
//! | accept, accept4 | which listener | the connection, or that there was none |
//! | close | the descriptor is gone | |
//! | epoll_create, epoll_create1 | | an instance |
//! | reads and writes | | those that would have blocked, in one of [`SAMPLE_EVERY`] drains |
//!
//! A filter of the kernel's keeps away what nobody counts: each record costs the program some 0.5 µs. To ask
//! the filter costs 0.1 µs for each read and write, which is why these are sampled.

use pollux_sys::perf::{Followed, Tracepoint};

/// What a record of a call says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A wait begins, with its timeout where it says.
    WaitBegins(TimeoutIn),
    WaitEnds,
    Controls,
    ControlFailed,
    Created,
    AcceptBegins,
    AcceptEnds,
    Closes,
    /// A read or write that would have blocked.
    Again,
}

/// Where a wait's timeout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutIn {
    /// In the fourth argument, in milliseconds.
    Milliseconds,
    /// In the program's memory.
    Memory,
}

/// A tracepoint with its condition and what it says.
type Call = (&'static str, Option<&'static str>, Role);

const FAILED: Option<&str> = Some("ret < 0");
/// `-EAGAIN`, as the kernel compares it.
const WOULD_BLOCK: Option<&str> = Some("ret == -11");

pub(super) const CALLS: [Call; 25] = [
    ("sys_enter_epoll_wait", None, Role::WaitBegins(TimeoutIn::Milliseconds)),
    ("sys_enter_epoll_pwait", None, Role::WaitBegins(TimeoutIn::Milliseconds)),
    ("sys_enter_epoll_pwait2", None, Role::WaitBegins(TimeoutIn::Memory)),
    ("sys_exit_epoll_wait", None, Role::WaitEnds),
    ("sys_exit_epoll_pwait", None, Role::WaitEnds),
    ("sys_exit_epoll_pwait2", None, Role::WaitEnds),
    ("sys_enter_epoll_ctl", None, Role::Controls),
    ("sys_exit_epoll_ctl", FAILED, Role::ControlFailed),
    ("sys_exit_epoll_create", None, Role::Created),
    ("sys_exit_epoll_create1", None, Role::Created),
    ("sys_enter_accept", None, Role::AcceptBegins),
    ("sys_enter_accept4", None, Role::AcceptBegins),
    ("sys_exit_accept", None, Role::AcceptEnds),
    ("sys_exit_accept4", None, Role::AcceptEnds),
    ("sys_enter_close", None, Role::Closes),
    ("sys_exit_read", WOULD_BLOCK, Role::Again),
    ("sys_exit_readv", WOULD_BLOCK, Role::Again),
    ("sys_exit_recvfrom", WOULD_BLOCK, Role::Again),
    ("sys_exit_recvmsg", WOULD_BLOCK, Role::Again),
    ("sys_exit_write", WOULD_BLOCK, Role::Again),
    ("sys_exit_writev", WOULD_BLOCK, Role::Again),
    ("sys_exit_sendto", WOULD_BLOCK, Role::Again),
    ("sys_exit_sendmsg", WOULD_BLOCK, Role::Again),
    ("sys_exit_sendfile64", WOULD_BLOCK, Role::Again),
    ("sys_exit_splice", WOULD_BLOCK, Role::Again),
];

/// Drains of which one comes behind a time in which reads and writes were looked at.
pub(super) const SAMPLE_EVERY: u64 = 8;

/// What every kernel has whose calls can be followed; some calls are new, or are those of one architecture.
const REQUIRED: &str = "sys_enter_epoll_pwait";

/// What the kernel is asked to record.
pub(super) fn followed() -> [Followed; CALLS.len()] {
    CALLS.map(|(name, filter, role)| {
        let point = Tracepoint { group: "syscalls", name };
        let is_sampled = role == Role::Again;
        Followed { point, filter, is_required: name == REQUIRED, is_sampled }
    })
}

/// What the record of a tracepoint says, by its place among those that are followed.
pub(super) fn role(place: usize) -> Role {
    CALLS[place].2
}
