//! What `pollux load` is told: flags, under the headings of its help text, and keys of a file.
//!
//! Each value is read by [`values`] or by the crate that it is for; what they mean together is
//! decided in [`plan`](super::plan).

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{CpuList, Driver, ListenAddress};
use pollux_load::{Arrival, Objective, Order, PIPELINE_MAX, Stage, THREADS_MAX, parse_rate};
use pollux_settings::{Flags, Keys, Table, duration, one_of, parsed, path, whole};

use super::list::has_pattern;
use super::values::{self, Weighted};

/// How long a run takes when nobody says.
pub(crate) const DURATION: Duration = Duration::from_secs(10);
/// How long a trial of the search takes when nobody says.
pub(crate) const TRIAL: Duration = Duration::from_secs(5);
/// What is not counted at the start of a run that has no number of requests.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);
/// Longest duration: more than a week of anything is a slip of the pen.
const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shortest time for something to happen in: the grain of the loops' deadlines.
const LENGTH_MIN: Duration = Duration::from_millis(1);
/// URLs at most: beyond it somebody has mistaken the command line for a file.
const URLS_MAX: usize = 1024;

/// Objectives at most: more of them than figures that one can name would be a mistake.
const OBJECTIVES_MAX: usize = 64;
/// PID_MAX_LIMIT of the kernel.
const PIDS_MAX: u64 = 4_194_304;
/// Percentiles at most: a line of the table holds no more.
const PERCENTILES_MAX: usize = 12;

/// The flags of `pollux load`.
pub(crate) type LoadFlags = Flags<LoadSettings>;

/// Programs whose summary is imitated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// The fields of ab 2.3.
    Ab,
    /// The lines of wrk 4.
    Wrk,
    /// The sections of httperf 0.9.
    Httperf,
}

/// Everything that `pollux load` is told.
#[derive(Clone, Debug)]
pub(crate) struct LoadSettings {
    pub(crate) urls: Vec<Weighted>,
    pub(crate) method: Option<String>,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
    /// What the Authorization field says.
    pub(crate) user: Option<String>,
    pub(crate) requests_from: Option<PathBuf>,
    pub(crate) order: Option<Order>,
    pub(crate) connections: u32,
    pub(crate) requests: Option<u64>,
    pub(crate) duration: Option<Duration>,
    pub(crate) warm_up: Option<Duration>,
    pub(crate) rate: Option<Vec<Stage>>,
    pub(crate) arrival: Arrival,
    pub(crate) think: Duration,
    pub(crate) requests_per_connection: Option<NonZeroU32>,
    pub(crate) pipeline: u32,
    pub(crate) seed: u64,
    pub(crate) dead: u32,
    pub(crate) silent: u32,
    pub(crate) slow: u32,
    pub(crate) drip: Duration,
    pub(crate) holds: bool,
    pub(crate) cacert: Option<PathBuf>,
    pub(crate) is_insecure: bool,
    pub(crate) is_unresumed: bool,
    pub(crate) identity: Option<pollux_load::Keys>,
    pub(crate) keeps_cookies: bool,
    pub(crate) server_pid: Option<u32>,
    pub(crate) unix: Option<PathBuf>,
    pub(crate) connect_to: Option<ListenAddress>,
    pub(crate) sources: Vec<IpAddr>,
    pub(crate) threads: u32,
    pub(crate) cpus: Option<CpuList>,
    pub(crate) poller: Option<Driver>,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) expect_status: Option<u16>,
    pub(crate) expect_bytes: Option<u64>,
    pub(crate) objectives: Vec<Objective>,
    pub(crate) quantiles: Vec<f64>,
    pub(crate) finds_capacity: bool,
    pub(crate) trial: Option<Duration>,
    pub(crate) prometheus: Option<std::net::SocketAddr>,
    pub(crate) output: Output,
}

/// Where the result goes, and how it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: Option<PathBuf>,
    pub(crate) hlog: Option<PathBuf>,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) style: Option<Style>,
    pub(crate) is_quiet: bool,
}

