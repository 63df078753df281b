//! `pollux doctor`: reads the machine once, prints what the lab's checks say of it, or the script
//! that fixes it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use pollux_doctor::{Concern, Demands, Diagnosis, FDS_SPARE, Options, Readings, TextOptions};
use pollux_lab::experiments::{self, Needs};
use pollux_lab::job::{self, DEFAULT_JOB};
use pollux_lab::plan::{Machine, Plan, Resources};
use pollux_lab::record::LeftOut;

use crate::args::DoctorFlags;
use crate::output::{self, Failure};

/// Loads that make an axis of a plot, at least.
const SWEEP_VALUES_MIN: usize = 3;

/// Prints the diagnosis; the exit code says whether something blocks what was asked for.
pub(crate) fn run(flags: &DoctorFlags) -> Result<ExitCode, Failure> {
    let diagnosis = diagnosis(&Readings::take(), flags.asked.and_then(asked));
    if flags.fix_script {
        output::result(&diagnosis.fix_script())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = if flags.json {
        serde_json::to_string_pretty(&diagnosis.json()).expect("plain data")
    } else {
        output::shown(&diagnosis.text(TextOptions {
            is_colourful: output::is_colourful(),
            width_chars: output::width_chars(),
        }))
    };
    output::result(&text)?;
    Ok(if diagnosis.is_blocked() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Judges what was read by what the built-in jobs need. With `asked`, only what concerns it.
fn diagnosis(readings: &Readings, asked: Option<Options>) -> Diagnosis {
    let lost_by_each = |limit| job::list().iter().filter_map(|job| lost(job.name, limit)).collect();
    let demands = Demands {
        default_job: DEFAULT_JOB,
        descriptors: of_every_job(in_one_process) + FDS_SPARE,
        lost: &lost_by_each,
        loses_an_experiment: &|limit| loses_an_experiment(DEFAULT_JOB, limit),
        queue_bytes: of_every_job(|needs| needs.queue_bytes),
    };
    Diagnosis::of(readings, &demands, asked)
}

/// The concern, built-in job or experiment called `name`; a concern where both are called so.
pub(crate) fn asked(name: &str) -> Option<Options> {
    let concerns = match Concern::by_name(name) {
        Some(concern) => vec![concern],
        None if others().any(|(other, _)| other == name) => of_job(&plan(name, u64::MAX)?),
        None => return None,
    };
    Some(Options { name: name.to_owned(), concerns })
}

/// Every name with its meaning in a few words: concerns with their other names, then jobs and
/// experiments that are not a concern.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let concerns = Concern::all().flat_map(|concern| {
        let own = (concern.name(), concern.title());
        std::iter::once(own).chain(concern.aliases().iter().copied())
    });
    concerns.chain(others().filter(|(name, _)| Concern::by_name(name).is_none()))
}

/// The built-in jobs, then the experiments that are called like none.
fn others() -> impl Iterator<Item = (&'static str, &'static str)> {
    let experiments = experiments::ALL.into_iter().map(|each| (each.name, each.about));
    let experiments = experiments.filter(|(name, _)| job::builtin(name).is_none());
    job::list().iter().map(|job| (job.name, job.about)).chain(experiments)
}

/// The most that a point of the built-in jobs needs of something.
fn of_every_job(of: impl Fn(&Needs) -> u64) -> u64 {
    let points = job::list().iter().filter_map(|job| plan(job.name, u64::MAX));
    points.flat_map(|plan| needs(&plan)).map(|needs| of(&needs)).max().unwrap_or_default()
}

/// Descriptors that they need in one process; servers may take several.
fn in_one_process(needs: &Needs) -> u64 {
    if needs.processes_max == 1 { needs.fds } else { 0 }
}

fn needs(plan: &Plan) -> Vec<Needs> {
    plan.points.iter().map(|point| point.experiment.needs(&point.point.axes)).collect()
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
    // Time does not matter here: a budget would cut what descriptors allow.
    job.budget = None;
    Some(Plan::make(
        job,
        &Machine {
            fds_max,
            cpus: 2,
            resources: Resources::default(),
            looks: &[],
            spent: std::time::Duration::ZERO,
            missing: &|_| None,
        },
    ))
}

fn of_job(plan: &Plan) -> Vec<Concern> {
    let mut concerns: Vec<Concern> =
        needs(plan).iter().flat_map(|needs| needs.concerns).copied().collect();
    let is_sweep = |part: usize| {
        let points = plan.points.iter().filter(|point| point.part == part);
        let loads = points.map(|point| point.experiment.needs(&point.point.axes).generator_fds);
        loads.collect::<BTreeSet<_>>().len() >= SWEEP_VALUES_MIN
    };
    if (0..plan.job.parts.len()).any(is_sweep) {
        concerns.push(Concern::Sweep);
    }
    concerns.sort_unstable();
    concerns.dedup();
    concerns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns(name: &str) -> Vec<Concern> {
        asked(name).unwrap_or_else(|| panic!("{name}")).concerns
    }

    #[test]
    fn every_job_and_every_experiment_can_be_asked_for() {
        let jobs = job::list().iter().map(|job| job.name);
        for name in jobs.chain(experiments::names()) {
            assert!(!concerns(name).is_empty(), "{name}");
        }
        assert!(names().all(|(name, _)| asked(name).is_some()));
        assert_eq!(asked("none-such"), None);
    }

    #[test]
    fn a_job_concerns_what_its_parts_do() {
        use Concern::{Churn, Counters, Dead, Descriptors, Queues, Servers, Sweep};
        assert_eq!(concerns("version"), [Descriptors, Servers, Dead]);
        assert_eq!(concerns("quick"), [Descriptors, Servers, Dead, Churn, Queues]);
        assert_eq!(concerns("published-epoll-bench"), [Descriptors]);
        assert_eq!(concerns("published-sys-epoll"), [Descriptors, Servers, Dead]);
        assert_eq!(concerns("published-sehttpd"), [Servers, Churn, Sweep]);
        assert_eq!(concerns("idle"), [Dead]);
        assert_eq!(concerns("poller"), [Descriptors, Servers, Counters]);
        assert_eq!(concerns("proxy"), [Servers, Sweep]);
    }

    #[test]
    fn few_descriptors_are_recognised_by_the_jobs_that_lose_points() {
        assert!(
            lost("published-sys-epoll", 20_000)
                .is_some_and(|lost| lost.starts_with("`published-sys-epoll` leaves out "))
        );
        assert_eq!((lost("quick", 20_000), lost("dead", 20_000)), (None, None));
        assert!(lost("quick", 4096).is_some() && !loses_an_experiment(DEFAULT_JOB, 4096));
        assert!(loses_an_experiment(DEFAULT_JOB, 1024));
        let in_one = of_every_job(in_one_process);
        assert!((30_000..40_000).contains(&in_one), "{in_one}");
    }
}
