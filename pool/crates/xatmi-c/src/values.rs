//! One value of a buffer: add, change, get, delete, with and without conversion, and as a text without a
//! length (`Badds` and its fellows).
//!
//! C programs call it. Lengths are those of the caller: it never writes more than the room that was
//! named, and nothing when none was (NULL) is the caller's wish, as `ubf.h` says.

use std::ffi::{CStr, c_char, c_int};

use pollux_xatmi::ubf::{FieldId, FieldType, Scratch, UbfError, UbfMut, Value};

use crate::caller;
use crate::fault::{self, UbfFault};
use crate::fields::{changing, id, int, reading, size_at};

/// The bytes of a value of a type in the caller's memory; `len` counts for a carray only.
///
/// # Safety
/// A sound `pointer` is that of a value of the type, which no other thread changes while the result is used.
pub(crate) unsafe fn raw<'a>(
    field_type: FieldType,
    pointer: *const c_char,
    len: c_int,
) -> Result<&'a [u8], UbfError> {
    if !caller::is_sound(pointer) {
        return Err(UbfError::Invalid { reason: "the pointer to the value is null" });
    }
    match (field_type, field_type.fixed_len()) {
        // SAFETY: the caller promises a value of the type, which has this length.
        (_, Some(len)) => Ok(unsafe { caller::bytes(pointer, len) }),
        (FieldType::String, _) => {
            // SAFETY: the caller promises a text with a NUL.
            let text = unsafe { caller::text(pointer) };
            Ok(text.map_or(&b"\0"[..], CStr::to_bytes_with_nul))
        }
        // SAFETY: the caller promises that no other thread changes the buffer.
        (FieldType::Ubf, _) => Ok(unsafe { reading(pointer) }?.used_bytes()),
        _ => {
            let len = usize::try_from(len)
                .map_err(|_| UbfError::Invalid { reason: "the length of the value is below 0" })?;
            // SAFETY: the caller promises so many bytes.
            Ok(unsafe { caller::bytes(pointer, len) })
        }
    }
}

/// Lets `change` change the buffer at `ubf` by a value of the caller's.
///
/// A value that stands in that buffer itself, where Bfind found it, would move under it.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile; a sound `pointer` is
/// that of a value of the type.
pub(crate) unsafe fn change_by(
    ubf: *mut c_char,
    field_type: FieldType,
    (pointer, len): (*const c_char, c_int),
    change: impl FnOnce(&mut UbfMut<'_>, Value<'_>) -> Result<(), UbfError>,
) -> Result<c_int, UbfFault> {
    // SAFETY: the caller's promise.
    let region = (ubf.addr(), unsafe { size_at(ubf) }?);
    // SAFETY: the caller's promise.
    let mut bytes = unsafe { raw(field_type, pointer, len) }?;
    let copy;
    if caller::overlap(region, (bytes.as_ptr().addr(), bytes.len())) {
        copy = bytes.to_vec();
        bytes = &copy;
    }
    // SAFETY: the caller's promise; `bytes` do not stand in it.
    let mut fields = unsafe { changing(ubf) }?;
    change(&mut fields, Value::from_raw(field_type, bytes)?)?;
    Ok(0)
}

/// Room at the caller's, in bytes: without a length it is what the value needs.
///
/// # Safety
/// A sound `len` is that of an int.
unsafe fn room(len: *const c_int, needed: usize) -> Result<usize, UbfError> {
    // SAFETY: the caller promises an int.
    match unsafe { caller::read(len) } {
        None => Ok(needed),
        Some(len) => usize::try_from(len)
            .map_err(|_| UbfError::Invalid { reason: "the room for the value is below 0" }),
    }
}

