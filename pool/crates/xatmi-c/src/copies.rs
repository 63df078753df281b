//! Values by other ways than `Bget`: in memory of their own, of the last occurrence, found by what
//! they are, converted without a buffer, added without a search, in buffers within buffers, by a path (`Bgetr` and
//! the like).
//!
//! C programs call it. What is given out by `Bgetalloc`, `CBgetalloc` and `Btypcvt` is freed by the
//! program with free(3); what `CBfind` points at is the thread's until its next call of that kind with the same type. A path is pairs of
//! a field and its occurrence that end with BBADFLDOCC; every field but the last holds a buffer. The functions with
//! variable arguments (`Bgetrv`) are declared in `ubf.h` and call these.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::expression::EventPattern;
use pollux_xatmi::ubf::{
    Added, FieldId, FieldType, HEADER_BYTES, LAST, NESTING_MAX, Region, Scratch, UbfError, UbfMut,
    UbfRef, VIEW_NAME_BYTES, Value,
};
use pollux_xatmi::view::{self, View};

use crate::caller;
use crate::fault::{self, UbfFault};
use crate::fields::{id, int, reading};
use crate::values::{TEXT, change_by, check_converted, give, id_in, raw, user_type, user_type_for};
use crate::view_fields::{self, ViewField, lent, seen_len};
use crate::views::{give_member, member, member_copy, occurrence};

/// `Berror` of a pattern that is none.
const BEINVAL: c_int = 14;
/// `Berror` of a path that is none.
const BBADFLD: c_int = 6;
/// `Berror` of a path that goes through a field that holds no buffer, or to one that holds no view.
const BEBADOP: c_int = 22;
/// Ends a path.
const BBADFLDOCC: c_int = -1;
/// Most pairs of a path: buffers within buffers and the field itself.
const PATH_LEN_MAX: usize = NESTING_MAX + 1;

/// Where `Baddfast` added last: `Bfld_loc_info_t` of `ubf.h`; all zero at the start.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FieldLocation {
    ubf: *const c_char,
    id: c_int,
    at: c_int,
}

thread_local! {
    /// What CBfind converted last, for each type that it may convert to: a program looks at values of several types at
    /// the same time.
    static CONVERTED: RefCell<BTreeMap<FieldType, Region>> = const { RefCell::new(BTreeMap::new()) };
}

/// A copy of a value in memory that the program frees, with `extra` bytes of room behind it.
fn allocated(value: &Value<'_>, extra: usize) -> Result<(*mut c_char, usize), UbfFault> {
    // A program finds a struct by what stands in front of it.
    let head = if value.field_type() == FieldType::View { size_of::<ViewField>() } else { 0 };
    let len = seen_len(value);
    let bytes = len.checked_add(extra).and_then(|sum| sum.checked_add(head));
    let bytes = bytes.ok_or_else(UbfFault::no_memory)?;
    // SAFETY: malloc takes any size; an empty value gets an address of its own.
    let memory = unsafe { libc::malloc(bytes.max(1)) }.cast::<c_char>();
    if memory.is_null() {
        return Err(UbfFault::no_memory());
    }
    if let Value::View(stored) = value {
        let data = memory.wrapping_add(head);
        // SAFETY: so many bytes were just allocated, and no other thread knows them.
        unsafe { caller::write(memory.cast(), ViewField::of(stored, data)) };
        // SAFETY: as above.
        unsafe { caller::bytes_mut(data, len) }.copy_from_slice(&stored[stored.len() - len..]);
        return Ok((memory, len));
    }
    // SAFETY: so many bytes were just allocated, and no other thread knows them.
    value.write_raw(unsafe { caller::bytes_mut(memory, len) })?;
    Ok((memory, len))
}

