//! Why an arm is faster or slower: counts per event, the sentence made of them, and the words of an answer: what kind
//! of load, by how much, what loses, what stands beside it.

use pollux_engine::Driver;
use pollux_host::Reading;
use pollux_poller::Mechanism;
use pollux_report::number::{
    TIMES_MIN, bound_in_words, effect_in_words, interval_in_words, si, size_in_words, time,
};

use super::SAME_AGAIN;
use super::answer::{is_same_curve, measured, place};
use crate::arm::{Arm, ArmKind};
use crate::experiments::Curve;
use crate::form::Form;
use crate::plan::{Plan, PlannedPoint};
use crate::record::{
    CountingRun, Key, MEMORY_PER_CONNECTION, OPEN_DESCRIPTORS, Record, ResultRow, Verdict, WhyRow,
};

/// Counts over fewer events than this say little of one event.
const EVENTS_MIN: u64 = 100;
/// A count has moved when it differs from the baseline's by more than this.
const MOVED: f64 = 0.10;
/// Most counts that a sentence names.
const REASONS_MAX: usize = 2;
/// Differences between counts below this, per event, explain nothing.
const PER_EVENT_MIN: f64 = 0.02;
/// A value counts as kept over an axis when it gets worse by less than this.
const KEPT: f64 = 0.15;
/// Most other systems that an answer names.
const BESIDE_MAX: usize = 5;

/// One row for each arm at each point, from the counting pass.
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

/// Says why an arm costs more or less: how much each descriptor costs that a wait hands over, what is known and not
/// counted, or that no count moves behind a difference.
pub(super) fn explain(plan: &Plan, results: &mut [ResultRow], why: &[WhyRow]) {
    let notes: Vec<Option<String>> =
        results.iter().map(|result| explanation(plan, results, why, result)).collect();
    for (result, note) in results.iter_mut().zip(notes) {
        result.notes.extend(note);
    }
}

fn explanation(
    plan: &Plan,
    results: &[ResultRow],
    why: &[WhyRow],
    result: &ResultRow,
) -> Option<String> {
    let is_claim = matches!(result.verdict, Verdict::Faster | Verdict::Slower);
    // A small difference need not move a count that far.
    let is_small = result.ratio.is_some_and(|ratio| ratio.ln().abs() < MOVED.ln_1p());
    if !is_claim || is_small && result.turns.is_some() {
        return None;
    }
    let [experiment, label, arm] = result.key();
    let of = |arm: &str| why.iter().find(|row| row.key() == [experiment, label, arm]);
    let row = of(arm)?;
    let baseline = of(&result.baseline)?;
    let is_here =
        |point: &&PlannedPoint| plan.part_name(point) == experiment && point.point.label == label;
    let point = plan.points.iter().find(is_here);
    if let Some(handed) = handed(row).filter(|_| handed(baseline).is_none()) {
        let each = point.and_then(|point| each_descriptor(plan, results, why, point, result));
        let each = each.map_or_else(String::new, |each| format!(", {each}"));
        return Some(format!(
            "hands {handed:.0} descriptors to the kernel at each wait: O(n){each}"
        ));
    }
    if !has_common_count(row, baseline) || !moves(row, baseline).is_empty() {
        return None;
    }
    let arm_of = |name: &str| point?.arms.iter().find(|arm| arm.name == name);
    let is_dearer = result.ratio.is_some_and(|ratio| ratio > 1.0) != result.more_is_better;
    let known = arm_of(arm).zip(arm_of(&result.baseline));
    if let Some(reason) = known.and_then(|(arm, baseline)| known_reason(arm, baseline, is_dearer)) {
        return Some(format!("known, not counted here: {reason}"));
    }
    let kinds = known.map(|(arm, baseline)| [&arm.kind, &baseline.kind]);
    Some(of_alike(kinds.as_ref().map_or(&[], |kinds| kinds.as_slice())))
}

