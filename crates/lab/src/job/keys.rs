//! Every key of a job file, as data: where it may stand, what it accepts, its default and why.
//!
//! The parser, the flags of `pollux lab run` and `docs/job-file.md` all read this table. The
//! axes of an experiment are keys too; they come from [`Experiment::axes`].

use std::time::Duration;

use crate::axis::Axis;
use crate::experiments::{self, Experiment};

use super::kind::Kind;

/// Version of the job file format.
pub const SCHEMA: u64 = 2;

/// Most blocks: at the shortest runs still hours, and the pairs of far fewer blocks show any
/// effect that matters.
const BLOCKS_MAX: u64 = 1000;

/// Most samples per second: above this the sampling itself slows what is measured.
const PROFILE_HZ_MAX: u32 = 10_000;

/// Highest number of a process (`PID_MAX_LIMIT`).
const PID_MAX: u64 = 1 << 22;

/// One key of a job file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Key {
    /// Its name; the flag is the same with `-` for `_`.
    pub name: &'static str,
    /// Where it may stand.
    pub sections: &'static [Section],
    /// What it accepts.
    pub kind: Kind,
    /// The value when nothing is said, as it would be written; none where `reason` says how it
    /// follows from something else.
    pub default: Option<&'static str>,
    /// Why this default; without one, what happens instead.
    pub reason: &'static str,
    /// What it sets, in one line.
    pub about: &'static str,
    /// A value as it is written in TOML.
    pub example: &'static str,
}

/// A part of a job file that holds keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// Above the first header.
    File,
    /// `[global]`: what is said once.
    Global,
    /// `[[job]]`: one experiment.
    Job,
    /// A table in the list `arms`: one that the user names.
    Arm,
}

impl Section {
    /// Every section, in the order in which they stand in a file.
    pub const ALL: [Self; 4] = [Self::File, Self::Global, Self::Job, Self::Arm];

    /// The header as it is written; for the top of the file, words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::File => "the top of the file",
            Self::Global => "[global]",
            Self::Job => "[[job]]",
            Self::Arm => "an arm",
        }
    }

    /// The names that are no keys but headers of sections below this one.
    pub(super) const fn headers(self) -> &'static [&'static str] {
        match self {
            Self::File => &["global", "job"],
            Self::Global | Self::Job | Self::Arm => &[],
        }
    }
}

const FILE: &[Section] = &[Section::File];
const GLOBAL: &[Section] = &[Section::Global];
const JOB: &[Section] = &[Section::Job];
const ARM: &[Section] = &[Section::Arm];
/// A run setting: `[[job]]` overrides `[global]`.
const BOTH: &[Section] = &[Section::Global, Section::Job];

