//! The controller: takes the order of `pollux load` on standard input, has agents carry out their parts, and prints how far
//! they are and one result, each as a line of JSON.
//!
//! ```text
//!  discover ► clocks ► prepare ► all ready ► clocks ► one moment ► each half second: how far? ► results ► their sum
//!      └─────────┴─────────┴──────────┴─────────┴── anything wrong: all are dismissed before a request was sent
//! ```
//!
//! Results are fetched one after the other, since a long run's are long, and all agents are asked how far they are
//! meanwhile: without a message they would give up their results.
//!
//! When its standard input ends, the process that started it is gone: the agents are stopped.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{join_all, try_join_all};
use futures_util::{StreamExt, stream};
use pollux_load::Outcome;
use pollux_load::campaign::{
    AgentEnd, AgentName, AgentState, CampaignReply, CampaignRequest, ClockDistance, Demand, Ended,
    LiveSum, LoadOrder, MESSAGE_BYTES_MAX, OnLostAgent, PIECES_MAX, PingSample, RESULT_BYTES_MAX,
    ResultSum, Said, Told, ToldOrder, VERSION, lost_all, result_of,
};
use pollux_settings::command::output::{Failure, error_chain};
use pollux_sys::clock::monotonic_ns;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::broker::{AskError, Broker};
use crate::flags::BrokerFlags;
use crate::list::{ANSWER_TIME_MAX, Found, discover};
use crate::pipes::{lines, tell};
use crate::work::BEAT_MAX;

/// Messages by which a clock is found.
const PINGS: usize = 20;
/// Agents whose clocks are looked at together: more would wait for each other, and each would be known less exactly.
const CLOCKS_AT_ONCE: usize = 64;
/// An agent whose clock is known less exactly does not begin together with others.
const UNCERTAINTY_MAX: Duration = Duration::from_millis(50);
/// How long one answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// The same of a piece of a result, which is as long as a message may be.
const PIECE_PATIENCE: Duration = Duration::from_secs(3);
/// An agent that has not answered for so long is lost.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Between two questions how far an agent is.
const BEAT: Duration = Duration::from_millis(500);
/// The same while connections are opened.
pub(crate) const BEAT_OF_SETTING_UP: Duration = Duration::from_millis(100);
/// From the message that has all begin to when they do, at least; three times the largest uncertainty is added.
const START_AFTER: Duration = Duration::from_millis(600);
/// How long before that moment all have to have said that they will: what is left takes the message that dismisses them.
const DISMISSED_BEFORE: Duration = Duration::from_millis(200);
/// So long are agents waited for that are busy: one may be at the end of the run before, as in a search trial follows trial.
pub(crate) const BUSY_TIME_MAX: Duration = Duration::from_secs(2);

/// An agent of this run.
struct Agent {
    found: Found,
    clock: ClockDistance,
    /// How exactly it is known when requests begin.
    clock_uncertainty: Duration,
    /// When it last answered.
    answered: Instant,
    result: ResultState,
    ended: Option<Ended>,
}

/// Where the result of an agent is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultState {
    /// There is none yet.
    Measured,
    /// It can be fetched.
    Waits,
    /// It is fetched, or was.
    Fetched,
}

/// What ends a run without a result.
struct Failed {
    why: String,
    is_usage: bool,
}

impl Failed {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_usage: false }
    }

    fn usage(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_usage: true }
    }
}

/// Carries out the order on standard input.
pub(crate) async fn drive(flags: &BrokerFlags) -> Result<ExitCode, Failure> {
    let mut lines = lines()?;
    let Some(ToldOrder::Run { order, agents, on_lost_agent }) = lines.recv().await else {
        return Err(Failure::usage(
            "expected an order on standard input; `pollux load --agents` gives it",
        ));
    };
    let told = match driven(flags, &order, agents, on_lost_agent, &mut lines).await {
        Ok(outcome) => Told::Outcome(Box::new(outcome)),
        Err(Failed { why, is_usage }) => Told::Failed { why, is_usage },
    };
    tell(&told)?;
    Ok(ExitCode::SUCCESS)
}

