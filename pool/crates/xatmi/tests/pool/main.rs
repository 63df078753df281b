//! Pools as processes: managers, workers and clients, each this very program in another role.
//!
//! The name of a test begins with the way in which requests travel, `memory::` or `queues::`.
//!
//! ```text
//!  pool [FILTER]             the tests whose names contain FILTER
//!  POLLUX_TEST_ROLE=…        a manager or a client that a test has started
//!  POLLUX_POOL_LINK=…        a worker that a manager has started
//!  POLLUX_KILL_SECONDS=60    how long the test of kills takes
//! ```

mod control;
mod death;
mod left;
mod life;
mod memory;
mod support;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use pollux_engine::ListenAddress;
use pollux_testing::{run_tests, test};
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client, Which};
use pollux_xatmi::environment::{Environment, Transport};
use pollux_xatmi::pool::{Log, Pool, PoolOptions};
use pollux_xatmi::supervisor::Selection;
use pollux_xatmi::worker::{Done, Incoming, LINK_VARIABLE, Registry, Wake, Worker};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Which role a test wants.
pub(crate) const ROLE: &str = "POLLUX_TEST_ROLE";
/// The configuration of a manager.
pub(crate) const CONFIG: &str = "POLLUX_TEST_CONFIG";
/// Set where a manager is to serve metrics.
pub(crate) const METRICS: &str = "POLLUX_TEST_METRICS";
/// The limit of a manager on the size of files.
pub(crate) const FILE_SIZE: &str = "POLLUX_TEST_FILE_SIZE";

/// What a manager says when it listens.
pub(crate) const LISTENS: &str = "the manager listens";
/// What a client says when it is connected.
pub(crate) const CONNECTED: &str = "the client is connected";

/// Tests at once: most of their time is spent waiting for check cycles.
const THREADS: usize = 6;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = play() {
        return code;
    }
    let both = [life::TESTS, control::TESTS, death::TESTS, left::TESTS].concat();
    let memory = [&both, memory::TESTS].concat();
    let queues =
        [&both, life::QUEUE_TESTS, control::QUEUE_TESTS, death::QUEUE_TESTS, left::QUEUE_TESTS];
    let over = |transport: Transport, tests: Vec<Test>| {
        tests.into_iter().map(move |(name, run)| {
            test(format!("{}::{name}", transport.name()), move || {
                support::TRANSPORT.set(transport);
                run();
            })
        })
    };
    let all = over(Transport::Memory, memory).chain(over(Transport::Queues, queues.concat()));
    run_tests(THREADS, None, all.collect())
}

/// Plays the role that the environment names, if it names one.
fn play() -> Option<ExitCode> {
    if std::env::var(ROLE).as_deref() == Ok("child") {
        say(&format!("child {} begins", std::process::id()));
        rest();
    }
    if std::env::var_os(LINK_VARIABLE).is_some() {
        return Some(worker());
    }
    match std::env::var(ROLE).as_deref() {
        Ok("manager") => Some(manager()),
        Ok("client") => Some(client()),
        Ok("caller") => Some(caller()),
        Ok("scribbler") => Some(scribbler()),
        Ok("crowded") => Some(crowded()),
        Ok("returning") => Some(returning()),
        _ => None,
    }
}

