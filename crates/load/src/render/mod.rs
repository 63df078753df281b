//! What a reader sees of a run: each form a pure function of the [`Outcome`].
//!
//! `pollux load` and the lab call the functions here and write what they return. Nothing in this
//! folder measures, judges, reads a file or asks the host for anything: the same outcome gives
//! the same text.
//!
//! - [`table`]: the summary for a terminal; [`html`]: one file for a browser, without network
//!   and without script;
//! - [`ab`], [`wrk`], [`httperf`]: the summary in the terms of these tools. A field stands for
//!   what the tool means by it, or is `n/a`;
//! - [`prometheus`]: how far a run is, for a scraper;
//! - [`json`], [`csv_seconds`], [`csv_percentiles`], [`hlog`]: for programs.
//!
//! URLs and sentences of an outcome are foreign text: each form escapes them in its way.

mod ab;
mod chart;
mod export;
mod facts;
mod html;
mod httperf;
mod series;
mod table;
mod wrk;

pub use ab::ab;
pub use export::{
    JSON_SCHEMA, JSON_VERSION, StoredError, csv_percentiles, csv_seconds, hlog, json, prometheus,
};
pub use html::html;
pub use httperf::httperf;
pub use pollux_report::number::{count, time};
pub use table::table;
pub use wrk::wrk;

#[cfg(doc)]
use crate::Outcome;
