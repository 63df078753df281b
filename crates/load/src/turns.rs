//! A load that comes in turns, and two servers that run now, measured beside each other in turns of some
//! milliseconds.
//!
//! The lab calls [`Turns`]. Connections are opened once; between turns they stay open and idle, and no request is under
//! way, so that a server falls asleep when its turn is over, and what it has used belongs to the turns that were.
//!
//! Whole runs fall into moods of the machine that differ by more than most changes do. In [`beside`] both servers have
//! their connections open all the time, and take turns in random order: the change is formed within each
//! round, so what moves more slowly than a round falls out of it. A set is one opening of all connections; the
//! interval is that of sets. One thread asks; a closed loop alone makes sense.
//!
//! ```text
//!  set:  connections ─► warm-up ─► round: before, after │ after, before │ …    each: lead-in, turn, asleep
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use pollux_host::Tree;
use pollux_report::number::plural;
use pollux_stats::{mean, set_ratio, standard_deviation};
use pollux_sys::clock::{self, monotonic_ns};

use crate::active::Active;
use crate::compare::{Comparison, Moved, figure};
use crate::control::{Control, Start};
use crate::gather::tree_of;
use crate::plan::check;
use crate::requests::Requests;
use crate::schedule::{Budget, Supply};
use crate::session::Tls;
use crate::shared::{Reopen, Stage};
use crate::worker::{TIMEOUT_SLACK, WAIT_MAX, Worker, WorkerParts};
use crate::{CrowdOutcome, LoadError, Plan};

/// Rounds of a set: what differs between openings of connections is found by more sets.
const ROUNDS: usize = 40;
/// Sets at least, for an interval.
const SETS_MIN: usize = 4;
/// Length of a turn that is looked for.
const TURN: Duration = Duration::from_millis(5);
/// What of a turn goes before it and does not count, as caches are cold and a process wakes.
const LEAD_IN_PART: u64 = 4;
/// A turn that takes longer is given up.
const TURN_MAX: Duration = Duration::from_secs(5);
/// Between two looks whether a server sleeps, and looks at most.
const ASLEEP_LOOK: Duration = Duration::from_micros(50);
const ASLEEP_LOOKS_MAX: u32 = 200;
const SIDES: usize = 2;
/// What is found, in the order of the figures of a comparison.
const FOUND: [&str; 3] = ["mean", "server CPU", "generator CPU"];

/// What one turn brought.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Turned {
    /// Right answers to the requests of the turn.
    pub right: u64,
    /// Requests and connects that failed, those that were given up included.
    pub failed: u64,
    /// From the first request to the last answer.
    pub took: Duration,
}

/// A closed loop on the calling thread that runs in turns.
pub struct Turns {
    worker: Worker,
    opened: Turned,
    /// When the last turn was over.
    asleep_from_ns: u64,
    /// Whether what is under way is to be given up, where another thread may ask for that.
    stop: Option<Arc<AtomicBool>>,
}

