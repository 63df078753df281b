//! The scripts of the poller's suite, but for the groups that ask for counters (counters, wakes, reuse) and
//! for much memory (scale).

#[path = "../../../poller/tests/conformance/batch.rs"]
mod batch;
#[path = "../../../poller/tests/conformance/errno.rs"]
mod errno;
#[path = "../../../poller/tests/conformance/fairness.rs"]
mod fairness;
#[path = "../../../poller/tests/conformance/hangup.rs"]
mod hangup;
#[path = "../../../poller/tests/conformance/nesting.rs"]
mod nesting;
#[path = "../../../poller/tests/conformance/network.rs"]
mod network;
#[path = "../../../poller/tests/conformance/timeouts.rs"]
mod timeouts;
#[path = "../../../poller/tests/conformance/triggers.rs"]
mod triggers;

use crate::suite::Group;

pub(crate) const GROUPS: &[Group] = &[
    Group { name: "errno", cases: errno::CASES },
    Group { name: "triggers", cases: triggers::CASES },
    Group { name: "hangup", cases: hangup::CASES },
    Group { name: "network", cases: network::CASES },
    Group { name: "fairness", cases: fairness::CASES },
    Group { name: "timeouts", cases: timeouts::CASES },
    Group { name: "batch", cases: batch::CASES },
    Group { name: "nesting", cases: nesting::CASES },
];
