//! Settings of `pollux load`: flags, under the headings of its help text, and keys of a file.
//!
//! Each value is read by [`values`] or by the crate that it is for; what they mean together is
//! decided in [`plan`](super::plan).

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{Address, CpuList, Driver};
use pollux_load::campaign::{AgentName, OnLostAgent};
use pollux_load::{
    Arrival, CONNECTION_WINDOW, Objective, PARTS_MAX, PIPELINE_MAX, Protocol, RequestOrder,
    STREAM_WINDOW, STREAMS_MAX, Stage, THREADS_MAX, parse_rate,
};
use pollux_settings::{
    Flags, Keys, Kind, bytes, duration, integer, many, one_of, parsed, path, table,
};

use super::list::has_pattern;
use super::plan::times;
use super::values::{self, Weighted};
use crate::process_number::pid_kind;
use pollux_load::render::plural;

/// Default length of a run.
pub(crate) const DURATION: Duration = Duration::from_secs(10);
/// Default length of a trial of the search.
pub(crate) const TRIAL: Duration = Duration::from_secs(5);
/// What is not counted at the start of a run that has no number of requests.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);
/// Longest duration: more than a week of anything is a slip of the pen.
const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shortest time for something to happen in: the grain of the loops' deadlines.
const LENGTH_MIN: Duration = Duration::from_millis(1);
/// URLs at most: more of them belong into a file.
const URLS_MAX: usize = 1024;

/// Why flags of the broker need `--agents`.
const OF_AGENTS: &str = "it is for agents";

/// Objectives at most: more of them than figures that one can name would be a mistake.
const OBJECTIVES_MAX: usize = 64;
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

