//! Whole buffers of fields: copy, update, join, compare, project, print; to and from files of C (`Bwrite`, `Bread`,
//! `Bextread`) and JSON text (`tpubftojson`, `tpjsontoubf`).
//!
//! C programs call it. A list of fields is read up to its end, and no further than a buffer can
//! have fields. What a file holds is not trusted: it is bounded by the caller's buffer and
//! checked, and the buffer stays as it was when something is wrong.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};

use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::{
    self, Field, FieldId, HEADER_BYTES, JsonError, LineForm, Ubf, UbfError, UbfMut, UbfRef, Value,
    apply_printed, escaped, from_json, region_size, to_json, unescaped,
};
use pollux_xatmi::view;

use crate::fault::{self, Fault, UbfFault};
use crate::fields::{changing, check_tables, id, reading, size_at, table_or_empty};
use crate::{caller, memory};

/// Most bytes of a text for each byte of the buffer that it is read into: a name, an escape for each
/// byte of a value, remarks.
const TEXT_BYTES_EACH: usize = 16;
/// Most bytes of a text for any buffer.
const TEXT_BYTES_MIN: usize = 64 << 10;
const NO_FILE: UbfError = UbfError::Invalid { reason: "the file is null" };
/// More fields than a buffer can have; a list without an end is recognised by it.
const LIST_LEN_MAX: usize = 1 << 20;

unsafe extern "C" {
    fn pollux_flush(file: *mut libc::FILE) -> c_int;
    fn pollux_write_text(file: *mut libc::FILE, text: *const c_char, len: usize) -> c_int;
}

/// Lets `change` change the buffer at `to` by the one at `from`.
///
/// # Safety
/// When both are those of buffers of fields, no other thread uses them meanwhile.
unsafe fn by_other<'r>(
    to: *mut c_char,
    from: *const c_char,
    change: impl FnOnce(&mut UbfMut<'r>, UbfRef<'_>) -> Result<(), UbfError>,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let source = unsafe { reading(from) }?;
        // SAFETY: the caller's promise.
        let region = (to.addr(), unsafe { size_at(to) }?);
        let copy;
        // A buffer that is changed by itself, or by one within it, is read from a copy.
        let source = if caller::overlap(region, (from.addr(), source.size())) {
            copy = source.used_bytes().to_vec();
            UbfRef::open(&copy)?
        } else {
            source
        };
        // SAFETY: the caller's promise; `source` does not stand in it.
        change(&mut unsafe { changing(to) }?, source)?;
        Ok(0)
    })
}

/// The fields to be kept: a list that ends with 0, or none at all for NULL.
///
/// # Safety
/// As for [`list`].
unsafe fn kept_list(kept: *const c_int) -> Result<Vec<FieldId>, UbfError> {
    if kept.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    unsafe { list(kept) }
}

/// A list of fields that ends with 0.
///
/// # Safety
/// A sound `list` is that of ints up to one that is 0.
unsafe fn list(list: *const c_int) -> Result<Vec<FieldId>, UbfError> {
    if !caller::is_sound(list) {
        return Err(UbfError::Invalid { reason: "the list of fields is null" });
    }
    let mut fields = BTreeSet::new();
    for index in 0..LIST_LEN_MAX {
        // SAFETY: the caller promises ints up to a 0, and none before was one.
        match unsafe { caller::read(list.wrapping_add(index)) } {
            None | Some(0) => return Ok(fields.into_iter().collect()),
            Some(raw) => fields.insert(id(raw)?),
        };
    }
    Err(UbfError::Invalid { reason: "the list of fields has no end: BBADFLDID" })
}

/// `to` holds what `from` holds.
///
/// # Safety
/// When both are those of buffers of fields, no other thread uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bcpy(to: *mut c_char, from: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_other(to, from, UbfMut::copy_from) }
}

/// Occurrences of `from` replace those of `to`, others are added.
///
/// # Safety
/// As for [`Bcpy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bupdate(to: *mut c_char, from: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_other(to, from, UbfMut::update) }
}

