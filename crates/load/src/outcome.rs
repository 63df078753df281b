//! What a run has found: the one value that tables, files and the lab are made from.
//!
//! Times are nanoseconds, rates are per second, and the warm-up is in none of them.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_report::number::count;
use pollux_settings::size_text;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{AnswerStart, Distribution, Silence, Stall};

/// One of a few names. By itself serde would borrow the text that it reads.
type Name = &'static str;

/// The whole result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// When the measured part began, in seconds since 1970, UTC.
    pub began_unix_s: f64,
    /// How long it lasted: the time in which requests began. Of a run that ended by number it is
    /// the time until the last answer.
    #[serde(rename = "measured_s", with = "seconds")]
    pub measured: Duration,
    /// How long answers were waited for when no more requests began; in no rate.
    #[serde(rename = "waited_s", with = "seconds")]
    pub waited: Duration,
    /// Whether the run was ended before its end.
    pub was_ended_early: bool,
    /// What was answered within the measured time, whenever it was asked; `None` in results of before it was counted.
    #[serde(default)]
    pub in_time: Option<InTime>,
    /// How long answers took from when their requests were sent; `None` in results of before it was counted.
    #[serde(default)]
    pub sent_to_answer: Option<SentToAnswer>,
    /// What ran.
    pub setting: Setting,
    /// Requests, answers and bytes.
    pub totals: Totals,
    /// How many answers had each status; empty in results of before it was counted.
    #[serde(default)]
    pub statuses: BTreeMap<u16, u64>,
    /// From when a request was to begin (open loop) or was sent (closed loop) to the last byte
    /// of its answer. Right and wrong answers are in it; errors and what was never answered are
    /// only in its longest time, with what they had waited, and so are requests of the warm-up
    /// that lasted into the measured part.
    pub latency: Distribution,
    /// From the same start to the first byte of the answer.
    pub first_byte: Distribution,
    /// From the call of connect(2) to the connection.
    pub connect: Distribution,
    /// From connect to close, for connections that had an answer and were closed in the run.
    pub lifetime: Distribution,
    /// What HTTP/2 did; `None` where it was not spoken.
    #[serde(default)]
    pub http2: Option<Http2>,
    /// What went wrong, by kind.
    pub errors: Errors,
    /// What went wrong with requests of the warm-up; in no other count. Of an open loop `unsent` has those that had not
    /// begun at its end, and were dropped then.
    pub warm_up_errors: Errors,
    /// Why the first connection that was not established failed, and the remedy: the first of the measured time where
    /// there was one.
    pub first_failure: Option<String>,
    /// Whether that was before the measured time: no error that counts is of it.
    #[serde(default)]
    pub was_first_failure_early: bool,
    /// The first answer of the measured part that was wrong, or could not be read.
    #[serde(default)]
    pub first_wrong: Option<AnswerStart>,
    /// The first one that named another URL to ask.
    #[serde(default)]
    pub first_redirect: Option<AnswerStart>,
    /// How long requests had waited that were out when the run ended, neither answered nor failed;
    /// those of the warm-up too.
    pub unanswered: Distribution,
    /// Every time of a second or more in which nothing was answered although requests were out,
    /// warm-up included.
    pub standstills: Vec<Stall>,
    /// What is known of them; `None` without any, and in results of before it was counted.
    #[serde(default)]
    pub silence: Option<Silence>,
    /// What the figures had to keep to, and whether they did; empty when nothing was asked for.
    pub objectives: Vec<Judged>,
    /// Answers and errors by target, in the order of the plan.
    pub targets: Vec<TargetOutcome>,
    /// One entry for each second of the run, warm-up first.
    pub seconds: Vec<Second>,
    /// What the server did to the connections beside the active ones; empty without any.
    pub crowd: Vec<CrowdOutcome>,
    /// What the generator found about itself.
    pub generator: Generator,
    /// What the server used, where it was named; `None` otherwise.
    pub server: Option<ServerUse>,
    /// Each agent's part, where several put the load on the server together; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentOutcome>,
    /// What a reader has to know before believing the figures, worst first.
    pub findings: Vec<Finding>,
}

