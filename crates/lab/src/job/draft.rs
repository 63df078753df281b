//! One experiment of a job: as it was said, and held together with the others. The axes of experiments are read here
//! too, from its section and from their flags.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pollux_settings::{Keys, Location, Table, did_you_mean, line, name, one_of};

use super::arm_specs;
use super::table::{Global, REPLACED, Run};
use super::{Job, Part};
use crate::axis::{Axis, AxisKind, Value};
use crate::experiments::{self, Experiment};

/// The question of a job whose experiments differ.
const QUESTION: &str = "Which event mechanism for which load?";
/// Longest name of a job, which a file name may be beyond.
const NAME_CHARS_MAX: usize = 60;
/// Most values of one axis; each makes a point of the plan.
const AXIS_VALUES_MAX: usize = 64;
/// The list of tables of schema 1.
const REPLACED_ARM: &str = "arms = [{ name = \"mine\", command = \"...\", pattern = '...' }, ...]";

/// One experiment as it was said, before it is judged.
pub(super) struct Draft {
    name: String,
    title: Option<String>,
    experiment: &'static dyn Experiment,
    run: Run,
    axes: BTreeMap<String, Vec<Value>>,
    place: Location,
}

impl Draft {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let called =
            keys.key("name", "Name within the file, for `--only`").example("\"dead-connections\"");
        let called = called.otherwise("the name of the experiment").optional(&name());
        let title = keys.key("title", "Its heading in reports").example("\"Dead connections\"");
        let title = title.otherwise("the name, in words").optional(&line());
        let each = experiments::ALL.map(|each| (each.name, "", each));
        let said = keys.key("experiment", "What is run").example("\"streams\"");
        let said = said.required(&one_of("experiment", each));
        let experiment = said.unwrap_or(experiments::ALL[0]);
        let run = Run::read(keys);
        let mut axes = BTreeMap::new();
        for (axis, owners) in experiments::axes() {
            keys.heading(format!("Axes of `{}`", owners[0]));
            // Without an experiment it is not known which axes are right: those of any pass.
            if said.is_none_or(|one| owners.contains(&one)) {
                axes.insert(axis.name.to_owned(), axis.values(keys, &owners[1..]));
                continue;
            }
            let name = axis.name;
            let to = names(&owners);
            keys.foreign(name, || {
                format!("the axis \"{name}\" is one of {to}, not of this experiment")
            });
        }
        REPLACED.iter().for_each(|(name, by)| keys.replaced(name, by));
        keys.replaced("arm", REPLACED_ARM);
        let name = called.unwrap_or_else(|| experiment.name.to_owned());
        Self { name, title, experiment, run, axes, place: keys.here() }
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.experiment.name == name
    }

    /// The part, once its settings and those of all were held together.
    fn judged(self, keys: &mut Keys<'_>, global: &Run) -> Option<Part> {
        let own = self.run.arms.place.clone();
        let run = self.run.over(global);
        let experiment = self.experiment;
        // Arms of [global] and of flags are for those that have them.
        if let Some(place) = own.filter(|_| !run.arms.is_flag())
            && let Some((name, what)) = arm_specs::unknown_to(&run.arms.value, &[experiment])
        {
            note_of(keys, place, &name, &what);
            return None;
        }
        let (runtime, interval) = run.window(keys);
        let arms = arm_specs::of(&run.arms.value, experiment);
        let Some(usual) = arm_specs::default_baseline(experiment, &arms) else {
            let place = run.arms.place.filter(|_| global.arms.is_flag()).unwrap_or(self.place);
            keys.note_at(place, arm_specs::nothing_left(experiment));
            return None;
        };
        let gives_way = run.arms.is_flag() && !run.baseline.is_flag();
        let baseline = match (run.baseline.value, run.baseline.place) {
            (Some(baseline), Some(place)) => {
                match arm_specs::baseline_fault(&baseline, &arms, experiment) {
                    None => baseline,
                    Some(_) if gives_way => usual,
                    Some(fault) => {
                        note_of(keys, place, &baseline, &fault);
                        usual
                    }
                }
            }
            _ => usual,
        };
        Some(Part {
            name: self.name,
            title: self.title,
            experiment,
            arms,
            baseline,
            axes: self.axes,
            ramp_time: run.ramp_time.value,
            runtime,
            interval,
            rates: run.rates.value,
        })
    }
}