impl Table for LoadSettings {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let (any, some) = (whole::<u32>(0..=u32::MAX.into()), whole::<u32>(1..=u32::MAX.into()));
        let (length, pause) =
            (duration(LENGTH_MIN..=LENGTH_MAX), duration(Duration::ZERO..=LENGTH_MAX));
        let urls = keys
            .key(
                "urls",
                "What to ask for, such as http://127.0.0.1:8080/; several, all of one server, are \
                 chosen by weight: 3@URL is asked for three times as often as 1@URL. Numbers in \
                 brackets stand for a request each: http://127.0.0.1:8080/item/[1-1000]",
            )
            .positional()
            .list(&parsed("[WEIGHT@]URL", "a URL, or 3@URL", values::weighted), 1..=URLS_MAX);

        keys.heading("Request");
        let method = keys
            .key("method", "Method")
            .short('X')
            .otherwise("GET, POST with a body")
            .optional(&parsed("METHOD", "one word, such as GET", values::method));
        let fields = keys
            .key(
                "headers",
                "A further field of the request; may be repeated. Host takes the place of the \
                 URL's, which still says where to connect to",
            )
            .flag("header")
            .short('H')
            .list(&parsed("NAME: VALUE", "'NAME: VALUE'", values::field), 0..=usize::MAX);
        let body = keys
            .key("body", "Body of the request: a text, or @FILE for what is in a file")
            .optional(&parsed("TEXT|@FILE", "a text, or @FILE", values::body));
        let user = keys
            .key(
                "user",
                "Name and password for basic authentication; @FILE reads them from a file, where no \
                 other user of the machine sees them",
            )
            .short('u')
            .optional(&parsed("NAME:PASSWORD|@FILE", "NAME:PASSWORD, or @FILE", values::basic));
        let keeps_cookies = keys
            .key(
                "cookies",
                "Each connection keeps the cookies that answers set, up to 50, and sends them with its \
                 later requests, also when it was opened again",
            )
            .switch();
        let requests_from = keys
            .key(
                "requests_from",
                "Requests from this file, sent to the server of the URL, of which nothing else counts: a line \
                 for each, [METHOD] [WEIGHT@]URL or a JSON object with url, method, headers, body and \
                 weight. What a line leaves out is as the flags say",
            )
            .optional(&path().called("FILE"));
        let orders = [
            (
                "in-turn",
                "as they stand, and again; each thread begins at its own part",
                Order::InTurn,
            ),
            ("random", "at random, by weight", Order::Random),
        ];
        let order = keys
            .key("order", "Order of the requests of --requests-from, or of a pattern")
            .otherwise("random where weights are given, else in-turn")
            .optional(&one_of("order", orders).called("ORDER"));

        keys.heading("Load");
        // Enough to keep most servers busy on one machine, few enough that the latency is not all
        // queue.
        let connections = keys
            .key("connections", "Active connections over all threads")
            .short('c')
            .default("64")
            .one(&some);
        let requests = keys
            .key("requests", "End after so many requests, those of the warm-up aside")
            .short('n')
            .optional(&whole(1..=u64::MAX));
        let length_of_run = keys
            .key(
                "duration",
                "End after this time, warm-up aside; with --requests whichever comes first",
            )
            .short('d')
            .otherwise("10s, all of --rate where its last stage has an end, none with --requests")
            .optional(&length);
        let warm_up = keys
            .key("warm_up", "Time at the start whose requests are not counted")
            .otherwise("1s, none with --requests")
            .optional(&pause);
        let rate = keys
            .key(
                "rate",
                "Requests per second by a schedule, whether or not earlier ones were answered: \
                 5000, 1000@10s,2000@20s for steps, 100..5000@60s for a ramp",
            )
            .otherwise("as fast as answers come")
            .optional(&parsed("RATE", "a rate, steps or a ramp", parse_rate));
        let arrivals = [
            ("constant", "even", Arrival::Constant),
            (
                "poisson",
                "random, as of independent users (exponential distances)",
                Arrival::Poisson,
            ),
        ];
        let arrival = keys
            .key("arrival", "Spacing of the requests of --rate")
            .default("constant")
            .one(&one_of("spacing", arrivals).called("KIND"));
        let think = keys
            .key("think", "Time between an answer and the next request of its connection")
            .excludes(&["rate", "find_capacity"])
            .default("0s")
            .one(&pause);
        let requests_per_connection = keys
            .key(
                "requests_per_connection",
                "Close a connection after so many requests and open another",
            )
            .excludes(&["no_keepalive"])
            .optional(&whole(1..=u32::MAX.into()).map(NonZeroU32::new));
        let has_no_keepalive = keys.key("no_keepalive", "A connection for each request").switch();
        let pipeline = keys
            .key("pipeline", "Requests under way on one connection at the same time")
            .default("1")
            .one(&whole(1..=PIPELINE_MAX.into()));
        let seed = keys
            .key("seed", "Seed of everything random: Poisson arrivals, the choice among URLs")
            .default("1")
            .one(&whole(0..=u64::MAX));

