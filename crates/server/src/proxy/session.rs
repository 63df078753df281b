//! What a connection of a proxy is: a client's, one to a backend for requests, or for a look at it.

use std::io;

use pollux_engine::{Actions, CloseCause, Errand, Moment, Now, Session};

use super::check::Look;
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
    Look(Look),
}

impl ProxySession {
    /// What runs on the upstream connection with this number.
    pub(super) fn upstream(link: u32) -> Self {
        Self(Side::Upstream(Upstream::new(link)))
    }

    /// A check of the backend at this place.
    pub(super) fn look(backend: usize) -> Self {
        Self(Side::Look(Look::new(backend)))
    }
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

    fn errand_at(shared: &ProxyShared) -> Moment {
        shared.errand_at()
    }

    fn accepted(shared: &mut ProxyShared, actions: &mut Actions<'_>) -> Self {
        Self(Side::Client(Client::accepted(shared, actions)))
    }

    fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.0 {
            Side::Upstream(upstream) => upstream.connected(shared, actions),
            Side::Look(look) => look.connected(shared, actions),
            Side::Client(_) => {}
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
        match &mut self.0 {
            Side::Client(client) => client.on_bytes(shared, actions, input),
            Side::Upstream(upstream) => upstream.on_bytes(shared, actions, input),
            Side::Look(look) => look.on_bytes(shared, actions, input),
        }
    }

    fn on_end(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.0 {
            Side::Client(client) => client.on_end(shared, actions),
            Side::Upstream(upstream) => upstream.on_end(shared, actions),
            Side::Look(look) => look.give_up(actions),
        }
    }

    fn on_drained(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.0 {
            Side::Client(client) => client.on_drained(shared, actions),
            Side::Upstream(upstream) => upstream.on_drained(shared, actions),
            Side::Look(_) => {}
        }
    }

    fn on_deadline(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.0 {
            Side::Client(client) => client.on_deadline(shared, actions),
            Side::Upstream(upstream) => upstream.on_deadline(shared, actions),
            Side::Look(look) => look.give_up(actions),
        }
    }

    fn on_wake(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.0 {
            Side::Client(client) => client.on_wake(shared, actions),
            Side::Upstream(upstream) => upstream.on_wake(shared, actions),
            Side::Look(_) => {}
        }
    }

    fn on_drain(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        shared.is_draining = true;
        match &mut self.0 {
            Side::Client(client) => client.on_drain(shared, actions),
            Side::Upstream(upstream) => upstream.on_drain(shared, actions),
            Side::Look(look) => look.give_up(actions),
        }
    }

    fn closed(self, shared: &mut ProxyShared, _: CloseCause) {
        match self.0 {
            Side::Client(client) => client.closed(shared),
            Side::Upstream(upstream) => upstream.closed(shared),
            Side::Look(look) => look.closed(shared),
        }
    }
}
