//! `pollux lab`: from flags to a job, from a job to a plan, a run, a report and an exit code.
//!
//! The processes of which a run is made are hidden commands of it: `processes`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_host::sources::Sources;
use pollux_lab::axis::Axis;
use pollux_lab::baselines::BaselineOptions;
use pollux_lab::compare_records::{self, Change};
use pollux_lab::experiments::{self, Experiment};
use pollux_lab::job::{self, DEFAULT_JOB, Job, VERSION_JOB};
use pollux_lab::plan::{self, Machine, Plan, Requirement, Resources, missing_here};
use pollux_lab::record::{Ending, LeftOut, Look, Record};
use pollux_lab::run::{Runner, Scratch, Stop, look};
use pollux_lab::{gate, report, store};
use pollux_settings::Row;
use pollux_sys::descriptors;
use pollux_sys::process::ignores;

pub(crate) mod processes;

use crate::args::{JobFlags, Lab, LabCommand, RunFlags};
use crate::output::{self, Failure};
use crate::progress::{self, Progress};

/// Folder for results when none is named.
const OUT: &str = "pollux-out";

/// Runs one `pollux lab` command.
pub(crate) fn run(lab: Lab) -> Result<ExitCode, Failure> {
    match lab.command {
        None => run_job(DEFAULT_JOB, lab.run),
        Some(LabCommand::Run { target, run }) => run_job(&target.job, run),
        Some(LabCommand::Version { run }) => run_job(VERSION_JOB, run),
        Some(LabCommand::Reproduce { job, run }) => run_job(job, run),
        Some(LabCommand::Axes { experiment }) => {
            output::result(&axes(experiment))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(LabCommand::List { json }) => list(json),
        Some(LabCommand::Plan { target, job, json }) => show_plan(&target.job, job, json),
        Some(LabCommand::Report { result, markdown, json, html }) => {
            make_report(&result, markdown, json, html)
        }
        Some(LabCommand::Compare { before, after, gate, strict, across, json }) => {
            compare_results(&before, &after, gate, strict, across, json)
        }
        Some(LabCommand::Baseline { server, listen, reply, close }) => processes::baseline(
            &server,
            &BaselineOptions { listen, reply_bytes: reply, closes: close },
        ),
    }
}

fn run_job(target: &str, flags: RunFlags) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let job = read_job(target, flags.job)?;
    let plan = planned(job.clone(), &[], Duration::ZERO);
    can_run(&plan)?;
    if flags.gate
        && let Some(fault) = plan.gate_fault()
    {
        return Err(Failure::usage(fault));
    }
    let folder = flags.out.unwrap_or_else(|| default_folder(&plan.job.name));
    if !flags.overwrite {
        store::check_free(&folder).map_err(Failure::usage)?;
    }
    let sources = Sources::probe();
    require(&plan.job, &sources)?;
    let stop = Stop::default();
    let ended_by = listen_for_interrupts(&stop, plan.unit())?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let scratch = Scratch::make().map_err(Failure::failed)?;
    let looks = look(&plan, &program, scratch.path(), &stop);
    if stop.is_asked() {
        return Ok(output::ended_by(ended_by.load(Relaxed)));
    }
    let plan = if looks.is_empty() { plan } else { planned(job, &looks, began.elapsed()) };
    if let Err(failure) = can_run(&plan) {
        for look in looks.iter().filter(|look| look.fault.is_none() && !flags.quiet) {
            output::remark(&format!("looked at {}: {}", look.arm, look.in_words()));
        }
        return Err(failure);
    }
    // Now, and not after minutes of measuring.
    store::prepare(&folder).map_err(Failure::failed)?;
    if !flags.quiet {
        announce(&plan, &sources, &folder);
    }
    let mut progress = Progress::new(&plan, folder.clone(), flags.quiet, began);
    let record = Runner {
        plan: &plan,
        program,
        command: std::iter::once("pollux".to_owned()).chain(std::env::args().skip(1)).collect(),
        sources,
        scratch,
        began,
        stop,
        observer: &mut progress,
    }
    .run();
    progress.finish();
    let saved = store::save(&folder, &record);
    output::result(&match (flags.json, flags.markdown) {
        (true, _) => json(&record),
        (false, true) => report::markdown(&record),
        (false, false) => output::shown(&progress::table(&record)),
    })?;
    saved.map_err(Failure::failed)?;
    if !flags.quiet {
        output::remark(&format!("report: {}", folder.join(store::REPORT_FILE).display()));
    }
    let (code, reason) = exit_code(&record, flags.gate, flags.strict, ended_by.load(Relaxed));
    // The last line of a log.
    reason.iter().for_each(|reason| output::remark(reason));
    Ok(code)
}

