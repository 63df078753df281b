//! Seconds and results of all agents, added up: counts and whole histograms, so that percentiles are those of the joined
//! measurements. Nothing is averaged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::{AgentNow, AgentStatus, AgentsNow};
use crate::findings::is_of_generator;
use crate::{AgentOutcome, Errors, Finding, Outcome, Phase, Progress, Second, Totals};

/// Seconds that wait until all agents have sent theirs at most: beyond, nobody is waited for.
const WAITING_MAX: usize = 60;

/// What came from one agent so far.
#[derive(Debug)]
struct Live {
    name: String,
    is_lost: bool,
    /// The number of its next second.
    next: u32,
    last: Option<AgentNow>,
    phase: Phase,
    elapsed: Duration,
    totals: Totals,
    errors: Errors,
    crowd_connected: u32,
}

/// The sum while the agents run.
#[derive(Debug)]
pub struct LiveSum {
    agents: Vec<Live>,
    /// What came so far of seconds that some have not sent yet, added up at once: however many agents there are, they take
    /// the memory of one.
    waiting: BTreeMap<u32, Second>,
    /// The next second of the sum.
    next: u32,
    last: Option<Second>,
}

impl LiveSum {
    /// Of agents with these names.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let live = |name| Live {
            name,
            is_lost: false,
            next: 0,
            last: None,
            phase: Phase::SettingUp,
            elapsed: Duration::ZERO,
            totals: Totals::default(),
            errors: Errors::default(),
            crowd_connected: 0,
        };
        let agents = names.into_iter().map(live).collect();
        Self { agents, waiting: BTreeMap::new(), next: 0, last: None }
    }

    /// The number of the next second of an agent that is wanted.
    #[must_use]
    pub fn wanted(&self, agent: usize) -> u32 {
        self.agents[agent].next
    }

    /// Answers that an agent has counted so far.
    #[must_use]
    pub fn answered(&self, agent: usize) -> u64 {
        self.agents[agent].totals.answered
    }

    /// Takes what an agent said. Seconds that are there already, or that leave others out, count once, or not.
    pub fn take(&mut self, agent: usize, status: AgentStatus) {
        let live = &mut self.agents[agent];
        live.phase = status.phase;
        live.elapsed = Duration::from_nanos(status.elapsed_ns);
        live.totals = status.totals;
        live.errors = status.errors;
        live.crowd_connected = status.crowd_connected;
        // What it has no longer is in its totals; the sum of the seconds continues behind it.
        live.next = live.next.max(status.first);
        for (behind, second) in status.seconds.into_iter().enumerate() {
            let number = status.first.saturating_add(behind as u32);
            if number != live.next || number == u32::MAX {
                continue;
            }
            live.next += 1;
            live.last = Some(AgentNow {
                name: live.name.clone(),
                is_lost: false,
                answered: second.answered,
                p99_ns: second.latency.quantile_ns(0.99),
                errors: second.errors,
                cpu: Duration::try_from_secs_f64(second.generator_cpu_s).unwrap_or_default(),
            });
            match self.waiting.entry(number) {
                // It comes when others were no longer waited for.
                _ if number < self.next => {}
                Entry::Occupied(mut sum) => sum.get_mut().join(&second),
                Entry::Vacant(none) => {
                    none.insert(second);
                }
            }
        }
        self.join();
    }

    /// An agent is not waited for any more.
    pub fn lose(&mut self, agent: usize) {
        self.agents[agent].is_lost = true;
        self.join();
    }

    /// Passes the seconds that all have sent.
    fn join(&mut self) {
        while let Some((&number, _)) = self.waiting.first_key_value() {
            let has = |live: &Live| live.is_lost || live.next > number;
            if !self.agents.iter().all(has) && self.waiting.len() <= WAITING_MAX {
                return;
            }
            self.last = self.waiting.remove(&number);
            self.next = number.saturating_add(1);
        }
    }

    /// How far all are.
    #[must_use]
    pub fn now(&self) -> AgentsNow {
        let mut totals = Totals::default();
        let mut errors = Errors::default();
        for live in &self.agents {
            totals.add(&live.totals);
            errors.add(&live.errors);
        }
        let alive = || self.agents.iter().filter(|live| !live.is_lost);
        let first = alive().min_by_key(|live| live.elapsed);
        let all = Progress {
            phase: first.map_or(Phase::Finishing, |live| live.phase),
            elapsed: first.map_or(Duration::ZERO, |live| live.elapsed),
            last: self.last.clone(),
            totals,
            errors,
            crowd_connected: alive().fold(0, |all, live| all.saturating_add(live.crowd_connected)),
        };
        let now = |live: &Live| {
            let nothing = || AgentNow {
                name: live.name.clone(),
                is_lost: false,
                answered: 0,
                p99_ns: None,
                errors: 0,
                cpu: Duration::ZERO,
            };
            AgentNow { is_lost: live.is_lost, ..live.last.clone().unwrap_or_else(nothing) }
        };
        AgentsNow { all, agents: self.agents.iter().map(now).collect() }
    }
}

