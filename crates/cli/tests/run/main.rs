//! `pollux run` as a user starts it, on small programs in C whose loops are known to the last call.
//!
//! | file | what it holds the command to |
//! |---|---|
//! | `attach` | a process that already runs is followed by tracepoints, with the same counts |
//! | `passing` | streams, exit codes and signals are those of the program; what is out of reach is refused |
//! | `pollers` | programs do the same on every mechanism; each planted fault is named with its line |
//! | `servers` | installed programs answer on other mechanisms, each answer checked |
//!
//! `programs` builds and runs them. Counts are judged, never times.

mod attach;
mod passing;
mod pollers;
mod programs;
mod servers;
