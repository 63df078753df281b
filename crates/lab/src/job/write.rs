//! Writes a job as a job file that reads back to the same job.
//!
//! The text goes into the result file, so that a run can be repeated from its result alone. All
//! that was resolved is written out: no default can change its meaning later.

use std::fmt::Write as _;

use pollux_settings::{duration_text, share_text};

use crate::arm::{Arm, ArmKind};
use crate::axis::Value;

use super::table::SCHEMA;
use super::{Job, Part};

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
        line("require", list(&self.require, |source| quoted(source)));
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
    line("arms", list(&part.arms, arm));
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
            several => line(axis.name, list(several, value)),
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

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// A TOML string with everything escaped that must be.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
