//! The calling side: one client for each thread that calls.
//!
//! Programs and the C interface use it. It makes its own reply queue, sends to the queues of
//! services and never makes or removes those.
//!
//! | file | subject |
//! |---|---|
//! | `flags` | how a single call is to be made |
//! | `outcome` | what goes into a call and what comes out |
//! | `greeting` | the first words with the manager |

mod flags;
mod greeting;
mod outcome;

pub use flags::CallFlags;
pub use greeting::{ClientHello, GREETING_LEN_BYTES_MAX, Welcome};
pub use outcome::{Arrived, Arriving, Descriptor, Outgoing, ReplyError, Which};
