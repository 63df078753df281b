//! Loads that are held open for the turns of a lab: connections in a thread of their own, on which requests are sent when it is
//! their turn, and not between. Several of one campaign: one for each arm, which are asked one after the other.
//!
//! ```text
//!  Open ──► opening ──► idle ── Turn ──► at its turn ──► idle … ── Close, no beat, or its time is over ──► closed
//!              └──► failed                    └──► failed
//! ```
//!
//! What is asked for is answered when it is done. A turn has a number, one more than that of the turn before: the same again is
//! answered again and not done again, and any other is refused. The number of a load that was closed is not taken again.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_nats::Subject;
use pollux_engine::Driver;
use pollux_load::campaign::{
    AgentName, ByName, LoadBounds, Said, TurnOrder, TurnReport, TurnsNumber, TurnsOpened,
    TurnsOrder,
};
use pollux_load::{LoadError, Plan, Turns};
use pollux_report::number::{count, plural};
use pollux_settings::command::output::error_chain;
use pollux_sys::clock::thread_cpu;
use tokio::sync::mpsc;

use crate::work::BEAT_MAX;

/// Loads of a campaign at most: far more than arms that a lab has at a point.
const LOADS_MAX: usize = 256;
/// Numbers of closed loads that are remembered: a message that is older than so many loads is of another day.
const CLOSED_MAX: usize = 4096;
/// How long an agent is kept for a campaign that has closed its last load: the lab closes those of one set before it opens
/// those of the next. Others wait longer than that for an agent that is busy.
const RESERVED: Duration = Duration::from_millis(1500);
/// How long an opening waits for connections that were closed before it; messages of others wait as long.
const ENDING_TIME_MAX: Duration = Duration::from_millis(500);
/// Messages of threads that wait; each load has one at most.
pub(crate) const OVERS_MAX: usize = LOADS_MAX;

/// What a thread did as it was asked to.
#[derive(Debug)]
pub(crate) struct Over {
    number: TurnsNumber,
    /// The turn; 0 of the opening.
    turn: u32,
    /// A refusal is its end.
    said: Said,
}

/// What is answered to a demand, and when.
#[derive(Debug)]
pub(crate) enum Answer {
    Now(Said),
    /// When it is over.
    Later,
}

/// Numbers of loads that were closed, of all campaigns, the last ones: what opened them is not done again.
#[derive(Debug, Default)]
pub(crate) struct ClosedLoads(VecDeque<TurnsNumber>);

/// The loads of a campaign.
#[derive(Debug)]
pub(crate) struct HeldLoads {
    campaign: AgentName,
    loads: BTreeMap<TurnsNumber, HeldLoad>,
    closed: ClosedLoads,
    /// Until when the agent is kept for further ones.
    reserved_until: Option<Instant>,
    /// Threads that give up what they hold, with their connections.
    ending: Vec<(JoinHandle<()>, u64)>,
    overs: mpsc::Sender<Over>,
}

/// One of them.
#[derive(Debug)]
struct HeldLoad {
    orders: blocking::Sender<TurnOrder>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    connections: u64,
    /// When the last message of its controller came.
    beat: Instant,
    /// When it has to end.
    until: Instant,
    /// The last turn that was begun; 0 of the opening.
    begun: u32,
    /// What came of that, once it is over.
    said: Option<Said>,
    /// Where that is to go.
    inbox: Option<Subject>,
    answered: u64,
}

impl HeldLoads {
    /// None yet; threads say by `overs` what they have done.
    pub(crate) fn new(campaign: AgentName, overs: mpsc::Sender<Over>, closed: ClosedLoads) -> Self {
        let loads = BTreeMap::new();
        Self { campaign, loads, closed, reserved_until: None, ending: Vec::new(), overs }
    }

    /// What is left of it for the next.
    pub(crate) fn into_closed(self) -> ClosedLoads {
        self.closed
    }

    pub(crate) fn campaign(&self) -> &AgentName {
        &self.campaign
    }

