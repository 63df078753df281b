//! `tpalloc`, `tprealloc`, `tpfree`, `tptypes`: typed buffers of C programs.
//!
//! What a type is and how it grows stands in `pollux_xatmi::buffer`; where buffers are kept, in
//! `memory.rs`.

use std::ffi::{c_char, c_long};

use pollux_xatmi::buffer::{Buffer, BufferError, SUBTYPE_BYTES_MAX, TYPE_BYTES_MAX};

use crate::caller;
use crate::fault::{self, Fault};
use crate::memory::{self, Held};
use crate::payloads::Borrowed;

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
pub unsafe extern "C" fn tpalloc(
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
        let (name, subtype) = (name.to_string_lossy(), subtype.to_string_lossy());
        let buffer = Buffer::alloc(&name, &subtype, size(bytes)?)?;
        Ok(memory::give_out(Held { buffer, is_request: false }))
    })
}

/// The buffer with another size, at another address as a rule. NULL for an error: it stays then.
///
/// # Safety
/// Nobody uses the buffer at `pointer` meanwhile. Any pointer is fine otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tprealloc(pointer: *mut c_char, bytes: c_long) -> *mut c_char {
    fault::atmi(std::ptr::null_mut(), || {
        let bytes = size(bytes)?;
        if bytes != 0 && memory::capacity(pointer) == Some(bytes) {
            return Ok(pointer);
        }
        let borrowed = Borrowed::from(pointer)?.ok_or_else(no_buffer)?;
        let buffer = borrowed.buffer().resized(bytes)?;
        let held = borrowed.into_held();
        let is_request = held.is_request;
        memory::free(held);
        Ok(memory::give_out(Held { buffer, is_request }))
    })
}

/// Frees a buffer. NULL, the request of a service and what is not a buffer are left alone, and so is
/// `tperrno`: programs free before they tell what failed.
///
/// # Safety
/// Nobody uses the buffer at `pointer` any more. Any pointer is fine otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpfree(pointer: *mut c_char) {
    fault::quietly(|| {
        if memory::look(pointer, |held| held.is_request) == Some(false)
            && let Some(held) = memory::take(pointer)
        {
            memory::free(held);
        }
    });
}

/// Type, subtype and size of a buffer.
///
/// # Safety
/// Sound `type_name` and `subtype` are those of 8 and 16 bytes; nobody uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tptypes(
    pointer: *mut c_char,
    type_name: *mut c_char,
    subtype: *mut c_char,
) -> c_long {
    fault::atmi(-1, || {
        let (name, sub, size) = memory::look(pointer, |held| {
            let buffer = &held.buffer;
            (buffer.buffer_type().name(), buffer.subtype().to_owned(), buffer.size())
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
/// A sound `to` is that of `room` bytes that nobody else uses meanwhile.
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
