//! Ends: early ones, and those of agents, controllers and brokers that die.

use std::time::{Duration, Instant};

use pollux_load::campaign::{OnLostAgent, ToldOrder};
use pollux_load::{Arrival, FindingKind, Pace, Plan, Stage, Trust};
use pollux_testing::{Process, Signal};

use crate::broker::Broker;
use crate::driven::{Driven, agent, agents, counted, lasting, run};
use crate::forged::{Manner, forged};
use crate::server::Counting;

/// Far longer than any of these runs may take.
const LONG_S: u64 = 600;

/// Whether a run of all of them succeeds: none is busy.
fn are_idle(broker: &Broker, server: &Counting, count: u32) {
    let outcome = run(broker, &counted(&server.url(), 300), count).expect("they are idle");
    assert_eq!(outcome.totals.answered, 300);
}

pub(crate) fn a_stop_gives_the_result_so_far() {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), LONG_S), 2);
    driven.wait_for_answers();
    driven.tell(&ToldOrder::Stop);
    let outcome = driven.end().expect("a result");
    assert!(outcome.was_ended_early);
    assert_eq!(outcome.totals.sent, server.requests());
    are_idle(&broker, &server, 2);
}

pub(crate) fn an_end_leaves_agents_idle() {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), LONG_S), 2);
    driven.wait_for_answers();
    driven.tell(&ToldOrder::End);
    assert_eq!(driven.end().expect_err("no result"), "ended at once");
    pollux_testing::wait_until("agents are idle", || {
        run(&broker, &counted(&server.url(), 20), 2).is_ok()
    });
    are_idle(&broker, &server, 2);
}

/// As the trials of a search do.
pub(crate) fn runs_may_follow_each_other_at_once() {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    for number in 1..=4 {
        let outcome = run(&broker, &counted(&server.url(), 50), 2).expect("they are free");
        assert_eq!((outcome.totals.answered, server.requests()), (50, 50 * number));
        // One that is refused before it begins leaves connections to close.
        let why = run(&broker, &counted("http://192.0.2.1/", 50), 2).expect_err("not allowed");
        assert!(why.contains("refuses the order"), "{why}");
    }
}

fn dies(broker: &Broker, server: &Counting, on_lost: OnLostAgent) -> pollux_load::Outcome {
    let mut all = agents(broker, 3);
    let open = Plan {
        pace: Pace::Open {
            arrival: Arrival::Constant,
            stages: vec![Stage { from_per_s: 300.0, to_per_s: 300.0, lasts: None }],
        },
        think_time: Duration::ZERO,
        ..lasting(&server.url(), 8)
    };
    let mut driven = Driven::start_with(broker, &open, 3, on_lost, &[]);
    driven.wait_for("a second", |now| now.all.last.is_some());
    all[1].kill();
    driven.wait_for("the loss", |now| now.agents[1].is_lost);
    let outcome = driven.end().expect("a result of the others");
    let lost = outcome.findings.iter().find(|found| found.kind == FindingKind::AgentLost);
    let lost = lost.unwrap_or_else(|| panic!("{:?}", outcome.findings));
    assert!(lost.text.starts_with("agent b was lost after"), "{}", lost.text);
    assert!(outcome.agents[1].lost.is_some() && outcome.agents[1].answered > 0);
    let of_others = outcome.agents[0].answered + outcome.agents[2].answered;
    assert_eq!(outcome.totals.answered, of_others);
    outcome
}

pub(crate) fn an_agent_that_dies_stops_all() {
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let outcome = dies(&broker, &server, OnLostAgent::Stop);
    assert!(outcome.was_ended_early);
    assert!(outcome.measured < Duration::from_secs(8), "{:?}", outcome.measured);
}

pub(crate) fn the_others_continue() {
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let outcome = dies(&broker, &server, OnLostAgent::Continue);
    assert!(!outcome.was_ended_early);
    // Two thirds of the rate.
    assert_eq!(outcome.totals.sent, 1_600);
}

pub(crate) fn agents_stop_without_their_controller() {
    let broker = Broker::start(&[]);
    let mut all = agents(&broker, 2);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), LONG_S), 2);
    driven.wait_for_answers();
    driven.process.kill();
    for agent in &mut all {
        agent.wait_for_stderr_line("no message of its controller for 5s");
        agent.wait_for_stderr_line("finished:");
    }
    let ended = server.requests();
    are_idle(&broker, &server, 2);
    assert_eq!(server.requests(), ended + 300, "agents continued");
    // One whose standard input ends, as when pollux load is killed, stops them itself.
    let mut left = Driven::start(&broker, &lasting(&server.url(), LONG_S), 2);
    left.wait_for_answers();
    left.leave();
    assert!(left.end().expect("a result").was_ended_early);
    for agent in &mut all {
        agent.wait_for_stderr_line("finished:");
        let missed = agent.stderr_lines().iter().filter(|line| line.contains("no message of"));
        assert_eq!(missed.count(), 1, "the first time: {:?}", agent.stderr_lines());
    }
}

