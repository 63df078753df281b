//! `preload`: an installed program, unmodified, on other event mechanisms by `pollux run`; what does a
//! request cost it?
//!
//! The baseline is the program as it is. On `epoll` the library in between passes calls on, uncounted;
//! elsewhere it puts another mechanism in their place. Web servers are asked by `http`'s load, the
//! stores by one of their own (`store`).

mod store;

use super::Generator;
use super::contract::{Cost, Experiment, Facts, Needs, SERVER_COST, Started};
use super::http::{CONNECTIONS, OF_SERVERS, REPLY_BYTES, Role, Served};
use crate::arm::Peer;
use crate::axis::{Axes, Axis, AxisKind};
use crate::host::programs;
use crate::measure::RunSpec;
use pollux_engine::Driver;
use pollux_poller::Mechanism;

use store::{Protocol, Store};

/// An installed program on another mechanism than the one that it asks for.
pub(crate) struct Preload;

/// The program as it is.
const AS_IS: Peer = Peer { name: "as-is", missing: || None };

/// Names of programs, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 4] = [
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("redis-server", "redis-server"),
    ("memcached", "memcached"),
];

const AXES: &[Axis] = &[
    Axis {
        name: "program",
        about: "the program; a web server is asked for a page, a store sets and gets values of 100 bytes",
        original: None,
        kind: AxisKind::Word(&[PROGRAMS[0].0, PROGRAMS[1].0, PROGRAMS[2].0, PROGRAMS[3].0]),
        default: "nginx,haproxy,redis-server,memcached",
    },
    CONNECTIONS,
    REPLY_BYTES,
];

/// What `pollux run` offers to programs that are written for epoll.
const DRIVERS: [Driver; 5] = [
    Driver::Readiness(Mechanism::Select),
    Driver::Readiness(Mechanism::Poll),
    Driver::Readiness(Mechanism::Aio),
    Driver::Readiness(Mechanism::Epoll),
    Driver::Readiness(Mechanism::UringPoll),
];

const FACTS: Facts = Facts {
    name: "preload",
    title: "Programs as they are",
    about: "an installed program on other mechanisms than epoll, unmodified, by `pollux run`: what does a \
            request cost it?",
    question: "What does an event mechanism cost a program that was written for epoll?",
    axes: AXES,
    drivers: &DRIVERS,
    baseline: AS_IS.name,
    ways: &[AS_IS],
    cost: Cost::us("server CPU per request", "µs/request"),
    ..OF_SERVERS
};

impl Experiment for Preload {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn load(&self, axes: &Axes) -> String {
        let connections = axes.number(CONNECTIONS.name);
        format!("{} on {connections} connections", program(axes).0)
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        let (name, package) = program(axes);
        programs::missing(name, package)
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let needs = Needs::of_server(axes.number(CONNECTIONS.name));
        // `pollux run`, and a library that is loaded first.
        Needs { start: needs.start + SERVER_COST, ..needs }
    }

    fn generator(&self, _: &Axes) -> Option<Generator> {
        Some(Generator::Pollux)
    }

    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(match Protocol::of(program(&spec.axes).0) {
            Some(protocol) => Box::new(Store::start(spec, protocol, is_interrupted)?),
            None => Box::new(Served::start(spec, Role::Answers, is_interrupted)?),
        })
    }
}

/// The program of a point, with its package.
fn program(axes: &Axes) -> (&'static str, &'static str) {
    let is_it = |(name, _): &(&str, &str)| axes.is(AXES[0].name, name);
    PROGRAMS.into_iter().find(is_it).unwrap_or(PROGRAMS[0])
}