    /// Whether it holds connections, or still closes them.
    pub(crate) fn is_busy(&self) -> bool {
        !self.loads.is_empty() || !self.ending.is_empty()
    }

    /// Whether others are refused: it is busy, or a load of this campaign was closed a moment ago.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_busy() || self.reserved_until.is_some_and(|until| Instant::now() < until)
    }

    /// Keeps the agent for this campaign for a while.
    pub(crate) fn reserve(&mut self) {
        self.reserved_until = Some(Instant::now() + RESERVED);
    }

    /// Opens connections; what to log of it, where it is begun here.
    ///
    /// # Errors
    /// A sentence: it may not be asked for, or not here.
    pub(crate) fn open(
        &mut self,
        number: TurnsNumber,
        order: &TurnsOrder,
        (bounds, sources): (&LoadBounds, &[IpAddr]),
        (host, inbox): (&str, Option<Subject>),
    ) -> Result<(Answer, Option<String>), String> {
        if let Some(load) = self.loads.get_mut(&number) {
            // The answer to the first one was lost, or is not there yet.
            return Ok((load.say_again(0, inbox)?, None));
        }
        if self.closed.0.contains(&number) {
            return Err("connections of this number were closed".to_owned());
        }
        if self.loads.len() >= LOADS_MAX {
            return Err(format!("it holds {LOADS_MAX} loads; expected fewer at a time"));
        }
        let (mut plan, driver) = order.plan().map_err(|error| error_chain(&error))?;
        let by_name = bounds.check(&mut plan)?;
        plan.sources = sources.to_vec();
        let connections = u64::from(plan.connections);
        if self.connections() + connections > bounds.connections_max {
            self.await_ending();
        }
        let all = self.connections() + connections;
        if all > bounds.connections_max {
            let asked = plural(all, "connection");
            let most = count(bounds.connections_max);
            return Err(format!(
                "{asked} of all its loads; this agent opens {most} at most (--max-connections)"
            ));
        }
        let about = in_words(&plan);
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, orders) = blocking::channel();
        let holder = Holder {
            number,
            plan,
            driver,
            by_name,
            host: host.to_owned(),
            stop: Arc::clone(&stop),
            overs: self.overs.clone(),
        };
        let thread = std::thread::Builder::new().name("agent-turns".to_owned());
        let thread = thread.spawn(move || holder.hold(&orders));
        let thread = thread.map_err(|error| format!("a thread could not be started: {error}"))?;
        let load = HeldLoad {
            orders: sender,
            stop,
            thread,
            connections,
            beat: Instant::now(),
            until: Instant::now() + bounds.duration_max,
            begun: 0,
            said: None,
            inbox,
            answered: 0,
        };
        self.loads.insert(number, load);
        Ok((Answer::Later, Some(about)))
    }

    /// A turn.
    ///
    /// # Errors
    /// A sentence: it is out of order, or not allowed.
    pub(crate) fn turn(
        &mut self,
        of: TurnsNumber,
        turn: TurnOrder,
        inbox: Option<Subject>,
    ) -> Result<Answer, String> {
        let load = self.load(of)?;
        if turn.number == load.begun {
            return load.say_again(turn.number, inbox);
        }
        if turn.number != load.begun.wrapping_add(1) {
            let number = turn.number;
            let last = load.begun;
            return Err(format!("turn {number} is out of order; the last one was {last}"));
        }
        match &load.said {
            None => return Err(format!("turn {} is not over", load.begun)),
            Some(failed @ Said::Refused(_)) => return Ok(Answer::Now(failed.clone())),
            Some(_) => {}
        }
        let left = load.until.saturating_duration_since(Instant::now());
        let length = Duration::from_nanos(turn.length_ns);
        if length > left {
            return Err(format!(
                "a turn of {length:?}; this agent holds connections for {left:.0?} more at most (--max-duration)"
            ));
        }
        (load.begun, load.said, load.inbox) = (turn.number, None, inbox);
        // A thread that has ended is noticed when it is looked at.
        let _ = load.orders.send(turn);
        Ok(Answer::Later)
    }

    /// The beat of a load.
    ///
    /// # Errors
    /// A sentence: there is none of this number.
    pub(crate) fn hold(&mut self, of: TurnsNumber) -> Result<Said, String> {
        let load = self.load(of)?;
        let done = match load.said {
            Some(_) => Some(load.begun),
            None => load.begun.checked_sub(1),
        };
        Ok(Said::Held { done })
    }

    /// Closes the connections of a load; what to log of it.
    pub(crate) fn close(&mut self, of: TurnsNumber) -> Option<String> {
        let load = self.loads.remove(&of)?;
        load.stop.store(true, SeqCst);
        let HeldLoad { orders, thread, connections, begun, answered, .. } = load;
        drop(orders);
        self.ending.push((thread, connections));
        self.closed.0.push_back(of);
        if self.closed.0.len() > CLOSED_MAX {
            self.closed.0.pop_front();
        }
        let turns = plural(begun.into(), "turn");
        let answers = plural(answered, "answer");
        Some(format!("{}: closed after {turns} with {answers}", self.campaign))
    }

    /// Waits for the threads of loads that were closed a moment ago, whose connections still count.
    fn await_ending(&mut self) {
        let until = Instant::now() + ENDING_TIME_MAX;
        self.ending.retain(|(thread, _)| !thread.is_finished());
        while !self.ending.is_empty() && Instant::now() < until {
            // A thread can't be joined by a time.
            std::thread::sleep(Duration::from_millis(1));
            self.ending.retain(|(thread, _)| !thread.is_finished());
        }
    }

    /// Closes all.
    pub(crate) fn close_all(&mut self) {
        let all: Vec<TurnsNumber> = self.loads.keys().copied().collect();
        for number in all {
            self.close(number);
        }
    }

    /// Takes what a thread did: the answer, and where it is to go.
    pub(crate) fn take(&mut self, over: Over) -> Option<(Subject, Said)> {
        let Over { number, turn, said } = over;
        let load = self.loads.get_mut(&number).filter(|load| load.begun == turn)?;
        match &said {
            Said::Opened(opened) => load.answered += opened.first.right,
            Said::Turned(report) => load.answered += report.right,
            _ => {}
        }
        let inbox = load.inbox.take();
        load.said = Some(said.clone());
        Some((inbox?, said))
    }

    /// Looks which loads have to end, and which threads have ended by themselves; says what has to be logged of those.
    pub(crate) fn look(&mut self) -> (Vec<String>, Vec<(Subject, Said)>) {
        self.ending.retain(|(thread, _)| !thread.is_finished());
        let mut lines = Vec::new();
        let mut answers = Vec::new();
        let mut over = Vec::new();
        for (number, load) in &mut self.loads {
            if load.said.is_none() && load.thread.is_finished() {
                // What it said last may wait to be taken; a panic says nothing.
                let said = Said::Refused("the generator ended without an answer".to_owned());
                load.said = Some(said.clone());
                answers.extend(load.inbox.take().map(|inbox| (inbox, said)));
            }
            let why = if load.beat.elapsed() > BEAT_MAX {
                format!("no message of its controller for {BEAT_MAX:?}")
            } else if Instant::now() > load.until {
                "it was held as long as this agent holds connections (--max-duration)".to_owned()
            } else {
                continue;
            };
            over.push((*number, why));
        }
        for (number, why) in over {
            lines.extend(self.close(number).map(|line| format!("{line}: {why}")));
        }
        (lines, answers)
    }

    fn load(&mut self, of: TurnsNumber) -> Result<&mut HeldLoad, String> {
        let load = self.loads.get_mut(&of);
        let load = load.ok_or("it holds no connections of this number: they were closed")?;
        load.beat = Instant::now();
        Ok(load)
    }

    fn connections(&self) -> u64 {
        let held = self.loads.values().map(|load| load.connections);
        held.chain(self.ending.iter().map(|(_, connections)| *connections)).sum()
    }
}

