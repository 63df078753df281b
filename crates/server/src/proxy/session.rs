//! What a connection of a proxy is: a client's, one to a backend for requests, or for a look at it.

use std::io;

use pollux_engine::{Actions, CloseCause, Errand, Moment, Now, Session};
use pollux_http::ProxyHeader;
use pollux_poller::Waker;

use super::check::Look;
use super::client::Client;
use super::config::Mode;
use super::secured;
use super::shared::ProxyShared;
use super::stream::Stream;
use super::upstream::Upstream;
use crate::tls::Tls;

/// One connection of a proxy.
#[derive(Debug)]
pub struct ProxySession {
    side: Side,
    /// A head of the PROXY protocol has to come first.
    awaits_header: bool,
    /// What lies between the side and the connection.
    tls: Option<Box<Tls>>,
}

#[derive(Debug)]
enum Side {
    Client(Client),
    Upstream(Upstream),
    Look(Look),
    Stream(Stream),
}

impl ProxySession {
    /// What runs on the upstream connection with this number.
    pub(super) fn upstream(link: u32) -> Self {
        Self::of(Side::Upstream(Upstream::new(link)))
    }

    /// A check of the backend at this place.
    pub(super) fn look(backend: usize) -> Self {
        Self::of(Side::Look(Look::new(backend)))
    }

    /// What runs on the connection to the backend of this pair.
    pub(super) fn stream(pair: u32) -> Self {
        Self::of(Side::Stream(Stream::to_backend(pair)))
    }

    fn of(side: Side) -> Self {
        Self { side, awaits_header: false, tls: None }
    }

    /// Reads the head that says whose connection it is; the client's side gets what follows.
    fn on_header(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match ProxyHeader::parse(input) {
            Ok(None) => 0,
            Ok(Some((header, len))) => {
                self.awaits_header = false;
                match &mut self.side {
                    Side::Client(client) => client.belongs_to(header),
                    Side::Stream(stream) => stream.begin(shared, actions, Some(header)),
                    Side::Upstream(_) | Side::Look(_) => {}
                }
                let rest = &input[len..];
                len + if rest.is_empty() { 0 } else { self.on_bytes(shared, actions, rest) }
            }
            Err(wrong) => {
                shared.refuse_header(&wrong);
                actions.abort();
                input.len()
            }
        }
    }
}

impl Session for ProxySession {
    type Shared = ProxyShared;

    fn opened(shared: &mut ProxyShared, waker: &Waker) {
        shared.opened(waker);
    }

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
        let (place, front) = shared.front(actions);
        let tls = shared.entrances.secured(place).map(|config| Box::new(Tls::new(config)));
        let (mode, group, awaits_header) = (front.mode, front.group, front.accepts_header);
        let side = match mode {
            Mode::Http => {
                let is_secure = tls.is_some();
                Side::Client(Client::accepted(shared, actions, place, group, is_secure))
            }
            Mode::Tcp => {
                let mut stream = Stream::accepted(shared, actions, group);
                if !awaits_header {
                    stream.begin(shared, actions, None);
                }
                Side::Stream(stream)
            }
        };
        Self { side, awaits_header, tls }
    }

    fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.side {
            Side::Upstream(upstream) => upstream.connected(shared, actions),
            Side::Stream(stream) => stream.connected(shared, actions),
            Side::Look(look) => look.connected(shared, actions),
            Side::Client(_) => {}
        }
    }

    fn connect_failed(&mut self, shared: &mut ProxyShared, error: io::Error) {
        match &mut self.side {
            Side::Upstream(upstream) => upstream.connect_failed(shared, &error),
            Side::Stream(stream) => stream.connect_failed(shared, &error),
            Side::Client(_) | Side::Look(_) => {}
        }
    }

    fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if self.awaits_header {
            return self.on_header(shared, actions, input);
        }
        if let (Some(tls), Side::Client(client)) = (&mut self.tls, &mut self.side) {
            return secured::on_bytes(tls, client, shared, actions, input);
        }
        match &mut self.side {
            Side::Client(client) => client.on_bytes(shared, actions, input),
            Side::Upstream(upstream) => upstream.on_bytes(shared, actions, input),
            Side::Stream(stream) => stream.on_bytes(shared, actions, input),
            Side::Look(look) => look.on_bytes(shared, actions, input),
        }
    }

    fn on_end(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        if let (Some(tls), Side::Client(client)) = (&mut self.tls, &mut self.side) {
            return secured::on_end(tls, client, shared, actions);
        }
        match &mut self.side {
            Side::Client(client) => client.on_end(shared, actions),
            Side::Upstream(upstream) => upstream.on_end(shared, actions),
            Side::Stream(stream) => stream.on_end(shared, actions),
            Side::Look(look) => look.give_up(actions),
        }
    }

    fn on_drained(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        if let (Some(tls), Side::Client(client)) = (&mut self.tls, &mut self.side) {
            return secured::on_drained(tls, client, shared, actions);
        }
        match &mut self.side {
            Side::Client(client) => client.on_drained(shared, actions),
            Side::Upstream(upstream) => upstream.on_drained(shared, actions),
            Side::Stream(stream) => stream.on_drained(shared, actions),
            Side::Look(_) => {}
        }
    }

    fn on_deadline(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        if let (Some(tls), Side::Client(client)) = (&mut self.tls, &mut self.side) {
            return secured::call(tls, client, shared, actions, Client::on_deadline);
        }
        match &mut self.side {
            Side::Client(client) => client.on_deadline(shared, actions),
            Side::Upstream(upstream) => upstream.on_deadline(shared, actions),
            Side::Stream(stream) => stream.on_deadline(shared, actions),
            Side::Look(look) => look.give_up(actions),
        }
    }

    fn on_wake(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        if let (Some(tls), Side::Client(client)) = (&mut self.tls, &mut self.side) {
            return secured::call(tls, client, shared, actions, Client::on_wake);
        }
        match &mut self.side {
            Side::Client(client) => client.on_wake(shared, actions),
            Side::Upstream(upstream) => upstream.on_wake(shared, actions),
            Side::Stream(stream) => stream.on_wake(shared, actions),
            Side::Look(_) => {}
        }
    }

    fn on_drain(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        shared.is_draining = true;
        if let (Some(tls), Side::Client(client)) = (&mut self.tls, &mut self.side) {
            return secured::call(tls, client, shared, actions, Client::on_drain);
        }
        match &mut self.side {
            Side::Client(client) => client.on_drain(shared, actions),
            Side::Upstream(upstream) => upstream.on_drain(shared, actions),
            // Nothing says where a stream could end: it has the time of the drain.
            Side::Stream(_) => {}
            Side::Look(look) => look.give_up(actions),
        }
    }

    fn closed(self, shared: &mut ProxyShared, cause: CloseCause) {
        match self.side {
            Side::Client(client) => client.closed(shared),
            Side::Upstream(upstream) => upstream.closed(shared, cause),
            Side::Stream(stream) => stream.closed(shared),
            Side::Look(look) => look.closed(shared),
        }
    }
}
