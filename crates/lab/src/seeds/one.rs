//! The sys_epoll page of 2002: pipetest over pipes, dphttpd over dead connections.
//!
//! Its curves are pictures that are lost; what its text says of them is put beside ours.

use super::agree::Trend;
use super::{Figure, Here, Place, Seed, Series, Setting};
use crate::experiment::Experiment;

/// What the page reports of /dev/epoll: that dead connections make no difference to it, however many.
/// Of sys_epoll it says that it does as well.
macro_rules! flat {
    ($name:literal, $unit:literal, $figure:expr) => {
        Series {
            name: $name,
            unit: $unit,
            experiment: Experiment::Http,
            figure: $figure,
            claim: Some(Trend::Stays),
            places: &[
                dead!("0", "epoll-et", "0"),
                dead!("1000", "epoll-et", "1000"),
                dead!("5000", "epoll-et", "5000"),
                dead!("18000", "epoll-et", "18000"),
                dead!("60000", "epoll-et", "60000"),
            ],
        }
    };
}

/// Its conclusion: with large numbers of connections sys_epoll scales better than the others.
macro_rules! beats {
    ($name:literal, $unit:literal, $experiment:ident, $figure:expr, $low:expr, $high:expr) => {
        Series {
            name: $name,
            unit: $unit,
            experiment: Experiment::$experiment,
            figure: $figure,
            claim: Some(Trend::Rises),
            places: &[$low, $high],
        }
    };
}

/// Passes per second, of one that lost and of sys_epoll.
macro_rules! pipes {
    ($name:literal, $pipes:literal, $loser:literal, $arm:literal) => {
        beats!(
            $name,
            "passes/s",
            Pipes,
            Figure::Value,
            pipe!($loser, $arm, $pipes),
            pipe!("sys_epoll", "epoll-et", $pipes)
        )
    };
}

macro_rules! pipe {
    ($name:literal, $arm:literal, $pipes:literal) => {
        Place {
            name: $name,
            arm: $arm,
            axes: &[("rule", "hopping"), ("pipes", $pipes)],
            published: None,
        }
    };
}

macro_rules! dead {
    ($name:literal, $arm:literal, $dead:literal) => {
        Place {
            name: $name,
            arm: $arm,
            axes: &[("connections", "100"), ("dead", $dead)],
            published: None,
        }
    };
}

/// Reply rates, which rise from poll to sys_epoll.
macro_rules! replies {
    ($name:literal, $dead:literal) => {
        beats!(
            $name,
            "replies/s",
            Http,
            REPLIES,
            dead!("poll", "poll", $dead),
            dead!("sys_epoll", "epoll-et", $dead)
        )
    };
}

/// What stands behind them, which rises from sys_epoll to poll.
macro_rules! costs {
    ($name:literal, $dead:literal) => {
        beats!(
            $name,
            "µs/request",
            Http,
            Figure::CpuUs,
            dead!("sys_epoll", "epoll-et", $dead),
            dead!("poll", "poll", $dead)
        )
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
         beside ours but which way its curves go by its words: sys_epoll scales better than poll \
         and AIO poll with many connections, and as well as /dev/epoll, to which dead connections \
         make no difference.",
        "It says nothing of a level curve over pipes, so none is put beside ours, and not from \
         which number on sys_epoll is better, so the upper parts of its axes are. AIO poll was run \
         in pipetest only, and /dev/epoll is no more.",
        "Its httperf asks with --rate 100 for 100 connections in the first second, not for a rate \
         of requests: each then sends its next call behind the last reply. So its reply rate is \
         that of a saturated server, and goes as one over the server's CPU time for each request.",
        "With few CPUs our reply rate is that of the generator as long as the server is faster; \
         such rates are not judged. Beside them stands the server's CPU time for each request: that \
         it is what the page's rates showed is our inference, and its curve goes the other way.",
        "sys_epoll of that month told of changes and not of states, so epoll-et stands for it.",
        "300 passes take less than a millisecond today; here passes are counted for a window.",
    ],
    series: &[
        pipes!("passes/s with 8,000 pipes", "8000", "poll", "poll"),
        pipes!("passes/s with 16,000 pipes", "16000", "poll", "poll"),
        pipes!("passes/s with 8,000 pipes", "8000", "AIO poll", "aio"),
        pipes!("passes/s with 16,000 pipes", "16000", "AIO poll", "aio"),
        flat!("replies/s over dead connections, sys_epoll", "replies/s", REPLIES),
        flat!("server CPU over dead connections, sys_epoll", "µs/request", Figure::CpuUs),
        replies!("replies/s beside 18,000 dead connections", "18000"),
        replies!("replies/s beside 60,000 dead connections", "60000"),
        costs!("server CPU beside 18,000 dead connections", "18000"),
        costs!("server CPU beside 60,000 dead connections", "60000"),
    ],
};

const REPLIES: Figure = Figure::OfRuns("requests_per_s", 1.0);
