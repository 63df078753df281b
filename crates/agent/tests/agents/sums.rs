//! What is added up: every request, every answer, and nothing else.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use pollux_load::campaign::OnLostAgent;
use pollux_load::{Arrival, Distribution, End, Outcome, Pace, Plan, QUANTILES, Second, Stage};
use pollux_testing::Process;

use crate::broker::Broker;
use crate::driven::{Driven, Ended, agent, agent_on, agents, counted, lasting, run};
use crate::forged::{Manner, forged};
use crate::hosts::{CENTRE, Hosts};
use crate::server::Counting;

/// All agents begin so near to each other.
const TOGETHER_S: f64 = 0.005;

pub(crate) fn at(arrival: Arrival, from_per_s: f64, to_per_s: f64, plan: Plan) -> Plan {
    let stages = vec![Stage { from_per_s, to_per_s, lasts: Some(Duration::from_secs(1)) }];
    Plan { pace: Pace::Open { arrival, stages }, think_time: Duration::ZERO, ..plan }
}

/// Closed loop and open ones, by number and by time: what is reported is what the server counted.
pub(crate) fn requests_are_those_counted() {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 3);
    let server = Counting::start();
    judge_every_form(&server, |plan| run(&broker, plan, 3));
}

/// The same with a network namespace for each agent, and one for the broker, the server and the controller.
pub(crate) fn requests_are_those_counted_over_hosts() -> Result<(), String> {
    let hosts = match Hosts::make(3) {
        Ok(hosts) => hosts,
        // A container may forbid them to root as well, whatever CI forbids: the same sums are judged without them.
        Err(why) => {
            writeln!(std::io::stderr(), "without hosts of their own: {why}").expect("it is open");
            return Ok(());
        }
    };
    let broker = Broker::start_in(&hosts.centre);
    let server = Counting::answer_on(hosts.centre.listen(CENTRE));
    let allowed = ["--allow", &CENTRE.to_string()];
    let start = |(host, name)| agent_on(Some(host), &broker, name, &allowed);
    let _agents: Vec<Process> = hosts.agents.iter().zip(["a", "b", "c"]).map(start).collect();
    judge_every_form(&server, |plan| Driven::start_on(&hosts.centre, &broker, plan, 3).end());
    Ok(())
}

fn judge_every_form(server: &Counting, run: impl Fn(&Plan) -> Ended) {
    let url = server.url();
    let both = |requests| Plan {
        end: End { requests: Some(requests), after: Some(Duration::from_secs(20)) },
        ..counted(&url, requests)
    };
    for (what, plan, requests) in [
        ("closed loop, by number", counted(&url, 3_001), Some(3_001)),
        ("closed loop, by time", lasting(&url, 1), None),
        ("constant, by number", at(Arrival::Constant, 700.0, 700.0, both(500)), Some(500)),
        ("constant, by time", at(Arrival::Constant, 700.0, 700.0, lasting(&url, 1)), Some(700)),
        ("poisson, by time", at(Arrival::Poisson, 700.0, 700.0, lasting(&url, 1)), None),
        ("poisson, by number", at(Arrival::Poisson, 700.0, 700.0, both(500)), Some(500)),
        ("a ramp", at(Arrival::Constant, 0.0, 600.0, lasting(&url, 1)), Some(300)),
    ] {
        let before = server.requests();
        let outcome = run(&plan).unwrap_or_else(|why| panic!("{what}: {why}"));
        let seen = server.requests() - before;
        assert_eq!(outcome.totals.sent, seen, "{what}");
        assert_eq!(outcome.totals.answered, seen, "{what}");
        assert_eq!(outcome.latency.count(), seen, "{what}");
        if let Some(requests) = requests {
            // A busy machine may not send them all in time.
            let due = outcome.totals.due;
            assert!(due.abs_diff(requests) <= 1, "{what}: {due} of {requests}");
        }
        let parts: Vec<u64> = outcome.agents.iter().map(|agent| agent.answered).collect();
        assert_eq!(parts.iter().sum::<u64>(), seen, "{what}: {parts:?}");
        assert!(parts.len() == 3 && parts.iter().all(|part| *part > 0), "{what}: {parts:?}");
        let in_seconds: u64 = outcome.seconds.iter().map(|second| second.answered).sum();
        assert_eq!(in_seconds, seen, "{what}: the sum of the seconds");
        assert_eq!(outcome.setting.connections, 12);
        if let (Pace::Open { stages, .. }, None) = (&plan.pace, plan.end.requests) {
            let asked = outcome.setting.asked_per_s.expect("an open loop");
            let mean = (stages[0].from_per_s + stages[0].to_per_s) / 2.0;
            assert!((asked - mean).abs() < 1.0, "{what}: {asked}");
        }
    }
}

/// Agents that keep their own results, and these results after a run.
struct Kept {
    folder: tempfile::TempDir,
    _agents: Vec<Process>,
}

