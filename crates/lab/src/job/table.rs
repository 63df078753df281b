//! What a job is told, as one table: the keys of a job file and the flags of `pollux lab run`.
//!
//! Every key is read first and keeps where it was said; what must hold between keys, and between
//! experiments, is judged when all of them are there. A flag wins over what any experiment says.

use std::sync::LazyLock;
use std::time::Duration;

use pollux_settings::{
    Keys, Kind, Place, Table, duration, duration_text, line, name, share, whole,
};

use super::Job;
use super::arms::{self, Asked};
use super::builtin;
use super::part::{self, Draft};
use crate::stats::SETS_MAX;

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
    pub(super) place: Option<Place>,
}

impl<T> Said<T> {
    fn of(keys: &Keys<'_>, name: &str, value: Option<T>) -> Option<Self> {
        Some(Self { value: value?, place: keys.place(name) })
    }

    const fn rank(&self) -> Rank {
        match self.place {
            None => Rank::Default,
            Some(Place::Flag(_)) => Rank::Flag,
            Some(_) => Rank::File,
        }
    }

    pub(super) fn is_flag(&self) -> bool {
        self.rank() == Rank::Flag
    }

    /// This one of an experiment, unless a flag says otherwise or only `[global]` says it.
    fn over(self, global: &Self) -> Self
    where
        T: Clone,
    {
        if global.is_flag() || self.place.is_none() { global.clone() } else { self }
    }
}

/// Who said something: of two, the one that wins.
#[derive(Clone, Copy, PartialEq)]
enum Rank {
    Default,
    File,
    Flag,
}

/// The settings of a run: those of `[global]` and flags, or those of one experiment.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) arms: Said<Vec<Asked>>,
    pub(super) baseline: Said<Option<String>>,
    pub(super) ramp_time: Said<Duration>,
    pub(super) runtime: Said<Duration>,
    pub(super) interval: Said<Duration>,
    pub(super) rates: Said<bool>,
}

/// What is said once: a job without parts, whose name and question may follow from them.
pub(super) struct Global {
    pub(super) name: Option<String>,
    pub(super) question: Option<String>,
    pub(super) job: Job,
    pub(super) run: Run,
}

impl Table for Job {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let schema = keys.key("schema", "Version of the job file format").only_file();
        let schema = schema.default("2").otherwise("version 1 had other keys for arms");
        let schema = schema.one(&whole::<u64>(SCHEMA..=SCHEMA));
        keys.heading("Job");
        let only = keys
            .key(
                "only",
                "Only these parts or experiments of the job (`pollux lab plan JOB` names them)",
            )
            .only_flag()
            .split_at_commas(|_| true)
            .list(&line().called("NAME").offering(parts()), 0..=usize::MAX);
        let global = keys.table("global", "What is said once", Global::read);
        let about = "An experiment; its settings of a run override those of `[global]`. Each axis is a flag \
                     as well, and a list of values makes a point of each";
        let drafts = keys.tables("job", about, 1..=PARTS_MAX, Draft::read);
        let flags = part::axis_flags(keys);
        schema?;
        part::judge(keys, global?, &only?, drafts?, flags?)
    }
}

