//! The calls of a proxy's threads, counted for so many requests through it.
//!
//! The kernel counts calls by tracepoints, the same for every proxy, from before the first connection of the
//! load on. Proxies of pollux say what they counted themselves as well.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pollux_load::{Turned, Turns};
use pollux_sys::perf::{Counter, CounterOptions, PerfEvent, Scope, Tracepoint, tracepoint_ids};
use rustix::process::{Pid, setpriority_process};

use super::Role;
use super::generator;
use super::load::Load;
use super::load_turns::{are_too_many, failures, generator_failed};
use super::server::Server;
use super::times::TimesSocket;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject;

/// How long the requests may take whose calls are counted.
const REQUESTS_TIME_MAX: Duration = Duration::from_secs(120);
/// `setpriority(2)`: behind all others.
const NICE_MAX: i32 = 19;

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
