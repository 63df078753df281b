//! Linux AIO poll: one-shot polls that are handed in by the batch, and completions that are
//! read from shared memory. Level is made of it by arming again what was delivered.
//!
//! Additions and modifications wait in a queue and ride with the next wait, together with what
//! has to be armed again, in one `io_submit(2)`; a deletion cancels at once, because an armed
//! poll keeps the file open. What completes beyond the caller's capacity stays in the ring.
//! A completion says what the kernel saw when it happened: what the caller read since shows as
//! a spurious event. The kernel may finish a completion in a worker thread, so a wait with zero
//! timeout can miss what became ready microseconds before. Cancelling makes the kernel search
//! its list of armed polls: tens of microseconds where thousands are armed and the oldest are
//! not deleted first. Differences from epoll: `docs/reference/poller-differences.md`.
//!
//! Files that AIO cannot watch are watched beside it ([`crate::epoll_beside`]): of more than one queue of
//! waiters, which the kernel refuses (EINVAL: terminals, FIFOs that are open for both directions), and signalfds,
//! which it would look at in a thread of its own. So are listeners and pipes, where that is asked for ([`Release`]).
//!
//! ```text
//!            add, modify                wait                   event
//!  (absent) ────────────▶ Queued ───────────────▶ Armed ──────────────┐
//!      ▲                    ▲ ▲                                       │
//!      │ delete             │ └────────────── level ──────────────────┤
//!      │                    └── modify ── Silent ◀────── oneshot ─────┘
//! ```

mod contexts;
#[cfg(test)]
mod tests;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::aio::{AioCompletion, AioPoll, AioSlot, BATCH_MAX};
use pollux_sys::descriptors::{FileKind, is_listener};
use pollux_sys::poll_select;
use rustix::io::Errno;

pub use self::contexts::{AioPool, AioPoolCounts};
use self::contexts::{Lent, is_system_limit, larger};
use crate::backend_base::{BackendBase, Deadline, base_methods};
use crate::epoll_beside::{Beside, Release, is_forbidden};
use crate::table::{Entry, Key, Table, is_claimed};
use crate::{
    Backend, Caps, Counters, Error, Events, FilePolicy, Interest, Poller, Readiness, Registration,
    SignalMask, Token, Trigger, Waker,
};

/// Slots of a new poller: `fs.aio-max-nr` (65536) bounds those of all contexts of all processes together, so a
/// poller begins small and grows on demand.
const SLOTS_AT_OPEN: u32 = 256;

/// The same where contexts are used again, so that growing takes no grace period: a program may have many pollers.
const SLOTS_OF_MANY: u32 = 64;

/// A poller on one AIO context.
pub(crate) struct Aio {
    context: Lent,
    table: Table<State>,
    /// What the next wait hands to the kernel; a state of `Queued` holds the index in here.
    queue: Vec<Key>,
    batch: Vec<AioPoll>,
    completed: Vec<AioCompletion>,
    /// Opened for the first file that AIO cannot watch, or is not to.
    beside: Option<BesideContext>,
    /// The last wait had no room to look there: the next one begins with it.
    is_beside_due: bool,
    release: Release,
    /// What was hung up, as sockets are that do not listen yet: it may listen by the time it is armed again.
    hung_up: Vec<Key>,
    /// Numbers the flushes: a poll that completes in the turn of its submission looked itself.
    turn: u64,
    base: BackendBase,
}

/// What is watched beside the context, and what the context notifies of completions.
struct BesideContext {
    files: Beside,
    completions: OwnedFd,
}

/// What the kernel knows of a registration.
#[derive(Clone, Copy, Debug)]
enum State {
    /// It is submitted with the next wait.
    Queued { index: usize, is_rearm: bool },
    /// A poll is in flight, or its completion waits in the ring; submitted in that turn.
    Armed(AioSlot, u64),
    /// It is watched beside the context, or was: a oneshot that fired.
    Beside { is_spent: bool },
    /// Nothing: a oneshot that fired, or one that the kernel refused.
    Silent,
}

