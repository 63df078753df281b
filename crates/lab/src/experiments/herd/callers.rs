//! The callers of a herd: one process with a thread for each, which calls as soon as it was answered.
//!
//! [`serve`] receives over a [`ControlSocket`] an order to call for some time or so often ([`CallPlan`]), once for each turn, and
//! says what came of it ([`CallerMessage`]). A closed loop: what is under way at the end is waited for, so every
//! call that was counted was answered. What is called is a [`Target`]: the sources of the laboratory, the
//! service pool. The program in C (`raw.c`) sends and receives the same.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pollux_host::ControlSocket;
use pollux_settings::command::output::error_chain;
use pollux_stats::{LATENCY_DIGITS, LONGEST_NS};
use pollux_sys::clock;
use serde::{Deserialize, Serialize};

/// How long an answer may take after the end; the slowest that was seen took a second.
pub(super) const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Most intervals that are kept of a run: a thousand seconds of the usual ones.
const INTERVALS_MAX: usize = 10_000;
/// The quantiles that a run keeps, by the name of their figure.
const QUANTILES: [(&str, f64); 2] = [("latency_p50_us", 0.5), ("latency_p99_us", 0.99)];

/// Why a target could not be obtained, or a call failed.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// What is called. Each caller is a thread, so a call may block until it is answered.
pub(super) trait Target: Send + Sync + 'static {
    /// How many callers there are.
    fn callers(&self) -> usize;

    /// One call of a caller, answered; in the measured window, or in the ramp before it.
    ///
    /// # Errors
    /// Why there was no answer, or a wrong one. It ends the run.
    fn call(&self, caller: usize, is_window: bool) -> Result<(), Failure>;

    /// The processes of the workers, where the target has started them.
    fn workers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// What those did since the last call; called between runs.
    ///
    /// # Errors
    /// They can't be read.
    fn served(&self) -> Result<Option<Served>, Failure> {
        Ok(None)
    }

    /// Ends what the target has started.
    ///
    /// # Errors
    /// It did not end well.
    fn end(self) -> Result<(), Failure>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// What callers are to do; as four numbers, which a program in C reads as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub(super) struct CallPlan {
    /// Whether the calls are those of the window.
    pub(super) is_window: bool,
    /// How long new calls begin, where `calls` does not say so.
    pub(super) time_ms: u64,
    /// Length of an interval.
    pub(super) interval_ms: u64,
    /// Calls that each caller makes; 0 for as many as there is time for.
    pub(super) calls: u64,
}

impl From<[u64; 4]> for CallPlan {
    fn from([is_window, time_ms, interval_ms, calls]: [u64; 4]) -> Self {
        Self { is_window: is_window != 0, time_ms, interval_ms, calls }
    }
}

impl From<CallPlan> for [u64; 4] {
    fn from(plan: CallPlan) -> Self {
        [u64::from(plan.is_window), plan.time_ms, plan.interval_ms, plan.calls]
    }
}

/// What they report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallerMessage {
    /// The processes of the workers, where they are those of the program that calls.
    Workers(Vec<u32>),
    /// They are ready to call.
    Ready,
    /// What those workers did in the run that has just ended.
    Served(Served),
    /// An interval of the run that has just ended.
    Interval(Interval),
    /// The run has ended, and this came of it.
    Called(CallResult),
    /// A call failed, or what it needs could not be obtained.
    Failed(String),
}

/// What the workers of a program did that has both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Served {
    /// Calls that each of them answered.
    pub(super) calls: Vec<u64>,
    /// Times that they returned from waiting, and those that found nothing; none where they don't count.
    #[serde(default)]
    pub(super) waits: Option<[u64; 2]>,
}

