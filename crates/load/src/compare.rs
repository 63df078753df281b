//! Results side by side: did something change?
//!
//! Two runs of one build differ by more than their seconds do, as the machine changes between them. So
//! the way to see a small change is several pairs of runs, taken in turns: the change is formed within
//! each pair, and its interval is that over pairs, of eight and more without a quarter at each end
//! (Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61, 1974). Of one pair the interval is that of seconds,
//! widened for neighbours that resemble each other; it leaves out what changes from run to run, so
//! such a change counts from [`BETWEEN_RUNS`] on.
//!
//! Intervals are of 95 %; worse and better are corrected for all rows (Bonferroni).

use pollux_report::number::{change_in_words, effect_in_words, si, size_in_words, time};
use pollux_report::terminal::Page;
use pollux_report::{Cell, Table, Tone};
pub use pollux_stats::{BETWEEN_RUNS, Change};
use pollux_stats::{mean, standard_deviation, student_t_quantile};
use serde::Serialize;

use crate::{Outcome, Second};

/// A smaller change does not matter.
pub const LEAST_EFFECT: f64 = 0.02;
/// Of fewer pairs there is no interval over pairs.
const PAIRS_MIN: usize = 3;
/// From here on a quarter of the pairs is cut off at each end.
const TRIMMED_FROM: usize = 8;
/// Of fewer seconds there is no interval over seconds.
const SECONDS_MIN: usize = 5;
/// Answers beyond a quantile that a second needs, for its quantile to be one.
const BEYOND_MIN: f64 = 10.0;
const LEVEL: f64 = 0.95;

/// Why results can't be compared.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The number of pairs.
    #[error("{0} pairs; expected one, or {PAIRS_MIN} and more: two give no interval")]
    Pairs(usize),
    /// The plans differ.
    #[error(
        "different loads: {what} was \"{before}\" and is \"{after}\"; compare them with --across"
    )]
    Loads {
        /// What differs.
        what: &'static str,
        /// Before.
        before: String,
        /// After.
        after: String,
    },
    /// The same run stands on both sides.
    #[error("the results before and after are the same run; expected two")]
    Same,
    /// A run had no answer.
    #[error("the result {0} has no answers")]
    Nothing(&'static str),
}

/// A figure in both results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name, as `--slo` has it where it has one.
    pub figure: &'static str,
    /// Unit of both values.
    pub unit: &'static str,
    /// Before; the geometric mean of several runs.
    pub before: f64,
    /// After.
    pub after: f64,
    /// After divided by before.
    pub ratio: f64,
    /// The interval of the ratio.
    pub interval: Option<[f64; 2]>,
    pub change: Change,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// How many pairs, or sets of turns.
    pub pairs: usize,
    /// How many rounds each set has; none where whole runs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    /// From which change on one counts, 0.05 for 5 %.
    pub least_change: f64,
    pub rows: Vec<Compared>,
}

/// The figure of this name.
pub(crate) fn figure(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

/// A figure: its name, unit, whether more is better, its value of a run and of a second.
pub(crate) struct Figure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    of_run: fn(&Outcome) -> Option<f64>,
    of_second: fn(&Second, f64) -> Option<f64>,
}

/// A quantile of a run and of a second.
macro_rules! quantile {
    ($name:literal, $quantile:literal) => {
        Figure {
            name: $name,
            unit: "ns",
            more_is_better: false,
            of_run: |run| run.latency.quantile_ns($quantile).map(|ns| ns as f64),
            of_second: |second, _| {
                let beyond = second.latency.count() as f64 * (1.0 - $quantile);
                let ns = second.latency.quantile_ns($quantile)?;
                (beyond >= BEYOND_MIN).then_some(ns as f64)
            },
        }
    };
}

