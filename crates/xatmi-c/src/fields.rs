//! `UBFH *`: the buffer of fields behind a caller's pointer.
//!
//! The other files of `ubf.h` read and change fields through it. It never follows a pointer that
//! cannot be one, and trusts no length but that of a header of ours.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_long};
use std::sync::OnceLock;

use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::ubf::{FieldId, FieldType, HEADER_BYTES, UbfError, UbfMut, UbfRef, region_size};

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

// Names, numbers and types of fields; names come from the field tables of the environment.
//
// C programs call it. The tables are read once for the whole process, when the first name is asked
// for.

/// The tables, with the names as C reads them.
struct Names {
    table: FieldTable,
    texts: HashMap<i32, CString>,
}

fn names() -> Result<&'static Names, UbfFault> {
    static NAMES: OnceLock<Result<Names, (c_int, String)>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let table = FieldTable::from_env().map_err(|error| (error.number(), error.to_string()))?;
        let texts = table.definitions().filter_map(|definition| {
            let text = CString::new(definition.name.as_bytes()).ok()?;
            Some((definition.id.raw(), text))
        });
        let texts = texts.collect();
        Ok(Names { table, texts })
    });
    names.as_ref().map_err(|(number, detail)| UbfFault::Other(*number, detail.clone()))
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
/// A sound `name` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfldid(name: *const c_char) -> c_int {
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
pub extern "C" fn Bfname(field: c_int) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
        let field = id(field)?;
        let text = names()?.texts.get(&field.raw()).ok_or(UbfError::BadName)?;
        Ok(text.as_ptr().cast_mut())
    })
}

/// The type of an id.
#[unsafe(no_mangle)]
pub extern "C" fn Bfldtype(field: c_int) -> c_int {
    fault::ubf(-1, || Ok(id(field)?.field_type().code()))
}

/// The name of the type of an id, as field tables have it; NULL for an error.
#[unsafe(no_mangle)]
pub extern "C" fn Btype(field: c_int) -> *mut c_char {
    fault::ubf(std::ptr::null_mut(), || {
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
pub extern "C" fn Bfldno(field: c_int) -> c_int {
    fault::ubf(-1, || Ok(id(field)?.number()))
}

/// The id of a type and a number; 0 for an error.
#[unsafe(no_mangle)]
pub extern "C" fn Bmkfldid(code: c_int, number: c_int) -> c_int {
    fault::ubf(0, || {
        let field_type = FieldType::from_code(code).ok_or(UbfError::BadType { code })?;
        if !(1..=FieldId::NUMBER_MAX).contains(&number) {
            return Err(UbfError::BadField { id: number }.into());
        }
        Ok(FieldId::new(field_type, number).raw())
    })
}
