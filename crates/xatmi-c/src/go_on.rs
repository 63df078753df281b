//! Going on in a function of C with the arguments and the stack as they are.
//!
//! For what only C can do: leaving a service function by a jump, and variable arguments. A library
//! gives out the names of Rust functions only, so each such function is one instruction of ours.

/// Goes on in a function of C as if that had been called, so that no frame of Rust is in between.
macro_rules! go_on_in {
    ($function:path) => {{
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!("jmp {function}", function = sym $function);
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!("b {function}", function = sym $function);
    }};
}

pub(crate) use go_on_in;
