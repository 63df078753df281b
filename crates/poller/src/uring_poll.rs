//! io_uring as a readiness poller: poll requests instead of `epoll_ctl(2)`, and one
//! `io_uring_enter(2)` that carries every change and waits.
//!
//! * Edge: one multishot poll for the life of the registration.
//! * Oneshot: one single-shot poll.
//! * Level: a single-shot poll, armed again in the next wait after each delivery. A condition
//!   that still holds completes it at once, so level means what it says.
//!
//! What completed stands in `ready`, as in epoll's ready list: once for each registration,
//! however often it fired, and in turn, so that successive waits serve all in turn. A level registration
//! in there is not armed; it is polled anew before it is reported, unless that just happened.
//!
//! Listeners are watched by an epoll beside the ring where that is asked for ([`Release`]), which is polled as one
//! more file: a ring that nobody closed holds what it polls for some milliseconds after its process was killed.
//! Exclusive ones are not: an epoll that is polled takes no exclusive wake, so all that wait would be woken.
//!
//! `docs/io-uring.md` has the reasons and the figures. What the kernel holds is bookkept in
//! [`crate::uring_changes`]; keys that no registration answers for are stale.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_sys::descriptors::is_listener;
use pollux_sys::ring::{Completion, Request, Shots, Sizes};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::backend_base::{BackendBase, base_methods};
use crate::epoll_beside::{Beside, Release};
use crate::table::{Entry, Key, Table, is_claimed};
use crate::uring_changes::{Changes, PollState, failed_update};
use crate::uring_ring::{CountedRing, Entered};
use crate::{
    Caps, Counters, Error, Events, Expected, Interest, Poller, Readiness, Registration, SignalMask,
    Threads, Token, Trigger, Waker,
};

#[cfg(test)]
mod tests;

/// Queue sizes: 9,000 descriptors taken out and entered again under new tokens are 18,000
/// requests, nine times a full submission queue, and 9,000 completions of the ended polls,
/// which fit. Together 384 KiB of locked memory; halved where the limit does not allow it. From
/// 8,192 completions on the kernel also gives its table of polls the most buckets (256).
const SIZES: Sizes = Sizes { submission: 2048, completion: 16_384 };

/// For [`Expected::Few`] descriptors. A program may have many pollers, and `RLIMIT_MEMLOCK` (8 MiB) bounds those of all
/// processes of a user together.
const SIZES_FEW: Sizes = Sizes { submission: 256, completion: 2048 };

/// Completions that the kernel finishes in one enter unless more are waited for (Linux 6.13:
/// IO_LOCAL_TW_DEFAULT_MAX).
const COMPLETIONS_PER_ENTER: usize = 20;

/// The most enters in one wait that only fetch what the kernel has deferred. Reached when
/// other threads make more ready than this one can fetch; the next wait continues.
const FETCHES_MAX: usize = 64;

/// How many enters in a row may bring nothing before the flag for deferred work is not believed:
/// [`Ring::has_deferred_work`](pollux_sys::ring::Ring::has_deferred_work). More than one, because
/// the kernel may have worked off polls that came to nothing, 20 in each enter.
const EMPTY_FETCHES_MAX: usize = 8;

/// A poll that ends this often in a row, though nothing cut it short, is of a file that never
/// changes, such as a regular file; arming it for ever would spin.
const ENDS_MAX: u8 = 2;

/// A look asked for in one turn is answered in the next. What comes later is doubted anew.
const LOOK_TURNS: u64 = 1;

/// A poller on one io_uring instance.
pub(crate) struct UringPoll {
    ring: CountedRing,
    table: Table<PollState>,
    changes: Changes,
    /// Registrations to report, oldest first, each at most once.
    ready: VecDeque<Key>,
    /// Numbers the turns: distinguishes what was found just now from what was found earlier.
    turn: u64,
    is_waker_armed: bool,
    /// A wake was taken that no wait has reported yet.
    was_woken: bool,
    beside: Option<Listeners>,
    /// The process that opened the ring.
    owner: Pid,
    base: BackendBase,
}

