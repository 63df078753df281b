//! How the readiness loop sends: at once, and what the socket does not take waits.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::actions::Source;
use crate::conversation::{ConnectionIo, Sent};
use crate::ending::Tail;
use crate::flow::Flow;
use crate::output::{Output, broken};
use crate::{CloseCause, Counter, Counters, Limits, Moment};

/// One connection's socket for the time of one call.
pub(super) struct SocketIo<'a> {
    pub(super) socket: BorrowedFd<'a>,
    pub(super) room: &'a mut [u8],
    pub(super) tail: &'a mut Tail,
    pub(super) flow: &'a mut Flow,
    pub(super) counters: &'a Counters,
    pub(super) limits: &'a Limits,
    pub(super) now: Moment,
}

impl ConnectionIo for SocketIo<'_> {
    const CAN_SHARE: bool = true;

    fn parts(&mut self) -> (&mut [u8], Option<BorrowedFd<'_>>) {
        (self.room, Some(self.socket))
    }

    fn send(&mut self, len: usize, source: Option<Source>) -> Result<Sent, CloseCause> {
        if let Tail::Waiting(output) = self.tail {
            output.push_bytes(&self.room[..len])?;
            source.into_iter().for_each(|source| output.push_source(source));
            return Ok(Sent::Waits);
        }
        let output = match source {
            Some(source) => {
                let Self { socket, room, flow, counters, limits, now, .. } = self;
                let head = &room[..len];
                Output::begin_with_source(head, source, *socket, counters, flow, *now, limits)?
            }
            None => {
                let taken = if len > 0 { self.send_room(len)? } else { Some(0) };
                if taken == Some(len) {
                    return Ok(Sent::Gone);
                }
                let mut output = Output::default();
                if taken.is_none() {
                    output.blocked();
                }
                output.push_bytes(&self.room[taken.unwrap_or(0)..len])?;
                output
            }
        };
        if output.is_empty() {
            return Ok(Sent::Gone);
        }
        *self.tail = Tail::Waiting(Box::new(output));
        Ok(Sent::Waits)
    }
}

impl SocketIo<'_> {
    /// Sends from the room; says how much was taken, or nothing when the socket is full.
    fn send_room(&mut self, len: usize) -> Result<Option<usize>, CloseCause> {
        loop {
            self.counters.count(Counter::Sends);
            match send(self.socket, &self.room[..len], SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    self.counters.add(Counter::BytesOut, taken as u64);
                    self.flow.sent(taken, self.now, self.limits);
                    if taken < len {
                        self.counters.count(Counter::SendsShort);
                        self.flow.is_full(self.now, self.limits);
                    }
                    return Ok(Some(taken));
                }
                Err(Errno::AGAIN) => {
                    self.counters.count(Counter::SendsShort);
                    self.flow.is_full(self.now, self.limits);
                    return Ok(None);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(broken(errno)),
            }
        }
    }
}
