//! How the completion loop comes to its connections.
//!
//! ```text
//!            some of the armed accepts came               all of them came in one turn
//!   armed ◄────────────────────────────────► armed ───────────────────────────────────► asking
//!     ▲   a request for each place               nothing is armed                          │ accept4(2), a share
//!     └───────────────────────────────── no client waits any more ◄───────────────────────────┘ in each turn
//! ```
//!
//! A few accepts are armed at once, each for one connection, so that no enter can bring more
//! than those. A multishot accept has no such bound: in a storm the kernel hands over all clients
//! that wait, and those that come meanwhile, before the enter returns, and the live connections
//! stand still for as long.
//!
//! It is cheaper, though, by some 7 % of a connection for one request. So a listener whose
//! connections come and go steadily, a thousand of them without a storm, is given one in place of
//! the others, and loses it at the first storm: two turns in a row that had more than their share,
//! or one that had twice as much. (As many clients as a share that begin together are not a storm: so
//! after a full turn the loop checks whether another one waits.)
//! A storm that falls on such a listener has one unbounded enter.
//!
//! Of the loops that share a listener the kernel wakes one. Several accepts would take more for
//! a loop than its part, while others could take them; so there one is armed. The kernel's one wake
//! may reach such an accept just before it is cancelled. So the client that waits when it has ended is
//! taken, and in that race a loop has one more than it should for each listener beyond the
//! first.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pollux_sys::ring::{InFlight, Shots, StreamCompletion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::CompletionLoop;
use super::connection::shots_of;
use super::requests::{Kind, errno, is_errno, numbered};
use crate::admission::Queue;
use crate::conversation::Conversation;
use crate::listener::{Accepted, accept};
use crate::{Counter, Listener, Session};

/// Accepts that are armed on a listener of the loop's own: few, so that an enter brings few.
/// Connections beyond them are accepted by calls.
const ARMED_MAX: usize = 4;

/// Connections without a storm until a multishot accept is armed.
const STEADY: u32 = 1000;
/// A multishot accept is armed only where there is room for all that one enter can bring.
const ROOM_FOR_MANY: u32 = super::SIZES.ring.completion;

/// A listener, and what is armed on it.
pub(super) struct Listening {
    socket: OwnedFd,
    /// How its connections receive.
    shots: Shots,
    /// Other loops take connections from it too.
    is_shared: bool,
    accepts: [Option<InFlight>; ARMED_MAX],
    /// The only one of them is a multishot accept.
    is_many: bool,
    is_cancelling: bool,
    /// Connections since the last storm.
    steady: u32,
    /// The last turn had its whole share.
    was_full: bool,
    /// Connections that requests accepted since the last share.
    came: u32,
}

impl Listening {
    fn armed(&self) -> usize {
        self.accepts.iter().flatten().count()
    }

    /// How many accepts may be armed where a share and the room left allow so many.
    fn places(&self, at_most: u32) -> usize {
        let places = if self.is_shared { 1 } else { ARMED_MAX };
        places.min(at_most as usize)
    }

