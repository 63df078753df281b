//! Typed, descriptor-safe wrappers for the kernel interfaces that no well-kept crate covers.
//!
//! The only product crate with `unsafe`, beside the C interfaces: every unsafe block holds one
//! operation and names the fact that it relies on. The poller and the service pool call it. It
//! knows nothing of pollers, holds no policy and never retries on its own.

pub mod aio;
pub mod mqueue;
pub mod readiness;
pub mod ring;
