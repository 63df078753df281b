//! A load in turns on one agent: takes the lines of the lab on standard input, asks the agent, and prints what it answers.
//!
//! ```text
//!  lab: Open ──► who is there? free? ──► Open ──► … Opened ──► lab
//!  lab: Turn ──► Turn, numbered ──► … Turned ──► lab            between: Hold, once a second
//!  lab is gone ──► Close
//! ```
//!
//! An agent answers a turn when it is over. While that is waited for, and between turns, it is asked once a second whether it
//! still holds the connections, which is the beat that it needs; so one that is gone is noticed in time, and an answer that was
//! lost on the way is asked for again.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use pollux_load::campaign::{
    AgentName, CampaignRequest, Demand, Said, TurnOrder, TurnsDemand, TurnsLine, TurnsNumber,
    TurnsTold, VERSION,
};
use pollux_settings::command::output::Failure;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::broker::{AskError, Broker};
use crate::drive::{BEAT_OF_SETTING_UP, BUSY_TIME_MAX, PATIENCE, SILENCE_MAX};
use crate::flags::BrokerFlags;
use crate::pipes::{lines, tell};
use crate::work::BEAT_MAX;

/// Between two questions whether the connections are held.
const HOLD: Duration = Duration::from_secs(1);
/// How long the answer to a turn may take: longer than any. Whether the agent is there is seen by its beat.
const TURN_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Carries out the lines of standard input.
pub(crate) async fn turns(flags: &BrokerFlags) -> Result<ExitCode, Failure> {
    let mut lines = lines::<TurnsLine>()?;
    let Some(TurnsLine::Open { agent, campaign, order }) = lines.recv().await else {
        return Err(Failure::usage(
            "expected an order on standard input; `pollux lab run http --generator agent:NAME` gives it",
        ));
    };
    let broker = Broker::connect(flags, &format!("pollux lab {campaign}"), false).await;
    let named = |why: String| format!("agent {agent}: {why}");
    let ended = match broker {
        Ok(broker) => {
            let mut load = AgentLoad::new(broker, campaign, agent.clone());
            let ended =
                load.carry_out(TurnsDemand::Open { number: load.number, order }, &mut lines);
            let ended = ended.await.map_err(named);
            load.close().await;
            ended
        }
        Err(failure) => Err(failure.message),
    };
    if let Err(why) = ended {
        tell(&TurnsTold::Failed { why })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The connections that an agent holds for this process.
struct AgentLoad {
    broker: Broker,
    campaign: AgentName,
    agent: AgentName,
    /// Its process; 0 before it has answered.
    instance: u64,
    number: TurnsNumber,
    /// The last turn that was asked for; 0 of the opening.
    turn: u32,
    /// When it last answered, and since when there is no connection to the broker.
    answered: Instant,
    away_since: Option<Instant>,
}

/// What came of waiting.
enum Came {
    Said(Said),
    /// It is done, and its answer was lost.
    Lost,
    /// The process that started this one is gone.
    Left,
}

impl AgentLoad {
    fn new(broker: Broker, campaign: AgentName, agent: AgentName) -> Self {
        Self {
            broker,
            campaign,
            agent,
            instance: 0,
            // Not more than a number of JSON holds.
            number: TurnsNumber(fastrand::u64(1..1 << 53)),
            turn: 0,
            answered: Instant::now(),
            away_since: None,
        }
    }

    /// From the opening to the end of the lines.
    async fn carry_out(
        &mut self,
        open: TurnsDemand,
        lines: &mut mpsc::Receiver<TurnsLine>,
    ) -> Result<(), String> {
        self.find().await?;
        let mut demand = open;
        loop {
            let told = match self.done(&demand, lines).await? {
                None => return Ok(()),
                Some(Said::Opened(opened)) => TurnsTold::Opened(opened),
                Some(Said::Turned(report)) => TurnsTold::Turned(report),
                Some(_) => return Err("an answer to another question".to_owned()),
            };
            tell(&told).map_err(|failure| failure.message)?;
            let Some(TurnsLine::Turn { length_ns, requests }) = self.next(lines).await? else {
                return Ok(());
            };
            self.turn += 1;
            let turn = TurnOrder { number: self.turn, length_ns, requests };
            demand = TurnsDemand::Turn { of: self.number, turn };
        }
    }

    /// Waits until the agent is there and has nothing to do for others.
    async fn find(&mut self) -> Result<(), String> {
        let end = Instant::now() + BUSY_TIME_MAX;
        loop {
            let why = match self.ask(PATIENCE, Demand::Hello).await {
                Ok(Said::Here(facts)) => match facts.campaign {
                    Some(busy) if busy != self.campaign => format!("it is busy with {busy}"),
                    _ => return Ok(()),
                },
                Ok(_) => "an answer to another question".to_owned(),
                Err(AskError::Silent(why)) if why.contains("nobody listens") => format!(
                    "{why} by this name at the broker; `pollux load agents` lists those that are there"
                ),
                Err(AskError::Silent(why) | AskError::Unread(why) | AskError::Final(why)) => why,
            };
            if Instant::now() >= end {
                return Err(why);
            }
            tokio::time::sleep(BEAT_OF_SETTING_UP).await;
        }
    }

    /// Asks until it is done; nothing where the process that started this one is gone.
    async fn done(
        &mut self,
        demand: &TurnsDemand,
        lines: &mut mpsc::Receiver<TurnsLine>,
    ) -> Result<Option<Said>, String> {
        loop {
            match self.asked_once(demand, lines).await? {
                Came::Said(said) => return Ok(Some(said)),
                Came::Left => return Ok(None),
                Came::Lost => {}
            }
        }
    }

    async fn asked_once(
        &mut self,
        demand: &TurnsDemand,
        lines: &mut mpsc::Receiver<TurnsLine>,
    ) -> Result<Came, String> {
        let asker = self.broker.clone();
        let request = self.request(Demand::Turns(demand.clone()));
        let agent = self.agent.clone();
        let mut answer = pin!(asker.ask(&agent, &request, TURN_TIME_MAX));
        let mut beat = tokio::time::interval_at(Instant::now() + HOLD, HOLD);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                reply = &mut answer => match reply {
                    Ok(reply) if reply.instance != self.instance => {
                        return Err("another agent of this name answered".to_owned());
                    }
                    Ok(reply) => {
                        self.answered = Instant::now();
                        return match reply.said {
                            Said::Refused(why) => Err(why),
                            said => Ok(Came::Said(said)),
                        };
                    }
                    Err(AskError::Final(why)) => return Err(why),
                    Err(AskError::Silent(why) | AskError::Unread(why)) => {
                        self.is_there(&why)?;
                        tokio::time::sleep(BEAT_OF_SETTING_UP).await;
                        return Ok(Came::Lost);
                    }
                },
                _ = beat.tick() => if self.hold().await? == Some(self.turn) {
                    return Ok(Came::Lost);
                },
                // No line comes before the last one was answered.
                _ = lines.recv() => return Ok(Came::Left),
            }
        }
    }

    /// The next line; the connections are held meanwhile.
    async fn next(
        &mut self,
        lines: &mut mpsc::Receiver<TurnsLine>,
    ) -> Result<Option<TurnsLine>, String> {
        let mut beat = tokio::time::interval_at(Instant::now() + HOLD, HOLD);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = lines.recv() => return Ok(line),
                _ = beat.tick() => {
                    self.hold().await?;
                }
            }
        }
    }

    /// Asks whether the connections are held; the last turn that is done.
    async fn hold(&mut self) -> Result<Option<u32>, String> {
        let hold = TurnsDemand::Hold { of: self.number };
        match self.ask(PATIENCE, Demand::Turns(hold)).await {
            Ok(Said::Held { done }) => Ok(done),
            Ok(Said::Refused(why)) => Err(why),
            Ok(_) => Err("an answer to another question".to_owned()),
            Err(AskError::Final(why)) => Err(why),
            Err(AskError::Silent(why) | AskError::Unread(why)) => {
                self.is_there(&why).map(|()| None)
            }
        }
    }

    /// # Errors
    /// It has been silent for too long, or there was no broker for so long that it has closed the connections.
    fn is_there(&mut self, why: &str) -> Result<(), String> {
        let Some(connected) = self.broker.connected_since() else {
            let since = *self.away_since.get_or_insert_with(Instant::now);
            if since.elapsed() > BEAT_MAX {
                return Err(format!("no connection to the broker for {BEAT_MAX:?}"));
            }
            return Ok(());
        };
        self.away_since = None;
        if self.answered.max(connected).elapsed() > SILENCE_MAX {
            return Err(format!("no answer for {SILENCE_MAX:?} ({why})"));
        }
        Ok(())
    }

    async fn ask(&mut self, patience: Duration, demand: Demand) -> Result<Said, AskError> {
        let request = self.request(demand);
        let reply = self.broker.ask(&self.agent, &request, patience).await?;
        if self.instance == 0 {
            self.instance = reply.instance;
        }
        if reply.instance != self.instance || reply.agent != self.agent {
            return Err(AskError::Silent("another agent of this name answered".to_owned()));
        }
        self.answered = Instant::now();
        Ok(reply.said)
    }

    fn request(&self, demand: Demand) -> CampaignRequest {
        let campaign = self.campaign.clone();
        CampaignRequest { version: VERSION, campaign, instance: self.instance, demand }
    }

    /// Without it the agent closes them by itself.
    async fn close(&mut self) {
        let close = TurnsDemand::Close { of: self.number };
        let _ = self.ask(PATIENCE, Demand::Turns(close)).await;
    }
}
