//! The poller of a worker with queues: its services' queues, the link, and full queues to become writable.
//!
//! The loop waits here; the registry adds and removes service queues, the replies full ones. One epoll set
//! for all of it. Service queues are registered exclusively, so that a message
//! wakes one worker, unless the experiment asks for the herd.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use pollux_poller::{Events, Interest, Mechanism, Poller, Registration, Token, Trigger};
use pollux_sys::mqueue::MessageQueue;

use super::setup::Wake;
use crate::error::{Code, Error};
use crate::slots::SERVICES_MAX;

/// An event of the poller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ready {
    /// The queue of a service, by entry and generation.
    Service(usize, u32),
    /// The link to the manager.
    Link,
    /// The descriptor that the program attends to.
    Program,
    /// A thread of the program ends the worker.
    Stop,
    /// A queue that was full, by index and generation.
    Room(usize, u32),
}

/// The epoll set with the service queues in it.
pub(super) struct QueuePoller {
    poller: Box<dyn Poller>,
    reading: Registration,
    queues: Vec<Option<Open>>,
    generation: u32,
    message_len_bytes_max: usize,
}

struct Open {
    queue: MessageQueue,
    generation: u32,
    is_watched: bool,
}

/// Tokens: a service's entry, then the link, the program and its end, then full queues.
const LINK_SLOT: u32 = SERVICES_MAX as u32;
const PROGRAM_SLOT: u32 = LINK_SLOT + 1;
const STOP_SLOT: u32 = PROGRAM_SLOT + 1;
const ROOM_SLOTS: u32 = STOP_SLOT + 1;

impl QueuePoller {
    /// An empty set.
    ///
    /// # Errors
    /// TPEOS without descriptors or epoll.
    pub(super) fn open(wake: Wake) -> Result<Self, Error> {
        let poller = Mechanism::Epoll.open().map_err(refused)?;
        let reading = Registration::new(Interest::READABLE, Trigger::Level);
        let reading = if wake == Wake::One { reading.exclusive() } else { reading };
        let queues = (0..SERVICES_MAX).map(|_| None).collect();
        Ok(Self { poller, reading, queues, generation: 0, message_len_bytes_max: 0 })
    }

    /// Opens and watches the queue of a service.
    ///
    /// # Errors
    /// TPENOENT when the manager made none, TPEOS.
    pub(super) fn watch_service(&mut self, entry: usize, name: &CStr) -> Result<(), Error> {
        let queue = MessageQueue::open(name).map_err(|source| {
            let code = match source.kind() {
                io::ErrorKind::NotFound => Code::NoEntry,
                _ => Code::Os,
            };
            Error::caused(code, format!("queue {} can't be opened", name.to_string_lossy()), source)
        })?;
        let state = queue.state().map_err(|source| Error::os("mq_getattr failed", source))?;
        let len_bytes = state.size.message_len_bytes as usize;
        self.message_len_bytes_max = self.message_len_bytes_max.max(len_bytes);
        self.generation += 1;
        let token = Token::new(entry as u32, self.generation);
        self.poller.add(queue.as_fd(), token, self.reading).map_err(refused)?;
        let generation = token.generation();
        self.queues[entry] = Some(Open { queue, generation, is_watched: true });
        Ok(())
    }

    /// Takes the queue of a service out of the set and closes it.
    pub(super) fn withdraw(&mut self, entry: usize) {
        self.ignore(entry);
        self.queues[entry] = None;
    }

    /// Takes the queue of a service out of the set: its messages wake others from now on.
    pub(super) fn ignore(&mut self, entry: usize) {
        if let Some(open) = &mut self.queues[entry]
            && std::mem::take(&mut open.is_watched)
        {
            let deleted = self.poller.delete(open.queue.as_fd());
            debug_assert!(deleted.is_ok(), "it was registered: {deleted:?}");
        }
    }

    /// The queue of a service, as long as it is that of `generation`.
    #[inline]
    pub(super) fn queue(&self, entry: usize, generation: u32) -> Option<&MessageQueue> {
        let open = self.queues[entry].as_ref()?;
        (open.generation == generation).then_some(&open.queue)
    }

    /// Entries and generations of all queues that are open.
    pub(super) fn services(&self) -> Vec<(usize, u32)> {
        let open = self.queues.iter().enumerate();
        open.filter_map(|(entry, open)| Some((entry, open.as_ref()?.generation))).collect()
    }

    /// Bytes of the longest message that any of the queues can hold.
    #[inline]
    pub(super) fn message_len_bytes_max(&self) -> usize {
        self.message_len_bytes_max
    }

    /// Watches the link.
    ///
    /// # Errors
    /// TPEOS.
    pub(super) fn watch_link(&mut self, link: BorrowedFd<'_>) -> Result<(), Error> {
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        self.poller.add(link, Token::new(LINK_SLOT, 0), how).map_err(refused)
    }

    /// Watches the program's own descriptor.
    ///
    /// # Errors
    /// TPEMATCH when it has one already, TPEOS.
    pub(super) fn watch_program(&mut self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        self.poller.add(program, Token::new(PROGRAM_SLOT, 0), how).map_err(refused)
    }

    /// Watches what another thread of the program ends the wait by.
    ///
    /// # Errors
    /// TPEMATCH when it is watched already, TPEOS.
    pub(super) fn watch_stop(&mut self, stop: BorrowedFd<'_>) -> Result<(), Error> {
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        self.poller.add(stop, Token::new(STOP_SLOT, 0), how).map_err(refused)
    }

    /// Watches a full queue for room.
    ///
    /// # Errors
    /// TPEOS.
    pub(super) fn await_room(
        &mut self,
        index: usize,
        generation: u32,
        queue: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let how = Registration::new(Interest::WRITABLE, Trigger::Level);
        let token = Token::new(ROOM_SLOTS + index as u32, generation);
        self.poller.add(queue, token, how).map_err(refused)
    }

    /// Takes the link or a full queue out of the set, before it is closed.
    pub(super) fn forget(&mut self, fd: BorrowedFd<'_>) {
        let deleted = self.poller.delete(fd);
        debug_assert!(deleted.is_ok(), "it was registered: {deleted:?}");
    }

    /// Waits, at most for `timeout`.
    ///
    /// # Errors
    /// TPEOS when the kernel refuses to wait.
    #[inline]
    pub(super) fn wait(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        self.poller.wait(events, timeout).map_err(refused)
    }
}

/// The event of a token.
#[inline]
pub(super) fn ready(token: Token) -> Ready {
    match token.slot() {
        entry if entry < LINK_SLOT => Ready::Service(entry as usize, token.generation()),
        LINK_SLOT => Ready::Link,
        PROGRAM_SLOT => Ready::Program,
        STOP_SLOT => Ready::Stop,
        slot => Ready::Room((slot - ROOM_SLOTS) as usize, token.generation()),
    }
}

fn refused(error: pollux_poller::Error) -> Error {
    let detail = format!("the worker's poller: {error}");
    match error {
        pollux_poller::Error::System { cause, .. } => Error::os(detail, cause),
        _ => Error::new(Code::Os, detail),
    }
}
