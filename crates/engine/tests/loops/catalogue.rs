//! Items of `docs/failure-catalogue.md` that only a whole loop can show. On every driver.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use pollux_engine::{Counter, Limits, Listener};

use crate::peer::{DEADLINE, drivers};
use crate::puppet::{Call, Puppet, Stage, take};

fn listen(stage: &mut Stage) -> String {
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::open(&any, false).expect("opened");
    let address = listener.address().to_string();
    stage.event_loop.listen(listener, false);
    address
}

/// Sends everything back.
fn echo() -> Puppet {
    Puppet::new(|call, actions| match call {
        Call::Bytes(input) => {
            actions.send(input);
            input.len()
        }
        _ => 0,
    })
}

#[test]
fn a_storm_of_new_connections_leaves_the_turn_to_the_live_ones() {
    const STORM: usize = 100;
    const SHARE: u32 = 4;
    const TURNS: u64 = 4;
    for driver in drivers() {
        let limits = Limits { accepts_per_turn: SHARE, ..Limits::default() };
        let mut stage = Stage::accepting(driver, limits, echo);
        let address = listen(&mut stage);
        let (_, mut live) = stage.adopt(echo());
        live.write_all(b"x").expect("room");
        assert_eq!(stage.read(&mut live, 1), b"x");
        let connect = |_| TcpStream::connect(&address).expect("connected");
        let _storm: Vec<TcpStream> = (0..STORM).map(connect).collect();
        let completed = stage.count(Counter::Completions);
        // In the middle of it, again and again, a live one speaks.
        for round in 1..=3 {
            live.write_all(b"ping").expect("room");
            let mut received = Vec::new();
            for _ in 0..TURNS {
                stage.turn();
                take(&mut live, &mut received, 4);
            }
            assert_eq!(received, b"ping", "{driver}: not in {TURNS} turns");
            let accepted = stage.count(Counter::Accepted);
            let most = round * TURNS * u64::from(SHARE);
            assert!(accepted <= most, "{driver}: {accepted} were let in before it");
            // Nor did the kernel take them all for a loop that lets them in later.
            let came = stage.count(Counter::Completions) - completed;
            assert!(came <= most + round, "{driver}: {came} completions came before it");
        }
        stage.turn_until("the storm", |stage| stage.count(Counter::Accepted) == STORM as u64);
    }
}

#[test]
fn a_port_refuses_when_its_loop_drains() {
    for driver in drivers() {
        let mut stage = Stage::accepting(driver, Limits::default(), echo);
        let address = listen(&mut stage);
        let _armed = TcpStream::connect(&address).expect("connected");
        stage.turn_until("the accept", |stage| stage.count(Counter::Accepted) == 1);
        (0..3).for_each(|_| stage.turn());
        stage.event_loop.drain();
        // The kernel ends armed requests in the next enter, those of AIO in a thread of its own.
        stage.turn_until("the refusal", |_| {
            let refused = TcpStream::connect(&address).err();
            refused.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }
}

/// A program may drop its loop at any time: sessions are notified, peers see the end.
#[test]
fn a_loop_that_is_dropped_with_everything_under_way_leaves_nothing_behind() {
    for driver in drivers() {
        let mut stage = Stage::accepting(driver, Limits::default(), echo);
        let address = listen(&mut stage);
        let mut waiting = TcpStream::connect(&address).expect("connected");
        stage.turn_until("the accept", |stage| stage.count(Counter::Accepted) == 1);
        let (_, mut idle) = stage.adopt(echo());
        // Output that nobody reads, so that a send waits.
        let (stuck_id, mut stuck) = stage.adopt(Puppet::new(|call, actions| {
            if matches!(call, Call::Wake | Call::Drained) {
                actions.spare().fill(b'x');
                actions.advance(actions.room());
                actions.call_again();
            }
            0
        }));
        stage.event_loop.wake(stuck_id);
        (0..20).for_each(|_| stage.turn());
        // Queued and never submitted.
        idle.write_all(b"x").expect("room");
        drop(stage);
        for peer in [&mut idle, &mut stuck] {
            peer.set_nonblocking(false).expect("set");
            peer.set_read_timeout(Some(DEADLINE)).expect("set");
            assert!(ends(peer), "{driver}");
        }
        waiting.set_read_timeout(Some(DEADLINE)).expect("set");
        assert!(ends(&mut waiting), "{driver}");
        let refused = TcpStream::connect(&address).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{driver}");
    }
}

/// Whether the stream of `peer` ends, behind whatever there is, or is reset.
fn ends(peer: &mut impl Read) -> bool {
    match peer.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}
