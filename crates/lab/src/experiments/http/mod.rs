//! `http`: a server on one CPU, a load generator on another; what does a request cost the server?
//!
//! The subject's process starts the server of the arm, waits until it has given a correct answer, has the dead
//! connections opened, and in each turn has a load asked of it for some milliseconds, by its own thread or by an agent on another host (`served`, `load_turns`). The metric is the CPU time of
//! all threads of all processes of the server, read right before and right after the turn, over the requests that were answered
//! in it. Other people's generators can't take turns: there the same is measured in whole runs, one run of the
//! generator for the ramp and one for the window (`whole_run`). So are replies that wait for acknowledgements, whose metric is
//! the rate. Nothing is subtracted: what connections cost at both ends of the window is in every arm alike. Rate and latencies
//! are kept beside it; on two CPUs they say more of the generator than of the server.
//!
//! | module | subject |
//! |---|---|
//! | `section` | what a report shows of servers under load |
//! | `load` | the axes of a run as numbers |
//! | `served` | a server with its load in turns; `whole_run`: the same in one run by itself; `counted_calls`: a proxy whose calls are counted |
//! | `server` | the server of an arm: started, asked once, observed, ended |
//! | `command_lines`, `forms` | how each server is started; the bare server in its forms |
//! | `load_turns`, `generator`, `agent` | the load in turns, of this thread or of another host; in a run by itself, also by other people's generators |
//! | `dead_crowd`, `certificate` | connections that are silent; what clients in TLS are shown |
//! | `inspect` | a first look at servers of the user |
//! | `times`, `threads` | how long requests take inside a server; threads of the kernel that work for it |

use std::time::Duration;

use pollux_doctor::Concern;
use pollux_engine::Driver;
use pollux_host as host;

use super::{
    Cost, Curve, Description, Experiment, Generator, GeneratorDescription, Metric, Needs,
    PROCESSES, Started,
};
use crate::arm::{ArmKind, Peer, RAW_EPOLL, RAW_URING};
use crate::axis::{Axes, Axis, AxisKind, Value, size_of};
use crate::error::MeasureError;
use crate::measure::{Done, RunSpec};
use crate::record::{Interval, Look};
use server::PLACEHOLDERS;

mod agent;
mod certificate;
mod command_lines;
mod counted_calls;
mod dead_crowd;
mod forms;
mod generator;
mod inspect;
mod load;
mod load_turns;
mod section;
mod served;
mod server;
mod threads;
mod times;
mod whole_run;

pub(crate) use command_lines::{free_address, on_mechanism};
pub(crate) use counted_calls::{Calls, Traffic};
pub(crate) use forms::missing as missing_form;
pub(crate) use generator::missing as missing_generator;
pub(crate) use inspect::look;
pub(crate) use section::SECTION;
pub(crate) use served::Served;
pub(crate) use server::{PROXY_PLACEHOLDERS, cpu_time_of, running_fault};
pub(crate) use whole_run::measure;

/// What the measured side does with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Answers,
    /// It passes the request on to a server of the lab, which does not belong to the measured side.
    PassesOn,
}

/// A server under a load generator (published: sys-epoll and sehttpd).
pub(crate) struct Http;

/// Why there is neither pipelining nor a second stream.
const ONE_REQUEST: &str = "without keep-alive there is one request for each connection";

/// The lab's own, which know several processes on one port.
const BASELINE_SERVERS: [Peer; 2] = [RAW_EPOLL, RAW_URING];
/// The server nginx.
pub(crate) const NGINX: Peer =
    Peer { name: "nginx", missing: || host::missing_program("nginx", "nginx") };
/// The proxy HAProxy, which can answer by itself.
pub(crate) const HAPROXY: Peer =
    Peer { name: "haproxy", missing: || host::missing_program("haproxy", "haproxy") };
/// HAProxy as a proxy that passes bodies on by splice(2), which it does where it is asked to.
pub(crate) const HAPROXY_SPLICE: Peer =
    Peer { name: "haproxy-splice", missing: || host::missing_program("haproxy", "haproxy") };
/// The server H2O, which is a proxy too.
pub(crate) const H2O: Peer = Peer { name: "h2o", missing: || host::missing_program("h2o", "h2o") };
/// The server lighttpd.
const LIGHTTPD: Peer =
    Peer { name: "lighttpd", missing: || host::missing_program("lighttpd", "lighttpd") };

