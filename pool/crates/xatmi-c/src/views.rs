//! Structs of C whose views are known: members by name, null values, from fields and back, as lines.
//!
//! C programs call it (`Bv...`, `CBv...` of `ubf.h`). A struct is the caller's memory: it has as many bytes as its view, and
//! where tpalloc gave it that is looked at. Views are read once, from the files that the environment names.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::ubf::{Scratch, UbfError, Value};
use pollux_xatmi::view::{self, MEMBER_NAME_BYTES_MAX, Mapping, Member, Merge, View, ViewError};

use crate::buffers::print_text;
use crate::fault::{self, UbfFault};
use crate::fields::{changing, int, reading, table_or_empty};
use crate::values::{give, raw, user_type};
use crate::{caller, memory};

/// `BFLD_INT`: a value of a program that is an int, which no field is.
const INT: c_int = 7;
/// `BVACCESS_NOTNULL`.
const NOT_NULL: c_long = 1;
/// Most bytes of lines that are read: some for each byte of the struct, and names.
const TEXT_BYTES_EACH: usize = 64;
const TEXT_BYTES_MIN: usize = 64 << 10;

/// How far an iteration of `Bvnext` is. Programs leave it alone, but for those that set both pointers to NULL.
#[repr(C)]
#[derive(Debug)]
pub struct NextState {
    /// `v`.
    view: *const View,
    /// `vel`: how many members are to come. To a program it is a pointer, which is NULL at the end.
    to_come: usize,
}

fn invalid(reason: &'static str) -> UbfFault {
    UbfError::Invalid { reason }.into()
}

/// A name of the caller's, which is not empty.
///
/// # Safety
/// A sound `pointer` is that of a text.
unsafe fn name<'a>(pointer: *const c_char, none: &'static str) -> Result<&'a str, UbfFault> {
    // SAFETY: the caller's promise.
    let text = unsafe { caller::text(pointer) }.filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| invalid(none))?;
    text.to_str().map_err(|_| invalid("the name is not text"))
}

/// The view of this name.
///
/// # Safety
/// As for [`name`].
pub(crate) unsafe fn view(pointer: *const c_char) -> Result<&'static View, UbfFault> {
    // SAFETY: the caller's promise.
    let name = unsafe { name(pointer, "the name of the view is null or empty") }?;
    Ok(view::of_process(name)?)
}

/// A member of a view.
///
/// # Safety
/// As for [`name`].
pub(crate) unsafe fn member(
    view: &'static View,
    pointer: *const c_char,
) -> Result<&'static Member, UbfFault> {
    // SAFETY: the caller's promise.
    let name = unsafe { name(pointer, "the name of the member is null or empty") }?;
    Ok(view.member(name)?)
}

fn check(data: *const c_char, view: &View) -> Result<(), UbfFault> {
    if !caller::is_sound(data) {
        return Err(invalid("the pointer to the struct is null"));
    }
    if memory::capacity(data).is_some_and(|room| room < view.size) {
        return Err(invalid("the buffer of tpalloc is smaller than the struct"));
    }
    Ok(())
}

/// A struct of the caller's.
///
/// # Safety
/// A sound `data` is that of a struct of the view, which no other thread writes while the result is used.
pub(crate) unsafe fn looking<'a>(data: *const c_char, view: &View) -> Result<&'a [u8], UbfFault> {
    check(data, view)?;
    // SAFETY: the caller promises a struct of the view.
    Ok(unsafe { caller::bytes(data, view.size) })
}

/// A struct of the caller's, to be written.
///
/// # Safety
/// As for [`looking`], and no other thread reads it.
unsafe fn writing<'a>(data: *mut c_char, view: &View) -> Result<&'a mut [u8], UbfFault> {
    check(data, view)?;
    // SAFETY: the caller promises a struct of the view.
    Ok(unsafe { caller::bytes_mut(data, view.size) })
}

pub(crate) fn occurrence(given: c_int) -> Result<usize, UbfFault> {
    usize::try_from(given).map_err(|_| invalid("the occurrence is below 0"))
}