async fn driven(
    flags: &BrokerFlags,
    order: &LoadOrder,
    agents: u32,
    on_lost_agent: OnLostAgent,
    lines: &mut mpsc::Receiver<ToldOrder>,
) -> Result<Outcome, Failed> {
    let parts = order.parts(agents).map_err(|error| Failed::usage(error_chain(&error)))?;
    let campaign = campaign_name();
    let broker = Broker::connect(flags, &format!("pollux load {campaign}"), false).await;
    let broker = broker.map_err(|failure| Failed::new(failure.message))?;
    let found = unless_ended(lines, enough(&broker, &campaign, agents as usize)).await?;
    let mut run = Run {
        asker: Asker { broker, campaign, unread: Arc::default() },
        agents: Vec::new(),
        live: LiveSum::new([]),
        results: ResultSum::default(),
        away_since: None,
    };
    unless_ended(lines, run.clocks(found)).await?;
    run.live = LiveSum::new(run.agents.iter().map(|agent| agent.found.name.to_string()));
    let begin = async {
        run.prepare(parts).await?;
        run.begin(order.warm_up()).await
    };
    match unless_ended(lines, begin).await {
        Ok(began_unix_s) => {
            let followed = run.follow(on_lost_agent, lines).await;
            run.dismiss().await;
            followed?;
            let ends = run.ends();
            let lost = lost_all(&ends);
            run.results.outcome(ends, began_unix_s).ok_or_else(|| Failed::new(lost))
        }
        Err(failed) => {
            run.dismiss().await;
            Err(failed)
        }
    }
}

/// Does what precedes the requests, but for as long as nobody wants it to end.
async fn unless_ended<T>(
    lines: &mut mpsc::Receiver<ToldOrder>,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    tokio::select! {
        done = work => done,
        _ = lines.recv() => Err(Failed::new("ended before it began")),
    }
}

/// The agents that take part: the first by name of those that have nothing to do.
async fn enough(
    broker: &Broker,
    campaign: &AgentName,
    wanted: usize,
) -> Result<Vec<Found>, Failed> {
    let end = Instant::now() + BUSY_TIME_MAX;
    let (mut found, strange) = loop {
        let answers = discover(broker, campaign, wanted).await;
        let (found, strange) = answers.map_err(|failure| Failed::new(failure.message))?;
        let free = found.iter().filter(|each| each.facts.campaign.is_none()).count();
        if free >= wanted || found.len() < wanted || Instant::now() >= end {
            break (found, strange);
        }
        // The connections of a run that is over are being closed.
        tokio::time::sleep(BEAT_OF_SETTING_UP).await;
    };
    if let Some(pair) = found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let [a, b] = [0, 1].map(|at| &pair[at].facts.host);
        return Err(Failed::new(format!(
            "two agents have the name {} (on {a} and on {b}); start one of them with another --name",
            pair[0].name
        )));
    }
    let words = |each: &Found| match &each.facts.campaign {
        Some(busy) => format!("{} (on {}, busy with {busy})", each.name, each.facts.host),
        None => format!("{} (on {})", each.name, each.facts.host),
    };
    let mut all: Vec<String> = found.iter().map(words).collect();
    found.retain(|each| each.facts.campaign.is_none());
    if found.len() < wanted {
        all.extend(strange);
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(Failed::new(format!(
            "{wanted} agents were asked for, {} answered within {ANSWER_TIME_MAX:?} and {} free: {all}; start more with \
             `pollux-agent`, or ask for fewer",
            found.len(),
            if found.len() == 1 { "is" } else { "are" }
        )));
    }
    found.truncate(wanted);
    Ok(found)
}

/// What asks the agents of a run.
#[derive(Clone)]
struct Asker {
    broker: Broker,
    campaign: AgentName,
    /// Replies that were none.
    unread: Arc<AtomicU64>,
}

impl Asker {
    fn request(&self, instance: u64, demand: Demand) -> CampaignRequest {
        CampaignRequest { version: VERSION, campaign: self.campaign.clone(), instance, demand }
    }

    /// Asks one agent, and takes no other's answer for its. A reply that can't be read is counted, and is as none.
    async fn ask(&self, agent: &Found, demand: Demand) -> Result<CampaignReply, AskError> {
        self.ask_for(PATIENCE, agent, demand).await
    }

