//! What a thread counts, the faults that it distinguishes, and why a connection was not established.
//!
//! Sessions write into the tally of their thread, without a lock; once a second it is handed
//! over as a whole and replaced by another. The gathering thread adds them up.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_http::h2::ErrorCode;
use pollux_sys::descriptors;
use pollux_tls::{AlertDescription, Error, Remedies};
use rustix::io::Errno;

use crate::answer::Answer;
use crate::frames::Frames;
use crate::kept_answer::Statuses;
use crate::outcome::least;
use crate::{Distribution, Errors, Expect, Http2, InTime, Plan, Protocol, Totals};

/// What a user of the generator can do about a certificate.
const REMEDIES: Remedies = Remedies {
    name_authority: "--cacert FILE",
    accept_any: "--insecure",
    name_server: "ask for the name that it is for",
};
/// An alert, which servers answer plain bytes with: the type of the record, and the version that all share.
const ALERT: [u8; 2] = [21, 3];
/// What servers answer a plain request with that understand it all the same: nginx, Go's and with it Caddy, Apache.
const SAID: [&[u8]; 3] = [b"to HTTPS port", b"to an HTTPS server", b"to an SSL-enabled server"];
/// They say it within so many bytes.
const SAID_WITHIN_BYTES: usize = 4096;

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Connect,
    Refused,
    NoDescriptor,
    NoPort,
    Timeout,
    Reset,
    Short,
    Malformed,
    Status,
    Mismatch,
    Tls,
    /// The server gave up the stream.
    StreamReset,
    /// It refused the stream again and again.
    StreamRefused,
    /// It gave up the connection, and said why.
    GoAway,
}

/// What an answer is to its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Right,
    /// It names another place to ask.
    Redirected,
    Wrong(Fault),
}

impl Verdict {
    /// Compares an answer with what was expected.
    #[inline]
    pub(crate) fn of(answer: &Answer, expect: &Expect) -> Self {
        let is_as_long = || expect.body_bytes.is_none_or(|len| answer.body_bytes == len);
        match Self::of_status(answer.status, expect.status) {
            Self::Right if !is_as_long() => Self::Wrong(Fault::Mismatch),
            verdict => verdict,
        }
    }

    /// Compares a status with the one that was expected, if one was.
    #[inline]
    pub(crate) fn of_status(status: u16, expected: Option<u16>) -> Self {
        let is_expected = match expected {
            Some(expected) => status == expected,
            None => (200..400).contains(&status),
        };
        match status {
            _ if !is_expected => Self::Wrong(Fault::Status),
            // RFC 9110, section 15.4: 300 and 304 do not redirect by themselves.
            301 | 302 | 303 | 307 | 308 if expected.is_none() => Self::Redirected,
            _ => Self::Right,
        }
    }
}

impl Fault {
    /// What `connect(2)` or a call before it said.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => Self::NoDescriptor,
            Some(Errno::ADDRNOTAVAIL) => Self::NoPort,
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::TIMEDOUT) => Self::Timeout,
            _ => Self::Connect,
        }
    }
}

impl Errors {
    pub(crate) fn count(&mut self, fault: Fault) {
        match fault {
            Fault::Connect => self.connect += 1,
            Fault::Refused => {
                self.connect += 1;
                self.connect_refused += 1;
            }
            Fault::NoDescriptor => {
                self.connect += 1;
                self.connect_no_descriptor += 1;
            }
            Fault::NoPort => {
                self.connect += 1;
                self.connect_no_port += 1;
            }
            Fault::Timeout => self.timeout += 1,
            Fault::Reset => self.reset += 1,
            Fault::Short => self.short += 1,
            Fault::Malformed => self.malformed += 1,
            Fault::Status => self.status += 1,
            Fault::Mismatch => self.mismatch += 1,
            Fault::Tls => self.tls += 1,
            Fault::StreamReset => self.stream_reset += 1,
            Fault::StreamRefused => self.stream_refused += 1,
            Fault::GoAway => self.goaway += 1,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.connect_refused += other.connect_refused;
        self.connect_no_descriptor += other.connect_no_descriptor;
        self.connect_no_port += other.connect_no_port;
        self.timeout += other.timeout;
        self.reset += other.reset;
        self.short += other.short;
        self.malformed += other.malformed;
        self.status += other.status;
        self.mismatch += other.mismatch;
        self.tls += other.tls;
        self.stream_reset += other.stream_reset;
        self.stream_refused += other.stream_refused;
        self.goaway += other.goaway;
        self.unsent += other.unsent;
    }
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.sent += other.sent;
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.right += other.right;
        self.redirected += other.redirected;
        for (class, count) in self.by_class.iter_mut().zip(other.by_class) {
            *class += count;
        }
        self.connects += other.connects;
        self.cookies_set += other.cookies_set;
        self.cookies_refused += other.cookies_refused;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.body_bytes_in += other.body_bytes_in;
        self.add_lengths(other);
    }

