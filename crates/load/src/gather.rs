//! Adds up what the threads of a run count, second by second, and makes the outcome of it; the CPU time that the
//! generator's own threads use, how often they lost their CPU, and the CPU time of a server on this machine.
//!
//! One thread gathers. Workers give it a whole interval once a second and get an empty one
//! back, so they never merge, clear or wait.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pollux_engine::CpuList;
use pollux_host::Tree;
use pollux_report::number::plural;
use pollux_sys::clock::{self, monotonic_ns};

use crate::control::Control;
use crate::kept_answer::Firsts;
use crate::schedule::rate_in_words;
use crate::tally::{Interval, Spoke, Tally, Times};
use crate::timeline::{Course, silence, stalls, standstills};
use crate::{
    CrowdOutcome, Distribution, Errors, Generator, InTime, Outcome, Pace, Plan, RequestOrder,
    SHOWN, Schedule, Second, SentToAnswer, ServerUse, Setting, Stall, TargetOutcome, findings,
};

/// An interval of one thread.
pub(crate) struct Handed {
    pub(crate) thread: u32,
    /// Its number, the same for all threads.
    pub(crate) interval: u32,
    pub(crate) end_ns: u64,
    /// Active connections that were open at its end.
    pub(crate) open: u32,
    /// CPU time of the thread in it, without what it spun.
    pub(crate) cpu: Duration,
    pub(crate) counted: Box<Interval>,
}

/// What one thread says at its end.
pub(crate) struct ThreadOutcome {
    /// In the measured part.
    pub(crate) used: OwnUse,
    pub(crate) spun: Duration,
    /// How long that part was for this thread.
    pub(crate) measured: Duration,
    /// When it had no more to send.
    pub(crate) ended_ns: u64,
    /// And when it waited for nothing any more.
    pub(crate) waited_until_ns: u64,
    pub(crate) last_outcome_ns: u64,
    pub(crate) last_answer_ns: u64,
    /// The first answers that were not right.
    pub(crate) firsts: Firsts,
    /// Why its timers are coarse, where they are.
    pub(crate) coarse_timers: Option<String>,
    pub(crate) course: Course,
    pub(crate) crowd: [CrowdOutcome; 3],
}

/// What can be seen of a run from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSnapshot {
    pub(crate) last: Option<Second>,
}

/// The gathering thread's state.
pub(crate) struct Gatherer {
    plan: Arc<Plan>,
    control: Arc<Control>,
    receiver: Receiver<Handed>,
    /// Where empty intervals go back to, by thread.
    spares: Vec<Sender<Box<Interval>>>,
    seen: Arc<Mutex<RunSnapshot>>,
    all: Tally,
    lag: Distribution,
    warm_up_errors: Errors,
    /// Requests of the warm-up that were out at the end.
    warm_up_unanswered: Distribution,
    longest_ns: u64,
    warm_up_longest_ns: u64,
    in_time: InTime,
    late: InTime,
    sent_to_answer: Times,
    first_sent_to_answer: Times,
    spoke: Spoke,
    /// Of measured requests whose second was handed over with the last one of the warm-up: they belong to the next.
    early: Early,
    /// The server's process, where it was named.
    server: Option<ServerCpu>,
    /// Open connections, by thread.
    open: Vec<u32>,
    /// Each with the number of intervals that are in it.
    seconds: BTreeMap<u32, (Second, u32)>,
}

impl Gatherer {
    pub(crate) fn new(
        plan: Arc<Plan>,
        control: Arc<Control>,
        receiver: Receiver<Handed>,
        spares: Vec<Sender<Box<Interval>>>,
        seen: Arc<Mutex<RunSnapshot>>,
        server: Option<ServerCpu>,
    ) -> Self {
        let all = Tally::new(plan.targets.len());
        let lag = Distribution::new();
        let early = Early::default();
        let seconds = BTreeMap::new();
        let open = vec![0; plan.threads as usize];
        Self {
            plan,
            control,
            receiver,
            spares,
            seen,
            all,
            lag,
            warm_up_errors: Errors::default(),
            warm_up_unanswered: Distribution::new(),
            longest_ns: 0,
            warm_up_longest_ns: 0,
            in_time: InTime::default(),
            late: InTime::default(),
            sent_to_answer: Times::default(),
            first_sent_to_answer: Times::default(),
            spoke: Spoke::default(),
            early,
            server,
            open,
            seconds,
        }
    }

