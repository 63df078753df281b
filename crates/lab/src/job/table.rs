//! The settings of a job as one table: the keys of a job file and the flags of `pollux lab run`.
//!
//! Every key is read first and keeps where it was said; what must hold between keys, and between
//! experiments, is judged when all of them are there. A flag wins over what any experiment says. One experiment of the job, with
//! its axes, is a `Draft` (`draft`).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use pollux_load::campaign::AgentName;
use pollux_settings::{
    Key, Keys, Kind, Location, Table, duration, duration_text, integer, line, name, parsed, path,
    share, table,
};
use pollux_stats::SETS_MAX;

use super::arm_specs::{self, ArmSpec};
use super::draft::{Draft, axis_flags, judge};
use super::{Job, Part};
use crate::hosts::{self, Hosts};
use crate::job;

/// Version of the job file format.
pub(super) const SCHEMA: u64 = 2;

/// Most experiments of one file; far more than a report can show.
const PARTS_MAX: usize = 64;
/// Most blocks: at the shortest runs still hours, and the pairs of far fewer blocks show any
/// effect that matters.
const BLOCKS_MAX: u64 = 1000;
/// Most samples per second: above this the sampling itself slows what is measured.
const PROFILE_HZ_MAX: u32 = 10_000;
/// Most intervals of one run: each is kept in the result. Ten minutes of a tenth of a second.
const INTERVALS_MAX: u32 = 6000;
/// Longest window.
const WINDOW_MAX: Duration = Duration::from_secs(600);
/// Least and most of `budget`.
const BUDGET_MIN: Duration = Duration::from_secs(1);
const BUDGET_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Keys of schema 1, and what is written instead.
pub(super) const REPLACED: [(&str, &str); 5] = [
    ("target_ci", "precision = \"1%\""),
    ("pollers", "arms = [\"epoll\", ...], or arms = \"mechanisms\" for all of them"),
    ("waits", "arms = [\"exclusive\", ...], or arms = \"mechanisms\" for all of them"),
    ("peers", "their names in arms = [...], or \"others\" for all of them"),
    ("binaries", "arms = [{ name = \"old\", pollux = \"PATH\" }, ...]"),
];

/// A value, and where it was said; nowhere where it is the default.
#[derive(Clone)]
pub(super) struct Said<T> {
    pub(super) value: T,
    pub(super) place: Option<Location>,
}

impl<T: Clone> Said<T> {
    fn of<'k, 'a>(key: Key<'k, 'a>, read: impl FnOnce(Key<'k, 'a>) -> T) -> Self {
        Self { place: key.location(), value: read(key) }
    }

    const fn rank(&self) -> Rank {
        match self.place {
            None => Rank::Default,
            Some(Location::Flag(_)) => Rank::Flag,
            Some(_) => Rank::File,
        }
    }

    pub(super) fn is_flag(&self) -> bool {
        self.rank() == Rank::Flag
    }

    /// This one of an experiment, unless a flag says otherwise or only `[global]` says it.
    fn over(self, global: &Self) -> Self {
        if global.is_flag() || self.place.is_none() { global.clone() } else { self }
    }
}

/// Where a value comes from: of two sources, the one that wins.
#[derive(Clone, Copy, PartialEq)]
enum Rank {
    Default,
    File,
    Flag,
}

impl Table for Job {
    fn read(keys: &mut Keys<'_>) -> Self {
        let schema = keys.key("schema", "Version of the job file format").only_file().default("2");
        schema.otherwise("version 1 had other keys for arms").one(&integer::<u64>(SCHEMA..=SCHEMA));
        keys.heading("Job");
        let about = "Only these parts or experiments of the job (`pollux lab plan JOB` names them)";
        let only = keys.key("only", about).only_flag().split_at_commas(|_| true);
        let only = only.list(&line().called("NAME").offering(parts()), 0..=usize::MAX);
        let global = keys.table("global", "Settings of the whole job", Global::read);
        let about = "An experiment; its settings of a run override those of `[global]`. Each axis is a flag \
                     as well, and a list of values makes a point of each";
        let drafts = keys.tables("job", about, 1..=PARTS_MAX, Draft::read);
        let flags = axis_flags(keys);
        judge(keys, global, &only, drafts, flags)
    }
}

