//! The proxy between fuzzed clients and fuzzed backends.
//!
//! | file | what it does |
//! |---|---|
//! | `strict` | reads messages, and refuses everything doubtful |
//! | `requests` | makes requests, sound and odd ones |
//! | `witness` | backends that write down what reaches them; nginx as a second reader |
//! | `client` | sends requests, and judges what comes back |
//! | `answers` | backends that answer soundly and oddly |
//! | `asker` | clients that hold each answer to the id of its request, as a strict reader finds it |
//!
//! Here are the rounds, the numbers that follow from a seed, and whether the counters and the log of a proxy add up
//! at its end.
//!
//! Each test runs for `POLLUX_FUZZ_SECONDS` (by default a few), in rounds with a proxy of its own, each
//! on another mechanism. A failure names the seed of its round: `POLLUX_FUZZ_SEED` begins with it, and
//! `POLLUX_FUZZ_POLLER` stays with one mechanism.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pollux_stats::Rng;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::stage::Proxy;
use client::{Done, Tally};
use strict::mark;
use witness::{Nginx, Seen, Witness};

mod answers;
mod asker;
mod client;
mod requests;
mod strict;
mod witness;

/// Faults that a failure shows in full.
const FAULTS_SHOWN: usize = 5;
/// Clients at once.
const CLIENTS: u64 = 4;
/// The longest round: what backends have seen is kept until its end.
const ROUND_MAX: Duration = Duration::from_secs(15);
/// What a round runs on where nothing else is said.
const POLLERS: [&str; 4] = ["epoll", "epoll-et", "uring", "uring-poll"];

struct Round {
    seed: u64,
    poller: String,
    /// For how long clients begin to ask, from when the proxy runs.
    time: Duration,
}

/// Plays rounds until the time is over, at least one on each mechanism.
#[expect(clippy::print_stdout, reason = "the seed says how to do it again")]
fn rounds(mut play: impl FnMut(&Round)) {
    let set = |name: &str| std::env::var(name).ok();
    let seconds = set("POLLUX_FUZZ_SECONDS").map_or(2, |given| given.parse().expect("seconds"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = set("POLLUX_FUZZ_SEED").map_or(now.as_nanos() as u64, |given| {
        given.parse().expect("POLLUX_FUZZ_SEED is a number")
    });
    let pollers: Vec<String> = match set("POLLUX_FUZZ_POLLER") {
        Some(poller) => vec![poller],
        None => POLLERS.map(str::to_owned).to_vec(),
    };
    let time = Duration::from_secs(seconds);
    let each = (time / pollers.len() as u32).min(ROUND_MAX);
    let end = Instant::now() + time;
    let mut number = 0;
    while number < pollers.len() || Instant::now() < end {
        let poller = pollers[number % pollers.len()].clone();
        let seed = seed.wrapping_add(number as u64);
        println!("POLLUX_FUZZ_SEED={seed} POLLUX_FUZZ_POLLER={poller}");
        number += 1;
        play(&Round { seed, poller, time: each });
    }
}

/// A proxy for the round, with two threads that share connections. It keeps them for a moment only, so
/// that some are closed when a request comes. None where the kernel forbids the mechanism.
fn proxy(round: &Round, backends: &[SocketAddr], more: &str) -> Option<Proxy> {
    let more = format!(
        "poller = \"{}\"\nthreads = 2\nfall = 1000\ndown_time = \"1ms\"\n\
         upstream_idle_timeout = \"100ms\"\naccess_log = \"log\"\naccess_log_format = \"json\"\n{more}",
        round.poller
    );
    match Proxy::try_start(backends, &more) {
        Ok(proxy) => Some(proxy),
        Err(said) if round.poller.starts_with("uring") => {
            pollux_testing::skip(format_args!("{}: {said:?}", round.poller));
            None
        }
        Err(said) => panic!("{}: {said:#?}", round.poller),
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "figures for the reader")]
fn a_fuzzed_client_gets_its_own_answers_and_smuggles_nothing() {
    rounds(|round| {
        let witness = Arc::new(Witness::default());
        let direct = witness::direct(witness.clone());
        let origin = witness::origin(witness.clone());
        let nginx = Nginx::start(origin.address);
        let tap = nginx.as_ref().map(|nginx| witness::tap(witness.clone(), nginx.socket()));
        let mut backends = vec![direct.address];
        backends.extend(tap.as_ref().map(|tap| tap.address));
        let Some(proxy) = proxy(round, &backends, "") else { return };
        let worker = proxy.one_worker(&[]);
        let end = Instant::now() + round.time;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let to = proxy.address;
                let seed = round.seed;
                let witness = witness.clone();
                std::thread::spawn(move || client::run(to, seed, number, end, &witness))
            })
            .collect();
        let done: Vec<_> =
            clients.into_iter().map(|client| client.join().expect("it does not panic")).collect();
        let ledger = close(proxy, worker);
        direct.end();
        if let Some(tap) = tap {
            tap.end();
        }
        drop(nginx);
        origin.end();
        let mut tally = Tally::default();
        done.iter().for_each(|done| tally.add(done.tally));
        println!("{tally:?}");
        println!("{ledger:?}");
        judge(round, &witness, &done, &ledger);
    });
}

