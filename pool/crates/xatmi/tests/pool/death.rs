//! Pools whose parts are killed, stopped or hang, and workers, clients and managers that are killed at random ten
//! times a second under load.
//!
//! Under load every call ends in its own answer or in an error that callers know, within its time-out, and
//! nothing stays behind. `POLLUX_KILL_SECONDS` says for how long; the ordinary run is
//! short, the whole one is a minute.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, Process, Signal};
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{Answer, CallError, CallFlags, Client, Which};
use pollux_xatmi::control::{Control, Request};
use pollux_xatmi::error::Code;

use crate::support::{
    ONE, TestPool, copies, exists, kill_and_wait, say, signal, signal_if_there, text,
};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_killed_worker_comes_back", a_killed_worker_comes_back),
    (
        "the_caller_of_a_worker_that_dies_is_answered_at_once",
        the_caller_of_a_worker_that_dies_is_answered,
    ),
    ("a_worker_that_stands_still_is_ended_and_replaced", a_worker_that_stands_still_is_replaced),
    ("callers_in_the_queue_are_answered_when_the_pool_ends", callers_in_the_queue_are_answered),
    ("workers_outlive_a_killed_manager_and_are_taken_over", workers_outlive_a_killed_manager),
    ("queues_of_a_pool_that_was_killed_whole_are_replaced", queues_of_a_killed_pool_are_replaced),
    ("deaths_under_load_lose_no_call_and_mix_up_none", deaths_under_load),
    ("an_end_at_once_kills_what_hangs", an_end_at_once_kills_what_hangs),
    ("ten_kills_a_second_lose_no_call_and_leave_nothing", ten_kills_a_second),
    ("clients_that_are_killed_in_mid_call_take_nothing_along", clients_that_are_killed),
    ("managers_that_are_killed_under_load_lose_no_call", managers_that_are_killed),
];

/// Those that speak of queues themselves.
pub(crate) const QUEUE_TESTS: &[crate::Test] =
    &[("clients_outlive_a_killed_manager_and_leave_no_queue", clients_outlive_a_killed_manager)];

const SECONDS: &str = "POLLUX_KILL_SECONDS";
const SECONDS_SHORT: u64 = 3;
const WORKERS: u32 = 60;
const CALLERS: u64 = 10;
const KILL_EACH: Duration = Duration::from_millis(100);
/// What the start of a client takes of that.
const KILL_START: Duration = Duration::from_millis(30);
const TIMEOUT: Duration = Duration::from_secs(5);
/// Beyond the time-out: what a busy machine may need to wake a caller.
const SLACK: Duration = Duration::from_secs(5);
/// Far beyond a message, so that it goes by memfd.
const LARGE_BYTES: usize = 20_000;
/// Calls that one caller has out at once.
const OUT: usize = 4;

/// One of these tests at a time: each looks at what its process holds in the end.
static ALONE: Mutex<()> = Mutex::new(());

fn a_killed_worker_comes_back() {
    let mut pool = TestPool::start("", &copies(2));
    let before = pool.pid(1);
    signal(before, Signal::KILL);
    pool.until("it is replaced", |pool| {
        let row = pool.worker(1);
        row.state == "up" && row.restarts == 1 && row.pid != Some(before)
    });
    assert_eq!(pool.worker(2).restarts, 0);
    assert!(pool.log().contains("was ended by signal 9"), "{}", pool.log());
    let mut client = pool.client();
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    pool.end();
}

fn the_caller_of_a_worker_that_dies_is_answered() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let began = Instant::now();
    let error = client.call("CRASH", &text("x"), CallFlags::NONE).expect_err("it dies");
    // The time-out of the call is a minute.
    assert_eq!(error.code(), Code::ServiceError);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The only worker comes back, and the queue stood meanwhile.
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("it serves again");
    assert_eq!((pool.count("worker_ends_busy"), pool.count("answers_sent")), (1, 1));
    pool.end();
}