    /// Compares the length of a body with the first one's.
    #[inline]
    fn compare_length(&mut self, body_bytes: u64) {
        let first = *self.first_body_bytes.get_or_insert(body_bytes);
        let unlike = self.unlike_first.get_or_insert(0);
        *unlike += u64::from(body_bytes != first);
    }

    /// Where the first bodies differ, the others are all unlike ours if they are all alike; else their number
    /// is not known.
    fn add_lengths(&mut self, other: &Self) {
        let Some(first) = self.first_body_bytes else {
            (self.first_body_bytes, self.unlike_first) =
                (other.first_body_bytes, other.unlike_first);
            return;
        };
        let unlike = match other.first_body_bytes {
            None => Some(0),
            Some(others) if others == first => other.unlike_first,
            Some(_) => other.unlike_first.filter(|unlike| *unlike == 0).map(|_| other.answered),
        };
        self.unlike_first = self.unlike_first.zip(unlike).map(|(ours, more)| ours + more);
    }
}

/// What HTTP/2 did, without names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Http2Tally {
    /// Connections that spoke it.
    pub(crate) connections: u64,
    /// Requests that were sent again, because the server had not looked at them.
    pub(crate) resent: u64,
    /// What the server has said, by the place of its code.
    pub(crate) goaways: [u64; ErrorCode::NAMED],
    pub(crate) resets: [u64; ErrorCode::NAMED],
    /// Field blocks without the heads of their frames.
    pub(crate) header_bytes_in: u64,
    pub(crate) header_bytes_out: u64,
    /// The same heads as lines of text.
    pub(crate) header_text_bytes_in: u64,
    pub(crate) header_text_bytes_out: u64,
    pub(crate) frames_in: Frames,
    pub(crate) frames_out: Frames,
    /// Times that a body had to wait for a window of the server.
    pub(crate) window_stalls: u64,
}

impl Http2Tally {
    fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.resent += other.resent;
        let codes = [(&mut self.goaways, other.goaways), (&mut self.resets, other.resets)];
        for (mine, others) in codes {
            mine.iter_mut().zip(others).for_each(|(mine, more)| *mine += more);
        }
        self.header_bytes_in += other.header_bytes_in;
        self.header_bytes_out += other.header_bytes_out;
        self.header_text_bytes_in += other.header_text_bytes_in;
        self.header_text_bytes_out += other.header_text_bytes_out;
        self.frames_in.add(&other.frames_in);
        self.frames_out.add(&other.frames_out);
        self.window_stalls += other.window_stalls;
    }

    /// The same with its names.
    pub(crate) fn named(&self, spoke: &Spoke) -> Http2 {
        let by_code = |counts: &[u64; ErrorCode::NAMED]| {
            let named = counts.iter().zip(0..).filter(|(count, _)| **count > 0);
            named.map(|(count, code)| (ErrorCode::of(code).name().to_owned(), *count)).collect()
        };
        Http2 {
            connections: self.connections,
            connections_limited: spoke.limited,
            streams_allowed: spoke.streams_allowed,
            resent: self.resent,
            goaways: by_code(&self.goaways),
            resets: by_code(&self.resets),
            header_bytes_in: self.header_bytes_in,
            header_bytes_out: self.header_bytes_out,
            header_text_bytes_in: self.header_text_bytes_in,
            header_text_bytes_out: self.header_text_bytes_out,
            frames_in: self.frames_in.named(),
            frames_out: self.frames_out.named(),
            streams_under_way: None,
            window_stalls: self.window_stalls,
        }
    }
}

