//! Reports: what a reader sees of a run, each a pure function of the [`Record`].
//!
//! `pollux lab run` and `pollux lab report` call the three functions here. Nothing in this folder
//! measures, judges, reads a file or asks the host for anything: the same record gives the same
//! bytes on every machine, so a report can be made again from `result.json` alone.
//!
//! - [`html`]: one file for a browser, without network, complete without JavaScript;
//! - [`table`]: the summary for a terminal;
//! - [`markdown`]: the summary for the page of a CI step.
//!
//! Labels, reasons and commands of a record are foreign text: each form escapes them in its way.

mod chart;
mod html;
mod markdown;
mod section;
mod terminal;
mod view;
mod words;

use pollux_report::number;

#[cfg(doc)]
use crate::record::Record;

pub use html::html;
pub use markdown::markdown;
pub use terminal::table;