impl Served {
    /// With what the same workers did in another run.
    pub(super) fn add(&mut self, other: Self) {
        self.calls.resize(other.calls.len(), 0);
        self.calls.iter_mut().zip(other.calls).for_each(|(sum, calls)| *sum += calls);
        let [waits, empty] = self.waits.unwrap_or_default();
        self.waits = other.waits.map(|[more, found]| [waits + more, empty + found]);
    }
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Interval {
    /// Its end, seconds after the start of the run.
    pub(super) end_s: f64,
    /// Calls that were answered per second.
    pub(super) calls_per_s: f64,
    /// Context switches of the whole machine per second; none where they can't be read.
    pub(super) machine_switches_per_s: Option<f64>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CallResult {
    /// Calls that were answered.
    pub(super) calls: u64,
    /// From the first request to the last answer.
    pub(super) elapsed_s: f64,
    /// Context switches of the whole machine meanwhile; none where they can't be read.
    pub(super) machine_switches: Option<u64>,
    /// CPU time of this process.
    pub(super) cpu_ns: u64,
    /// The part of it in user mode; none where it can't be read.
    pub(super) user_s: Option<f64>,
    /// And in the kernel.
    pub(super) system_s: Option<f64>,
    /// Latencies by name, in microseconds.
    pub(super) latencies: BTreeMap<String, f64>,
}

/// Calls as often as it is ordered to, until the other side of the socket is closed.
///
/// # Errors
/// [`pollux_host::Error`] when a failure can't be reported; one that is reported is not an error here.
pub(super) fn serve<T: Target>(
    control: &ControlSocket,
    open: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), pollux_host::Error> {
    served(control, open)
        .or_else(|failure| control.send(&CallerMessage::Failed(error_chain(&*failure)), &[]))
}

fn served<T: Target>(
    control: &ControlSocket,
    open: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let target = Arc::new(open()?);
    let workers = target.workers();
    if !workers.is_empty() {
        control.send(&CallerMessage::Workers(workers), &[])?;
    }
    control.send(&CallerMessage::Ready, &[])?;
    while let Some((plan, _)) = control.receive::<CallPlan>()? {
        let (called, intervals) = call_for(plan, &target, control)?;
        for interval in intervals {
            control.send(&CallerMessage::Interval(interval), &[])?;
        }
        if let Some(served) = target.served()? {
            control.send(&CallerMessage::Served(served), &[])?;
        }
        control.send(&CallerMessage::Called(called), &[])?;
    }
    // All threads of all runs have ended.
    Arc::into_inner(target).map_or(Ok(()), T::end)
}

/// What the threads of one run share with the one that waits for them.
struct Shared {
    /// Released when all are there.
    start: Barrier,
    is_over: AtomicBool,
    /// Calls of each caller so far.
    counts: Vec<Count>,
}

/// A count on cache lines of its own: two, as they are fetched in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// What one thread ends with: how long its calls took.
type ThreadResult = Result<Histogram<u64>, Failure>;

fn call_for<T: Target>(
    plan: CallPlan,
    target: &Arc<T>,
    control: &ControlSocket,
) -> Result<(CallResult, Vec<Interval>), Failure> {
    let callers = target.callers();
    let shared = Arc::new(Shared {
        start: Barrier::new(callers + 1),
        is_over: AtomicBool::new(false),
        counts: (0..callers).map(|_| Count::default()).collect(),
    });
    let (sender, ended) = channel();
    for caller in 0..callers {
        spawn(caller, plan, &shared, target, &sender)?;
    }
    drop(sender);
    let cpu_before = cpu_ns();
    let split_before = user_and_system();
    let first = Tick::of(&shared.counts);
    shared.start.wait();
    let mut observed = Observation { plan, first, intervals: Vec::new(), times: Vec::new() };
    let watched = observed.until_end(&shared, &ended, control);
    shared.is_over.store(true, Relaxed);
    watched.map_err(|early| format!("a caller ended early: {early}"))?;
    while observed.times.len() < callers {
        match ended.recv_timeout(LAST_ANSWER_TIME_MAX) {
            Ok(of_one) => observed.times.push(of_one?),
            // The thread still waits; it ends with this process.
            Err(_) => {
                return Err(format!("a caller had no answer for {LAST_ANSWER_TIME_MAX:?}").into());
            }
        }
    }
    let last = Tick::of(&shared.counts);
    let mut times = none_yet();
    observed.times.iter().for_each(|of_one| times.add(of_one).expect("all have the same bounds"));
    let split = user_and_system().zip(split_before);
    let seconds = |which: usize| split.map(|(now, then)| now[which] - then[which]);
    let micros = |ns: u64| ns as f64 / 1000.0;
    let quantile =
        |(name, share): (&str, f64)| (name.to_owned(), micros(times.value_at_quantile(share)));
    let longest = ("latency_max_us".to_owned(), micros(times.max()));
    let latencies = QUANTILES.into_iter().map(quantile).chain([longest]);
    let called = CallResult {
        calls: last.calls,
        elapsed_s: (last.at - first.at).as_secs_f64(),
        machine_switches: last
            .machine_switches
            .zip(first.machine_switches)
            .map(|(last, first)| last - first),
        cpu_ns: cpu_ns() - cpu_before,
        user_s: seconds(0),
        system_s: seconds(1),
        latencies: if times.is_empty() { BTreeMap::new() } else { latencies.collect() },
    };
    Ok((called, observed.intervals))
}

fn none_yet() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, LATENCY_DIGITS)
        .expect("the bounds are those of a histogram")
}