/// The server of nghttp2, which speaks HTTP/2 alone.
const NGHTTPD: Peer =
    Peer { name: "nghttpd", missing: || host::missing_program("nghttpd", "nghttp2-server") };

/// The proxy of nghttp2.
pub(crate) const NGHTTPX: Peer =
    Peer { name: "nghttpx", missing: || host::missing_program("nghttpx", "nghttp2-proxy") };

/// In the order of lists.
const PEERS: [Peer; 7] = [RAW_EPOLL, RAW_URING, NGINX, HAPROXY, H2O, LIGHTTPD, NGHTTPD];

/// Most server processes of one point: enough for half a million connections at 32,768 each.
const PROCESSES_MAX: u64 = 16;
/// Other people's generators look ten times a second whether they should end.
const OTHER_GENERATOR_RUNTIME_MIN: Duration = Duration::from_millis(500);

/// Most bytes of a reply, and of a request.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// The same of the baseline servers, and of HAProxy, whose replies fit one of its buffers.
const IN_MEMORY_BYTES_MAX: u64 = 65_536;

/// Most streams of a connection; every server is configured to allow as many.
const STREAMS_MAX: u64 = 256;

/// Of servers and proxies.
pub(crate) const CONNECTIONS: Axis = Axis {
    name: "connections",
    about: "connections of the load generator, each with its next request as soon as the last is \
            answered",
    original: Some("ab -c"),
    kind: AxisKind::Count(1, 60_000),
    default: "64,256,1000",
};
pub(crate) const KEEPALIVE: Axis = Axis {
    name: "keepalive",
    about: "whether connections are kept; without (--no-keepalive), each request has its own",
    original: Some("ab -k"),
    kind: AxisKind::Either { short: "no_keepalive", means: false },
    default: "true",
};
pub(crate) const REPLY_BYTES: Axis = Axis {
    name: "reply_bytes",
    about: "length of the body of each reply",
    original: Some("dphttpd --msgsize"),
    kind: AxisKind::Bytes(1, BODY_BYTES_MAX),
    default: "128",
};
pub(crate) const REQUEST_BYTES: Axis = Axis {
    name: "request_bytes",
    about: "length of the body of each request, which is a POST then; 0: a GET without one",
    original: None,
    kind: AxisKind::Bytes(0, BODY_BYTES_MAX),
    default: "0",
};

/// Which HTTP is spoken.
pub(crate) const HTTP: Axis = Axis {
    name: "http",
    about: "which HTTP the load generator speaks: 1.1, or 2 (in clear text from the first byte on, in TLS by ALPN)",
    original: None,
    kind: AxisKind::Version(&["1.1", "2"]),
    default: "1.1",
};
pub(crate) const STREAMS: Axis = Axis {
    name: "streams",
    about: "requests that a connection of HTTP/2 has under way at the same time",
    original: Some("h2load -m"),
    kind: AxisKind::Count(1, STREAMS_MAX),
    default: "1",
};
pub(crate) const ENCRYPTED: Axis = Axis {
    name: "encrypted",
    about: "whether clients speak TLS 1.3; with: --tls",
    original: None,
    kind: AxisKind::Either { short: "tls", means: true },
    default: "false",
};
const RESUMPTION: Axis = Axis {
    name: "resumption",
    about: "whether a connection in TLS resumes the session of an earlier one; \
            --full-handshakes: every connection makes a full one",
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
    HTTP,
    STREAMS,
    KEEPALIVE,
    Axis {
        name: "dead",
        about: "connections beside the active ones that send one request and are silent then",
        original: Some("deadconn"),
        kind: AxisKind::Count(0, 500_000),
        default: "0",
    },
    REPLY_BYTES,
    REQUEST_BYTES,
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
        about: "what makes the load; wrk and ab repeat a figure with other people's tools, agent:NAME is \
                pollux on another host (pollux-agent), reached by --nats",
        original: None,
        kind: AxisKind::WordOrAgent(&Generator::HERE, Generator::Agent.name()),
        default: "pollux",
    },
];

const DESCRIPTION: Description = Description {
    name: "http",
    title: "HTTP",
    about: "a server on one CPU answers a load generator on another: what does a request cost it? \
            (dphttpd and deadconn, 2002; ab against sehttpd, 2020)",
    question: "What does an HTTP request cost the server, and which loop is cheapest?",
    axes: AXES,
    curve: Some(Curve { axis: "dead", from: 0 }),
    tool: Some("generator"),
    peers: &PEERS,
    placeholders: &PLACEHOLDERS,
    has_forms: true,
    times_requests: true,
    cost: Cost::us("server CPU per request", "µs/request"),
    ..OF_SERVERS
};

