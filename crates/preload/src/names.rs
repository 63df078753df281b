//! The names that are taken.
//!
//! Each is a few instructions that put the address which the call returns to behind its arguments and
//! go on to the function of this library: the one thing that Rust cannot ask for.

/// Defines a function under the name of one of the C library, with the caller's address as a further argument.
///
/// The number is that of its arguments, all of them integers or pointers.
macro_rules! taken {
    ($name:ident / $count:tt ($($arg:ident: $type:ty),*; $caller:ident) $(-> $ret:ty)? $body:block) => {
        mod $name {
            use super::*;

            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name() {
                crate::names::pass_on!($count)
            }

            unsafe extern "C-unwind" fn inner($($arg: $type,)* $caller: usize) $(-> $ret)? $body
        }
    };
}

/// The instructions for a number of arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! pass_on {
    (0) => { crate::names::pass_on!("mov rdi, [rsp]") };
    (1) => { crate::names::pass_on!("mov rsi, [rsp]") };
    (2) => { crate::names::pass_on!("mov rdx, [rsp]") };
    (3) => { crate::names::pass_on!("mov rcx, [rsp]") };
    (4) => { crate::names::pass_on!("mov r8, [rsp]") };
    (5) => { crate::names::pass_on!("mov r9, [rsp]") };
    // The seventh argument lies on the stack, which stands at a multiple of 16 before a call.
    (6) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push qword ptr [rsp]",
            ".cfi_adjust_cfa_offset 8",
            "call {inner}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            inner = sym inner,
        )
    };
    ($load:literal) => { core::arch::naked_asm!($load, "jmp {inner}", inner = sym inner) };
}

/// The instructions for a number of arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! pass_on {
    (0) => { crate::names::pass_on!("mov x0, x30") };
    (1) => { crate::names::pass_on!("mov x1, x30") };
    (2) => { crate::names::pass_on!("mov x2, x30") };
    (3) => { crate::names::pass_on!("mov x3, x30") };
    (4) => { crate::names::pass_on!("mov x4, x30") };
    (5) => { crate::names::pass_on!("mov x5, x30") };
    (6) => { crate::names::pass_on!("mov x6, x30") };
    ($load:literal) => { core::arch::naked_asm!($load, "b {inner}", inner = sym inner) };
}

pub(crate) use {pass_on, taken};
