//! Typed buffers: those that tpalloc, Balloc, calls and requests gave out, by their address, and the functions
//! that make and free them.
//!
//! Typed buffers of C programs are found here, and only here: a pointer that is not in it is not a
//! buffer, whatever it points at, and is not followed. Buffers are of the process, as any thread
//! may free what another allocated; they lie in shards, so that threads with buffers of their own
//! hardly ever meet at a lock, and no lock is held while a call is under way.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_long};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pollux_xatmi::buffer::{Buffer, BufferError, SUBTYPE_BYTES_MAX, TYPE_BYTES_MAX};
use pollux_xatmi::ubf::HEADER_BYTES;

use crate::caller;
use crate::fault::{self, Fault};

/// A buffer that a program has the address of.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) buffer: Buffer,
    /// It came with a request: the server frees it, not the program.
    pub(crate) is_request: bool,
    /// What travels beside its data: fields of tpsetcallinfo.
    pub(crate) call_info: Option<Box<[u8]>>,
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
    /// Nothing is beside its data.
    pub(crate) fn new(buffer: Buffer, is_request: bool) -> Self {
        Self { buffer, is_request, call_info: None }
    }

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

/// Changes what is known of a buffer, which stays where it is; whether it is one.
pub(crate) fn change(pointer: *const c_char, change: impl FnOnce(&mut Held)) -> bool {
    shard(pointer.addr()).get_mut(&pointer.addr()).map(change).is_some()
}

/// Bytes of a buffer.
pub(crate) fn capacity(pointer: *const c_char) -> Option<usize> {
    look(pointer, |held| held.buffer.program_size())
}

/// A buffer of the caller's that is used: its address is not a buffer for other threads meanwhile, which get
/// TPEINVAL for it. It comes back whatever becomes of the call.
#[derive(Debug)]
pub(crate) struct Borrowed(Option<Held>);

impl Borrowed {
    /// The buffer at `pointer`; none for NULL.
    pub(crate) fn from(pointer: *const c_char) -> Result<Option<Self>, Fault> {
        if pointer.is_null() {
            return Ok(None);
        }
        Ok(Some(Self(Some(take(pointer).ok_or_else(no_buffer)?))))
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.0.as_ref().expect("only taken by value").buffer
    }

    /// What travels beside its data.
    pub(crate) fn call_info(&self) -> Option<&[u8]> {
        self.0.as_ref().expect("only taken by value").call_info.as_deref()
    }

    /// Whether it came with the request of the service that runs.
    pub(crate) fn is_request(&self) -> bool {
        self.0.as_ref().expect("only taken by value").is_request
    }

    pub(crate) fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.0.as_mut().expect("only taken by value").buffer
    }

    /// Keeps it from going back.
    pub(crate) fn into_held(mut self) -> Held {
        self.0.take().expect("only taken by value")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            give_out(held);
        }
    }
}

/// Frees a buffer that was taken out; a program that still uses its address finds no fields there.
pub(crate) fn free(mut held: Held) {
    let bytes = held.buffer.as_bytes_mut();
    let head_len = bytes.len().min(HEADER_BYTES);
    bytes[..head_len].fill(0);
    // Or else the compiler leaves it out, as it may not be read any more.
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

impl From<BufferError> for Fault {
    fn from(error: BufferError) -> Self {
        Self::new(error.number(), error.to_string())
    }
}

/// A size or length of the caller's.
pub(crate) fn size(given: c_long) -> Result<usize, Fault> {
    usize::try_from(given).map_err(|_| Fault::invalid(format!("a length of {given} is below 0")))
}

/// The fault of a pointer that tpalloc did not give, that was freed, or that a call uses.
pub(crate) fn no_buffer() -> Fault {
    Fault::invalid(
        "the pointer is not that of a buffer of tpalloc, or it was freed, or another thread waits \
         for a reply in it",
    )
}

/// A buffer of a type; size 0 is the type's own. NULL for an error.
///
/// # Safety
/// Sound `type_name` and `subtype` are those of texts.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpalloc(
    type_name: *const c_char,
    subtype: *const c_char,
    bytes: c_long,
) -> *mut c_char {
    fault::atmi(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { caller::text(type_name) }.ok_or_else(|| {
            Fault::invalid("tpalloc needs a type, as in tpalloc(\"UBF\", NULL, 0)")
        })?;
        // SAFETY: the caller's promise.
        let subtype = unsafe { caller::text(subtype) }.unwrap_or_default();
        let name = name.to_string_lossy();
        let subtype = subtype.to_string_lossy();
        let buffer = Buffer::alloc(&name, &subtype, size(bytes)?)?;
        Ok(give_out(Held::new(buffer, false)))
    })
}

