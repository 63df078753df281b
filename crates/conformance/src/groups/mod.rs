//! The cases by subject.

mod changes;
mod counters;
mod hangup;
mod kernel_objects;
mod reuse;
mod scale;
mod triggers;
mod waits;

use crate::Group;

/// What any interface to a poller keeps.
pub const OF_INTERFACES: &[Group] = &[
    Group { name: "errno", cases: changes::ERRNO },
    Group { name: "triggers", cases: triggers::CASES },
    Group { name: "hangup", cases: hangup::CASES },
    Group { name: "network", cases: kernel_objects::NETWORK },
    Group { name: "fairness", cases: scale::FAIRNESS },
    Group { name: "timeouts", cases: waits::TIMEOUTS },
    Group { name: "batch", cases: changes::BATCH },
    Group { name: "nesting", cases: kernel_objects::NESTING },
];

/// What asks a poller itself, for counters and wakers.
pub const OF_POLLERS: &[Group] = &[
    Group { name: "wakes", cases: waits::WAKES },
    Group { name: "counters", cases: counters::CASES },
];

/// What needs a process without other tests: a number that is used again must not be taken by one, and the limit on
/// descriptors is the process's.
pub const OF_NUMBERS: &[Group] = &[
    Group { name: "reuse", cases: reuse::CASES },
    Group { name: "counters", cases: counters::OF_NUMBERS },
    Group { name: "scale", cases: scale::SCALE },
];
