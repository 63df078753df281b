//! TLS in front of a server's sessions: what comes is decrypted before a session sees it, what it
//! sends is encrypted.
//!
//! ```text
//!  bytes ─► rustls ─► plain, kept until used ─► the session ─► room ─► rustls ─► bytes
//! ```
//!
//! rustls does no I/O of its own. The handshake has the session's own first deadline. A session's wish
//! to close waits until its last bytes and the `close_notify` behind them have been handed over. An end
//! of the connection without the peer's `close_notify` counts as its end: requests say themselves
//! where they end.

mod keys;

use std::io::{Read, Write};
use std::sync::Arc;

use pollux_engine::{Actions, HeldEnding};
use rustls::{ServerConfig, ServerConnection};

pub use keys::{Keys, TlsError};

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: ServerConnection,
    /// Decrypted bytes that the session has not used yet.
    plain: Vec<u8>,
    /// The peer has said that it sends no more, or has gone.
    has_ended: bool,
    /// The session was told so.
    is_end_told: bool,
    /// The session has ended; it is not called any more.
    held: Option<HeldEnding>,
    is_over: bool,
}

impl Tls {
    pub(crate) fn new(config: &Arc<ServerConfig>) -> Self {
        let connection = ServerConnection::new(Arc::clone(config));
        let mut connection = connection.expect("the configuration was checked when it was made");
        // What a session sends in a call is bounded by the room that it has.
        connection.set_buffer_limit(None);
        let (has_ended, is_end_told, held, is_over) = (false, false, None, false);
        Self { connection, plain: Vec::new(), has_ended, is_end_told, held, is_over }
    }

    /// Whether the handshake is through and the session may still be called.
    pub(crate) fn is_open(&self) -> bool {
        !self.connection.is_handshaking() && !self.is_over
    }

    /// Whether the session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes some of `rest`, and keeps what is decrypted of it.
    ///
    /// # Errors
    /// It is not TLS, or nothing that both sides can speak.
    pub(crate) fn decrypt(&mut self, rest: &mut &[u8]) -> Result<(), rustls::Error> {
        let unread = |error: std::io::Error| rustls::Error::General(error.to_string());
        if self.has_ended || self.is_over {
            *rest = &[];
            return Ok(());
        }
        self.connection.read_tls(rest).map_err(unread)?;
        let state = self.connection.process_new_packets()?;
        self.has_ended |= state.peer_has_closed();
        let (at, len) = (self.plain.len(), state.plaintext_bytes_to_read());
        self.plain.resize(at + len, 0);
        match len {
            0 => Ok(()),
            _ => self.connection.reader().read_exact(&mut self.plain[at..]).map_err(unread),
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// What the session has to be shown now, if it takes input: [`Tls::used`] says what became of it.
    pub(crate) fn input(&mut self) -> Option<Vec<u8>> {
        let is_due = self.is_open() && !self.plain.is_empty() && !self.connection.wants_write();
        is_due.then(|| std::mem::take(&mut self.plain))
    }

    /// The session has used so much of `input`.
    pub(crate) fn used(&mut self, mut input: Vec<u8>, used: usize) {
        input.drain(..used);
        self.plain = input;
    }

    /// Whether the session has to be told now that no more comes; once.
    pub(crate) fn takes_end(&mut self) -> bool {
        self.has_ended && self.is_open() && !std::mem::replace(&mut self.is_end_told, true)
    }

    /// Encrypts what the session sent in a call into `room`.
    pub(crate) fn encrypt(&mut self, plain: &[u8]) {
        self.connection.writer().write_all(plain).expect("memory takes everything");
    }

    /// After each call: sends what is encrypted, and ends where the session wants to.
    pub(crate) fn flush(&mut self, actions: &mut Actions<'_>) {
        if let Some(held) = actions.hold_ending() {
            self.connection.send_close_notify();
            (self.held, self.is_over) = (Some(held), true);
        }
        while self.connection.wants_write() && actions.room() > 0 {
            let written = self.connection.write_tls(&mut actions.spare());
            actions.advance(written.expect("memory takes what it has room for"));
        }
        if self.connection.wants_write() {
            actions.call_again();
        } else if let Some(held) = self.held.take() {
            actions.end(held);
        }
    }

    /// Whether something encrypted waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.connection.wants_write()
    }
}
