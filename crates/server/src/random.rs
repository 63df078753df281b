//! Random bytes of the kernel, for keys.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes that nobody can foresee.
pub(crate) fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut filled = 0;
    while filled < LEN {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(len) => filled += len,
            Err(Errno::INTR) => {}
            Err(errno) => panic!("the kernel gives no random bytes: {errno}"),
        }
    }
    bytes
}
