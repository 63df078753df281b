//! The proxy between clients and backends that are bytes in the hands of a test, on every driver.
//!
//! | file | what it holds the proxy to |
//! |---|---|
//! | `by_hand` | loops of a proxy, turned by hand: counts of the poller, idle times that end |
//! | `heads` | what is written anew: a table of requests and answers, byte for byte; the PROXY protocol |
//! | `limits` | how large heads may be |
//! | `log` | lines of the access log |
//! | `faults` | hostile clients, backends that fail, and what is tried again |
//! | `troubles` | backends in trouble: a table of what the client gets, which is in the documentation too |
//! | `flow` | bodies both ways, back-pressure, pipelining, upgrades, many clients at once |
//! | `checks` | health checks: what they ask, and which answers are good |
//! | `changed` | answers that are compressed on their way, or have a page in their place |
//! | `access` | who may ask a site, what it adds to fields, pages in place of what is not there |
//! | `backends` | which backend gets a request, how one goes down and comes up, orders for it, the live page |
//! | `names` | servers by names: several addresses, names that move, lookups that fail |
//! | `passwords` | users of sites: what their clients and backends get, while checks are under way too |
//! | `pool` | connections that threads share, requests that wait for one, clients that leave meanwhile, the end of the proxy |
//! | `sites` | which route has a request, what it answers with, what a backend gets of the path |
//! | `rates` | how many requests of a client a route takes |
//! | `spellings` | spellings of a path before servers in Python, Node and Go |
//! | `sticky` | cookies that lead clients back to the server that they had |
//! | `splicing` | long bodies through pipes |
//! | `streams` | TCP mode: bytes, ends and cuts both ways |
//! | `encrypted` | TLS from clients, and to backends |
//! | `certificates` | certificates by the names that clients ask for |
//! | `http2` | clients of HTTP/2: what becomes of each stream, and which payloads reach no backend |
//! | `http2_client` | the client of those |
//! | `tunnels` | streams of HTTP/2 that become WebSockets |
//! | `websockets` | WebSockets between clients and backends of either version |
//! | `to_http2` | backends of HTTP/2: requests that share connections, and what goes wrong there |
//! | `http2_backend` | the backend of those |
//! | `identity` | certificates, and both ends of TLS |
//!
//! This file starts proxies, backends that play a script, and clients that compare bytes. A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.

mod access;
mod backends;
mod by_hand;
mod certificates;
mod changed;
mod checks;
mod client_certs;
mod encrypted;
mod faults;
mod flow;
mod heads;
mod http2;
mod http2_backend;
mod http2_client;
mod http2_programs;
mod identity;
mod limits;
mod log;
mod names;
mod passwords;
mod pool;
mod rates;
mod sites;
mod spellings;
mod splicing;
mod sticky;
mod streams;
mod to_http2;
mod troubles;
mod tunnels;
mod websockets;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_engine::{Address, Counter, Driver, GroupError, ListenAddress};
use pollux_server::config::ProxyConfig;
use pollux_server::stats::LoopSource;
use pollux_server::{BackendCounts, Fault, PoolView, ProxyCounter, ProxyCounters, Resolver};
use pollux_server::{Server, ServerError};
use pollux_testing::{DEADLINE, Refusing, uninterrupted};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A proxy that runs.
struct Proxy {
    server: Option<Server>,
    address: SocketAddr,
}

impl Proxy {
    /// A proxy to these backends; none where the driver is not available.
    fn start(
        driver: Driver,
        backends: &[SocketAddr],
        set: impl FnOnce(&mut ProxyConfig),
    ) -> Option<Self> {
        let backends = backends.iter().map(|address| ListenAddress::Tcp(*address).into()).collect();
        Self::start_with(driver, backends, Resolver::default(), set)
    }

