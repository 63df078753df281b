//! The flags of `pollux load`, under the headings of its help text.
//!
//! Each value is read by [`values`] or by the crate that it is for; what the flags
//! mean together is decided in [`plan`](super::plan).

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use pollux_engine::{CpuList, Driver};
use pollux_load::{Objective, PIPELINE_MAX, Stage, THREADS_MAX, parse_rate};

use super::values::{self, Weighted};
use crate::values::{driver, duration, length, whole_in};

/// Connections when none are asked for: enough to keep most servers busy on one machine, few
/// enough that the latency is not all queue.
pub(crate) const CONNECTIONS: u32 = 64;
/// How long a run takes when nobody says.
pub(crate) const DURATION: Duration = Duration::from_secs(10);
/// How long a trial of the search takes when nobody says.
pub(crate) const TRIAL: Duration = Duration::from_secs(5);
/// Time between two bytes of a slow connection when nobody says.
pub(crate) const DRIP: Duration = Duration::from_secs(1);
/// What is not counted at the start of a run that has no number of requests.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

const REQUEST: &str = "Request";
const LOAD: &str = "Load";
const CROWD: &str = "Connections beside the active ones";
const PLACE: &str = "Where from and where to";
const JUDGE: &str = "Limits and expectations";
const CAPACITY: &str = "Search for the capacity";
const OUTPUT: &str = "Output";

/// Several addresses of one `--source` value.
#[derive(Clone, Debug)]
pub(crate) struct Sources(pub(crate) Vec<IpAddr>);

/// The stages of one `--rate` value.
#[derive(Clone, Debug)]
pub(crate) struct Rate(pub(crate) Vec<Stage>);

/// A body that was read.
#[derive(Clone, Debug)]
pub(crate) struct Body(pub(crate) Vec<u8>);

/// Spacing of the requests of `--rate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ArrivalFlag {
    /// Even
    Constant,
    /// Random, as of independent users (exponential distances)
    Poisson,
}

/// Programs whose summary is imitated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Style {
    /// The fields of ab 2.3
    Ab,
    /// The lines of wrk 4
    Wrk,
    /// The sections of httperf 0.9
    Httperf,
}

/// Everything that `pollux load` takes.
#[derive(Debug, Args)]
pub(crate) struct LoadFlags {
    /// What to ask for, such as http://127.0.0.1:8080/; several, all of one server, are chosen by
    /// weight: 3@URL is asked for three times as often as 1@URL
    #[arg(value_name = "[WEIGHT@]URL", required = true, value_parser = values::weighted)]
    pub(crate) urls: Vec<Weighted>,

