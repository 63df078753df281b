//! The jobs that are part of the program, and what a name on the command line means.
//!
//! `pollux lab run TARGET` and `pollux lab plan TARGET` come here first; the files of `jobs/` are compiled in and are
//! the examples of the documentation as well.

use super::Job;
use crate::arm::Arm;
use crate::experiments;
use pollux_settings::{Given, Location, Mistakes, did_you_mean};
use std::collections::BTreeSet;
use std::path::Path;

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
    "published-sehttpd": "epoll against io_uring of 2020: 100 to 1000 connections, kept or not, whole or split",
    "preload": "nginx, HAProxy, redis and memcached as they are, on other mechanisms than epoll",
    "published-haproxy": "HAProxy's poller history to 2022: each behaviour as a count, with and without it",
    "herd": "1 to 250 workers on one queue, socket, eventfd or pipe: what does a wake-up cost?",
    "published-epollexclusive": "EPOLLEXCLUSIVE of 2015: 250 servers on one message queue, ten callers",
    "version": "two builds of pollux side by side: --arm old=PATH --arm new=PATH",
};

/// The jobs that repeat a published benchmark, in the order of their numbers.
pub const PUBLISHED: [&str; 5] = [
    "published-epoll-bench",
    "published-sys-epoll",
    "published-sehttpd",
    "published-haproxy",
    "published-epollexclusive",
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
pub fn find(target: &str) -> Result<Job, Mistakes> {
    read(target, Given::default())
}

/// The job that `target` means, with these flags: a job file where there is one or the name ends in
/// `.toml`, else a built-in job, else the defaults of an experiment. A built-in job that is called
/// like its experiment is what that experiment is best run with. In the job that compares builds
/// `--arm NAME=PATH` is a build.
///
/// # Errors
/// A file that cannot be read, every mistake in it and in the flags, or a name that means nothing,
/// with a list of those that mean something.
pub fn read(target: &str, mut flags: Given) -> Result<Job, Mistakes> {
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
        return Err(Mistakes::one(Location::Whole, unknown(target)));
    };
    let job: Job = flags.over(given).read()?;
    let is_build = |arm: &Arm| arm.kind.build().is_some();
    match job.parts.first().map(|part| &part.arms[..]) {
        Some([one]) if target == VERSION_JOB && is_build(one) => {
            let place = Location::Flag(format!("--arm {}=…", one.name));
            let wrong =
                "there is one build; expected two, the older first: --arm old=PATH --arm new=PATH";
            Err(Mistakes::one(place, wrong.to_owned()))
        }
        _ => Ok(job),
    }
}

/// The job of a file with this text, which is right.
#[cfg(test)]
pub(crate) fn of_text(text: &str) -> Job {
    Given::from_toml(text, "jobs/my job.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"))
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