/// All occurrences of `from` are added to `to`.
///
/// # Safety
/// As for [`Bcpy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bconcat(to: *mut c_char, from: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_other(to, from, UbfMut::concat) }
}

/// Occurrences that `from` has too stay, with its values.
///
/// # Safety
/// As for [`Bcpy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bjoin(to: *mut c_char, from: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_other(to, from, UbfMut::join) }
}

/// Occurrences that `from` has too get its values; the others stay as they are.
///
/// # Safety
/// As for [`Bcpy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bojoin(to: *mut c_char, from: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_other(to, from, UbfMut::outer_join) }
}

/// Copies what `from` holds to any memory: a buffer of tpalloc or Balloc keeps its size, other
/// memory becomes a buffer of just the used bytes.
///
/// # Safety
/// When `from` is that of a buffer of fields, no other thread changes it meanwhile; `to` has space for its
/// used bytes, and no other thread uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bmove(to: *mut c_char, from: *const c_char) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let source = UbfRef::check(unsafe { reading(from) }?.used_bytes())?;
        if !caller::is_sound(to) {
            return Err(UbfError::Invalid { reason: "no memory for the buffer" }.into());
        }
        if !to.addr().is_multiple_of(8) {
            return Err(UbfError::Unaligned.into());
        }
        if to.addr() == from.addr() {
            return Ok(0);
        }
        // The two may overlap, and the memory may have been any.
        let used = source.used_bytes().to_vec();
        let room = memory::capacity(to).unwrap_or(used.len());
        if used.len() > room {
            return Err(UbfError::NoSpace { needed: used.len(), room }.into());
        }
        caller::forget(to.addr());
        // SAFETY: the caller promises the used bytes, tpalloc gave the rest.
        let region = unsafe { caller::bytes_mut(to, room) };
        UbfMut::init(region)?.copy_from(UbfRef::open(&used)?)?;
        Ok(0)
    })
}

/// Two buffers of the caller's, all of whose fields are sound.
///
/// # Safety
/// When both are those of buffers of fields, no other thread changes them while the result is used.
unsafe fn pair<'a>(
    one: *const c_char,
    two: *const c_char,
) -> Result<(UbfRef<'a>, UbfRef<'a>), UbfError> {
    if one.is_null() || two.is_null() {
        return Err(UbfError::Invalid { reason: "the pointer to a buffer is NULL" });
    }
    // SAFETY: the caller's promise.
    let one = UbfRef::check(unsafe { reading(one) }?.used_bytes())?;
    // SAFETY: the caller's promise.
    Ok((one, UbfRef::check(unsafe { reading(two) }?.used_bytes())?))
}

/// -1, 0 or 1: which of two buffers stands first, by ids, then values, then number of fields. -2
/// for an error.
///
/// # Safety
/// When both are those of buffers of fields, no other thread changes them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bcmp(one: *const c_char, two: *const c_char) -> c_int {
    fault::ubf(-2, || {
        // SAFETY: the caller's promise.
        let (one, two) = unsafe { pair(one, two) }?;
        Ok(one.compare_by(two, &view::order_of_process) as c_int)
    })
}

/// 1 when each occurrence of `part` stands in `whole` with its value, else 0; -1 for an error.
///
/// # Safety
/// As for [`Bcmp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bsubset(whole: *const c_char, part: *const c_char) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let (whole, part) = unsafe { pair(whole, part) }?;
        Ok(c_int::from(whole.contains_all_by(part, &view::order_of_process)))
    })
}

/// The fields of the list go, as far as they are there.
///
/// # Safety
/// As for [`Bproj`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bdelete(ubf: *mut c_char, removed: *const c_int) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let mut fields = unsafe { changing(ubf) }?;
        // SAFETY: the caller's promise.
        fields.delete_each(&unsafe { list(removed) }?)?;
        Ok(0)
    })
}

