//! The descriptors of one loop: what sessions want of them, what is known of them, and what is
//! registered with the kernel.
//!
//! A readiness loop owns one table and calls its verbs. The table makes no system call: verbs
//! only record, and [`FdTable::apply`] passes to the poller once a turn what is left of it. Only
//! the loop that registered something keeps what is registered, and a new life of a slot begins
//! with nothing, so a number that was closed and opened again is never taken for the old.
//!
//! ```text
//!          one direction of one descriptor
//!
//!                want                    event                                 apply
//!      ┌──────┐ ─────► ┌─────────┐ ───────────────► ┌───────┐      update     ┌────────┐
//!      │ idle │        │ waiting │                  │  due  │ ┄┄┄┄ list ┄┄┄┄► │ poller │
//!      └──────┘ ◄───── └─────────┘ ◄─────────────── └───────┘   what differs  └────────┘
//!        ▲ │     stop              would block         │ ▲
//!  would │ │ event                                stop │ │ want: act at once
//!  block │ ▼                                           ▼ │
//!      ┌───────────────────────────────────────────────────┐
//!      │                      stopped                      │
//!      └───────────────────────────────────────────────────┘
//! ```
//!
//! | state          | wanted | ready | level: the kernel…                   | oneshot       |
//! |----------------|--------|-------|--------------------------------------|---------------|
//! | idle           |        |       | is left alone; reading rides along   | as level      |
//! | waiting        | ×      |       | has to know                          | is armed      |
//! | due            | ×      | ×     | has to know                          | is armed anew |
//! | stopped        |        | ×     | must not know: it would ring in vain | as level      |
//! | error, hang-up | any    | ×     | has to let go, once                  | was disarmed  |
//!
//! * An edge registration is for reading from the first interest on and for writing from when a socket
//!   was full for the first time; nothing is taken back. With both at once, every fresh socket, which
//!   is writable, would ring (a call and a wake-up more for a connection of one request).
//! * A socket that connects waits for room like a full one, and is registered for both directions at
//!   once: what its peer says first is known when the session wants it.
//! * An interest that is taken back before the wait costs nothing, and neither does one that the
//!   kernel knows still: a direction that is idle stays registered until an event comes in vain.
//! * Reading is registered along with whatever is registered anyway, unless it is known ready.
//! * An error or hang-up is reported once; from then on both directions count as ready, and the
//!   loop finds by [`FdTable::ready_without_event`] what no event will remind it of. A call that would
//!   block all the same shows that an error has passed; a hang-up stays.
//! * Every interest that differs from what the kernel knows is on the update list; tests check that, and every other
//!   invariant, after each step (`tests/invariants.rs`).
//!
//! What an update is stands in `updates.rs`, the bits in `entry.rs`.

mod entry;
#[cfg(test)]
mod tests;
mod updates;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use pollux_poller::{Error, Poller, Readiness, Token, Trigger};

use self::entry::{Direction, Entry, NO_SLOT, State};
use self::updates::{Updates, is_settled};

/// How a descriptor is watched, for all its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Watch {
    /// Something that is read and written; the trigger has to be one that the poller serves.
    Connection(Trigger),
    /// Something that is accepted from: read only, always level, never forgotten, because other
    /// loops may hold duplicates.
    Listener {
        /// Wake one of the loops that watch the same listener instead of all of them.
        exclusive: bool,
    },
}

/// What a loop shall do about a descriptor now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Reading is wanted and would not block.
    pub read: bool,
    /// Writing is wanted and would not block.
    pub write: bool,
    /// An error or hang-up is new, wanted or not; the next call on the descriptor says which.
    pub closed: bool,
}

impl Ready {
    /// Nothing.
    pub const NOTHING: Self = Self { read: false, write: false, closed: false };
}