static FIGURES: [Figure; 8] = [
    Figure {
        name: "rate",
        unit: "per_s",
        more_is_better: true,
        of_run: |run| Some(run.answered_per_s()),
        of_second: |second, lasted_s| Some(second.answered as f64 / lasted_s),
    },
    Figure {
        name: "mean",
        unit: "ns",
        more_is_better: false,
        of_run: |run| run.latency.mean_ns(),
        of_second: |second, _| second.latency.mean_ns(),
    },
    quantile!("p50", 0.5),
    quantile!("p90", 0.9),
    quantile!("p99", 0.99),
    quantile!("p99.9", 0.999),
    Figure {
        name: "server CPU",
        unit: "us_per_answer",
        more_is_better: false,
        of_run: |run| run.server?.cpu_us_per_answer,
        of_second: |second, _| per_answer(second.server_cpu_s?, second.answered),
    },
    Figure {
        name: "generator CPU",
        unit: "us_per_answer",
        more_is_better: false,
        of_run: |run| run.generator.cpu_us_per_answer,
        of_second: |second, _| per_answer(second.generator_cpu_s, second.answered),
    },
];

fn per_answer(cpu_s: f64, answered: u64) -> Option<f64> {
    (answered > 0).then(|| cpu_s * 1e6 / answered as f64)
}

/// Compares pairs of runs, each the one before and the one after.
///
/// # Errors
/// [`CompareError`]; different loads can be waived by `is_across`.
pub fn compare(pairs: &[(Outcome, Outcome)], is_across: bool) -> Result<Comparison, CompareError> {
    if pairs.len() != 1 && pairs.len() < PAIRS_MIN {
        return Err(CompareError::Pairs(pairs.len()));
    }
    let (first, _) = &pairs[0];
    for (before, after) in pairs {
        if !is_across {
            same_load(first, before)?;
            same_load(first, after)?;
        }
        if before.is_same_run(after) {
            return Err(CompareError::Same);
        }
        for (run, which) in [(before, "before"), (after, "after")] {
            if run.totals.answered == 0 {
                return Err(CompareError::Nothing(which));
            }
        }
    }
    let least_change = if pairs.len() == 1 { BETWEEN_RUNS } else { LEAST_EFFECT };
    let moved: Vec<(&Figure, Moved)> =
        FIGURES.iter().filter_map(|figure| Some((figure, Moved::of(figure, pairs)?))).collect();
    let judged = moved.iter().filter(|(_, moved)| moved.error.is_some()).count();
    let rows =
        moved.iter().map(|(figure, moved)| moved.row(figure, judged, least_change)).collect();
    Ok(Comparison { pairs: pairs.len(), rounds: None, least_change, rows })
}

fn same_load(a: &Outcome, b: &Outcome) -> Result<(), CompareError> {
    let of = |run: &Outcome| {
        let setting = &run.setting;
        [
            ("the list of requests", setting.listed.clone().unwrap_or_else(|| "none".to_owned())),
            ("the number of URLs", setting.urls.len().to_string()),
            ("connections", setting.connections.to_string()),
            ("pipelining", setting.pipeline.to_string()),
            ("the HTTP that was spoken", setting.spoken.clone()),
            ("streams", setting.streams.to_string()),
            ("windows", setting.windows_in_words()),
            ("requests of a connection", format!("{:?}", setting.requests_per_connection)),
            ("pace", setting.pace.clone()),
            ("threads", setting.threads.to_string()),
            ("the generator's loop", setting.driver.clone()),
        ]
    };
    let pairs = of(a).into_iter().zip(of(b));
    match pairs.into_iter().find(|(before, after)| before != after) {
        None => Ok(()),
        Some(((what, before), (_, after))) => Err(CompareError::Loads { what, before, after }),
    }
}

/// The change of a figure, in logarithms.
pub(crate) struct Moved {
    pub(crate) before: f64,
    pub(crate) after: f64,
    pub(crate) centre: f64,
    /// Standard error with its degrees of freedom.
    pub(crate) error: Option<(f64, u32)>,
}