impl HeldLoad {
    /// What was said of a turn, or will be: to `inbox` then.
    fn say_again(&mut self, turn: u32, inbox: Option<Subject>) -> Result<Answer, String> {
        self.beat = Instant::now();
        if turn != self.begun {
            return Err(format!("turn {turn} is over, and {} after it", self.begun));
        }
        match &self.said {
            Some(said) => Ok(Answer::Now(said.clone())),
            None => {
                self.inbox = inbox;
                Ok(Answer::Later)
            }
        }
    }
}

/// What a thread has that holds a load.
struct Holder {
    number: TurnsNumber,
    plan: Plan,
    driver: Option<Driver>,
    by_name: ByName,
    host: String,
    stop: Arc<AtomicBool>,
    overs: mpsc::Sender<Over>,
}

impl Holder {
    /// Opens the connections, and does one turn after the other.
    fn hold(self, orders: &blocking::Receiver<TurnOrder>) {
        let (mut turns, driver) = match self.open() {
            Ok(opened) => opened,
            Err(why) => return self.say(0, Said::Refused(why)),
        };
        let first = turns.opened();
        let cpu = thread_cpu();
        let first = TurnReport::of(0, first, cpu, turns.why_failed());
        self.say(
            0,
            Said::Opened(Box::new(TurnsOpened {
                host: self.host.clone(),
                pollux: env!("CARGO_PKG_VERSION").to_owned(),
                driver: driver.name().to_owned(),
                first,
            })),
        );
        while let Ok(TurnOrder { number, length_ns, requests }) = orders.recv() {
            let before = thread_cpu();
            let said = match turns.turn(Duration::from_nanos(length_ns), requests) {
                Ok(turned) => {
                    let cpu = thread_cpu().saturating_sub(before);
                    let why = if turned.failed > 0 { turns.why_failed() } else { None };
                    Said::Turned(TurnReport::of(number, turned, cpu, why))
                }
                Err(error) => Said::Refused(error_chain(&error)),
            };
            let is_end = matches!(said, Said::Refused(_));
            self.say(number, said);
            if is_end {
                return;
            }
        }
    }

