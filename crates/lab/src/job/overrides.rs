//! The flags of `pollux lab run`: a job for one experiment, or changes to a job file's job.
//!
//! The command line hands over the texts as they were typed; they are read by the readers of the
//! job file, so a value means the same in both, and every wrong flag is named.

use std::time::Duration;

use crate::experiment::{Axis, AxisKind, Experiment, Peer};

use super::keys::{self, Key, Section};
use super::kind;
use super::mistake::{JobError, Mistake, Place, did_you_mean};
use super::parse::default_values;
use super::rules;
use super::{Command, Job, Part};

/// What the flags say, as typed. What they do not say stays as it is in the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--only`: names of parts or experiments that stay; none means all.
    pub only: Vec<String>,
    /// `--poller`: mechanisms, or one of the words `all` and `none`; they replace those of every
    /// part.
    pub pollers: Vec<String>,
    /// `--binary`: builds of pollux, each `name=path`; they replace those of every part.
    pub builds: Vec<String>,
    /// `--wait`: ways of waiting, or one of the words `all` and `none`; they replace those of every
    /// part that has some.
    pub waits: Vec<String>,
    /// `--peer`: other systems, or one of the words `all` and `none`; they replace those of every
    /// part.
    pub peers: Vec<String>,
    /// Axis flags: the name, with `-` or `_`, and the values that replace the axis's. A switch
    /// has the value `true`.
    pub axes: Vec<(String, Vec<String>)>,
    /// `--arm` and `--arm-pattern`: external arms that are added to every part; made by
    /// [`commands_from_flags`].
    pub commands: Vec<Command>,
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
    /// `--target-ci`.
    pub target_ci: Option<String>,
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
    pub fn for_experiment(experiment: Experiment, overrides: &Overrides) -> Result<Self, JobError> {
        let axis = |axis: &Axis| (axis.name.to_owned(), default_values(axis));
        let (pollers, waits) = (experiment.drivers().to_vec(), experiment.waits().to_vec());
        let peers = experiment.peers().to_vec();
        let part = Part {
            name: experiment.name().to_owned(),
            experiment,
            baseline: rules::default_baseline(&rules::arms(&pollers, &[], &waits, &peers, &[]))
                .expect("there are arms"),
            pollers,
            builds: Vec::new(),
            waits,
            peers,
            commands: Vec::new(),
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
    /// becomes another arm when `--poller` takes it away, the interval shrinks to a shorter
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

/// External arms from the flags `--arm 'name=command'` and `--arm-pattern RE`. One pattern serves
/// every arm; otherwise there is one for each arm, in the same order.
///
/// # Errors
/// Every arm without a name, a readable command or a pattern with a capture group.
pub fn commands_from_flags(arms: &[String], patterns: &[String]) -> Result<Vec<Command>, JobError> {
    let mut flags = Flags::default();
    let is_matched = patterns.len() == arms.len() || (patterns.len() == 1 && !arms.is_empty());
    if !is_matched {
        let found = format!("{} of them for {} --arm", patterns.len(), arms.len());
        flags.note("--arm-pattern", format!("{found}; expected one for all or one for each"));
    }
    let patterns = patterns.iter().cycle().map(String::as_str).chain(std::iter::repeat(""));
    let mut commands = Vec::new();
    for (arm, pattern) in arms.iter().zip(patterns) {
        if let Some((name, line)) = arm.split_once('=') {
            let [name, line, pattern] = [name, line, pattern].map(|text| text.trim().to_owned());
            commands.push(Command { name, line, pattern });
        } else {
            flags.note(&format!("--arm {arm}"), "expected 'name=command'".to_owned());
        }
    }
    if flags.mistakes.is_empty() {
        commands.iter().for_each(|command| flags.check_command(command));
    }
    if flags.mistakes.is_empty() {
        Ok(commands)
    } else {
        Err(JobError { mistakes: flags.mistakes })
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
        let target_ci = self.read("target_ci", given.target_ci.as_ref(), kind::share);
        job.target_ci = target_ci.unwrap_or(job.target_ci);
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

    fn axis_values(&mut self, axis: &Axis, values: &[String]) -> Option<Vec<String>> {
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
        let pollers = self.choice("poller", &given.pollers, rules::pollers);
        let waits = self.choice("wait", &given.waits, rules::waits);
        let peers = self.choice("peer", &given.peers, rules::peers);
        let builds = self.choice("binary", &given.builds, rules::builds);
        let experiments: Vec<_> = job.parts.iter().map(|part| part.experiment).collect();
        if let Some(peer) = peers.as_ref().and_then(|choice| choice.stranger(&experiments)) {
            self.note(&flag("peer", peer.name()), no_such_peer(peer));
        }
        let lack = |has: fn(Experiment) -> bool| !experiments.iter().copied().any(has);
        if pollers.is_some() && lack(|experiment| !experiment.drivers().is_empty()) {
            self.note("--poller", "nothing in this job has pollers; see --wait".to_owned());
        }
        if waits.is_some() && lack(|experiment| !experiment.waits().is_empty()) {
            self.note("--wait", "nothing in this job has ways of waiting: only herd".to_owned());
        }
        if self.mistakes.len() > mistakes_before {
            return;
        }
        given.commands.iter().for_each(|command| self.check_command(command));
        for part in &mut job.parts {
            if let Some(choice) = &pollers {
                part.pollers = choice.of(part.experiment);
            }
            if let Some(builds) = &builds {
                part.builds.clone_from(builds);
            }
            if let Some(choice) = &waits {
                part.waits = choice.of(part.experiment);
            }
            if let Some(choice) = &peers {
                part.peers = choice.of(part.experiment);
            }
            for command in &given.commands {
                part.commands.push(command.clone());
                if let Some(fault) = rules::last_command_fault(&part.commands) {
                    self.note(&flag("arm", &command.name), fault);
                }
            }
            self.change_baseline(part, given.baseline.as_ref());
        }
    }

    /// Reads a list of arms; none where the flag was not given or is wrong.
    fn choice<T>(
        &mut self,
        name: &str,
        given: &[String],
        read: impl Fn(&[&str]) -> Result<T, rules::ItemMistakes>,
    ) -> Option<T> {
        let texts: Vec<&str> = given.iter().map(String::as_str).collect();
        if texts.is_empty() {
            return None;
        }
        read(&texts).map_err(|mistakes| self.note_items(name, &texts, mistakes)).ok()
    }

    fn change_baseline(&mut self, part: &mut Part, given: Option<&String>) {
        let arms =
            rules::arms(&part.pollers, &part.builds, &part.waits, &part.peers, &part.commands);
        if let Some(fault) = rules::arms_fault(&arms).filter(|_| !part.builds.is_empty()) {
            self.note("--binary", fault);
        }
        let Some(default) = rules::default_baseline(&arms) else {
            let what = format!("leaves nothing to compare in \"{}\"; add an --arm", part.name);
            return self.note("--poller none", what);
        };
        let baseline = match given {
            Some(baseline) => {
                if let Some(fault) = rules::baseline_fault(baseline, &arms) {
                    self.note(
                        &flag("baseline", baseline),
                        format!("in \"{}\", {fault}", part.name),
                    );
                }
                baseline.clone()
            }
            None if arms.contains(&part.baseline) => return,
            None => default,
        };
        part.baseline = baseline;
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

    fn check_command(&mut self, command: &Command) {
        let Command { name, line, pattern } = command;
        let arm = |name| keys::key(Section::Arm, name);
        if let Err(what) = kind::name(arm("name"), name) {
            self.note(&flag("arm", name), what);
        }
        if let Err(what) = kind::command_line(arm("command"), line) {
            self.note(&flag("arm", &format!("{name}={line}")), what);
        }
        if let Err(what) = kind::pattern(arm("pattern"), pattern) {
            self.note(&flag("arm-pattern", pattern), what);
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

fn axis_of(experiment: Experiment, name: &str) -> Option<&'static Axis> {
    experiment.axes().iter().find(|axis| axis.name == name)
}

fn no_such_axis(name: &str) -> String {
    let owners = keys::axis_owners(name);
    if owners.is_empty() {
        let all = Experiment::ALL.iter().flat_map(|experiment| experiment.axes());
        return format!("no experiment has this axis{}", did_you_mean(name, all.map(|a| a.name)));
    }
    let owners: Vec<_> = owners.iter().map(|(experiment, _)| experiment.name()).collect();
    format!("nothing in this job has this axis; it belongs to {}", owners.join(", "))
}

fn no_such_peer(peer: Peer) -> String {
    let owners = Experiment::ALL.iter().filter(|each| each.peers().contains(&peer));
    let owners: Vec<_> = owners.map(|each| each.name()).collect();
    format!("nothing in this job compares with it; it belongs to {}", owners.join(", "))
}
