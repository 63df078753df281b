//! What a connection of a proxy is: a client's, or one to a backend.

use std::io;

use pollux_engine::{Actions, CloseCause, Errand, Now, Session};

use super::client::Client;
use super::shared::ProxyShared;
use super::upstream::Upstream;

/// One connection of a proxy.
#[derive(Debug)]
pub struct ProxySession(Side);

#[derive(Debug)]
enum Side {
    Client(Client),
    Upstream(Upstream),
}

impl ProxySession {
    /// What runs on the upstream connection with this number.
    pub(super) fn upstream(link: u32) -> Self {
        Self(Side::Upstream(Upstream::new(link)))
    }
}

macro_rules! either {
    ($self:ident, $side:ident => $body:expr) => {
        match &mut $self.0 {
            Side::Client($side) => $body,
            Side::Upstream($side) => $body,
        }
    };
}

impl Session for ProxySession {
    type Shared = ProxyShared;

    fn begin_turn(shared: &mut ProxyShared, now: Now) {
        shared.begin_turn(now);
    }

    fn end_turn(shared: &mut ProxyShared) {
        shared.end_turn();
    }

    fn errand(shared: &mut ProxyShared) -> Option<Errand<Self>> {
        shared.errand()
    }

    fn accepted(shared: &mut ProxyShared, actions: &mut Actions<'_>) -> Self {
        Self(Side::Client(Client::accepted(shared, actions)))
    }

    fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        if let Side::Upstream(upstream) = &mut self.0 {
            upstream.connected(shared, actions);
        }
    }

    fn connect_failed(&mut self, shared: &mut ProxyShared, error: io::Error) {
        if let Side::Upstream(upstream) = &mut self.0 {
            upstream.connect_failed(shared, &error);
        }
    }

    fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        either!(self, side => side.on_bytes(shared, actions, input))
    }

    fn on_end(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        either!(self, side => side.on_end(shared, actions));
    }

    fn on_drained(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        either!(self, side => side.on_drained(shared, actions));
    }

    fn on_deadline(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        either!(self, side => side.on_deadline(shared, actions));
    }

    fn on_wake(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        either!(self, side => side.on_wake(shared, actions));
    }

    fn on_drain(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        shared.is_draining = true;
        either!(self, side => side.on_drain(shared, actions));
    }

    fn closed(self, shared: &mut ProxyShared, _: CloseCause) {
        match self.0 {
            Side::Client(client) => client.closed(shared),
            Side::Upstream(upstream) => upstream.closed(shared),
        }
    }
}
