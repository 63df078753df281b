//! A server with its load: the server on the first CPU, the generator on the second; in turns, in a whole run, or with
//! the calls of a proxy's threads counted for so many requests through it.
//!
//! The measured side is every process of the server. Its CPU time is read when it has fallen
//! asleep: a server may still have something to do when its last answer has come.
//!
//! The kernel counts calls by tracepoints, the same for every proxy, from before the first connection of the
//! load on. Proxies of pollux say what they counted themselves as well.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_host::{Backlog, Reading, backlog_at};
use pollux_load::{Plan, Turned, Turns};
use pollux_report::number;
use pollux_settings::command::output::error_chain;
use pollux_sys::perf::{Counter, CounterOptions, PerfEvent, Scope, Tracepoint, tracepoint_ids};
use rustix::process::{Pid, setpriority_process};

use super::agent::{self, AgentTurns};
use super::generator::{self, Counted};
use super::load::{DeadCrowd, Load};
use super::server::Server;
use super::threads::KernelThreads;
use super::times::TimesSocket;
use super::{Generator, Role};
use crate::arm::ArmKind;
use crate::error::MeasureError;
use crate::measure::{Done, Observed, Pass, RunSpec};
use crate::subject::{self, Life, Subject, SubjectInfo, TurnSize};

/// More failures than this, and than this share of the answers, spoil a measurement: a single reset connection is none
/// of what is compared, and its turn is left out.
const FAILED_MAX: u64 = 3;
const FAILED_SHARE_MAX: f64 = 0.001;
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
/// How long the requests may take whose calls are counted.
const REQUESTS_TIME_MAX: Duration = Duration::from_secs(120);
/// `setpriority(2)`: behind all others.
const NICE_MAX: i32 = 19;

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
        let mut server = Server::start(spec, &load, cpus, is_interrupted)?;
        subject::pin(cpus[1])?;
        let dead = DeadCrowd::open(load.dead, server.address, &load.path, is_interrupted)?;
        server.leaves_out(&dead.pids());
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

/// A load that comes in turns: of this thread, or of an agent on another host.
enum LoadTurns {
    Here(Box<Turns>),
    Agent(Box<AgentTurns>),
}

impl LoadTurns {
    /// Opens the connections.
    fn open(
        spec: &RunSpec,
        plan: &Plan,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        match Generator::agent(&spec.axes) {
            Some(agent) => AgentTurns::open(spec, agent, plan, is_interrupted)
                .map(|turns| Self::Agent(Box::new(turns))),
            None => Turns::open(plan.clone())
                .map(|turns| Self::Here(Box::new(turns)))
                .map_err(|error| generator_failed(&error)),
        }
    }

    fn opened(&self) -> Turned {
        match self {
            Self::Here(turns) => turns.opened(),
            Self::Agent(turns) => turns.opened(),
        }
    }