    /// Takes intervals until no thread has any more.
    pub(crate) fn gather(&mut self) {
        while let Ok(handed) = self.receiver.recv() {
            self.take(handed);
        }
    }

    fn take(&mut self, handed: Handed) {
        let Handed { thread, interval, end_ns, open, cpu, mut counted } = handed;
        let origin_ns = self.control.origin_ns().unwrap_or(end_ns);
        let measure_from_ns = self.control.measure_from_ns().unwrap_or(end_ns);
        let new = || (Second::default(), 0);
        let (second, threads) = self.seconds.entry(interval).or_insert_with(new);
        second.end_s = second.end_s.max(end_ns.saturating_sub(origin_ns) as f64 / 1e9);
        second.is_warm_up = end_ns <= measure_from_ns;
        self.open[thread as usize] = open;
        second.open = self.open.iter().sum();
        *threads += 1;
        second.generator_cpu_s += cpu.as_secs_f64();
        second.add(&counted.warm_up);
        // The measured seconds together are the requests and the latency of the run: without what began in the
        // warm-up, with what began in a turn that lasted over its end. Answers to the warm-up stay in the
        // second in which they came.
        let mut late_sent = 0;
        if second.is_warm_up {
            second.add_latency(&counted.warm_up);
            self.early.add(&counted.measured);
        } else {
            late_sent = counted.warm_up.totals.sent;
            second.sent -= late_sent;
            second.add(&counted.measured);
            second.add_latency(&counted.measured);
            self.early.give(second);
            second.latency.note_longest(counted.longest_ns);
        }
        let is_whole = *threads == self.plan.threads;
        if is_whole {
            second.latency = second.latency.to_coarse();
            second.latency.pack();
            // A moment of another thread may come later for the same second.
            second.server_cpu_s = self.server.as_mut().map(ServerCpu::since_last);
        }
        let last = is_whole.then(|| second.clone());
        let warm_up = self.seconds.values_mut().rev().find(|(second, _)| second.is_warm_up);
        if let Some((second, _)) = warm_up {
            second.sent += late_sent;
        }
        self.move_unsent(interval, std::mem::take(&mut counted.unsent_in));
        self.in_time.add(&std::mem::take(&mut counted.in_time));
        self.late.add(&std::mem::take(&mut counted.late));
        self.sent_to_answer.take(&mut counted.sent_to_answer);
        self.first_sent_to_answer.take(&mut counted.first_sent_to_answer);
        self.spoke.add(std::mem::take(&mut counted.spoke));
        self.all.take(&mut counted.measured);
        self.lag.take(&mut counted.lag);
        self.longest_ns = self.longest_ns.max(std::mem::take(&mut counted.longest_ns));
        let warm_up_longest_ns = std::mem::take(&mut counted.warm_up_longest_ns);
        self.warm_up_longest_ns = self.warm_up_longest_ns.max(warm_up_longest_ns);
        self.warm_up_errors.add(&counted.warm_up.errors);
        self.warm_up_unanswered.add(&counted.warm_up.unanswered);
        counted.warm_up.clear();
        if last.is_some() {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).last = last;
        }
        // A thread that has ended needs it no more.
        let _ = self.spares[thread as usize].send(counted);
    }

    /// Gives requests that were never sent to the seconds in which they were due: those of `interval` are made of them only
    /// because the run ended then.
    fn move_unsent(&mut self, interval: u32, unsent_in: BTreeMap<u32, u64>) {
        for (due_in, unsent) in unsent_in {
            if due_in >= interval {
                continue;
            }
            let Some((second, _)) = self.seconds.get_mut(&due_in) else { continue };
            second.errors += unsent;
            if let Some((last, _)) = self.seconds.get_mut(&interval) {
                last.errors -= unsent;
            }
        }
    }

    /// The outcome of the run, once every thread has ended.
    pub(crate) fn outcome(self, threads: &[ThreadOutcome]) -> Outcome {
        let in_time = self.came_in_time();
        let sent_to_answer = self.sent_to_answer();
        let Self { plan, control, all, lag, seconds, spoke, .. } = self;
        let courses: Vec<&Course> = threads.iter().map(|thread| &thread.course).collect();
        let standstills = standstills(&courses);
        let (measured, waited) = measured(&plan, &control, threads, all.totals.due);
        let mut latency = all.latency();
        latency.note_longest(self.longest_ns);
        // A server that stood still in the warm-up did not do so because it was cold.
        let warm_up_s = plan.warm_up.as_secs_f64();
        if standstills.iter().any(|still| still.from_s + still.lasted_s <= warm_up_s) {
            latency.note_longest(self.warm_up_longest_ns);
        }
        let mut firsts = Firsts::default();
        threads.iter().for_each(|thread| firsts.merge(&thread.firsts));
        let mut unanswered = all.unanswered.clone();
        unanswered.add(&self.warm_up_unanswered);
        let first_byte = all.first_byte();
        let silence = silence(&courses, &standstills);
        let was_first_failure_early = firsts.failure.is_none() && control.first_failure().is_some();
        let failure = firsts.failure.map(|(_, why)| why);
        let mut outcome = Outcome {
            began_unix_s: unix_s(control.measure_from_ns()),
            measured,
            waited,
            was_ended_early: control.was_ended_early(),
            in_time: Some(in_time),
            sent_to_answer: Some(sent_to_answer),
            setting: setting(&plan, measured, spoke),
            totals: all.totals,
            statuses: all.statuses.sorted(),
            errors: all.errors,
            warm_up_errors: self.warm_up_errors,
            first_failure: failure.or_else(|| control.first_failure().map(str::to_owned)),
            was_first_failure_early,
            first_wrong: firsts.wrong.map(|(_, start)| start),
            first_redirect: firsts.redirect.map(|(_, start)| start),
            unanswered,
            standstills,
            silence,
            objectives: Vec::new(),
            targets: targets(&plan, &all, &latency),
            latency,
            first_byte,
            connect: all.connect,
            lifetime: all.lifetime,
            http2: (spoke.http2 > 0).then(|| all.http2.named(&spoke)),
            seconds: asked_in(&plan, seconds.into_values().map(|(second, _)| second).collect()),
            crowd: crowd(threads),
            generator: generator(&plan, threads, in_time.answered, lag, stalls(&courses)),
            server: None,
            agents: Vec::new(),
            findings: Vec::new(),
        };
        let under_way = outcome.streams_under_way();
        if let Some(http2) = &mut outcome.http2 {
            http2.streams_under_way = under_way;
        }
        outcome.server = self.server.map(|server| server.used(&outcome.seconds));
        for times in [&mut outcome.latency, &mut outcome.first_byte, &mut outcome.connect] {
            times.write_also(&plan.quantiles);
        }
        // Objectives look at the findings of the run, and are some of them when they were missed.
        outcome.findings = findings(&outcome);
        outcome.judge(&plan.objectives);
        outcome
    }

    /// What came within the measured time: of a run that ended by number until its last answer.
    fn came_in_time(&self) -> InTime {
        let mut in_time = self.in_time;
        if self.plan.end.requests.is_some_and(|requests| self.all.totals.due >= requests) {
            in_time.add(&self.late);
        }
        in_time
    }

    fn sent_to_answer(&self) -> SentToAnswer {
        SentToAnswer {
            answers: self.sent_to_answer.count,
            mean_ns: self.sent_to_answer.mean_ns(),
            first_answers: self.first_sent_to_answer.count,
            first_mean_ns: self.first_sent_to_answer.mean_ns(),
        }
    }
}