        keys.heading("Connections beside the active ones");
        let dead = keys.key("dead", "Ask once, then never again").default("0").one(&any);
        let silent = keys.key("silent", "Never send anything").default("0").one(&any);
        let slow = keys.key("slow", "Send a request byte by byte").default("0").one(&any);
        let drip = keys
            .key("drip", "Time between two bytes of a slow connection")
            .needs("slow", "it is for slow connections")
            .default("1s")
            .one(&length);

        let holds = keys
            .key(
                "hold",
                "Open the crowd and no active connection, and hold it until standard input ends; \
                 then tell as JSON what became of it. The lab starts this beside a server",
            )
            .hidden()
            .excludes(&["find_capacity", "json"])
            .switch();

        keys.heading("Where from and where to");
        let cacert = keys
            .key(
                "cacert",
                "For https: believe servers whose certificate an authority in this PEM file has \
                 signed",
            )
            .otherwise("the public authorities")
            .optional(&path().called("FILE"));
        let is_insecure =
            keys.key("insecure", "For https: believe every server").excludes(&["cacert"]).switch();
        let cert = keys
            .key(
                "cert",
                "For https: the certificate to show where the server asks for one, with those that lead \
                 to an authority (PEM)",
            )
            .needs("key", "a certificate needs its key")
            .optional(&path().called("FILE"));
        let key = keys
            .key("key", "The private key of --cert (PEM)")
            .needs("cert", "it is of a certificate")
            .optional(&path().called("FILE"));
        let is_unresumed = keys
            .key(
                "no_resumption",
                "For https: a full handshake on each connection; without this, sessions are resumed \
                 by tickets, as browsers do",
            )
            .switch();
        let unix = keys
            .key("unix", "Connect to this unix socket instead of the URL's host")
            .excludes(&["sources"])
            .optional(&path());
        let connect_to = keys
            .key(
                "connect_to",
                "Connect to this address, HOST:PORT, instead of the URL's host, which is not looked \
                 up; the Host field and the name in the certificate stay those of the URL",
            )
            .excludes(&["unix"])
            .optional(&parsed("HOST:PORT", "HOST:PORT such as 127.0.0.1:8443", values::address_of));
        let server_pid = keys
            .key(
                "server_pid",
                "CPU time of this process of the same machine and of all that it starts, for each answer: \
                 the server's",
            )
            .optional(&whole(1..=PIDS_MAX).called("PID"));
        let sources = keys
            .key(
                "sources",
                "Addresses that connections come from, in turn: 127.0.0.2,127.0.0.3 or \
                 127.0.0.2-127.0.0.9; more of them give more ports",
            )
            .flag("source")
            .split_at_commas(|_| true)
            .list(
                &parsed("ADDRESS", "an IP address, or a range of them", values::sources),
                0..=1024,
            );
        let threads = keys
            .key("threads", "Threads of the generator")
            .short('t')
            .default("1")
            .one(&whole(1..=THREADS_MAX.into()));
        let cpus = keys
            .key("cpus", "CPUs that the threads are pinned to in turn, such as 0,2-3")
            .optional(&parsed("LIST", "CPUs such as \"0,2-3\"", str::parse::<CpuList>));
        let poller = keys
            .key(
                "poller",
                "The generator's own event mechanism: select, poll, aio, epoll, epoll-et, \
                 epoll-oneshot, uring-poll, uring",
            )
            .otherwise("uring where it can be opened, else epoll-et")
            .optional(&one_of("poller", Driver::ALL.map(|driver| (driver.name(), "", driver))));

