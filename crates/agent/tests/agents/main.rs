//! Agents, a broker and a server that counts, as processes and threads of each test; the controller is driven as `pollux load
//! --agents` drives it.
//!
//! Needs `nats-server`; without it the tests say so, unless skips are forbidden.

mod arrivals;
mod broker;
mod clocks;
mod confined;
mod driven;
mod ends;
mod forged;
mod hosts;
mod kills;
mod lab;
mod many;
mod refusals;
mod server;
mod sums;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use pollux_testing::{Trial, run_tests, skippable_test, test};

/// A test by its name.
type Test = (&'static str, fn());

/// Most of their time they wait, so that many run at once.
const THREADS: usize = 14;

/// Held by each test that runs beside others, and by one that looks at moments alone.
static MACHINE: RwLock<()> = RwLock::new(());

const BESIDE_OTHERS: [Test; 33] = [
    (
        "an_agent_without_a_broker_ends_on_a_signal",
        refusals::an_agent_without_a_broker_ends_on_a_signal,
    ),
    (
        "a_broker_that_is_lost_again_and_again_fills_no_log",
        refusals::a_broker_that_is_lost_again_and_again_fills_no_log,
    ),
    (
        "an_end_before_the_first_request_is_one_at_once",
        ends::an_end_before_the_first_request_is_one_at_once,
    ),
    ("runs_may_follow_each_other_at_once", ends::runs_may_follow_each_other_at_once),
    ("requests_reported_are_those_that_the_server_counted", sums::requests_are_those_counted),
    ("percentiles_are_those_of_the_joined_histograms", sums::percentiles_are_those_of_the_joined),
    ("one_agent_is_a_load_as_well", sums::one_agent_is_a_load_as_well),
    ("results_of_a_long_run_take_little_memory", sums::results_of_a_long_run_take_little_memory),
    ("a_stop_gives_the_result_so_far", ends::a_stop_gives_the_result_so_far),
    ("an_end_leaves_agents_idle", ends::an_end_leaves_agents_idle),
    ("an_agent_that_dies_stops_all_and_is_named", ends::an_agent_that_dies_stops_all),
    ("the_others_continue_where_that_was_asked_for", ends::the_others_continue),
    ("agents_stop_without_their_controller", ends::agents_stop_without_their_controller),
    (
        "one_that_does_not_begin_keeps_all_from_asking",
        ends::one_that_does_not_begin_keeps_all_from_asking,
    ),
    (
        "last_answers_are_waited_for_no_longer_than_the_agent_allows",
        ends::last_answers_are_waited_for_no_longer_than_the_agent_allows,
    ),
    ("results_that_never_come_cost_no_other", ends::results_that_never_come_cost_no_other),
    ("a_result_that_nobody_fetches_gives_way", ends::a_result_that_nobody_fetches_gives_way),
    ("a_broker_that_comes_back_costs_nothing", ends::a_broker_that_comes_back_costs_nothing),
    ("a_broker_that_stays_away_ends_all", ends::a_broker_that_stays_away_ends_all),
    ("a_target_that_is_not_allowed_is_never_asked", refusals::a_target_that_is_not_allowed),
    ("garbage_and_forged_messages_disturb_no_load", refusals::garbage_disturbs_no_load),
    ("garbage_in_the_place_of_answers_is_counted", refusals::garbage_answers_are_counted),
    ("agents_that_are_missing_busy_or_double_are_named", refusals::missing_busy_or_double),
    (
        "an_answer_that_is_too_long_has_fewer_seconds",
        refusals::an_answer_that_is_too_long_has_fewer_seconds,
    ),
    (
        "a_long_list_of_targets_is_shown_in_short",
        refusals::a_long_list_of_targets_is_shown_in_short,
    ),
    ("forged_requests_are_never_sent", refusals::forged_requests_are_never_sent),
    ("clocks_that_are_not_known_begin_nothing", refusals::clocks_that_are_not_known_begin_nothing),
    (
        "a_generator_is_kept_between_the_sets_of_a_run",
        lab::a_generator_is_kept_between_the_sets_of_a_run,
    ),
    ("another_version_is_named", refusals::another_version_is_named),
    ("a_login_comes_from_a_file", refusals::a_login_comes_from_a_file),
    ("the_tests_of_arrivals_tell_them_apart", arrivals::the_tests_tell_arrivals_apart),
    ("no_second_of_many_agents_is_lost", many::no_second_is_lost),
    (
        "turns_that_are_repeated_or_forged_are_not_done",
        lab::turns_that_are_repeated_or_forged_are_not_done,
    ),
];

const KILLS: [Test; 3] = [
    ("an_agent_that_is_killed_at_any_moment", kills::of_an_agent),
    ("a_controller_that_is_killed_at_any_moment", kills::of_the_controller),
    ("a_broker_that_is_killed_at_any_moment", kills::of_the_broker),
];

const ALONE: [Test; 4] = [
    ("all_begin_together_whatever_their_clocks_say", sums::all_begin_together),
    (
        "the_uncertainty_holds_the_true_distance_of_clocks",
        clocks::the_uncertainty_holds_the_true_distance,
    ),
    ("constant_arrivals_of_all_agents_are_even", arrivals::constant_ones_of_all_agents_are_even),
    (
        "random_arrivals_of_all_agents_are_a_poisson_process",
        arrivals::random_ones_of_all_agents_are_a_poisson_process,
    ),
];

/// A test that says why it can't run here.
type MaySkip = fn() -> Result<(), String>;

/// With `pollux` beside the program under test.
const LAB: [(&str, MaySkip); 3] = [
    ("an_agent_makes_the_load_of_the_lab", lab::an_agent_makes_the_load_of_the_lab),
    ("a_lab_or_an_agent_that_dies_ends_all", lab::a_lab_or_an_agent_that_dies_ends_all),
    (
        "a_server_of_the_lab_that_is_not_allowed_is_never_asked",
        lab::a_server_of_the_lab_that_is_not_allowed_is_never_asked,
    ),
];

fn main() -> ExitCode {
    let missing = broker::program().is_none().then_some("nats-server is not installed");
    // Those that take longest begin first.
    let mut all: Vec<Trial> = KILLS.into_iter().map(beside_others).collect();
    all.push(skippable_test("requests_over_hosts_are_those_that_the_server_counted", || {
        let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        sums::requests_are_those_counted_over_hosts()
    }));
    for (name, run) in LAB {
        all.push(skippable_test(name, move || {
            let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
            run()
        }));
    }
    all.push(skippable_test("orders_are_carried_out_in_the_sandbox_on_every_mechanism", || {
        let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        confined::orders_are_carried_out_in_the_sandbox()
    }));
    all.extend(BESIDE_OTHERS.into_iter().map(beside_others));
    all.extend(ALONE.into_iter().map(alone));
    run_tests(THREADS, missing, all)
}

fn beside_others((name, run): Test) -> Trial {
    test(name, move || {
        let _machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        run();
    })
}

fn alone((name, run): Test) -> Trial {
    test(name, move || {
        let _machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        run();
    })
}