    fn turn(
        &mut self,
        size: TurnSize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Turned, MeasureError> {
        match self {
            Self::Here(turns) => {
                turns.turn(size.length, size.units).map_err(|error| generator_failed(&error))
            }
            Self::Agent(turns) => turns.turn(size, is_interrupted),
        }
    }

    fn why_failed(&mut self) -> Option<String> {
        match self {
            Self::Here(turns) => turns.why_failed(),
            Self::Agent(turns) => turns.why_failed(),
        }
    }

    /// The process that speaks with an agent: it is none of the server's.
    fn pid(&self) -> Option<u32> {
        match self {
            Self::Here(_) => None,
            Self::Agent(turns) => Some(turns.pid()),
        }
    }

    /// CPU time of an agent so far; that of this thread is read by its clock.
    fn used(&self) -> Duration {
        match self {
            Self::Here(_) => Duration::ZERO,
            Self::Agent(turns) => turns.used(),
        }
    }

    fn shortest_turn(&self) -> Duration {
        match self {
            Self::Here(_) => Duration::ZERO,
            Self::Agent(_) => agent::TURN_MIN,
        }
    }
}

/// Whether so many failures beside so many answers are too many to say what a request costs.
pub(super) fn are_too_many(failed: u64, right: u64) -> bool {
    failed > 0
        && (right == 0 || (failed > FAILED_MAX && failed as f64 > right as f64 * FAILED_SHARE_MAX))
}

/// That too many requests to a server failed, and why.
pub(super) fn failures(
    server: &mut Server,
    why: Option<String>,
    failed: u64,
    right: u64,
) -> MeasureError {
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let counts = format!(
        "{} beside {}{why}",
        number::plural(failed, "failure"),
        number::plural(right, "answer")
    );
    let what = match server.ending() {
        Some(how) => format!("{how} while it was measured ({counts})"),
        None => counts,
    };
    server.failed(&what)
}

/// Runs one arm once.
pub(crate) fn measure(
    spec: &RunSpec,
    role: Role,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    let load = Load::of(spec, role)?;
    let cpus = subject::cpus()?;
    let mut server = Server::start(spec, &load, cpus, is_interrupted)?;
    subject::pin(cpus[1])?;
    let dead = DeadCrowd::open(load.dead, server.address, &load.path, is_interrupted)?;
    server.leaves_out(&dead.pids());
    if !spec.ramp_time().is_zero() {
        let ramp_time = spec.ramp_time();
        generator::run(&load, &server.asked, ramp_time, &spec.scratch, is_interrupted)?;
    }
    let is_timing = spec.pass == Pass::RequestTimes;
    let times = server.page.take_if(|_| is_timing);
    let times_before = times.as_ref().map(TimesSocket::read).transpose()?;
    let counted_before = server.page.as_ref().map(TimesSocket::counted).unwrap_or_default();
    let window = Window::open(spec, &mut server);
    let counted =
        generator::run(&load, &server.asked, spec.runtime(), &spec.scratch, is_interrupted)?;
    let described = counted.described.clone();
    let mut done = window.close(counted, &mut server);
    if let (Some(socket), Some(before)) = (&times, times_before) {
        done.request_times = Some(socket.read()?.since(&before).into());
    }
    if let Some(page) = server.page.as_ref().filter(|_| !counted_before.is_empty()) {
        done.counters = crate::measure::since(page.counted(), &counted_before);
    }
    if spec.is_rate {
        done.value = done.events_per_s;
    }
    // Also because a server that is asked to end lets connections end first; these never would.
    let closed = dead.close(is_interrupted)?.map_err(|what| server.failed(&what))?;
    if load.dead > 0 {
        done.figures.insert("dead_closed".to_owned(), closed as f64);
    }
    server.end(is_interrupted)?;
    done.mechanism.clone_from(&server.mechanism);
    done.findings.extend(server.findings.clone());
    done.figures.extend(server.figures());
    let generator = described.unwrap_or_else(|| generator::with_version(load.generator));
    done.generator = Some(server.with_suite(generator));
    Ok(done)
}

/// The measured window: what the server had used when it began.
struct Window {
    observed: Observed,
    before: Duration,
    generators_before: Duration,
    start: Instant,
}

impl Window {
    fn open(spec: &RunSpec, server: &mut Server) -> Self {
        // The process that answers is the last one: a worker, where there are some.
        let answers = server.pids().last().copied();
        let observed = Observed::start(spec, || server.threads(), answers);
        let before = server.cpu_time();
        let generators_before = generators_cpu();
        Self { observed, before, generators_before, start: Instant::now() }
    }