/// A value of a struct, as the flags let it be seen.
fn seen<'d>(
    view: &View,
    member: &Member,
    data: &'d [u8],
    at: usize,
    flags: c_long,
) -> Result<Value<'d>, UbfFault> {
    let value = view.value(member, data, at)?;
    if flags & NOT_NULL != 0
        && (at >= view.count(member, data)? || view.is_null(member, data, at)?)
    {
        return Err(ViewError::NotPresent.into());
    }
    Ok(value)
}

/// Copies the value of a member, converted to the type `user`; `*len` is the room, then the length.
///
/// # Safety
/// The names are texts, `data` a struct of the view that no other thread writes; `buf` has space for `*len` bytes, or
/// for the value without a sound `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBvget(
    data: *const c_char,
    view_name: *const c_char,
    member_name: *const c_char,
    at: c_int,
    buf: *mut c_char,
    len: *mut c_int,
    user: c_int,
    flags: c_long,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let data = unsafe { looking(data, view) }?;
        // SAFETY: the caller's promise.
        unsafe { give_member((view, data), (member_name, at), (buf, len), user, flags) }
    })
}

/// Copies the value of a member of a struct to the caller.
///
/// # Safety
/// As for [`CBvget`].
pub(crate) unsafe fn give_member(
    (view, data): (&'static View, &[u8]),
    (member_name, at): (*const c_char, c_int),
    (buf, len): (*mut c_char, *mut c_int),
    user: c_int,
    flags: c_long,
) -> Result<c_int, UbfFault> {
    // SAFETY: the caller's promise.
    let member = unsafe { member(view, member_name) }?;
    let at = occurrence(at)?;
    let mut scratch = Scratch::new();
    let value = seen(view, member, data, at, flags)?;
    if user == INT {
        if !caller::is_sound(buf) {
            return Err(invalid("no memory for the value"));
        }
        // A number that is wider loses its high bits.
        let number = value.to_long()? as c_int;
        let bytes = number.to_ne_bytes();
        // SAFETY: the caller promises room for an int.
        unsafe { caller::bytes_mut(buf, bytes.len()) }.copy_from_slice(&bytes);
        // SAFETY: the caller's promise.
        unsafe { caller::write(len, bytes.len() as c_int) };
        return Ok(0);
    }
    let value = value.convert(user_type(user)?, &mut scratch)?;
    // SAFETY: the caller's promise.
    unsafe { give(&value, buf, len) }.map(|()| 0)
}

/// The same in memory of malloc; `*extra` is room to be added, then the length. NULL for an error.
///
/// # Safety
/// As for [`CBvget`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBvgetalloc(
    data: *const c_char,
    view_name: *const c_char,
    member_name: *const c_char,
    at: c_int,
    user: c_int,
    flags: c_long,
    extra: *mut c_int,
) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let data = unsafe { looking(data, view) }?;
        // SAFETY: the caller's promise.
        unsafe { member_copy((view, data), (member_name, at), user, flags, extra) }
    })
}

