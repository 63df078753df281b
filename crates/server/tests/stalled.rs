//! Peers that ask for much and read nothing: what each costs, and what the process keeps when they have left.
//!
//! Each case runs on each driver in a process of its own, which is this binary started again: its memory is the server's, as
//! clients and backends keep nothing there but their sockets. They wait for the most part, so several run at once.

#[path = "proxy/identity.rs"]
#[expect(dead_code, reason = "the tests of the proxy use the others")]
mod identity;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pollux_engine::{Address, Counter, Driver, GroupError, ListenAddress, Mechanism};
use pollux_server::config::LogLevel;
use pollux_server::config::ProxyConfig;
use pollux_server::{ProxyCounter, ProxyCounters, Resolver};
use pollux_server::{Server, ServerError};
use pollux_settings::Given;
use pollux_testing::{DEADLINE, Trial, run_tests, skip, skippable_test, wait_until};
use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};

use identity::Identity;

/// Both ends of a client and of its backend's connection stand in this process, which may have 1,024 descriptors.
const CLIENTS: usize = 100;
/// The first ones, for which the loop makes its tables: enough that the heap is trimmed behind them.
const FIRST: usize = 40;
/// What a client holds at most whose answer waits for it, in memory of the proxy.
const CLIENT_KIB_MAX: usize = 160;
/// The same with TLS: its keys, and what was encrypted in one go.
const TLS_CLIENT_KIB_MAX: usize = 288;
/// The same of a client whose upload waits for the backend.
const UPLOAD_KIB_MAX: usize = 320;
/// More than the sockets on its way hold.
const BODY_BYTES: usize = 16 << 20;
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// So many cases run at once for each processor.
const PER_CPU: usize = 3;
/// First argument of this binary when it is started again for one case; the name of the test stands behind it.
const CHILD: &str = "--child";

/// What loops differ by: completions, edges, levels, a ring that polls.
const DRIVERS: &[Driver] = &[
    Driver::Completion,
    Driver::Readiness(Mechanism::EpollEt),
    Driver::Readiness(Mechanism::Poll),
    Driver::Readiness(Mechanism::UringPoll),
];
/// Those that differ in how they hold bytes.
const BOTH_LOOPS: &[Driver] = &[Driver::Completion, Driver::Readiness(Mechanism::EpollEt)];

/// A case, and the drivers that it is a test of.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    drivers: &'static [Driver],
    run: fn(Driver),
}

const CASES: &[Case] = &[
    Case {
        name: "clients_that_read_nothing_cost_little_and_leave_nothing_behind",
        drivers: DRIVERS,
        run: clients_that_read_nothing,
    },
    Case {
        name: "streams_of_all_clients_hold_together_no_more_than_they_may",
        drivers: BOTH_LOOPS,
        run: streams_of_all_clients,
    },
    Case {
        name: "clients_in_tls_that_read_nothing_leave_nothing_behind",
        drivers: BOTH_LOOPS,
        run: clients_in_tls,
    },
    Case {
        name: "clients_of_files_in_tls_that_read_nothing_leave_nothing_behind",
        drivers: BOTH_LOOPS,
        run: clients_of_files_in_tls,
    },
    Case {
        name: "uploads_that_the_backend_does_not_read_leave_nothing_behind",
        drivers: BOTH_LOOPS,
        run: uploads_that_wait,
    },
];

fn main() -> ExitCode {
    let mut all = CASES.iter().flat_map(|case| case.drivers.iter().map(|driver| (*case, *driver)));
    let name_of = |case: &Case, driver: Driver| format!("{driver}::{}", case.name);
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(CHILD) {
        let name = arguments.next().expect("the name of a test");
        let asked = all.find(|(case, driver)| name_of(case, *driver) == name);
        let (case, driver) = asked.expect("started by this binary");
        (case.run)(driver);
        return ExitCode::SUCCESS;
    }
    let tests: Vec<Trial> = all
        .map(|(case, driver)| {
            let name = name_of(&case, driver);
            skippable_test(name.clone(), move || in_a_process(&name))
        })
        .collect();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    run_tests(PER_CPU * cpus, None, tests)
}

/// Runs a test in a process of its own; `Err` is the reason why it was skipped there.
fn in_a_process(test: &str) -> Result<(), String> {
    let mut again = Command::new(std::env::current_exe().expect("the own path"));
    // Every wait has a deadline there.
    let ended = again.args([CHILD, test]).output().expect("started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}: {said}", ended.status);
    match said.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        Some(why) => Err(why.to_owned()),
        None => Ok(()),
    }
}

/// What a backend does with its connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Sends a body for each request, as fast as it is taken.
    Answers,
    /// Neither reads nor says anything.
    Stalls,
}

