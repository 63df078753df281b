//! Payloads that do not fit into a message.