impl Global {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        keys.heading("Job");
        let called = keys.key("name", "Name of the job, for titles and folders").only_file();
        let called = called.otherwise("the name of the file without `.toml`").example("\"quick\"");
        let called = called.optional(&name());
        let question = keys
            .key("question", "The question that the job answers; title of the report")
            .only_file()
            .otherwise(
                "the question of the experiment; with several, which mechanism for which load",
            )
            .optional(&line());
        let seed = keys
            .key("seed", "Seed of the block order and of the workloads")
            .default("20061106")
            .otherwise(
                "fixed, so that a run can be repeated; the day of the first epoll_bench table",
            )
            // TOML promises no integers above this.
            .one(&whole(0..=i64::MAX as u64));
        let (blocks, blocks_max) = read_blocks(keys);
        let precision = keys
            .key("precision", "Measure until each row is decided or its 95 % interval is this narrow to either side")
            .default("1%")
            .otherwise("half of `min_effect`, so that an effect of that size is seen")
            .example("\"1%\"")
            .one(&share(0.001..=0.5));
        let min_effect = keys
            .key("min_effect", "Smallest relative effect that counts; differences below it are called small or equivalent")
            .default("2%")
            .otherwise("layout and boot luck alone can move a program by a percent or two")
            .example("\"2%\"")
            .one(&share(0.001..=1.0));
        let budget = keys
            .key("budget", "Most wall time for everything: fewer blocks, shorter windows, fewer points. What decides \
                  nothing within it is refused with the least that does")
            .otherwise("no limit")
            .optional(&duration(Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600)));
        let profile_hz = keys
            .key("profile", "Samples per second of CPU time in a profiling pass after the timing runs: kernel symbols \
                  with shares. 999 where the flag has no rate: an odd one does not beat with timers")
            .otherwise("no profile")
            .example("\"cpu-clock:999\"")
            .bare("999")
            .optional(&profile());
        let shows_intervals =
            keys.key("show_intervals", "Print every interval of every run while it runs").switch();
        let times_requests = keys
            .key("request_times", "Time each request inside servers of pollux, in a pass of its own, as the clock readings \
                  cost something")
            .switch();
        let require = keys
            .key("require", "Sources that must be readable, or the run is refused")
            .only_file()
            .otherwise("nothing; what cannot be read is shown as n/a with the reason")
            .example("\"tracepoint raw_syscalls:sys_enter\"")
            .distinct(&line(), 0..=usize::MAX);
        let run = Run::read(keys);
        REPLACED.iter().for_each(|(name, by)| keys.replaced(name, by));
        let (name, question) = (called?, question?);
        let job = Job {
            name: String::new(),
            question: String::new(),
            seed: seed?,
            blocks: blocks?,
            blocks_max: blocks_max?,
            precision: precision?,
            min_effect: min_effect?,
            budget: budget?,
            profile_hz: profile_hz?,
            shows_intervals: shows_intervals?,
            times_requests: times_requests?,
            require: require?,
            parts: Vec::new(),
        };
        Some(Self { name, question, job, run: run? })
    }
}

/// Blocks and most blocks. Where only one of them is said, or one by a flag, the other gives way.
fn read_blocks(keys: &mut Keys<'_>) -> (Option<u32>, Option<u32>) {
    let kind = whole::<u32>(1..=BLOCKS_MAX);
    let blocks = keys
        .key("blocks", "Blocks to run; in each, every arm runs once at every point, in random order")
        .default("12")
        .otherwise("enough pairs for a 95 % interval of a few percent on a shared machine; `max_blocks` where \
                    that is fewer")
        .one(&kind);
    let blocks = Said::of(keys, "blocks", blocks);
    let most = keys
        .key("max_blocks", "Most blocks, when the intervals are wider than `precision`; disturbed blocks of whole runs \
              are repeated beyond it. Where arms take turns, the most sets of each point")
        .default("30")
        .otherwise("two and a half times the blocks make intervals a third narrower, more pays little; `blocks` where \
                    that is more; 200 with `--budget`")
        .one(&kind);
    let (Some(blocks), Some(most)) = (blocks, Said::of(keys, "max_blocks", most)) else {
        return (None, None);
    };
    // Who says how long it may take wants that time used.
    let has_time = matches!(keys.place("budget"), Some(Place::Flag(_)));
    let few = blocks.value;
    let many = if has_time && most.place.is_none() { SETS_MAX } else { most.value };
    let (few, many) = match (blocks.rank(), most.rank()) {
        (one, other) if one == other => {
            if let Some(place) = blocks.place.filter(|_| few > many) {
                let most = format!("max_blocks = {many}");
                keys.note_at(
                    place,
                    format!("{few} blocks are more than {most}; expected at most that"),
                );
            }
            (few, many)
        }
        (Rank::Flag, _) => (few, few),
        (Rank::File, Rank::Default) => (few, many.max(few)),
        _ => (few.min(many), many),
    };
    (Some(few), Some(many))
}

