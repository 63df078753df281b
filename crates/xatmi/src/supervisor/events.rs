//! What the supervisor is given, and what it answers.
//!
//! The pool turns what processes do into events, and does the actions; it adds nothing to them.

/// What has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Start a process for this id.
    Spawn {
        /// The id.
        id: u32,
    },
    /// Ask the worker for a sign of life.
    Ping {
        /// The id.
        id: u32,
        /// To be given back in the answer.
        number: u64,
    },
    /// Tell the worker to stop.
    Stop {
        /// The id.
        id: u32,
    },
    /// Send a signal to the process.
    Signal {
        /// The id.
        id: u32,
        /// Its number: 2, 15 or 9.
        signal: i32,
    },
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The worker can take calls.
    Ready {
        /// The id.
        id: u32,
    },
    /// The worker's own start said no; its end follows.
    Refused {
        /// The id.
        id: u32,
        /// What it said.
        why: String,
    },
    /// The process ended, or could not be started.
    Died {
        /// The id.
        id: u32,
        /// How, for people.
        how: String,
    },
    /// The answer to a ping.
    Pong {
        /// The id.
        id: u32,
        /// The number of the ping.
        number: u64,
    },
}
