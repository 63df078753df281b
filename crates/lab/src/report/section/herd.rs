//! Workers that share one source: what a call cost the machine, and how the calls were shared.
//!
//! The page has it as a section, `herd_markdown` the same tables as text.
//! Only runs that had workers are in it. All figures are medians over the timing runs; the curves
//! are the mean of the runs, rank by rank.

use crate::record::{Measurement, Record};
use crate::report::chart::lorenz::{self, Shared};
use crate::report::markup::{Cell, Table, card, details, escape, section};
use crate::report::number;
use crate::report::section::why::split_points;
use crate::report::view::{Arms, NOISE_ARM, in_order};
use crate::report::words;
use crate::stats::median;

/// A column of figures.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// What is read of a run: its value where this is none, else the figure of this name.
    figure: Option<&'static str>,
    show: fn(f64) -> String,
    /// Why a run may be without.
    lacking: &'static str,
}

/// A table of columns.
pub(crate) struct Topic {
    /// What it is about.
    pub(crate) heading: &'static str,
    /// How it is to be read.
    pub(crate) about: &'static str,
    pub(crate) columns: &'static [Column],
}

const UNREAD: &str = "could not be read in these runs";
const UNCOUNTED: &str = "a pool's workers don't count their waits";

const fn column(heading: &'static str, figure: &'static str, show: fn(f64) -> String) -> Column {
    Column { heading, figure: Some(figure), show, lacking: UNREAD }
}

/// What a call cost.
pub(crate) const COSTS: Topic = Topic {
    heading: "what a call cost",
    about: "Switches of the whole machine are those of callers, workers and everybody else. A worker \
            that is woken in vain, finds nothing and sleeps again switches twice and answers nothing: \
            a herd shows here before it shows anywhere else. Callers are a closed loop, each with one \
            call under way: a stall is one long latency for each of them, and not one for every call \
            that others would have wanted to make meanwhile.",
    columns: &[
        Column { heading: "calls/s", figure: None, show: number::si, lacking: UNREAD },
        column("switches/call, whole machine", "switches_per_call", number::si),
        column(
            "voluntary switches/call, workers",
            "worker_switches_voluntary_per_call",
            number::si,
        ),
        column("CPU µs/call, workers", "worker_us_per_call", number::si),
        column("CPU µs/call, callers", "caller_us_per_call", number::si),
        column("p50 µs", "latency_p50_us", number::si),
        column("p99 µs", "latency_p99_us", number::si),
        column("longest µs", "latency_max_us", number::si),
    ],
};

/// How the calls were shared.
pub(crate) const SHARES: Topic = Topic {
    heading: "how the calls were shared",
    about: "As the workers counted them. A curve shows which part of the calls the least busy workers \
            had together: on the diagonal all had the same. The Gini coefficient is twice the area \
            between both, 0 where all had the same, near 1 where few had all.",
    columns: &[
        column("Gini coefficient", "gini", number::si),
        column("share of the busiest", "busiest_share", number::percent),
        column("workers above 1 %", "workers_above_1pct", number::tick),
        column("workers without a call", "workers_idle", number::tick),
        Column { lacking: UNCOUNTED, ..column("waits/call", "waits_per_call", number::si) },
        Column {
            lacking: UNCOUNTED,
            ..column("waits in vain/call", "empty_waits_per_call", number::si)
        },
    ],
};

/// A fixed number of calls, as a shell's `time` shows it.
pub(crate) const TIMES: Topic = Topic {
    heading: "the time of 1,000,000 calls",
    about: "Each caller made so many calls as the point says; where that is not a million in all, the \
            times are scaled to a million. Real is from the first request to the last answer; user and \
            sys are the CPU time of the callers' process meanwhile, which is what `time` of a client \
            shows.",
    columns: &[
        column("real s", "real_s_per_million_calls", number::si),
        column("user s", "user_s_per_million_calls", number::si),
        column("sys s", "sys_s_per_million_calls", number::si),
    ],
};

/// Whether any run had workers.
pub(crate) fn has_workers(record: &Record) -> bool {
    herds(record).next().is_some()
}

/// The section; empty without workers.
pub(crate) fn herd(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    for (index, experiment) in in_order(herds(record).map(|run| run.experiment)).iter().enumerate()
    {
        let runs: Vec<Herd<'_>> =
            herds(record).filter(|run| run.experiment == *experiment).collect();
        body.push_str(&plain(experiment, &TIMES, &with_a_figure(&runs, &TIMES), arms));
        body.push_str(&plain(experiment, &COSTS, &runs, arms));
        body.push_str(&shares(experiment, &runs, arms, index));
    }
    if body.is_empty() { body } else { section("herd", "workers and calls", &body) }
}

/// A timing run with workers.
#[derive(Clone, Copy)]
pub(crate) struct Herd<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) point: &'a str,
    arm: &'a str,
    measured: &'a Measurement,
}

/// The timing runs that had workers.
pub(crate) fn herds(record: &Record) -> impl Iterator<Item = Herd<'_>> {
    let measured = record.runs.iter().filter_map(|run| Some((run.place(), run.measured()?)));
    let with_workers = measured.filter(|(_, measured)| !measured.worker_calls.is_empty());
    with_workers.map(|([experiment, point, arm], measured)| Herd {
        experiment,
        point,
        arm,
        measured,
    })
}

