//! A server with its load in turns: the server on the first CPU, the generator on the second.
//!
//! The measured side is every process of the server. Its CPU time is read when it has fallen
//! asleep: a server may still have something to do when its last answer has come.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_host::{Backlog, Reading, backlog_at};
use pollux_load::{Plan, Turned};
use pollux_report::number;

use super::dead_crowd::DeadCrowd;
use super::load::Load;
use super::load_turns::{LoadTurns, are_too_many, failures, generator_failed};
use super::server::Server;
use super::threads::KernelThreads;
use super::times::TimesSocket;
use super::{Role, generator};
use crate::arm::ArmKind;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{self, Life, Subject, SubjectInfo, TurnSize};

/// A turn before the first one that counts, in which a server of the user shows what it is.
const TRIAL: Duration = Duration::from_millis(20);
/// The longest of them: on a busy machine a process that has just been started comes into sight late.
const TRIAL_MAX: Duration = Duration::from_millis(640);
/// The shortest turn where processes end within turns: their CPU time is known in ticks of 10 ms.
const TURN_WITH_ENDS: Duration = Duration::from_millis(200);
/// From so many connections on, what a server grows by is theirs.
const CONNECTIONS_MIN: u64 = 16;
/// Where it panics: the load has its connections whenever a turn begins.
const HAS_LOAD: &str = "connections between turns";