/// What is watched beside the ring.
struct Listeners {
    files: Beside,
    /// How many.
    count: usize,
    /// What may be a listener: looked at when the next changes go to the kernel.
    candidates: Vec<Key>,
    /// The ring polls the epoll.
    is_armed: bool,
    /// The epoll was ready and was not looked at since.
    is_ready: bool,
    /// The last wait had no room to look there: the next one begins with it.
    is_due: bool,
}

impl UringPoll {
    pub(crate) fn open(
        threads: Threads,
        expected: Expected,
        release: Release,
    ) -> Result<Self, Error> {
        let sizes = match expected {
            Expected::Few => SIZES_FEW,
            Expected::Many => SIZES,
        };
        let mut poller = Self::with_sizes(sizes, threads)?;
        if release == Release::AtOnce {
            let files = Beside::open(&poller.base.counters)?;
            poller.beside = Some(Listeners {
                files,
                count: 0,
                candidates: Vec::new(),
                is_armed: false,
                is_ready: false,
                is_due: false,
            });
        }
        Ok(poller)
    }

    fn with_sizes(sizes: Sizes, threads: Threads) -> Result<Self, Error> {
        let counters = Arc::<Counters>::default();
        let ring = CountedRing::open(sizes, threads, counters.clone())?;
        let base = BackendBase { counters, ..BackendBase::new(ring.caps())? };
        Ok(Self {
            ring,
            table: Table::new(),
            changes: Changes::new(),
            ready: VecDeque::new(),
            // No look was asked for in the turns before the first.
            turn: LOOK_TURNS + 1,
            is_waker_armed: false,
            was_woken: false,
            beside: None,
            owner: rustix::process::getpid(),
            base,
        })
    }

    /// One round of a wait: what is left of earlier rounds is reported or polled anew, changes
    /// go to the kernel, which may block for `rest` (`None`: for ever; zero: not at all), and
    /// what it found is reported. Says whether another turn would fetch more.
    fn turn(&mut self, events: &mut Events, rest: Option<Duration>) -> Result<bool, Error> {
        self.turn += 1;
        let looks_first =
            self.beside.as_mut().is_some_and(|beside| std::mem::take(&mut beside.is_due));
        if looks_first {
            self.look_beside(events)?;
        }
        self.report_left(events);
        self.load_changes()?;
        let may_block = events.is_empty()
            && self.ready.is_empty()
            && self.changes.is_empty()
            && !self.was_woken
            && !self.beside.as_ref().is_some_and(|beside| beside.is_ready)
            && !self.ring.has_overflow();
        let cancelled = self.changes.take_cancels();
        if cancelled > COMPLETIONS_PER_ENTER {
            // Each of them completes at once; asking for all spares one enter for every 20.
            let ended = cancelled.min(self.ring.setup().sizes.completion as usize);
            self.enter(events, ended as u32, Some(Duration::ZERO))?;
        } else if may_block && rest != Some(Duration::ZERO) {
            self.enter(events, 1, rest)?;
        } else if self.ring.has_loaded() {
            self.enter(events, 0, None)?;
        }
        self.harvest();
        let may_have_more = self.fetch(events)?;
        self.report_fresh(events);
        if !events.is_full() {
            self.look_beside(events)?;
        } else if let Some(beside) = &mut self.beside {
            beside.is_due = beside.is_ready && !looks_first;
        }
        if std::mem::take(&mut self.was_woken) {
            events.set_woken();
        }
        Ok(may_have_more)
    }

