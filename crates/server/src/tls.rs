//! TLS below a session: what comes is decrypted before the session sees it, what it sends is encrypted.
//!
//! ```text
//!  bytes ─► Layer ─► plain, kept until used ─► the session ─► room ─► Layer ─► bytes
//! ```
//!
//! A session's wish to close waits until its last bytes and the `close_notify` behind them have been
//! handed over; its wish to end its output becomes a `close_notify`.

use std::sync::Arc;

use pollux_engine::{Actions, HeldEnding};
use pollux_tls::{ClientConfig, Layer, ServerConfig, ServerName};
pub use pollux_tls::{Keys, TlsError, Trust};

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    layer: Layer,
    /// The peer has said that it sends no more, or has gone.
    has_ended: bool,
    /// The session was told so.
    is_end_told: bool,
    /// The session has ended; it is not called any more.
    held: Option<HeldEnding>,
    is_over: bool,
    output: Output,
}

/// How far the end of the session's output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    Goes,
    /// It is said; the connection's output ends when that has left.
    IsSaid,
    Ended,
}

/// How an input ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InputEnd {
    /// The peer said so.
    Said,
    /// Only the transport did: more may have been meant to come.
    Cut,
}

impl Tls {
    /// Of a client.
    pub(crate) fn accepted(config: &Arc<ServerConfig>) -> Self {
        Self::of(Layer::server(config))
    }

    /// Of a server that is connected to.
    pub(crate) fn outgoing(config: &Arc<ClientConfig>, name: &ServerName<'static>) -> Self {
        Self::of(Layer::client(config, name))
    }

    fn of(layer: Layer) -> Self {
        let (has_ended, is_end_told, held, is_over) = (false, false, None, false);
        Self { layer, has_ended, is_end_told, held, is_over, output: Output::Goes }
    }

    /// Whether the handshake is through and the session may still be called.
    pub(crate) fn is_open(&self) -> bool {
        self.layer.is_open() && !self.is_over
    }

    /// Whether the session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes some of `rest`, and keeps what is decrypted of it.
    ///
    /// # Errors
    /// It is not TLS, nothing that both sides can speak, or the peer can't be believed.
    pub(crate) fn decrypt(&mut self, rest: &mut &[u8]) -> Result<(), pollux_tls::Error> {
        if self.has_ended || self.is_over {
            *rest = &[];
            return Ok(());
        }
        self.layer.decrypt(rest)?;
        self.has_ended |= self.layer.is_closed();
        Ok(())
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// What the session has to be shown now, if it takes input: [`Tls::used`] says what became of it.
    pub(crate) fn input(&mut self) -> Option<Vec<u8>> {
        let is_due = self.is_open() && self.layer.has_input() && !self.layer.wants_write();
        is_due.then(|| self.layer.take_input())
    }

    /// The session has used so much of `input`.
    pub(crate) fn used(&mut self, input: Vec<u8>, used: usize) {
        self.layer.used(input, used);
    }

    /// How the input has ended, when the session has to be told so now; once.
    pub(crate) fn takes_end(&mut self) -> Option<InputEnd> {
        let is_quiet = !self.layer.wants_write();
        let is_due = self.has_ended && self.is_open() && is_quiet && !self.is_end_told;
        self.is_end_told |= is_due;
        let end = if self.layer.is_closed() { InputEnd::Said } else { InputEnd::Cut };
        is_due.then_some(end)
    }

    /// Encrypts what the session sent in a call into `room`.
    pub(crate) fn encrypt(&mut self, plain: &[u8]) {
        self.layer.encrypt(plain);
    }

    /// After each call: sends what is encrypted, and ends where the session wants to.
    pub(crate) fn flush(&mut self, actions: &mut Actions<'_>) {
        let held = actions.hold_ending();
        if (actions.hold_output_end() || held.is_some()) && self.output == Output::Goes {
            self.layer.close();
            self.output = Output::IsSaid;
        }
        if held.is_some() {
            (self.held, self.is_over) = (held, true);
        }
        while self.layer.wants_write() && actions.room() > 0 {
            let written = self.layer.write(actions.spare());
            actions.advance(written);
        }
        if self.layer.wants_write() {
            actions.call_again();
        } else if let Some(held) = self.held.take() {
            actions.end(held);
        } else if self.output == Output::IsSaid {
            self.output = Output::Ended;
            actions.end_output();
        }
    }

    /// Whether something encrypted waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.layer.wants_write()
    }
}