/// Gives out a copy of a value; `*extra` is room to be added, then the length of the value.
///
/// # Safety
/// A sound `extra` is that of an int.
unsafe fn give_copy(value: &Value<'_>, extra: *mut c_int) -> Result<*mut c_char, UbfFault> {
    // SAFETY: the caller promises an int.
    let room = unsafe { caller::read(extra) }.unwrap_or(0);
    let room = usize::try_from(room)
        .map_err(|_| UbfError::Invalid { reason: "the extra room for the value is below 0" })?;
    let len = int(seen_len(value))?;
    let (memory, _) = allocated(value, room)?;
    // SAFETY: the caller promises room for an int.
    unsafe { caller::write(extra, len) };
    Ok(memory)
}

/// Lends out a converted value, which stays until the thread's next one of that type.
///
/// # Safety
/// A sound `len` points to an int.
unsafe fn lend_converted(
    fields: UbfRef<'_>,
    (id, occurrence): (FieldId, c_int),
    user: c_int,
    len: *mut c_int,
) -> Result<*mut c_char, UbfFault> {
    let wanted = user_type_for(id, user)?;
    let mut scratch = Scratch::new();
    let value = fields.get_as(id, occurrence, wanted, &mut scratch)?;
    if let Value::View(found) = value {
        let (place, found_len) = lent(FieldType::View, found);
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(found_len)?) };
        return Ok(place);
    }
    let mut region = Region::try_zeroed(value.raw_len()).ok_or_else(UbfFault::no_memory)?;
    let written = value.write_raw(region.bytes_mut())?;
    let address = region.bytes_mut().as_mut_ptr().cast();
    let kept = CONVERTED.try_with(|converted| converted.borrow_mut().insert(wanted, region));
    // A thread that is ending has no place to keep it.
    kept.map_err(|_| UbfFault::no_memory())?;
    // SAFETY: the caller promises room for an int.
    unsafe { caller::write(len, int(written)?) };
    Ok(address)
}

/// The last occurrence of a field: its number and its value.
fn last(fields: UbfRef<'_>, id: FieldId) -> Result<(c_int, Value<'_>), UbfFault> {
    let value = fields.get(id, LAST)?;
    Ok((int(fields.occurrences(id)?)? - 1, value))
}

/// A value in memory that the program frees; NULL for an error.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; a sound `extra` is that of
/// an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bgetalloc(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    extra: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let value = unsafe { reading(ubf) }?.get(id(field)?, occurrence)?;
        // SAFETY: the caller's promise.
        unsafe { give_copy(&value, extra) }
    })
}

/// [`Bgetalloc`] as a value of any type.
///
/// # Safety
/// As for [`Bgetalloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBgetalloc(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    user: c_int,
    extra: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let field = id(field)?;
        let mut scratch = Scratch::new();
        let value = fields.get_as(field, occurrence, user_type_for(field, user)?, &mut scratch)?;
        // SAFETY: the caller's promise.
        unsafe { give_copy(&value, extra) }
    })
}

/// A value of any type, which stays until the thread's next CBfind; NULL for an error.
///
/// # Safety
/// As for [`Bgetalloc`]; a sound `len` is that of an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBfind(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    len: *mut c_int,
    user: c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        // SAFETY: the caller's promise.
        unsafe { lend_converted(fields, (id(field)?, occurrence), user, len) }
    })
}

/// Where the last occurrence stands in the buffer, until that is changed; NULL for an error.
///
/// # Safety
/// As for [`Bgetalloc`]; sound `occurrence` and `len` are those of ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfindlast(
    ubf: *const c_char,
    field: c_int,
    occurrence: *mut c_int,
    len: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let (number, _) = last(fields, id(field)?)?;
        let found = fields.find(id(field)?, LAST)?;
        let (place, found_len) = lent(id(field)?.field_type(), found);
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(occurrence, number) };
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(found_len)?) };
        Ok(place)
    })
}

/// Copies the last occurrence; `*len` is the room, then the length.
///
/// # Safety
/// As for `Bget`; a sound `occurrence` is that of an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bgetlast(
    ubf: *const c_char,
    field: c_int,
    occurrence: *mut c_int,
    buf: *mut c_char,
    len: *mut c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let (number, value) = last(unsafe { reading(ubf) }?, id(field)?)?;
        // SAFETY: the caller's promise.
        unsafe { give(&value, buf, len) }?;
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(occurrence, number) };
        Ok(0)
    })
}

