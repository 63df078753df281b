//! A loop sleeps when there is nothing to do, and only then, on every driver.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_engine::{CloseCause, Counter, Driver, Limits};
use pollux_poller::Mechanism;
use pollux_testing::wait_until;

use crate::puppet::{Call, Causes, Puppet, Stage};
use crate::server::{DEADLINE, drivers};

/// Uses up all input and counts it.
fn sink(used: &Rc<Cell<usize>>) -> Puppet {
    let used = Rc::clone(used);
    Puppet::new(move |call, actions| match call {
        Call::Bytes(input) => {
            used.set(used.get() + input.len());
            input.len()
        }
        Call::End => {
            actions.close();
            0
        }
        _ => 0,
    })
}

#[test]
fn input_that_ends_with_a_full_buffer_is_not_looked_for_for_ever() {
    // As much as one receive of the readiness loop takes, and as much as it takes in a turn.
    for len in [64 * 1024, 2 * 64 * 1024] {
        for driver in drivers() {
            let mut stage = Stage::open(driver, Limits::default());
            let used = Rc::new(Cell::new(0));
            let (_, mut peer) = stage.adopt(sink(&used));
            peer.write_all(&vec![b'x'; len]).expect("the socket takes it");
            stage.turn_until("the input", |_| used.get() == len);
            stage.assert_idle();
        }
    }
}

#[test]
fn a_session_that_paused_behind_a_full_buffer_and_continues_lets_the_loop_rest() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let used = Rc::new(Cell::new(0));
        let seen = Rc::clone(&used);
        let (id, mut peer) = stage.adopt(Puppet::new(move |call, actions| match call {
            Call::Bytes(input) => {
                seen.set(seen.get() + input.len());
                actions.pause_input();
                input.len()
            }
            Call::Wake => {
                actions.resume_input();
                0
            }
            _ => 0,
        }));
        peer.write_all(&[b'x'; 64 * 1024]).expect("the socket takes it");
        let end = Instant::now() + DEADLINE;
        while used.get() < 64 * 1024 {
            stage.event_loop.wake(id);
            stage.turn();
            assert!(Instant::now() < end, "{driver}: {} bytes", used.get());
        }
        stage.event_loop.wake(id);
        stage.assert_idle();
        peer.write_all(b"y").expect("room");
        stage.turn_until("the next input", |_| used.get() == 64 * 1024 + 1);
    }
}

#[test]
fn paused_input_and_a_peer_that_has_gone_let_the_loop_rest() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let causes = Causes::default();
        let (id, mut peer) = stage.adopt(Puppet::watched(&causes, |call, actions| match call {
            Call::Bytes(_) => {
                actions.pause_input();
                0
            }
            Call::Wake => {
                actions.resume_input();
                0
            }
            Call::End => {
                actions.close();
                0
            }
            _ => 0,
        }));
        peer.write_all(&[b'x'; 100]).expect("room");
        stage.turn_until("the input", |stage| stage.count(Counter::BytesIn) == 100);
        peer.write_all(&[b'y'; 100]).expect("room");
        drop(peer);
        stage.assert_idle();
        // Each wake shows the rest once more; nothing of it is ever used.
        stage.event_loop.wake(id);
        stage.assert_idle();
        assert!(causes.borrow().len() <= 1, "{driver}");
        stage.event_loop.close_all(CloseCause::LoopEnded);
        assert_eq!(causes.borrow().len(), 1, "{driver}");
        stage.assert_balanced();
    }
}

#[test]
fn a_session_that_asks_to_be_called_again_when_it_is_accepted_is_called() {
    for driver in drivers() {
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let mut stage = Stage::accepting(driver, Limits::default(), move || {
            let seen = Rc::clone(&seen);
            Puppet::new(move |call, actions| {
                match call {
                    Call::Accepted => {
                        actions.send(b"hello");
                        actions.notify_when_sent();
                    }
                    Call::Drained => seen.set(seen.get() + 1),
                    _ => {}
                }
                0
            })
        });
        let address = stage.listen();
        let _peer = std::net::TcpStream::connect(address).expect("connected");
        stage.turn_until("the call", |_| calls.get() == 1);
        stage.assert_idle();
        assert_eq!(calls.get(), 1, "{driver}");
    }
}

#[test]
fn a_deadline_comes_while_output_waits() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let causes = Causes::default();
        let (id, _peer) = stage.adopt(Puppet::watched(&causes, |call, actions| {
            match call {
                Call::Wake => {
                    actions.set_deadline(actions.now().at + Duration::from_millis(30));
                    actions.spare().fill(b'x');
                    actions.advance(actions.room());
                    actions.notify_when_sent();
                }
                Call::Drained => {
                    actions.advance(actions.room());
                    actions.notify_when_sent();
                }
                Call::Deadline => actions.abort(),
                _ => {}
            }
            0
        }));
        stage.event_loop.wake(id);
        stage.turn_until("the abort", |_| !causes.borrow().is_empty());
        assert_eq!(*causes.borrow(), [CloseCause::Aborted], "{driver}");
        stage.assert_balanced();
    }
}

