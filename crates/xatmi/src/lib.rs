//! A service pool after the XATMI specification: typed buffers, field tables, queues and calls.
//!
//! Servers, clients and the C interface stand on it.
//!
//! | question | answered by |
//! |---|---|
//! | what does a message carry? | [`buffer::Buffer`] |
//! | which fields does it hold? | [`ubf::Ubf`], [`ubf::UbfRef`], [`ubf::UbfMut`] |
//! | what are the fields called? | [`field_table::FieldTable`] |
#![forbid(unsafe_code)]

pub mod buffer;
pub mod field_table;
pub mod ubf;
