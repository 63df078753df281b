//! A plan as plain data, so that it can be sent to another host: what it may hold, its parts, and what cannot be sent.
//!
//! What a plan takes from the host that it was made on (files, CPUs, source addresses, processes, unix sockets, private
//! keys) does not go along. Host names were looked up where the plan was made: an agent connects to addresses, so that what
//! it checks is what it connects to.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pollux_engine::{Driver, ListenAddress};
use pollux_tls::Trust;
use serde::{Deserialize, Serialize};

use crate::worker::share;
use crate::{
    Arrival, CONNECTION_WINDOW, Crowd, End, Expect, LoadError, LoadPart, Pace, Plan, Protocol,
    STREAM_WINDOW, STREAMS_MAX, Stage, Target,
};

/// The longest time of an order, for anything: a week, as flags have it.
const TIME_NS_MAX: u64 = 7 * 24 * 3600 * 1_000_000_000;
/// The longest run of several agents: each has a result with every second of it, some kilobytes each, and the controller
/// reads it whole.
const RUN_TIME_MAX: Duration = Duration::from_secs(12 * 3600);
/// Targets, stages, percentiles and addresses of an order at most.
const TARGETS_MAX: usize = 1024;
const STAGES_MAX: usize = 10_000;
const QUANTILES_MAX: usize = 64;
const ADDRESSES_MAX: usize = 64;
/// Connections of a kind at most: more than hosts have descriptors for.
const CONNECTIONS_MAX: u32 = 100_000_000;

