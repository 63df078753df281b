//! A server with its load in one run by itself: the ramp, then the window, each a run of the generator.
//!
//! The measured side is every process of the server. Its CPU time is read when it has fallen
//! asleep: a server may still have something to do when its last answer has come.

use std::time::{Duration, Instant};

use pollux_host::Reading;

use super::Role;
use super::generator::{self, Counted};
use super::load::Load;
use super::server::Server;
use super::times::TimesSocket;
use crate::error::MeasureError;
use crate::measure::{self, Done, Observed, Pass, RunSpec};
use crate::subject;

/// Runs one arm once.
pub(crate) fn measure(
    spec: &RunSpec,
    role: Role,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    let load = Load::of(spec, role)?;
    let cpus = subject::cpus()?;
    let (mut server, dead) = Server::start_beside_dead(spec, &load, cpus, is_interrupted)?;
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
        done.counters = measure::since(page.counted(), &counted_before);
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
