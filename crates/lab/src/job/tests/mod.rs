//! Tests of the job as its users meet it: files, flags, built-in jobs and the way back to text.

mod builtins;
mod files;
mod flags;
mod mistakes;
mod round_trip;