/// What counts and came with the last second of the warm-up.
#[derive(Debug, Default)]
struct Early {
    counted: Second,
}

impl Early {
    fn add(&mut self, tally: &Tally) {
        self.counted.add(tally);
        self.counted.add_latency(tally);
    }

    /// Moves all of it to `second`.
    fn give(&mut self, second: &mut Second) {
        let Second { sent, answered, errors, bytes_in, latency, .. } = &mut self.counted;
        second.sent += std::mem::take(sent);
        second.answered += std::mem::take(answered);
        second.errors += std::mem::take(errors);
        second.bytes_in += std::mem::take(bytes_in);
        second.latency.take(latency);
    }
}

impl Second {
    fn add(&mut self, tally: &Tally) {
        self.sent += tally.totals.sent;
        self.answered += tally.totals.answered;
        self.errors += tally.errors.total();
        self.bytes_in += tally.totals.bytes_in;
    }

    fn add_latency(&mut self, tally: &Tally) {
        self.latency.add(&tally.at_once);
        self.latency.add(&tally.in_parts);
    }
}

/// The time in which requests began that count, and how long answers were waited for after it.
/// Requests of a number may all begin in the first moment: their time lasts until the last answer,
/// or failure where there was none.
fn measured(
    plan: &Plan,
    control: &Control,
    threads: &[ThreadOutcome],
    due: u64,
) -> (Duration, Duration) {
    let last = |of: fn(&ThreadOutcome) -> u64| threads.iter().map(of).max().unwrap_or(0);
    let from_ns = control.measure_from_ns().unwrap_or(u64::MAX);
    let after_ns = plan.end.after.map_or(u64::MAX, |after| after.as_nanos() as u64);
    let ended_ns = last(|thread| thread.ended_ns);
    let until_ns = match plan.end.requests {
        Some(requests) if due >= requests => match last(|thread| thread.last_answer_ns) {
            answer_ns if answer_ns > from_ns => answer_ns,
            _ => last(|thread| thread.last_outcome_ns),
        },
        _ => ended_ns.min(from_ns.saturating_add(after_ns)),
    };
    let waited_ns = last(|thread| thread.waited_until_ns).saturating_sub(until_ns.max(ended_ns));
    (Duration::from_nanos(until_ns.saturating_sub(from_ns)), Duration::from_nanos(waited_ns))
}

