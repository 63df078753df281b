//! `proxy`: a reverse proxy on one CPU, its clients and the server behind it on another; what does a
//! request cost the proxy?
//!
//! Everything but the measured program is that of `http`: how processes are started and watched, the
//! load, the turns. The server behind is pollux's own, on the generator's CPU and outside the measured
//! processes. Every proxy keeps its connections to it, has one thread.

use pollux_doctor::Concern;
use pollux_doctor::room::{CONNECTION_BYTES, SERVER_FDS_SPARE};
use pollux_engine::Driver;

use super::Section;
use super::contract::{
    Cost, Experiment, GENERATOR_RUNTIME_MIN, Metric, Needs, SERVER_COST, TCP_COST,
};
use super::http::{
    self, CONNECTIONS, Generator, HAPROXY, KEEPALIVE, NGINX, PLACES_OF_PROXY, REPLY_BYTES, Role,
    SECTION,
};
use crate::arm::Peer;
use crate::axis::{Axes, Axis, AxisKind, Value};
use crate::error::MeasureError;
use crate::measure::{Done, RunSpec};
use crate::record::Interval;
use crate::turns::Subject;

/// A reverse proxy between a load generator and a server.
pub(crate) struct Proxy;

const AXES: &[Axis] = &[
    CONNECTIONS,
    KEEPALIVE,
    REPLY_BYTES,
    Axis {
        name: "log",
        about: "whether the proxy writes a line of each answer to a log; without: --no-log",
        original: None,
        kind: AxisKind::Either { short: "no_log", means: false },
        default: "true",
    },
    Axis {
        name: "encrypted",
        about: "whether clients speak TLS 1.3 with the proxy; with: --tls",
        original: None,
        kind: AxisKind::Either { short: "tls", means: true },
        default: "false",
    },
];

impl Experiment for Proxy {
    fn name(&self) -> &'static str {
        "proxy"
    }

    fn about(&self) -> &'static str {
        "a reverse proxy on one CPU passes requests on to a server on another: what does a request cost \
         it? (HAProxy's poller history, to 2022)"
    }

    fn question(&self) -> &'static str {
        "What does a request cost a reverse proxy, and on which loop is it cheapest?"
    }

    fn axes(&self) -> &'static [Axis] {
        AXES
    }

    fn load(&self, axes: &Axes) -> String {
        let connections = axes.get(CONNECTIONS.name).map(Value::to_string).unwrap_or_default();
        let kept = if axes.is_on(KEEPALIVE.name) { "" } else { ", each for one request" };
        let log = if axes.is_on("log") { "" } else { ", no log" };
        let tls = if axes.is_on("encrypted") { " in TLS" } else { "" };
        format!("HTTP through a proxy on {connections} connections{tls}{kept}{log}")
    }

    fn drivers(&self) -> &'static [Driver] {
        &Driver::ALL
    }

    fn peers(&self) -> &'static [Peer] {
        &[NGINX, HAPROXY]
    }

    fn places(&self) -> &'static [&'static str] {
        &PLACES_OF_PROXY
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let connections = axes.number(CONNECTIONS.name);
        Needs {
            fds: 2 * connections,
            fds_spare: SERVER_FDS_SPARE,
            processes_max: 1,
            generator_fds: connections,
            memory_bytes: 3 * connections * CONNECTION_BYTES,
            start: SERVER_COST * 2 + TCP_COST * 2 * connections as u32,
            runtime_min: GENERATOR_RUNTIME_MIN,
            queue_bytes: 0,
            concerns: match axes.is_on(KEEPALIVE.name) {
                true => &[Concern::Servers],
                false => &[Concern::Servers, Concern::Churn],
            },
        }
    }

    fn generator(&self, _: &Axes) -> Option<Generator> {
        Some(Generator::Pollux)
    }

    fn cost(&self) -> Cost {
        Cost::us("CPU of the proxy per request", "µs/request")
    }

    fn metric(&self, _: &Axes, rates: bool) -> Metric {
        match rates {
            true => Metric::rate("requests per second", "requests/s"),
            false => self.cost().metric,
        }
    }

    fn section(&self) -> Option<&'static Section> {
        Some(&SECTION)
    }

    fn start<'a>(
        &self,
        spec: &RunSpec,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Box<dyn Subject + 'a>, MeasureError> {
        Ok(Box::new(http::Served::start(spec, Role::PassesOn, is_interrupted)?))
    }

    fn has_processes(&self) -> bool {
        true
    }

    fn measure(
        &self,
        spec: &RunSpec,
        _: &mut dyn FnMut(&Interval),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Done, MeasureError> {
        http::measure(spec, Role::PassesOn, is_interrupted)
    }
}
