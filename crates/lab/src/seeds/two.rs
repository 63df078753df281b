//! The comparison of epoll and io_uring of 2020: sehttpd under ab with 100 to 1000 connections.
//!
//! Its server sends head and body in two writes, so its figures stand beside ours at
//! `reply = "split"`.

use super::{Figure, Here, Place, Seed, Series, Setting};
use crate::experiment::Experiment;

/// A series over the numbers of connections, on one mechanism.
macro_rules! curve {
    ($name:literal, $unit:literal, $figure:expr, $arm:literal, $keep:ident,
     [$a:literal, $b:literal, $c:literal, $d:literal, $e:literal]) => {
        Series {
            name: $name,
            unit: $unit,
            experiment: Experiment::Http,
            figure: $figure,
            claim: None,
            places: &[
                place!("100", $arm, "100", $keep, $a),
                place!("300", $arm, "300", $keep, $b),
                place!("500", $arm, "500", $keep, $c),
                place!("800", $arm, "800", $keep, $d),
                place!("1000", $arm, "1000", $keep, $e),
            ],
        }
    };
}

/// Both mechanisms at a thousand connections, as its perf stat was run.
macro_rules! bars {
    ($name:literal, $unit:literal, $figure:expr, $keep:ident, $epoll:literal, $uring:literal) => {
        Series {
            name: $name,
            unit: $unit,
            experiment: Experiment::Http,
            figure: $figure,
            claim: None,
            places: &[
                place!("epoll", "epoll-et", "1000", $keep, $epoll),
                place!("io_uring", "uring", "1000", $keep, $uring),
            ],
        }
    };
}

macro_rules! place {
    ($name:literal, $arm:literal, $connections:literal, $keep:ident, $published:literal) => {
        Place {
            name: $name,
            arm: $arm,
            axes: &[("connections", $connections), $keep, SPLIT],
            published: Some($published),
        }
    };
}