fn a_worker_that_stands_still_is_replaced() {
    let servers = "<server name='testsv'><srvid>1</srvid><pingtime>1</pingtime>\
                   <ping_max>1</ping_max><killtime>1</killtime></server>";
    let mut pool = TestPool::start("", servers);
    let before = pool.pid(1);
    signal(before, Signal::STOP);
    pool.until("it is replaced", |pool| {
        let row = pool.worker(1);
        row.state == "up" && row.restarts > 0 && row.pid != Some(before)
    });
    let log = pool.log();
    for number in ["is sent signal 2", "is sent signal 15", "is sent signal 9"] {
        assert!(log.contains(number), "{number}: {log}");
    }
    // The new one stands as well, or a busy machine had it ended too: either way it is answered.
    pool.until("it serves", |pool| pool.worker(1).state == "up");
    pool.end();
}

fn callers_in_the_queue_are_answered() {
    let servers = "<server name='testsv'><srvid>1</srvid><end_max>1</end_max></server>";
    let mut pool = TestPool::start("", servers);
    let call = |pool: &TestPool| {
        let mut client = pool.client();
        std::thread::spawn(move || {
            let error = client.call("HANG", &text("x"), CallFlags::NONE).expect_err("it hangs");
            (error.code(), Instant::now())
        })
    };
    let inside = call(&pool);
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let waiting = [call(&pool), call(&pool), call(&pool)];
    pool.until("three wait", |pool| waiting_in(pool, "HANG") == 3);
    let ordered = Instant::now();
    pool.end();
    for caller in waiting {
        let (code, at) = caller.join().expect("no panic");
        assert_eq!(code, Code::NoEntry);
        assert!(at - ordered < Duration::from_secs(20), "{:?}", at - ordered);
    }
    assert_eq!(inside.join().expect("no panic").0, Code::ServiceError);
}

fn workers_outlive_a_killed_manager() {
    let mut pool = TestPool::start("<restart_to_check>50</restart_to_check>", &copies(3));
    let before = [1, 2, 3].map(|id| pool.pid(id));
    let mut client = pool.client();
    pool.kill_manager();
    client.call("ECHO", &text("x"), CallFlags::NONE).expect("the manager is not asked");
    signal(before[2], Signal::KILL);
    pool.begin();
    pool.ask(&Request::Settle).expect("all are up");
    assert_eq!([1, 2].map(|id| pool.pid(id)), [before[0], before[1]]);
    assert_ne!(pool.pid(3), before[2]);
    assert_eq!(pool.count("worker_adoptions"), 2);
    pool.client().call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    // What was taken over is watched as well as what was started.
    signal(before[0], Signal::KILL);
    pool.until("it is replaced", |pool| {
        let row = pool.worker(1);
        row.state == "up" && row.pid != Some(before[0])
    });
    drop(client);
    pool.end();
}

fn queues_of_a_killed_pool_are_replaced() {
    let mut pool = TestPool::start("", ONE);
    let worker = pool.pid(1);
    pool.kill_manager();
    kill_and_wait(worker);
    assert!(pool.has_queue("ECHO"), "no manager could remove it");
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    pool.client().call("ECHO", &text("x"), CallFlags::NONE).expect("it serves");
    pool.end();
}

fn clients_outlive_a_killed_manager() {
    let mut pool = TestPool::start("", ONE);
    let mut client = crate::life::Context::begin(&pool);
    pool.kill_manager();
    pool.begin();
    pool.ask(&Request::Settle).expect("it is up");
    assert!(client.has_queue(), "it lives");
    client.kill();
    pool.until("its queue is removed", |_| !client.has_queue());
    pool.end();
}