/// An agent at the end.
#[derive(Clone, Debug)]
pub struct AgentEnd {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// How exactly its clock was known when it began.
    pub clock_uncertainty: Duration,
    /// What came of it.
    pub ended: Ended,
}

/// What came of an agent.
#[derive(Clone, Debug)]
pub enum Ended {
    /// Its result is in the [`ResultSum`]; what there is to say of the agent beside it.
    Whole(Box<AgentOutcome>),
    /// It was lost, and why; with the answers that it had counted by then, which are in no figure.
    Lost {
        /// In words.
        why: String,
        /// Since requests began.
        after: Duration,
        /// Answers.
        answered: u64,
    },
}

/// Results of agents, each added to the sum as it comes and kept nowhere else: those of an hour are long.
#[derive(Debug, Default)]
pub struct ResultSum {
    all: Option<Outcome>,
}

impl ResultSum {
    /// Adds the result of an agent.
    pub fn take(&mut self, outcome: Outcome) -> Ended {
        let part = AgentOutcome::part(&outcome);
        match &mut self.all {
            Some(all) => all.add(&outcome),
            None => self.all = Some(outcome),
        }
        Ended::Whole(Box::new(part))
    }

    /// One result of all, begun at `began_unix_s`; `None` where no agent has one.
    ///
    /// Objectives are the caller's to [judge](Outcome::judge).
    #[must_use]
    pub fn outcome(self, ends: Vec<AgentEnd>, began_unix_s: f64) -> Option<Outcome> {
        let mut all = self.all?;
        all.began_unix_s = began_unix_s;
        all.agents = ends.into_iter().map(AgentOutcome::of).collect();
        all.close_sum();
        Some(all)
    }
}

/// Why there is no result at all.
#[must_use]
pub fn lost_all(ends: &[AgentEnd]) -> String {
    let why = |end: &AgentEnd| match &end.ended {
        Ended::Lost { why, .. } => format!("agent {}: {why}", end.name),
        Ended::Whole(_) => format!("agent {}: done", end.name),
    };
    ends.iter().map(why).collect::<Vec<_>>().join("; ")
}

impl AgentOutcome {
    fn of(end: AgentEnd) -> Self {
        let AgentEnd { name, host, clock_uncertainty, ended } = end;
        let part = match ended {
            Ended::Lost { why, after, answered } => Self {
                lost: Some(why),
                lost_after_s: Some(after.as_secs_f64()),
                answered,
                ..Self::default()
            },
            Ended::Whole(part) => *part,
        };
        Self { name, host, clock_uncertainty_s: clock_uncertainty.as_secs_f64(), ..part }
    }

    /// The figures of its own result.
    fn part(outcome: &Outcome) -> Self {
        Self {
            threads: outcome.setting.threads,
            connections: outcome.setting.connections,
            sent: outcome.totals.sent,
            answered: outcome.totals.answered,
            errors: outcome.errors.total(),
            answered_per_s: outcome.answered_per_s(),
            p50_ns: outcome.latency.quantile_ns(0.5),
            p99_ns: outcome.latency.quantile_ns(0.99),
            max_ns: outcome.latency.max_ns(),
            lag_p99_ns: outcome.generator.lag.quantile_ns(0.99),
            cpu_s: outcome.generator.cpu.as_secs_f64(),
            busy_share: outcome.generator.busy_share.iter().copied().fold(0.0, f64::max),
            findings: own_findings(outcome),
            ..Self::default()
        }
    }
}

