//! The laboratory: experiments, statistics, records and reports.
#![forbid(unsafe_code)]

pub mod host;
pub mod record;
pub mod report;