    /// Works out the changes for the kernel and loads them for the next enter.
    fn load_changes(&mut self) -> Result<(), Error> {
        // A plan rests on the answers to all requests before it. They are in once nothing is
        // queued here or kept back by the kernel, for every wait harvests to the end.
        if self.changes.is_answered() && !self.ring.has_overflow() {
            self.part_listeners();
            self.changes.plan(&self.table, &self.base.counters);
        }
        if !self.is_waker_armed {
            let fd = self.base.waker.fd().as_raw_fd();
            let events = Interest::READABLE.poll_mask();
            let shots = Shots::Many;
            let user_data = Key::WAKER.0;
            self.changes.queue().push_back(Request::PollAdd { fd, events, shots, user_data });
            self.is_waker_armed = true;
        }
        if let Some(beside) = &mut self.beside
            && beside.count > 0
            && !beside.is_armed
        {
            let fd = beside.files.fd();
            let events = Interest::READABLE.poll_mask();
            let shots = Shots::One;
            let user_data = Key::BESIDE.0;
            self.changes.queue().push_back(Request::PollAdd { fd, events, shots, user_data });
            beside.is_armed = true;
        }
        self.ring.load(self.changes.queue())
    }

    /// Hands candidates that listen to the epoll beside the ring.
    fn part_listeners(&mut self) {
        let Some(beside) = &mut self.beside else { return };
        while let Some(key) = beside.candidates.pop() {
            let Some(entry) = self.table.by_key(key) else { continue };
            if entry.how.exclusive || entry.state.is_beside {
                continue;
            }
            self.base.counters.system_calls.add(1);
            // Where it is refused the ring polls it, as it does other files.
            if is_listener(key.fd())
                && beside.files.add(key, entry.how, &self.base.counters).is_ok()
            {
                entry.state = PollState { is_beside: true, ..PollState::new(entry.how) };
                beside.count += 1;
                self.changes.mark(key.fd());
            }
        }
    }

    /// Reports what is ready beside the ring, if that has said that there is something.
    fn look_beside(&mut self, events: &mut Events) -> Result<(), Error> {
        let Some(beside) = self.beside.as_mut().filter(|beside| beside.is_ready) else {
            return Ok(());
        };
        self.base.counters.system_calls.add(1);
        let room = events.capacity() - events.len();
        let found = beside.files.wait(room, Some(Duration::ZERO), None);
        let found = found.map_err(|cause| Error::System { call: "epoll_wait", cause })?;
        beside.is_ready = false;
        let mut is_stale = false;
        for &(key, found) in found {
            match self.table.by_key(key) {
                Some(entry) => events.push(entry.token, found.visible_to(entry.how.interest)),
                None => is_stale = true,
            }
        }
        if is_stale {
            self.base.counters.stale_events.add(1);
            self.open_beside_anew()?;
        }
        Ok(())
    }

