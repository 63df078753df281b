//! The fd table on the real kernel: a small server over every mechanism, which answers with more than a socket
//! buffer takes to peers that read late; and descriptors that are removed and entered again within one turn.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pollux_poller::{Error, Events, Mechanism, Poller, Readiness, Token, Trigger};
use rustix::io::Errno;

use crate::fd_table::{FdTable, Ready, Watch};
use crate::{Counter, Counters};

const CONNECTIONS: usize = 8;
const REQUESTS: usize = 20;
const ANSWER_BYTES: usize = 300_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// One thread plays both sides: a turn of the server, then whatever its peers can do.
struct Server {
    poller: Box<dyn Poller>,
    table: FdTable<OwnedFd>,
    counters: Counters,
    /// Bytes that are still to be sent, by slot.
    output: Vec<usize>,
    stalls: u64,
}

impl Server {
    fn turn(&mut self, events: &mut Events) {
        let mut refused = Vec::new();
        self.table.apply(&mut *self.poller, &self.counters, &mut refused);
        assert!(refused.is_empty(), "{refused:?}");
        self.poller.wait(events, Some(Duration::from_millis(1))).expect("wait");
        for event in &*events {
            let due = self.table.reported(event.token, event.readiness).expect("none was closed");
            self.serve(event.token, due);
        }
        self.table.check().expect("every invariant holds");
    }

    fn serve(&mut self, token: Token, due: Ready) {
        if due.write {
            self.flush(token);
        }
        if due.read {
            let mut request = [0; 16];
            loop {
                let fd = self.table.fd(token).expect("live");
                match rustix::io::read(fd, &mut request) {
                    Ok(len) => self.output[token.slot() as usize] += len * ANSWER_BYTES,
                    Err(Errno::AGAIN) => break self.table.cannot_read(token),
                    Err(errno) => panic!("read: {errno}"),
                }
            }
            self.flush(token);
        }
    }

    fn flush(&mut self, token: Token) {
        let left = &mut self.output[token.slot() as usize];
        while *left > 0 {
            let fd = self.table.fd(token).expect("live");
            match rustix::io::write(fd, &[b'a'; 65_536][..(*left).min(65_536)]) {
                Ok(len) => *left -= len,
                Err(Errno::AGAIN) => {
                    self.stalls += 1;
                    self.table.cannot_write(token);
                    self.table.want_write(token);
                    return;
                }
                Err(errno) => panic!("write: {errno}"),
            }
        }
        self.table.stop_write(token);
    }
}

/// A client with one request on its way at a time.
struct Peer {
    stream: UnixStream,
    requests: usize,
    answered_bytes: usize,
}

