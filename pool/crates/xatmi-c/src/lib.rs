//! The C interface of the service pool: `atmi.h`, `ubf.h`, `tx.h`, `userlog.h`, `ndebug.h` and one shared library.
//!
//! Thin: each function reads what the caller hands over, asks `pollux-xatmi`, and turns the outcome
//! into a number and an error of the thread. C programs call it; `pollux` itself uses [`layout`]
//! only. Nothing here decides what a call or a field means.
//!
//! A file uses those above it only:
//!
//! | file | subject |
//! |---|---|
//! | `caller.rs` | pointers of the caller: what is known of them before they are followed; variable arguments |
//! | `fault.rs` | the thread's error numbers and texts; no panic leaves a function |
//! | `memory.rs` | typed buffers: tpalloc, tprealloc, tpfree, tptypes |
//! | `fields.rs`, `values.rs`, `copies.rs`, `buffers.rs` | `ubf.h`: the buffer behind a pointer, its memory, names of fields; values; values by other ways, fields of inner buffers; whole buffers, in files and as JSON |
//! | `expressions.rs` | Boolean expressions |
//! | `startup.rs` | the files of NDRX_CCONFIG, whose variables become those of the process |
//! | `logging.rs` | lines in the log of the day, lines with a level |
//! | `transactions.rs` | the transaction of a thread; timeouts of calls |
//! | `context.rs` | a thread's context: its client and subscriptions |
//! | `messages.rs`, `events.rs` | the data of calls, conversations and services; events and unsolicited messages |
//! | `calls.rs`, `tx.rs` | calls and conversations; transactions by both interfaces |
//! | `service.rs`, `server.rs` | one call of a service function; the life of a server |
//! | `prefix.rs`, `layout.rs` | files below a prefix, those of a C library; this one's files. Used by installers, on their own |
//!
//! Every function may be called from any thread. Pointers are the caller's promise, as in C: NULL,
//! memory that is not a buffer and buffers that were freed are answered with an error where they can be recognised.

pub mod buffers;
mod caller;
pub mod calls;
pub mod context;
pub mod copies;
pub mod events;
pub mod expressions;
pub mod fault;
pub mod fields;
pub mod layout;
pub mod logging;
mod memory;
mod messages;
#[forbid(unsafe_code)]
pub mod prefix;
pub mod server;
pub mod service;
pub mod startup;
pub mod transactions;
pub mod tx;
pub mod values;
