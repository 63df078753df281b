//! `UBFH *`: the buffer of fields behind a caller's pointer, the memory of such buffers, and the names, numbers and
//! types of fields.
//!
//! The other files of `ubf.h` read and change fields through it. It never follows a pointer that
//! cannot be one, and trusts no length but that of a header of ours. A buffer of `Balloc` is one of `tpalloc`: either
//! function frees it, and it can be sent. Names come from the field tables of the environment, which are read once for
//! the whole process, when the first name is asked for. Functions of the index, which does not exist, are here too.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_long};
use std::sync::OnceLock;

use pollux_xatmi::buffer::{Buffer, BufferError, BufferType};
use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::ubf::{
    FieldId, FieldType, HEADER_BYTES, UbfError, UbfMut, UbfRef, bytes_needed, region_size,
};

use crate::caller;
use crate::fault::{self, UbfFault};
use crate::memory::{self, Borrowed, Held, free, give_out, look};

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

/// The tables, with the names as C reads them.
struct Names {
    table: FieldTable,
    texts: HashMap<i32, CString>,
}

fn names() -> Result<&'static Names, UbfFault> {
    static NAMES: OnceLock<Names> = OnceLock::new();
    if let Some(names) = NAMES.get() {
        return Ok(names);
    }
    // Tables that could not be read are looked for again: a program may set their variables late.
    let table = FieldTable::from_env()
        .map_err(|error| UbfFault::Other(error.number(), error.to_string()))?;
    let texts = table.definitions().filter_map(|definition| {
        let text = CString::new(definition.name.as_bytes()).ok()?;
        Some((definition.id.raw(), text))
    });
    let texts = texts.collect();
    Ok(NAMES.get_or_init(|| Names { table, texts }))
}

/// The tables of the environment, or none where they can't be read.
pub(crate) fn table_or_empty() -> &'static FieldTable {
    static EMPTY: OnceLock<FieldTable> = OnceLock::new();
    match names() {
        Ok(names) => &names.table,
        Err(_) => EMPTY.get_or_init(FieldTable::new),
    }
}

/// Whether the tables of the environment can be read.
///
/// # Errors
/// BFTOPEN, BFTSYNTAX.
pub(crate) fn check_tables() -> Result<(), UbfFault> {
    names().map(drop)
}

/// The id of a name; 0 for an error.
///
/// # Safety
/// A sound `name` points to a text.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bfldid(name: *const c_char) -> c_int {
    fault::ubf(0, || {
        // SAFETY: the caller's promise.
        let name = unsafe { caller::text(name) }
            .ok_or(UbfError::Invalid { reason: "the pointer to the name is null" })?;
        let found = name.to_str().ok().map(|name| names().map(|names| names.table.id(name)));
        Ok(found.transpose()?.flatten().ok_or(UbfError::BadName)?.raw())
    })
}

/// The name of an id, which stays; NULL for an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bfname(field: c_int) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        let field = id(field)?;
        let text = names()?.texts.get(&field.raw()).ok_or(UbfError::BadName)?;
        Ok(text.as_ptr().cast_mut())
    })
}

/// 0: there is no database of fields beside the tables.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bflddbload() -> c_int {
    fault::ubf(-1, || Ok(0))
}

/// Does nothing: there is no database.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bflddbunload() {
    fault::ubf((), || Ok(()));
}

/// Does nothing, as [`Bflddbunload`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bflddbunlink() -> c_int {
    fault::ubf(-1, || Ok(0))
}

/// Of no name: there is no database.
///
/// # Safety
/// A sound `name` points to a text.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bflddbid(name: *const c_char) -> c_int {
    fault::ubf(0, || {
        // SAFETY: the caller's promise.
        match unsafe { caller::text(name) }.filter(|name| !name.is_empty()) {
            Some(_) => Err(UbfError::BadName.into()),
            None => Err(UbfError::Invalid { reason: "there is no name" }.into()),
        }
    })
}

/// Of no id: there is no database.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bflddbname(_field: c_int) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || Err(UbfError::BadName.into()))
}

/// The type of an id.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bfldtype(field: c_int) -> c_int {
    fault::ubf(-1, || Ok(id(field)?.field_type().code()))
}

/// The name of the type of an id, as field tables have it; NULL for an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Btype(field: c_int) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        if field < 0 {
            let code = (field.cast_unsigned() >> 25).cast_signed();
            return Err(UbfError::BadType { code }.into());
        }
        let name = match id(field)?.field_type() {
            FieldType::Short => c"short",
            FieldType::Long => c"long",
            FieldType::Char => c"char",
            FieldType::Float => c"float",
            FieldType::Double => c"double",
            FieldType::String => c"string",
            FieldType::Carray => c"carray",
            FieldType::Ptr => c"ptr",
            FieldType::Ubf => c"ubf",
            FieldType::View => c"view",
        };
        Ok(name.as_ptr().cast_mut())
    })
}

/// The number of an id, without its type.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bfldno(field: c_int) -> c_int {
    fault::ubf(-1, || Ok(id(field)?.number()))
}

/// The id of a type and a number; 0 for an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bmkfldid(code: c_int, number: c_int) -> c_int {
    fault::ubf(0, || {
        let field_type = FieldType::from_code(code).ok_or(UbfError::BadType { code })?;
        if !(1..=FieldId::NUMBER_MAX).contains(&number) {
            return Err(UbfError::BadField { id: number }.into());
        }
        Ok(FieldId::new(field_type, number).raw())
    })
}

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
        Ok(give_out(Held::new(buffer, false)))
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
        let mut held = borrowed.into_held();
        let is_request = held.is_request;
        let call_info = held.call_info.take();
        free(held);
        Ok(give_out(Held { buffer, is_request, call_info }))
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