table! { keys, key;
    /// All settings of `pollux load`.
    #[derive(Clone, Debug)]
    pub(crate) struct LoadSettings {
        /// What to ask for, such as http://127.0.0.1:8080/; several, all of one server, are chosen by
        /// weight: 3@URL is asked for three times as often as 1@URL. Numbers in brackets stand for a
        /// request each: http://127.0.0.1:8080/item/[1-1000]
        pub(crate) urls: Vec<Weighted> = key.positional()
            .list(&parsed("[WEIGHT@]URL", "a URL, or 3@URL", values::weighted), 1..=URLS_MAX),

        #[heading("Request")]
        /// Method
        pub(crate) method: Option<String> = key.short('X').otherwise("GET, POST with a body")
            .optional(&parsed("METHOD", "one word, such as GET", values::method)),
        /// A further field of the request; may be repeated. Host takes the place of the URL's, which
        /// still says where to connect to
        pub(crate) fields as "headers": Vec<(String, String)> = key.flag("header").short('H')
            .list(&parsed("NAME: VALUE", "'NAME: VALUE'", values::field), 0..=usize::MAX),
        /// Body of the request: a text, or @FILE for what is in a file
        pub(crate) body: Option<Vec<u8>> =
            key.optional(&parsed("TEXT|@FILE", "a text, or @FILE", values::body)),
        /// Name and password for basic authentication; @FILE reads them from a file, where no other
        /// user of the machine sees them
        pub(crate) user: Option<String> = key.short('u')
            .optional(&parsed("NAME:PASSWORD|@FILE", "NAME:PASSWORD, or @FILE", values::basic)),
        /// Each connection keeps the cookies that answers set, up to 50, and sends them with its later
        /// requests, also when it was opened again
        pub(crate) keeps_cookies as "cookies": bool = key.switch(),
        /// Requests from this file, sent to host and port of the URL, a line for each:
        /// [METHOD] [WEIGHT@]URL, or a JSON object with url, method, headers, body and weight. A line
        /// that leaves one out has that of the flags
        pub(crate) requests_from: Option<PathBuf> = key.optional(&file()),
        /// Order of the requests of --requests-from, or of a pattern
        pub(crate) order: Option<RequestOrder> =
            key.otherwise("random where weights are given, else in-turn").optional(&order()),

        #[heading("Load")]
        // Enough to keep most servers busy on one machine, few enough that the latency is not all queue.
        /// Number of active connections, over all threads
        pub(crate) connections: u32 = key.short('c').default("64").one(&count(1)),
        /// End after this many requests, not counting the warm-up
        pub(crate) requests: Option<u64> = key.short('n').optional(&many(1..=u64::MAX)),
        /// End after this time, not counting the warm-up; with --requests after whichever comes first
        pub(crate) duration: Option<Duration> = key.short('d')
            .otherwise("10s, all of --rate where its last stage has an end, none with --requests")
            .optional(&length()),
        /// Time at the start whose requests are not counted. Those of --rate that have not begun at its end
        /// are dropped
        pub(crate) warm_up: Option<Duration> =
            key.otherwise("1s, none with --requests").optional(&pause()),
        /// Send requests at this rate per second, whether or not earlier ones were answered: 5000,
        /// 1000@10s,2000@20s for steps, 100..5000@60s for a ramp
        pub(crate) rate: Option<Vec<Stage>> = key.otherwise("as fast as answers come")
            .optional(&parsed("RATE", "a rate, steps or a ramp", parse_rate)),
        /// Spacing of the requests of --rate
        pub(crate) arrival: Arrival = key.default("constant").one(&arrival()),
        /// Time between an answer and the next request of its client, also where that takes a new connection
        pub(crate) think: Duration =
            key.excludes(&["rate", "find_capacity"]).default("0s").one(&pause()),
        /// Close a connection after this many requests and open another
        pub(crate) requests_per_connection: Option<NonZeroU32> = key.excludes(&["no_keepalive"])
            .optional(&integer(1..=u32::MAX.into()).map(NonZeroU32::new)).flatten(),
        /// Open a new connection for each request
        no_keepalive: bool = key.switch(),
        /// Requests in flight on one connection of HTTP/1.1 at the same time
        pub(crate) pipeline: u32 = key.default("1").one(&integer(1..=PIPELINE_MAX.into())),
        /// Which HTTP is spoken
        pub(crate) http: Protocol = key.default("1.1").one(&http()),
        /// Requests in flight on one connection of HTTP/2 at the same time, each on a stream. A server that
        /// allows fewer gets fewer
        pub(crate) streams: u32 = key.default("1").one(&integer(1..=STREAMS_MAX.into())),
        /// Bytes of an answer's body that a server may send on a stream of HTTP/2 before they are read; the
        /// default never holds one up
        pub(crate) window: u32 = key.default("1GiB").one(&window(STREAM_WINDOW)),
        /// The same for all streams of a connection together
        pub(crate) connection_window: u32 = key.default("1GiB").one(&window(CONNECTION_WINDOW)),
        /// Seed of everything random: Poisson arrivals, the choice among URLs
        pub(crate) seed: u64 = key.default("1").one(&integer(0..=u64::MAX)),

        #[heading("Connections beside the active ones")]
        /// Connections that send one request and then stay open and silent
        pub(crate) dead: u32 = key.default("0").one(&count(0)),
        /// Connections that never send anything
        pub(crate) silent: u32 = key.default("0").one(&count(0)),
        /// Connections that send their requests byte by byte
        pub(crate) slow: u32 = key.default("0").one(&count(0)),
        /// Time between two bytes of a slow connection
        pub(crate) drip: Duration =
            key.needs("slow", "it is for slow connections").default("1s").one(&length()),
        /// Open the crowd and no active connection, and hold it until standard input ends; then report
        /// it as JSON. The lab starts this beside a server
        pub(crate) holds as "hold": bool =
            key.hidden().excludes(&["find_capacity", "json"]).switch(),

        #[heading("Where from and where to")]
        /// CA certificates to trust for https (PEM)
        pub(crate) cacert: Option<PathBuf> =
            key.otherwise("the public CAs").optional(&file()),
        /// Accept any server certificate for https
        pub(crate) is_insecure as "insecure": bool = key.excludes(&["cacert"]).switch(),
        /// Client certificate for https, with its chain (PEM)
        cert: Option<PathBuf> =
            key.needs("key", "a certificate needs its key").optional(&file()),
        /// The private key of --cert (PEM)
        key: Option<PathBuf> = key.needs("cert", "belongs to a certificate").optional(&file()),
        /// Do a full TLS handshake on each connection instead of resuming sessions by tickets
        pub(crate) is_unresumed as "no_resumption": bool = key.switch(),
        /// Connect to this unix socket instead of the URL's host
        pub(crate) unix: Option<PathBuf> = key.excludes(&["sources"]).optional(&path()),
        /// Connect to this address instead of the URL's host; the Host field and the name expected in the
        /// certificate stay those of the URL
        pub(crate) connect_to: Option<Address> = key.excludes(&["unix"])
            .optional(&parsed("HOST:PORT", "HOST:PORT such as 127.0.0.1:8443", values::address_of)),
        /// Report the CPU time per answer of this process and of all that it starts: the server, on the
        /// same machine
        pub(crate) server_pid: Option<u32> = key.optional(&pid_kind()),
        /// Addresses that connections come from, in turn: 127.0.0.2,127.0.0.3 or 127.0.0.2-127.0.0.9;
        /// more of them give more ports
        pub(crate) sources: Vec<IpAddr> = key.flag("source").split_at_commas(|_| true)
            .list(&parsed("ADDRESS", "an IP address, or a range of them", values::sources), 0..=1024)
            .concat(),
        /// Threads of the generator
        pub(crate) threads: u32 = key.short('t').default("1").one(&integer(1..=THREADS_MAX.into())),
        /// CPUs that the threads are pinned to in turn, such as 0,2-3
        pub(crate) cpus: Option<CpuList> =
            key.optional(&parsed("LIST", "CPUs such as \"0,2-3\"", str::parse)),
        /// The generator's own event mechanism: {names}
        pub(crate) poller: Option<Driver> = key.otherwise("uring where it can be opened, else epoll-et")
            .optional(&one_of("poller", Driver::ALL.map(|driver| (driver.name(), "", driver)))),

        #[heading("Limits and expectations")]
        /// Longest time for a connect; a slower one counts as an error
        pub(crate) connect_timeout: Duration = key.default("5s").one(&length()),
        /// Longest time for an answer; a slower one counts as an error, and its connection is closed. At the
        /// end of the run, answers that are still out are waited for 250 ms, or a second if none comes at
        /// all
        pub(crate) timeout: Duration = key.default("10s").one(&length()),
        /// Status of a good answer; any other counts as an error
        pub(crate) expect_status: Option<u16> =
            key.otherwise("any of 200 to 399").optional(&integer(100..=599).called("STATUS")),
        /// Body length of a good answer; any other counts as an error
        pub(crate) expect_bytes: Option<u64> =
            key.optional(&integer(0..=u64::MAX).called("BYTES")),
        /// An objective for a figure; may be repeated. A run that misses one ends with exit code 3. Times: p99=5ms, p99.9=250us, mean=, max=, and first-byte-p99=, connect-p99= and the like.
        /// Numbers or parts of the requests: errors=0.1%, redirects=0, unanswered=0, 4xx=1%, 5xx=0.
        /// Least answers per second: rate=5000
        pub(crate) objectives as "slo": Vec<Objective> = key.split_at_commas(|_| true).list(
            &parsed("FIGURE=LIMIT", "a figure and its limit, such as p99=5ms", str::parse),
            0..=OBJECTIVES_MAX,
        ),

        #[heading("Search for the capacity")]
        /// Find the highest rate that meets --slo. A rate is tried until two trials agree
        pub(crate) finds_capacity as "find_capacity": bool = key
            .excludes(&["rate", "requests", "duration", "as", "hlog", "csv"])
            .switch(),
        /// Length of each trial of --find-capacity
        pub(crate) trial: Option<Duration> =
            key.needs("find_capacity", "it is for the search").otherwise("5s").optional(&length()),
        /// Load from several hosts.
        pub(crate) several: Several = Several::read(keys),
        /// Where the result goes, and how it is shown.
        pub(crate) output: Output = Output::read(keys),
        /// Serve metrics of the run for Prometheus while it runs, at http://ADDRESS/metrics; port 0 takes a
        /// free one
        pub(crate) prometheus: Option<SocketAddr> =
            key.optional(&parsed("ADDRESS", "an address such as 127.0.0.1:9100", values::socket)),
        /// The percentiles that tables show, such as 50,95,99.99; JSON has them beside those that it
        /// always has
        pub(crate) quantiles as "percentiles": Vec<f64> = values::rising(
            key.otherwise("50,75,90,99,99.9").split_at_commas(|_| true).list(
                &parsed("PERCENT", "a percentile such as 99.9", values::quantile),
                0..=PERCENTILES_MAX,
            ),
        ),
    }
    => without_idle_flags
}