    /// A line of `show fd`.
    pub(super) fn describe(&self) -> String {
        let doing = match (self.armed(), self.is_cancelling) {
            (0, _) => "asks or pauses".to_owned(),
            (armed, true) => format!("cancels {armed} accepts"),
            (armed, false) => format!("{armed} accepts armed"),
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
        let accepts = [None; ARMED_MAX];
        let is_many = false;
        let is_cancelling = false;
        let steady = 0;
        let came = 0;
        self.listeners.push(Listening {
            socket,
            shots,
            is_shared,
            accepts,
            is_many,
            is_cancelling,
            steady,
            was_full: false,
            came,
        });
    }

    /// Takes no more connections but those that its accepts bring until they are cancelled, and those
    /// that wait then: another process that has the socket too is not woken for them.
    pub(super) fn let_go(&mut self) {
        self.cancel_accepts();
        if self.listeners.iter().any(|listening| listening.armed() > 0) {
            return;
        }
        for number in 0..self.listeners.len() {
            let _ = self.ask(number, self.state.limits.accepts_per_turn);
        }
        self.stop_listening();
        self.state.hand_out = None;
    }

    /// Whether connections may still come.
    pub(crate) fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Takes no more connections.
    pub(super) fn stop_listening(&mut self) {
        self.cancel_accepts();
        for listening in std::mem::take(&mut self.listeners) {
            self.close_fd(listening.socket);
        }
    }

    /// A connection was accepted by a request, or the request failed; `label` says which.
    pub(super) fn accepted(&mut self, label: u32, mut completion: StreamCompletion) {
        let number = label as usize / ARMED_MAX;
        let place = label as usize % ARMED_MAX;
        let Some(listening) = self.listeners.get_mut(number) else { return };
        if !completion.has_more {
            listening.accepts[place] = None;
            (listening.is_many, listening.is_cancelling) =
                (false, listening.is_cancelling && listening.armed() > 0);
        }
        match completion.accepted() {
            // So few delay no connection, and loops with capacity are not waited for.
            Some(socket) => {
                listening.came += 1;
                let shots = listening.shots;
                self.let_in(socket, shots);
            }
            None if is_errno(completion.result, Errno::CANCELED) => self.accept_late(number),
            None => self.accept_failed(errno(completion.result)),
        }
    }

    /// Takes the connection whose wake the cancelled accept may have had.
    fn accept_late(&mut self, number: usize) {
        let listening = &self.listeners[number];
        if listening.is_shared
            && let Accepted::Socket(socket) = accept(&listening.socket)
        {
            self.let_in(socket, listening.shots);
        }
    }

    fn accept_failed(&mut self, errno: Errno) {
        let now = self.state.clock.now().at;
        match Accepted::failed(errno) {
            Accepted::Exhausted(errno) | Accepted::Broken(errno)
                if !self.state.admission.is_paused() =>
            {
                self.state.admission.pause_exhausted(
                    errno,
                    now,
                    &self.state.limits,
                    &self.state.counters,
                );
                self.expect_closings();
            }
            Accepted::Exhausted(_) | Accepted::Broken(_) => {}
            _ => self.state.counters.count(Counter::AcceptsAborted),
        }
    }

    /// What this turn has closed is closed for the kernel once it is submitted: the descriptors
    /// that were missing may be there in the next turn.
    fn expect_closings(&mut self) {
        if self.is_closing {
            self.state.admission.freed();
        }
    }

    /// Takes this turn's share of the clients that wait, and arms accepts where none does.
    pub(super) fn accept_share(&mut self) {
        if self.state.is_draining {
            return self.let_go();
        }
        let now = self.state.clock.now().at;
        if self.state.admission.is_paused()
            && !self.state.admission.may_resume(
                self.state.open_for_accepts(),
                now,
                &self.state.limits,
            )
        {
            return self.cancel_accepts();
        }
        if self.room() == 0 {
            self.state.admission.pause_full(now, &self.state.limits, &self.state.counters);
            return self.cancel_accepts();
        }
        for number in 0..self.listeners.len() {
            let share = self.state.limits.accepts_per_turn;
            let came = std::mem::take(&mut self.listeners[number].came);
            let queue = match self.listeners[number].armed() {
                0 => self.ask(number, share.saturating_sub(came)),
                _ => Queue::Empty,
            };
            // A wave that just fills the share is not a storm.
            let queue = match queue {
                Queue::MayHaveMore if !has_client(&self.listeners[number].socket) => Queue::Empty,
                queue => queue,
            };
            let listening = &mut self.listeners[number];
            let is_full = queue == Queue::MayHaveMore || came > share;
            let is_storm = queue == Queue::Paused
                || came > share.saturating_mul(2)
                || (is_full && listening.was_full);
            listening.was_full = is_full;
            listening.steady = if is_storm { 0 } else { listening.steady.saturating_add(came) };
            if listening.is_many && !self.may_have_many(number) {
                self.cancel(number);
            }
            match queue {
                Queue::Empty => self.arm_accepts(number),
                Queue::MayHaveMore => {}
                Queue::Paused => {
                    self.expect_closings();
                    return self.cancel_accepts();
                }
            }
        }
    }

    /// Whether a client may wait that no armed accept takes.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.state.admission.is_paused() && self.listeners.iter().any(|each| each.armed() == 0)
    }

