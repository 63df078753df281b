//! What the figures of a run have to keep to: `--slo p99=5ms`, `--slo errors=0.1%`, `--slo rate=5000`.
//!
//! Pure judgements of a finished [`Outcome`]. The flags read an [`Objective`] from a text, the end of a run and each trial
//! of the search for the [capacity](crate::CapacitySearch) judge by it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pollux_report::number::{self, count, plural, time};
use pollux_settings::quantity::{self, NotADuration};
use pollux_stats::LONGEST_NS;

use crate::{Distribution, FindingKind, Judged, Outcome, findings};

/// Part of the requests that may fail while a time or a rate holds, where no objective says
/// another one.
const ERRORS_SHARE_MAX: f64 = 0.001;
/// The figures that have a name of their own; percentiles and statuses are read by their form.
const NAMED: [(&str, Figure); 9] = [
    ("mean", Figure::Time(Times::Latency, Part::Mean)),
    ("max", Figure::Time(Times::Latency, Part::Max)),
    ("first-byte-mean", Figure::Time(Times::FirstByte, Part::Mean)),
    ("first-byte-max", Figure::Time(Times::FirstByte, Part::Max)),
    ("connect-max", Figure::Time(Times::Connect, Part::Max)),
    ("rate", Figure::Rate),
    ("errors", Figure::Errors),
    ("redirects", Figure::Redirects),
    ("unanswered", Figure::Unanswered),
];
/// What an objective looks like.
const FORM: &str = "expected such as p99=5ms, mean=1ms, max=1s, first-byte-p99=5ms, connect-p99=1ms, \
                    errors=0.1%, redirects=0, unanswered=0, 5xx=0 or rate=5000";

