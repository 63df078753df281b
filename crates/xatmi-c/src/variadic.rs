//! Functions with variable arguments (`Bgetrv` and the like, `userlog`): a jump from a name of the
//! library to a function of C, with the arguments and the stack as they are.
//!
//! A library exports the names of Rust functions only, so what only C can do, variable arguments here
//! and leaving a service function in `service.rs`, is one jump. The C functions are those of
//! `c/variadic.c`, which call the functions with an array or a text (`paths.rs`, `logging.rs`).

/// Continues in a function of C as if that had been called, so that no frame of Rust is in between.
macro_rules! jump_to {
    ($function:path) => {{
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!("jmp {function}", function = sym $function);
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!("b {function}", function = sym $function);
    }};
}

pub(crate) use jump_to;

unsafe extern "C" {
    fn pollux_bgetrv();
    fn pollux_cbgetrv();
    fn pollux_bfindrv();
    fn pollux_cbfindrv();
    fn pollux_bpresrv();
    fn pollux_userlog_format();
    fn pollux_userlog_list();
    fn pollux_log_format();
}

/// `Bgetr` with the path as the last arguments.
///
/// # Safety
/// As for `Bgetr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bgetrv() {
    jump_to!(pollux_bgetrv)
}

/// `CBgetr` with the path as the last arguments.
///
/// # Safety
/// As for `CBgetr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBgetrv() {
    jump_to!(pollux_cbgetrv)
}

/// `Bfindr` with the path as the last arguments.
///
/// # Safety
/// As for `Bfindr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bfindrv() {
    jump_to!(pollux_bfindrv)
}

/// `CBfindr` with the path as the last arguments.
///
/// # Safety
/// As for `CBfindr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBfindrv() {
    jump_to!(pollux_cbfindrv)
}

/// `Bpresr` with the path as the last arguments.
///
/// # Safety
/// As for `Bpresr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bpresrv() {
    jump_to!(pollux_bpresrv)
}

/// A line in the log of the day, as printf(3) makes it.
///
/// # Safety
/// The arguments are those that the format asks for.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn userlog() {
    jump_to!(pollux_userlog_format)
}

/// The same with a list of arguments.
///
/// # Safety
/// As for [`userlog`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vuserlog() {
    jump_to!(pollux_userlog_list)
}

/// A line with a level and its place, as printf(3) makes it.
///
/// # Safety
/// As for [`userlog`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pollux_log() {
    jump_to!(pollux_log_format)
}
