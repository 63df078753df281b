//! The buffers that tpalloc, calls and requests gave out, by their address.
//!
//! Typed buffers of C programs are found here, and only here: a pointer that is not in it is no
//! buffer, whatever it points at, and is not followed. Buffers are of the process, as any thread
//! may free what another allocated; they lie in shards, so that threads with buffers of their own
//! hardly ever meet at a lock, and no lock is held while a call is under way.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_char;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::ubf::HEADER_BYTES;

use crate::caller;

/// A buffer that a program has the address of.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) buffer: Buffer,
    /// It came with a request: the server frees it, not the program.
    pub(crate) is_request: bool,
}

/// The hash is the address already.
#[derive(Default)]
struct Address(u64);

type Shard = HashMap<usize, Held, BuildHasherDefault<Address>>;

/// Many more than threads that allocate at one moment.
const SHARDS: usize = 64;

/// The one state of the process: C programs name buffers by address, without a handle of ours.
static HELD: [Mutex<Shard>; SHARDS] =
    [const { Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())) }; SHARDS];

thread_local! {
    /// Where the request is that this thread serves; programs may have it moved.
    static REQUEST: Cell<*mut c_char> = const { Cell::new(std::ptr::null_mut()) };
}

impl Held {
    /// The address that the program has.
    fn pointer(&mut self) -> *mut c_char {
        self.buffer.as_bytes_mut().as_mut_ptr().cast()
    }
}

/// Gives a buffer out: the program has its address from now on.
pub(crate) fn give_out(mut held: Held) -> *mut c_char {
    let pointer = held.pointer();
    caller::forget(pointer.addr());
    if held.is_request {
        REQUEST.set(pointer);
    }
    let before = shard(pointer.addr()).insert(pointer.addr(), held);
    assert!(before.is_none(), "two buffers at one address");
    pointer
}

/// Takes a buffer out, for a call or for good; until it is given out again its address is none.
pub(crate) fn take(pointer: *const c_char) -> Option<Held> {
    caller::forget(pointer.addr());
    shard(pointer.addr()).remove(&pointer.addr())
}

/// Takes the request of the service that ran on this thread, unless it was taken before.
pub(crate) fn take_request() -> Option<Held> {
    let pointer = REQUEST.replace(std::ptr::null_mut());
    // The address may have been given to another buffer since.
    look(pointer, |held| held.is_request).filter(|is_request| *is_request)?;
    take(pointer)
}

/// Looks at a buffer.
pub(crate) fn look<T>(pointer: *const c_char, look: impl FnOnce(&Held) -> T) -> Option<T> {
    shard(pointer.addr()).get(&pointer.addr()).map(look)
}

/// Bytes of a buffer.
pub(crate) fn capacity(pointer: *const c_char) -> Option<usize> {
    look(pointer, |held| held.buffer.size())
}

/// Frees a buffer that was taken out; a program that still uses its address finds no fields there.
pub(crate) fn free(mut held: Held) {
    let bytes = held.buffer.as_bytes_mut();
    let head_len = bytes.len().min(HEADER_BYTES);
    bytes[..head_len].fill(0);
    // Or else the compiler leaves it out, as nobody may read it any more.
    std::hint::black_box(bytes);
}

fn shard(address: usize) -> MutexGuard<'static, Shard> {
    /// Spreads addresses, whose low bits are equal (Fibonacci hashing: 2^64 / golden ratio).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let spread = (address as u64).wrapping_mul(SPREAD) >> 58;
    // Nothing panics while it is locked but the assert above, before anything is half done.
    HELD[spread as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hasher for Address {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("addresses are hashed as numbers");
    }

    fn write_usize(&mut self, address: usize) {
        // The table takes its high bits too; see `shard` for the number.
        self.0 = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_xatmi::buffer::BufferType;

    fn held() -> Held {
        let buffer = Buffer::new(BufferType::Carray, "", 100).expect("a buffer");
        Held { buffer, is_request: false }
    }

    #[test]
    fn a_buffer_is_found_by_its_address_and_by_no_other() {
        let pointer = give_out(held());
        assert_eq!(capacity(pointer), Some(100));
        assert_eq!(capacity(pointer.wrapping_add(8)), None);
        assert_eq!(capacity(std::ptr::null()), None);
        let again = give_out(take(pointer).expect("held"));
        assert_eq!(again, pointer);
        free(take(pointer).expect("held"));
        assert!(take(pointer).is_none());
    }

    #[test]
    fn threads_allocate_and_free_for_each_other() {
        const EACH: usize = 500;
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let sender = sender.clone();
                scope.spawn(move || {
                    for _ in 0..EACH {
                        sender.send(give_out(held()).addr()).expect("somebody listens");
                    }
                });
            }
            drop(sender);
            let freed = receiver.iter().filter(|address| {
                let taken = take(std::ptr::without_provenance(*address));
                taken.map(free).is_some()
            });
            assert_eq!(freed.count(), 4 * EACH);
        });
    }
}