/// A figure of the result and its limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Objective {
    figure: Figure,
    limit: Limit,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Figure {
    Time(Times, Part),
    /// Answers per second: the only one that has to be large.
    Rate,
    Errors,
    Redirects,
    Unanswered,
    /// Answers whose status begins with this digit.
    Class(u8),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Times {
    Latency,
    FirstByte,
    Connect,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    /// 0 to 1.
    Quantile(f64),
    Mean,
    Max,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Limit {
    /// The longest time that is right.
    Time(Duration),
    /// The largest part of the requests, 0 to 1.
    Share(f64),
    /// The largest number.
    Count(u64),
    /// The lowest rate per second.
    Rate(f64),
}

impl Objective {
    /// The quantile of the latency (0 to 1) that it is about and its limit; `None` when it is
    /// about another figure.
    #[must_use]
    pub fn latency_quantile(&self) -> Option<(f64, Duration)> {
        match (self.figure, self.limit) {
            (Figure::Time(Times::Latency, Part::Quantile(quantile)), Limit::Time(limit)) => {
                Some((quantile, limit))
            }
            _ => None,
        }
    }

    /// Its figure as people name it: `p99.9`, `errors`.
    #[must_use]
    pub fn name(&self) -> String {
        self.figure.to_string()
    }

    /// Whether it limits errors, in place of the limit that is there without it.
    #[must_use]
    pub fn limits_errors(&self) -> bool {
        self.figure == Figure::Errors
    }

    /// The figure in `outcome`, in nanoseconds, per second, or as a number of requests.
    fn found(&self, outcome: &Outcome) -> Option<f64> {
        let totals = &outcome.totals;
        match self.figure {
            Figure::Time(times, part) => {
                let times = times.of(outcome);
                match part {
                    Part::Quantile(quantile) => times.quantile_ns(quantile).map(|ns| ns as f64),
                    Part::Mean => times.mean_ns(),
                    Part::Max => times.max_ns().map(|ns| ns as f64),
                }
            }
            Figure::Rate => Some(outcome.answered_per_s()),
            Figure::Errors => Some(outcome.errors.total() as f64),
            Figure::Redirects => Some(totals.redirected as f64),
            Figure::Unanswered => Some(outcome.unanswered.count() as f64),
            Figure::Class(digit) => Some(totals.by_class[usize::from(digit)] as f64),
        }
    }

    /// Why `outcome` does not hold it, of itself; `None` when it does.
    fn missed_by(&self, outcome: &Outcome) -> Option<String> {
        let found = self.found(outcome);
        let due = outcome.totals.due.max(outcome.errors.total());
        match self.limit {
            Limit::Time(at_most) => {
                let quantile = self.latency_quantile().map(|(quantile, _)| quantile);
                let found = match quantile {
                    Some(quantile) => with_unanswered(quantile, at_most, outcome)?,
                    None => Ok(found?),
                };
                match found {
                    Ok(ns) if ns <= at_most.as_nanos() as f64 => None,
                    Ok(ns) => Some(format!("{} was {}", self.figure, time(ns))),
                    Err(why) => Some(why),
                }
            }
            Limit::Share(at_most) => {
                let found = found?;
                (found > at_most * due as f64).then(|| self.too_many(found, due))
            }
            Limit::Count(at_most) => {
                let found = found?;
                (found > at_most as f64).then(|| self.too_many(found, due))
            }
            Limit::Rate(at_least) => {
                let found = found?;
                (found < at_least).then(|| format!("it was {}/s", number::si(found)))
            }
        }
    }

    fn too_many(&self, found: f64, due: u64) -> String {
        let found = count(found as u64);
        let requests = plural(due, "request");
        match self.figure {
            Figure::Redirects => format!("{found} of {requests} were redirected"),
            Figure::Unanswered => format!("{found} of {requests} were not answered"),
            Figure::Class(digit) => format!("{found} of {} were {digit}xx", plural(due, "answer")),
            _ => format!("{found} of {requests} failed"),
        }
    }

    fn judged(&self, outcome: &Outcome, broken_by: Option<String>) -> Judged {
        let (limit, unit) = match self.limit {
            Limit::Time(limit) => (limit.as_nanos() as f64, "ns"),
            Limit::Share(limit) => (limit, "share"),
            Limit::Count(limit) => (limit as f64, "requests"),
            Limit::Rate(limit) => (limit, "per_s"),
        };
        let due = outcome.totals.due.max(outcome.errors.total()).max(1) as f64;
        let found = self.found(outcome).map(|found| match self.limit {
            Limit::Share(_) => found / due,
            _ => found,
        });
        let found_text = found.map(|found| match self.limit {
            Limit::Time(_) => time(found),
            Limit::Share(_) => number::percent(found),
            Limit::Count(_) => count(found as u64),
            Limit::Rate(_) => number::si(found) + "/s",
        });
        Judged {
            text: self.to_string(),
            figure: self.name(),
            unit,
            limit,
            found,
            found_text,
            is_held: broken_by.is_none(),
            broken_by,
        }
    }
}

/// Why `outcome` does not hold all of `objectives`; `None` when it does. Its findings are there,
/// without any that judges objectives.
#[must_use]
pub fn broken_by(objectives: &[Objective], outcome: &Outcome) -> Option<String> {
    let unfit = unfit(objectives, outcome)
        .filter(|_| objectives.iter().any(|objective| needs_fit(objective, outcome)));
    unfit.or_else(|| objectives.iter().find_map(|objective| objective.missed_by(outcome)))
}

/// What became of each of `objectives` in `outcome`, as [`broken_by`] judges them.
pub(crate) fn judge(objectives: &[Objective], outcome: &Outcome) -> Vec<Judged> {
    let unfit = unfit(objectives, outcome);
    let is_empty = outcome.totals.answered == 0;
    let judged = |objective: &Objective| {
        let unfit = unfit.clone().filter(|_| needs_fit(objective, outcome));
        let missed = objective.missed_by(outcome);
        let broken_by = match (unfit, missed) {
            (Some(unfit), missed) if !is_empty => Some(match missed {
                Some(missed) if missed != unfit => format!("{missed}, and {unfit}"),
                Some(_) => unfit,
                // What was answered held it; that is not all.
                None => {
                    let found = objective.found(outcome);
                    let found = found.map(|ns| format!("; {} was {}", objective.figure, time(ns)));
                    unfit + &found.unwrap_or_default()
                }
            }),
            (unfit, missed) => unfit.or(missed),
        };
        objective.judged(outcome, broken_by)
    };
    objectives.iter().map(judged).collect()
}

fn has(outcome: &Outcome, kind: FindingKind) -> bool {
    outcome.findings.iter().any(|finding| finding.kind == kind)
}

/// Whether a run that went wrong as a whole can't hold it: its times are those of the lucky ones, and without an answer
/// to a request that counts nothing is known. A rate is what it is.
fn needs_fit(objective: &Objective, outcome: &Outcome) -> bool {
    let is_known = match objective.limit {
        Limit::Rate(_) => outcome.within().answered > 0,
        _ => outcome.totals.answered > 0,
    };
    !is_known || matches!(objective.limit, Limit::Time(_))
}

/// Why the times of `outcome` say nothing.
fn unfit(objectives: &[Objective], outcome: &Outcome) -> Option<String> {
    if has(outcome, FindingKind::NoAnswers) {
        return Some("nothing was answered".to_owned());
    }
    if outcome.totals.answered == 0 {
        return Some("no request that began in the measured time was answered".to_owned());
    }
    if let Some(longest_s) = outcome.longest_standstill_s() {
        return Some(format!("nothing was answered for {longest_s:.1} s"));
    }
    if let (true, Some(asked)) =
        (has(outcome, FindingKind::RateMissed), outcome.setting.asked_per_s)
    {
        let share = outcome.answered_per_s() / asked * 100.0;
        return Some(format!("{share:.1} % of the rate answered"));
    }
    let errors = outcome.errors.total();
    let due = outcome.totals.due;
    let has_limit = objectives.iter().any(Objective::limits_errors);
    (!has_limit && errors as f64 > due as f64 * ERRORS_SHARE_MAX)
        .then(|| format!("{} of {} failed", count(errors), plural(due, "request")))
}

/// A quantile of the latency, in nanoseconds, of all requests: those without an answer waited longer than any that
/// was answered; those under way at the end count so when they had waited too long by then. `Err`: the quantile lies
/// among these; `None`: nothing was answered.
fn with_unanswered(
    quantile: f64,
    at_most: Duration,
    outcome: &Outcome,
) -> Option<Result<f64, String>> {
    let at_most_ns = at_most.as_nanos() as u64;
    let late = outcome.unanswered.histogram().count_between(at_most_ns, LONGEST_NS);
    let errors = &outcome.errors;
    let unanswered = errors.total() - errors.status - errors.mismatch + late;
    let answered = outcome.latency.count() as f64;
    let quantile = quantile * (answered + unanswered as f64) / answered;
    if quantile > 1.0 {
        let unanswered = count(unanswered);
        let due = plural(outcome.totals.due, "request");
        return Some(Err(format!("{unanswered} of {due} were not answered")));
    }
    outcome.latency.quantile_ns(quantile).map(|ns| Ok(ns as f64))
}

impl Times {
    fn of(self, outcome: &Outcome) -> &Distribution {
        match self {
            Self::Latency => &outcome.latency,
            Self::FirstByte => &outcome.first_byte,
            Self::Connect => &outcome.connect,
        }
    }
}

impl Outcome {
    /// Judges it by `objectives`, which may add a finding.
    pub fn judge(&mut self, objectives: &[Objective]) {
        self.objectives = judge(objectives, self);
        self.findings = findings(self);
    }
}

impl FromStr for Objective {
    type Err = String;

    /// `p99=5ms`, `first-byte-p99.9=250us`, `errors=0.1%`, `5xx=0`, `rate=5000`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; {FORM}");
        let (name, limit) = text.split_once('=').ok_or_else(|| wrong("no \"=\" in it"))?;
        let figure = figure(name.trim()).map_err(|why| wrong(&why))?;
        let limit = limit.trim();
        let limit = match figure {
            Figure::Time(..) => time_limit(limit).map(Limit::Time),
            Figure::Rate => rate_limit(limit).map(Limit::Rate),
            _ => part_limit(limit),
        };
        Ok(Self { figure, limit: limit.map_err(wrong)? })
    }
}

fn figure(name: &str) -> Result<Figure, String> {
    if let Some((_, figure)) = NAMED.iter().find(|(known, _)| *known == name) {
        return Ok(*figure);
    }
    if let [digit @ b'1'..=b'5', b'x', b'x'] = name.as_bytes() {
        return Ok(Figure::Class(digit - b'0'));
    }
    let prefixes = [("first-byte-", Times::FirstByte), ("connect-", Times::Connect)];
    let found = prefixes.iter().find_map(|(prefix, times)| {
        name.strip_prefix(prefix).map(|percentile| (percentile, *times))
    });
    let (percentile, times) = found.unwrap_or((name, Times::Latency));
    let percent = percentile.strip_prefix('p').filter(|digits| quantity::number(digits).is_some());
    let percent = percent.ok_or_else(|| format!("\"{name}\" is not a figure"))?;
    let quantile = parse_percent(percent).ok_or("a percentile is between 0 and 100")?;
    Ok(Figure::Time(times, Part::Quantile(quantile)))
}

fn time_limit(text: &str) -> Result<Duration, &'static str> {
    match quantity::duration(text) {
        Ok(Duration::ZERO) => Err("a time of zero never holds"),
        Ok(limit) => Ok(limit),
        Err(NotADuration::WithoutUnit) => Err("a time without its unit (us, ms or s)"),
        Err(NotADuration::Other) => Err("not a time"),
    }
}

