//! The cases by subject.

mod batch;
mod counters;
mod errno;
mod fairness;
mod hangup;
mod nesting;
mod network;
mod reuse;
mod scale;
mod timeouts;
mod triggers;
mod wakes;

use crate::Group;

/// What any interface to a poller keeps.
pub const OF_INTERFACES: &[Group] = &[
    Group { name: "errno", cases: errno::CASES },
    Group { name: "triggers", cases: triggers::CASES },
    Group { name: "hangup", cases: hangup::CASES },
    Group { name: "network", cases: network::CASES },
    Group { name: "fairness", cases: fairness::CASES },
    Group { name: "timeouts", cases: timeouts::CASES },
    Group { name: "batch", cases: batch::CASES },
    Group { name: "nesting", cases: nesting::CASES },
];

/// What asks a poller itself: for counters and wakers, or with much memory.
pub const OF_POLLERS: &[Group] = &[
    Group { name: "reuse", cases: reuse::CASES },
    Group { name: "wakes", cases: wakes::CASES },
    Group { name: "counters", cases: counters::CASES },
    Group { name: "scale", cases: scale::CASES },
];
