//! The summary in the terms of ab 2.3, for comparison with its results.
//!
//! Each field means what ab means by it; what pollux does not measure in that way is `n/a`. ab
//! rounds times to whole milliseconds, and so does this.

use std::fmt::Write as _;

use url::Url;

use super::facts::{is_closed_loop, per_second};
use crate::{Distribution, Outcome};
use pollux_report::number::{NA, or_na};

const NS_PER_MS: f64 = 1e6;
/// The percentages of ab's table.
const PERCENTAGES: [u32; 9] = [50, 66, 75, 80, 90, 95, 98, 99, 100];

/// The outcome as ab would sum it up.
#[must_use]
pub fn ab(outcome: &Outcome) -> String {
    let mut out = "pollux load, summed up in the terms of ab 2.3\n\n".to_owned();
    document(&mut out, outcome);
    counts(&mut out, outcome);
    rates(&mut out, outcome);
    connection_times(&mut out, outcome);
    percentages(&mut out, outcome);
    notes(&mut out, outcome);
    out
}

fn document(out: &mut String, outcome: &Outcome) {
    let url = outcome.setting.urls.first().and_then(|url| Url::parse(url).ok());
    let url = url.as_ref();
    let host = url.and_then(Url::host_str).unwrap_or(NA);
    let port = or_na(url.and_then(Url::port_or_known_default), |port| port.to_string());
    let path = url.map_or(NA, |url| &url[url::Position::BeforePath..url::Position::AfterQuery]);
    let length = or_na(outcome.totals.first_body_bytes, |bytes| format!("{bytes} bytes"));
    field(out, "Server Software:", NA);
    field(out, "Server Hostname:", host);
    field(out, "Server Port:", &port);
    out.push('\n');
    field(out, "Document Path:", path);
    field(out, "Document Length:", &length);
    out.push('\n');
}

fn counts(out: &mut String, outcome: &Outcome) {
    let totals = &outcome.totals;
    let errors = &outcome.errors;
    let within = outcome.within();
    field(out, "Concurrency Level:", &outcome.setting.connections.to_string());
    let seconds = outcome.measured.as_secs_f64();
    field(out, "Time taken for tests:", &format!("{seconds:.3} seconds"));
    field(out, "Complete requests:", &complete(outcome).to_string());
    // An answer that the server cut off is one of the wrong length to ab.
    let length = totals.unlike_first.map(|unlike| unlike + errors.short);
    let failed = length.map(|length| length + errors.connect + errors.reset);
    field(out, "Failed requests:", &or_na(failed, |failed| failed.to_string()));
    if failed != Some(0) {
        let _ = writeln!(
            out,
            "   (Connect: {}, Receive: {}, Length: {}, Exceptions: n/a)",
            errors.connect,
            errors.reset,
            or_na(length, |length| length.to_string())
        );
    }
    let [other, informational, _, redirection, client, server] = totals.by_class;
    let other_than_2xx = other + informational + redirection + client + server;
    if other_than_2xx > 0 {
        field(out, "Non-2xx responses:", &other_than_2xx.to_string());
    }
    if !is_one_each(outcome) {
        // After these answers the connection stayed open.
        let kept = within.answered.saturating_sub(outcome.lifetime.count());
        field(out, "Keep-Alive requests:", &kept.to_string());
    }
    field(out, "Total transferred:", &format!("{} bytes", within.bytes_in));
    field(out, "HTML transferred:", &format!("{} bytes", within.body_bytes_in));
}

fn rates(out: &mut String, outcome: &Outcome) {
    let complete = complete(outcome);
    let ms = outcome.measured.as_secs_f64() * 1000.0;
    let each = (complete > 0 && ms > 0.0).then(|| ms / complete as f64);
    let concurrency = f64::from(outcome.setting.connections);
    let rate = or_na(per_second(outcome, complete), |rate| format!("{rate:.2}"));
    let times = [each.map(|each| each * concurrency), each];
    let [mean, across] = times.map(|time| or_na(time, |time| format!("{time:.3}")));
    let transfer = per_second(outcome, outcome.within().bytes_in);
    let transfer = or_na(transfer, |bytes| format!("{:.2}", bytes / 1024.0));
    field(out, "Requests per second:", &format!("{rate} [#/sec] (mean)"));
    field(out, "Time per request:", &format!("{mean} [ms] (mean)"));
    let across = format!("{across} [ms] (mean, across all concurrent requests)");
    field(out, "Time per request:", &across);
    field(out, "Transfer rate:", &format!("{transfer} [Kbytes/sec] received"));
    out.push('\n');
}

fn connection_times(out: &mut String, outcome: &Outcome) {
    out.push_str("Connection Times (ms)\n              min  mean[+/-sd] median   max\n");
    // In an open loop both count from when the request was due, which is more than ab's parts.
    let [processing, waiting] = if is_closed_loop(outcome) {
        [&outcome.latency, &outcome.first_byte].map(Row::of)
    } else {
        [Row::default(), Row::default()]
    };
    Row::of_connects(outcome).write(out, "Connect:");
    processing.write(out, "Processing:");
    waiting.write(out, "Waiting:");
    Row::of_totals(outcome).write(out, "Total:");
    out.push('\n');
}

