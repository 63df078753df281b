//! Many agents, simulated: one connection to a real broker answers for all of them, with made-up seconds and results. What is
//! looked at is the controller: no second is lost, and what it takes of a CPU and of memory.
//!
//! `POLLUX_AGENTS_SIMULATED=500` has so many of them for [`LONG_S`] seconds; with `--nocapture` the figures are printed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pollux_load::campaign::{
    AgentFacts, AgentState, AgentStatus, CampaignRequest, Demand, Said, VERSION,
};
use pollux_load::{Errors, Load, Outcome, Phase, Second, Totals};
use pollux_sys::clock::monotonic_ns;

use crate::broker::{Broker, Message, Raw};
use crate::driven::{Driven, counted, lasting};
use crate::server::Counting;

/// Agents without [`VARIABLE`].
const FEW: u32 = 30;
const VARIABLE: &str = "POLLUX_AGENTS_SIMULATED";
/// Seconds of the load, of few agents and of many.
const SHORT_S: u64 = 3;
const LONG_S: u64 = 20;
/// Answers of each agent in each second.
const ANSWERS: u64 = 1_000;
/// Pieces of its result.
const PIECES: u32 = 2;

/// One that is simulated.
#[derive(Clone, Copy, Default)]
struct Simulated {
    is_prepared: bool,
    begins_ns: Option<u64>,
    is_gone: bool,
}

struct Crowd {
    agents: BTreeMap<String, Simulated>,
    lasts_s: u64,
    /// The pieces of the result that each has.
    result: Vec<String>,
    /// What was answered before, for the same question at the same second.
    said: BTreeMap<(u32, u64), String>,
}

fn second(number: u64) -> Second {
    let end_s = (number + 1) as f64;
    let mut second = Second { end_s, sent: ANSWERS, answered: ANSWERS, ..Second::default() };
    // Two significant digits, as those of an agent, over a few hundred different times.
    for answer in 0..ANSWERS {
        second.latency.record(100_000 + answer * answer * 37);
    }
    second
}

/// A result with these seconds, made of a real one.
fn result(lasts_s: u64) -> Outcome {
    let server = Counting::start();
    let running = Load::start(counted(&server.url(), 30)).expect("a load");
    let mut outcome = running.join().expect("a result");
    let number = ANSWERS * lasts_s;
    outcome.seconds = (0..lasts_s).map(second).collect();
    outcome.totals = Totals { sent: number, answered: number, ..Totals::default() };
    outcome.measured = Duration::from_secs(lasts_s);
    outcome.latency.clear();
    outcome.seconds.iter().for_each(|second| outcome.latency.add(&second.latency));
    outcome
}

impl Crowd {
    fn new(count: u32, lasts_s: u64) -> Self {
        let text = serde_json::to_string(&result(lasts_s)).expect("plain data");
        let of = text.len().div_ceil(PIECES as usize);
        let result = text.as_bytes().chunks(of).map(|piece| STANDARD.encode(piece)).collect();
        let name = |number| (format!("agent-{number:04}"), Simulated::default());
        Self { agents: (0..count).map(name).collect(), lasts_s, result, said: BTreeMap::new() }
    }

    /// Answers until the broker is gone.
    fn answer(&mut self, mut raw: Raw) {
        let mut out = Vec::new();
        while let Some(message) = raw.receive() {
            self.take(&message, &mut out);
            if raw.is_drained() {
                raw.write(&std::mem::take(&mut out));
            }
        }
    }

    fn take(&mut self, message: &Message, out: &mut Vec<u8>) {
        let request = CampaignRequest::decode(&message.payload).expect("a request");
        let inbox = message.reply.as_deref().expect("it is asked");
        if request.demand == Demand::Hello {
            for name in self.agents.keys() {
                reply(out, inbox, name, &here());
            }
            return;
        }
        let name = message.subject.rsplit('.').next().expect("a subject has parts").to_owned();
        let said = self.said_by(&name, &request.demand);
        reply(out, inbox, &name, &said);
    }

    fn said_by(&mut self, name: &str, demand: &Demand) -> String {
        let agent = self.agents.get_mut(name).expect("it was found before");
        let accepted = || serde_json::to_string(&Said::Accepted).expect("plain data");
        match demand {
            Demand::Ping => serde_json::to_string(&Said::Pong).expect("plain data"),
            Demand::Prepare(_) => {
                agent.is_prepared = true;
                accepted()
            }
            Demand::Start { at_ns } => {
                agent.begins_ns = Some(*at_ns);
                accepted()
            }
            Demand::Status { seconds_from } => {
                let agent = *agent;
                self.status(agent, *seconds_from)
            }
            Demand::Piece { number } => {
                let bytes = self.result[*number as usize].clone();
                serde_json::to_string(&Said::Piece { of: PIECES, bytes }).expect("plain data")
            }
            Demand::Dismiss => {
                agent.is_gone = true;
                accepted()
            }
            Demand::Stop | Demand::Hello | Demand::Turns(_) => accepted(),
        }
    }

