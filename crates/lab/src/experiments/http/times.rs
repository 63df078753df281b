//! What a server of pollux shows of itself at its metrics page: what its loop counted, and how long requests took inside.
//!
//! The server listens for that at a socket in the run's private folder, on a thread that sleeps until it is asked. The
//! page is read right before and right after the window; the difference is what the window had. In no
//! other pass is anything timed in the server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::MeasureError;
use crate::record::{RequestTimes, TimeBucket};

/// Of the histogram on the page.
const NAME: &str = "pollux_http_request_seconds";
const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n";
/// Counters of loop and poller that are read, and their names in results: the poller's own.
const COUNTED: [(&str, &str); 10] = [
    ("pollux_poller_waits_total", "waits"),
    ("pollux_poller_events_total", "events"),
    ("pollux_poller_updates_sent_total", "updates_sent"),
    ("pollux_poller_rearms_total", "rearms"),
    ("pollux_poller_descriptors_handed_total", "descriptors_handed"),
    ("pollux_loop_ring_enters_total", "ring_enters"),
    ("pollux_loop_completions_total", "completions"),
    ("pollux_loop_buffer_starvations_total", "buffer_starvations"),
    ("pollux_loop_receives_total", "receives"),
    ("pollux_loop_bytes_in_total", "bytes_in"),
];
const PAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Far longer than the page of a server with one loop.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// Where a server shows its times.
pub(super) struct TimesSocket(PathBuf);

impl TimesSocket {
    /// A name of its own for this run.
    pub(super) fn below(scratch: &Path) -> Self {
        Self(scratch.join(format!("times-{}.sock", std::process::id())))
    }

    /// As the server's `--stats` takes it.
    pub(super) fn listen(&self) -> String {
        format!("unix:{}", self.0.display())
    }

    /// The server's counters, each over all its loops.
    pub(super) fn counters(&self) -> Result<BTreeMap<String, u64>, MeasureError> {
        let page = self.page().map_err(unread)?;
        let mut counters = BTreeMap::new();
        for line in page.lines().filter(|line| line.starts_with("pollux_")) {
            let (Some((name, _)), Some((_, value))) = (line.split_once('{'), line.rsplit_once(' '))
            else {
                continue;
            };
            *counters.entry(name.to_owned()).or_default() +=
                value.parse::<u64>().unwrap_or_default();
        }
        Ok(counters)
    }

    /// What its loops and pollers have counted so far, by the names of results; empty where the page can't be read, as
    /// that of an older build.
    pub(super) fn counted(&self) -> BTreeMap<String, u64> {
        let on_page = self.counters().unwrap_or_default();
        let counted = COUNTED.iter().filter_map(|(on, name)| Some((*name, on_page.get(*on)?)));
        counted.map(|(name, count)| (name.to_owned(), *count)).collect()
    }

    /// What the server has timed so far.
    pub(super) fn read(&self) -> Result<Cumulated, MeasureError> {
        let page = self.page().map_err(unread)?;
        match fault(&page) {
            Some(fault) => Err(unread(std::io::Error::other(fault))),
            None => Ok(Cumulated::on(&page)),
        }
    }

    fn page(&self) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(PAGE_PATIENCE))?;
        stream.set_write_timeout(Some(PAGE_PATIENCE))?;
        stream.write_all(REQUEST)?;
        let mut page = String::new();
        stream.take(PAGE_BYTES_MAX).read_to_string(&mut page)?;
        Ok(page)
    }
}

fn unread(cause: std::io::Error) -> MeasureError {
    MeasureError::Setup { what: "the server's metrics page".to_owned(), cause }
}

/// Why a page can't be believed: no times on it would look like no requests.
fn fault(page: &str) -> Option<String> {
    let status = page.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Some(format!("answered \"{status}\" instead of a page"));
    }
    (!page.contains(NAME)).then(|| format!("says nothing of {NAME}: another version?"))
}

impl Drop for TimesSocket {
    fn drop(&mut self) {
        // The server may have removed it itself.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Requests since the start of the server, over all its loops.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cumulated {
    /// End of a bucket in nanoseconds, and the requests in that bucket alone.
    buckets: BTreeMap<u64, u64>,
    sum_ns: f64,
}

impl Cumulated {
    /// What stands on a page; nothing where nothing was timed yet.
    fn on(page: &str) -> Self {
        let mut found = Self::default();
        let mut below: BTreeMap<&str, u64> = BTreeMap::new();
        for line in page.lines().filter_map(|line| line.strip_prefix(NAME)) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if series.starts_with("_sum") {
                found.sum_ns += value * 1e9;
            }
            let (Some(of_loop), Some(end)) = (label(series, "loop"), label(series, "le")) else {
                continue;
            };
            // Rising within each loop; each line counts all below its end.
            let before = below.insert(of_loop, value as u64).unwrap_or_default();
            if let Some(end_ns) = end.parse::<f64>().ok().filter(|end| end.is_finite()) {
                let here = (value as u64).saturating_sub(before);
                *found.buckets.entry((end_ns * 1e9).round() as u64).or_default() += here;
            }
        }
        found
    }