/// The first occurrence of a field whose whole text fits a regular expression.
fn find_fitting(fields: UbfRef<'_>, field: FieldId, pattern: &[u8]) -> Result<c_int, UbfFault> {
    let pattern = str::from_utf8(pattern).map_err(|_| "it is not UTF-8".to_owned());
    let pattern = pattern.and_then(EventPattern::new).map_err(|why| {
        UbfFault::Other(BEINVAL, format!("the pattern of the field's value: {why}"))
    })?;
    let fits = |value: &Value<'_>| match value {
        Value::String(text) => pattern.fits_bytes(text),
        _ => false,
    };
    Ok(fields.find_occurrence_by(field, fits)?)
}

/// The first occurrence with this value; of a string with a length other than 0, whose whole value fits this regular
/// expression.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; `buf` is that of a value
/// of the field's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfindocc(
    ubf: *const c_char,
    field: c_int,
    buf: *const c_char,
    len: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let field = id(field)?;
        if field.field_type() == FieldType::View {
            // SAFETY: the caller's promise.
            let wanted = unsafe { view_fields::stored(buf) }?;
            return Ok(fields.find_occurrence(field, Value::View(&wanted))?);
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { raw(field.field_type(), buf, len) }?;
        match Value::from_raw(field.field_type(), bytes)? {
            Value::String(pattern) if len != 0 => find_fitting(fields, field, pattern),
            value => Ok(fields.find_occurrence(field, value)?),
        }
    })
}

/// [`Bfindocc`] of a value of any type, which is converted to the field's.
///
/// # Safety
/// As for [`Bfindocc`], with a value of the type `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBfindocc(
    ubf: *const c_char,
    field: c_int,
    buf: *const c_char,
    len: c_int,
    user: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        let field = id(field)?;
        let user = user_type_for(field, user)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { raw(user, buf, len) }?;
        let mut scratch = Scratch::new();
        let value = Value::from_raw(user, bytes)?.convert(field.field_type(), &mut scratch)?;
        match value {
            // Of other types the length says how long the value is, or nothing.
            Value::String(pattern) if len != 0 && user == FieldType::String => {
                find_fitting(fields, field, pattern)
            }
            value => Ok(fields.find_occurrence(field, value)?),
        }
    })
}

/// A value of one type as one of another, in memory that the program frees; NULL for an error.
///
/// # Safety
/// `buf` is that of a value of the type `from`, `len` bytes of it for a carray; a sound `to_len` is
/// that of an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Btypcvt(
    to_len: *mut c_int,
    to: c_int,
    buf: *const c_char,
    from: c_int,
    len: c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        if !caller::is_sound(buf) {
            return Err(UbfError::Invalid { reason: "the pointer to the value is null" }.into());
        }
        let from = user_type(from)?;
        let to = user_type(to)?;
        let mut scratch = Scratch::new();
        check_converted(from, to)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { raw(from, buf, len) }?;
        let value = Value::from_raw(from, bytes)?.convert(to, &mut scratch)?;
        let (memory, len) = allocated(&value, 0)?;
        // SAFETY: the caller promises room for an int; a value is no longer than a buffer.
        unsafe { caller::write(to_len, c_int::try_from(len).unwrap_or(c_int::MAX)) };
        Ok(memory)
    })
}