/// Copies a value to the caller and says how long it is.
///
/// # Safety
/// `to` has space for `*len` bytes, or for the value without a sound `len`, and no other thread uses it.
pub(crate) unsafe fn give(
    value: &Value<'_>,
    to: *mut c_char,
    len: *mut c_int,
) -> Result<(), UbfFault> {
    if !caller::is_sound(to) {
        return Err(UbfError::Invalid { reason: "no memory for the value" }.into());
    }
    let needed = value.raw_len();
    // SAFETY: the caller's promise.
    let room = unsafe { room(len, needed) }?;
    if needed > room {
        return Err(UbfError::NoSpace { needed, room }.into());
    }
    // SAFETY: the caller promises this room, of which no more than the value's length is used.
    let written = value.write_raw(unsafe { caller::bytes_mut(to, needed) })?;
    // SAFETY: the caller promises room for an int.
    unsafe { caller::write(len, int(written)?) };
    Ok(())
}

/// A field's id, once there is a buffer that may have it: that is what is reported first.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile.
pub(crate) unsafe fn id_in(ubf: *const c_char, field: c_int) -> Result<FieldId, UbfError> {
    // SAFETY: the caller's promise.
    unsafe { size_at(ubf) }?;
    id(field)
}

/// A type as a number of the caller.
pub(crate) fn user_type(code: c_int) -> Result<FieldType, UbfError> {
    FieldType::from_code(code).ok_or(UbfError::BadType { code })
}

/// The type of a value that is converted from or to one of the field's.
pub(crate) fn user_type_for(field: FieldId, code: c_int) -> Result<FieldType, UbfError> {
    let user = user_type(code)?;
    field.field_type().check_converts(user).map(|()| user)
}

/// Adds an occurrence; `len` counts for a carray only.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile; `buf` is that of a value
/// of the field's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Badd(
    ubf: *mut c_char,
    field: c_int,
    buf: *const c_char,
    len: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let field = unsafe { id_in(ubf, field) }?;
        let change = |fields: &mut UbfMut<'_>, value: Value<'_>| fields.add(field, value);
        // SAFETY: the caller's promise.
        unsafe { change_by(ubf, field.field_type(), (buf, len), change) }
    })
}

/// Gives an occurrence another value; without a value it is deleted.
///
/// # Safety
/// As for [`Badd`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bchg(
    ubf: *mut c_char,
    field: c_int,
    occurrence: c_int,
    buf: *const c_char,
    len: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let field = unsafe { id_in(ubf, field) }?;
        if buf.is_null() {
            // SAFETY: the caller's promise.
            unsafe { changing(ubf) }?.delete(field, occurrence)?;
            return Ok(0);
        }
        let change =
            |fields: &mut UbfMut<'_>, value: Value<'_>| fields.change(field, occurrence, value);
        // SAFETY: the caller's promise.
        unsafe { change_by(ubf, field.field_type(), (buf, len), change) }
    })
}

/// Copies a value; `*len` is the room, then the length.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; `buf` has space for `*len`
/// bytes, or for the value when `len` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bget(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    buf: *mut c_char,
    len: *mut c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let value = fields.get(id(field)?, occurrence)?;
        // SAFETY: the caller's promise.
        unsafe { give(&value, buf, len) }.map(|()| 0)
    })
}

/// [`Badd`] of a value of any type.
///
/// # Safety
/// As for [`Badd`], with a value of the type `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBadd(
    ubf: *mut c_char,
    field: c_int,
    buf: *const c_char,
    len: c_int,
    user: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let field = unsafe { id_in(ubf, field) }?;
        let change = |fields: &mut UbfMut<'_>, value: Value<'_>| fields.add_as(field, value);
        // SAFETY: the caller's promise.
        unsafe { change_by(ubf, user_type_for(field, user)?, (buf, len), change) }
    })
}

/// [`Bchg`] to a value of any type.
///
/// # Safety
/// As for [`Badd`], with a value of the type `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBchg(
    ubf: *mut c_char,
    field: c_int,
    occurrence: c_int,
    buf: *const c_char,
    len: c_int,
    user: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let field = unsafe { id_in(ubf, field) }?;
        let user = user_type_for(field, user)?;
        if buf.is_null() {
            // SAFETY: the caller's promise.
            unsafe { changing(ubf) }?.delete(field, occurrence)?;
            return Ok(0);
        }
        let change =
            |fields: &mut UbfMut<'_>, value: Value<'_>| fields.change_as(field, occurrence, value);
        // SAFETY: the caller's promise.
        unsafe { change_by(ubf, user, (buf, len), change) }
    })
}

