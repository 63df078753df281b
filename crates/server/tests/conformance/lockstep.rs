//! The table, however it is sent, and ten thousand requests at once: on sessions without a kernel, and over many
//! connections to one server that send piece by piece together.
//!
//! Between two pieces a barrier makes sure that the server has read the one before, else it would
//! read both at once and a split would test nothing: a further connection asks twice, one request
//! behind the other. Its first answer comes from a turn whose wait saw all earlier bytes of all
//! connections, its second from a later turn.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pollux_engine::{Counter, Driver, GroupError, ListenAddress};
use pollux_server::{Server, ServerError};
use pollux_testing::{DEADLINE, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cases::{After, Setup, find};
use crate::stage::{self, Came, PROBE, SETUPS, Scene, Stage, Way, compare, masked, references};
use crate::verdict::{self, Answers};

/// How long a server waits surely for what stands behind a refusal; it is said to wait twice as
/// long.
const LINGER_SURE: Duration = Duration::from_secs(1);

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Requests up to here are split at every offset, longer ones at about [`OFFSETS`].
const EVERY_OFFSET_MAX: usize = 2048;
const OFFSETS: usize = 100;

const REQUESTS: usize = 10_000;

const KERNEL_EVERY_OFFSET_MAX: usize = 512;
const KERNEL_OFFSETS: usize = 50;
/// Bytes that follow a refused request, twice.
const MORE: usize = 1000;
/// Connections at once. Both ends are in this process, and `select` knows 1024 descriptors.
const BATCH: usize = 100;
/// Drivers at once, for a server and its clients take turns.
const DRIVERS_AT_ONCE: usize = 2;

/// A scene, what must come of it, and how it is sent.
pub(crate) struct Job<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) reference: &'a Came,
    pub(crate) way: Way,
}

/// Plays jobs on one server.
pub(crate) struct Lockstep<'a> {
    server: &'a Server,
    address: &'a ListenAddress,
    probe_answer: &'a [u8],
    pacer: Peer,
    connects: u64,
    pieces: u64,
}

impl<'a> Lockstep<'a> {
    pub(crate) fn new(
        server: &'a Server,
        address: &'a ListenAddress,
        connects_before: u64,
        probe_answer: &'a [u8],
    ) -> Self {
        let pacer = Peer::connect(address);
        Self { server, address, probe_answer, pacer, connects: connects_before + 1, pieces: 0 }
    }

