//! What `http` is: its axes, arms, needs and words.

use std::time::Duration;

use pollux_doctor::Concern;
use pollux_engine::Driver;

use strum::VariantNames as _;

use super::{Generator, PLACES, Role, SECTION, Served};
use crate::arm::{ArmKind, Peer, RAW_EPOLL, RAW_URING};
use crate::axis::{Axes, Axis, AxisKind, Value};
use crate::error::MeasureError;
use crate::experiments::PROCESSES;
use crate::experiments::contract::{
    Cost, Curve, Experiment, Facts, Metric, Needs, OfGenerator, Started,
};
use crate::host::programs;
use crate::measure::{Done, RunSpec};
use crate::record::Interval;

/// A server under a load generator (published: sys-epoll and sehttpd).
pub(crate) struct Http;

/// The lab's own, which know several processes on one port.
pub(super) const BASELINE_SERVERS: [Peer; 2] = [RAW_EPOLL, RAW_URING];
/// The server nginx.
pub(crate) const NGINX: Peer =
    Peer { name: "nginx", missing: || programs::missing("nginx", "nginx") };
/// The proxy HAProxy, which can answer by itself.
pub(crate) const HAPROXY: Peer =
    Peer { name: "haproxy", missing: || programs::missing("haproxy", "haproxy") };
/// The server H2O.
pub(super) const H2O: Peer = Peer { name: "h2o", missing: || programs::missing("h2o", "h2o") };
/// The server lighttpd.
pub(super) const LIGHTTPD: Peer =
    Peer { name: "lighttpd", missing: || programs::missing("lighttpd", "lighttpd") };

/// In the order of lists.
pub(super) const PEERS: [Peer; 6] = [RAW_EPOLL, RAW_URING, NGINX, HAPROXY, H2O, LIGHTTPD];

/// Most server processes of one point: enough for half a million connections at 32,768 each.
const PROCESSES_MAX: u64 = 16;
/// Other people's generators look ten times a second whether they should end.
const OTHER_GENERATOR_RUNTIME_MIN: Duration = Duration::from_millis(500);

/// Most bytes of a reply.
const REPLY_BYTES_MAX: u64 = 1 << 20;
/// The same of the baseline servers, and of HAProxy, whose replies fit one of its buffers.
const IN_MEMORY_BYTES_MAX: u64 = 65_536;

/// Of servers and proxies.
pub(crate) const CONNECTIONS: Axis = Axis {
    name: "connections",
    about: "connections of the load generator, each with its next request as soon as the last is \
            answered",
    original: Some("ab -c"),
    kind: AxisKind::Count(1, 60_000),
    default: "64,256,1000",
};
/// Likewise.
pub(crate) const KEEPALIVE: Axis = Axis {
    name: "keepalive",
    about: "whether connections are kept; without (--no-keepalive), each request has its own",
    original: Some("ab -k"),
    kind: AxisKind::Either { short: "no_keepalive", means: false },
    default: "true",
};
/// Likewise.
pub(crate) const REPLY_BYTES: Axis = Axis {
    name: "reply_bytes",
    about: "length of the body of each reply",
    original: Some("dphttpd --msgsize"),
    kind: AxisKind::Count(1, REPLY_BYTES_MAX),
    default: "128",
};

/// Likewise.
pub(crate) const ENCRYPTED: Axis = Axis {
    name: "encrypted",
    about: "whether clients speak TLS 1.3; with: --tls",
    original: None,
    kind: AxisKind::Either { short: "tls", means: true },
    default: "false",
};
const RESUMPTION: Axis = Axis {
    name: "resumption",
    about: "whether a connection in TLS resumes the session of an earlier one; without \
            (--full-handshakes), each makes a full handshake",
    original: None,
    kind: AxisKind::Either { short: "full_handshakes", means: false },
    default: "true",
};
const FILE: Axis = Axis {
    name: "file",
    about: "whether the body is that of a file, which the server finds in a folder for each request; \
            with: --from-file",
    original: None,
    kind: AxisKind::Either { short: "from_file", means: true },
    default: "false",
};

