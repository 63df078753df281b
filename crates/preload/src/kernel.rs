//! System calls by their instruction: past the C library, whose functions this one stands in front of.
use std::ffi::c_long;

/// The kernel's call, with its own answer: errors are numbers from -4095 on, and errno stays as it is.
///
/// # Safety
/// That of the call.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn kernels(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result: c_long;
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The kernel's call, with its own answer: errors are numbers from -4095 on, and errno stays as it is.
///
/// # Safety
/// That of the call.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn kernels(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result: c_long;
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    result
}
