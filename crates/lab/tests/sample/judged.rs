//! What follows from the sample's runs: verdicts, counts, reasons. Simple statistics, good enough
//! for a report to have something to show; the laboratory's own are elsewhere.

use std::collections::BTreeMap;

use pollux_lab::record::*;

use super::{axes, read, unread};

const BASELINE: &str = "epoll";
const DELTA: f64 = 0.03;

pub(super) fn results(runs: &[Run]) -> Vec<ResultRow> {
    let mut rows: Vec<ResultRow> = Vec::new();
    for run in runs.iter().filter(|run| run.block == 0) {
        let values = values(runs, run, &run.arm);
        let ratios: Vec<f64> = values
            .iter()
            .zip(super::judged::values(runs, run, BASELINE))
            .map(|(a, b)| a / b)
            .collect();
        rows.push(row(run, &values, &ratios));
    }
    rows.sort_by_key(|row| row.experiment != "streams");
    rows
}

fn values(runs: &[Run], like: &Run, arm: &str) -> Vec<f64> {
    let same = runs.iter().filter(|run| {
        run.experiment == like.experiment && run.point == like.point && run.arm == arm
    });
    let value = |run: &Run| match &run.outcome {
        Outcome::Measured(measurement) => Some(measurement.value),
        Outcome::Failed { .. } => None,
    };
    same.filter_map(value).collect()
}

fn row(run: &Run, values: &[f64], ratios: &[f64]) -> ResultRow {
    let (value, half) = mean_and_half(values).unzip();
    let (ratio, ratio_half) = mean_and_half(ratios).unzip();
    let is_baseline = run.arm == BASELINE;
    let low = ratio.zip(ratio_half).map(|(ratio, half)| ratio - half);
    let high = ratio.zip(ratio_half).map(|(ratio, half)| ratio + half);
    let verdict = match (run.arm.as_str(), low, high) {
        (BASELINE, ..) => Verdict::Baseline,
        ("A/A", ..) => Verdict::NoiseFloor,
        (_, Some(low), _) if low > 1.0 + DELTA => Verdict::Faster,
        (_, _, Some(high)) if high < 1.0 / (1.0 + DELTA) => Verdict::Slower,
        (_, Some(low), Some(high)) if low > 1.0 / (1.0 + DELTA) && high < 1.0 + DELTA => {
            Verdict::Equivalent
        }
        (_, None, None) => Verdict::Failed,
        _ => Verdict::Inconclusive,
    };
    ResultRow {
        experiment: run.experiment.clone(),
        point: run.point.clone(),
        axes: axes(&run.experiment, &run.point),
        arm: run.arm.clone(),
        metric: if run.experiment == "pipes" { "passes per second" } else { "events per second" }
            .into(),
        more_is_better: true,
        value,
        value_half_width: half.zip(value).map(|(half, value)| half / value),
        unit: if run.experiment == "pipes" { "passes/s" } else { "events/s" }.into(),
        baseline: BASELINE.into(),
        ratio: ratio.filter(|_| !is_baseline),
        ratio_median: ratio.filter(|_| !is_baseline),
        ci_low: low.filter(|_| !is_baseline),
        ci_high: high.filter(|_| !is_baseline),
        verdict,
        more_blocks: (verdict == Verdict::Inconclusive).then_some(9),
        blocks: values.len() as u32,
        no_difference: DELTA,
        method: "studentised bootstrap over blocks, 10,000 resamples".into(),
        outliers: u32::from(run.point.starts_with("tcp") && run.arm == "epoll-et"),
        notes: if run.arm == "uring-poll" {
            vec!["unexplained: no count moved".into()]
        } else {
            Vec::new()
        },
        ..ResultRow::default()
    }
}

fn mean_and_half(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square =
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
    Some((mean, 2.2 * (square / values.len() as f64).sqrt()))
}

pub(super) fn why(results: &[ResultRow]) -> Vec<WhyRow> {
    let measured = results.iter().filter(|row| row.value.is_some());
    measured
        .map(|row| {
            let is_counted = row.arm != super::HOSTILE;
            let per_event = |value: f64| match is_counted {
                true => read(value),
                false => unread("an external command has no poller", None),
            };
            WhyRow {
                experiment: row.experiment.clone(),
                point: row.point.clone(),
                arm: row.arm.clone(),
                system_calls_per_event: read(if row.arm == "uring-poll" { 1.079 } else { 1.113 }),
                events_per_wait: per_event(12.7),
                updates_per_event: per_event(if row.arm == "epoll-oneshot" { 1.0 } else { 0.0 }),
                switches_per_event: read(0.002_31),
                wakeups_per_event: unread(
                    "tracefs is not mounted",
                    Some("mount -t tracefs tracefs /sys/kernel/tracing"),
                ),
                page_faults_per_event: read(0.0),
                cpu_ns_per_event: row
                    .value
                    .map_or_else(|| unread("no run", None), |value| read(1e9 / value)),
                sentence: match row.arm.as_str() {
                    "poll" | "aio" => {
                        "3.1 times more CPU per event; no count moved: the kernel scans the set"
                            .into()
                    }
                    "epoll-oneshot" => "1.0 more update per event".into(),
                    _ => String::new(),
                },
            }
        })
        .collect()
}

pub(super) fn counting(results: &[ResultRow]) -> Vec<CountingRun> {
    let counted = results.iter().filter(|row| row.value.is_some() && row.arm != "A/A");
    counted
        .map(|row| {
            let has_poller = row.arm != super::HOSTILE;
            let waits = if row.experiment == "pipes" {
                vec![0, 9871]
            } else {
                vec![3, 611, 402, 530, 2210, 902, 120, 8]
            };
            CountingRun {
                experiment: row.experiment.clone(),
                point: row.point.clone(),
                arm: row.arm.clone(),
                events: 48_211,
                counters: if has_poller {
                    BTreeMap::from([("waits".into(), 4786)])
                } else {
                    BTreeMap::new()
                },
                events_per_wait_histogram: if has_poller { waits } else { Vec::new() },
                kernel: BTreeMap::from([
                    ("sys_enter".into(), read(53_660)),
                    ("sched_waking".into(), unread("tracefs is not mounted", None)),
                ]),
            }
        })
        .collect()
}
