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

use std::sync::Arc;

use pollux_engine::{Actions, Session};
use pollux_tls::{ClientConfig, HTTP_1_1, Layer, ServerName, server_name, without_resumption};

use crate::cause::Cause;
use crate::session::ClientSession;
use crate::shared::Shared;
use crate::tally::Fault;
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
        let name =
            server_name(name).map_err(|why| LoadError::Url { url: target.url.clone(), why })?;
        let config = plan.trust.config(Some(HTTP_1_1));
        let config =
            config.map_err(|error| LoadError::Plan { what: "--cacert", why: error.to_string() })?;
        let config = match &plan.identity {
            Some(keys) => keys
                .shown_by(&config)
                .map_err(|error| LoadError::Plan { what: "--cert", why: error.to_string() })?,
            None => config,
        };
        let config = if plan.resumes { config } else { without_resumption(&config) };
        Ok(Some(Self { config, name }))
    }

    /// `session` on a connection that will be encrypted.
    pub(crate) fn connection(&self, session: ClientSession) -> Encrypted {
        let tls = Layer::client(&self.config, &self.name);
        Encrypted { inner: session, tls, is_open: false }
    }
}

/// An encrypted connection, and the session on it.
#[derive(Debug)]
pub(crate) struct Encrypted {
    inner: ClientSession,
    tls: Layer,
    /// The session was told that it is connected.
    is_open: bool,
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
        while !rest.is_empty() && !self.tls.is_closed() {
            if let Err(error) = self.tls.decrypt(&mut rest) {
                // The alert that says why is still sent.
                self.flush(actions);
                self.fail(shared, actions, &error);
                return input.len();
            }
            self.pass_on(shared, actions);
        }
        if self.tls.is_closed() {
            // The peer may wait for our end before it closes the socket (RFC 8446, section 6.1).
            self.on_end(shared);
            self.tls.close();
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

    /// Tells the session that it is connected, and gives it what was decrypted.
    fn pass_on(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if !self.is_open && self.tls.is_open() {
            self.is_open = true;
            self.above(shared, actions, ClientSession::connected);
        }
        if self.is_open && self.tls.has_input() {
            let plain = self.tls.take_input();
            let used = self.above(shared, actions, |inner, shared, above| {
                inner.on_bytes(shared, above, &plain)
            });
            self.tls.used(plain, used);
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
        self.tls.encrypt(&room[..len]);
        shared.plain_room = room;
        result
    }

    /// Sends what is encrypted, as far as there is room.
    fn flush(&mut self, actions: &mut Actions<'_>) {
        while self.tls.wants_write() && actions.room() > 0 {
            let written = self.tls.write(actions.spare());
            actions.advance(written);
        }
        if self.tls.wants_write() {
            actions.call_again();
        }
    }

    #[cold]
    fn fail(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, error: &pollux_tls::Error) {
        if self.is_open {
            self.inner.broken(shared, actions, Fault::Tls);
        } else {
            self.inner.failed_to_open(shared, &Cause::Handshake(error));
            actions.close();
        }
    }
}
