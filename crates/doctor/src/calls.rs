//! System calls and files that programs of pollux cannot do without and that some kernels, filters and sandboxes
//! lack: each is tried, so that what needs it says so before it is started.

use std::fs;

use pollux_host::Reading;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::thread::{current_timer_slack, set_current_timer_slack};

use crate::check::Concern::{Everything, Queues, Servers};
use crate::check::{Check, Concern, Judgement, Subject};
use crate::readings::Readings;

/// What was tried; the reason of a refusal is the kernel's.
#[derive(Clone, Debug)]
pub struct Calls {
    /// A descriptor of a process, by which its end is waited for (Linux 5.3).
    pub pidfd_open: Reading<()>,
    /// The path of the running program, by which it starts itself anew.
    pub own_program: Reading<()>,
    /// Opening a path that may not lead out of a folder (Linux 5.6).
    pub openat2: Reading<()>,
    /// Marking many descriptors to be closed on exec (Linux 5.11).
    pub close_range: Reading<()>,
    /// How late the timers of a thread may be.
    pub timer_slack: Reading<()>,
}

impl Calls {
    pub(crate) fn take() -> Self {
        let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat2(CWD, "/", folder, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        Self {
            pidfd_open: reading(pidfd_open(getpid(), PidfdFlags::empty())),
            own_program: reading(fs::read_link("/proc/self/exe")),
            openat2: reading(opened),
            // No descriptor has this number.
            close_range: reading(pollux_sys::process::close_on_exec_from(u32::MAX)),
            timer_slack: timer_slack(),
        }
    }

    #[cfg(test)]
    pub(crate) fn sound() -> Self {
        let yes = || Reading::Value(());
        Self {
            pidfd_open: yes(),
            own_program: yes(),
            openat2: yes(),
            close_range: yes(),
            timer_slack: yes(),
        }
    }
}

fn reading<T, E: std::fmt::Display>(tried: Result<T, E>) -> Reading<()> {
    match tried {
        Ok(_) => Reading::Value(()),
        Err(error) => Reading::unavailable(error.to_string()),
    }
}

/// Sets what is set already, on a thread of its own all the same.
fn timer_slack() -> Reading<()> {
    let tried = || set_current_timer_slack(current_timer_slack()?.try_into().ok());
    match std::thread::spawn(tried).join() {
        Ok(tried) => reading(tried),
        Err(_) => Reading::unavailable("the thread that tried it panicked"),
    }
}

pub(crate) fn checks(readings: &Readings) -> Vec<Check> {
    let calls = &readings.calls;
    vec![
        blocks(
            "pidfd_open",
            &[Everything],
            &calls.pidfd_open,
            "`pollux lab`, `pollux run` and the pool",
        ),
        blocks(
            "own_program",
            &[Everything],
            &calls.own_program,
            "`pollux lab`, `pollux proxy` and the pool",
        ),
        blocks("openat2", &[Servers], &calls.openat2, "`pollux serve` of a folder"),
        limits(
            "close_range_cloexec",
            &[Queues],
            &calls.close_range,
            "workers of a pool keep open what the caller of `pollux pool start` has open",
        ),
        limits(
            "timer_slack_set",
            &[Servers],
            &calls.timer_slack,
            "`pollux load` sends late by up to 50 us",
        ),
    ]
}

fn limits(
    name: &'static str,
    concerns: &'static [Concern],
    tried: &Reading<()>,
    effect: &str,
) -> Check {
    let subject = Subject { name, unit: None, concerns };
    subject.tried(&tried.as_ref().map(|()| "yes"), "yes", effect)
}

/// The check of something without which `what` cannot run. What concerns everything is part of the default job.
fn blocks(
    name: &'static str,
    concerns: &'static [Concern],
    tried: &Reading<()>,
    what: &str,
) -> Check {
    let subject = Subject { name, unit: None, concerns };
    let found = tried.value().map_or("no", |()| "yes").to_owned();
    subject.judge(Reading::Value(found), "yes", |_| match tried.reason() {
        None => Judgement::ok(),
        Some(reason) => {
            let judged = Judgement::blocks(format!("{what}: {reason}"));
            if concerns.contains(&Everything) { judged.and_the_default_job() } else { judged }
        }
    })
}
