//! Results: the files that a run writes, and `pollux load compare` and `pollux load merge` on those that are
//! there already; and `pollux load turns`, which compares two servers that run now.
//!
//! How figures are compared and turns are taken is the generator's; here are the flags, the files, and the
//! signals that end the turns.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Subcommand};
use pollux_engine::{Driver, Signals};
use pollux_load::campaign::AgentName;
use pollux_load::compare::{Comparison, compare};
use pollux_load::merge::merged;
use pollux_load::{ComparedServer, LoadError, Outcome, beside, render};
use pollux_report::OutputFile;

use super::agents::{self, BrokerWords};
use super::flags::{LoadFlags, LoadSettings, Output};
use super::{Interrupt, at_once, failure, no_loop, plan, remark_refused};
use crate::output::{self, Failure};
use crate::process_number::pid;

/// A result is smaller: a run of a week has some hundred megabytes.
const RESULT_BYTES_MAX: u64 = 1 << 30;
/// The exit code of --gate where a figure got worse.
const WORSE: u8 = 3;
const UNCLEAR: u8 = 4;
/// The name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";
/// Default time for which turns are taken.
const LAST: Duration = Duration::from_secs(30);
/// So late is the end of the turns noticed.
const STEP: Duration = Duration::from_millis(25);

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
    #[command(
        override_usage = "pollux load turns [OPTIONS] <BEFORE_URL> <AFTER_URL>",
        mut_args(of_turns)
    )]
    Turns {
        #[command(flatten)]
        flags: LoadFlags,
        /// CPU time of this process and of all that it starts: that of the first URL
        #[arg(long, value_name = "PID", value_parser = pid)]
        before_pid: Option<u32>,
        /// The same of the second URL
        #[arg(long, value_name = "PID", value_parser = pid)]
        after_pid: Option<u32>,
        /// Exit with 3 when a figure got worse
        #[arg(long)]
        gate: bool,
    },
    /// List the agents (pollux-agent) that wait for orders at a NATS broker, and what each can carry
    Agents {
        /// Addresses of the broker's servers, with commas between them [default: nats://127.0.0.1:4222]
        #[arg(long, value_name = "URL")]
        nats: Option<String>,
        /// A file with what logs in to the broker: USER:PASSWORD or TOKEN
        #[arg(long, value_name = "FILE")]
        nats_login: Option<PathBuf>,
        /// Certificates (PEM) that the broker's own is checked with, instead of the machine's
        #[arg(long, value_name = "FILE")]
        nats_ca: Option<PathBuf>,
        /// The group whose agents are listed
        #[arg(long, value_name = "NAME", default_value = "default")]
        group: AgentName,
        /// Print as JSON
        #[arg(long)]
        json: bool,
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

/// A flag of `pollux load`, as `pollux load turns` shows it.
fn of_turns(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "urls" => {
            let help = "URL of the server before, then of the server after";
            let arg = arg.value_names(["BEFORE_URL", "AFTER_URL"]).num_args(1..=2);
            arg.action(ArgAction::Set).help(help).long_help(help)
        }
        "duration" => arg
            .help("Measure for this long, and at least four sets of turns [default: 30s]")
            .long_help(None::<&str>),
        id if USELESS.contains(&id) => arg.hide(true),
        _ => arg,
    }
}

/// Flags that [`useless`] refuses, and those that are for them alone.
const USELESS: [&str; 23] = [
    "agents",
    "nats",
    "nats_login",
    "nats_ca",
    "group",
    "on_lost_agent",
    "rate",
    "arrival",
    "requests",
    "warm_up",
    "think",
    "pipeline",
    "threads",
    "slo",
    "percentiles",
    "find_capacity",
    "trial",
    "prometheus",
    "server_pid",
    "hlog",
    "csv",
    "html",
    "as",
];

