//! What the built-in jobs ask of a machine, for `pollux doctor`: what each concerns, and what its plan
//! leaves out where descriptors are few.
//!
//! `pollux doctor --for` knows every name of [`names`]. What a job concerns and needs is read from its
//! file, so a job that is added or changed needs no line here.

use pollux_doctor::room::FDS_SPARE;
use pollux_doctor::{Asked, Concern, Demands, Diagnosis, Readings};

use pollux_lab::axis::Value;
use pollux_lab::experiments::herd;
use pollux_lab::job::{self, DEFAULT_JOB, Job, Part};
use pollux_lab::plan::{Machine, Plan, Resources};
use pollux_lab::record::LeftOut;

/// From so many values on, connections are an axis along which a rate is looked at.
const SWEEP_VALUES_MIN: usize = 3;

/// Judges what was read by what the built-in jobs need. With `asked`, only what concerns it.
pub(crate) fn diagnosis(readings: &Readings, asked: Option<Asked>) -> Diagnosis {
    let lost_by_each = |limit| job::list().iter().filter_map(|job| lost(job.name, limit)).collect();
    let demands = Demands {
        default_job: DEFAULT_JOB,
        descriptors: of_every_job(),
        lost: &lost_by_each,
        loses_an_experiment: &|limit| loses_an_experiment(DEFAULT_JOB, limit),
        queue_bytes: &herd::needed_bytes,
    };
    Diagnosis::of(readings, &demands, asked)
}

/// The concern or the built-in job called `name`; a concern where both are called so.
pub(crate) fn asked(name: &str) -> Option<Asked> {
    let concerns = match Concern::by_name(name) {
        Some(concern) => vec![concern],
        None if job::builtin(name).is_some() => of_job(&job::find(name).ok()?),
        None => return None,
    };
    Some(Asked { name: name.to_owned(), concerns })
}

/// Every name with its meaning in a few words: concerns under each of their names, then the jobs that
/// are no concern.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let concerns = Concern::ALL.into_iter().flat_map(|concern| {
        let names = std::iter::once(concern.name()).chain(concern.aliases().iter().copied());
        names.map(move |name| (name, concern.title()))
    });
    let jobs = job::list().iter().filter(|job| Concern::by_name(job.name).is_none());
    concerns.chain(jobs.map(|job| (job.name, job.about)))
}

/// What the built-in jobs need in one process; servers may take several.
fn of_every_job() -> u64 {
    let plans = job::list().iter().filter_map(|job| plan(job.name, u64::MAX));
    let points = plans.flat_map(|plan| plan.points);
    let in_one =
        points.filter(|point| point.experiment.needs(&point.point.axes).processes_max == 1);
    let needed = in_one.map(|point| point.experiment.needs(&point.point.axes).fds);
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

fn of_job(job: &Job) -> Vec<Concern> {
    let mut concerns: Vec<Concern> = job.parts.iter().flat_map(of_part).collect();
    concerns.sort_unstable();
    concerns.dedup();
    concerns
}

fn of_part(part: &Part) -> Vec<Concern> {
    let values = |axis| part.axes.get(axis).map_or(&[][..], Vec::as_slice);
    let concern = Concern::by_name(part.experiment.name()).unwrap_or(Concern::Everything);
    let more = [
        (Concern::Dead, values("dead").iter().any(|dead| *dead != Value::Number(0))),
        (Concern::Churn, values("keepalive").contains(&Value::Switch(false))),
        (Concern::Sweep, values("connections").len() >= SWEEP_VALUES_MIN),
    ];
    let more = more.into_iter().filter(|(_, is_asked)| *is_asked);
    std::iter::once(concern).chain(more.map(|(concern, _)| concern)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns(name: &str) -> Vec<Concern> {
        asked(name).unwrap_or_else(|| panic!("{name}")).concerns
    }

    #[test]
    fn every_job_can_be_asked_for() {
        for job in job::list() {
            assert!(!concerns(job.name).is_empty(), "{}", job.name);
        }
        assert!(names().all(|(name, _)| asked(name).is_some()));
        assert_eq!(asked("none-such"), None);
    }

    #[test]
    fn a_job_concerns_what_its_parts_do() {
        use Concern::{Churn, Dead, Herd, Http, Streams, Sweep};
        assert_eq!(concerns("version"), [Streams, Http, Dead]);
        assert_eq!(concerns("quick"), [Streams, Http, Dead, Churn, Herd]);
        assert_eq!(concerns("seed0"), [Streams]);
        assert_eq!(concerns("seed1"), [Streams, Http, Dead]);
        assert_eq!(concerns("seed2"), [Http, Churn, Sweep]);
        assert_eq!(concerns("idle"), [Dead]);
    }

    #[test]
    fn few_descriptors_are_told_by_the_jobs_that_lose_points() {
        assert!(lost("seed1", 20_000).is_some_and(|lost| lost.starts_with("`seed1` leaves out ")));
        assert_eq!((lost("quick", 20_000), lost("dead", 20_000)), (None, None));
        assert!(lost("quick", 4096).is_some() && !loses_an_experiment(DEFAULT_JOB, 4096));
        assert!(loses_an_experiment(DEFAULT_JOB, 1024));
        assert!((30_000..40_000).contains(&of_every_job()), "{}", of_every_job());
    }
}
