//! How the completion loop comes to its connections.
//!
//! ```text
//!            a few connections               more than a turn's share
//!   armed ◄──────────────────► armed ──────────────────────────────────► asking
//!     ▲   multishot accept                   accept cancelled               │ accept4(2), a share
//!     └─────────────────────────────── nobody waits any more ◄──────────────┘ in each turn
//! ```
//!
//! A multishot accept saves a call for each connection, and knows no bound: in a storm it hands
//! over everybody who waits before any live connection's data. So what it brings waits here and
//! is let in after the live connections had their turn; when more came than a turn's share it is
//! cancelled, the rest stays in the kernel's backlog, and the loop asks until that is empty.
//!
//! Of the loops that share a listener the kernel wakes one. A multishot accept would take more
//! for a loop than it has room for, while others have some; so there an accept is for one
//! connection, is armed only while there is room for it, and the loop asks once it has come. The
//! kernel's one wake may reach such an accept just before it is cancelled. So whoever waits when
//! it has ended is taken, and in that race a loop has one more than it should for each listener
//! beyond the first.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pollux_sys::ring::{InFlight, QueueFull, Shots, StreamCompletion};
use rustix::io::Errno;

use super::label::{Kind, numbered};
use super::turns::{errno, is};
use super::{CompletionLoop, SUBMITS_MAX, shots_of};
use crate::admission::Queue;
use crate::listener::{Accepted, accept};
use crate::{Counter, Listener, Session};

/// A listener, and what is armed on it.
pub(super) struct Listening {
    socket: OwnedFd,
    /// How its connections receive.
    shots: Shots,
    /// Other loops take connections from it too.
    is_shared: bool,
    accept: Option<InFlight>,
    is_cancelling: bool,
    /// Somebody may wait who is not accepted by a request.
    pub(super) is_asking: bool,
}

impl Listening {
    /// A shared listener is not asked beside an accept: each could take the last place.
    fn can_be_asked(&self) -> bool {
        self.is_asking && !(self.is_shared && self.accept.is_some())
    }

    /// A line of `show fd`.
    pub(super) fn describe(&self) -> String {
        let doing = match (&self.accept, self.is_cancelling, self.is_asking) {
            (Some(_), true, _) => "lets go",
            (Some(_), false, _) => "accept armed",
            (None, _, true) => "asking",
            (None, _, false) => "paused",
        };
        let sharing = if self.is_shared { "shared listener" } else { "listener" };
        format!("{sharing} fd {} {doing}", self.socket.as_raw_fd())
    }
}

impl<S: Session> CompletionLoop<S> {
    /// Takes connections from `listener` from the next turn on.
    pub(crate) fn listen(&mut self, listener: Listener, is_shared: bool) {
        let socket = listener.into_socket();
        let shots = shots_of(&socket);
        let (accept, is_cancelling, is_asking) = (None, false, true);
        let listening = Listening { socket, shots, is_shared, accept, is_cancelling, is_asking };
        self.listeners.push(listening);
    }

    /// Takes no more connections; those that were accepted already are let in.
    pub(super) fn stop_listening(&mut self) {
        self.cancel_accepts();
        for listening in std::mem::take(&mut self.listeners) {
            self.close_fd(listening.socket);
        }
        while let Some((socket, shots)) = self.arrived.pop_front() {
            self.let_in(socket, shots);
        }
    }

    /// A connection was accepted by a request, or the request ended.
    pub(super) fn accepted(&mut self, number: u32, mut completion: StreamCompletion) {
        let Some(listening) = self.listeners.get_mut(number as usize) else { return };
        if !completion.has_more {
            (listening.accept, listening.is_cancelling) = (None, false);
            listening.is_asking |= listening.is_shared;
        }
        let (shots, is_shared) = (listening.shots, listening.is_shared);
        match completion.accepted() {
            // One in a turn starves nobody, and those who have room are not waited for.
            Some(socket) if is_shared => self.let_in(socket, shots),
            Some(socket) => self.arrived.push_back((socket, shots)),
            None if is(completion.result, Errno::CANCELED) => self.accept_late(number, is_shared),
            None => self.accept_failed(errno(completion.result)),
        }
    }

    /// Takes the connection whose wake the cancelled accept may have had.
    fn accept_late(&mut self, number: u32, is_shared: bool) {
        let listening = &self.listeners[number as usize];
        if is_shared && let Accepted::Socket(socket) = accept(&listening.socket) {
            self.let_in(socket, listening.shots);
        }
    }

    fn accept_failed(&mut self, errno: Errno) {
        let now = self.clock.now().at;
        match Accepted::failed(errno) {
            Accepted::Exhausted | Accepted::Broken => {
                self.admission.pause_exhausted(now, &self.limits, &self.counters);
            }
            _ => self.counters.count(Counter::AcceptsAborted),
        }
    }