/// Does what was asked for with results.
pub(super) fn run(results: &Results) -> Result<ExitCode, Failure> {
    match results {
        Results::Compare { results, gate, strict, across, json } => {
            compared(results, (*gate, *strict), *across, *json)
        }
        Results::Turns { flags, before_pid, after_pid, gate } => {
            take_turns(flags, [*before_pid, *after_pid], *gate)
        }
        Results::Agents { nats, nats_login, nats_ca, group, json } => {
            let broker = BrokerWords { nats, nats_login, nats_ca, group: Some(group) };
            Err(agents::list(&broker, *json))
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
    let shown = if json {
        serde_json::to_string_pretty(&comparison).expect("plain data") + "\n"
    } else {
        output::shown(&comparison.table())
    };
    output::result(&shown)?;
    Ok(judged(&comparison, (gate, strict)))
}

/// The exit code; where it is not that of success, its reason is the last line on standard error.
fn judged(comparison: &Comparison, (gate, strict): (bool, bool)) -> ExitCode {
    let reasons = [
        (WORSE, comparison.worse().filter(|_| gate)),
        (UNCLEAR, comparison.unclear().filter(|_| strict)),
    ];
    match reasons.into_iter().find_map(|(code, reason)| Some((code, reason?))) {
        Some((code, reason)) => {
            output::remark(&reason);
            ExitCode::from(code)
        }
        None => ExitCode::SUCCESS,
    }
}

fn sum(results: &[PathBuf], files: &Output) -> Result<ExitCode, Failure> {
    let outcomes = results.iter().map(|path| read(path)).collect::<Result<Vec<_>, Failure>>()?;
    let sum = merged(&outcomes).map_err(Failure::usage)?;
    let files = Files::prepare(files)?;
    let table = || render::table(&sum, output::width_chars(), output::is_colourful());
    let shown = output::result(&files.printed(&sum).unwrap_or_else(|| output::shown(&table())));
    let written = files.write(&sum);
    shown.and(written).map(|()| ExitCode::SUCCESS)
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

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Json,
    Hlog,
    Csv,
    Html,
}

impl Kind {
    fn render(self, outcome: &Outcome) -> String {
        match self {
            Self::Json => render::json(outcome),
            Self::Hlog => render::hlog(outcome),
            Self::Csv => render::csv_seconds(outcome),
            Self::Html => render::html(outcome),
        }
    }
}

/// The files that were asked for.
#[derive(Debug)]
pub(super) struct Files {
    places: Vec<(Kind, OutputFile)>,
    printed: Option<Kind>,
    is_quiet: bool,
}

impl Files {
    /// Those of `output`; each can be written by now.
    pub(crate) fn prepare(output: &Output) -> Result<Self, Failure> {
        let asked = [
            (Kind::Json, &output.json),
            (Kind::Hlog, &output.hlog),
            (Kind::Csv, &output.csv),
            (Kind::Html, &output.html),
        ];
        let asked = asked.into_iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?)));
        let mut files = Self { places: Vec::new(), printed: None, is_quiet: output.is_quiet };
        for (kind, path) in asked {
            if path.as_os_str() != STANDARD_OUTPUT {
                let place = OutputFile::prepare(path).map_err(|error| not_written(path, &error))?;
                if files.places.iter().any(|(_, other)| other.is_same(&place)) {
                    let path = path.display();
                    let message = format!(
                        "{path} is the file of another result as well; expected a file for each"
                    );
                    return Err(Failure::usage(message));
                }
                files.places.push((kind, place));
            } else if files.printed.replace(kind).is_some() || output.style.is_some() {
                let message = "standard output takes one result only; give the others a file";
                return Err(Failure::usage(message));
            }
        }
        Ok(files)
    }

    /// Whether one of them goes to standard output.
    pub(crate) fn are_printed(&self) -> bool {
        self.printed.is_some()
    }

    /// What standard output shows instead of the table, if a file was asked for there.
    pub(crate) fn printed(&self, outcome: &Outcome) -> Option<String> {
        self.printed.map(|kind| kind.render(outcome))
    }

    /// Writes all of them, also where one fails. What else a run has to show is shown before.
    pub(crate) fn write(&self, outcome: &Outcome) -> Result<(), Failure> {
        self.write_as(|kind| Some(kind.render(outcome)))
    }

    /// Writes what a search found, in the forms that it has.
    pub(crate) fn write_search(
        &self,
        json: &str,
        html: &dyn Fn() -> String,
    ) -> Result<(), Failure> {
        self.write_as(|kind| match kind {
            Kind::Json => Some(json.to_owned()),
            Kind::Html => Some(html()),
            Kind::Hlog | Kind::Csv => None,
        })
    }

    /// The first failure, after all were tried; the others are said.
    fn write_as(&self, render: impl Fn(Kind) -> Option<String>) -> Result<(), Failure> {
        let mut first = Ok(());
        for (kind, place) in &self.places {
            let Some(text) = render(*kind) else { continue };
            match (self.put(place, &text), &first) {
                (Err(failure), Ok(())) => first = Err(failure),
                (Err(failure), Err(_)) => output::error(&failure.message),
                (Ok(()), _) => {}
            }
        }
        first
    }

    /// Whether the page goes to standard output.
    pub(crate) fn is_page_printed(&self) -> bool {
        self.printed == Some(Kind::Html)
    }

    fn put(&self, place: &OutputFile, text: &str) -> Result<(), Failure> {
        place.put(text).map_err(|error| not_written(place.given(), &error))?;
        if !self.is_quiet {
            output::remark(&format!("pollux load: {} written", place.given().display()));
        }
        Ok(())
    }
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{} can't be written: {error}", path.display()))
}

