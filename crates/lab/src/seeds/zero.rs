//! Dumazet's epoll_bench of 6 November 2006: three kinds of streams, and TCP without a poller.

use super::{Figure, Here, Place, Seed, Series, Setting};
use crate::experiment::Experiment;

/// What he published.
pub(super) const SEED: Seed = Seed {
    number: 0,
    title: "epoll_bench, 6 November 2006",
    jobs: &["seed0"],
    settings: &[
        Setting {
            name: "machine",
            theirs: "two Opteron 246 at 2 GHz, somewhat busy",
            ours: Here::Fact("CPU"),
        },
        Setting { name: "kernel", theirs: "Linux 2.6.18", ours: Here::Fact("kernel") },
        Setting {
            name: "runs",
            theirs: "one of 15 s for each",
            ours: Here::Words("several in random order, and the baseline twice in each block"),
        },
        Setting {
            name: "writer",
            theirs: "a thread with nice 10 that yields",
            ours: Here::Words("a thread like the reader, that yields as his does"),
        },
    ],
    remarks: &[
        "His AF_UNIX run falls from 260 k to 100 k events/s after six seconds: its mean of 170 k \
         describes neither.",
        "His events for each call are means since the start; ours are those of the window.",
        "His context switches are those of the whole machine, so they are not put beside ours.",
        "His -f changes two things, cyclic writes and no epoll; here each has an arm of its own, \
         and the last bar has both, as his.",
    ],
    series: &[
        Series {
            name: "events/s by transport, epoll",
            unit: "events/s",
            experiment: Experiment::Streams,
            figure: Figure::Value,
            claim: None,
            places: &[
                place("pipes", "epoll-et", &[("transport", "pipe"), FREE], 259_643.0),
                place("AF_UNIX", "epoll-et", &[("transport", "unix"), FREE], 170_188.0),
                place("TCP", "epoll-et", &[("transport", "tcp"), FREE], 58_771.0),
            ],
        },
        Series {
            name: "events/s on TCP with and without epoll",
            unit: "events/s",
            experiment: Experiment::Streams,
            figure: Figure::Value,
            claim: None,
            places: &[
                place("epoll", "epoll-et", &[("transport", "tcp"), FREE], 58_771.0),
                place("no epoll", "no poller cyclic", &[("transport", "tcp"), FREE], 69_475.0),
            ],
        },
        Series {
            name: "events for each wait by transport",
            unit: "events/wait",
            experiment: Experiment::Streams,
            figure: Figure::EventsPerWait,
            claim: None,
            places: &[
                place("pipes", "epoll-et", &[("transport", "pipe"), FREE], 265.1),
                place("AF_UNIX", "epoll-et", &[("transport", "unix"), FREE], 7.79),
                place("TCP", "epoll-et", &[("transport", "tcp"), FREE], 36.3),
            ],
        },
    ],
};

/// He left both threads to the scheduler.
const FREE: (&str, &str) = ("cpus", "free");

const fn place(
    name: &'static str,
    arm: &'static str,
    axes: &'static [(&'static str, &'static str)],
    published: f64,
) -> Place {
    Place { name, arm, axes, published: Some(published) }
}
