//! HTTP load generation as sessions of the engine.
//!
//! A [`Plan`] says what to do, a run carries it out on any driver, and an [`Outcome`] holds what
//! was found. Latency counts from when a request was to begin, so a server that stands still is
//! charged for everybody who would have come meanwhile.
//!
//! ```text
//!  Plan ──► check ──► Load::start ──► one thread for each loop ──────────────► Outcome ──► render/
//!                                     │                             gather ──►    │        table, JSON,
//!                                     │  worker: EventLoop<ClientSession>  ▲   findings    CSV, hlog, HTML,
//!                                     │    between turns: open again, wake │   (watch)     ab, wrk, httperf
//!                                     │    for what is due, end            │
//!                                     │      │ sessions: active, crowd,    │ once a second a whole
//!                                     │      │ either of them through TLS  │ Interval, and an empty
//!                                     │      ▼                             │ one comes back
//!                                     │    Shared: supply, seats, requests, tally
//!                                     └── Control: ready, begin, stop, done (a few atomics)
//! ```
//!
//! | module | one job |
//! |---|---|
//! | `plan`, `target`, `rate`, `check` | what is asked for, as plain data; every refusal names its flag |
//! | `run`, `control` | threads, and the few words that they agree on |
//! | `worker`, `opener`, `seats` | one thread between turns: crowd, connects, sources, who is idle |
//! | `schedule`, `supply` | when requests begin (a closed form), and how many are left |
//! | `session`, `active`, `crowd`, `tls` | what one connection does |
//! | `list`, `requests`, `answer` | bytes out, prepared once and shared by all threads; answers in, by the parser of `pollux-http` |
//! | `tally`, `distribution`, `gather` | counting without a lock, added up by a thread of its own |
//! | `course` | when something was answered and when somebody waited, on a clock of 20 ms: standstills |
//! | `cause` | why a connection did not come about, as a fault and in words |
//! | `watch`, `silence`, `own_use` | what a reader has to know before believing the figures |
//! | `objective` | what figures have to keep to (`--slo`), read and judged |
//! | `capacity` | the search for the highest rate that holds an objective; pure, trials are the caller's |
//! | `render` | pure functions of an `Outcome` |
//!
//! Decisions that shaped it:
//!
//! - **Latency counts from the intended start.** In an open loop the schedule says when the k-th
//!   request begins, in closed form; the cursor stands where it was while the server stands still, and
//!   goes through all that came due meanwhile. Nothing is corrected afterwards, and what was never sent
//!   is an error, not a missing value.
//! - **The request's own start decides what it counts for**, so no answer to the warm-up is in a figure,
//!   but for the longest latency: that is of everybody who waited in the measured time, answered or not.
//! - **A standstill is no matter of whole seconds.** It is measured between answers, over all threads,
//!   while somebody waits; time in which the generator did not run is not in it (`docs/load-results.md`).
//! - **A turn's clock says when answers came**, so what a thread does with other connections first is
//!   not the server's latency; it is lag, which is shown apart.
//! - **Threads share nothing in the hot path** but the number of requests that are left, and take that
//!   in portions. Histograms are handed over whole, never merged or cleared by who sends.
//! - **Sessions never open connections.** They leave that to the worker, which also wakes an idle one
//!   for each request that is due; the last 30 µs before it are spent awake, and told as spinning.
//! - **A member of the crowd is small**: what reads an answer is on the heap only while one is under
//!   way. `crates/cli/tests/load/figures.rs` holds it to its bytes.
//! - **The figures of other programs mean what those programs mean**, else they are `n/a`.

#![forbid(unsafe_code)]

mod active;
mod answer;
mod ask;
mod beside;
mod capacity;
mod cause;
mod check;
mod chooser;
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
pub use beside::{Side, beside};
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