/// A copy of the value of a member in memory of malloc.
///
/// # Safety
/// As for [`CBvgetalloc`].
pub(crate) unsafe fn member_copy(
    (view, data): (&'static View, &[u8]),
    (member_name, at): (*const c_char, c_int),
    user: c_int,
    flags: c_long,
    extra: *mut c_int,
) -> Result<*mut c_char, UbfFault> {
    // SAFETY: the caller's promise.
    let member = unsafe { member(view, member_name) }?;
    let at = occurrence(at)?;
    let mut scratch = Scratch::new();
    let value = seen(view, member, data, at, flags)?;
    // SAFETY: the caller promises room for an int.
    let more = unsafe { caller::read(extra) }.unwrap_or(0);
    let more = usize::try_from(more).map_err(|_| invalid("the room to be added is below 0"))?;
    let mut bytes = Vec::new();
    if user == INT {
        bytes.extend_from_slice(&(value.to_long()? as c_int).to_ne_bytes());
    } else {
        let value = value.convert(user_type(user)?, &mut scratch)?;
        bytes.resize(value.raw_len(), 0);
        value.write_raw(&mut bytes)?;
    }
    let room = bytes.len().saturating_add(more).max(1);
    // SAFETY: any size may be asked for.
    let made: *mut c_char = unsafe { libc::malloc(room) }.cast();
    if made.is_null() {
        return Err(UbfFault::no_memory());
    }
    // SAFETY: malloc gave at least so many bytes, which no other thread knows.
    unsafe { caller::bytes_mut(made, bytes.len()) }.copy_from_slice(&bytes);
    // SAFETY: the caller promises room for an int.
    unsafe { caller::write(extra, int(bytes.len())?) };
    Ok(made)
}

/// Gives a member a value of the type `user`; `len` counts for a carray only.
///
/// # Safety
/// The names are texts, `data` a struct of the view that no other thread uses, `buf` a value of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBvchg(
    data: *mut c_char,
    view_name: *const c_char,
    member_name: *const c_char,
    at: c_int,
    buf: *const c_char,
    len: c_int,
    user: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        check(data, view)?;
        let at = occurrence(at)?;
        let copy;
        let value = if user == INT {
            // SAFETY: the caller promises an int.
            let number = unsafe { caller::read(buf.cast::<[u8; 4]>()) };
            let number = number.ok_or_else(|| invalid("the pointer to the value is null"))?;
            Value::Long(c_int::from_ne_bytes(number).into())
        } else {
            let user = user_type(user)?;
            // It may stand in the struct itself.
            // SAFETY: the caller's promise.
            copy = unsafe { raw(user, buf, len) }?.to_vec();
            Value::from_raw(user, &copy)?
        };
        // SAFETY: the caller's promise; the value was copied.
        view.set(member, unsafe { writing(data, view) }?, at, value)?;
        Ok(0)
    })
}

/// 1 when a value is the null value of its member, else 0.
///
/// # Safety
/// The names are texts, `data` a struct of the view that no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvnull(
    data: *const c_char,
    member_name: *const c_char,
    at: c_int,
    view_name: *const c_char,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        // SAFETY: the caller's promise.
        let data = unsafe { looking(data, view) }?;
        Ok(c_int::from(view.is_null(member, data, occurrence(at)?)?))
    })
}

/// Gives a member its null value; its count becomes 0.
///
/// # Safety
/// The names are texts, `data` a struct of the view that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvselinit(
    data: *mut c_char,
    member_name: *const c_char,
    view_name: *const c_char,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        // SAFETY: the caller's promise.
        view.init_member(unsafe { writing(data, view) }?, &member.name)?;
        Ok(0)
    })
}

/// The same for all members.
///
/// # Safety
/// As for [`Bvselinit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvsinit(data: *mut c_char, view_name: *const c_char) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        view.init(unsafe { writing(data, view) }?)?;
        Ok(0)
    })
}

/// Makes a member go another way between struct and fields, in this process.
///
/// # Safety
/// The names are texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvopt(
    member_name: *const c_char,
    option: c_int,
    view_name: *const c_char,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        member.set_mapping(match option {
            1 => Mapping::ToStruct,
            2 => Mapping::ToFields,
            3 => Mapping::Off,
            4 => Mapping::Both,
            _ => return Err(invalid("expected B_FTOS, B_STOF, B_OFF or B_BOTH")),
        });
        Ok(0)
    })
}

/// Fills a struct from a buffer of fields.
///
/// # Safety
/// `view_name` is a text, `data` a struct of the view that no other thread uses; when `ubf` is that of a buffer of fields,
/// no other thread changes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvftos(
    ubf: *const c_char,
    data: *mut c_char,
    view_name: *const c_char,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = unsafe { reading(ubf) }?;
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        view.fill(unsafe { writing(data, view) }?, fields, table_or_empty())?;
        Ok(0)
    })
}

/// Merges what a struct holds into a buffer of fields.
///
/// # Safety
/// As for [`Bvftos`], the other way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvstof(
    ubf: *mut c_char,
    data: *const c_char,
    mode: c_int,
    view_name: *const c_char,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        unsafe { reading(ubf) }?;
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        let merge = Merge::from_number(mode);
        let merge = merge.ok_or_else(|| invalid("expected BUPDATE, BOJOIN, BJOIN or BCONCAT"))?;
        // SAFETY: the caller's promise.
        let made = view.fields(unsafe { looking(data, view) }?, merge, table_or_empty())?;
        // SAFETY: the caller's promise.
        merge.apply(&mut unsafe { changing(ubf) }?, made.fields())?;
        Ok(0)
    })
}