/// Every call ends in its own answer or in an error that callers know, and nothing stays behind.
fn deaths_under_load() {
    const DEATHS: usize = 30;
    const CALLERS: usize = 4;
    let mut pool = TestPool::start("<restart_max>1</restart_max>", &copies(16));
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let mut client = pool.client();
            let is_over = Arc::clone(&is_over);
            client.set_timeout(Duration::from_secs(10));
            std::thread::spawn(move || {
                let mut answers = 0_u64;
                let mut errors = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let words = format!("{caller} {answers}");
                    match client.call("ECHO", &text(&words), CallFlags::NONE) {
                        Ok(answer) => {
                            answers += 1;
                            let buffer = answer.buffer.expect("it answers with data");
                            assert!(buffer.as_bytes().starts_with(words.as_bytes()));
                        }
                        Err(error) => {
                            errors += 1;
                            let known = [Code::ServiceError, Code::Time];
                            assert!(known.contains(&error.code()), "{error}");
                        }
                    }
                }
                (answers, errors)
            })
        })
        .collect();
    for death in 0..DEATHS {
        // The head of the wait list, which has most of the work, more often than the others.
        let id = 1 + (death * 7 % 16) as u32;
        let mut victim = None;
        pool.until("a worker is there to be killed", |pool| {
            victim = pool.worker(id).pid;
            victim.is_some()
        });
        signal_if_there(victim.expect("found above"), Signal::KILL);
    }
    is_over.store(true, Ordering::Relaxed);
    let sums = callers.into_iter().map(|caller| caller.join().expect("no mix-up"));
    let (answers, errors) = sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    say(&format!("{DEATHS} deaths under load: {answers} answers, {errors} errors"));
    assert!(answers > 0);
    pool.end();
}

fn an_end_at_once_kills_what_hangs() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let caller = std::thread::spawn(move || client.call("HANG", &text("x"), CallFlags::NONE));
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let mut control = Control::connect(&pool.prefix).expect("it runs");
    control.ask(&Request::End { now: true }, DEADLINE, |_| {}).expect("it ends");
    let error = caller.join().expect("no panic").expect_err("its worker was killed");
    assert_eq!(error.code(), Code::ServiceError);
    pool.ended();
}

fn waiting_in(pool: &TestPool, service: &str) -> u32 {
    pool.queues().iter().filter(|row| row.service == service).map(|row| row.depth).sum()
}

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    // Another one that failed has ended.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often calls ended how.
type Ends = BTreeMap<&'static str, u64>;

fn ten_kills_a_second() {
    let _alone = alone();
    let seconds = seconds();
    let servers = copies(WORKERS);
    let mut pool =
        TestPool::start("<restart_min>0</restart_min><restart_max>1</restart_max>", &servers);
    let is_over = Arc::new(AtomicBool::new(false));
    let (failed, failures) = channel::<()>();
    let mut queues = Vec::new();
    let callers: Vec<_> = (1..=CALLERS)
        .map(|number| {
            let mut client = pool.client();
            let is_over = Arc::clone(&is_over);
            client.set_timeout(TIMEOUT);
            let address = client.address();
            queues.push(pool.prefix.reply_queue(address.pid, address.context));
            let alive = failed.clone();
            std::thread::spawn(move || {
                let mut caller = Caller { client, number, calls: 0, ends: Ends::new() };
                while !is_over.load(Ordering::Relaxed) {
                    caller.step();
                }
                assert_eq!(caller.client.calls_out(), 0);
                let counters = caller.client.counters();
                assert_eq!((counters.malformed, counters.foreign), (0, 0));
                drop(alive);
                caller.ends
            })
        })
        .collect();
    drop(failed);
    let kills = kill(&pool, Duration::from_secs(seconds), &failures);
    is_over.store(true, Ordering::Relaxed);
    let mut ends = Ends::new();
    for caller in callers {
        for (end, count) in caller.join().expect("no mix-up and no late end") {
            *ends.entry(end).or_default() += count;
        }
    }
    let answered = pool.count("answers_sent");
    say(&format!("{kills} kills in {seconds} s: {ends:?}; {answered} answered by the manager"));
    assert!(ends.get("ok").is_some_and(|answers| *answers > 0));
    // A caller is answered at once wherever its worker dies; a machine that stands still is another matter.
    let late = ends.get("TPETIME").copied().unwrap_or(0);
    assert!(late <= kills / 100, "{late} time-outs after {kills} kills");
    pool.end();
    for queue in queues {
        assert!(!exists(&queue), "{queue:?} stays");
    }
    assert_eq!(payloads_held(), 0, "payloads of calls that are over stay");
    assert_eq!(queues_listed(&pool), 0, "queues stay");
}

