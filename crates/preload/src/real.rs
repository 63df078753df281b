//! The functions of the C library behind the names that are taken: looked up at the first call of each,
//! for a program may call before any constructor ran. And its errno.

use std::ffi::{CStr, c_int, c_void};

/// The function of the C library, or of a library between; null where there is none.
pub(crate) fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The C string of a name that ends with a zero.
pub(crate) const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name without zeros"),
    }
}

/// The thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives the address of a live integer of this thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place }
}

/// Sets the thread's errno.
pub(crate) fn set_errno(to: c_int) {
    // SAFETY: the C library gives the address of a live integer of this thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = to };
}

/// What a call answers that the C library does not have.
pub(crate) fn unknown() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}