    /// Accepts up to `share` connections by calls.
    fn ask(&mut self, number: usize, share: u32) -> Queue {
        let open = self.state.open_for_accepts();
        let now = self.state.clock.now().at;
        let Listening { socket, shots, .. } = &self.listeners[number];
        let socket = socket.as_fd();
        let shots = *shots;
        let limits = &self.state.limits;
        let queue =
            self.state.admission.accept(socket, open, share, now, limits, &self.state.counters);
        let mut arrivals: Vec<OwnedFd> = self.state.admission.arrivals();
        for socket in arrivals.drain(..) {
            self.welcome(socket, shots);
        }
        self.state.admission.reuse(arrivals);
        queue
    }

    /// Starts a session on an accepted socket that receives in `shots`.
    pub(super) fn admit_with(&mut self, socket: OwnedFd, shots: Shots) {
        self.insert(socket, shots, |shared, turn, io| Conversation::accept(shared, turn, io));
    }

    fn welcome(&mut self, socket: OwnedFd, shots: Shots) {
        if let Some(kept) = self.state.hand_over(socket) {
            self.admit_with(kept, shots);
        }
    }

    fn let_in(&mut self, socket: OwnedFd, shots: Shots) {
        self.state.counters.count(Counter::Accepted);
        self.welcome(socket, shots);
    }

    /// Arms an accept in every place that is free, for no more than there is room for.
    fn arm_accepts(&mut self, number: usize) {
        let listening = &self.listeners[number];
        if listening.is_cancelling {
            return;
        }
        let fd = listening.socket.as_raw_fd();
        if self.may_have_many(number) {
            // Once those that are armed have brought theirs.
            if listening.armed() == 0 {
                let label = numbered(Kind::Listener, (number * ARMED_MAX) as u32);
                let mut request = None;
                self.push(|ring| ring.accept(fd, Shots::Many, label).map(|it| request = Some(it)));
                (self.listeners[number].accepts[0], self.listeners[number].is_many) =
                    (request, true);
            }
            return;
        }
        let places = listening.places(self.room().min(self.state.limits.accepts_per_turn));
        let free = |accepts: &[Option<InFlight>]| accepts.iter().position(Option::is_none);
        while self.listeners[number].armed() < places
            && let Some(place) = free(&self.listeners[number].accepts)
        {
            let label = numbered(Kind::Listener, (number * ARMED_MAX + place) as u32);
            let mut request = None;
            self.push(|ring| ring.accept(fd, Shots::One, label).map(|it| request = Some(it)));
            self.listeners[number].accepts[place] = request;
        }
    }

    /// Whether connections come steadily, and there is room for a storm.
    fn may_have_many(&self, number: usize) -> bool {
        let listening = &self.listeners[number];
        !listening.is_shared && listening.steady >= STEADY && self.room() >= ROOM_FOR_MANY
    }

    /// How many more connections there may be.
    fn room(&self) -> u32 {
        self.state.limits.connections_max.saturating_sub(self.state.open_for_accepts())
    }

    /// Cancels the accepts on all listeners, so that processes that share them are woken.
    fn cancel_accepts(&mut self) {
        for number in 0..self.listeners.len() {
            self.cancel(number);
        }
    }

    fn cancel(&mut self, number: usize) {
        let listening = &mut self.listeners[number];
        let is_armed = listening.armed() > 0;
        if std::mem::replace(&mut listening.is_cancelling, is_armed) {
            return;
        }
        for request in listening.accepts.into_iter().flatten() {
            self.push(|ring| ring.cancel_owned(request, numbered(Kind::Cleanup, 0)));
        }
    }
}