impl Outcome {
    /// Whether both are results of one run: no two begin in the same microsecond, measure as long, use the same CPU
    /// time and count the same.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        let of =
            |run: &Self| (run.began_unix_s.to_bits(), run.measured, run.generator.cpu, run.totals);
        of(self) == of(other)
    }

    /// The longest of the standstills, in seconds; `None` without any.
    #[must_use]
    pub fn longest_standstill_s(&self) -> Option<f64> {
        self.standstills.iter().map(|still| still.lasted_s).reduce(f64::max)
    }

    /// Answers per second that came whole within the measured time, whenever they were asked for.
    #[must_use]
    pub fn answered_per_s(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 { self.within().answered as f64 / seconds } else { 0.0 }
    }

    /// As [`Http2::streams_under_way`].
    pub(crate) fn streams_under_way(&self) -> Option<f64> {
        let took = self.sent_to_answer.filter(|took| took.answers > 0)?;
        let under_way = self.answered_per_s() * took.mean_ns / 1e9;
        (self.setting.connections > 0).then(|| under_way / f64::from(self.setting.connections))
    }

    /// Answers of the whole run, those to requests of the warm-up too.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.seconds.iter().map(|second| second.answered).sum()
    }

    /// What came within the measured time; in results of before that was counted, what came to its requests.
    #[must_use]
    pub fn within(&self) -> InTime {
        let Totals { answered, bytes_in, body_bytes_in, .. } = self.totals;
        match self.in_time {
            // No answer is without a byte: these were not counted yet.
            Some(in_time) if in_time.bytes_in == 0 && in_time.answered > 0 => {
                InTime { bytes_in, body_bytes_in, ..in_time }
            }
            Some(in_time) => in_time,
            None => InTime { answered, of_warm_up: 0, bytes_in, body_bytes_in },
        }
    }
}

/// What one agent had of a load that several put on a server together.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentOutcome {
    /// Its name.
    pub name: String,
    /// The name of its host.
    pub host: String,
    /// Why it was lost, if it was: then its answers are in no figure of the sum.
    pub lost: Option<String>,
    /// When, since requests began.
    pub lost_after_s: Option<f64>,
    /// Threads of its generator.
    pub threads: u32,
    /// Its active connections.
    pub connections: u32,
    /// Requests that it sent.
    pub sent: u64,
    /// Answers that it had; of one that was lost, as far as it had told.
    pub answered: u64,
    /// What went wrong, all kinds.
    pub errors: u64,
    /// Answers per second.
    pub answered_per_s: f64,
    /// Median of its latency.
    pub p50_ns: Option<u64>,
    /// The 99th percentile of it.
    pub p99_ns: Option<u64>,
    /// Its longest.
    pub max_ns: Option<u64>,
    /// How late its requests left, 99 of 100 no later.
    pub lag_p99_ns: Option<u64>,
    /// CPU time of its threads in the measured part.
    pub cpu_s: f64,
    /// Part of its time that its busiest thread worked, 0 to 1.
    pub busy_share: f64,
    /// How exactly its clock was known when requests began.
    pub clock_uncertainty_s: f64,
    /// What it found about itself as a generator.
    pub findings: Vec<Finding>,
}

/// Answers that came within the measured time: what the server did in it, whenever it was asked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InTime {
    /// Right or wrong.
    pub answered: u64,
    /// Of these, to requests of the warm-up, which were out when the measured time began. Their latencies are in no
    /// distribution.
    pub of_warm_up: u64,
    /// Bytes of these answers: heads and bodies.
    #[serde(default)]
    pub bytes_in: u64,
    /// Bytes of bodies in it.
    #[serde(default)]
    pub body_bytes_in: u64,
}

impl InTime {
    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.of_warm_up += other.of_warm_up;
        self.bytes_in += other.bytes_in;
        self.body_bytes_in += other.body_bytes_in;
    }
}

