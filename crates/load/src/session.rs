//! A connection of the generator, as the loops see it: an active one, or one of the crowd.
//!
//! The engine calls it; it only passes on, through TLS where the target is encrypted. Both kinds
//! are small here, for the crowd may be large.
//!
//! The time of a handshake of TLS belongs to the connect. A connection that ends without the peer's `close_notify`
//! counts as one that ended.

use std::io;
use std::sync::Arc;

use pollux_engine::{Actions, CloseCause, Now, Session};
use pollux_tls::{
    ClientConfig, Encrypted, Error, PlaintextSession, ServerName, server_name, without_resumption,
};

use crate::active::Active;
use crate::crowd::Member;
use crate::shared::Shared;
use crate::tally::{Cause, Fault};
use crate::{LoadError, Plan};

/// One connection of the generator.
#[derive(Debug)]
pub(crate) enum ClientSession {
    Plain(Client),
    Encrypted(Box<Encrypted<Client>>),
}

/// What it is for.
#[derive(Debug)]
pub(crate) enum Client {
    /// It sends requests as the pace says.
    Active(Box<Active>),
    /// It is only there.
    Crowd(Member),
}

const _: () = assert!(size_of::<ClientSession>() <= 40, "thousands stand beside the active ones");

macro_rules! either {
    ($self:ident, $each:ident => $body:expr) => {
        match $self {
            Self::Plain($each) => $body,
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
        either!(self, each => each.on_end(shared, actions));
    }

    fn on_output_sent(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.on_output_sent(shared, actions));
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.on_deadline(shared, actions));
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.has_worked = true;
        either!(self, each => each.on_wake(shared, actions));
    }

    /// The generator's loops are never drained: the worker sees to the end itself.
    fn on_shutdown(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.close();
    }

    fn output_lost(&mut self, bytes: u64) {
        either!(self, each => each.output_lost(bytes));
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        shared.has_worked = true;
        either!(self, each => each.closed(shared, cause));
    }
}

impl ClientSession {
    /// Books that it did not come to a connection.
    pub(crate) fn failed_to_open(&mut self, shared: &mut Shared, cause: &Cause<'_>) {
        let client = match self {
            Self::Plain(client) => client,
            Self::Encrypted(encrypted) => encrypted.session_mut(),
        };
        client.failed_to_open(shared, cause);
    }

    /// The active connection in it, when it is one.
    pub(crate) fn into_active(self) -> Option<Box<Active>> {
        let client = match self {
            Self::Plain(client) => client,
            Self::Encrypted(encrypted) => encrypted.into_session(),
        };
        match client {
            Client::Active(active) => Some(active),
            Client::Crowd(_) => None,
        }
    }
}

/// On plain bytes: those of the connection, or decrypted ones.
impl Session for Client {
    type Shared = Shared;

    fn accepted(_: &mut Shared, _: &mut Actions<'_>) -> Self {
        unreachable!("a generator has no listener")
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Active(active) => active.connected(shared, actions),
            Self::Crowd(member) => member.connected(shared, actions),
        }
    }

    #[inline]
    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        match self {
            Self::Active(active) => active.on_bytes(shared, actions, input),
            Self::Crowd(member) => member.on_bytes(shared, actions, input),
        }
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Active(active) => active.on_end(shared),
            Self::Crowd(member) => member.on_end(shared),
        }
        if actions.is_output_waiting() {
            // Nothing is answered any more.
            actions.abort();
        } else {
            actions.close();
        }
    }

    fn on_output_sent(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Active(active) => active.send(shared, actions),
            Self::Crowd(_) => {}
        }
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Active(active) => active.on_deadline(shared, actions),
            Self::Crowd(member) => member.on_deadline(shared, actions),
        }
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Active(active) => active.send(shared, actions),
            Self::Crowd(_) => {}
        }
    }

    fn output_lost(&mut self, bytes: u64) {
        match self {
            Self::Active(active) => active.output_lost(bytes),
            Self::Crowd(_) => {}
        }
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        match self {
            Self::Active(active) => active.closed(shared, cause),
            Self::Crowd(member) => member.closed(shared, cause),
        }
    }
}

impl Client {
    /// Books that it did not come to a connection, of the crowd by its end.
    fn failed_to_open(&mut self, shared: &mut Shared, cause: &Cause<'_>) {
        if let Self::Active(active) = self {
            active.failed_to_open(shared, cause);
        }
    }
}

impl PlaintextSession for Client {
    fn plain_room(shared: &mut Shared) -> &mut Vec<u8> {
        &mut shared.plain_room
    }

    fn agreed(&mut self, _: &mut Shared, protocol: &[u8]) {
        match self {
            Self::Active(active) => active.agreed(protocol),
            Self::Crowd(_) => {}
        }
    }

    #[cold]
    fn tls_failed(&mut self, shared: &mut Shared, _: &Actions<'_>, error: Option<&Error>) {
        match self {
            Self::Active(active) if active.is_connected() => active.broken(shared, Fault::Tls),
            client => {
                let cause = error.map_or(Cause::Ended, Cause::Handshake);
                client.failed_to_open(shared, &cause);
            }
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
        let config = plan.trust.config(plan.http.offered().iter().copied());
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

    /// `client` on a connection that will be encrypted.
    pub(crate) fn connection(&self, client: Client) -> Encrypted<Client> {
        Encrypted::new(client, pollux_tls::Tls::outgoing(&self.config, &self.name))
    }
}
