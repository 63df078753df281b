//! Buffers, structs and expressions to and from functions of the program, as `Bprint`, `Bextread`, `Bwrite`, `Bread` and
//! `Bboolpr` have them to and from files (`Bfprintcb` and the like of `ubf.h`).
//!
//! A function that fails ends it with BEUNIX; a buffer or struct that was to be read stays as it was then. Lines go out one by
//! one with their new line and a NUL, bytes of a buffer in one piece.

use std::ffi::{c_char, c_int, c_long, c_void};

use pollux_xatmi::ubf::{self, HEADER_BYTES, UbfError, UbfRef, region_size};
use pollux_xatmi::view::LINES;

use crate::buffers::{apply_text, take_read, text_bytes_max};
use crate::expressions::expression;
use crate::fault::{self, NO_FUNCTION, UbfFault};
use crate::fields::{changing, reading, table_or_empty};
use crate::views::{looking, struct_of_text, view};

/// Takes a line: its bytes with NUL, their number, the program's pointer, whether it is to be printed to a file, the file,
/// the field.
type TakeLine = unsafe extern "C" fn(
    *mut *mut c_char,
    c_long,
    *mut c_void,
    *mut c_int,
    *mut libc::FILE,
    c_int,
) -> c_int;
/// Takes a text with its NUL: 0, or it failed.
type TakeText = unsafe extern "C" fn(*mut c_char, c_long, *mut c_void) -> c_int;
/// Gives or takes so many bytes: how many it did, 0 at the end, below 0 for a failure.
type Move = unsafe extern "C" fn(*mut c_char, c_long, *mut c_void) -> c_long;

/// Room for one line: a name, a tab and a value of 64 KiB.
const LINE_BYTES: usize = 128 << 10;

fn no_function() -> UbfFault {
    UbfError::Invalid { reason: NO_FUNCTION }.into()
}

fn failed(words: &str) -> UbfFault {
    const BEUNIX: c_int = 8;
    UbfFault::Other(BEUNIX, words.to_owned())
}

/// Hands out lines; `field_of` knows the field that a line begins with.
///
/// # Safety
/// `take` may be given `data`.
unsafe fn give_lines(
    text: &[u8],
    take: TakeLine,
    data: *mut c_void,
    field_of: impl Fn(&str) -> c_int,
) -> Result<c_int, UbfFault> {
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b'\t').find(|part| !part.is_empty());
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        let mut bytes = [line, &[0]].concat();
        let len = c_long::try_from(bytes.len()).unwrap_or(c_long::MAX);
        let mut start = bytes.as_mut_ptr().cast::<c_char>();
        let mut is_printed = 0;
        let field = field_of(&name);
        // SAFETY: the line stays during the call, and the caller promises the function.
        let said = unsafe {
            take(&raw mut start, len, data, &raw mut is_printed, std::ptr::null_mut(), field)
        };
        if said != 0 {
            return Err(failed("the function that takes lines failed"));
        }
    }
    Ok(0)
}

/// The lines that a function gives, up to its end.
///
/// # Safety
/// `give` may be given `data`.
unsafe fn take_lines(give: Move, data: *mut c_void, most: usize) -> Result<Vec<u8>, UbfFault> {
    let mut text = Vec::new();
    let mut line = vec![0_u8; LINE_BYTES];
    loop {
        // SAFETY: the room stays during the call, and the caller promises the function.
        let len = unsafe { give(line.as_mut_ptr().cast(), LINE_BYTES as c_long, data) };
        match usize::try_from(len) {
            Ok(0) => return Ok(text),
            Ok(len) if len <= LINE_BYTES => {
                // A NUL ends it, which may be counted or not.
                let end = line[..len].iter().position(|byte| *byte == 0).unwrap_or(len);
                text.extend_from_slice(&line[..end]);
                // What it gives at a time is a line, whether or not it says so.
                if line[..end].last().is_some_and(|last| *last != b'\n') {
                    text.push(b'\n');
                }
            }
            _ => return Err(failed("the function that gives lines failed")),
        }
        if text.len() > most {
            return Err(UbfError::NoSpace { needed: text.len(), room: most }.into());
        }
    }
}

/// Hands the printed fields of a buffer to a function, line by line.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread changes it meanwhile; `take` is a function of this type or
/// NULL, and may be given `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfprintcb(
    ubf: *const c_char,
    take: Option<TakeLine>,
    data: *mut c_void,
) -> c_int {
    fault::ubf(-1, || {
        let table = table_or_empty();
        // SAFETY: the caller's promise.
        let text = ubf::print(unsafe { reading(ubf) }?, table, &LINES)?;
        let field_of = |name: &str| table.id(name).map_or(0, ubf::FieldId::raw);
        // SAFETY: the caller's promise.
        unsafe { give_lines(text.as_bytes(), take.ok_or_else(no_function)?, data, field_of) }
    })
}

