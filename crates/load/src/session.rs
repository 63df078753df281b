//! A connection of the generator, as the loops see it: an active one, or one of the crowd.
//!
//! The engine calls it; it only passes on, through TLS where the target is encrypted. Both kinds
//! are small here, for the crowd may be large.
//!
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

use std::io;
use std::sync::Arc;

use pollux_engine::{Actions, CloseCause, Now, Session};
use pollux_tls::{ClientConfig, HTTP_1_1, Layer, ServerName, server_name, without_resumption};

use crate::active::Active;
use crate::crowd::Member;
use crate::shared::Shared;
use crate::tally::{Cause, Fault};
use crate::{LoadError, Plan};

/// One connection of the generator.
#[derive(Debug)]
pub(crate) enum ClientSession {
    /// It sends requests as the pace says.
    Active(Box<Active>),
    /// It is only there.
    Crowd(Member),
    /// One of the two, encrypted.
    Encrypted(Box<Encrypted>),
}

const _: () = assert!(size_of::<ClientSession>() <= 40, "thousands stand beside the active ones");

macro_rules! either {
    ($self:ident, $each:ident => $body:expr) => {
        match $self {
            Self::Active($each) => $body,
            Self::Crowd($each) => $body,
            Self::Encrypted($each) => $body,
        }
    };
}

impl Session for ClientSession {
    type Shared = Shared;

    fn begin_turn(shared: &mut Shared, now: Now) {
        shared.begin_turn(now);
    }

    fn end_turn(shared: &mut Shared) {
        shared.end_turn();
    }

    fn accepted(_: &mut Shared, _: &mut Actions<'_>) -> Self {
        unreachable!("a generator has no listener")
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.connected(shared, actions));
    }

    fn connect_failed(&mut self, shared: &mut Shared, error: io::Error) {
        self.failed_to_open(shared, &Cause::System(&error));
    }

    #[inline]
    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        shared.has_worked = true;
        either!(self, each => each.on_bytes(shared, actions, input))
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        either!(self, each => each.on_end(shared));
        if actions.is_output_waiting() {
            // Nothing is answered any more.
            actions.abort();
        } else {
            actions.close();
        }
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        match self {
            Self::Active(active) => active.send(shared, actions),
            Self::Crowd(_) => {}
            Self::Encrypted(encrypted) => encrypted.on_drained(shared, actions),
        }
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.on_deadline(shared, actions));
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        match self {
            Self::Active(active) => active.send(shared, actions),
            Self::Crowd(_) => {}
            Self::Encrypted(encrypted) => encrypted.on_wake(shared, actions),
        }
    }

    /// The generator's loops are never drained: the worker sees to the end itself.
    fn on_drain(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.close();
    }

    fn output_lost(&mut self, bytes: u64) {
        match self {
            Self::Active(active) => active.output_lost(bytes),
            Self::Crowd(_) => {}
            // In records: a little more than there was of the request.
            Self::Encrypted(encrypted) => encrypted.inner().output_lost(bytes),
        }
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        shared.has_worked = true;
        match self {
            Self::Active(active) => active.closed(shared, cause),
            Self::Crowd(member) => member.closed(shared, cause),
            Self::Encrypted(encrypted) => encrypted.into_inner().closed(shared, cause),
        }
    }
}

impl ClientSession {
    /// Books that it did not come to a connection.
    pub(crate) fn failed_to_open(&mut self, shared: &mut Shared, cause: &Cause<'_>) {
        match self {
            Self::Active(active) => active.failed_to_open(shared, cause),
            // Counted by its end.
            Self::Crowd(_) => {}
            Self::Encrypted(encrypted) => encrypted.inner().failed_to_open(shared, cause),
        }
    }

    /// Books that what came can't be understood, and gives the connection up.
    pub(crate) fn broken(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, fault: Fault) {
        if let Self::Active(active) = self {
            active.give_up(shared, actions, fault, 0);
        }
        actions.abort();
    }

    /// The active connection in it, when it is one.
    pub(crate) fn into_active(self) -> Option<Box<Active>> {
        match self {
            Self::Active(active) => Some(active),
            Self::Crowd(_) => None,
            Self::Encrypted(encrypted) => encrypted.into_inner().into_active(),
        }
    }
}

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
    /// The session knows that it is connected.
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
        while !rest.is_empty() && !self.tls.is_closed() && !actions.is_ending() {
            if let Err(error) = self.tls.decrypt(&mut rest) {
                // The alert that says why is still sent.
                self.flush(actions);
                self.fail(shared, actions, &error);
                return input.len();
            }
            self.pass_on(shared, actions);
        }
        if self.tls.is_closed() && !actions.is_ending() {
            // The peer may wait for our end before it closes the socket (RFC 8446, section 6.1).
            self.on_end(shared);
            self.tls.close();
            if actions.is_output_waiting() {
                actions.abort();
            } else {
                actions.close();
            }
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

    /// Notifies the session that it is connected, and passes on what was decrypted.
    fn pass_on(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.flush(actions);
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
        if self.tls.wants_write() {
            actions.hold_output();
        }
        let (result, len) = actions.layered(&mut room, |above| call(inner, shared, above));
        self.tls.encrypt(&room[..len]);
        shared.plain_room = room;
        result
    }

    /// Sends what is encrypted, as far as it fits.
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
