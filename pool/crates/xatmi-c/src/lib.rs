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
//! | `view_fields.rs` | fields that hold a view; used by those of `ubf.h` |
//! | `expressions.rs` | Boolean expressions |
//! | `views.rs` | structs of C by the names of their members; from fields and back |
//! | `callbacks.rs`, `view_json.rs`, `exports.rs` | buffers, structs and expressions to and from functions of the program; structs as JSON; buffers as text |
//! | `startup.rs` | the files of NDRX_CCONFIG, whose variables become those of the process |
//! | `logging.rs` | lines in the log of the day, lines with a level |
//! | `transactions.rs` | the transaction of a thread; timeouts of calls |
//! | `context.rs` | a thread's context: its client and subscriptions; contexts of `oatmi.h` |
//! | `in_context.rs` | contexts that a program makes by themselves, and functions that name one in front |
//! | `messages.rs`, `events.rs` | the data of calls, conversations and services; events and unsolicited messages |
//! | `request_logs.rs`, `log_files.rs` | the log file of a request that travels in its buffer; the log as a stream of C |
//! | `priority.rs`, `call_infos.rs` | priorities of calls; fields that travel beside the data of a buffer |
//! | `calls.rs`, `tx.rs` | calls and conversations; transactions by both interfaces |
//! | `registry.rs`, `handed_over.rs`, `continued.rs` | what a server's own thread is reached by; calls that other threads answer |
//! | `conversion.rs` | buffers that a server has converted for its functions |
//! | `service.rs`, `server.rs`, `pollers.rs` | one call of a service function; the life of a server; its own descriptors and times |
//! | `prefix.rs`, `layout.rs` | files below a prefix, those of a C library; this one's files. Used by installers, on their own |
//!
//! Every function may be called from any thread. Pointers are the caller's promise, as in C: NULL,
//! memory that is not a buffer and buffers that were freed are answered with an error where they can be recognised.

pub mod buffers;
pub mod call_infos;
pub mod callbacks;
mod caller;
pub mod calls;
pub mod context;
pub mod continued;
mod conversion;
pub mod copies;
pub mod events;
pub mod exports;
pub mod expressions;
pub mod fault;
pub mod fields;
mod handed_over;
pub mod in_context;
pub mod layout;
pub mod log_files;
pub mod logging;
mod memory;
mod messages;
pub mod pollers;
#[forbid(unsafe_code)]
pub mod prefix;
pub mod priority;
mod registry;
pub mod request_logs;
pub mod server;
pub mod service;
pub mod startup;
pub mod transactions;
pub mod tx;
pub mod values;
mod view_fields;
pub mod view_json;
pub mod views;
