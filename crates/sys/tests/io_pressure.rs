//! A thread that waits on a ring waits for its peers, not for a disk: `top` and `/proc/pressure/io` must not show an
//! idle server as one that is held up by I/O.
//!
//! A process of its own, which goes into a cgroup of its own where it may. Else the whole machine is looked at, which
//! others can hold up as well.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use pollux_sys::ring::{ReceiveBuffers, Ring, Sizes, StreamRing, StreamSizes};
use pollux_testing::{Cgroup, held_up};

const SIZES: Sizes = Sizes { submission: 64, completion: 256 };
/// Longer than the kernel's period of 2 s, after which it adds up what tasks were held up for.
const WAIT: Duration = Duration::from_millis(4500);

#[test]
fn an_idle_thread_on_a_ring_puts_no_pressure_on_io() {
    let wait = || Some(WAIT);
    if let Err(refused) = Ring::open(SIZES) {
        return pollux_testing::skip(refused);
    }
    if !says_what_waits() {
        return pollux_testing::skip(
            "this kernel takes every wait on a ring for I/O (before Linux 6.15)",
        );
    }
    let group = Cgroup::of(std::process::id());
    let machine = PathBuf::from("/proc/pressure/io");
    let pressure = group.as_ref().map_or(machine, Cgroup::io_pressure);
    let Some(before) = held_up(&pressure) else {
        return pollux_testing::skip("this kernel has no /proc/pressure/io");
    };
    thread::scope(|scope| {
        scope.spawn(|| Ring::open(SIZES).expect("opened").enter(1, wait()));
        scope.spawn(|| Ring::open_shared(SIZES).expect("opened").enter(1, wait()));
        let receive = ReceiveBuffers::whole(4, 512);
        let otherwise = None;
        let sizes = StreamSizes { ring: SIZES, receive, otherwise, arena_bytes: 4096 };
        scope.spawn(move || StreamRing::open(sizes).expect("opened").enter(1, Some(WAIT)));
    });
    let waited = held_up(&pressure).expect("read before") - before;
    if group.is_none() && waited > WAIT / 3 {
        // Others may do that: a machine that is held up without these threads shows nothing.
        let before = held_up(&pressure).expect("read before");
        thread::sleep(WAIT);
        let others = held_up(&pressure).expect("read before") - before;
        if others > WAIT / 6 {
            return pollux_testing::skip("others on this machine wait for I/O");
        }
    }
    assert!(waited < WAIT / 3, "held up by I/O for {waited:?} of {WAIT:?}");
}

/// Whether the kernel has a flag for it (IORING_FEAT_NO_IOWAIT).
fn says_what_waits() -> bool {
    io_uring::IoUring::new(8).is_ok_and(|ring| ring.params().is_feature_no_iowait())
}
