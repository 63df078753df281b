//! `pollux proxy` as a process of its own.

mod settings;
