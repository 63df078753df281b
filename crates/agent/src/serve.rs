//! The agent: waits for orders, carries out one at a time, and answers what it is asked. What it can't read, or will not do,
//! is counted and logged.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use async_nats::{Message, Subject, Subscriber};
use futures_util::StreamExt;
use pollux_engine::CpuList;
use pollux_load::campaign::{
    AgentFacts, AgentName, AgentState, CampaignReply, CampaignRequest, Demand, LoadBounds,
    LoadOrder, MESSAGE_BYTES_MAX, MessageError, Said, TurnsDemand, TurnsNumber, TurnsOrder,
    VERSION,
};
use pollux_load::{ScrapeListener, ScrapedPage};
use pollux_settings::command::output::{self, Failure};
use pollux_sys::descriptors;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::agent_clock::AgentClock;
use crate::agent_metrics::{self, AgentCounts};
use crate::broker::{Broker, is_logged};
use crate::flags::AgentFlags;
use crate::held::{Answer, ClosedLoads, HeldLoads, OVERS_MAX, Over};
use crate::sandbox;
use crate::work::Work;

/// Between two looks at the order that is carried out.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end of an order is waited for when the agent ends.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(3);
/// Descriptors that are listed: a limit that is none is a number like any other.
const DESCRIPTORS_TOLD_MAX: u64 = 1 << 40;
/// Campaigns that are remembered once they were ordered: an order of one that is over was recorded, and is sent again.
const CAMPAIGNS_MAX: usize = 4096;
/// Targets that are listed: the list is a message.
const ALLOWED_TOLD_MAX: usize = 20;
/// Of a piece of a result, four bytes become this many with what stands around them.
const PIECE_SHARE: (usize, usize) = (5, 8);

/// An agent that has what it needs, and has given up the rest.
pub(crate) struct Ready {
    name: AgentName,
    host: String,
    who: String,
    page: Option<ScrapedPage>,
}

impl Ready {
    /// Prepares it; this thread has to be the only one.
    pub(crate) fn new(flags: &AgentFlags) -> Result<Self, Failure> {
        descriptors::raise().map_err(Failure::failed)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = flags.name.clone().unwrap_or_else(|| AgentName::nearest(&host));
        let who = format!("pollux-agent {name}");
        if let Some(folder) = &flags.results {
            let failed = |error| Failure::usage(format!("--results {}: {error}", folder.display()));
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let unheard =
            |error| Failure::failed(format!("--prometheus: it can't be listened on: {error}"));
        let listener = flags.prometheus.map(ScrapeListener::bind).transpose().map_err(unheard)?;
        sandbox::confine(flags, &who)?;
        let mut page = None;
        if let Some(listener) = listener {
            let address = listener.address().map_err(unheard)?;
            page = Some(listener.serve().map_err(unheard)?);
            output::remark(&format!("{who}: metrics at http://{address}/metrics"));
        }
        Ok(Self { name, host, who, page })
    }
}

/// Runs until a signal ends it.
pub(crate) async fn serve(flags: &AgentFlags, ready: Ready) -> Result<ExitCode, Failure> {
    let Ready { name, host, who, page } = ready;
    let mut ended = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    // A broker may be away for days.
    let (broker, mut hellos, mut own) = tokio::select! {
        subscribed = subscribed(flags, &name, &who) => subscribed?,
        _ = ended.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupted.recv() => return Ok(ExitCode::SUCCESS),
    };
    let (says_over, overs) = mpsc::channel(OVERS_MAX);
    let mut agent = Agent {
        broker,
        name,
        host,
        who,
        instance: fastrand::u64(1..1 << 53),
        clock: AgentClock::new(flags.test_clock.unwrap_or_default()),
        bounds: flags.bounds(),
        flags,
        work: None,
        campaigns: VecDeque::new(),
        held: None,
        closed: ClosedLoads::default(),
        says_over,
        overs,
        page,
        counts: AgentCounts::default(),
        was_connected: true,
    };
    output::remark(&format!("{}: waits for orders; it allows {}", agent.who, agent.allowed()));
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            message = hellos.next() => agent.receive(message, true).await?,
            message = own.next() => agent.receive(message, false).await?,
            Some(over) = agent.overs.recv() => agent.take_over(over).await,
            _ = look.tick() => agent.look().await,
            _ = ended.recv() => return agent.leave().await,
            _ = interrupted.recv() => return agent.leave().await,
        }
    }
}