/// The server's descriptors are its connections.
const AXES: &[Axis] = &[
    CONNECTIONS,
    Axis {
        name: "pipeline",
        about: "requests that a connection sends at once",
        original: None,
        kind: AxisKind::Count(1, 256),
        default: "1",
    },
    KEEPALIVE,
    Axis {
        name: "dead",
        about: "connections beside the active ones that send one request and are silent then",
        original: Some("deadconn"),
        kind: AxisKind::Count(0, 500_000),
        default: "0",
    },
    REPLY_BYTES,
    FILE,
    ENCRYPTED,
    RESUMPTION,
    Axis {
        name: "path",
        about: "what is asked for; servers of your own may answer elsewhere than at /",
        original: None,
        kind: AxisKind::Path,
        default: "/",
    },
    Axis {
        name: "reply",
        about: "how pollux sends it: in one write (whole), or head and body in two without \
                TCP_NODELAY (split), a classic mistake whose cost is judged by the rate",
        original: None,
        kind: AxisKind::Manner(&["whole", "split"]),
        default: "whole",
    },
    Axis {
        name: "generator",
        about: "what makes the load; wrk and ab repeat a figure with other people's tools",
        original: None,
        kind: AxisKind::Word(Generator::VARIANTS),
        default: "pollux",
    },
];

const FACTS: Facts = Facts {
    name: "http",
    title: "HTTP",
    about: "a server on one CPU answers a load generator on another: what does a request cost it? \
            (dphttpd and deadconn, 2002; ab against sehttpd, 2020)",
    question: "What does an HTTP request cost the server, and which loop is cheapest?",
    axes: AXES,
    curve: Some(Curve { axis: "dead", from: 0 }),
    tool: Some("generator"),
    peers: &PEERS,
    places: &PLACES,
    times_requests: true,
    cost: Cost::us("server CPU per request", "µs/request"),
    ..OF_SERVERS
};

/// What servers and proxies have in common.
pub(crate) const OF_SERVERS: Facts = Facts {
    span: Some(CONNECTIONS.name),
    drivers: &Driver::ALL,
    has_processes: true,
    of_runs: Metric::rate("requests per second", "requests/s"),
    of_generator: Some(&OfGenerator {
        findings: &["generator-bound", "few-answers"],
        bound: "generator-bound",
        busy: "generator_busy",
        rate: "requests_per_s",
    }),
    section: Some(&SECTION),
    ..Facts::PLAIN
};

impl Experiment for Http {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn load(&self, axes: &Axes) -> String {
        let value = |axis| axes.get(axis).map(Value::to_string).unwrap_or_default();
        let mut words = format!("HTTP on {} connections", value("connections"));
        if !axes.is_on("keepalive") {
            words += ", each for one request";
        }
        if axes.is_on(ENCRYPTED.name) {
            words += " in TLS";
        }
        if !axes.is_on(RESUMPTION.name) {
            words += " with full handshakes";
        }
        if axes.is_on(FILE.name) {
            words += &format!(", a file of {} bytes", value("reply_bytes"));
        }
        if axes.number("pipeline") != 1 {
            words += &format!(", {} requests at once", value("pipeline"));
        }
        if is_split(axes) {
            words += ", each reply in two writes";
        }
        if axes.number("dead") != 0 {
            words += &format!(", {} dead beside them", value("dead"));
        }
        if axes.get(PROCESSES).is_some() {
            words += &format!(", {} server processes", value(PROCESSES));
        }
        if Generator::of(axes) != Generator::Pollux {
            words += &format!(", asked by {}", value("generator"));
        }
        words
    }