    /// Connections to this server so far.
    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    /// Pieces sent to connections that the server had not ended: each has to be a read of its own.
    pub(crate) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Plays all jobs together, a connection for each.
    pub(crate) fn play(&mut self, jobs: &[Job<'_>]) -> Vec<Came> {
        let mut peers: Vec<Peer> = jobs.iter().map(|_| Peer::connect(self.address)).collect();
        self.connects += jobs.len() as u64;
        self.await_accepts();
        let start = Instant::now();
        self.send_pieces(jobs, &mut peers);
        self.send_bodies_after_continue(jobs, &mut peers);
        for (job, peer) in jobs.iter().zip(&mut peers) {
            if job.scene.case.after == After::Kept {
                peer.send(PROBE);
            }
        }
        let mut all_came = Vec::new();
        for (job, peer) in jobs.iter().zip(&mut peers) {
            let came = self.last_of(job, peer);
            let is_in_time = start.elapsed() < LINGER_SURE && !matches!(job.way, Way::Pieces(_));
            let has_broken = peer.has_broken && is_in_time && job.scene.case.is_refused();
            all_came.push(Came { has_broken, ..came });
        }
        all_came
    }

    fn send_pieces(&mut self, jobs: &[Job<'_>], peers: &mut [Peer]) {
        for step in 0.. {
            let mut has_sent = false;
            for (job, peer) in jobs.iter().zip(&mut *peers) {
                if let Some(piece) = job.way.piece(step, job.scene.request.len()) {
                    peer.take();
                    self.pieces += u64::from(!peer.has_ended);
                    peer.send(&job.scene.request[piece]);
                    has_sent = true;
                }
            }
            if !has_sent {
                return;
            }
            self.barrier();
        }
    }

    /// Those that wait for 100 Continue have it now.
    fn send_bodies_after_continue(&mut self, jobs: &[Job<'_>], peers: &mut [Peer]) {
        for (job, peer) in jobs.iter().zip(peers) {
            let case = &job.scene.case;
            if !case.after_continue.is_empty() {
                peer.read_until(case.name, |peer| {
                    peer.has_ended || find(&peer.got, b"100 Continue\r\n").is_some()
                });
                peer.send(&case.after_continue);
            }
        }
    }

    fn last_of(&mut self, job: &Job<'_>, peer: &mut Peer) -> Came {
        let case = &job.scene.case;
        match case.after {
            After::Kept => {
                peer.read_until(case.name, |peer| peer.has_ended);
                return Came::before_probe(&peer.got, self.probe_answer);
            }
            After::Closed | After::ClosedOrCut => {
                peer.read_until(case.name, |peer| peer.has_ended);
            }
            After::Any => {
                let heads = case.heads();
                peer.read_until(case.name, |peer| {
                    let answers = Answers::parse(&peer.got, &heads);
                    peer.has_ended || answers.is_ok_and(|came| came.whole.len() == heads.len())
                });
                // An end comes right behind the answer, or not at all.
                self.barrier();
                peer.take();
            }
            After::Waiting => peer.take(),
        }
        Came { stream: masked(&peer.got), has_ended: peer.has_ended, has_broken: false }
    }

    fn barrier(&mut self) {
        for _ in 0..2 {
            self.pacer.got.clear();
            self.pacer.send(GET);
            self.pacer.read_until("the pacer", |pacer| {
                let answers = Answers::parse(&pacer.got, &[]).expect("sound");
                !answers.whole.is_empty()
            });
        }
    }

    fn await_accepts(&self) {
        let counters = &self.server.overview().loops[0].engine;
        let accepted = || counters.value(Counter::Accepted) >= self.connects;
        wait_until("the accept of all connections", accepted);
    }
}

trait Socket: Read + Write + AsFd {}
impl Socket for UnixStream {}
impl Socket for TcpStream {}

/// A client that never blocks for writing while there is something to read.
struct Peer {
    socket: Box<dyn Socket>,
    got: Vec<u8>,
    has_ended: bool,
    /// The server took no more, or ended with bytes unread.
    has_broken: bool,
}

impl Peer {
    fn connect(address: &ListenAddress) -> Self {
        let socket: Box<dyn Socket> = match address {
            ListenAddress::Unix(path) => {
                let socket = UnixStream::connect(path).expect("connected");
                socket.set_nonblocking(true).expect("set");
                Box::new(socket)
            }
            ListenAddress::Tcp(address) => {
                let socket = TcpStream::connect(address).expect("connected");
                socket.set_nonblocking(true).expect("set");
                socket.set_nodelay(true).expect("set");
                Box::new(socket)
            }
        };
        Self { socket, got: Vec::new(), has_ended: false, has_broken: false }
    }

    /// Sends all of `bytes`, unless the server has ended the connection meanwhile.
    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    await_any(self.socket.as_fd(), PollFlags::IN | PollFlags::OUT, "sending");
                    self.take();
                }
                Err(error) if is_end(error.kind()) => return self.has_broken = true,
                Err(error) => panic!("sending: {error}"),
            }
        }
    }

    /// Takes what is there.
    fn take(&mut self) {
        let mut room = [0; 16 * 1024];
        while !self.has_ended {
            match self.socket.read(&mut room) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.got.extend_from_slice(&room[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_end(error.kind()) => {
                    (self.has_ended, self.has_broken) = (true, true);
                }
                Err(error) => panic!("reading: {error}"),
            }
        }
    }

    fn read_until(&mut self, what: &str, is_enough: impl Fn(&Self) -> bool) {
        self.take();
        while !is_enough(self) {
            assert!(!self.has_ended, "{what}: the connection has ended");
            await_any(self.socket.as_fd(), PollFlags::IN, what);
            self.take();
        }
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

fn await_any(socket: BorrowedFd<'_>, flags: PollFlags, what: &str) {
    let patience = Timespec::try_from(DEADLINE).expect("a minute");
    let mut polled = [PollFd::new(&socket, flags)];
    let ready = poll(&mut polled, Some(&patience)).expect("polled");
    assert!(ready > 0, "{what}: nothing came in {DEADLINE:?}");
}

/// Plays a scene on a connection of its own.
pub(crate) fn rehearse(stage: &Stage, Scene { case, request }: &Scene, way: Way) -> Came {
    let mut play = stage.rehearsal(case.setup);
    let mut stream = Vec::new();
    for piece in (0..).map_while(|step| way.piece(step, request.len())) {
        play.feed(&request[piece]);
        stream.append(&mut play.take_output());
    }
    let is_awaited = !case.after_continue.is_empty();
    if is_awaited && find(&stream, b"HTTP/1.1 100 Continue\r\n").is_some() {
        play.feed(&case.after_continue);
    }
    let has_ended = play.closed().is_some();
    if case.after == After::Kept && !has_ended {
        play.feed(PROBE);
    }
    stream.append(&mut play.take_output());
    if case.after == After::Kept && !has_ended {
        return Came::before_probe(&stream, stage.answer_to_probe(case.setup));
    }
    Came { stream: masked(&stream), has_ended, has_broken: false }
}

#[test]
fn sessions_keep_the_table_however_it_is_sent() {
    let stage = Stage::new();
    let mut faults = Vec::new();
    for (scene, reference) in stage.scenes.iter().zip(references(&stage)) {
        let case = &scene.case;
        if let Err(fault) =
            verdict::judge(&Way::Whole.judged(case), &reference.stream, reference.has_ended)
        {
            faults.push(format!("{} (RFC {}), whole: {fault}", case.name, case.rfc));
        }
        for way in Way::all(&scene.request, EVERY_OFFSET_MAX, OFFSETS) {
            if let Err(fault) = compare(case, &reference, &rehearse(&stage, scene, way)) {
                faults.push(format!("{} (RFC {}), {way:?}: {fault}", case.name, case.rfc));
            }
        }
    }
    let shown = faults.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} faults:\n{shown}", faults.len());
}

/// What the request at this place asks for. Neighbours differ in their answers, and no pattern
/// comes again soon, so that answers which changed places would be seen.
fn file(at: usize) -> (&'static str, &'static [u8]) {
    const PLAIN: [&str; 5] =
        ["index.html", "hello.txt", "empty.txt", "sub/page.txt", "bare/file.txt"];
    let path = PLAIN[(at * 7 + at / 5 * 3 + at / 97) % PLAIN.len()];
    (path, stage::content(path))
}

fn is_head(at: usize) -> bool {
    (at * at / 3 + at / 11).is_multiple_of(3)
}

#[test]
fn files_are_sent_in_the_order_of_the_requests() {
    let stage = Stage::new();
    let request = |at| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", file(at).0);
    let requests: String = (0..REQUESTS).map(request).collect();
    for driver in Driver::ALL {
        let Some(server) = start(&stage, Setup::Files, driver) else { continue };
        let answers = Answers::parse(&talk(&server, &requests), &[]).expect("sound");
        assert_eq!((answers.whole.len(), answers.has_part), (REQUESTS, false), "{driver}");
        for (at, answer) in answers.whole.iter().enumerate() {
            let is_right = answer.status == 200 && answer.body == file(at).1;
            assert!(is_right, "{driver}: answer {at} is not {}", file(at).0);
        }
        end(driver, server);
    }
}

#[test]
fn replies_stand_where_their_requests_stood() {
    let stage = Stage::new();
    let method = |at| if is_head(at) { "HEAD" } else { "GET" };
    let request = |at| format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", method(at));
    let requests: String = (0..REQUESTS).map(request).collect();
    let heads: Vec<bool> = (0..REQUESTS).map(is_head).collect();
    for driver in Driver::ALL {
        let Some(server) = start(&stage, Setup::Reply, driver) else { continue };
        // An answer to HEAD in the place of one to GET would swallow what follows it.
        let answers = Answers::parse(&talk(&server, &requests), &heads).expect("sound");
        assert_eq!((answers.whole.len(), answers.has_part), (REQUESTS, false), "{driver}");
        end(driver, server);
    }
}

/// Sends all in one write while it reads; what came up to the end.
fn talk(server: &Server, requests: &str) -> Vec<u8> {
    let ListenAddress::Tcp(address) = &server.addresses()[0] else { panic!("TCP comes first") };
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream.set_write_timeout(Some(DEADLINE)).expect("set");
    let mut writer = stream.try_clone().expect("the same socket");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(requests.as_bytes()).expect("the server reads in the end");
            writer.shutdown(Shutdown::Write).expect("ended");
        });
        let mut came = Vec::new();
        stream.read_to_end(&mut came).expect("answers up to the end");
        came
    })
}

