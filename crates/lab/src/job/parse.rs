//! Reads a job file: TOML text in, a checked [`Job`] or every mistake out.
//!
//! Called for the files that a user names, for the built-in ones and to run a stored result
//! again. It reads no files and knows no machine: what the machine forbids is the plan's part.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use crate::arm::Arm;
use crate::axis::{Axis, AxisKind, Value};
use crate::experiments::{self, Experiment};

use super::arms::{self, Asked};
use super::keys::{self, Section};
use super::kind::{self, refusal, to_name};
use super::mistake::JobError;
use super::rules;
use super::walk::{Said, Table, Walk, wrong_type};
use super::{Job, Part};

/// The question of a job whose experiments differ.
const QUESTION: &str = "Which event mechanism for which load?";
/// Most experiments of one file; far more than a report can show.
const PARTS_MAX: usize = 64;

impl Job {
    /// Reads a job from the text of a job file; `docs/job-file.md` describes the format.
    /// `file_name` names it in messages, and its stem is the job's name unless it has its own.
    ///
    /// # Errors
    /// Every mistake of the text, with line and column. When the text is not TOML, only what
    /// the TOML rules say about it.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, JobError> {
        let mut walk = Walk::new(file_name, text);
        let (document, errors) = DeTable::parse_recoverable(text);
        let mut line_before = None;
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            // What follows a fault in its line follows from it.
            let line = text.get(..at).map(|before| before.matches('\n').count());
            if line_before.replace(line) != Some(line) {
                walk.note(at, format!("not TOML: {}", syntax_fault(error.message())));
            }
        }
        if !errors.is_empty() {
            return walk.finish(None);
        }
        let job = read_job(&mut walk, Table::top(&document), file_name);
        walk.finish(job)
    }
}

/// What is wrong with the syntax, in words that do not need the grammar of TOML.
fn syntax_fault(message: &str) -> String {
    const OF_VALUES: [&str; 5] = ["must be quoted", "float", "integer", "mantissa", "exponent"];
    if OF_VALUES.iter().any(|word| message.contains(word)) {
        return "expected a text in quotes, such as \"200ms\", a number, true, false or a list"
            .to_owned();
    }
    message.replace('\n', ", ")
}

/// The settings of a run as one section gives them.
#[derive(Clone)]
struct RunSettings {
    arms: Said<Vec<Asked>>,
    baseline: Said<String>,
    ramp_time: Said<Duration>,
    runtime: Said<Duration>,
    interval: Said<Duration>,
    rates: Said<bool>,
}

impl RunSettings {
    const NONE: Self = Self {
        arms: Said::Nothing,
        baseline: Said::Nothing,
        ramp_time: Said::Nothing,
        runtime: Said::Nothing,
        interval: Said::Nothing,
        rates: Said::Nothing,
    };

    fn read<'a>(walk: &mut Walk<'a>, table: Table<'a>) -> Self {
        Self {
            arms: arms::in_file(walk, table),
            baseline: walk.said(table, "baseline", kind::name),
            ramp_time: walk.said(table, "ramp_time", kind::length),
            runtime: walk.said(table, "runtime", kind::length),
            interval: walk.said(table, "interval", kind::length),
            rates: walk.said(table, "rates", kind::switch),
        }
    }

    /// These settings, and those of `global` where these say nothing.
    fn over(self, global: Self) -> Self {
        Self {
            arms: self.arms.or(global.arms),
            baseline: self.baseline.or(global.baseline),
            ramp_time: self.ramp_time.or(global.ramp_time),
            runtime: self.runtime.or(global.runtime),
            interval: self.interval.or(global.interval),
            rates: self.rates.or(global.rates),
        }
    }
}

fn read_job<'a>(walk: &mut Walk<'a>, top: Table<'a>, file_name: &str) -> Option<Job> {
    walk.check_names(top, &[]);
    let _ = walk.said(top, "schema", kind::whole);
    let global = walk.sections(top, "global", Section::Global).pop();
    if let Some(global) = global {
        walk.check_names(global, &[]);
    }
    let settings = global.map_or(RunSettings::NONE, |global| RunSettings::read(walk, global));
    let mut parts: Vec<Part> = Vec::new();
    let tables = walk.sections(top, "job", Section::Job);
    let is_misshapen = top.has("job") && !top.has_list("job");
    if !is_misshapen && !(1..=PARTS_MAX).contains(&tables.len()) {
        let found = tables.len();
        walk.note(top.at, format!("{found} [[job]] sections; expected from 1 to {PARTS_MAX}"));
    }
    for table in tables.iter().take(PARTS_MAX) {
        if let Some(part) = read_part(walk, *table, settings.clone()) {
            if parts.iter().any(|other| other.name == part.name) {
                let name = &part.name;
                walk.note(table.at, format!("two jobs are called \"{name}\"; give one a name"));
            }
            parts.push(part);
        }
    }
    let mut job = Job::around(parts, to_name(&stem(file_name)));
    if let Some(global) = global {
        read_global(walk, global, &mut job);
    }
    Some(job)
}