/// Whether a connection waits to be accepted. A check that fails counts as one that waits: the next
/// accept says what is wrong.
fn has_client(socket: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&now)) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::completion::SIZES;
    use crate::turn::TurnLoop;
    use crate::{Actions, Limits, ListenAddress, NoSession};
    use pollux_sys::ring::{Sizes, StreamSizes};
    use rustix::net::{Shutdown, shutdown};
    use std::io::{ErrorKind, Read};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// Says who its client is, and closes.
    struct Namer;

    impl Session for Namer {
        type Shared = ();

        fn accepted((): &mut (), actions: &mut Actions<'_>) -> Self {
            let peer = actions.peer().expect("a client over TCP");
            actions.send(peer.to_string().as_bytes());
            actions.close();
            Self
        }

        fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
            input.len()
        }

        fn on_end(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            actions.close();
        }
    }

    /// Turns until each client has received its own address and then the end.
    fn assert_each_is_named(this: &mut CompletionLoop<Namer>, clients: Vec<TcpStream>) {
        let end = Instant::now() + Duration::from_secs(60);
        for mut client in clients {
            let address = client.local_addr().expect("connected").to_string();
            client.set_nonblocking(true).expect("set");
            let mut said = Vec::new();
            loop {
                assert!(Instant::now() < end, "{address} received {said:?} only");
                match client.read_to_end(&mut said) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                this.turn(Some(Duration::from_millis(1))).expect("turned");
            }
            assert_eq!(String::from_utf8_lossy(&said), address);
        }
    }

    /// One request accepts all that wait, and its completions do not fit the queue: that ends it.
    #[test]
    fn an_accept_of_many_that_an_overflow_ends_loses_no_client_and_mixes_none_up() {
        const CLIENTS: usize = 60;
        let sizes = StreamSizes { ring: Sizes { submission: 8, completion: 8 }, ..SIZES };
        let clock = Clock::new(Arc::default());
        let limits = Limits::default();
        let opened = CompletionLoop::with_sizes(sizes, (), limits, clock, Arc::default());
        let Some(mut this) = pollux_testing::or_skip(opened) else { return };
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let &ListenAddress::Tcp(address) = listener.address() else { panic!("a TCP listener") };
        this.listen(listener, false);
        this.listeners[0].steady = STEADY;
        this.turn(Some(Duration::ZERO)).expect("turned");
        assert!(this.listeners[0].is_many, "{:?}", this.describe());
        let connect = |_| TcpStream::connect(address).expect("room in the backlog");
        assert_each_is_named(&mut this, (0..CLIENTS).map(connect).collect());
        assert!(this.state.counters.value(Counter::RingOverflows) > 0, "all completions fitted");
        // It is armed anew.
        assert_each_is_named(&mut this, (0..1).map(connect).collect());
        assert_eq!(this.state.counters.value(Counter::Accepted), CLIENTS as u64 + 1);
    }

    /// Another process that shares a listener may shut it down.
    #[test]
    fn a_broken_listener_pauses_instead_of_spinning() {
        const PATIENCE: Duration = Duration::from_millis(50);
        for is_shared in [false, true] {
            let limits = Limits { accept_pause: PATIENCE, ..Limits::default() };
            let clock = Clock::new(Arc::default());
            let opened = CompletionLoop::<NoSession>::open((), limits, clock, Arc::default());
            let Some(mut this) = pollux_testing::or_skip(opened) else { return };
            let any = "127.0.0.1:0".parse().expect("an address");
            let listener = Listener::open(&any, false).expect("opened");
            let same = listener.duplicate().expect("a descriptor is left").into_socket();
            this.listen(listener, is_shared);
            for _ in 0..3 {
                this.turn(Some(Duration::ZERO)).expect("turned");
            }
            shutdown(&same, Shutdown::Both).expect("it listens");
            let begin = Instant::now();
            let pauses =
                |this: &CompletionLoop<NoSession>| this.state.counters.value(Counter::AcceptPauses);
            while pauses(&this) < 3 {
                assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", this.describe());
                this.turn(Some(PATIENCE)).expect("turned");
            }
            // A few turns for each pause, however long it lasts.
            let turns = this.state.counters.value(Counter::Turns);
            assert!(turns < 40, "shared {is_shared}: {turns} turns");
        }
    }
}
