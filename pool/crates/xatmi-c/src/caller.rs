//! What C callers hand over: pointers, and variable arguments.
//!
//! All functions of the interface read and write the caller's memory through it. It tells what can
//! be known before a pointer is followed; that the rest holds is the caller's promise.
//!
//! A library exports the names of Rust functions only, so what only C can do, variable arguments (`Bgetrv` and the like,
//! `userlog`) here and leaving a service function in `service.rs`, is one jump from a name of the library to a function
//! of C, with the arguments and the stack as they are. The C functions are those of
//! `c/variadic.c`, which call the functions with an array or a text (`copies.rs`, `logging.rs`).

use std::cell::Cell;
use std::ffi::{CStr, c_char};

/// No object lies below: the kernel does not map the first page (`vm.mmap_min_addr`).
const LOWEST: usize = 4096;

/// Whether the pointer can be that of an object at all: not NULL, nor NULL with an offset.
pub(crate) fn is_sound<T>(pointer: *const T) -> bool {
    pointer.addr() >= LOWEST
}

/// The text at `pointer`, or `None` for a pointer that is none.
///
/// # Safety
/// A sound pointer is that of a text with a NUL, which does not change while the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    if !is_sound(pointer) {
        return None;
    }
    // SAFETY: the caller promises a text with a NUL.
    Some(unsafe { CStr::from_ptr(pointer) })
}

/// The `len` bytes at `pointer`.
///
/// # Safety
/// `pointer` is that of `len` bytes that no other thread writes while the result is used; any for 0.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller promises so many bytes; every byte is a u8.
    unsafe { std::slice::from_raw_parts(pointer.cast(), len) }
}

/// The `len` bytes at `pointer`, to be written.
///
/// # Safety
/// `pointer` is that of `len` bytes that no other thread uses while the result is used; any for 0.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut c_char, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller promises so many bytes of its own; every byte is a u8.
    unsafe { std::slice::from_raw_parts_mut(pointer.cast(), len) }
}

/// The object at `pointer`, or `None` for a pointer that is none.
///
/// # Safety
/// A sound pointer is that of a `T`, at any alignment.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: the caller promises a T; its alignment does not matter here.
    is_sound(pointer).then(|| unsafe { pointer.read_unaligned() })
}

/// Puts `value` at `pointer`, unless that is none.
///
/// # Safety
/// A sound pointer is that of memory for a `T`, at any alignment.
pub(crate) unsafe fn write<T: Copy>(pointer: *mut T, value: T) {
    if is_sound(pointer) {
        // SAFETY: the caller promises room for a T; its alignment does not matter here.
        unsafe { pointer.write_unaligned(value) };
    }
}

thread_local! {
    /// The last address that turned out to be readable, and how many bytes stand there at most:
    /// programs ask for many fields of one buffer.
    static READABLE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// How many bytes stand at `address`, a multiple of 8, at most; `None` when 8 can't be read there.
///
/// `known` says it for memory of ours. Of other memory it is only known whether it can be read,
/// by one system call for an address that is not the last one of this thread.
pub(crate) fn room_at(address: usize, known: impl FnOnce() -> Option<usize>) -> Option<usize> {
    let (last, room) = READABLE.get();
    if last == address && address != 0 {
        return Some(room);
    }
    // Without a set the kernel has nothing to read.
    let anything = || (address != 0 && kernel_can_read(address)).then_some(usize::MAX);
    let room = known().or_else(anything)?;
    READABLE.set((address, room));
    Some(room)
}

/// Forgets what was found at `address`.
pub(crate) fn forget(address: usize) {
    if READABLE.get().0 == address {
        READABLE.set((0, 0));
    }
}

/// Whether two pieces of memory, each an address and a length, have a byte in common.
pub(crate) fn overlap(one: (usize, usize), other: (usize, usize)) -> bool {
    one.0 < other.0.saturating_add(other.1) && other.0 < one.0.saturating_add(one.1)
}

/// rt_sigprocmask(2) reads the 8 bytes of the set first (EFAULT), then refuses what to do with it
/// (EINVAL): it answers the question and changes nothing.
fn kernel_can_read(address: usize) -> bool {
    const NO_SUCH_CHANGE: libc::c_int = -1;
    const SET_BYTES: usize = 8;
    let set = address;
    let none = std::ptr::null::<u8>();
    // SAFETY: the kernel only reads the set, checks its address itself, and refuses the change.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_CHANGE, set, none, SET_BYTES) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

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
    fn pollux_cbgetallocrv();
    fn pollux_cbvgetrv();
    fn pollux_cbvgetallocrv();
    fn pollux_bvnullrv();
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

/// `CBgetallocr` with the path as the last arguments.
///
/// # Safety
/// As for `CBgetallocr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBgetallocrv() {
    jump_to!(pollux_cbgetallocrv)
}

/// `CBvgetr` with the path as the last arguments.
///
/// # Safety
/// As for `CBvgetr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBvgetrv() {
    jump_to!(pollux_cbvgetrv)
}

/// `CBvgetallocr` with the path as the last arguments.
///
/// # Safety
/// As for `CBvgetallocr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn CBvgetallocrv() {
    jump_to!(pollux_cbvgetallocrv)
}

/// `Bvnullr` with the path as the last arguments.
///
/// # Safety
/// As for `Bvnullr`, with the arguments that `ubf.h` declares.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn Bvnullrv() {
    jump_to!(pollux_bvnullrv)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_addresses_are_found_without_following_them() {
        let own = 7_u64;
        let address = (&raw const own).addr();
        assert_eq!(room_at(address, || None), Some(usize::MAX));
        assert_eq!(room_at(address, || unreachable!("it is known")), Some(usize::MAX));
        for stray in [0, 8, LOWEST, 0xdead_beef_0000, 1 << 63, usize::MAX - 7] {
            assert_eq!(room_at(stray, || None), None, "{stray:x}");
        }
        forget(address);
        assert_eq!(room_at(address, || Some(16)), Some(16));
        forget(address);
        assert_eq!(READABLE.get(), (0, 0));
    }

    #[test]
    fn memory_overlaps_where_a_byte_is_in_both() {
        assert!(overlap((8, 8), (15, 1)) && overlap((15, 1), (8, 8)) && overlap((8, 8), (0, 99)));
        assert!(!overlap((8, 8), (16, 8)) && !overlap((16, 8), (8, 8)));
        assert!(!overlap((8, 0), (8, 0)) && overlap((8, usize::MAX), (usize::MAX - 1, 1)));
    }

    #[test]
    fn pointers_into_the_first_page_are_none() {
        for address in [0, 1, LOWEST - 1] {
            let pointer = std::ptr::without_provenance_mut::<i32>(address);
            // SAFETY: none of them is sound, so none is followed.
            assert_eq!(unsafe { read(pointer) }, None);
            // SAFETY: as above.
            unsafe { write(pointer, 1) };
            // SAFETY: as above.
            assert!(unsafe { text(pointer.cast()) }.is_none());
        }
    }
}