/// Every key but the axes, in the order in which the documentation lists them.
pub const KEYS: &[Key] = &[
    Key {
        name: "schema",
        sections: FILE,
        kind: Kind::Whole(SCHEMA, SCHEMA),
        default: Some("2"),
        reason: "version 1 had other keys for arms",
        about: "version of the job file format",
        example: "2",
    },
    Key {
        name: "name",
        sections: GLOBAL,
        kind: Kind::Name,
        default: None,
        reason: "the name of the file without `.toml`",
        about: "name of the job, for titles and folders",
        example: "\"quick\"",
    },
    Key {
        name: "question",
        sections: GLOBAL,
        kind: Kind::Line,
        default: None,
        reason: "the question of the experiment; with several, which mechanism for which load",
        about: "the question that the job answers; title of the report",
        example: "\"Which event mechanism for which load?\"",
    },
    Key {
        name: "seed",
        sections: GLOBAL,
        // TOML promises no integers above this.
        kind: Kind::Whole(0, i64::MAX as u64),
        default: Some("20061106"),
        reason: "fixed, so that a run can be repeated; the day of the first epoll_bench table",
        about: "seed of the block order and of the workloads",
        example: "20061106",
    },
    Key {
        name: "blocks",
        sections: GLOBAL,
        kind: Kind::Whole(1, BLOCKS_MAX),
        default: Some("12"),
        reason: "enough pairs for a 95 % interval of a few percent on a shared machine; \
                 `max_blocks` where that is fewer",
        about: "blocks to run; in each, every arm runs once at every point, in random order",
        example: "12",
    },
    Key {
        name: "max_blocks",
        sections: GLOBAL,
        kind: Kind::Whole(1, BLOCKS_MAX),
        default: Some("30"),
        reason: "two and a half times the blocks make intervals a third narrower, more pays \
                 little; `blocks` where that is more",
        about: "most blocks, when the intervals are wider than `precision`; disturbed blocks of whole \
                runs are repeated beyond it",
        example: "30",
    },
    Key {
        name: "precision",
        sections: GLOBAL,
        kind: Kind::Share(0.001, 0.5),
        default: Some("1.5%"),
        reason: "half of `min_effect`, so that an effect of that size is seen",
        about: "wanted half-width of the 95 % interval of a ratio",
        example: "\"1.5%\"",
    },
    Key {
        name: "min_effect",
        sections: GLOBAL,
        kind: Kind::Share(0.001, 1.0),
        default: Some("3%"),
        reason: "layout and boot luck alone can move a program by a percent or two",
        about: "smallest relative effect that counts as a difference",
        example: "\"3%\"",
    },
    Key {
        name: "budget",
        sections: GLOBAL,
        kind: Kind::Length(Duration::from_secs(1), Duration::from_secs(7 * 24 * 3600)),
        default: None,
        reason: "no limit",
        about: "most wall time for everything; the plan is cut to fit, and refused where what is left \
                decides nothing",
        example: "\"20m\"",
    },
    Key {
        name: "profile",
        sections: GLOBAL,
        kind: Kind::Profile(1, PROFILE_HZ_MAX),
        default: None,
        reason: "no profile",
        about: "samples per second of CPU time in a profiling pass after the timing runs; an odd \
                rate does not beat with timers",
        example: "\"cpu-clock:999\"",
    },
    Key {
        name: "show_intervals",
        sections: GLOBAL,
        kind: Kind::Switch,
        default: Some("false"),
        reason: "one line for each run is enough for most readers",
        about: "print every interval of every run while it runs",
        example: "true",
    },
    Key {
        name: "request_times",
        sections: GLOBAL,
        kind: Kind::Switch,
        default: Some("false"),
        reason: "a pass as long as a block, and only servers of pollux have it",
        about: "time each request inside servers of pollux, in a pass of its own, as the clock \
                readings cost something",
        example: "true",
    },
    Key {
        name: "require",
        sections: GLOBAL,
        kind: Kind::Texts,
        default: None,
        reason: "nothing; what cannot be read is shown as n/a with the reason",
        about: "sources that must be readable, or the run is refused",
        example: "[\"tracepoint raw_syscalls:sys_enter\"]",
    },
    Key {
        name: "name",
        sections: JOB,
        kind: Kind::Name,
        default: None,
        reason: "the name of the experiment",
        about: "name within the file, for `--only`",
        example: "\"dead-connections\"",
    },
    Key {
        name: "experiment",
        sections: JOB,
        kind: Kind::Experiment,
        default: None,
        reason: "must be given",
        about: "what is run",
        example: "\"streams\"",
    },
    Key {
        name: "arms",
        sections: BOTH,
        kind: Kind::Arms,
        default: Some("all"),
        reason: "the question is which one; those that the machine lacks are left out with the \
                 reason",
        about: "what is compared: names of mechanisms, ways of waiting and other systems, `all`, \
                `mechanisms` or `others` for those that the experiment has, and tables for arms of \
                your own; `[global]` may name what only some of the experiments have",
        example: "[\"epoll\", \"uring\", \"nginx\"]",
    },
    Key {
        name: "baseline",
        sections: BOTH,
        kind: Kind::Name,
        default: None,
        reason: "`exclusive` for `herd`, else `epoll`, which most servers use today; where it is no arm \
                 or this machine lacks it, the first arm",
        about: "the arm that the others are compared with; it runs twice in each block, and the \
                second copy shows the noise",
        example: "\"epoll\"",
    },
    Key {
        name: "ramp_time",
        sections: BOTH,
        kind: Kind::Length(Duration::ZERO, Duration::from_secs(600)),
        default: Some("100ms"),
        reason: "caches and the scheduler settle within it",
        about: "time before the measured one; not part of `runtime`",
        example: "\"500ms\"",
    },
    Key {
        name: "runtime",
        sections: BOTH,
        kind: Kind::Length(Duration::from_millis(10), Duration::from_secs(600)),
        default: Some("500ms"),
        reason: "a hundred turns; more sets, or more runs, tell more than longer ones",
        about: "measured time of an arm: of all its turns in a set, or of a run",
        example: "\"2s\"",
    },
    Key {
        name: "interval",
        sections: BOTH,
        kind: Kind::Length(Duration::from_millis(10), Duration::from_secs(600)),
        default: Some("20ms"),
        reason: "twenty-five in a default run show whether it was steady; `runtime` where that is \
                 shorter",
        about: "length of one interval of a run",
        example: "\"100ms\"",
    },
    Key {
        name: "rates",
        sections: BOTH,
        kind: Kind::Switch,
        default: Some("false"),
        reason: "what an event costs is decided in seconds, how many there are in a second only on \
                 a quiet machine",
        about: "measure how much is done in a second, in whole runs, instead of what it costs, in \
                turns",
        example: "true",
    },
    Key {
        name: "name",
        sections: ARM,
        kind: Kind::Name,
        default: None,
        reason: "must be given",
        about: "name of the arm; not one that the lab has",
        example: "\"mine\"",
    },
    Key {
        name: "server",
        sections: ARM,
        kind: Kind::ServerLine,
        default: None,
        reason: "one of `server`, `pid`, `pollux` and `command` must be given",
        about: "a server that the lab starts, for `http`: a command line, split into words as a POSIX \
                shell does; no shell runs it",
        example: "\"./mine --listen {address}\"",
    },
    Key {
        name: "pid",
        sections: ARM,
        kind: Kind::Whole(1, PID_MAX),
        default: None,
        reason: "see `server`",
        about: "a server that runs already, for `http`: the process whose CPU time counts, with that \
                of its descendants; needs `address`",
        example: "1234",
    },
    Key {
        name: "address",
        sections: ARM,
        kind: Kind::Address,
        default: None,
        reason: "must be given with `pid`",
        about: "where that server listens",
        example: "\"127.0.0.1:8080\"",
    },
    Key {
        name: "pollux",
        sections: ARM,
        kind: Kind::Line,
        default: None,
        reason: "see `server`",
        about: "path of another build of pollux: in `http` it is the server, elsewhere it runs the \
                workload",
        example: "\"../old/target/release/pollux\"",
    },
    Key {
        name: "driver",
        sections: ARM,
        kind: Kind::Driver,
        default: Some("epoll"),
        reason: "the mechanism that most servers use",
        about: "what that build runs on",
        example: "\"uring\"",
    },
    Key {
        name: "command",
        sections: ARM,
        kind: Kind::CommandLine,
        default: None,
        reason: "see `server`",
        about: "a program that runs from start to end and prints its own figure, in the unit of the \
                experiment: a command line like that of `server`, in which `{nfds}` and the like stand \
                for axes of the point; needs `pattern`",
        example: "\"epoll_bench -n {nfds}\"",
    },
    Key {
        name: "pattern",
        sections: ARM,
        kind: Kind::Pattern,
        default: None,
        reason: "must be given with `command`",
        about: "regular expression whose first group is the figure, searched in both outputs; \
                the last match counts; in the unit that stands with the experiment's axes",
        example: "'Avg: ([0-9.]+) evts/sec'",
    },
];