/// How long a test kills.
fn seconds() -> u64 {
    std::env::var(SECONDS).map_or(SECONDS_SHORT, |text| {
        text.parse().unwrap_or_else(|_| panic!("{SECONDS} is a number of seconds, not {text}"))
    })
}

/// A process that calls until it is killed.
fn caller(pool: &TestPool) -> Process {
    let mut process = Process::start(&mut pool.role("caller"));
    process.wait_for_stderr_line(crate::CONNECTED);
    process
}

/// Threads that call until the end of the test, and what became of their calls.
struct Callers {
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Ends>>,
}

impl Callers {
    fn start(pool: &TestPool, count: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicU64::new(0));
        let start = |number| {
            let mut client = pool.client();
            let is_over = Arc::clone(&is_over);
            let calls = Arc::clone(&calls);
            client.set_timeout(Duration::from_secs(60));
            std::thread::spawn(move || {
                let mut caller = Caller { client, number, calls: 0, ends: Ends::new() };
                while !is_over.load(Ordering::Relaxed) {
                    caller.step();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                let counters = caller.client.counters();
                assert_eq!((counters.malformed, counters.foreign), (0, 0));
                caller.ends
            })
        };
        let threads = (1..=count).map(start).collect();
        Self { is_over, calls, threads }
    }

    /// Lets them end; all of their calls were answered.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        let ends = self.threads.into_iter().map(|caller| caller.join().expect("no mix-up"));
        let ends: Vec<Ends> = ends.collect();
        assert!(ends.iter().all(|ends| ends.keys().eq(["ok"].iter())), "{ends:?}");
        ends.iter().map(|ends| ends["ok"]).sum()
    }
}

fn clients_that_are_killed() {
    let _alone = alone();
    let mut pool = TestPool::start("", &copies(4));
    let mut kills = 0;
    let callers = Callers::start(&pool, 2);
    let seconds = seconds();
    let began = Instant::now();
    let (_alive, nothing) = channel::<()>();
    while began.elapsed() < Duration::from_secs(seconds) {
        let mut process = caller(&pool);
        // It is in the middle of a call then.
        let _ = nothing.recv_timeout(KILL_EACH.saturating_sub(KILL_START));
        process.kill();
        kills += 1;
    }
    let calls = callers.end();
    say(&format!("{kills} clients killed in {seconds} s, {calls} calls of others, all answered"));
    assert_eq!(pool.count("rings_rebuilt"), 0);
    pool.end();
    assert_eq!((payloads_held(), queues_listed(&pool)), (0, 0), "something stays");
}

fn managers_that_are_killed() {
    let _alone = alone();
    let app = "<restart_to_check>50</restart_to_check>";
    let mut pool = TestPool::start(app, &copies(4));
    let before: Vec<u32> = (1..=4).map(|id| pool.pid(id)).collect();
    let callers = Callers::start(&pool, 4);
    for _ in 0..3 {
        pool.kill_manager();
        pool.begin();
        pool.ask(&Request::Settle).expect("all are taken over");
    }
    let seen = callers.calls.load(Ordering::Relaxed);
    pool.until("calls continue", |_| callers.calls.load(Ordering::Relaxed) > seen);
    callers.end();
    let after: Vec<u32> = (1..=4).map(|id| pool.pid(id)).collect();
    assert_eq!(before, after);
    pool.end();
}