/// Connects, and subscribes to what all agents of the group are asked, and to what this one is.
async fn subscribed(
    flags: &AgentFlags,
    name: &AgentName,
    who: &str,
) -> Result<(Broker, Subscriber, Subscriber), Failure> {
    let broker = Broker::connect(&flags.broker, who, true).await?;
    let hellos = broker.client.subscribe(broker.hello()).await.map_err(Failure::failed)?;
    let own = broker.client.subscribe(broker.agent(name)).await.map_err(Failure::failed)?;
    // What is subscribed to is known to the broker before it is said.
    broker.client.flush().await.map_err(Failure::failed)?;
    Ok((broker, hellos, own))
}

struct Agent<'f> {
    broker: Broker,
    name: AgentName,
    host: String,
    /// Before each line of the log.
    who: String,
    instance: u64,
    clock: AgentClock,
    bounds: LoadBounds,
    flags: &'f AgentFlags,
    work: Option<Work>,
    /// Those of which there was an order, the last ones.
    campaigns: VecDeque<AgentName>,
    /// Loads that come in turns: of one campaign, and not beside an order.
    held: Option<HeldLoads>,
    /// Those that were closed, while there are none.
    closed: ClosedLoads,
    says_over: mpsc::Sender<Over>,
    overs: mpsc::Receiver<Over>,
    page: Option<ScrapedPage>,
    counts: AgentCounts,
    was_connected: bool,
}