/// Whether a plan has something to run, and a budget that decides something.
fn can_run(plan: &Plan) -> Result<(), Failure> {
    if plan.points.is_empty() {
        // Several parts lack the same program; once is enough to say.
        let reason = |left: &LeftOut| {
            if plan.looks.iter().any(|look| look.arm == left.arm) {
                format!("{}: {}", left.arm, left.reason)
            } else {
                left.reason.clone()
            }
        };
        let mut reasons: Vec<String> = plan.left_out.iter().map(reason).collect();
        // What was found wrong with an arm comes before what follows from it.
        reasons.sort_by_key(|reason| !plan.looks.iter().any(|look| reason.starts_with(&look.arm)));
        let mut seen = Vec::new();
        reasons.retain(|reason| {
            !seen.contains(reason) && {
                seen.push(reason.clone());
                true
            }
        });
        return Err(Failure::failed(format!("nothing can run here: {}", reasons.join("; "))));
    }
    plan.budget_fault().map_or(Ok(()), |fault| Err(Failure::usage(fault)))
}

/// The exit code with its reason; `signal` is the one that interrupted the run, if one did.
fn exit_code(
    record: &Record,
    is_gate: bool,
    is_strict: bool,
    signal: i32,
) -> (ExitCode, Option<String>) {
    if record.ending == Ending::Interrupted {
        return (output::ended_by(signal), None);
    }
    let reasons = [
        (1, gate::unmeasured(record)),
        (3, is_gate.then(|| gate::worse(record)).flatten()),
        (4, is_gate.then(|| gate::without_verdict(record)).flatten()),
        (4, is_strict.then(|| gate::unsure(record)).flatten()),
    ];
    let first = reasons.into_iter().find(|(_, reason)| reason.is_some());
    first.map_or((ExitCode::SUCCESS, None), |(code, reason)| (ExitCode::from(code), reason))
}

fn read_job(target: &str, flags: JobFlags) -> Result<Job, Failure> {
    let job = job::read(target, flags.given).map_err(Failure::usage)?;
    let faults = plan::faults(&job);
    if !faults.is_empty() {
        return Err(Failure::usage(faults.join("\n")));
    }
    Ok(job)
}

/// The plan for a job on this machine, after these looks, and what they took.
fn planned(job: Job, looks: &[Look], spent: Duration) -> Plan {
    Plan::make(
        job,
        &Machine {
            looks,
            spent,
            fds_max: descriptors::Limit::here().hard,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            resources: Resources::here(),
            missing: &missing_here,
        },
    )
}

/// The axes of one experiment, or of all.
fn axes(only: Option<&dyn Experiment>) -> String {
    let table = pollux_settings::describe::<Job>();
    let rows = |experiment: &dyn Experiment| -> String {
        let section = table.section("job").expect("jobs are its sections");
        let row = |axis: &Axis| {
            let row = section.row(axis.name).expect("an axis is a key");
            let Row { about, accepts, default, .. } = row;
            let default = default.unwrap_or_default();
            format!("  --{:<16} {about} ({accepts}) [default: {default}]\n", row.flag_name())
        };
        experiment.axes.iter().map(row).collect()
    };
    let asked = experiments::ALL.into_iter().filter(|each| only.is_none_or(|one| one == *each));
    let texts = asked.map(|each| format!("{each}: {}\n{}", each.about, rows(each)));
    texts.collect::<Vec<_>>().join("\n")
}

/// Refuses a job whose required sources can't be read.
fn require(job: &Job, sources: &Sources) -> Result<(), Failure> {
    for name in &job.require {
        let status = sources.status(name);
        if status.is_some_and(|status| status.available) {
            continue;
        }
        let reason = status.and_then(|status| status.reason.clone());
        let enable = status.and_then(|status| status.enable.clone());
        let reason = reason.unwrap_or_else(|| "no source has this name".to_owned());
        let remedy = enable.map_or(String::new(), |command| format!("; to enable it: {command}"));
        return Err(Failure {
            message: format!("the job requires \"{name}\": {reason}{remedy}"),
            code: ExitCode::from(5),
        });
    }
    Ok(())
}

