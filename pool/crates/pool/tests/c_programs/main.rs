//! C programs on a running pool: small scenarios for each kind of call; beside them how programs are built, the
//! bank of seed 4 as it is, and callers of other users.
//!
//! Programs are built by `pollux pool build-server` and `build-client`, or by the seed's own link
//! line; pools have prefixes of their own. Without a C compiler or without the seed's document
//! tests are skipped with the reason, which `POLLUX_FORBID_SKIP` forbids.

mod access;
mod anew;
mod building;
mod call_info;
mod field_tables;
mod handover;
mod operation;
mod pollers;
mod priorities;
mod seed;
mod ubbconfig;
mod views;
mod workshop;

use std::process::Command;

use pollux_testing::{has, skip, succeeded};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use workshop::{Pool, Workshop};

/// Descriptors of a client with 8,192 contexts, and a few: each has a connection and memory.
const MANY_DESCRIPTORS: u64 = 2 * 8192 + 256;

const TRANSPORTS: [&str; 2] = ["queues", "memory"];

/// Runs a scenario of `client.c` against so many copies of the server.
fn play(scenario: &str, copies: u32) {
    play_by("", copies, |pool| with(pool.client("testcl"), scenario));
}

/// The same, where requests travel by queues.
fn play_by_queues(scenario: &str, copies: u32) {
    play_by(" transport=\"queues\"", copies, |pool| with(pool.client("testcl"), scenario));
}

fn with(mut client: Command, scenario: &str) -> Command {
    client.arg(scenario);
    client
}

