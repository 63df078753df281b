//! `poller`: does each behaviour of HAProxy's poller history show here, as a count?
//!
//! A point is a check of one behaviour. Arms have it, and do without it where that makes sense: `epoll-plain`
//! is the same code with the behaviour off, `epoll-oneshot` has to register a descriptor anew after
//! each event. Checks of the upper half run proxies as processes of their own and have their calls
//! counted by the kernel, those of the lower half try the engine's parts in the measuring process.

use std::time::{Duration, Instant};

use pollux_doctor::{Concern, FDS_SPARE, SERVER_FDS_SPARE};
use pollux_engine::Driver;
use pollux_host::Reading;
use pollux_poller::Mechanism;

use super::http::{Calls, HAPROXY, NGINX, Traffic};
use super::{Cost, Description, Experiment, Metric, Needs, SERVER_COST, Started};
use crate::arm::{ArmKind, Peer, missing_driver};
use crate::axis::{Axes, Axis, AxisKind};
use crate::error::MeasureError;
use crate::measure::{Done, RunSpec};
use crate::record::Interval;

mod inside;

/// The checks of HAProxy's poller history.
pub(crate) struct Poller;

/// Pollux itself without the behaviour that a check is about.
const EPOLL_PLAIN: Peer = Peer::of_pollux("epoll-plain");
/// The same on io_uring by completion, for busy polling.
const URING_PLAIN: Peer =
    Peer { name: "uring-plain", missing: || missing_driver(Driver::Completion) };

struct Check {
    name: &'static str,
    load: &'static str,
    metric: Metric,
    peers: &'static [Peer],
    run: Run,
}

enum Run {
    /// Through a proxy: what, and which of its counts is the value.
    Proxy(fn(&ArmKind) -> Traffic, fn(&Calls) -> Result<f64, String>),
    /// In this process; without a mechanism it is `epoll-plain`.
    Inside(fn(Option<Mechanism>) -> Result<Tried, MeasureError>),
    /// Loops in this process, on any mechanism; whether they do without the behaviour.
    Loops(fn(Driver, bool) -> Result<Tried, MeasureError>),
}

const NAMES: &[&str] = &[
    "kept", "one-cpu", "many", "connect", "takeover", "idle", "deferral", "error", "masked",
    "stale", "wake", "signal", "spin",
];