#[test]
#[expect(clippy::print_stdout, reason = "figures for the reader")]
fn a_fuzzed_backend_answers_no_other_request() {
    rounds(|round| {
        let witness = Arc::new(Witness::default());
        let backends = [0, 1].map(|_| answers::fuzzed(round.seed, witness.clone()));
        let wait = answers::FIRST_BYTE_TIMEOUT.as_millis();
        let more = format!("first_byte_timeout = \"{wait}ms\"\nbody_timeout = \"{wait}ms\"");
        let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
        let Some(proxy) = proxy(round, &addresses, &more) else { return };
        let worker = proxy.one_worker(&[]);
        let end = Instant::now() + round.time;
        let clients: Vec<_> = (0..2 * CLIENTS)
            .map(|number| {
                let to = proxy.address;
                let seed = round.seed;
                let witness = witness.clone();
                std::thread::spawn(move || asker::run(to, seed, number, end, &witness))
            })
            .collect();
        let mut tally = asker::Tally::default();
        for client in clients {
            tally.add(client.join().expect("it does not panic"));
        }
        let ledger = close(proxy, worker);
        backends.into_iter().for_each(witness::Stand::end);
        println!("{tally:?}");
        println!("{ledger:?}");
        assert!(tally.compared > 0 && tally.own >= tally.requests / 4, "{tally:?}");
        let mut wrong = std::mem::take(&mut *witness.wrong.lock().expect("whole"));
        let crossed = witness.crossed.lock().expect("whole");
        wrong.retain(|fault| !crossed.iter().any(|name| fault.contains(name)));
        tell(round, &wrong);
    });
}

/// Whether all that backends have seen is what clients sent.
fn judge(round: &Round, witness: &Witness, done: &[Done], ledger: &Ledger) {
    let mut wrong = std::mem::take(&mut *witness.wrong.lock().expect("whole"));
    // Heads that were sent, with what is left of their number and that of whole bodies.
    let mut heads = HashMap::new();
    let mut wholes = HashMap::new();
    // Several clients may have sent what is forwarded as `*`.
    let mut by_target = HashMap::new();
    let mut as_sent = HashMap::<_, Vec<_>>::new();
    for sent in done.iter().flat_map(|done| &done.sent) {
        for asked in &sent.asked {
            let head = asked.as_forwarded();
            let target = head.split([' ', '\n']).nth(1).unwrap_or_default().to_owned();
            as_sent.entry(target.clone()).or_default().push(&asked.head.target);
            by_target.insert(target, (sent, head.clone()));
            if let Some(body) = &asked.body {
                *wholes.entry((head.clone(), mark(body))).or_insert(0_u64) += 1;
            }
            *heads.entry(head).or_insert(0_u64) += 1;
        }
    }
    let mut note = |seen: &Seen, why: &str| {
        let sent = by_target.get(&seen.target);
        let from = sent.map_or_else(String::new, |(sent, head)| {
            format!(
                "was sent as {head} on connection {}:\n{}",
                sent.name,
                sent.bytes.escape_ascii()
            )
        });
        wrong.push(format!("{why}: {} body {:?}\n{from}", seen.head, seen.body));
    };
    let direct = witness.direct.lock().expect("whole");
    let mut passed = HashMap::new();
    for seen in direct.iter() {
        let left = match seen.body {
            Some(body) => wholes.get_mut(&(seen.head.clone(), body)),
            None => heads.get_mut(&seen.head),
        };
        match left {
            Some(left @ 1..) => *left -= 1,
            Some(_) => note(seen, "a backend saw it more often than it was sent"),
            None => note(seen, "a backend saw what no client sent"),
        }
        let sent_as = as_sent.get(&seen.target).map_or(&[][..], Vec::as_slice);
        if !sent_as.iter().any(|target| ledger.targets.contains(*target)) {
            note(seen, "the access log does not have it");
        }
        if let Some(body) = seen.body {
            *passed.entry((seen.method.clone(), seen.target.clone(), body)).or_insert(0_u64) += 1;
        }
    }
    let by_nginx = witness.by_nginx.lock().expect("whole");
    for seen in by_nginx.iter() {
        let body = seen.body.unwrap_or_default();
        match passed.get_mut(&(seen.method.clone(), seen.target.clone(), body)) {
            Some(left @ 1..) => *left -= 1,
            _ => note(seen, "nginx read a request that the proxy did not send so"),
        }
    }
    assert!(!direct.is_empty(), "no request reached a backend");
    tell(round, &wrong);
}