    /// A listener was closed without `delete` and lives on by a duplicate: the epoll would be ready for ever, and
    /// only its number could take it out.
    fn open_beside_anew(&mut self) -> Result<(), Error> {
        let files = Beside::open(&self.base.counters)?;
        let keys: Vec<Key> = self.table.keys().collect();
        let Some(beside) = &mut self.beside else { return Ok(()) };
        beside.files = files;
        beside.count = 0;
        for key in keys {
            if let Some(entry) = self.table.by_key(key)
                && std::mem::take(&mut entry.state.is_beside)
            {
                self.changes.mark(key.fd());
                beside.candidates.push(key);
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        events: &mut Events,
        completions_min: u32,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if self.ring.enter(completions_min, timeout, self.base.mask.as_ref())? == Entered::BySignal
        {
            self.base.counters.interrupts.add(1);
            events.set_interrupted();
        }
        Ok(())
    }

    /// Fetches what the kernel finishes only when it is asked, for as long as there is room, and
    /// says whether it holds more.
    fn fetch(&mut self, events: &mut Events) -> Result<bool, Error> {
        let mut empty_in_a_row = 0;
        for _ in 0..FETCHES_MAX {
            if !self.ring.has_unfetched() || empty_in_a_row == EMPTY_FETCHES_MAX {
                return Ok(false);
            }
            if events.len() + self.ready.len() >= events.capacity() {
                break;
            }
            self.enter(events, 0, None)?;
            empty_in_a_row = if self.harvest() == 0 { empty_in_a_row + 1 } else { 0 };
        }
        Ok(true)
    }

    /// Reports what earlier turns found and what did not fit. Level registrations take the room
    /// but are polled first: what was found may be over.
    fn report_left(&mut self, events: &mut Events) {
        let mut room = events.capacity() - events.len();
        while room > 0
            && let Some(key) = self.ready.pop_front()
        {
            let Some(entry) = self.table.by_key(key) else { continue };
            if entry.state.is_beside {
                continue;
            }
            room -= 1;
            if entry.state.needs_looks(entry.how) {
                entry.state.found = Readiness::NONE;
                self.changes.mark(key.fd());
                self.base.counters.rearms.add(1);
            } else {
                events.push(entry.token, std::mem::take(&mut entry.state.found));
            }
        }
    }

    /// Reports what this turn found. A level registration goes to the end of the line, and so
    /// does one that was found in an earlier turn.
    fn report_fresh(&mut self, events: &mut Events) {
        for _ in 0..self.ready.len() {
            if events.is_full() {
                break;
            }
            let key = self.ready.pop_front().expect("counted above");
            let Some(entry) = self.table.by_key(key) else { continue };
            if entry.state.is_beside {
                continue;
            }
            let needs_looks = entry.state.needs_looks(entry.how);
            if !needs_looks || entry.state.found_in == self.turn {
                events.push(entry.token, std::mem::take(&mut entry.state.found));
            }
            if needs_looks {
                self.ready.push_back(key);
            }
        }
    }

    /// Takes every completion that the ring holds, and counts them.
    fn harvest(&mut self) -> usize {
        let mut taken = 0;
        while let Some(completion) = self.ring.next_completion() {
            taken += 1;
            let key = Key(completion.user_data);
            if key == Key::WAKER {
                self.base.waker.acknowledge_edge();
                self.base.counters.wakes.add(1);
                self.was_woken = true;
                self.is_waker_armed = completion.has_more;
            } else if key == Key::BESIDE {
                if let Some(beside) = &mut self.beside {
                    (beside.is_armed, beside.is_ready) = (false, true);
                }
            } else if let Some(key) = failed_update(completion.user_data) {
                self.changes.update_failed(key);
                self.base.counters.rearms.add(1);
            } else if key != Key::IGNORED {
                self.polled(key, completion);
            }
        }
        taken
    }

    /// The poll under `key` completed.
    fn polled(&mut self, key: Key, completion: Completion) {
        let Completion { result, has_more, .. } = completion;
        if !has_more {
            self.changes.ended(key);
        }
        let Some(entry) = self.table.by_key(key) else {
            // The ends of cancelled polls are expected.
            let is_stale = result != -Errno::CANCELED.raw_os_error();
            self.base.counters.stale_events.add(is_stale.into());
            return;
        };
        if result == -Errno::CANCELED.raw_os_error() {
            // Not by us: the thread that armed it has ended (`Threads::Several`).
            self.base.counters.rearms.add(1);
            self.changes.mark(key.fd());
            return;
        }
        entry.state.is_refused = result < 0;
        let found = match u32::try_from(result) {
            Ok(mask) => Readiness::from_poll_mask(mask).visible_to(entry.how.interest),
            Err(_) => Readiness::ERROR,
        };
        let is_doubtful =
            found.is_doubtful_claim() && self.turn - entry.state.doubted_in > LOOK_TURNS;
        if is_doubtful && is_claimed(key.fd(), &self.base.counters) {
            self.look_again(key);
            return;
        }
        entry.state.doubted_in = 0;
        let mut key = key;
        if entry.how.trigger == Trigger::Edge || found.is_empty() {
            self.keep_armed(key, completion);
        } else if has_more {
            key = self.disarm(key);
        }
        self.note_hang_up(key, found);
        if !found.is_empty() {
            self.found(key, found);
        }
    }

    /// What was hung up may listen by the time it is polled again, or may have begun to.
    fn note_hang_up(&mut self, key: Key, found: Readiness) {
        let Some(beside) = &mut self.beside else { return };
        let Some(entry) = self.table.by_key(key) else { return };
        let is_hung_up = found.contains(Readiness::HUP);
        if std::mem::replace(&mut entry.state.is_hung_up, is_hung_up) || is_hung_up {
            beside.candidates.push(key);
        }
    }

    /// Asks what really holds, by a poll that looks at the file.
    fn look_again(&mut self, key: Key) {
        let fd = key.fd();
        let Entry { token, how, state } = self.table.remove(fd).expect("the caller found it");
        let state = PollState { found: Readiness::NONE, doubted_in: self.turn, ..state };
        // Under a new key an armed poll is updated; one that ended is added.
        self.table.insert(fd, Entry { token, how, state });
        self.changes.mark(fd);
        self.base.counters.rearms.add(1);
    }

    fn found(&mut self, key: Key, found: Readiness) {
        let watch = &mut self.table.by_key(key).expect("the caller found it").state;
        if watch.found.is_empty() {
            self.ready.push_back(key);
        }
        watch.found |= found;
        watch.found_in = self.turn;
    }

    /// Arms a poll again that should continue but has ended: a multishot whose completion found
    /// the queue full, or a single shot spent on a condition that is not wanted (the kernel
    /// always reports RDHUP). The latter continues as a multishot, which waits for a change;
    /// another single shot would complete at once, for ever.
    fn keep_armed(&mut self, key: Key, completion: Completion) {
        let watch = &mut self.table.by_key(key).expect("the caller found it").state;
        if completion.has_more {
            watch.ends = 0;
            return;
        }
        let is_cut_short = watch.shots == Shots::Many && self.ring.is_shaken();
        if !is_cut_short {
            watch.ends += 1;
        }
        watch.shots = Shots::Many;
        if !watch.is_refused && watch.ends < ENDS_MAX {
            self.base.counters.rearms.add(1);
            self.changes.mark(key.fd());
        }
    }

    /// Ends the multishot that stood in for a single shot. The key is exchanged, so that
    /// nothing more that comes of it is taken for the registration's.
    fn disarm(&mut self, key: Key) -> Key {
        let fd = key.fd();
        self.changes.retire(fd);
        let Entry { token, how, .. } = self.table.remove(fd).expect("the caller found it");
        self.table.insert(fd, Entry { token, how, state: PollState::new(how) })
    }

    /// Takes the registration of `fd` out; what was found for it is never reported.
    fn drop_entry(&mut self, fd: i32) {
        let entry = self.table.remove(fd);
        if let Some(beside) = &mut self.beside
            && entry.as_ref().is_some_and(|entry| entry.state.is_beside)
        {
            beside.files.delete(fd, &self.base.counters);
            beside.count -= 1;
        }
        let has_found = entry.is_some_and(|entry| !entry.state.found.is_empty());
        self.base.counters.stale_events.add(has_found.into());
    }

    /// Enters a registration of `fd` under a new key: what was found for an older one does not
    /// count for it.
    fn enter_anew(&mut self, fd: i32, token: Token, how: Registration, may_listen: bool) {
        self.drop_entry(fd);
        let key = self.table.insert(fd, Entry { token, how, state: PollState::new(how) });
        if let Some(beside) = self.beside.as_mut().filter(|_| may_listen) {
            beside.candidates.push(key);
        }
        self.changes.ask(fd);
    }
}

impl Drop for UringPoll {
    /// Ends every poll, so that the files are let go now: the kernel would do it as well, but in
    /// a worker of its own and later (a quarter of a second for 9,000 polls here). One by one, as
    /// `delete` does: cancelling all with one request costs the kernel 150 µs for each of them.
    fn drop(&mut self) {
        // The polls of a ring that a forked child inherited are its parent's.
        if rustix::process::getpid() != self.owner {
            return;
        }
        let fds: Vec<_> = self.table.keys().map(Key::fd).collect();
        for fd in fds {
            self.drop_entry(fd);
            self.changes.ask(fd);
        }
        // One turn plans and sends; the second is for what was on its way to the kernel before.
        let mut events = Events::with_capacity(1);
        for _ in 0..2 {
            if self.turn(&mut events, Some(Duration::ZERO)).is_err() {
                break;
            }
        }
    }
}

impl Poller for UringPoll {
    #[inline]
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        self.table.check_open(fd, &self.base.counters)?;
        if self.table.check_vacant(fd, token)? {
            self.base.counters.closed_without_delete.add(1);
        }
        self.base.counters.updates_asked.add(1);
        self.changes.named(fd.as_raw_fd(), token);
        self.enter_anew(fd.as_raw_fd(), token, how, true);
        Ok(())
    }

    #[inline]
    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let Entry { how: before, state, .. } = self.table.registered(fd)?;
        let may_listen = state.is_beside || state.is_hung_up;
        self.base.caps.check_modify(*before, how)?;
        self.base.counters.updates_asked.add(1);
        self.changes.named(fd.as_raw_fd(), token);
        self.enter_anew(fd.as_raw_fd(), token, how, may_listen);
        Ok(())
    }