/// The job, once everything in it was held together; without parts where something is wrong.
pub(super) fn judge(
    keys: &mut Keys<'_>,
    global: Global,
    only: &[String],
    mut drafts: Vec<Draft>,
    flags: BTreeMap<&'static str, Vec<Value>>,
) -> Job {
    let name = to_name(keys.file());
    if !keys.is_right() {
        return global.job(name, QUESTION, Vec::new());
    }
    for (at, Draft { name, place, .. }) in drafts.iter().enumerate() {
        if drafts[..at].iter().any(|other| other.name == *name) {
            let what = format!("two jobs are called \"{name}\"; give one a name");
            keys.note_at(place.clone(), what);
        }
    }
    let is_unknown = |name: &&String| !drafts.iter().any(|draft| draft.is_called(name));
    let unknown: Vec<_> = only.iter().filter(is_unknown).collect();
    for name in &unknown {
        let known = drafts.iter().flat_map(|draft| [&*draft.name, draft.experiment.name]);
        let known: BTreeSet<&str> = known.collect();
        let near = did_you_mean(name, known.iter().copied());
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        keys.note("only", format!("no such part as {name}; expected {known}{near}"));
    }
    // What a wrong name leaves says nothing of the other flags.
    if !unknown.is_empty() {
        return global.job(name, QUESTION, Vec::new());
    }
    drafts.retain(|draft| only.is_empty() || only.iter().any(|name| draft.is_called(name)));
    for (axis, values) in flags {
        let mut parts = drafts.iter_mut().filter(|draft| draft.axes.contains_key(axis)).peekable();
        if parts.peek().is_none() {
            let mut owners = experiments::ALL.into_iter();
            let owner = owners.find(|each| each.axes.iter().any(|own| own.name == axis));
            let owner = owner.map_or("none", |owner| owner.name);
            keys.note(axis, format!("nothing in this job has this axis; it belongs to {owner}"));
        }
        parts.for_each(|draft| drop(draft.axes.insert(axis.to_owned(), values.clone())));
    }
    let arms = &global.run.arms;
    if let Some(place) = arms.place.clone().filter(|_| arms.is_flag()) {
        let mut experiments: Vec<_> = drafts.iter().map(|draft| draft.experiment).collect();
        experiments.dedup();
        if let Some((unknown, what)) = arm_specs::unknown_to(&arms.value, &experiments) {
            note_of(keys, place, &unknown, &what);
            return global.job(name, QUESTION, Vec::new());
        }
    }
    let parts = drafts.into_iter().filter_map(|draft| draft.judged(keys, &global.run));
    let parts: Vec<Part> = parts.collect();
    let question = match parts.split_first() {
        Some((first, rest)) if rest.iter().all(|part| part.experiment == first.experiment) => {
            first.experiment.question
        }
        _ => QUESTION,
    };
    global.job(name, question, parts)
}

/// A mistake in one of the names that a key or a flag holds.
fn note_of(keys: &mut Keys<'_>, place: Location, name: &str, what: &str) {
    match place {
        Location::Flag(flag) => {
            keys.note_at(Location::Flag(format!("{flag} {name}")), what.to_owned());
        }
        place => keys.note_at(place, format!("{name}: {what}")),
    }
}

/// The axes as flags, those that were given with their values.
pub(super) fn axis_flags(keys: &mut Keys<'_>) -> BTreeMap<&'static str, Vec<Value>> {
    keys.heading("Axes (a list makes a point of each value)");
    let mut given = BTreeMap::new();
    for (axis, owners) in experiments::axes() {
        let of = names(&owners);
        let mut values = axis.flag(keys, &of);
        if let AxisKind::Either { short: name, means } = axis.kind {
            let short = keys.key(name, format!("{of}: short for {}", axis.name));
            if short.only_flag().hidden().switch() {
                if keys.has(axis.name) {
                    keys.note(name, "can't be combined with the flag that it is short for");
                }
                values = vec![Value::Switch(means)];
            }
        }
        if !values.is_empty() {
            given.insert(axis.name, values);
        }
    }
    given
}

fn names(experiments: &[&dyn Experiment]) -> String {
    experiments.iter().map(|each| each.name).collect::<Vec<_>>().join(", ")
}

impl Axis {
    /// The values of a section of a file, or the default ones; `others` have the axis too.
    fn values(&self, keys: &mut Keys<'_>, others: &[&dyn Experiment]) -> Vec<Value> {
        let mut about = self.about();
        if !others.is_empty() {
            about += &format!(" (of {} too)", names(others));
        }
        let key = keys.key(self.name, about);
        match self.kind {
            AxisKind::Switch => vec![Value::Switch(key.switch())],
            _ => key.default(self.default).distinct(&self.kind(), 1..=AXIS_VALUES_MAX),
        }
    }

    /// The values of its flag; none where it was not given.
    fn flag(&self, keys: &mut Keys<'_>, experiment: &str) -> Vec<Value> {
        let key = keys.key(self.name, format!("{experiment}: {}", self.about()));
        // Some thirty flags: `pollux lab axes` shows them, completions and the manual know them.
        let key = key.only_flag().unlisted().otherwise(self.default).split_at_commas(|_| true);
        match self.kind {
            AxisKind::Switch => key.switch().then_some(Value::Switch(true)).into_iter().collect(),
            _ => key.distinct(&self.kind(), 0..=AXIS_VALUES_MAX),
        }
    }
}

/// A name made of that of a file; what a name may not have becomes `-`.
fn to_name(file: &str) -> String {
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let kept = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(kept).collect();
    let name: String =
        name.trim_start_matches(['-', '_', '.']).chars().take(NAME_CHARS_MAX).collect();
    if name.is_empty() { "job".to_owned() } else { name }
}