/// What a backend is to do.
#[derive(Default)]
struct Orders {
    is_over: AtomicBool,
    /// It ends all connections that it has, which takes this back.
    cuts: AtomicBool,
}

/// A backend, on a thread that keeps no bytes.
struct Backend<'s> {
    address: SocketAddr,
    orders: &'s Orders,
    thread: Option<ScopedJoinHandle<'s, ()>>,
}

impl<'s> Backend<'s> {
    fn start<'e>(scope: &'s thread::Scope<'s, 'e>, orders: &'s Orders, habit: Habit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("bound");
        let thread = scope.spawn(move || play(&listener, orders, habit));
        Self { address, orders, thread: Some(thread) }
    }

    fn cut(&self) {
        self.orders.cuts.store(true, Relaxed);
        wait_until("the backend has ended its connections", || !self.orders.cuts.load(Relaxed));
    }
}

impl Drop for Backend<'_> {
    fn drop(&mut self) {
        self.orders.is_over.store(true, Relaxed);
        let ended = self.thread.take().map(ScopedJoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the backend");
    }
}

fn play(listener: &TcpListener, orders: &Orders, habit: Habit) {
    listener.set_nonblocking(true).expect("set");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let piece = [b'x'; 16 << 10];
    // What each has still to be sent of its body, once it has asked: not all that are opened are asked on.
    let mut connections: Vec<(TcpStream, Option<usize>)> = Vec::new();
    while !orders.is_over.load(Relaxed) {
        if orders.cuts.load(Relaxed) {
            connections.clear();
            orders.cuts.store(false, Relaxed);
        }
        while let Ok((connection, _)) = listener.accept() {
            if habit == Habit::Answers {
                set_socket_send_buffer_size(&connection, 64 << 10).expect("set");
            }
            connection.set_nonblocking(true).expect("set");
            connections.push((connection, None));
        }
        let mut is_any = false;
        connections.retain_mut(|(connection, left)| {
            let done = match left {
                _ if habit == Habit::Stalls => return true,
                None => connection.read(&mut [0; 1024]).and_then(|len| match len {
                    0 => Err(ErrorKind::UnexpectedEof.into()),
                    // A new connection takes so little at once.
                    _ => connection.write_all(head.as_bytes()).map(|()| *left = Some(BODY_BYTES)),
                }),
                Some(0) => return true,
                Some(left) => connection
                    .write(&piece[..piece.len().min(*left)])
                    .map(|written| *left -= written),
            };
            is_any |= done.is_ok();
            done.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |()| true)
        });
        if !is_any {
            // For the next connection, or room.
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// `VmRSS` of `proc_pid_status(5)`.
fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A server under test.
struct Stage {
    driver: Driver,
    server: Option<Server>,
    address: SocketAddr,
}

impl Stage {
    /// None where the driver is not available.
    fn new(driver: Driver, started: Result<Server, ServerError>) -> Option<Self> {
        match started {
            Ok(server) => {
                let ListenAddress::Tcp(address) = server.addresses()[0] else { panic!("TCP") };
                Some(Self { driver, server: Some(server), address })
            }
            Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
                skip(format_args!("{driver}: {reason}"));
                None
            }
            Err(error) => panic!("{driver}: {error}"),
        }
    }

    fn proxy(driver: Driver, backend: SocketAddr, identity: Option<&Identity>) -> Option<Self> {
        Self::proxy_with(driver, backend, |config| {
            config.frontends[0].tls = identity.map(Identity::keys).into();
        })
    }

    fn proxy_with(
        driver: Driver,
        backend: SocketAddr,
        set: impl FnOnce(&mut ProxyConfig),
    ) -> Option<Self> {
        let listen: Address = "127.0.0.1:0".parse().expect("an address");
        let mut config = ProxyConfig::new(vec![listen], vec![ListenAddress::Tcp(backend).into()]);
        config.loops.poller = Some(driver);
        // On a busy machine it takes a while until all have read.
        config.limits.clients.write_timeout = Duration::from_secs(3600);
        config.monitoring.log_level = LogLevel::Error;
        set(&mut config);
        Self::new(driver, Server::start_proxy_with(&config, Resolver::default()))
    }

    fn count(&self, counter: Counter) -> u64 {
        let overview = self.server.as_ref().expect("it runs").overview();
        overview.loops.iter().map(|each| each.engine.value(counter)).sum()
    }

    /// What the counters of the proxy say.
    fn proxied(&self, of: impl Fn(&ProxyCounters) -> u64) -> u64 {
        let overview = self.server.as_ref().expect("it runs").overview();
        overview.loops.iter().map(|each| each.proxy.as_deref().map_or(0, &of)).sum()
    }

    fn open(&self) -> u64 {
        let overview = self.server.as_ref().expect("it runs").overview();
        overview.loops.iter().map(|each| each.engine.open()).sum()
    }

    fn wait_until(&self, what: &str, condition: impl FnMut() -> bool) {
        wait_until(format_args!("{}: {what}", self.driver), condition);
    }

    /// Waits until nothing moves any more: what is on its way fills all sockets.
    fn settle(&self) {
        let begun = Instant::now();
        let mut quiet = (Instant::now(), 0);
        while quiet.0.elapsed() < Duration::from_secs(1) {
            assert!(begun.elapsed() < DEADLINE, "{}: more and more is taken", self.driver);
            let bytes = self.count(Counter::BytesIn) + self.count(Counter::BytesOut);
            if bytes != quiet.1 {
                quiet = (Instant::now(), bytes);
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Stalls as many clients as `begin` is asked for: what they hold is bounded, and given back when they have left by
    /// `leave`, as `has_left` says.
    fn check<C>(
        &self,
        (clients, client_kib_max): (usize, usize),
        begin: impl Fn(usize) -> Vec<C>,
        leave: impl Fn(Vec<C>),
        has_left: impl Fn(&Self) -> bool,
    ) {
        // What a loop has for its first connections is not theirs.
        let first = begin(FIRST);
        self.settle();
        leave(first);
        self.wait_until("the first clients are gone", || has_left(self));
        self.wait_until("their memory is given back", || self.count(Counter::HeapTrims) > 0);
        let before = resident_kib();
        let trims = self.count(Counter::HeapTrims);
        let stalled = begin(clients);
        self.settle();
        let held = resident_kib().saturating_sub(before);
        assert!(
            held <= clients * client_kib_max,
            "{}: {} KiB for each of {clients} clients",
            self.driver,
            held / clients
        );
        leave(stalled);
        self.wait_until("the clients are gone", || has_left(self));
        let what = format!("{held} KiB are given back of what was {before} KiB before");
        self.wait_until(&what, || resident_kib() <= before + before / 5);
        self.wait_until("the heap was trimmed", || self.count(Counter::HeapTrims) > trims);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let ended = server.join();
            if !thread::panicking() {
                ended.expect("its loops end well");
            }
        }
    }
}

/// A client that has asked, and reads nothing of its own will.
fn stalled(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connected");
    // Else the kernel takes megabytes before the proxy has to wait.
    set_socket_recv_buffer_size(&client, 16 << 10).expect("set");
    client.write_all(REQUEST.as_bytes()).expect("sent");
    client
}

/// A client of HTTP/2 that has asked so often, and opens no window for an answer.
fn stalled_streams(address: SocketAddr, streams: u32) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(DEADLINE)).expect("set");
    // It leaves by a reset: one that only stopped to send would get its answers.
    set_socket_linger(&client, Some(Duration::ZERO)).expect("set");
    // INITIAL_WINDOW_SIZE is 0.
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0".to_vec();
    for stream in 0..streams {
        said.extend_from_slice(b"\0\0\x06\x01\x05");
        said.extend_from_slice(&(2 * stream + 1).to_be_bytes());
        said.extend_from_slice(b"\x82\x86\x84\x01\x01x");
    }
    client.write_all(&said).expect("sent");
    client
}

/// So many that send as much as is taken.
fn uploading(address: SocketAddr, clients: usize) -> Vec<TcpStream> {
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let begin = |_| {
        let mut client = TcpStream::connect(address).expect("connected");
        client.write_all(head.as_bytes()).expect("sent");
        client.set_nonblocking(true).expect("set");
        client
    };
    let mut clients: Vec<TcpStream> = (0..clients).map(begin).collect();
    let piece = [b'x'; 16 << 10];
    let begun = Instant::now();
    let mut taken = begun;
    // Until the server has stopped to read from all of them.
    while taken.elapsed() < Duration::from_millis(500) && begun.elapsed() < DEADLINE {
        for client in &mut clients {
            while client.write(&piece).is_ok() {
                taken = Instant::now();
            }
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    clients
}

/// Runs `check` with a backend of this habit.
fn beside(habit: Habit, check: impl FnOnce(&Backend<'_>)) {
    let orders = Orders::default();
    thread::scope(|scope| check(&Backend::start(scope, &orders, habit)));
}

fn clients_that_read_nothing(driver: Driver) {
    beside(Habit::Answers, |backend| {
        let Some(stage) = Stage::proxy(driver, backend.address, None) else { return };
        let begin = |clients| (0..clients).map(|_| stalled(stage.address)).collect();
        stage.check((CLIENTS, CLIENT_KIB_MAX), begin, drop, |stage| stage.open() == 0);
    });
}

fn streams_of_all_clients(driver: Driver) {
    const MOST: usize = 4 << 20;
    const CLIENTS: usize = 5;
    // Each could hold 96 KiB and more.
    const STREAMS: u32 = 60;
    beside(Habit::Answers, |backend| {
        let limited = |config: &mut ProxyConfig| {
            config.limits.http2_waiting_max = MOST;
            // Those that were opened and not asked on are gone soon.
            config.limits.upstream_idle_timeout = Duration::from_secs(1);
        };
        let Some(stage) = Stage::proxy_with(driver, backend.address, limited) else { return };
        drop(stalled_streams(stage.address, 10));
        stage.wait_until("the first client is gone", || stage.open() == 0);
        let before = resident_kib();
        let stalled: Vec<_> =
            (0..CLIENTS).map(|_| stalled_streams(stage.address, STREAMS)).collect();
        stage.settle();
        let held = stage.proxied(ProxyCounters::held_bytes);
        let most = MOST as u64;
        assert!(held > most / 2 && held <= most, "{driver}: {held} bytes are counted");
        let grown_kib = resident_kib().saturating_sub(before);
        // A buffer may be twice as large as what is in it.
        assert!(grown_kib <= 3 * MOST / 1024, "{driver}: {grown_kib} KiB");
        let cut = stage.proxied(|proxy| proxy.value(ProxyCounter::StreamsCut));
        // Each that is left holds 32 KiB at least.
        assert!(cut >= 172, "{driver}: {cut} were cut");
        // Who comes now gets an answer.
        let mut late = stalled_streams(stage.address, 1);
        let mut head = [0; 9];
        loop {
            late.read_exact(&mut head).expect("a frame");
            let len = (usize::from(head[1]) << 8) | usize::from(head[2]);
            late.read_exact(&mut vec![0; len]).expect("its payload");
            if head[3] == 1 {
                break;
            }
        }
        drop((stalled, late));
        stage.wait_until("the clients are gone", || stage.open() == 0);
        assert_eq!(stage.proxied(ProxyCounters::held_bytes), 0, "{driver}");
    });
}

fn clients_in_tls(driver: Driver) {
    let identity = Identity::make();
    beside(Habit::Answers, |backend| {
        let Some(stage) = Stage::proxy(driver, backend.address, Some(&identity)) else { return };
        let begin_one = |_| {
            let mut client = identity.connect(stage.address);
            set_socket_recv_buffer_size(&client.sock, 16 << 10).expect("set");
            client.write_all(REQUEST.as_bytes()).expect("sent");
            // Of the client's side only the socket is kept.
            client.sock
        };
        let begin = |clients| (0..clients).map(begin_one).collect();
        stage.check((CLIENTS, TLS_CLIENT_KIB_MAX), begin, drop, |stage| stage.open() == 0);
    });
}

fn clients_of_files_in_tls(driver: Driver) {
    let identity = Identity::make();
    let site = tempfile::tempdir().expect("a folder");
    let file = fs::File::create(site.path().join("large")).expect("a file");
    file.set_len(BODY_BYTES as u64).expect("a file with a hole");
    let keys = identity.keys();
    let text = format!(
        "dir = {:?}\ncert = {:?}\nkey = {:?}\nlisten = \"127.0.0.1:0\"\nquiet = true\n\
         poller = \"{driver}\"",
        site.path(),
        keys.cert,
        keys.key
    );
    let config = Given::from_toml(&text, "test").read().expect("right");
    let Some(stage) = Stage::new(driver, Server::start(&config)) else { return };
    let begin_one = |_| {
        let mut client = identity.connect(stage.address);
        set_socket_recv_buffer_size(&client.sock, 16 << 10).expect("set");
        client.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        client.sock
    };
    let begin = |clients| (0..clients).map(begin_one).collect();
    stage.check((CLIENTS, TLS_CLIENT_KIB_MAX), begin, drop, |stage| stage.open() == 0);
}

/// A client that waits for room is known to be gone once the server reads from it again: its backend goes too.
fn uploads_that_wait(driver: Driver) {
    beside(Habit::Stalls, |backend| {
        let Some(stage) = Stage::proxy(driver, backend.address, None) else { return };
        let begin = |clients| uploading(stage.address, clients);
        let leave = |clients| {
            drop(clients);
            backend.cut();
        };
        stage.check((CLIENTS, UPLOAD_KIB_MAX), begin, leave, |stage| stage.open() == 0);
    });
}
