//! System calls that a sandbox forbids. io_uring often is: a caller that chose it must learn what
//! forbids it, and one that takes epoll instead must get that. Calls that are newer than a filter are refused
//! as well: then a poller uses older ones, or does not open; it never opens and fails to wait.
//!
//! A process of its own: filters, capabilities and limits are changed here. Filters and
//! capabilities bind one thread, so each test makes its own.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use pollux_poller::{
    Error, Events, Interest, Mechanism, Poller, Registration, SignalMask, Token, Trigger,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The same numbers on every architecture, as of all system calls since Linux 5.1.
const IO_URING_SETUP: i64 = 425;
const IO_URING_ENTER: i64 = 426;
const EPOLL_PWAIT2: i64 = 441;
const IO_PGETEVENTS: i64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// Between two attempts to open a ring.
const RETRY: Duration = Duration::from_millis(20);

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const ENOSYS: i32 = 38;

/// From here on this thread's calls of `call` fail with `errno`.
fn forbid(call: i64, errno: i32) {
    let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
    let rules = BTreeMap::from([(call, Vec::new())]);
    let others = SeccompAction::Allow;
    let these = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, others, these, arch).expect("a valid filter");
    let program: BpfProgram = filter.try_into().expect("a valid program");
    apply_filter(&program).expect("a thread may restrict itself");
}

/// Runs `check` on a thread whose calls of `call` fail with `errno`.
fn with_forbidden(call: i64, errno: i32, check: impl FnOnce() + Send + 'static) {
    let forbidden = move || {
        forbid(call, errno);
        check();
    };
    std::thread::spawn(forbidden).join().expect("the check passed");
}

/// Opens `mechanism`, which must fail with `errno`; gives the message.
fn refusal_of(mechanism: Mechanism, errno: i32) -> String {
    let Err(error) = mechanism.open() else { panic!("{mechanism} opened although forbidden") };
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(error.raw_os_error(), Some(errno));
    error.to_string()
}

fn refusal(errno: i32) -> String {
    refusal_of(Mechanism::UringPoll, errno)
}

fn assert_epoll_opens() {
    Mechanism::EpollEt.open().expect("epoll is always there");
}

#[test]
fn a_filter_that_says_eperm_is_named_with_its_remedy() {
    with_forbidden(IO_URING_SETUP, EPERM, || {
        let message = refusal(EPERM);
        assert!(message.contains("seccomp") || message.contains("sysctl"), "{message}");
        assert!(message.contains("allow io_uring_setup") || message.contains("set it to 0"));
        assert_epoll_opens();
    });
}

#[test]
fn a_filter_that_says_enosys_is_distinguished_from_a_kernel_without_io_uring() {
    with_forbidden(IO_URING_SETUP, ENOSYS, || {
        let message = refusal(ENOSYS);
        assert!(message.contains("seccomp filter forbids io_uring_setup"), "{message}");
        assert_epoll_opens();
    });
}

/// What is not available without a filter can't be taken away by one.
fn is_skipped(mechanism: Mechanism) -> bool {
    let refused = mechanism.open().err();
    if let Some(reason) = &refused {
        pollux_testing::skip(reason);
    }
    refused.is_some()
}

#[test]
fn a_ring_that_can_not_be_entered_does_not_open() {
    if is_skipped(Mechanism::UringPoll) {
        return;
    }
    for errno in [EPERM, ENOSYS] {
        with_forbidden(IO_URING_ENTER, errno, move || {
            let message = refusal(errno);
            assert!(message.contains("io_uring_enter"), "{message}");
            assert!(message.contains("seccomp filter"), "{message}");
            assert_epoll_opens();
        });
    }
}

#[test]
fn an_aio_context_that_can_not_be_used_does_not_open() {
    if is_skipped(Mechanism::Aio) {
        return;
    }
    for call in [libc::SYS_io_submit, libc::SYS_io_getevents, libc::SYS_io_cancel] {
        for errno in [EPERM, ENOSYS] {
            with_forbidden(call, errno, move || {
                let message = refusal_of(Mechanism::Aio, errno);
                assert!(message.contains("seccomp filter"), "{message}");
            });
        }
    }
}