/// `Badd` right behind the field that was added with the same `place` before.
///
/// # Safety
/// As for `Badd`; a sound `place` is that of a `Bfld_loc_info_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Baddfast(
    ubf: *mut c_char,
    field: c_int,
    buf: *const c_char,
    len: c_int,
    place: *mut FieldLocation,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let field = unsafe { id_in(ubf, field) }?;
        // SAFETY: the caller promises a place.
        let before = unsafe { caller::read(place) };
        let before = before.ok_or(UbfError::Invalid { reason: "the place to add at is null" })?;
        let last = added(before).filter(|_| std::ptr::eq(before.ubf, ubf));
        let mut next = before;
        let change = |fields: &mut UbfMut<'_>, value: Value<'_>| {
            let Added { id, at } = fields.add_next(field, value, last)?;
            // A region is at most 1 GiB long.
            let at = c_int::try_from(at).unwrap_or_default();
            next = FieldLocation { ubf, id: id.raw(), at };
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { change_by(ubf, field.field_type(), (buf, len), change) }?;
        // SAFETY: the caller promises room for a place.
        unsafe { caller::write(place, next) };
        Ok(0)
    })
}

/// [`Baddfast`] of a value of any type.
///
/// # Safety
/// As for [`Baddfast`], with a value of the type `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBaddfast(
    ubf: *mut c_char,
    field: c_int,
    buf: *const c_char,
    len: c_int,
    user: c_int,
    place: *mut FieldLocation,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let field = unsafe { id_in(ubf, field) }?;
        // SAFETY: the caller promises a place.
        let before = unsafe { caller::read(place) };
        let before = before.ok_or(UbfError::Invalid { reason: "the place to add at is null" })?;
        let last = added(before).filter(|_| std::ptr::eq(before.ubf, ubf));
        let mut next = before;
        let change = |fields: &mut UbfMut<'_>, value: Value<'_>| {
            let mut scratch = Scratch::new();
            let value = value.convert(field.field_type(), &mut scratch)?;
            let Added { id, at } = fields.add_next(field, value, last)?;
            // A region is at most 1 GiB long.
            let at = c_int::try_from(at).unwrap_or_default();
            next = FieldLocation { ubf, id: id.raw(), at };
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { change_by(ubf, user_type_for(field, user)?, (buf, len), change) }?;
        // SAFETY: the caller promises room for a place.
        unsafe { caller::write(place, next) };
        Ok(0)
    })
}

/// What a place of the caller's says, unless that cannot be.
fn added(place: FieldLocation) -> Option<Added> {
    let at = usize::try_from(place.at).ok().filter(|at| *at >= HEADER_BYTES)?;
    Some(Added { id: FieldId::from_raw(place.id).ok()?, at })
}

/// A value as a text in memory that the program frees; NULL for an error.
///
/// # Safety
/// As for [`CBgetalloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bgetsa(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    extra: *mut c_int,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { CBgetalloc(ubf, field, occurrence, TEXT, extra) }
}

/// A value as a text, which stays until the thread's next one; NULL for an error.
///
/// # Safety
/// As for [`CBfind`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfinds(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { CBfind(ubf, field, occurrence, std::ptr::null_mut(), TEXT) }
}

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
                return Err(no_path());
            };
            return Ok(Leaf { fields, id, occurrence });
        }
        if let Some((id, occurrence)) = before {
            fields = inner(fields, id, occurrence)?;
        }
        // SAFETY: an occurrence stands behind each field.
        let occurrence = unsafe { caller::read(path.wrapping_add(2 * pair + 1)) };
        let occurrence = occurrence.unwrap_or_default();
        if occurrence == BBADFLDOCC {
            // The end stands in the place of an occurrence: nothing behind it is the path's.
            return Err(no_path());
        }
        before = Some((id(raw)?, occurrence));
    }
    unreachable!("the last turn of the loop returns");
}

fn no_path() -> UbfFault {
    let detail = "a path is 1 to 17 pairs of field and occurrence, then BBADFLDOCC";
    UbfFault::Other(BBADFLD, detail.to_owned())
}

