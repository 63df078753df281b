//! wrk: its command, the script that makes it pipeline and print exact counts, and what it prints.
//!
//! The latencies are wrk's own: it fills in, after the run, the requests that a stalled connection
//! did not send, from the mean time between two of them. With pipelining it times the batch.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::generator::Counted;
use super::load::Load;

/// Longer than any window; the run ends by an interrupt.
const DURATION: &str = "3600s";
/// The word before the figures.
const MARK: &str = "pollux-lab:";
/// What the script prints, in this order.
const PRINTED: &str = "requests, duration, connect, read, write, status, timeout, p50, p99, mean";

/// The command; its script is written into `folder`.
pub(super) fn command(
    program: &Path,
    load: &Load,
    url: &str,
    folder: &Path,
) -> io::Result<Command> {
    let path = folder.join(format!("wrk-{}.lua", load.pipeline));
    fs::write(&path, script(load.pipeline))?;
    let mut command = Command::new(program);
    command.args(["-t1", "-d", DURATION, "-c", &load.connections.to_string(), "-s"]).arg(&path);
    if !load.is_kept_alive {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(url);
    Ok(command)
}

fn script(pipeline: usize) -> String {
    let batch = match pipeline {
        // Without a request function wrk sends one constant request.
        1 => String::new(),
        _ => format!(
            "local batch\n\
             function init(args)\n\
             \x20 local one = wrk.format()\n\
             \x20 batch = string.rep(one, {pipeline})\n\
             end\n\
             function request()\n\
             \x20 return batch\n\
             end\n"
        ),
    };
    format!(
        "-- {PRINTED}\n{batch}\
         function done(summary, latency, requests)\n\
         \x20 local e = summary.errors\n\
         \x20 io.write(string.format(\"{MARK} %d %d %d %d %d %d %d %d %d %d\\n\",\n\
         \x20   summary.requests, summary.duration, e.connect, e.read, e.write, e.status, e.timeout,\n\
         \x20   latency:percentile(50), latency:percentile(99), latency.mean))\n\
         end\n"
    )
}

/// What the script printed.
pub(super) fn read(text: &str) -> Option<Counted> {
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    let words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let numbers = words.collect::<Option<Vec<u64>>>()?;
    let [requests, duration_us, errors @ .., p50_us, p99_us, mean_us] = numbers.as_slice() else {
        return None;
    };
    Some(Counted {
        requests: *requests,
        elapsed: Duration::from_micros(*duration_us),
        failed: errors.iter().sum(),
        figures: BTreeMap::from([
            ("latency_p50_us".to_owned(), *p50_us as f64),
            ("latency_p99_us".to_owned(), *p99_us as f64),
            ("latency_mean_us".to_owned(), *mean_us as f64),
        ]),
        findings: BTreeMap::new(),
        described: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_script_is_read() {
        let text = "Running 1h test\npollux-lab: 190000 1000123 0 1 0 0 2 310 905 340\n";
        let counted = read(text).expect("the figures");
        assert_eq!((counted.requests, counted.failed), (190_000, 3));
        assert_eq!(counted.elapsed, Duration::from_micros(1_000_123));
        assert_eq!(counted.figures["latency_p99_us"], 905.0);
        assert_eq!(counted.figures["latency_mean_us"], 340.0);
        assert_eq!(read("unable to connect to 127.0.0.1:1 Connection refused\n"), None);
        assert_eq!(read("pollux-lab: 1 2 three\n"), None);
    }

    #[test]
    fn only_a_pipelining_script_makes_requests() {
        assert!(!script(1).contains("function request"));
        assert!(script(16).contains("string.rep(one, 16)"));
        assert!(script(16).contains(MARK));
    }
}
