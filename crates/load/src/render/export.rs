//! Results for other programs: CSV for spreadsheets and plots, JSON that is read back for merging and comparing, the
//! interval log of HdrHistogram, and how far a run is for Prometheus.

use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use pollux_http::MetricsPage;
use serde::{Deserialize, Serialize};

use super::{base_unix_s, curve, with_starts};
use crate::{Outcome, Phase, Progress, QUANTILES};

/// What the `schema` field says.
pub const JSON_SCHEMA: &str = "pollux-load-outcome";
/// What the `version` field says; it grows when a field changes its meaning or goes away.
pub const JSON_VERSION: u32 = 4;
/// The first version whose histograms can be read back.
const OLDEST: u32 = 4;
/// Divides the longest time of an interval into milliseconds, as those programs write it. Only
/// that column: the histograms hold nanoseconds.
const NS_PER_MS: f64 = 1_000_000.0;
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// One row for each second, warm-up first; what is not known is an empty cell. Cells are figures and flags, so none
/// needs quotes: when it began (since the start of the warm-up, and in
/// seconds since 1970), its length, its counts and the latency of its answers in nanoseconds.
#[must_use]
pub fn csv_seconds(outcome: &Outcome) -> String {
    let mut out = "start_s,start_unix_s,length_s,warm_up,sent,answered,errors,bytes_in,open,\
                   mean_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,asked_per_s\n"
        .to_owned();
    let base = base_unix_s(outcome);
    for (start_s, second) in with_starts(outcome) {
        let unix_s = base + start_s;
        let length_s = second.end_s - start_s;
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
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(|quantile| latency.known_quantile_ns(quantile));
        let mean = latency.mean_ns().map(|mean| mean.round() as u64);
        for cell in [mean].into_iter().chain(quantiles).chain([latency.max_ns()]) {
            out.push(',');
            out.push_str(&cell.map(|cell| cell.to_string()).unwrap_or_default());
        }
        let asked = second.asked_per_s.map(|asked| format!("{asked:.3}"));
        out.push(',');
        out.push_str(&asked.unwrap_or_default());
        out.push('\n');
    }
    out
}

/// The latency curve: percentile, the time that it does not exceed in nanoseconds, and the position
/// on an axis of nines (0 at 0 %, 1 at 90 %, 2 at 99 %). The last row is the longest time; it has
/// no position on that axis.
#[must_use]
pub fn csv_percentiles(outcome: &Outcome) -> String {
    let mut out = "percentile,latency_ns,nines\n".to_owned();
    for point in curve(&outcome.latency) {
        let percentile = point.quantile * 100.0;
        let nines = point.nines();
        let _ = writeln!(out, "{percentile:.6},{},{nines:.4}", point.ns);
    }
    if let Some(max) = outcome.latency.max_ns() {
        let _ = writeln!(out, "100.000000,{max},");
    }
    out
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// The outcome as one indented JSON object: `schema`, `version`, then the fields of [`Outcome`].
///
/// Times are nanoseconds where the name ends in `_ns` or is `ns`; what is not known is `null`.
///
/// # Panics
/// Never by the outcome: all its maps have text keys.
#[must_use]
pub fn json(outcome: &Outcome) -> String {
    let document = Document { schema: JSON_SCHEMA, version: JSON_VERSION, outcome };
    let mut text = serde_json::to_string_pretty(&document).expect("plain data becomes JSON");
    text.push('\n');
    text
}

/// Why a text is not a result that can be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// It is not JSON, or not that of a load.
    #[error("not a result of pollux load: {0}")]
    Format(#[from] serde_json::Error),
    /// It is a result of something else.
    #[error("schema \"{0}\"; expected \"{JSON_SCHEMA}\", as `pollux load --json FILE` writes it")]
    Schema(String),
    /// It was written by a pollux that kept no histograms.
    #[error(
        "version {0} has no histograms; run the load again with this pollux (version {JSON_VERSION})"
    )]
    Older(u32),
    /// It was written by a newer pollux.
    #[error("version {0}, this pollux reads up to {JSON_VERSION}: use a newer one")]
    Newer(u32),
}

#[derive(Deserialize)]
struct Head {
    schema: String,
    version: u32,
}