impl Peer {
    /// Whether all answers are in.
    fn advance(&mut self) -> bool {
        let mut answer = [0; 32_768];
        match self.stream.read(&mut answer) {
            Ok(len) => self.answered_bytes += len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let is_answered = self.answered_bytes == self.requests * ANSWER_BYTES;
        if is_answered && self.requests < REQUESTS {
            self.requests += 1;
            self.stream.write_all(b"?").expect("room");
        }
        self.answered_bytes == REQUESTS * ANSWER_BYTES
    }
}

#[test]
fn every_mechanism_serves_all_and_asks_the_kernel_no_more_than_it_must() {
    for mechanism in Mechanism::ALL {
        match mechanism.open() {
            Ok(poller) => serve_all(mechanism, poller),
            Err(error @ Error::Unavailable { .. }) => {
                let mut out = std::io::stderr();
                writeln!(out, "skip {mechanism}: {error}").expect("standard error is open");
            }
            Err(error) => panic!("{mechanism}: {error}"),
        }
    }
}

fn serve_all(mechanism: Mechanism, poller: Box<dyn Poller>) {
    let table = FdTable::new(CONNECTIONS);
    let counters = Counters::default();
    let output = vec![0; CONNECTIONS];
    let mut server = Server { poller, table, counters, output, stalls: 0 };
    let mut peers: Vec<Peer> = (0..CONNECTIONS).map(|_| connect(&mut server, mechanism)).collect();
    let mut events = Events::with_capacity(CONNECTIONS);
    let deadline = Instant::now() + DEADLINE;
    while peers.iter_mut().map(Peer::advance).filter(|is_done| !is_done).count() > 0 {
        server.turn(&mut events);
        assert!(Instant::now() < deadline, "{mechanism}: an event was lost");
    }
    check_updates(mechanism, &server);
    for token in server.table.tokens().collect::<Vec<_>>() {
        server.table.remove(token, &mut *server.poller).expect("lets go").expect("live");
    }
    assert!(server.table.is_empty());
}

fn connect(server: &mut Server, mechanism: Mechanism) -> Peer {
    let (ours, theirs) = UnixStream::pair().expect("two descriptors");
    for stream in [&ours, &theirs] {
        stream.set_nonblocking(true).expect("a socket");
    }
    let watch = Watch::Connection(mechanism.trigger());
    let token = server.table.insert(ours.into(), watch).expect("room");
    server.table.want_read(token);
    Peer { stream: theirs, requests: 0, answered_bytes: 0 }
}

fn check_updates(mechanism: Mechanism, server: &Server) {
    let counted = |counter| server.counters.value(counter);
    let sent = counted(Counter::UpdatesSent);
    let connections = CONNECTIONS as u64;
    let stalls = server.stalls;
    assert!(stalls > connections, "{mechanism}: the answers fit the buffers");
    assert_eq!(counted(Counter::Stale), 0, "{mechanism}");
    assert_eq!(counted(Counter::UpdatesAsked), sent + counted(Counter::UpdatesMerged));
    let events = server.poller.counters().snapshot().events;
    let sent_max = match mechanism.trigger() {
        // Reading, and writing once a peer was slow for the first time.
        Trigger::Edge => 2 * connections,
        // In and out again for each time that a peer was slow; nothing for a request as such.
        Trigger::Level => connections + 2 * stalls.min((CONNECTIONS * REQUESTS) as u64),
        Trigger::Oneshot => connections + events,
    };
    assert!(sent <= sent_max, "{mechanism}: {sent} updates for {stalls} stalls, {events} events");
}

const SOCKETS: usize = 128;

/// A poller with many sockets registered for reading, and their peers.
struct Registered {
    poller: Box<dyn Poller>,
    table: FdTable<OwnedFd>,
    counters: Counters,
    tokens: Vec<Token>,
    peers: Vec<UnixStream>,
}

impl Registered {
    fn new() -> Self {
        let poller = Mechanism::Epoll.open().expect("epoll");
        let tokens = Vec::new();
        let peers = Vec::new();
        let table = FdTable::new(SOCKETS);
        let counters = Counters::default();
        let mut all = Self { poller, table, counters, tokens, peers };
        for _ in 0..SOCKETS {
            let (ours, theirs) = UnixStream::pair().expect("two descriptors");
            let token = all.table.insert(ours.into(), Watch::Connection(Trigger::Level));
            let token = token.expect("room for all");
            all.table.want_read(token);
            all.tokens.push(token);
            all.peers.push(theirs);
        }
        assert_eq!(all.apply(), SOCKETS as u64, "one addition for each");
        all
    }

    /// The system calls that it takes.
    fn apply(&mut self) -> u64 {
        let before = self.poller.counters().snapshot().system_calls;
        let mut refused = Vec::new();
        self.table.apply(&mut *self.poller, &self.counters, &mut refused);
        assert!(refused.is_empty(), "{refused:?}");
        self.table.check().expect("every invariant holds");
        self.poller.counters().snapshot().system_calls - before
    }

    fn stop_and_want_all(&mut self) {
        for token in &self.tokens {
            self.table.stop_read(*token);
            self.table.want_read(*token);
        }
    }

    /// The peer of each writes; all must be reported, so all are registered still.
    fn all_report(&mut self) {
        let mut events = Events::with_capacity(SOCKETS);
        for peer in &mut self.peers {
            Write::write_all(peer, b"x").expect("room");
        }
        self.poller.wait(&mut events, Some(Duration::ZERO)).expect("a look");
        assert_eq!(events.len(), SOCKETS);
        let read = Ready { read: true, ..Ready::NOTHING };
        for event in &events {
            assert_eq!(self.table.reported(event.token, event.readiness), Some(read));
        }
    }
}

#[test]
fn the_same_interest_out_and_in_again_costs_no_system_call() {
    let mut all = Registered::new();
    all.stop_and_want_all();
    assert_eq!(all.apply(), 0);
    all.all_report();
    // Now every direction is known ready, where stopping is an update unless it is taken back.
    all.stop_and_want_all();
    assert_eq!(all.apply(), 0);
    let counted = |counter| all.counters.value(counter);
    assert_eq!(counted(Counter::UpdatesSent), SOCKETS as u64);
    assert_eq!(counted(Counter::UpdatesMerged), SOCKETS as u64);
}

#[test]
fn closing_all_costs_no_system_call_of_the_poller() {
    let mut all = Registered::new();
    let before = all.poller.counters().snapshot().system_calls;
    for token in std::mem::take(&mut all.tokens) {
        let gone = all.table.remove(token, &mut *all.poller).expect("the poller lets go");
        drop(gone.expect("live"));
        assert_eq!(all.table.reported(token, Readiness::READABLE), None);
    }
    assert_eq!(all.poller.counters().snapshot().system_calls, before);
    assert_eq!(all.apply(), 0);
    let mut events = Events::with_capacity(8);
    all.poller.wait(&mut events, Some(Duration::ZERO)).expect("a look");
    assert!(events.is_empty());
    assert_eq!(all.counters.value(Counter::Stale), SOCKETS as u64);
    assert_eq!(all.poller.counters().snapshot().stale_events, 0);
}
