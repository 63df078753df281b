//! How long the rows that a run left open would take.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::plan::minutes;
use crate::record::{Record, ResultRow, Verdict};
use crate::stats::SETS_MAX;

/// What a set takes on top of the turns that have a figure: lead-ins, falling asleep, starts and ends.
const SET_OVER_TURNS: f64 = 1.6;
/// Rows that would take more than so many times what the run took are not worth the wait.
const RUNS_MAX: f64 = 3.0;

/// "About N more sets"; the forecast does not reach beyond [`SETS_MAX`].
pub(crate) fn more_sets(sets: u32) -> String {
    match sets {
        1 => "about 1 more set".to_owned(),
        SETS_MAX.. => format!("more than {SETS_MAX} more sets"),
        _ => format!("about {sets} more sets"),
    }
}

/// How many rows are open, how long it would take to decide those that can be decided in a time
/// that is worth it, and what to give for it: a budget, and a number of sets where the job allows fewer.
/// None where no row in turns is open.
pub(crate) fn rest(record: &Record) -> Option<String> {
    let is_open = |row: &&ResultRow| row.verdict == Verdict::Inconclusive && row.turns.is_some();
    let mut open: Vec<&ResultRow> = record.results.iter().filter(is_open).collect();
    if open.is_empty() {
        return None;
    }
    let missing = |row: &ResultRow| row.more_blocks.unwrap_or(SETS_MAX);
    open.sort_by_key(|row| missing(row));
    let set_times = set_times(record);
    let (mut decided, mut time_s, mut sets_most) = (0, 0.0, 0);
    let mut sets_of: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for row in open.iter().filter(|row| missing(row) < SETS_MAX) {
        sets_of.insert((&*row.experiment, &*row.point), missing(row));
        let total_s: f64 = sets_of
            .iter()
            .map(|(point, sets)| f64::from(*sets) * set_times.get(point).copied().unwrap_or(0.0))
            .sum();
        if total_s > record.duration_s * RUNS_MAX {
            break;
        }
        (decided, time_s) = (decided + 1, total_s);
        sets_most = sets_most.max(row.blocks + missing(row));
    }
    let rows = |count: usize| if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
    let open = rows(open.len());
    if decided == 0 {
        return Some(format!("{open} undecided, too close to 1 for a run of this length."));
    }
    let budget_s = ((record.duration_s + time_s) / 30.0).ceil() * 30.0;
    let more = minutes(Duration::from_secs_f64(time_s.max(1.0)));
    let sets = if sets_most > record.job.blocks_max {
        format!(" --max-blocks {sets_most}")
    } else {
        String::new()
    };
    Some(format!(
        "{open} undecided: about {more} more would decide {decided} (--budget {budget_s:.0}s{sets})."
    ))
}

/// Seconds that a set took, by part and point.
fn set_times(record: &Record) -> BTreeMap<(&str, &str), f64> {
    let mut times: BTreeMap<(&str, &str), (f64, BTreeSet<u32>)> = BTreeMap::new();
    for run in &record.runs {
        let Some(measured) = run.measured() else { continue };
        let (turns_s, sets) = times.entry((&*run.experiment, &*run.point)).or_default();
        *turns_s += measured.window_s;
        sets.insert(run.block);
    }
    let mean = |(turns_s, sets): (f64, BTreeSet<u32>)| turns_s * SET_OVER_TURNS / sets.len() as f64;
    times.into_iter().map(|(point, sum)| (point, mean(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;
    use crate::judge::tests::run;
    use crate::record::ResultRow;

    fn record(more: &[u32]) -> Record {
        let mut record = Record::empty();
        record.duration_s = 10.0;
        record.runs = (0..4).map(|set| run(set, "uring", &[])).collect();
        let row = |sets: &u32| ResultRow {
            experiment: record.runs[0].experiment.clone(),
            point: record.runs[0].point.clone(),
            more_blocks: Some(*sets),
            ..row_in_turns("uring", Verdict::Inconclusive)
        };
        record.job.blocks_max = 30;
        let mut rows: Vec<ResultRow> = more.iter().map(row).collect();
        rows.push(row_in_turns("poll", Verdict::Slower));
        Record { results: rows, ..record }
    }

    #[test]
    fn rows_of_a_point_are_decided_together_and_hopeless_ones_are_not_waited_for() {
        assert_eq!(rest(&record(&[])), None);
        // A set of the point takes 1.6 s; five decide both rows, forty are not worth the wait.
        let text = rest(&record(&[2, 5, 40])).expect("three are open");
        assert_eq!(text, "3 rows undecided: about 8 s more would decide 2 (--budget 30s).");
        let few = rest(&{
            let mut few = record(&[2, 5]);
            few.job.blocks_max = few.results[1].blocks + 4;
            few
        });
        let advised = few.expect("two are open");
        let sets = record(&[2]).results[0].blocks + 5;
        assert!(advised.ends_with(&format!("(--budget 30s --max-blocks {sets}).")), "{advised}");
        // Neither is one without an interval forgotten, nor one beyond all forecasts.
        let mut unknown = record(&[5, SETS_MAX]);
        unknown.results[1].more_blocks = None;
        let text = rest(&unknown).expect("two are open");
        assert_eq!(text, "2 rows undecided: about 8 s more would decide 1 (--budget 30s).");
        let text = rest(&record(&[40])).expect("one is open");
        assert_eq!(text, "1 row undecided, too close to 1 for a run of this length.");
    }
}
