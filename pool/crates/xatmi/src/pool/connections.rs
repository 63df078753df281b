//! The connections to the control socket: what is known of each, answers to it, its end.
//!
//! A context's connection is its life line: when it ends, however it ends, its reply queue is
//! removed, and workers that hold it open are notified after a moment.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_poller::Token;
use pollux_sys::mqueue::MessageQueue;
use rustix::process::{Resource, getrlimit};

use super::Pool;
use crate::client::Welcome;
use crate::control::Answer;
use crate::link::PeerLink;
use crate::needs;
use crate::slots::Slots;

/// Answers that wait for one reader: the longest table that there may be.
const UNSENT_MAX: usize = 4_096;
/// From the end of a context until workers are notified: one message to each for many ends.
const SWEEP_REST: Duration = Duration::from_secs(1);
/// The same once the queues of ended contexts may take much of what the user's may.
const SWEEP_REST_URGENT: Duration = Duration::from_millis(50);
/// That much: one of so many parts of RLIMIT_MSGQUEUE.
const SWEEP_URGENT_PARTS: u64 = 8;

#[derive(Debug)]
pub(super) struct ControlConnection {
    pub(super) link: PeerLink,
    pub(super) token: Token,
    /// The process of a member of the group, which may call and not order; none for the pool's user.
    pub(super) guest: Option<u32>,
    /// Set once it has said that it is a client context.
    pub(super) client: Option<Client>,
    /// What found no room yet; nothing is read from a client that has not read this.
    pub(super) unsent: VecDeque<Answer>,
}

/// What became of answers that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    All,
    Waits,
    Gone,
}

/// A client context.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) pid: u32,
    pub(super) context: u32,
    /// Its number in the memory that requests are in, where they are.
    pub(super) memory: Option<u32>,
    /// It has requests there since before this manager, and keeps them when it could not take the welcome:
    /// they are free when its process ends.
    pub(super) has_kept_requests: bool,
    pub(super) since: Instant,
}

impl Client {
    /// Its requests among those that the memory has, by process and number of the context there.
    pub(super) fn requests(&self, open: &HashMap<(u32, u32), usize>) -> usize {
        let key = self.memory.map(|context| (self.pid, context));
        key.and_then(|key| open.get(&key).copied()).unwrap_or(0)
    }
}

#[derive(Debug, Default)]
pub(super) struct ControlConnections {
    pub(super) by_number: BTreeMap<u64, ControlConnection>,
    pub(super) numbers: u64,
    /// Those that have said nothing yet, in the order of their coming, and until when they may.
    pub(super) silent: BTreeMap<u64, Instant>,
    /// Those that went because they had said nothing.
    pub(super) dropped_silent: u64,
    /// When accepting begins again; it pauses while there is no room.
    pub(super) accepts_at: Option<Instant>,
    pub(super) rest_logged: Option<Instant>,
    /// When workers are notified that contexts ended, if some did.
    pub(super) sweeps_at: Option<Instant>,
    /// Bytes of queues of contexts that ended since they were notified last.
    unswept_bytes: u64,
    /// Memory of earlier managers, so that workers which share one share its mapping.
    pub(super) mappings: Vec<((u64, u64), Rc<Slots>)>,
}

impl ControlConnections {
    /// When the first of the silent ones has to go.
    pub(super) fn silence_ends(&self) -> Option<Instant> {
        self.silent.first_key_value().map(|(_, until)| *until)
    }
}

