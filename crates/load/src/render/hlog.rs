//! The latencies of each second as a HdrHistogram interval log, format 1.3.
//!
//! The log processors and viewers of HdrHistogram read it. Seconds of the warm-up carry the tag
//! `warm-up`; the measured ones carry none, which is what those programs take by default.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::seconds;
use crate::Outcome;

/// Divides the longest time of an interval into milliseconds, as those programs write it. Only
/// that column: the histograms hold nanoseconds.
const NS_PER_MS: f64 = 1_000_000.0;
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// The outcome as an interval log: the base time is the start of the warm-up, the start time
/// that of the measured part, the histograms are compressed (V2, deflate, base64).
///
/// # Panics
/// Never by the outcome: the text is written to memory, and no count exceeds 63 bits.
#[must_use]
pub fn hlog(outcome: &Outcome) -> String {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    // The legend belongs between head and intervals, which is where the writer has no place for
    // it: the head is written by a writer of its own.
    let mut head = IntervalLogWriterBuilder::new();
    head.add_comment("[Histogram log format version 1.3]")
        .add_comment("[Latency in nanoseconds, by pollux load]")
        .with_start_time(at(outcome.began_unix_s))
        .with_base_time(at(seconds::base_unix_s(outcome)))
        .with_max_value_divisor(NS_PER_MS);
    head.begin_log_with(&mut out, &mut serializer).expect("memory takes it");
    out.extend_from_slice(LEGEND.as_bytes());

    let mut body = Vec::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_max_value_divisor(NS_PER_MS);
    let mut log = builder.begin_log_with(&mut body, &mut serializer).expect("memory takes it");
    for (start_s, second) in seconds::with_starts(outcome) {
        let start = Duration::from_secs_f64(start_s.max(0.0));
        let length = Duration::from_secs_f64((second.end_s - start_s).max(0.0));
        let tag = Tag::new("warm-up").filter(|_| second.is_warm_up);
        let written = log.write_histogram(second.latency.histogram(), start, length, tag);
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

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::render::sample;

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
            assert_eq!(histogram, second.latency.histogram());
        }
        let measured: u64 =
            intervals.iter().filter(|(tag, ..)| !tag).map(|(.., histogram)| histogram.len()).sum();
        assert_eq!(measured, outcome.latency.count());
        let (start, base) = (start.expect("start"), base.expect("base"));
        assert!((start.as_secs_f64() - outcome.began_unix_s).abs() < 0.001);
        assert_eq!((start - base).as_secs_f64().round(), 2.0);
    }

    #[test]
    fn an_empty_run_is_a_log_without_intervals() {
        assert!(read(&hlog(&sample::empty())).intervals.is_empty());
    }
}
