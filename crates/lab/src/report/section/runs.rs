//! Every run: inside the runs over time, then all runs in their order.

use pollux_report::markup::{card_of, escape, section};

use crate::record::{Measurement, Record, Run, SteadyKind};
use crate::report::chart::{intervals, strip};
use crate::report::view::{Arms, in_order};
use crate::report::words;

/// Points with runs in two regimes that are drawn beside the first point.
const ODD_POINTS_MAX: usize = 6;

/// The section.
pub(crate) fn runs(record: &Record, arms: &Arms<'_>) -> String {
    let mut body = String::new();
    let experiments = in_order(record.runs.iter().map(|run| run.experiment.as_str()));
    for (index, experiment) in experiments.into_iter().enumerate() {
        let strip = strip::strip(record, experiment, arms, &format!("strip-{index}"));
        let heading = "every run against the median of its own arm and point";
        body += &card_of(&format!("{}: {heading}", words::part(record, experiment)), "", &strip);
        body.push_str(&inside(record, experiment, arms, index));
    }
    if body.is_empty() { body } else { section("runs", "every run", &body) }
}

/// The first point, and each point at which some run changed its regime.
fn inside(record: &Record, experiment: &str, arms: &Arms<'_>, index: usize) -> String {
    let runs: Vec<_> = record.runs.iter().filter(|run| run.experiment == experiment).collect();
    let points = in_order(runs.iter().map(|run| run.point.as_str()));
    let is_odd = |point: &str| runs.iter().any(|run| run.point == point && is_two_regime(run));
    let mut shown = String::new();
    let odd = points.iter().skip(1).filter(|point| is_odd(point)).take(ODD_POINTS_MAX);
    for (place, point) in points.iter().take(1).chain(odd).enumerate() {
        let key = format!("inside-{index}-{place}");
        let chart = intervals::intervals(record, experiment, point, arms, &key);
        if !chart.is_empty() {
            shown.push_str(&format!("<h4>{}</h4>{chart}", escape(point)));
        }
    }
    let heading = format!("{}: inside the runs", words::part(record, experiment));
    if shown.is_empty() { shown } else { card_of(&heading, "", &shown) }
}

fn is_two_regime(run: &Run) -> bool {
    let of_kind = |m: &Measurement| m.steadiness.kind == SteadyKind::TwoRegime;
    run.measured().is_some_and(of_kind)
}