/// What is said of a difference between such arms beside counts that are alike: a program of the user's does between its
/// calls what nothing counts.
fn of_alike(kinds: &[&ArmKind]) -> String {
    if kinds.iter().any(|kind| kind.is_of_user()) {
        "calls alike: the rest is the program's own code".to_owned()
    } else {
        format!("unexplained: no count moved by {:.0} %", MOVED * 100.0)
    }
}

/// Descriptors that a wait of an arm hands over, where it does.
fn handed(row: &WhyRow) -> Option<f64> {
    row.descriptors_per_wait.value().copied().filter(|handed| *handed >= 1.0)
}

/// What each descriptor costs that a wait hands over: by the slope between this point and the one of the same curve
/// whose waits hand over fewest or most, with that of the baseline beside it.
fn each_descriptor(
    plan: &Plan,
    results: &[ResultRow],
    why: &[WhyRow],
    point: &PlannedPoint,
    result: &ResultRow,
) -> Option<String> {
    let at = |other: &PlannedPoint, arm: &str| {
        let key = [plan.part_name(other), &other.point.label, arm];
        let row = results.iter().find(|row| row.key() == key && row.turns.is_some())?;
        Some((row.value? * other.experiment.cost.unit_ns, why.iter().find(|row| row.key() == key)?))
    };
    let of = |other: &PlannedPoint| {
        let (cost_ns, counts) = at(other, &result.arm)?;
        Some((handed(counts)?, cost_ns, at(other, &result.baseline)?.0))
    };
    let own = of(point)?;
    let curve = plan.points.iter().filter(|other| is_same_curve(point, other)).filter_map(of);
    // Twice as many at least: between near points the slope is noise.
    let apart = |other: &(f64, f64, f64)| (own.0 / other.0).ln().abs();
    let other = curve.max_by(|a, b| apart(a).total_cmp(&apart(b)));
    let other = other.filter(|other| apart(other) > TIMES_MIN.ln())?;
    let (few, many) = if own.0 < other.0 { (own, other) } else { (other, own) };
    let slope = |few_ns: f64, many_ns: f64| (many_ns - few_ns) / (many.0 - few.0);
    let each_ns = slope(few.1, many.1);
    let unit = result.unit.split('/').nth(1).unwrap_or("unit");
    (each_ns > 0.0).then(|| {
        format!(
            "each costs {} per {unit}, by {} with {:.0} and {} with {:.0} ({}: {} per descriptor)",
            time(each_ns),
            time(few.1),
            few.0,
            time(many.1),
            many.0,
            result.baseline,
            time(slope(few.2, many.2).max(0.0)),
        )
    })
}

