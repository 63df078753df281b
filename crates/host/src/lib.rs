//! The machine and the programs on it: what is run and observed, what it costs, what the machine is and can tell.
//!
//! | part | one job |
//! |---|---|
//! | `processes`, at the root | other programs: started, read from, ended, with all that they start; who listens where |
//! | [`patience`] | how long each kind of program is waited for |
//! | `reading` | a figure, or the reason why there is none |
//! | [`environment`] | what the machine is; programs that are installed |
//! | [`machine`] | samples before and after a run, and what disturbed it |
//! | `service_manager` | what started this process is notified of its state |
//! | [`sources`], [`counting`] | what can be measured here, tried on known work; counters of the kernel around a piece of work |
//! | [`task_use`] | what the kernel books for threads and children of this process |
//! | [`symbols`] | functions of the kernel and of programs, by address |
//!
//! Nothing here knows what is measured, changes the machine, or judges a figure.
#![forbid(unsafe_code)]

pub mod counting;
pub mod environment;
pub mod machine;
pub mod patience;
mod processes;
mod reading;
mod service_manager;
pub mod sources;
pub mod symbols;
pub mod task_use;

pub use environment::{
    Fact, LOAD_AVERAGE, find_program, find_program_beside, is_program, missing_program, own_folder,
};
pub use processes::{
    Backlog, ControlSocket, Error, Program, Tree, addresses_of, backlog_at, built_from_c, children,
    descendants, ends_within, holders, is_running, listener_at, listens_at, parent, threads,
    threads_of,
};
pub use reading::{Reading, number_of};
pub use service_manager::{NOTIFY_VARIABLE, ServiceManager, ServiceState};
pub use symbols::Profiling;
