//! The C interface as C programs see it: headers, layouts, and what each function answers.
//!
//! Every test compiles a small C program against the headers and the library as they were built,
//! without a pool. Without a C compiler they are skipped with the reason, which
//! `POLLUX_FORBID_SKIP` forbids.

mod errors;
mod headers;
mod programs;
mod toolchain;