    /// A proxy to backends as users write them, where this looks up their names.
    fn start_with(
        driver: Driver,
        backends: Vec<Address>,
        resolver: Resolver,
        set: impl FnOnce(&mut ProxyConfig),
    ) -> Option<Self> {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let mut config = ProxyConfig::new(vec![listen], backends);
        config.loops.poller = Some(driver);
        config.monitoring.log_level = pollux_server::config::LogLevel::Error;
        set(&mut config);
        match Server::start_proxy_with(&config, resolver) {
            Ok(server) => {
                let ListenAddress::Tcp(address) = server.addresses()[0] else { panic!("TCP") };
                Some(Self { server: Some(server), address })
            }
            Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
                pollux_testing::skip(format_args!("{driver}: {reason}"));
                None
            }
            Err(error) => panic!("{driver}: {error}"),
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// The sum over all loops.
    fn sum(&self, of: impl Fn(&LoopSource) -> u64) -> u64 {
        self.server().overview().loops.iter().map(of).sum()
    }

    fn count(&self, counter: ProxyCounter) -> u64 {
        self.sum(|each| each.proxy.as_ref().map_or(0, |proxy| proxy.value(counter)))
    }

    fn count_of_engine(&self, counter: Counter) -> u64 {
        self.sum(|each| each.engine.value(counter))
    }

    fn faults(&self, fault: Fault) -> u64 {
        let place = Fault::ALL.iter().position(|each| *each == fault);
        let place = place.expect("every fault is in the list");
        self.sum(|each| each.proxy.as_ref().map_or(0, |proxy| proxy.faults(place)))
    }

    fn faults_total(&self) -> u64 {
        (0..Fault::ALL.len())
            .map(|place| {
                self.sum(|each| each.proxy.as_ref().map_or(0, |proxy| proxy.faults(place)))
            })
            .sum()
    }

    fn open_connections(&self) -> u64 {
        self.sum(|each| each.engine.open())
    }

    /// Requests that have a backend, or wait for one.
    fn in_use(&self) -> u64 {
        let of = |each: &ProxyCounters| each.backends().iter().map(BackendCounts::in_use).sum();
        self.sum(|each| each.proxy.as_deref().map_or(0, of))
    }

    /// What the pool of connections has for the first backend.
    fn pool(&self) -> PoolView {
        self.server().overview().upstreams.as_ref().expect("a proxy").view(0)
    }

    /// Waits until `is_so` holds.
    fn await_that(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        pollux_testing::wait_until(what, || is_so(self));
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let ended = server.join();
            if !std::thread::panicking() {
                ended.expect("its loops end well");
            }
        }
    }
}

/// Runs `test` on every driver that is available.
fn on_every_driver(
    backends: &[SocketAddr],
    set: impl Fn(&mut ProxyConfig),
    test: impl Fn(Driver, &Proxy),
) {
    for driver in Driver::ALL {
        if let Some(proxy) = Proxy::start(driver, backends, &set) {
            test(driver, &proxy);
        }
    }
}

/// The same on all of them at once: for what waits for times of the proxy. Nothing but what `test` makes may be of one driver
/// alone.
fn on_all_drivers_at_once(
    backends: &[SocketAddr],
    set: impl Fn(Driver, &mut ProxyConfig) + Sync,
    test: impl Fn(Driver, &Proxy) + Sync,
) {
    at_once(|driver| {
        if let Some(proxy) = Proxy::start(driver, backends, |config| set(driver, config)) {
            test(driver, &proxy);
        }
    });
}

/// Runs `test` for all drivers at once, each on a thread.
fn at_once(test: impl Fn(Driver) + Sync) {
    // By its name what is skipped says of which test it is.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let test = &test;
    std::thread::scope(|scope| {
        for driver in Driver::ALL {
            let thread = std::thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, move || test(driver)).expect("a thread");
        }
    });
}

/// One end of a connection in the hands of a test.
struct Client {
    socket: TcpStream,
    kept: Vec<u8>,
}

impl Client {
    fn connect(to: SocketAddr) -> Self {
        Self::of(TcpStream::connect(to).expect("connected"))
    }

