//! How the readiness loop comes to a peer: the socket is watched for room as a full one is.
//!
//! The table tells the kernel of reading along with it, so an edge trigger needs one call for
//! the whole life, and a level trigger one more to let go of writing.

use rustix::io::Errno;

use super::receiving::NOTHING;
use super::{ReadinessLoop, socket};
use crate::connecting::{Begun, ConnectError, ConnectTo, begin, outcome};
use crate::conversation::{Conversation, Occasion, Progress};
use crate::ending::Tail;
use crate::output::Output;
use crate::{CloseCause, ConnectionId, Counter, Moment, Session};
use pollux_poller::Token;

impl<S: Session> ReadinessLoop<S> {
    /// Begins a connection to a peer and a session on it.
    pub(crate) fn connect(
        &mut self,
        to: &ConnectTo,
        session: S,
        deadline: Moment,
    ) -> Result<ConnectionId, (S, ConnectError)> {
        if let Some(connections_max) = self.limits.connects_full(self.open, self.outgoing) {
            return Err((session, ConnectError::LoopFull { connections_max }));
        }
        let Begun { socket, is_in_progress } = match begin(to) {
            Ok(begun) => begun,
            Err(error) => return Err((session, error)),
        };
        self.counters.count(Counter::Connects);
        let conversation = Conversation::connecting(session, deadline);
        Ok(self.insert(socket, |_, _, io| {
            *io.tail = Tail::Waiting(Box::new(Output::connecting(is_in_progress)));
            (conversation, Ok(Progress::Idle))
        }))
    }

    /// A connect has come to its end.
    pub(super) fn connected(&mut self, token: Token) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        if let Err(errno) = outcome(socket(&self.table, token)) {
            return self.connect_failed(token, errno);
        }
        self.table.stop_write(token);
        output.connected();
        connection.flow.sent(0, self.clock.now().at, &self.limits);
        if output.is_empty() {
            connection.tail = Tail::None;
            connection.conversation.output_left();
        }
        self.play(token, Some(Occasion::Connected), NOTHING);
    }

    fn connect_failed(&mut self, token: Token, errno: Errno) {
        if let Some(connection) = &mut self.connections[token.slot() as usize] {
            connection.conversation.connect_failed(&mut self.shared, errno.into());
        }
        self.close(token, CloseCause::ConnectFailed);
    }
}
