//! What explains a figure: the lab's sources as they were probed, the rights behind them, and other
//! people's load generators, with which figures of servers can be repeated.

use pollux_host::Reading;
use pollux_host::sources::SourceStatus;

use crate::check::Concern::{self, Churn, Dead, Servers, Sweep};
use crate::check::{Check, Judgement, Remedy, Subject};
use crate::readings::Readings;

const COUNTERS: &[Concern] = &[Concern::Counters];
/// Where tracefs may be mounted, with the file that the lab needs of it.
const TRACEPOINT_IDS: [&str; 2] = [
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
];
/// Sources with a check of their own elsewhere, and the one that needs nothing.
const ELSEWHERE: [&str; 2] = ["steal", "own counters"];

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    let statuses = &readings.sources.statuses;
    let probed = statuses.iter().filter(|status| !ELSEWHERE.contains(&status.name.as_str()));
    let mut checks = vec![paranoid(readings), tracefs(readings), attach(readings)];
    checks.extend(probed.map(source));
    checks
}

fn source(status: &SourceStatus) -> Check {
    let subject = Subject { name: &status.name, unit: None, concerns: COUNTERS };
    let found = if status.available { "counts right" } else { "no" };
    subject.judge(Reading::Value(found.to_owned()), "counts right", |_| {
        let reason = status.reason.as_deref().unwrap_or("unknown reason");
        Judgement::unless(status.available, format!("n/a in reports: {} ({reason})", status.gives))
            .mended_by(status.enable.clone().map(Remedy::of_command))
    })
}

/// With CAP_PERFMON the sysctl does not matter, so the probes decide; this says why.
fn paranoid(readings: &Readings) -> Check {
    let name = "kernel.perf_event_paranoid";
    let subject = Subject { name, unit: None, concerns: COUNTERS };
    let environment = &readings.environment;
    let held = environment.capabilities.value();
    let perfmon = ["CAP_PERFMON", "CAP_SYS_ADMIN"];
    let is_exempt =
        held.is_some_and(|held| held.names.iter().any(|n| perfmon.contains(&n.as_str())));
    let level = environment.perf_event_paranoid.clone();
    let is_low = level.value().is_some_and(|level| *level <= 0);
    subject.judge(level.map(|level| level.to_string()), "0, or CAP_PERFMON", |_| {
        let what = "kernel events of ordinary users are refused, or read 0";
        Judgement::unless(is_low || is_exempt, what).mended_by(Remedy::sysctl(name, 0))
    })
}

fn attach(readings: &Readings) -> Check {
    let subject = Subject { name: "run_attach", unit: None, concerns: COUNTERS };
    let tried = readings.attach.as_ref().map(|()| "yes");
    subject.tried(&tried, "yes", "`pollux run --attach` follows no process")
}

fn tracefs(readings: &Readings) -> Check {
    let subject = Subject { name: "tracefs", unit: None, concerns: COUNTERS };
    let is_mounted = readings
        .files
        .text("/proc/self/mountinfo")
        .map(|mounts| mounts.lines().any(|line| line.contains(" - tracefs ")));
    let is_readable = TRACEPOINT_IDS.iter().any(|id| readings.files.number(id).value().is_some());
    // The lab mounts a private one where it may: what counts is whether a tracepoint was found.
    let has_ids = readings.sources.sys_enter.value().is_some();
    let found = is_mounted.map(|is_mounted| match (is_mounted, is_readable) {
        (_, true) => "readable".to_owned(),
        (_, false) if has_ids => "not mounted (pollux mounts its own)".to_owned(),
        (true, false) => "mounted, not readable".to_owned(),
        (false, false) => "not mounted".to_owned(),
    });
    subject.judge(found, "readable", |found| {
        let options = "-o gid=$(id -g),mode=750";
        let mount = match found.as_str() {
            "not mounted" => format!("sudo mount -t tracefs {options} tracefs /sys/kernel/tracing"),
            _ => format!("sudo mount {options},remount /sys/kernel/tracing"),
        };
        let what = "system calls and wakeups cannot be counted for this user";
        Judgement::unless(found == "readable" || has_ids, what).mended_by(Remedy::of_command(mount))
    })
}

pub(crate) fn generator_checks(readings: &Readings) -> Vec<Check> {
    let of_wrk: &[Concern] = &[Servers, Dead, Sweep, Churn];
    let wrk = generator("wrk", readings.wrk.is_some(), "wrk", of_wrk);
    vec![wrk, generator("ab", readings.ab.is_some(), "apache2-utils", &[Servers, Sweep, Churn])]
}

/// Without its path, as output is meant to be shown to others.
fn generator(name: &str, is_installed: bool, package: &str, concerns: &'static [Concern]) -> Check {
    let found = if is_installed { "installed" } else { "not installed" };
    let subject = Subject { name, unit: None, concerns };
    subject.judge(Reading::Value(found.to_owned()), "installed", |_| {
        let what = format!("`--generator {name}`: no figure can be repeated with it");
        let install = Remedy::of_command(format!("sudo apt-get install {package}"));
        Judgement::unless(is_installed, what).mended_by(install)
    })
}