    /// Lets in this turn's share.
    pub(super) fn accept(&mut self) {
        let now = self.clock.now().at;
        if self.admission.is_paused() {
            if !self.admission.may_resume(self.open_for_accepts(), now, &self.limits) {
                return self.cancel_accepts();
            }
            self.ask_all();
        }
        for _ in 0..self.limits.accepts_per_turn {
            let Some((socket, shots)) = self.arrived.pop_front() else {
                return self.ask_and_arm();
            };
            if !self.has_room() {
                self.arrived.push_front((socket, shots));
                self.admission.pause_full(now, &self.limits, &self.counters);
                return self.cancel_accepts();
            }
            self.let_in(socket, shots);
        }
        if !self.arrived.is_empty() {
            self.cancel_accepts();
            self.ask_all();
        }
    }

    /// Whether somebody can be let in without waiting.
    pub(super) fn has_arrivals(&self) -> bool {
        let is_asking = || self.listeners.iter().any(Listening::can_be_asked);
        !self.admission.is_paused() && (!self.arrived.is_empty() || is_asking())
    }

    /// Asks where somebody may wait, and arms an accept where nobody does.
    fn ask_and_arm(&mut self) {
        if !self.has_room() {
            let now = self.clock.now().at;
            self.admission.pause_full(now, &self.limits, &self.counters);
            return self.cancel_accepts();
        }
        for number in 0..self.listeners.len() {
            if self.listeners[number].can_be_asked() && self.ask(number) == Queue::Paused {
                return self.cancel_accepts();
            }
            if !self.listeners[number].is_asking {
                self.arm_accept(number);
            }
        }
    }

    fn ask(&mut self, number: usize) -> Queue {
        let (open, now) = (self.open_for_accepts(), self.clock.now().at);
        let listening = &mut self.listeners[number];
        let (socket, limits) = (listening.socket.as_fd(), &self.limits);
        let queue = self.admission.accept(socket, open, now, limits, &self.counters);
        listening.is_asking = queue != Queue::Empty;
        let shots = listening.shots;
        let mut arrivals: Vec<OwnedFd> = self.admission.arrivals();
        for socket in arrivals.drain(..) {
            self.welcome(socket, shots);
        }
        self.admission.reuse(arrivals);
        queue
    }

    fn let_in(&mut self, socket: OwnedFd, shots: Shots) {
        self.counters.count(Counter::Accepted);
        self.welcome(socket, shots);
    }

    fn ask_all(&mut self) {
        self.listeners.iter_mut().for_each(|listening| listening.is_asking = true);
    }

    fn arm_accept(&mut self, number: usize) {
        let listening = &self.listeners[number];
        if listening.accept.is_some() {
            return;
        }
        let accepts = if listening.is_shared { Shots::One } else { Shots::Many };
        let fd = listening.socket.as_raw_fd();
        let label = numbered(Kind::Listener, number as u32);
        self.is_mixed = true;
        for _ in 0..SUBMITS_MAX {
            match self.ring.accept(fd, accepts, label) {
                Ok(request) => return self.listeners[number].accept = Some(request),
                Err(QueueFull) => self.submit(),
            }
        }
        panic!("the kernel takes no requests from a full queue");
    }

    fn has_room(&self) -> bool {
        self.open_for_accepts() < self.limits.connections_max
    }

    /// Lets go of all listeners, so that those who share them are woken.
    fn cancel_accepts(&mut self) {
        for number in 0..self.listeners.len() {
            let listening = &mut self.listeners[number];
            let Some(request) = listening.accept else { continue };
            if !std::mem::replace(&mut listening.is_cancelling, true) {
                self.push(|ring| ring.cancel_owned(request, numbered(Kind::Errand, 0)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::{Actions, Limits};
    use rustix::net::{Shutdown, shutdown};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// Nobody comes.
    struct Nobody;

    impl Session for Nobody {
        type Shared = ();

        fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
            Self
        }

        fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
            input.len()
        }

        fn on_end(&mut self, (): &mut (), _: &mut Actions<'_>) {}

        fn on_deadline(&mut self, (): &mut (), _: &mut Actions<'_>) {}

        fn on_drain(&mut self, (): &mut (), _: &mut Actions<'_>) {}
    }

    /// Whoever shares a listener may shut it down, another process too.
    #[test]
    fn a_broken_listener_pauses_instead_of_spinning() {
        const PATIENCE: Duration = Duration::from_millis(50);
        for is_shared in [false, true] {
            let limits = Limits { accept_pause: PATIENCE, ..Limits::default() };
            let clock = Clock::new(Arc::default());
            let opened = CompletionLoop::<Nobody>::open((), limits, clock, Arc::default());
            let mut this = opened.expect("io_uring is allowed here");
            let any = "127.0.0.1:0".parse().expect("an address");
            let listener = Listener::open(&any, false).expect("opened");
            let same = listener.duplicate().expect("a descriptor is left").into_socket();
            this.listen(listener, is_shared);
            for _ in 0..3 {
                this.turn(Some(Duration::ZERO)).expect("turned");
            }
            shutdown(&same, Shutdown::Both).expect("it listens");
            let begin = Instant::now();
            let pauses = |this: &CompletionLoop<Nobody>| this.counters.value(Counter::AcceptPauses);
            while pauses(&this) < 3 {
                assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", this.describe());
                this.turn(Some(PATIENCE)).expect("turned");
            }
            // A few turns for each pause, however long it lasts.
            let turns = this.counters.value(Counter::Turns);
            assert!(turns < 40, "shared {is_shared}: {turns} turns");
        }
    }
}