        keys.heading("Limits and expectations");
        let connect_timeout = keys
            .key("connect_timeout", "A connect that takes longer has failed")
            .default("5s")
            .one(&length);
        let timeout = keys
            .key(
                "timeout",
                "An answer that takes longer has failed, and its connection is closed; the end of \
                 the run does not wait for it: what is out then is waited for 250 ms, and a second \
                 if nothing at all is answered any more",
            )
            .default("10s")
            .one(&length);
        let expect_status = keys
            .key("expect_status", "The status that is right")
            .otherwise("any of 200 to 399")
            .optional(&whole(100..=599).called("STATUS"));
        let expect_bytes = keys
            .key("expect_bytes", "The length of the body that is right")
            .optional(&whole(0..=u64::MAX).called("BYTES"));
        let objectives = keys
            .key(
                "slo",
                "What a figure has to keep to; may be repeated, and a run that misses one ends \
                 with exit code 3. Times: p99=5ms, p99.9=250us, mean=, max=, and first-byte-p99=, \
                 connect-p99= and the like. Numbers or parts of the requests: errors=0.1%, \
                 redirects=0, unanswered=0, 4xx=1%, 5xx=0. Least answers per second: rate=5000",
            )
            .split_at_commas(|_| true)
            .list(
                &parsed("FIGURE=LIMIT", "a figure and its limit, such as p99=5ms", str::parse),
                0..=OBJECTIVES_MAX,
            );

        keys.heading("Search for the capacity");
        let finds_capacity = keys
            .key(
                "find_capacity",
                "Search the highest rate that holds --slo; a trial after the other, two of three \
                 decide",
            )
            .needs("slo", "it searches the rate that holds objectives")
            .excludes(&["rate", "requests", "duration", "as", "hlog", "csv", "html"])
            .switch();
        let trial = keys
            .key("trial", "Length of a trial")
            .needs("find_capacity", "it is for the search")
            .otherwise("5s")
            .optional(&length);
        let output = Output::read(keys);
        let prometheus = keys
            .key(
                "prometheus",
                "Offer how far the run is to Prometheus while it runs, at http://ADDRESS/metrics; port 0 \
                 is any free one",
            )
            .optional(&parsed("ADDRESS", "an address such as 127.0.0.1:9100", values::socket));
        let quantiles = keys
            .key(
                "percentiles",
                "The percentiles that tables show, such as 50,95,99.99; JSON has them beside those \
                 that it always has",
            )
            .otherwise("50,75,90,99,99.9")
            .split_at_commas(|_| true)
            .list(
                &parsed("PERCENT", "a percentile such as 99.9", values::quantile),
                0..=PERCENTILES_MAX,
            )
            .map(values::rising);

