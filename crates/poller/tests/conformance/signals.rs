//! Signal handlers that run while a poller waits, and what they may do.
#![expect(unsafe_code, reason = "std has no way to install a signal handler")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use pollux_poller::{Events, Interest, Readiness, Trigger, Waker};
use rustix::process::{Signal, getpid, kill_process};

use pollux_conformance::rig::{DEADLINE, Rig, until_asleep};
use pollux_conformance::{Case, CaseResult, case};

pub(crate) const CASES: &[Case] = &[
    case!(a_signal_ends_the_wait, [Kernel]),
    case!(a_signal_ends_a_wait_without_timeout, [Kernel]),
    case!(a_handler_with_restart_ends_the_wait_too, [Kernel]),
    case!(an_ignored_signal_does_not_end_the_wait, [Kernel]),
    case!(a_signal_before_the_wait_does_not_end_it, [Kernel]),
    case!(registrations_survive_a_signal, [Kernel]),
    case!(a_handler_can_wake, [Kernel]),
    case!(a_scripted_interrupt_ends_the_wait),
];

const LONG: Duration = Duration::from_secs(60);

static HANDLED: AtomicU32 = AtomicU32::new(0);
static WAKER: OnceLock<Waker> = OnceLock::new();

/// Counts, and wakes where there is a waker: both are allowed in a handler.
extern "C" fn handle(_signal: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    if let Some(waker) = WAKER.get() {
        waker.wake();
    }
}

fn install(flags: libc::c_int) {
    // SAFETY: all zeroes is a valid sigaction: no flags, an empty mask, the default handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the action is valid, and its handler only touches atomics, a set-once cell and
    // an eventfd.
    let outcome =
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(outcome, 0, "SIGUSR1 can be handled");
}

/// Waits while another thread does `act` as soon as this one sleeps.
fn wait_while(
    rig: &mut Rig,
    events: &mut Events,
    timeout: Option<Duration>,
    act: impl FnOnce() + Send,
) {
    let waiting = rustix::thread::gettid();
    thread::scope(|scope| {
        scope.spawn(move || {
            until_asleep(waiting);
            act();
        });
        rig.poller.wait(events, timeout).expect("a signal is not an error");
    });
}

/// A signal to the process goes to its first thread, which is the one that waits.
fn signal() {
    kill_process(getpid(), Signal::USR1).expect("our own process");
}

/// One wait that a signal must end.
fn interrupted(rig: &mut Rig, timeout: Option<Duration>) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, _writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let mut events = Events::with_capacity(8);
    wait_while(rig, &mut events, timeout, signal);
    assert!(events.is_interrupted() && !events.is_woken() && events.is_empty(), "{events:?}");
    assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
    let counted = rig.poller.counters().snapshot();
    assert_eq!((counted.interrupts, counted.waits, counted.empty_waits), (1, 1, 1));
    rig.delete(&reader);
    rig.quiet();
    Ok(())
}

fn a_signal_ends_the_wait(rig: &mut Rig) -> CaseResult {
    install(0);
    interrupted(rig, Some(LONG))
}

fn a_signal_ends_a_wait_without_timeout(rig: &mut Rig) -> CaseResult {
    install(0);
    interrupted(rig, None)
}

/// signal(7): waiting for descriptors is never restarted.
fn a_handler_with_restart_ends_the_wait_too(rig: &mut Rig) -> CaseResult {
    install(libc::SA_RESTART);
    interrupted(rig, Some(LONG))
}

fn an_ignored_signal_does_not_end_the_wait(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    // SAFETY: SIG_IGN is a valid disposition, and nothing else handles this signal.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let waker = rig.poller.waker();
    let mut events = Events::with_capacity(8);
    wait_while(rig, &mut events, Some(LONG), move || {
        signal();
        waker.wake();
    });
    assert!(events.is_woken() && !events.is_interrupted(), "{events:?}");
    Ok(())
}

fn a_signal_before_the_wait_does_not_end_it(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    install(0);
    signal();
    assert_eq!(HANDLED.load(Ordering::Relaxed), 1, "handled before kill returned");
    rig.quiet();
    Ok(())
}

fn registrations_survive_a_signal(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    install(0);
    let (reader, writer) = rig.pipe();
    rig.add(&reader, 1, Interest::READABLE, Trigger::Level)?;
    let mut events = Events::with_capacity(8);
    for _ in 0..3 {
        wait_while(rig, &mut events, Some(LONG), signal);
        assert!(events.is_interrupted(), "{events:?}");
        writer.write(1).expect("room");
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
        reader.read(8).expect("it was written");
    }
    Ok(())
}

fn a_handler_can_wake(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    install(0);
    WAKER.set(rig.poller.waker()).expect("set once in this process");
    let mut events = Events::with_capacity(8);
    wait_while(rig, &mut events, Some(LONG), signal);
    assert!(events.is_interrupted() || events.is_woken(), "{events:?}");
    if !events.is_woken() {
        // The signal came first; the wake-up stands for the next wait.
        rig.poller.wait(&mut events, Some(DEADLINE)).expect("wait");
        assert!(events.is_woken(), "{events:?}");
    }
    assert!(events.is_empty());
    Ok(())
}

/// The same answer in the simulated world, where the script sends the signal.
fn a_scripted_interrupt_ends_the_wait(rig: &mut Rig) -> CaseResult {
    let mut events = Events::with_capacity(8);
    match rig.world() {
        Some(world) => {
            world.fault(pollux_conformance::sim::ScriptedFault::Interrupt);
            rig.poller.wait(&mut events, Some(LONG)).expect("a signal is not an error");
        }
        None => {
            install(0);
            wait_while(rig, &mut events, Some(LONG), signal);
        }
    }
    assert!(events.is_interrupted() && events.is_empty(), "{events:?}");
    assert_eq!(rig.poller.counters().snapshot().interrupts, 1);
    rig.quiet();
    Ok(())
}