fn setting(plan: &Plan, measured: Duration, spoke: Spoke) -> Setting {
    let (pace, asked_per_s) = match &plan.pace {
        Pace::Closed => ("closed".to_owned(), None),
        Pace::Open { stages, .. } => (rate_in_words(stages), asked_per_s(plan, measured)),
    };
    Setting {
        urls: plan.targets.iter().map(|target| target.url.clone()).collect(),
        listed: plan.list.as_ref().map(|(list, order)| {
            let order = match order {
                RequestOrder::InTurn => "in turn",
                RequestOrder::Random if list.is_weighted() => "at random by weight",
                RequestOrder::Random => "at random",
            };
            format!("{} {order}", plural(list.len() as u64, "request"))
        }),
        driver: plan.driver.name().to_owned(),
        threads: plan.threads,
        connections: plan.connections,
        pipeline: plan.pipeline,
        http: plan.http.name().to_owned(),
        spoken: spoke.in_words().to_owned(),
        streams: plan.streams,
        windows: (spoke.http2 > 0).then_some((plan.stream_window, plan.connection_window)),
        think_s: plan.think_time.as_secs_f64(),
        requests_per_connection: plan.requests_per_connection.map(u32::from),
        pace,
        asked_per_s,
        warm_up_s: plan.warm_up.as_secs_f64(),
        quantiles: if plan.quantiles.is_empty() { SHOWN.to_vec() } else { plan.quantiles.clone() },
    }
}

/// The average rate of the schedule while requests were sent.
fn asked_per_s(plan: &Plan, measured: Duration) -> Option<f64> {
    let Pace::Open { stages, .. } = &plan.pace else { return None };
    let lasted = plan.end.after.map_or(measured, |after| after.min(measured));
    let schedule = Schedule::new(stages);
    let due = schedule.due(plan.warm_up + lasted) - schedule.due(plan.warm_up);
    (!lasted.is_zero()).then(|| due / lasted.as_secs_f64() / f64::from(plan.part.of))
}

/// The seconds with what the schedule asked for in each.
fn asked_in(plan: &Plan, mut seconds: Vec<Second>) -> Vec<Second> {
    let Pace::Open { stages, .. } = &plan.pace else { return seconds };
    let schedule = Schedule::new(stages);
    let of = f64::from(plan.part.of);
    let due = |at_s: f64| schedule.due(Duration::from_secs_f64(at_s.max(0.0))) / of;
    let end_s = plan.end.after.map_or(f64::INFINITY, |after| (plan.warm_up + after).as_secs_f64());
    let mut start_s = 0.0;
    for second in &mut seconds {
        let until_s = second.end_s.min(end_s);
        let lasted_s = until_s - start_s;
        second.asked_per_s = (lasted_s > 0.0).then(|| (due(until_s) - due(start_s)) / lasted_s);
        start_s = second.end_s;
    }
    seconds
}

fn targets(plan: &Plan, all: &Tally, latency: &Distribution) -> Vec<TargetOutcome> {
    let of = |(number, target): (usize, &crate::Target)| {
        let url = target.url.clone();
        let weight = target.weight;
        let (answered, errors, latency) = match all.targets.get(number) {
            Some(tally) => (tally.answered, tally.errors, &tally.latency),
            None => (all.totals.answered, all.errors, latency),
        };
        TargetOutcome { url, weight, answered, errors, latency: latency.clone() }
    };
    plan.targets.iter().enumerate().map(of).collect()
}