const CHECKS: [Check; 13] = [
    Check {
        name: "kept",
        load: "10,000 requests over 20 kept connections through a proxy",
        metric: Metric::cost("epoll_ctl calls for 10,000 requests", "calls"),
        peers: &[HAPROXY, NGINX],
        run: Run::Proxy(|_| traffic(20, 10_000), changes),
    },
    Check {
        name: "one-cpu",
        load: "10,000 requests over 20 kept connections, with clients, proxy and server on one CPU",
        metric: Metric::cost("waits for 10,000 requests", "waits"),
        peers: &[HAPROXY, NGINX],
        run: Run::Proxy(|_| Traffic { is_on_one_cpu: true, ..traffic(20, 10_000) }, waits),
    },
    Check {
        name: "many",
        load: "100,000 requests over 20 kept connections, 5,000 each, through a proxy of two threads",
        metric: Metric::cost("epoll_ctl calls for each request", "calls"),
        peers: &[HAPROXY, NGINX],
        run: Run::Proxy(
            |_| Traffic { threads: 2, ..traffic(20, 100_000) },
            |calls| Ok(changes(calls)? / calls.requests as f64),
        ),
    },
    Check {
        name: "connect",
        load: "1,000 requests through a proxy to a server that closes each connection",
        metric: Metric::cost("epoll_ctl calls for each connection to a server", "calls"),
        peers: &[HAPROXY, NGINX],
        run: Run::Proxy(
            |_| Traffic { is_closed: true, ..traffic(20, 1_000) },
            |calls| Ok(changes(calls)? / calls.requests as f64),
        ),
    },
    Check {
        name: "takeover",
        load: "two threads of a proxy that take 8 connections to a server from each other",
        metric: Metric::cost("epoll_ctl calls for each takeover", "calls"),
        peers: &[EPOLL_PLAIN],
        run: Run::Proxy(takeovers, |calls| {
            let taken = calls.own.get("pollux_proxy_taken_over_total").copied().unwrap_or_default();
            match taken {
                0 => Err("no connection was taken over".to_owned()),
                _ => Ok(changes(calls)? / taken as f64),
            }
        }),
    },
    Check {
        name: "idle",
        load: "a proxy with 20 connections and nothing to do",
        metric: Metric::rate("share of the time that an idle proxy sleeps", "%"),
        peers: &[HAPROXY, NGINX],
        run: Run::Proxy(
            |_| Traffic { idle: Duration::from_secs(2), ..traffic(20, 0) },
            |calls| Ok(100.0 * (1.0 - calls.cpu.as_secs_f64() / calls.elapsed.as_secs_f64())),
        ),
    },
    Check {
        name: "deferral",
        load: "reading given up and wanted again in each of 1,000 turns",
        metric: Metric::cost("registration changes for 1,000 turns", "calls"),
        peers: &[EPOLL_PLAIN],
        run: Run::Inside(inside::deferral),
    },
    Check {
        name: "error",
        load: "a peer answers and resets, the close comes a turn late",
        metric: Metric::cost("wake-ups for each EPOLLERR", "wake-ups"),
        peers: &[EPOLL_PLAIN],
        run: Run::Inside(inside::error),
    },
    Check {
        name: "masked",
        load: "a peer resets, and the read alone reports it",
        metric: Metric::cost("conditions that a reset is reported as", "conditions"),
        peers: &[EPOLL_PLAIN],
        run: Run::Inside(inside::masked),
    },
    Check {
        name: "stale",
        load: "a handler closes the next descriptor of its batch and opens one with its number",
        metric: Metric::cost("events handed out for each that was meant", "events"),
        peers: &[EPOLL_PLAIN],
        run: Run::Inside(inside::stale),
    },
    Check {
        name: "wake",
        load: "10,000 wakes of a busy loop before each wait",
        metric: Metric::cost("writes for 10,000 wakes", "writes"),
        peers: &[EPOLL_PLAIN],
        run: Run::Inside(inside::wake),
    },
    Check {
        name: "signal",
        load: "signals at random times around the begin of a wait of 60 s",
        metric: Metric::cost("longest time from a signal to the end of the wait", "µs"),
        peers: &[],
        run: Run::Inside(|_| inside::signal()),
    },
    Check {
        name: "spin",
        load: "a busy-polling loop on every CPU with nothing to do",
        metric: Metric::rate("loops per second", "loops/s"),
        peers: &[EPOLL_PLAIN, URING_PLAIN],
        run: Run::Loops(inside::spin),
    },
];

const AXES: &[Axis] = &[Axis {
    name: "check",
    about: "the behaviour that is looked at",
    original: None,
    kind: AxisKind::Word(NAMES),
    // Without those that have no arm to be set beside; a longer word breaks the manual page.
    default: "kept,one-cpu,connect,takeover,deferral,error,masked,stale,wake,spin",
}];

/// The first three's registration changes are calls that the kernel can count; the others are for
/// whole loops.
const DRIVERS: [Driver; 5] = [
    Driver::Readiness(Mechanism::Epoll),
    Driver::Readiness(Mechanism::EpollEt),
    Driver::Readiness(Mechanism::EpollOneshot),
    Driver::Readiness(Mechanism::UringPoll),
    Driver::Completion,
];

