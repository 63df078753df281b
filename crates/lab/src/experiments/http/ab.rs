//! ab (ApacheBench): its command and what it prints.
//!
//! It speaks HTTP/1.0 and shows latencies in whole milliseconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::generator::Counted;
use super::load::Load;

/// More than ab itself can ask; ab keeps 40 bytes for each request that it is asked for.
const REQUESTS_PER_S: u64 = 200_000;

/// The command: more requests than fit into `time`, so that it is always ended by an interrupt.
pub(super) fn command(program: &Path, load: &Load, url: &str, time: Duration) -> Command {
    let requests = REQUESTS_PER_S * (time.as_secs() + 1) + load.connections as u64;
    let mut command = Command::new(program);
    command.args(["-q", "-r", "-n", &requests.to_string(), "-c", &load.connections.to_string()]);
    if load.is_kept_alive {
        command.arg("-k");
    }
    command.arg(url);
    command
}

/// What its report says.
pub(super) fn read(text: &str) -> Option<Counted> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let percentile = |name: &str| {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1000.0)
    };
    let latencies = [("latency_p50_us", percentile("50%")), ("latency_p99_us", percentile("99%"))];
    let latencies = latencies.into_iter().filter_map(|(name, us)| Some((name.to_owned(), us?)));
    Some(Counted {
        requests: number("Complete requests:")? as u64,
        elapsed: Duration::try_from_secs_f64(number("Time taken for tests:")?).ok()?,
        failed: (number("Failed requests:")? + number("Non-2xx responses:").unwrap_or(0.0)) as u64,
        figures: latencies.collect::<BTreeMap<_, _>>(),
        findings: BTreeMap::new(),
        described: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read() {
        let text = "Server Software:        raw\n\
                    Concurrency Level:      100\n\
                    Time taken for tests:   0.504 seconds\n\
                    Complete requests:      15004\n\
                    Failed requests:        2\n\
                    \x20  (Connect: 0, Receive: 0, Length: 2, Exceptions: 0)\n\
                    Non-2xx responses:      1\n\
                    Percentage of the requests served within a certain time (ms)\n\
                    \x20 50%      3\n  99%      7\n 100%     12 (longest request)\n";
        let counted = read(text).expect("a report");
        assert_eq!((counted.requests, counted.failed), (15_004, 3));
        assert_eq!(counted.elapsed, Duration::from_millis(504));
        assert_eq!(counted.figures["latency_p50_us"], 3000.0);
        assert_eq!(counted.figures["latency_p99_us"], 7000.0);
        assert_eq!(read("ab: invalid URL\n"), None);
    }
}