impl Job {
    /// A job of these parts in which everything else has its default.
    pub(super) fn around(parts: Vec<Part>, name: String) -> Self {
        Self {
            name,
            question: default_question(&parts),
            seed: keys::default("seed", kind::whole),
            blocks: keys::default("blocks", kind::whole_u32),
            blocks_max: keys::default("max_blocks", kind::whole_u32),
            precision: keys::default("precision", kind::share),
            min_effect: keys::default("min_effect", kind::share),
            budget: None,
            profile_hz: None,
            shows_intervals: keys::default("show_intervals", kind::switch),
            times_requests: keys::default("request_times", kind::switch),
            require: Vec::new(),
            parts,
        }
    }
}

fn read_global<'a>(walk: &mut Walk<'a>, global: Table<'a>, job: &mut Job) {
    let set = |slot: &mut String, said: Said<String>| *slot = said.value().unwrap_or(slot.clone());
    set(&mut job.name, walk.said(global, "name", kind::name));
    set(&mut job.question, walk.said(global, "question", kind::line));
    job.seed = walk.said(global, "seed", kind::whole).value().unwrap_or(job.seed);
    job.precision = walk.said(global, "precision", kind::share).value().unwrap_or(job.precision);
    job.min_effect = walk.said(global, "min_effect", kind::share).value().unwrap_or(job.min_effect);
    job.budget = walk.said(global, "budget", kind::length).value();
    job.profile_hz = walk.said(global, "profile", kind::profile).value();
    job.shows_intervals =
        walk.said(global, "show_intervals", kind::switch).value().unwrap_or(job.shows_intervals);
    job.times_requests =
        walk.said(global, "request_times", kind::switch).value().unwrap_or(job.times_requests);
    job.require = read_require(walk, global);
    read_blocks(walk, global, job);
}

/// Where only one of the two is given, the other's default gives way.
fn read_blocks<'a>(walk: &mut Walk<'a>, global: Table<'a>, job: &mut Job) {
    let blocks = walk.said(global, "blocks", kind::whole_u32);
    let blocks_max = walk.said(global, "max_blocks", kind::whole_u32);
    if let (Said::Value(blocks, at), Said::Value(blocks_max, _)) = (&blocks, &blocks_max)
        && let Some(fault) = rules::blocks_fault(*blocks, *blocks_max)
    {
        walk.note(*at, fault);
    }
    let (blocks, blocks_max) = (blocks.value(), blocks_max.value());
    job.blocks = blocks.unwrap_or(job.blocks.min(blocks_max.unwrap_or(u32::MAX)));
    job.blocks_max = blocks_max.unwrap_or(job.blocks_max.max(job.blocks));
}

fn read_require<'a>(walk: &mut Walk<'a>, global: Table<'a>) -> Vec<String> {
    let key = keys::key(Section::Global, "require");
    if global.has("require") && !global.has_list("require") {
        walk.refuse(global, "require", &refusal(key, "not a list"));
        return Vec::new();
    }
    let is_text = |value: &toml::de::DeValue<'_>| {
        if value.is_str() { Ok(()) } else { Err(refusal(key, &wrong_type(value))) }
    };
    let lines = |items: &[&str]| rules::distinct(items, |item| kind::line(key, item));
    walk.list(global, "require", is_text, lines).value().unwrap_or_default()
}