/// Every case is sent whole over TCP; those that are refused also with more bytes behind them, as
/// by a client that has not seen the refusal yet. Over unix sockets every case is sent whole, byte
/// by byte (in pieces of 997 bytes when it has more than 2048) and split in two. Up to
/// [`KERNEL_EVERY_OFFSET_MAX`] bytes that is at every offset, and most of the table is no longer; longer
/// requests are split at about [`KERNEL_OFFSETS`] offsets and around the end of their first head, for the
/// time: a megabyte has a million offsets. The rehearsal splits more.
///
/// What comes has to be what the rehearsal gave, byte for byte, but for what [`compare`] names.
#[test]
fn every_driver_keeps_the_table_however_it_is_sent() {
    let stage = Stage::new();
    let references = references(&stage);
    let waiting: Mutex<VecDeque<Driver>> = Mutex::new(Driver::ALL.into());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..DRIVERS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no panic under it").pop_front();
                    let Some(driver) = next else { break };
                    let found = faults_of(driver, &stage, &references);
                    faults.lock().expect("no panic under it").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic under it");
    let shown = faults.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} faults:\n{shown}", faults.len());
}

/// Starts a server with a TCP and a unix address; none where the driver is not available.
fn start(stage: &Stage, setup: Setup, driver: Driver) -> Option<Server> {
    let path = stage.folder().join(format!("{driver}-{setup:?}"));
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let config = stage.config(setup, &format!("poller = \"{driver}\"\n{listen}"));
    match Server::start(&config) {
        Ok(server) => Some(server),
        Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
            pollux_testing::skip(format_args!("{driver}: {reason}"));
            None
        }
        Err(error) => panic!("{driver}: {error}"),
    }
}

