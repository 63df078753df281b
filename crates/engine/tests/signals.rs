//! Signals of the whole process, in a binary of their own.
//!
//! The tests take turns: each catches what the others send. No time is judged but a deadline,
//! far below the timeout that a lost signal would take.

use std::collections::BTreeSet;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pollux_engine::{Signal, Signals};
use pollux_poller::{Events, Interest, Mechanism, Registration, Token, Trigger};
use pollux_stats::Rng;
use rustix::process::{Signal as Sent, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGTERM, SIGUSR1};
use signal_hook::low_level::raise;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(600));
/// A wait that takes longer was ended by its timeout or not at all.
const DEADLINE: Duration = Duration::from_secs(60);

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn catch(signals: &[Signal]) -> Signals {
    Signals::catch(signals).expect("signals can be caught")
}

fn wait(signals: &mut Signals) -> Option<Signal> {
    let began = Instant::now();
    let signal = signals.wait(TIMEOUT).expect("a socket can be waited for");
    assert!(began.elapsed() < DEADLINE, "{signal:?} after {:?}", began.elapsed());
    signal
}

fn spin(random: &mut Rng) {
    (0..random.below(400)).for_each(|_| spin_loop());
}

#[test]
fn a_signal_at_any_time_around_the_begin_of_a_wait_ends_it() {
    const ROUNDS: u64 = 30_000;
    let _turn = alone();
    let mut signals = catch(&[Signal::User1]);
    let round = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Rng::seeded(1);
            for next in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < next {
                    thread::yield_now();
                }
                spin(&mut random);
                // The handler runs here and now, or on a thread that has to be woken for it.
                if next % 4 == 0 {
                    kill_process(getpid(), Sent::USR1).expect("a process may signal itself");
                } else {
                    raise(SIGUSR1).expect("it is caught");
                }
            }
        });
        let mut random = Rng::seeded(2);
        let mut is_lost = |next: &u64| {
            round.store(*next, Ordering::Release);
            spin(&mut random);
            let began = Instant::now();
            let signal = signals.wait(TIMEOUT).expect("a socket can be waited for");
            signal != Some(Signal::User1) || began.elapsed() > DEADLINE
        };
        let lost = (1..=ROUNDS).find(&mut is_lost);
        // Lets the other thread end whatever was found.
        round.store(ROUNDS, Ordering::Release);
        assert_eq!(lost, None, "the round whose signal was lost");
    });
    assert_eq!(signals.take(), None);
}

#[test]
fn signals_of_several_threads_all_arrive() {
    const EACH: usize = 50;
    let _turn = alone();
    let mut signals = catch(&Signal::ALL);
    let sent = [Sent::TERM, Sent::INT, Sent::HUP, Sent::QUIT, Sent::USR1, Sent::USR2];
    let mut returned = 0;
    thread::scope(|scope| {
        for signal in sent {
            scope.spawn(move || {
                for _ in 0..EACH {
                    kill_process(getpid(), signal).expect("a process may signal itself");
                }
            });
        }
        let mut missing = BTreeSet::from(Signal::ALL);
        while !missing.is_empty() {
            missing.remove(&wait(&mut signals).expect("some are missing"));
            returned += 1;
        }
    });
    // One that is left to another thread, which has yet to run, would be the next test's.
    while signals.wait(Some(Duration::from_millis(50))).expect("it only looks").is_some() {
        returned += 1;
    }
    assert!(returned <= EACH * sent.len(), "more signals than were sent: {returned}");
}

#[test]
fn the_same_signal_twice_is_one_and_another_is_kept() {
    let _turn = alone();
    let mut signals = catch(&[Signal::HangUp, Signal::Terminate]);
    for number in [SIGTERM, SIGHUP, SIGTERM, SIGHUP] {
        raise(number).expect("it is caught");
    }
    let both = [wait(&mut signals), wait(&mut signals)];
    assert_eq!(both, [Some(Signal::HangUp), Some(Signal::Terminate)]);
    assert_eq!(signals.wait(Some(Duration::from_millis(1))).expect("it only looks"), None);
}

#[test]
fn more_signals_than_the_socket_holds_do_no_harm() {
    let _turn = alone();
    let mut signals = catch(&[Signal::User1]);
    for _ in 0..2_000 {
        raise(SIGUSR1).expect("it is caught");
    }
    assert_eq!(wait(&mut signals), Some(Signal::User1));
    assert_eq!(signals.wait(Some(Duration::ZERO)).expect("it only looks"), None);
    raise(SIGUSR1).expect("it is caught");
    assert_eq!(wait(&mut signals), Some(Signal::User1));
}

#[test]
fn a_waker_ends_the_wait_without_a_signal() {
    let _turn = alone();
    let mut signals = catch(&[Signal::User1]);
    let waker = signals.waker();
    thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        assert_eq!(wait(&mut signals), None);
    });
    waker.wake();
    raise(SIGUSR1).expect("it is caught");
    assert_eq!(wait(&mut signals), Some(Signal::User1));
}

#[test]
fn a_loop_can_watch_the_descriptor() {
    let _turn = alone();
    let signals = catch(&[Signal::User1]);
    let mut poller = Mechanism::Epoll.open().expect("epoll is everywhere");
    let readable = Registration::new(Interest::READABLE, Trigger::Level);
    poller.add(signals.fd(), Token::new(5, 0), readable).expect("a socket can be watched");
    let mut events = Events::with_capacity(4);
    for _ in 0..3 {
        raise(SIGUSR1).expect("it is caught");
        poller.wait(&mut events, TIMEOUT).expect("epoll waits");
        assert_eq!(events.iter().map(|event| event.token.slot()).collect::<Vec<_>>(), [5]);
        assert_eq!([signals.take(), signals.take()], [Some(Signal::User1), None]);
        poller.wait(&mut events, Some(Duration::ZERO)).expect("epoll looks");
        assert!(events.is_empty(), "the bytes were taken");
    }
    poller.delete(signals.fd()).expect("it was added");
}

#[test]
fn two_catchers_both_get_it_and_what_is_left_is_ignored() {
    let _turn = alone();
    let mut first = catch(&[Signal::User1]);
    let mut second = catch(&[Signal::User1]);
    raise(SIGUSR1).expect("it is caught");
    assert_eq!([wait(&mut first), wait(&mut second)], [Some(Signal::User1); 2]);
    drop(first);
    raise(SIGUSR1).expect("it is caught");
    assert_eq!(wait(&mut second), Some(Signal::User1));
    drop(second);
    raise(SIGUSR1).expect("it ends a process that never caught it");
}