/// What one run came to.
struct Tried {
    value: f64,
    units: u64,
    figures: Vec<(&'static str, f64)>,
    mechanism: Option<String>,
}

impl Tried {
    fn of<const N: usize>(value: f64, units: u64, figures: [(&'static str, f64); N]) -> Self {
        Self { value, units, figures: figures.into(), mechanism: None }
    }
}

const DESCRIPTION: Description = Description {
    name: "poller",
    title: "Poller",
    about: "what a poller asks of the kernel, behaviour by behaviour: calls, wake-ups, writes (HAProxy's \
            poller history, to 2022)",
    question: "Which calls does a poller save, and which wake-ups?",
    axes: AXES,
    drivers: &DRIVERS,
    peers: &[EPOLL_PLAIN, URING_PLAIN, HAPROXY, NGINX],
    has_processes: true,
    cost: Cost::ns("time of a check", "ns"),
    ..Description::PLAIN
};

impl Experiment for Poller {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        check(axes).load.to_owned()
    }

    fn arm_fault(&self, axes: &Axes, arm: &ArmKind) -> Option<String> {
        let check = check(axes);
        if let Some(peer) =
            arm.peer().filter(|peer| !check.peers.iter().any(|known| known.name == *peer))
        {
            return Some(format!("{} has no counterpart in {peer}", check.name));
        }
        let at = DRIVERS.iter().position(|driver| arm.driver() == Some(*driver));
        match (&check.run, at) {
            (Run::Inside(_), Some(2)) => {
                Some("a one-shot registration is the loop's affair".to_owned())
            }
            (Run::Proxy(..) | Run::Inside(_), Some(3..)) => {
                Some("registration changes of io_uring are not calls of their own".to_owned())
            }
            _ => None,
        }
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let is_proxy = matches!(check(axes).run, Run::Proxy(..));
        Needs {
            fds: 40,
            fds_spare: if is_proxy { SERVER_FDS_SPARE } else { FDS_SPARE },
            generator_fds: 20,
            start: SERVER_COST * 2,
            // It takes what it takes.
            runtime_min: Duration::from_secs(1),
            concerns: if is_proxy {
                &[Concern::Servers, Concern::Counters]
            } else {
                &[Concern::Descriptors]
            },
            ..Needs::of_thread(0, Duration::ZERO)
        }
    }

    fn takes_turns(&self, _: &Axes) -> bool {
        false
    }

    fn metric(&self, axes: &Axes, _: bool) -> Metric {
        check(axes).metric
    }

    fn start<'a>(&self, _: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        Err(MeasureError::Spec("a check takes no turns".to_owned()))
    }