/// What is counted of requests that begin in one part of the run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) totals: Totals,
    pub(crate) errors: Errors,
    pub(crate) http2: Http2Tally,
    pub(crate) statuses: Statuses,
    /// Latency of answers that came in one piece: their first byte is as late as their last.
    pub(crate) at_once: Distribution,
    /// Latency of the others.
    pub(crate) in_parts: Distribution,
    /// Their first bytes.
    pub(crate) first_of_parts: Distribution,
    /// How long requests had waited that were out at the end of the run.
    pub(crate) unanswered: Distribution,
    pub(crate) connect: Distribution,
    pub(crate) lifetime: Distribution,
    /// By target; empty when there is only one.
    pub(crate) targets: Vec<TargetTally>,
}

/// One target's part of a [`Tally`].
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetTally {
    pub(crate) answered: u64,
    pub(crate) errors: Errors,
    pub(crate) latency: Distribution,
}

impl Tally {
    /// An empty one for so many targets.
    pub(crate) fn new(targets: usize) -> Self {
        let targets = if targets > 1 { targets } else { 0 };
        Self { targets: vec![TargetTally::default(); targets], ..Self::default() }
    }

    /// Counts an answer that came whole.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        answer: &Answer,
        verdict: Verdict,
        latency_ns: u64,
        first_ns: u64,
        target: u32,
    ) {
        let totals = &mut self.totals;
        totals.answered += 1;
        totals.bytes_in += answer.wire_bytes;
        totals.body_bytes_in += answer.body_bytes;
        let class = usize::from(answer.status / 100);
        totals.by_class[if class < 6 { class } else { 0 }] += 1;
        totals.compare_length(answer.body_bytes);
        self.statuses.count(answer.status);
        match verdict {
            Verdict::Right => totals.right += 1,
            Verdict::Redirected => totals.redirected += 1,
            Verdict::Wrong(fault) => self.errors.count(fault),
        }
        if first_ns == latency_ns {
            self.at_once.record(latency_ns);
        } else {
            self.in_parts.record(latency_ns);
            self.first_of_parts.record(first_ns);
        }
        if let Some(target) = self.targets.get_mut(target as usize) {
            target.answered += 1;
            target.latency.record(latency_ns);
            if let Verdict::Wrong(fault) = verdict {
                target.errors.count(fault);
            }
        }
    }

    /// Counts a request without an answer.
    pub(crate) fn failed(&mut self, fault: Fault, target: Option<u32>) {
        self.errors.count(fault);
        if let Some(target) = target.and_then(|number| self.targets.get_mut(number as usize)) {
            target.errors.count(fault);
        }
    }

    /// Counts a request that was out when the run ended.
    pub(crate) fn cut_off(&mut self, waited_ns: u64) {
        self.totals.unanswered += 1;
        self.unanswered.record(waited_ns);
    }

    /// Adds `other` and empties it.
    pub(crate) fn take(&mut self, other: &mut Self) {
        self.totals.add(&std::mem::take(&mut other.totals));
        self.errors.add(&std::mem::take(&mut other.errors));
        self.http2.add(&std::mem::take(&mut other.http2));
        self.statuses.take(&mut other.statuses);
        for (mine, others) in [
            (&mut self.at_once, &mut other.at_once),
            (&mut self.in_parts, &mut other.in_parts),
            (&mut self.first_of_parts, &mut other.first_of_parts),
            (&mut self.unanswered, &mut other.unanswered),
            (&mut self.connect, &mut other.connect),
            (&mut self.lifetime, &mut other.lifetime),
        ] {
            mine.take(others);
        }
        for (mine, others) in self.targets.iter_mut().zip(&mut other.targets) {
            mine.answered += std::mem::take(&mut others.answered);
            mine.errors.add(&std::mem::take(&mut others.errors));
            mine.latency.take(&mut others.latency);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.totals, self.errors) = (Totals::default(), Errors::default());
        self.http2 = Http2Tally::default();
        self.statuses.clear();
        for times in [
            &mut self.at_once,
            &mut self.in_parts,
            &mut self.first_of_parts,
            &mut self.unanswered,
            &mut self.connect,
            &mut self.lifetime,
        ] {
            times.clear();
        }
        for target in &mut self.targets {
            (target.answered, target.errors) = (0, Errors::default());
            target.latency.clear();
        }
    }

    /// The latency of all answers.
    pub(crate) fn latency(&self) -> Distribution {
        let mut all = self.at_once.clone();
        all.add(&self.in_parts);
        all
    }

    /// The time to the first byte of all answers.
    pub(crate) fn first_byte(&self) -> Distribution {
        let mut all = self.at_once.clone();
        all.add(&self.first_of_parts);
        all
    }
}

