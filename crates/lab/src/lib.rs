//! The laboratory: experiments, statistics, records and reports.
#![forbid(unsafe_code)]

pub mod arm;
pub mod axis;
pub mod child;
pub mod compare;
pub mod error;
pub mod experiments;
pub mod host;
pub mod job;
pub mod judge;
pub mod measure;
pub mod plan;
mod published;
pub mod record;
pub mod report;
pub mod run;

pub mod store;
pub mod turns;

pub use pollux_stats as stats;
