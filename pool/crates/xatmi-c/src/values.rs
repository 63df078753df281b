//! One value of a buffer: add, change, get, delete, with and without conversion, and as a text without a
//! length (`Badds` and its fellows).
//!
//! C programs call it. Lengths are those of the caller: it never writes more than the room that was
//! named, and nothing when none was (NULL) is the caller's wish, as `ubf.h` says.

use std::ffi::{CStr, c_char, c_int, c_void};

use pollux_xatmi::ubf::{FieldId, FieldType, Scratch, UbfError, UbfMut, VIEW_NAME_BYTES, Value};

use crate::caller;
use crate::fault::{self, UbfFault};
use crate::fields::{changing, id, int, reading, size_at};
use crate::view_fields::{self, lent, seen_len};

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
        // Only where a field takes it: `change_by`.
        (FieldType::View, _) => Err(UbfError::BadView),
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
    let (made, copy);
    let mut bytes = if field_type == FieldType::View {
        // SAFETY: the caller's promise.
        made = unsafe { view_fields::stored(pointer) }?;
        &made[..]
    } else {
        // SAFETY: the caller's promise.
        unsafe { raw(field_type, pointer, len) }?
    };
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
    if let Value::View(bytes) = value {
        let needed = bytes.len().saturating_sub(VIEW_NAME_BYTES);
        // SAFETY: the caller's promise.
        let room = unsafe { room(len, needed) }?;
        if needed > room {
            return Err(UbfError::NoSpace { needed, room }.into());
        }
        // SAFETY: the caller's promise; a view says by its BVIEWFLD where it goes.
        let given = unsafe { view_fields::give(bytes, to) }?;
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(given)?) };
        return Ok(());
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
    check_converted(field.field_type(), user).map(|()| user)
}

/// Whether values of one type are given and taken as those of another; buffers and views are not, not even as themselves.
pub(crate) fn check_converted(from: FieldType, to: FieldType) -> Result<(), UbfError> {
    let is_whole = |field_type| matches!(field_type, FieldType::Ubf | FieldType::View);
    if is_whole(from) || is_whole(to) {
        return Err(UbfError::NotConverted { from, to });
    }
    Ok(())
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
        let field = id(field)?;
        let mut scratch = Scratch::new();
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
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let id = id(field)?;
        let len = fields.len_of(id, occurrence)?;
        // The name in front of a struct is not the program's.
        let is_view = id.field_type() == FieldType::View;
        int(if is_view { len.saturating_sub(VIEW_NAME_BYTES) } else { len })
    })
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
        let (place, found_len) = lent(id(field)?.field_type(), found);
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(found_len)?) };
        Ok(place)
    })
}

/// The field behind (`*field`, `*occurrence`): 1, or 0 at the end. `*field` is 0 at the start. A view comes with its struct:
/// `buf` becomes a `BVIEWFLD` that leads to the struct right behind it.
///
/// # Safety
/// As for [`Bget`], with room for both of a view; sound `field` and `occurrence` are those of ints.
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
            if let Value::View(stored) = next.value {
                // SAFETY: the caller's promise.
                let room = unsafe { room(len, usize::MAX) }?;
                // SAFETY: the caller's promise.
                let given = unsafe { view_fields::give_whole(stored, buf, room) }?;
                // SAFETY: the caller promises room for an int.
                unsafe { caller::write(len, int(given)?) };
            } else {
                // SAFETY: the caller's promise.
                unsafe { give(&next.value, buf, len) }?;
            }
        } else {
            // SAFETY: the caller promises room for an int.
            unsafe { caller::write(len, int(seen_len(&next.value))?) };
        }
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(field, next.id.raw()) };
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(occurrence, next.occurrence) };
        Ok(1)
    })
}

/// [`Bnext`] with a state that it leaves alone, and with where the value stands: what `Bfind` gives.
///
/// # Safety
/// As for [`Bnext`]; a sound `data` is that of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bnext2(
    state: *mut c_void,
    ubf: *const c_char,
    field: *mut c_int,
    occurrence: *mut c_int,
    buf: *mut c_char,
    len: *mut c_int,
    data: *mut *mut c_char,
) -> c_int {
    if !caller::is_sound(state) {
        let none = UbfError::Invalid { reason: "the state is null" };
        return fault::ubf(-1, || Err(none.into()));
    }
    // SAFETY: the caller's promise.
    let next = unsafe { Bnext(ubf, field, occurrence, buf, len) };
    if next == 1 && caller::is_sound(data) {
        // SAFETY: the caller promises an int, which was just written.
        let id = unsafe { caller::read(field) }.unwrap_or_default();
        // SAFETY: the caller promises an int, which was just written.
        let occurrence = unsafe { caller::read(occurrence) }.unwrap_or_default();
        // SAFETY: the caller's promise.
        let found = unsafe { Bfind(ubf, id, occurrence, std::ptr::null_mut()) };
        // SAFETY: the caller promises room for a pointer.
        unsafe { caller::write(data, found) };
    }
    next
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