    #[inline]
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.table.registered(fd)?;
        self.base.counters.updates_asked.add(1);
        self.drop_entry(fd.as_raw_fd());
        // Cancelled even if the number is added again before the wait: it may be another file by
        // then, whatever its token says, and an update would leave the poll on the old one.
        self.changes.retire(fd.as_raw_fd());
        self.changes.ask(fd.as_raw_fd());
        Ok(())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let beside = self.beside.iter().map(|beside| beside.files.fd());
        [self.base.waker.fd().as_raw_fd(), self.ring.fd()].into_iter().chain(beside).collect()
    }

    fn flush(&mut self) -> Result<(), Error> {
        // One round plans and sends; the second is for what an earlier wait left on its way.
        for _ in 0..2 {
            self.load_changes()?;
            let cancelled = self.changes.take_cancels();
            let ended = cancelled.min(self.ring.setup().sizes.completion as usize);
            if ended > 0 || self.ring.has_loaded() {
                // A cancelled poll completes at once; a signal meanwhile is for the next wait.
                self.ring.enter(ended as u32, Some(Duration::ZERO), self.base.mask.as_ref())?;
            }
            self.harvest();
            for _ in 0..FETCHES_MAX {
                if !self.ring.has_unfetched() {
                    break;
                }
                self.ring.enter(0, None, None)?;
                self.harvest();
            }
            if self.changes.is_empty() {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        // A look needs no clock. A time too far away to be written down is for ever.
        let is_look = timeout == Some(Duration::ZERO);
        let end =
            timeout.filter(|_| !is_look).and_then(|timeout| Instant::now().checked_add(timeout));
        let mut rest = timeout.filter(|_| is_look || end.is_some());
        loop {
            let may_have_more = self.turn(events, rest)?;
            if !events.is_empty() || events.is_woken() || events.is_interrupted() {
                break;
            }
            if let Some(end) = end {
                rest = Some(end.saturating_duration_since(Instant::now()));
            }
            let has_work = !self.changes.is_empty() || !self.ready.is_empty() || may_have_more;
            if rest == Some(Duration::ZERO) && !has_work {
                break;
            }
        }
        self.base.counters.wait_ended(events.len());
        Ok(())
    }

    base_methods!();
}
