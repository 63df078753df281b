//! A connection that speaks TLS: an [`HttpSession`] above it, which knows nothing of that.
//!
//! | deadline | in | what happens |
//! |---|---|---|
//! | header timeout, from the accept | the handshake | closed silently |
//! | what is left of it | then | as that of the first request |
//!
//! Its peer may end the connection without `close_notify` (RFC 8446 6.1): a request says itself where
//! it ends, so that a truncation on the network path costs at most what was not asked for yet.

use pollux_engine::{Actions, Now, Session};
use pollux_tls::Error;

use super::{HttpSession, client_of};
use crate::Shared;
use crate::counters::ServerCounter;
use crate::log::Event;
use crate::tls::{Above, Tls};

/// The server's side of one connection in TLS.
#[derive(Debug)]
pub struct EncryptedSession {
    http: HttpSession,
    tls: Tls,
}

impl Session for EncryptedSession {
    type Shared = Shared;

    fn begin_turn(shared: &mut Shared, now: Now) {
        shared.begin_turn(now);
    }

    fn end_turn(shared: &mut Shared) {
        shared.end_turn();
    }

    fn accepted(shared: &mut Shared, actions: &mut Actions<'_>) -> Self {
        let http = HttpSession::accepted(shared, actions);
        let config = shared.tls.as_ref().expect("loops that speak TLS have a certificate");
        Self { http, tls: Tls::accepted(config) }
    }

    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        self.tls.on_bytes(&mut self.http, shared, actions, input)
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.tls.on_end(&mut self.http, shared, actions);
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.tls.on_drained(&mut self.http, shared, actions);
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        if self.tls.is_in_handshake() {
            shared.counters.add(ServerCounter::TimeoutsHandshake, 1);
            return actions.close();
        }
        self.tls.call(&mut self.http, shared, actions, HttpSession::on_deadline);
    }

    fn on_drain(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.tls.call(&mut self.http, shared, actions, HttpSession::on_drain);
    }
}

impl Above for HttpSession {
    type Shared = Shared;

    fn plain_room(shared: &mut Shared) -> &mut Vec<u8> {
        &mut shared.plain_room
    }

    fn opened(&mut self, shared: &mut Shared, _: &mut Actions<'_>, is_resumed: bool) {
        shared.counters.count_handshake(is_resumed);
    }

    #[cold]
    fn tls_failed(&mut self, shared: &mut Shared, actions: &Actions<'_>, error: Option<&Error>) {
        // A client that ends the connection in its handshake, as checks of ports do, asks for nothing.
        let Some(error) = error else { return };
        shared.counters.add(ServerCounter::TlsFailed, 1);
        shared.logs.errors.report(Event::RequestRefused, shared.now.unix_s, || {
            let client = client_of(actions);
            match error {
                Error::InvalidMessage(_) => {
                    format!("{client} does not speak TLS, which this server does: use https://")
                }
                error => format!("{client}: {error}"),
            }
        });
    }

    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        Session::on_bytes(self, shared, actions, input)
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        Session::on_end(self, shared, actions);
    }

    fn on_cut(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        Session::on_end(self, shared, actions);
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        Session::on_drained(self, shared, actions);
    }
}
