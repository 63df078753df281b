//! Functions with variable arguments: `Bgetrv` and its fellows, `userlog`.
//!
//! C programs call them. What they do is in `c/variadic.c`, which calls the functions with an array
//! or a text (`paths.rs`, `userlog.rs`).

use crate::go_on::go_on_in;

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
pub unsafe extern "C" fn Bgetrv() {
    go_on_in!(pollux_bgetrv)
}

/// `CBgetr` with the path as the last arguments.
///
/// # Safety
/// As for `CBgetr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBgetrv() {
    go_on_in!(pollux_cbgetrv)
}

/// `Bfindr` with the path as the last arguments.
///
/// # Safety
/// As for `Bfindr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bfindrv() {
    go_on_in!(pollux_bfindrv)
}

/// `CBfindr` with the path as the last arguments.
///
/// # Safety
/// As for `CBfindr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CBfindrv() {
    go_on_in!(pollux_cbfindrv)
}

/// `Bpresr` with the path as the last arguments.
///
/// # Safety
/// As for `Bpresr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Bpresrv() {
    go_on_in!(pollux_bpresrv)
}

/// A line in the log of the day, as printf(3) makes it.
///
/// # Safety
/// The arguments are those that the format asks for.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn userlog() {
    go_on_in!(pollux_userlog_format)
}

/// The same with a list of arguments.
///
/// # Safety
/// As for [`userlog`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vuserlog() {
    go_on_in!(pollux_userlog_list)
}

/// A line with a level and its place, as printf(3) makes it.
///
/// # Safety
/// As for [`userlog`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_log() {
    go_on_in!(pollux_log_format)
}
