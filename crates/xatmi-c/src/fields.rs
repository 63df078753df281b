//! `UBFH *`: the buffer of fields behind a caller's pointer.
//!
//! The other files of `ubf.h` read and change fields through it. It never follows a pointer that
//! cannot be one, and trusts no length but that of a header of ours.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::ubf::{FieldId, HEADER_BYTES, UbfError, UbfMut, UbfRef, region_size};

use crate::fault::{self, UbfFault};
use crate::{caller, memory};

/// The buffer at `ubf`, for reading.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it while the result is used.
pub(crate) unsafe fn reading<'a>(ubf: *const c_char) -> Result<UbfRef<'a>, UbfError> {
    // SAFETY: the caller's promise is that of `size_at`.
    let size = unsafe { size_at(ubf) }?;
    // SAFETY: the header of ours says that so many bytes belong to it; no other thread changes them.
    UbfRef::open(unsafe { caller::bytes(ubf, size) })
}

/// The buffer at `ubf`, to be changed.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it while the result is used.
pub(crate) unsafe fn changing<'a>(ubf: *mut c_char) -> Result<UbfMut<'a>, UbfError> {
    // SAFETY: the caller's promise is that of `size_at`.
    let size = unsafe { size_at(ubf) }?;
    // SAFETY: the header of ours says that so many bytes belong to it; no other thread uses them.
    UbfMut::open(unsafe { caller::bytes_mut(ubf, size) })
}

/// Bytes of the region at `ubf`.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile.
pub(crate) unsafe fn size_at(ubf: *const c_char) -> Result<usize, UbfError> {
    const NONE: UbfError = UbfError::NotFielded { reason: "the pointer is null" };
    if !caller::is_sound(ubf) {
        return Err(NONE);
    }
    if !ubf.addr().is_multiple_of(8) {
        return Err(UbfError::Unaligned);
    }
    let address = ubf.addr();
    // What this thread knows of the address may be over: another thread freed what was there.
    for is_known in [true, false] {
        if !is_known {
            caller::forget(address);
        }
        let room = caller::room_at(address, || memory::capacity(ubf)).ok_or(NONE)?;
        if room >= HEADER_BYTES && is_whole(address) {
            // SAFETY: it can be read, and the caller promises that no other thread writes it meanwhile.
            let size = region_size(unsafe { caller::bytes(ubf, HEADER_BYTES) })?;
            if size <= room {
                return Ok(size);
            }
        }
    }
    Err(UbfError::NotFielded { reason: "its header speaks of more bytes than tpalloc gave" })
}

/// Whether the second word of the header can be read; it is on the page of the first nearly always.
fn is_whole(address: usize) -> bool {
    const PAGE_BYTES: usize = 4096;
    address % PAGE_BYTES <= PAGE_BYTES - HEADER_BYTES
        || caller::room_at(address + HEADER_BYTES - 8, || None).is_some()
}

/// A field's id as a number of the caller.
pub(crate) fn id(raw: c_int) -> Result<FieldId, UbfError> {
    FieldId::from_raw(raw)
}

/// A length as the interface has it.
pub(crate) fn int(len: usize) -> Result<c_int, UbfFault> {
    let too_long = UbfError::Invalid { reason: "the length does not fit an int" };
    c_int::try_from(len).map_err(|_| too_long.into())
}

/// Makes a buffer without fields out of `size` bytes of the caller's.
///
/// # Safety
/// A sound `ubf` is that of `size` bytes that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Binit(ubf: *mut c_char, size: c_int) -> c_int {
    fault::ubf(-1, || {
        let invalid = |reason| UbfError::Invalid { reason };
        if !caller::is_sound(ubf) {
            return Err(UbfError::NotFielded { reason: "the pointer is null" }.into());
        }
        if !ubf.addr().is_multiple_of(8) {
            return Err(UbfError::Unaligned.into());
        }
        let size = usize::try_from(size).map_err(|_| invalid("the size is below 0"))?;
        if memory::capacity(ubf).is_some_and(|capacity| size > capacity) {
            return Err(invalid("the size is more than tpalloc gave").into());
        }
        if caller::room_at(ubf.addr(), || memory::capacity(ubf)).is_none() {
            return Err(UbfError::NotFielded { reason: "the pointer is null" }.into());
        }
        // SAFETY: the caller promises so many bytes of its own.
        UbfMut::init(unsafe { caller::bytes_mut(ubf, size) })?;
        Ok(0)
    })
}

/// 1 when there is a buffer of fields at `ubf`, else 0.
///
/// # Safety
/// As for [`Bnum`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bisubf(ubf: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    fault::ubf(0, || Ok(c_int::from(unsafe { reading(ubf) }.is_ok())))
}

/// Fields of a buffer, each occurrence for itself.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bnum(ubf: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || int(unsafe { reading(ubf) }?.count()))
}

/// Bytes of a buffer.
///
/// # Safety
/// As for [`Bnum`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bsizeof(ubf: *const c_char) -> c_long {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || Ok(c_long::from(int(unsafe { reading(ubf) }?.size())?)))
}

/// Bytes of a buffer that are used.
///
/// # Safety
/// As for [`Bnum`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bused(ubf: *const c_char) -> c_long {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || Ok(c_long::from(int(unsafe { reading(ubf) }?.used())?)))
}

/// Bytes of a buffer that are free.
///
/// # Safety
/// As for [`Bnum`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bunused(ubf: *const c_char) -> c_long {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || Ok(c_long::from(int(unsafe { reading(ubf) }?.unused())?)))
}