/// Bytes of a struct.
///
/// # Safety
/// `view_name` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvsizeof(view_name: *const c_char) -> c_long {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        Ok(c_long::from(int(unsafe { view(view_name) }?.size)?))
    })
}

/// Copies a struct; its bytes.
///
/// # Safety
/// `view_name` is a text, `to` and `from` are structs of the view that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvcpy(
    to: *mut c_char,
    from: *const c_char,
    view_name: *const c_char,
) -> c_long {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // They may overlap.
        // SAFETY: the caller's promise.
        let copy = unsafe { looking(from, view) }?.to_vec();
        // SAFETY: the caller's promise.
        unsafe { writing(to, view) }?.copy_from_slice(&copy);
        Ok(c_long::from(int(view.size)?))
    })
}

/// Values in use: the count of the struct, else all of the array. `*most` is the array, `*real` leaves null values at the
/// end out, `*bytes` those of a value, `*kind` its type; each may be NULL.
///
/// # Safety
/// The names are texts, `data` a struct of the view that no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvoccur(
    data: *const c_char,
    view_name: *const c_char,
    member_name: *const c_char,
    most: *mut c_int,
    real: *mut c_int,
    bytes: *mut c_long,
    kind: *mut c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        // SAFETY: the caller's promise.
        let data = unsafe { looking(data, view) }?;
        let count = view.count(member, data)?;
        let real_count = view.real_count(member, data)?;
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(most, int(member.count)?) };
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(real, int(real_count)?) };
        // SAFETY: the caller promises room for a long.
        unsafe { caller::write(bytes, c_long::from(int(member.size)?)) };
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(kind, member.member_type.code()) };
        int(count)
    })
}

/// Sets the count of a member that has one.
///
/// # Safety
/// The names are texts, `data` a struct of the view that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvsetoccur(
    data: *mut c_char,
    view_name: *const c_char,
    member_name: *const c_char,
    count: c_int,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let member = unsafe { member(view, member_name) }?;
        // SAFETY: the caller's promise.
        view.set_count(member, unsafe { writing(data, view) }?, occurrence(count)?)?;
        Ok(0)
    })
}

/// The members of a view one by one: 1 with the next, 0 at the end. It begins with the name of a view, and continues with
/// NULL in its place.
///
/// # Safety
/// A sound `state` is one of the caller's, `member_name` is that of bytes for a name with its NUL; the others may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvnext(
    state: *mut NextState,
    view_name: *const c_char,
    member_name: *mut c_char,
    kind: *mut c_int,
    most: *mut c_int,
    bytes: *mut c_long,
) -> c_int {
    fault::ubf(-1, || {
        if !caller::is_sound(state) || !caller::is_sound(member_name) {
            return Err(invalid("no memory for the state or for the name of the member"));
        }
        if !view_name.is_null() {
            // SAFETY: the caller's promise.
            let view = unsafe { view(view_name) }?;
            let begun = NextState { view, to_come: view.members.len() };
            // SAFETY: it is that of a state of the caller's.
            unsafe { state.write(begun) };
        }
        // SAFETY: as above.
        let state = unsafe { &mut *state };
        if state.view.is_null() {
            return Err(invalid("the first call names a view"));
        }
        if state.to_come == 0 {
            return Ok(0);
        }
        // SAFETY: it was begun by a view, and views stay as long as the process.
        let view = unsafe { &*state.view };
        let at = view.members.len().checked_sub(state.to_come);
        let Some(member) = at.and_then(|at| view.members.get(at)) else {
            return Err(invalid("the state is not one that a call with the name of a view began"));
        };
        state.to_come -= 1;
        let name = member.name.as_bytes();
        debug_assert!(name.len() <= MEMBER_NAME_BYTES_MAX, "files are looked at");
        // SAFETY: the caller promises room for the longest name and its NUL.
        let to = unsafe { caller::bytes_mut(member_name, name.len() + 1) };
        to[..name.len()].copy_from_slice(name);
        to[name.len()] = 0;
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(kind, member.member_type.code()) };
        // SAFETY: the caller promises room for an int.
        unsafe { caller::write(most, int(member.count)?) };
        // SAFETY: the caller promises room for a long.
        unsafe { caller::write(bytes, c_long::from(int(member.size)?)) };
        Ok(1)
    })
}