    fn of(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.set_write_timeout(Some(DEADLINE)).expect("set");
        socket.set_nodelay(true).expect("set");
        Self { socket, kept: Vec::new() }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("taken");
    }

    /// As `send`, where the other side may close meanwhile.
    fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(bytes.as_ref());
    }

    /// Sends a GET of this path.
    fn ask(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }

    fn end(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Leaves without a word: the other side sees an error.
    fn reset(self) {
        let linger = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        linger.expect("set");
    }

    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match uninterrupted(|| self.socket.read(&mut buffer)) {
            Ok(0) => false,
            Ok(len) => {
                self.kept.extend_from_slice(&buffer[..len]);
                true
            }
            // A cut is an end for readers.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}, after {:?}", String::from_utf8_lossy(&self.kept)),
        }
    }

    /// The next bytes up to `end` and with it; less at the end of the connection.
    fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = find(&self.kept, end.as_bytes()) {
                let rest = self.kept.split_off(at + end.len());
                return text(&std::mem::replace(&mut self.kept, rest));
            }
            if !self.more() {
                return text(&std::mem::take(&mut self.kept));
            }
        }
    }

    /// The next head; empty at the end of the connection.
    fn head(&mut self) -> String {
        self.until("\r\n\r\n")
    }

    /// The next `len` bytes; less at the end of the connection.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        while self.kept.len() < len && self.more() {}
        let rest = self.kept.split_off(len.min(self.kept.len()));
        std::mem::replace(&mut self.kept, rest)
    }

    /// All that comes until the connection ends.
    fn rest(&mut self) -> String {
        while self.more() {}
        text(&std::mem::take(&mut self.kept))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// A backend: each connection is played by the same function, in a thread of its own.
struct Backend {
    address: SocketAddr,
    accepted: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    /// `play` is given each connection and its number from 0.
    fn start(play: impl Fn(u64, Client) + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), play)
    }

    /// As [`Backend::start`], at this address.
    fn start_at(at: SocketAddr, play: impl Fn(u64, Client) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(at).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let accepted = Arc::<AtomicU64>::default();
        let is_over = Arc::<AtomicBool>::default();
        let counted = Arc::clone(&accepted);
        let over = Arc::clone(&is_over);
        let play = Arc::new(play);
        let thread = std::thread::spawn(move || {
            loop {
                let (socket, _) = listener.accept().expect("accepted");
                if over.load(SeqCst) {
                    return;
                }
                let number = counted.fetch_add(1, SeqCst);
                let play = Arc::clone(&play);
                std::thread::spawn(move || play(number, Client::of(socket)));
            }
        });
        Self { address, accepted, is_over, thread: Some(thread) }
    }

    /// A backend that answers each request with what `answer` makes of its head, and closes where it
    /// makes nothing.
    fn answering<A: AsRef<[u8]>>(
        answer: impl Fn(&str, &mut Client) -> Option<A> + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |_, mut client| {
            loop {
                let head = client.head();
                if head.is_empty() {
                    return;
                }
                let Some(answer) = answer(&head, &mut client) else { return };
                client.try_send(answer);
            }
        })
    }

    /// A backend that answers every request with [`OK`].
    fn polite() -> Self {
        Self::answering(|_, _| Some(OK))
    }

    /// A backend that reads and never answers.
    fn silent() -> Self {
        Self::start(|_, mut client| drop(client.rest()))
    }

    /// Runs `test` on every driver that is available, with a proxy to this backend as it is by default.
    fn on_every_driver(&self, test: impl Fn(Driver, &Proxy)) {
        on_every_driver(&[self.address], |_| {}, test);
    }

    fn accepted(&self) -> u64 {
        self.accepted.load(SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer of 200 with these field lines.
fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// An address without a listener. It is taken until the process ends, so that no other test listens there.
fn unreachable() -> SocketAddr {
    let nobody = Refusing::bind();
    let address = nobody.address();
    std::mem::forget(nobody);
    address
}

/// The value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}
