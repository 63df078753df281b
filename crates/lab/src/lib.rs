//! The laboratory: experiments, statistics, records and reports.
#![forbid(unsafe_code)]

pub mod arm;
pub mod compare;
pub mod doctor;
pub mod error;
pub mod experiment;
pub mod floor;
pub mod herd;
pub mod host;
mod http;
pub mod job;
pub mod judge;
pub mod measure;
pub mod plan;
mod published;
pub mod record;
pub mod report;
pub mod run;

pub mod stats;
pub mod store;
pub mod turns;
