//! The sys_epoll page of 2002: pipetest over pipes, dphttpd over dead connections.
//!
//! Its curves are pictures that are lost; what its text says of them is put beside ours.

use super::agree::Trend;
use super::{Figure, Here, Place, Seed, Series, Setting};
use crate::experiment::Experiment;

/// "Scales linearly regardless of the load as defined by the number of dead connections."
macro_rules! flat {
    ($name:literal, $unit:literal, $experiment:expr, $figure:expr, $held:expr,
     $axis:literal, [$($value:literal),+]) => {
        Series {
            name: $name,
            unit: $unit,
            experiment: $experiment,
            figure: $figure,
            claim: Some(Trend::Stays),
            places: &[$(Place {
                name: $value,
                arm: "epoll",
                axes: &[$held, ($axis, $value)],
                published: None,
            }),+],
        }
    };
}

/// "Scales better than poll and AIO poll for large numbers of connections."
macro_rules! beats {
    ($name:literal, $unit:literal, $experiment:expr, $figure:expr, $held:expr,
     $axis:literal, $value:literal, $loser:literal, $arm:literal) => {
        Series {
            name: $name,
            unit: $unit,
            experiment: $experiment,
            figure: $figure,
            claim: Some(Trend::Rises),
            places: &[
                Place { name: $loser, arm: $arm, axes: &[$held, ($axis, $value)], published: None },
                Place {
                    name: "sys_epoll",
                    arm: "epoll",
                    axes: &[$held, ($axis, $value)],
                    published: None,
                },
            ],
        }
    };
}

/// What the page says.
pub(super) const SEED: Seed = Seed {
    number: 1,
    title: "the sys_epoll page, October 2002",
    jobs: &["seed1", "dead"],
    settings: &[
        Setting {
            name: "machine",
            theirs: "8 PIII Xeon at 700 MHz (dphttpd) or 900 MHz (pipetest), or one processor",
            ours: Here::Fact("CPU"),
        },
        Setting { name: "kernel", theirs: "Linux 2.5.44, patched", ours: Here::Fact("kernel") },
        Setting {
            name: "client",
            theirs: "httperf and deadconn_last on a machine of their own",
            ours: Here::Words("on another CPU of the same machine; none for pipes"),
        },
        Setting {
            name: "load",
            theirs: "100 connections, 20,000 calls each; 300 passes of one token",
            ours: Here::Words("100 connections, or one token, for a window of time"),
        },
        Setting {
            name: "server",
            theirs: "dphttpd, patched for each mechanism",
            ours: Here::Words("one server, and only its mechanism changes"),
        },
    ],
    remarks: &[
        "The pictures of the page are lost and its text has no figures, so there is nothing to put \
         beside ours but which way its curves go by its words: sys_epoll does as well with many \
         connections as with few, and better than poll and AIO poll.",
        "Its httperf asks with --rate 100 for 100 connections in the first second, not for a rate \
         of requests: each then sends its next call behind the last reply. So its reply rate is \
         that of a saturated server, as here.",
        "On a machine with few CPUs our reply rate is that of the generator as long as the server \
         is faster; what dead connections cost is its CPU time for each request, in the results.",
        "300 passes take less than a millisecond today; here passes are counted for a window.",
    ],
    series: &[
        flat!(
            "passes/s over pipes, sys_epoll",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            ["1000", "2000", "4000", "8000", "16000"]
        ),
        beats!(
            "passes/s with 1,000 pipes",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            "1000",
            "poll",
            "poll"
        ),
        beats!(
            "passes/s with 8,000 pipes",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            "8000",
            "poll",
            "poll"
        ),
        beats!(
            "passes/s with 16,000 pipes",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            "16000",
            "poll",
            "poll"
        ),
        beats!(
            "passes/s with 1,000 pipes",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            "1000",
            "AIO poll",
            "aio"
        ),
        beats!(
            "passes/s with 8,000 pipes",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            "8000",
            "AIO poll",
            "aio"
        ),
        beats!(
            "passes/s with 16,000 pipes",
            "passes/s",
            PIPES,
            Figure::Value,
            ("rule", "hopping"),
            "pipes",
            "16000",
            "AIO poll",
            "aio"
        ),
        flat!(
            "replies/s over dead connections, sys_epoll",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            ["0", "1000", "5000", "18000", "60000"]
        ),
        beats!(
            "replies/s beside 1,000 dead connections",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            "1000",
            "poll",
            "poll"
        ),
        beats!(
            "replies/s beside 18,000 dead connections",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            "18000",
            "poll",
            "poll"
        ),
        beats!(
            "replies/s beside 60,000 dead connections",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            "60000",
            "poll",
            "poll"
        ),
        beats!(
            "replies/s beside 1,000 dead connections",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            "1000",
            "AIO poll",
            "aio"
        ),
        beats!(
            "replies/s beside 18,000 dead connections",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            "18000",
            "AIO poll",
            "aio"
        ),
        beats!(
            "replies/s beside 60,000 dead connections",
            "replies/s",
            HTTP,
            REPLIES,
            ("connections", "100"),
            "dead",
            "60000",
            "AIO poll",
            "aio"
        ),
    ],
};

const PIPES: Experiment = Experiment::Pipes;
const HTTP: Experiment = Experiment::Http;
const REPLIES: Figure = Figure::OfRuns("requests_per_s", 1.0);
