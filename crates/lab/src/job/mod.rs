//! A job: what to measure, on which arms, how often. The model behind job files and flags.
//!
//! `table` is what a job file and the flags of `pollux lab run` say, read by `pollux-settings`; `draft` one experiment of them,
//! `arm_specs` the arms that they name. The plan is made from the [`Job`] and nothing else.
//!
//! `pollux lab run TARGET` and `pollux lab plan TARGET` find here which job a name on the command line means: the
//! files of `jobs/` are compiled in, and are the examples of the documentation as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use pollux_settings::{Given, Location, SettingErrors, did_you_mean, duration_text, share_text};

use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::experiments;
use crate::experiments::Experiment;
use crate::hosts::Hosts;
use table::SCHEMA;

pub(crate) use arm_specs::default_baseline;

mod arm_specs;
mod draft;
mod table;
#[cfg(test)]
mod tests;

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
    /// Where servers listen, and where a load comes from that is another host's.
    pub hosts: Hosts,
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
    pub experiment: &'static dyn Experiment,
    /// What is compared, each under a name of its own.
    pub arms: Vec<Arm>,
    /// Name of the arm that the others are compared with.
    pub baseline: String,
    /// Values of each axis of the experiment, complete and checked.
    pub axes: BTreeMap<String, Vec<Value>>,
    /// Time before the measured window, where it is asked for.
    pub ramp_time: Option<Duration>,
    /// Length of the measured window.
    pub runtime: Duration,
    /// Length of one interval within it.
    pub interval: Duration,
    /// Whether whole runs are measured for their rates, instead of costs in turns.
    pub rates: bool,
}

/// Time before the measured window of a run, where none is asked for.
pub(crate) const RAMP_TIME: Duration = Duration::from_millis(100);

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
        for (name, value) in self.hosts.keys() {
            line(name, quoted(&value));
        }
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
    if let Some(ramp_time) = part.ramp_time {
        line("ramp_time", quoted(&duration_text(ramp_time)));
    }
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
        ArmKind::Way(_) | ArmKind::Peer(_) | ArmKind::Form(_) => return quoted(&arm.name),
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

/// The job of plain `pollux lab`.
pub const DEFAULT_JOB: &str = "quick";
/// The job that compares builds of pollux.
pub const VERSION_JOB: &str = "version";

/// A job file inside the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builtin {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

macro_rules! of_files {
    ($($name:literal: $about:literal,)*) => {
        &[$(Builtin {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../../../jobs/", $name, ".toml")),
        }),*]
    };
}

const BUILTINS: &[Builtin] = of_files! {
    "quick": "which event mechanism for which load, in two minutes and a half",
    "published-epoll-bench": "Dumazet's epoll_bench of 2006: 2000 streams, every second of 15",
    "published-sys-epoll": "pipetest and dphttpd of 2002: up to 16000 idle pipes, up to 60000 dead connections",
    "chain": "what one event costs on each mechanism, on libev, libuv, libevent, mio and polling",
    "http": "server CPU for each HTTP request: every mechanism, two baseline servers, other servers",
    "dead": "the same beside up to 60000 dead connections: the curve of 2002",
    "uring-forms": "which form of io_uring, and is it worth it over epoll-et? seven loads in three minutes",
    "published-sehttpd": "epoll against io_uring of 2020: 100 to 1000 connections, kept or not, whole or split",
    "preload": "nginx, HAProxy, redis and memcached as they are, on other mechanisms than epoll",
    "published-haproxy": "HAProxy's poller history to 2022: each behaviour as a count, with and without it",
    "herd": "1 to 250 workers on one queue, socket, eventfd or pipe: what does a wake-up cost?",
    "published-epollexclusive": "EPOLLEXCLUSIVE of 2015: 250 servers on one message queue, ten callers",
    "published-echo-servers": "the echo servers of 2020 on epoll and io_uring: 1 to 1000 connections, 128 to 1000 bytes",
    "published-streaming": "ping-pong and streaming on epoll and io_uring, disputed in 2022: which loses where?",
    "version": "two builds of pollux side by side: --arm old=PATH --arm new=PATH",
};

/// The jobs that repeat a published benchmark, in the order of their numbers.
pub const PUBLISHED: [&str; 7] = [
    "published-epoll-bench",
    "published-sys-epoll",
    "published-sehttpd",
    "published-haproxy",
    "published-epollexclusive",
    "published-echo-servers",
    "published-streaming",
];

/// Today's name of a job: `seed2`, as such jobs were called before, is `published-sehttpd`.
fn renamed(name: &str) -> &str {
    let number = name.strip_prefix("seed").and_then(|number| number.parse::<usize>().ok());
    number.and_then(|number| PUBLISHED.get(number).copied()).unwrap_or(name)
}

/// The text of the built-in job called `name`.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static str> {
    let name = renamed(name);
    list().iter().find(|builtin| builtin.name == name).map(|builtin| builtin.text)
}