/// A plan for an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadOrder {
    targets: Vec<OrderedTarget>,
    /// The event mechanism; the best that the agent's host has without one.
    driver: Option<String>,
    threads: u32,
    connections: u32,
    dead: u32,
    silent: u32,
    slow: u32,
    drip_ns: u64,
    /// None of a closed loop.
    schedule: Option<OrderedSchedule>,
    requests: Option<u64>,
    after_ns: Option<u64>,
    warm_up_ns: u64,
    requests_per_connection: Option<NonZeroU32>,
    pipeline: u32,
    http: String,
    streams: u32,
    stream_window: u32,
    connection_window: u32,
    think_ns: u64,
    connect_timeout_ns: u64,
    request_timeout_ns: u64,
    grace_ns: u64,
    expect_status: Option<u16>,
    expect_bytes: Option<u64>,
    quantiles: Vec<f64>,
    /// Whether any certificate is accepted; otherwise those of the public authorities.
    is_insecure: bool,
    resumes: bool,
    keeps_cookies: bool,
    seed: u64,
    /// Which part of the load this is, and of how many.
    part: (u32, u32),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderedTarget {
    url: String,
    address: SocketAddr,
    further: Vec<SocketAddr>,
    tls_name: Option<String>,
    host: String,
    path: String,
    method: String,
    fields: Vec<(String, String)>,
    /// In base64.
    body: String,
    weight: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderedSchedule {
    is_poisson: bool,
    stages: Vec<OrderedStage>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderedStage {
    from_per_s: f64,
    to_per_s: f64,
    lasts_ns: Option<u64>,
}

impl LoadOrder {
    /// The whole of `plan`; its mechanism is left to the agent where `is_driver_free`.
    ///
    /// # Errors
    /// [`LoadError::Plan`] names the flag that asks for what is of this host alone.
    pub fn of(plan: &Plan, is_driver_free: bool) -> Result<Self, LoadError> {
        sendable(plan)?;
        let schedule = match &plan.pace {
            Pace::Closed => None,
            Pace::Open { arrival, stages } => Some(OrderedSchedule {
                is_poisson: *arrival == Arrival::Poisson,
                stages: stages.iter().map(OrderedStage::of).collect(),
            }),
        };
        Ok(Self {
            targets: plan.targets.iter().map(OrderedTarget::of).collect::<Result<_, _>>()?,
            driver: (!is_driver_free).then(|| plan.driver.name().to_owned()),
            threads: plan.threads,
            connections: plan.connections,
            dead: plan.crowd.dead,
            silent: plan.crowd.silent,
            slow: plan.crowd.slow,
            drip_ns: ns(plan.crowd.drip),
            schedule,
            requests: plan.end.requests,
            after_ns: plan.end.after.map(ns),
            warm_up_ns: ns(plan.warm_up),
            requests_per_connection: plan.requests_per_connection,
            pipeline: plan.pipeline,
            http: plan.http.name().to_owned(),
            streams: plan.streams,
            stream_window: plan.stream_window,
            connection_window: plan.connection_window,
            think_ns: ns(plan.think_time),
            connect_timeout_ns: ns(plan.connect_timeout),
            request_timeout_ns: ns(plan.request_timeout),
            grace_ns: ns(plan.grace),
            expect_status: plan.expect.status,
            expect_bytes: plan.expect.body_bytes,
            quantiles: plan.quantiles.clone(),
            is_insecure: plan.trust == Trust::AnyCertificate,
            resumes: plan.resumes,
            keeps_cookies: plan.keeps_cookies,
            seed: plan.seed,
            part: (plan.part.number, plan.part.of),
        })
    }

    /// Time at the start whose requests are not counted.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        Duration::from_nanos(self.warm_up_ns)
    }

    /// The parts of a whole order for so many agents: connections and requests in whole numbers, the remainder to the
    /// first; of an open loop each has the whole schedule, and sends its requests of it.
    ///
    /// # Errors
    /// [`LoadError::Plan`]: there is less of something than there are agents.
    pub fn parts(&self, agents: u32) -> Result<Vec<Self>, LoadError> {
        let refused = |what, found: u64, each: &str| {
            let why = format!("{found} for {agents} agents; expected at least {each}");
            Err(LoadError::Plan { what, why })
        };
        let is_crowd_only = self.connections == 0;
        let least = u64::from(agents) * u64::from(self.threads);
        if !is_crowd_only && u64::from(self.connections) < least {
            let each = format!("one for each thread of each agent, {least}");
            return refused("--connections", self.connections.into(), &each);
        }
        if let Some(requests) = self.requests.filter(|requests| *requests < u64::from(agents)) {
            return refused("--requests", requests, "one for each");
        }
        let lasts = self.warm_up() + Duration::from_nanos(self.after_ns.unwrap_or(0));
        if lasts > RUN_TIME_MAX {
            let hours = RUN_TIME_MAX.as_secs() / 3600;
            let why = format!(
                "{lasts:?} with agents, whose results have every second; expected {hours} hours at most, warm-up included"
            );
            return Err(LoadError::Plan { what: "--duration", why });
        }
        let part = |number: u32| {
            let of = |all: u32| share(all.into(), number, agents) as u32;
            Self {
                connections: of(self.connections),
                dead: of(self.dead),
                silent: of(self.silent),
                slow: of(self.slow),
                requests: self.requests.map(|requests| share(requests, number, agents)),
                part: (number, agents),
                ..self.clone()
            }
        };
        Ok((0..agents).map(part).collect())
    }

    /// The plan that was ordered, with the mechanism that it names, if it does. What an agent's own bounds and
    /// [`Load::prepare`](crate::Load::prepare) have to say against it is theirs to check.
    ///
    /// # Errors
    /// [`LoadError::Plan`]: a value is beyond what any order may ask for.
    pub fn plan(&self) -> Result<(Plan, Option<Driver>), LoadError> {
        let wrong = |what, why: String| Err(LoadError::Plan { what, why });
        for (what, found, most) in [
            ("URL", self.targets.len(), TARGETS_MAX),
            ("--percentiles", self.quantiles.len(), QUANTILES_MAX),
            ("--rate", self.schedule.as_ref().map_or(0, |all| all.stages.len()), STAGES_MAX),
        ] {
            if found > most {
                return wrong(what, format!("{found} of them; expected {most} at most"));
            }
        }
        for (what, found) in [
            ("--connections", self.connections),
            ("--dead", self.dead),
            ("--silent", self.silent),
            ("--slow", self.slow),
        ] {
            if found > CONNECTIONS_MAX {
                return wrong(what, format!("{found}; expected {CONNECTIONS_MAX} at most"));
            }
        }
        if !(1..=STREAMS_MAX).contains(&self.streams) {
            return wrong("--streams", format!("{}; expected 1 to {STREAMS_MAX}", self.streams));
        }
        if !STREAM_WINDOW.contains(&self.stream_window) {
            return wrong("--window", format!("{} bytes", self.stream_window));
        }
        if !CONNECTION_WINDOW.contains(&self.connection_window) {
            return wrong("--connection-window", format!("{} bytes", self.connection_window));
        }
        if let Some(quantile) = self.quantiles.iter().find(|at| !(0.0..=1.0).contains(*at)) {
            return wrong("--percentiles", format!("{quantile}; expected 0 to 1"));
        }
        let versions = [Protocol::Http1, Protocol::Http2, Protocol::Auto];
        let Some(http) = versions.into_iter().find(|version| version.name() == self.http) else {
            return wrong("--http", format!("\"{}\" is unknown", self.http.escape_debug()));
        };
        let driver = match self.driver.as_deref().map(str::parse::<Driver>) {
            None => None,
            Some(Ok(driver)) => Some(driver),
            Some(Err(error)) => return wrong("--poller", error.to_string()),
        };
        let targets = self.targets.iter().map(OrderedTarget::target).collect::<Result<_, _>>()?;
        let pace = match &self.schedule {
            None => Pace::Closed,
            Some(OrderedSchedule { is_poisson, stages }) => Pace::Open {
                arrival: if *is_poisson { Arrival::Poisson } else { Arrival::Constant },
                stages: stages.iter().map(OrderedStage::stage).collect::<Result<_, _>>()?,
            },
        };
        let plan = Plan {
            threads: self.threads,
            connections: self.connections,
            pace,
            end: End { requests: self.requests, after: self.after_ns.map(time).transpose()? },
            warm_up: time(self.warm_up_ns)?,
            requests_per_connection: self.requests_per_connection,
            pipeline: self.pipeline,
            http,
            streams: self.streams,
            stream_window: self.stream_window,
            connection_window: self.connection_window,
            think_time: time(self.think_ns)?,
            connect_timeout: time(self.connect_timeout_ns)?,
            request_timeout: time(self.request_timeout_ns)?,
            grace: time(self.grace_ns)?,
            expect: Expect { status: self.expect_status, body_bytes: self.expect_bytes },
            quantiles: self.quantiles.clone(),
            crowd: Crowd {
                dead: self.dead,
                silent: self.silent,
                slow: self.slow,
                drip: time(self.drip_ns)?,
            },
            trust: if self.is_insecure { Trust::AnyCertificate } else { Trust::Public },
            resumes: self.resumes,
            keeps_cookies: self.keeps_cookies,
            seed: self.seed,
            part: LoadPart { number: self.part.0, of: self.part.1 },
            ..Plan::new(targets, driver.unwrap_or(Driver::PREFERRED[0]))
        };
        Ok((plan, driver))
    }
}

impl OrderedTarget {
    fn of(target: &Target) -> Result<Self, LoadError> {
        let tcp = |address: &ListenAddress| match address {
            ListenAddress::Tcp(address) => Ok(*address),
            ListenAddress::Unix(_) => {
                let why = "a socket of this host, where no agent is; expected an address";
                Err(LoadError::Plan { what: "--unix", why: why.to_owned() })
            }
        };
        Ok(Self {
            url: target.url.clone(),
            address: tcp(&target.address)?,
            further: target.further.iter().map(tcp).collect::<Result<_, _>>()?,
            tls_name: target.tls_name.clone(),
            host: target.host.clone(),
            path: target.path.clone(),
            method: target.method.clone(),
            fields: target.fields.clone(),
            body: STANDARD.encode(&target.body),
            weight: target.weight,
        })
    }

    fn target(&self) -> Result<Target, LoadError> {
        if self.further.len() > ADDRESSES_MAX {
            let why = format!("{} addresses; expected {ADDRESSES_MAX} at most", self.further.len());
            return Err(LoadError::Plan { what: "URL", why });
        }
        let body = STANDARD.decode(&self.body).map_err(|error| LoadError::Plan {
            what: "--body",
            why: format!("it is not base64: {error}"),
        })?;
        Ok(Target {
            url: self.url.clone(),
            address: self.address.into(),
            further: self.further.iter().map(|address| (*address).into()).collect(),
            in_vain: Vec::new(),
            tls_name: self.tls_name.clone(),
            host: self.host.clone(),
            path: self.path.clone(),
            method: self.method.clone(),
            fields: self.fields.clone(),
            body,
            weight: self.weight,
        })
    }
}

impl OrderedStage {
    fn of(stage: &Stage) -> Self {
        let Stage { from_per_s, to_per_s, lasts } = *stage;
        Self { from_per_s, to_per_s, lasts_ns: lasts.map(ns) }
    }

    fn stage(&self) -> Result<Stage, LoadError> {
        let Self { from_per_s, to_per_s, lasts_ns } = *self;
        Ok(Stage { from_per_s, to_per_s, lasts: lasts_ns.map(time).transpose()? })
    }
}

/// Refuses what is of this host alone.
fn sendable(plan: &Plan) -> Result<(), LoadError> {
    let is_own_trust = matches!(plan.trust, Trust::File(_) | Trust::System);
    let of_this_host = [
        ("--requests-from", plan.list.is_some(), "agents take URLs one by one, without a pattern"),
        ("--cpus", plan.cpus.is_some(), "each agent has CPUs of its own"),
        ("--source", !plan.sources.is_empty(), "each agent has addresses of its own"),
        ("--server-pid", plan.server_pid.is_some(), "agents do not see processes of this host"),
        (
            "--cacert",
            is_own_trust,
            "agents read no file; expected a public certificate, or --insecure",
        ),
        ("--cert", plan.identity.is_some(), "a private key is not sent to other hosts"),
    ];
    match of_this_host.into_iter().find(|(_, is_asked, _)| *is_asked) {
        None => Ok(()),
        Some((what, _, why)) => Err(LoadError::Plan { what, why: format!("with --agents: {why}") }),
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(ns: u64) -> Result<Duration, LoadError> {
    if ns <= TIME_NS_MAX {
        return Ok(Duration::from_nanos(ns));
    }
    let why = format!("{:?}; expected a week at most", Duration::from_nanos(ns));
    Err(LoadError::Plan { what: "a time", why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let target = Target::parse("http://127.0.0.1:8080/a?b", None).expect("a URL");
        let second = Target {
            body: b"x\0y".to_vec(),
            method: "POST".to_owned(),
            fields: vec![("A".to_owned(), "b".to_owned())],
            weight: 3,
            ..target.clone()
        };
        let stage = |lasts| Stage { from_per_s: 10.0, to_per_s: 20.5, lasts };
        Plan {
            connections: 8,
            threads: 2,
            pace: Pace::Open {
                arrival: Arrival::Poisson,
                stages: vec![stage(Some(Duration::from_millis(1_500))), stage(None)],
            },
            end: End { requests: Some(11), after: Some(Duration::from_secs(9)) },
            crowd: Crowd { dead: 5, ..Crowd::default() },
            quantiles: vec![0.5, 0.999],
            seed: 7,
            ..Plan::new(vec![target, second], Driver::PREFERRED[0])
        }
    }

    #[test]
    fn a_plan_comes_back_as_it_was() {
        let order = LoadOrder::of(&plan(), true).expect("it can be sent");
        let text = serde_json::to_string(&order).expect("plain data");
        let read: LoadOrder = serde_json::from_str(&text).expect("what was written");
        let (read, driver) = read.plan().expect("a plan");
        assert_eq!(driver, None);
        // All that a plan holds is shown.
        assert_eq!(format!("{read:?}"), format!("{:?}", plan()));
        let named = LoadOrder::of(&plan(), false).expect("it can be sent").plan();
        assert_eq!(named.expect("a plan").1, Some(Driver::PREFERRED[0]));
    }

    #[test]
    fn parts_are_the_whole() {
        let whole = LoadOrder::of(&plan(), true).expect("it can be sent");
        let parts = whole.parts(3).expect("enough of everything");
        let of = |what: fn(&LoadOrder) -> u64| parts.iter().map(what).collect::<Vec<_>>();
        assert_eq!(of(|part| part.connections.into()), [3, 3, 2]);
        assert_eq!(of(|part| part.requests.unwrap_or(0)), [4, 4, 3]);
        assert_eq!(of(|part| part.dead.into()), [2, 2, 1]);
        assert_eq!(of(|part| part.part.0.into()), [0, 1, 2]);
        let error = whole.parts(5).expect_err("too few connections").to_string();
        assert!(error.contains("8 for 5 agents") && error.contains("10"), "{error}");
        let long = LoadOrder { after_ns: Some(ns(RUN_TIME_MAX)), warm_up_ns: 1, ..whole.clone() };
        let error = long.parts(3).expect_err("more than half a day").to_string();
        assert!(error.contains("--duration") && error.contains("12 hours at most"), "{error}");
        let few = LoadOrder { connections: 99, ..whole };
        let error = few.parts(12).expect_err("too few requests").to_string();
        assert!(error.contains("--requests") && error.contains("11 for 12"), "{error}");
    }

    #[test]
    fn arrivals_of_all_parts_are_those_of_one_generator() {
        let stages = [Stage { from_per_s: 100.0, to_per_s: 300.0, lasts: None }];
        let due = |threads: u32, parts: u32| {
            let mut all = Vec::new();
            for number in 0..parts {
                let part = LoadPart { number, of: parts };
                let plan = Plan { threads, part, ..plan() };
                for thread in 0..threads {
                    let (thread, threads) = plan.thread_of_all(thread);
                    let mut arrivals =
                        crate::Arrivals::new(&stages, Arrival::Constant, thread, threads, 1);
                    all.extend(std::iter::from_fn(|| arrivals.take(2_000_000_000)));
                }
            }
            all.sort_unstable();
            all
        };
        assert_eq!(due(2, 3), due(6, 1));
        assert!(due(2, 3).len() > 199);
    }

    #[test]
    fn what_is_of_this_host_alone_is_refused_by_its_flag() {
        let unix = ListenAddress::Unix("/run/s".into());
        let mut socket = plan();
        socket.targets[0].address = unix;
        for (plan, flag) in [
            (Plan { server_pid: Some(1), ..plan() }, "--server-pid"),
            (Plan { sources: vec!["127.0.0.1".parse().expect("one")], ..plan() }, "--source"),
            (Plan { trust: Trust::File("/x".into()), ..plan() }, "--cacert"),
            (Plan { cpus: Some("0".parse().expect("a CPU")), ..plan() }, "--cpus"),
            (socket, "--unix"),
        ] {
            let error = LoadOrder::of(&plan, true).expect_err(flag).to_string();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn values_beyond_every_bound_are_refused() {
        let order = LoadOrder::of(&plan(), true).expect("it can be sent");
        for (wrong, what) in [
            (LoadOrder { warm_up_ns: u64::MAX, ..order.clone() }, "week"),
            (LoadOrder { connections: u32::MAX, ..order.clone() }, "--connections"),
            (LoadOrder { slow: u32::MAX, ..order.clone() }, "--slow"),
            (LoadOrder { streams: 0, ..order.clone() }, "--streams"),
            (LoadOrder { http: "3".to_owned(), ..order.clone() }, "--http"),
            (LoadOrder { driver: Some("kqueue".to_owned()), ..order.clone() }, "--poller"),
            (LoadOrder { quantiles: vec![2.0], ..order.clone() }, "--percentiles"),
            (LoadOrder { quantiles: vec![0.5; 65], ..order.clone() }, "65 of them"),
        ] {
            let error = wrong.plan().expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
