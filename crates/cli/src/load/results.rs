//! Results: the files that a run writes, and `pollux load compare` and `pollux load merge` on those that are
//! there already.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use pollux_load::compare::{Change, compare};
use pollux_load::merge::merged;
use pollux_load::{Outcome, render};

use super::files::Files;
use super::flags::{LoadFlags, Output};
use super::turns;
use crate::output::{self, Failure};

/// A result is smaller: a run of a week has some hundred megabytes.
const RESULT_BYTES_MAX: u64 = 1 << 30;
/// The exit code of --gate where a figure got worse.
pub(super) const WORSE: u8 = 3;
const UNCLEAR: u8 = 4;

/// `pollux load` with what it does beside putting load on a server.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LoadCommand {
    #[command(subcommand)]
    pub(super) results: Option<Results>,
    #[command(flatten)]
    pub(super) flags: LoadFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Results {
    /// Compare results of the same load, as --json writes them: one pair, or pairs taken in turns
    Compare {
        /// The result before and the one after; or three pairs of them and more
        #[arg(value_name = "BEFORE AFTER", required = true, num_args = 2..)]
        results: Vec<PathBuf>,
        /// Exit with 3 when a figure got worse
        #[arg(long)]
        gate: bool,
        /// Exit with 4 when a figure is unclear, or has no interval
        #[arg(long)]
        strict: bool,
        /// Compare results of different loads
        #[arg(long)]
        across: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare two servers that run now, in turns of some milliseconds: finds changes of a few percent in CPU time
    /// and latency, in a minute, where results of whole runs don't
    Turns {
        #[command(flatten)]
        flags: LoadFlags,
        /// CPU time of this process and of all that it starts: that of the first URL
        #[arg(long, value_name = "PID")]
        before_pid: Option<u32>,
        /// The same of the second URL
        #[arg(long, value_name = "PID")]
        after_pid: Option<u32>,
        /// Exit with 3 when a figure got worse
        #[arg(long)]
        gate: bool,
    },
    /// Add up results of several generators that ran at the same time, as --json writes them
    Merge {
        /// The results
        #[arg(value_name = "RESULT", required = true, num_args = 2..)]
        results: Vec<PathBuf>,
        /// Write the sum as JSON; - for FILE, here and below, prints it instead of the table
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// The latencies of each second as a log for HdrHistogram's programs
        #[arg(long, value_name = "FILE")]
        hlog: Option<PathBuf>,
        /// A row for each second
        #[arg(long, value_name = "FILE")]
        csv: Option<PathBuf>,
        /// A page with charts that needs nothing else
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

/// Does what was asked for with results.
pub(super) fn run(results: &Results) -> Result<ExitCode, Failure> {
    match results {
        Results::Compare { results, gate, strict, across, json } => {
            compared(results, (*gate, *strict), *across, *json)
        }
        Results::Turns { flags, before_pid, after_pid, gate } => {
            turns::run(flags, [*before_pid, *after_pid], *gate)
        }
        Results::Merge { results, json, hlog, csv, html } => {
            let [json, hlog, csv, html] = [json, hlog, csv, html].map(Clone::clone);
            sum(results, &Output { json, hlog, csv, html, style: None, is_quiet: true })
        }
    }
}

fn compared(
    results: &[PathBuf],
    (gate, strict): (bool, bool),
    across: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let (paths, odd) = results.as_chunks::<2>();
    if !odd.is_empty() {
        let count = results.len();
        return Err(Failure::usage(format!("{count} results; expected pairs: BEFORE AFTER …")));
    }
    let pair = |[before, after]: &[PathBuf; 2]| Ok((read(before)?, read(after)?));
    let pairs = paths.iter().map(pair).collect::<Result<Vec<_>, Failure>>()?;
    let comparison = compare(&pairs, across).map_err(Failure::usage)?;
    output::result(&match json {
        true => serde_json::to_string_pretty(&comparison).expect("plain data") + "\n",
        false => output::shown(&comparison.table()),
    })?;
    let is_unclear = comparison.has(Change::Unclear) || comparison.has(Change::Open);
    Ok(match () {
        () if gate && comparison.has(Change::Worse) => ExitCode::from(WORSE),
        () if strict && is_unclear => ExitCode::from(UNCLEAR),
        () => ExitCode::SUCCESS,
    })
}

fn sum(results: &[PathBuf], files: &Output) -> Result<ExitCode, Failure> {
    let outcomes = results.iter().map(|path| read(path)).collect::<Result<Vec<_>, Failure>>()?;
    let sum = merged(&outcomes).map_err(Failure::usage)?;
    let files = Files::prepare(files)?;
    files.write(&sum)?;
    let table = || render::table(&sum, output::width_chars(), output::is_colourful());
    output::result(&files.printed(&sum).unwrap_or_else(|| output::shown(&table())))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Outcome, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    let read = file.take(RESULT_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| failed(&error))? as u64 > RESULT_BYTES_MAX {
        return Err(failed(&format!("no result is larger than {RESULT_BYTES_MAX} bytes")));
    }
    Outcome::from_json(&text).map_err(|error| failed(&error))
}