fn read_part<'a>(walk: &mut Walk<'a>, table: Table<'a>, global: RunSettings) -> Option<Part> {
    let experiment = walk.required(table, "experiment", kind::experiment);
    // Without an experiment nobody knows which axes are right: those of any pass.
    let experiments = experiment.map_or_else(|| experiments::ALL.to_vec(), |only| vec![only]);
    let axes: Vec<&Axis> = experiments.iter().flat_map(|e| e.axes()).collect();
    walk.check_names(table, &axes.iter().map(|axis| axis.name).collect::<Vec<_>>());
    let name = walk.said(table, "name", kind::name);
    let own = RunSettings::read(walk, table);
    let is_strange = note_stranger(walk, &own, experiment);
    let settings = own.over(global);
    let values = axes.iter().map(|axis| (axis.name.to_owned(), read_axis(walk, table, axis)));
    let axes: BTreeMap<_, _> = values.collect();
    let experiment = experiment?;
    let (runtime, interval) = read_window(walk, &settings);
    let ramp_time = settings.ramp_time.clone().value();
    let rates = settings.rates.clone().value();
    if is_strange {
        return None;
    }
    let (arms, baseline) = read_arms(walk, table, settings, experiment)?;
    Some(Part {
        name: name.value().unwrap_or_else(|| experiment.name().to_owned()),
        experiment,
        arms,
        baseline,
        axes,
        ramp_time: ramp_time.unwrap_or_else(|| keys::default("ramp_time", kind::length)),
        runtime,
        interval,
        rates: rates.unwrap_or_else(|| keys::default("rates", kind::switch)),
    })
}

/// An arm that is named for this experiment must be one of it; those of `[global]` are for all.
fn note_stranger(
    walk: &mut Walk<'_>,
    own: &RunSettings,
    experiment: Option<&'static dyn Experiment>,
) -> bool {
    if let (Some(experiment), Said::Value(asked, at)) = (experiment, &own.arms)
        && let Some((name, what)) = arms::stranger(asked, &[experiment])
    {
        walk.note(*at, format!("arms: {name}: {what}"));
        return true;
    }
    false
}

/// Arms and baseline; not judged where the arms themselves are wrong.
fn read_arms<'a>(
    walk: &mut Walk<'a>,
    table: Table<'a>,
    settings: RunSettings,
    experiment: &dyn Experiment,
) -> Option<(Vec<Arm>, String)> {
    let arms = match settings.arms {
        Said::Nothing => arms::all_of(experiment),
        Said::Wrong => return None,
        Said::Value(asked, _) => arms::of(&asked, experiment),
    };
    let Some(default) = arms::default_baseline(&arms) else {
        walk.note(table.at, arms::nothing_left(experiment));
        return None;
    };
    let baseline = match settings.baseline {
        Said::Nothing | Said::Wrong => default,
        Said::Value(baseline, at) => {
            if let Some(fault) = arms::baseline_fault(&baseline, &arms) {
                walk.note(at, format!("baseline {fault}"));
            }
            baseline
        }
    };
    Some((arms, baseline))
}

/// Runtime and interval; the default interval gives way to a shorter runtime.
fn read_window(walk: &mut Walk<'_>, settings: &RunSettings) -> (Duration, Duration) {
    let runtime = settings.runtime.clone().value();
    let runtime = runtime.unwrap_or_else(|| keys::default("runtime", kind::length));
    match settings.interval {
        Said::Value(interval, at) => {
            let is_judged = !matches!(settings.runtime, Said::Wrong);
            if let Some(fault) = rules::interval_fault(runtime, interval).filter(|_| is_judged) {
                walk.note(at, fault);
            }
            (runtime, interval)
        }
        Said::Nothing | Said::Wrong => {
            (runtime, keys::default("interval", kind::length).min(runtime))
        }
    }
}

fn read_axis<'a>(walk: &mut Walk<'a>, table: Table<'a>, axis: &Axis) -> Vec<Value> {
    let right = format!("expected {}", axis.accepts());
    if axis.kind == AxisKind::Switch && table.has_list(axis.name) {
        walk.refuse(table, axis.name, &format!("this is a list; {right}, once"));
        return Vec::new();
    }
    let is_right = |value: &toml::de::DeValue<'_>| {
        let is_right = match axis.kind {
            AxisKind::Word(_) | AxisKind::Path => value.is_str(),
            AxisKind::Count(..) => value.is_integer(),
            AxisKind::WordOrCount(..) => value.is_integer() || value.is_str(),
            AxisKind::Switch | AxisKind::Either => value.is_bool(),
        };
        if is_right { Ok(()) } else { Err(format!("{}; {right}", wrong_type(value))) }
    };
    let said = walk.list(table, axis.name, is_right, |items| rules::axis_values(axis, items));
    said.value().unwrap_or_else(|| axis.defaults())
}

/// The question of the only experiment, else the general one.
fn default_question(parts: &[Part]) -> String {
    let Some(first) = parts.first() else { return QUESTION.to_owned() };
    let is_one = parts.iter().all(|part| part.experiment == first.experiment);
    if is_one { first.experiment.question().to_owned() } else { QUESTION.to_owned() }
}

fn stem(file_name: &str) -> String {
    let stem = Path::new(file_name).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