/// Kills until the time is over; how many.
fn kill(pool: &TestPool, time: Duration, callers: &Receiver<()>) -> u64 {
    let end = Instant::now() + time;
    let mut kills = 0;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while Instant::now() < end {
        // Nothing is sent: it ends early only if all callers have panicked.
        if callers.recv_timeout(KILL_EACH) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
        let there: Vec<u32> = pool.workers().iter().filter_map(|row| row.pid).collect();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Every second time the one that works, if one is seen at it.
        let busy = pool.workers().into_iter().find(|row| row.is_busy).and_then(|row| row.pid);
        let any = there.get((random % there.len().max(1) as u64) as usize).copied();
        let victim = if kills % 2 == 0 { busy.or(any) } else { any };
        if let Some(victim) = victim {
            signal_if_there(victim, Signal::KILL);
            kills += 1;
        }
    }
    kills
}

struct Caller {
    client: Client,
    number: u64,
    calls: u64,
    ends: Ends,
}

impl Caller {
    /// A call, or some at once; large ones among them.
    fn step(&mut self) {
        match self.calls % 16 {
            0 => self.several(),
            1 => self.one(LARGE_BYTES),
            _ => self.one(40),
        }
    }

    fn one(&mut self, len_bytes: usize) {
        let (words, request) = self.request(len_bytes);
        let began = Instant::now();
        let ended = self.client.call("ECHO", &request, CallFlags::NONE);
        let took = began.elapsed();
        assert!(took < TIMEOUT + SLACK, "{took:?} for a call");
        self.note(ended, &words);
    }

    fn several(&mut self) {
        let began = Instant::now();
        let mut out = Vec::new();
        for number in 0..OUT {
            let (words, request) = self.request(if number == 0 { LARGE_BYTES } else { 40 });
            match self.client.call_async("ECHO", &request, CallFlags::NONE) {
                Ok(descriptor) => out.push((descriptor, words)),
                Err(error) => self.note(Err(CallError::Error(error)), &words),
            }
        }
        // The last first: answers to the others are kept meanwhile.
        for (descriptor, words) in out.into_iter().rev() {
            let ended = self.client.answer(Which::One(descriptor), CallFlags::NONE);
            if ended.as_ref().is_err_and(|error| error.code() == Code::Time) {
                self.client.cancel(descriptor).expect("it is still out");
            }
            self.note(ended, &words);
        }
        let took = began.elapsed();
        let most = TIMEOUT * (2 * OUT as u32) + SLACK;
        assert!(took < most, "{took:?} for {OUT} calls");
    }

    /// Words that no other call has, padded to `len_bytes`.
    fn request(&mut self, len_bytes: usize) -> (String, Buffer) {
        self.calls += 1;
        let mut words = format!("caller {} call {} ", self.number, self.calls);
        words.extend(std::iter::repeat_n('.', len_bytes.saturating_sub(words.len())));
        let buffer = text(&words);
        (words, buffer)
    }

    fn note(&mut self, ended: Result<Answer, CallError>, words: &str) {
        let end = match ended {
            Ok(answer) => {
                let buffer = answer.buffer.expect("it answers with data");
                let said = &buffer.as_bytes()[..words.len() + 1];
                assert!(said.strip_suffix(b"\0") == Some(words.as_bytes()), "another's answer");
                "ok"
            }
            Err(error) => match error.code() {
                Code::ServiceError => "TPESVCERR",
                Code::Time => "TPETIME",
                _ => panic!("{error}"),
            },
        };
        *self.ends.entry(end).or_default() += 1;
    }
}

/// Memfds of payloads that this process holds; all its clients are gone.
fn payloads_held() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().contains("pollux-payload")).count()
}

/// Queues of the pool that the kernel lists; the file system of queues is mounted for the look,
/// by processes that may. Others look by name only, which is done before.
fn queues_listed(pool: &TestPool) -> usize {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let place = pool.folder.path().join("queues");
    std::fs::create_dir(&place).expect("a folder");
    if mount("none", &place, "mqueue", MountFlags::empty(), None).is_err() {
        return 0;
    }
    let own = &pool.prefix.as_str()[1..];
    let entries = std::fs::read_dir(&place).expect("it is mounted");
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let count = names.filter(|name| name.starts_with(&format!("{own},"))).count();
    unmount(&place, UnmountFlags::DETACH).expect("it was mounted");
    count
}