/// What makes a mechanism dearer or cheaper than another one by the way the kernel does it; nothing here counts it.
fn known_reason(arm: &Arm, baseline: &Arm, is_dearer: bool) -> Option<&'static str> {
    use Mechanism::{Aio, Epoll, EpollEt, UringPoll};
    let of = |arm: &Arm| match arm.kind.driver()? {
        Driver::Readiness(mechanism) => Some(mechanism),
        _ => None,
    };
    match (of(arm)?, of(baseline)?, is_dearer) {
        (UringPoll, Epoll, false) => Some(
            "completions are read from shared memory; epoll_wait(2) copies each event out and asks a level-triggered \
             descriptor once more",
        ),
        (UringPoll, _, true) => Some(
            "each event passes through task work of the ring, which asks the descriptor again, before it is a completion",
        ),
        (EpollEt, Epoll, false) => Some(
            "a level-triggered descriptor goes back on the ready list when it is reported and is asked once more, an \
             edge-triggered one does not",
        ),
        (Aio, _, true) => {
            Some("a report ends its request: each descriptor is armed anew with io_submit(2)")
        }
        _ => None,
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
    // What a readiness loop receives takes no buffer of a ring.
    let of_ring = |name: &str| match own(&["completions"], Per::Enter) {
        Reading::Value(_) => own(&[name], Per::Event),
        missing => missing,
    };
    let own_events = own(&["events"], Per::Wait);
    let own_ring =
        [own(&["completions"], Per::Enter), of_ring("receives"), of_ring("buffer_starvations")];
    // A bare server has counters of its own, which it says when it is ended.
    let (
        events_per_wait,
        [completions_per_enter, receive_buffers_per_event, out_of_buffers_per_event],
    ) = match arm.kind.form() {
        Some(form) => counts_of_form(form, [part, &point.point.label, &arm.name], record),
        None => (own_events, own_ring),
    };
    WhyRow {
        experiment: part.to_owned(),
        point: point.point.label.clone(),
        arm: arm.name.clone(),
        system_calls_per_event: kernel(&["system_calls"]),
        events_per_wait,
        updates_per_event: own(&["updates_sent", "rearms"], Per::Event),
        switches_per_event: kernel(&["switches_voluntary", "switches_involuntary"]),
        wakeups_per_event: kernel(&["wakeups"]),
        page_faults_per_event: kernel(&["page_faults"]),
        descriptors_per_wait: run.map_or_else(not_counted, |run| descriptors_per_wait(run, arm)),
        completions_per_enter,
        receive_buffers_per_event,
        out_of_buffers_per_event,
        memory_per_connection: run.map_or_else(not_counted, |run| {
            let grown = run.kernel.get(MEMORY_PER_CONNECTION).cloned();
            let grown = grown.unwrap_or_else(|| Reading::unavailable("no server with connections"));
            grown.map(|bytes| bytes as f64)
        }),
        sentence: String::new(),
    }
}

/// What the program of forms counted: events for each wait on epoll; on a ring completions for each enter, receives
/// into shared buffers and those that found none, for each request.
fn counts_of_form(form: Form, key: Key<'_>, record: &Record) -> (Reading<f64>, [Reading<f64>; 3]) {
    let figure = |name: &str| {
        let counted = record.median_at(key, |run| run.figures.get(name).copied());
        counted.map_or_else(
            || Reading::unavailable("it ended without saying what it counted"),
            Reading::Value,
        )
    };
    let by_call = || Reading::unavailable("no ring that receives: it reads by calls");
    match (form.is_on_ring(), form.receives_into_shared()) {
        (false, _) => (figure("completions_per_enter"), [by_call(), by_call(), by_call()]),
        (true, shares) => {
            let none = || Reading::unavailable("its connections share no receive buffers");
            let shared = |name: &str| if shares { figure(name) } else { none() };
            let ring = [
                figure("completions_per_enter"),
                shared("receives_per_request"),
                shared("out_of_buffers_per_request"),
            ];
            (Reading::unavailable("no poller: a ring reports completions"), ring)
        }
    }
}

#[derive(Clone, Copy)]
enum Per {
    Event,
    Wait,
    Enter,
}

fn own_count(run: &CountingRun, names: &[&str], per: Per) -> Reading<f64> {
    if run.counters.is_empty() {
        return Reading::unavailable(
            "no poller of ours, or not in a process that we can look into",
        );
    }
    let counter = |name: &str| run.counters.get(name).copied();
    let counted: Vec<u64> = names.iter().filter_map(|name| counter(name)).collect();
    let sum: u64 = counted.iter().sum();
    let by = match per {
        Per::Event => Some(run.events),
        Per::Wait => counter("waits"),
        Per::Enter => counter("ring_enters"),
    };
    // The loop of a server counts no enters where it has no ring.
    let has_none = counted.is_empty() || (matches!(per, Per::Enter) && by == Some(0));
    let Some(by) = by.filter(|_| !has_none) else {
        return Reading::unavailable(match per {
            Per::Enter => "no ring that receives and sends: it waits for readiness",
            _ => "no poller: a ring reports completions",
        });
    };
    // One enter takes many completions: how many is known from those.
    let of = if matches!(per, Per::Enter) { sum } else { by };
    enough(of).map(|()| sum as f64 / by as f64)
}

