//! One test for each scenario of `talkcl.c`, on both forms of transport.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::pool::Pool;
use crate::workshop::{Workshop, skip, source, succeeded};

/// Descriptors of a client with 8,192 contexts, and a few: each has a connection and memory.
const MANY_DESCRIPTORS: u64 = 2 * 8192 + 256;

/// Plays a scenario with requests in queues, then in memory, against so many copies of the server.
fn play(scenario: &str, copies: u32) {
    for transport in ["queues", "memory"] {
        play_by(scenario, copies, transport);
    }
}

#[expect(clippy::print_stderr, reason = "how long the death of a side took to be noticed")]
fn play_by(scenario: &str, copies: u32, transport: &str) {
    let Some(workshop) = Workshop::open() else { return };
    workshop.pollux(&["build-server", "-o", "talksv", &source("talksv.c")]);
    workshop.pollux(&["build-client", "-o", "talkcl", &source("talkcl.c")]);
    let xml = format!(
        "<endurox><appconfig transport=\"{transport}\"><sanity>1</sanity>\
         <restart_min>0</restart_min></appconfig>\
         <servers><server name=\"talksv\"><srvid>1</srvid><min>{copies}</min><max>{copies}</max>\
         <sysopt>-e {}/log</sysopt></server></servers></endurox>",
        workshop.path("").display()
    );
    let pool = Pool::start(&workshop, &xml);
    let printed = succeeded(&pool.client("talkcl").arg(scenario).output().expect("run"));
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
fn who_is_killed_in_a_conversation_is_noticed_at_once_by_the_other_side() {
    play("deaths", 12);
}

#[test]
fn waits_of_conversations_end_by_time_by_signals_and_not_at_all() {
    play("waits", 3);
}

#[test]
fn a_conversation_begins_with_a_server_that_is_free() {
    play("begins", 1);
}

#[test]
fn a_context_has_1024_conversations_at_most() {
    play("conversations", 2);
}

#[test]
fn a_pool_has_1024_subscriptions_at_most() {
    play("subscriptions", 1);
}

#[test]
fn a_client_that_does_not_look_at_its_messages_gets_no_more() {
    play("messages", 1);
}

/// Queues of so many contexts do not fit the limits on queues.
#[test]
fn a_process_has_8192_contexts_at_most() {
    if let Some(most) = raise_descriptors().filter(|most| *most < MANY_DESCRIPTORS) {
        return skip(&format!("RLIMIT_NOFILE: {most}, {MANY_DESCRIPTORS} are needed"));
    }
    play_by("contexts", 1, "memory");
}
