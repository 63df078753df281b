//! The machine under the experiment, as `pollux-doctor` reads it.

pub(crate) use pollux_doctor::host::LOAD_AVERAGE;
pub use pollux_doctor::host::{
    Profiling, Reading, counting, environment, gates, machine, process, programs, sources, symbols,
};