/// What it published.
pub(super) const SEED: Seed = Seed {
    number: 2,
    title: "epoll against io_uring, sehttpd under ab, 2020",
    jobs: &["seed2"],
    settings: &[
        Setting {
            name: "machine",
            theirs: "Pentium 4500 at 3.5 GHz, 2 CPUs, one isolated for the server",
            ours: Here::Fact("CPU"),
        },
        Setting { name: "kernel", theirs: "Linux 5.8.0", ours: Here::Fact("kernel") },
        Setting {
            name: "client",
            theirs: "ab -n 100000 on another machine, over an external network: neither by a cable nor through a \
                     single switch",
            ours: Here::Generator,
        },
        Setting {
            name: "loops",
            theirs: "two servers: epoll, edge-triggered, armed again for each request; io_uring with \
                     single-shot accepts and a timeout linked to each receive",
            ours: Here::Words("one server: epoll-et, or uring with multishot accept and receive"),
        },
        Setting {
            name: "runs",
            theirs: "one for each; perf stat: five",
            ours: Here::Words("several in random order, and the baseline twice in each block"),
        },
    ],
    remarks: &[
        "Its kept connections stall: head and body are two writes without TCP_NODELAY, and the \
         second waits for the client's delayed acknowledgement. Its rate is connections / 44 ms on \
         io_uring and connections / 49 ms on epoll; with the same mistake ours is connections / 44 ms on both. Nothing about a mechanism \
         can be learnt from it.",
        "Its \"time per request\" is connections / rate by the definition of ab; ours is the \
         median latency that the generator saw.",
        "Its 1 % of failed requests on epoll are a bug: a request that crosses the end of its ring \
         buffer is never parsed, and an idle timer closes the connection.",
        "Its 101,220 page faults on epoll are one mmap of the file for each request; its io_uring \
         copy used sendfile. A memory pool, computed goto and missing timers differ as well, so \
         its gain is not io_uring's alone.",
        "Its plots of the time in do_request are pictures that are lost, and the slowest hundredth \
         was cut off; ours stand under \"inside the server\".",
        "Its perf stat counts the server's whole life and 100,000 requests; its elapsed times (and \
         CPUs utilized) depend on when it was stopped by hand, so they are not put beside ours.",
        "On a machine with few CPUs our rates without keep-alive are those of the generator; there \
         the server's CPU time for each request tells the mechanisms apart.",
    ],
    series: &[
        curve!(
            "requests/s over connections, kept, epoll",
            "requests/s",
            RATE,
            "epoll-et",
            KEPT,
            [2025.0, 6116.0, 10_364.0, 16_680.0, 20_382.0]
        ),
        curve!(
            "time per request over connections, kept, epoll",
            "ms",
            LATENCY_MS,
            "epoll-et",
            KEPT,
            [49.0, 49.0, 48.0, 48.0, 49.0]
        ),
        curve!(
            "requests/s over connections, kept, io_uring",
            "requests/s",
            RATE,
            "uring",
            KEPT,
            [2266.0, 6799.0, 11_336.0, 17_517.0, 22_522.0]
        ),
        curve!(
            "time per request over connections, kept, io_uring",
            "ms",
            LATENCY_MS,
            "uring",
            KEPT,
            [44.0, 44.0, 44.0, 46.0, 44.0]
        ),
        bars!(
            "requests/s with 1,000 connections, kept",
            "requests/s",
            RATE,
            KEPT,
            20_382.0,
            22_522.0
        ),
        curve!(
            "requests/s over connections, closed, epoll",
            "requests/s",
            RATE,
            "epoll-et",
            CLOSED,
            [44_147.0, 40_492.0, 42_380.0, 42_382.0, 42_158.0]
        ),
        curve!(
            "time per request over connections, closed, epoll",
            "ms",
            LATENCY_MS,
            "epoll-et",
            CLOSED,
            [2.0, 7.0, 12.0, 19.0, 24.0]
        ),
        curve!(
            "requests/s over connections, closed, io_uring",
            "requests/s",
            RATE,
            "uring",
            CLOSED,
            [58_642.0, 57_408.0, 55_248.0, 54_008.0, 52_506.0]
        ),
        curve!(
            "time per request over connections, closed, io_uring",
            "ms",
            LATENCY_MS,
            "uring",
            CLOSED,
            [2.0, 5.0, 9.0, 15.0, 19.0]
        ),
        bars!(
            "requests/s with 1,000 connections, closed",
            "requests/s",
            RATE,
            CLOSED,
            42_158.0,
            52_506.0
        ),
        bars!(
            "task clock per request, 1,000 connections, kept",
            "µs/request",
            Figure::CpuUs,
            KEPT,
            23.18,
            15.33
        ),
        bars!(
            "context switches per request, 1,000 connections, kept",
            "per request",
            SWITCHES,
            KEPT,
            0.00876,
            0.01593
        ),
        bars!(
            "page faults per request, 1,000 connections, kept",
            "per request",
            FAULTS,
            KEPT,
            1.012,
            0.01391
        ),
        bars!(
            "cycles per request, 1,000 connections, kept",
            "per request",
            CYCLES,
            KEPT,
            80_470.0,
            53_170.0
        ),
        bars!(
            "instructions per request, 1,000 connections, kept",
            "per request",
            INSTRUCTIONS,
            KEPT,
            61_510.0,
            53_970.0
        ),
        bars!(
            "branches per request, 1,000 connections, kept",
            "per request",
            BRANCHES,
            KEPT,
            11_740.0,
            10_320.0
        ),
        bars!(
            "branch misses per request, 1,000 connections, kept",
            "per request",
            MISSES,
            KEPT,
            145.2,
            112.2
        ),
        bars!(
            "task clock per request, 1,000 connections, closed",
            "µs/request",
            Figure::CpuUs,
            CLOSED,
            36.58,
            29.32
        ),
        bars!(
            "context switches per request, 1,000 connections, closed",
            "per request",
            SWITCHES,
            CLOSED,
            0.00774,
            0.00627
        ),
        bars!(
            "page faults per request, 1,000 connections, closed",
            "per request",
            FAULTS,
            CLOSED,
            1.023,
            0.01134
        ),
        bars!(
            "cycles per request, 1,000 connections, closed",
            "per request",
            CYCLES,
            CLOSED,
            127_100.0,
            102_200.0
        ),
        bars!(
            "instructions per request, 1,000 connections, closed",
            "per request",
            INSTRUCTIONS,
            CLOSED,
            101_300.0,
            95_020.0
        ),
        bars!(
            "branches per request, 1,000 connections, closed",
            "per request",
            BRANCHES,
            CLOSED,
            19_230.0,
            17_920.0
        ),
        bars!(
            "branch misses per request, 1,000 connections, closed",
            "per request",
            MISSES,
            CLOSED,
            256.7,
            218.9
        ),
    ],
};

const RATE: Figure = Figure::OfRuns("requests_per_s", 1.0);
const LATENCY_MS: Figure = Figure::OfRuns("latency_p50_us", 0.001);
const SWITCHES: Figure = Figure::PerEvent(&["switches_voluntary", "switches_involuntary"]);
const FAULTS: Figure = Figure::PerEvent(&["page_faults"]);
const CYCLES: Figure = Figure::PerEvent(&["cycles"]);
const INSTRUCTIONS: Figure = Figure::PerEvent(&["instructions"]);
const BRANCHES: Figure = Figure::PerEvent(&["branches"]);
const MISSES: Figure = Figure::PerEvent(&["branch_misses"]);

const KEPT: (&str, &str) = ("keepalive", "true");
const CLOSED: (&str, &str) = ("keepalive", "false");
/// As sehttpd sends its replies.
const SPLIT: (&str, &str) = ("reply", "split");