fn rate_limit(text: &str) -> Result<f64, &'static str> {
    let rate = quantity::number(text).ok_or("not a rate per second")?;
    if rate > 0.0 { Ok(rate) } else { Err("a rate is above 0") }
}

fn part_limit(text: &str) -> Result<Limit, &'static str> {
    if !text.ends_with('%') {
        let count = quantity::whole_number(text).map(Limit::Count);
        return count.ok_or("neither a number nor a part in %");
    }
    let part = quantity::part(text).ok_or("not a part in %")?;
    if part <= 1.0 { Ok(Limit::Share(part)) } else { Err("a part is between 0% and 100%") }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMED.iter().find(|(_, figure)| figure == self) {
            return f.write_str(name);
        }
        match self {
            Self::Time(times, Part::Quantile(quantile)) => {
                f.write_str(match times {
                    Times::Latency => "",
                    Times::FirstByte => "first-byte-",
                    Times::Connect => "connect-",
                })?;
                f.write_str(&percentile(*quantile))
            }
            Self::Time(_, Part::Mean) => f.write_str("connect-mean"),
            Self::Class(digit) => write!(f, "{digit}xx"),
            _ => unreachable!("every other figure has a name"),
        }
    }
}

/// The quantile (0 to 1) of a percentile's digits: 0.999 of `99.9`; `None` when it is not above 0
/// and below 100.
#[must_use]
pub fn parse_percent(digits: &str) -> Option<f64> {
    let percent = quantity::number(digits)?;
    // 99.9 / 100 is not 0.999 in binary.
    (percent > 0.0 && percent < 100.0).then(|| (percent * 1e6).round() / 1e8)
}

