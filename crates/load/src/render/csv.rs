//! Comma-separated values for spreadsheets and plots: the seconds of a run, and its percentiles.
//!
//! All cells are figures or flags, so none needs quotes. What is not known is an empty cell.

use std::fmt::Write as _;

use super::nines::{curve, told_ns};
use super::seconds;
use crate::Outcome;

/// One row for each second, warm-up first: when it began (since the start of the warm-up, and in
/// seconds since 1970), its length, its counts and the latency of its answers in nanoseconds.
#[must_use]
pub fn csv_seconds(outcome: &Outcome) -> String {
    let mut out = "start_s,start_unix_s,length_s,warm_up,sent,answered,errors,bytes_in,open,\
                   mean_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns\n"
        .to_owned();
    let base = seconds::base_unix_s(outcome);
    for (start_s, second) in seconds::with_starts(outcome) {
        let (unix_s, length_s) = (base + start_s, second.end_s - start_s);
        let _ = write!(
            out,
            "{start_s:.3},{unix_s:.3},{length_s:.3},{},{},{},{},{},{}",
            second.is_warm_up,
            second.sent,
            second.answered,
            second.errors,
            second.bytes_in,
            second.open
        );
        let latency = &second.latency;
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(|quantile| told_ns(latency, quantile));
        let mean = latency.mean_ns().map(|mean| mean.round() as u64);
        for cell in [mean].into_iter().chain(quantiles).chain([latency.max_ns()]) {
            out.push(',');
            out.push_str(&cell.map(|cell| cell.to_string()).unwrap_or_default());
        }
        out.push('\n');
    }
    out
}

/// The latency curve: percentile, the time that it does not exceed in nanoseconds, and the place
/// on an axis of nines (0 at 0 %, 1 at 90 %, 2 at 99 %). The last row is the longest time; it has
/// no place on that axis.
#[must_use]
pub fn csv_percentiles(outcome: &Outcome) -> String {
    let mut out = "percentile,latency_ns,nines\n".to_owned();
    for point in curve(&outcome.latency) {
        let (percentile, nines) = (point.quantile * 100.0, point.nines());
        let _ = writeln!(out, "{percentile:.6},{},{nines:.4}", point.ns);
    }
    if let Some(max) = outcome.latency.max_ns() {
        let _ = writeln!(out, "100.000000,{max},");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn a_row_for_each_second_with_a_cell_for_each_heading() {
        let text = csv_seconds(&sample::outcome());
        let rows: Vec<Vec<&str>> = text.lines().map(|row| row.split(',').collect()).collect();
        assert_eq!(rows.len(), 15);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        assert_eq!(&rows[1][..6], ["0.000", "1795250409.250", "1.000", "true", "501", "500"]);
        assert_eq!(&rows[3][..6], ["2.000", "1795250411.250", "1.000", "false", "1001", "1000"]);
        assert_eq!(rows[1][13], "", "500 answers have no 99.9th percentile");
    }

    #[test]
    fn percentiles_rise_to_the_longest() {
        let outcome = sample::outcome();
        let text = csv_percentiles(&outcome);
        let times: Vec<u64> =
            text.lines().skip(1).filter_map(|row| row.split(',').nth(1)?.parse().ok()).collect();
        assert!(times.is_sorted() && times.last().copied() == outcome.latency.max_ns(), "{text}");
    }

    #[test]
    fn an_empty_run_has_headings_only() {
        assert_eq!(csv_seconds(&sample::empty()).lines().count(), 1);
        assert_eq!(csv_percentiles(&sample::empty()).lines().count(), 1);
    }
}
