//! One small server on the fd table over every mechanism: requests are answered with more than
//! a socket buffer takes, to peers that read late.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pollux_engine::{Counter, Counters, Due, FdTable, Watch};
use pollux_poller::{Error, Events, Mechanism, Poller, Token, Trigger};
use rustix::io::Errno;

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
            let due = self.table.reported(event.token, event.readiness).expect("nobody closed");
            self.serve(event.token, due);
        }
        self.table.check().expect("every invariant holds");
    }

    fn serve(&mut self, token: Token, due: Due) {
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
                writeln!(out, "skip {mechanism}: {error}").expect("somebody reads");
            }
            Err(error) => panic!("{mechanism}: {error}"),
        }
    }
}

fn serve_all(mechanism: Mechanism, poller: Box<dyn Poller>) {
    let (table, counters) = (FdTable::new(CONNECTIONS), Counters::default());
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
    let (connections, stalls) = (CONNECTIONS as u64, server.stalls);
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
