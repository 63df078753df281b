//! Bytes that go from one connection to another through a pipe, past the memory of the process (splice(2)): those of TCP
//! mode, and long bodies of HTTP.
//!
//! ```text
//!  head, and what came with it ─► on_bytes ─► bytes of the message ─┐
//!  rest of the body ─► on_readable ─► pipe, behind these bytes ─────┴─► output of the other side
//! ```
//!
//! A body goes this way where nothing is changed of it and its end is known without a look at it: a known length, or the end of
//! the connection, no TLS on either side, no framing anew, nothing kept for a second try. What stands behind it is never in a
//! pipe: the kernel is asked for what is left of the body and no more.

use std::sync::Arc;

use pollux_engine::{Actions, Pipe, SplicedIn};

use crate::exchange::direction::Side;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::fault::ProxyCounter;
use crate::ids::ExchangeId;

/// Less of a body than this goes through buffers: a copy costs less then than the calls that save it.
const SPLICED_BYTES_MIN: u64 = 32 * 1024;

impl ProxyLoop {
    /// Has what follows of a body stay in the socket where it is so much that a pipe is cheaper than buffers, and its last bytes
    /// too: a receive for them would bring of what follows whatever came. Behind one that was as long another one may come.
    pub(crate) fn leave_long_body(&self, at: ExchangeId, side: Side, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get(at);
        let left = exchange.spliceable(side);
        let sent = exchange.sent_by(side);
        if left.is_none_or(|left| left < SPLICED_BYTES_MIN && !sent.is_spliced()) {
            if exchange.may_splice && sent.was_long(SPLICED_BYTES_MIN) {
                actions.receive_little();
            }
            return actions.take_input();
        }
        if self.pipes.has_one() {
            actions.leave_input();
        } else {
            self.proxied.count(ProxyCounter::PipesMissing);
            actions.take_input();
        }
    }

    /// Takes what is in the socket of a body into a pipe, unless that is full; says how many bytes that were. Without a
    /// pipe they come by `on_bytes`, as does what is behind the body.
    pub(crate) fn splice_body(
        &mut self,
        at: ExchangeId,
        side: Side,
        actions: &mut Actions<'_>,
    ) -> u64 {
        let exchange = self.exchanges.get_mut(at);
        let Some(left) = exchange.spliceable(side) else {
            actions.take_input();
            return 0;
        };
        if exchange.direction(side).is_full() {
            return 0;
        }
        let Some((pipe, bytes)) = self.splice_in(left, actions) else { return 0 };
        let direction = self.exchanges.get_mut(at).direction(side);
        if direction.take_piped_body(pipe, bytes) {
            self.proxied.count(ProxyCounter::BodiesSpliced);
        }
        if direction.is_whole() {
            actions.take_input();
            actions.receive_little();
        }
        bytes
    }

    /// Takes what is in the socket, `bytes_max` bytes of it at most, into a pipe. None when nothing is there, and without a
    /// pipe: then it comes by `on_bytes`.
    pub(crate) fn splice_in(
        &mut self,
        bytes_max: u64,
        actions: &mut Actions<'_>,
    ) -> Option<(Arc<Pipe>, u64)> {
        let Some(pipe) = self.pipes.take() else {
            self.proxied.count(ProxyCounter::PipesMissing);
            actions.take_input();
            return None;
        };
        match actions.splice_in(&pipe, bytes_max) {
            SplicedIn::Bytes(bytes) => return Some((pipe, bytes)),
            SplicedIn::Nothing | SplicedIn::Over => self.pipes.put(pipe),
            SplicedIn::Refused => {
                self.pipes.give_up(pipe);
                self.pipes.stop();
                actions.take_input();
            }
        }
        None
    }
}
