//! Descriptors: what one process may have, what the machine may have, and what the built-in jobs
//! and the 60,000 dead connections of the sys_epoll page need.

use pollux_report::number::count;

use super::Demands;
use super::check::{Check, Concern, Judgement, Subject};
use super::readings::Readings;
use super::remedy::{Remedy, who_can_raise};
use crate::host::Reading;
use crate::room::SERVER_FDS_SPARE;

/// The longest curve of the sys_epoll page, and its hundred active connections beside it.
pub(super) const DEAD_CONNECTIONS: u64 = 60_000;
pub(super) const ACTIVE_CONNECTIONS: u64 = 100;
/// Descriptors of a server beside its connections.
const SPARE: u64 = SERVER_FDS_SPARE;
/// One side of that experiment in one process.
const ONE_SIDE: u64 = DEAD_CONNECTIONS + ACTIVE_CONNECTIONS + SPARE;
const BOTH_SIDES: u64 = 2 * ONE_SIDE;
/// The page's own setting: room for both sides in one process.
const PAGE_ULIMIT: u64 = 131_072;

const ALL: &[Concern] = &[Concern::Dead, Concern::Descriptors, Concern::Servers, Concern::Sweep];

pub(super) fn checks(readings: &Readings, demands: &Demands<'_>) -> Vec<Check> {
    vec![hard(readings, demands), soft(readings), file_max(readings, demands), nr_open(readings)]
}

fn hard(readings: &Readings, demands: &Demands<'_>) -> Check {
    let limit = readings.environment.limits.open_files.hard.unwrap_or(u64::MAX);
    let subject = Subject { name: "open_files_hard", unit: Some("descriptors"), concerns: ALL };
    let wanted = format!(
        "{}: {} dead connections of one server process; {} leave nothing out of a built-in job",
        count(ONE_SIDE),
        count(DEAD_CONNECTIONS),
        count(demands.descriptors)
    );
    subject.judge(number_or_unlimited(limit), wanted, |_| {
        let raise = Remedy::raise(&readings.environment, "nofile", PAGE_ULIMIT);
        judge_hard(limit, who_can_raise(&readings.environment), demands).mended_by(raise)
    })
}

fn judge_hard(limit: u64, who: &str, demands: &Demands<'_>) -> Judgement {
    if limit >= ONE_SIDE {
        return Judgement::ok();
    }
    let mut lost = (demands.lost)(limit);
    let room = limit.saturating_sub(SPARE + ACTIVE_CONNECTIONS);
    let dead = count(DEAD_CONNECTIONS);
    lost.push(match limit.saturating_sub(SPARE) {
        0 => format!("no dead connections at all (of {dead})"),
        usable => {
            let processes = (DEAD_CONNECTIONS + ACTIVE_CONNECTIONS).div_ceil(usable);
            format!(
                "dead connections past {} of one server; {dead} need {processes} server \
                 processes",
                count(room),
            )
        }
    });
    let text = lost.join("; ") + who;
    if (demands.loses_an_experiment)(limit) {
        return Judgement::blocks(text).and_the_default_job();
    }
    Judgement::limits(text)
}

fn soft(readings: &Readings) -> Check {
    let limits = readings.environment.limits.open_files;
    let (soft, hard) = (limits.soft.unwrap_or(u64::MAX), limits.hard.unwrap_or(u64::MAX));
    let subject = Subject { name: "open_files_soft", unit: Some("descriptors"), concerns: ALL };
    subject.judge(number_or_unlimited(soft), "the hard limit", |_| {
        let what = format!(
            "programs that you start beside pollux stop at {}; pollux raises its own",
            count(soft)
        );
        let raise = Remedy::of_command("ulimit -Sn $(ulimit -Hn)");
        Judgement::unless(soft >= hard.min(ONE_SIDE), what).mended_by(raise)
    })
}

fn file_max(readings: &Readings, demands: &Demands<'_>) -> Check {
    let free = readings.files.number("/proc/sys/fs/file-max").and_then(|max| {
        let in_use = readings.files.numbers("/proc/sys/fs/file-nr");
        in_use.map(|numbers| max.saturating_sub(numbers[0]))
    });
    let subject = Subject { name: "fs.file-max_free", unit: Some("files"), concerns: ALL };
    let wanted =
        format!("{}: both ends of {} dead connections", count(BOTH_SIDES), count(DEAD_CONNECTIONS));
    subject.judge(free, wanted, |free| {
        let what = format!(
            "connections past {} when both ends are on this machine",
            count(free.saturating_sub(2 * SPARE) / 2)
        );
        let remedy = Remedy::sysctl("fs.file-max", 2 * BOTH_SIDES);
        match (demands.loses_an_experiment)(*free) {
            true => Judgement::blocks(what).and_the_default_job().mended_by(remedy),
            false => Judgement::unless(*free >= BOTH_SIDES, what).mended_by(remedy),
        }
    })
}

fn nr_open(readings: &Readings) -> Check {
    let subject = Subject { name: "fs.nr_open", unit: Some("descriptors"), concerns: ALL };
    let wanted = format!("{}: no limit is raised beyond it", count(PAGE_ULIMIT));
    subject.judge(readings.files.number("/proc/sys/fs/nr_open"), wanted, |max| {
        let what = format!("the hard limit of descriptors, which ends at {}", count(*max));
        let remedy = Remedy::sysctl("fs.nr_open", 1_048_576);
        Judgement::unless(*max >= PAGE_ULIMIT, what).mended_by(remedy)
    })
}

/// A limit of `u64::MAX` stands for none.
pub(super) fn number_or_unlimited(limit: u64) -> Reading<super::Found> {
    Reading::Value(match limit {
        u64::MAX => super::Found::Text("unlimited".to_owned()),
        limit => super::Found::Number(limit),
    })
}
