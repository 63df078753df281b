//! Why an arm is faster or slower: counts per event, and the sentence made of them.

use super::SAME_AGAIN;
use crate::arm::Arm;
use crate::host::Reading;
use crate::plan::{Plan, PlannedPoint};
use crate::record::{CountingRun, Measurement, Record, ResultRow, Verdict, WhyRow};

/// Counts over fewer events than this say little of one event.
const EVENTS_MIN: u64 = 100;
/// A count has moved when it differs from the baseline's by more than this.
const MOVED: f64 = 0.10;
/// Most counts that a sentence names.
const REASONS_MAX: usize = 2;
/// Differences between counts below this, per event, explain nothing.
const PER_EVENT_MIN: f64 = 0.02;

/// One row for each arm at each point, from the counting pass and the CPU times of the timing.
pub(super) fn rows(plan: &Plan, record: &Record) -> Vec<WhyRow> {
    let mut rows = Vec::new();
    for point in &plan.points {
        let part = plan.part_name(point);
        let first = rows.len();
        // A command is not ours to count in.
        let ours = |arm: &&Arm| arm.name != SAME_AGAIN && !arm.kind.is_program();
        for arm in point.arms.iter().filter(ours) {
            rows.push(row(part, point, arm, record));
        }
        let baseline = &point.arms[point.baseline].name;
        let Some(baseline) = rows[first..].iter().find(|row| row.arm == *baseline).cloned() else {
            continue;
        };
        for row in &mut rows[first..] {
            row.sentence = sentence(row, &baseline);
        }
    }
    rows
}

/// Marks differences in time behind which no count moves.
pub(super) fn flag_unexplained(results: &mut [ResultRow], why: &[WhyRow]) {
    for result in results {
        let is_claim = matches!(result.verdict, Verdict::Faster | Verdict::Slower);
        let [experiment, point, arm] = result.place();
        let of = |arm: &str| why.iter().find(|row| row.place() == [experiment, point, arm]);
        let (Some(row), Some(baseline)) = (of(arm), of(&result.baseline)) else { continue };
        // A small difference need not move a count that far.
        let is_small = result.ratio.is_some_and(|ratio| ratio.ln().abs() < MOVED.ln_1p());
        let is_claim = is_claim && !(is_small && result.turns.is_some());
        if is_claim && has_common_count(row, baseline) && moves(row, baseline).is_empty() {
            let percent = MOVED * 100.0;
            result.notes.push(format!("unexplained: no count moved by {percent:.0} %"));
        }
    }
}

fn row(part: &str, point: &PlannedPoint, arm: &Arm, record: &Record) -> WhyRow {
    let run = record.counting_at([part, &point.point.label, &arm.name]);
    let kernel = |names: &[&str]| match run {
        Some(run) => enough(run.events).and_then(|()| run.per_event(names)),
        None => not_counted(),
    };
    let own = |names: &[&str], per: Per| match run {
        Some(run) => own_count(run, names, per),
        None => not_counted(),
    };
    WhyRow {
        experiment: part.to_owned(),
        point: point.point.label.clone(),
        arm: arm.name.clone(),
        system_calls_per_event: kernel(&["system_calls"]),
        events_per_wait: own(&["events"], Per::Wait),
        updates_per_event: own(&["updates_sent", "rearms"], Per::Event),
        switches_per_event: kernel(&["switches_voluntary", "switches_involuntary"]),
        wakeups_per_event: kernel(&["wakeups"]),
        page_faults_per_event: kernel(&["page_faults"]),
        cpu_ns_per_event: cpu_ns_per_event(part, point, arm, record),
        sentence: String::new(),
    }
}

#[derive(Clone, Copy)]
enum Per {
    Event,
    Wait,
}

fn own_count(run: &CountingRun, names: &[&str], per: Per) -> Reading<f64> {
    if run.counters.is_empty() {
        return Reading::unavailable(
            "no poller of ours, or not in a process that we can look into",
        );
    }
    let sum: u64 = names.iter().filter_map(|name| run.counters.get(*name)).sum();
    let by = match per {
        Per::Event => run.events,
        Per::Wait => run.counters.get("waits").copied().unwrap_or_default(),
    };
    enough(by).map(|()| sum as f64 / by as f64)
}

fn enough(events: u64) -> Reading<()> {
    match events {
        EVENTS_MIN.. => Reading::Value(()),
        _ => Reading::unavailable(format!("only {events} events in the counted window")),
    }
}

fn not_counted<T>() -> Reading<T> {
    Reading::unavailable("the counting run failed or was not made")
}

