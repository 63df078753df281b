//! Typed, descriptor-safe wrappers for the kernel interfaces that no well-kept crate covers.
//!
//! The only crate of the workspace with `unsafe`. Every unsafe block holds one operation and the
//! fact that makes it sound; every public function is safe. Who needs an ordinary system call
//! uses rustix instead.

pub mod perf;