/// -1, 0 or 1: which of two structs stands first; -2 for an error.
///
/// # Safety
/// The names are texts, the structs those of the views, which no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvcmp(
    one: *const c_char,
    one_view: *const c_char,
    two: *const c_char,
    two_view: *const c_char,
) -> c_int {
    fault::ubf(-2, || {
        // SAFETY: the caller's promise.
        let one_view = unsafe { view(one_view) }?;
        // SAFETY: the caller's promise.
        let two_view = unsafe { view(two_view) }?;
        // SAFETY: the caller's promise.
        let one = unsafe { looking(one, one_view) }?;
        // SAFETY: the caller's promise.
        let two = unsafe { looking(two, two_view) }?;
        Ok(one_view.compare(one, two_view, two)? as c_int)
    })
}

/// Prints a struct to a file, to standard output for NULL.
///
/// # Safety
/// As for [`Bvfprint`].
unsafe fn print(
    data: *const c_char,
    view_name: *const c_char,
    file: *mut libc::FILE,
) -> Result<c_int, UbfFault> {
    // SAFETY: the caller's promise.
    let view = unsafe { view(view_name) }?;
    // SAFETY: the caller's promise.
    let text = view.print(unsafe { looking(data, view) }?)?;
    // SAFETY: the caller's promise.
    unsafe { print_text(file, &text) }
}

/// Prints a struct to standard output.
///
/// # Safety
/// `view_name` is a text, `data` a struct of the view that no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvprint(data: *const c_char, view_name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    fault::ubf(-1, || unsafe { print(data, view_name, std::ptr::null_mut()) })
}

/// Prints a struct to a file.
///
/// # Safety
/// As for [`Bvprint`]; a sound `file` is that of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvfprint(
    data: *const c_char,
    view_name: *const c_char,
    file: *mut libc::FILE,
) -> c_int {
    fault::ubf(-1, || {
        if !caller::is_sound(file) {
            return Err(invalid("the file is null"));
        }
        // SAFETY: the caller's promise.
        unsafe { print(data, view_name, file) }
    })
}

/// Makes a struct of the lines of a file; it stays as it was after an error.
///
/// # Safety
/// As for [`Bvfprint`], and no other thread uses the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvextread(
    data: *mut c_char,
    view_name: *const c_char,
    file: *mut libc::FILE,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        if !caller::is_sound(file) {
            return Err(invalid("the file is null"));
        }
        let text = |most| {
            let mut text = Vec::new();
            // SAFETY: the caller promises an open file.
            while let Ok(byte) = u8::try_from(unsafe { libc::fgetc(file) }) {
                text.push(byte);
                if text.len() > most {
                    return Err(UbfError::NoSpace { needed: text.len(), room: most }.into());
                }
            }
            Ok(text)
        };
        // SAFETY: the caller's promise.
        unsafe { struct_of_text(data, view, text) }
    })
}

/// Makes a struct of the lines that `text` gives, which are no longer than the bound that it is given; the struct stays as
/// it was after an error.
///
/// # Safety
/// A sound `data` is that of a struct of the view, which no other thread uses.
pub(crate) unsafe fn struct_of_text(
    data: *mut c_char,
    view: &View,
    text: impl FnOnce(usize) -> Result<Vec<u8>, UbfFault>,
) -> Result<c_int, UbfFault> {
    check(data, view)?;
    let text = text(view.size.saturating_mul(TEXT_BYTES_EACH).max(TEXT_BYTES_MIN))?;
    let mut made = vec![0; view.size];
    view.read_printed(&mut made, &text)?;
    // SAFETY: the caller's promise.
    unsafe { writing(data, view) }?.copy_from_slice(&made);
    Ok(0)
}

/// Nothing is kept that could be old: views are read once.
#[unsafe(no_mangle)]
pub extern "C" fn Bvrefresh() {}