    fn status(&mut self, agent: Simulated, from: u32) -> String {
        let passed_ns = agent.begins_ns.map_or(0, |begins| monotonic_ns().saturating_sub(begins));
        let passed_s = (passed_ns / 1_000_000_000).min(self.lasts_s + 1);
        let state = match agent.begins_ns {
            None => AgentState::Ready,
            Some(_) if passed_s > self.lasts_s => AgentState::Finished,
            Some(_) => AgentState::Running,
        };
        if let Some(said) = self.said.get(&(from, passed_s)).filter(|_| agent.begins_ns.is_some()) {
            return said.clone();
        }
        let there = passed_s.min(self.lasts_s);
        let number = ANSWERS * there;
        let status = AgentStatus {
            state,
            why: None,
            phase: Phase::Measuring,
            elapsed_ns: passed_ns,
            totals: Totals { sent: number, answered: number, ..Totals::default() },
            errors: Errors::default(),
            crowd_connected: 0,
            first: from,
            seconds: (u64::from(from)..there).take(8).map(second).collect(),
            pieces: PIECES,
        };
        let said = serde_json::to_string(&Said::Status(Box::new(status))).expect("plain data");
        if agent.begins_ns.is_some() {
            self.said.insert((from, passed_s), said.clone());
        }
        said
    }
}

fn here() -> String {
    let facts = AgentFacts {
        host: "simulated".to_owned(),
        pollux: "0".to_owned(),
        kernel: "6".to_owned(),
        cpus: 4,
        load: None,
        descriptors: 1 << 20,
        connections_max: 10_000,
        allowed: "loopback alone".to_owned(),
        campaign: None,
    };
    serde_json::to_string(&Said::Here(facts)).expect("plain data")
}

fn reply(out: &mut Vec<u8>, inbox: &str, name: &str, said: &str) {
    let now_ns = monotonic_ns();
    let text = format!(
        "{{\"version\":{VERSION},\"agent\":\"{name}\",\"instance\":7,\"now_ns\":{now_ns},\"said\":{said}}}"
    );
    out.extend_from_slice(format!("PUB {inbox} {}\r\n{text}\r\n", text.len()).as_bytes());
}

/// CPU time of a process so far, and the most memory that it had.
fn used(pid: u32) -> (Duration, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let kib = most.trim().trim_end_matches(" kB").parse().expect("a number");
    (Duration::from_millis(ticks * 10), kib)
}

#[expect(clippy::print_stdout, reason = "the figures are what more agents are for")]
pub(crate) fn no_second_is_lost() {
    let asked = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let (count, lasts_s) = asked.map_or((FEW, SHORT_S), |count: u32| (count, LONG_S));
    let broker = Broker::start(&[]);
    let mut crowd = Crowd::new(count, lasts_s);
    let mut raw = broker.raw();
    raw.subscribe("pollux-load.default.hello");
    raw.subscribe("pollux-load.default.agent.*");
    let answers = std::thread::spawn(move || {
        crowd.answer(raw);
        crowd
    });
    let mut plan = lasting("http://127.0.0.1:9/", lasts_s);
    plan.connections = count;
    let mut driven = Driven::start(&broker, &plan, count);
    let pid = driven.process.id();
    driven.wait_for_answers();
    let began = Instant::now();
    let before = used(pid);
    let mut while_it_ran = before;
    let mut took = Duration::ZERO;
    let mut shown = BTreeMap::new();
    let of_all = u64::from(count) * ANSWERS;
    let outcome = driven.end_seeing(|now| {
        assert_eq!(now.agents.len(), count as usize);
        if let Some(last) = &now.all.last {
            shown.insert(last.end_s as u64, last.answered);
            (while_it_ran, took) = (used(pid), began.elapsed());
        }
    });
    let outcome = outcome.expect("a result");
    // Whatever was shown was whole, and the controller was not behind; the last one may come with the results alone.
    assert!(shown.values().all(|answered| *answered == of_all), "{shown:?}");
    assert!(shown.len() as u64 + 1 >= lasts_s, "{shown:?}");
    let seconds: Vec<u64> = outcome.seconds.iter().map(|second| second.answered).collect();
    assert_eq!(seconds, vec![of_all; lasts_s as usize]);
    assert_eq!(outcome.totals.answered, of_all * lasts_s);
    assert_eq!(outcome.latency.count(), of_all * lasts_s);
    assert!(outcome.agents.iter().all(|agent| agent.lost.is_none()));
    drop(broker);
    let crowd = answers.join().expect("it answered to the end");
    assert!(crowd.agents.values().all(|agent| agent.is_prepared && agent.is_gone));
    let cpu = (while_it_ran.0 - before.0).as_secs_f64() / took.as_secs_f64();
    let uncertainty =
        outcome.agents.iter().map(|agent| agent.clock_uncertainty_s).fold(0.0, f64::max);
    let longest = crowd.said.values().map(String::len).max().unwrap_or(0);
    println!(
        "{count} agents: {cpu:.2} of a CPU, {} MiB at most while it ran; clocks known to within {:.2} ms; {longest} bytes for \
         a second",
        while_it_ran.1 / 1024,
        uncertainty * 1e3
    );
    // What the compiler does not optimise takes as much as it takes.
    if !cfg!(debug_assertions) {
        assert!(cpu < 0.5, "{cpu}");
        assert!(while_it_ran.1 < 300 << 10, "{} KiB", while_it_ran.1);
    }
}
