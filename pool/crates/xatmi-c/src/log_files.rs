//! The log of a thread as a stream of C's own: `tplogfplock`, `tplogfpget`, `tplogfpunlock`.
//!
//! A program writes there what libraries print to a stream. The file is opened for appending and is the caller's alone until
//! it is unlocked, so what happens to names and settings meanwhile does not matter to it.

use std::ffi::{CString, c_int, c_long};
use std::os::unix::ffi::OsStrExt;

use crate::{caller, fault, logging};

/// A stream that was locked: `ndrx_debug_t`, of which C programs know the level alone.
#[repr(C)]
#[derive(Debug)]
pub struct Locked {
    level: c_int,
    stream: *mut libc::FILE,
    /// It is not standard error.
    is_own: bool,
}

unsafe extern "C" {
    static stderr: *mut libc::FILE;
}

/// The stream that lines of this thread go to, until it is unlocked; NULL where a line of `level` is not written. -1 is any
/// level. Standard error where the file cannot be opened.
#[unsafe(no_mangle)]
pub extern "C" fn tplogfplock(level: c_int, _flags: c_long) -> *mut Locked {
    let mut locked = std::ptr::null_mut();
    fault::quietly(|| {
        let Some((level, path)) = logging::file_for(level) else { return };
        let opened = match CString::new(path.as_os_str().as_bytes()) {
            // SAFETY: both are texts.
            Ok(path) if !path.is_empty() => unsafe { libc::fopen(path.as_ptr(), c"ae".as_ptr()) },
            _ => std::ptr::null_mut(),
        };
        let is_own = !opened.is_null();
        // SAFETY: the C library sets it before the program begins.
        let stream = if is_own { opened } else { unsafe { stderr } };
        locked = Box::into_raw(Box::new(Locked { level, stream, is_own }));
    });
    locked
}

/// The stream; NULL for NULL.
///
/// # Safety
/// A sound `locked` is what tplogfplock gave, and is not unlocked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogfpget(locked: *const Locked, _flags: c_long) -> *mut libc::FILE {
    let mut stream = std::ptr::null_mut();
    fault::quietly(|| {
        if caller::is_sound(locked) {
            // SAFETY: the caller's promise.
            stream = unsafe { (*locked).stream };
        }
    });
    stream
}

/// Writes what is left, and ends the use of the stream.
///
/// # Safety
/// A sound `locked` is what tplogfplock gave, and no thread uses it or its stream any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogfpunlock(locked: *mut Locked) {
    fault::quietly(|| {
        if !caller::is_sound(locked) {
            return;
        }
        // SAFETY: the caller's promise: it is a box of tplogfplock, and nobody has it any more.
        let Locked { stream, is_own, .. } = *unsafe { Box::from_raw(locked) };
        if is_own {
            // SAFETY: it was opened by tplogfplock, and nobody uses it any more.
            unsafe { libc::fclose(stream) };
        } else {
            // SAFETY: standard error stays.
            unsafe { libc::fflush(stream) };
        }
    });
}