/// A caller's thread: calls until the end, then says how long each call took.
fn spawn<T: Target>(
    caller: usize,
    plan: CallPlan,
    shared: &Arc<Shared>,
    target: &Arc<T>,
    ended: &Sender<ThreadResult>,
) -> Result<(), Failure> {
    let shared = Arc::clone(shared);
    let target = Arc::clone(target);
    let ended = ended.clone();
    let call = move || {
        shared.start.wait();
        let mut times = none_yet();
        let mut calls = 0;
        while !shared.is_over.load(Relaxed) && (plan.calls == 0 || calls < plan.calls) {
            let start = Instant::now();
            target.call(caller, plan.is_window)?;
            times.saturating_record(start.elapsed().as_nanos() as u64);
            calls += 1;
            shared.counts[caller].0.store(calls, Relaxed);
        }
        Ok(times)
    };
    let spawned = std::thread::Builder::new().name(format!("caller {caller}")).spawn(move || {
        let outcome = call();
        // The target is this thread's no more when the last outcome is there: then it is ended.
        drop(call);
        // The thread that waits for it may have given up.
        let _ = ended.send(outcome);
    });
    spawned.map(drop).map_err(|error| format!("could not set up caller {caller}: {error}").into())
}

/// Everything that is read at the end of an interval.
#[derive(Clone, Copy)]
struct Tick {
    at: Instant,
    calls: u64,
    machine_switches: Option<u64>,
}

impl Tick {
    fn of(counts: &[Count]) -> Self {
        let calls = counts.iter().map(|count| count.0.load(Relaxed)).sum();
        Self { at: Instant::now(), calls, machine_switches: machine_switches() }
    }

    fn interval_since(&self, before: &Self, first: &Self) -> Interval {
        let length_s = (self.at - before.at).max(Duration::from_nanos(1)).as_secs_f64();
        let switches = self.machine_switches.zip(before.machine_switches);
        Interval {
            end_s: (self.at - first.at).as_secs_f64(),
            calls_per_s: (self.calls - before.calls) as f64 / length_s,
            machine_switches_per_s: switches
                .map(|(now, then)| now.saturating_sub(then) as f64 / length_s),
        }
    }
}

/// What is seen of a run while it runs.
struct Observation {
    plan: CallPlan,
    first: Tick,
    intervals: Vec<Interval>,
    /// Of the callers that have ended.
    times: Vec<Histogram<u64>>,
}

impl Observation {
    /// Waits for the end of the run and cuts its intervals.
    ///
    /// # Errors
    /// In words, why a caller ended before.
    fn until_end(
        &mut self,
        shared: &Shared,
        ended: &Receiver<ThreadResult>,
        control: &ControlSocket,
    ) -> Result<(), String> {
        let time = self.plan.time_ms;
        let each = Duration::from_millis(self.plan.interval_ms);
        let time = (self.plan.calls == 0).then(|| Duration::from_millis(time));
        let mut before = self.first;
        for cut in 1.. {
            let due = (each * cut).min(time.unwrap_or(Duration::MAX));
            if self.is_last_received(self.first.at + due, shared.counts.len(), ended)? {
                break;
            }
            if control.is_closed_by_peer() {
                // The measuring process was killed; threads that wait end with this process.
                return Err("the controller has closed its socket".to_owned());
            }
            let now = Tick::of(&shared.counts);
            // A stub that is much shorter than its siblings says nothing about the rate.
            if (now.at - before.at) * 2 >= each && self.intervals.len() < INTERVALS_MAX {
                self.intervals.push(now.interval_since(&before, &self.first));
            }
            before = now;
            if time.is_some_and(|time| due >= time) {
                break;
            }
        }
        Ok(())
    }

    /// Receives the ends of callers, until a moment or until it was the last of so many; whether it was.
    fn is_last_received(
        &mut self,
        at: Instant,
        callers: usize,
        ended: &Receiver<ThreadResult>,
    ) -> Result<bool, String> {
        while self.times.len() < callers {
            match ended.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("its thread gave no result".to_owned());
                }
                Ok(Ok(_)) if self.plan.calls == 0 => return Err("without an error".to_owned()),
                Ok(Ok(times)) => self.times.push(times),
                Ok(Err(error)) => return Err(error_chain(&*error)),
            }
        }
        Ok(true)
    }
}