impl Kept {
    fn start(broker: &Broker, clocks: [&str; 3]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |(name, clock): (&str, &str)| {
            let results = folder.path().join(name);
            let results = results.to_str().expect("a path of text");
            agent(broker, name, &["--results", results, "--test-clock", clock])
        };
        let agents = ["a", "b", "c"].into_iter().zip(clocks).map(start).collect();
        Self { folder, _agents: agents }
    }

    fn results(&self) -> Vec<Outcome> {
        let read = |name| {
            let folder = std::fs::read_dir(self.folder.path().join(name)).expect("a folder");
            let files: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
            assert_eq!(files.len(), 1, "{files:?}");
            let text = std::fs::read_to_string(&files[0]).expect("a result");
            serde_json::from_str(&text).expect("an outcome")
        };
        ["a", "b", "c"].map(read).into()
    }
}

pub(crate) fn percentiles_are_those_of_the_joined() {
    let broker = Broker::start(&[]);
    let kept = Kept::start(&broker, ["0,0"; 3]);
    let server = Counting::start();
    let sum = run(&broker, &counted(&server.url(), 5_000), 3).expect("a result");
    let mut joined = Distribution::new();
    let results = kept.results();
    results.iter().for_each(|result| joined.add(&result.latency));
    assert_eq!((joined.count(), sum.latency.count()), (5_000, 5_000));
    for quantile in QUANTILES {
        assert_eq!(sum.latency.quantile_ns(quantile), joined.quantile_ns(quantile), "{quantile}");
    }
    assert_eq!(sum.latency.max_ns(), joined.max_ns());
    for (result, agent) in results.iter().zip(&sum.agents) {
        assert_eq!(agent.p99_ns, result.latency.quantile_ns(0.99), "{}", agent.name);
    }
}

/// Clocks that are seconds apart and drift: the moment at which each began by the clock of days, which they share here.
pub(crate) fn all_begin_together() {
    let broker = Broker::start(&[]);
    let kept = Kept::start(&broker, ["10000000000,100", "0,0", "-10000000000,-100"]);
    let server = Counting::start();
    let sum = run(&broker, &lasting(&server.url(), 1), 3).expect("a result");
    let began: Vec<f64> = kept.results().iter().map(|result| result.began_unix_s).collect();
    let first = began.iter().copied().fold(f64::MAX, f64::min);
    let last = began.iter().copied().fold(f64::MIN, f64::max);
    let uncertain_s: Vec<f64> = sum.agents.iter().map(|agent| agent.clock_uncertainty_s).collect();
    assert!(last - first < TOGETHER_S, "{began:?}, {uncertain_s:?}");
    let widest = uncertain_s.iter().copied().fold(0.0, f64::max);
    // Clocks, and the time that two calls of clocks take.
    assert!(last - first < 2.0 * widest + 0.001, "{began:?}, {uncertain_s:?}");
    assert!((sum.began_unix_s - first).abs() < TOGETHER_S, "{} {first}", sum.began_unix_s);
}

pub(crate) fn one_agent_is_a_load_as_well() {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    let outcome = run(&broker, &counted(&server.url(), 100), 1).expect("a result");
    assert_eq!((outcome.totals.answered, server.requests()), (100, 100));
    assert_eq!(outcome.agents.len(), 1);
    assert_eq!(outcome.agents[0].name, "a");
}

/// Of a third of an hour, in an address space that the whole histograms of one agent's seconds would not fit into.
pub(crate) fn results_of_a_long_run_take_little_memory() {
    const SECONDS: usize = 1_200;
    const ADDRESSES_KIB: u64 = 500_000;
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let mut outcome = {
        let _agents = agents(&broker, 1);
        run(&broker, &lasting(&server.url(), 1), 1).expect("a result")
    };
    let second = outcome.seconds.first().expect("a second").clone();
    outcome.seconds = vec![second.clone(); SECONDS];
    // One that has no other agent's part in it.
    outcome.agents.clear();
    let manner = Manner::finishes(&outcome);
    let _agents = ["d", "e", "f"].map(|name| forged(&broker, name, manner.clone()));
    let mut limited = Command::new("sh");
    let limits = format!("ulimit -v {ADDRESSES_KIB} && exec \"$0\" \"$@\"");
    limited.args(["-c", &limits, env!("CARGO_BIN_EXE_pollux-agent")]);
    let plan = counted(&server.url(), 300);
    let driven = Driven::start_by(limited, &broker, &plan, 3, OnLostAgent::Stop, &[]);
    let sum = driven.end().expect("a sum");
    assert_eq!(sum.seconds.len(), SECONDS);
    let Second { answered, latency, .. } = sum.seconds.last().expect("the last");
    assert_eq!(*answered, 3 * second.answered);
    assert_eq!(latency.count(), 3 * second.latency.count());
}