/// Keys of schema 1, and what is written instead.
pub(super) const REPLACED: [(&str, &str); 6] = [
    ("target_ci", "precision = \"1%\""),
    ("pollers", "arms = [\"epoll\", ...], or arms = \"mechanisms\" for all of them"),
    ("waits", "arms = [\"exclusive\", ...], or arms = \"mechanisms\" for all of them"),
    ("peers", "their names in arms = [...], or \"others\" for all of them"),
    ("binaries", "arms = [{ name = \"old\", pollux = \"PATH\" }, ...]"),
    ("arm", "arms = [{ name = \"mine\", command = \"...\", pattern = '...' }, ...]"),
];

/// The key called `name` in `section`, where there is one.
pub(super) fn find(section: Section, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name && key.sections.contains(&section))
}

/// The key called `name` in `section`.
///
/// # Panics
/// When the table has none: names come from this crate, not from users.
pub(super) fn key(section: Section, name: &str) -> &'static Key {
    find(section, name).unwrap_or_else(|| panic!("no key {name} in {}", section.title()))
}

/// The default of a key whose default is a value.
///
/// # Panics
/// When it has none or it is not accepted; a test reads them all.
pub(super) fn default<T>(name: &str, read: fn(&Key, &str) -> Result<T, String>) -> T {
    let key = key(Section::Global, name);
    let text = key.default.expect("asked only for keys with a default");
    read(key, text).expect("a default is accepted by its own key")
}

/// The axis called `name` in any experiment, with the experiments that have it.
pub(super) fn axis_owners(name: &str) -> Vec<(&'static dyn Experiment, &'static Axis)> {
    let of = |experiment: &'static dyn Experiment| {
        experiment.axes().iter().find(|axis| axis.name == name).map(|axis| (experiment, axis))
    };
    experiments::ALL.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_section_has_a_key_twice_and_no_axis_hides_a_key() {
        for section in Section::ALL {
            let names: Vec<_> =
                KEYS.iter().filter(|k| k.sections.contains(&section)).map(|k| k.name).collect();
            for (at, name) in names.iter().enumerate() {
                assert!(!names[..at].contains(name), "{name} twice in {}", section.title());
                assert!(!section.headers().contains(name), "{name} is also a header");
            }
        }
        for axis in experiments::ALL.iter().flat_map(|experiment| experiment.axes()) {
            assert!(find(Section::Job, axis.name).is_none(), "{} hides a key", axis.name);
        }
    }
}