impl LoadSettings {
    /// How often a connection is used.
    pub(crate) fn requests_per_connection(&self) -> Option<NonZeroU32> {
        if self.no_keepalive { NonZeroU32::new(1) } else { self.requests_per_connection }
    }

    /// The certificate that is shown to servers.
    pub(crate) fn identity(&self) -> Option<pollux_load::Keys> {
        let (cert, key) = self.cert.clone().zip(self.key.clone())?;
        Some(pollux_load::Keys { cert, key })
    }

    /// Refuses flags that could do nothing beside the others.
    fn without_idle_flags(self, keys: &mut Keys<'_>) -> Self {
        let limits_latency = |each: &Objective| each.latency_quantile().is_some();
        if self.finds_capacity
            && !self.objectives.iter().any(limits_latency)
            && !keys.is_wrong("slo")
        {
            if keys.has("slo") {
                keys.note("slo", "no limit of the latency; expected one such as p99=5ms");
            } else {
                let why = "needs a latency objective; expected --slo, such as --slo p99=5ms";
                keys.note("find_capacity", why);
            }
        }
        if keys.has("arrival") && !keys.has("rate") && !keys.has("find_capacity") {
            keys.note("arrival", "it spaces the requests of --rate; expected --rate as well");
        }
        if let Some(requests) = self.requests_per_connection().map(NonZeroU32::get)
            && requests < self.pipeline
        {
            let requests = if requests == 1 {
                "one request".to_owned()
            } else {
                format!("{requests} requests")
            };
            let why = "in all, fewer than this; expected at most as many";
            keys.note("pipeline", format!("a connection has {requests} {why}"));
        }
        if let Some(requests) = self.requests_per_connection().map(NonZeroU32::get)
            && requests < self.streams
        {
            let requests = plural(requests.into(), "request");
            let why = format!("a connection has {requests} in all; expected at most as many");
            keys.note("streams", why);
        }
        if self.http == Protocol::Http1 {
            for name in ["window", "connection_window"]
                .into_iter()
                .filter(|name| keys.has(name))
                .collect::<Vec<_>>()
            {
                keys.note(name, "HTTP/1.1 has no windows; expected --http 2 or auto as well");
            }
        }
        self.without_idle_stages(keys);
        if !self.urls.is_empty() && !keys.is_wrong("urls") {
            self.fit_to_urls(keys);
        }
        self
    }

