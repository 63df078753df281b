//! The flags of `pollux lab run`: a job for one experiment, or changes to a job file's job.
//!
//! The command line hands over the texts as they were typed; they are read by the readers of the
//! job file, so a value means the same in both, and every wrong flag is named.

use std::time::Duration;

use crate::axis::{Axis, AxisKind, Value};
use crate::experiments::{self, Experiment};

use super::arms::{self, Asked};
use super::keys::{self, Key, Section};
use super::kind;
use super::mistake::{JobError, Mistake, Place, did_you_mean};
use super::rules;
use super::{Job, Part};

/// What the flags say, as typed. What they do not say stays as it is in the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--only`: names of parts or experiments that stay; none means all.
    pub only: Vec<String>,
    /// `--arm`: names of the lab, also several with commas, and `NAME=COMMAND`,
    /// `NAME=pid:PID@ADDRESS` or `NAME=pollux:PATH`; they replace the arms of every part.
    pub arms: Vec<String>,
    /// `--arm-pattern`: makes programs of the commands, with one for all or one for each; without
    /// it they are servers.
    pub arm_patterns: Vec<String>,
    /// Whether `NAME=PATH` is a build of pollux, as it is for the job `version`.
    pub bare_is_build: bool,
    /// Axis flags: the name, with `-` or `_`, and the values that replace the axis's. A switch
    /// has the value `true`.
    pub axes: Vec<(String, Vec<String>)>,
    /// `--baseline`.
    pub baseline: Option<String>,
    /// `--blocks`.
    pub blocks: Option<String>,
    /// `--max-blocks`.
    pub max_blocks: Option<String>,
    /// `--budget`.
    pub budget: Option<String>,
    /// `--seed`.
    pub seed: Option<String>,
    /// `--ramp-time`.
    pub ramp_time: Option<String>,
    /// `--runtime`.
    pub runtime: Option<String>,
    /// `--interval`.
    pub interval: Option<String>,
    /// `--rates`; without it the job's own setting stands.
    pub rates: bool,
    /// `--profile`.
    pub profile: Option<String>,
    /// `--min-effect`.
    pub min_effect: Option<String>,
    /// `--precision`.
    pub precision: Option<String>,
    /// `--request-times`; without it the job's own setting stands.
    pub request_times: bool,
    /// `--show-intervals`; without it the job's own setting stands.
    pub show_intervals: bool,
}

impl Job {
    /// The job of one experiment: all defaults, changed by `overrides`.
    ///
    /// # Errors
    /// Every mistake of the flags, each with its flag.
    pub fn for_experiment(
        experiment: &'static dyn Experiment,
        overrides: &Overrides,
    ) -> Result<Self, JobError> {
        let axis = |axis: &Axis| (axis.name.to_owned(), axis.defaults());
        let arms = arms::all_of(experiment);
        let part = Part {
            name: experiment.name().to_owned(),
            experiment,
            baseline: arms::default_baseline(&arms).expect("there are arms"),
            arms,
            axes: experiment.axes().iter().map(axis).collect(),
            ramp_time: keys::default("ramp_time", kind::length),
            runtime: keys::default("runtime", kind::length),
            interval: keys::default("interval", kind::length),
            rates: false,
        };
        let mut job = Self::around(vec![part], experiment.name().to_owned());
        job.apply(overrides)?;
        Ok(job)
    }

    /// Changes this job as the flags say. A default that no longer fits gives way: the baseline
    /// becomes another arm when `--arm` takes it away, the interval shrinks to a shorter
    /// runtime, and the most blocks follow the blocks and the other way round.
    ///
    /// # Errors
    /// Every mistake of the flags, each with its flag; the job is then unchanged.
    pub fn apply(&mut self, overrides: &Overrides) -> Result<(), JobError> {
        let mut changed = self.clone();
        let mut flags = Flags::default();
        flags.keep_only(&mut changed, &overrides.only);
        flags.change_job(&mut changed, overrides);
        flags.change_axes(&mut changed, &overrides.axes);
        flags.change_arms(&mut changed, overrides);
        flags.change_windows(&mut changed, overrides);
        if !flags.mistakes.is_empty() {
            return Err(JobError { mistakes: flags.mistakes });
        }
        *self = changed;
        Ok(())
    }
}

/// Reads flags and keeps their mistakes.
#[derive(Default)]
struct Flags {
    mistakes: Vec<Mistake>,
}

impl Flags {
    fn note(&mut self, flag: &str, message: String) {
        self.mistakes.push(Mistake { place: Place::Flag(flag.to_owned()), message });
    }