impl Outcome {
    /// Reads what [`json`](crate::render::json) wrote.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn from_json(text: &str) -> Result<Self, StoredError> {
        let Head { schema, version } = serde_json::from_str(text)?;
        match version {
            _ if schema != JSON_SCHEMA => Err(StoredError::Schema(schema)),
            ..OLDEST => Err(StoredError::Older(version)),
            OLDEST..=JSON_VERSION => Ok(serde_json::from_str(text)?),
            _ => Err(StoredError::Newer(version)),
        }
    }
}

/// The latencies of each second as a HdrHistogram interval log, format 1.3, which its log processors and viewers read.
/// Seconds of the warm-up carry the tag `warm-up`; the measured ones carry none, which those programs take by default.
///
/// The base time is the start of the warm-up, the start time
/// that of the measured part, the histograms are compressed (V2, deflate, base64).
///
/// # Panics
/// Never by the outcome: the text is written to memory, and no count exceeds 63 bits.
#[must_use]
pub fn hlog(outcome: &Outcome) -> String {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    // The legend belongs between head and intervals, where the writer can't put it: the head is written by a writer of its own.
    let mut head = IntervalLogWriterBuilder::new();
    head.add_comment("[Histogram log format version 1.3]")
        .add_comment("[Latency in nanoseconds, by pollux load]")
        .with_start_time(at(outcome.began_unix_s))
        .with_base_time(at(base_unix_s(outcome)))
        .with_max_value_divisor(NS_PER_MS);
    head.begin_log_with(&mut out, &mut serializer).expect("memory takes it");
    out.extend_from_slice(LEGEND.as_bytes());

    let mut body = Vec::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_max_value_divisor(NS_PER_MS);
    let mut log = builder.begin_log_with(&mut body, &mut serializer).expect("memory takes it");
    for (start_s, second) in with_starts(outcome) {
        let start = Duration::from_secs_f64(start_s.max(0.0));
        let length = Duration::from_secs_f64((second.end_s - start_s).max(0.0));
        let tag = Tag::new("warm-up").filter(|_| second.is_warm_up);
        let written = log.write_histogram(&*second.latency.histogram(), start, length, tag);
        written.expect("memory takes it");
    }
    // The second head is a line about the divisor, which the first one has said.
    let intervals = body.split_inclusive(|byte| *byte == b'\n');
    intervals.filter(|line| !line.starts_with(b"#")).for_each(|line| out.extend_from_slice(line));
    String::from_utf8(out).expect("the log is ASCII")
}

fn at(unix_s: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(unix_s.max(0.0))
}

/// How far a run is, in the text format of Prometheus (version 0.0.4): counters of the measured part so far; figures of
/// its last whole second say so in their name.
#[must_use]
pub fn prometheus(progress: &Progress) -> String {
    let mut page = Page(MetricsPage::new("pollux_load_"));
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
    for (kind, count) in errors.kinds() {
        page.line("errors_total", &[("kind", &kind)], count);
    }
    page.one("received_bytes_total", "counter", "Bytes received", totals.bytes_in);
    page.one("sent_bytes_total", "counter", "Bytes sent", totals.bytes_out);
    page.one("connects_total", "counter", "Connections opened", totals.connects);
    let crowd = "Connections beside the active ones that were set up";
    page.one("crowd_connections", "gauge", crowd, *crowd_connected);
    let Some(last) = last else { return page.0.text() };
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
    page.0.text()
}

struct Page(MetricsPage);