/// After so long a sleep what servers did meanwhile is looked at before a turn begins: many close connections that were
/// idle for some seconds, and a request on such a one would be lost.
const SLEEP_LONG_NS: u64 = 100_000_000;

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    /// Opens the connections of `plan`, its crowd among them, on the calling thread. Each sends one request as soon as
    /// it is open, for some servers serve nobody else while they wait for it; where a connection carries one request
    /// only, none is opened before the first turn. The plan's end, its warm-up and its number of threads don't matter;
    /// its pace is a closed loop.
    ///
    /// # Errors
    /// [`LoadError`]: the plan makes no sense, its driver is not available, or the loop failed.
    /// Connections that were refused are tried again in the turns.
    pub fn open(plan: Plan) -> Result<Self, LoadError> {
        Self::open_until(plan, None)
    }

    /// The same; once `stop` is set, what is under way is given up, and a turn ends within some tens of milliseconds.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_until(plan: Plan, stop: Option<Arc<AtomicBool>>) -> Result<Self, LoadError> {
        let mut plan = Plan { threads: 1, warm_up: Duration::ZERO, ..plan };
        plan.reach();
        check(&plan)?;
        let tls = Tls::of(&plan)?;
        // There is no gathering thread: counts stay with the worker.
        let (sender, _) = channel();
        let (_, spares) = channel();
        let mut worker = Worker::open(WorkerParts {
            thread: 0,
            control: Arc::new(Control::new(1, Duration::ZERO, None, Start::WhenReady)),
            requests: Requests::new(&plan, 0)?,
            supply: Supply::Closed,
            budget: Budget::unlimited(),
            tls,
            sender,
            spares,
            plan: Arc::new(plan),
        })?;
        worker.set_up_crowd()?;
        let shared = worker.shared();
        (shared.stage, shared.end_ns, shared.is_in_turns) = (Stage::Running, 0, true);
        let mut turns = Self { worker, opened: Turned::default(), asleep_from_ns: 0, stop };
        turns.opened = turns.open_active()?;
        turns.asleep_from_ns = monotonic_ns();
        Ok(turns)
    }

    /// The first requests of all connections, as far as those were opened before the first turn.
    pub fn opened(&self) -> Turned {
        self.opened
    }

    /// Opens each connection with its first request, as many at a time as the plan allows; returns when each was
    /// answered or has failed once.
    fn open_active(&mut self) -> Result<Turned, LoadError> {
        let stop = self.stop.clone();
        let worker = &mut self.worker;
        let Plan { connections, pipeline, keeps_cookies, .. } = *worker.plan;
        let active = |slot| Active::new(slot, pipeline, keeps_cookies);
        let mut unopened: Vec<_> = (0..connections).rev().map(active).collect();
        let began_ns = monotonic_ns();
        let patience_ns = (worker.plan.request_timeout + TIMEOUT_SLACK).as_nanos() as u64;
        let is_wanted = !worker.plan.closes_after_one();
        worker.shared().budget = Budget::of_turn(u64::MAX);
        let mut now_ns = began_ns;
        while is_wanted && now_ns < worker.shared().last_answer_ns.max(began_ns) + patience_ns {
            while worker.may_open()
                && let Some(active) = unopened.pop()
            {
                worker.open_active(active);
            }
            let shared = worker.shared();
            let is_done = unopened.is_empty() && shared.under_way == 0 && shared.connecting == 0;
            if is_done || is_stopped(stop.as_deref()) {
                break;
            }
            worker.turn(WAIT_MAX)?;
            now_ns = monotonic_ns();
        }
        let reopen = |active| Reopen { active, at_ns: 0 };
        worker.shared().reopen.extend(unopened.into_iter().map(reopen));
        let given_up = worker.shared().under_way;
        let (right, failed) = self.counted();
        let took = Duration::from_nanos(now_ns - began_ns);
        Ok(Turned { right, failed: failed + given_up, took })
    }

    /// Requests begin for `length`, or until so many have begun where `requests` says so, on every
    /// connection as soon as the one before was answered. Returns when the last of them was answered
    /// or given up; then no request is under way.
    ///
    /// # Errors
    /// [`LoadError::Stopped`] when the loop failed. Requests that failed are counted.
    pub fn turn(&mut self, length: Duration, requests: Option<u64>) -> Result<Turned, LoadError> {
        if monotonic_ns() > self.asleep_from_ns + SLEEP_LONG_NS {
            self.look()?;
        }
        let (right, failed) = self.counted();
        let stop = self.stop.clone();
        let worker = &mut self.worker;
        let began_ns = monotonic_ns();
        let end_ns = began_ns + length.as_nanos() as u64;
        let give_up_ns = end_ns + (worker.plan.request_timeout + TIMEOUT_SLACK).as_nanos() as u64;
        worker.shared().end_ns = end_ns;
        worker.shared().budget = Budget::of_turn(requests.unwrap_or(u64::MAX));
        while let Some(id) = worker.shared().idle_queue.pop() {
            worker.event_loop.wake(id);
        }
        let mut now_ns = began_ns;
        while now_ns < give_up_ns && !is_stopped(stop.as_deref()) {
            let is_open = now_ns < end_ns && !worker.shared().is_spent();
            let is_sent_again = !worker.shared().again.is_empty();
            if is_open || is_sent_again {
                worker.open_again(now_ns);
                worker.give_again();
            } else if worker.shared().under_way == 0 && worker.shared().connecting == 0 {
                break;
            }
            // Woken by answers; when the time is up nothing has to be done but to see it.
            let until_ns = if is_open { end_ns } else { give_up_ns };
            worker.turn(Duration::from_nanos(until_ns - now_ns).min(WAIT_MAX))?;
            now_ns = monotonic_ns();
        }
        self.asleep_from_ns = now_ns;
        let given_up = worker.shared().under_way;
        let (right_now, failed_now) = self.counted();
        Ok(Turned {
            right: right_now - right,
            failed: failed_now - failed + given_up,
            took: Duration::from_nanos(now_ns - began_ns),
        })
    }

    /// What the server has done to the crowd since it was opened: what has become of the dead, the
    /// silent and the slow.
    ///
    /// # Errors
    /// [`LoadError::Stopped`] when the loop failed.
    pub fn crowd(&mut self) -> Result<[CrowdOutcome; 3], LoadError> {
        self.look()?;
        Ok(self.worker.shared().crowd.outcomes())
    }

    /// Sees all that happened since the last turn, without waiting.
    fn look(&mut self) -> Result<(), LoadError> {
        loop {
            self.worker.turn(Duration::ZERO)?;
            if !self.worker.shared().has_worked {
                return Ok(());
            }
        }
    }

    /// Why requests failed so far, as far as that is known: how many of each kind, the first connection that failed and
    /// the first wrong answer.
    pub fn why_failed(&mut self) -> Option<String> {
        let shared = self.worker.shared();
        let tally = &shared.interval.measured;
        let redirected = Some(tally.totals.redirected).filter(|count| *count > 0);
        let redirected = redirected.map(|count| plural(count, "redirect"));
        let kinds = Some(tally.errors.in_words()).filter(|kinds| !kinds.is_empty());
        let wrong = shared.firsts.wrong.as_ref().or(shared.firsts.redirect.as_ref());
        let wrong = wrong.map(|(_, start)| format!("the first: {}", start.in_short()));
        let kinds: Vec<String> = kinds.into_iter().chain(redirected).collect();
        let firsts = shared.first_failure.clone().into_iter().chain(wrong);
        let all =
            Some(kinds.join(", ")).filter(|kinds| !kinds.is_empty()).into_iter().chain(firsts);
        Some(all.collect::<Vec<_>>().join("; ")).filter(|why| !why.is_empty())
    }

    /// Right answers and failures so far.
    fn counted(&mut self) -> (u64, u64) {
        let tally = &self.worker.shared().interval.measured;
        (tally.totals.right, tally.errors.total() + tally.totals.redirected)
    }
}