    /// Refuses a stage of the schedule that begins after the end of the run.
    fn without_idle_stages(&self, keys: &mut Keys<'_>) {
        let (warm_up, Some(after)) = times(self) else { return };
        let ends = warm_up + after;
        let mut begins = Duration::ZERO;
        for (at, stage) in self.rate.iter().flatten().enumerate() {
            if at > 0 && begins >= ends {
                let why = format!(
                    "stage {} would never begin: that is after {begins:?}, and the run ends after \
                     {ends:?}, warm-up included; give a longer --duration",
                    at + 1
                );
                return keys.note("rate", why);
            }
            begins += stage.lasts.unwrap_or_default();
        }
    }

    /// Refuses what is of no use for what is asked for.
    fn fit_to_urls(&self, keys: &mut Keys<'_>) {
        let is_list =
            keys.has("requests_from") || self.urls.iter().any(|each| has_pattern(&each.url));
        if keys.has("order") && !is_list {
            let why = "there is one request, or URLs by weight; expected --requests-from or a \
                       pattern such as [1-1000] in the URL";
            keys.note("order", why);
        }
        let is_random = self.arrival == Arrival::Poisson || is_list || self.urls.len() > 1;
        if keys.has("seed") && !is_random {
            let why = "nothing is random in this run; expected --arrival poisson or several URLs";
            keys.note("seed", why);
        }
        let is_plain = |each: &Weighted| {
            each.url.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("http"))
        };
        if self.urls.iter().all(is_plain) {
            let of_tls = ["insecure", "cacert", "no_resumption", "cert"];
            for name in of_tls.into_iter().filter(|name| keys.has(name)).collect::<Vec<_>>() {
                keys.note(name, "an http:// URL is not encrypted; it is for https://");
            }
        }
    }
}

