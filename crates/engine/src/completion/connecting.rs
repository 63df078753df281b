//! How the completion loop comes to a peer: `connect(2)`, and a poll for room when that is in
//! progress. `../connecting.rs` says why not by a request of its own.

use std::os::fd::AsRawFd;

use pollux_poller::Token;
use pollux_sys::ring::Shots;
use rustix::io::Errno;

use super::CompletionLoop;
use super::slots::{Kind, label};
use super::waiting::POLLOUT;
use crate::connecting::{Begun, ConnectError, ConnectTo, begin, outcome};
use crate::conversation::{Conversation, Occasion, Progress};
use crate::ending::Tail;
use crate::output::{Output, UnderWay};
use crate::{CloseCause, ConnectionId, Counter, ListenAddress, Moment, Session};

impl<S: Session> CompletionLoop<S> {
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
        let shots = match to.peer {
            ListenAddress::Tcp(_) => Shots::Many,
            ListenAddress::Unix(_) => Shots::One,
        };
        let conversation = Conversation::connecting(session, deadline);
        let mut output = Box::new(Output::connecting(is_in_progress));
        output.under_way = is_in_progress.then_some(UnderWay::Poll);
        let id = self.insert(socket, shots, |_, _, io| {
            *io.tail = Tail::Waiting(output);
            (conversation, Ok(Progress::Idle))
        });
        if is_in_progress {
            self.watch_connect(id.0);
        }
        Ok(id)
    }

    /// Nothing is watched when the session has ended the connection already.
    fn watch_connect(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let fd = connection.socket.as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLOUT, Shots::One, label(Kind::Writable, token)));
    }

    /// A connect has come to its end.
    pub(super) fn connected(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        if let Err(errno) = outcome(&connection.socket) {
            return self.connect_failed(token, errno);
        }
        output.connected();
        connection.flow.sent(0, self.clock.now().at, &self.limits);
        if output.is_empty() {
            connection.tail = Tail::None;
            connection.conversation.output_left();
        }
        self.play(token, Some(Occasion::Connected), None);
    }

    fn connect_failed(&mut self, token: Token, errno: Errno) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.conversation.connect_failed(&mut self.shared, errno.into());
        }
        self.close(token, CloseCause::ConnectFailed);
    }
}