/// Times of which only the mean is asked for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Times {
    pub(crate) count: u64,
    sum_ns: u64,
}

impl Times {
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds `other` and empties it.
    pub(crate) fn take(&mut self, other: &mut Self) {
        let Self { count, sum_ns } = std::mem::take(other);
        self.count += count;
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
    }

    /// 0 without any.
    pub(crate) fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64
    }
}

/// What one thread counted in about a second.
#[derive(Debug)]
pub(crate) struct Interval {
    /// Of requests that began in the warm-up.
    pub(crate) warm_up: Tally,
    /// Of all others.
    pub(crate) measured: Tally,
    pub(crate) lag: Distribution,
    /// The longest wait that is not in a latency of the measured part: of a request without an answer, or of
    /// one of the warm-up that lasted into it.
    pub(crate) longest_ns: u64,
    /// The longest wait that was over within the warm-up.
    pub(crate) warm_up_longest_ns: u64,
    /// Answers that came within the measured time.
    pub(crate) in_time: InTime,
    /// Answers that came after it. Of a run that ends by number its time lasts until the last of them.
    pub(crate) late: InTime,
    /// Times from sending to the answer: of those that came within the measured time.
    pub(crate) sent_to_answer: Times,
    /// And of the first requests of the thread.
    pub(crate) first_sent_to_answer: Times,
    /// Of the measured requests that were never sent, how many were due in each interval.
    pub(crate) unsent_in: BTreeMap<u32, u64>,
    /// Active connections that came about, by what they speak.
    pub(crate) spoke: Spoke,
}

/// How many connections spoke what, in the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spoke {
    pub(crate) http1: u64,
    pub(crate) http2: u64,
    /// Connections whose server allows fewer streams than were asked for, and the least that one allows.
    limited: u64,
    streams_allowed: Option<u32>,
}

impl Spoke {
    pub(crate) fn add(&mut self, other: Self) {
        self.http1 += other.http1;
        self.http2 += other.http2;
        self.limited += other.limited;
        self.streams_allowed = least(self.streams_allowed, other.streams_allowed);
    }

    /// Notes that a server allows so few streams, as it `is_first` done on a connection.
    pub(crate) fn note_limit(&mut self, allowed: u32, is_first: bool) {
        self.limited += u64::from(is_first);
        self.streams_allowed = least(self.streams_allowed, Some(allowed));
    }

    /// What was spoken, as versions of HTTP; nothing without a connection.
    pub(crate) fn in_words(self) -> &'static str {
        match (self.http1, self.http2) {
            (0, 0) => "",
            (_, 0) => "1.1",
            (0, _) => "2",
            _ => "1.1 and 2",
        }
    }
}

impl Interval {
    /// An empty one for so many targets.
    pub(crate) fn new(targets: usize) -> Self {
        Self {
            warm_up: Tally::new(targets),
            measured: Tally::new(targets),
            lag: Distribution::new(),
            longest_ns: 0,
            warm_up_longest_ns: 0,
            in_time: InTime::default(),
            late: InTime::default(),
            sent_to_answer: Times::default(),
            first_sent_to_answer: Times::default(),
            unsent_in: BTreeMap::new(),
            spoke: Spoke::default(),
        }
    }
}

