//! The jobs that are part of the program, and what a name on the command line means.
//!
//! `pollux lab run TARGET` and `pollux lab plan TARGET` come here first; the files of `jobs/` are
//! compiled in and are the examples of the documentation as well.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::experiments;

use super::mistake::{JobError, Place, did_you_mean};
use super::{Job, Overrides};

/// The job of plain `pollux lab`.
pub const DEFAULT_JOB: &str = "quick";
/// The job that compares builds of pollux.
pub const VERSION_JOB: &str = "version";
/// Largest job file that is read; the built-in ones have a few thousand bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

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

const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "quick",
        about: "which event mechanism for which load, in under five minutes",
        text: include_str!("../../../../jobs/quick.toml"),
    },
    Builtin {
        name: "seed0",
        about: "Dumazet's epoll_bench of 2006: 2000 streams, every second of 15",
        text: include_str!("../../../../jobs/seed0.toml"),
    },
    Builtin {
        name: "seed1",
        about: "pipetest and dphttpd of 2002: up to 16000 idle pipes, up to 60000 dead connections",
        text: include_str!("../../../../jobs/seed1.toml"),
    },
    Builtin {
        name: "chain",
        about: "what one event costs on each mechanism, on libev, libuv, libevent, mio and polling",
        text: include_str!("../../../../jobs/chain.toml"),
    },
    Builtin {
        name: "http",
        about: "server CPU for each HTTP request: every mechanism, two floors, other servers",
        text: include_str!("../../../../jobs/http.toml"),
    },
    Builtin {
        name: "dead",
        about: "the same beside up to 60000 dead connections: the curve of 2002",
        text: include_str!("../../../../jobs/dead.toml"),
    },
    Builtin {
        name: "seed2",
        about: "epoll against io_uring of 2020: 100 to 1000 connections, kept or not, whole or split",
        text: include_str!("../../../../jobs/seed2.toml"),
    },
    Builtin {
        name: "herd",
        about: "1 to 250 workers on one queue, socket, eventfd or pipe: what does a wake-up cost?",
        text: include_str!("../../../../jobs/herd.toml"),
    },
    Builtin {
        name: "seed4",
        about: "EPOLLEXCLUSIVE of 2015: 250 servers on one message queue, ten callers",
        text: include_str!("../../../../jobs/seed4.toml"),
    },
    Builtin {
        name: "version",
        about: "two builds of pollux side by side: --arm old=PATH --arm new=PATH",
        text: include_str!("../../../../jobs/version.toml"),
    },
];

/// The text of the built-in job called `name`.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static str> {
    list().iter().find(|builtin| builtin.name == name).map(|builtin| builtin.text)
}

/// Every built-in job, in the order of lists.
#[must_use]
pub const fn list() -> &'static [Builtin] {
    BUILTINS
}

/// The job that `target` means: a job file where there is one or the name ends in `.toml`, else
/// a built-in job, else the defaults of an experiment. A built-in job that is called like its
/// experiment is what that experiment is best run with.
///
/// # Errors
/// A file that cannot be read, the mistakes in it, or a name that means nothing, with a list of
/// those that mean something.
pub fn find(target: &str) -> Result<Job, JobError> {
    let path = Path::new(target);
    if path.is_file() || target.ends_with(".toml") {
        return Job::parse(&read(path)?, target);
    }
    if let Some(text) = builtin(target) {
        return Job::parse(text, &format!("jobs/{target}.toml"));
    }
    match experiments::by_name(target) {
        Some(experiment) => Job::for_experiment(experiment, &Overrides::default()),
        None => Err(JobError::one(Place::Target, unknown(target))),
    }
}

fn read(path: &Path) -> Result<String, JobError> {
    let refuse = |why: &str| JobError::one(Place::Target, format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refuse(&format!("cannot be opened: {error}")))?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let len_bytes = read.map_err(|error| refuse(&format!("cannot be read: {error}")))?;
    if len_bytes as u64 > FILE_BYTES_MAX {
        return Err(refuse(&format!("too large; a job file has at most {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

fn unknown(target: &str) -> String {
    let jobs: Vec<_> = list().iter().map(|builtin| builtin.name).collect();
    let experiments = experiments::names();
    let suggestion = did_you_mean(target, jobs.iter().copied().chain(experiments.iter().copied()));
    format!(
        "\"{target}\" is no job; expected a path to a .toml file, a built-in job ({}) or an \
         experiment ({}){suggestion}",
        jobs.join(", "),
        experiments.join(", ")
    )
}