impl Aio {
    /// One of its own context, or of one of `pool`.
    pub(crate) fn open(release: Release, pool: Option<&Arc<AioPool>>) -> Result<Self, Error> {
        let slots = if pool.is_some() { SLOTS_OF_MANY } else { SLOTS_AT_OPEN };
        Self::with_slots(slots, release, pool)
    }

    fn with_slots(
        slots: u32,
        release: Release,
        pool: Option<&Arc<AioPool>>,
    ) -> Result<Self, Error> {
        let context = Lent::open(slots, pool)?;
        Ok(Self {
            base: BackendBase::new(caps(&context))?,
            context,
            table: Table::new(),
            queue: vec![Key::WAKER],
            batch: Vec::new(),
            completed: Vec::new(),
            beside: None,
            is_beside_due: false,
            release,
            hung_up: Vec::new(),
            turn: 0,
        })
    }

    /// Makes sure that `count` registrations and the waker can be armed at once.
    ///
    /// A context can't be made larger: a new one takes over. Everything that
    /// was armed is armed there with the next wait, so nothing is lost with the old ring. Giving
    /// that up takes 30 to 40 ms, as `io_destroy(2)` waits for a grace period (RCU), paid once for
    /// each new one, unless a pool takes it.
    fn reserve(&mut self, count: usize) -> Result<(), Error> {
        if count < self.context.capacity() {
            return Ok(());
        }
        let context = self.context.larger()?;
        self.take_over(context);
        Ok(())
    }

