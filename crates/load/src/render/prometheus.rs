//! How far a run is, in the text format of Prometheus (version 0.0.4).
//!
//! Counters are those of the measured part so far; what is of its last whole second says so in its name.

use std::fmt::{Display, Write as _};

use crate::{Errors, Phase, Progress, QUANTILES};

/// The page for a scraper.
#[must_use]
pub fn prometheus(progress: &Progress) -> String {
    let mut page = Page(String::new());
    let Progress { phase, elapsed, last, totals, errors, crowd_connected } = progress;
    let phases = [
        ("setting-up", Phase::SettingUp),
        ("warm-up", Phase::WarmUp),
        ("measuring", Phase::Measuring),
        ("finishing", Phase::Finishing),
    ];
    page.family("phase", "gauge", "Which part of the run this is: 1 for that one");
    for (name, one) in phases {
        page.line("phase", &[("phase", &name)], u8::from(*phase == one));
    }
    page.one("elapsed_seconds", "gauge", "Seconds since requests began", elapsed.as_secs_f64());
    let sent = "Requests sent, without those of the warm-up, as all that is counted here";
    page.one("requests_sent_total", "counter", sent, totals.sent);
    page.family(
        "answers_total",
        "counter",
        "Answers that came whole, by the class of their status",
    );
    let classes = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
    for (class, count) in classes.iter().zip(totals.by_class) {
        page.line("answers_total", &[("class", class)], count);
    }
    page.family("errors_total", "counter", "Requests without a right answer, by what went wrong");
    for (kind, count) in kinds(errors) {
        page.line("errors_total", &[("kind", &kind)], count);
    }
    page.one("received_bytes_total", "counter", "Bytes received", totals.bytes_in);
    page.one("sent_bytes_total", "counter", "Bytes sent", totals.bytes_out);
    page.one("connects_total", "counter", "Connections opened", totals.connects);
    let crowd = "Connections beside the active ones that were set up";
    page.one("crowd_connections", "gauge", crowd, *crowd_connected);
    let Some(last) = last else { return page.0 };
    page.one("connections_open", "gauge", "Active connections that are open", last.open);
    page.one("last_second_answers", "gauge", "Answers of the last whole second", last.answered);
    let name = "last_second_latency_seconds";
    page.family(name, "gauge", "Latency of the answers of the last whole second, by quantile");
    for quantile in QUANTILES {
        // A second without answers has none.
        if let Some(ns) = last.latency.quantile_ns(quantile) {
            page.line(name, &[("quantile", &quantile)], ns as f64 / 1e9);
        }
    }
    page.0
}

fn kinds(errors: &Errors) -> [(&'static str, u64); 9] {
    let Errors { connect, timeout, reset, short, malformed, status, mismatch, tls, unsent, .. } =
        *errors;
    [
        ("connect", connect),
        ("timeout", timeout),
        ("reset", reset),
        ("short", short),
        ("malformed", malformed),
        ("status", status),
        ("mismatch", mismatch),
        ("tls", tls),
        ("unsent", unsent),
    ]
}

struct Page(String);

impl Page {
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let text = format!("# HELP pollux_load_{name} {help}\n# TYPE pollux_load_{name} {kind}\n");
        self.0.push_str(&text);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "pollux_load_{name}{labels} {value}").expect("memory takes it");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Distribution, Second, Totals};

    fn progress() -> Progress {
        let mut latency = Distribution::new();
        (0..100).for_each(|_| latency.record(310_000));
        let totals = Totals { sent: 101, by_class: [0, 0, 90, 0, 0, 10], ..Totals::default() };
        Progress {
            phase: Phase::Measuring,
            elapsed: Duration::from_millis(2_500),
            last: Some(Second { answered: 100, open: 8, latency, ..Second::default() }),
            totals,
            errors: Errors { reset: 1, status: 10, ..Errors::default() },
            crowd_connected: 0,
        }
    }

    #[test]
    fn each_line_is_a_comment_or_a_value_of_a_family() {
        let page = prometheus(&progress());
        let mut family = "";
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().expect("a name");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').expect("a value");
                assert_eq!(name.split('{').next(), Some(family), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        for expected in [
            "pollux_load_phase{phase=\"measuring\"} 1",
            "pollux_load_elapsed_seconds 2.5",
            "pollux_load_answers_total{class=\"5xx\"} 10",
            "pollux_load_errors_total{kind=\"reset\"} 1",
            "pollux_load_last_second_answers 100",
        ] {
            assert!(page.lines().any(|line| line == expected), "{expected} in {page}");
        }
        assert!(
            page.contains("pollux_load_last_second_latency_seconds{quantile=\"0.99\"} 0.00031")
        );
    }

    #[test]
    fn before_the_first_second_there_is_none_of_it() {
        let page = prometheus(&Progress { last: None, ..progress() });
        assert!(!page.contains("last_second"), "{page}");
    }
}
