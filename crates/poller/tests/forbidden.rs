//! io_uring is often forbidden. Whoever asked for it must be told by whom, and whoever would
//! take another mechanism must get that and see what was refused.
//!
//! A process of its own: filters, capabilities and limits are changed here. Filters and
//! capabilities bind one thread, so each test makes its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pollux_poller::{Error, Mechanism, open_first};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The same number on every architecture, as of all system calls since Linux 5.1.
const IO_URING_SETUP: i64 = 425;

/// Between two attempts to open a ring.
const RETRY: Duration = Duration::from_millis(20);

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const ENOSYS: i32 = 38;

/// Runs `check` on a thread whose calls of io_uring_setup fail with `errno`.
fn with_io_uring_forbidden(errno: i32, check: fn()) {
    let forbidden = move || {
        let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
        let rules = BTreeMap::from([(IO_URING_SETUP, Vec::new())]);
        let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
        let filter = SeccompFilter::new(rules, others, these, arch).expect("a valid filter");
        let program: BpfProgram = filter.try_into().expect("a valid program");
        apply_filter(&program).expect("a thread may restrict itself");
        check();
    };
    std::thread::spawn(forbidden).join().expect("the check passed");
}

/// Opens io_uring, which must fail with `errno`; gives the message.
fn refusal(errno: i32) -> String {
    let Err(error) = Mechanism::UringPoll.open() else { panic!("opened although forbidden") };
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(error.raw_os_error(), Some(errno));
    error.to_string()
}

fn assert_falls_back_to_epoll() {
    let choice =
        open_first(&[Mechanism::UringPoll, Mechanism::EpollEt]).expect("epoll is always there");
    assert_eq!(choice.mechanism, Mechanism::EpollEt);
    let [refused] = &choice.refused[..] else { panic!("{:?}", choice.refused) };
    assert_eq!(refused.mechanism, Mechanism::UringPoll);
    assert!(refused.cause.to_string().contains("uring-poll is not available here"));
}

#[test]
fn a_filter_that_says_eperm_is_named_with_its_remedy() {
    with_io_uring_forbidden(EPERM, || {
        let message = refusal(EPERM);
        assert!(message.contains("seccomp") || message.contains("sysctl"), "{message}");
        assert!(message.contains("allow io_uring_setup") || message.contains("set it to 0"));
        assert_falls_back_to_epoll();
    });
}

#[test]
fn a_filter_that_says_enosys_is_told_from_a_kernel_without_io_uring() {
    with_io_uring_forbidden(ENOSYS, || {
        let message = refusal(ENOSYS);
        assert!(message.contains("seccomp filter forbids io_uring_setup"), "{message}");
        assert_falls_back_to_epoll();
    });
}

/// Without CAP_IPC_LOCK rings count against RLIMIT_MEMLOCK.
#[test]
fn little_locked_memory_gives_a_smaller_ring_and_none_gives_none() {
    let unprivileged = || {
        let mut sets = capabilities(None).expect("read");
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).expect("a thread may give up what it has");
        let maximum = getrlimit(Resource::Memlock).maximum;
        let limit = |bytes| {
            let limits = Rlimit { current: Some(bytes), maximum };
            setrlimit(Resource::Memlock, limits).expect("lowered");
        };
        limit(64 << 10);
        // The kernel gives back the memory of rings that were just closed some time later, by a
        // worker that a loop without a pause would keep from running.
        let patience = Instant::now() + Duration::from_secs(5);
        let poller = loop {
            match Mechanism::UringPoll.open() {
                Ok(poller) => break poller,
                Err(error) => assert!(Instant::now() < patience, "{error}"),
            }
            std::thread::sleep(RETRY);
        };
        let notes = poller.caps().notes.join("; ");
        assert!(notes.contains("no memory for 2048 + 16384 entries"), "{notes}");
        drop(poller);
        limit(0);
        let message = refusal(ENOMEM);
        assert!(message.contains("RLIMIT_MEMLOCK"), "{message}");
        assert_falls_back_to_epoll();
    };
    std::thread::spawn(unprivileged).join().expect("the check passed");
}