/// Only the fields of the list stay; none for NULL.
///
/// # Safety
/// As for [`Bcpy`]; a sound `kept` is that of ints up to one that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bproj(ubf: *mut c_char, kept: *const c_int) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let mut fields = unsafe { changing(ubf) }?;
        // SAFETY: the caller's promise.
        fields.project(&unsafe { kept_list(kept) }?)?;
        Ok(0)
    })
}

/// `to` holds the fields of the list that `from` has.
///
/// # Safety
/// As for [`Bproj`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bprojcpy(
    to: *mut c_char,
    from: *const c_char,
    kept: *const c_int,
) -> c_int {
    let change = |fields: &mut UbfMut<'_>, source: UbfRef<'_>| {
        // SAFETY: the caller's promise.
        fields.project_from(source, &unsafe { kept_list(kept) }?)
    };
    // SAFETY: the caller's promise.
    unsafe { by_other(to, from, change) }
}

/// Prints all fields to standard output.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bprint(ubf: *const c_char) -> c_int {
    // SAFETY: the caller's promise; without a file it is standard output.
    fault::ubf(-1, || unsafe { print(ubf, std::ptr::null_mut()) })
}

/// Prints all fields to a file.
///
/// # Safety
/// As for [`Bprint`]; a sound `file` is that of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfprint(ubf: *const c_char, file: *mut libc::FILE) -> c_int {
    fault::ubf(-1, || {
        if !caller::is_sound(file) {
            return Err(UbfError::Invalid { reason: "the file is null" }.into());
        }
        // SAFETY: the caller's promise.
        unsafe { print(ubf, file) }
    })
}

/// # Safety
/// As for [`Bfprint`]; NULL is standard output.
unsafe fn print(ubf: *const c_char, file: *mut libc::FILE) -> Result<c_int, UbfFault> {
    // SAFETY: the caller's promise.
    let fields = unsafe { reading(ubf) }?;
    // Without tables fields are printed by number.
    let text = ubf::print(fields, table_or_empty(), &view::LINES)?;
    // SAFETY: the caller's promise.
    unsafe { print_text(file, text.as_bytes()) }
}

/// Writes a text to a file of C, to standard output for NULL, so that what others write to it comes behind it.
///
/// # Safety
/// A `file` that is not NULL is that of an open file.
pub(crate) unsafe fn print_text(file: *mut libc::FILE, text: &[u8]) -> Result<c_int, UbfFault> {
    // SAFETY: the caller's promise.
    unsafe { write_text(file, text) }?;
    // SAFETY: as above.
    if unsafe { pollux_flush(file) } != 0 {
        return Err(failed(&std::io::Error::last_os_error().to_string()));
    }
    Ok(0)
}

/// Writes to a file of C, to standard output for NULL.
///
/// # Safety
/// A `file` that is not NULL is that of an open file.
pub(crate) unsafe fn write_text(file: *mut libc::FILE, text: &[u8]) -> Result<(), UbfFault> {
    const BEUNIX: c_int = 8;
    // SAFETY: the text has this length; the file is the caller's promise.
    let written = unsafe { pollux_write_text(file, text.as_ptr().cast(), text.len()) };
    if written != 0 {
        return Err(UbfFault::Other(BEUNIX, std::io::Error::last_os_error().to_string()));
    }
    Ok(())
}

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
        take_read(unsafe { changing(ubf) }?, fields)?;
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
        let most = text_bytes_max(unsafe { reading(ubf) }?.size());
        if !caller::is_sound(file) {
            return Err(NO_FILE.into());
        }
        // SAFETY: the caller's promise.
        let text = unsafe { paragraph(file, most) }?;
        if !text.is_empty() && !text.ends_with(b"\n") {
            let line = 1 + text.iter().filter(|byte| **byte == b'\n').count();
            let reason = "the last line has no new line at its end";
            return Err(UbfError::Syntax { line, reason }.into());
        }
        // SAFETY: the caller's promise.
        unsafe { apply_text(ubf, &text) }
    })
}

