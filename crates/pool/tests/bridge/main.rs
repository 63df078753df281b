//! Pools that share services over a broker, as processes: the command starts them, this very program
//! is their server, and broker, bridges and unknown senders do their worst.
//!
//! Needs `nats-server`; without it the tests say so, unless skips are forbidden.

mod broker;
mod limits;
mod pools;
mod sharing;

use std::process::ExitCode;

use pollux_testing::{run_tests, test};
use pollux_xatmi::worker::LINK_VARIABLE;

/// A test by its name.
type Test = (&'static str, fn());

const TESTS: [Test; 11] = [
    ("pools_share_services_and_outlive_their_broker", sharing::pools_outlive_their_broker),
    ("every_kind_of_call_and_buffer_goes_over", sharing::every_kind_of_call_and_buffer_goes_over),
    ("conversations_are_refused_at_once", sharing::conversations_are_refused_at_once),
    ("news_that_passed_while_away_are_asked_for", sharing::news_that_passed_are_asked_for),
    (
        "a_service_that_no_pool_has_goes_round_in_no_circle",
        sharing::a_service_that_no_pool_has_goes_round_in_no_circle,
    ),
    ("a_broker_that_stands_still_costs_no_more_than_the_time", broker::stands_still),
    ("a_broker_with_a_password_is_joined_or_named", broker::wants_a_password),
    ("what_is_too_long_is_refused_at_once", limits::what_is_too_long_is_refused_at_once),
    ("unknown_senders_disturb_no_call", limits::unknown_senders_disturb_no_call),
    ("many_callers_share_two_bridges", limits::many_callers_share_two_bridges),
    ("a_bridge_that_ends_owes_nothing", limits::a_bridge_that_ends_owes_nothing),
];

fn main() -> ExitCode {
    if std::env::var_os(LINK_VARIABLE).is_some() {
        return pools::serve();
    }
    let missing = broker::program().is_none().then_some("nats-server is not installed");
    run_tests(1, missing, TESTS.map(|(name, run)| test(name, run)).into())
}
