//! The laboratory: experiments, statistics, records and reports.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod host;
pub mod job;
pub mod record;