/// Fails with the first faults, and with the seed that shows them again.
fn tell(round: &Round, wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "POLLUX_FUZZ_SEED={} POLLUX_FUZZ_POLLER={}: {} faults, the first ones:\n{}",
        round.seed,
        round.poller,
        wrong.len(),
        wrong[..wrong.len().min(FAULTS_SHOWN)].join("\n\n")
    );
}

/// What a proxy says that it did.
#[derive(Default)]
struct Ledger {
    /// Requests whose heads it understood.
    requests: u64,
    /// Answers that it gave, its own pages among them.
    answers: u64,
    faults: u64,
    retries: u64,
    taken_over: u64,
    stale: u64,
    unasked: u64,
    /// Targets in its log.
    targets: HashSet<String>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { requests, answers, faults, retries, taken_over, stale, unasked, .. } = self;
        write!(
            f,
            "proxy: {requests} requests, {answers} answers, {faults} faults, {retries} retries, \
             {taken_over} taken over, {stale} stale, {unasked} unasked"
        )
    }
}

/// Ends a proxy whose clients have gone: nothing is left open, all that came was answered or failed, and
/// each is one line of the log.
fn close(mut proxy: Proxy, worker: Pid) -> Ledger {
    proxy.await_metric("pollux_connections_open", "", 0);
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    assert_eq!(proxy.one_worker(&[]), worker, "the worker died");
    let sum = |name: &str| proxy.metric(name, "");
    let ledger = Ledger {
        requests: sum("pollux_http_requests_total"),
        answers: sum("pollux_http_answers_total"),
        faults: sum("pollux_proxy_faults_total"),
        retries: sum("pollux_proxy_retries_total"),
        taken_over: sum("pollux_proxy_taken_over_total"),
        stale: sum("pollux_proxy_stale_total"),
        unasked: sum("pollux_proxy_unasked_total"),
        targets: HashSet::new(),
    };
    assert_eq!(sum("pollux_http_log_lines_lost_total"), 0);
    let log = proxy.file("log");
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success(), "{:#?}", proxy.all_stderr_lines());
    let said = proxy.all_stderr_lines();
    assert!(!said.iter().any(|line| line.contains("panicked")), "{said:#?}");
    let lines = std::fs::read_to_string(log).expect("the log");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let count =
        |test: &dyn Fn(&Value) -> bool| lines.iter().filter(|line| test(line)).count() as u64;
    // Refused before it was a request, whether its line could be read or not; 405 and 421 answer whole requests.
    let is_refused = |line: &Value| {
        let is_whole = matches!(line["status"].as_u64(), Some(405 | 421));
        let is_bad = line["end"] == "client_bad_request" && line["state"].is_null();
        line["method"] == "" || is_bad && !is_whole
    };
    let is_request = |line: &Value| !is_refused(line);
    assert_eq!(count(&is_request), ledger.requests, "each request is one line");
    // What was refused here came nowhere: it has no state, and counts among the refusals.
    let has_failed = |line: &Value| line["state"].is_string();
    assert_eq!(count(&has_failed), ledger.faults, "each fault is one line");
    // 499 is that of a client that went before one.
    let has_answer = |line: &Value| line["status"] != 0 && line["status"] != 499;
    assert_eq!(count(&has_answer), ledger.answers, "each answer is one line");
    let is_answered = |line: &Value| is_request(line) && !has_failed(line);
    assert_eq!(count(&is_answered) + ledger.faults, ledger.requests, "answered or failed");
    let targets = lines.iter().filter_map(|line| line["target"].as_str());
    Ledger { targets: targets.map(str::to_owned).collect(), ..ledger }
}

/// A source of numbers.
struct Random(Rng);

impl Random {
    /// The source of this seed and these numbers: a thread, a connection, an attempt.
    fn new(seed: u64, numbers: &[u64]) -> Self {
        let of_all = |seed, number: &u64| Rng::stream(seed, *number).next_u64();
        Self(Rng::seeded(numbers.iter().fold(seed, of_all)))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below that one, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A length: mostly small, once in a hundred large.
    fn len(&mut self, large: usize) -> usize {
        match self.below(100) {
            0 => self.below(large),
            1..10 => self.below(5_000),
            10..30 => 0,
            _ => self.below(200),
        }
    }

    /// Cuts at which a stream of that length is sent in pieces: in one, in some, or byte by byte.
    fn cuts(&mut self, len: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = match self.below(8) {
            0 if len <= 600 => (1..len).collect(),
            0..4 if len > 1 => (0..1 + self.below(6)).map(|_| 1 + self.below(len - 1)).collect(),
            _ => Vec::new(),
        };
        cuts.sort_unstable();
        cuts.dedup();
        cuts.push(len);
        cuts
    }
}
