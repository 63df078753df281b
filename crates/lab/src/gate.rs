//! Why a run ends with an exit code that is not 0: the line that a CI log ends with, so that nobody has to look for
//! the row in a table. `pollux lab run` and `pollux lab compare` print it last.

use pollux_report::number::{change_in_words, effect_in_words, plural};

use crate::compare_records::{BETWEEN_RUNS, Change, Compared};
use crate::judge::difference;
use crate::record::{Badge, Record, ResultRow, Verdict};

/// Why `--gate` fails: the worst row, by how much, and the bound; none where no row is worse.
#[must_use]
pub fn worse(record: &Record) -> Option<String> {
    let worse: Vec<&ResultRow> = record.results.iter().filter(|row| row.is_regression()).collect();
    let distance = |row: &ResultRow| row.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let worst = worse.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    let bound = effect_in_words(worst.no_difference);
    let why = if worst.no_difference > record.job.min_effect {
        "the noise of this run"
    } else {
        "--min-effect"
    };
    let place = place(worst);
    let difference = difference(worst);
    let others = others(worse.len() - 1, "is worse too", "are worse too");
    Some(format!("--gate: {place}: {difference}; more than {bound} fails ({why}){others}"))
}

/// Why `--gate` can say neither: a row whose cost still changed has no verdict, and no row of an invalid run has one.
#[must_use]
pub fn without_verdict(record: &Record) -> Option<String> {
    let unsettled = |row: &ResultRow| Some((place(row), row.arm.clone(), row.unsettled.clone()?));
    let found: Vec<_> = record.results.iter().filter_map(unsettled).collect();
    if let Some((place, arm, why)) = found.first() {
        let others = others(found.len() - 1, "has none either", "have none either");
        return Some(format!("--gate: no verdict for {arm} ({place}): {why}{others}"));
    }
    let is_invalid = record.trust.badge == Badge::Invalid;
    is_invalid.then(|| format!("--gate: no verdict for any row: {}", crate::report::badge(record)))
}

/// Why a run without `--gate` fails: what could not be measured.
#[must_use]
pub fn unmeasured(record: &Record) -> Option<String> {
    if record.results.is_empty() {
        return Some("failed: nothing was measured".to_owned());
    }
    let failed: Vec<&ResultRow> =
        record.results.iter().filter(|row| row.verdict == Verdict::Failed).collect();
    if let Some(first) = failed.first() {
        let reason = record.runs_at(first.key()).filter_map(|run| run.failure()).last();
        let reason = reason.unwrap_or("it could not be measured");
        let others = others(failed.len() - 1, "failed too", "failed too");
        return Some(format!("failed: {}: {}: {reason}{others}", place(first), first.arm));
    }
    let mut looks = record.looks.iter();
    let at_fault = looks.find_map(|look| Some((look, look.fault.as_ref()?)));
    if let Some((look, fault)) = at_fault {
        return Some(format!("failed: {}: {}: {fault}", look.experiment, look.arm));
    }
    let given_up = record.given_up()?;
    let [experiment, point, arm] = given_up;
    let reason = record.runs_at(given_up).filter_map(|run| run.failure()).last();
    let reason = reason.unwrap_or("it could not be measured");
    Some(format!("failed: {experiment}, {point}: {arm} was given up: {reason}"))
}

/// Why `--strict` is not content: what is undecided, or what the badge says against the run.
#[must_use]
pub fn unsure(record: &Record) -> Option<String> {
    let is_open = |row: &&ResultRow| row.verdict == Verdict::Inconclusive;
    let open: Vec<&ResultRow> = record.results.iter().filter(is_open).collect();
    if let Some(first) = open.first() {
        let others = others(open.len() - 1, "is open too", "are open too");
        return Some(format!("--strict: {}: {} is undecided{others}", place(first), first.arm));
    }
    let badge = match record.trust.badge {
        Badge::Quiet | Badge::Controlled => return None,
        _ => crate::report::badge(record),
    };
    Some(format!("--strict: {badge}"))
}

/// Why the gate of a comparison of two runs fails.
#[must_use]
pub fn worse_than_before(rows: &[Compared]) -> Option<String> {
    let is_worse = |row: &&Compared| matches!(row.change, Change::Worse | Change::Missing);
    let worse: Vec<&Compared> = rows.iter().filter(is_worse).collect();
    let first = worse.first()?;
    let Compared { experiment, point, arm, .. } = first;
    let how = match first.ratio {
        Some([ratio, low, high]) => {
            let change = change_in_words(ratio, low, high);
            let bound = effect_in_words(BETWEEN_RUNS);
            format!("{change} in its ratio to {}; more than {bound} fails", first.baseline)
        }
        None => "measured before, and not now".to_owned(),
    };
    let others = others(worse.len() - 1, "is worse too", "are worse too");
    Some(format!("--gate: {experiment}, {point}: {arm}: {how}{others}"))
}

