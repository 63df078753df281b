//! Performance events: counters, samples, traces and tracepoint numbers (`perf_event_open(2)`).
//!
//! The lab calls this to learn what a measured thread did in the kernel: how many system calls,
//! switches and wakeups it had, and in which functions it spent its time. Nothing here decides
//! whether a figure can be believed: an event that the kernel lets us open can still read 0 for
//! ever (at `kernel.perf_event_paranoid` = 2 a counter opened with `excludes_kernel` counts no
//! context switch, and says nothing about it). The lab probes each source with a known amount of
//! work before it uses one.
//!
//! What this must never do: change the machine. Events are attached to the threads or CPUs named
//! by the caller and vanish with their descriptors; the trace file system is mounted only in a
//! mount namespace that lives as long as one short thread.

mod counter;
mod event;
mod sampler;
mod trace;
mod tracepoint;

pub use counter::{Counter, CounterOptions, CounterReading, Hardware, PerfEvent, Scope, Software};
pub use sampler::{Sample, Sampler, SamplerOptions, online_cpus};
pub use trace::{Followed, Record, Trace, TraceError, What};
pub use tracepoint::{TRACEFS_ROOTS, Tracepoint, tracepoint_id, tracepoint_ids};