/// What servers and proxies have in common.
pub(crate) const OF_SERVERS: Description = Description {
    span: Some(CONNECTIONS.name),
    drivers: &Driver::ALL,
    has_processes: true,
    of_runs: Metric::rate("requests per second", "requests/s"),
    of_generator: Some(&GeneratorDescription {
        findings: &["generator-bound", "few-answers"],
        bound: "generator-bound",
        busy: "generator_busy",
        rate: "requests_per_s",
    }),
    section: Some(&SECTION),
    ..Description::PLAIN
};

impl Experiment for Http {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        let value = |axis| axes.get(axis).map(Value::to_string).unwrap_or_default();
        let (http, streams) = spoken(axes);
        let mut words = format!("{http} on {} connections{streams}", value("connections"));
        if !axes.is_on("keepalive") {
            words += ", each for one request";
        }
        if axes.is_on(ENCRYPTED.name) {
            words += " in TLS";
        }
        if !axes.is_on(RESUMPTION.name) {
            words += " with full handshakes";
        }
        words += &in_words(axes);
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
        let is_form = arm.form().is_some();
        if is_http2(axes) {
            if is_baseline_server || is_form {
                return Some("it speaks HTTP/1.1 alone".to_owned());
            }
        } else if arm.is(NGHTTPD) {
            return Some("it speaks HTTP/2 alone; expected --http 2".to_owned());
        }
        if is_form && Generator::of(axes) == Generator::Ab {
            return Some("it speaks HTTP/1.1 and ab does not".to_owned());
        }
        let is_plain = is_baseline_server || is_form || arm.is(LIGHTTPD);
        if axes.is_on(ENCRYPTED.name) && is_plain {
            return Some("the lab has no configuration of it with TLS".to_owned());
        }
        if axes.is_on(FILE.name) && (is_baseline_server || is_form || arm.is(HAPROXY)) {
            return Some("it does not serve files".to_owned());
        }
        if axes.number(REQUEST_BYTES.name) > 0 {
            if arm.is(NGINX) || arm.is(HAPROXY) {
                let what = "without a server behind it, it answers before it has read the body";
                return Some(what.to_owned());
            }
            if [H2O, LIGHTTPD, NGHTTPD].iter().any(|server| arm.is(*server)) {
                return Some("it answers from files, which take no body".to_owned());
            }
        }
        if axes.number(REPLY_BYTES.name) > IN_MEMORY_BYTES_MAX
            && (is_baseline_server || arm.is(HAPROXY))
        {
            return Some(format!("its replies have at most {IN_MEMORY_BYTES_MAX} bytes here"));
        }
        (axes.get(PROCESSES).is_some()
            && arm.is_other()
            && !is_baseline_server
            && !is_form
            && !arm.is_program())
        .then(|| "the lab does not run several processes of it on one port".to_owned())
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        let is_pipelined = axes.number("pipeline") > 1;
        if is_http2(axes) {
            if is_pipelined {
                return Some(
                    "a pipeline is of HTTP/1.1; HTTP/2 has streams: expected --streams".to_owned(),
                );
            }
            if !Generator::of(axes).is_own() {
                return Some("wrk and ab speak HTTP/1 alone; expected pollux".to_owned());
            }
            if axes.number("dead") > 0 {
                return Some("dead connections speak HTTP/1.1".to_owned());
            }
            if is_split(axes) {
                return Some("a reply in two writes is one of HTTP/1.1".to_owned());
            }
        }
        if let Some(why) = streams_fault(axes) {
            return Some(why);
        }
        if is_pipelined && !axes.is_on("keepalive") {
            return Some(ONE_REQUEST.to_owned());
        }
        if axes.is_on(ENCRYPTED.name) {
            if axes.number("dead") > 0 {
                return Some("dead connections speak no TLS".to_owned());
            }
            if !Generator::of(axes).is_own() {
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
        if axes.is_on(FILE.name) && axes.number(REQUEST_BYTES.name) > 0 {
            return Some(
                "a file is asked for by GET, which has no body; expected request_bytes = 0, or no \
                 --from-file"
                    .to_owned(),
            );
        }
        if axes.is_on(FILE.name) && is_split(axes) {
            return Some("a reply in two writes is one from memory".to_owned());
        }
        if is_split(axes) && Generator::of(axes) == Generator::Agent {
            return Some(
                "a reply in two writes is judged by its rate, and an agent gives a load in turns"
                    .to_owned(),
            );
        }
        (is_pipelined && Generator::of(axes) == Generator::Ab)
            .then(|| "ab sends one request at a time on a connection".to_owned())
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let connections = axes.number("connections");
        let is_own = Generator::of(axes).is_own();
        let is_of_agent = Generator::of(axes) == Generator::Agent;
        let all = Needs::of_server(connections + axes.number("dead"));
        Needs {
            start: all.start + if is_of_agent { agent::START_COST } else { Duration::ZERO },
            turn_min: if is_of_agent { agent::TURN_MIN } else { Duration::ZERO },
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

    fn wave(&self, axes: &Axes) -> u64 {
        wave(axes)
    }

    fn generator(&self, axes: &Axes) -> Option<Generator> {
        Some(Generator::of(axes))
    }

    fn takes_turns(&self, axes: &Axes) -> bool {
        Generator::of(axes).is_own() && !is_split(axes)
    }

    /// A server whose replies wait for acknowledgements is judged by its rate: its CPU is idle most of
    /// the time, and that is the very thing to show.
    fn metric(&self, axes: &Axes, rates: bool) -> Metric {
        if rates || is_split(axes) { DESCRIPTION.of_runs } else { DESCRIPTION.cost.metric }
    }

    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(Box::new(Served::start(spec, Role::Answers, is_interrupted)?))
    }

    fn look(
        &self,
        spec: &RunSpec,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Look, MeasureError> {
        look(spec, Role::Answers, is_interrupted)
    }

    fn measure(
        &self,
        spec: &RunSpec,
        _: &mut dyn FnMut(&Interval),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Done, MeasureError> {
        measure(spec, Role::Answers, is_interrupted)
    }
}

/// The bodies of a load, where they are not the usual ones.
pub(crate) fn in_words(axes: &Axes) -> String {
    let size = |axis: Axis| {
        let size = axes.get(axis.name).map(size_of).unwrap_or_default();
        if size.ends_with(|last: char| last.is_ascii_digit()) { size + " bytes" } else { size }
    };
    let mut words = String::new();
    if axes.get(REQUEST_BYTES.name).is_some_and(|bytes| *bytes != Value::Number(0)) {
        words += &format!(", uploads of {}", size(REQUEST_BYTES));
    }
    if axes.is_on(FILE.name) {
        words += &format!(", a file of {}", size(REPLY_BYTES));
    } else if axes
        .get(REPLY_BYTES.name)
        .is_some_and(|bytes| [bytes.clone()] != *REPLY_BYTES.defaults())
    {
        words += &format!(", replies of {}", size(REPLY_BYTES));
    }
    words
}

/// How many requests are under way at a time.
pub(crate) fn wave(axes: &Axes) -> u64 {
    let number = |axis: &str| axes.get(axis).map_or(1, |_| axes.number(axis));
    number(CONNECTIONS.name) * number("pipeline") * number(STREAMS.name)
}

/// Whether HTTP/2 is spoken.
pub(crate) fn is_http2(axes: &Axes) -> bool {
    axes.get(HTTP.name) == Some(&Value::Number(2))
}

/// What is spoken, and by how many streams of a connection, in words.
pub(crate) fn spoken(axes: &Axes) -> (&'static str, String) {
    if !is_http2(axes) {
        return ("HTTP", String::new());
    }
    let streams = axes.get(STREAMS.name).map(Value::to_string).unwrap_or_default();
    ("HTTP/2", format!(" with {streams} streams each"))
}

/// What is wrong with the streams of a point, if anything.
pub(crate) fn streams_fault(axes: &Axes) -> Option<String> {
    if axes.number(STREAMS.name) == 1 {
        return None;
    }
    if !is_http2(axes) {
        return Some("HTTP/1.1 has no streams; expected --http 2".to_owned());
    }
    (!axes.is_on(KEEPALIVE.name)).then(|| ONE_REQUEST.to_owned())
}

/// Whether head and body of a reply are two writes.
fn is_split(axes: &Axes) -> bool {
    axes.is("reply", "split")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_unit() {
        let of = |bytes: u64| {
            in_words(&[(REQUEST_BYTES.name, Value::Number(bytes))].into_iter().collect())
        };
        assert_eq!(of(128), ", uploads of 128 bytes");
        assert_eq!(of(1 << 20), ", uploads of 1MiB");
    }
}