/// [`Bget`] as a value of any type.
///
/// # Safety
/// As for [`Bget`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBget(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    buf: *mut c_char,
    len: *mut c_int,
    user: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let (field, mut scratch) = (id(field)?, Scratch::new());
        let value = fields.get_as(field, occurrence, user_type_for(field, user)?, &mut scratch)?;
        // SAFETY: the caller's promise.
        unsafe { give(&value, buf, len) }.map(|()| 0)
    })
}

/// Deletes an occurrence.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bdel(ubf: *mut c_char, field: c_int, occurrence: c_int) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.delete(id(field)?, occurrence)?;
        Ok(0)
    })
}

/// Deletes all occurrences.
///
/// # Safety
/// As for [`Bdel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bdelall(ubf: *mut c_char, field: c_int) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.delete_all(id(field)?)?;
        Ok(0)
    })
}

/// 1 when the occurrence is there, else 0.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bpres(ubf: *const c_char, field: c_int, occurrence: c_int) -> c_int {
    fault::ubf(0, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        Ok(c_int::from(fields.is_present(id(field)?, occurrence)))
    })
}

/// The length of a value.
///
/// # Safety
/// As for [`Bpres`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Blen(ubf: *const c_char, field: c_int, occurrence: c_int) -> c_int {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || int(unsafe { reading(ubf) }?.len_of(id(field)?, occurrence)?))
}

/// Where a value stands in the buffer, until that is changed; NULL for an error.
///
/// # Safety
/// As for [`Bpres`]; a sound `len` is that of an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfind(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    len: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let found = unsafe { reading(ubf) }?.find(id(field)?, occurrence)?;
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(found.len())?) };
        Ok(found.as_ptr().cast_mut().cast())
    })
}

/// The field behind (`*field`, `*occurrence`): 1, or 0 at the end. `*field` is 0 at the start.
///
/// # Safety
/// As for [`Bget`]; sound `field` and `occurrence` are those of ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bnext(
    ubf: *const c_char,
    field: *mut c_int,
    occurrence: *mut c_int,
    buf: *mut c_char,
    len: *mut c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        // SAFETY: the caller promises an int.
        let before = unsafe { caller::read(field) };
        // SAFETY: the caller promises an int.
        let at = unsafe { caller::read(occurrence) };
        let (Some(before), Some(at)) = (before, at) else {
            return Err(UbfError::Invalid { reason: "no memory for the next field" }.into());
        };
        let after = if before == 0 { None } else { Some((id(before)?, at)) };
        let Some(next) = fields.next(after)? else { return Ok(0) };
        if caller::is_sound(buf) {
            // SAFETY: the caller's promise.
            unsafe { give(&next.value, buf, len) }?;
        } else {
            // SAFETY: the caller promises room for an int.
            unsafe { caller::write(len, int(next.value.raw_len())?) };
        }
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(field, next.id.raw()) };
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(occurrence, next.occurrence) };
        Ok(1)
    })
}

/// How often a field occurs.
///
/// # Safety
/// As for [`Bpres`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Boccur(ubf: *const c_char, field: c_int) -> c_int {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || int(unsafe { reading(ubf) }?.occurrences(id(field)?)?))
}

/// The type of a text.
pub(crate) const TEXT: c_int = FieldType::String.code();

/// Adds a text to a field of any type.
///
/// # Safety
/// As for `CBadd` with a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Badds(ubf: *mut c_char, field: c_int, text: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { CBadd(ubf, field, text, 0, TEXT) }
}

/// Gives an occurrence the value of a text.
///
/// # Safety
/// As for `CBchg` with a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bchgs(
    ubf: *mut c_char,
    field: c_int,
    occurrence: c_int,
    text: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { CBchg(ubf, field, occurrence, text, 0, TEXT) }
}

/// Copies a value as a text, whatever its length.
///
/// # Safety
/// As for `CBget`; there is room for the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bgets(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    text: *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { CBget(ubf, field, occurrence, text, std::ptr::null_mut(), TEXT) }
}