/// The buffer with another size, at another address as a rule. NULL for an error: it stays then.
///
/// # Safety
/// No thread uses the buffer at `pointer` meanwhile. Any pointer is fine otherwise.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tprealloc(pointer: *mut c_char, bytes: c_long) -> *mut c_char {
    fault::atmi(std::ptr::null_mut(), || {
        let bytes = size(bytes)?;
        if bytes != 0 && capacity(pointer) == Some(bytes) {
            return Ok(pointer);
        }
        let borrowed = Borrowed::from(pointer)?.ok_or_else(no_buffer)?;
        let buffer = borrowed.buffer().resized(bytes)?;
        let mut held = borrowed.into_held();
        let is_request = held.is_request;
        let call_info = held.call_info.take();
        free(held);
        Ok(give_out(Held { buffer, is_request, call_info }))
    })
}

/// Frees a buffer. NULL, the request of a service and what is not a buffer are left alone, and so is
/// `tperrno`: programs free before they tell what failed.
///
/// # Safety
/// No thread uses the buffer at `pointer` any more. Any pointer is fine otherwise.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tpfree(pointer: *mut c_char) {
    fault::quietly(|| {
        if look(pointer, |held| held.is_request) == Some(false)
            && let Some(held) = take(pointer)
        {
            free(held);
        }
    });
}

/// 1 for the request of a service, 0 for another buffer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpisautobuf(pointer: *const c_char) -> c_int {
    fault::atmi(-1, || {
        let is_request = look(pointer, |held| held.is_request).ok_or_else(no_buffer)?;
        Ok(c_int::from(is_request))
    })
}

/// Type, subtype and size of a buffer.
///
/// # Safety
/// Sound `type_name` and `subtype` are those of 8 and 16 bytes; no thread uses them meanwhile.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tptypes(
    pointer: *mut c_char,
    type_name: *mut c_char,
    subtype: *mut c_char,
) -> c_long {
    fault::atmi(-1, || {
        let (name, sub, size) = look(pointer, |held| {
            let buffer = &held.buffer;
            (buffer.buffer_type().name(), buffer.subtype().to_owned(), buffer.program_size())
        })
        .ok_or_else(no_buffer)?;
        // SAFETY: the caller's promise.
        unsafe { put(name, type_name, TYPE_BYTES_MAX) };
        // SAFETY: the caller's promise.
        unsafe { put(&sub, subtype, SUBTYPE_BYTES_MAX) };
        c_long::try_from(size).map_err(|_| Fault::invalid("the size does not fit a long"))
    })
}

/// Puts a name with its NUL where there is room for `room` bytes; one that fills it has none.
///
/// # Safety
/// A sound `to` is that of `room` bytes that no other thread uses meanwhile.
unsafe fn put(name: &str, to: *mut c_char, room: usize) {
    if !caller::is_sound(to) {
        return;
    }
    let len = name.len().min(room);
    // SAFETY: the caller promises this room, of which no more than the name and a NUL is used.
    let bytes = unsafe { caller::bytes_mut(to, (len + 1).min(room)) };
    bytes.fill(0);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_xatmi::buffer::BufferType;

    fn held() -> Held {
        let buffer = Buffer::new(BufferType::Carray, "", 100).expect("a buffer");
        Held::new(buffer, false)
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
                        sender.send(give_out(held()).addr()).expect("the test receives");
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