    async fn ask_for(
        &self,
        patience: Duration,
        agent: &Found,
        demand: Demand,
    ) -> Result<CampaignReply, AskError> {
        let request = self.request(agent.instance, demand);
        let reply = match self.broker.ask(&agent.name, &request, patience).await {
            Err(AskError::Unread(why)) => {
                let unread = self.unread.fetch_add(1, Relaxed) + 1;
                if unread.is_power_of_two() {
                    let name = &agent.name;
                    // Where standard output is closed, the next progress ends the run.
                    let _ = tell(&Told::Remark(format!(
                        "agent {name}: {why} ({unread} such replies in all)"
                    )));
                }
                return Err(AskError::Silent(why));
            }
            asked => asked?,
        };
        if reply.instance != agent.instance || reply.agent != agent.name {
            return Err(AskError::Silent("another agent of this name answered".to_owned()));
        }
        Ok(reply)
    }

    /// The same, again and again for as long as an agent may be silent: for what may be asked twice.
    async fn ask_again(&self, agent: &Found, demand: Demand) -> Result<Said, String> {
        let end = Instant::now() + SILENCE_MAX;
        loop {
            match self.ask(agent, demand.clone()).await {
                Ok(reply) => return Ok(reply.said),
                Err(AskError::Silent(_)) if Instant::now() < end => {
                    tokio::time::sleep(BEAT_OF_SETTING_UP).await;
                }
                Err(AskError::Silent(why) | AskError::Unread(why) | AskError::Final(why)) => {
                    return Err(why);
                }
            }
        }
    }

    /// How far the clock of an agent is from this one.
    async fn clock(&self, agent: &Found) -> Result<ClockDistance, Failed> {
        let mut samples = Vec::with_capacity(PINGS);
        let mut why = String::new();
        let mut answered = Instant::now();
        for _ in 0..PINGS {
            if answered.elapsed() > SILENCE_MAX {
                return Err(Failed::new(format!("agent {}: {why}", agent.name)));
            }
            let sent_ns = monotonic_ns();
            match self.ask(agent, Demand::Ping).await {
                Ok(reply) => {
                    let received_ns = monotonic_ns();
                    samples.push(PingSample { sent_ns, agent_ns: reply.now_ns, received_ns });
                    answered = Instant::now();
                }
                Err(AskError::Silent(error) | AskError::Unread(error) | AskError::Final(error)) => {
                    why = error;
                }
            }
        }
        let name = &agent.name;
        let clock = ClockDistance::of(&samples);
        let clock = clock.ok_or_else(|| Failed::new(format!("agent {name}: {why}")))?;
        let uncertainty = Duration::from_nanos(clock.uncertainty_ns(monotonic_ns()));
        if uncertainty > UNCERTAINTY_MAX {
            return Err(Failed::new(format!(
                "agent {name}: its clock is known to within {uncertainty:?} only, as messages take so long; \
                 expected {UNCERTAINTY_MAX:?}, to start together with the others"
            )));
        }
        Ok(clock)
    }

    /// Whether an agent that answered then has been silent for too long, time without a broker aside.
    fn is_lost(&self, answered: Instant) -> bool {
        let Some(connected) = self.broker.connected_since() else { return false };
        answered.max(connected).elapsed() > SILENCE_MAX
    }

    /// The result of an agent, piece by piece; each is asked for until it comes.
    async fn fetch(self, agent: Found) -> Result<Outcome, String> {
        let mut bytes = Vec::new();
        let mut number = 0;
        let mut answered = Instant::now();
        loop {
            let reply = self.ask_for(PIECE_PATIENCE, &agent, Demand::Piece { number }).await;
            match reply.map(|reply| reply.said) {
                Ok(Said::Piece { of, bytes: piece }) => {
                    let piece = STANDARD.decode(piece).map_err(|error| error.to_string())?;
                    bytes.extend(piece);
                    number += 1;
                    answered = Instant::now();
                    if of > PIECES_MAX {
                        return Err(format!("it has {of} pieces; expected {PIECES_MAX} at most"));
                    }
                    if bytes.len() > RESULT_BYTES_MAX {
                        return Err(format!("it is longer than {RESULT_BYTES_MAX} bytes"));
                    }
                    if number >= of {
                        break;
                    }
                }
                Ok(Said::Refused(why)) | Err(AskError::Final(why) | AskError::Unread(why)) => {
                    return Err(why);
                }
                Ok(_) => return Err("an answer to another question".to_owned()),
                Err(AskError::Silent(why)) if self.is_lost(answered) => return Err(why),
                Err(AskError::Silent(_)) => tokio::time::sleep(BEAT_OF_SETTING_UP).await,
            }
        }
        // Where that is lost, the agent forgets the run by itself.
        let _ = self.ask(&agent, Demand::Dismiss).await;
        // A long one takes a while to read, in which agents have to be asked.
        let read = tokio::task::spawn_blocking(move || result_of(&bytes)).await;
        let read = read.map_err(|error| error.to_string())?;
        read.map_err(|error| error.to_string())
    }
}