/// The descriptors of one loop, see the module's picture in the source.
///
/// Owned and used by one thread. `F` is the descriptor: an `OwnedFd`, or a simulated one in
/// tests. Sixteen bytes for each descriptor and four for its place on the update list; memory
/// grows by doubling up to the most descriptors that were open at once, and is kept.
///
/// Verbs on a token whose descriptor was removed do nothing.
#[derive(Debug)]
pub struct FdTable<F = OwnedFd> {
    entries: Vec<Entry<F>>,
    slots_max: usize,
    /// Slots that were freed, the last one first: it is the one whose memory is warm.
    first_free: u32,
    len: usize,
    updates: Updates,
    /// Events of earlier lives since the last `apply`.
    stale: u64,
    /// Whether ends count as readable where reading is wanted.
    masks_ends: bool,
}

/// The place of a live token, if it still is one. A free slot waits under the generation of its
/// next life, for which there is no token yet.
fn current<F>(entries: &mut [Entry<F>], token: Token) -> Option<&mut Entry<F>> {
    let entry = entries.get_mut(token.slot() as usize)?;
    (entry.generation == token.generation()).then_some(entry)
}

/// Descriptors come and go.
impl<F: AsFd> FdTable<F> {
    /// The most slots of any table: 256 MiB of entries, sixteen times what Linux lets a process
    /// open by default (`fs.nr_open`).
    pub const SLOTS_MAX: usize = 1 << 24;

    /// An empty table for up to `slots_max` descriptors, held below [`FdTable::SLOTS_MAX`].
    #[must_use]
    pub fn new(slots_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            slots_max: slots_max.min(Self::SLOTS_MAX),
            first_free: NO_SLOT,
            len: 0,
            updates: Updates::default(),
            stale: 0,
            masks_ends: false,
        }
    }

    /// Takes error, hang-up and end of stream for readable from now on, where reading is wanted: what it
    /// was, the read finds out. Where nothing is read they stay what they are, as a level of them would
    /// be reported without end.
    pub fn mask_ends(&mut self) {
        self.masks_ends = true;
    }

    /// Takes `fd` in. Nothing is wanted of it yet, so nothing is registered.
    ///
    /// # Errors
    /// The descriptor itself, when all slots are taken.
    pub fn insert(&mut self, fd: F, watch: Watch) -> Result<Token, F> {
        let slot = match self.first_free {
            NO_SLOT if self.entries.len() >= self.slots_max => return Err(fd),
            NO_SLOT => self.grow(),
            free => free,
        };
        let entry = &mut self.entries[slot as usize];
        self.first_free = entry.next_free;
        entry.next_free = NO_SLOT;
        entry.fd = Some(fd);
        entry.state.begin(watch);
        self.len += 1;
        Ok(entry.token(slot))
    }

    /// Gives the descriptor of `token` out to be closed; `None` when that was done already.
    ///
    /// The poller forgets it, for which epoll makes no call: a program that made duplicates of a
    /// connection, or gives it away open, uses [`FdTable::hand_over`].
    ///
    /// # Errors
    /// When the poller can't let go; the entry is gone and the descriptor closed all the same.
    pub fn remove(&mut self, token: Token, poller: &mut dyn Poller) -> Result<Option<F>, Error> {
        let forget: DeleteFn = match self.state(token).map(State::watch) {
            Some(Watch::Listener { .. }) => |poller, fd| poller.delete(fd),
            _ => |poller, fd| poller.forget(fd),
        };
        self.release(token, poller, forget)
    }

    /// Gives the descriptor of `token` out to live on elsewhere, with another loop or a child.
    ///
    /// # Errors
    /// As [`FdTable::remove`].
    pub fn hand_over(&mut self, token: Token, poller: &mut dyn Poller) -> Result<Option<F>, Error> {
        self.release(token, poller, |poller, fd| poller.delete(fd))
    }

    /// The descriptor of `token`, for calls on it.
    #[must_use]
    pub fn fd(&self, token: Token) -> Option<BorrowedFd<'_>> {
        let entry = self.entries.get(token.slot() as usize)?;
        let is_current = entry.generation == token.generation();
        entry.fd.as_ref().filter(|_| is_current).map(AsFd::as_fd)
    }

    /// Whether `token` names a descriptor that is still here.
    #[must_use]
    pub fn is_current(&self, token: Token) -> bool {
        self.state(token).is_some()
    }

    /// How many descriptors are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no descriptor is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tokens of all descriptors, by slot.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        let slots = (0..).zip(&self.entries);
        slots.filter(|(_, entry)| entry.fd.is_some()).map(|(slot, entry)| entry.token(slot))
    }

    fn state(&self, token: Token) -> Option<State> {
        let entry = self.entries.get(token.slot() as usize)?;
        (entry.generation == token.generation()).then_some(entry.state)
    }

    /// Makes one more slot.
    fn grow(&mut self) -> u32 {
        let slot = u32::try_from(self.entries.len()).expect("bounded by SLOTS_MAX");
        self.entries.push(Entry {
            fd: None,
            generation: 0,
            state: State::FREE,
            next_free: NO_SLOT,
        });
        self.updates.reserve_for(self.entries.capacity());
        slot
    }

    /// Ends the life of `token`; its place on the update list is left to `apply`.
    fn release(
        &mut self,
        token: Token,
        poller: &mut dyn Poller,
        let_go: DeleteFn,
    ) -> Result<Option<F>, Error> {
        let Some(entry) = current(&mut self.entries, token) else { return Ok(None) };
        let Some(fd) = entry.fd.take() else { return Ok(None) };
        let was_registered = entry.state.is_registered();
        entry.state.end();
        entry.generation = token.next_generation().generation();
        entry.next_free = self.first_free;
        self.first_free = token.slot();
        self.len -= 1;
        if was_registered {
            let_go(poller, fd.as_fd())?;
        }
        Ok(Some(fd))
    }
}