impl Agent<'_> {
    /// Answers a message.
    async fn receive(&mut self, message: Option<Message>, is_hello: bool) -> Result<(), Failure> {
        let Some(message) = message else {
            return Err(Failure::failed("the broker has ended the subscription"));
        };
        let now_ns = self.clock.now_ns();
        if self.work.as_ref().is_some_and(Work::is_gone) {
            self.work = None;
        }
        let Some(said) = self.answer(&message, is_hello) else { return Ok(()) };
        if let Some(inbox) = message.reply {
            self.reply(inbox, said, now_ns).await;
        }
        Ok(())
    }

    /// Answers what a thread has done.
    async fn take_over(&mut self, over: Over) {
        let answer = self.held.as_mut().and_then(|held| held.take(over));
        if let Some((inbox, said)) = answer {
            self.reply(inbox, said, self.clock.now_ns()).await;
        }
    }

    async fn reply(&mut self, inbox: Subject, said: Said, now_ns: u64) {
        let reply = CampaignReply {
            version: VERSION,
            agent: self.name.clone(),
            instance: self.instance,
            now_ns,
            said,
        };
        let most = self.broker.client.max_payload().min(MESSAGE_BYTES_MAX);
        let bytes = match fitting(reply, most) {
            Ok(bytes) => bytes,
            Err(bytes) => {
                return self.refuse(&format!(
                    "an answer of {bytes} bytes is not sent: one message of this broker has {most} at most (max_payload)"
                ));
            }
        };
        // Without a connection the controller asks again.
        if let Err(error) = self.broker.client.publish(inbox, bytes.into()).await {
            self.refuse(&format!("an answer could not be sent: {}", output::error_chain(&error)));
        }
    }

    /// What is said to a message now; nothing where it is not answered, or later.
    fn answer(&mut self, message: &Message, is_hello: bool) -> Option<Said> {
        let request = match CampaignRequest::decode(&message.payload) {
            Ok(request) => request,
            // A controller of another version is to see that there is an agent, of which version.
            Err(MessageError::Version(version)) if is_hello => {
                self.refuse(&format!(
                    "a controller speaks version {version}, this agent version {VERSION}"
                ));
                return Some(Said::Here(self.facts()));
            }
            Err(error) => {
                self.refuse(&format!("a message on {}: {error}", message.subject));
                return None;
            }
        };
        if is_hello {
            return (request.demand == Demand::Hello).then(|| Said::Here(self.facts()));
        }
        if request.instance != 0 && request.instance != self.instance {
            self.refuse(&format!(
                "{}: a message for an agent of this name that is gone",
                request.campaign
            ));
            return None;
        }
        if request.instance == 0 && request.demand.is_order() {
            let why = "it does not name the process that it is for";
            self.refuse_order(&format!("{}: order refused: {why}", request.campaign));
            return Some(Said::Refused(why.to_owned()));
        }
        let request = match request {
            CampaignRequest { campaign, demand: Demand::Turns(demand), .. } => {
                return self.answer_of_turns(&campaign, demand, message.reply.clone());
            }
            request => request,
        };
        let is_current =
            self.work.as_ref().is_some_and(|work| *work.campaign() == request.campaign);
        if matches!(request.demand, Demand::Prepare(_)) && !is_current {
            self.make_way(&request.campaign);
        }
        match (request.demand, &mut self.work) {
            (Demand::Hello, _) => Some(Said::Here(self.facts())),
            (Demand::Ping, work) => {
                // Also a beat of the campaign that it belongs to.
                if let Some(work) = work.as_mut().filter(|_| is_current) {
                    work.take_beat();
                }
                Some(Said::Pong)
            }
            (Demand::Prepare(order), _) => self.prepare(&request.campaign, &order),
            (Demand::Status { .. }, None) => Some(Said::Status(Box::new(Self::idle()))),
            // Of a campaign that is over: ignored, and never taken for the one that runs.
            (_, Some(_)) if !is_current => {
                self.refuse(&format!("{}: a message of another campaign", request.campaign));
                Some(Said::Refused("it has no order of this campaign".to_owned()))
            }
            (Demand::Dismiss | Demand::Stop, None) => Some(Said::Accepted),
            (Demand::Start { .. } | Demand::Piece { .. }, None) => {
                Some(Said::Refused("it has no order of this campaign".to_owned()))
            }
            (demand, Some(work)) => {
                work.take_beat();
                Some(answer_of(work, &demand, &self.clock))
            }
            // Answered before.
            (Demand::Turns(_), None) => None,
        }
    }

    /// What is said to the order for a run, which is begun unless there is something else to do.
    fn prepare(&mut self, campaign: &AgentName, order: &LoadOrder) -> Option<Said> {
        let refusal = match &mut self.work {
            // The answer to the first one was lost.
            Some(work) if work.campaign() == campaign => {
                work.take_beat();
                return Some(Said::Accepted);
            }
            Some(work) => Some(format!("it is busy with {}", work.campaign())),
            None if self.campaigns.contains(campaign) => Some("its run is over".to_owned()),
            None if self.held.as_ref().is_some_and(HeldLoads::is_taken) => {
                Some(format!("it is busy with {}", self.busy_with()?))
            }
            None => None,
        };
        let begun = refusal.map_or_else(|| self.begin(campaign, order), Err);
        Some(match begun {
            Ok(about) => {
                output::remark(&format!("{}: {campaign}: order: {about}", self.who));
                Said::Accepted
            }
            Err(why) => {
                self.refuse_order(&format!("{campaign}: order refused: {why}"));
                Said::Refused(why)
            }
        })
    }

    /// Begins a run, in the place of loads that are held; what it is, or why it can't be.
    fn begin(&mut self, campaign: &AgentName, order: &LoadOrder) -> Result<String, String> {
        self.forget_held();
        let len_bytes = self.piece_len_bytes();
        let bounds = (&self.bounds, &*self.flags.source);
        let (work, about) = Work::begin(campaign.clone(), order, bounds, len_bytes)?;
        self.work = Some(work);
        self.campaigns.push_back(campaign.clone());
        if self.campaigns.len() > CAMPAIGNS_MAX {
            self.campaigns.pop_front();
        }
        self.counts.orders += 1;
        Ok(about)
    }

    /// The same of loads that come in turns.
    fn answer_of_turns(
        &mut self,
        campaign: &AgentName,
        demand: TurnsDemand,
        inbox: Option<Subject>,
    ) -> Option<Said> {
        let is_order = matches!(demand, TurnsDemand::Open { .. });
        let answer = match demand {
            TurnsDemand::Open { number, order } => self.open(campaign, number, &order, inbox),
            TurnsDemand::Turn { of, turn } => {
                self.held_of(campaign).and_then(|held| held.turn(of, turn, inbox))
            }
            TurnsDemand::Hold { of } => {
                self.held_of(campaign).and_then(|held| held.hold(of)).map(Answer::Now)
            }
            TurnsDemand::Close { of } => {
                self.close(campaign, of).map(|()| Answer::Now(Said::Accepted))
            }
        };
        match answer {
            Ok(Answer::Now(said)) => Some(said),
            Ok(Answer::Later) => None,
            Err(why) => {
                if is_order {
                    self.refuse_order(&format!("{campaign}: order refused: {why}"));
                } else {
                    self.refuse(&format!("{campaign}: {why}"));
                }
                Some(Said::Refused(why))
            }
        }
    }

    /// Opens connections for turns.
    fn open(
        &mut self,
        campaign: &AgentName,
        number: TurnsNumber,
        order: &TurnsOrder,
        inbox: Option<Subject>,
    ) -> Result<Answer, String> {
        self.make_way(campaign);
        let is_other = |held: &HeldLoads| held.campaign() != campaign;
        let is_mine = self.held.as_ref().is_some_and(|held| !is_other(held));
        if let Some(busy) = self.busy_with().filter(|_| !is_mine) {
            return Err(format!("it is busy with {busy}"));
        }
        if self.held.as_ref().is_some_and(is_other) {
            self.forget_held();
        }
        let closed = &mut self.closed;
        let says_over = &self.says_over;
        let new = || HeldLoads::new(campaign.clone(), says_over.clone(), std::mem::take(closed));
        let held = self.held.get_or_insert_with(new);
        let bounds = (&self.bounds, &*self.flags.source);
        let (answer, about) = held.open(number, order, bounds, (&self.host, inbox))?;
        if let Some(about) = about {
            self.counts.orders += 1;
            output::remark(&format!("{}: {campaign}: order: {about}", self.who));
        }
        Ok(answer)
    }

    fn close(&mut self, campaign: &AgentName, of: TurnsNumber) -> Result<(), String> {
        let held = self.held_of(campaign)?;
        held.reserve();
        if let Some(line) = held.close(of) {
            self.counts.orders_finished += 1;
            output::remark(&format!("{}: {line}", self.who));
        }
        Ok(())
    }

    fn held_of(&mut self, campaign: &AgentName) -> Result<&mut HeldLoads, String> {
        let held = self.held.as_mut().filter(|held| held.campaign() == campaign);
        held.ok_or_else(|| "it holds no connections of this campaign".to_owned())
    }

    /// Forgets loads that come in turns, but for which were closed.
    fn forget_held(&mut self) {
        if let Some(held) = self.held.take() {
            self.closed = held.into_closed();
        }
    }

    /// Forgets what nobody fetches, before another campaign is refused for it.
    fn make_way(&mut self, other: &AgentName) {
        if let Some(left) = self.work.take_if(|work| work.gives_way()) {
            let campaign = left.campaign();
            let who = &self.who;
            output::remark(&format!(
                "{who}: {campaign}: nobody fetched its result; it gives way to {other}"
            ));
        }
    }

    async fn look(&mut self) {
        // What threads said comes before that they have ended.
        while let Ok(over) = self.overs.try_recv() {
            self.take_over(over).await;
        }
        if let Some(held) = &mut self.held {
            let (lines, answers) = held.look();
            self.counts.orders_failed += (lines.len() + answers.len()) as u64;
            lines.iter().for_each(|line| output::remark(&format!("{}: {line}", self.who)));
            for (inbox, said) in answers {
                self.reply(inbox, said, self.clock.now_ns()).await;
            }
        }
        let is_connected = self.broker.connected_since().is_some();
        self.counts.connections_lost += u64::from(self.was_connected && !is_connected);
        self.was_connected = is_connected;
        if let Some(work) = &mut self.work {
            let was_finished = work.is_finished();
            let was_failed = work.is_failed();
            if let Some(line) = work.look(self.flags.results.as_deref()) {
                output::remark(&format!("{}: {line}", self.who));
            }
            self.counts.orders_finished += u64::from(work.is_finished() && !was_finished);
            self.counts.orders_failed += u64::from(work.is_failed() && !was_failed);
            if work.is_gone() {
                self.work = None;
            }
        }
        if let Some(page) = &self.page {
            let progress = self.work.as_ref().and_then(Work::progress);
            agent_metrics::show(page, &self.counts, is_connected, progress.as_ref());
        }
    }

    /// Ends the order that is carried out, and the agent.
    async fn leave(mut self) -> Result<ExitCode, Failure> {
        if let Some(work) = &mut self.work {
            output::remark(&format!("{}: {}: ended by a signal", self.who, work.campaign()));
            work.dismiss();
        }
        if let Some(held) = self.held.as_mut().filter(|held| held.is_busy()) {
            output::remark(&format!("{}: {}: ended by a signal", self.who, held.campaign()));
            held.close_all();
        }
        let mut look = tokio::time::interval(LOOK);
        let gone = async {
            while self.work.is_some() || self.held.as_ref().is_some_and(HeldLoads::is_busy) {
                look.tick().await;
                self.look().await;
            }
        };
        // What does not end by then ends with the process.
        let _ = tokio::time::timeout(LEAVE_TIME_MAX, gone).await;
        Ok(ExitCode::SUCCESS)
    }

    /// Counts a message that was refused, and logs it ever more rarely: many of them fill no disk.
    fn refuse(&mut self, why: &str) {
        self.counts.messages_refused += 1;
        self.log_refused(self.counts.messages_refused, why);
    }

    /// The same of an order, by a count of its own: no garbage hides it.
    fn refuse_order(&mut self, why: &str) {
        self.counts.orders_refused += 1;
        self.log_refused(self.counts.orders_refused, why);
    }

    fn log_refused(&self, count: u64, why: &str) {
        if is_logged(count) {
            output::remark(&format!("{}: refused ({count} in all): {why}", self.who));
        }
    }

    fn facts(&self) -> AgentFacts {
        let uname = rustix::system::uname();
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
        AgentFacts {
            host: self.host.clone(),
            pollux: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpus: CpuList::allowed().map_or(0, |cpus| cpus.as_slice().len() as u32),
            load,
            descriptors: descriptors::Limit::here().soft.min(DESCRIPTORS_TOLD_MAX),
            connections_max: self.bounds.connections_max.min(DESCRIPTORS_TOLD_MAX),
            allowed: self.allowed(),
            campaign: self.busy_with().cloned(),
        }
    }

    /// The campaign for which another one is refused.
    fn busy_with(&self) -> Option<&AgentName> {
        let held = self.held.as_ref().filter(|held| held.is_taken()).map(HeldLoads::campaign);
        self.work.as_ref().filter(|work| !work.gives_way()).map(Work::campaign).or(held)
    }

    fn allowed(&self) -> String {
        let all: Vec<String> = self.bounds.allowed.iter().map(ToString::to_string).collect();
        match all.len().checked_sub(ALLOWED_TOLD_MAX) {
            None if all.is_empty() => "loopback alone".to_owned(),
            None | Some(0) => all.join(", "),
            Some(more) => format!("{} and {more} more", all[..ALLOWED_TOLD_MAX].join(", ")),
        }
    }

    fn piece_len_bytes(&self) -> usize {
        let (part, of) = PIECE_SHARE;
        self.broker.client.max_payload().clamp(1024, MESSAGE_BYTES_MAX) * part / of
    }

    fn idle() -> pollux_load::campaign::AgentStatus {
        pollux_load::campaign::AgentStatus {
            state: AgentState::Idle,
            why: None,
            phase: pollux_load::Phase::SettingUp,
            elapsed_ns: 0,
            totals: pollux_load::Totals::default(),
            errors: pollux_load::Errors::default(),
            crowd_connected: 0,
            first: 0,
            seconds: Vec::new(),
            pieces: 0,
        }
    }
}