impl Moved {
    /// Nothing where a run has no such figure, or where it is 0.
    fn of(figure: &Figure, pairs: &[(Outcome, Outcome)]) -> Option<Self> {
        let log = |run: &Outcome| (figure.of_run)(run).filter(|value| *value > 0.0).map(f64::ln);
        let logs: Option<Vec<(f64, f64)>> =
            pairs.iter().map(|(before, after)| log(before).zip(log(after))).collect();
        let logs = logs?;
        let (befores, afters): (Vec<f64>, Vec<f64>) = logs.iter().copied().unzip();
        let before = mean(&befores)?;
        let after = mean(&afters)?;
        let error = match pairs {
            [(before, after)] => of_seconds(figure, before, after),
            _ => {
                let changes = logs.iter().map(|(before, after)| after - before).collect();
                return Some(Self {
                    before: before.exp(),
                    after: after.exp(),
                    ..Self::of_pairs(changes)
                });
            }
        };
        Some(Self { before: before.exp(), after: after.exp(), centre: after - before, error })
    }

    /// The trimmed mean of the changes of pairs, with Yuen's interval: a run may be in another mood of the
    /// machine as a whole, and take 40 % more than its fellows.
    fn of_pairs(mut changes: Vec<f64>) -> Self {
        changes.sort_by(f64::total_cmp);
        let n = changes.len();
        let cut = if n < TRIMMED_FROM { 0 } else { n / 4 };
        let kept = &changes[cut..n - cut];
        let centre = mean(kept).unwrap_or_default();
        let low = kept[0];
        let high = kept[kept.len() - 1];
        let winsorized: Vec<f64> = changes.iter().map(|change| change.clamp(low, high)).collect();
        let share = kept.len() as f64 / n as f64;
        let error = standard_deviation(&winsorized).unwrap_or_default() / (n as f64).sqrt() / share;
        Self { before: 0.0, after: 0.0, centre, error: Some((error, kept.len() as u32 - 1)) }
    }

    fn row(&self, figure: &Figure, judged: usize, least_change: f64) -> Compared {
        let reach = |level: f64| {
            self.error.map(|(error, df)| error * student_t_quantile(1.0 - (1.0 - level) / 2.0, df))
        };
        let interval = reach(LEVEL).map(|reach| [self.centre - reach, self.centre + reach]);
        let corrected = reach(1.0 - (1.0 - LEVEL) / judged.max(1) as f64);
        let better = if figure.more_is_better { self.centre } else { -self.centre };
        let band = least_change.ln_1p();
        let least = LEAST_EFFECT.ln_1p();
        // Of several pairs any change counts whose interval is beyond none.
        let band = if least_change > LEAST_EFFECT { band } else { 0.0 };
        let change = match (reach(LEVEL), corrected) {
            (Some(reach), Some(corrected)) => Change::judged(better, reach, corrected, band, least),
            _ => Change::Open,
        };
        Compared {
            figure: figure.name,
            unit: figure.unit,
            before: self.before,
            after: self.after,
            ratio: self.centre.exp(),
            interval: interval.map(|ends| ends.map(f64::exp)),
            change,
        }
    }
}

/// Standard error and degrees of freedom of the change of one pair, from its seconds.
fn of_seconds(figure: &Figure, before: &Outcome, after: &Outcome) -> Option<(f64, u32)> {
    let [a, b] = [before, after].map(|run| seconds(figure, run));
    let ((a, a_n), (b, b_n)) = (a?, b?);
    let a = standard_deviation(&a)?.powi(2) / a_n;
    let b = standard_deviation(&b)?.powi(2) / b_n;
    // Welch and Satterthwaite.
    let df = (a + b).powi(2) / (a * a / (a_n - 1.0) + b * b / (b_n - 1.0));
    let df = if df.is_finite() { df.max(1.0) as u32 } else { 1 };
    Some(((a + b).sqrt(), df))
}

