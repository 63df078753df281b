//! What a run does: everything that the flags of `pollux load` and the lab can ask for.
//!
//! A plan is plain data. [`crate::run`] carries it out; nothing here opens a socket.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{CpuList, Driver};
use pollux_tls::{Keys, Trust};

use crate::{Objective, Order, RequestList, Target};

/// One run of the generator.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is asked for; each request takes one of them by weight. At least one, all at the
    /// same address.
    pub targets: Vec<Target>,
    /// Requests that active connections send instead of those of the one target, which says where
    /// to; none of it is counted apart.
    pub list: Option<(Arc<RequestList>, Order)>,
    /// The loop that the generator itself runs on.
    pub driver: Driver,
    /// Loops, each on a thread of its own.
    pub threads: u32,
    /// CPUs that the threads are pinned to, in turn; unpinned when there is none.
    pub cpus: Option<CpuList>,
    /// Active connections over all threads; at least one for each thread, or none beside a crowd.
    pub connections: u32,
    /// When requests begin.
    pub pace: Pace,
    /// When the run ends; at least one of both is set.
    pub end: End,
    /// Time at the start whose requests are sent but not counted.
    pub warm_up: Duration,
    /// After so many requests a connection is closed and opened anew.
    pub requests_per_connection: Option<NonZeroU32>,
    /// Requests that may be under way on one connection at the same time; 1 is no pipelining.
    pub pipeline: u32,
    /// Time between a response and the next request of a connection (closed loop only).
    pub think_time: Duration,
    /// A connect that takes longer has failed.
    pub connect_timeout: Duration,
    /// A response that is not complete so long after its request was sent is a failure, and
    /// its connection is closed.
    pub request_timeout: Duration,
    /// How long answers are waited for after the last request has begun, when a run ends by its
    /// time: what is out then counts as [`Outcome::unanswered`](crate::Outcome::unanswered).
    pub grace: Duration,
    /// Which answers are right.
    pub expect: Expect,
    /// What the figures have to keep to, if anything.
    pub objectives: Vec<Objective>,
    /// Quantiles of the times that the result shows, 0 to 1 and rising; those of
    /// [`SHOWN`](crate::SHOWN) when there is none.
    pub quantiles: Vec<f64>,
    /// Addresses that connections come from, in turn; the kernel chooses when there is none.
    pub sources: Vec<IpAddr>,
    /// Connections beside the active ones.
    pub crowd: Crowd,
    /// Which servers are believed to be who they say, for targets with `https`.
    pub trust: Trust,
    /// Whether connections resume TLS sessions of earlier ones; without, each makes a full handshake.
    pub resumes: bool,
    /// Whether each active connection keeps the cookies that its server sets, and sends them.
    pub keeps_cookies: bool,
    /// The certificate that the generator shows where a server asks for one, for targets with `https`.
    pub identity: Option<Keys>,
    /// A server on this machine whose CPU time is told, with that of all that it starts.
    pub server_pid: Option<u32>,
    /// Seed of everything random: Poisson arrivals, the choice among targets.
    pub seed: u64,
}

impl Plan {
    /// Whether a connection carries one request only.
    pub(crate) fn closes_after_one(&self) -> bool {
        self.requests_per_connection.is_some_and(|limit| limit.get() == 1)
    }
}

/// When requests begin.
#[derive(Clone, PartialEq, Debug)]
pub enum Pace {
    /// Each connection asks again as soon as it was answered: the server sets the rate.
    Closed,
    /// Requests begin by a schedule, whether or not earlier ones were answered.
    Open {
        /// The distances between them.
        arrival: Arrival,
        /// One after the other; the last one's rate holds until the end.
        stages: Vec<Stage>,
    },
}

/// How the distances between requests are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// All alike.
    Constant,
    /// Exponentially, as independent users would come.
    Poisson,
}

/// A part of an open loop's schedule. Its rate goes from one value to the other in a straight
/// line; alike, they are a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stage {
    /// Requests per second over all threads at its start.
    pub from_per_s: f64,
    /// And at its end.
    pub to_per_s: f64,
    /// How long it lasts; `None`: until the run ends (the last one only).
    pub lasts: Option<Duration>,
}

/// When a run ends. What is under way then is waited for: at most [`Plan::grace`] after a time
/// (a second, while the server says nothing at all any more), at most the request's time limit
/// after a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// After so many requests, without those of the warm-up.
    pub requests: Option<u64>,
    /// After this time, without the warm-up.
    pub after: Option<Duration>,
}

/// What an answer must be to count as right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expect {
    /// Its status; `None`: any of 200 to 399, of which redirects are counted apart.
    pub status: Option<u16>,
    /// The length of its body in bytes; `None`: any.
    pub body_bytes: Option<u64>,
}

/// Connections that are open beside the active ones. They are set up before the first request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// Ask once, read the answer, then never send again.
    pub dead: u32,
    /// Never send anything.
    pub silent: u32,
    /// Send a request byte by byte, [`Crowd::drip`] apart, for ever.
    pub slow: u32,
    /// Time between two bytes of a slow connection.
    pub drip: Duration,
}

impl Crowd {
    /// All of them.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.dead + self.silent + self.slow
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self { dead: 0, silent: 0, slow: 0, drip: Duration::from_secs(1) }
    }
}
