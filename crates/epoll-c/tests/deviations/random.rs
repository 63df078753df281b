//! Random changes of the same sockets on an instance of the kernel's and on one on a mechanism: calls
//! answer alike, and waits find alike but for what the table declares.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, EPOLLRDHUP};
use pollux_conformance::rig::allowed_but_epoll;
use pollux_epoll_c::Mechanism;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::scripts::Subject;

const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const SOCKETS: usize = 3;
/// How long what the kernel's epoll has found may take elsewhere.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(usize, u32),
    Modify(usize, u32),
    Delete(usize),
    Write(usize),
    Drain(usize),
    ShutDown(usize),
    Wait,
}

fn flags() -> impl Strategy<Value = u32> {
    let interest = prop_oneof![
        3 => Just(EPOLLIN),
        1 => Just(EPOLLOUT),
        2 => Just(EPOLLIN | EPOLLOUT),
        1 => Just(EPOLLIN | EPOLLRDHUP),
        1 => Just(0),
    ];
    let trigger =
        prop_oneof![3 => Just(0), 2 => Just(EDGE), 2 => Just(ONESHOT), 1 => Just(EDGE | ONESHOT)];
    (interest, trigger).prop_map(|(interest, trigger)| interest as u32 | trigger)
}

fn step() -> impl Strategy<Value = Step> {
    let socket = 0..SOCKETS;
    prop_oneof![
        4 => (socket.clone(), flags()).prop_map(|(socket, flags)| Step::Add(socket, flags)),
        3 => (socket.clone(), flags()).prop_map(|(socket, flags)| Step::Modify(socket, flags)),
        1 => socket.clone().prop_map(Step::Delete),
        5 => socket.clone().prop_map(Step::Write),
        3 => socket.clone().prop_map(Step::Drain),
        1 => socket.prop_map(Step::ShutDown),
        8 => Just(Step::Wait),
    ]
}

/// Both instances, the sockets, and what is known of them.
struct Pair {
    mechanism: Mechanism,
    kernel: Subject,
    other: Subject,
    sockets: Vec<(UnixStream, UnixStream)>,
    /// Flags of what is registered.
    flags: [Option<u32>; SOCKETS],
    /// Was ready at some time since it was reported, and then read.
    is_over: [bool; SOCKETS],
    counter: u64,
}

impl Pair {
    fn new(mechanism: Mechanism) -> Self {
        let pair = |_| {
            let (ours, peer) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("set");
            (ours, peer)
        };
        let sockets = (0..SOCKETS).map(pair).collect();
        let kernel = Subject::new(Mechanism::Epoll);
        let other = Subject::new(mechanism);
        let flags = [None; SOCKETS];
        let is_over = [false; SOCKETS];
        Self { mechanism, kernel, other, sockets, flags, is_over, counter: 0 }
    }

    fn change(&mut self, op: i32, socket: usize, flags: u32) {
        self.counter += 1;
        let fd = self.sockets[socket].0.as_raw_fd();
        let data = self.counter << 8 | socket as u64;
        let expected = self.kernel.ctl(op, fd, flags, data);
        let answered = self.other.ctl(op, fd, flags, data);
        assert_eq!(answered, expected, "{op} of socket {socket} with {flags:#x}");
        if answered == 0 {
            self.flags[socket] = (op != EPOLL_CTL_DEL).then_some(flags);
            // A poll of an earlier registration is cancelled with it; one that is modified may continue.
            self.is_over[socket] &= op == EPOLL_CTL_MOD;
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Add(socket, flags) => self.change(EPOLL_CTL_ADD, socket, flags),
            Step::Modify(socket, flags) => self.change(EPOLL_CTL_MOD, socket, flags),
            Step::Delete(socket) => self.change(EPOLL_CTL_DEL, socket, 0),
            Step::Write(socket) => {
                // Refused after the end of writing.
                let _ = self.sockets[socket].1.write(b"x");
            }
            Step::Drain(socket) => {
                let is_read =
                    (&self.sockets[socket].0).read(&mut [0; 4096]).is_ok_and(|len| len > 0);
                self.is_over[socket] |= is_read && self.flags[socket].is_some();
            }
            Step::ShutDown(socket) => {
                self.sockets[socket].1.shutdown(Shutdown::Write).expect("shut down");
            }
            Step::Wait => self.wait(),
        }
    }