/// The logarithms of a figure in the whole measured seconds of a run, and how many independent ones
/// they are worth.
fn seconds(figure: &Figure, run: &Outcome) -> Option<(Vec<f64>, f64)> {
    const WHOLE_S: f64 = 0.9;
    let ends = run.seconds.iter().map(|second| second.end_s);
    let begins = std::iter::once(0.0).chain(ends);
    let measured = run.seconds.iter().zip(begins).filter(|(second, _)| !second.is_warm_up);
    let whole = measured.filter(|(second, began_s)| second.end_s - began_s >= WHOLE_S);
    let values: Option<Vec<f64>> = whole
        .map(|(second, began_s)| {
            let value = (figure.of_second)(second, second.end_s - began_s)?;
            (value > 0.0).then(|| value.ln())
        })
        .collect();
    let values = values.filter(|values| values.len() >= SECONDS_MIN)?;
    let n = values.len() as f64;
    let alike = autocorrelation(&values).clamp(0.0, 0.9);
    // A series that remembers is worth fewer values.
    let worth = (n * (1.0 - alike) / (1.0 + alike)).max(2.0);
    Some((values, worth))
}

/// Of neighbours.
fn autocorrelation(values: &[f64]) -> f64 {
    let mean = mean(values).unwrap_or_default();
    let apart: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let square: f64 = apart.iter().map(|value| value * value).sum();
    let product: f64 = apart.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if square > 0.0 { product / square } else { 0.0 }
}

impl Comparison {
    /// Of what was found in sets of turns.
    pub(crate) fn of_turns(moved: &[(&Figure, Moved)], sets: usize, rounds: usize) -> Self {
        let row = |(figure, one): &(&Figure, Moved)| one.row(figure, moved.len(), LEAST_EFFECT);
        let rows = moved.iter().map(row).collect();
        Self { pairs: sets, rounds: Some(rounds), least_change: LEAST_EFFECT, rows }
    }

    /// For a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new(["figure", "#before", "#after", "change", "verdict"]);
        for row in &self.rows {
            let change = match row.interval {
                Some([low, high]) => change_in_words(row.ratio, low, high),
                None => size_in_words(row.ratio),
            };
            table.row([
                Cell::text(row.figure),
                Cell::figure(&value(row.unit, row.before)),
                Cell::figure(&value(row.unit, row.after)),
                Cell::text(&change),
                Cell::text(&row.change.to_string()),
            ]);
        }
        let mut page = Page::new(usize::MAX, false);
        page.table(&table);
        page.words(&self.about(), Tone::Plain);
        page.finish()
    }

    fn about(&self) -> String {
        if let Some(rounds) = self.rounds {
            return format!(
                "intervals of 95 % over {} sets of {rounds} rounds, in which both took a turn; worse and better \
                 are corrected for all rows, same lies within {}",
                self.pairs,
                effect_in_words(LEAST_EFFECT)
            );
        }
        match self.pairs {
            1 => format!(
                "intervals of 95 % over the seconds of each run; worse and better are corrected for all \
                 rows and lie beyond {}, as two runs of one build may be that far apart: {PAIRS_MIN} pairs \
                 and more, run in turns, tell smaller changes",
                effect_in_words(BETWEEN_RUNS)
            ),
            pairs => format!(
                "intervals of 95 % over {pairs} pairs; worse and better are corrected for all rows, same \
                 lies within {}",
                effect_in_words(LEAST_EFFECT)
            ),
        }
    }

    /// Why a gate fails: the figure that got worse most, by how much, and the bound; none where none did.
    #[must_use]
    pub fn worse(&self) -> Option<String> {
        let worse: Vec<&Compared> =
            self.rows.iter().filter(|row| row.change == Change::Worse).collect();
        let distance = |row: &Compared| row.ratio.ln().abs();
        let worst = worse.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let Compared { figure, unit, before, after, ratio, interval, .. } = worst;
        let change = match interval {
            Some([low, high]) => change_in_words(*ratio, *low, *high),
            None => size_in_words(*ratio),
        };
        let before = value(unit, *before);
        let after = value(unit, *after);
        let bound = if self.least_change > LEAST_EFFECT {
            format!("more than {}", effect_in_words(self.least_change))
        } else {
            "a change that is certain".to_owned()
        };
        let others = match worse.len() - 1 {
            0 => String::new(),
            1 => "; 1 more figure is worse too".to_owned(),
            several => format!("; {several} more figures are worse too"),
        };
        Some(format!(
            "--gate: {figure}: {change}, {before} before and {after} now; {bound} fails{others}"
        ))
    }

    /// Why a strict comparison is not content: the first figure that is unclear, or has no interval.
    #[must_use]
    pub fn unclear(&self) -> Option<String> {
        let is_open = |row: &&Compared| matches!(row.change, Change::Unclear | Change::Open);
        let first = self.rows.iter().find(is_open)?;
        let all = self.rows.len();
        let open = self.rows.iter().filter(is_open).count();
        Some(format!(
            "--strict: {open} of {all} figures are unclear or without an interval, the first: {}",
            first.figure
        ))
    }

    /// Whether a figure has this judgement.
    #[must_use]
    pub fn has(&self, change: Change) -> bool {
        self.rows.iter().any(|row| row.change == change)
    }
}