table! { keys, key;
    /// Settings of the whole job.
    pub(super) struct Global {
        #[heading("Job")]
        /// Name of the job, for titles and folders
        pub(super) name: Option<String> = key.only_file().example("\"quick\"")
            .otherwise("the name of the file without `.toml`").optional(&name()),
        /// The question that the job answers; title of the report
        pub(super) question: Option<String> = key.only_file()
            .otherwise("the question of the experiment; with several, which mechanism for which load")
            .optional(&line()),
        /// Seed of the order of arms and of the workloads
        pub(super) seed: u64 = key.default("20061106")
            .otherwise("fixed, so that a run can be repeated; the day of the first epoll_bench table")
            // TOML promises no integers above this.
            .one(&integer(0..=i64::MAX as u64)),
        /// Sets of fresh processes in which arms take turns, or blocks of whole runs (`rates`); in each, every
        /// arm runs once at every point, in random order
        blocks: Said<u32> = Said::of(key, |key| key.default("12").otherwise(
            "enough pairs for a 95 % interval of a few percent on a shared machine; `max_blocks` where that \
             is fewer").one(&integer(1..=BLOCKS_MAX))),
        /// Most sets of a point, or most blocks, while intervals are wider than `precision`; disturbed blocks
        /// are repeated beyond it
        max_blocks: Said<u32> = Said::of(key, |key| key.default("30").otherwise(
            "two and a half times the blocks make intervals a third narrower, more pays little; `blocks` \
             where that is more; 200 with `--budget`").one(&integer(1..=BLOCKS_MAX))),
        /// Measure until each row is decided or its 95 % interval is this narrow to either side
        pub(super) precision: f64 = key.default("1%").example("\"1%\"")
            .otherwise("half of `min_effect`, so that an effect of that size is seen")
            .one(&share(0.001..=0.5)),
        /// Smallest relative effect that counts; differences below it are called small or equivalent
        pub(super) min_effect: f64 = key.default("2%").example("\"2%\"")
            .otherwise("layout and boot luck alone can move a program by a percent or two")
            .one(&share(0.001..=1.0)),
        /// Limit of the total wall time; sets or blocks, windows and points are reduced to fit. A budget
        /// that is too short for a verdict is refused with the shortest possible one
        pub(super) budget: Option<Duration> =
            key.otherwise("no limit").optional(&duration(BUDGET_MIN..=BUDGET_MAX)),
        /// Samples per second of CPU time in a profiling pass after the timing runs: kernel symbols
        /// with shares. Without a rate: 999 Hz, which does not coincide with timer ticks
        pub(super) profile_hz as "profile": Option<u32> = key.otherwise("no profile")
            .example("\"cpu-clock:999\"").bare("999").optional(&profile()),
        /// Print every interval of every run while it runs
        pub(super) show_intervals: bool = key.switch(),
        /// Time each request inside servers of pollux, in a pass of its own, as the clock readings cost
        /// something
        pub(super) request_times: bool = key.switch(),
        /// Sources that must be readable, or the run is refused
        pub(super) require: Vec<String> = key.only_file()
            .otherwise("nothing; what cannot be read is shown as n/a with the reason")
            .example("\"tracepoint raw_syscalls:sys_enter\"")
            .distinct(&line(), 0..=usize::MAX),
        #[heading("Another host")]
        /// The address of this host at which servers listen, where their load comes from another host
        pub(super) listen: Option<IpAddr> = key.otherwise("127.0.0.1").example("\"10.0.0.1\"")
            .optional(&parsed("ADDRESS", "an address of this host", hosts::listen_address)),
        /// Addresses of the broker (NATS) over which agents are reached that make the load, with commas between them
        pub(super) nats: Option<String> = key.example("\"nats://10.0.0.1:4222\"")
            .otherwise("nats://127.0.0.1:4222").optional(&line().called("URL")),
        /// A file with what logs in to the broker: USER:PASSWORD or TOKEN
        pub(super) nats_login: Option<PathBuf> = key.otherwise("no login").optional(&path().called("FILE")),
        /// Certificates (PEM) that the broker's own is checked with, instead of the machine's
        pub(super) nats_ca: Option<PathBuf> = key.otherwise("those of the machine")
            .optional(&path().called("FILE")),
        /// The group of the agents
        pub(super) group: Option<AgentName> = key.otherwise("default")
            .optional(&parsed("NAME", "letters, digits, - or _", str::parse::<AgentName>)),
        /// Those of all experiments.
        pub(super) run: Run = Run::read(keys),
    }
    => with_fitting_blocks
}

impl Global {
    /// Where only one of blocks and most blocks is said, or one by a flag, the other gives way.
    fn with_fitting_blocks(mut self, keys: &mut Keys<'_>) -> Self {
        REPLACED.iter().for_each(|(name, by)| keys.replaced(name, by));
        // A given time is meant to be used.
        let has_time = matches!(keys.location("budget"), Some(Location::Flag(_)));
        if has_time && self.max_blocks.place.is_none() {
            self.max_blocks.value = SETS_MAX;
        }
        let few = self.blocks.value;
        let many = self.max_blocks.value;
        match (self.blocks.rank(), self.max_blocks.rank()) {
            (one, other) if one == other => {
                if let Some(place) = self.blocks.place.clone().filter(|_| few > many) {
                    let what = format!("{few} blocks are more than max_blocks = {many}");
                    keys.note_at(place, format!("{what}; expected at most that"));
                }
            }
            (Rank::Flag, _) => self.max_blocks.value = few,
            (Rank::File, Rank::Default) => self.max_blocks.value = many.max(few),
            _ => self.blocks.value = few.min(many),
        }
        self
    }

