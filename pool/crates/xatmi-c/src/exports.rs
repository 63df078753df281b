//! Typed buffers as text, and back: `tpexport`, `tpimport`.
//!
//! C programs call it. A text is checked whole before the program's buffer is replaced.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::error::Code;
use pollux_xatmi::export::{ExportError, from_base64, from_text, to_base64, to_text};

use crate::caller;
use crate::fault::{self, Fault};
use crate::fields::table_or_empty;
use crate::memory::{self, Borrowed, Held, no_buffer};
use crate::messages::sent;

/// `TPEX_NOCHANGE`: a buffer of another type is refused.
const NO_CHANGE: c_long = 4;
/// `TPEX_STRING`: the text is base64.
const AS_BASE64: c_long = 8;

impl From<ExportError> for Fault {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Buffer(error) => error.into(),
            ExportError::Fields(error) => error.into(),
            ExportError::View(error) => error.into(),
            ExportError::Syntax(what) => Self::invalid(what),
        }
    }
}

/// Writes a buffer as text, with a NUL, to the `*to_len` bytes at `to`; `*to_len` becomes the length with the NUL.
///
/// # Safety
/// No other thread uses the buffer at `from` meanwhile, whose pointer may be any; a sound `to_len` is that of a long, a sound
/// `to` that of so many bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpexport(
    from: *mut c_char,
    len: c_long,
    to: *mut c_char,
    to_len: *mut c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        let buffer = Borrowed::from(from)?.ok_or_else(no_buffer)?;
        // SAFETY: the caller promises a long.
        let room = unsafe { caller::read(to_len) };
        let room = room.ok_or_else(|| Fault::invalid("the pointer to the length is null"))?;
        if !caller::is_sound(to) {
            return Err(Fault::invalid("no memory for the text"));
        }
        let used = sent(buffer.buffer().buffer_type(), len)?;
        let mut text = to_text(buffer.buffer(), used, table_or_empty())?;
        if flags & AS_BASE64 != 0 {
            text = to_base64(&text);
        }
        let needed = text.len() + 1;
        if usize::try_from(room).unwrap_or(0) < needed {
            let detail = format!("the text needs {needed} bytes, there are {room}");
            return Err(Fault::new(Code::Limit.number(), detail));
        }
        // SAFETY: the caller's promise; the text and its NUL are no more than that.
        let bytes = unsafe { caller::bytes_mut(to, needed) };
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[text.len()] = 0;
        // SAFETY: the caller promises room for a long.
        unsafe { caller::write(to_len, c_long::try_from(needed).unwrap_or(c_long::MAX)) };
        Ok(0)
    })
}

/// Puts the buffer of a text in the place of the one at `*to`; `*to_len` becomes its length.
///
/// # Safety
/// A sound `text` is that of `len` bytes, of a text for 0; a sound `to` is that of a pointer, a sound `to_len` that of a long;
/// no other thread uses them or the buffer meanwhile, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpimport(
    text: *const c_char,
    len: c_long,
    to: *mut *mut c_char,
    to_len: *mut c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        if !caller::is_sound(text) {
            return Err(Fault::invalid("the pointer to the text is null"));
        }
        let len = usize::try_from(len).map_err(|_| Fault::invalid("the length is below 0"))?;
        let bytes = if len == 0 {
            // SAFETY: the caller's promise.
            unsafe { caller::text(text) }.unwrap_or_default().to_bytes()
        } else {
            // SAFETY: the caller's promise.
            let bytes = unsafe { caller::bytes(text, len) };
            bytes.split(|byte| *byte == 0).next().unwrap_or_default()
        };
        let text = str::from_utf8(bytes).map_err(|_| Fault::invalid("the text is not UTF-8"))?;
        let decoded;
        let text = if flags & AS_BASE64 == 0 {
            text
        } else {
            decoded = from_base64(text)?;
            &decoded
        };
        // SAFETY: the caller promises a pointer.
        let before = unsafe { caller::read(to) };
        let before = before.ok_or_else(|| Fault::invalid("the pointer to the buffer is null"))?;
        let before = Borrowed::from(before)?.ok_or_else(no_buffer)?;
        let (mut buffer, used) = from_text(text, table_or_empty())?;
        let old = before.buffer().buffer_type();
        let new = buffer.buffer_type();
        if flags & NO_CHANGE != 0 && old != new {
            let old = old.name();
            let new = new.name();
            return Err(Fault::invalid(format!("the text is a {new}, and the buffer a {old}")));
        }
        // No smaller than it was: programs add to it.
        if buffer.size() < before.buffer().size() && old == new {
            buffer = buffer.resized(before.buffer().program_size())?;
        }
        let mut before = before.into_held();
        let is_request = before.is_request;
        let call_info = before.call_info.take();
        memory::free(before);
        let made = memory::give_out(Held { buffer, is_request, call_info });
        // SAFETY: the caller promises room for a pointer.
        unsafe { caller::write(to, made) };
        // SAFETY: the caller promises room for a long.
        unsafe { caller::write(to_len, c_long::try_from(used).unwrap_or(c_long::MAX)) };
        Ok(0)
    })
}
