//! The test of EPOLLEXCLUSIVE of 2015: a bank client with ten threads, 250 copies of its server on
//! one message queue.
//!
//! Its figures stand beside those of bare queues at 250 workers, and beside those of our service
//! pool with the same client and server, which is what the document had on both sides of its queue.

use super::{Figure, Here, Place, Seed, Series, Setting};
use crate::experiment::Experiment;

/// Calls that its client made in each of the two runs.
const CALLS: f64 = 1_000_000.0;
/// Wall time of the client, without EPOLLEXCLUSIVE and with it.
const REAL_S: [f64; 2] = [14.0 * 60.0 + 20.561, 24.953];
/// CPU time of the client, user and system together.
const CPU_S: [f64; 2] = [21.823 + 10.0 * 60.0 + 49.821, 17.497 + 4.445];

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
                "250 processes on bare queues, each with an epoll instance on the shared queue and \
                 the end of the run; 250 copies of a bank server in the service pool, each with one \
                 on the shared queue and its link to the manager",
            ),
        },
        Setting {
            name: "client",
            theirs: "one process, ten threads, 100,000 synchronous calls each, typed buffers",
            ours: Here::Words(
                "one process, ten threads, synchronous calls for the window: 128 bytes each way on \
                 bare queues, typed buffers in the pool",
            ),
        },
        Setting {
            name: "runs",
            theirs: "one for each setting",
            ours: Here::Words("several in random order, and the baseline twice in each block"),
        },
    ],
    remarks: &[
        "Calls per second are its 1,000,000 calls over the wall time of its client: 14m20.561s \
         without the flag, 24.953s with it, a ratio of 34.5. Its \"3500 %\" is that ratio.",
        "Its client's system time fell from 10m49.821s to 4.445s: the kernel wakes all 250 servers in \
         the time of the thread that sends, until it is taken off the CPU. How much of that is booked \
         there and how much with the servers is the scheduler's choice.",
        "Its servers do more for a call than those on bare queues, who only answer it. That is the \
         same with and without the flag, so bare queues show a larger ratio than a bank on the same \
         machine. The pool is the closer counterpart: its client fills a typed buffer for each call, its \
         server reads two fields and adds one.",
        "With EPOLLEXCLUSIVE a worker still wakes twice for each call: a receive tells everybody who \
         watches the queue that there is room now, and an exclusive watcher can't refuse that. A \
         receive that blocks wakes once.",
    ],
    series: &[
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