impl Run {
    pub(super) fn read(keys: &mut Keys<'_>) -> Option<Self> {
        keys.heading("Arms");
        let patterns = keys
            .key("arm_pattern", "Where the program of --arm prints its figure: a regular expression with one group; one \
                  for all or one for each")
            .only_flag();
        let patterns = patterns.list(&arms::pattern(), 0..=usize::MAX);
        // Where a pattern is wrong, what its command would be is not judged.
        let asked = arms::read(keys, patterns.unwrap_or_else(|| vec![String::new()]));
        let asked = Said::of(keys, "arms", asked);
        let baseline = keys
            .key("baseline", "The arm that the others are compared with; it runs twice in each block, and the second copy \
                  shows the noise")
            .otherwise("`exclusive` for `herd`, else `epoll`, which most servers use today; where it is no arm or \
                        this machine lacks it, the first arm")
            .example("\"epoll\"")
            .optional(&name().called("ARM"));
        let baseline = Said::of(keys, "baseline", baseline);
        keys.heading("Window");
        let ramp_time = keys
            .key("ramp_time", "Time before the measured one; not part of `runtime`")
            .default("100ms")
            .otherwise("caches and the scheduler settle within it")
            .one(&duration(Duration::ZERO..=WINDOW_MAX));
        let ramp_time = Said::of(keys, "ramp_time", ramp_time);
        let window = duration(Duration::from_millis(10)..=WINDOW_MAX);
        let runtime = keys
            .key("runtime", "Measured time of an arm: of all its turns in a set, or of a run")
            .default("500ms")
            .otherwise("at most 200 turns; more sets, or more runs, tell more than longer ones")
            .one(&window);
        let runtime = Said::of(keys, "runtime", runtime);
        let interval = keys
            .key("interval", "Length of one interval of a run")
            .default("20ms")
            .otherwise("twenty-five in a default run show whether it was steady; `runtime` where that is shorter")
            .one(&window);
        let interval = Said::of(keys, "interval", interval);
        let rates = keys
            .key("rates", "Measure how much is done in a second, in whole runs, instead of what it costs, in turns: that \
                  is decided in seconds, this only on a quiet machine")
            .switch();
        let rates = Said::of(keys, "rates", rates);
        Some(Self {
            arms: asked?,
            baseline: baseline?,
            ramp_time: ramp_time?,
            runtime: runtime?,
            interval: interval?,
            rates: rates?,
        })
    }

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
        let (runtime, interval) = (self.runtime.value, self.interval.value);
        let Some(place) = &self.interval.place else {
            return (runtime, interval.max(runtime / INTERVALS_MAX).min(runtime));
        };
        let gives_way = self.runtime.is_flag() && !self.interval.is_flag();
        let interval = if gives_way { interval.min(runtime) } else { interval };
        let (text, runtime_text) = (duration_text(interval), duration_text(runtime));
        if interval > runtime {
            let what =
                format!("an interval of {text} is longer than the runtime of {runtime_text}");
            keys.note_at(place.clone(), format!("{what}; expected at most {runtime_text}"));
        } else if runtime.div_duration_f64(interval) > f64::from(INTERVALS_MAX) {
            let place =
                if gives_way { self.runtime.place.as_ref().unwrap_or(place) } else { place };
            let what =
                format!("intervals of {text} cut the runtime of {runtime_text} into too many");
            keys.note_at(place.clone(), format!("{what}; expected at most {INTERVALS_MAX}"));
        }
        (runtime, interval)
    }
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
        let rate_hz = digits.parse::<u32>().ok().filter(|rate| (1..=PROFILE_HZ_MAX).contains(rate));
        rate_hz.ok_or_else(String::new)
    };
    Kind::new("HZ", accepts, read).or_number()
}

/// The parts of the built-in jobs and the experiments, for completions.
fn parts() -> impl Iterator<Item = &'static str> {
    static PARTS: LazyLock<Vec<String>> = LazyLock::new(builtin::part_names);
    PARTS.iter().map(String::as_str)
}
