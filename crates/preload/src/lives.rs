//! Where a process becomes another program, and vfork(2), which is most often followed by that.
//!
//! A child of vfork(2) shares the memory of its parent: until the child is gone or another program, its calls are
//! not counted. Forks are seen in `start.rs`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::attach;
use crate::emulation;
use crate::names::{look_up, taken, unknown};
use crate::thread::Thread;

/// Strings, the last of which is null.
type Words = *const *const c_char;

/// Takes names of exec(3): those whose number of arguments is given. Behind the arrow stands the environment of the
/// new program.
macro_rules! exec {
    ($($name:ident / $count:tt ($($arg:ident: $type:ty),*) => $environment:expr;)+) => {
        $(taken! { Both: $name / $count ($($arg: $type),*; _caller) -> c_int {
            let Some(real) = real() else { return unknown() };
            // SAFETY: the caller's own arguments.
            started($environment, || unsafe { real($($arg),*) })
        } })+
    };
}

exec! {
    execve / 3 (path: *const c_char, words: Words, environment: Words) => environment;
    execv / 2 (path: *const c_char, words: Words) => own();
    execvp / 2 (file: *const c_char, words: Words) => own();
    execvpe / 3 (file: *const c_char, words: Words, environment: Words) => environment;
    fexecve / 3 (fd: c_int, words: Words, environment: Words) => environment;
    execveat / 5 (folder: c_int, path: *const c_char, words: Words, environment: Words, flags: c_int) => environment;
}

/// Becomes another program, which may or may not be counted. The C library calls none of these names
/// itself.
fn started(environment: Words, exec: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: exec(3) asks for such an environment.
    let is_counted = attach::is_counted() && unsafe { attach::is_in(environment) };
    attach::starting(is_counted, || emulation::executed(exec))
}

/// The environment of this program.
fn own() -> Words {
    // The C library's variable, which the crate libc does not have.
    unsafe extern "C" {
        static environ: Words;
    }
    // SAFETY: a program that changes it while another thread executes it has lost already.
    unsafe { environ }
}

/// Returns the function to continue with; the parent's thread waits until its child is gone.
extern "C" fn before_vfork() -> *mut c_void {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    Thread::here().park();
    if REAL.load(Relaxed).is_null() {
        REAL.store(look_up(c"vfork"), Relaxed);
    }
    REAL.load(Relaxed)
}

/// vfork(2): continued with the stack as it was, since it returns twice.
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

/// vfork(2): continued with the stack as it was, since it returns twice.
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
