//! HTTP load generation as sessions of the engine.
//!
//! A [`Plan`] says what to do, a run carries it out on any driver, and an [`Outcome`] holds what
//! was found. Latency counts from when a request was to begin, so a server that stands still is
//! charged for every request that would have come meanwhile.
//!
//! ```text
//!  Plan ──► check ──► Load::start ──► one thread for each loop ──────────────► Outcome ──► render/
//!                                     │                             gather ──►    │        table, JSON,
//!                                     │  worker: EventLoop<ClientSession>  ▲   findings    CSV, hlog, HTML,
//!                                     │    between turns: open again, wake │               ab, wrk, httperf
//!                                     │    for what is due, end            │
//!                                     │      │ sessions: active, crowd,    │ once a second a whole
//!                                     │      │ either of them through TLS  │ Interval, and an empty
//!                                     │      ▼                             │ one comes back
//!                                     │    Shared: supply, idle queue, requests, tally
//!                                     └── Control: ready, begin, stop, done (a few atomics)
//! ```
//!
//! | module | one job |
//! |---|---|
//! | `plan`, `error` | what is asked for, as plain data, and its check; every refusal names its flag |
//! | `protocol` | which HTTP is spoken, and what a plan may not have beside HTTP/2 |
//! | `resolving` | which address of a name is asked |
//! | `run`, `control` | threads, and the few words that they agree on |
//! | `worker` | one thread between turns of its loop: crowd, connects |
//! | `turns` | a load in turns, for the lab; two servers measured beside each other |
//! | `schedule` | when requests begin: `--rate`, a closed form, and how many are left |
//! | `session`, `active`, `crowd` | what one connection does, through TLS or not; `active/streams` by HTTP/2 |
//! | `shared` | what the sessions of a thread share, with the queue of idle connections; sources |
//! | `requests`, `answer` | bytes out, prepared once and shared by all threads; answers in, by the parser of `pollux-http` |
//! | `answer_start`, `kept_answer` | the start of an answer; statuses, and the start of the first answer that was not right |
//! | `cookies` | the cookies of one connection |
//! | `outcome` | what was found, as plain data |
//! | `tally`, `frames`, `distribution`, `gather` | counting without a lock, added up by a thread of its own; why connections failed |
//! | `timeline` | when requests were answered and when some waited, on a clock of 20 ms: standstills |
//! | `findings` | what a reader has to know before believing the figures |
//! | `objective` | what figures have to keep to (`--slo`) |
//! | `campaign` | a load from several hosts: orders, messages, clocks, the sum |
//! | `capacity` | the search for the highest rate that keeps to it, and whether a backlog grows |
//! | `compare`, `merge` | results side by side, results added up |
//! | `render` | pure functions of an `Outcome` |
//! | `scraped` | a page of metrics that is offered while a load runs |
//!
//! Decisions that shaped it:
//!
//! - **Latency counts from the intended start.** In an open loop the schedule says when the k-th
//!   request begins, in closed form; the cursor stands where it was while the server stands still, and
//!   goes through all that came due meanwhile. Nothing is corrected afterwards, and what was never sent
//!   is an error, not a missing value.
//! - **The request's own start decides what it counts for**, so no answer to the warm-up is in a figure,
//!   but for the longest latency: that is of every request that waited in the measured time, answered or not.
//! - **A standstill is not counted in whole seconds.** It is measured between answers, over all threads,
//!   while requests wait; time in which the generator did not run is not in it (`docs/load-results.md`).
//! - **A turn's clock says when answers came**, so what a thread does with other connections first is
//!   not the server's latency; it is lag, which is shown apart.
//! - **Threads share nothing in the hot path** but the number of requests that are left, and take that
//!   in portions. Histograms are handed over whole, never merged or cleared by the thread that sends.
//! - **Sessions never open connections.** They leave that to the worker, which also wakes an idle one
//!   for each request that is due; the last 30 µs before it are spent awake, and shown as spinning.
//! - **A member of the crowd is small**: what reads an answer is on the heap only while one is under
//!   way. `crates/cli/tests/load/figures.rs` holds it to its bytes.
//! - **The figures of other programs mean what those programs mean**, else they are `n/a`.

#![forbid(unsafe_code)]

mod active;
mod answer;
mod answer_start;
pub mod campaign;
mod capacity;
pub mod compare;
mod control;
mod cookies;
mod crowd;
mod distribution;
mod error;
mod findings;
mod frames;
mod gather;
mod kept_answer;
pub mod merge;
mod objective;
mod outcome;
mod plan;
mod protocol;
pub mod render;
mod requests;
mod resolving;
mod run;
#[cfg(test)]
mod sample;
mod schedule;
mod scraped;
mod session;
mod shared;
mod tally;
mod timeline;
mod turns;
mod worker;

pub use answer::{Answered, Client, RequestError, ask, ask_by};
pub use answer_start::AnswerStart;
pub use capacity::{CapacitySearch, backlog_grew};
pub use control::Phase;
pub use distribution::{Distribution, QUANTILES, SHOWN};
pub use error::LoadError;
pub use findings::findings;
pub use objective::{Objective, broken_by, parse_percent, percentile};
pub use outcome::{
    AgentOutcome, CrowdOutcome, Errors, Finding, FindingKind, Generator, Http2, InTime, Judged,
    Outcome, Second, SentToAnswer, ServerUse, Setting, TargetOutcome, Totals,
};
pub use plan::{
    Arrival, Crowd, End, Expect, LoadPart, PARTS_MAX, PIPELINE_MAX, Pace, Plan, Stage, THREADS_MAX,
    Target, WINDOW_BYTES,
};
pub use pollux_tls::{Keys, Trust};
pub use protocol::{CONNECTION_WINDOW, Protocol, STREAM_WINDOW, STREAMS_MAX};
pub use render::StoredError;
pub use requests::{RequestList, RequestOrder};
pub use run::{Load, Progress, Running};
pub use schedule::{Arrivals, RateError, Schedule, parse_rate};
pub use scraped::{ScrapeListener, ScrapedPage};
pub use timeline::{Silence, Stall};
pub use turns::{ComparedServer, Turned, Turns, beside};
