//! Rings where a filter forbids one of their calls: they do not open, and say which it was.
//!
//! A process of its own. A filter binds one thread, so each test makes its own.

use std::collections::BTreeMap;

use pollux_sys::ring::{Ring, RingUnavailable, Sizes, StreamRing, StreamSizes};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

const SIZES: Sizes = Sizes { submission: 64, completion: 256 };
const STREAM_SIZES: StreamSizes =
    StreamSizes { ring: SIZES, buffers: 4, buffer_bytes: 512, arena_bytes: 4096 };

/// Runs `open` on a thread whose calls of `call` fail with `errno`, and gives its refusal.
fn refusal<T>(
    call: i64,
    errno: i32,
    open: impl FnOnce() -> Result<T, RingUnavailable> + Send + 'static,
) -> RingUnavailable {
    let forbidden = move || {
        let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
        let rules = BTreeMap::from([(call, Vec::new())]);
        let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
        let filter = SeccompFilter::new(rules, others, these, arch).expect("a valid filter");
        let program: BpfProgram = filter.try_into().expect("a valid program");
        apply_filter(&program).expect("a thread may restrict itself");
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