/// The runs that have the first figure of a topic.
pub(crate) fn with_a_figure<'a>(runs: &[Herd<'a>], topic: &Topic) -> Vec<Herd<'a>> {
    let has_it = |run: &&Herd<'_>| topic.columns[0].read(run.measured).is_some();
    runs.iter().filter(has_it).copied().collect()
}

/// A topic without a chart; empty without runs.
fn plain(experiment: &str, topic: &Topic, runs: &[Herd<'_>], arms: &Arms<'_>) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let heading = escape(&format!("{}: {}", words::part(experiment), topic.heading));
    let points = in_order(runs.iter().map(|run| run.point));
    let (about, table) = (escape(topic.about), table(topic, runs, &points, arms));
    card(&format!("<h3>{heading}</h3><p class=\"dim\">{about}</p>{table}"))
}

fn shares(experiment: &str, runs: &[Herd<'_>], arms: &Arms<'_>, index: usize) -> String {
    let has_several = |run: &&Herd<'_>| run.measured.worker_calls.len() > 1;
    let points = in_order(runs.iter().filter(has_several).map(|run| run.point));
    let (open, folded) = split_points(&points);
    if open.is_empty() {
        return String::new();
    }
    let heading = escape(&format!("{}: {}", words::part(experiment), SHARES.heading));
    let about = escape(SHARES.about);
    let key = format!("lorenz-{index}");
    let mut body = format!("<h3>{heading}</h3><p class=\"dim\">{about}</p>");
    body.push_str(&share_panels(runs, &open, arms, &key));
    if !folded.is_empty() {
        let rest = share_panels(runs, &folded, arms, &format!("{key}-more"));
        body.push_str(&details(&format!("The other {} points", folded.len()), &rest));
    }
    card(&body)
}

fn share_panels(runs: &[Herd<'_>], points: &[&str], arms: &Arms<'_>, key: &str) -> String {
    let one = |(place, point): (usize, &&str)| {
        let here: Vec<Herd<'_>> = runs.iter().copied().filter(|run| run.point == *point).collect();
        let mut names = in_order(here.iter().map(|run| run.arm).filter(|arm| *arm != NOISE_ARM));
        names.sort_by_key(|name| arms.index(name));
        let of_arm = |arm: &&str| {
            let runs = here.iter().filter(|run| run.arm == *arm);
            let counts = runs.map(|run| run.measured.worker_calls.as_slice());
            Shared { arm: (*arm).to_owned(), shares: lorenz::mean_shares(counts) }
        };
        let shared: Vec<Shared> = names.iter().map(of_arm).collect();
        let chart = lorenz::lorenz(&shared, arms, &format!("{key}-{place}"));
        format!("<div><h4>{}</h4>{chart}</div>", escape(point))
    };
    let charts: String = points.iter().enumerate().map(one).collect();
    let table = table(&SHARES, runs, points, arms);
    format!("<div class=\"panels\">{charts}</div>{table}")
}

/// A table with a group for each point and a row for each arm.
fn table(topic: &Topic, runs: &[Herd<'_>], points: &[&str], arms: &Arms<'_>) -> String {
    let headings: Vec<String> = topic.columns.iter().map(|c| format!("#{}", c.heading)).collect();
    let headings: Vec<&str> =
        std::iter::once("arm").chain(headings.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    for point in points {
        table.group(point);
        for (arm, runs) in arms_at(runs, point, arms) {
            let cells = topic.columns.iter().map(|column| match column.median(&runs) {
                Some(value) => Cell::number(&(column.show)(value), value),
                None => Cell::missing("n/a", column.lacking),
            });
            table.row(&std::iter::once(Cell::text(arm)).chain(cells).collect::<Vec<_>>());
        }
    }
    table.finish()
}

/// The runs of each arm at a point. Runs stand in random order; arms come in that of the plan.
pub(crate) fn arms_at<'a>(
    runs: &[Herd<'a>],
    point: &str,
    arms: &Arms<'_>,
) -> Vec<(&'a str, Vec<Herd<'a>>)> {
    let here: Vec<Herd<'a>> = runs.iter().filter(|run| run.point == point).copied().collect();
    let mut names = in_order(here.iter().map(|run| run.arm));
    names.sort_by_key(|name| arms.index(name));
    let of = |arm: &str| here.iter().filter(|run| run.arm == arm).copied().collect();
    names.into_iter().map(|arm| (arm, of(arm))).collect()
}

impl Column {
    fn read(&self, run: &Measurement) -> Option<f64> {
        match self.figure {
            None => Some(run.value),
            Some(name) => run.figures.get(name).copied(),
        }
    }

    /// The median over the runs that have it.
    fn median(&self, runs: &[Herd<'_>]) -> Option<f64> {
        median(&runs.iter().filter_map(|run| self.read(run.measured)).collect::<Vec<f64>>())
    }

    /// Why there is none, where that is so.
    pub(crate) fn reason(&self, runs: &[Herd<'_>]) -> Option<&'static str> {
        self.median(runs).is_none().then_some(self.lacking)
    }

    /// The same as text.
    pub(crate) fn text(&self, runs: &[Herd<'_>]) -> String {
        self.median(runs).map_or_else(|| "n/a".to_owned(), self.show)
    }
}