fn value(unit: &str, value: f64) -> String {
    match unit {
        "ns" => time(value),
        "per_s" => format!("{}/s", si(value)),
        _ => time(value * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;
    use crate::{Distribution, ServerUse};

    /// A run whose seconds have this latency and CPU, with some noise that `seed` chooses.
    fn run(latency_ns: f64, cpu_us: f64, noise: f64, seed: u64) -> Outcome {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut near = |value: f64| value * (1.0 + noise * (random.f64() - 0.5));
        let mut run = sample(64, 0, 1);
        run.latency = Distribution::new();
        for number in 0..20_u32 {
            let mut second = Second { end_s: f64::from(number + 1), ..Second::default() };
            let ns = near(latency_ns);
            for each in 0..1_000 {
                let ns = (ns * (1.0 + f64::from(each) / 500.0)) as u64;
                second.latency.record(ns);
                run.latency.record(ns);
            }
            second.answered = near(1_000.0) as u64;
            run.totals.answered += second.answered;
            second.server_cpu_s = Some(near(cpu_us) * second.answered as f64 / 1e6);
            run.seconds.push(second);
        }
        let cpu_s = run.seconds.iter().filter_map(|second| second.server_cpu_s).sum::<f64>();
        let cpu_us_per_answer = Some(cpu_s * 1e6 / run.totals.answered as f64);
        run.server = Some(ServerUse { pid: 7, cpu_s, cpu_us_per_answer });
        run
    }

    fn change(comparison: &Comparison, figure: &str) -> Change {
        let row = comparison.rows.iter().find(|row| row.figure == figure).expect("a row");
        row.change
    }

    #[test]
    fn five_percent_of_cpu_and_latency_are_seen_by_pairs() {
        // What a machine does to a run: all of it is up to 6 % slower or faster.
        let mut random = fastrand::Rng::with_seed(1);
        let pairs: Vec<_> = (0..8)
            .map(|number| {
                let mood = 0.97 + 0.06 * random.f64();
                let of = |latency, cpu, seed| run(latency * mood, cpu * mood, 0.02, seed);
                (of(1e6, 8.0, number), of(1.05e6, 8.4, number + 100))
            })
            .collect();
        let found = compare(&pairs, false).expect("the same load");
        for figure in ["p50", "p90", "p99", "mean", "server CPU"] {
            assert_eq!(change(&found, figure), Change::Worse, "{figure}: {}", found.table());
        }
        assert_eq!(change(&found, "rate"), Change::Same, "{}", found.table());
        let turned: Vec<_> = pairs.into_iter().map(|(before, after)| (after, before)).collect();
        let found = compare(&turned, false).expect("the same load");
        assert_eq!(change(&found, "server CPU"), Change::Better);
        assert!(found.table().contains("% less ["), "{}", found.table());
    }

    #[test]
    fn a_few_runs_in_another_regime_do_not_hide_a_change() {
        let pairs: Vec<_> = (0..12)
            .map(|number| {
                let mood = [1.0, 1.4, 1.0, 1.0, 0.7, 1.0][number as usize % 6];
                (run(1e6, 8.0, 0.02, number), run(1.05e6 * mood, 8.4 * mood, 0.02, number + 100))
            })
            .collect();
        let found = compare(&pairs, false).expect("the same load");
        assert_eq!(change(&found, "server CPU"), Change::Worse, "{}", found.table());
        let row = found.rows.iter().find(|row| row.figure == "server CPU").expect("a row");
        assert!((row.ratio - 1.05).abs() < 0.01, "{row:?}");
    }

    #[test]
    fn of_one_pair_a_change_counts_from_five_percent_on() {
        let before = run(1e6, 8.0, 0.02, 1);
        for (after, expected) in
            [(1.0, Change::Same), (1.04, Change::Unclear), (1.2, Change::Worse)]
        {
            let pair = [(before.clone(), run(1e6 * after, 8.0 * after, 0.02, 2))];
            let found = compare(&pair, false).expect("the same load");
            assert_eq!(change(&found, "p50"), expected, "{}", found.table());
            assert_eq!(change(&found, "server CPU"), expected, "{}", found.table());
        }
    }

    #[test]
    fn a_quantile_of_too_few_answers_has_no_interval() {
        let pair = [(run(1e6, 8.0, 0.02, 1), run(2e6, 8.0, 0.02, 2))];
        let found = compare(&pair, false).expect("the same load");
        let row = found.rows.iter().find(|row| row.figure == "p99.9").expect("a row");
        assert_eq!((row.interval, row.change), (None, Change::Open), "a thousand answers a second");
        assert!(row.ratio > 1.9, "{row:?}");
    }

    #[test]
    fn noise_of_one_build_is_seldom_called_a_change() {
        let mut called = 0;
        for number in 0..25 {
            let pairs: Vec<_> = (0..5)
                .map(|pair| {
                    let seed = number * 1000 + pair;
                    (run(1e4, 8.0, 0.1, seed), run(1e4, 8.0, 0.1, seed + 500))
                })
                .collect();
            let found = compare(&pairs, false).expect("the same load");
            called += u32::from(found.has(Change::Worse) || found.has(Change::Better));
        }
        assert!(called <= 4, "{called} of 25 comparisons, 1 or 2 are expected");
    }

    #[test]
    fn other_loads_and_two_pairs_are_refused() {
        let a = run(1e6, 8.0, 0.02, 1);
        let mut b = run(1e6, 8.0, 0.02, 2);
        b.setting.connections = 128;
        let message = compare(&[(a.clone(), b.clone())], false).expect_err("others").to_string();
        assert!(
            message.starts_with("different loads: connections was \"64\" and is \"128\""),
            "{message}"
        );
        assert!(compare(&[(a.clone(), b)], true).is_ok());
        let mut a2 = a.clone();
        let mut b2 = run(1e6, 8.0, 0.02, 2);
        (a2.setting.windows, b2.setting.windows) =
            (Some((1 << 30, 1 << 30)), Some((65_536, 1 << 20)));
        let message = compare(&[(a2.clone(), b2)], false).expect_err("others").to_string();
        assert!(
            message.contains(
                "windows was \"1GiB of a stream, 1GiB of a connection\" and is \"64KiB of a stream, 1MiB of a \
                 connection\""
            ),
            "{message}"
        );
        let mut c2 = run(1e6, 8.0, 0.02, 2);
        c2.setting.windows = a2.setting.windows;
        assert!(compare(&[(a2, c2)], false).is_ok());
        let pair = (a.clone(), a.clone());
        assert_eq!(compare(&[pair.clone(), pair], false), Err(CompareError::Pairs(2)));
        assert_eq!(compare(&[(a.clone(), a.clone())], true), Err(CompareError::Same));
        let nothing = sample(64, 0, 1);
        assert_eq!(compare(&[(a, nothing)], true), Err(CompareError::Nothing("after")));
    }
}