/// While agents are looked for of which one is silent, while clocks are looked at, and while connections are opened that are
/// not answered.
pub(crate) fn an_end_before_the_first_request_is_one_at_once() {
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let ended = |plan: &Plan, agents: u32, after_ms: u64| {
        let mut driven = Driven::start(&broker, plan, agents);
        // Not a wait for anything: each step lasts longer than that, and the one before it less.
        std::thread::sleep(Duration::from_millis(after_ms));
        let began = Instant::now();
        driven.tell(&ToldOrder::Stop);
        assert_eq!(driven.end().expect_err("it did not begin"), "ended before it began");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    };
    let plain = lasting(&server.url(), LONG_S);
    let all = agents(&broker, 2);
    all[1].signal(Signal::STOP);
    ended(&plain, 2, 300);
    all[1].signal(Signal::CONT);
    let unanswered = Plan {
        trust: Trust::AnyCertificate,
        connect_timeout: Duration::from_secs(60),
        ..lasting(&server.url().replace("http:", "https:"), LONG_S)
    };
    ended(&unanswered, 2, 1_500);
    let _late = forged(&broker, "0", Manner::AnswersLate);
    ended(&plain, 3, 1_000);
    assert_eq!(server.requests(), 0);
}

/// The others are dismissed before the moment at which they were to begin.
pub(crate) fn one_that_does_not_begin_keeps_all_from_asking() {
    let broker = Broker::start(&[]);
    let _silent = forged(&broker, "0", Manner::NeverBegins);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    let why = run(&broker, &lasting(&server.url(), LONG_S), 3).expect_err("one does not begin");
    assert!(why.starts_with("agent 0 did not begin: no answer within"), "{why}");
    assert_eq!(server.requests(), 0);
}

/// A server that answers once and then no more, and an order that waits for it for an hour.
pub(crate) fn last_answers_are_waited_for_no_longer_than_the_agent_allows() {
    let broker = Broker::start(&[]);
    let mut strict = agent(&broker, "a", &["--max-duration", "2s"]);
    let server = Counting::start_silent_after(1);
    let hour = Duration::from_secs(3_600);
    let plan = Plan { grace: hour, request_timeout: hour, ..lasting(&server.url(), 2) };
    let began = Instant::now();
    let outcome = run(&broker, &plan, 1).expect("a result");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(outcome.was_ended_early);
    assert_eq!((outcome.totals.answered, outcome.totals.unanswered), (12, 12));
    strict.wait_for_stderr_line("(--max-duration)");
}

/// Two whose results never come, at eight seconds for both, and one that has finished like them.
pub(crate) fn results_that_never_come_cost_no_other() {
    let broker = Broker::start(&[]);
    let _silent = ["0", "1"].map(|name| forged(&broker, name, Manner::KeepsItsResult));
    let _agent = agents(&broker, 1);
    let server = Counting::start();
    let plan = counted(&server.url(), 300);
    let driven = Driven::start_with(&broker, &plan, 3, OnLostAgent::Continue, &[]);
    let outcome = driven.end().expect("the result of the third");
    assert_eq!((outcome.totals.answered, server.requests()), (100, 100));
    let lost: Vec<Option<&str>> =
        outcome.agents.iter().map(|agent| agent.lost.as_deref()).collect();
    let [Some(first), Some(second), None] = *lost else { panic!("{lost:?}") };
    assert!(first.contains("could not be fetched") && second.contains("could not be fetched"));
}

/// Whose controller is killed before it can fetch anything.
pub(crate) fn a_result_that_nobody_fetches_gives_way() {
    let broker = Broker::start(&[]);
    let mut left = agent(&broker, "a", &[]);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), 1), 1);
    driven.wait_for_answers();
    driven.process.signal(Signal::STOP);
    left.wait_for_stderr_line("finished:");
    driven.process.kill();
    let began = Instant::now();
    pollux_testing::wait_until("it takes another order", || {
        run(&broker, &counted(&server.url(), 30), 1).is_ok()
    });
    // Without another order it would have been kept for half a minute.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    left.wait_for_stderr_line("nobody fetched its result; it gives way to");
}

pub(crate) fn a_broker_that_comes_back_costs_nothing() {
    let mut broker = Broker::start(&[]);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), 6), 2);
    driven.wait_for("a second", |now| now.all.last.is_some());
    broker.kill();
    broker.start_again();
    let outcome = driven.end().expect("a result");
    assert!(!outcome.was_ended_early);
    assert_eq!(outcome.totals.sent, server.requests());
    assert_eq!(outcome.findings.iter().find(|found| found.kind == FindingKind::AgentLost), None);
}

pub(crate) fn a_broker_that_stays_away_ends_all() {
    let mut broker = Broker::start(&[]);
    let mut all: Vec<Process> = agents(&broker, 2);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), LONG_S), 2);
    driven.wait_for_answers();
    broker.kill();
    let why = driven.end().expect_err("no result");
    assert!(why.contains("no connection to the broker for 5s"), "{why}");
    for agent in &mut all {
        agent.wait_for_stderr_line("finished:");
        agent.signal(Signal::TERM);
        assert!(agent.wait().success());
    }
}
