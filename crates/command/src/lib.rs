//! What `pollux` and `pollux-pool` share as commands: how results and errors are printed, what stands
//! below the flags in `--help` and in manual pages, how a wrong command line is answered.
//!
//! | part | one job |
//! |---|---|
//! | `output` | results to standard output, the rest to standard error, failures with their exit code |
//! | `help` | sections of a help text, and the same as a manual page |
//! | `mistakes` | one line for a wrong command line |
//! | `pages` | completion scripts and manual pages, written |
//! | `limits` | the limit of descriptors of this process |
//!
//! Nothing here knows a command; it is given one as a `clap::Command` and a table of sections.
#![forbid(unsafe_code)]

pub mod help;
pub mod limits;
pub mod mistakes;
pub mod output;
pub mod pages;
