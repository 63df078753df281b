//! The C interface of the service pool: `atmi.h`, `ubf.h`, `tx.h`, `userlog.h`, `ndebug.h` and one shared library.
//!
//! Thin: each function reads what the caller hands over, asks `pollux-xatmi`, and turns the outcome
//! into a number and an error of the thread. C programs call it; `pollux` itself uses [`layout`]
//! only. Nothing here decides what a call or a field means.
//!
//! | file | subject |
//! |---|---|
//! | `caller.rs` | pointers of the caller: what is known of them before they are followed |
//! | `fault.rs` | the thread's error numbers and texts; no panic leaves a function |
//! | `memory.rs`, `payloads.rs` | the buffers that tpalloc gave out; what calls and conversations send and receive |
//! | `typed.rs` | tpalloc, tprealloc, tpfree, tptypes |
//! | `context.rs`, `calls.rs`, `times.rs` | a thread's client, its calls and its time limits |
//! | `transactions.rs`, `tx.rs` | transactions over no resource, by both interfaces |
//! | `events.rs` | events and unsolicited messages |
//! | `conversations.rs` | conversations of clients and of services |
//! | `server.rs`, `service.rs` | the life of a server, one call of a service function |
//! | `logging.rs` | lines in the log of the day, lines with a level |
//! | `json.rs` | fields as JSON |
//! | `expressions.rs`, `files.rs` | Boolean expressions, fields in files |
//! | `variadic.rs` | what only C can do: variable arguments, jumps |
//! | `layout.rs` | the files of an installation |
//! | `fields.rs`, `values.rs`, `copies.rs`, `paths.rs`, `buffers.rs`, `storage.rs`, `names.rs` | the functions of `ubf.h` |
//!
//! Every function may be called from any thread. Pointers are the caller's promise, as in C: NULL,
//! memory that is not a buffer and buffers that were freed are answered with an error where they can be recognised.

pub mod buffers;
mod caller;
pub mod calls;
pub mod context;
pub mod conversations;
pub mod copies;
pub mod events;
pub mod expressions;
pub mod fault;
pub mod fields;
pub mod files;
pub mod json;
pub mod layout;
pub mod logging;
mod memory;
pub mod names;
pub mod paths;
mod payloads;
pub mod server;
pub mod service;
pub mod storage;
pub mod times;
pub mod transactions;
pub mod tx;
pub mod typed;
pub mod values;
pub mod variadic;
