//! The summary in the terms of httperf 0.9, for comparison with its results.
//!
//! Each field means what httperf means by it, see the comments beside; what pollux does not
//! measure in that way is `n/a`. Programs that read httperf's lines can read these.

use std::fmt::Write as _;

use super::facts::{is_closed_loop, per_second};
use super::measured_from_s;
use crate::{Distribution, Outcome};
use pollux_report::number::or_na;
use pollux_stats::{mean, standard_deviation};

/// httperf counts replies in windows of this length.
const WINDOW_S: f64 = 5.0;
/// A window that ends so little early is whole: seconds are cut by a timer.
const TOLERANCE_S: f64 = 0.05;
const NS_PER_MS: f64 = 1e6;

/// The outcome as httperf would sum it up.
#[must_use]
pub fn httperf(outcome: &Outcome) -> String {
    let totals = &outcome.totals;
    let mut out = "pollux load, summed up in the terms of httperf 0.9\n\n".to_owned();
    let _ = writeln!(
        out,
        "Total: connections {} requests {} replies {} test-duration {:.3} s\n",
        totals.connects,
        totals.sent,
        outcome.within().answered,
        outcome.measured.as_secs_f64()
    );
    connections(&mut out, outcome);
    let rate = fixed(per_second(outcome, totals.sent));
    let each = each_ms(outcome, totals.sent);
    let _ = writeln!(out, "Request rate: {rate} req/s ({each} ms/req)");
    let size = fixed(ratio(totals.bytes_out, totals.sent));
    let _ = writeln!(out, "Request size [B]: {size}\n");
    replies(&mut out, outcome);
    consumption(&mut out, outcome);
    errors(&mut out, outcome);
    notes(&mut out, outcome);
    out
}

fn connections(out: &mut String, outcome: &Outcome) {
    let connects = outcome.totals.connects;
    let life = &outcome.lifetime;
    let _ = writeln!(
        out,
        "Connection rate: {} conn/s ({} ms/conn, <={} concurrent connections)",
        fixed(per_second(outcome, connects)),
        each_ms(outcome, connects),
        outcome.setting.connections
    );
    let _ = writeln!(
        out,
        "Connection time [ms]: min {} avg {} max {} median {} stddev {}",
        ms(life.min_ns().map(|ns| ns as f64)),
        ms(life.mean_ns()),
        ms(life.max_ns().map(|ns| ns as f64)),
        fixed(median_ms(life)),
        ms(life.sample_deviation_ns()),
    );
    let _ = writeln!(out, "Connection time [ms]: connect {}", ms(outcome.connect.mean_ns()));
    // With connections that are still open it is not known how many replies the others had.
    let one_each = outcome.setting.requests_per_connection == Some(1);
    let is_whole = life.count() == connects || one_each;
    let whole = ratio(outcome.totals.answered, life.count()).filter(|_| is_whole);
    let _ = writeln!(
        out,
        "Connection length [replies/conn]: {}\n",
        or_na(whole, |length| format!("{length:.3}"))
    );
}

fn replies(out: &mut String, outcome: &Outcome) {
    let totals = &outcome.totals;
    let windows = windows(outcome);
    let _ = writeln!(
        out,
        "Reply rate [replies/s]: min {} avg {} max {} stddev {} ({} samples)",
        fixed(windows.iter().copied().reduce(f64::min)),
        fixed(mean(&windows)),
        fixed(windows.iter().copied().reduce(f64::max)),
        fixed(standard_deviation(&windows)),
        windows.len()
    );
    // In an open loop pollux counts from when the request was due, httperf from its first byte.
    let response = outcome.first_byte.mean_ns().filter(|_| is_closed_loop(outcome));
    let both = outcome.latency.mean_ns().zip(outcome.first_byte.mean_ns());
    let transfer = both.map(|(last, first)| (last - first).max(0.0));
    let _ = writeln!(out, "Reply time [ms]: response {} transfer {}", ms(response), ms(transfer));
    let heads = totals.bytes_in.saturating_sub(totals.body_bytes_in);
    let _ = writeln!(
        out,
        "Reply size [B]: header {} content {} footer n/a (total {})",
        fixed(ratio(heads, totals.answered)),
        fixed(ratio(totals.body_bytes_in, totals.answered)),
        fixed(ratio(totals.bytes_in, totals.answered)),
    );
    let [_, informational, success, redirection, client, server] = totals.by_class;
    let _ = writeln!(
        out,
        "Reply status: 1xx={informational} 2xx={success} 3xx={redirection} 4xx={client} 5xx={server}\n"
    );
}

fn consumption(out: &mut String, outcome: &Outcome) {
    let seconds = outcome.measured.as_secs_f64();
    let total = (seconds > 0.0).then(|| outcome.generator.cpu.as_secs_f64() / seconds * 100.0);
    let _ = writeln!(
        out,
        "CPU time [s]: user n/a system n/a (user n/a system n/a total {})",
        or_na(total, |percent| format!("{percent:.1}%"))
    );
    let bytes = per_second(outcome, outcome.totals.bytes_in + outcome.totals.bytes_out);
    let _ = writeln!(
        out,
        "Net I/O: {} KB/s ({}*10^6 bps)\n",
        fixed(bytes.map(|bytes| bytes / 1024.0)),
        fixed(bytes.map(|bytes| bytes * 8.0 / 1e6)),
    );
}

fn errors(out: &mut String, outcome: &Outcome) {
    let errors = &outcome.errors;
    let out_of_own = errors.connect_no_descriptor + errors.connect_no_port;
    let total = errors.timeout + errors.connect + errors.reset + errors.tls;
    let _ = writeln!(
        out,
        "Errors: total {total} client-timo {} socket-timo n/a connrefused {} connreset {}",
        errors.timeout,
        errors.connect.saturating_sub(out_of_own),
        errors.reset
    );
    let _ = writeln!(
        out,
        "Errors: fd-unavail {} addrunavail {} ftab-full n/a other {}",
        errors.connect_no_descriptor, errors.connect_no_port, errors.tls
    );
}

