//! Descriptors: what one process may have, what the machine may have, and what the built-in jobs
//! and the 60,000 dead connections of the sys_epoll page need.

use pollux_draw::count;

use super::check::{Check, Concern, Judgement, Subject};
use super::readings::Readings;
use super::remedy::{Remedy, who_can_raise};
use crate::experiments::Experiment;
use crate::host::Reading;
use crate::job::{self, DEFAULT_JOB};
use crate::plan::{FDS_SPARE, Machine, Plan, Resources, SERVER_FDS_SPARE};
use crate::record::LeftOut;

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

const ALL: &[Concern] = &[Concern::Dead, Concern::Streams, Concern::Http, Concern::Sweep];

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![hard(readings), soft(readings), file_max(readings), nr_open(readings)]
}

fn hard(readings: &Readings) -> Check {
    let limit = readings.environment.limits.open_files.hard.unwrap_or(u64::MAX);
    let subject = Subject { name: "open_files_hard", unit: Some("descriptors"), concerns: ALL };
    let wanted = format!(
        "{}: {} dead connections of one server process; {} leave nothing out of a built-in job",
        count(ONE_SIDE),
        count(DEAD_CONNECTIONS),
        count(of_every_job())
    );
    subject.judge(number_or_unlimited(limit), wanted, |_| {
        let raise = Remedy::raise(&readings.environment, "nofile", PAGE_ULIMIT);
        judge_hard(limit, who_can_raise(&readings.environment)).mended_by(raise)
    })
}

/// The plan itself says what fits: a job is planned for this machine and for one without a limit.
fn judge_hard(limit: u64, who: &str) -> Judgement {
    if limit >= ONE_SIDE {
        return Judgement::ok();
    }
    let mut lost: Vec<String> =
        job::list().iter().filter_map(|job| lost(job.name, limit)).collect();
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
    if loses_an_experiment(DEFAULT_JOB, limit) {
        return Judgement::blocks(text).and_the_default_job();
    }
    Judgement::limits(text)
}

/// What the built-in jobs need in one process; servers may take several.
fn of_every_job() -> u64 {
    let plans = job::list().iter().filter_map(|job| plan(job.name, u64::MAX));
    let points = plans.flat_map(|plan| plan.points);
    let in_one = points.filter(|point| point.experiment != Experiment::Http);
    let needed = in_one.map(|point| point.experiment.fds_needed(&point.point.axes));
    needed.max().unwrap_or_default() + FDS_SPARE
}

/// Points that a built-in job leaves out for want of descriptors.
fn lost(name: &str, limit: u64) -> Option<String> {
    let without_limit = plan(name, u64::MAX)?.left_out;
    let left_out = plan(name, limit)?.left_out;
    let lost: Vec<&LeftOut> =
        left_out.iter().filter(|left| left.arm == "*" && !without_limit.contains(left)).collect();
    let first = lost.first()?;
    let more = match lost.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("`{name}` leaves out {}{more}", first.point))
}

fn loses_an_experiment(name: &str, limit: u64) -> bool {
    plan(name, limit).is_some_and(|plan| {
        let has_points = |part| plan.points.iter().any(|point| point.part == part);
        !(0..plan.job.parts.len()).all(has_points)
    })
}

fn plan(name: &str, fds_max: u64) -> Option<Plan> {
    let mut job = job::find(name).ok()?;
    // Time is no matter here: a budget would cut what descriptors allow.
    job.budget = None;
    Some(Plan::make(
        job,
        &Machine { fds_max, cpus: 2, resources: Resources::default(), missing: &|_| None },
    ))
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

fn file_max(readings: &Readings) -> Check {
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
        match loses_an_experiment(DEFAULT_JOB, *free) {
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