    /// Reads the text of the flag of key `name` like the key itself.
    fn read<T>(
        &mut self,
        name: &str,
        text: Option<&String>,
        read: impl Fn(&Key, &str) -> Result<T, String>,
    ) -> Option<T> {
        let text = text?;
        let result = read(keys::key(Section::Global, name), text);
        result.map_err(|what| self.note(&flag(name, text), what)).ok()
    }

    fn keep_only(&mut self, job: &mut Job, only: &[String]) {
        let is_called =
            |part: &Part, name: &String| part.name == *name || part.experiment.name() == name;
        let names = |part: &Part| [part.name.clone(), part.experiment.name().to_owned()];
        let mut known: Vec<String> = job.parts.iter().flat_map(names).collect();
        known.sort();
        known.dedup();
        for name in only {
            if !known.contains(name) {
                let suggestion = did_you_mean(name, known.iter().map(String::as_str));
                let what = format!("no such part; expected {}{suggestion}", known.join(", "));
                self.note(&flag("only", name), what);
            }
        }
        if !only.is_empty() && self.mistakes.is_empty() {
            job.parts.retain(|part| only.iter().any(|name| is_called(part, name)));
        }
    }

    fn change_job(&mut self, job: &mut Job, given: &Overrides) {
        let seed = self.read("seed", given.seed.as_ref(), kind::whole);
        job.seed = seed.unwrap_or(job.seed);
        let precision = self.read("precision", given.precision.as_ref(), kind::share);
        job.precision = precision.unwrap_or(job.precision);
        let min_effect = self.read("min_effect", given.min_effect.as_ref(), kind::share);
        job.min_effect = min_effect.unwrap_or(job.min_effect);
        job.budget = self.read("budget", given.budget.as_ref(), kind::length).or(job.budget);
        let profile_hz = self.read("profile", given.profile.as_ref(), kind::profile);
        job.profile_hz = profile_hz.or(job.profile_hz);
        job.shows_intervals |= given.show_intervals;
        job.times_requests |= given.request_times;
        self.change_blocks(job, given);
    }

    fn change_blocks(&mut self, job: &mut Job, given: &Overrides) {
        let blocks = self.read("blocks", given.blocks.as_ref(), kind::whole_u32);
        let blocks_max = self.read("max_blocks", given.max_blocks.as_ref(), kind::whole_u32);
        if let (Some(blocks), Some(blocks_max)) = (blocks, blocks_max)
            && let Some(fault) = rules::blocks_fault(blocks, blocks_max)
        {
            self.note(&flag("blocks", &blocks.to_string()), fault);
        }
        job.blocks = blocks.unwrap_or(job.blocks.min(blocks_max.unwrap_or(u32::MAX)));
        job.blocks_max = blocks_max.unwrap_or(match blocks {
            Some(exactly) => exactly,
            None => job.blocks_max.max(job.blocks),
        });
    }

    fn change_axes(&mut self, job: &mut Job, axes: &[(String, Vec<String>)]) {
        for (name, values) in axes {
            let name = name.replace('-', "_");
            let parts = job.parts.iter_mut().filter(|part| part.axes.contains_key(&name));
            let parts: Vec<&mut Part> = parts.collect();
            let Some(axis) = parts.first().and_then(|part| axis_of(part.experiment, &name)) else {
                self.note(&flag(&name, &values.join(",")), no_such_axis(&name));
                continue;
            };
            if let Some(values) = self.axis_values(axis, values) {
                for part in parts {
                    part.axes.insert(name.clone(), values.clone());
                }
            }
        }
    }

    fn axis_values(&mut self, axis: &Axis, values: &[String]) -> Option<Vec<Value>> {
        if axis.kind == AxisKind::Switch && values.len() > 1 {
            self.note(&flag(axis.name, &values.join(",")), "expected one value".to_owned());
            return None;
        }
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        let result = rules::axis_values(axis, &texts);
        result.map_err(|mistakes| self.note_items(axis.name, &texts, mistakes)).ok()
    }

    fn change_arms(&mut self, job: &mut Job, given: &Overrides) {
        let mistakes_before = self.mistakes.len();
        let asked = self.asked(given);
        let experiments: Vec<_> = job.parts.iter().map(|part| part.experiment).collect();
        if let Some((name, what)) = arms::stranger(&asked, &experiments) {
            self.note(&flag("arm", &name), what);
        }
        if self.mistakes.len() > mistakes_before {
            return;
        }
        for part in &mut job.parts {
            if !asked.is_empty() {
                part.arms = arms::of(&asked, part.experiment);
            }
            self.change_baseline(part, given.baseline.as_ref());
        }
    }