fn announce(plan: &Plan, sources: &Sources, folder: &Path) {
    output::remark(&plan.to_string());
    for source in sources.statuses.iter().filter(|source| !source.available) {
        let reason = source.reason.as_deref().unwrap_or("unknown");
        output::remark(&format!("n/a here: {} ({}): {reason}", source.name, source.gives));
        if let Some(command) = &source.enable {
            output::remark(&format!("          to enable: {command}"));
        }
    }
    let replaces = if store::has_result(folder) { ", replacing what is there" } else { "" };
    output::remark(&format!("results: {}{replaces}", folder.display()));
}

/// The signals that end a run in order; not the end of a terminal that this was started to survive (nohup(1)).
fn ending_signals() -> Vec<i32> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = vec![SIGINT, SIGTERM];
    signals.extend([SIGHUP].into_iter().filter(|signal| !ignores(*signal)));
    signals
}

/// The first Ctrl-C, SIGTERM or SIGHUP ends the run after its set or block, the second at once.
/// Gives the number of the first.
fn listen_for_interrupts(stop: &Stop, unit: &'static str) -> Result<Arc<AtomicI32>, Failure> {
    let mut signals =
        signal_hook::iterator::Signals::new(ending_signals()).map_err(Failure::failed)?;
    let stop = stop.clone();
    let first = Arc::new(AtomicI32::new(signal_hook::consts::SIGINT));
    let ended_by = Arc::clone(&first);
    std::thread::spawn(move || {
        for (count, signal) in signals.forever().enumerate() {
            if count == 0 {
                first.store(signal, Relaxed);
            }
            stop.ask();
            output::remark(&match count {
                0 => format!("stopping after this {unit}; once more stops at once"),
                _ => "stopping".to_owned(),
            });
        }
    });
    Ok(ended_by)
}

fn default_folder(job: &str) -> PathBuf {
    let started = Record::empty().started;
    let digits: String = started.chars().filter(char::is_ascii_digit).collect();
    let (day, time) = digits.split_at(8);
    Path::new(OUT).join(format!("{job}-{day}-{time}"))
}

fn beside(result: &Path, name: &str) -> PathBuf {
    if result.is_dir() { result.join(name) } else { result.with_file_name(name) }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data")
}

