//! Structs of views as JSON: `tpviewtojson`, `tpjsontoview`.
//!
//! C programs call it. A text is checked whole before a buffer is made of it.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::JsonError;
use pollux_xatmi::view::{self, VIEW_NAME_BYTES_MAX, ViewError, ViewJsonError};

use crate::caller;
use crate::fault::{self, Fault};
use crate::memory::{self, Held};
use crate::views::{looking, view};

/// `BVACCESS_NOTNULL`.
const NOT_NULL: c_long = 1;

impl From<ViewJsonError> for Fault {
    fn from(error: ViewJsonError) -> Self {
        match error {
            ViewJsonError::View(error) => error.into(),
            ViewJsonError::Json(error) => error.into(),
        }
    }
}

impl From<ViewError> for Fault {
    fn from(error: ViewError) -> Self {
        match error {
            ViewError::Fields(error) => JsonError::from(error).into(),
            ViewError::Unknown { .. } => Self::new(Code::OutputType.number(), error.to_string()),
            ViewError::Unreadable { .. } | ViewError::Syntax { .. } => {
                Self::new(Code::System.number(), error.to_string())
            }
            error => Self::invalid(error.to_string()),
        }
    }
}

/// Writes a struct as JSON, with a NUL, to `size` bytes; with BVACCESS_NOTNULL without null values.
///
/// # Safety
/// `view_name` is a text, `data` a struct of the view that no other thread writes; a sound `text` is that of `size` bytes that
/// no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpviewtojson(
    data: *const c_char,
    view_name: *const c_char,
    text: *mut c_char,
    size: c_int,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        if !caller::is_sound(text) {
            return Err(Fault::invalid("no memory for the text"));
        }
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let json = view.to_json(unsafe { looking(data, view) }?, flags & NOT_NULL != 0)?;
        let room = usize::try_from(size).unwrap_or(0);
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

/// A buffer of the view that a JSON text holds, whose name is copied to the 34 bytes at `name`; NULL for an error.
///
/// # Safety
/// A sound `text` is that of a text, a sound `name` that of 34 bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpjsontoview(name: *mut c_char, text: *const c_char) -> *mut c_char {
    fault::atmi(std::ptr::null_mut(), || {
        if !caller::is_sound(name) {
            return Err(Fault::invalid("no memory for the name of the view"));
        }
        // SAFETY: the caller's promise.
        let text = unsafe { caller::text(text) };
        let text = text.ok_or_else(|| Fault::invalid("the pointer to the text is null"))?;
        let text = text.to_str().map_err(|_| Fault::invalid("the text is not UTF-8"))?;
        let (found, members) = view::view_in_json(text)?;
        let view = view::of_process(&found)?;
        let data = view::struct_from_json(view, &members)?;
        let buffer = Buffer::alloc(BufferType::View.name(), &view.name, data.len())?;
        let pointer = memory::give_out(Held::new(buffer, false));
        // SAFETY: the buffer has at least so many bytes, and no other thread knows it.
        unsafe { caller::bytes_mut(pointer, data.len()) }.copy_from_slice(&data);
        // SAFETY: the caller's promise.
        let to = unsafe { caller::bytes_mut(name, VIEW_NAME_BYTES_MAX + 1) };
        to.fill(0);
        to[..found.len()].copy_from_slice(found.as_bytes());
        Ok(pointer)
    })
}