/// Why a connection was not established. Only the first failure of a run is put into words; all are counted.
#[derive(Debug)]
pub(crate) enum Cause<'a> {
    /// What `connect(2)` or a call before it said.
    System(&'a io::Error),
    /// The loop refused: it has its most connections.
    Full,
    /// It took too long, a handshake of TLS included.
    Timeout,
    /// The socket broke before it could be used.
    Broken,
    /// The handshake failed.
    Handshake(&'a Error),
    /// The server ended the connection in the handshake.
    Ended,
    /// The server speaks TLS, and the URL does not.
    SpeaksTls,
    /// It answers HTTP/2 by HTTP/1.
    SpeaksHttp1,
    /// It does not offer HTTP/2 in TLS.
    NoHttp2,
    /// It gives up each connection before it answers anything.
    GivesUp(ErrorCode),
}

/// Whether what came on a connection of HTTP/2 is an answer of HTTP/1.
#[cold]
pub(crate) fn shows_http1(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.")
}

/// Whether what came for a plain request says that the server speaks TLS.
#[cold]
pub(crate) fn shows_tls(answer: &[u8]) -> bool {
    let start = &answer[..answer.len().min(SAID_WITHIN_BYTES)];
    let says = |said: &&[u8]| start.windows(said.len()).any(|part| part == *said);
    start.starts_with(&ALERT) || SAID.iter().any(says)
}

/// Puts causes into words for one server.
#[derive(Debug)]
pub(crate) struct Blame {
    peer: ListenAddress,
    /// Other addresses of its name, which were tried before.
    in_vain: Vec<ListenAddress>,
    /// The name that its certificate is to have, where it is to have one.
    tls_name: Option<String>,
    http: Protocol,
    connect_timeout: Duration,
}

impl Blame {
    pub(crate) fn new(plan: &Plan) -> Self {
        let target = &plan.targets[0];
        Self {
            peer: target.address.clone(),
            in_vain: target.in_vain.clone(),
            tls_name: target.tls_name.clone(),
            http: plan.http,
            connect_timeout: plan.connect_timeout,
        }
    }

    /// Whether the URL is a plain one.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls_name.is_none()
    }

    /// What `cause` counts as.
    pub(crate) fn fault(&self, cause: &Cause<'_>) -> Fault {
        match cause {
            Cause::System(error) => Fault::of_connect(error),
            Cause::Timeout => Fault::Timeout,
            Cause::Handshake(_) | Cause::Ended | Cause::SpeaksTls | Cause::NoHttp2 => Fault::Tls,
            Cause::SpeaksHttp1 => Fault::Malformed,
            Cause::GivesUp(_) => Fault::GoAway,
            Cause::Broken if self.tls_name.is_some() => Fault::Tls,
            Cause::Broken | Cause::Full => Fault::Connect,
        }
    }

    /// What happened, and what to do.
    pub(crate) fn words(&self, cause: &Cause<'_>) -> String {
        match (cause, &self.tls_name) {
            (Cause::System(error), _) => self.connect(error),
            (Cause::Full, _) => self.failed("the loop has its most connections"),
            (Cause::Timeout, None) => self.failed(&format!(
                "no answer within {:?}; check the address, or give a longer \
                 --connect-timeout",
                self.connect_timeout
            )),
            (Cause::Broken, None) => self.failed("the connection broke; look at the server's log"),
            (Cause::Timeout, Some(name)) => self.tls(
                name,
                &format!(
                    "no answer within {:?}; does the server speak TLS (is it http://?)",
                    self.connect_timeout
                ),
            ),
            (Cause::Broken | Cause::Ended, name) => self.tls(
                name.as_deref().unwrap_or_default(),
                "the server ended the connection in the handshake; does it speak TLS (is it \
                 http://?)",
            ),
            (Cause::SpeaksTls, _) => {
                format!("the server at {} speaks TLS; use https://", self.peer)
            }
            (Cause::SpeaksHttp1, _) => format!(
                "the server at {} answers HTTP/2 by HTTP/1; use --http 1.1, or a server that speaks HTTP/2 in clear \
                 text (prior knowledge)",
                self.peer
            ),
            (Cause::GivesUp(code), _) => format!(
                "the server at {} gives up each connection before it answers anything (GOAWAY {}); look at its log",
                self.peer,
                code.name()
            ),
            (Cause::NoHttp2, name) => self.no_http2(name.as_deref().unwrap_or_default()),
            (Cause::Handshake(error), name) => {
                let name = name.as_deref().unwrap_or_default();
                match error {
                    Error::AlertReceived(AlertDescription::NoApplicationProtocol)
                        if self.http == Protocol::Http2 =>
                    {
                        self.no_http2(name)
                    }
                    error => self.tls(name, &REMEDIES.why(error)),
                }
            }
        }
    }

    fn connect(&self, error: &io::Error) -> String {
        match Fault::of_connect(error) {
            Fault::NoDescriptor => self.failed(descriptors::NONE_LEFT),
            Fault::NoPort => {
                self.failed("no port is left; give more addresses of this machine with --source")
            }
            _ => self.failed(&format!("{error}; check that the server runs there")),
        }
    }

    fn failed(&self, why: &str) -> String {
        let others: Vec<String> = self.in_vain.iter().map(ToString::to_string).collect();
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(" (nor to {}, which the name has too)", others.join(", "))
        };
        format!("can't connect to {}{others}: {why}", self.peer)
    }

    fn no_http2(&self, name: &str) -> String {
        self.tls(
            name,
            "the server does not offer HTTP/2 (ALPN h2); use --http auto for what it offers, or --http 1.1",
        )
    }

    fn tls(&self, name: &str, why: &str) -> String {
        let at = match &self.peer {
            ListenAddress::Tcp(address) if name.contains(':') => {
                format!("[{name}]:{}", address.port())
            }
            ListenAddress::Tcp(address) => format!("{name}:{}", address.port()),
            ListenAddress::Unix(path) => format!("{name} at {}", path.display()),
        };
        format!("TLS with {at} failed: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lengths(lengths: &[u64]) -> Totals {
        let mut totals = Totals { answered: lengths.len() as u64, ..Totals::default() };
        lengths.iter().for_each(|length| totals.compare_length(*length));
        totals
    }

    #[test]
    fn an_answer_is_right_or_redirected_or_wrong() {
        use Verdict::{Redirected, Right, Wrong};
        let any = Expect::default();
        let named = Expect { status: Some(302), body_bytes: None };
        let long = Expect { status: None, body_bytes: Some(5) };
        for (status, of_any, of_named, of_long) in [
            (200, Right, Wrong(Fault::Status), Wrong(Fault::Mismatch)),
            (302, Redirected, Right, Redirected),
            (308, Redirected, Wrong(Fault::Status), Redirected),
            (304, Right, Wrong(Fault::Status), Wrong(Fault::Mismatch)),
            (404, Wrong(Fault::Status), Wrong(Fault::Status), Wrong(Fault::Status)),
        ] {
            let answer = Answer { status, keep_alive: true, body_bytes: 0, wire_bytes: 40 };
            let found = [&any, &named, &long].map(|expect| Verdict::of(&answer, expect));
            assert_eq!(found, [of_any, of_named, of_long], "{status}");
        }
    }

    #[test]
    fn lengths_are_compared_with_the_first_over_all_tallies() {
        let mut all = of_lengths(&[]);
        for (lengths, unlike) in [
            (&[][..], None),
            (&[5, 5, 7], Some(1)),
            (&[5, 9], Some(2)),
            (&[], Some(2)),
            (&[8, 8, 8], Some(5)),
            // One of them may be a 5.
            (&[8, 9], None),
        ] {
            all.add(&of_lengths(lengths));
            assert_eq!(all.unlike_first, unlike, "{lengths:?}");
        }
        assert_eq!(all.first_body_bytes, Some(5));
    }
}