table! { keys, key;
    /// Load from several hosts, by programs that wait for orders at a broker.
    #[derive(Clone, Debug)]
    pub(crate) struct Several {
        #[heading("Load from several hosts")]
        /// Have so many agents (pollux-agent) put the load on the server together, over a NATS broker: connections,
        /// requests and rate are those of all, --threads those of each
        pub(crate) agents: Option<u32> = key.excludes(&["hold", "sources", "unix", "cpus", "server_pid"])
            .optional(&integer(1..=PARTS_MAX.into())),
        /// Addresses of the broker's servers, with commas between them; tls:// demands encryption
        pub(crate) nats: Option<String> = key.needs("agents", OF_AGENTS)
            .otherwise("nats://127.0.0.1:4222").optional(&parsed("URL", "nats://HOST:PORT", word)),
        /// A file with what logs in to the broker: USER:PASSWORD or TOKEN
        pub(crate) nats_login: Option<PathBuf> = key.needs("agents", OF_AGENTS).optional(&file()),
        /// Certificates (PEM) that the broker's own is checked with, instead of the machine's
        pub(crate) nats_ca: Option<PathBuf> = key.needs("agents", OF_AGENTS).optional(&file()),
        /// The group whose agents are asked
        pub(crate) group: Option<AgentName> = key.needs("agents", OF_AGENTS).otherwise("default")
            .optional(&parsed("NAME", "letters, digits, - and _", str::parse)),
        /// What follows when an agent is lost in mid-run
        pub(crate) on_lost_agent: OnLostAgent = key.needs("agents", OF_AGENTS).default("stop").one(&on_lost()),
    }
}

table! { keys, key;
    /// Where the result goes, and how it is shown.
    #[derive(Clone, Debug)]
    pub(crate) struct Output {
        #[heading("Output")]
        /// Write the result as JSON; - for FILE, here and below, prints it instead of the table
        pub(crate) json: Option<PathBuf> = key.optional(&file()),
        /// Write the latencies of each second as an HdrHistogram log
        pub(crate) hlog: Option<PathBuf> = key.optional(&file()),
        /// Write a CSV row for each second
        pub(crate) csv: Option<PathBuf> = key.optional(&file()),
        /// Write a self-contained HTML page with charts
        pub(crate) html: Option<PathBuf> = key.optional(&file()),
        /// Print the summary in the form of another program instead of the table
        pub(crate) style as "as": Option<Style> = key.optional(&style()),
        /// Show no progress
        pub(crate) is_quiet as "quiet": bool = key.short('q').switch(),
    }
}

fn file() -> Kind<PathBuf> {
    path().called("FILE")
}

fn count(least: u64) -> Kind<u32> {
    integer(least..=u32::MAX.into())
}

fn length() -> Kind<Duration> {
    duration(LENGTH_MIN..=LENGTH_MAX)
}

fn pause() -> Kind<Duration> {
    duration(Duration::ZERO..=LENGTH_MAX)
}

fn order() -> Kind<RequestOrder> {
    let in_turn = "as they stand, and again; each thread begins at its own part";
    let orders = [
        ("in-turn", in_turn, RequestOrder::InTurn),
        ("random", "at random, by weight", RequestOrder::Random),
    ];
    one_of("order", orders).called("ORDER")
}

fn http() -> Kind<Protocol> {
    let known = "in clear text from the first byte on (prior knowledge); in TLS where the server offers it (ALPN h2)";
    let auto = "in TLS what the server prefers of both (ALPN); in clear text HTTP/1.1";
    let versions = [(Protocol::Http1, ""), (Protocol::Http2, known), (Protocol::Auto, auto)];
    one_of("version of HTTP", versions.map(|(version, about)| (version.name(), about, version)))
        .called("VERSION")
        .or_number()
}

fn window(bounds: RangeInclusive<u32>) -> Kind<u32> {
    bytes((*bounds.start()).into()..=(*bounds.end()).into())
}

fn arrival() -> Kind<Arrival> {
    let poisson = "random, as of independent users (exponential distances)";
    let ways = [("constant", "even", Arrival::Constant), ("poisson", poisson, Arrival::Poisson)];
    one_of("spacing", ways).called("KIND")
}

fn on_lost() -> Kind<OnLostAgent> {
    let stop = "the others end early, with their result";
    let others = "they continue with what is theirs";
    let ways = [("stop", stop, OnLostAgent::Stop), ("continue", others, OnLostAgent::Continue)];
    one_of("way", ways).called("WHAT")
}

fn word(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn style() -> Kind<Style> {
    let styles = [
        ("ab", "the fields of ab 2.3", Style::Ab),
        ("wrk", "the lines of wrk 4", Style::Wrk),
        ("httperf", "the sections of httperf 0.9", Style::Httperf),
    ];
    one_of("program", styles).called("PROGRAM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        let page = pollux_settings::reference::<LoadSettings>();
        pollux_settings::kept("reference/load-settings.md", "settings", &page)
            .expect("that of the table");
    }

    #[test]
    fn every_flag_and_key_takes_the_same_spellings() {
        assert_eq!(pollux_settings::misread::<LoadSettings>(), [""; 0]);
    }
}