fn is_stopped(stop: Option<&AtomicBool>) -> bool {
    stop.is_some_and(|stop| stop.load(Relaxed))
}

/// One of the two servers.
#[derive(Clone, Debug)]
pub struct ComparedServer {
    /// How it is asked; a closed loop.
    pub plan: Plan,
    /// Its process, for its CPU time.
    pub pid: Option<u32>,
}

/// Compares two servers for about this long, and at least four sets; ends early, after a round, once
/// `is_over` says so.
///
/// # Errors
/// [`LoadError`]: a plan makes no sense, a process is not there, a request failed, or it was over before
/// four sets were measured.
pub fn beside(
    sides: &[ComparedServer; SIDES],
    lasts: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<Comparison, LoadError> {
    let began = Instant::now();
    let mut random = fastrand::Rng::with_seed(sides[0].plan.seed);
    let mut trees = [tree(&sides[0])?, tree(&sides[1])?];
    let (mut sets, mut costs): (Vec<[Option<f64>; FOUND.len()]>, Costs) = Default::default();
    while sets.len() < SETS_MIN || began.elapsed() < lasts {
        let Some(set) = measured(sides, &mut trees, &mut random, is_over)? else { break };
        let ratio = |at: usize| {
            let of = |side: usize| set.iter().map(|round| round[side][at]).collect::<Vec<_>>();
            set_ratio(&of(1), &of(0)).map(|ratio| ratio.log_ratio)
        };
        sets.push(std::array::from_fn(ratio));
        for round in set {
            for (side, found) in round.into_iter().enumerate() {
                costs[side].push(found);
            }
        }
    }
    if sets.len() < SETS_MIN {
        let why = format!(
            "ended after {} of at least {SETS_MIN} sets of turns; so few say nothing",
            sets.len()
        );
        return Err(LoadError::Run { why });
    }
    let moved = FOUND.iter().enumerate().filter_map(|(at, name)| {
        let logs = sets.iter().map(|set| set[at]).collect::<Option<Vec<f64>>>()?;
        let error = standard_deviation(&logs)? / (logs.len() as f64).sqrt();
        let middle = |side: usize| {
            let mut values: Vec<f64> = costs[side].iter().map(|found| found[at]).collect();
            values.sort_unstable_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let error = Some((error, logs.len() as u32 - 1));
        let before = middle(0);
        let after = middle(1);
        Some((figure(name)?, Moved { before, after, centre: mean(&logs)?, error }))
    });
    Ok(Comparison::of_turns(&moved.collect::<Vec<_>>(), sets.len(), ROUNDS))
}

/// Of each side, what each of its turns took: latency, CPU time of the server and of this thread.
type Costs = [Vec<[f64; FOUND.len()]>; SIDES];

fn tree(side: &ComparedServer) -> Result<Option<Tree>, LoadError> {
    let Some(pid) = side.pid else { return Ok(None) };
    let refused =
        |error| LoadError::Plan { what: "the server's process", why: format!("{pid}: {error}") };
    tree_of(pid).map(Some).map_err(refused)
}

/// What a round found of each side.
type Round = [[f64; FOUND.len()]; SIDES];

/// The rounds of one set; nothing when it was over before the last of them.
fn measured(
    sides: &[ComparedServer; SIDES],
    trees: &mut [Option<Tree>; SIDES],
    random: &mut fastrand::Rng,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Vec<Round>>, LoadError> {
    let mut arms = [Turns::open(sides[0].plan.clone())?, Turns::open(sides[1].plan.clone())?];
    let connections = u64::from(sides[0].plan.connections);
    // Both warm up; the slower one says how many requests make a turn.
    let mut requests = u64::MAX;
    let turn = |arm: &mut Turns, side: usize, length, requests| {
        let turned = arm.turn(length, requests)?;
        sound(turned, side, &sides[side].plan, || arm.why_failed())
    };
    for (side, arm) in arms.iter_mut().enumerate() {
        turn(arm, side, TURN * 4, None)?;
        requests = requests.min(turn(arm, side, TURN, None)?.right);
    }
    let requests = requests.max(connections * 2);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        if is_over() {
            return Ok(None);
        }
        let mut round = [[0.0; FOUND.len()]; SIDES];
        let first = random.usize(..SIDES);
        for side in [first, 1 - first] {
            let lead_in = (requests / LEAD_IN_PART).max(connections);
            turn(&mut arms[side], side, TURN_MAX, Some(lead_in))?;
            let server = asleep(&mut trees[side]);
            let own = clock::thread_cpu();
            let turned = turn(&mut arms[side], side, TURN_MAX, Some(requests))?;
            let own = clock::thread_cpu().saturating_sub(own);
            let server = asleep(&mut trees[side]).saturating_sub(server);
            let each = |time: Duration| time.as_secs_f64() * 1e6 / turned.right as f64;
            // Each connection waits for its answers one after the other.
            let latency_ns = each(turned.took) * 1e3 * connections as f64;
            round[side] = [latency_ns, each(server), each(own)];
        }
        rounds.push(round);
    }
    Ok(Some(rounds))
}

/// A turn in which nothing failed: another one measures something else.
fn sound(
    turned: Turned,
    side: usize,
    plan: &Plan,
    why: impl FnOnce() -> Option<String>,
) -> Result<Turned, LoadError> {
    if turned.failed == 0 && turned.right > 0 {
        return Ok(turned);
    }
    let server = ["the first server", "the second server"][side];
    let url = plan.targets.first().map_or("", |target| &target.url);
    let what = match turned.failed {
        0 => "answered no request in a turn".to_owned(),
        failed => format!("failed {} of a turn", plural(failed, "request")),
    };
    let cause = why().map_or_else(String::new, |why| format!(" ({why})"));
    let why = format!("{server}, {url}, {what}{cause}; check it with: pollux load {url}");
    Err(LoadError::Run { why })
}

/// CPU time of a server once it sleeps; nothing where it is not known.
fn asleep(tree: &mut Option<Tree>) -> Duration {
    let Some(tree) = tree else { return Duration::ZERO };
    tree.cpu_time_asleep(|used| {
        let mut before = used();
        for _ in 0..ASLEEP_LOOKS_MAX {
            std::thread::sleep(ASLEEP_LOOK);
            let now = used();
            if now == before {
                return;
            }
            before = now;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::num::NonZeroU32;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use pollux_engine::Driver;
    use pollux_testing::uninterrupted;

    use super::*;
    use crate::{Crowd, End, Expect, Target};

    /// Counts the requests that it answers, and the connections.
    #[derive(Default)]
    struct Counts {
        requests: AtomicU64,
        connections: AtomicU64,
    }

    fn server(counts: &Arc<Counts>, closes: bool) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let counts = Arc::clone(counts);
        std::thread::spawn(move || {
            while let Ok((mut connection, _)) = listener.accept() {
                counts.connections.fetch_add(1, Relaxed);
                let counts = Arc::clone(&counts);
                std::thread::spawn(move || {
                    let mut request = [0; 4096];
                    while let Ok(1..) = connection.read(&mut request) {
                        counts.requests.fetch_add(1, Relaxed);
                        let answer: &[u8] = if closes {
                            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
                        } else {
                            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
                        };
                        if connection.write_all(answer).is_err() || closes {
                            break;
                        }
                    }
                });
            }
        });
        address
    }

    fn plan(to: SocketAddr, per_connection: Option<NonZeroU32>) -> Plan {
        let target = Target::parse(&format!("http://{to}/"), None).expect("a URL");
        Plan {
            connections: 4,
            end: End { requests: None, after: Some(Duration::from_secs(1)) },
            requests_per_connection: per_connection,
            expect: Expect { status: Some(200), body_bytes: Some(3) },
            ..Plan::new(vec![target], Driver::default())
        }
    }

    #[test]
    fn connections_outlive_their_turns_and_nothing_runs_between_them() {
        let counts = Arc::new(Counts::default());
        let address = server(&counts, false);
        let mut turns = Turns::open(plan(address, None)).expect("connections");
        assert_eq!(turns.opened().right, 4, "each connection has had its first answer");
        assert_eq!(counts.requests.load(Relaxed), 4);
        let mut answered = 4;
        for _ in 0..5 {
            let turned = turns.turn(Duration::from_millis(10), None).expect("a turn");
            assert!(turned.right >= 4, "{turned:?}");
            assert_eq!(turned.failed, 0, "{turned:?}");
            answered += turned.right;
            assert_eq!(counts.requests.load(Relaxed), answered);
        }
        assert_eq!(counts.connections.load(Relaxed), 4);
    }

    #[test]
    fn connections_that_were_closed_while_all_slept_cost_no_request() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            while let Ok((mut connection, _)) = listener.accept() {
                std::thread::spawn(move || {
                    connection
                        .set_read_timeout(Some(Duration::from_millis(120)))
                        .expect("a timeout");
                    let mut request = [0; 4096];
                    while let Ok(1..) = uninterrupted(|| connection.read(&mut request)) {
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
                        connection.write_all(answer).expect("an answer");
                    }
                });
            }
        });
        for driver in Driver::ALL {
            let plan = Plan { connections: 64, driver, ..plan(address, None) };
            let Some(mut turns) = pollux_testing::or_skip(Turns::open(plan)) else { continue };
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(400));
                let turned = turns.turn(Duration::from_millis(10), None).expect("a turn");
                let why = turns.why_failed();
                assert!(turned.right >= 64 && turned.failed == 0, "{driver}: {turned:?}: {why:?}");
            }
        }
    }

    #[test]
    fn a_crowd_without_active_connections_stays_and_those_closed_are_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let answer = |_| {
                let (mut connection, from) = listener.accept().expect("a connection");
                assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, 3));
                let len = connection.read(&mut [0; 4096]).expect("a request");
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                connection.write_all(answer).expect("an answer");
                (len, connection)
            };
            (0..600).map(answer).collect::<Vec<_>>()
        });
        let mut turns = Turns::open(Plan {
            connections: 0,
            crowd: Crowd { dead: 600, ..Crowd::default() },
            sources: vec![Ipv4Addr::new(127, 0, 0, 3).into()],
            ..plan(address, None)
        })
        .expect("a crowd");
        let mut held = server.join().expect("the server ends well");
        let dead = turns.crowd().expect("a look")[0];
        assert_eq!((dead.answered, dead.closed_by_server + dead.reset_by_server), (600, 0));
        held.truncate(23);
        let start = Instant::now();
        let mut closed = 0;
        while closed < 577 && start.elapsed() < Duration::from_secs(20) {
            let dead = turns.crowd().expect("a look")[0];
            closed = dead.closed_by_server + dead.reset_by_server;
        }
        assert_eq!(closed, 577, "and not one of those that are held");
    }

    #[test]
    fn a_connection_for_each_request_is_opened_anew_in_every_turn() {
        let counts = Arc::new(Counts::default());
        let address = server(&counts, true);
        let mut turns = Turns::open(plan(address, Some(NonZeroU32::MIN))).expect("connections");
        let mut answered = 0;
        for _ in 0..3 {
            let turned = turns.turn(Duration::from_millis(20), None).expect("a turn");
            assert!(turned.right >= 4, "{turned:?}");
            assert_eq!(turned.failed, 0, "{turned:?}");
            answered += turned.right;
        }
        assert_eq!(counts.requests.load(Relaxed), answered);
        assert!(counts.connections.load(Relaxed) >= answered);
    }

    /// Serves one connection at a time, each for one request, with room for so many that wait.
    fn one_by_one(backlog: i32) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        rustix::net::listen(&listener, backlog).expect("it listens");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            while let Ok((mut connection, _)) = listener.accept() {
                if connection.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
                    let answer = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc";
                    let _ = connection.write_all(answer);
                }
            }
        });
        address
    }

    /// Its server stood still until the time limit of those behind: it waited for a connection that had been opened
    /// when the turn was over, and had no request.
    #[test]
    fn a_server_that_serves_one_connection_at_a_time_never_waits_for_one_without_a_request() {
        for per_connection in [None, NonZeroU32::new(1)] {
            let address = one_by_one(64);
            let plan = Plan { connections: 16, ..plan(address, per_connection) };
            let mut turns = Turns::open(plan).expect("connections");
            for _ in 0..20 {
                let turned = turns.turn(Duration::from_millis(3), None).expect("a turn");
                assert!(turned.failed == 0 && turned.right >= 1, "{turned:?} {per_connection:?}");
            }
            assert_eq!(turns.why_failed(), None);
        }
    }

    #[test]
    fn connects_stay_below_a_small_backlog() {
        for per_connection in [None, NonZeroU32::new(1)] {
            let address = one_by_one(2);
            let most = NonZeroU32::new(2);
            let few = Plan { connections: 16, unproven_max: most, ..plan(address, per_connection) };
            let mut turns = Turns::open(few).expect("connections");
            let mut right = turns.opened().right;
            for requests in [1, 16, 200] {
                let turned = turns.turn(Duration::from_secs(20), Some(requests)).expect("a turn");
                assert_eq!((turned.right, turned.failed), (requests, 0), "{per_connection:?}");
                right += turned.right;
            }
            assert!(right >= 217, "{right}");
            if let Ok(Some(backlog)) = pollux_host::backlog_at(address) {
                assert_eq!((backlog.limit, backlog.dropped.unwrap_or(0)), (2, 0));
            }
        }
    }

    #[test]
    fn failures_are_counted_by_kind_with_the_first_of_them() {
        let address = one_by_one(64);
        let plan = plan(address, NonZeroU32::new(1));
        let wrong = Expect { status: Some(201), body_bytes: None };
        let mut turns = Turns::open(Plan { expect: wrong, ..plan }).expect("connections");
        turns.turn(Duration::from_secs(20), Some(3)).expect("a turn");
        let why = turns.why_failed().expect("all failed");
        assert!(why.starts_with("3 had another status than expected; the first: "), "{why}");
        assert!(why.contains("200 OK"), "{why}");
    }

    #[test]
    fn a_turn_of_so_many_requests_holds_exactly_those() {
        for per_connection in [None, NonZeroU32::new(1)] {
            let counts = Arc::new(Counts::default());
            let address = server(&counts, per_connection.is_some());
            let mut turns = Turns::open(plan(address, per_connection)).expect("connections");
            for requests in [1, 3, 4, 50] {
                let turned = turns.turn(Duration::from_secs(20), Some(requests)).expect("a turn");
                assert_eq!((turned.right, turned.failed), (requests, 0), "{per_connection:?}");
            }
            let opening = if per_connection.is_some() { 0 } else { 4 };
            assert_eq!(counts.requests.load(Relaxed), 58 + opening);
            assert_eq!(turns.opened().right, opening);
        }
    }
}