fn enough(events: u64) -> Reading<()> {
    match events {
        EVENTS_MIN.. => Reading::Value(()),
        _ => Reading::unavailable(format!("only {events} in the counted window")),
    }
}

fn not_counted<T>() -> Reading<T> {
    Reading::unavailable("the counting run failed or was not made")
}

/// Descriptors that a wait hands to the kernel anew, by the poller's own counter; of a server, whose poller is in
/// another process, those that it has open, all of which select and poll hand over.
fn descriptors_per_wait(run: &CountingRun, arm: &Arm) -> Reading<f64> {
    use Mechanism::{Poll, Select};
    let counter = |name: &str| run.counters.get(name).copied();
    match (counter("descriptors_handed").zip(counter("waits")), arm.kind.driver()) {
        (Some((_, 0)), _) => Reading::unavailable("no wait in the counted window"),
        (Some((handed, waits)), _) => Reading::Value(handed as f64 / waits as f64),
        (None, Some(Driver::Readiness(Select | Poll))) => {
            let open = run.kernel.get(OPEN_DESCRIPTORS).cloned();
            let open = open.unwrap_or_else(|| Reading::unavailable("not counted"));
            open.map(|open| open as f64)
        }
        (None, Some(_)) => Reading::Value(0.0),
        (None, None) => Reading::unavailable("no poller of ours"),
    }
}