fn show_plan(target: &str, flags: JobFlags, as_json: bool) -> Result<ExitCode, Failure> {
    let plan = planned(read_job(target, flags)?, &[], Duration::ZERO);
    output::result(&if as_json {
        json(&plan.summary())
    } else {
        output::shown(&plan.to_string())
    })?;
    let unknown = plan.unlooked();
    if !as_json && !unknown.is_empty() {
        output::remark(&format!(
            "a run starts {} once before it plans: what it finds there changes this",
            unknown.join(", ")
        ));
    }
    can_run(&plan)?;
    if !plan.job.require.is_empty() {
        require(&plan.job, &Sources::probe())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Report and summary, beside the result as a run writes them; or the report alone, where `html` says.
fn make_report(
    result: &Path,
    markdown: bool,
    as_json: bool,
    html: Option<PathBuf>,
) -> Result<ExitCode, Failure> {
    let record = store::load(result).map_err(Failure::failed)?;
    if html.is_none() {
        let summary = beside(result, store::SUMMARY_FILE);
        store::replace(&summary, &report::markdown(&record)).map_err(Failure::failed)?;
    }
    let html = html.unwrap_or_else(|| beside(result, store::REPORT_FILE));
    store::replace(&html, &report::html(&record)).map_err(Failure::failed)?;
    output::result(&match (as_json, markdown) {
        (true, _) => json(&record),
        (false, true) => report::markdown(&record),
        (false, false) => output::shown(&progress::table(&record)),
    })?;
    output::remark(&format!("report: {}", html.display()));
    Ok(ExitCode::SUCCESS)
}

fn compare_results(
    before: &Path,
    after: &Path,
    is_gate: bool,
    is_strict: bool,
    is_across: bool,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let a = store::load(before).map_err(Failure::failed)?;
    let b = store::load(after).map_err(Failure::failed)?;
    if a == b {
        let path = before.display();
        let began = &a.started;
        let why =
            format!("{path} and {} are the same run, of {began}; expected two", after.display());
        return Err(Failure::usage(why));
    }
    let unfinished: Vec<String> = [(before, &a), (after, &b)]
        .into_iter()
        .filter(|(_, record)| record.ending == Ending::Interim)
        .map(|(path, record)| {
            let blocks = record.trust.blocks;
            format!(
                "{} is of a run that did not come to its end, after {blocks} of its sets or blocks",
                path.display()
            )
        })
        .collect();
    unfinished.iter().for_each(|said| output::remark(&format!("note: {said}")));
    let rows = compare_records::compare(&a, &b, is_across).map_err(Failure::usage)?;
    output::result(&if as_json {
        json(&rows)
    } else {
        output::shown(&compare_records::table(&rows))
    })?;
    let open = rows.iter().filter(|row| row.change == Change::Unclear).count();
    let strict = match unfinished.first() {
        Some(said) => Some(format!("--strict: {said}")),
        None => (open > 0).then(|| format!("--strict: {open} of {} rows are unclear", rows.len())),
    };
    let reasons = [
        (3, is_gate.then(|| gate::worse_than_before(&rows)).flatten()),
        (4, strict.filter(|_| is_strict)),
    ];
    Ok(match reasons.into_iter().find_map(|(code, reason)| Some((code, reason?))) {
        Some((code, reason)) => {
            output::remark(&reason);
            ExitCode::from(code)
        }
        None => ExitCode::SUCCESS,
    })
}

fn list(as_json: bool) -> Result<ExitCode, Failure> {
    let sources = Sources::probe();
    let mechanisms =
        Driver::ALL.map(|driver| (driver.name(), missing_here(Requirement::Driver(driver))));
    let peers = experiments::peers().into_iter().map(|peer| (peer.name, (peer.missing)()));
    let peers: Vec<_> = peers.collect();
    if as_json {
        let experiments = experiments::ALL.map(|e| (e.name, e.about));
        let jobs: Vec<_> = job::list().iter().map(|job| (job.name, job.about)).collect();
        output::result(&json(&serde_json::json!({
            "experiments": experiments.map(|(name, about)| serde_json::json!({ "name": name, "about": about })),
            "jobs": jobs.iter().map(|(name, about)| serde_json::json!({ "name": name, "about": about })).collect::<Vec<_>>(),
            "mechanisms": mechanisms.map(|(name, refused)| serde_json::json!({ "name": name, "unavailable": refused })),
            "peers": peers.iter().map(|(name, refused)| serde_json::json!({ "name": name, "unavailable": refused })).collect::<Vec<_>>(),
            "sources": sources.statuses,
        })))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Every name with a space behind it, whatever is added.
    let names = experiments::names().into_iter().chain(job::list().iter().map(|job| job.name));
    let width = 1 + names.map(str::len).max().unwrap_or_default();
    let mut text = String::from("Experiments\n");
    for experiment in experiments::ALL {
        text += &output::entry(experiment.name, width, experiment.about);
    }
    text += "\nBuilt-in jobs\n";
    for job in job::list() {
        text += &output::entry(job.name, width, job.about);
    }
    for (heading, names) in [("Mechanisms", &mechanisms[..]), ("Other systems", &peers[..])] {
        text += &format!("\n{heading}\n");
        for (name, refused) in names {
            text += &output::entry(name, width, refused.as_deref().unwrap_or("available"));
        }
    }
    text += "\nSources\n";
    for source in &sources.statuses {
        let state = match (&source.reason, &source.enable) {
            _ if source.available => source.gives.clone(),
            (reason, enable) => {
                let reason = reason.as_deref().unwrap_or("unknown reason");
                let enable = enable.as_ref().map(|command| format!("; to enable: {command}"));
                format!("n/a: {reason}{}", enable.unwrap_or_default())
            }
        };
        text += &output::entry(&source.name, width, &state);
    }
    output::result(&output::shown(&text))?;
    Ok(ExitCode::SUCCESS)
}