/// How long answers took from when their requests were sent, which shows whether requests queue in the server: at the
/// start of a run few are out.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct SentToAnswer {
    /// Answers that came within the measured time.
    pub answers: u64,
    /// Mean of their times; 0 without any.
    pub mean_ns: f64,
    /// Answers to the first requests that each thread sent, those of the warm-up too.
    pub first_answers: u64,
    /// Mean of their times; 0 without any.
    pub first_mean_ns: f64,
}

impl SentToAnswer {
    pub(crate) fn add(&mut self, other: &Self) {
        let mean = |(a, a_ns): (u64, f64), (b, b_ns): (u64, f64)| {
            let all = a + b;
            let sum_ns = a as f64 * a_ns + b as f64 * b_ns;
            (all, if all > 0 { sum_ns / all as f64 } else { 0.0 })
        };
        (self.answers, self.mean_ns) =
            mean((self.answers, self.mean_ns), (other.answers, other.mean_ns));
        (self.first_answers, self.first_mean_ns) = mean(
            (self.first_answers, self.first_mean_ns),
            (other.first_answers, other.first_mean_ns),
        );
    }
}

/// What ran, for readers of the result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The targets' URLs.
    pub urls: Vec<String>,
    /// How many different requests were sent in their place, and in which order; `None` without a
    /// list of them.
    pub listed: Option<String>,
    /// The driver's name.
    pub driver: String,
    /// Threads of the generator.
    pub threads: u32,
    /// Active connections.
    pub connections: u32,
    /// Requests under way on one connection of HTTP/1.1.
    pub pipeline: u32,
    /// Which HTTP was asked for, as `--http` has it.
    #[serde(default = "http1")]
    pub http: String,
    /// Which was spoken: `1.1`, `2` or, with several servers behind one address, `1.1 and 2`; empty without a connection.
    #[serde(default = "http1")]
    pub spoken: String,
    /// Streams under way on one connection of HTTP/2.
    #[serde(default = "one")]
    pub streams: u32,
    /// Windows of a stream and of a connection, in bytes; `None` where HTTP/2 was not spoken.
    #[serde(default)]
    pub windows: Option<(u32, u32)>,
    /// Pause of a client between an answer and its next request.
    #[serde(default)]
    pub think_s: f64,
    /// Requests after which a connection is closed.
    pub requests_per_connection: Option<u32>,
    /// "closed", or the schedule in the words of `--rate`.
    pub pace: String,
    /// Average rate that the schedule asks for over the measured time.
    pub asked_per_s: Option<f64>,
    /// Time without counting at the start.
    pub warm_up_s: f64,
    /// The quantiles that tables show, 0 to 1, rising.
    pub quantiles: Vec<f64>,
}

impl Setting {
    /// The windows that were announced, where HTTP/2 was spoken.
    pub(crate) fn windows_in_words(&self) -> String {
        let Some((stream, connection)) = self.windows else { return "none".to_owned() };
        let [stream, connection] = [stream, connection].map(|bytes| size_text(u64::from(bytes)));
        format!("{stream} of a stream, {connection} of a connection")
    }
}

/// What results of before were: without other protocols.
fn http1() -> String {
    "1.1".to_owned()
}

fn one() -> u32 {
    1
}

/// What HTTP/2 did in the measured time.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Http2 {
    /// Connections opened that spoke it.
    pub connections: u64,
    /// Connections of the whole run whose server allows fewer streams than were asked for.
    pub connections_limited: u64,
    /// The least that one of these allows.
    pub streams_allowed: Option<u32>,
    /// Requests sent again: they stood above the last stream of a GOAWAY, or were refused (`refused_stream`), so that the
    /// server had not looked at them. Latency counts from their first start.
    pub resent: u64,
    /// GOAWAYs of the server, by the name of their code.
    pub goaways: BTreeMap<String, u64>,
    /// Streams that the server has reset, by the name of their code.
    pub resets: BTreeMap<String, u64>,
    /// Bytes of field blocks received.
    pub header_bytes_in: u64,
    /// And sent.
    pub header_bytes_out: u64,
    /// The heads that came as HTTP/1.1 would have them, in lines of text; 0 in results of before it was counted.
    #[serde(default)]
    pub header_text_bytes_in: u64,
    /// And those that were sent.
    #[serde(default)]
    pub header_text_bytes_out: u64,
    /// Frames that came, by the name of their kind.
    #[serde(default)]
    pub frames_in: BTreeMap<String, u64>,
    /// And those that were sent.
    #[serde(default)]
    pub frames_out: BTreeMap<String, u64>,
    /// Streams under way on a connection on average: the rate times the mean time from sending to the answer (Little's law),
    /// over all connections; `None` without answers.
    #[serde(default)]
    pub streams_under_way: Option<f64>,
    /// Times that a request's body waited for a window of the server.
    pub window_stalls: u64,
}

