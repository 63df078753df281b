//! Names, numbers and types of fields; names come from the field tables of the environment.
//!
//! C programs call it. The tables are read once for the whole process, when the first name is asked
//! for.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use pollux_xatmi::field_table::FieldTable;
use pollux_xatmi::ubf::{FieldId, FieldType, UbfError};

use crate::caller;
use crate::fault::{self, UbfFault};
use crate::fields::id;

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

/// The type of an id.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Bfldtype(field: c_int) -> c_int {
    fault::ubf(-1, || Ok(id(field)?.field_type().code()))
}

/// The name of the type of an id, as field tables have it; NULL for an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn Btype(field: c_int) -> *mut c_char {
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