#[test]
fn a_turn_fires_deadlines_and_then_calls_those_that_were_woken() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let calls = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&calls);
        let (id, _peer) = stage.adopt(Puppet::new(move |call, actions| {
            let wakes = seen.borrow().iter().filter(|name| **name == "wake").count();
            match call {
                Call::Wake if wakes == 0 => {
                    // Both are due in the next turn.
                    actions.set_deadline(actions.now().at);
                    actions.wake(actions.id());
                    seen.borrow_mut().push("wake");
                }
                Call::Wake => seen.borrow_mut().push("wake"),
                Call::Deadline => seen.borrow_mut().push("deadline"),
                _ => {}
            }
            0
        }));
        stage.event_loop.wake(id);
        stage.turn();
        assert_eq!(*calls.borrow(), ["wake"], "{driver}");
        // Deadlines fire up to a millisecond late.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {}
        stage.turn();
        assert_eq!(*calls.borrow(), ["wake", "deadline", "wake"], "{driver}");
        assert_eq!(stage.count(Counter::SessionWakes), 2, "{driver}");
    }
}

#[test]
fn a_wake_of_a_connection_that_is_gone_calls_and_counts_nothing() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let (id, _peer) = stage.adopt(Puppet::new(move |call, actions| {
            if call == Call::Wake {
                seen.set(seen.get() + 1);
                actions.abort();
            }
            0
        }));
        stage.event_loop.wake(id);
        stage.event_loop.wake(id);
        stage.turn();
        stage.event_loop.wake(id);
        stage.turn();
        assert_eq!(calls.get(), 1, "{driver}");
        assert_eq!(stage.count(Counter::SessionWakes), 1, "{driver}");
        stage.assert_balanced();
    }
}

#[test]
fn a_long_turn_does_not_make_the_next_deadline_late() {
    const WORK: Duration = Duration::from_millis(60);
    for driver in drivers() {
        // A busy machine delays some of them; a loop that counts from the wrong moment, all.
        wait_until(format_args!("{driver}: a deadline in time"), || {
            deadline_behind_a_long_turn(driver, WORK) < WORK * 2 + WORK / 2
        });
    }
}

/// How long after a turn that works for `work` begins a deadline comes that is `2 * work` ahead.
fn deadline_behind_a_long_turn(driver: Driver, work: Duration) -> Duration {
    let mut stage = Stage::open(driver, Limits::default());
    let fired = Rc::new(Cell::new(None));
    let seen = Rc::clone(&fired);
    let (id, _peer) = stage.adopt(Puppet::new(move |call, actions| {
        match call {
            Call::Wake => {
                actions.set_deadline(actions.now().at + work * 2);
                let begin = Instant::now();
                while begin.elapsed() < work {}
            }
            Call::Deadline => seen.set(Some(Instant::now())),
            _ => {}
        }
        0
    }));
    stage.event_loop.wake(id);
    let begin = Instant::now();
    while fired.get().is_none() {
        stage.event_loop.turn(None).expect("turned");
    }
    fired.get().expect("fired") - begin
}

#[test]
fn a_loop_that_spins_serves_and_fires() {
    for driver in drivers() {
        let limits = Limits { busy_poll: true, ..Limits::default() };
        let mut stage = Stage::open(driver, limits);
        let causes = Causes::default();
        let (_, mut peer) = stage.adopt(Puppet::watched(&causes, |call, actions| match call {
            Call::Bytes(input) => {
                actions.send(input);
                actions.set_deadline(actions.now().at + Duration::from_millis(5));
                input.len()
            }
            Call::Deadline => {
                actions.close();
                0
            }
            _ => 0,
        }));
        peer.write_all(b"hello").expect("room");
        assert_eq!(stage.read(&mut peer, 5), b"hello", "{driver}");
        let turns = stage.count(Counter::Turns);
        while causes.borrow().is_empty() {
            stage.event_loop.turn(None).expect("turned");
        }
        assert!(stage.count(Counter::BusySpins) > 0, "{driver}");
        assert!(stage.count(Counter::Turns) - turns < 5, "{driver}: a spin is not a turn");
    }
}

/// What a wait without an end needs: another thread that ends it.
#[test]
fn a_loop_that_spins_on_io_uring_makes_no_calls_and_is_woken_by_another_thread() {
    const SPINS: u64 = 1_000;
    for driver in drivers() {
        let limits = Limits { busy_poll: true, ..Limits::default() };
        let mut stage = Stage::open(driver, limits);
        // What arms the waker and the alarm.
        stage.event_loop.turn(Some(Duration::ZERO)).expect("turned");
        let calls = |stage: &Stage| match stage.event_loop.poller_counters() {
            Some(poller) => poller.snapshot().system_calls,
            None => stage.count(Counter::RingEnters),
        };
        let waker = stage.event_loop.waker();
        let counters = stage.event_loop.counters();
        let before = calls(&stage);
        let is_woken = std::thread::scope(|scope| {
            scope.spawn(move || {
                let begin = Instant::now();
                while counters.value(Counter::BusySpins) < SPINS {
                    assert!(begin.elapsed() < DEADLINE, "{driver}: it does not spin");
                    std::thread::yield_now();
                }
                waker.wake();
            });
            stage.event_loop.turn(None).expect("turned")
        });
        assert!(is_woken, "{driver}");
        let calls = calls(&stage) - before;
        let spins = stage.count(Counter::BusySpins);
        assert!(spins >= SPINS, "{driver}: {spins} spins");
        if matches!(driver, Driver::Completion | Driver::Readiness(Mechanism::UringPoll)) {
            assert!(calls <= 4, "{driver}: {calls} calls for {spins} spins");
        }
    }
}
