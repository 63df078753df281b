//! The checks of the fuzz target over its corpus, on the stable compiler.

use pollux_testing::replay;

#[path = "../../../fuzz/checks/campaign.rs"]
mod campaign;

/// Files that a corpus has at least: one that was moved or emptied would be checked by nothing.
const FILES_MIN: usize = 3;

#[test]
fn messages_of_agents_and_controllers() {
    replay("campaign", FILES_MIN, campaign::holds);
}