impl Http2 {
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.connections_limited += other.connections_limited;
        self.streams_allowed = least(self.streams_allowed, other.streams_allowed);
        self.resent += other.resent;
        self.header_text_bytes_in += other.header_text_bytes_in;
        self.header_text_bytes_out += other.header_text_bytes_out;
        for (mine, others) in [
            (&mut self.goaways, &other.goaways),
            (&mut self.resets, &other.resets),
            (&mut self.frames_in, &other.frames_in),
            (&mut self.frames_out, &other.frames_out),
        ] {
            for (code, count) in others {
                *mine.entry(code.clone()).or_default() += count;
            }
        }
        self.header_bytes_in += other.header_bytes_in;
        self.header_bytes_out += other.header_bytes_out;
        self.window_stalls += other.window_stalls;
    }
}

/// Requests, answers and bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// Requests whose turn came, whether or not they could be sent.
    pub due: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers that came whole, right or wrong.
    pub answered: u64,
    /// Requests sent that were neither answered nor failed when the run ended.
    pub unanswered: u64,
    /// Answers that were right.
    pub right: u64,
    /// Answers that named another URL to ask (301, 302, 303, 307, 308) where no status was
    /// expected by name; neither right nor wrong.
    pub redirected: u64,
    /// Answers by the first digit of their status; index 0 counts those outside 100 to 599.
    pub by_class: [u64; 6],
    /// Connections opened.
    pub connects: u64,
    /// Cookies that answers set, or deleted; where they are kept.
    pub cookies_set: u64,
    /// Cookies that were not kept: too many of a connection, too long, or without a name.
    pub cookies_refused: u64,
    /// Bytes sent, as the sessions see them (before TLS).
    pub bytes_out: u64,
    /// Bytes received: heads and bodies.
    pub bytes_in: u64,
    /// Bytes of bodies in it.
    pub body_bytes_in: u64,
    /// Body length of the first answer, which `ab` compares all others with.
    pub first_body_bytes: Option<u64>,
    /// Answers whose body is longer or shorter than the first one's; `None` where threads saw
    /// several lengths and first ones that differ.
    pub unlike_first: Option<u64>,
}

/// What went wrong, by kind. A request is counted once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Errors {
    /// No connection: refused, unreachable, no port, no descriptor.
    pub connect: u64,
    /// Of these, because nobody listened there.
    #[serde(default)]
    pub connect_refused: u64,
    /// Of these, because no descriptor was left.
    pub connect_no_descriptor: u64,
    /// Of these, because the source addresses had no port left.
    pub connect_no_port: u64,
    /// Connect or answer took longer than allowed.
    pub timeout: u64,
    /// The server reset the connection.
    pub reset: u64,
    /// The server ended the connection before the answer was complete.
    pub short: u64,
    /// What came can't be read as an answer.
    pub malformed: u64,
    /// The status is not the expected one.
    pub status: u64,
    /// The body's length is not the expected one.
    pub mismatch: u64,
    /// The TLS session failed.
    pub tls: u64,
    /// The server reset the stream; `http2.resets` has the codes.
    #[serde(default)]
    pub stream_reset: u64,
    /// The server refused the stream (`refused_stream`) again and again.
    #[serde(default)]
    pub stream_refused: u64,
    /// The server gave up the connection with an error (GOAWAY) before the answer was complete.
    #[serde(default)]
    pub goaway: u64,
    /// Requests that were due and never sent, because no connection was free until the end.
    pub unsent: u64,
}

