//! Contexts that a program makes by themselves (`tpnewctxt`), and functions that name one in front (`oatmi.h`), as bindings of
//! languages need whose threads are not those of the system.
//!
//! The functions are a few lines each in the headers: they enter the context, do what the function without it does, and
//! leave. While a thread is in a context so, errors, transaction, times, log and handler are those of the context.
//!
//! ```text
//!  Otpcall(&context, ...) ─▶ pollux_enter_context ─▶ tpcall(...) ─▶ pollux_leave_context
//! ```

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::error::Code;

use crate::caller;
use crate::context::{self, Handle, tpsetctxt};
use crate::fault::{
    self, Fault, pollux_berror_address, pollux_nerror_address, pollux_tperrno_address,
    pollux_tpurcode_address,
};

/// Contexts that end with their thread.
struct OfThread(Vec<usize>);

thread_local! {
    static OF_THREAD: RefCell<OfThread> = const { RefCell::new(OfThread(Vec::new())) };
}

impl Drop for OfThread {
    fn drop(&mut self) {
        for context in self.0.drain(..) {
            fault::quietly(|| context::free(std::ptr::without_provenance_mut(context)));
        }
    }
}

/// Makes a context, which ends by tpfreectxt; with `ends_with_thread` not later than the thread, with `is_entered` the thread is
/// in it. NULL for an error.
#[unsafe(no_mangle)]
pub extern "C" fn tpnewctxt(ends_with_thread: c_int, is_entered: c_int) -> Handle {
    let made = fault::atmi(std::ptr::null_mut(), context::make);
    if made.is_null() {
        return made;
    }
    if is_entered != 0 && tpsetctxt(made, 0) != 0 {
        fault::quietly(|| context::free(made));
        return std::ptr::null_mut();
    }
    if ends_with_thread != 0 {
        // A thread that is ending has nothing to end it.
        let _ = OF_THREAD.try_with(|all| all.borrow_mut().0.push(made.addr()));
    }
    made
}

/// Ends a context, wherever threads are in it; one that there is not is nothing. Leaves `tperrno`.
#[unsafe(no_mangle)]
pub extern "C" fn tpfreectxt(context: Handle) {
    fault::quietly(|| context::free(context));
}

/// The thread is in a context until `pollux_leave_context`. NULL makes one, whose handle it becomes.
///
/// # Safety
/// A sound `place` is that of a handle; no other thread is in that context by this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_enter_context(place: *mut Handle) {
    // SAFETY: the caller's promise.
    let given = unsafe { caller::read(place) };
    // No place is as one with a handle of nothing.
    let mut handle = given.unwrap_or(std::ptr::without_provenance_mut(usize::MAX));
    fault::quietly(|| {
        // SAFETY: the caller's promise.
        unsafe { context::visit(&mut handle) };
    });
    if given.is_some_and(|given| given != handle) {
        // SAFETY: the caller's promise.
        unsafe { caller::write(place, handle) };
    }
}

/// The thread is where it was before.
#[unsafe(no_mangle)]
pub extern "C" fn pollux_leave_context() {
    fault::quietly(context::end_visit);
}

/// There is no queue of this name: `Otpenqueue` and `Otpdequeue`, which bindings have for all programs.
///
/// # Safety
/// Sound `space` and `name` are those of texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_no_queue(space: *const c_char, name: *const c_char) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let space = unsafe { caller::text(space) }.unwrap_or_default().to_string_lossy();
        // SAFETY: the caller's promise.
        let name = unsafe { caller::text(name) }.unwrap_or_default().to_string_lossy();
        let detail = format!("queue {name} of {space}: pollux has no persistent queues");
        Err(Fault::new(Code::NoEntry.number(), detail))
    })
}

/// Makes the errors of a context count for `look`; the thread's where there is no such context.
///
/// # Safety
/// A sound `place` is that of a handle; no other thread uses that context meanwhile.
unsafe fn with_errors_of<T>(place: *const Handle, look: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's promise.
    let handle = unsafe { caller::read(place) };
    let Some(errors) = handle.and_then(context::errors_of) else { return look() };
    // SAFETY: the context stays while the program uses it, and the caller's promise.
    let before = unsafe { fault::exchange(errors) };
    let found = look();
    // SAFETY: those that counted before, which are still there.
    unsafe { fault::exchange(before) };
    found
}

/// Where `tperrno` of a context stands.
///
/// # Safety
/// A sound `place` is that of a handle; no other thread uses that context meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn O_exget_tperrno_addr(place: *const Handle) -> *mut c_int {
    // SAFETY: the caller's promise.
    unsafe { with_errors_of(place, || pollux_tperrno_address()) }
}

/// Where `tpurcode` of a context stands.
///
/// # Safety
/// As for [`O_exget_tperrno_addr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn O_exget_tpurcode_addr(place: *const Handle) -> *mut c_long {
    // SAFETY: the caller's promise.
    unsafe { with_errors_of(place, || pollux_tpurcode_address()) }
}

/// Where `Berror` of a context stands.
///
/// # Safety
/// As for [`O_exget_tperrno_addr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn O_Bget_Ferror_addr(place: *const Handle) -> *mut c_int {
    // SAFETY: the caller's promise.
    unsafe { with_errors_of(place, || pollux_berror_address()) }
}

/// Where `Nerror` of a context stands.
///
/// # Safety
/// As for [`O_exget_tperrno_addr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn O_Nget_Nerror_addr(place: *const Handle) -> *mut c_int {
    // SAFETY: the caller's promise.
    unsafe { with_errors_of(place, || pollux_nerror_address()) }
}