    fn close(self, counted: Counted, server: &mut Server) -> Done {
        let elapsed = self.start.elapsed();
        let cpu_ns = server.cpu_time().saturating_sub(self.before).as_nanos() as u64;
        let generator_cpu = generators_cpu().saturating_sub(self.generators_before);
        let observed = self.observed.finish();
        let requests = counted.requests;
        let requests_per_s = requests as f64 / counted.elapsed.as_secs_f64();
        let mut figures = counted.figures;
        let generator_ns = generator_cpu.as_nanos() as f64;
        let generator_us = generator_ns / requests as f64 / 1000.0;
        figures.insert("generator_us_per_request".to_owned(), generator_us);
        figures.insert("generator_busy".to_owned(), generator_ns / elapsed.as_nanos() as f64);
        figures.insert("requests_per_s".to_owned(), requests_per_s);
        figures.insert("failed".to_owned(), counted.failed as f64);
        // How busy its CPU kept the server: far below 1 the generator was the bound.
        figures.insert("server_busy".to_owned(), cpu_ns as f64 / elapsed.as_nanos() as f64);
        Done {
            value: cpu_ns as f64 / requests as f64 / 1000.0,
            events_per_s: requests_per_s,
            events: requests,
            window_s: elapsed.as_secs_f64(),
            findings: counted.findings,
            figures,
            cpu_ns: Reading::Value(cpu_ns),
            process_cpu_ns: Reading::Value(generator_cpu.as_nanos() as u64),
            ..observed
        }
    }
}

/// CPU time of generators that have ended, to a tick.
fn generators_cpu() -> Duration {
    pollux_host::task_use::waited_children_cpu().value().copied().unwrap_or_default()
}

pub(super) fn generator_failed(error: &pollux_load::LoadError) -> MeasureError {
    MeasureError::Program { program: "the load generator".to_owned(), what: error_chain(error) }
}

/// What is counted, and the tracepoints that add up to it. Not every machine has all of them.
const CALLS: [(&str, &str); 5] = [
    ("epoll_ctl", "sys_enter_epoll_ctl"),
    ("epoll_wait", "sys_enter_epoll_wait"),
    ("epoll_wait", "sys_enter_epoll_pwait"),
    ("epoll_wait", "sys_enter_epoll_pwait2"),
    ("connect", "sys_enter_connect"),
];

/// What goes through a proxy.
pub(crate) struct Traffic {
    /// Connections of clients.
    pub(crate) connections: usize,
    /// Requests; none leaves the connections idle for `idle`.
    pub(crate) requests: u64,
    /// For how long they are idle.
    pub(crate) idle: Duration,
    /// Threads of the proxy.
    pub(crate) threads: usize,
    /// Options of a proxy of pollux.
    pub(crate) options: Vec<String>,
    /// Whether the server behind closes each connection behind its answer.
    pub(crate) is_closed: bool,
    /// Whether the clients and the server behind have the CPU of the proxy, not one of their own, and
    /// come before it there.
    pub(crate) is_on_one_cpu: bool,
}

/// What was counted.
pub(crate) struct Calls {
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Those that failed.
    pub(crate) failed: u64,
    /// How long that took.
    pub(crate) elapsed: Duration,
    /// CPU time of the proxy meanwhile.
    pub(crate) cpu: Duration,
    /// The mechanism that the proxy says it runs on; only pollux says so.
    pub(crate) mechanism: Option<String>,
    /// By the kernel, by name; or why it could not.
    pub(crate) kernel: Result<BTreeMap<&'static str, u64>, String>,
    /// By a proxy of pollux, over its loops, by name of the metric; empty of others.
    pub(crate) own: BTreeMap<String, u64>,
}

impl Traffic {
    /// Starts the proxy of `spec`, sends the traffic through it and ends it.
    pub(crate) fn run(
        &self,
        spec: &RunSpec,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Calls, MeasureError> {
        let page = spec.arm.driver().map(|_| TimesSocket::below(&spec.scratch));
        let load = self.load(page.as_ref());
        let [cpu, other] = subject::cpus()?;
        let of_clients = if self.is_on_one_cpu { cpu } else { other };
        let mut server = Server::start(spec, &load, [cpu, of_clients], is_interrupted)?;
        subject::pin(of_clients)?;
        if self.is_on_one_cpu {
            come_last(&server.threads())?;
        }
        let read = || page.as_ref().map_or(Ok(BTreeMap::new()), TimesSocket::counters);
        let before = read()?;
        let counters = Counters::open(&server.threads());
        let cpu_before = server.cpu_time();
        let start = Instant::now();
        let plan = generator::plan(&load, &server.asked, None);
        let mut opened = plan.and_then(Turns::open).map_err(|error| generator_failed(&error))?;
        // Each kept connection has asked once.
        let Turned { right: mut requests, mut failed, .. } = opened.opened();
        if self.requests > requests {
            let turned = opened.turn(REQUESTS_TIME_MAX, Some(self.requests - requests));
            let turned = turned.map_err(|error| generator_failed(&error))?;
            (requests, failed) = (requests + turned.right, failed + turned.failed);
        }
        if are_too_many(failed, requests) {
            return Err(failures(&mut server, opened.why_failed(), failed, requests));
        }
        // How an idle proxy sleeps is what is looked at.
        std::thread::sleep(self.idle);
        let cpu = server.cpu_time().saturating_sub(cpu_before);
        let elapsed = start.elapsed();
        let kernel =
            counters.and_then(|counters| counters.read()).map_err(|error| error.to_string());
        let mut own = read()?;
        for (name, count) in &mut own {
            *count = count.saturating_sub(before.get(name).copied().unwrap_or_default());
        }
        drop(opened);
        server.end(is_interrupted)?;
        Ok(Calls {
            requests,
            failed,
            elapsed,
            cpu,
            mechanism: server.mechanism.clone(),
            kernel,
            own,
        })
    }

    fn load(&self, page: Option<&TimesSocket>) -> Load {
        let mut options = self.options.clone();
        options.extend(page.into_iter().flat_map(|page| ["--stats".to_owned(), page.listen()]));
        let threads = self.threads;
        let is_closed_behind = self.is_closed;
        let plain = Load::kept(Role::PassesOn, self.connections);
        Load { threads, options, is_closed_behind, ..plain }
    }
}

/// Has threads run when the others on their CPU have nothing to do, however fast they are: then what they
/// find when they wait says something of the program.
fn come_last(threads: &[(u32, u32)]) -> Result<(), MeasureError> {
    for (_, tid) in threads {
        // The number of a thread is that of a process to this call.
        let thread = i32::try_from(*tid).ok().and_then(Pid::from_raw);
        setpriority_process(thread, NICE_MAX).map_err(MeasureError::io("setpriority"))?;
    }
    Ok(())
}

/// Counters of every thread of a proxy.
struct Counters(Vec<(&'static str, Counter)>);

impl Counters {
    fn open(threads: &[(u32, u32)]) -> std::io::Result<Self> {
        let points = CALLS.map(|(_, name)| Tracepoint { group: "syscalls", name });
        let ids = tracepoint_ids(&points)?;
        let mut counters = Vec::new();
        for ((name, _), id) in CALLS.iter().zip(ids) {
            let Ok(id) = id else { continue };
            for (_, tid) in threads {
                let options = CounterOptions { inherits: true, ..CounterOptions::default() };
                let counter =
                    Counter::open(PerfEvent::Tracepoint(id), Scope::Thread(*tid), options)?;
                counter.enable()?;
                counters.push((*name, counter));
            }
        }
        if counters.is_empty() {
            Err(std::io::Error::other("this kernel has no tracepoints of system calls"))
        } else {
            Ok(Self(counters))
        }
    }

    fn read(&self) -> std::io::Result<BTreeMap<&'static str, u64>> {
        let mut counts = BTreeMap::new();
        for (name, counter) in &self.0 {
            *counts.entry(*name).or_default() += counter.read()?.value;
        }
        Ok(counts)
    }
}