    /// On the first mechanism that works, unless the order names one.
    fn open(&self) -> Result<(Turns, Driver), String> {
        // A resolver may take long, and the agent has to answer meanwhile.
        self.by_name.check()?;
        let started = Driver::start_first(self.driver, |driver| {
            let plan = Plan { driver, ..self.plan.clone() };
            match Turns::open_until(plan, Some(Arc::clone(&self.stop))) {
                Err(refused @ LoadError::Loop(_)) => Err(refused),
                opened => Ok(opened),
            }
        });
        let started = started.map_err(|error| error_chain(&error))?;
        let driver = started.driver;
        started.value.map(|turns| (turns, driver)).map_err(|error| error_chain(&error))
    }

    fn say(&self, turn: u32, said: Said) {
        // Without an agent nobody is there to hear it.
        let _ = self.overs.blocking_send(Over { number: self.number, turn, said });
    }
}

fn in_words(plan: &Plan) -> String {
    let url = plan.targets.first().map_or("", |target| &target.url);
    format!("{}, {} connections, in turns", url.escape_debug(), plan.connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> (HeldLoads, mpsc::Receiver<Over>) {
        let (sender, overs) = mpsc::channel(OVERS_MAX);
        (HeldLoads::new(AgentName::nearest("c"), sender, ClosedLoads::default()), overs)
    }

    /// A load without a thread that does anything, whose connections are open.
    fn idle(all: &mut HeldLoads, number: TurnsNumber) -> blocking::Receiver<TurnOrder> {
        let (orders, receiver) = blocking::channel();
        let load = HeldLoad {
            orders,
            stop: Arc::default(),
            thread: std::thread::spawn(|| ()),
            connections: 4,
            beat: Instant::now(),
            until: Instant::now() + Duration::from_secs(60),
            begun: 0,
            said: Some(Said::Accepted),
            inbox: None,
            answered: 0,
        };
        all.loads.insert(number, load);
        receiver
    }

    fn turn(number: u32) -> TurnOrder {
        TurnOrder { number, length_ns: 1_000_000, requests: None }
    }

    fn over(turn: u32) -> Over {
        let said = Said::Turned(TurnReport { number: turn, right: 5, ..TurnReport::default() });
        Over { number: TurnsNumber(1), turn, said }
    }

    #[test]
    fn a_turn_is_done_once_and_answered_as_often_as_it_is_asked_for() {
        let (mut all, _overs) = held();
        let orders = idle(&mut all, TurnsNumber(1));
        let inbox = |name: &str| Some(Subject::from(name));
        let later = all.turn(TurnsNumber(1), turn(1), inbox("a")).expect("it is the next");
        assert!(matches!(later, Answer::Later));
        // Asked for again before it is over, it is answered where it was asked for last.
        let later = all.turn(TurnsNumber(1), turn(1), inbox("b")).expect("the same");
        assert!(matches!(later, Answer::Later));
        assert!(
            all.turn(TurnsNumber(1), turn(2), inbox("c"))
                .is_err_and(|why| why.contains("not over"))
        );
        assert!(matches!(all.hold(TurnsNumber(1)), Ok(Said::Held { done: Some(0) })));
        let (to, said) = all.take(over(1)).expect("it was asked for");
        assert!(&*to == "b" && matches!(said, Said::Turned(TurnReport { number: 1, .. })));
        assert!(matches!(all.hold(TurnsNumber(1)), Ok(Said::Held { done: Some(1) })));
        let again = all.turn(TurnsNumber(1), turn(1), inbox("d")).expect("the same");
        assert!(matches!(again, Answer::Now(Said::Turned(TurnReport { right: 5, .. }))));
        assert_eq!(orders.try_iter().map(|turn| turn.number).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn turns_out_of_order_and_of_other_loads_are_refused() {
        let (mut all, _overs) = held();
        let orders = idle(&mut all, TurnsNumber(1));
        for (of, number, why) in
            [(1, 2, "out of order"), (1, 9, "out of order"), (2, 1, "no connections")]
        {
            let refused = all.turn(TurnsNumber(of), turn(number), None).expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
        let hour = TurnOrder { length_ns: 3_600_000_000_000, ..turn(1) };
        let refused = all.turn(TurnsNumber(1), hour, None).expect_err("too long");
        assert!(refused.contains("--max-duration"), "{refused}");
        assert_eq!(orders.try_iter().count(), 0);
    }

    #[test]
    fn what_was_closed_is_not_opened_again() {
        let (mut all, _overs) = held();
        let _orders = idle(&mut all, TurnsNumber(1));
        let line = all.close(TurnsNumber(1)).expect("it was there");
        assert_eq!(line, "c: closed after 0 turns with 0 answers");
        assert!(all.hold(TurnsNumber(1)).is_err());
        let target = pollux_load::Target::parse("http://127.0.0.1:9/", None).expect("a URL");
        let order =
            TurnsOrder::of(&Plan::new(vec![target], Driver::PREFERRED[0])).expect("sendable");
        let bounds = LoadBounds {
            allowed: Vec::new(),
            connections_max: 100,
            rate_max: None,
            duration_max: Duration::from_secs(60),
            body_bytes_max: 10,
            threads_max: 8,
        };
        let refused = all.open(TurnsNumber(1), &order, (&bounds, &[]), ("h", None));
        assert!(refused.is_err_and(|why| why.contains("were closed")));
        // Of all loads together, not of each.
        let _more = idle(&mut all, TurnsNumber(2));
        all.loads.get_mut(&TurnsNumber(2)).expect("it is there").connections = 100;
        let refused = all.open(TurnsNumber(3), &order, (&bounds, &[]), ("h", None));
        assert!(refused.is_err_and(|why| why.contains("--max-connections")));
    }
}
