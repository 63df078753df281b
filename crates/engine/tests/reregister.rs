//! Taking descriptors out and entering them again within one turn, on the real kernel.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pollux_engine::{Counter, Counters, Due, FdTable, Watch};
use pollux_poller::{Events, Mechanism, Readiness, Token, Trigger};

const SOCKETS: usize = 200;

/// A poller with many sockets registered for reading, and their peers.
struct Registered {
    poller: Box<dyn pollux_poller::Poller>,
    table: FdTable<OwnedFd>,
    counters: Counters,
    tokens: Vec<Token>,
    peers: Vec<UnixStream>,
}

impl Registered {
    fn new() -> Self {
        let poller = Mechanism::Epoll.open().expect("epoll");
        let (tokens, peers) = (Vec::new(), Vec::new());
        let (table, counters) = (FdTable::new(SOCKETS), Counters::default());
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

    /// Everybody's peer writes; all must be reported, so all are registered still.
    fn all_report(&mut self) {
        let mut events = Events::with_capacity(SOCKETS);
        for peer in &mut self.peers {
            std::io::Write::write_all(peer, b"x").expect("room");
        }
        self.poller.wait(&mut events, Some(Duration::ZERO)).expect("a look");
        assert_eq!(events.len(), SOCKETS);
        let read = Due { read: true, ..Due::NOTHING };
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