fn percentages(out: &mut String, outcome: &Outcome) {
    out.push_str("Percentage of the requests served within a certain time (ms)\n");
    for percentage in PERCENTAGES {
        let time = total_ms(outcome, f64::from(percentage) / 100.0);
        let longest = if percentage == 100 { " (longest request)" } else { "" };
        let time = or_na(time, |ms| format!("{ms:.0}"));
        let _ = writeln!(out, " {percentage:>3}%  {time:>5}{longest}");
    }
}

fn notes(out: &mut String, outcome: &Outcome) {
    let errors = &outcome.errors;
    out.push('\n');
    if outcome.setting.urls.len() > 1 {
        let _ = writeln!(out, "Note: {} targets, the first is named", outcome.setting.urls.len());
    }
    if !is_closed_loop(outcome) {
        out.push_str(
            "Note: open loop, which ab has not; Total counts from when a request was due\n",
        );
    } else if outcome.connect.count() > 0 && !is_one_each(outcome) {
        out.push_str(
            "Note: which requests waited for a connect is not recorded; a total is shown where \
             it is the same for all of them\n",
        );
    }
    let outside = errors.timeout + errors.malformed + errors.tls + errors.unsent;
    if outside > 0 {
        let _ = writeln!(
            out,
            "Note: not among ab's failures: timeout {}, no HTTP {}, TLS {}, never sent {}",
            errors.timeout, errors.malformed, errors.tls, errors.unsent
        );
    }
}

/// Requests that came to an end on a connection, well or not.
fn complete(outcome: &Outcome) -> u64 {
    outcome.within().answered + outcome.errors.reset + outcome.errors.short
}

/// Whether every request had a connection of its own.
fn is_one_each(outcome: &Outcome) -> bool {
    outcome.setting.requests_per_connection == Some(1)
}

/// A row of the table of connection times, in milliseconds.
#[derive(Default)]
struct Row {
    min: Option<f64>,
    mean: Option<f64>,
    deviation: Option<f64>,
    median: Option<f64>,
    max: Option<f64>,
}

impl Row {
    fn of(times: &Distribution) -> Self {
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / NS_PER_MS);
        Self {
            min: ms(times.min_ns()),
            mean: times.mean_ns().map(|ns| ns / NS_PER_MS),
            deviation: times.sample_deviation_ns().map(|ns| ns / NS_PER_MS),
            median: ms(times.quantile_ns(0.5)),
            max: ms(times.max_ns()),
        }
    }

    /// ab counts a connect of no length for each request on a connection that was open.
    fn of_connects(outcome: &Outcome) -> Self {
        let connect = &outcome.connect;
        let connects = connect.count();
        let requests = outcome.totals.answered.max(connect.count());
        let all = Self::of(connect);
        if requests == connects {
            return all;
        }
        let reused = requests - connects;
        let share = connects as f64 / requests as f64;
        let mean = connect.mean_ns().unwrap_or(0.0);
        let spread = connect.stddev_ns().unwrap_or(0.0);
        let squares = (spread.powi(2) + mean.powi(2)) * share;
        let variance = (squares - (mean * share).powi(2)) * requests as f64;
        let is_sample = requests > 1;
        // The position of the median among the connects, when the reused ones are fewer.
        let among = (0.5 * requests as f64 - reused as f64) / connects as f64;
        let median = if among <= 0.0 { Some(0) } else { connect.quantile_ns(among) };
        Self {
            min: Some(0.0),
            mean: Some(mean * share / NS_PER_MS),
            deviation: is_sample
                .then(|| (variance.max(0.0) / (requests - 1) as f64).sqrt() / NS_PER_MS),
            median: median.map(|ns| ns as f64 / NS_PER_MS),
            max: all.max.or(Some(0.0)),
        }
    }

    fn of_totals(outcome: &Outcome) -> Self {
        let whole = whole_totals(outcome);
        let connect = Self::of_connects(outcome).mean.unwrap_or(0.0);
        let mean = whole.unwrap_or(&outcome.latency).mean_ns().map(|ns| ns / NS_PER_MS);
        Self {
            min: total_ms(outcome, 0.0),
            mean: if whole.is_some() { mean } else { mean.map(|mean| mean + connect) },
            deviation: whole.and_then(Distribution::sample_deviation_ns).map(|ns| ns / NS_PER_MS),
            median: total_ms(outcome, 0.5),
            max: total_ms(outcome, 1.0),
        }
    }

    fn write(&self, out: &mut String, name: &str) {
        let whole = |ms: Option<f64>| or_na(ms, |ms| format!("{ms:.0}"));
        let deviation = or_na(self.deviation, |ms| format!("{ms:.1}"));
        let [min, mean] = [self.min, self.mean].map(whole);
        let [median, max] = [self.median, self.max].map(whole);
        let _ = writeln!(out, "{name:<12}{min:>5} {mean:>4} {deviation:>5} {median:>6} {max:>7}");
    }
}

