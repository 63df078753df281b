//! What the event loop of a program did, in memory that the program and its observer share.
//!
//! The preloaded library (`crates/preload`) writes, `pollux run` (`crates/run`) reads at the same time.
//! A thread writes to a cell of its own, so nothing is locked and nothing allocates; all of it may be
//! called in a signal handler.
//!
//! | file | subject |
//! |---|---|
//! | `layout.rs` | the words of the memory: header, images, cells; claiming them |
//! | `image.rs` | which files lie where in a program |
//! | `counter.rs` | what is counted, with one line about each |
//! | `cell.rs` | the figures of a thread: counters, histograms, call sites; room for its notes |
//! | `turn.rs` | the longest turns of a thread, with the calls in them |
//!
//! Nothing here knows where a figure comes from, and nothing judges one.
#![forbid(unsafe_code)]

mod cell;
mod counter;
mod image;
mod layout;
mod turn;

pub use cell::{Cell, Figures, NOTES_MAX, SiteFigure, events_of, time_of};
pub use counter::{Call, Counter, Histogram, Site};
pub use image::{Image, Module};
pub use layout::{Region, WORDS};
pub use turn::{CALLS_MAX, CallRecord, Turn};

/// Variable of the environment that names the file of the memory.
pub const VARIABLE: &str = "POLLUX_LOOP_STATS";
