//! Any sequence of operations on real pipes and sockets gives the same readiness on every
//! backend as on the simulated one, for each trigger that the backend serves.
//!
//! `PROPTEST_CASES` sets the number of cases for each backend and trigger. A backend that the
//! machine forbids is skipped with its reason, unless `POLLUX_FORBID_SKIP=1`.

use std::collections::BTreeMap;

use crate::lockstep::Lockstep;
use pollux_poller::{Backend, Caps, Interest, Mechanism, Trigger};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

const CASES: u32 = 64;
const OPERATIONS_MAX: usize = 40;
/// Two pipes and two socket pairs with two ends each, and an eventfd.
const ENDS: usize = 9;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Add(usize, Interest),
    Modify(usize, Interest),
    Delete(usize),
    Write(usize, usize),
    Read(usize, usize),
    ShutdownWrite(usize),
    Close(usize),
}

fn operation(has_rdhup: bool) -> impl Strategy<Value = Operation> {
    let end = 0..ENDS;
    // Around the borders of pages and buffers, and more than fits.
    let len = select(vec![1, 300, 4095, 4096, 5000, 40_000, 300_000]);
    prop_oneof![
        4 => (end.clone(), interest(has_rdhup)).prop_map(|(end, what)| Operation::Add(end, what)),
        2 => (end.clone(), interest(has_rdhup)).prop_map(|(end, what)| Operation::Modify(end, what)),
        1 => end.clone().prop_map(Operation::Delete),
        6 => (end.clone(), len.clone()).prop_map(|(end, len)| Operation::Write(end, len)),
        6 => (end.clone(), len).prop_map(|(end, len)| Operation::Read(end, len)),
        1 => end.clone().prop_map(Operation::ShutdownWrite),
        1 => end.prop_map(Operation::Close),
    ]
}

fn interest(has_rdhup: bool) -> impl Strategy<Value = Interest> {
    (any::<[bool; 3]>(), prop::bool::weighted(if has_rdhup { 0.5 } else { 0.0 })).prop_map(
        |([readable, writable, priority], rdhup)| {
            let bits = [
                (readable, Interest::READABLE),
                (writable, Interest::WRITABLE),
                (priority, Interest::PRIORITY),
                (rdhup, Interest::RDHUP),
            ];
            let wanted = bits.into_iter().filter(|(is_wanted, _)| *is_wanted);
            wanted.fold(Interest::NONE, |all, (_, bit)| all | bit)
        },
    )
}

fn apply(both: &mut Lockstep, operation: Operation) {
    match operation {
        Operation::Add(end, interest) => both.add(end, interest),
        Operation::Modify(end, interest) => both.modify(end, interest),
        Operation::Delete(end) => both.delete(end),
        Operation::Write(end, len_bytes) => both.write(end, len_bytes),
        Operation::Read(end, len_bytes) => both.read(end, len_bytes),
        Operation::ShutdownWrite(end) => both.shutdown_write(end),
        Operation::Close(end) => both.close(end),
    }
}

fn run(mechanism: Mechanism, trigger: Trigger, script: &[Operation]) -> Result<(), TestCaseError> {
    let poller = mechanism.open().expect("it could be opened before");
    let mut both = Lockstep::new(poller, trigger);
    both.pipe();
    both.pipe();
    both.socketpair();
    both.socketpair();
    both.eventfd();
    for (step, operation) in script.iter().enumerate() {
        apply(&mut both, *operation);
        both.check().map_err(|why| {
            TestCaseError::fail(format!("after step {step}, {operation:?}: {why}"))
        })?;
    }
    Ok(())
}

/// Scripts that random choice rarely finds; each once showed a difference.
fn rare_scripts() -> Vec<Vec<Operation>> {
    use Operation::{Add, Read, Write};
    let write = Interest::WRITABLE;
    // Exactly a quarter of the send buffer is charged: not writable any more.
    let quarter = [300, 4095, 40_000, 1, 4095].map(|len| Write(5, len));
    vec![
        quarter.into_iter().chain([Add(5, write)]).collect(),
        // A buffer comes back to a sender that has another one under way: an edge.
        vec![Write(4, 300), Write(4, 300), Add(4, write), Read(5, 300)],
    ]
}

/// One mechanism for each backend, opened once to see whether the machine allows it.
fn backends() -> Vec<(Mechanism, Caps)> {
    let by_backend: BTreeMap<String, Mechanism> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| (mechanism.backend().to_string(), mechanism))
        .collect();
    by_backend.into_values().filter_map(open_or_skip).collect()
}

fn open_or_skip(mechanism: Mechanism) -> Option<(Mechanism, Caps)> {
    match mechanism.open() {
        Ok(poller) => Some((mechanism, poller.caps().clone())),
        Err(reason) => {
            pollux_testing::skip(format_args!("{}: {reason}", mechanism.backend()));
            None
        }
    }
}

fn every_backend_agrees_under(trigger: Trigger) {
    let backends = backends();
    assert!(backends.iter().any(|(_, caps)| caps.backend == Backend::Epoll), "epoll is a must");
    for (mechanism, caps) in backends.into_iter().filter(|(_, caps)| caps.serves(trigger)) {
        for script in rare_scripts() {
            run(mechanism, trigger, &script).expect("a backend agrees with the model");
        }
        let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
        let scripts = prop::collection::vec(operation(caps.rdhup), 1..OPERATIONS_MAX);
        let outcome =
            TestRunner::new(config).run(&scripts, |script| run(mechanism, trigger, &script));
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(why, script)) => {
                panic!("{}, {trigger:?}: {why}\nshrunk script: {script:#?}", caps.backend)
            }
            Err(other) => panic!("{}, {trigger:?}: {other}", caps.backend),
        }
    }
}

/// `PROPTEST_CASES`, or our own default, which is smaller than proptest's.
fn cases() -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    wanted.map_or(CASES, |count| count.parse().expect("PROPTEST_CASES is a number"))
}

#[test]
fn every_backend_agrees_with_the_model_under_level_trigger() {
    every_backend_agrees_under(Trigger::Level);
}

#[test]
fn every_backend_agrees_with_the_model_under_edge_trigger() {
    every_backend_agrees_under(Trigger::Edge);
}

#[test]
fn every_backend_agrees_with_the_model_under_oneshot_trigger() {
    every_backend_agrees_under(Trigger::Oneshot);
}
