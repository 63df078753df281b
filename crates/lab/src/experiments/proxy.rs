//! `proxy`: a reverse proxy on one CPU, its clients and the server behind it on another; what does a
//! request cost the proxy?
//!
//! Everything but the measured program is that of `http`: how processes are started and observed, the
//! load, the turns. The server behind is pollux's own, on the generator's CPU and outside the measured
//! processes. Every proxy keeps its connections to it, has one thread. Clients may speak HTTP/2 with it; to the
//! server behind each speaks HTTP/1.1, so that every stream that is under way has a connection there.

use pollux_doctor::{CONNECTION_BYTES, Concern};

use super::http::{
    self, CONNECTIONS, ENCRYPTED, H2O, HAPROXY, HAPROXY_SPLICE, HTTP, KEEPALIVE, NGHTTPX, NGINX,
    OF_SERVERS, PROXY_PLACEHOLDERS, REPLY_BYTES, REQUEST_BYTES, Role, STREAMS,
};
use super::{Cost, Description, Experiment, Generator, Needs, SERVER_COST, Started};
use crate::arm::ArmKind;
use crate::axis::{Axes, Axis, AxisKind, Value};
use crate::error::MeasureError;
use crate::measure::{Done, RunSpec};
use crate::record::{Interval, Look};

/// A reverse proxy between a load generator and a server.
pub(crate) struct Proxy;

/// A buffer of HAProxy (`tune.bufsize`): shorter bodies fit one beside their head, and none of them is spliced.
const SPLICED_FROM_BYTES: u64 = 16_384;

const AXES: &[Axis] = &[
    CONNECTIONS,
    HTTP,
    STREAMS,
    KEEPALIVE,
    REPLY_BYTES,
    REQUEST_BYTES,
    Axis {
        name: "log",
        about: "whether the proxy writes a line of each answer to a log; without: --no-log",
        original: None,
        kind: AxisKind::Either { short: "no_log", means: false },
        default: "true",
    },
    ENCRYPTED,
    Axis {
        name: "differing",
        about: "whether requests differ, as those of many users do: each asks for one of 100 things; \
                with: --varied",
        original: None,
        kind: AxisKind::Either { short: "varied", means: true },
        default: "false",
    },
];

const DESCRIPTION: Description = Description {
    name: "proxy",
    title: "Proxy",
    about: "a reverse proxy on one CPU passes requests on to a server on another: what does a request cost \
            it? (HAProxy's poller history, to 2022)",
    question: "What does a request cost a reverse proxy, and on which loop is it cheapest?",
    axes: AXES,
    peers: &[NGINX, HAPROXY, HAPROXY_SPLICE, H2O, NGHTTPX],
    placeholders: &PROXY_PLACEHOLDERS,
    cost: Cost::us("CPU of the proxy per request", "µs/request"),
    ..OF_SERVERS
};

impl Experiment for Proxy {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        let connections = axes.get(CONNECTIONS.name).map(Value::to_string).unwrap_or_default();
        let kept = if axes.is_on(KEEPALIVE.name) { "" } else { ", each for one request" };
        let log = if axes.is_on("log") { "" } else { ", no log" };
        let tls = if axes.is_on(ENCRYPTED.name) { " in TLS" } else { "" };
        let varied = if axes.is_on("differing") { ", requests that differ" } else { "" };
        let bodies = http::in_words(axes);
        let (http, streams) = http::spoken(axes);
        format!(
            "{http} through a proxy on {connections} connections{streams}{tls}{kept}{bodies}{varied}{log}"
        )
    }

    fn arm_fault(&self, axes: &Axes, arm: &ArmKind) -> Option<String> {
        if !arm.is(HAPROXY_SPLICE) {
            return None;
        }
        if axes.is_on(ENCRYPTED.name) {
            return Some("it splices nothing in TLS; haproxy stands for it".to_owned());
        }
        if http::is_http2(axes) {
            let why =
                "it splices nothing of HTTP/2, whose bodies are in frames; haproxy stands for it";
            return Some(why.to_owned());
        }
        let longest = axes.number(REPLY_BYTES.name).max(axes.number(REQUEST_BYTES.name));
        (longest < SPLICED_FROM_BYTES).then(|| {
            format!(
                "bodies below {SPLICED_FROM_BYTES} bytes fit its buffer, so nothing is spliced; haproxy stands \
                 for it"
            )
        })
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        http::streams_fault(axes)
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let connections = axes.number(CONNECTIONS.name);
        let behind = connections * axes.number(STREAMS.name);
        let both = Needs::of_server(connections + behind);
        Needs {
            generator_fds: connections,
            // Those to the server behind have an end in it as well.
            memory_bytes: (connections + 2 * behind) * CONNECTION_BYTES,
            start: both.start + SERVER_COST,
            concerns: if axes.is_on(KEEPALIVE.name) {
                &[Concern::Servers]
            } else {
                &[Concern::Servers, Concern::Churn]
            },
            ..both
        }
    }

    fn wave(&self, axes: &Axes) -> u64 {
        http::wave(axes)
    }

    fn generator(&self, _: &Axes) -> Option<Generator> {
        Some(Generator::Pollux)
    }

    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(Box::new(http::Served::start(spec, Role::PassesOn, is_interrupted)?))
    }

    fn look(
        &self,
        spec: &RunSpec,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Look, MeasureError> {
        http::look(spec, Role::PassesOn, is_interrupted)
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
