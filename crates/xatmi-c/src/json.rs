//! `tpubftojson`, `tpjsontoubf`: fields as JSON text and back.
//!
//! C programs call it; what is what stands in `pollux_xatmi::ubf`.

use std::ffi::{c_char, c_int};

use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::{JsonError, UbfError, from_json, to_json};

use crate::fault::{self, Fault};
use crate::fields::{changing, reading};
use crate::{caller, names};

impl From<JsonError> for Fault {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Fields(error @ UbfError::NoSpace { .. }) => {
                Self::new(Code::Limit.number(), error.to_string())
            }
            error => Self::invalid(error.to_string()),
        }
    }
}

impl From<UbfError> for Fault {
    fn from(error: UbfError) -> Self {
        JsonError::from(error).into()
    }
}

/// Writes the fields of a buffer as JSON, with a NUL, to `size` bytes.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, nobody changes it meanwhile; a sound `text` is that of
/// `size` bytes that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpubftojson(ubf: *const c_char, text: *mut c_char, size: c_int) -> c_int {
    fault::atmi(-1, || {
        if !caller::is_sound(text) {
            return Err(Fault::invalid("no memory for the text"));
        }
        let room = usize::try_from(size).unwrap_or(0);
        // SAFETY: the caller's promise.
        let json = to_json(unsafe { reading(ubf) }?, names::table_or_empty())?;
        if json.len() >= room {
            let detail = format!("the text needs {} bytes, there are {room}", json.len() + 1);
            return Err(Fault::new(Code::Limit.number(), detail));
        }
        // SAFETY: the caller's promise; the text and its NUL are no more than that.
        let to = unsafe { caller::bytes_mut(text, json.len() + 1) };
        to[..json.len()].copy_from_slice(json.as_bytes());
        to[json.len()] = 0;
        Ok(0)
    })
}

/// Makes the buffer hold the fields of a JSON text; it stays as it was after an error.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, nobody else uses it meanwhile; a sound `text` is that
/// of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpjsontoubf(ubf: *mut c_char, text: *const c_char) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let text = unsafe { caller::text(text) };
        let text = text.ok_or_else(|| Fault::invalid("the pointer to the text is none"))?;
        let text = text.to_str().map_err(|_| Fault::invalid("the text is not UTF-8"))?;
        let fields = from_json(text, names::table_or_empty())?;
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.copy_from(fields.fields())?;
        Ok(0)
    })
}
