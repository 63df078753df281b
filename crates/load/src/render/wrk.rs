//! The summary in the terms of wrk 4, for comparison with its results.
//!
//! Each field means what wrk means by it; what pollux does not measure in that way is `n/a`.

use std::fmt::Write as _;

use super::facts::{answered_per_s, is_closed_loop, per_second};
use crate::Outcome;
use pollux_report::number::or_na;
use pollux_stats::{mean, standard_deviation};

const TIME_UNITS: [(f64, &str); 5] =
    [(3600e9, "h"), (60e9, "m"), (1e9, "s"), (1e6, "ms"), (1e3, "us")];
const BYTE_UNITS: [(f64, &str); 3] = [(1_073_741_824.0, "GB"), (1_048_576.0, "MB"), (1024.0, "KB")];
const COUNT_UNITS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
/// A second that is so long is whole: they are cut by a timer.
const WHOLE_S: f64 = 0.95;
/// The quantiles of wrk's latency distribution.
const QUANTILES: [(f64, &str); 4] = [(0.5, "50%"), (0.75, "75%"), (0.9, "90%"), (0.99, "99%")];

/// The outcome as wrk with `--latency` would sum it up.
#[must_use]
pub fn wrk(outcome: &Outcome) -> String {
    let setting = &outcome.setting;
    let measured_ns = outcome.measured.as_nanos() as f64;
    let mut out = "pollux load, summed up in the terms of wrk 4\n".to_owned();
    let _ = writeln!(out, "Running {} test @ {}", time(measured_ns), setting.urls.join(" "));
    let _ = writeln!(out, "  {} threads and {} connections", setting.threads, setting.connections);
    thread_stats(&mut out, outcome);
    out.push_str("  Latency Distribution\n");
    for (quantile, name) in QUANTILES {
        let ns = outcome.latency.quantile_ns(quantile).map(|ns| ns as f64);
        let _ = writeln!(out, "     {name} {:>8}", or_na(ns, time));
    }
    let within = outcome.within();
    let read = scaled(within.bytes_in as f64, &BYTE_UNITS, "B");
    let _ = writeln!(out, "  {} requests in {}, {read} read", within.answered, time(measured_ns));
    errors(&mut out, outcome);
    let rate = or_na(answered_per_s(outcome), |rate| format!("{rate:.2}"));
    let transfer = per_second(outcome, within.bytes_in);
    let transfer = or_na(transfer, |bytes| scaled(bytes, &BYTE_UNITS, "B"));
    let _ = writeln!(out, "Requests/sec: {rate:>10}\nTransfer/sec: {transfer:>10}");
    notes(&mut out, outcome);
    out
}

fn thread_stats(out: &mut String, outcome: &Outcome) {
    let _ = writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev");
    let latency = &outcome.latency;
    let _ = writeln!(
        out,
        "    Latency   {:>8} {:>8} {:>8} {:>8}",
        or_na(latency.mean_ns(), time),
        or_na(latency.sample_deviation_ns(), time),
        or_na(latency.max_ns(), |ns| time(ns as f64)),
        or_na(latency.share_within_deviation(), percent),
    );
    let rates = rates_per_thread(outcome);
    // How the threads differ is not recorded: of several only the mean is known.
    let alone = if outcome.setting.threads == 1 { &rates[..] } else { &[] };
    let within = mean(alone).zip(standard_deviation(alone)).map(|(mean, deviation)| {
        let is_within = |rate: &&f64| (**rate - mean).abs() <= deviation;
        alone.iter().filter(is_within).count() as f64 / alone.len() as f64
    });
    let _ = writeln!(
        out,
        "    Req/Sec   {:>8} {:>8} {:>8} {:>8}",
        or_na(mean(&rates), count),
        or_na(standard_deviation(alone), count),
        or_na(alone.iter().copied().reduce(f64::max), count),
        or_na(within, percent),
    );
}

/// Requests per second and thread, in each whole second of the measured part.
fn rates_per_thread(outcome: &Outcome) -> Vec<f64> {
    let threads = f64::from(outcome.setting.threads.max(1));
    super::with_starts(outcome)
        .filter(|(_, second)| !second.is_warm_up)
        .map(|(start_s, second)| (second.answered as f64, second.end_s - start_s))
        .filter(|(_, length_s)| *length_s >= WHOLE_S)
        .map(|(answered, length_s)| answered / length_s / threads)
        .collect()
}