/// A run of some agents.
struct Run {
    asker: Asker,
    agents: Vec<Agent>,
    live: LiveSum,
    results: ResultSum,
    /// Since when there is no connection to the broker.
    away_since: Option<Instant>,
}

/// The result that is fetched, and whose it is: one at a time.
type Fetched = JoinSet<(usize, Result<Outcome, String>)>;

impl Run {
    /// Takes the agents that were found, with how far the clock of each is from this one: before anything is opened for a run
    /// that could not begin together.
    async fn clocks(&mut self, found: Vec<Found>) -> Result<(), Failed> {
        let clocks = self.clocks_of(&found).await;
        for (found, clock) in found.into_iter().zip(clocks) {
            self.agents.push(Agent {
                found,
                clock: clock?,
                clock_uncertainty: Duration::ZERO,
                answered: Instant::now(),
                result: ResultState::Measured,
                ended: None,
            });
        }
        Ok(())
    }

    /// Looks at the clocks again: connections may have taken minutes, in which clocks drift.
    async fn clocks_again(&mut self) -> Result<(), Failed> {
        let found: Vec<Found> = self.agents.iter().map(|agent| agent.found.clone()).collect();
        let clocks = self.clocks_of(&found).await;
        for (agent, clock) in self.agents.iter_mut().zip(clocks) {
            agent.clock = clock?;
            agent.answered = Instant::now();
        }
        Ok(())
    }

    async fn clocks_of(&self, found: &[Found]) -> Vec<Result<ClockDistance, Failed>> {
        let asked = stream::iter(found.iter().map(|agent| self.asker.clock(agent)));
        asked.buffered(CLOCKS_AT_ONCE).collect().await
    }

    /// Sends each its part. One refusal ends the run before a request was sent.
    async fn prepare(&self, parts: Vec<LoadOrder>) -> Result<(), Failed> {
        let most = self.asker.broker.client.max_payload().min(MESSAGE_BYTES_MAX);
        let demands: Vec<Demand> =
            parts.into_iter().map(|part| Demand::Prepare(Box::new(part))).collect();
        for demand in &demands {
            let bytes = self.asker.request(0, demand.clone()).encode().len();
            if bytes > most {
                return Err(Failed::usage(format!(
                    "the order has {bytes} bytes, bodies and URLs included, and one message of this broker {most} at \
                     most (max_payload)"
                )));
            }
        }
        let asked = self.agents.iter().zip(demands);
        let answers =
            join_all(asked.map(|(agent, demand)| self.asker.ask_again(&agent.found, demand))).await;
        for (agent, answer) in self.agents.iter().zip(answers) {
            let name = &agent.found.name;
            match answer {
                Ok(Said::Accepted) => {}
                Ok(Said::Refused(why)) => {
                    return Err(Failed::new(format!("agent {name} refuses the order: {why}")));
                }
                Ok(_) => {
                    return Err(Failed::new(format!(
                        "agent {name}: an answer to another question"
                    )));
                }
                Err(why) => return Err(Failed::new(format!("agent {name}: {why}"))),
            }
        }
        Ok(())
    }