    /// Continues with another context.
    fn take_over(&mut self, context: Lent) {
        // io_setup for the new one, io_destroy for the old, or what a pool does in their place.
        self.base.counters.system_calls.add(2);
        self.context = context;
        if let Some(beside) = &self.beside {
            self.context.notify(beside.completions.as_fd());
        }
        self.base.caps.notes = notes(&self.context);
        if !self.queue.contains(&Key::WAKER) {
            self.queue.push(Key::WAKER);
        }
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            if matches!(self.state(key), State::Armed(..)) {
                self.enqueue(key, true);
            }
        }
    }

    /// From here on it is waited beside the context, which notifies of completions.
    fn open_beside(&mut self) -> Result<(), Error> {
        if self.beside.is_some() {
            return Ok(());
        }
        let files = Beside::open(&self.base.counters)?;
        let completions = files.completions(&self.base.counters)?;
        let beside = BesideContext { files, completions };
        let is_untouched = self.queue.contains(&Key::WAKER)
            && !self.table.iter().any(|entry| matches!(entry.state, State::Armed(..)));
        if is_untouched {
            self.context.notify(beside.completions.as_fd());
            self.beside = Some(beside);
        } else {
            // What is armed tells nobody of its completion: it is armed anew.
            let context = self.context.another(self.context.capacity())?;
            self.beside = Some(beside);
            self.take_over(context);
        }
        Ok(())
    }

    /// Watches the file of `key` beside the context.
    fn watch_beside(&mut self, key: Key) -> Result<(), Error> {
        self.open_beside()?;
        let Some(entry) = self.table.by_key(key) else { return Ok(()) };
        if let Some(beside) = &self.beside {
            beside.files.add(key, entry.how, &self.base.counters)?;
            entry.state = State::Beside { is_spent: false };
        }
        Ok(())
    }

    /// The state of a key that is known to be current.
    fn state(&mut self, key: Key) -> &mut State {
        &mut self.table.by_key(key).expect("keys in use have their entry").state
    }

    fn enqueue(&mut self, key: Key, is_rearm: bool) {
        *self.state(key) = State::Queued { index: self.queue.len(), is_rearm };
        self.queue.push(key);
    }

    /// Takes the registration of `fd` away from queue and kernel; says whether the kernel had
    /// to be changed. The entry goes with it.
    fn withdraw(&mut self, fd: RawFd) -> Result<bool, Error> {
        let Some(entry) = self.table.remove(fd) else { return Ok(false) };
        match entry.state {
            State::Armed(slot, _) => {
                self.base.counters.system_calls.add(1);
                let cancelled = self.context.cancel(slot);
                cancelled.map_err(|cause| Error::System { call: "io_cancel", cause })?;
                return Ok(true);
            }
            State::Beside { .. } => {
                if let Some(beside) = &self.beside {
                    beside.files.delete(fd, &self.base.counters);
                }
                return Ok(true);
            }
            State::Queued { index, .. } => {
                self.queue.swap_remove(index);
                self.note_indices(index..index + 1);
            }
            State::Silent => {}
        }
        Ok(false)
    }

    /// Whether `fd`, of that kind, is to be watched beside the context.
    fn is_for_beside(&self, fd: RawFd, kind: Option<FileKind>) -> bool {
        match kind {
            Some(FileKind::Signals) => true,
            Some(FileKind::Pipe) => self.release == Release::AtOnce,
            Some(FileKind::Socket) if self.release == Release::AtOnce => {
                self.base.counters.system_calls.add(1);
                is_listener(fd)
            }
            _ => false,
        }
    }

    /// Takes what listens since it was hung up from the queue, to be watched beside the context.
    fn part_listeners(&mut self) {
        while let Some(key) = self.hung_up.pop() {
            let Some(entry) = self.table.by_key(key) else { continue };
            if !matches!(entry.state, State::Queued { .. }) {
                continue;
            }
            // Where it is refused it is polled as other sockets are.
            if self.is_for_beside(key.fd(), Some(FileKind::Socket))
                && self.watch_beside(key).is_ok()
                && let Some(index) = self.queue.iter().position(|queued| *queued == key)
            {
                self.queue.swap_remove(index);
                self.note_indices(index..index + 1);
            }
        }
    }

    /// Writes the places of queued keys that moved into their entries.
    fn note_indices(&mut self, moved: std::ops::Range<usize>) {
        for new_index in moved.start..moved.end.min(self.queue.len()) {
            let key = self.queue[new_index];
            if key == Key::WAKER {
                continue;
            }
            if let State::Queued { index, .. } = self.state(key) {
                *index = new_index;
            }
        }
    }

    /// Hands the queue to the kernel. What finds no slot stays queued: then a slot is held by a
    /// completion that lies in the ring or is about to, and the wait will come round again.
    fn flush(&mut self, events: &mut Events) -> Result<(), Error> {
        self.turn += 1;
        self.part_listeners();
        let mut done = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && done < self.queue.len() && !events.is_full() {
            self.fill_batch(done);
            match self.context.submit(&self.batch) {
                // No slot is free, and no call was made.
                Ok([]) => break,
                Ok(slots) => {
                    for (&key, &slot) in self.queue[done..].iter().zip(slots) {
                        note_armed(&mut self.table, &self.base.counters, key, (slot, self.turn));
                    }
                    done += slots.len();
                }
                // EAGAIN, ENOMEM: it stays queued, the next wait tries again.
                Err(cause) if is_system_limit(&cause) => outcome = Err(submit_failed(cause)),
                Err(cause) => {
                    outcome = self.refuse(self.queue[done], cause, events);
                    done += 1;
                }
            }
            self.base.counters.system_calls.add(1);
        }
        self.queue.drain(..done);
        self.note_indices(0..self.queue.len());
        outcome
    }

    /// Describes the polls for the queue from `first` on.
    fn fill_batch(&mut self, first: usize) {
        self.batch.clear();
        for &key in self.queue[first..].iter().take(BATCH_MAX) {
            let (fd, interest) = match self.table.by_key(key) {
                Some(entry) => (key.fd(), entry.how.interest),
                None => (self.base.waker.fd().as_raw_fd(), Interest::READABLE),
            };
            // Every bit that an interest has lies in the lower half of the mask.
            let events = interest.poll_mask() as u16;
            self.batch.push(AioPoll { fd, events, data: key.0 });
        }
    }

    /// The kernel would not arm `key`: either its number was closed since it was armed before,
    /// or the caller is notified by an event (the deferred errors of the contract).
    fn refuse(&mut self, key: Key, cause: io::Error, events: &mut Events) -> Result<(), Error> {
        if key == Key::WAKER {
            return Err(submit_failed(cause));
        }
        if Errno::from_io_error(&cause) == Some(Errno::INVAL) && self.watch_beside(key).is_ok() {
            return Ok(());
        }
        let entry = self.table.by_key(key).expect("what is queued has its entry");
        if let State::Queued { is_rearm: false, .. } = entry.state {
            self.base.counters.updates_sent.add(1);
        } else {
            self.base.counters.system_calls.add(1);
            if !poll_select::is_open(key.fd()) {
                self.table.remove(key.fd());
                self.base.counters.closed_without_delete.add(1);
                return Ok(());
            }
        }
        entry.state = State::Silent;
        events.push(entry.token, Readiness::ERROR);
        Ok(())
    }

    /// Reads the ring until it is empty or `events` is full; says whether it held anything.
    fn harvest(&mut self, events: &mut Events) -> Result<bool, Error> {
        let mut has_found = false;
        while !events.is_full() {
            if !self.context.has_user_ring() {
                self.base.counters.system_calls.add(1);
            }
            self.completed.clear();
            let room = events.capacity() - events.len();
            let found = self.context.read(&mut self.completed, room);
            if found.map_err(|cause| Error::System { call: "io_getevents", cause })? == 0 {
                break;
            }
            has_found = true;
            self.deliver(events, false);
        }
        Ok(has_found)
    }

    /// Looks at what is watched beside the context, for at most `timeout`, and hands out what is ready; says
    /// whether the wait is over: completions, which are harvested next, do not end it.
    fn look_beside(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> Result<bool, Error> {
        let Some(beside) = &mut self.beside else { return Ok(false) };
        self.base.counters.system_calls.add(1);
        let room = events.capacity() - events.len();
        let found = match beside.files.wait(room, timeout, self.base.mask.as_ref()) {
            Ok(found) => found,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {
                self.base.counters.interrupts.add(1);
                events.set_interrupted();
                return Ok(true);
            }
            Err(cause) => return Err(Error::System { call: "epoll_wait", cause }),
        };
        let is_over = found.is_empty();
        let mut is_stale = false;
        for &(key, found) in found {
            let Some(entry) = self.table.by_key(key) else {
                // Completions, or a file that is registered no longer.
                is_stale |= key != Key::IGNORED;
                continue;
            };
            events.push(entry.token, found.visible_to(entry.how.interest));
            if entry.how.trigger == Trigger::Oneshot {
                entry.state = State::Beside { is_spent: true };
            }
        }
        if is_stale {
            self.base.counters.stale_events.add(1);
            self.open_beside_anew()?;
        }
        Ok(is_over || !events.is_empty())
    }

    /// A file was closed without `delete` and lives on by a duplicate: the epoll would be ready for ever, and only its
    /// number could take it out.
    fn open_beside_anew(&mut self) -> Result<(), Error> {
        let Some(beside) = &mut self.beside else { return Ok(()) };
        let files = Beside::open(&self.base.counters)?;
        files.watch_completions(&beside.completions, &self.base.counters)?;
        beside.files = files;
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            let Some(entry) = self.table.by_key(key) else { continue };
            if !matches!(entry.state, State::Beside { is_spent: false }) {
                continue;
            }
            if beside.files.add(key, entry.how, &self.base.counters).is_err() {
                // Closed as well.
                self.table.remove(key.fd());
                self.base.counters.closed_without_delete.add(1);
            }
        }
        Ok(())
    }

    /// Blocks for the next completions and hands them out; says whether the wait is over.
    fn block(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<bool, Error> {
        if self.beside.is_some() {
            return self.look_beside(events, timeout);
        }
        self.base.counters.system_calls.add(1);
        self.completed.clear();
        let most = events.capacity();
        let mask = self.base.mask.as_ref();
        match self.context.wait_masked(&mut self.completed, most, timeout, mask) {
            Ok(0) => Ok(true),
            Ok(_) => {
                self.deliver(events, true);
                Ok(has_completions(events))
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {
                self.base.counters.interrupts.add(1);
                events.set_interrupted();
                Ok(true)
            }
            // Filters of containers allow io_getevents(2), and not io_pgetevents(2), which has the mask.
            Err(cause) if self.base.mask.is_some() && is_forbidden(&cause) => {
                self.open_beside().map(|()| false)
            }
            Err(cause) => Err(Error::System { call: "io_getevents", cause }),
        }
    }

    /// Hands out what completed and queues what has to be armed again. What came while the wait blocked was woken, and
    /// not looked at when it was submitted.
    fn deliver(&mut self, events: &mut Events, has_blocked: bool) {
        for index in 0..self.completed.len() {
            let AioCompletion { data, result } = self.completed[index];
            let key = Key(data);
            if key == Key::WAKER {
                self.base.acknowledge_level_wake(events);
                self.queue.push(Key::WAKER);
                continue;
            }
            let Some(entry) = self.table.by_key(key) else {
                // The end of a cancelled poll carries nothing that could be stale.
                self.base.counters.stale_events.add(u64::from(result != 0));
                continue;
            };
            let found = Readiness::from_poll_mask(result as u32).visible_to(entry.how.interest);
            let has_looked =
                !has_blocked && matches!(entry.state, State::Armed(_, turn) if turn == self.turn);
            let is_doubtful = found.is_doubtful_claim() && !has_looked;
            if is_doubtful && is_claimed(key.fd(), &self.base.counters) {
                self.enqueue(key, true);
                continue;
            }
            events.push(entry.token, found);
            if self.release == Release::AtOnce && found.contains(Readiness::HUP) {
                self.hung_up.push(key);
            }
            match entry.how.trigger {
                Trigger::Oneshot => entry.state = State::Silent,
                _ => self.enqueue(key, true),
            }
        }
    }
}

impl Poller for Aio {
    #[inline]
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        self.table.check_open(fd, &self.base.counters)?;
        let was_closed = self.table.check_vacant(fd, token)?;
        self.base.counters.updates_asked.add(1);
        let raw = fd.as_raw_fd();
        if was_closed {
            self.withdraw(raw)?;
            self.base.counters.closed_without_delete.add(1);
        }
        self.reserve(self.table.len() + 1)?;
        let key = self.table.insert(raw, Entry { token, how, state: State::Silent });
        self.base.counters.system_calls.add(1);
        let kind = FileKind::of(raw);
        if !self.is_for_beside(raw, kind) {
            self.enqueue(key, false);
            return Ok(());
        }
        match self.watch_beside(key) {
            Err(refused) if kind == Some(FileKind::Signals) => {
                self.table.remove(raw);
                Err(refused)
            }
            // No descriptor is left for the epoll: listeners and pipes are polled as other files are.
            Err(_) => {
                self.enqueue(key, false);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    #[inline]
    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let entry = self.table.registered(fd)?;
        self.base.counters.updates_asked.add(1);
        // A poll in flight that watches for the same of the same file serves the new one too,
        // and one that is about to be armed will.
        let is_same = entry.token == token && entry.how.interest == how.interest;
        let is_queued = matches!(entry.state, State::Queued { .. });
        if is_queued || (is_same && matches!(entry.state, State::Armed(..))) {
            (entry.token, entry.how) = (token, how);
            self.base.counters.updates_merged.add(1);
            return Ok(());
        }
        let is_beside = matches!(entry.state, State::Beside { .. });
        let raw = fd.as_raw_fd();
        self.withdraw(raw)?;
        let key = self.table.insert(raw, Entry { token, how, state: State::Silent });
        if is_beside {
            return self.watch_beside(key);
        }
        self.enqueue(key, false);
        Ok(())
    }

    #[inline]
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let state = self.table.registered(fd)?.state;
        self.base.counters.updates_asked.add(1);
        let was_reported = self.withdraw(fd.as_raw_fd())?;
        match state {
            _ if was_reported => self.base.counters.updates_sent.add(1),
            // Neither the addition nor the deletion reaches the kernel.
            State::Queued { is_rearm: false, .. } => self.base.counters.updates_merged.add(2),
            _ => self.base.counters.updates_merged.add(1),
        }
        Ok(())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let beside = self.beside.iter();
        let beside = beside.flat_map(|beside| [beside.files.fd(), beside.completions.as_raw_fd()]);
        [self.base.waker.fd().as_raw_fd()].into_iter().chain(beside).collect()
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        let deadline = Deadline::after(timeout);
        let mut remaining = timeout;
        let mut has_looked_beside = mem::take(&mut self.is_beside_due);
        if has_looked_beside {
            self.look_beside(events, Some(Duration::ZERO))?;
            if events.is_interrupted() {
                self.base.counters.wait_ended(events.len());
                return Ok(());
            }
        }
        loop {
            self.flush(events)?;
            let has_found = self.harvest(events)?;
            if has_completions(events) {
                self.is_beside_due = events.is_full() && !has_looked_beside;
                if !events.is_full() && !has_looked_beside {
                    self.look_beside(events, Some(Duration::ZERO))?;
                }
                break;
            }
            if has_found {
                // Only stale ones, but their slots are free: the queue may move on.
                continue;
            }
            if remaining == Some(Duration::ZERO) {
                self.look_beside(events, remaining)?;
                break;
            }
            if self.block(events, remaining)? {
                break;
            }
            has_looked_beside = self.beside.is_some();
            remaining = deadline.remaining();
        }
        self.base.counters.wait_ended(events.len());
        Ok(())
    }

    base_methods!();
}

fn has_completions(events: &Events) -> bool {
    !events.is_empty() || events.is_woken()
}

/// Books that the kernel accepted `key`.
fn note_armed(
    table: &mut Table<State>,
    counters: &Counters,
    key: Key,
    (slot, turn): (AioSlot, u64),
) {
    let Some(entry) = table.by_key(key) else { return };
    match entry.state {
        State::Queued { is_rearm: true, .. } => counters.rearms.add(1),
        _ => counters.updates_sent.add(1),
    }
    entry.state = State::Armed(slot, turn);
}

fn caps(context: &Lent) -> Caps {
    Caps {
        edge: false,
        exclusive: false,
        files: FilePolicy::AlwaysReady,
        deferred_changes: true,
        holds_files: true,
        fds_max: fds_max(context),
        notes: notes(context),
        ..Caps::complete(Backend::Aio)
    }
}

fn submit_failed(cause: io::Error) -> Error {
    Error::System { call: "io_submit", cause }
}

/// How many descriptors growing can reach while the smaller context still stands, if all of
/// `fs.aio-max-nr` were ours. One slot is the waker's.
fn fds_max(context: &Lent) -> Option<usize> {
    let limit = std::fs::read_to_string("/proc/sys/fs/aio-max-nr").ok()?;
    Some(grown_within(context.capacity(), limit.trim().parse().ok()?) - 1)
}

/// The largest size to which `slots` grows while old and new fit into `limit` together.
fn grown_within(mut slots: usize, limit: usize) -> usize {
    while slots.saturating_add(larger(slots)) <= limit {
        slots = larger(slots);
    }
    slots
}

/// What the capabilities say of `context`.
fn notes(context: &Lent) -> Vec<String> {
    let ring = if context.has_user_ring() { "read in user space" } else { "read by system call" };
    vec![format!("{} slots; completion ring {ring}", context.capacity())]
}
