//! HTTP load generation as sessions of the engine.
//!
//! A [`Plan`] says what to do, a run carries it out on any driver, and an [`Outcome`] holds what
//! was found. Latency counts from when a request was to begin, so a server that stands still is
//! charged for everybody who would have come meanwhile.

#![forbid(unsafe_code)]

mod active;
mod answer;
mod ask;
mod capacity;
mod cause;
mod check;
pub mod compare;
mod control;
mod cookies;
mod course;
mod crowd;
mod distribution;
mod error;
mod gather;
mod list;
pub mod merge;
mod objective;
mod opener;
mod outcome;
mod own_use;
mod plan;
mod rate;
pub mod render;
mod requests;
mod run;
mod schedule;
mod seats;
mod server_watch;
mod session;
mod shared;
mod silence;
mod stored;
mod supply;
mod tally;
mod target;
mod tls;
mod turns;
mod watch;
mod worker;

pub use ask::{Answered, AskError, ask};
pub use capacity::CapacitySearch;
pub use check::{PIPELINE_MAX, THREADS_MAX};
pub use control::Phase;
pub use course::Standstill;
pub use distribution::{Distribution, LONGEST_NS, QUANTILES, SHOWN};
pub use error::LoadError;
pub use list::{LIST_BYTES_MAX, LIST_REQUESTS_MAX, Order, RequestList};
pub use objective::{Objective, broken_by, parse_percent, percentile};
pub use outcome::{
    CrowdOutcome, Errors, Finding, FindingKind, Generator, Judged, Outcome, Second, ServerUse,
    Setting, TargetOutcome, Totals,
};
pub use plan::{Arrival, Crowd, End, Expect, Pace, Plan, Stage};
pub use pollux_tls::{Keys, Trust};
pub use rate::{RateError, parse_rate, rate_in_words};
pub use run::{Load, Progress, Running};
pub use schedule::{Arrivals, Schedule};
pub use stored::StoredError;
pub use target::Target;
pub use turns::{Turned, Turns};
pub use watch::findings;