/// The most bytes of a text for a buffer of this size.
pub(crate) fn text_bytes_max(room: usize) -> usize {
    room.saturating_mul(TEXT_BYTES_EACH).max(TEXT_BYTES_MIN)
}

/// Changes a buffer as printed fields say.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile.
pub(crate) unsafe fn apply_text(ubf: *mut c_char, text: &[u8]) -> Result<c_int, UbfFault> {
    // SAFETY: the caller's promise.
    let mut fields = Ubf::from_bytes(unsafe { reading(ubf) }?.used_bytes())?;
    let text = str::from_utf8(text).map_err(|error| {
        let before = &text[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let reason = "bytes that are not UTF-8 are written as a backslash and two hex digits";
        UbfError::Syntax { line, reason }
    })?;
    let form = LineForm { reads_addresses: reads_addresses(), ..view::LINES };
    if let Err(error) = apply_printed(text, table_or_empty(), &form, &mut fields) {
        if error == UbfError::BadName {
            // Tables that cannot be read are the cause rather than the name.
            check_tables()?;
        }
        return Err(error.into());
    }
    // SAFETY: the caller's promise.
    unsafe { changing(ubf) }?.copy_from(fields.fields())?;
    Ok(0)
}

/// Makes a buffer hold what was read from a file, without addresses where those are not read.
pub(crate) fn take_read(mut to: UbfMut<'_>, fields: UbfRef<'_>) -> Result<(), UbfError> {
    if reads_addresses() {
        return to.copy_from(fields);
    }
    to.copy_from(without_addresses(fields)?.fields())
}

fn without_addresses(fields: UbfRef<'_>) -> Result<Ubf, UbfError> {
    let mut kept = Ubf::new();
    for Field { id, value, .. } in fields {
        match value {
            Value::Ptr(_) => {}
            Value::Ubf(inner) => kept.add(id, without_addresses(inner)?.fields())?,
            other => kept.add(id, other)?,
        }
    }
    Ok(kept)
}

/// Whether addresses are taken from texts and files: only where NDRX_APIFLAGS says so.
pub(crate) fn reads_addresses() -> bool {
    has_flag("ubf_ptrparse")
}

fn has_flag(name: &str) -> bool {
    let flags = std::env::var("NDRX_APIFLAGS").unwrap_or_default();
    flags.split([',', ';', ' ']).any(|flag| flag == name)
}

/// Fields as JSON, texts with the escapes that NDRX_APIFLAGS asks for.
pub(crate) fn json_of_fields(fields: UbfRef<'_>) -> Result<String, Fault> {
    if !has_flag("json_escape") {
        return Ok(to_json(fields, table_or_empty())?);
    }
    Ok(to_json(escaped(fields)?.fields(), table_or_empty())?)
}

/// The fields of JSON, texts without these escapes.
pub(crate) fn fields_of_json(text: &str) -> Result<Ubf, Fault> {
    let fields = from_json(text, table_or_empty())?;
    if !has_flag("json_escape") {
        return Ok(fields);
    }
    Ok(unescaped(fields.fields())?)
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

impl From<UbfFault> for Fault {
    fn from(fault: UbfFault) -> Self {
        /// Errors of views that have no counterpart among those of `atmi.h`.
        const BBADVIEW: c_int = 17;
        const OF_FILES: [c_int; 2] = [18, 19];
        match fault {
            UbfFault::Ubf(error) => error.into(),
            UbfFault::Other(BBADVIEW, words) => Self::new(Code::OutputType.number(), words),
            UbfFault::Other(number, words) if OF_FILES.contains(&number) => {
                Self::new(Code::System.number(), words)
            }
            UbfFault::Other(_, words) => Self::invalid(words),
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
        let json = json_of_fields(unsafe { reading(ubf) }?)?;
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
        let fields = fields_of_json(text)?;
        // SAFETY: the caller's promise.
        unsafe { changing(ubf) }?.copy_from(fields.fields())?;
        Ok(0)
    })
}