fn crowd(threads: &[ThreadOutcome]) -> Vec<CrowdOutcome> {
    let Some((first, others)) = threads.split_first() else { return Vec::new() };
    let mut kinds = first.crowd;
    for other in others {
        kinds.iter_mut().zip(&other.crowd).for_each(|(kind, more)| kind.add(more));
    }
    kinds.into_iter().filter(|kind| kind.asked > 0).collect()
}

fn generator(
    plan: &Plan,
    threads: &[ThreadOutcome],
    answered: u64,
    lag: Distribution,
    stalls: Vec<Stall>,
) -> Generator {
    let cpus = plan.cpus.clone().or_else(|| CpuList::allowed().ok());
    let cpu: Duration = threads.iter().map(|thread| thread.used.cpu).sum();
    let spun: Duration = threads.iter().map(|thread| thread.spun).sum();
    let busy = |thread: &ThreadOutcome| {
        let worked = thread.used.cpu.saturating_sub(thread.spun).as_secs_f64();
        let lasted = thread.measured.as_secs_f64();
        if lasted > 0.0 { worked / lasted } else { 0.0 }
    };
    let worked_us = cpu.saturating_sub(spun).as_secs_f64() * 1e6;
    Generator {
        cpu,
        cpu_us_per_answer: (answered > 0).then(|| worked_us / answered as f64),
        busy_share: threads.iter().map(busy).collect(),
        cpus: cpus.map(|cpus| cpus.as_slice().len() as u32),
        spun,
        lag,
        coarse_timers: threads.iter().find_map(|thread| thread.coarse_timers.clone()),
        stalls,
        involuntary_switches: threads.iter().map(|thread| thread.used.involuntary_switches).sum(),
    }
}

/// The wall clock at a moment of the monotonic one; now when there is none.
fn unix_s(at_ns: Option<u64>) -> f64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let now_ns = monotonic_ns();
    now_s - now_ns.saturating_sub(at_ns.unwrap_or(now_ns)) as f64 / 1e9
}

/// Readings of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnUse {
    pub(crate) cpu: Duration,
    /// `None` where procfs does not say.
    pub(crate) involuntary_switches: Option<u64>,
}

impl OwnUse {
    /// As of now.
    pub(crate) fn read() -> Self {
        Self { cpu: clock::thread_cpu(), involuntary_switches: involuntary_switches() }
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let switches = self.involuntary_switches.zip(before.involuntary_switches);
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            involuntary_switches: switches.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// From `/proc/thread-self/status` (`proc_pid_status(5)`).
fn involuntary_switches() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// A server's process with all that it starts, read second by second.
pub(crate) struct ServerCpu {
    pid: u32,
    tree: Tree,
    last: Duration,
}

/// The process and what it starts.
///
/// # Errors
/// There is none with this number, or this process is one that it started: what the generator uses would count as the
/// server's.
pub(crate) fn tree_of(pid: u32) -> io::Result<Tree> {
    let tree = Tree::of(&[pid])?;
    if tree.pids().contains(&std::process::id()) {
        Err(io::Error::other("this program is one of those that it started"))
    } else {
        Ok(tree)
    }
}

impl ServerCpu {
    /// Of this process.
    ///
    /// # Errors
    /// As [`tree_of`].
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let mut tree = tree_of(pid)?;
        let last = tree.look();
        Ok(Self { pid, tree, last })
    }

    /// CPU time since the last call, in seconds.
    fn since_last(&mut self) -> f64 {
        let now = self.tree.look();
        let used = now.saturating_sub(self.last);
        self.last = now;
        used.as_secs_f64()
    }

    /// What was used in the measured seconds.
    pub(crate) fn used(&self, seconds: &[Second]) -> ServerUse {
        let measured = seconds.iter().filter(|second| !second.is_warm_up);
        let mut cpu_s = 0.0;
        let mut answered = 0;
        for second in measured {
            let Some(used_s) = second.server_cpu_s else { continue };
            cpu_s += used_s;
            answered += second.answered;
        }
        let cpu_us_per_answer = (answered > 0).then(|| cpu_s * 1e6 / answered as f64);
        ServerUse { pid: self.pid, cpu_s, cpu_us_per_answer }
    }
}