    /// Method [default: GET, POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", value_parser = values::method,
          help_heading = REQUEST)]
    pub(crate) method: Option<String>,
    /// A further field of the request; may be repeated. Host takes the place of the URL's, which
    /// still says where to connect to
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = values::field,
          help_heading = REQUEST)]
    pub(crate) fields: Vec<(String, String)>,
    /// Body of the request: a text, or @FILE for what is in a file
    #[arg(long, value_name = "TEXT|@FILE", value_parser = body, help_heading = REQUEST)]
    pub(crate) body: Option<Body>,

    /// Active connections over all threads
    #[arg(short, long, value_name = "N", default_value_t = CONNECTIONS,
          value_parser = whole_in::<u32>(1, u32::MAX.into()), help_heading = LOAD)]
    pub(crate) connections: u32,
    /// End after so many requests, those of the warm-up aside
    #[arg(short = 'n', long, value_name = "N", value_parser = whole_in::<u64>(1, u64::MAX),
          help_heading = LOAD)]
    pub(crate) requests: Option<u64>,
    /// End after this time, warm-up aside; with --requests whichever comes first
    /// [default: 10s, all of --rate where its last stage has an end, none with --requests]
    #[arg(short, long, value_name = "TIME", value_parser = length, help_heading = LOAD)]
    pub(crate) duration: Option<Duration>,
    /// Time at the start whose requests are not counted [default: 1s, none with --requests]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = LOAD)]
    pub(crate) warm_up: Option<Duration>,
    /// Requests per second by a schedule, whether or not earlier ones were answered: 5000,
    /// 1000@10s,2000@20s for steps, 100..5000@60s for a ramp [default: as fast as answers come]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = LOAD)]
    pub(crate) rate: Option<Rate>,
    /// Spacing of the requests of --rate: even, or random as of independent users
    /// [default: constant]
    #[arg(long, value_name = "KIND", help_heading = LOAD)]
    pub(crate) arrival: Option<ArrivalFlag>,
    /// Time between an answer and the next request of its connection
    #[arg(long, value_name = "TIME", value_parser = duration,
          conflicts_with_all = ["rate", "find_capacity"], help_heading = LOAD)]
    pub(crate) think: Option<Duration>,
    /// Close a connection after so many requests and open another
    #[arg(long, value_name = "N", value_parser = at_least_one(), help_heading = LOAD)]
    pub(crate) requests_per_connection: Option<NonZeroU32>,
    /// A connection for each request
    #[arg(long, conflicts_with = "requests_per_connection", help_heading = LOAD)]
    pub(crate) no_keepalive: bool,
    /// Requests under way on one connection at the same time
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = whole_in::<u32>(1, PIPELINE_MAX.into()),
          help_heading = LOAD)]
    pub(crate) pipeline: u32,
    /// Seed of everything random: Poisson arrivals, the choice among URLs [default: 1]
    #[arg(long, value_name = "N", value_parser = whole_in::<u64>(0, u64::MAX),
          help_heading = LOAD)]
    pub(crate) seed: Option<u64>,

    /// Ask once, then never again
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = whole_in::<u32>(0, u32::MAX.into()), help_heading = CROWD)]
    pub(crate) dead: u32,
    /// Never send anything
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = whole_in::<u32>(0, u32::MAX.into()), help_heading = CROWD)]
    pub(crate) silent: u32,
    /// Send a request byte by byte
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = whole_in::<u32>(0, u32::MAX.into()), help_heading = CROWD)]
    pub(crate) slow: u32,
    /// Open the crowd and no active connection, and hold it until standard input ends; then tell as
    /// JSON what became of it. The lab starts this beside a server
    #[arg(long, hide = true, conflicts_with_all = ["find_capacity", "json"])]
    pub(crate) hold: bool,
    /// Time between two bytes of a slow connection [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = length, help_heading = CROWD)]
    pub(crate) drip: Option<Duration>,

    /// For https: believe servers whose certificate an authority in this PEM file has signed
    /// [default: the public authorities]
    #[arg(long, value_name = "FILE", help_heading = PLACE)]
    pub(crate) cacert: Option<PathBuf>,
    /// For https: believe every server
    #[arg(long, conflicts_with = "cacert", help_heading = PLACE)]
    pub(crate) insecure: bool,
    /// Connect to this unix socket instead of the URL's host
    #[arg(long, value_name = "PATH", conflicts_with = "sources", help_heading = PLACE)]
    pub(crate) unix: Option<PathBuf>,
    /// Addresses that connections come from, in turn: 127.0.0.2,127.0.0.3 or
    /// 127.0.0.2-127.0.0.9; more of them give more ports
    #[arg(long = "source", id = "sources", value_name = "ADDRESS", value_delimiter = ',',
          value_parser = sources, help_heading = PLACE)]
    pub(crate) sources: Vec<Sources>,
    /// Threads of the generator
    #[arg(short, long, value_name = "N", default_value_t = 1,
          value_parser = whole_in::<u32>(1, THREADS_MAX.into()), help_heading = PLACE)]
    pub(crate) threads: u32,
    /// CPUs that the threads are pinned to in turn, such as 0,2-3
    #[arg(long, value_name = "LIST", help_heading = PLACE)]
    pub(crate) cpus: Option<CpuList>,
    /// The generator's own event mechanism: select, poll, aio, epoll, epoll-et, epoll-oneshot,
    /// uring-poll, uring [default: uring where it can be opened, else epoll-et]
    #[arg(long, value_name = "NAME", value_parser = driver(), hide_possible_values = true,
          help_heading = PLACE)]
    pub(crate) poller: Option<Driver>,

    /// A connect that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = length,
          help_heading = JUDGE)]
    pub(crate) connect_timeout: Duration,
    /// An answer that takes longer has failed, and its connection is closed; the end of the run
    /// does not wait for it: what is out then is waited for 250 ms, and a second if nothing at
    /// all is answered any more
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length,
          help_heading = JUDGE)]
    pub(crate) timeout: Duration,
    /// The status that is right [default: any of 200 to 399]
    #[arg(long, value_name = "STATUS", value_parser = whole_in::<u16>(100, 599),
          help_heading = JUDGE)]
    pub(crate) expect_status: Option<u16>,
    /// The length of the body that is right
    #[arg(long, value_name = "BYTES", value_parser = whole_in::<u64>(0, u64::MAX),
          help_heading = JUDGE)]
    pub(crate) expect_bytes: Option<u64>,

    /// What the latency has to keep to, such as p99=5ms or p99.9=250us; a run that does not ends
    /// with exit code 3
    #[arg(long, value_name = "pN=TIME", help_heading = JUDGE)]
    pub(crate) slo: Option<Objective>,

    /// Search the highest rate that holds --slo; a trial after the other, two of three decide
    #[arg(long, requires = "slo",
          conflicts_with_all = ["rate", "requests", "duration", "style", "hlog", "csv", "html"],
          help_heading = CAPACITY)]
    pub(crate) find_capacity: bool,
    /// Length of a trial [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = length, help_heading = CAPACITY)]
    pub(crate) trial: Option<Duration>,

    /// The result as JSON; - for FILE, here and below, prints it instead of the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) json: Option<PathBuf>,
    /// The latencies of each second as a log for HdrHistogram's programs
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) hlog: Option<PathBuf>,
    /// A row for each second
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) csv: Option<PathBuf>,
    /// A page with charts that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) html: Option<PathBuf>,
    /// Sum up in the terms of another program instead of the table
    #[arg(long = "as", id = "style", value_name = "PROGRAM", help_heading = OUTPUT)]
    pub(crate) style: Option<Style>,
    /// No progress
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
}

fn at_least_one() -> impl TypedValueParser<Value = NonZeroU32> {
    whole_in::<u32>(1, u32::MAX.into()).map(|n| NonZeroU32::new(n).expect("not below one"))
}

fn body(text: &str) -> Result<Body, String> {
    values::body(text).map(Body)
}

fn rate(text: &str) -> Result<Rate, String> {
    parse_rate(text).map(Rate).map_err(|error| error.to_string())
}

fn sources(text: &str) -> Result<Sources, String> {
    values::sources(text).map(Sources)
}