impl Pool {
    /// Sends an answer to a connection, at once or when there is room. One that does not read
    /// for too long gets no more.
    pub(super) fn reply(&mut self, number: u64, answer: &Answer) {
        let Some(connection) = self.connections.by_number.get_mut(&number) else { return };
        connection.unsent.push_back(answer.clone());
        match connection.unsent.len() {
            1 => match self.send_rest(number) {
                Sent::Waits => self.wait_for_room(number, true),
                Sent::All | Sent::Gone => {}
            },
            // It is sent when there is space.
            2..=UNSENT_MAX => {}
            _ => {
                self.counts.unsent += 1;
                self.leave(number);
            }
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn send_rest(&mut self, number: u64) -> Sent {
        let memory = self.memory.clone();
        let Some(connection) = self.connections.by_number.get_mut(&number) else {
            return Sent::Gone;
        };
        while let Some(answer) = connection.unsent.front() {
            let beside = match (answer, &memory) {
                (Answer::Welcome(Welcome { memory: Some(_), .. }), Some(memory)) => {
                    let [records, _, exchange] = memory.files();
                    vec![records, exchange]
                }
                _ => Vec::new(),
            };
            match connection.link.send_with(answer, &beside) {
                Ok(()) => drop(connection.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Waits,
                Err(_) => {
                    self.counts.unsent += 1;
                    self.leave(number);
                    return Sent::Gone;
                }
            }
        }
        Sent::All
    }

    pub(super) fn wait_for_room(&mut self, number: u64, is_for_room: bool) {
        let Some(connection) = self.connections.by_number.get(&number) else { return };
        if self.poller.turn(connection.link.as_fd(), connection.token, is_for_room).is_err() {
            self.leave(number);
        }
    }

    /// Ends a connection, and with it a context.
    pub(super) fn leave(&mut self, number: u64) {
        let Some(connection) = self.connections.by_number.remove(&number) else { return };
        self.poller.remove(connection.link.as_fd(), connection.token);
        self.connections.silent.remove(&number);
        self.events.leave(number);
        if let Some(client) = connection.client {
            // A context that ended well has done so itself.
            match (&self.memory, client.memory) {
                (Some(_), Some(_)) if client.has_kept_requests => {}
                (Some(memory), Some(context)) => {
                    self.is_suspicious |= memory.end_client(client.pid, Some(context));
                }
                _ => {
                    let queue = self.prefix.reply_queue(client.pid, client.context);
                    let _ = MessageQueue::unlink(&queue);
                    self.schedule_sweep(Instant::now());
                }
            }
        }
    }

    /// A context ended: workers that hold its reply queue open will be asked to close it, as it
    /// counts against the user's limit until the last of them has.
    pub(super) fn schedule_sweep(&mut self, now: Instant) {
        let limit_bytes = getrlimit(Resource::Msgqueue).current;
        let connections = &mut self.connections;
        connections.unswept_bytes += needs::charge_bytes(self.sizes.reply);
        let at = now + sweep_rest(connections.unswept_bytes, limit_bytes);
        connections.sweeps_at = Some(connections.sweeps_at.map_or(at, |known| known.min(at)));
    }

    /// Whether it is time to tell workers that contexts ended; then it is done.
    pub(super) fn take_sweep(&mut self, now: Instant) -> bool {
        let is_due = self.connections.sweeps_at.is_some_and(|at| now >= at);
        if is_due {
            self.connections.sweeps_at = None;
            self.connections.unswept_bytes = 0;
        }
        is_due
    }
}

/// How long workers keep queues of ended contexts that take `unswept_bytes` at most, where all queues
/// of the user may take `limit_bytes`.
fn sweep_rest(unswept_bytes: u64, limit_bytes: Option<u64>) -> Duration {
    let is_urgent = limit_bytes.is_some_and(|limit| unswept_bytes > limit / SWEEP_URGENT_PARTS);
    if is_urgent { SWEEP_REST_URGENT } else { SWEEP_REST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ends_are_passed_on_sooner_than_few() {
        assert_eq!(sweep_rest(8_384, Some(819_200)), SWEEP_REST);
        assert_eq!(sweep_rest(102_400, Some(819_200)), SWEEP_REST);
        assert_eq!(sweep_rest(102_401, Some(819_200)), SWEEP_REST_URGENT);
        assert_eq!(sweep_rest(u64::MAX, None), SWEEP_REST);
    }
}
