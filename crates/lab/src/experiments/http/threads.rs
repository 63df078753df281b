//! The threads of the kernel that work for a server on a ring: they belong to its process, so their CPU time is in its
//! own, and are distinguished here by their names.
//!
//! `iou-sqp-PID` submits for a ring (SQPOLL) and spins for a while before it sleeps; `iou-wrk-PID` are workers of io-wq,
//! which a network server should have none of.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the thread that submits may take to fall asleep: its idle time is at least a tick of the kernel.
const SLEEP_PATIENCE: Duration = Duration::from_millis(50);
/// Between two looks at it.
const LOOK: Duration = Duration::from_micros(200);
const SUBMITTER: &str = "iou-sqp-";
const WORKER: &str = "iou-wrk-";

/// What the threads of the kernel in some processes have used.
#[derive(Debug, Default, PartialEq)]
pub(super) struct KernelThreads {
    submitters: Duration,
    workers: Duration,
    workers_count: usize,
    /// Where the submitting threads may run.
    cpus: Option<String>,
    /// Those of the submitting threads.
    folders: Vec<PathBuf>,
}

impl KernelThreads {
    /// Those among `threads`, each with its process.
    pub(super) fn among(threads: &[(u32, u32)]) -> Self {
        let mut all = Self::default();
        for (pid, tid) in threads {
            let folder = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
            // One that ends meanwhile has used what it has used; the clock of the process has it.
            let Ok(name) = fs::read_to_string(folder.join("comm")) else { continue };
            let used = used(&fs::read_to_string(folder.join("schedstat")).unwrap_or_default());
            if name.starts_with(SUBMITTER) {
                all.submitters += used;
                all.cpus = fs::read_to_string(folder.join("status")).ok().and_then(|s| cpus(&s));
                all.folders.push(folder);
            } else if name.starts_with(WORKER) {
                all.workers += used;
                all.workers_count += 1;
            }
        }
        all
    }

    /// Waits until those that submit sleep, or for so long as they may take.
    pub(super) fn wait_until_asleep(&self) {
        let start = Instant::now();
        let spins = |folder: &PathBuf| {
            let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
        };
        while self.folders.iter().any(spins) && start.elapsed() < SLEEP_PATIENCE {
            std::thread::sleep(LOOK);
        }
    }

    /// Figures of the time since `before`, of `all` that the server used for so many requests; empty where there are
    /// no such threads.
    pub(super) fn figures(
        &self,
        before: &Self,
        all: Duration,
        requests: u64,
    ) -> Vec<(String, f64)> {
        if self.folders.is_empty() && self.workers_count == 0 {
            return Vec::new();
        }
        let [main, submitters, workers] = self.parts(before, all);
        let us = |time: Duration| time.as_nanos() as f64 / 1e3 / requests.max(1) as f64;
        vec![
            ("main_us_per_request".to_owned(), us(main)),
            ("iou_sqp_us_per_request".to_owned(), us(submitters)),
            ("iou_wrk_us_per_request".to_owned(), us(workers)),
            ("iou_wrk_threads".to_owned(), self.workers_count as f64),
        ]
    }

    /// What is to be said of them, by kind.
    ///
    /// Of the time they say shares: what a request costs stands in the row, as a statistic over turns that no sum here
    /// would equal.
    pub(super) fn findings(
        &self,
        before: &Self,
        all: Duration,
        requests: u64,
        server_cpu: usize,
    ) -> Vec<(String, String)> {
        let [main, submitters, workers] = self.parts(before, all);
        let mut findings = Vec::new();
        if !self.folders.is_empty() {
            let cpus = self.cpus.as_deref().unwrap_or("unknown");
            let place = match cpus.parse::<usize>() {
                Ok(cpu) if server_cpu == cpu => {
                    format!("CPU {cpu}, that of the server: they share it")
                }
                _ => format!("CPUs {cpus}, not only that of the server ({server_cpu})"),
            };
            let sum = (main + workers + submitters).as_secs_f64().max(f64::MIN_POSITIVE);
            let share = |part: Duration| 100.0 * part.as_secs_f64() / sum;
            let text = format!(
                "of its CPU time {:.0} % is main and {:.0} % iou-sqp; the thread that submits may run on {place}",
                share(main + workers),
                share(submitters)
            );
            findings.push(("iou-sqp".to_owned(), text));
        }
        if self.workers_count > 0 {
            let us = workers.as_nanos() as f64 / 1e3 / requests.max(1) as f64;
            let text = format!(
                "warning: {} of its threads are workers of io-wq (iou-wrk), {:.1} µs for each request: \
                 requests that should not block were handed to them",
                self.workers_count, us
            );
            findings.push(("iou-wrk".to_owned(), text));
        }
        findings
    }

    /// The time of the other threads, of those that submit, and of workers.
    fn parts(&self, before: &Self, all: Duration) -> [Duration; 3] {
        let submitters = self.submitters.saturating_sub(before.submitters);
        let workers = self.workers.saturating_sub(before.workers);
        [all.saturating_sub(submitters + workers), submitters, workers]
    }
}

/// CPU time in `schedstat`: its first field, in nanoseconds.
fn used(schedstat: &str) -> Duration {
    let ns = schedstat.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

/// The CPUs on which a thread may run, of its `status`.
fn cpus(status: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_server_is_divided_by_its_threads() {
        let ms = Duration::from_millis;
        let after = KernelThreads {
            submitters: ms(24),
            workers: ms(1),
            workers_count: 2,
            cpus: Some("0".to_owned()),
            folders: vec![PathBuf::from("/proc/1/task/2")],
        };
        let before = KernelThreads { submitters: ms(4), ..KernelThreads::default() };
        let findings = after.findings(&before, ms(51), 10_000, 0);
        let expected = "of its CPU time 61 % is main and 39 % iou-sqp; the thread that submits may run on CPU 0, \
                        that of the server: they share it";
        assert_eq!(findings[0], ("iou-sqp".to_owned(), expected.to_owned()));
        // Its clock may be read later than that of the process.
        let late = after.findings(&before, ms(19), 10_000, 0);
        assert!(late[0].1.starts_with("of its CPU time 5 % is main and 95 % iou-sqp"), "{late:?}");
        assert!(findings[1].1.starts_with("warning: 2 of its threads are workers of io-wq"));
        let elsewhere = after.findings(&before, ms(51), 10_000, 1);
        assert!(elsewhere[0].1.ends_with("may run on CPUs 0, not only that of the server (1)"));
        let figures = after.figures(&before, ms(51), 10_000);
        assert_eq!(figures[1], ("iou_sqp_us_per_request".to_owned(), 2.0));
        assert!(KernelThreads::default().figures(&before, ms(1), 1).is_empty());
    }

    #[test]
    fn fields_of_the_kernel_are_read() {
        assert_eq!(used("62000000 12 3\n"), Duration::from_millis(62));
        assert_eq!(used(""), Duration::ZERO);
        assert_eq!(cpus("Name:\tx\nCpus_allowed_list:\t0-1\n").as_deref(), Some("0-1"));
        let own = (std::process::id(), std::process::id());
        assert_eq!(KernelThreads::among(&[own]), KernelThreads::default(), "a thread of our own");
    }
}