/// What an agent found about itself: the sum cannot tell whose it was.
fn own_findings(outcome: &Outcome) -> Vec<Finding> {
    outcome.findings.iter().filter(|finding| is_of_generator(finding)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FindingKind;
    use crate::campaign::AgentState;
    use crate::sample::sample;

    fn status(first: u32, answered: &[u64]) -> AgentStatus {
        let second = |answered: &u64| Second { answered: *answered, ..Second::default() };
        AgentStatus {
            state: AgentState::Running,
            why: None,
            phase: Phase::Measuring,
            elapsed_ns: 1_000_000_000,
            totals: Totals { answered: answered.iter().sum(), ..Totals::default() },
            errors: Errors::default(),
            crowd_connected: 1,
            first,
            seconds: answered.iter().map(second).collect(),
            pieces: 0,
        }
    }

    fn live() -> LiveSum {
        LiveSum::new(["a", "b"].map(str::to_owned))
    }

    fn last(sum: &LiveSum) -> Option<u64> {
        sum.now().all.last.map(|last| last.answered)
    }

    #[test]
    fn a_second_is_shown_when_all_have_sent_it() {
        let mut sum = live();
        sum.take(0, status(0, &[1, 2]));
        assert_eq!((last(&sum), sum.wanted(0), sum.wanted(1)), (None, 2, 0));
        sum.take(1, status(0, &[10]));
        assert_eq!(last(&sum), Some(11));
        // The same again changes nothing.
        sum.take(1, status(0, &[10, 20]));
        assert_eq!((last(&sum), sum.wanted(1)), (Some(22), 2));
        let now = sum.now();
        assert_eq!((now.all.totals.answered, now.agents[1].answered), (33, 20));
    }

    #[test]
    fn a_lost_agent_is_not_waited_for() {
        let mut sum = live();
        sum.take(0, status(0, &[1, 2]));
        sum.lose(1);
        assert_eq!(last(&sum), Some(2));
        assert!(sum.now().agents[1].is_lost);
    }

    #[test]
    fn numbers_that_are_forged_grow_nothing() {
        let mut sum = live();
        sum.take(0, status(u32::MAX, &[1, 2, 3]));
        sum.take(1, status(7, &[1]));
        assert!(sum.waiting.len() <= 1);
        for number in 0..1_000 {
            sum.take(0, status(number, &[1]));
            sum.take(1, status(number + 8, &[1]));
        }
        assert!(sum.waiting.len() <= WAITING_MAX);
    }

    #[test]
    fn an_agent_that_is_far_behind_is_not_waited_for() {
        let mut sum = live();
        for number in 0..100 {
            sum.take(0, status(number, &[1]));
            assert!(sum.waiting.len() <= WAITING_MAX);
        }
        assert_eq!(last(&sum), Some(1));
        // What it sends of them then is in its totals alone.
        sum.take(1, status(0, &[7]));
        assert_eq!((last(&sum), sum.now().all.totals.answered), (Some(1), 8));
    }

    fn end(name: &str, ended: Ended) -> AgentEnd {
        let clock_uncertainty = Duration::from_micros(80);
        AgentEnd { name: name.to_owned(), host: "h".to_owned(), clock_uncertainty, ended }
    }

    #[test]
    fn percentiles_are_those_of_all_answers_together() {
        let mut results = ResultSum::default();
        let slow = end("a", results.take(sample(8, 100, 9_000_000)));
        let fast = end("b", results.take(sample(8, 900, 1_000_000)));
        let all = results.outcome(vec![slow, fast], 5.0).expect("results");
        assert_eq!((all.totals.answered, all.began_unix_s), (1_000, 5.0));
        let median = all.latency.quantile_ns(0.5).expect("values");
        let high = all.latency.quantile_ns(0.95).expect("values");
        assert!(median < 1_010_000 && high > 8_990_000, "{median} {high}");
        assert_eq!(all.agents.iter().map(|agent| agent.answered).collect::<Vec<_>>(), [100, 900]);
        assert!(all.agents[0].p50_ns > Some(8_990_000), "{:?}", all.agents[0].p50_ns);
        assert_eq!((&*all.agents[1].name, &*all.agents[1].host), ("b", "h"));
    }

    #[test]
    fn a_lost_agent_is_a_finding_and_in_no_figure() {
        let lost = Ended::Lost {
            why: "no answer for 3 s".to_owned(),
            after: Duration::from_secs(4),
            answered: 77,
        };
        let mut results = ResultSum::default();
        let whole = end("a", results.take(sample(8, 100, 1_000_000)));
        let ends = [whole, end("b", lost.clone())];
        let all = results.outcome(ends.to_vec(), 5.0).expect("a result");
        assert_eq!(all.totals.answered, 100);
        let found = all.findings.iter().find(|found| found.kind == FindingKind::AgentLost);
        let found = found.expect("a finding");
        assert!(
            found.text.contains("agent b") && found.text.contains("no answer for 3 s"),
            "{}",
            found.text
        );
        assert!(ResultSum::default().outcome(vec![end("b", lost)], 5.0).is_none());
        assert!(lost_all(&ends[1..]).contains("agent b: no answer"));
    }
}