    fn wait(&mut self) {
        let expected = self.kernel.wait(Duration::ZERO);
        let mut found: BTreeMap<u64, u32> = BTreeMap::new();
        let end = Instant::now() + PATIENCE;
        let mut timeout = Duration::ZERO;
        loop {
            for (data, events) in self.other.wait(timeout) {
                *found.entry(data).or_default() |= events;
            }
            let has_all = expected.iter().all(|(data, events)| {
                let found = found.get(data).copied().unwrap_or(0);
                self.is_enough(*data, found, *events)
            });
            if has_all {
                break;
            }
            assert!(Instant::now() < end, "found {found:x?}, not all of {expected:x?}");
            timeout = Duration::from_millis(20);
        }
        for (data, events) in found {
            let known =
                expected.iter().find(|(known, _)| *known == data).map_or(0, |(_, events)| *events);
            if events & !known != 0 {
                self.explain(data, events & !known);
            }
        }
    }

    /// Whether `found` is all of `expected` that the mechanism can report.
    fn is_enough(&self, data: u64, found: u32, expected: u32) -> bool {
        let flags =
            self.flags[(data & 0xff) as usize].expect("only what is registered is reported");
        match self.mechanism {
            // the_end_of_the_peers_writing_has_a_bit
            Mechanism::Select => found & expected == expected & !(EPOLLRDHUP as u32),
            // an_edge_reports_all_that_holds, a_oneshot_reports_all_that_holds
            Mechanism::UringPoll | Mechanism::Aio if flags & (EDGE | ONESHOT) != 0 => found != 0,
            _ => found & expected == expected,
        }
    }

    /// What the kernel's epoll did not report has to be declared.
    fn explain(&mut self, data: u64, more: u32) {
        let socket = (data & 0xff) as usize;
        let flags = self.flags[socket].expect("only what is registered is reported");
        assert_eq!(more & !flags, 0, "socket {socket} was not asked for {more:#x}");
        // an_edge_is_reported_once
        let is_level = self.mechanism.trigger() == pollux_poller::Trigger::Level;
        if flags & EDGE != 0 && flags & ONESHOT == 0 && is_level && self.holds(socket, more) {
            return;
        }
        // what_was_read_before_the_wait_is_silent
        let is_request = self.mechanism.backend().keeps() == pollux_poller::Keeps::Request;
        assert!(
            is_request && std::mem::take(&mut self.is_over[socket]),
            "socket {socket} with {flags:#x} should not be reported with {more:#x}"
        );
        if flags & ONESHOT != 0 {
            // Spent here and not there.
            self.change(EPOLL_CTL_MOD, socket, flags);
        }
    }

    fn holds(&self, socket: usize, events: u32) -> bool {
        let fd = self.sockets[socket].0.as_raw_fd();
        let events = events as i16;
        let mut fd = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one element at a live local.
        unsafe { libc::poll(&raw mut fd, 1, 0) };
        fd.revents & events == events
    }
}

#[test]
fn random_steps_find_what_the_kernels_epoll_finds() {
    for mechanism in allowed_but_epoll() {
        let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
        // The same steps each time: what a rare one shows belongs in the table, not in one CI run.
        let steps_of = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let outcome = TestRunner::new_with_rng(config, steps_of).run(
            &prop::collection::vec(step(), 1..60),
            |steps| {
                let mut pair = Pair::new(mechanism);
                steps.into_iter().for_each(|step| pair.run(step));
                Ok(())
            },
        );
        if let Err(failed) = outcome {
            panic!("{mechanism}: {failed}");
        }
    }
}