/// Runs what `client` makes against so many copies of the server. `attributes` are those of `<appconfig>`.
fn play_by(attributes: &str, copies: u32, client: impl FnOnce(&Pool<'_>) -> Command) {
    let Some(workshop) = Workshop::open() else { return };
    workshop.server("testsv", "server.c");
    workshop.client("testcl", "client.c");
    let xml = format!(
        "<endurox><appconfig{attributes}><sanity>1</sanity><restart_min>1</restart_min></appconfig>\
         <servers><server name=\"testsv\"><srvid>1</srvid><min>{copies}</min><max>{copies}</max>\
         <sysopt>-e {}/log</sysopt><appopt>-x 42</appopt></server></servers></endurox>",
        workshop.path("").display()
    );
    let pool = Pool::start(&workshop, &xml);
    succeeded(&mut client(&pool));
    pool.stop();
    let log = std::fs::read_to_string(workshop.path("log")).unwrap_or_default();
    assert_eq!(log, "", "what the servers said");
}

#[test]
fn calls_and_each_way_in_which_a_service_can_end() {
    play("basic", 3);
}

#[test]
fn threads_have_contexts_of_their_own() {
    play("threads", 3);
}

#[test]
fn contexts_outlive_threads_and_are_shared_by_them() {
    play("contexts", 3);
}

#[test]
fn threads_that_come_and_go_find_room_for_their_queues() {
    play("comings", 3);
}

#[test]
fn conversations_end_as_either_side_ends() {
    play("conversation", 4);
}

#[test]
fn events_come_to_their_subscribers() {
    play("events", 3);
}

#[test]
fn threads_may_send_one_buffer_at_the_same_time() {
    play("shared", 3);
}

#[test]
fn services_come_and_go_while_the_server_runs() {
    play("advertise", 1);
}

#[test]
fn a_server_that_dies_in_a_call_is_an_error_at_once() {
    play("death", 3);
}

#[test]
fn times_of_process_thread_and_call_are_kept() {
    play("timeout", 4);
}

#[test]
fn replies_are_matched_to_calls_in_any_order() {
    play("mix", 3);
}

#[test]
fn a_reply_that_is_asked_for_later_ends_as_a_call_does() {
    play("outcomes", 3);
}

#[test]
fn calls_decide_whether_their_transaction_commits() {
    play("transactions", 3);
}

#[test]
fn calls_and_services_have_limits_and_work_behind_them() {
    play("limits", 2);
}

#[test]
fn a_cancelled_call_never_surfaces() {
    play("cancel", 3);
}

#[test]
fn a_full_queue_does_not_block_a_call_with_tpnoblock() {
    play_by_queues("noblock", 3);
}

#[test]
fn a_full_ring_does_not_block_a_call_that_must_not_wait() {
    play("noblock_ring", 3);
}

#[test]
fn a_forwarded_call_is_answered_to_the_first_caller() {
    play("forward", 3);
}

#[test]
fn a_forward_that_finds_its_ring_full_is_an_error_of_the_reply() {
    play("forward_full", 1);
}

#[test]
fn lengths_of_all_types_hold_and_replies_grow() {
    play("lengths", 2);
}

#[test]
fn a_signal_ends_a_call_unless_it_is_to_continue() {
    play("interrupted", 2);
}

#[test]
fn a_child_has_its_own_context_and_leaves_the_parents_alone() {
    play("forked", 2);
}

#[test]
fn a_server_that_returns_with_tpexit_is_started_again() {
    play("ending", 1);
}

#[test]
fn valgrind_runs_clients_and_finds_nothing_wrong() {
    if !has("valgrind") {
        return;
    }
    play_by("", 3, |pool| {
        let mut valgrind = pool.tool("valgrind");
        let leaks = ["--leak-check=full", "--errors-for-leak-kinds=definite"];
        valgrind.args(["-q", "--error-exitcode=9"]).args(leaks).args(["./testcl", "basic"]);
        valgrind
    });
}

/// Plays a scenario of `talkcl.c` with requests in queues, then in memory, against so many copies of the server.
fn talk(scenario: &str, copies: u32) {
    for transport in TRANSPORTS {
        talk_by(scenario, copies, transport);
    }
}

#[expect(clippy::print_stderr, reason = "how long the death of a side took to be noticed")]
fn talk_by(scenario: &str, copies: u32, transport: &str) {
    let Some(workshop) = Workshop::open() else { return };
    workshop.server("talksv", "talksv.c");
    workshop.client("talkcl", "talkcl.c");
    let xml = format!(
        "<endurox><appconfig transport=\"{transport}\"><sanity>1</sanity>\
         <restart_min>0</restart_min></appconfig>\
         <servers><server name=\"talksv\"><srvid>1</srvid><min>{copies}</min><max>{copies}</max>\
         <sysopt>-e {}/log</sysopt></server></servers></endurox>",
        workshop.path("").display()
    );
    let pool = Pool::start(&workshop, &xml);
    let printed = succeeded(pool.client("talkcl").arg(scenario)).stdout;
    for line in printed.lines() {
        eprintln!("{transport}: {line}");
    }
    pool.stop();
    let log = std::fs::read_to_string(workshop.path("log")).unwrap_or_default();
    // One that was started anew as the pool stopped may have found no queue.
    assert!(!log.contains("talksv.c:"), "{log}");
}

/// The programs that this one starts may have as many descriptors as there may be.
fn raise_descriptors() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the maximum");
    maximum
}

#[test]
fn a_process_killed_in_a_conversation_is_noticed_at_once_by_the_other_side() {
    talk("deaths", 12);
}

#[test]
fn waits_of_conversations_end_by_time_by_signals_and_not_at_all() {
    // At once: a pool waits for its deaf servers before it kills them.
    std::thread::scope(|scope| {
        for transport in TRANSPORTS {
            scope.spawn(move || talk_by("waits", 3, transport));
        }
    });
}

#[test]
fn a_conversation_begins_with_a_server_that_is_free() {
    talk("begins", 1);
}

#[test]
fn a_context_has_1024_conversations_at_most() {
    talk("conversations", 2);
}

#[test]
fn a_pool_has_1024_subscriptions_at_most() {
    talk("subscriptions", 1);
}

#[test]
fn a_client_that_does_not_look_at_its_messages_gets_no_more() {
    talk("messages", 1);
}

/// Queues of so many contexts do not fit the limits on queues.
#[test]
fn a_process_has_8192_contexts_at_most() {
    if let Some(most) = raise_descriptors().filter(|most| *most < MANY_DESCRIPTORS) {
        return skip(format_args!("RLIMIT_NOFILE: {most}, {MANY_DESCRIPTORS} are needed"));
    }
    talk_by("contexts", 1, "memory");
}