/// A server that answers, and the load on it.
pub(crate) struct Served<'a> {
    /// None only while its connections are opened anew.
    load: Option<LoadTurns>,
    spec: RunSpec,
    plan: Plan,
    dead: Option<DeadCrowd>,
    dead_asked: usize,
    server: Server,
    /// Requests of all turns that were answered, and those that failed.
    requests: u64,
    failed: u64,
    /// What the server's listener holds, as it was when the load began.
    backlog: Option<Backlog>,
    /// New connections at a time, where the backlog allows only so many.
    unproven_max: Option<NonZeroU32>,
    /// Requests that are under way at the same time.
    wave: u64,
    /// Connections that are open all the time.
    open: u64,
    /// CPU time of this thread before the first of them, and what the server had used.
    generator_ns_before: u64,
    server_before: Duration,
    threads_before: KernelThreads,
    /// The CPU of the server.
    server_cpu: usize,
    shortest_turn: Duration,
    /// What the generator runs on, where it is on this host.
    driver: Driver,
    /// CPU time that an agent needed for its turns so far.
    agent_used: Duration,
    is_interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Served<'a> {
    /// Starts the server of the arm and opens all connections to it.
    pub(crate) fn start(
        spec: &RunSpec,
        role: Role,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let load = Load::of(spec, role)?;
        let cpus = subject::cpus()?;
        let (mut server, dead) = Server::start_beside_dead(spec, &load, cpus, is_interrupted)?;
        // A kernel that does not say it leaves the load as it is.
        let backlog = backlog_at(server.address).ok().flatten();
        let plan = generator::plan(&load, &server.asked, backlog);
        let unproven_max = plan.as_ref().ok().and_then(|plan| plan.unproven_max);
        let before = (server.cpu_time(), server.ended());
        let threads_before = KernelThreads::among(&server.threads());
        let plan = plan.map_err(|error| generator_failed(&error))?;
        let opened = LoadTurns::open(spec, &plan, is_interrupted)?;
        opened.pid().iter().for_each(|pid| server.leaves_out(&[*pid]));
        let shortest_turn = opened.shortest_turn();
        let dead_asked = load.dead;
        let dead = Some(dead);
        let generator_ns_before = subject::own_cpu_time().as_nanos() as u64;
        let mut served = Self {
            load: Some(opened),
            spec: spec.clone(),
            plan,
            dead,
            dead_asked,
            server,
            requests: 0,
            failed: 0,
            backlog,
            unproven_max,
            wave: (load.connections * load.pipeline * load.streams) as u64,
            open: if load.is_kept_alive { load.connections_at_once() as u64 } else { 0 },
            generator_ns_before,
            server_before: before.0,
            threads_before,
            server_cpu: cpus[0],
            shortest_turn,
            driver: load.driver,
            agent_used: Duration::ZERO,
            is_interrupted,
        };
        let opened = served.load().opened();
        served.count(opened)?;
        if matches!(spec.arm, ArmKind::Server { .. } | ArmKind::Running { .. }) {
            served.note_backlog(&load);
            served.try_out(before, opened.right)?;
        }
        Ok(served)
    }

    fn load(&mut self) -> &mut LoadTurns {
        self.load.as_mut().expect(HAS_LOAD)
    }

    /// Counts a turn; how many requests of it stand: none of one in which some failed.
    fn count(&mut self, turned: Turned) -> Result<u64, MeasureError> {
        self.requests += turned.right;
        self.failed += turned.failed;
        if are_too_many(self.failed, self.requests) {
            let failed = self.failed;
            let requests = self.requests;
            let why = self.load().why_failed();
            return Err(failures(&mut self.server, why, failed, requests));
        }
        Ok(if turned.failed > 0 { 0 } else { turned.right })
    }

    /// Notes that fewer connections are open at a time than were asked for.
    fn note_backlog(&mut self, load: &Load) {
        let closes = !load.is_kept_alive || self.server.findings.contains_key("closes");
        let Some(most) = self.unproven_max.filter(|_| closes) else { return };
        let text = format!(
            "its backlog is {}: {most} of {} connections ask at a time, as more would overflow it and be tried \
             again a second later",
            self.backlog.map_or(0, |backlog| backlog.limit),
            load.connections
        );
        self.server.findings.insert("backlog".to_owned(), text);
    }

    /// What became of its requests, where something is to be said of it.
    fn life_findings(&mut self) -> BTreeMap<String, String> {
        let mut findings = BTreeMap::new();
        if self.failed > 0 {
            let failed = number::count(self.failed);
            let of = number::count(self.requests);
            let why = self.load().why_failed().map_or_else(String::new, |why| format!(": {why}"));
            let text = format!(
                "{failed} of its requests failed beside {of} answers, and their turns were left out{why}"
            );
            findings.insert("failures".to_owned(), text);
        }
        let dropped = |backlog: Option<Backlog>| backlog.and_then(|backlog| backlog.dropped);
        let now = backlog_at(self.server.address).ok().flatten();
        let more =
            dropped(now).zip(dropped(self.backlog)).map(|(now, then)| now.saturating_sub(then));
        // The count has other causes too, such as a segment that came behind the end of a connection.
        let asked = self.wave + self.dead_asked as u64;
        let overflows = |limit: &Backlog| u64::from(limit.limit) < asked;
        let limit = self.backlog.filter(overflows);
        if let Some((more, limit)) = more.filter(|more| *more > 0).zip(limit) {
            let text = format!(
                "its listener dropped {} (ListenDrops of its socket; its backlog is {}): each was tried again a \
                 second later",
                number::plural(u64::from(more), "connection"),
                limit.limit
            );
            findings.insert("dropped".to_owned(), text);
        }
        findings
    }

    /// What the threads of the kernel that work for the server have used of its time, and what is to be said of them.
    fn divide_by_threads(&mut self, life: &mut Life) {
        let all = self.server.cpu_time().saturating_sub(self.server_before);
        let threads = KernelThreads::among(&self.server.threads());
        let before = &self.threads_before;
        life.figures.extend(threads.figures(before, all, self.requests));
        life.findings.extend(threads.findings(before, all, self.requests, self.server_cpu));
    }

    /// Looks at what has opened the connections to a server of which nothing is known, or at a turn where that was
    /// nothing: its processes must be those that work, and may be others in each turn.
    fn try_out(
        &mut self,
        (before, ended): (Duration, u64),
        opened: u64,
    ) -> Result<(), MeasureError> {
        let mut trial = TRIAL;
        let mut requests = opened;
        while requests == 0 || (self.server.cpu_time() == before && trial <= TRIAL_MAX) {
            requests += self.turn(TurnSize::of(trial))?;
            if trial > TRIAL_MAX {
                break;
            }
            trial *= 2;
        }
        if requests > 0 && self.server.cpu_time() == before {
            let what = format!(
                "used no CPU time for {requests} answers at {}; expected the process that answers \
                 there, or the one that has started it",
                self.server.address
            );
            return Err(self.server.failed(&what));
        }
        if self.server.ended() > ended {
            self.shortest_turn = self.shortest_turn.max(TURN_WITH_ENDS);
        }
        Ok(())
    }
}

