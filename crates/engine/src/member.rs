//! One loop of a group, in its thread: turns, messages, rest, and the end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_poller::Waker;

use crate::event_loop::{EventLoop, HandOut};
use crate::group::{GroupError, Look};
use crate::{
    CloseCause, Counters, CpuList, Driver, Inbox, Limits, Listener, Sender, Session, SharedDate,
};

/// Messages that wait for a loop. Connections that are handed over are most of them; with more
/// than this the acceptor keeps what comes.
const MESSAGES_MAX: usize = 4096;

/// What other threads tell a loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// Run this connection.
    Admit(OwnedFd),
    /// Come to an end, within this time.
    Drain(Duration),
    /// End now.
    Stop,
}

impl Message {
    /// The same word for the next loop.
    ///
    /// # Panics
    /// For a connection: there is only one.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Admit(_) => unreachable!("a connection goes to one loop"),
            Self::Drain(at_most) => Self::Drain(*at_most),
            Self::Stop => Self::Stop,
        }
    }
}

/// What a loop's thread is given.
pub(crate) struct Setup {
    pub(crate) index: usize,
    pub(crate) driver: Driver,
    pub(crate) limits: Limits,
    pub(crate) cpus: Option<CpuList>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) is_exclusive: bool,
    pub(crate) peers: Vec<(Sender<Message, Waker>, Arc<Counters>)>,
    pub(crate) date: Arc<SharedDate>,
    pub(crate) look: Arc<Look>,
}

impl Setup {
    /// Moves the calling thread to its CPU.
    pub(crate) fn pin(&self) -> Result<(), GroupError> {
        let Some(cpus) = &self.cpus else { return Ok(()) };
        cpus.pin(self.index).map(drop).map_err(GroupError::Cpu)
    }
}

/// A loop and its mail.
pub(crate) struct Member<S: Session> {
    event_loop: EventLoop<S>,
    inbox: Inbox<Message>,
    mail: Vec<Message>,
    index: usize,
    look: Arc<Look>,
    drain_by: Option<Instant>,
    is_stopped: bool,
}

impl<S: Session> Member<S> {
    pub(crate) fn new(
        mut event_loop: EventLoop<S>,
        setup: Setup,
    ) -> (Self, Sender<Message, Waker>) {
        let (inbox, sender) = Inbox::new(MESSAGES_MAX, event_loop.waker());
        for listener in setup.listeners {
            event_loop.listen(listener, setup.is_exclusive);
        }
        if !setup.peers.is_empty() {
            event_loop.hand_out(hand_out(setup.peers, event_loop.counters()));
        }
        let (index, look) = (setup.index, setup.look);
        let (mail, drain_by, is_stopped) = (Vec::new(), None, false);
        (Self { event_loop, inbox, mail, index, look, drain_by, is_stopped }, sender)
    }

    /// Turns until the group ends.
    pub(crate) fn run(mut self) -> Result<(), GroupError> {
        let outcome = self.turn_to_the_end();
        let cause =
            if self.drain_by.is_some() { CloseCause::Drained } else { CloseCause::LoopEnded };
        self.event_loop.close_all(cause);
        self.look.isolation().leave(self.index);
        outcome
    }

    fn turn_to_the_end(&mut self) -> Result<(), GroupError> {
        while !self.is_over() {
            let rest = self.drain_by.map(|end| end.saturating_duration_since(Instant::now()));
            if self.event_loop.turn(rest).map_err(GroupError::Loop)? {
                self.read_mail();
            }
            if self.look.isolation().is_requested() {
                self.look.note(self.index, self.event_loop.describe());
                self.look.isolation().rest(self.index);
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let has_drained =
            |end: Instant| self.event_loop.open_connections() == 0 || Instant::now() >= end;
        self.is_stopped || self.drain_by.is_some_and(has_drained)
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.inbox.drain(&mut mail);
        for message in mail.drain(..) {
            self.event_loop.count_message();
            match message {
                Message::Admit(socket) => self.event_loop.admit(socket),
                Message::Drain(at_most) => {
                    self.drain_by = Some(Instant::now() + at_most);
                    self.event_loop.drain();
                }
                Message::Stop => self.is_stopped = true,
            }
        }
        self.mail = mail;
    }
}

/// Gives a connection to the loop that has the fewest, which may be this one. What was handed
/// over counts at once: the other loop's own count lags behind a burst.
fn hand_out(peers: Vec<(Sender<Message, Waker>, Arc<Counters>)>, own: Arc<Counters>) -> HandOut {
    let mut handed = vec![0u64; peers.len()];
    Box::new(move |socket| {
        let open = |index: usize| handed[index].saturating_sub(peers[index].1.closed_total());
        let least = (0..peers.len()).min_by_key(|index| open(*index))?;
        if own.open() <= open(least) {
            return Some(socket);
        }
        let sent = peers[least].0.send(Message::Admit(socket));
        match sent.map_err(crate::Undelivered::into_message) {
            Err(Message::Admit(socket)) => Some(socket),
            _ => {
                handed[least] += 1;
                None
            }
        }
    })
}
