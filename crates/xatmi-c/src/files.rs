//! Buffers of fields to and from files of C (`Bwrite`, `Bread`, `Bextread`) and JSON text
//! (`tpubftojson`, `tpjsontoubf`).
//!
//! C programs call it. What a file holds is not trusted: it is bounded by the caller's buffer and
//! checked, and the buffer stays as it was when something is wrong.

use std::ffi::{c_char, c_int};

use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::{
    HEADER_BYTES, JsonError, Ubf, UbfError, UbfRef, apply_printed, from_json, region_size, to_json,
};

use crate::buffers::write_text;
use crate::caller;
use crate::fault::{self, Fault, UbfFault};
use crate::field_names;
use crate::fields::{changing, reading};

/// Most bytes of a text for each byte of the buffer that it is read into: a name, an escape for each
/// byte of a value, remarks.
const TEXT_BYTES_EACH: usize = 16;
/// Most bytes of a text for any buffer.
const TEXT_BYTES_MIN: usize = 64 << 10;

const NO_FILE: UbfError = UbfError::Invalid { reason: "the file is null" };

/// What the system said of a file, or that it ended too early.
fn failed(words: &str) -> UbfFault {
    const BEUNIX: c_int = 8;
    UbfFault::Other(BEUNIX, words.to_owned())
}

/// Writes the used bytes of a buffer.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; a sound `file` is that of
/// an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bwrite(ubf: *const c_char, file: *mut libc::FILE) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let fields = Ubf::from_bytes(unsafe { reading(ubf) }?.used_bytes())?;
        if !caller::is_sound(file) {
            return Err(NO_FILE.into());
        }
        // SAFETY: the caller's promise.
        unsafe { write_text(file, fields.used_bytes()) }.map(|()| 0)
    })
}

/// Reads what Bwrite wrote; the buffer holds just that afterwards.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile; a sound `file` is that of
/// an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bread(ubf: *mut c_char, file: *mut libc::FILE) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let room = unsafe { reading(ubf) }?.size();
        if !caller::is_sound(file) {
            return Err(NO_FILE.into());
        }
        let mut bytes = vec![0; HEADER_BYTES];
        // SAFETY: the caller's promise.
        unsafe { fill(file, &mut bytes) }?;
        let needed = region_size(&bytes)?;
        if needed > room {
            return Err(UbfError::NoSpace { needed, room }.into());
        }
        bytes.resize(needed, 0);
        // SAFETY: the caller's promise.
        unsafe { fill(file, &mut bytes[HEADER_BYTES..]) }?;
        let fields = UbfRef::check(&bytes)?;
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.copy_from(fields)?;
        Ok(0)
    })
}

/// Reads printed fields up to a blank line or the end, and adds them, or as the sign in front of
/// their names says.
///
/// # Safety
/// As for [`Bread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bextread(ubf: *mut c_char, file: *mut libc::FILE) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let before = unsafe { reading(ubf) }?;
        let (mut fields, room) = (Ubf::from_bytes(before.used_bytes())?, before.size());
        if !caller::is_sound(file) {
            return Err(NO_FILE.into());
        }
        let most = room.saturating_mul(TEXT_BYTES_EACH).max(TEXT_BYTES_MIN);
        // SAFETY: the caller's promise.
        let text = unsafe { paragraph(file, most) }?;
        let text = str::from_utf8(&text).map_err(|error| {
            let before = &text[..error.valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            let reason = "bytes that are not UTF-8 are written as a backslash and two hex digits";
            UbfError::Syntax { line, reason }
        })?;
        match apply_printed(text, field_names::table_or_empty(), &mut fields) {
            Ok(()) => {}
            Err(error) => {
                if error == UbfError::BadName {
                    // Tables that cannot be read are the cause rather than the name.
                    field_names::check_tables()?;
                }
                return Err(error.into());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.copy_from(fields.fields())?;
        Ok(0)
    })
}

/// Fills `bytes` from a file.
///
/// # Safety
/// `file` is that of an open file.
unsafe fn fill(file: *mut libc::FILE, bytes: &mut [u8]) -> Result<(), UbfFault> {
    // SAFETY: the file is the caller's promise, the bytes are borrowed.
    let read = unsafe { libc::fread(bytes.as_mut_ptr().cast(), 1, bytes.len(), file) };
    if read == bytes.len() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    if unsafe { libc::ferror(file) } != 0 {
        return Err(failed(&std::io::Error::last_os_error().to_string()));
    }
    Err(failed("the file ends before the buffer does"))
}

/// The lines up to a blank one or the end.
///
/// # Safety
/// `file` is that of an open file.
unsafe fn paragraph(file: *mut libc::FILE, most: usize) -> Result<Vec<u8>, UbfFault> {
    let mut text = Vec::new();
    // SAFETY: the caller's promise.
    while let Ok(byte) = u8::try_from(unsafe { libc::fgetc(file) }) {
        text.push(byte);
        if text.len() > most {
            return Err(UbfError::NoSpace { needed: text.len(), room: most }.into());
        }
        if byte == b'\n' && (text.len() == 1 || text.ends_with(b"\n\n")) {
            break;
        }
    }
    // SAFETY: the caller's promise.
    if unsafe { libc::ferror(file) } != 0 {
        return Err(failed(&std::io::Error::last_os_error().to_string()));
    }
    Ok(text)
}

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
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; a sound `text` is that of
/// `size` bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpubftojson(ubf: *const c_char, text: *mut c_char, size: c_int) -> c_int {
    fault::atmi(-1, || {
        if !caller::is_sound(text) {
            return Err(Fault::invalid("no memory for the text"));
        }
        let room = usize::try_from(size).unwrap_or(0);
        // SAFETY: the caller's promise.
        let json = to_json(unsafe { reading(ubf) }?, field_names::table_or_empty())?;
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
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile; a sound `text` is that
/// of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpjsontoubf(ubf: *mut c_char, text: *const c_char) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let text = unsafe { caller::text(text) };
        let text = text.ok_or_else(|| Fault::invalid("the pointer to the text is null"))?;
        let text = text.to_str().map_err(|_| Fault::invalid("the text is not UTF-8"))?;
        let fields = from_json(text, field_names::table_or_empty())?;
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.copy_from(fields.fields())?;
        Ok(0)
    })
}
