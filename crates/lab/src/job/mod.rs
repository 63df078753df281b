//! A job: what to measure, on which arms, how often. The model behind job files and flags.
//!
//! `table` is what a job file and the flags of `pollux lab run` say, read by `pollux-settings`; `part`
//! holds it together. The plan is made from the [`Job`] and nothing else.

mod arms;
mod builtin;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use arms::default_baseline;
pub use builtin::*;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use pollux_settings::{duration_text, share_text};

use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::experiments::Experiment;
use table::SCHEMA;

/// Everything that a lab run is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name for titles and folders.
    pub name: String,
    /// The question that it answers; title of the report.
    pub question: String,
    /// Seed of the block order and of the workloads.
    pub seed: u64,
    /// Blocks to run.
    pub blocks: u32,
    /// Most blocks, when the headline interval is wider than `precision`.
    pub blocks_max: u32,
    /// Wanted half-width of the 95 % interval, relative.
    pub precision: f64,
    /// Smallest relative effect that counts.
    pub min_effect: f64,
    /// Most wall time for everything; the plan is cut to fit.
    pub budget: Option<Duration>,
    /// Sampling rate of the CPU-clock profile, or none.
    pub profile_hz: Option<u32>,
    /// Whether each interval of each timing run is printed while it runs.
    pub shows_intervals: bool,
    /// Whether servers of pollux time each request inside, in a pass of its own.
    pub times_requests: bool,
    /// Sources that must be readable, or the run is refused.
    pub require: Vec<String>,
    /// The experiments, in the order in which a block visits them.
    pub parts: Vec<Part>,
}

/// One experiment of a job, with its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name within the job.
    pub name: String,
    /// Its heading in reports, where that is not made of the name.
    pub title: Option<String>,
    /// The experiment.
    pub experiment: &'static dyn Experiment,
    /// What is compared, each under a name of its own.
    pub arms: Vec<Arm>,
    /// Name of the arm that the others are compared with.
    pub baseline: String,
    /// Values of each axis of the experiment, complete and checked.
    pub axes: BTreeMap<String, Vec<Value>>,
    /// Time before the measured window.
    pub ramp_time: Duration,
    /// Length of the measured window.
    pub runtime: Duration,
    /// Length of one interval within it.
    pub interval: Duration,
    /// Whether whole runs are measured for their rates, instead of costs in turns.
    pub rates: bool,
}

impl Job {
    /// This job as TOML text. Reading it gives back an equal job, provided that this
    /// one came from there or from flags and so keeps the rules of the format.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = format!("schema = {SCHEMA}\n\n[global]\n");
        let mut line = |name: &str, value: String| entry(&mut text, name, &value);
        line("name", quoted(&self.name));
        line("question", quoted(&self.question));
        line("seed", self.seed.to_string());
        line("blocks", self.blocks.to_string());
        line("max_blocks", self.blocks_max.to_string());
        line("precision", quoted(&share_text(self.precision)));
        line("min_effect", quoted(&share_text(self.min_effect)));
        if let Some(budget) = self.budget {
            line("budget", quoted(&duration_text(budget)));
        }
        if let Some(rate_hz) = self.profile_hz {
            line("profile", quoted(&format!("cpu-clock:{rate_hz}")));
        }
        line("show_intervals", self.shows_intervals.to_string());
        line("request_times", self.times_requests.to_string());
        line("require", written_list(&self.require, |source| quoted(source)));
        for part in &self.parts {
            write_part(&mut text, part);
        }
        text
    }
}

fn write_part(text: &mut String, part: &Part) {
    text.push_str("\n[[job]]\n");
    let mut line = |name: &str, value: String| entry(text, name, &value);
    line("name", quoted(&part.name));
    if let Some(title) = &part.title {
        line("title", quoted(title));
    }
    line("experiment", quoted(part.experiment.name));
    line("arms", written_list(&part.arms, arm));
    line("baseline", quoted(&part.baseline));
    line("ramp_time", quoted(&duration_text(part.ramp_time)));
    line("runtime", quoted(&duration_text(part.runtime)));
    line("interval", quoted(&duration_text(part.interval)));
    line("rates", part.rates.to_string());
    for axis in part.experiment.axes {
        let Some(values) = part.axes.get(axis.name) else { continue };
        let value = |value: &Value| match value {
            Value::Word(word) => quoted(word),
            Value::Number(_) | Value::Switch(_) => value.to_string(),
        };
        match values.as_slice() {
            [only] => line(axis.name, value(only)),
            several => line(axis.name, written_list(several, value)),
        }
    }
}

/// A name of the lab, or a table.
fn arm(arm: &Arm) -> String {
    let mut entries = vec![("name", quoted(&arm.name))];
    match &arm.kind {
        ArmKind::Driver(_) | ArmKind::Cyclic(_) | ArmKind::WithoutPoller => {
            return quoted(&arm.name);
        }
        ArmKind::Way(_) | ArmKind::Peer(_) => return quoted(&arm.name),
        ArmKind::Build(build) => {
            entries.push(("pollux", quoted(&build.program.display().to_string())));
            entries.push(("driver", quoted(build.driver.name())));
        }
        ArmKind::Server { command } => entries.push(("server", quoted(command))),
        ArmKind::Running { pid, address } => {
            entries.push(("pid", pid.to_string()));
            entries.push(("address", quoted(&address.to_string())));
        }
        ArmKind::Program(program) => {
            entries.push(("command", quoted(&program.command)));
            entries.push(("pattern", quoted(&program.pattern)));
        }
    }
    let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", entries.join(", "))
}

fn entry(text: &mut String, name: &str, value: &str) {
    writeln!(text, "{name} = {value}").expect("a String takes any text");
}

fn written_list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// A TOML string with everything escaped that must be.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod documentation {
    //! `docs/job-file.md`, made from the table of keys and the experiments.

    use super::{Builtin, Job, list};
    use crate::axis::Axes;
    use crate::experiments;

    /// What `docs/job-file.md` has below its introduction.
    fn documentation_page() -> String {
        let mut page = pollux_settings::reference::<Job>();
        page += "\n## Experiments\n\n| name | what it is | what an external program prints |\n|---|---|---|\n";
        for experiment in experiments::ALL {
            let metric = experiment.metric(&Axes::defaults(experiment.axes), false);
            page += &format!("| `{experiment}` | {} | {metric} |\n", experiment.about);
        }
        page += "\n## Built-in jobs\n\n| name | what it measures |\n|---|---|\n";
        for Builtin { name, about, .. } in list() {
            page += &format!("| [`{name}`](../jobs/{name}.toml) | {about} |\n");
        }
        page
    }

    #[test]
    fn the_page_in_docs_is_the_one_of_the_tables() {
        let page = documentation_page();
        pollux_settings::kept("job-file.md", "settings", &page).expect("the table's page");
    }
}