fn errors(out: &mut String, outcome: &Outcome) {
    let errors = &outcome.errors;
    let connect = errors.connect + errors.tls;
    // wrk counts an answer that ends early or cannot be parsed as a failed read.
    let read = errors.reset + errors.short + errors.malformed;
    if connect + read + errors.timeout > 0 {
        let _ = writeln!(
            out,
            "  Socket errors: connect {connect}, read {read}, write n/a, timeout {}",
            errors.timeout
        );
    }
    let [other, _, _, _, client, server] = outcome.totals.by_class;
    let bad = other + client + server;
    if bad > 0 {
        let _ = writeln!(out, "  Non-2xx or 3xx responses: {bad}");
    }
}

fn notes(out: &mut String, outcome: &Outcome) {
    let _ = match outcome.setting.threads {
        0 | 1 => writeln!(out, "Req/Sec has a sample for each second; wrk takes one each 100 ms"),
        _ => writeln!(out, "Req/Sec is a mean over {} threads", outcome.setting.threads),
    };
    if outcome.errors.reset > 0 {
        out.push_str("A reset counts as read, also when it was noticed at a write\n");
    }
    if !is_closed_loop(outcome) {
        out.push_str("Open loop: latency counts from when a request was due, which wrk cannot\n");
    }
    let outside = outcome.errors.mismatch + outcome.errors.unsent;
    if outside > 0 {
        let _ = writeln!(
            out,
            "Errors that wrk does not count: length {}, never sent {}",
            outcome.errors.mismatch, outcome.errors.unsent
        );
    }
}

fn time(nanoseconds: f64) -> String {
    scaled_or(nanoseconds, &TIME_UNITS, || format!("{:.2}us", nanoseconds / 1e3))
}

fn count(value: f64) -> String {
    scaled(value, &COUNT_UNITS, "")
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn scaled(value: f64, units: &[(f64, &str)], smallest: &str) -> String {
    scaled_or(value, units, || format!("{value:.2}{smallest}"))
}

fn scaled_or(value: f64, units: &[(f64, &str)], below: impl FnOnce() -> String) -> String {
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", value / unit),
        None => below(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn one_thread_has_a_sample_for_each_second() {
        let mut outcome = sample::outcome();
        outcome.setting.threads = 1;
        // 1000, 1100, … 2100: mean 1550, deviation sqrt(1,430,000 / 11) = 360.56; from 1189.4 to
        // 1910.6 are the eight from 1200 to 1900.
        let text = wrk(&outcome);
        let words: Vec<_> = text.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "Req/Sec").expect("the line");
        assert_eq!(&words[at + 1..at + 5], ["1.55k", "360.56", "2.10k", "66.67%"], "{text}");
    }

    #[test]
    fn of_several_threads_only_the_mean_is_known() {
        let text = wrk(&sample::outcome());
        let line = text.lines().find(|line| line.contains("Req/Sec")).expect("the line");
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>()[1..],
            ["775.00", "n/a", "n/a", "n/a"]
        );
    }

    #[test]
    fn totals_and_errors_by_hand() {
        let text = wrk(&sample::outcome());
        for line in [
            "Running 12.00s test @ http://127.0.0.1:8080/a?x=1&y=<2>",
            "  18600 requests in 12.00s, 4.54MB read",
            "  Socket errors: connect 4, read 4, write n/a, timeout 2",
            "  Non-2xx or 3xx responses: 20",
            "Requests/sec:    1550.00\nTransfer/sec:   387.50KB",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_latency_row_is_that_of_the_distribution() {
        let mut outcome = sample::outcome();
        // 1, 1, 1, 1 and 11 ms: mean 3, deviation sqrt(80 / 4) = 4.47, four of five within.
        outcome.latency = sample::times(5, |index| if index < 4 { 1_000_000 } else { 11_000_000 });
        let text = wrk(&outcome);
        let line = text.lines().find(|line| line.contains("Latency ")).expect("the line");
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1], "3.00ms", "{line}");
        assert_eq!((words[2], words[4]), ("4.47ms", "80.00%"), "{line}");
    }

    #[test]
    fn an_empty_run_has_no_invented_figures() {
        let text = wrk(&sample::empty());
        assert!(text.contains("Requests/sec:        n/a"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