/// The counts of `row` that differ from the baseline's, the largest move first: words and
/// whether the count can be named without its figures.
fn moves(row: &WhyRow, baseline: &WhyRow) -> Vec<String> {
    let mut moved: Vec<(f64, String)> = counts(row, baseline)
        .into_iter()
        .filter_map(|(name, ours, theirs)| {
            let ours = *ours.value()?;
            let theirs = *theirs.value()?;
            if (ours - theirs).abs() < PER_EVENT_MIN {
                return None;
            }
            let least = ours.min(theirs);
            let most = ours.max(theirs);
            let move_log = (most / least.max(PER_EVENT_MIN)).ln();
            let words = match (least < PER_EVENT_MIN, ours > theirs) {
                (true, true) => format!("{} {name}, the baseline next to none", figure(ours)),
                (true, false) => format!("next to no {name}, the baseline {}", figure(theirs)),
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

fn figure(count: f64) -> String {
    if count < 10.0 { format!("{count:.2}") } else { format!("{count:.0}") }
}

type NamedCounts<'a> = [(&'static str, &'a Reading<f64>, &'a Reading<f64>); 10];

/// The counts of both rows, side by side.
fn counts<'a>(row: &'a WhyRow, baseline: &'a WhyRow) -> NamedCounts<'a> {
    [
        ("system calls per event", &row.system_calls_per_event, &baseline.system_calls_per_event),
        ("events per wait", &row.events_per_wait, &baseline.events_per_wait),
        ("updates per event", &row.updates_per_event, &baseline.updates_per_event),
        ("switches per event", &row.switches_per_event, &baseline.switches_per_event),
        ("wake-ups per event", &row.wakeups_per_event, &baseline.wakeups_per_event),
        ("page faults per event", &row.page_faults_per_event, &baseline.page_faults_per_event),
        (
            "descriptors handed to the kernel at each wait",
            &row.descriptors_per_wait,
            &baseline.descriptors_per_wait,
        ),
        ("completions per enter", &row.completions_per_enter, &baseline.completions_per_enter),
        (
            "receives into shared buffers per event",
            &row.receive_buffers_per_event,
            &baseline.receive_buffers_per_event,
        ),
        (
            "receives without a buffer per event",
            &row.out_of_buffers_per_event,
            &baseline.out_of_buffers_per_event,
        ),
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

/// The kind of load of a point.
pub(super) fn load(point: &PlannedPoint) -> String {
    point.experiment.load(&point.point.axes)
}

/// The one that leads, else the best, and the worst of the rows of one point, which stand in this order.
pub(super) fn of_point(rows: &[&ResultRow], lead: Option<&ResultRow>) -> String {
    let Some(best) = lead.or(rows.first().copied()) else { return String::new() };
    let worst = rows.last().filter(|worst| worst.arm != best.arm);
    match worst {
        Some(worst) => format!("{}; {}", difference(best), difference(worst)),
        None => difference(best),
    }
}

/// How much worse each arm gets from the narrowest to the widest point of the curve; of a curve of
/// one point, what is said of a point.
pub(super) fn of_curve(
    plan: &Plan,
    widest: &PlannedPoint,
    record: &Record,
    rows: &[&ResultRow],
    lead: Option<&ResultRow>,
    curve: Curve,
) -> String {
    let at = |point: &PlannedPoint| place(point, curve.axis);
    let points = plan.points.iter().filter(|other| is_same_curve(widest, other));
    let narrow = points.filter(|point| at(point) >= curve.from).min_by_key(|point| at(point));
    let Some(narrow) = narrow.filter(|narrow| at(narrow) < at(widest)) else {
        return of_point(rows, lead);
    };
    let narrow_rows: Vec<&ResultRow> = measured(plan, narrow, record).collect();
    let worse: Vec<(f64, &ResultRow)> = rows
        .iter()
        .filter_map(|row| {
            let from = narrow_rows.iter().find(|other| other.arm == row.arm)?.value?;
            Some((worse_by(row, from)?, *row))
        })
        .collect();
    let kept: Vec<&str> =
        worse.iter().filter(|(by, _)| *by < KEPT).map(|(_, row)| row.arm.as_str()).collect();
    let best = lead.or(rows.first().copied());
    let best = best.filter(|best| best.verdict != Verdict::Baseline);
    let best = best.map_or_else(String::new, |best| format!("{}; ", difference(best)));
    let is_rate = rows.iter().all(|row| row.more_is_better);
    let (verb, worsens) = if is_rate { ("lose", "get slower") } else { ("rise", "cost more") };
    let from = at(narrow);
    let to = at(widest);
    let worst = worse.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or_else(String::new, |(by, row)| {
        let unit_ns = widest.experiment.cost.unit_ns;
        let there = narrow_rows.iter().find(|other| other.arm == row.arm);
        let [there, here] = [there.copied(), Some(*row)]
            .map(|row| row.map_or_else(String::new, |row| amount(row, unit_ns)));
        let ResultRow { arm, .. } = row;
        let axis = curve.axis;
        let percent = by.abs() * 100.0;
        if row.more_is_better {
            let change = if *by < 0.0 { "gains" } else { "loses" };
            format!("{arm} {change} {percent:.0} %: {there} at {from} {axis}, {here} at {to}")
        } else if *by >= TIMES_MIN - 1.0 {
            format!(
                "{arm} costs {:.1} times as much at {to} {axis} ({here}) as at {from} ({there})",
                1.0 + by
            )
        } else {
            let change = if *by < 0.0 { "less" } else { "more" };
            format!(
                "{arm} costs {percent:.0} % {change} at {to} {axis} ({here}) than at {from} ({there})"
            )
        }
    });
    let percent = KEPT * 100.0;
    let trend = match kept.as_slice() {
        [] => format!("all {worsens} with more {}; ", curve.axis),
        [one] => {
            format!("{one} {verb}s less than {percent:.0} % from {from} to {to} {}; ", curve.axis)
        }
        all => {
            let all = one_or_more(all).replace(" or ", " and ");
            format!("{all} {verb} less than {percent:.0} % from {from} to {to} {}; ", curve.axis)
        }
    };
    format!("{best}{trend}{worst}")
}

/// The value of a row with its unit: a cost as a time.
fn amount(row: &ResultRow, unit_ns: f64) -> String {
    let Some(value) = row.value else { return "not measured".to_owned() };
    if row.more_is_better { format!("{} {}", si(value), row.unit) } else { time(value * unit_ns) }
}

/// The share by which a value is worse than `from`: what a rate has lost, what a cost has gained.
fn worse_by(row: &ResultRow, from: f64) -> Option<f64> {
    let change = row.value? / from - 1.0;
    Some(if row.more_is_better { -change } else { change })
}

/// Baseline servers and other people's programs with their ratios, the best first; nothing where there are
/// none.
pub(super) fn beside(others: &[&ResultRow]) -> String {
    let named = others.iter().take(BESIDE_MAX).filter_map(|row| {
        let ratio = row.ratio?;
        Some(format!("{} {ratio:.2}×", row.arm))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!("; external: {}", named.join(", ")) }
}

/// Names in a row with `or` before the last.
pub(super) fn one_or_more(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

/// How far a row is from the baseline, in the words of its metric: rates and costs are both "more"
/// or "less", and which of them is better stands in the choice.
pub(crate) fn difference(row: &ResultRow) -> String {
    let ResultRow { arm, metric, baseline, .. } = row;
    if row.verdict == Verdict::Baseline {
        return format!("{arm} is the baseline");
    }
    let Some(ratio) = row.ratio else { return format!("{arm}: not measured") };
    if let (Some(_), Some(low), Some(high)) = (row.turns, row.ci_low, row.ci_high) {
        return in_turns(row, [ratio, low, high]);
    }
    let interval = match (row.ci_low, row.ci_high) {
        (Some(low), Some(high)) => format!(" [{low:.2}, {high:.2}]"),
        _ => String::new(),
    };
    if ratio >= TIMES_MIN {
        return format!("{arm}: {ratio:.1} times the {metric} of {baseline}{interval}");
    }
    let percent = ((ratio - 1.0) * 100.0).round();
    match percent as i64 {
        0 => format!("{arm}: as much {metric} as {baseline}{interval}"),
        1.. => format!("{arm}: {percent} % more {metric} than {baseline}{interval}"),
        _ => format!("{arm}: {} % {} {metric} than {baseline}{interval}", -percent, less(metric)),
    }
}

/// What is counted is fewer, what is measured is less.
fn less(metric: &str) -> &'static str {
    let first = metric.split(' ').next().unwrap_or_default();
    if first.ends_with('s') { "fewer" } else { "less" }
}

/// The same of an arm that took turns, whose interval is narrow enough for tenths of a percent.
fn in_turns(row: &ResultRow, [ratio, low, high]: [f64; 3]) -> String {
    let ResultRow { arm, metric, baseline, .. } = row;
    let size = size_in_words(ratio);
    let interval = interval_in_words(ratio, low, high);
    if let Some(times) = row.at_least() {
        let bound = bound_in_words(times, ratio > 1.0);
        let sets = row.blocks;
        return format!("{arm}: {bound} the {metric} of {baseline} ({size} in {sets} sets)");
    }
    let words = match row.verdict {
        Verdict::Equivalent => {
            let effect = effect_in_words(row.no_difference);
            format!("{arm}: as much {metric} as {baseline} within {effect}: {size} {interval}")
        }
        _ if ratio >= TIMES_MIN => format!("{arm}: {size} the {metric} of {baseline} {interval}"),
        _ => format!("{arm}: {size} {metric} than {baseline} {interval}"),
    };
    let remark = match row.verdict {
        Verdict::Inconclusive => ", undecided",
        _ if row.is_small_difference() => ", a small difference",
        _ => "",
    };
    words + remark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{row_for_tests, row_in_turns};

    #[test]
    fn what_a_program_of_the_users_does_between_alike_calls_is_its_own_code() {
        let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 8080));
        let ours = ArmKind::Driver(Driver::Completion);
        let theirs = ArmKind::Running { pid: 7, address };
        assert_eq!(of_alike(&[&ours, &theirs]), "calls alike: the rest is the program's own code");
        assert_eq!(of_alike(&[&ours, &ours]), "unexplained: no count moved by 10 %");
    }

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
            descriptors_per_wait: missing(),
            completions_per_enter: missing(),
            receive_buffers_per_event: missing(),
            out_of_buffers_per_event: missing(),
            memory_per_connection: missing(),
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

    #[test]
    fn counts_of_a_ring_are_missing_with_the_reason_where_there_is_none_and_never_0() {
        let of = |counters: &[(&str, u64)]| {
            let run = CountingRun {
                experiment: "http".to_owned(),
                point: "64 connections".to_owned(),
                arm: "uring".to_owned(),
                events: 1000,
                counters: counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
                events_per_wait_histogram: Vec::new(),
                kernel: std::collections::BTreeMap::new(),
            };
            let each = own_count(&run, &["buffer_starvations"], Per::Event);
            (own_count(&run, &["completions"], Per::Enter), each)
        };
        let ring = [("ring_enters", 50), ("completions", 2000), ("buffer_starvations", 0)];
        assert_eq!(of(&ring), (Reading::Value(40.0), Reading::Value(0.0)));
        let reason = |counters: &[(&str, u64)]| of(counters).0.reason().map(str::to_owned);
        let poller = [("ring_enters", 0), ("completions", 0), ("waits", 500)];
        assert!(reason(&poller).is_some_and(|reason| reason.contains("waits for readiness")));
        assert!(reason(&[("waits", 5)]).is_some_and(|reason| reason.contains("readiness")));
        assert!(reason(&[]).is_some_and(|reason| reason.contains("no poller of ours")));
        let few = [("ring_enters", 5), ("completions", 99)];
        assert!(reason(&few).is_some_and(|reason| reason.starts_with("only 99")));
    }

    fn row(ratio: f64, verdict: Verdict) -> ResultRow {
        row_for_tests("poll", verdict).with_interval([ratio, ratio - 0.01, ratio + 0.01])
    }

    #[test]
    fn differences_are_reported_in_words_of_the_metric() {
        let rate = row(1.2, Verdict::Faster);
        assert_eq!(difference(&rate), "poll: 20 % more events per second than epoll [1.19, 1.21]");
        let cost = |ratio| row(ratio, Verdict::Slower).of_cost("server CPU per request");
        for (ratio, words) in [
            (0.85, "poll: 15 % less server CPU per request than epoll [0.84, 0.86]"),
            (1.001, "poll: as much server CPU per request as epoll [0.99, 1.01]"),
            (22.8, "poll: 22.8 times the server CPU per request of epoll [22.79, 22.81]"),
        ] {
            assert_eq!(difference(&cost(ratio)), words);
        }
        let fewer = "poll: 10 % fewer events per second than epoll [0.89, 0.91]";
        assert_eq!(difference(&row(0.9, Verdict::Slower)), fewer);
        assert_eq!(difference(&row(1.0, Verdict::Baseline)), "poll is the baseline");
    }

    #[test]
    fn what_took_turns_is_asked_to_a_tenth_of_a_percent() {
        use Verdict::{Equivalent, Faster, Inconclusive, Slower};
        for (verdict, interval, words) in [
            (Faster, [0.984, 0.978, 0.99], "1.6 % less CPU per event than epoll [1.0, 2.2]"),
            (
                Slower,
                [1.008, 1.004, 1.012],
                "0.8 % more CPU per event than epoll [0.4, 1.2], a small difference",
            ),
            (
                Equivalent,
                [1.002, 0.995, 1.009],
                "as much CPU per event as epoll within 2 %: 0.2 % more [-0.5, 0.9]",
            ),
            (
                Inconclusive,
                [1.014, 0.995, 1.033],
                "1.4 % more CPU per event than epoll [-0.5, 3.3], undecided",
            ),
            (Slower, [22.8, 22.5, 23.1], "22.8 times the CPU per event of epoll [22.5, 23.1]"),
        ] {
            assert_eq!(
                difference(&row_in_turns("poll", verdict).with_interval(interval)),
                format!("poll: {words}")
            );
        }
    }
}
