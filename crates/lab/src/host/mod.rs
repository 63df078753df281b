//! The machine under the experiment, as `pollux-doctor` reads it, and the compiler for floors in C.

pub(crate) mod compiler;

pub(crate) use pollux_doctor::host::LOAD_AVERAGE;
pub use pollux_doctor::host::{
    Reading, counting, environment, gates, machine, process, programs, sources, symbols,
};