fn notes(out: &mut String, outcome: &Outcome) {
    let errors = &outcome.errors;
    out.push_str(
        "\nNotes: connrefused holds every connect that failed for a reason of the server or the \
         network, other holds failures of TLS; connections is the number opened after the warm-up\n",
    );
    if outcome.totals.connects > 0 && outcome.lifetime.count() == 0 {
        out.push_str("Notes: no connection was closed in the run, so none has a connection time\n");
    }
    if !is_closed_loop(outcome) {
        out.push_str("Notes: in an open loop times count from when a request was due\n");
    }
    let outside = errors.short + errors.malformed + errors.status + errors.mismatch + errors.unsent;
    if outside > 0 {
        let _ = writeln!(
            out,
            "Errors that httperf does not count: ended early {} no HTTP {} status {} length {} never sent {}",
            errors.short, errors.malformed, errors.status, errors.mismatch, errors.unsent
        );
    }
}

/// Replies per second in each whole window of the measured part; the tail is not a sample.
fn windows(outcome: &Outcome) -> Vec<f64> {
    let mut rates = Vec::new();
    let mut start_s = measured_from_s(outcome);
    let mut replies = 0;
    for second in outcome.seconds.iter().filter(|second| !second.is_warm_up) {
        replies += second.answered;
        let length_s = second.end_s - start_s;
        if length_s >= WINDOW_S - TOLERANCE_S {
            rates.push(replies as f64 / length_s);
            (start_s, replies) = (second.end_s, 0);
        }
    }
    rates
}

/// The middle of the 1 ms bin that the median falls in.
fn median_ms(times: &Distribution) -> Option<f64> {
    let mut below = 0;
    for step in times.histogram().iter_recorded() {
        below += step.count_since_last_iteration();
        if below * 2 > times.count() {
            let value = times.histogram().lowest_equivalent(step.value_iterated_to());
            return Some((value as f64 / NS_PER_MS).floor() + 0.5);
        }
    }
    None
}

fn ms(nanoseconds: Option<f64>) -> String {
    fixed(nanoseconds.map(|ns| ns / NS_PER_MS))
}

fn fixed(value: Option<f64>) -> String {
    or_na(value, |value| format!("{value:.1}"))
}

fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}

/// Time of the run for each of `count`.
fn each_ms(outcome: &Outcome, count: u64) -> String {
    fixed((count > 0).then(|| outcome.measured.as_secs_f64() * 1000.0 / count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_reply_rate_is_that_of_whole_windows() {
        // Windows of 1000 to 1400 and 1500 to 1900 answers; 2000 and 2100 are the tail.
        // Mean 1450, deviation of the two: 250 * sqrt 2 = 353.6.
        let text = httperf(&sample::outcome());
        let line =
            "Reply rate [replies/s]: min 1200.0 avg 1450.0 max 1700.0 stddev 353.6 (2 samples)";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_short_run_has_no_sample_and_one_sample_no_deviation() {
        let mut outcome = sample::outcome();
        outcome.seconds.truncate(8);
        assert!(httperf(&outcome).contains("avg 1200.0 max 1200.0 stddev n/a (1 samples)"));
        outcome.seconds.truncate(6);
        assert!(httperf(&outcome).contains("min n/a avg n/a max n/a stddev n/a (0 samples)"));
    }

    #[test]
    fn connection_times_are_lifetimes() {
        // 1.2, 2.2, … 10.2 ms: mean 5.7; more than half are reached in the bin from 6 to 7 ms;
        // deviation of the sample sqrt(82.5 / 9) = 3.03.
        let text = httperf(&sample::outcome());
        let line = "Connection time [ms]: min 1.2 avg 5.7 max 10.2 median 6.5 stddev 3.0";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_length_of_connections_is_known_when_all_were_closed() {
        let mut outcome = sample::outcome();
        assert!(httperf(&outcome).contains("Connection length [replies/conn]: n/a"));
        outcome.totals.connects = 10;
        assert!(httperf(&outcome).contains("Connection length [replies/conn]: 1860.000"));
        outcome.setting.requests_per_connection = Some(1);
        (outcome.totals.connects, outcome.totals.answered) = (14, 10);
        assert!(httperf(&outcome).contains("Connection length [replies/conn]: 1.000"));
    }

    #[test]
    fn rates_sizes_and_errors_by_hand() {
        let text = httperf(&sample::outcome());
        for line in [
            "Total: connections 20 requests 18606 replies 18600 test-duration 12.000 s",
            "Connection rate: 1.7 conn/s (600.0 ms/conn, <=64 concurrent connections)",
            "Request rate: 1550.5 req/s (0.6 ms/req)\nRequest size [B]: 62.0",
            "Reply size [B]: header 128.0 content 128.0 footer n/a (total 256.0)",
            "Reply status: 1xx=0 2xx=18580 3xx=0 4xx=15 5xx=5",
            "total 20.0%)",
            "Errors: total 9 client-timo 2 socket-timo n/a connrefused 3 connreset 3",
            "Errors: fd-unavail 0 addrunavail 1 ftab-full n/a other 0",
            "Errors that httperf does not count: ended early 1 ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn an_empty_run_has_no_invented_figures() {
        let text = httperf(&sample::empty());
        assert!(text.contains("Connection rate: n/a conn/s (n/a ms/conn"), "{text}");
        assert!(text.contains("Reply time [ms]: response n/a transfer n/a"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
