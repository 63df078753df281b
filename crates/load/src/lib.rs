//! HTTP load generation as sessions of the engine.
//!
//! A [`Plan`] says what to do, a run carries it out on any driver, and an [`Outcome`] holds what
//! was found. Latency counts from when a request was to begin, so a server that stands still is
//! charged for everybody who would have come meanwhile.

#![forbid(unsafe_code)]

mod capacity;
mod distribution;
mod error;
mod outcome;
mod plan;
mod rate;
mod schedule;
mod target;
mod watch;

pub use capacity::{CapacitySearch, Objective};
pub use distribution::{Distribution, LONGEST_NS, QUANTILES};
pub use error::LoadError;
pub use outcome::{
    CrowdOutcome, Errors, Finding, FindingKind, Generator, Outcome, Second, Setting, TargetOutcome,
    Totals,
};
pub use plan::{Arrival, Crowd, End, Expect, Pace, Plan, Stage};
pub use rate::{RateError, parse_rate, rate_in_words};
pub use schedule::{Arrivals, Schedule};
pub use target::Target;
pub use watch::findings;