    /// The arms that are given.
    fn asked(&mut self, given: &Overrides) -> Vec<Asked> {
        let texts = given.arms.iter().flat_map(|text| match text.contains('=') {
            true => vec![text.as_str()],
            false => text.split(',').map(str::trim).collect(),
        });
        let texts: Vec<&str> = texts.collect();
        let is_command = |text: &&str| {
            let named = arms::named_in_flag(text);
            named.is_some_and(|(_, what)| arms::is_command(what, given.bare_is_build))
        };
        let commands = texts.iter().filter(|text| is_command(text)).count();
        let patterns = &given.arm_patterns;
        if !matches!(patterns.len(), 0 | 1) && patterns.len() != commands
            || commands == 0 && !patterns.is_empty()
        {
            let found = format!("{} of them for {commands} commands in --arm", patterns.len());
            self.note("--arm-pattern", format!("{found}; expected one for all or one for each"));
        }
        let mut patterns = patterns.iter().cycle().map(String::as_str);
        let mut asked = Vec::new();
        for text in texts {
            let pattern = is_command(&text).then(|| patterns.next()).flatten();
            let read = match arms::named_in_flag(text) {
                None => arms::word(text),
                Some((name, what)) => {
                    arms::in_flag(name, what, pattern, given.bare_is_build).map(Asked::Named)
                }
            };
            let read = read.and_then(|next| arms::next_fault(&asked, &next).map_or(Ok(next), Err));
            match read {
                Ok(next) => asked.push(next),
                Err(what) => self.note(&flag("arm", text), what),
            }
        }
        asked
    }

    fn change_baseline(&mut self, part: &mut Part, given: Option<&String>) {
        let Some(default) = arms::default_baseline(&part.arms) else {
            let what = arms::nothing_left(part.experiment);
            return self.note("--arm", format!("in \"{}\", {what}", part.name));
        };
        let is_arm = |name: &String| part.arms.iter().any(|arm| arm.name == *name);
        part.baseline = match given {
            Some(baseline) => {
                if let Some(fault) = arms::baseline_fault(baseline, &part.arms) {
                    let what = format!("in \"{}\", {fault}", part.name);
                    self.note(&flag("baseline", baseline), what);
                }
                baseline.clone()
            }
            None if is_arm(&part.baseline) => return,
            None => default,
        };
    }

    fn change_windows(&mut self, job: &mut Job, given: &Overrides) {
        let ramp_time = self.read("ramp_time", given.ramp_time.as_ref(), kind::length);
        let runtime = self.read("runtime", given.runtime.as_ref(), kind::length);
        let interval = self.read("interval", given.interval.as_ref(), kind::length);
        for part in &mut job.parts {
            part.ramp_time = ramp_time.unwrap_or(part.ramp_time);
            part.runtime = runtime.unwrap_or(part.runtime);
            part.interval = interval.unwrap_or(part.interval.min(part.runtime));
            part.rates |= given.rates;
            self.check_window(part.runtime, part.interval, given);
        }
    }

    fn check_window(&mut self, runtime: Duration, interval: Duration, given: &Overrides) {
        let Some(fault) = rules::interval_fault(runtime, interval) else { return };
        let flag = match (&given.interval, &given.runtime) {
            (Some(interval), _) => flag("interval", interval),
            (None, Some(runtime)) => flag("runtime", runtime),
            (None, None) => return,
        };
        if !self.mistakes.iter().any(|mistake| mistake.place == Place::Flag(flag.clone())) {
            self.note(&flag, fault);
        }
    }

    fn note_items(&mut self, name: &str, items: &[&str], mistakes: rules::ItemMistakes) {
        for (at, what) in mistakes {
            self.note(&flag(name, items.get(at).copied().unwrap_or("")), what);
        }
    }
}

/// The flag of a key with its value, as the user typed it but in one line.
fn flag(name: &str, value: &str) -> String {
    let value = value.replace(char::is_control, "?");
    format!("--{} {value}", name.replace('_', "-")).trim_end().to_owned()
}

fn axis_of(experiment: &dyn Experiment, name: &str) -> Option<&'static Axis> {
    experiment.axes().iter().find(|axis| axis.name == name)
}

fn no_such_axis(name: &str) -> String {
    let owners = keys::axis_owners(name);
    if owners.is_empty() {
        let all = experiments::ALL.iter().flat_map(|experiment| experiment.axes());
        return format!("no experiment has this axis{}", did_you_mean(name, all.map(|a| a.name)));
    }
    let owners: Vec<_> = owners.iter().map(|(experiment, _)| experiment.name()).collect();
    format!("nothing in this job has this axis; it belongs to {}", owners.join(", "))
}
