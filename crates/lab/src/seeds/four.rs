//! The test of EPOLLEXCLUSIVE of 2015: a bank client with ten threads, 250 copies of its server on
//! one message queue.
//!
//! Its figures stand beside those of bare queues at 250 workers, and beside those of our service
//! pool with the same client and server, which is what the document had on both sides of its queue:
//! for a window of time, and for the document's own test with its number of calls.

use super::{Figure, Here, Place, Seed, Series, Setting};
use crate::experiment::Experiment;

/// Calls that its client made in each of the two runs.
const CALLS: f64 = 1_000_000.0;
/// Wall time of the client, without EPOLLEXCLUSIVE and with it.
const REAL_S: [f64; 2] = [14.0 * 60.0 + 20.561, 24.953];
/// CPU time of the client in user mode.
const USER_S: [f64; 2] = [21.823, 17.497];
/// And in the kernel.
const SYS_S: [f64; 2] = [10.0 * 60.0 + 49.821, 4.445];
/// Both.
const CPU_S: [f64; 2] = [USER_S[0] + SYS_S[0], USER_S[1] + SYS_S[1]];

/// What it published.
pub(super) const SEED: Seed = Seed {
    number: 4,
    title: "EPOLLEXCLUSIVE with 250 servers on one POSIX queue, Enduro/X, December 2015",
    jobs: &["seed4"],
    settings: &[
        Setting {
            name: "machine",
            theirs: "Core i7-2620M at 2.7 GHz, two CPUs of it for a VirtualBox 4.3 guest with 5 GB",
            ours: Here::Fact("CPU"),
        },
        Setting {
            name: "kernel",
            theirs: "Linux 4.3.0 with the patch of EPOLLEXCLUSIVE, which came with 4.5",
            ours: Here::Fact("kernel"),
        },
        Setting {
            name: "servers",
            theirs: "250 copies of a bank server on Enduro/X 2.3.2, each with an epoll instance on \
                     the shared queue and its own admin queue",
            ours: Here::Words(
                "as many processes on bare queues, each with an epoll instance on the shared queue and \
                 the end of the run (in C on the queue alone); copies of a bank server in the service \
                 pool, each with one on the shared queue and its link to the manager",
            ),
        },
        Setting {
            name: "client",
            theirs: "one process, ten threads, 100,000 synchronous calls each, typed buffers",
            ours: Here::Words(
                "one process, ten threads, synchronous calls: 128 bytes each way on bare queues, \
                 typed buffers in the pool; for the window, or where the point says so for that \
                 many calls each",
            ),
        },
        Setting {
            name: "runs",
            theirs: "one for each setting",
            ours: Here::Words("one in each block, in random order, and the baseline twice"),
        },
    ],
    remarks: &[
        "Calls per second are its 1,000,000 calls over the wall time of its client: 14m20.561s \
         without the flag, 24.953s with it, a ratio of 34.5. Its \"3500 %\" is that ratio.",
        "Its client's system time fell from 10m49.821s to 4.445s: the kernel wakes all 250 servers in \
         the time of the thread that sends, until it is taken off the CPU. How much of that is booked \
         there and how much with the servers is the scheduler's choice.",
        "Its servers do more for a call than those on bare queues, who only answer it. The pool is the \
         closer counterpart: its client fills a typed buffer for each call, its server reads two \
         fields and adds one.",
        "By the kernel's source (ipc/mqueue.c) a receive, too, wakes somebody who watches the queue, as \
         there is room now, and an exclusive watcher can't refuse that; a receive that blocks is not \
         woken by it. How often workers did switch for a call here stands in \"workers and calls\".",
        "Times of 1,000,000 calls are those of the client's process between its first request and its \
         last answer; `time` also has its start and end. Where fewer calls were made they are scaled.",
    ],
    series: &[
        time("real time of 1,000,000 calls, service pool", "real_s_per_million_calls", &TIMED[0]),
        time("user time of its client", "user_s_per_million_calls", &TIMED[1]),
        time("system time of its client", "sys_s_per_million_calls", &TIMED[2]),
        Series {
            name: "calls/s with 250 servers, bare queues",
            unit: "calls/s",
            experiment: Experiment::Herd,
            figure: Figure::Value,
            claim: None,
            places: &[
                place("plain epoll", "epoll", CALLS / REAL_S[0]),
                place("EPOLLEXCLUSIVE", "exclusive", CALLS / REAL_S[1]),
            ],
        },
        Series {
            name: "calls/s with 250 servers, service pool",
            unit: "calls/s",
            experiment: Experiment::Herd,
            figure: Figure::Value,
            claim: None,
            places: &[
                place("plain epoll", "pool-epoll", CALLS / REAL_S[0]),
                place("EPOLLEXCLUSIVE", "pool", CALLS / REAL_S[1]),
            ],
        },
        Series {
            name: "client's CPU time for each call with 250 servers, bare queues",
            unit: "µs/call",
            experiment: Experiment::Herd,
            figure: Figure::OfRuns("caller_us_per_call", 1.0),
            claim: None,
            places: &[
                place("plain epoll", "epoll", CPU_S[0] / CALLS * 1e6),
                place("EPOLLEXCLUSIVE", "exclusive", CPU_S[1] / CALLS * 1e6),
            ],
        },
        Series {
            name: "client's CPU time for each call with 250 servers, service pool",
            unit: "µs/call",
            experiment: Experiment::Herd,
            figure: Figure::OfRuns("caller_us_per_call", 1.0),
            claim: None,
            places: &[
                place("plain epoll", "pool-epoll", CPU_S[0] / CALLS * 1e6),
                place("EPOLLEXCLUSIVE", "pool", CPU_S[1] / CALLS * 1e6),
            ],
        },
    ],
};

/// What `time` showed: real, user and system time without the flag and with it.
const TIMED: [[Place; 2]; 3] = [timed(REAL_S), timed(USER_S), timed(SYS_S)];

const fn time(name: &'static str, figure: &'static str, places: &'static [Place]) -> Series {
    let figure = Figure::OfRuns(figure, 1.0);
    Series { name, unit: "s", experiment: Experiment::Herd, figure, claim: None, places }
}

const fn timed([plain, exclusive]: [f64; 2]) -> [Place; 2] {
    [
        Place { axes: PLAIN_CALLS, ..place("plain epoll", "pool-epoll", plain) },
        Place { axes: EXCLUSIVE_CALLS, ..place("EPOLLEXCLUSIVE", "pool", exclusive) },
    ]
}

const EXCLUSIVE_CALLS: &[(&str, &str)] =
    &[("source", "queue"), ("workers", "250"), ("callers", "10"), ("calls", "100000")];
/// A hundredth: 1,000,000 calls would take minutes.
const PLAIN_CALLS: &[(&str, &str)] =
    &[("source", "queue"), ("workers", "250"), ("callers", "10"), ("calls", "1000")];

const fn place(name: &'static str, arm: &'static str, published: f64) -> Place {
    const AXES: &[(&str, &str)] = &[("source", "queue"), ("workers", "250"), ("callers", "10")];
    Place { name, arm, axes: AXES, published: Some(published) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_their_ratio_are_those_of_the_document() {
        let rates = REAL_S.map(|real_s| (CALLS / real_s).round());
        assert_eq!(rates, [1162.0, 40_075.0]);
        assert_eq!((REAL_S[0] / REAL_S[1] * 10.0).round() / 10.0, 34.5);
    }
}
