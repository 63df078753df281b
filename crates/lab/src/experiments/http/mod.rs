//! `http`: a server on one CPU, a load generator on another; what does a request cost the server?
//!
//! The measuring process starts the server of the arm, waits until it has given a correct answer,
//! has the dead connections opened, lets the generator run for the ramp and once more for the window,
//! and ends both. The metric is the CPU time of all threads of all processes of the server,
//! read right before and right after the generator's run, over the requests that the generator
//! counted in it. Nothing is subtracted: what connections cost at both ends of the window is in
//! every arm alike. Where replies wait for acknowledgements the metric is the rate. The rate and the latencies are kept beside it; on two CPUs they say more of the
//! generator than of the server.

use std::time::{Duration, Instant};

use super::Generator;
use crate::error::MeasureError;
use crate::host::Reading;
use crate::measure::{Done, RunSpec, Watched};
use crate::turns;

mod config;
mod counted;
mod crowd;
mod experiment;
mod foreign;
mod generator;
mod load;
mod own;
mod section;
mod server;
mod start;
mod subject;
mod times;

pub(crate) use counted::{Calls, Traffic};
use experiment::is_split;
pub(crate) use experiment::{
    CONNECTIONS, ENCRYPTED, HAPROXY, Http, KEEPALIVE, NGINX, OF_SERVERS, REPLY_BYTES,
};

use foreign::PLACES;
pub(crate) use foreign::{PLACES_OF_PROXY, running_fault};
pub(crate) use generator::missing as missing_generator;
pub(crate) use section::SECTION;
pub(crate) use server::cpu_time_of;
pub(crate) use start::{free_address, on_mechanism};
pub(crate) use subject::Served;

use crowd::DeadCrowd;
use generator::Counted;
use load::Load;
use server::Server;
use times::TimesSocket;

/// What the measured side does with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It answers.
    Answers,
    /// It passes the request on to a server of the lab, which is none of the measured side.
    PassesOn,
}

/// Runs one arm once.
pub(crate) fn measure(
    spec: &RunSpec,
    role: Role,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    let load = Load::of(spec, role)?;
    let cpus = turns::cpus()?;
    let mut server = Server::start(spec, &load, cpus, is_interrupted)?;
    turns::pin(cpus[1])?;
    let dead = DeadCrowd::open(load.dead, server.address, &load.path, is_interrupted)?;
    server.leaves_out(&dead.pids());
    if !spec.ramp_time().is_zero() {
        let ramp_time = spec.ramp_time();
        generator::run(&load, &server.asked, ramp_time, &spec.scratch, is_interrupted)?;
    }
    let times_before = server.times.as_ref().map(TimesSocket::read).transpose()?;
    let window = Window::open(spec, &mut server);
    let counted =
        generator::run(&load, &server.asked, spec.runtime(), &spec.scratch, is_interrupted)?;
    let described = counted.described.clone();
    let mut done = window.close(counted, &mut server);
    if let (Some(socket), Some(before)) = (&server.times, times_before) {
        done.request_times = Some(socket.read()?.since(&before).into());
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
    done.generator = described.or_else(|| Some(generator::with_version(load.generator)));
    Ok(done)
}

/// The measured window: what the server had used when it began.
struct Window {
    watched: Watched,
    before: Duration,
    generators_before: Duration,
    start: Instant,
}

impl Window {
    fn open(spec: &RunSpec, server: &mut Server) -> Self {
        // The process that answers is the last one: a worker, where there are some.
        let answers = server.pids().last().copied();
        let watched = Watched::start(spec, || server.threads(), answers);
        let before = server.cpu_time();
        let generators_before = generators_cpu();
        Self { watched, before, generators_before, start: Instant::now() }
    }

    fn close(self, counted: Counted, server: &mut Server) -> Done {
        let elapsed = self.start.elapsed();
        let cpu_ns = server.cpu_time().saturating_sub(self.before).as_nanos() as u64;
        let generator_cpu = generators_cpu().saturating_sub(self.generators_before);
        let watched = self.watched.finish();
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
            ..watched
        }
    }
}

/// CPU time of generators that have ended, to a tick.
fn generators_cpu() -> Duration {
    crate::host::process::waited_children_cpu().value().copied().unwrap_or_default()
}