/// The times from connect to last byte, when a distribution of just these was kept.
fn whole_totals(outcome: &Outcome) -> Option<&Distribution> {
    let has_no_connects = outcome.connect.count() == 0;
    if !is_closed_loop(outcome) || has_no_connects {
        return Some(&outcome.latency);
    }
    let is_whole = is_one_each(outcome) && outcome.lifetime.count() > 0;
    is_whole.then_some(&outcome.lifetime)
}

/// A quantile of the times from connect to last byte, in whole milliseconds.
///
/// Where only some requests waited for a connect it is not known which; the quantile then lies
/// between that of the processing times and one further up by the share of these requests. It is
/// given when both round to the same millisecond.
fn total_ms(outcome: &Outcome, quantile: f64) -> Option<f64> {
    let rounded = |ns: u64| (ns as f64 / NS_PER_MS).round();
    if let Some(whole) = whole_totals(outcome) {
        return whole.quantile_ns(quantile).map(rounded);
    }
    let latency = &outcome.latency;
    let connect = &outcome.connect;
    let low = latency.quantile_ns(quantile)?;
    let further = quantile + connect.count() as f64 / latency.count() as f64;
    let high = if further <= 1.0 {
        latency.quantile_ns(further)?
    } else {
        latency.max_ns()?.saturating_add(connect.max_ns()?)
    };
    (rounded(low) == rounded(high)).then(|| rounded(low))
}

fn field(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "{name:<24}{value}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample;

    #[test]
    fn fields_by_hand() {
        let text = ab(&sample::outcome());
        for line in [
            "Server Hostname:        127.0.0.1\nServer Port:            8080",
            "Document Length:        128 bytes",
            "Concurrency Level:      64\nTime taken for tests:   12.000 seconds",
            // 18,600 answers, 3 resets, 1 cut off.
            "Complete requests:      18604",
            // 7 unlike the first and 1 cut off; 4 connects, 3 resets.
            "Failed requests:        15\n   (Connect: 4, Receive: 3, Length: 8, Exceptions: n/a)",
            "Non-2xx responses:      20",
            "Keep-Alive requests:    18590",
            "Total transferred:      4761600 bytes\nHTML transferred:       2380800 bytes",
            "Requests per second:    1550.33 [#/sec] (mean)",
            // 12,000 ms / 18,604, and 64 times that.
            "Time per request:       41.281 [ms] (mean)",
            "Time per request:       0.645 [ms] (mean, across all concurrent requests)",
            "Transfer rate:          387.50 [Kbytes/sec] received",
            "not among ab's failures: timeout 2, no HTTP 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn connects_of_reused_connections_have_no_length() {
        let mut outcome = sample::outcome();
        // Four requests, of which one connected for 8 ms: mean 2, deviation 4, median 0.
        outcome.totals.answered = 4;
        outcome.connect = sample::times(1, |_| 8_000_000);
        let row = Row::of_connects(&outcome);
        let near = |value: Option<f64>, wanted: f64| (value.expect("known") - wanted).abs() < 0.01;
        assert!(near(row.mean, 2.0) && near(row.deviation, 4.0) && near(row.max, 8.0));
        assert_eq!((row.min, row.median), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn with_one_request_each_the_total_is_the_life_of_a_connection() {
        let mut outcome = sample::outcome();
        outcome.setting.requests_per_connection = Some(1);
        outcome.lifetime = sample::times(100, |index| (index + 1) * 1_000_000);
        let text = ab(&outcome);
        assert!(
            text.contains("  50%     50\n  66%     66\n") && text.contains(" 100%    100 (longest")
        );
        assert!(!text.contains("Keep-Alive requests"), "{text}");
    }

    #[test]
    fn a_total_that_depends_on_which_connected_is_not_shown() {
        let mut outcome = sample::outcome();
        outcome.latency = sample::times(1000, |_| 1_000_000);
        outcome.connect = sample::times(20, |_| 40_000_000);
        assert_eq!(total_ms(&outcome, 0.5), Some(1.0));
        assert_eq!(total_ms(&outcome, 0.99), None, "2 % of the requests may have taken 41 ms");
        outcome.connect = Distribution::new();
        assert_eq!(total_ms(&outcome, 0.99), Some(1.0));
    }

    #[test]
    fn lengths_that_were_not_compared_are_not_known() {
        let mut outcome = sample::outcome();
        outcome.totals.unlike_first = None;
        let text = ab(&outcome);
        assert!(
            text.contains("Failed requests:        n/a\n   (Connect: 4, Receive: 3, Length: n/a")
        );
    }

    #[test]
    fn an_open_loop_and_an_empty_run_have_no_invented_figures() {
        let mut outcome = sample::outcome();
        outcome.setting.pace = "constant 1000/s".to_owned();
        let text = ab(&outcome);
        assert!(text.contains("Processing:   n/a  n/a   n/a    n/a     n/a"), "{text}");
        outcome = sample::empty();
        outcome.measured = Duration::ZERO;
        let text = ab(&outcome);
        assert!(text.contains("Requests per second:    n/a [#/sec]"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
