//! Rate against latency as text: what a search for the capacity has seen, on one screen.

use pollux_load::render::{count, time};

use super::trials::{Sought, Trial};

/// Columns of a bar at most.
const BAR: usize = 24;
/// Columns before the bars.
const LEFT: usize = 28;

/// One row for each rate, rising, with the median latency of its trials on a logarithmic axis; a
/// line stands where the objective is. Empty without trials that were answered.
pub(crate) fn plot(trials: &[Trial], objective: &Sought) -> String {
    let rows = rows(trials);
    let limit_ns = objective.at_most.as_nanos() as f64;
    let times = || rows.iter().map(|row| row.latency_ns).chain([limit_ns]);
    let (low, high) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    if rows.is_empty() {
        return String::new();
    }
    // The shortest still has a bar.
    let low = low / 1.5;
    let columns = |ns: f64| ((ns / low).ln() / (high / low).ln() * BAR as f64).round() as usize;
    let limit = columns(limit_ns);
    let mut text = format!("{:>12}  {:>10}\n", "requests/s", objective.name());
    for row in &rows {
        let bar: String = (0..=BAR.max(limit))
            .map(|column| match column {
                column if column == limit => '│',
                column if column < columns(row.latency_ns) => '━',
                _ => ' ',
            })
            .collect();
        let (rate, latency) = (count(row.rate_per_s.round() as u64), time(row.latency_ns));
        let verdict = match (row.did_hold, row.broken_by) {
            (true, _) => "holds".to_owned(),
            (false, Some(why)) => format!("fails: {why}"),
            (false, None) => "fails".to_owned(),
        };
        text += &format!("{rate:>12}  {latency:>10}  {bar}  {verdict}\n");
    }
    let words = format!("{} allowed", time(limit_ns));
    text + &format!("{:>width$} {words}\n", '└', width = LEFT - 1 + limit)
}

/// All trials of a rate.
struct Row<'a> {
    rate_per_s: f64,
    latency_ns: f64,
    did_hold: bool,
    /// Why the last that failed did.
    broken_by: Option<&'a str>,
}

fn rows<'a>(trials: &'a [Trial]) -> Vec<Row<'a>> {
    let mut answered: Vec<&Trial> =
        trials.iter().filter(|each| each.latency_ns.is_some()).collect();
    answered.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let row = |same: &[&'a Trial]| {
        let mut times: Vec<u64> = same.iter().filter_map(|each| each.latency_ns).collect();
        times.sort_unstable();
        let held = same.iter().filter(|each| each.broken_by.is_none()).count();
        Row {
            rate_per_s: same[0].rate_per_s,
            latency_ns: times[times.len() / 2] as f64,
            did_hold: held * 2 > same.len(),
            broken_by: same.iter().rev().find_map(|each| each.broken_by.as_deref()),
        }
    };
    answered.chunk_by(|a, b| a.rate_per_s == b.rate_per_s).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rate_per_s: f64, latency_ns: u64, did_hold: bool) -> Trial {
        Trial {
            rate_per_s,
            answered_per_s: rate_per_s,
            latency_ns: Some(latency_ns),
            errors: 0,
            is_generator_bound: false,
            broken_by: (!did_hold).then(|| "slow".to_owned()),
        }
    }

    #[test]
    fn rates_rise_and_bars_cross_the_line_where_the_objective_fails() {
        let trials = [
            trial(8_000.0, 20_000_000, false),
            trial(8_000.0, 22_000_000, false),
            trial(1_000.0, 200_000, true),
            trial(4_000.0, 900_000, true),
        ];
        let objective =
            Sought::new(&["p99=5ms".parse().expect("an objective")]).expect("a quantile");
        let text = plot(&trials, &objective);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains("1,000") && lines[1].ends_with("holds"), "{text}");
        assert!(lines[3].contains("22.0 ms") && lines[3].ends_with("fails: slow"), "{text}");
        let place = |line: &str, mark| line.chars().position(|each| each == mark);
        let line = place(lines[1], '│').expect("the objective's line");
        assert_eq!(place(lines[4], '└'), Some(line), "{text}");
        let longest = lines[3].chars().filter(|each| *each == '━').count();
        let shortest = lines[1].chars().filter(|each| *each == '━').count();
        assert!(longest > shortest && shortest > 0, "{text}");
        assert!(lines[3].chars().skip(line + 1).any(|each| each == '━'), "{text}");
    }

    #[test]
    fn without_answers_there_is_no_plot() {
        let objective =
            Sought::new(&["p99=5ms".parse().expect("an objective")]).expect("a quantile");
        assert_eq!(plot(&[], &objective), "");
    }
}
