//! Memory of field buffers: `Balloc`, `Brealloc`, `Bfree`, `Bneeded`, and the functions of the
//! index, which does not exist.
//!
//! C programs call it. A buffer of `Balloc` is one of `tpalloc`: either function frees it, and it
//! can be sent.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::buffer::{Buffer, BufferError, BufferType};
use pollux_xatmi::ubf::{UbfError, bytes_needed};

use crate::fault::{self, UbfFault};
use crate::memory::{Borrowed, Held, free, give_out, look};

/// Bytes that so many fields with so many bytes of values need, of the caller's numbers.
fn needed(fields: c_int, value_bytes: c_int) -> Result<usize, UbfFault> {
    let positive = |number: c_int, reason| {
        let number = usize::try_from(number).ok().filter(|number| *number > 0);
        number.ok_or(UbfError::Invalid { reason })
    };
    let fields = positive(fields, "the number of fields is 1 or above")?;
    let value_bytes = positive(value_bytes, "the bytes of the values are 1 or above")?;
    Ok(bytes_needed(fields, value_bytes)?)
}

/// What `tpalloc` refuses, as an error of `ubf.h`.
fn refused(error: &BufferError) -> UbfFault {
    const TPEOS: c_int = 7;
    const BEINVAL: c_int = 14;
    if error.number() == TPEOS {
        return UbfFault::no_memory();
    }
    UbfFault::Other(BEINVAL, error.to_string())
}

/// Takes out the buffer at `ubf`, which has to be one of `tpalloc` or `Balloc`: memory that was
/// freed, or belongs to another allocator, is not read.
fn borrowed(ubf: *mut c_char) -> Result<Borrowed, UbfFault> {
    let own = UbfError::NotFielded { reason: "it stands in memory that Balloc did not give" };
    if !ubf.addr().is_multiple_of(8) {
        return Err(UbfError::Unaligned.into());
    }
    let is_fields = |held: &Held| held.buffer.buffer_type() == BufferType::Ubf;
    if look(ubf, is_fields) != Some(true) {
        return Err(own.into());
    }
    // Another thread may have freed it since.
    Ok(Borrowed::from(ubf).ok().flatten().ok_or(own)?)
}

/// A buffer for `fields` fields with `value_bytes` bytes of values, strings with their NUL.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Balloc(fields: c_int, value_bytes: c_int) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        let size = needed(fields, value_bytes)?;
        let buffer = Buffer::alloc("UBF", "", size).map_err(|error| refused(&error))?;
        Ok(give_out(Held { buffer, is_request: false }))
    })
}

/// The buffer with room for so many fields, at another address as a rule. NULL for an error: it
/// stays then.
///
/// # Safety
/// When `ubf` points to a buffer of fields, no other thread uses it during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Brealloc(
    ubf: *mut c_char,
    fields: c_int,
    value_bytes: c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        let size = needed(fields, value_bytes)?;
        let borrowed = borrowed(ubf)?;
        let buffer = borrowed.buffer().resized(size).map_err(|error| refused(&error))?;
        let held = borrowed.into_held();
        let is_request = held.is_request;
        free(held);
        Ok(give_out(Held { buffer, is_request }))
    })
}

/// Frees a buffer of `Balloc` or `tpalloc`. The request of a service stays the server's.
///
/// # Safety
/// When `ubf` points to a buffer of fields, it is not used after the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bfree(ubf: *mut c_char) -> c_int {
    fault::ubf(-1, || {
        let borrowed = borrowed(ubf)?;
        if borrowed.is_request() {
            let reason = "the request of a service is freed by the server";
            return Err(UbfError::Invalid { reason }.into());
        }
        free(borrowed.into_held());
        Ok(0)
    })
}

/// Bytes that a buffer needs for `fields` fields with `value_bytes` bytes of values.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bneeded(fields: c_int, value_bytes: c_int) -> c_long {
    fault::ubf(-1, || Ok(c_long::try_from(needed(fields, value_bytes)?).unwrap_or(c_long::MAX)))
}

/// Does nothing: fields stand in order, and there is no index to build.
///
/// # Safety
/// Any pointer is fine; it is not followed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bindex(_ubf: *mut c_char, _occurrence: c_int) -> c_int {
    fault::ubf(-1, || Ok(0))
}

/// Does nothing, as [`Bindex`].
///
/// # Safety
/// As for [`Bindex`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Brstrindex(_ubf: *mut c_char, _occurrence: c_int) -> c_int {
    fault::ubf(-1, || Ok(0))
}

/// Fields that lose their index: none.
///
/// # Safety
/// As for [`Bindex`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bunindex(_ubf: *mut c_char) -> c_int {
    fault::ubf(-1, || Ok(0))
}

/// Bytes of the index: none.
///
/// # Safety
/// As for [`Bindex`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bidxused(_ubf: *mut c_char) -> c_long {
    fault::ubf(-1, || Ok(0))
}