    /// Waits until all are ready, and has them begin at one moment. Returns when that was counted to begin, in seconds since
    /// 1970.
    async fn begin(&mut self, warm_up: Duration) -> Result<f64, Failed> {
        loop {
            if self.is_away()? {
                tokio::time::sleep(BEAT_OF_SETTING_UP).await;
                continue;
            }
            let states = self.beat().await;
            for (agent, state) in self.agents.iter().zip(&states) {
                let name = &agent.found.name;
                match state {
                    Some((AgentState::Failed | AgentState::Idle, why)) => {
                        let why = why.clone().unwrap_or_else(|| "it was started anew".to_owned());
                        return Err(Failed::new(format!("agent {name} could not begin: {why}")));
                    }
                    None if self.asker.is_lost(agent.answered) => {
                        return Err(Failed::new(format!(
                            "agent {name}: no answer for {SILENCE_MAX:?}"
                        )));
                    }
                    _ => {}
                }
            }
            self.tell_progress()?;
            if states.iter().all(|state| matches!(state, Some((AgentState::Ready, _)))) {
                break;
            }
            tokio::time::sleep(BEAT_OF_SETTING_UP).await;
        }
        self.clocks_again().await?;
        let earliest_ns = monotonic_ns() + START_AFTER.as_nanos() as u64;
        let known = self.agents.iter().map(|agent| agent.clock.uncertainty_ns(earliest_ns));
        let begin_ns = earliest_ns + 3 * known.max().unwrap_or(0);
        for agent in &mut self.agents {
            agent.clock_uncertainty = Duration::from_nanos(agent.clock.uncertainty_ns(begin_ns));
        }
        let now_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_unix_s = now_unix.as_secs_f64()
            + Duration::from_nanos(begin_ns.saturating_sub(monotonic_ns())).as_secs_f64()
            + warm_up.as_secs_f64();
        let patience = START_AFTER - DISMISSED_BEFORE;
        let told = self.agents.iter().map(async |agent| {
            let not_begun =
                |why: &str| Failed::new(format!("agent {} did not begin: {why}", agent.found.name));
            let at_ns = agent.clock.to_agent(begin_ns);
            let at_ns = at_ns.ok_or_else(|| not_begun("its clock has no such moment"))?;
            let reply = self.asker.ask_for(patience, &agent.found, Demand::Start { at_ns }).await;
            match reply.map(|reply| reply.said) {
                Ok(Said::Accepted) => Ok(()),
                Ok(Said::Refused(why)) => Err(not_begun(&why)),
                Ok(_) => Err(not_begun("an answer to another question")),
                Err(AskError::Silent(why) | AskError::Unread(why) | AskError::Final(why)) => {
                    Err(not_begun(&why))
                }
            }
        });
        // One that fails is not waited for together with the others: these would send requests of a run that there will not be.
        try_join_all(told).await?;
        Ok(began_unix_s)
    }

    /// Follows all to their ends.
    async fn follow(
        &mut self,
        on_lost_agent: OnLostAgent,
        lines: &mut mpsc::Receiver<ToldOrder>,
    ) -> Result<(), Failed> {
        let mut fetched = Fetched::new();
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_open = true;
        let mut is_stopped = false;
        while self.agents.iter().any(|agent| agent.ended.is_none()) {
            tokio::select! {
                line = lines.recv(), if is_open => match line {
                    Some(ToldOrder::End) => return Err(Failed::new("ended at once")),
                    Some(_) => is_stopped = true,
                    // The process that started this is gone: nobody will read the result.
                    None => (is_open, is_stopped) = (false, true),
                },
                Some(result) = fetched.join_next() => {
                    self.take_result(result)?;
                    self.fetch_next(&mut fetched);
                }
                _ = beat.tick() => {
                    if self.is_away()? {
                        continue;
                    }
                    if is_stopped {
                        self.stop().await;
                    }
                    self.round().await;
                    self.fetch_next(&mut fetched);
                    let has_lost = self.agents.iter().any(|agent| matches!(agent.ended, Some(Ended::Lost { .. })));
                    is_stopped |= has_lost && on_lost_agent == OnLostAgent::Stop;
                    self.tell_progress()?;
                }
            }
        }
        Ok(())
    }

    /// Whether there is no connection to the broker now.
    ///
    /// # Errors
    /// There was none for so long that the agents have stopped.
    fn is_away(&mut self) -> Result<bool, Failed> {
        if self.asker.broker.connected_since().is_some() {
            self.away_since = None;
            return Ok(false);
        }
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if since.elapsed() > BEAT_MAX {
            return Err(Failed::new(format!(
                "no connection to the broker for {BEAT_MAX:?}: the agents have stopped by themselves"
            )));
        }
        Ok(true)
    }

