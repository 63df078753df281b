//! What the programs of pollux share as commands: how results and errors are printed, what stands
//! below the flags in `--help` and in manual pages, how a wrong command line is answered.
//!
//! | part | one job |
//! |---|---|
//! | `output` | results to standard output, the rest to standard error, failures with their exit code, one line for a wrong command line |
//! | `foreign` | flags of other programs, with what takes their place here |
//! | `help` | sections of a help text, the same as a manual page, completion scripts |
//! | `program` | the version with its commit, the commands for completions and manual pages, the end of a `main` |
//! | `outline` | a command line as data, for a program that hands words over to another |
//!
//! Nothing here knows a command; it is given one as a `clap::Command` and a table of sections.

pub mod foreign;
pub mod help;
pub mod outline;
pub mod output;
pub mod program;
