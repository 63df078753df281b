//! Values as texts, without a length: `Badds`, `Bchgs`, `Bgets`, `Bgetsa`, `Bfinds`, and `B_error`.
//!
//! C programs call them; each is a conversion of `values.rs` or `copies.rs` with one type.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

use pollux_xatmi::ubf::FieldType;

use crate::caller;
use crate::copies::{CBfind, CBgetalloc};
use crate::fault::{self, Bstrerror};
use crate::values::{CBadd, CBchg, CBget};

const TEXT: c_int = FieldType::String.code();

/// Adds a text to a field of any type.
///
/// # Safety
/// As for `CBadd` with a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Badds(ubf: *mut c_char, field: c_int, text: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { CBadd(ubf, field, text, 0, TEXT) }
}

/// Gives an occurrence the value of a text.
///
/// # Safety
/// As for `CBchg` with a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bchgs(
    ubf: *mut c_char,
    field: c_int,
    occurrence: c_int,
    text: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { CBchg(ubf, field, occurrence, text, 0, TEXT) }
}

/// Copies a value as a text, whatever its length.
///
/// # Safety
/// As for `CBget`; there is room for the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bgets(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    text: *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { CBget(ubf, field, occurrence, text, std::ptr::null_mut(), TEXT) }
}

/// A value as a text in memory that the program frees; NULL for an error.
///
/// # Safety
/// As for `CBgetalloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bgetsa(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
    extra: *mut c_int,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { CBgetalloc(ubf, field, occurrence, TEXT, extra) }
}

/// A value as a text, which stays until the thread's next one; NULL for an error.
///
/// # Safety
/// As for `CBfind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfinds(
    ubf: *const c_char,
    field: c_int,
    occurrence: c_int,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { CBfind(ubf, field, occurrence, std::ptr::null_mut(), TEXT) }
}

/// Writes the thread's last error of fields to standard error, with a word of the program's in front.
///
/// # Safety
/// A sound `word` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn B_error(word: *const c_char) {
    // SAFETY: it gives out a text with a NUL that stays until the next call.
    let said = unsafe { CStr::from_ptr(Bstrerror(fault::berror())) }.to_string_lossy().into_owned();
    fault::quietly(|| {
        // SAFETY: the caller's promise.
        let word = unsafe { caller::text(word) }.unwrap_or_default();
        // Nobody is there to be told of a standard error that cannot be written.
        let _ = writeln!(std::io::stderr(), "{}: {said}", word.to_string_lossy());
    });
}