    /// Asks all how far they are.
    async fn round(&mut self) {
        let states = self.beat().await;
        for (at, state) in states.into_iter().enumerate() {
            let agent = &mut self.agents[at];
            // What becomes of a result that is fetched, its fetching says.
            if agent.ended.is_some() || agent.result == ResultState::Fetched {
                continue;
            }
            let lost = match state {
                Some((AgentState::Finished, _)) => {
                    agent.result = ResultState::Waits;
                    None
                }
                Some((AgentState::Failed | AgentState::Idle, why)) => {
                    Some(why.unwrap_or_else(|| "it has forgotten the order".to_owned()))
                }
                Some(_) => None,
                None if self.asker.is_lost(agent.answered) => {
                    Some(format!("no answer for {SILENCE_MAX:?}"))
                }
                None => None,
            };
            if let Some(why) = lost {
                self.lose(at, why);
            }
        }
    }

    /// Begins to fetch the next result that waits, unless one is fetched.
    fn fetch_next(&mut self, fetched: &mut Fetched) {
        let waits = |agent: &Agent| agent.ended.is_none() && agent.result == ResultState::Waits;
        let Some(at) = self.agents.iter().position(waits).filter(|_| fetched.is_empty()) else {
            return;
        };
        self.agents[at].result = ResultState::Fetched;
        let fetch = self.asker.clone().fetch(self.agents[at].found.clone());
        fetched.spawn(async move { (at, fetch.await) });
    }

    /// Adds the result of an agent to the sum.
    fn take_result(
        &mut self,
        fetched: Result<(usize, Result<Outcome, String>), JoinError>,
    ) -> Result<(), Failed> {
        let (at, result) = fetched.map_err(|error| Failed::new(error.to_string()))?;
        match result {
            Ok(outcome) => self.agents[at].ended = Some(self.results.take(outcome)),
            Err(why) => self.lose(at, format!("its result could not be fetched: {why}")),
        }
        Ok(())
    }

    fn lose(&mut self, at: usize, why: String) {
        let answered = self.live.answered(at);
        let after = self.live.now().all.elapsed;
        self.live.lose(at);
        self.agents[at].ended = Some(Ended::Lost { why, after, answered });
    }

    /// Asks those that have not ended; what each is at, and nothing of those that are silent.
    async fn beat(&mut self) -> Vec<Option<(AgentState, Option<String>)>> {
        let asked = self.agents.iter().enumerate().map(async |(at, agent)| {
            if agent.ended.is_some() {
                return None;
            }
            let demand = Demand::Status { seconds_from: self.live.wanted(at) };
            match self.asker.ask(&agent.found, demand).await.map(|reply| reply.said) {
                Ok(Said::Status(status)) => Some(status),
                // A message that was spoiled, or is not an answer to this: it is asked again.
                _ => None,
            }
        });
        let answers = join_all(asked).await;
        let mut states = Vec::with_capacity(answers.len());
        for (at, status) in answers.into_iter().enumerate() {
            states.push(status.as_ref().map(|status| (status.state, status.why.clone())));
            if let Some(status) = status {
                self.agents[at].answered = Instant::now();
                // At its end its totals come with the result.
                if status.state == AgentState::Running {
                    self.live.take(at, *status);
                }
            }
        }
        states
    }

    /// Tells all that have not ended to.
    async fn stop(&self) {
        let alive = self.agents.iter().filter(|agent| agent.ended.is_none());
        join_all(alive.map(|agent| self.asker.ask(&agent.found, Demand::Stop))).await;
    }

    /// Has all forget the run, whatever they are at.
    async fn dismiss(&self) {
        let is_there = |agent: &&Agent| !matches!(agent.ended, Some(Ended::Lost { .. }));
        let there = self.agents.iter().filter(is_there);
        join_all(there.map(|agent| self.asker.ask(&agent.found, Demand::Dismiss))).await;
    }

    fn tell_progress(&self) -> Result<(), Failed> {
        let told = Told::Progress(Box::new(self.live.now()));
        tell(&told).map_err(|failure| Failed::new(failure.message))
    }

    fn ends(&self) -> Vec<AgentEnd> {
        let end = |agent: &Agent| {
            Some(AgentEnd {
                name: agent.found.name.to_string(),
                host: agent.found.facts.host.clone(),
                clock_uncertainty: agent.clock_uncertainty,
                ended: agent.ended.clone()?,
            })
        };
        self.agents.iter().filter_map(end).collect()
    }
}

/// Says who orders, for the logs of agents: host, process, and a number that no other run has.
fn campaign_name() -> AgentName {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take(32).collect();
    AgentName::nearest(&format!("{host}-{}-{:06x}", std::process::id(), fastrand::u32(..1 << 24)))
}
