//! The poller of a pool, with a [`Source`] for each registration.
//!
//! The loop gets tokens and asks what each stands for. Everything is level-triggered, so that a
//! budget can cut a long input short without losing the rest.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use pollux_poller::{Events, Interest, Mechanism, Poller, Registration, Token, Trigger};

/// Events of one wait; more stay ready for the next.
pub(super) const EVENTS_MAX: usize = 256;

/// What became ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A signal came.
    Signals,
    /// A connection waits at the control socket.
    Control,
    /// The link of the worker with this id has a message, or ended.
    Link(u32),
    /// The process of the worker with this id ended.
    Process(u32),
    /// The connection with this number has a message, or ended.
    Connection(u64),
    /// A client process of an earlier manager ended.
    EarlierClient(u32),
    /// A request waits in a queue that was withdrawn.
    Withdrawn(u64),
}

/// The poller, and what it watches.
pub(super) struct PoolPoller {
    poller: Box<dyn Poller>,
    events: Events,
    slots: Vec<Option<Source>>,
    /// Next use of each slot.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl PoolPoller {
    pub(super) fn open() -> Result<Self, pollux_poller::Error> {
        Ok(Self {
            poller: Mechanism::Epoll.open()?,
            events: Events::with_capacity(EVENTS_MAX),
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
        })
    }

    /// Watches `fd` for input; the token ends it.
    pub(super) fn add(&mut self, fd: BorrowedFd<'_>, source: Source) -> io::Result<Token> {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        let index = slot as usize;
        if index == self.slots.len() {
            self.slots.push(None);
            self.generations.push(0);
        }
        let token = Token::new(slot, self.generations[index]);
        let readable = Registration::new(Interest::READABLE, Trigger::Level);
        if let Err(error) = self.poller.add(fd, token, readable) {
            self.free.push(slot);
            return Err(io::Error::other(error));
        }
        self.slots[index] = Some(source);
        Ok(token)
    }

    /// Watches `fd` for room instead of input, or for input again.
    pub(super) fn turn(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        is_for_room: bool,
    ) -> io::Result<()> {
        let interest = if is_for_room { Interest::WRITABLE } else { Interest::READABLE };
        let registration = Registration::new(interest, Trigger::Level);
        self.poller.modify(fd, token, registration).map_err(io::Error::other)
    }

    /// Ends watching `fd`, which is still open.
    pub(super) fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) {
        let index = token.slot() as usize;
        if self.slots[index].take().is_some() {
            // The only error is that it was not watched, which is what is wanted.
            let _ = self.poller.delete(fd);
            self.generations[index] = token.next_generation().generation();
            self.free.push(token.slot());
        }
    }

    /// Waits until something is ready or the time is over, and puts its tokens into `ready`.
    pub(super) fn wait(
        &mut self,
        timeout: Duration,
        ready: &mut Vec<Token>,
    ) -> Result<(), pollux_poller::Error> {
        self.poller.wait(&mut self.events, Some(timeout))?;
        ready.clear();
        ready.extend(self.events.iter().map(|event| event.token));
        Ok(())
    }

    /// What the token stands for, unless it was removed since.
    pub(super) fn source(&self, token: Token) -> Option<Source> {
        let index = token.slot() as usize;
        (*self.generations.get(index)? == token.generation()).then_some(self.slots[index])?
    }
}
