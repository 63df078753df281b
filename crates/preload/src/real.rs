//! The functions of the C library that stand behind the names taken here: looked up at the first call
//! of each, for a program may call before any constructor ran.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The place of one of them.
pub(crate) struct Real(AtomicPtr<c_void>);

impl Real {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Its address; null where the C library has no such function.
    #[inline]
    pub(crate) fn at(&self, name: &CStr) -> *mut c_void {
        let known = self.0.load(Relaxed);
        if known.is_null() { self.look_up(name) } else { known }
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        self.0.store(found, Relaxed);
        found
    }
}

/// The function behind a name, as an `Option`.
macro_rules! real {
    ($name:ident: fn($($type:ty),*) $(-> $ret:ty)?) => {{
        static REAL: crate::real::Real = crate::real::Real::new();
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
        // SAFETY: the C library's function of this name has this type, and null is no function.
        unsafe {
            std::mem::transmute::<
                *mut std::ffi::c_void,
                Option<unsafe extern "C-unwind" fn($($type),*) $(-> $ret)?>,
            >(REAL.at(NAME))
        }
    }};
}
pub(crate) use real;

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