impl Errors {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| count).sum()
    }

    /// The kinds that occurred, as readers know them.
    pub(crate) fn in_words(&self) -> String {
        let kinds = self.named();
        let kinds = kinds.iter().map(|(name, found)| format!("{} {name}", count(*found)));
        kinds.collect::<Vec<_>>().join(", ")
    }

    /// The kinds of errors that occurred, each error in one of them, in words that follow their number.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        let explained = self.connect_refused + self.connect_no_descriptor + self.connect_no_port;
        let unexplained = match explained {
            0 => "could not connect",
            _ => "could not connect: other causes",
        };
        let named = [
            ("could not connect: refused", self.connect_refused),
            ("could not connect: no descriptor left", self.connect_no_descriptor),
            ("could not connect: no port left", self.connect_no_port),
            (unexplained, self.connect.saturating_sub(explained)),
            ("took longer than allowed", self.timeout),
            ("reset by the server", self.reset),
            ("ended before the answer was complete", self.short),
            ("could not be read as HTTP", self.malformed),
            ("had another status than expected", self.status),
            ("had a body of another length than expected", self.mismatch),
            ("failed in TLS", self.tls),
            ("were reset by the server, each its stream alone", self.stream_reset),
            ("were refused by the server again and again", self.stream_refused),
            ("ended with their connection, by a GOAWAY with an error", self.goaway),
            ("due but never sent", self.unsent),
        ];
        named.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Each kind, by the name of its field.
    pub(crate) fn kinds(&self) -> [(&'static str, u64); 12] {
        [
            ("connect", self.connect),
            ("timeout", self.timeout),
            ("reset", self.reset),
            ("short", self.short),
            ("malformed", self.malformed),
            ("status", self.status),
            ("mismatch", self.mismatch),
            ("tls", self.tls),
            ("stream_reset", self.stream_reset),
            ("stream_refused", self.stream_refused),
            ("goaway", self.goaway),
            ("unsent", self.unsent),
        ]
    }
}

/// One target's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetOutcome {
    /// Its URL.
    pub url: String,
    /// Its weight in the plan.
    pub weight: u32,
    /// Answers that came whole.
    pub answered: u64,
    /// What went wrong.
    pub errors: Errors,
    /// As [`Outcome::latency`].
    pub latency: Distribution,
}

/// One second of the run.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the start of the warm-up to its end.
    pub end_s: f64,
    /// Whether it belongs to the warm-up.
    pub is_warm_up: bool,
    /// Requests sent; those that began in the warm-up are in its seconds only.
    pub sent: u64,
    /// Answers that came whole.
    pub answered: u64,
    /// What went wrong; requests that were never sent stand where they were due.
    pub errors: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Active connections that were open at its end.
    pub open: u32,
    /// Latency of its answers, to two significant digits: long runs have many seconds. Answers
    /// to what began in the warm-up are only in seconds of the warm-up.
    pub latency: Distribution,
    /// CPU time of the generator's threads, without what they spun.
    pub generator_cpu_s: f64,
    /// CPU time of the server, where it was named.
    pub server_cpu_s: Option<f64>,
    /// Requests per second that the schedule asked for on average; none of a closed loop, and beyond the end.
    #[serde(default)]
    pub asked_per_s: Option<f64>,
}

/// One population beside the active connections.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct CrowdOutcome {
    /// "dead", "silent" or "slow".
    #[serde(deserialize_with = "crowd_kind")]
    pub kind: Name,
    /// How many were asked for.
    pub asked: u32,
    /// How many were connected.
    pub connected: u32,
    /// How many could not be connected.
    pub refused: u32,
    /// Answers that they had.
    pub answered: u64,
    /// Closed by the server in an orderly way.
    pub closed_by_server: u32,
    /// Reset by the server.
    pub reset_by_server: u32,
    /// Still open at the end.
    pub open_at_end: u32,
    /// From connection to the server's close: the shortest and the longest.
    pub closed_after_s: Option<(f64, f64)>,
    /// Time until all were set up.
    pub set_up_s: f64,
}