    fn measure(
        &self,
        spec: &RunSpec,
        _: &mut dyn FnMut(&Interval),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Done, MeasureError> {
        let start = Instant::now();
        let mut tried = match check(&spec.axes).run {
            Run::Proxy(traffic, value) => {
                through(spec, &traffic(&spec.arm), value, is_interrupted)?
            }
            Run::Inside(run) => run(spec.mechanism()?)?,
            Run::Loops(run) => match spec.arm.driver() {
                Some(driver) => run(driver, false)?,
                None if spec.arm.is(URING_PLAIN) => run(Driver::Completion, true)?,
                None => run(DRIVERS[0], true)?,
            },
        };
        let mechanism =
            tried.mechanism.take().or_else(|| Some(spec.arm.driver()?.name().to_owned()));
        let window_s = start.elapsed().as_secs_f64();
        let figures = tried.figures.into_iter().map(|(name, value)| (name.to_owned(), value));
        Ok(Done {
            value: tried.value,
            events_per_s: tried.units.max(1) as f64 / window_s,
            events: tried.units,
            window_s,
            mechanism,
            figures: figures.collect(),
            cpu_ns: Reading::unavailable("calls are counted, not time"),
            process_cpu_ns: Reading::unavailable("calls are counted, not time"),
            ..Done::default()
        })
    }
}

fn check(axes: &Axes) -> &'static Check {
    let is_it = |check: &&Check| axes.is(AXES[0].name, check.name);
    CHECKS.iter().find(is_it).unwrap_or(&CHECKS[0])
}

fn traffic(connections: usize, requests: u64) -> Traffic {
    let options = Vec::new();
    let idle = Duration::ZERO;
    let is_closed = false;
    let is_on_one_cpu = false;
    Traffic { connections, requests, idle, threads: 1, options, is_closed, is_on_one_cpu }
}

fn takeovers(arm: &ArmKind) -> Traffic {
    let mut options = vec!["--server-max-connections".to_owned(), "8".to_owned()];
    if arm.is(EPOLL_PLAIN) {
        options.push("--let-go-at-once".to_owned());
    }
    Traffic { threads: 2, options, ..traffic(16, 20_000) }
}

/// Registration changes.
fn changes(calls: &Calls) -> Result<f64, String> {
    counted(calls, "epoll_ctl", "pollux_poller_updates_sent_total")
}

fn waits(calls: &Calls) -> Result<f64, String> {
    counted(calls, "epoll_wait", "pollux_poller_waits_total")
}

/// By the kernel's count, or where that can't be read by that of pollux.
fn counted(calls: &Calls, call: &str, own: &str) -> Result<f64, String> {
    let own = calls.own.get(own).copied();
    let kernel = calls.kernel.as_ref().map(|counts| counts.get(call).copied());
    match (kernel, own) {
        (Ok(Some(count)), _) | (_, Some(count)) => Ok(count as f64),
        (Ok(None), None) => Err(format!("{call} was not counted")),
        (Err(reason), None) => Err(format!("{call} can't be counted: {reason}")),
    }
}

fn through(
    spec: &RunSpec,
    traffic: &Traffic,
    value: fn(&Calls) -> Result<f64, String>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Tried, MeasureError> {
    let mut spec = spec.clone();
    if spec.arm.is(EPOLL_PLAIN) {
        spec.arm = ArmKind::Driver(DRIVERS[0]);
    }
    let calls = traffic.run(&spec, is_interrupted)?;
    let value = value(&calls)
        .map_err(|what| MeasureError::Program { program: "the proxy".to_owned(), what })?;
    let kernel = calls.kernel.as_ref().ok();
    let of_kernel = |name, figure| Some((figure, kernel?.get(name).copied()? as f64));
    let own = |name: &str, figure| Some((figure, calls.own.get(name).copied()? as f64));
    let figures = [
        Some(("requests", calls.requests as f64)),
        Some(("failed", calls.failed as f64)),
        of_kernel("epoll_ctl", "epoll_ctl"),
        of_kernel("epoll_wait", "waits").or_else(|| own("pollux_poller_waits_total", "waits")),
        of_kernel("connect", "connects").or_else(|| own("pollux_proxy_connects_total", "connects")),
        own("pollux_poller_updates_sent_total", "changes_by_pollux"),
        own("pollux_loop_updates_asked_total", "updates_asked"),
        own("pollux_proxy_taken_over_total", "taken_over"),
        own("pollux_poller_events_total", "events"),
        own("pollux_loop_turns_total", "turns"),
    ];
    let figures = figures.into_iter().flatten().collect();
    Ok(Tried { value, units: calls.requests.max(1), figures, mechanism: calls.mechanism })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_its_name() {
        let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names, NAMES);
    }

    #[test]
    fn what_is_tried_in_the_process_shows_each_behaviour_and_its_absence() {
        let tried = |run: fn(Option<Mechanism>) -> Result<Tried, MeasureError>| {
            [Some(Mechanism::Epoll), Some(Mechanism::EpollEt), None]
                .map(|mechanism| run(mechanism).expect("epoll is there").value)
        };
        assert_eq!(tried(inside::deferral), [1.0, 1.0, 2001.0]);
        assert_eq!(tried(inside::stale), [1.0, 1.0, 2.0]);
        assert_eq!(tried(inside::masked), [1.0, 1.0, 4.0]);
        let all_read = |mechanism| inside::masked(mechanism).expect("epoll is there").figures;
        assert_eq!(all_read(Some(Mechanism::Epoll)), [("resets_read", 200.0)]);
        assert_eq!(tried(inside::wake), [1.0, 1.0, 10_000.0]);
        let [level, edge, plain] = tried(inside::error);
        assert!(level == 1.0 && edge == 1.0 && plain >= 2.0, "{level}, {edge}, {plain}");
    }

    #[test]
    fn a_loop_on_io_uring_spins_without_calls_and_one_on_epoll_with_one_each() {
        let calls = |driver, shares_date| {
            let tried = inside::spin(driver, shares_date).expect("allowed here");
            let (_, calls) = tried.figures[2];
            assert_eq!(tried.figures[2].0, "calls_per_1000_loops");
            calls
        };
        for driver in [DRIVERS[3], Driver::Completion] {
            if missing_driver(driver).is_none() {
                assert!(calls(driver, false) < 1.0, "{driver}");
            }
        }
        assert!((999.0..=1001.0).contains(&calls(DRIVERS[0], true)));
    }
}