    /// What came since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let since = |(end, count): (&u64, &u64)| {
            (*end, count.saturating_sub(earlier.buckets.get(end).copied().unwrap_or_default()))
        };
        Self {
            buckets: self.buckets.iter().map(since).collect(),
            sum_ns: (self.sum_ns - earlier.sum_ns).max(0.0),
        }
    }
}

impl From<Cumulated> for RequestTimes {
    fn from(cumulated: Cumulated) -> Self {
        let Cumulated { buckets, sum_ns } = cumulated;
        let filled = buckets.into_iter().filter(|(_, requests)| *requests > 0);
        let buckets: Vec<TimeBucket> = filled
            .map(|(end, requests)| TimeBucket {
                from_ns: begin_ns(end) as f64,
                below_ns: end as f64,
                requests,
            })
            .collect();
        let requests = buckets.iter().map(|bucket| bucket.requests).sum();
        Self { requests, sum_ns, buckets }
    }
}

/// Where a bucket of the server begins that ends at `end` nanoseconds: buckets are quarters of
/// powers of two, and single nanoseconds below four.
fn begin_ns(end: u64) -> u64 {
    let last = end.saturating_sub(1);
    match last.checked_ilog2() {
        Some(power @ 2..) => end - (1 << (power - 2)),
        _ => last,
    }
}

fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = series.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "HTTP/1.1 200 OK\r\n\r\n\
        # HELP pollux_http_request_seconds From a head\n\
        pollux_http_request_seconds_bucket{loop=\"0\",le=\"0.000001024\"} 3\n\
        pollux_http_request_seconds_bucket{loop=\"0\",le=\"+Inf\"} 3\n\
        pollux_http_request_seconds_sum{loop=\"0\"} 0.000003\n\
        pollux_http_request_seconds_count{loop=\"0\"} 3\n";
    const AFTER: &str = "pollux_http_request_seconds_bucket{loop=\"0\",le=\"0.00000064\"} 2\n\
        pollux_http_request_seconds_bucket{loop=\"0\",le=\"0.000001024\"} 9\n\
        pollux_http_request_seconds_bucket{loop=\"0\",le=\"+Inf\"} 9\n\
        pollux_http_request_seconds_sum{loop=\"0\"} 0.000008\n\
        pollux_http_request_seconds_bucket{loop=\"1\",le=\"0.000001024\"} 1\n\
        pollux_http_request_seconds_sum{loop=\"1\"} 0.000001\n";

    #[test]
    fn the_window_has_what_the_second_page_has_more() {
        let times: RequestTimes = Cumulated::on(AFTER).since(&Cumulated::on(BEFORE)).into();
        assert_eq!(times.requests, 2 + (7 - 3) + 1);
        assert!((times.sum_ns - 6000.0).abs() < 1e-6, "{times:?}");
        let ends: Vec<_> =
            times.buckets.iter().map(|b| (b.from_ns, b.below_ns, b.requests)).collect();
        assert_eq!(ends, [(512.0, 640.0, 2), (896.0, 1024.0, 5)]);
    }

    #[test]
    fn an_error_page_is_not_taken_for_a_server_without_requests() {
        assert_eq!(fault(BEFORE), None);
        let idle = "HTTP/1.1 200 OK\r\n\r\n# pollux_http_request_seconds: n/a\n";
        assert_eq!(fault(idle), None, "nothing was timed yet");
        assert!(fault("HTTP/1.1 404 Not Found\r\n\r\n").is_some_and(|why| why.contains("404")));
        assert!(fault("").is_some());
        assert!(fault("HTTP/1.1 200 OK\r\n\r\nup 1\n").is_some_and(|why| why.contains(NAME)));
    }

    #[test]
    fn a_page_without_times_has_none() {
        let page = "# pollux_http_request_seconds: n/a without --request-times\n";
        assert_eq!(Cumulated::on(page), Cumulated::default());
    }

    #[test]
    fn buckets_begin_where_those_before_them_end() {
        for (end, begin) in [(1, 0), (4, 3), (5, 4), (8, 7), (10, 8), (1024, 896), (1280, 1024)] {
            assert_eq!(begin_ns(end), begin, "{end}");
        }
    }
}