fn inner(fields: UbfRef<'_>, id: FieldId, occurrence: c_int) -> Result<UbfRef<'_>, UbfFault> {
    match fields.get(id, occurrence)? {
        Value::Ubf(inner) => Ok(inner),
        other => {
            let raw = id.raw();
            let held = other.field_type();
            let detail = format!("field {raw} of the path holds {held}, not a buffer");
            Err(UbfFault::Other(BEBADOP, detail))
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

/// `CBgetalloc` of the field at the end of a path; NULL for an error.
///
/// # Safety
/// As for [`CBgetalloc`] and [`Bgetr`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBgetallocr(
    ubf: *const c_char,
    path: *const c_int,
    user: c_int,
    extra: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let leaf = unsafe { leaf(ubf, path) }?;
        let mut scratch = Scratch::new();
        let user = user_type_for(leaf.id, user)?;
        let value = leaf.fields.get_as(leaf.id, leaf.occurrence, user, &mut scratch)?;
        // SAFETY: the caller's promise.
        unsafe { give_copy(&value, extra) }
    })
}

/// The name of the view and the struct of the field at the end of a path.
///
/// # Safety
/// As for [`leaf`].
unsafe fn view_at<'a>(
    ubf: *const c_char,
    path: *const c_int,
) -> Result<(&'static View, &'a [u8]), UbfFault> {
    // SAFETY: the caller's promise.
    let leaf = unsafe { leaf(ubf, path) }?;
    let Value::View(stored) = leaf.fields.get(leaf.id, leaf.occurrence)? else {
        let raw = leaf.id.raw();
        let held = leaf.id.field_type();
        let detail = format!("field {raw} of the path holds {held}, not a view");
        return Err(UbfFault::Other(BEBADOP, detail));
    };
    let (name, data) = stored.split_at_checked(VIEW_NAME_BYTES).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name.is_empty() {
        return Err(
            UbfError::Invalid { reason: "the field of the path holds an empty view" }.into()
        );
    }
    Ok((view::of_process(&String::from_utf8_lossy(name))?, data))
}

/// `CBvget` of the struct in the field at the end of a path.
///
/// # Safety
/// As for [`Bgetr`] and `CBvget`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBvgetr(
    ubf: *const c_char,
    path: *const c_int,
    member_name: *const c_char,
    at: c_int,
    buf: *mut c_char,
    len: *mut c_int,
    user: c_int,
    flags: c_long,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let (view, data) = unsafe { view_at(ubf, path) }?;
        // SAFETY: the caller's promise.
        unsafe { give_member((view, data), (member_name, at), (buf, len), user, flags) }
    })
}

/// `CBvgetalloc` of the struct in the field at the end of a path; NULL for an error.
///
/// # Safety
/// As for [`Bgetr`] and `CBvgetalloc`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBvgetallocr(
    ubf: *const c_char,
    path: *const c_int,
    member_name: *const c_char,
    at: c_int,
    user: c_int,
    flags: c_long,
    extra: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let (view, data) = unsafe { view_at(ubf, path) }?;
        // SAFETY: the caller's promise.
        unsafe { member_copy((view, data), (member_name, at), user, flags, extra) }
    })
}

/// `Bvnull` of the struct in the field at the end of a path.
///
/// # Safety
/// As for [`Bgetr`] and `Bvnull`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bvnullr(
    ubf: *const c_char,
    path: *const c_int,
    member_name: *const c_char,
    at: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let (view, data) = unsafe { view_at(ubf, path) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        Ok(c_int::from(view.is_null(member, data, occurrence(at)?)?))
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
        let (place, found_len) = lent(leaf.id.field_type(), found);
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(len, int(found_len)?) };
        Ok(place)
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

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_xatmi::ubf::FieldType;

    #[test]
    fn a_place_that_cannot_be_counts_as_none() {
        let place = |id, at| FieldLocation { ubf: std::ptr::null(), id, at };
        let id = FieldId::new(FieldType::Long, 8);
        let first = HEADER_BYTES as c_int;
        assert_eq!(added(place(id.raw(), first)), Some(Added { id, at: HEADER_BYTES }));
        for wrong in [place(0, first), place(id.raw(), 0), place(id.raw(), -8)] {
            assert_eq!(added(wrong), None, "{wrong:?}");
        }
    }
}
