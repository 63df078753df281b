//! HTTP load generation as sessions of the engine.
//!
//! A [`Plan`] says what to do, a run carries it out on any driver, and an [`Outcome`] holds what
//! was found. Latency counts from when a request was to begin, so a server that stands still is
//! charged for everybody who would have come meanwhile.

#![forbid(unsafe_code)]

mod distribution;
mod error;
mod outcome;
mod plan;
pub mod render;
mod target;

pub use distribution::{Distribution, LONGEST_NS, QUANTILES};
pub use error::LoadError;
pub use outcome::{
    CrowdOutcome, Errors, Finding, FindingKind, Generator, Outcome, Second, Setting, TargetOutcome,
    Totals,
};
pub use plan::{Arrival, Crowd, End, Expect, Pace, Plan, Stage};
pub use target::Target;