/// CPU time of this process, with its threads that have ended.
fn cpu_ns() -> u64 {
    clock::process_cpu().as_nanos() as u64
}

/// Seconds of it in user mode and in the kernel, in ticks of 10 ms, as `time` of a shell has them; none
/// where they can't be read.
fn user_and_system() -> Option<[f64; 2]> {
    let ticks = ticks_in(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(ticks.map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Fields 14 and 15 of `proc_pid_stat(5)`, counted after the command name, which may hold blanks and
/// brackets itself.
fn ticks_in(stat: &str) -> Option<[u64; 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(|field| field.parse().ok());
    Some([ticks.next()??, ticks.next()??])
}

/// Context switches of all tasks of the machine since it started (`proc_stat(5)`, `ctxt`).
fn machine_switches() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_callers_are_four_numbers() {
        let plan = CallPlan { is_window: true, time_ms: 2000, interval_ms: 100, calls: 7 };
        let text = serde_json::to_string(&plan).expect("plain data");
        assert_eq!(text, "[1,2000,100,7]");
        assert_eq!(serde_json::from_str::<CallPlan>(&text).expect("its own"), plan);
    }

    /// Counts its calls, and fails the one of that number.
    struct Counted {
        calls: AtomicU64,
        fails_at: u64,
    }

    impl Target for Counted {
        fn callers(&self) -> usize {
            3
        }

        fn call(&self, _: usize, _: bool) -> Result<(), Failure> {
            let number = self.calls.fetch_add(1, Relaxed);
            if number == self.fails_at { Err("no answer".into()) } else { Ok(()) }
        }

        fn workers(&self) -> Vec<u32> {
            vec![7]
        }

        fn served(&self) -> Result<Option<Served>, Failure> {
            let calls = self.calls.swap(0, Relaxed);
            Ok(Some(Served { calls: vec![calls], waits: Some([calls, 0]) }))
        }

        fn end(self) -> Result<(), Failure> {
            Err("ended".into())
        }
    }

    /// The answers to one of these.
    fn said(fails_at: u64) -> Vec<CallerMessage> {
        let (ours, theirs) = ControlSocket::pair().expect("a pair");
        let calling = std::thread::spawn(move || {
            serve(&ControlSocket::of(theirs), || Ok(Counted { calls: AtomicU64::new(0), fails_at }))
        });
        let plan = CallPlan { is_window: true, time_ms: 0, interval_ms: 1000, calls: 5 };
        ours.send(&plan, &[]).expect("sent");
        ours.hang_up();
        let words = std::iter::from_fn(|| ours.receive::<CallerMessage>().expect("a word"));
        let words = words.map(|(word, _)| word).collect();
        calling.join().expect("no panic").expect("calls were made");
        words
    }

    #[test]
    fn a_run_reports_its_workers_what_they_did_and_how_it_ended() {
        let words = said(u64::MAX);
        let [
            CallerMessage::Workers(workers),
            CallerMessage::Ready,
            CallerMessage::Served(served),
            CallerMessage::Called(called),
            end,
        ] = &words[..]
        else {
            panic!("{words:?}")
        };
        assert_eq!((&workers[..], &served.calls[..], called.calls), (&[7][..], &[15][..], 15));
        assert!(called.latencies["latency_p50_us"] <= called.latencies["latency_max_us"]);
        assert!(matches!(end, CallerMessage::Failed(why) if why == "ended"), "{end:?}");
    }

    #[test]
    fn a_call_that_fails_ends_the_run() {
        let words = said(4);
        let Some(CallerMessage::Failed(why)) = words.last() else { panic!("{words:?}") };
        assert!(why.ends_with("no answer"), "{why}");
    }

    #[test]
    fn what_workers_did_adds_up() {
        let mut sum = Served::default();
        sum.add(Served { calls: vec![1, 2], waits: Some([3, 1]) });
        sum.add(Served { calls: vec![5, 0], waits: Some([6, 2]) });
        assert_eq!(sum, Served { calls: vec![6, 2], waits: Some([9, 3]) });
        sum.add(Served { calls: vec![1, 1], waits: None });
        assert_eq!(sum, Served { calls: vec![7, 3], waits: None });
    }

    #[test]
    fn a_command_name_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 120 40 3 2 5 6 11 13 20 0 1 0 99";
        assert_eq!(ticks_in(stat), Some([5, 6]));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }
}