fn place(row: &ResultRow) -> String {
    format!("{}, {}", row.experiment, row.point)
}

/// How many more there are.
fn others(count: usize, one: &str, several: &str) -> String {
    match count {
        0 => String::new(),
        1 => format!("; 1 more row {one}"),
        _ => format!("; {} {several}", plural(count as u64, "more row")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;
    use crate::record::{Outcome, Run};

    fn record(rows: Vec<ResultRow>) -> Record {
        let mut record = Record::empty();
        (record.results, record.job.min_effect) = (rows, 0.02);
        record
    }

    fn row(arm: &str, verdict: Verdict, interval: [f64; 3]) -> ResultRow {
        row_in_turns(arm, verdict).with_interval(interval)
    }

    #[test]
    fn a_gate_names_the_worst_row_its_size_and_the_bound() {
        let small = row("poll", Verdict::Slower, [1.03, 1.02, 1.04]);
        let large = row("new", Verdict::Slower, [1.053, 1.043, 1.063]);
        let better = row("uring", Verdict::Faster, [0.5, 0.4, 0.6]);
        assert_eq!(worse(&record(vec![better.clone()])), None);
        let one = "--gate: streams, pipe: new: 5.3 % more CPU per event than epoll [4.3, 6.3]; more than 2 % \
                   fails (--min-effect)";
        assert_eq!(worse(&record(vec![large.clone(), better.clone()])).as_deref(), Some(one));
        let said = worse(&record(vec![small.clone(), large, better])).expect("worse");
        assert_eq!(said, format!("{one}; 1 more row is worse too"));
        let noisy = ResultRow { no_difference: 0.025, ..small };
        let said = worse(&record(vec![noisy])).expect("worse");
        assert!(said.ends_with("; more than 2.5 % fails (the noise of this run)"), "{said}");
    }

    #[test]
    fn a_gate_does_not_pass_what_still_gets_dearer_or_an_invalid_run() {
        let why = "getting dearer: 14.7 to 32.8 µs; --ramp-time shows whether that ends";
        let mut dear = row("dear", Verdict::Inconclusive, [3.7, 2.3, 6.1]);
        dear.unsettled = Some(why.to_owned());
        let mut record = record(vec![dear, row("poll", Verdict::Inconclusive, [1.0, 0.9, 1.1])]);
        record.trust.badge = Badge::Controlled;
        let said = format!("--gate: no verdict for dear (streams, pipe): {why}");
        assert_eq!((worse(&record), without_verdict(&record)), (None, Some(said)));
        record.results.remove(0);
        assert_eq!(without_verdict(&record), None, "undecided is for --strict");
        record.trust.badge = Badge::Invalid;
        let said = without_verdict(&record).expect("an invalid run");
        assert!(said.starts_with("--gate: no verdict for any row: invalid"), "{said}");
    }

    #[test]
    fn what_failed_or_is_open_is_named_with_its_reason() {
        let said = unmeasured(&record(Vec::new()));
        assert_eq!(said.as_deref(), Some("failed: nothing was measured"));
        let mut failed = record(vec![row_in_turns("mine", Verdict::Failed)]);
        let key = failed.results[0].clone();
        failed.runs.push(Run {
            block: 0,
            position: 0,
            experiment: key.experiment,
            point: key.point,
            arm: key.arm,
            outcome: Outcome::Failed { reason: "exited with 1: no such file".to_owned() },
        });
        let said = "failed: streams, pipe: mine: exited with 1: no such file";
        assert_eq!(unmeasured(&failed).as_deref(), Some(said));
        let mut open = record(vec![row("poll", Verdict::Inconclusive, [1.0, 0.9, 1.1])]);
        open.trust.badge = Badge::Controlled;
        assert_eq!(unsure(&open).as_deref(), Some("--strict: streams, pipe: poll is undecided"));
        assert_eq!(unmeasured(&open), None);
        open.results.clear();
        assert_eq!(unsure(&open), None);
        open.trust.badge = Badge::Biased;
        assert_eq!(unsure(&open).as_deref(), Some("--strict: A/A control fails"));
    }
}