/// Median over the timing runs: the one column that is not a count.
fn cpu_ns_per_event(part: &str, point: &PlannedPoint, arm: &Arm, record: &Record) -> Reading<f64> {
    let place = [part, &point.point.label, &arm.name];
    if let Some(median) = record.median_at(place, Measurement::cpu_ns_per_event) {
        return Reading::Value(median);
    }
    let unread = record.measured_at(place).filter(|run| run.cpu_ns.value().is_none()).last();
    let unread = unread.map(|run| run.cpu_ns.clone().map(|ns| ns as f64));
    unread.unwrap_or_else(|| Reading::unavailable("no run was measured"))
}

/// The counts of `row` that differ from the baseline's, the largest move first: words and
/// whether the count can be named without its figures.
fn moves(row: &WhyRow, baseline: &WhyRow) -> Vec<String> {
    let mut moved: Vec<(f64, String)> = counts(row, baseline)
        .into_iter()
        .filter_map(|(name, ours, theirs)| {
            let (ours, theirs) = (*ours.value()?, *theirs.value()?);
            if (ours - theirs).abs() < PER_EVENT_MIN {
                return None;
            }
            let (least, most) = (ours.min(theirs), ours.max(theirs));
            let move_log = (most / least.max(PER_EVENT_MIN)).ln();
            let words = match (least < PER_EVENT_MIN, ours > theirs) {
                (true, true) => format!("{ours:.2} {name}, the baseline next to none"),
                (true, false) => format!("next to no {name}, the baseline {theirs:.2}"),
                (false, is_more) => {
                    let direction = if is_more { "more" } else { "fewer" };
                    format!("{} {direction} {name}", factor_in_words(most / least))
                }
            };
            (most / least > 1.0 + MOVED).then_some((move_log, words))
        })
        .collect();
    moved.sort_by(|a, b| b.0.total_cmp(&a.0));
    moved.into_iter().map(|(_, words)| words).collect()
}

type NamedCounts<'a> = [(&'static str, &'a Reading<f64>, &'a Reading<f64>); 6];

/// The counts of both rows, side by side.
fn counts<'a>(row: &'a WhyRow, baseline: &'a WhyRow) -> NamedCounts<'a> {
    [
        ("system calls per event", &row.system_calls_per_event, &baseline.system_calls_per_event),
        ("events per wait", &row.events_per_wait, &baseline.events_per_wait),
        ("updates per event", &row.updates_per_event, &baseline.updates_per_event),
        ("switches per event", &row.switches_per_event, &baseline.switches_per_event),
        ("wake-ups per event", &row.wakeups_per_event, &baseline.wakeups_per_event),
        ("page faults per event", &row.page_faults_per_event, &baseline.page_faults_per_event),
    ]
}

/// Whether anything was counted for both: without it nothing can be said to have stood still.
fn has_common_count(row: &WhyRow, baseline: &WhyRow) -> bool {
    let mut counts = counts(row, baseline).into_iter();
    counts.any(|(_, ours, theirs)| ours.value().is_some() && theirs.value().is_some())
}

fn factor_in_words(factor: f64) -> String {
    match factor {
        10.0.. => format!("{factor:.0}×"),
        _ => format!("{factor:.1}×"),
    }
}

fn sentence(row: &WhyRow, baseline: &WhyRow) -> String {
    if row.arm == baseline.arm {
        return "the baseline".to_owned();
    }
    let mut moved = moves(row, baseline);
    moved.truncate(REASONS_MAX);
    match (moved.is_empty(), has_common_count(row, baseline)) {
        (false, _) => moved.join(", "),
        (true, true) => "no count moved".to_owned(),
        (true, false) => "not counted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(arm: &str, calls: Reading<f64>) -> WhyRow {
        let missing = || Reading::unavailable("no event in the counted window");
        WhyRow {
            experiment: "streams".into(),
            point: "pipe".into(),
            arm: arm.into(),
            system_calls_per_event: calls,
            events_per_wait: missing(),
            updates_per_event: missing(),
            switches_per_event: missing(),
            wakeups_per_event: missing(),
            page_faults_per_event: missing(),
            cpu_ns_per_event: missing(),
            sentence: String::new(),
        }
    }

    #[test]
    fn counts_that_could_not_be_read_did_not_stand_still() {
        let baseline = counted("epoll", Reading::Value(1.0));
        let unread = counted("poll", Reading::unavailable("no tracefs"));
        assert_eq!(sentence(&unread, &baseline), "not counted");
        assert_eq!(sentence(&counted("poll", Reading::Value(1.0)), &baseline), "no count moved");
    }
}