/// What a server of this machine used: its process and all that it started.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerUse {
    /// The process that was named.
    pub pid: u32,
    /// CPU time in the whole seconds of the measured part.
    pub cpu_s: f64,
    /// The same for each answer of these seconds, in microseconds.
    pub cpu_us_per_answer: Option<f64>,
}

/// What the generator found about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Generator {
    /// CPU time of its threads in the measured part.
    #[serde(rename = "cpu_s", with = "seconds")]
    pub cpu: Duration,
    /// The same for each answer, in microseconds.
    pub cpu_us_per_answer: Option<f64>,
    /// Part of its time that each thread worked, 0 to 1; without [`Generator::spun`].
    pub busy_share: Vec<f64>,
    /// CPUs that its threads may run on; `None` where the kernel does not say.
    pub cpus: Option<u32>,
    /// CPU time of all threads that was spent on waiting for the next intended start.
    #[serde(rename = "spun_s", with = "seconds")]
    pub spun: Duration,
    /// How much later than intended requests were sent although a connection was free (open
    /// loop); turn lengths in a closed loop.
    pub lag: Distribution,
    /// Why waits may last some 50 µs longer than asked for: the kernel refused a finer slack of timers
    /// (PR_SET_TIMERSLACK), as gVisor does.
    #[serde(default)]
    pub coarse_timers: Option<String>,
    /// Times of a tenth of a second or more in which a thread of it did not run although it was to;
    /// no standstill has them in its length.
    pub stalls: Vec<Stall>,
    /// Times that a thread was taken from its CPU.
    pub involuntary_switches: Option<u64>,
}

/// An objective and what became of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// In words: `p99 at most 5.00 ms`.
    pub text: String,
    /// The figure's name, as `--slo` has it.
    pub figure: String,
    /// Unit of limit and found: `ns`, `per_s`, `requests`, or `share` of the requests (0 to 1).
    #[serde(deserialize_with = "objective_unit")]
    pub unit: Name,
    /// The largest value that is right, of a rate the lowest.
    pub limit: f64,
    /// What the run had; `None` without answers.
    pub found: Option<f64>,
    /// The same in words.
    #[serde(skip)]
    pub found_text: Option<String>,
    /// Whether it was kept to.
    pub is_held: bool,
    pub broken_by: Option<String>,
}

/// Something that a reader has to know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What it is, for scripts.
    pub kind: FindingKind,
    /// One sentence with its figures.
    pub text: String,
    /// What to look at or change.
    pub advice: String,
}

/// Kinds of findings, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Nothing was answered.
    NoAnswers,
    /// An agent was lost in mid-run: the load was another one from then on.
    AgentLost,
    /// For a second or more nothing was answered although requests were out.
    Outage,
    /// The asked rate was not reached.
    RateMissed,
    /// The objective was not kept to.
    ObjectiveMissed,
    /// The generator itself did not run for a second or more: its latencies are its own.
    GeneratorStalled,
    /// The generator was the bottleneck: its figures are its own, not the server's.
    GeneratorBound,
    /// Requests left late although a connection was free.
    ScheduleLag,
    /// Answers wait for a delayed acknowledgement.
    DelayedAck,
    /// Answers named another URL to ask, which is not followed.
    Redirected,
    /// Requests were never answered, and had waited for a second or more.
    Unanswered,
    /// More than one request in a thousand failed.
    ManyErrors,
    /// Too few answers for the quantiles that are shown.
    FewAnswers,
}

/// One of these names.
fn one_of<'de, D: Deserializer<'de>>(
    from: D,
    names: &'static [&'static str],
) -> Result<&'static str, D::Error> {
    let name = String::deserialize(from)?;
    let known = names.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| D::Error::unknown_variant(&name, names))
}

fn crowd_kind<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    one_of(from, &["dead", "silent", "slow"])
}

fn objective_unit<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    one_of(from, &["ns", "per_s", "requests", "share"])
}

/// Durations as seconds with a fraction.
mod seconds {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        of: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(of.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
    }
}

/// The smaller of both, where there are two.
pub(crate) fn least(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}