        if finds_capacity == Some(true)
            && let Some(objectives) = &objectives
            && !objectives
                .iter()
                .any(|objective: &Objective| objective.latency_quantile().is_some())
        {
            let why = "the search raises the rate until the latency is too long; expected one such \
                       as p99=5ms among them";
            keys.note("slo", why);
        }
        if keys.has("arrival") && !keys.has("rate") && !keys.has("find_capacity") {
            keys.note("arrival", "it spaces the requests of --rate; expected --rate as well");
        }
        let is_list = keys.has("requests_from")
            || urls.as_ref().is_none_or(|urls| urls.iter().any(|each| has_pattern(&each.url)));
        if keys.has("order") && !is_list {
            let why = "there is one request, or URLs by weight; expected --requests-from or a \
                       pattern such as [1-1000] in the URL";
            keys.note("order", why);
        }
        let is_random = arrival == Some(Arrival::Poisson)
            || is_list
            || urls.as_ref().is_none_or(|urls| urls.len() > 1);
        if keys.has("seed") && !is_random {
            let why = "nothing is random in this run; expected --arrival poisson or several URLs";
            keys.note("seed", why);
        }
        Some(Self {
            urls: urls?,
            method: method?,
            fields: fields?,
            body: body?,
            user: user?,
            requests_from: requests_from?,
            order: order?,
            connections: connections?,
            requests: requests?,
            duration: length_of_run?,
            warm_up: warm_up?,
            rate: rate?,
            arrival: arrival?,
            think: think?,
            requests_per_connection: match has_no_keepalive? {
                true => NonZeroU32::new(1),
                false => requests_per_connection?.flatten(),
            },
            pipeline: pipeline?,
            seed: seed?,
            dead: dead?,
            silent: silent?,
            slow: slow?,
            drip: drip?,
            holds: holds?,
            cacert: cacert?,
            is_insecure: is_insecure?,
            is_unresumed: is_unresumed?,
            identity: cert?.zip(key?).map(|(cert, key)| pollux_load::Keys { cert, key }),
            keeps_cookies: keeps_cookies?,
            server_pid: server_pid?,
            unix: unix?,
            connect_to: connect_to?,
            sources: sources?.into_iter().flatten().collect(),
            threads: threads?,
            cpus: cpus?,
            poller: poller?,
            connect_timeout: connect_timeout?,
            timeout: timeout?,
            expect_status: expect_status?,
            expect_bytes: expect_bytes?,
            objectives: objectives?,
            quantiles: quantiles?,
            finds_capacity: finds_capacity?,
            trial: trial?,
            prometheus: prometheus?,
            output: output?,
        })
    }
}

impl Output {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        keys.heading("Output");
        let file = path().called("FILE");
        let json = keys
            .key(
                "json",
                "The result as JSON; - for FILE, here and below, prints it instead of the table",
            )
            .optional(&file);
        let hlog = keys
            .key("hlog", "The latencies of each second as a log for HdrHistogram's programs")
            .optional(&file);
        let csv = keys.key("csv", "A row for each second").optional(&file);
        let html = keys.key("html", "A page with charts that needs nothing else").optional(&file);
        let styles = [
            ("ab", "the fields of ab 2.3", Style::Ab),
            ("wrk", "the lines of wrk 4", Style::Wrk),
            ("httperf", "the sections of httperf 0.9", Style::Httperf),
        ];
        let style = keys
            .key("as", "Sum up in the terms of another program instead of the table")
            .optional(&one_of("program", styles).called("PROGRAM"));
        let is_quiet = keys.key("quiet", "No progress").short('q').switch();
        Some(Self {
            json: json?,
            hlog: hlog?,
            csv: csv?,
            html: html?,
            style: style?,
            is_quiet: is_quiet?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands above the keys on their page.
    const HEAD: &str = "\
# Settings of `pollux load`

Each is a flag, and a key of the TOML file that `--config FILE` names; a value means the same in both, and
a flag wins over the file. A load that is put on a server again and again is a file:

```toml
urls = [\"9@http://127.0.0.1:8080/\", \"1@http://127.0.0.1:8080/large\"]
connections = 256
rate = \"100..20000@60s\"
slo = \"p99=5ms\"
```

A key that is not known is a mistake, and all mistakes are told at once, each with its line. This page
is made from the table that the program reads by. [load-results.md](load-results.md) says what the
results mean.
";

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load-settings.md");
        let page = format!("{HEAD}{}", pollux_settings::reference::<LoadSettings>());
        pollux_settings::kept(path.as_ref(), &page).expect("the page is that of the table");
    }
}