impl Page {
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0.family(name, kind, help);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.0.line(name, labels, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use serde_json::Value;

    use super::*;
    use crate::{Distribution, Second, Totals, sample};

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

    #[test]
    fn a_program_finds_schema_figures_and_nulls() {
        let value: Value = serde_json::from_str(&json(&sample::outcome())).expect("JSON");
        assert_eq!(value["schema"], JSON_SCHEMA);
        assert_eq!(value["version"], JSON_VERSION);
        assert_eq!(value["totals"]["answered"], 18_600);
        assert_eq!(value["measured_s"], 12.0);
        assert_eq!(value["seconds"].as_array().map(Vec::len), Some(14));
        assert_eq!(value["findings"][0]["kind"], "delayed-ack");
        let empty: Value = serde_json::from_str(&json(&sample::empty())).expect("JSON");
        assert_eq!(empty["latency"]["mean_ns"], Value::Null);
    }

    #[test]
    fn a_result_is_read_back_whole() {
        for outcome in [sample::outcome(), sample::empty()] {
            let text = json(&outcome);
            let read = Outcome::from_json(&text).expect("what was written");
            let again: Value = serde_json::from_str(&json(&read)).expect("JSON");
            let first: Value = serde_json::from_str(&text).expect("JSON");
            for (key, value) in first.as_object().expect("an object") {
                // Figures of a histogram with two digits change a little when it gets three.
                if key != "seconds" {
                    assert_eq!(&again[key], value, "{key}");
                }
            }
            assert_eq!(read.seconds.len(), outcome.seconds.len());
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_they_are() {
        let of = |schema: &str, version: u32| {
            format!(r#"{{"schema": "{schema}", "version": {version}}}"#)
        };
        for (text, says) in [
            ("{".to_owned(), "not a result of pollux load: EOF"),
            (of("pollux-run", 4), "schema \"pollux-run\"; expected \"pollux-load-outcome\""),
            (of(JSON_SCHEMA, 3), "version 3 has no histograms"),
            (of(JSON_SCHEMA, JSON_VERSION + 1), "use a newer one"),
            (of(JSON_SCHEMA, JSON_VERSION), "missing field"),
        ] {
            let error = Outcome::from_json(&text).expect_err(&text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// What another program reads.
    #[derive(Default)]
    struct Read {
        start: Option<Duration>,
        base: Option<Duration>,
        /// Whether it has a tag, where it starts, what it holds.
        intervals: Vec<(bool, f64, Histogram<u64>)>,
    }

    fn read(log: &str) -> Read {
        let mut read = Read::default();
        for entry in IntervalLogIterator::new(log.as_bytes()) {
            match entry.expect("a log that can be read") {
                LogEntry::StartTime(at) => read.start = Some(at),
                LogEntry::BaseTime(at) => read.base = Some(at),
                LogEntry::Interval(interval) => {
                    let text = interval.encoded_histogram();
                    let bytes = unpacked(text);
                    let histogram =
                        Deserializer::new().deserialize(&mut bytes.as_slice()).expect("histogram");
                    let start_s = interval.start_timestamp().as_secs_f64();
                    read.intervals.push((interval.tag().is_some(), start_s, histogram));
                }
            }
        }
        read
    }

    /// Base64 with padding (RFC 4648), the plain way.
    fn unpacked(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digit = |byte: u8| ALPHABET.iter().position(|each| *each == byte);
        let digits: Vec<_> = text.bytes().map_while(digit).collect();
        let group = |group: &[usize]| {
            let bits =
                group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
            [bits >> 16, bits >> 8, bits].map(|byte| byte as u8)[..group.len() - 1].to_vec()
        };
        digits.chunks(4).flat_map(group).collect()
    }

    #[test]
    fn the_log_is_read_back_by_its_own_parser() {
        let outcome = sample::outcome();
        let log = hlog(&outcome);
        assert!(log.starts_with("#[Histogram log format version 1.3]\n"), "{log}");
        let Read { start, base, intervals } = read(&log);
        assert_eq!(intervals.len(), outcome.seconds.len());
        for ((is_tagged, start_s, histogram), second) in intervals.iter().zip(&outcome.seconds) {
            assert_eq!((*is_tagged, *start_s), (second.is_warm_up, second.end_s - 1.0));
            assert_eq!(*histogram, *second.latency.histogram());
        }
        let measured: u64 =
            intervals.iter().filter(|(tag, ..)| !tag).map(|(.., histogram)| histogram.len()).sum();
        assert_eq!(measured, outcome.latency.count());
        let start = start.expect("start");
        let base = base.expect("base");
        assert!((start.as_secs_f64() - outcome.began_unix_s).abs() < 0.001);
        assert_eq!((start - base).as_secs_f64().round(), 2.0);
    }

    #[test]
    fn an_empty_run_is_a_log_without_intervals() {
        assert!(read(&hlog(&sample::empty())).intervals.is_empty());
    }

    fn progress() -> Progress {
        let mut latency = Distribution::new();
        (0..100).for_each(|_| latency.record(310_000));
        let totals = Totals { sent: 101, by_class: [0, 0, 90, 0, 0, 10], ..Totals::default() };
        Progress {
            phase: Phase::Measuring,
            elapsed: Duration::from_millis(2_500),
            last: Some(Second { answered: 100, open: 8, latency, ..Second::default() }),
            totals,
            errors: crate::Errors { reset: 1, status: 10, ..crate::Errors::default() },
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