/// Every built-in job, in the order of lists.
#[must_use]
pub const fn list() -> &'static [Builtin] {
    BUILTINS
}

/// The job that `target` means, without a flag.
///
/// # Errors
/// As [`read`].
pub fn find(target: &str) -> Result<Job, SettingErrors> {
    with_flags(target, Given::default())
}

/// The job that `target` means, with these flags: a job file where there is one or the name ends in
/// `.toml`, else a built-in job, else the defaults of an experiment. A built-in job that is called
/// like its experiment is what that experiment is best run with. In the job that compares builds
/// `--arm NAME=PATH` is a build.
///
/// # Errors
/// A file that cannot be read, every mistake in it and in the flags, or a name that means nothing,
/// with a list of those that mean something; a comparison of builds with fewer than two arms.
pub fn read(target: &str, flags: Given) -> Result<Job, SettingErrors> {
    let job = with_flags(target, flags)?;
    match job.parts.first().map(|part| &part.arms[..]) {
        Some([one]) if target == VERSION_JOB => {
            let expected = "expected --arm old=PATH --arm new=PATH";
            Err(match one.kind.build() {
                Some(_) => SettingErrors::one(
                    Location::Flag(format!("--arm {}=…", one.name)),
                    format!("there is one build; {expected}, the older first"),
                ),
                None => SettingErrors::one(
                    Location::Flag("--arm".to_owned()),
                    format!("the job {VERSION_JOB} compares two builds; {expected}"),
                ),
            })
        }
        _ => Ok(job),
    }
}

fn with_flags(target: &str, mut flags: Given) -> Result<Job, SettingErrors> {
    if target == VERSION_JOB {
        flags.change("arms", |arm| match arm.split_once('=') {
            Some((name, path))
                if !["pid:", "pollux:"].iter().any(|form| path.starts_with(form)) =>
            {
                format!("{name}=pollux:{path}")
            }
            _ => arm.to_owned(),
        });
    }
    let path = Path::new(target);
    let target = renamed(target);
    let given = if path.is_file() || target.ends_with(".toml") {
        Given::from_file(path, "JOB")?
    } else if let Some(text) = builtin(target) {
        Given::from_toml(text, &format!("jobs/{target}.toml"))
    } else if experiments::by_name(target).is_some() {
        Given::from_toml(&format!("[[job]]\nexperiment = \"{target}\"\n"), target)
    } else {
        return Err(SettingErrors::one(Location::Whole, unknown(target)));
    };
    flags.over(given).read()
}

/// The names of the parts of all built-in jobs, and of the experiments, each once.
pub(super) fn part_names() -> Vec<String> {
    let of = |text: &str| -> Vec<String> {
        let file: toml::Table = text.parse().expect("a built-in file is TOML");
        let parts = file.get("job").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        let name = |part: &toml::Value| Some(part.get("name")?.as_str()?.to_owned());
        parts.iter().filter_map(name).collect()
    };
    let experiments = experiments::names().into_iter().map(str::to_owned);
    let names = list().iter().flat_map(|job| of(job.text)).chain(experiments);
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn unknown(target: &str) -> String {
    let jobs: Vec<_> = list().iter().map(|builtin| builtin.name).collect();
    let experiments = experiments::names();
    let suggestion = did_you_mean(target, jobs.iter().copied().chain(experiments.iter().copied()));
    format!(
        "\"{target}\" is not a job; expected a path to a .toml file, a built-in job ({}) or an \
         experiment ({}){suggestion}",
        jobs.join(", "),
        experiments.join(", ")
    )
}

/// The job of a file with this text, which is right.
#[cfg(test)]
pub(crate) fn of_text(text: &str) -> Job {
    Given::from_toml(text, "jobs/my job.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[cfg(test)]
mod documentation {
    //! `docs/reference/job-file.md`, made from the table of keys and the experiments.

    use super::{Builtin, Job, list};
    use crate::axis::Axes;
    use crate::experiments;

    /// What `docs/reference/job-file.md` has below its introduction.
    fn documentation_page() -> String {
        let mut page = pollux_settings::reference::<Job>();
        page += "\n## Experiments\n\n| name | what it is | what an external program prints |\n|---|---|---|\n";
        for experiment in experiments::ALL {
            let metric = experiment.metric(&Axes::defaults(experiment.axes), false);
            page += &format!("| `{experiment}` | {} | {metric} |\n", experiment.about);
        }
        page += "\n## Built-in jobs\n\n| name | what it measures |\n|---|---|\n";
        for Builtin { name, about, .. } in list() {
            page += &format!("| [`{name}`](../../jobs/{name}.toml) | {about} |\n");
        }
        page
    }

    #[test]
    fn the_page_in_docs_is_the_one_of_the_tables() {
        let page = documentation_page();
        pollux_settings::kept("reference/job-file.md", "settings", &page)
            .expect("the table's page");
    }

    #[test]
    fn every_flag_and_key_takes_the_same_spellings() {
        assert_eq!(pollux_settings::misread::<Job>(), [""; 0]);
    }
}