    fn arm_fault(&self, axes: &Axes, arm: &ArmKind) -> Option<String> {
        let is_baseline_server = BASELINE_SERVERS.iter().any(|server| arm.is(*server));
        if is_split(axes) && arm.is_other() {
            return Some("only pollux sends a reply in two writes when it is asked to".to_owned());
        }
        let is_plain = is_baseline_server || arm.is(H2O) || arm.is(LIGHTTPD);
        if axes.is_on(ENCRYPTED.name) && is_plain {
            return Some("the lab has no configuration of it with TLS".to_owned());
        }
        if axes.is_on(FILE.name) && (is_baseline_server || arm.is(HAPROXY)) {
            return Some("it does not serve files".to_owned());
        }
        if axes.number(REPLY_BYTES.name) > IN_MEMORY_BYTES_MAX
            && (is_baseline_server || arm.is(HAPROXY))
        {
            return Some(format!("its replies have at most {IN_MEMORY_BYTES_MAX} bytes here"));
        }
        (axes.get(PROCESSES).is_some()
            && arm.is_other()
            && !is_baseline_server
            && !arm.is_program())
        .then(|| "the lab does not run several processes of it on one port".to_owned())
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        let is_pipelined = axes.number("pipeline") > 1;
        if is_pipelined && !axes.is_on("keepalive") {
            return Some("without keep-alive there is one request for each connection".to_owned());
        }
        if axes.is_on(ENCRYPTED.name) {
            if axes.number("dead") > 0 {
                return Some("dead connections speak no TLS".to_owned());
            }
            if Generator::of(axes) != Generator::Pollux {
                return Some("wrk and ab do not check certificates; expected pollux".to_owned());
            }
        }
        if !axes.is_on(RESUMPTION.name)
            && (!axes.is_on(ENCRYPTED.name) || axes.is_on(KEEPALIVE.name))
        {
            return Some(
                "handshakes are many where connections in TLS serve one request each; expected --tls \
                 and --no-keepalive"
                    .to_owned(),
            );
        }
        if axes.is_on(FILE.name) && is_split(axes) {
            return Some("a reply in two writes is one from memory".to_owned());
        }
        (is_pipelined && Generator::of(axes) == Generator::Ab)
            .then(|| "ab sends one request at a time on a connection".to_owned())
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let connections = axes.number("connections");
        let is_own = Generator::of(axes) == Generator::Pollux;
        let all = Needs::of_server(connections + axes.number("dead"));
        Needs {
            processes_max: PROCESSES_MAX,
            generator_fds: connections,
            runtime_min: if is_own { all.runtime_min } else { OTHER_GENERATOR_RUNTIME_MIN },
            concerns: match (axes.number("dead") > 0, axes.is_on("keepalive")) {
                (false, true) => &[Concern::Servers],
                (true, true) => &[Concern::Servers, Concern::Dead],
                (false, false) => &[Concern::Servers, Concern::Churn],
                (true, false) => &[Concern::Servers, Concern::Dead, Concern::Churn],
            },
            ..all
        }
    }

    fn generator(&self, axes: &Axes) -> Option<Generator> {
        Some(Generator::of(axes))
    }

    fn takes_turns(&self, axes: &Axes) -> bool {
        (Generator::of(axes) == Generator::Pollux) && !is_split(axes)
    }

    /// A server whose replies wait for acknowledgements is judged by its rate: its CPU is idle most of
    /// the time, and that is the very thing to show.
    fn metric(&self, axes: &Axes, rates: bool) -> Metric {
        if rates || is_split(axes) { FACTS.of_runs } else { FACTS.cost.metric }
    }

    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(Box::new(Served::start(spec, Role::Answers, is_interrupted)?))
    }

    fn measure(
        &self,
        spec: &RunSpec,
        _: &mut dyn FnMut(&Interval),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Done, MeasureError> {
        super::measure(spec, Role::Answers, is_interrupted)
    }
}

/// Whether head and body of a reply are two writes.
pub(crate) fn is_split(axes: &Axes) -> bool {
    axes.is("reply", "split")
}
