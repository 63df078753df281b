//! TLS between the loop and a session: what the session sends is encrypted, what comes is
//! decrypted before it sees it.
//!
//! ```text
//!            connected ─► handshake ─► the session's `connected`
//!   bytes ─► rustls ─► kept until used ─► the session ─► room ─► rustls ─► bytes
//! ```
//!
//! rustls does no I/O of its own: it takes bytes from the loop and gives bytes to it. The time of
//! the handshake belongs to the connect. A connection that ends without the peer's `close_notify`
//! counts as one that ended.

use std::io::{Read, Write};
use std::sync::Arc;

use pollux_engine::{Actions, Session};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::cause::Cause;
use crate::session::ClientSession;
use crate::shared::Shared;
use crate::tally::Fault;
use crate::trust::client_config;
use crate::{LoadError, Plan};

/// What it takes to encrypt the connections of a run.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// `None` when the plan's targets are not encrypted.
    ///
    /// # Errors
    /// The name of the target can't be in a certificate, or the certificates can't be read.
    pub(crate) fn of(plan: &Plan) -> Result<Option<Self>, LoadError> {
        let Some(target) = plan.targets.first() else { return Ok(None) };
        let Some(name) = &target.tls_name else { return Ok(None) };
        let name = ServerName::try_from(name.clone())
            .map_err(|error| LoadError::Url { url: target.url.clone(), why: error.to_string() })?;
        Ok(Some(Self { config: client_config(&plan.trust)?, name }))
    }

    /// `session` on a connection that will be encrypted.
    pub(crate) fn connection(&self, session: ClientSession) -> Encrypted {
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut tls = tls.expect("the configuration was checked when it was made");
        // What the session sends is bounded by the room that it has.
        tls.set_buffer_limit(None);
        Encrypted { inner: session, tls, plain: Vec::new(), is_open: false, has_ended: false }
    }
}

/// An encrypted connection, and the session on it.
#[derive(Debug)]
pub(crate) struct Encrypted {
    inner: ClientSession,
    tls: ClientConnection,
    /// Decrypted bytes that the session has not used yet.
    plain: Vec<u8>,
    /// The handshake is through.
    is_open: bool,
    /// The peer has said that it sends no more.
    has_ended: bool,
}

impl Encrypted {
    pub(crate) fn inner(&mut self) -> &mut ClientSession {
        &mut self.inner
    }

    pub(crate) fn into_inner(self) -> ClientSession {
        self.inner
    }

    /// The socket is connected: the handshake begins.
    pub(crate) fn connected(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        self.flush(actions);
    }

    pub(crate) fn on_bytes(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let mut rest = input;
        while !rest.is_empty() && !self.has_ended {
            if let Err(error) = self.decrypt(&mut rest) {
                // The alert that says why is still sent.
                self.flush(actions);
                self.fail(shared, actions, &error);
                return input.len();
            }
            self.pass_on(shared, actions);
        }
        if self.has_ended {
            // The peer may wait for our end before it closes the socket (RFC 8446, section 6.1).
            self.on_end(shared);
            self.tls.send_close_notify();
            actions.close();
        }
        self.flush(actions);
        input.len()
    }

    /// The peer will send no more.
    pub(crate) fn on_end(&mut self, shared: &mut Shared) {
        match (self.is_open, &mut self.inner) {
            (false, inner) => inner.failed_to_open(shared, &Cause::Ended),
            (true, ClientSession::Active(active)) => active.on_end(shared),
            (true, ClientSession::Crowd(member)) => member.on_end(shared),
            (true, ClientSession::Encrypted(_)) => unreachable!("encrypted once"),
        }
    }

    pub(crate) fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.flush(actions);
        if self.is_open && !self.tls.wants_write() {
            self.above(shared, actions, ClientSession::on_drained);
            self.flush(actions);
        }
    }

    pub(crate) fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if self.is_open {
            self.above(shared, actions, ClientSession::on_wake);
            self.flush(actions);
        }
    }

    pub(crate) fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.above(shared, actions, ClientSession::on_deadline);
        self.flush(actions);
    }

    /// Takes some of `rest`, and keeps what is decrypted of it.
    ///
    /// # Errors
    /// It is not TLS, or the peer can't be believed.
    fn decrypt(&mut self, rest: &mut &[u8]) -> Result<(), rustls::Error> {
        let unread = |error: std::io::Error| rustls::Error::General(error.to_string());
        self.tls.read_tls(rest).map_err(unread)?;
        let state = self.tls.process_new_packets()?;
        self.has_ended |= state.peer_has_closed();
        let len = state.plaintext_bytes_to_read();
        let at = self.plain.len();
        self.plain.resize(at + len, 0);
        match len {
            0 => Ok(()),
            _ => self.tls.reader().read_exact(&mut self.plain[at..]).map_err(unread),
        }
    }

    /// Tells the session that it is connected, and gives it what was decrypted.
    fn pass_on(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if !self.is_open && !self.tls.is_handshaking() {
            self.is_open = true;
            self.above(shared, actions, ClientSession::connected);
        }
        if self.is_open && !self.plain.is_empty() {
            let mut plain = std::mem::take(&mut self.plain);
            let used = self.above(shared, actions, |inner, shared, above| {
                inner.on_bytes(shared, above, &plain)
            });
            plain.drain(..used);
            self.plain = plain;
        }
    }

    /// Calls the session, and encrypts what it sends.
    fn above<R>(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut ClientSession, &mut Shared, &mut Actions<'_>) -> R,
    ) -> R {
        let mut room = std::mem::take(&mut shared.plain_room);
        room.resize(Actions::ROOM_MIN, 0);
        let inner = &mut self.inner;
        let (result, len) = actions.layered(&mut room, |above| call(inner, shared, above));
        self.tls.writer().write_all(&room[..len]).expect("memory takes everything");
        shared.plain_room = room;
        result
    }

    /// Sends what is encrypted, as far as there is room.
    fn flush(&mut self, actions: &mut Actions<'_>) {
        while self.tls.wants_write() && actions.room() > 0 {
            let written = self.tls.write_tls(&mut actions.spare());
            actions.advance(written.expect("memory takes what it has room for"));
        }
        if self.tls.wants_write() {
            actions.call_again();
        }
    }

    #[cold]
    fn fail(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, error: &rustls::Error) {
        if self.is_open {
            self.inner.broken(shared, actions, Fault::Tls);
        } else {
            self.inner.failed_to_open(shared, &Cause::Handshake(error));
            actions.close();
        }
    }
}
