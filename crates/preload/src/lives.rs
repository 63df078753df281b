//! Where a process becomes two, or another program.
//!
//! A forked child has the memory of its parent, so its thread has to find a cell of its own. A child of
//! vfork(2) even shares it: until the child is gone or another program, its calls are not counted.

use std::ffi::c_void;

use crate::real::real;
use crate::thread::{THREAD, Thread};

/// Lets every fork(3) from here on be seen.
pub(crate) fn watch_forks() {
    // SAFETY: the function may be called in any child: it writes to memory of its thread only.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

unsafe extern "C" fn in_child() {
    THREAD.with(Thread::forget);
}

/// Returns the function to go on to; the parent's thread waits until its child is gone.
extern "C" fn before_vfork() -> *mut c_void {
    THREAD.with(Thread::park);
    let real = real!(vfork: fn() -> libc::pid_t);
    real.map_or(std::ptr::null_mut(), |real| real as *mut c_void)
}

/// vfork(2): gone on to with the stack as it was, since it returns twice.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        before = sym before_vfork,
    )
}

/// vfork(2): gone on to with the stack as it was, since it returns twice.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -16]!",
        "bl {before}",
        "ldp x29, x30, [sp], 16",
        "br x0",
        before = sym before_vfork,
    )
}
