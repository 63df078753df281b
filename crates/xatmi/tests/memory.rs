//! Lengths for which there is no memory. A program of its own, as its limit is for all threads.

use pollux_xatmi::buffer::{Buffer, BufferError};
use pollux_xatmi::ubf::SIZE_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Far more than the test takes, and less than half of the largest buffer.
const ADDRESS_SPACE_BYTES: u64 = 400 << 20;

#[test]
fn a_length_without_memory_is_an_error_and_no_end() {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let bytes = kib * 1024 + ADDRESS_SPACE_BYTES;
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum }).expect("lowered");

    let mut small = Buffer::carray(b"small").expect("there is memory");
    for refused in [Buffer::alloc("CARRAY", "", SIZE_MAX).map(drop), small.resize(SIZE_MAX)] {
        assert_eq!(refused, Err(BufferError::NoMemory { bytes: SIZE_MAX }));
    }
    assert_eq!(BufferError::NoMemory { bytes: SIZE_MAX }.number(), 7, "TPEOS");
    assert_eq!(small.as_bytes(), b"small");
    small.resize(1 << 20).expect("there is memory for this");
    assert_eq!(&small.as_bytes()[..6], b"small\0");
}
