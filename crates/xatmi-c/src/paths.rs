//! Fields of inner buffers, named by a path: `Bgetr` and the like.
//!
//! C programs call it. A path is pairs of a field and its occurrence that end with BBADFLDOCC; every
//! field but the last holds a buffer. The functions with variable arguments (`Bgetrv`) are declared
//! in `ubf.h` and call these.

use std::ffi::{c_char, c_int};

use pollux_xatmi::ubf::{FieldId, NESTING_MAX, Scratch, UbfError, UbfRef, Value};

use crate::caller;
use crate::copies::lend_converted;
use crate::fault::{self, UbfFault};
use crate::fields::{id, int, reading};
use crate::values::{give, user_type_for};

/// `Berror` of a path that is none.
const BBADFLD: c_int = 6;

/// Ends a path.
const BBADFLDOCC: c_int = -1;

/// Most pairs of a path: buffers within buffers and the field itself.
const PATH_LEN_MAX: usize = NESTING_MAX + 1;

/// What a path leads to: the innermost buffer, the field in it and its occurrence.
struct Leaf<'a> {
    fields: UbfRef<'a>,
    id: FieldId,
    occurrence: c_int,
}

/// Follows `path` from the buffer at `ubf`.
///
/// # Safety
/// When `ubf` points to a buffer of fields, it is not changed while the result is used; a sound
/// `path` points to ints up to a BBADFLDOCC in the place of a field.
unsafe fn leaf<'a>(ubf: *const c_char, path: *const c_int) -> Result<Leaf<'a>, UbfFault> {
    // SAFETY: the caller's promise.
    let mut fields = unsafe { reading(ubf) }?;
    let mut before: Option<(FieldId, c_int)> = None;
    for pair in 0..=PATH_LEN_MAX {
        // SAFETY: the caller promises ints up to the end, which was not there yet.
        let raw = unsafe { caller::read(path.wrapping_add(2 * pair)) };
        let raw = raw.ok_or(UbfError::Invalid { reason: "the path to the field is null" })?;
        if raw == BBADFLDOCC || pair == PATH_LEN_MAX {
            let Some((id, occurrence)) = before.filter(|_| raw == BBADFLDOCC) else {
                let detail = "a path is 1 to 17 pairs of field and occurrence, then BBADFLDOCC";
                return Err(UbfFault::Other(BBADFLD, detail.to_owned()));
            };
            return Ok(Leaf { fields, id, occurrence });
        }
        if let Some((id, occurrence)) = before {
            fields = inner(fields, id, occurrence)?;
        }
        // SAFETY: an occurrence stands behind each field.
        let occurrence = unsafe { caller::read(path.wrapping_add(2 * pair + 1)) };
        before = Some((id(raw)?, occurrence.unwrap_or_default()));
    }
    unreachable!("the last turn of the loop returns");
}

fn inner(fields: UbfRef<'_>, id: FieldId, occurrence: c_int) -> Result<UbfRef<'_>, UbfFault> {
    match fields.get(id, occurrence)? {
        Value::Ubf(inner) => Ok(inner),
        other => {
            let (raw, held) = (id.raw(), other.field_type());
            let detail = format!("field {raw} of the path holds {held}, not a buffer");
            Err(UbfFault::Other(BBADFLD, detail))
        }
    }
}

/// `Bget` of the field at the end of a path.
///
/// # Safety
/// As for `Bget` and `leaf`: `path` is that of pairs of ints up to a BBADFLDOCC.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bgetr(
    ubf: *const c_char,
    path: *const c_int,
    buf: *mut c_char,
    len: *mut c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let leaf = unsafe { leaf(ubf, path) }?;
        let value = leaf.fields.get(leaf.id, leaf.occurrence)?;
        // SAFETY: the caller's promise.
        unsafe { give(&value, buf, len) }.map(|()| 0)
    })
}

/// `CBget` of the field at the end of a path.
///
/// # Safety
/// As for [`Bgetr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBgetr(
    ubf: *const c_char,
    path: *const c_int,
    buf: *mut c_char,
    len: *mut c_int,
    user: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let leaf = unsafe { leaf(ubf, path) }?;
        let mut scratch = Scratch::new();
        let user = user_type_for(leaf.id, user)?;
        let value = leaf.fields.get_as(leaf.id, leaf.occurrence, user, &mut scratch)?;
        // SAFETY: the caller's promise.
        unsafe { give(&value, buf, len) }.map(|()| 0)
    })
}

/// `Bfind` of the field at the end of a path.
///
/// # Safety
/// As for [`Bgetr`]; a sound `len` points to an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bfindr(
    ubf: *const c_char,
    path: *const c_int,
    len: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let leaf = unsafe { leaf(ubf, path) }?;
        let found = leaf.fields.find(leaf.id, leaf.occurrence)?;
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(found.len())?) };
        Ok(found.as_ptr().cast_mut().cast())
    })
}

/// `CBfind` of the field at the end of a path.
///
/// # Safety
/// As for [`Bfindr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBfindr(
    ubf: *const c_char,
    path: *const c_int,
    len: *mut c_int,
    user: c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let leaf = unsafe { leaf(ubf, path) }?;
        // SAFETY: the caller's promise.
        unsafe { lend_converted(leaf.fields, (leaf.id, leaf.occurrence), user, len) }
    })
}

/// 1 when a path leads to a field, else 0; 0 with an error for what is not a path.
///
/// # Safety
/// As for [`Bgetr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bpresr(ubf: *const c_char, path: *const c_int) -> c_int {
    fault::ubf(0, || {
        // SAFETY: the caller's promise.
        match unsafe { leaf(ubf, path) } {
            Ok(leaf) => Ok(c_int::from(leaf.fields.is_present(leaf.id, leaf.occurrence))),
            Err(UbfFault::Ubf(UbfError::NotPresent { .. })) => Ok(0),
            Err(fault) => Err(fault),
        }
    })
}
