//! Whole runs against small servers, on every driver that is available here.

mod connections;
mod dying;
mod encrypted;
mod loops;
mod messages;
mod streams;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{End, Load, LoadError, Outcome, Plan, Target};

/// The whole of a small right answer.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A plan of `requests` over `connections`, in a closed loop without a warm-up.
pub(crate) fn plan(driver: Driver, url: &str, connections: u32, requests: u64) -> Plan {
    let target = Target::parse(url, None).expect("a URL");
    let end = End { requests: Some(requests), after: None };
    Plan { connections, end, seed: 1, ..Plan::new(vec![target], driver) }
}

/// Carries out `plan`; `None` where its driver is not available.
pub(crate) fn try_run(plan: Plan) -> Option<Outcome> {
    match Load::start(plan) {
        Ok(running) => Some(running.join().expect("a run")),
        Err(LoadError::Loop(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Carries out the same plan on every driver that is available, and looks at what came of it.
pub(crate) fn on_every_driver(make: impl Fn(Driver) -> Plan, look: impl Fn(&Outcome)) {
    let mut ran = 0;
    for driver in Driver::ALL {
        if let Some(outcome) = try_run(make(driver)) {
            look(&outcome);
            ran += 1;
        }
    }
    assert!(ran >= 5, "select, poll and the kinds of epoll are everywhere");
}

/// Runs `test` for all drivers at once, each on a thread, for what waits for a time: it says whether its driver is
/// available.
pub(crate) fn at_once(test: impl Fn(Driver) -> bool + Sync) {
    let test = &test;
    let ran = std::thread::scope(|scope| {
        let begin = |driver: Driver| scope.spawn(move || test(driver));
        let all: Vec<_> = Driver::ALL.into_iter().map(begin).collect();
        all.into_iter()
            .filter_map(|each| each.join().expect("what failed stands above").then_some(()))
            .count()
    });
    assert!(ran >= 5, "select, poll and the kinds of epoll are everywhere");
}

/// What every outcome has to keep to.
pub(crate) fn is_sound(outcome: &Outcome) {
    let Outcome { totals, errors, latency, first_byte, setting, .. } = outcome;
    let at = format!("{} {totals:?} {errors:?}", setting.driver);
    assert_eq!(latency.count(), totals.answered, "{at}");
    assert_eq!(first_byte.count(), totals.answered, "{at}");
    assert_eq!(totals.by_class.iter().sum::<u64>(), totals.answered, "{at}");
    let wrong = errors.status + errors.mismatch;
    assert_eq!(totals.right + totals.redirected + wrong, totals.answered, "{at}");
}

pub(crate) fn some(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

/// A stream of either family.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection, from the server's side.
struct Peer {
    stream: BufReader<Box<dyn Stream>>,
    tcp: Option<TcpStream>,
    /// Which connection it is, from 0.
    pub(crate) number: u32,
    from: Option<SocketAddr>,
}

impl Peer {
    /// The head of the next request; `None` at the end.
    fn request(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        Some(head)
    }

    /// So many bytes of a body.
    fn body(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// Sends; false when the client is gone.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let stream = self.stream.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush()).is_ok()
    }

    /// Answers every request with `answer`.
    fn answer_all(&mut self, answer: &[u8]) {
        while self.request().is_some() && self.send(answer) {}
    }

    /// Says nothing more, until the client ends.
    fn stay_silent(&mut self) {
        let _ = io::copy(&mut self.stream, &mut io::sink());
    }

    /// Ends the stream, and waits until the client has seen that and closed its side.
    fn close(mut self) {
        if let Some(tcp) = &self.tcp {
            tcp.shutdown(std::net::Shutdown::Write).expect("connected");
        }
        self.stay_silent();
    }

    /// Closes so that the client sees a reset.
    fn reset(self) {
        if let Some(tcp) = &self.tcp {
            rustix::net::sockopt::set_socket_linger(tcp, Some(Duration::ZERO)).expect("set");
        }
    }
}

/// Waits out a time: there is nothing else to wait for.
fn delay(time: Duration) {
    let (_keep, silent): (Sender<()>, Receiver<()>) = channel();
    let _ = silent.recv_timeout(time);
}

/// A server with one thread for each connection, whose conduct each test writes itself.
struct Server {
    address: SocketAddr,
    accepted: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves every connection by `conduct` on a thread of its own.
    fn start(conduct: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicU32::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (counted, over, conduct) =
            (Arc::clone(&accepted), Arc::clone(&is_over), Arc::new(conduct));
        let accepting = std::thread::spawn(move || {
            while let Ok((stream, from)) = listener.accept() {
                if over.load(SeqCst) {
                    return;
                }
                stream.set_nodelay(true).expect("set");
                let number = counted.fetch_add(1, SeqCst);
                let conduct = Arc::clone(&conduct);
                let tcp = stream.try_clone().ok();
                let stream: BufReader<Box<dyn Stream>> = BufReader::new(Box::new(stream));
                let peer = Peer { stream, tcp, number, from: Some(from) };
                std::thread::spawn(move || conduct(peer));
            }
        });
        Self { address, accepted, is_over, accepting: Some(accepting) }
    }

    /// Answers every request; with the number of those that it has read.
    fn counting() -> (Self, Arc<AtomicU64>) {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        let server = Self::start(move |mut peer| {
            while peer.request().is_some() {
                // Before it is sent: a client that has the answer sees the count.
                counted.fetch_add(1, SeqCst);
                if !peer.send(OK) {
                    return;
                }
            }
        });
        (server, asked)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().expect("the server's thread");
        }
    }
}

/// A server on a unix socket, for one test; it ends with its first `clients` connections.
fn start_unix(path: &Path, clients: u32, answer: &'static [u8]) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).expect("bound");
    std::thread::spawn(move || {
        let serve = |number: u32| {
            let (stream, _) = listener.accept().expect("a client");
            let stream: BufReader<Box<dyn Stream>> = BufReader::new(Box::new(stream));
            let mut peer = Peer { stream, tcp: None, number, from: None };
            std::thread::spawn(move || peer.answer_all(answer))
        };
        let served: Vec<JoinHandle<()>> = (0..clients).map(serve).collect();
        served.into_iter().for_each(|each| each.join().expect("served"));
    })
}