fn manager() -> ExitCode {
    let config = PathBuf::from(std::env::var_os(CONFIG).expect("the test set it"));
    let metrics = std::env::var_os(METRICS)
        .map(|_| ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address")));
    let environment = Environment::of_process().expect("the test set it well");
    if let Ok(limit) = std::env::var(FILE_SIZE) {
        let current = Some(limit.parse().expect("a number"));
        setrlimit(Resource::Fsize, Rlimit { current, ..getrlimit(Resource::Fsize) })
            .expect("less than before");
    }
    let log = Log::append_to(&config.with_extension("log")).expect("a log");
    let options =
        PoolOptions { config, environment, wake: Wake::One, metrics, only: Selection::All };
    match Pool::open(options, log) {
        Ok(pool) => {
            say(LISTENS);
            pool.run().expect("the poller works");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// A context that lives until the test lets it end.
fn client() -> ExitCode {
    let environment = Environment::of_process().expect("the test set it well");
    let client = Client::open(&environment).expect("a pool runs");
    say(CONNECTED);
    let _ = std::io::stdin().read(&mut [0]);
    drop(client);
    ExitCode::SUCCESS
}

/// A context that calls until it is killed, with several calls out.
fn caller() -> ExitCode {
    let environment = Environment::of_process().expect("the test set it well");
    let mut client = Client::open(&environment).expect("a pool runs");
    say(CONNECTED);
    let text = Buffer::string("of one that will be killed").expect("it fits");
    loop {
        let calls: Vec<_> = (0..3)
            .map(|_| client.call_async("ECHO", &text, CallFlags::NONE).expect("it serves"))
            .collect();
        for call in calls {
            client.answer(Which::One(call), CallFlags::NONE).expect("it serves");
        }
    }
}

/// A client that writes at random into what it may write of the memory of its pool.
fn scribbler() -> ExitCode {
    /// Words that hold idle bits, wake flags, rings and the first requests; what lies behind is the same.
    const WORDS: usize = 1_400_000;
    let environment = Environment::of_process().expect("the test set it well");
    let _client = Client::open(&environment).expect("a pool runs");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    let line =
        maps.lines().find(|line| line.contains(" rw-s ") && line.contains("pollux-pool-exchange:"));
    let line = line.expect("the client has mapped the memory");
    let start = line.split('-').next().and_then(|start| usize::from_str_radix(start, 16).ok());
    let start = start.expect("an address");
    let memory = std::fs::File::options().write(true).open("/proc/self/mem").expect("ours");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = start + random as usize % WORDS * 8;
        // Small numbers are more often taken for something.
        let value = if random & 1 << 60 == 0 { random >> 1 } else { random % 2_000 };
        std::os::unix::fs::FileExt::write_at(&memory, &value.to_ne_bytes(), at as u64)
            .expect("it may be written");
    }
}

/// A context for whose connection there is the last descriptor; says its error.
fn crowded() -> ExitCode {
    let environment = Environment::of_process().expect("the test set it well");
    leave_descriptors(1);
    say(&Client::open(&environment).expect_err("one descriptor is too few").to_string());
    ExitCode::SUCCESS
}

/// Sets the limit on descriptors so that `count` more can be opened.
fn leave_descriptors(count: u64) {
    let next = rustix::io::dup(std::io::stdin()).expect("room").as_raw_fd() as u64;
    let limit = Rlimit { current: Some(next + count), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("within what may be");
}

/// A context with a call out, in front of a pipe, that comes to another manager: first with one descriptor
/// free, which is too few, then with more. The lines of standard input say when.
fn returning() -> ExitCode {
    let environment = Environment::of_process().expect("the test set it well");
    let mut client = Client::open(&environment).expect("a pool runs");
    let mut lines = std::io::stdin().lines().map(|line| line.expect("the test writes"));
    let mut text = || Buffer::string(&lines.next().expect("a line")).expect("it fits");
    let gated = client.call_async("GATE", &text(), CallFlags::NO_TIME).expect("it is offered");
    say("a call is out");
    let words = text();
    leave_descriptors(1);
    client.call("ECHO", &words, CallFlags::NONE).expect("any manager serves it");
    assert_eq!(client.counters().managers_followed, 0);
    say("called");
    let words = text();
    leave_descriptors(16);
    while client.counters().managers_followed == 0 {
        client.call("ECHO", &words, CallFlags::NONE).expect("it serves");
    }
    say("followed");
    match client.answer(Which::One(gated), CallFlags::NO_TIME) {
        Ok(_) => say("answered"),
        Err(error) => say(&error.to_string()),
    }
    ExitCode::SUCCESS
}

/// Options behind `--`: `refuse` does not start, `late` starts when it is not awaited any more,
/// `gate` offers one that waits and one that passes on, `crowd` those that change how many descriptors it can
/// open and one that offers another, `other` offers another service, `fork` has a child that looks like itself.
fn worker() -> ExitCode {
    let worker = Worker::from_environment().expect("a manager started this");
    let registry = worker.registry();
    let ran = worker.run(
        std::env::args_os(),
        |arguments| {
            say(&format!("worker {} begins", std::process::id()));
            writeln!(std::io::stdout(), "worker prints").expect("standard output");
            let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
            match words.as_slice() {
                ["refuse"] => Err("no database".to_owned()),
                ["late"] => rest(),
                ["gate"] => offer_gate(&registry),
                ["crowd"] => offer_crowd(&registry),
                ["other"] => offer(&registry, "OTHER", |request| Done::success(request.buffer)),
                ["fork"] => {
                    let mut child = Command::new(std::env::current_exe().expect("this program"));
                    child.args(std::env::args_os().skip(1)).env(ROLE, "child");
                    let mut child = child.spawn().expect("a child");
                    std::thread::spawn(move || child.wait());
                    offer_all(&registry)
                }
                _ => offer_all(&registry),
            }
        },
        || say("worker ends"),
    );
    match ran {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn offer_gate(registry: &Registry) -> Result<(), String> {
    // Until the pipe of this name is written to.
    offer(registry, "GATE", |request| {
        let path = request.buffer.as_ref().expect("a path").as_bytes();
        let path = path.split(|byte| *byte == 0).next().expect("a text");
        let path = std::str::from_utf8(path).expect("plain");
        std::fs::read(path).expect("a pipe");
        Done::success(request.buffer)
    })?;
    offer(registry, "PASS", |request| {
        let service = pollux_xatmi::queue::ServiceName::new("ECHO").expect("a name");
        Done::Forward {
            service,
            buffer: request.buffer,
            len_bytes: 0,
            call_info: None,
            priority: None,
        }
    })?;
    offer(registry, "ECHO", |request| Done::success(request.buffer))
}

fn offer_crowd(registry: &Registry) -> Result<(), String> {
    for (name, count) in [("CROWD", 0), ("ROOM", 16)] {
        offer(registry, name, move |request| {
            leave_descriptors(count);
            Done::success(request.buffer)
        })?;
    }
    let grown = registry.clone();
    offer(registry, "GROW", move |request| {
        match offer(&grown, "GROWN", |request| Done::success(request.buffer)) {
            Ok(()) => Done::success(request.buffer),
            Err(_) => Done::failure(request.buffer),
        }
    })
}

fn offer_all(registry: &Registry) -> Result<(), String> {
    offer(registry, "ECHO", |request| Done::success(request.buffer))?;
    offer(registry, "PID", |_| {
        let text = std::process::id().to_string();
        Done::success(Buffer::string(&text).expect("it fits"))
    })?;
    offer(registry, "CRASH", |_| {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("our own");
        rest()
    })?;
    offer(registry, "HANG", |_| rest())
}

fn offer(
    registry: &Registry,
    name: &str,
    function: impl FnMut(Incoming) -> Done + 'static,
) -> Result<(), String> {
    registry.advertise(name, name, function).map_err(|error| error.to_string())
}

/// Until this process is killed.
fn rest() -> ! {
    loop {
        std::thread::park();
    }
}

fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("the starter reads it");
}