/// Reads printed fields that a function gives, as Bextread does from a file.
///
/// # Safety
/// When `ubf` is that of a buffer of fields, no other thread uses it meanwhile; `give` is a function of this type or NULL,
/// and may be given `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bextreadcb(
    ubf: *mut c_char,
    give: Option<Move>,
    data: *mut c_void,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let most = text_bytes_max(unsafe { reading(ubf) }?.size());
        // SAFETY: the caller's promise.
        let text = unsafe { take_lines(give.ok_or_else(no_function)?, data, most) }?;
        // SAFETY: the caller's promise.
        unsafe { apply_text(ubf, &text) }
    })
}

/// Hands the used bytes of a buffer to a function.
///
/// # Safety
/// As for [`Bfprintcb`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bwritecb(
    ubf: *const c_char,
    take: Option<Move>,
    data: *mut c_void,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let mut bytes =
            ubf::Ubf::from_bytes(unsafe { reading(ubf) }?.used_bytes())?.used_bytes().to_vec();
        let len = c_long::try_from(bytes.len()).unwrap_or(c_long::MAX);
        let take = take.ok_or_else(no_function)?;
        // SAFETY: the bytes stay during the call, and the caller promises the function.
        if unsafe { take(bytes.as_mut_ptr().cast(), len, data) } == len {
            Ok(0)
        } else {
            Err(failed("the function took not all bytes"))
        }
    })
}

/// Fills `bytes` from a function.
///
/// # Safety
/// `give` may be given `data`.
unsafe fn fill(give: Move, data: *mut c_void, bytes: &mut [u8]) -> Result<(), UbfFault> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        let room = c_long::try_from(rest.len()).unwrap_or(c_long::MAX);
        // SAFETY: the room stays during the call, and the caller promises the function.
        let len = unsafe { give(rest.as_mut_ptr().cast(), room, data) };
        match usize::try_from(len) {
            Ok(len) if (1..=rest.len()).contains(&len) => filled += len,
            Ok(0) => return Err(failed("the bytes end before the buffer does")),
            _ => return Err(failed("the function that gives bytes failed")),
        }
    }
    Ok(())
}

/// Takes from a function what Bwritecb or Bwrite gave; the buffer holds just that afterwards.
///
/// # Safety
/// As for [`Bextreadcb`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Breadcb(ubf: *mut c_char, give: Option<Move>, data: *mut c_void) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let room = unsafe { reading(ubf) }?.size();
        let give = give.ok_or_else(no_function)?;
        let mut bytes = vec![0; HEADER_BYTES];
        // SAFETY: the caller's promise.
        unsafe { fill(give, data, &mut bytes) }?;
        let needed = region_size(&bytes)?;
        if needed > room {
            return Err(UbfError::NoSpace { needed, room }.into());
        }
        bytes.resize(needed, 0);
        // SAFETY: the caller's promise.
        unsafe { fill(give, data, &mut bytes[HEADER_BYTES..]) }?;
        // SAFETY: the caller's promise.
        take_read(unsafe { changing(ubf) }?, UbfRef::check(&bytes)?)?;
        Ok(0)
    })
}

/// Hands an expression with all its parentheses, and a new line, to a function.
///
/// # Safety
/// A sound `tree` is that of a tree of Bboolco; `take` is a function of this type or NULL, and may be given `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bboolprcb(
    tree: *const c_char,
    take: Option<TakeText>,
    data: *mut c_void,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let mut text = format!("{}\n\0", unsafe { expression(tree) }?).into_bytes();
        let len = c_long::try_from(text.len()).unwrap_or(c_long::MAX);
        let take = take.ok_or_else(no_function)?;
        // SAFETY: the text stays during the call, and the caller promises the function.
        if unsafe { take(text.as_mut_ptr().cast(), len, data) } == 0 {
            Ok(0)
        } else {
            Err(failed("the function that takes the text failed"))
        }
    })
}

/// Hands the lines of a struct to a function.
///
/// # Safety
/// `view_name` is a text, `struct_data` a struct of the view that no other thread writes; `take` as for [`Bfprintcb`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvfprintcb(
    struct_data: *const c_char,
    view_name: *const c_char,
    take: Option<TakeLine>,
    data: *mut c_void,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        // SAFETY: the caller's promise.
        let text = view.print(unsafe { looking(struct_data, view) }?)?;
        // SAFETY: the caller's promise.
        unsafe { give_lines(&text, take.ok_or_else(no_function)?, data, |_| 0) }
    })
}

/// Makes a struct of lines that a function gives; it stays as it was after an error.
///
/// # Safety
/// As for [`Bvfprintcb`], and no other thread uses the struct; `give` as for [`Bextreadcb`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bvextreadcb(
    struct_data: *mut c_char,
    view_name: *const c_char,
    give: Option<Move>,
    data: *mut c_void,
) -> c_int {
    fault::ubf(-1, || {
        // SAFETY: the caller's promise.
        let view = unsafe { view(view_name) }?;
        let give = give.ok_or_else(no_function)?;
        // SAFETY: the caller's promise.
        let lines = |most| unsafe { take_lines(give, data, most) };
        // SAFETY: the caller's promise.
        unsafe { struct_of_text(struct_data, view, lines) }
    })
}