/// A quantile (0 to 1) as people name it: `p99.9`.
#[must_use]
pub fn percentile(quantile: f64) -> String {
    // Rounded to what was written: 0.999 × 100 is not 99.9 in binary.
    format!("p{}", (quantile * 1e8).round() / 1e6)
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Limit::Time(limit) => {
                write!(f, "{} at most {}", self.figure, time(limit.as_nanos() as f64))
            }
            Limit::Share(limit) => write!(f, "{} at most {} %", self.figure, limit * 100.0),
            Limit::Count(limit) => write!(f, "{} at most {}", self.figure, count(limit)),
            Limit::Rate(limit) => write!(f, "{} at least {}/s", self.figure, number::si(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;

    fn objective(text: &str) -> Objective {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn a_percentile_reads_and_judges() {
        let one = [objective("p99.9=5ms")];
        assert_eq!(one[0].to_string(), "p99.9 at most 5.00 ms");
        assert_eq!(broken_by(&one, &sample(10, 20_000, 4_900_000)), None);
        let why = broken_by(&one, &sample(10, 20_000, 5_200_000)).expect("broken");
        assert!(why.contains("5.2"), "{why}");
        let mut failing = sample(10, 20_000, 1_000);
        failing.errors.timeout = 21;
        assert!(broken_by(&one, &failing).expect("broken").contains("21 of 20,000"));
        // Three of 20,000 that were never answered are more than the slowest ten-thousandth.
        let strict = [objective("p99.99=5ms")];
        let mut failing = sample(10, 19_997, 1_000);
        (failing.totals.due, failing.errors.timeout) = (20_000, 3);
        assert!(broken_by(&strict, &failing).expect("broken").contains("3 of 20,000"));
        assert_eq!(broken_by(&one, &failing), None);
    }

    #[test]
    fn every_figure_has_a_limit_that_holds_and_one_that_does_not() {
        let mut outcome = sample(10, 20_000, 1_000_000);
        outcome.connect.record(300_000);
        outcome.errors.status = 10;
        outcome.totals.redirected = 40;
        (outcome.totals.by_class[5], outcome.totals.by_class[3]) = (10, 40);
        outcome.unanswered.record(1_000);
        for (holds, is_missed, why) in [
            ("p50=1.1ms", "p50=900us", "p50 was 1.00 ms"),
            ("mean=1.1ms", "mean=0.9ms", "mean was 1.00 ms"),
            ("max=1.1ms", "max=0.9ms", "max was 1.00 ms"),
            ("first-byte-p99=1.1ms", "first-byte-p99=1us", "first-byte-p99 was 1.00 ms"),
            ("first-byte-mean=2ms", "first-byte-mean=1us", "first-byte-mean was"),
            ("first-byte-max=2ms", "first-byte-max=1us", "first-byte-max was"),
            ("connect-p99=1ms", "connect-p99=1us", "connect-p99 was 300 µs"),
            ("connect-max=1ms", "connect-max=1us", "connect-max was"),
            ("rate=2000", "rate=2001", "it was 2.00 k/s"),
            ("errors=0.05%", "errors=0.04%", "10 of 20,000 requests failed"),
            ("errors=10", "errors=9", "10 of 20,000 requests failed"),
            ("redirects=0.2%", "redirects=39", "40 of 20,000 requests were redirected"),
            ("unanswered=1", "unanswered=0", "1 of 20,000 requests were not answered"),
            ("5xx=10", "5xx=0", "10 of 20,000 answers were 5xx"),
        ] {
            assert_eq!(broken_by(&[objective(holds)], &outcome), None, "{holds}");
            let missed = objective(is_missed);
            let message = broken_by(&[objective(holds), missed], &outcome).expect(is_missed);
            assert!(message.contains(why), "{is_missed}: {message}");
            let judged = judge(&[objective(holds), missed], &outcome);
            assert_eq!(judged.iter().map(|one| one.is_held).collect::<Vec<_>>(), [true, false]);
            assert!(judged.iter().all(|one| one.found.is_some()), "{judged:?}");
        }
    }

    #[test]
    fn a_rate_is_judged_by_what_was_answered_also_beside_a_rate_that_was_missed() {
        let mut outcome = sample(10, 20_000, 1_000_000);
        outcome.setting.asked_per_s = Some(9_000.0);
        outcome.findings = findings(&outcome);
        let judged = judge(&["rate=2000", "rate=2001", "p50=2ms"].map(objective), &outcome);
        assert_eq!(judged.iter().map(|one| one.is_held).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn a_percentile_that_was_missed_says_what_it_was_beside_the_rate() {
        let mut outcome = sample(10, 20_000, 1_610_000_000);
        outcome.setting.asked_per_s = Some(6_000.0);
        outcome.findings = findings(&outcome);
        let judged = judge(&["p99=100ms", "p99=2s"].map(objective), &outcome);
        let why: Vec<_> = judged.iter().filter_map(|one| one.broken_by.as_deref()).collect();
        let [missed, allowed] = why[..] else { panic!("{judged:?}") };
        assert_eq!(missed, "p99 was 1.61 s, and 33.3 % of the rate answered");
        assert_eq!(allowed, "33.3 % of the rate answered; p99 was 1.61 s");
    }

    #[test]
    fn a_run_without_an_answer_holds_nothing() {
        let mut outcome = sample(10, 0, 0);
        outcome.findings = findings(&outcome);
        let judged = judge(&["rate=1", "5xx=0", "p50=2ms", "errors=100%"].map(objective), &outcome);
        assert!(judged.iter().all(|one| !one.is_held), "{judged:?}");
        assert!(broken_by(&[objective("5xx=0")], &outcome).is_some());
    }

    #[test]
    fn errors_that_are_allowed_leave_the_times_to_be_judged() {
        let mut outcome = sample(10, 20_000, 1_000_000);
        outcome.errors.status = 200;
        let speed = objective("p50=2ms");
        assert!(broken_by(&[speed], &outcome).is_some());
        assert_eq!(broken_by(&[speed, objective("errors=1%")], &outcome), None);
        assert!(broken_by(&[speed, objective("errors=0.5%")], &outcome).is_some());
    }

    #[test]
    fn a_wrong_objective_says_what_is_expected() {
        for (text, why) in [
            ("p99", "no \"=\""),
            ("99=5ms", "\"99\" is not a figure"),
            ("6xx=5", "\"6xx\" is not a figure"),
            ("connect-p0=5ms", "between"),
            ("p100=5ms", "between"),
            ("p99=5", "unit"),
            ("p99=0ms", "zero"),
            ("p99=-1ms", "not a time"),
            ("p99=1e3ms", "not a time"),
            ("rate=+1", "not a rate"),
            ("errors=-1%", "not a part"),
            ("errors=5ms", "neither a number nor a part"),
            ("errors=101%", "between 0% and 100%"),
            ("rate=0", "above 0"),
            ("rate=fast", "not a rate"),
        ] {
            let message = text.parse::<Objective>().expect_err(text);
            assert!(
                message.contains(why) && message.contains("expected such as p99=5ms"),
                "{message}"
            );
        }
    }
}