/// Watches a pipe and waits for ever, not at all, and for a time that is not a whole number of
/// milliseconds.
fn assert_waits(poller: &mut dyn Poller) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let how = Registration::new(Interest::READABLE, Trigger::Level);
    poller.add(reader.as_fd(), Token::new(7, 0), how).expect("vacant");
    let mut events = Events::with_capacity(8);
    for timeout in [Duration::ZERO, Duration::from_micros(1_500), Duration::from_millis(2)] {
        let began = Instant::now();
        poller.wait(&mut events, Some(timeout)).expect("nothing is ready");
        assert!(events.is_empty());
        assert!(began.elapsed() >= timeout, "{:?} is less than {timeout:?}", began.elapsed());
    }
    writer.write_all(b"x").expect("room");
    for timeout in [None, Some(Duration::ZERO), Some(Duration::from_nanos(1)), Some(Duration::MAX)]
    {
        poller.wait(&mut events, timeout).expect("one is ready");
        assert_eq!(events.iter().map(|event| event.token.slot()).collect::<Vec<_>>(), [7]);
    }
}

#[test]
fn epoll_waits_where_epoll_pwait2_is_forbidden() {
    for errno in [EPERM, ENOSYS] {
        with_forbidden(EPOLL_PWAIT2, errno, || {
            let mut poller = Mechanism::Epoll.open().expect("epoll is always there");
            assert_waits(&mut *poller);
            let caps = poller.caps();
            assert_eq!(caps.timeout_step, Duration::from_millis(1));
            assert!(caps.notes.iter().any(|note| note.contains("epoll_pwait2")), "{caps:?}");
        });
    }
}

#[test]
fn epoll_waits_when_epoll_pwait2_is_forbidden_after_it_was_opened() {
    for errno in [EPERM, ENOSYS] {
        let filtered_later = move || {
            let mut poller = Mechanism::Epoll.open().expect("epoll is always there");
            assert_eq!(poller.caps().timeout_step, Duration::from_nanos(1));
            forbid(EPOLL_PWAIT2, errno);
            assert_waits(&mut *poller);
            assert_eq!(poller.caps().timeout_step, Duration::from_millis(1));
        };
        std::thread::spawn(filtered_later).join().expect("the check passed");
    }
}

/// A mask that blocks no signal.
#[expect(unsafe_code, reason = "std has no set of signals")]
fn no_signals() -> SignalMask {
    // SAFETY: all zeroes is the empty set.
    SignalMask::from(unsafe { std::mem::zeroed::<libc::sigset_t>() })
}

/// The filters of Podman and Docker allow io_getevents(2), and not the call with a mask.
#[test]
fn aio_waits_with_a_signal_mask_where_io_pgetevents_is_forbidden() {
    if is_skipped(Mechanism::Aio) {
        return;
    }
    for errno in [EPERM, ENOSYS] {
        with_forbidden(IO_PGETEVENTS, errno, || {
            let mut poller = Mechanism::Aio.open().expect("it opened before");
            poller.set_signal_mask(Some(no_signals()));
            assert_waits(&mut *poller);
        });
    }
}

/// Without CAP_IPC_LOCK rings count against RLIMIT_MEMLOCK, where the kernel counts them at all.
#[test]
fn little_locked_memory_gives_a_smaller_ring_and_none_gives_none() {
    if is_skipped(Mechanism::UringPoll) {
        return;
    }
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
        if notes.contains("2048 submissions") {
            // Linux 6.12 and before, and 7.3.
            return pollux_testing::skip("this kernel counts no ring as locked memory");
        }
        assert!(notes.contains("no memory for 2048 + 16384 entries"), "{notes}");
        drop(poller);
        limit(0);
        let message = refusal(ENOMEM);
        assert!(message.contains("RLIMIT_MEMLOCK"), "{message}");
        assert_epoll_opens();
    };
    std::thread::spawn(unprivileged).join().expect("the check passed");
}
