//! Where a filter forbids a call: rings do not open, and say which it was; a thread that it ends in the
//! middle of taking a word does not stand there as its owner.
//!
//! A process of its own. A filter binds one thread, so each test makes its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use pollux_sys::futex::{OWNER_DIED, Owned};
use pollux_sys::ring::{ReceiveBuffers, Ring, RingUnavailable, Sizes, StreamRing, StreamSizes};
use pollux_sys::shared::PublishedWords;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

const SIZES: Sizes = Sizes { submission: 64, completion: 256 };
const STREAM_SIZES: StreamSizes = StreamSizes {
    ring: SIZES,
    receive: ReceiveBuffers::whole(4, 512),
    otherwise: None,
    arena_bytes: 4096,
};

/// Has the kernel do `these` with `call` of this thread, from now on.
fn forbid(call: i64, these: SeccompAction) {
    let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
    let rules = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, these, arch);
    let program = filter.and_then(BpfProgram::try_from).expect("a valid program");
    apply_filter(&program).expect("a thread may restrict itself");
}

/// Runs `open` on a thread whose calls of `call` fail with `errno`, and gives its refusal.
fn refusal<T>(
    call: i64,
    errno: i32,
    open: impl FnOnce() -> Result<T, RingUnavailable> + Send + 'static,
) -> RingUnavailable {
    let forbidden = move || {
        forbid(call, SeccompAction::Errno(errno as u32));
        open().err().expect("a ring that lacks a call does not open")
    };
    std::thread::spawn(forbidden).join().expect("it was refused")
}

/// A ring that is forbidden anyhow is not made to fail in another way.
fn is_skipped() -> bool {
    let refused = StreamRing::open(STREAM_SIZES).err();
    if let Some(reason) = &refused {
        pollux_testing::skip(reason);
    }
    refused.is_some()
}

#[test]
fn a_ring_of_either_kind_that_can_not_be_entered_does_not_open() {
    if is_skipped() {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let plain = refusal(libc::SYS_io_uring_enter, errno, || Ring::open(SIZES));
        let stream = refusal(libc::SYS_io_uring_enter, errno, || StreamRing::open(STREAM_SIZES));
        for refused in [plain, stream] {
            assert_eq!(refused.cause.raw_os_error(), Some(errno));
            let reason = refused.reason;
            assert!(reason.contains("seccomp filter forbids io_uring_enter"), "{reason}");
        }
    }
}

#[test]
fn a_stream_ring_that_can_not_register_its_buffers_names_the_filter() {
    if is_skipped() {
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let refused =
            refusal(libc::SYS_io_uring_register, errno, || StreamRing::open(STREAM_SIZES));
        assert_eq!(refused.cause.raw_os_error(), Some(errno));
        let reason = refused.reason;
        assert!(reason.contains("seccomp filter forbids io_uring_register"), "{reason}");
    }
}

#[test]
fn a_thread_that_ends_while_it_takes_a_word_is_not_its_owner_for_good() {
    let words = PublishedWords::create_named(c"pollux-owned", 1).expect("memory");
    let (says, said) = mpsc::channel();
    let part = Arc::clone(words.part());
    std::thread::spawn(move || {
        // SAFETY: the call takes nothing.
        let tid = unsafe { libc::gettid() };
        says.send(tid).expect("the test listens");
        forbid(libc::SYS_set_robust_list, SeccompAction::KillThread);
        Owned::take(part, 0).map(drop)
    });
    let thread = PathBuf::from(format!("/proc/self/task/{}", said.recv().expect("it began")));
    pollux_testing::wait_until("the thread is gone", || !thread.exists());
    let word = words[0].load(Ordering::SeqCst) as u32;
    assert!(word == 0 || word & OWNER_DIED != 0, "{word:#x} names a thread that is gone");
}