/// The reply in so many bytes at most, with fewer seconds where that needs it: what is left out is asked for again.
/// Otherwise how many it has.
fn fitting(mut reply: CampaignReply, most: usize) -> Result<Vec<u8>, usize> {
    loop {
        let bytes = reply.encode();
        if bytes.len() <= most {
            return Ok(bytes);
        }
        match &mut reply.said {
            Said::Status(status) if !status.seconds.is_empty() => {
                status.seconds.truncate(status.seconds.len() / 2);
            }
            _ => return Err(bytes.len()),
        }
    }
}

fn answer_of(work: &mut Work, demand: &Demand, clock: &AgentClock) -> Said {
    match demand {
        Demand::Status { seconds_from } => Said::Status(Box::new(work.status(*seconds_from))),
        Demand::Start { at_ns } => match work.start(clock.host_ns(*at_ns)) {
            Ok(()) => Said::Accepted,
            Err(why) => Said::Refused(why),
        },
        Demand::Stop => {
            work.stop();
            Said::Accepted
        }
        Demand::Piece { number } => match work.piece(*number) {
            Some((of, bytes)) => Said::Piece { of, bytes: bytes.to_owned() },
            None => Said::Refused(format!("its result has no piece {number}")),
        },
        Demand::Dismiss => {
            work.dismiss();
            Said::Accepted
        }
        // Answered where campaigns are distinguished.
        Demand::Hello | Demand::Ping | Demand::Prepare(_) | Demand::Turns(_) => Said::Accepted,
    }
}
