//! How long requests took inside the server: its own clock, in a pass of its own.
//!
//! Shown where a job asked for it; the plot that the comparison of 2020 has of its `do_request`.

use crate::record::{Record, RequestTimesRun};
use crate::report::chart::times;
use crate::report::markup::{card, details, escape, section};
use crate::report::section::why::split_points;
use crate::report::view::{Arms, in_order};

/// Whether anything was timed.
pub(crate) fn has_times(record: &Record) -> bool {
    record.request_times.iter().any(|run| run.times.requests > 0)
}

/// The section; empty where nothing was timed.
pub(crate) fn times(record: &Record, arms: &Arms<'_>) -> String {
    if !has_times(record) {
        return String::new();
    }
    let mut body = "<p class=\"dim\">From a request's head that is in memory to its answer handed \
                    over, without the system calls that bring the one and take the other. By the \
                    server's own clock in runs of their own, as reading it costs something; a time \
                    is known to a fifth.</p>"
        .to_owned();
    let experiments = in_order(record.request_times.iter().map(|run| run.experiment.as_str()));
    for (index, experiment) in experiments.into_iter().enumerate() {
        let runs = record.request_times.iter().filter(|run| run.experiment == experiment);
        let runs: Vec<&RequestTimesRun> = runs.collect();
        let points = in_order(runs.iter().map(|run| run.point.as_str()));
        let (open, folded) = split_points(&points);
        body.push_str(&panels(&runs, &open, arms, &format!("times-{index}")));
        if !folded.is_empty() {
            let rest = panels(&runs, &folded, arms, &format!("times-{index}-more"));
            body.push_str(&details(&format!("The other {} points", folded.len()), &rest));
        }
    }
    section("times", "inside the server: the time of a request", &card(&body))
}

fn panels(runs: &[&RequestTimesRun], points: &[&str], arms: &Arms<'_>, key: &str) -> String {
    let one = |(place, point): (usize, &&str)| {
        let here: Vec<_> = runs.iter().copied().filter(|run| run.point == **point).collect();
        let chart = times::times(&here, arms, &format!("{key}-{place}"))?;
        Some(format!("<div><h4>{}</h4>{chart}</div>", escape(point)))
    };
    let charts: String = points.iter().enumerate().filter_map(one).collect();
    format!("<div class=\"panels\">{charts}</div>")
}