/// Compares the servers of the two URLs in `flags`, whose processes `pids` are.
fn take_turns(flags: &LoadFlags, pids: [Option<u32>; 2], gate: bool) -> Result<ExitCode, Failure> {
    let settings = flags.read().map_err(Failure::usage)?;
    if let Some(flag) = useless(&settings) {
        let why =
            format!("{flag}: it is of no use in turns, which are a closed loop of one thread");
        return Err(Failure::usage(why));
    }
    let count = settings.urls.len();
    if count != pids.len() {
        let s = if count == 1 { "" } else { "s" };
        return Err(Failure::usage(format!(
            "{count} URL{s} given; expected two: of the server before, then of the server after"
        )));
    }
    let side = |at: usize| {
        let mut own = settings.clone();
        own.urls = vec![settings.urls[at].clone()];
        let mut plan = plan::plan(&own).map_err(|error| failure(&error))?;
        plan.reach();
        Ok::<_, Failure>(ComparedServer { plan, pid: pids[at] })
    };
    let mut sides = [side(0)?, side(1)?];
    pollux_sys::descriptors::raise().map_err(Failure::failed)?;
    let mut signals = Signals::catch(&Interrupt::signals()).map_err(Failure::failed)?;
    let lasts = settings.duration.unwrap_or(LAST);
    let turns = Driver::start_first(settings.poller, |driver| {
        sides.iter_mut().for_each(|side| side.plan.driver = driver);
        match taken(&sides, lasts, &mut signals) {
            Ok((Err(refused @ LoadError::Loop(_)), None)) => Err(refused),
            turns => Ok(turns),
        }
    });
    let turns = turns.map_err(|error| no_loop(&error, settings.poller))?;
    remark_refused(&turns);
    let (found, interrupt) = turns.value?;
    let found = match (found, interrupt) {
        (Ok(found), _) => found,
        (Err(error), None) => return Err(failure(&error)),
        (Err(error), Some(interrupt)) => {
            return Err(Failure {
                message: output::error_chain(&error),
                code: interrupt.exit_code(),
            });
        }
    };
    output::result(&match settings.output.json {
        Some(_) => serde_json::to_string_pretty(&found).expect("plain data") + "\n",
        None => output::shown(&found.table()),
    })?;
    Ok(match interrupt {
        Some(interrupt) => interrupt.exit_code(),
        None => judged(&found, (gate, false)),
    })
}

/// What the turns found, and what ended them early. The first interrupt ends them after a round,
/// the second at once.
fn taken(
    sides: &[ComparedServer; 2],
    lasts: Duration,
    signals: &mut Signals,
) -> Result<(Result<Comparison, LoadError>, Option<Interrupt>), Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let sides = sides.clone();
    let asked = Arc::clone(&is_over);
    let turns = std::thread::Builder::new().name("load-turns".to_owned());
    let turns = turns.spawn(move || beside(&sides, lasts, &|| asked.load(Relaxed)));
    let turns = turns.map_err(Failure::failed)?;
    let mut interrupt = None;
    while !turns.is_finished() {
        let Some(signal) = signals.wait(Some(STEP)).map_err(Failure::failed)? else { continue };
        let now = Interrupt::Signal(signal);
        if interrupt.is_some() {
            return Err(at_once(now));
        }
        interrupt = Some(now);
        is_over.store(true, Relaxed);
    }
    let found =
        turns.join().map_err(|_| Failure::failed("the thread that takes turns panicked"))?;
    Ok((found, interrupt))
}

/// A flag that asks for what turns are not.
fn useless(settings: &LoadSettings) -> Option<&'static str> {
    let LoadSettings { output, .. } = settings;
    let asked = [
        ("--agents", settings.several.agents.is_some()),
        ("--rate", settings.rate.is_some()),
        ("--requests", settings.requests.is_some()),
        ("--warm-up", settings.warm_up.is_some()),
        ("--think", !settings.think.is_zero()),
        ("--pipeline", settings.pipeline > 1),
        ("--streams", settings.streams > 1),
        ("--threads", settings.threads > 1),
        ("--slo", !settings.objectives.is_empty()),
        ("--percentiles", !settings.quantiles.is_empty()),
        ("--find-capacity", settings.finds_capacity),
        ("--hold", settings.holds),
        ("--prometheus", settings.prometheus.is_some()),
        ("--server-pid", settings.server_pid.is_some()),
        ("--hlog", output.hlog.is_some()),
        ("--csv", output.csv.is_some()),
        ("--html", output.html.is_some()),
        ("--as", output.style.is_some()),
        ("--json", output.json.as_ref().is_some_and(|path| path.as_os_str() != "-")),
    ];
    asked.into_iter().find(|(_, is_asked)| *is_asked).map(|(flag, _)| flag)
}