/// Ends a server, which has to end well.
fn end(driver: Driver, server: Server) {
    server.abort();
    server.join().unwrap_or_else(|error| panic!("{driver}: {error}"));
}

fn faults_of(driver: Driver, stage: &Stage, references: &[Came]) -> Vec<String> {
    let mut faults = Vec::new();
    for setup in SETUPS {
        let Some(server) = start(stage, setup, driver) else { break };
        let [tcp, unix] = server.addresses() else { panic!("two were asked for") };
        let probe_answer = stage.answer_to_probe(setup);
        let scenes = stage.scenes.iter().zip(references);
        let scenes: Vec<_> = scenes.filter(|(scene, _)| scene.case.setup == setup).collect();
        let mut over_tcp = Lockstep::new(&server, tcp, 0, probe_answer);
        faults.extend(play(&mut over_tcp, &jobs(&scenes, |_| vec![Way::Whole])));
        let refused = scenes.iter().filter(|(scene, _)| scene.case.is_refused());
        let refused: Vec<_> = refused.map(|&(scene, came)| (scene.followed(MORE), came)).collect();
        let refused: Vec<_> = refused.iter().map(|(scene, came)| (scene, *came)).collect();
        faults.extend(play(&mut over_tcp, &jobs(&refused, |_| vec![Way::Followed(MORE)])));
        let ways =
            |scene: &Scene| Way::all(&scene.request, KERNEL_EVERY_OFFSET_MAX, KERNEL_OFFSETS);
        let mut over_unix = Lockstep::new(&server, unix, over_tcp.connects(), probe_answer);
        faults.extend(play(&mut over_unix, &jobs(&scenes, ways)));
        let engine = &server.overview().loops[0].engine;
        let reads = engine.value(Counter::Receives) - engine.value(Counter::ReceivesEmpty);
        let pieces = over_tcp.pieces() + over_unix.pieces();
        assert!(reads >= pieces, "{driver}: {pieces} pieces were read at {reads} times");
        end(driver, server);
    }
    faults.iter().map(|fault| format!("{driver}, {fault}")).collect()
}

/// Plays all jobs, so many at once; what is wrong with what came.
fn play(lockstep: &mut Lockstep<'_>, jobs: &[Job<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for jobs in jobs.chunks(BATCH) {
        for (job, came) in jobs.iter().zip(lockstep.play(jobs)) {
            let Job { scene: Scene { case, .. }, reference, way } = job;
            if let Err(fault) = compare(&way.judged(case), reference, &came) {
                faults.push(format!("{} (RFC {}), {way:?}: {fault}", case.name, case.rfc));
            }
        }
    }
    faults
}

/// The jobs of all scenes; those of as many steps stand together, for they wait for each other.
fn jobs<'a>(scenes: &[(&'a Scene, &'a Came)], ways: impl Fn(&Scene) -> Vec<Way>) -> Vec<Job<'a>> {
    let of = |&(scene, reference): &(&'a Scene, &'a Came)| {
        ways(scene).into_iter().map(move |way| Job { scene, reference, way })
    };
    let mut jobs: Vec<_> = scenes.iter().flat_map(of).collect();
    jobs.sort_by_key(|job| match job.way {
        Way::Pieces(bytes) => job.scene.request.len().div_ceil(bytes),
        Way::Whole | Way::Split(_) | Way::Followed(_) => 0,
    });
    jobs
}