impl Subject for Served<'_> {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let is_interrupted = self.is_interrupted;
        let turned = self.load().turn(size, is_interrupted)?;
        self.count(turned)
    }

    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(self.server.cpu_time())
    }

    fn own_time(&self) -> Duration {
        match &self.load {
            Some(LoadTurns::Agent(_)) => Duration::ZERO,
            _ => subject::own_time(),
        }
    }

    fn threads(&mut self) -> Vec<(u32, u32)> {
        self.server.threads()
    }

    fn loop_counters(&self) -> BTreeMap<String, u64> {
        self.server.page.as_ref().map(TimesSocket::counted).unwrap_or_default()
    }

    fn memory_per_connection(&mut self) -> Option<Reading<u64>> {
        Some(match self.open {
            CONNECTIONS_MIN.. => self.server.grown().map(|bytes| bytes / self.open),
            0 => Reading::unavailable("each connection serves one request"),
            few => Reading::unavailable(format!(
                "{few} connections are too few to tell from what else grew; expected {CONNECTIONS_MIN} and more"
            )),
        })
    }

    fn described(&self) -> SubjectInfo {
        let generator = match &self.load {
            Some(LoadTurns::Agent(agent)) => agent.described(),
            _ => format!("pollux {} ({})", env!("CARGO_PKG_VERSION"), self.driver),
        };
        SubjectInfo {
            mechanism: self.server.mechanism.clone(),
            generator: Some(self.server.with_suite(generator)),
            notes: Vec::new(),
            wave: self.wave,
            shortest_turn_us: self.shortest_turn.as_micros() as u64,
            findings: self.server.findings.clone(),
        }
    }

    fn renew(&mut self) -> Result<Option<Life>, MeasureError> {
        // Before the new ones: a server may take only so many.
        let ended = self.load.take();
        self.agent_used += ended.as_ref().map_or(Duration::ZERO, LoadTurns::used);
        drop(ended);
        let opened = LoadTurns::open(&self.spec, &self.plan, self.is_interrupted)?;
        opened.pid().iter().for_each(|pid| self.server.leaves_out(&[*pid]));
        let opened = self.load.insert(opened).opened();
        self.count(opened)?;
        let mut figures = self.server.figures();
        figures.insert("failed".to_owned(), self.failed as f64);
        let findings = self.life_findings();
        Ok(Some(Life { figures, findings, worker_calls: Vec::new() }))
    }

    fn end(mut self: Box<Self>) -> Result<Life, MeasureError> {
        let used = |ns: u64| ns as f64 / self.requests.max(1) as f64 / 1000.0;
        let generator_ns = match &self.load {
            Some(agent @ LoadTurns::Agent(_)) => (self.agent_used + agent.used()).as_nanos() as u64,
            _ => subject::own_cpu_time().as_nanos() as u64 - self.generator_ns_before,
        };
        let of_generator = ("generator_us_per_request".to_owned(), used(generator_ns));
        let mut figures = BTreeMap::from([of_generator]);
        // Before the server, which lets connections end first; dead ones never would.
        if let Some(dead) = self.dead.take() {
            let closed = dead.close(self.is_interrupted)?;
            let closed = closed.map_err(|what| self.server.failed(&what))?;
            if self.dead_asked > 0 {
                figures.insert("dead_closed".to_owned(), closed as f64);
            }
        }
        figures.extend(self.server.figures());
        figures.insert("failed".to_owned(), self.failed as f64);
        let findings = self.life_findings();
        let mut life = Life { figures, findings, worker_calls: Vec::new() };
        self.divide_by_threads(&mut life);
        drop(self.load);
        self.server.end(self.is_interrupted)?;
        life.figures.extend(self.server.counted());
        Ok(life)
    }
}