    /// The job of these parts. What it is called and asks follows from them where it is not said.
    pub(super) fn job(self, name: String, question: &str, parts: Vec<Part>) -> Job {
        Job {
            name: self.name.unwrap_or(name),
            question: self.question.unwrap_or_else(|| question.to_owned()),
            seed: self.seed,
            blocks: self.blocks.value,
            blocks_max: self.max_blocks.value,
            precision: self.precision,
            min_effect: self.min_effect,
            budget: self.budget,
            profile_hz: self.profile_hz,
            shows_intervals: self.show_intervals,
            times_requests: self.request_times,
            require: self.require,
            hosts: Hosts {
                listen: self.listen,
                nats: self.nats,
                nats_login: self.nats_login,
                nats_ca: self.nats_ca,
                group: self.group,
            },
            parts,
        }
    }
}

table! { keys, key;
    /// The settings of a run: those of `[global]` and flags, or those of one experiment.
    #[derive(Clone)]
    pub(super) struct Run {
        #[heading("Arms")]
        /// What is compared.
        pub(super) arms: Said<Vec<ArmSpec>> =
            Said { value: arm_specs::read(keys), place: keys.location("arms") },
        /// The arm that the others are compared with; it runs twice in each set or block, and the
        /// second copy shows the noise
        pub(super) baseline: Said<Option<String>> = Said::of(key, |key| key.example("\"epoll\"").otherwise(
            "`exclusive` for `herd`, else `epoll`, which most servers use today; where it is not an arm or this \
             machine lacks it, the first arm").optional(&arm_specs::arm_name())),
        #[heading("Window")]
        /// Time of load before the measured time, of each run, or of each arm before each set
        pub(super) ramp_time: Said<Option<Duration>> = Said::of(key, |key| key.otherwise(
            "100 ms of a run; in sets of turns as long as a request costs a server of yours less and less, which \
             is found by its cost").optional(&duration(Duration::ZERO..=WINDOW_MAX))),
        /// Measured time of an arm: of all its turns in a set, or of a run
        pub(super) runtime: Said<Duration> = Said::of(key, |key| key.default("500ms")
            .otherwise("at most 200 turns; more sets, or more runs, tell more than longer ones")
            .one(&window())),
        /// Length of one interval of a run
        pub(super) interval: Said<Duration> = Said::of(key, |key| key.default("20ms").otherwise(
            "twenty-five in a default run show whether it was steady; `runtime` where that is shorter"
        ).one(&window())),
        /// Measure rates (work per second, in whole runs, on a quiet machine) instead of cost (CPU time
        /// per unit of work, in turns)
        pub(super) rates: Said<bool> = Said::of(key, Key::switch),
    }
}

impl Run {
    pub(super) fn over(self, global: &Self) -> Self {
        Self {
            arms: self.arms.over(&global.arms),
            baseline: self.baseline.over(&global.baseline),
            ramp_time: self.ramp_time.over(&global.ramp_time),
            runtime: self.runtime.over(&global.runtime),
            interval: self.interval.over(&global.interval),
            rates: self.rates.over(&global.rates),
        }
    }

    /// Runtime and interval; an interval gives way to a shorter runtime of a flag, and the default one to
    /// every runtime.
    pub(super) fn window(&self, keys: &mut Keys<'_>) -> (Duration, Duration) {
        let runtime = self.runtime.value;
        let interval = self.interval.value;
        let Some(place) = &self.interval.place else {
            return (runtime, interval.max(runtime / INTERVALS_MAX).min(runtime));
        };
        let gives_way = self.runtime.is_flag() && !self.interval.is_flag();
        let interval = if gives_way { interval.min(runtime) } else { interval };
        let text = duration_text(interval);
        let runtime_text = duration_text(runtime);
        if interval > runtime {
            let what =
                format!("an interval of {text} is longer than the runtime of {runtime_text}");
            keys.note_at(place.clone(), format!("{what}; expected at most {runtime_text}"));
        } else if runtime.div_duration_f64(interval) > f64::from(INTERVALS_MAX) {
            let place = self.runtime.place.as_ref().filter(|_| gives_way).unwrap_or(place);
            let what =
                format!("intervals of {text} cut the runtime of {runtime_text} into too many");
            keys.note_at(place.clone(), format!("{what}; expected at most {INTERVALS_MAX}"));
        }
        (runtime, interval)
    }
}

fn window() -> Kind<Duration> {
    duration(Duration::from_millis(10)..=WINDOW_MAX)
}

/// A sampling rate: `999` or `cpu-clock:999`.
fn profile() -> Kind<u32> {
    let accepts = format!("samples per second from 1 to {PROFILE_HZ_MAX}");
    let read = |text: &str| {
        let digits = match text.split_once(':') {
            None => text,
            Some(("cpu-clock", digits)) => digits,
            Some((event, _)) => {
                return Err(format!("the event {event:?} is not known, only cpu-clock"));
            }
        };
        let rate_hz = integer(1..=PROFILE_HZ_MAX.into()).read(digits);
        rate_hz.map_err(|_| String::new())
    };
    Kind::new("HZ", accepts, read).or_number()
}

/// The parts of the built-in jobs and the experiments, for completions.
fn parts() -> impl Iterator<Item = &'static str> {
    static PARTS: LazyLock<Vec<String>> = LazyLock::new(job::part_names);
    PARTS.iter().map(String::as_str)
}