/// How a poller lets go of a descriptor.
type DeleteFn = fn(&mut dyn Poller, BorrowedFd<'_>) -> Result<(), Error>;

/// What sessions want, and what their calls found out.
impl<F> FdTable<F> {
    /// The session wants to read, or to accept. Says whether reading is known not to block: then
    /// the loop reads at once, and with an edge trigger or after an error it has to, because no
    /// event will come.
    #[inline]
    pub fn want_read(&mut self, token: Token) -> bool {
        self.want(token, Direction::Read)
    }

    /// The session does not want to read for now.
    #[inline]
    pub fn stop_read(&mut self, token: Token) {
        self.stop(token, Direction::Read);
    }

    /// Output waits for room. Says whether writing is known not to block, see
    /// [`FdTable::want_read`]. Not for listeners.
    #[inline]
    pub fn want_write(&mut self, token: Token) -> bool {
        self.want(token, Direction::Write)
    }

    /// No output waits.
    #[inline]
    pub fn stop_write(&mut self, token: Token) {
        self.stop(token, Direction::Write);
    }

    /// A read would have blocked (`EAGAIN`), or took all there was: an event will report more.
    #[inline]
    pub fn cannot_read(&mut self, token: Token) {
        self.note(token, |state| state.would_block(Direction::Read));
    }

    /// A write would have blocked, or was short: an event will report when it is writable.
    #[inline]
    pub fn cannot_write(&mut self, token: Token) {
        self.note(token, |state| state.would_block(Direction::Write));
    }

    /// A read found the end: nothing is left to want.
    #[inline]
    pub fn read_ended(&mut self, token: Token) {
        self.note(token, |state| {
            state.shut(Direction::Read);
            state.stop(Direction::Read);
        });
    }

    #[inline]
    fn want(&mut self, token: Token, side: Direction) -> bool {
        let mut is_ready = false;
        self.note(token, |state| {
            debug_assert!(
                side == Direction::Read || matches!(state.watch(), Watch::Connection(_)),
                "a listener is not written to"
            );
            state.want(side);
            is_ready = state.is_ready(side);
        });
        is_ready
    }

    #[inline]
    fn stop(&mut self, token: Token, side: Direction) {
        self.note(token, |state| state.stop(side));
    }

    /// Changes a state, and requests an update where it then differs from what the kernel knows.
    #[inline]
    fn note(&mut self, token: Token, change: impl FnOnce(&mut State)) {
        let Some(entry) = current(&mut self.entries, token) else { return };
        let before = entry.state;
        change(&mut entry.state);
        if entry.state != before && !is_settled(entry.state) {
            self.updates.ask(token.slot(), &mut entry.state);
        }
    }
}

/// What events say.
impl<F> FdTable<F> {
    /// Takes an event in and says what to do now, which may be nothing: the direction is not
    /// wanted, or the error was reported before. `None` is an event of an earlier life, which
    /// the next [`FdTable::apply`] counts as stale.
    #[inline]
    pub fn reported(&mut self, token: Token, found: Readiness) -> Option<Ready> {
        let Some(entry) = current(&mut self.entries, token) else {
            self.stale += 1;
            return None;
        };
        let is_masked = self.masks_ends && entry.state.is_wanted(Direction::Read);
        let due = entry.state.learn(if is_masked && found.intersects(Readiness::ENDS) {
            found.without(Readiness::ENDS).or(Readiness::READABLE)
        } else {
            found
        });
        if !is_settled(entry.state) {
            self.updates.ask(token.slot(), &mut entry.state);
        }
        Some(due)
    }

    /// What is wanted and known not to block though no event will follow: after an edge, an error
    /// or a hang-up. A loop that leaves a descriptor before a call would block comes back to it
    /// by a list of its own when this says so.
    #[inline]
    #[must_use]
    pub fn ready_without_event(&self, token: Token) -> Ready {
        let entry = self.entries.get(token.slot() as usize);
        match entry.filter(|entry| entry.generation == token.generation()) {
            Some(Entry { state, .. }) if state.is_edge() || state.is_closed() => Ready {
                read: state.is_wanted(Direction::Read) && state.is_ready(Direction::Read),
                write: state.is_wanted(Direction::Write) && state.is_ready(Direction::Write),
                closed: false,
            },
            _ => Ready::NOTHING,
        }
    }
}

/// The table looked at from outside, for dumps.
impl<F: AsFd> FdTable<F> {
    /// What is known of the descriptor of `token`, in one line.
    #[must_use]
    pub fn describe(&self, token: Token) -> Option<String> {
        let fd = self.fd(token)?.as_raw_fd();
        let state = self.state(token)?;
        let watch = match state.watch() {
            Watch::Connection(Trigger::Level) => "level",
            Watch::Connection(Trigger::Edge) => "edge",
            Watch::Connection(Trigger::Oneshot) => "oneshot",
            Watch::Listener { exclusive: false } => "listener",
            Watch::Listener { exclusive: true } => "exclusive listener",
        };
        let sides = Direction::BOTH.map(|side| {
            let marks = [
                (state.is_wanted(side), "wanted"),
                (state.is_ready(side), "ready"),
                (state.is_shut(side), "shut"),
                (state.is_polled(side), "polled"),
            ];
            let words = set(&marks);
            if words.is_empty() { "idle".to_owned() } else { words.join("+") }
        });
        let marks = [
            (state.has_error(), "error"),
            (state.is_hung_up(), "hung up"),
            (state.is_registered(), "registered"),
            (state.is_pending(), "update pending"),
        ];
        let (slot, generation, [read, write]) = (token.slot(), token.generation(), sides);
        let line = format!("fd {fd} slot {slot}.{generation} {watch}: read {read}, write {write}");
        Some([&[&*line], &set(&marks)[..]].concat().join("; "))
    }
}

/// The words whose marks are set.
fn set<'a>(marks: &[(bool, &'a str)]) -> Vec<&'a str> {
    marks.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect()
}
