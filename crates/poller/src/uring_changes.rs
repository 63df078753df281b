//! What the io_uring backend has registered for each descriptor, and the requests
//! that bring it to what is wanted now. Pure: no system call is made here.
//!
//! Changes are not replayed one by one. A change marks its descriptor; just before a wait each
//! marked descriptor is looked at once and what is *polled* is compared with what is *wanted*:
//!
//! | polled | wanted | requests |
//! |---|---|---|
//! | – | – | none: added and deleted before the kernel saw it |
//! | – | yes | poll add |
//! | yes | – | cancel |
//! | yes | yes, under the same key | none |
//! | yes | yes, same file, same kind of poll | poll update |
//! | yes | yes, same file, another kind | cancel, poll add |
//!
//! "Same file" is what equal tokens promise ([`Token`]). A poll of what may be another file is
//! retired at once, by add, modify or delete: it is cancelled and never updated.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::os::fd::RawFd;

use pollux_sys::ring::{Request, Shots};

use crate::table::{Entry, Key, Table};
use crate::{Counters, Interest, Readiness, Registration, Token, Trigger};

/// `EPOLLEXCLUSIVE`, which poll requests take as well.
const EXCLUSIVE: u32 = 1 << 28;

/// Marks the completion of a failed poll update; the rest is the key that it was to get.
const UPDATE_KIND: u64 = 3 << 56;
const KIND_MASK: u64 = 0xff << 56;

/// The backend's state of one registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PollState {
    /// The kind of poll it needs.
    pub(crate) shots: Shots,
    /// How often in a row its poll ended although nothing cut it short.
    pub(crate) ends: u8,
    /// The kernel refused to poll it: that is reported once, and nothing is armed.
    pub(crate) is_refused: bool,
    /// It is watched by the epoll beside the ring, which has no poll of it.
    pub(crate) is_beside: bool,
    /// It was hung up when it was polled last, as sockets are that do not listen yet.
    pub(crate) is_hung_up: bool,
    /// The turn in which a claim of the kernel was doubted and a look requested.
    pub(crate) doubted_in: u64,
    /// What was found and not yet reported.
    pub(crate) found: Readiness,
    /// The turn in which that was.
    pub(crate) found_in: u64,
}

impl PollState {
    /// Nothing is known and nothing found.
    pub(crate) fn new(how: Registration) -> Self {
        let shots = if how.trigger == Trigger::Edge { Shots::Many } else { Shots::One };
        let found = Readiness::NONE;
        let found_in = 0;
        let is_refused = false;
        let is_beside = false;
        let is_hung_up = false;
        Self { shots, ends: 0, is_refused, is_beside, is_hung_up, doubted_in: 0, found, found_in }
    }

    /// It is polled for every report, because the condition may be over.
    pub(crate) fn needs_looks(&self, how: Registration) -> bool {
        how.trigger == Trigger::Level && !self.is_refused
    }
}

/// The failed update that a completion speaks of: the key that was to be armed.
pub(crate) fn failed_update(user_data: u64) -> Option<Key> {
    (user_data & KIND_MASK == UPDATE_KIND).then_some(Key(user_data & !KIND_MASK))
}

/// A poll request that the kernel holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Polled {
    key: Key,
    /// The key before the latest update, for the case that the update fails.
    key_before: Key,
    /// Of the registration that it is for: names its file.
    token: Token,
    shots: Shots,
    exclusive: bool,
    /// Counts the polls: the newest has the highest number.
    armed_as: u64,
}

/// Of one descriptor number.
#[derive(Default)]
struct Slot {
    polled: Option<Polled>,
    is_marked: bool,
    /// Changes asked for since the last plan, and requests made for them.
    asked: u32,
    sent: u32,
}

impl Slot {
    fn armed_as(&self) -> u64 {
        self.polled.map_or(0, |polled| polled.armed_as)
    }
}

/// What is registered, what is marked, and the requests on their way.
pub(crate) struct Changes {
    slots: Vec<Slot>,
    marked: Vec<RawFd>,
    queue: VecDeque<Request>,
    cancels: usize,
    /// How many polls were armed.
    armed: u64,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), marked: Vec::new(), queue: VecDeque::new(), cancels: 0, armed: 0 }
    }

    /// Nothing is marked and nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.marked.is_empty() && self.queue.is_empty()
    }

    /// Every request that was made is in the kernel's hands.
    pub(crate) fn is_answered(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests on their way to the ring, oldest first.
    pub(crate) fn queue(&mut self) -> &mut VecDeque<Request> {
        &mut self.queue
    }

    /// How many cancellations were queued since the last call.
    pub(crate) fn take_cancels(&mut self) -> usize {
        std::mem::take(&mut self.cancels)
    }

    /// The caller changes `fd`.
    pub(crate) fn ask(&mut self, fd: RawFd) {
        self.slot(fd).asked += 1;
        self.mark(fd);
    }

    /// `fd` is compared at the next plan.
    pub(crate) fn mark(&mut self, fd: RawFd) {
        let slot = self.slot(fd);
        if !std::mem::replace(&mut slot.is_marked, true) {
            self.marked.push(fd);
        }
    }

    /// `fd` goes by `token` from now on: a poll of the number under another token may be of a
    /// file that was closed since.
    pub(crate) fn named(&mut self, fd: RawFd, token: Token) {
        if self.slot(fd).polled.is_some_and(|polled| polled.token != token) {
            self.retire(fd);
        }
    }

    /// Cancels the poll of `fd`, whatever is wanted of the number later.
    pub(crate) fn retire(&mut self, fd: RawFd) {
        if let Some(polled) = self.slot(fd).polled.take() {
            self.cancel(polled.key);
        }
    }

    /// The kernel said that the poll under `key` is over.
    pub(crate) fn ended(&mut self, key: Key) {
        let slot = self.slot(key.fd());
        if slot.polled.is_some_and(|polled| polled.key == key) {
            slot.polled = None;
        }
    }

    /// The kernel could not update a poll to `key`: whatever is left of it is cancelled, and
    /// the descriptor looked at again.
    pub(crate) fn update_failed(&mut self, key: Key) {
        let slot = self.slot(key.fd());
        let Some(polled) = slot.polled.take_if(|polled| polled.key == key) else { return };
        self.cancel(polled.key_before);
        self.mark(key.fd());
    }

    /// Queues the requests that bring every marked descriptor to what `table` wants.
    pub(crate) fn plan(&mut self, table: &Table<PollState>, counters: &Counters) {
        // The kernel looks polls up in chains that start with the newest: updating the newest
        // first finds each at the head (measured: 0.5 instead of 0.9 of epoll's time). What is
        // only added keeps its order.
        let slots = &self.slots;
        self.marked.sort_by_key(|&fd| Reverse(slots[fd as usize].armed_as()));
        for index in 0..self.marked.len() {
            let fd = self.marked[index];
            let wanted = table.by_fd(fd).filter(|entry| !entry.state.is_beside);
            self.plan_one(fd, table.key(fd).zip(wanted));
            let slot = self.slot(fd);
            slot.is_marked = false;
            let asked = std::mem::take(&mut slot.asked);
            let sent = std::mem::take(&mut slot.sent);
            // What the backend arms again on its own account is counted elsewhere.
            if asked > 0 {
                counters.updates_sent.add(sent.into());
                counters.updates_merged.add(asked.saturating_sub(sent).into());
            }
        }
        self.marked.clear();
    }

    fn plan_one(&mut self, fd: RawFd, wanted: Option<(Key, &Entry<PollState>)>) {
        let polled = self.slot(fd).polled;
        let Some((key, entry)) = wanted else {
            self.retire(fd);
            return;
        };
        let shots = entry.state.shots;
        let exclusive = entry.how.exclusive;
        let token = entry.token;
        let key_before = match polled {
            Some(polled) if polled.key == key => return,
            Some(polled) if polled.shots == shots && !polled.exclusive && !exclusive => polled.key,
            _ => key,
        };
        let events = events(entry.how);
        if key_before == key {
            self.retire(fd);
            self.send(fd, Request::PollAdd { fd, events, shots, user_data: key.0 });
        } else {
            let user_data = UPDATE_KIND | key.0;
            let target = key_before.0;
            let becomes = key.0;
            self.send(fd, Request::PollUpdate { target, becomes, events, shots, user_data });
        }
        self.armed += 1;
        let armed_as = self.armed;
        let polled = Polled { key, key_before, token, shots, exclusive, armed_as };
        self.slot(fd).polled = Some(polled);
    }

    fn cancel(&mut self, key: Key) {
        self.cancels += 1;
        let request = Request::Cancel { target: key.0, user_data: Key::IGNORED.0 };
        self.send(key.fd(), request);
    }

    fn send(&mut self, fd: RawFd, request: Request) {
        self.slot(fd).sent += 1;
        self.queue.push_back(request);
    }

    fn slot(&mut self, fd: RawFd) -> &mut Slot {
        let index = usize::try_from(fd).expect("descriptors are not negative");
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }
}

/// The mask of a poll request. The kernel does not wake polls for priority alone
/// (IO_ASYNC_POLL_COMMON); urgent data wakes readers too, so that is asked for and hidden.
fn events(how: Registration) -> u32 {
    let mut interest = how.interest;
    if interest.contains(Interest::PRIORITY) {
        interest |= Interest::READABLE;
    }
    interest.poll_mask() | if how.exclusive { EXCLUSIVE } else { 0 }
}

#[cfg(test)]
mod tests {
    //! The plan against a model of the kernel, and the order of updates.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const FDS: usize = 3;

    /// A poll as the kernel holds it: of which file, how.
    type Poll = (u32, u32, Shots);

    /// Descriptors, the files behind them, and a kernel that obeys requests.
    #[derive(Default)]
    struct World {
        files: [u32; FDS],
        is_registered: [bool; FDS],
        armed: BTreeMap<u64, Poll>,
    }

    impl World {
        fn obey(&mut self, request: Request) {
            match request {
                Request::PollAdd { fd, events, shots, user_data } => {
                    let poll = (self.files[fd as usize], events, shots);
                    assert_eq!(self.armed.insert(user_data, poll), None, "a key armed twice");
                }
                Request::PollUpdate { target, becomes, events, .. } => {
                    let (file, _, shots) = self.armed.remove(&target).expect("armed");
                    assert_eq!(self.armed.insert(becomes, (file, events, shots)), None);
                }
                Request::Cancel { target, .. } => {
                    self.armed.remove(&target).expect("armed");
                }
            }
        }

        fn token(&self, index: usize) -> Token {
            Token::new(index as u32, self.files[index])
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Add, or modify where the descriptor is registered already.
        Want(usize, Registration),
        Delete(usize),
        /// Closes the file and opens another one under its number, without delete.
        Reopen(usize),
        Plan,
    }

    fn step() -> impl Strategy<Value = Step> {
        let trigger = prop_oneof![Just(Trigger::Edge), Just(Trigger::Level)];
        let interest = prop_oneof![Just(Interest::READABLE), Just(Interest::WRITABLE)];
        let how = (interest, trigger, prop::bool::weighted(0.2));
        let how = how.prop_map(|(interest, trigger, exclusive)| Registration {
            exclusive,
            ..Registration::new(interest, trigger)
        });
        prop_oneof![
            4 => (0..FDS, how).prop_map(|(index, how)| Step::Want(index, how)),
            3 => (0..FDS).prop_map(Step::Delete),
            1 => (0..FDS).prop_map(Step::Reopen),
            2 => Just(Step::Plan),
        ]
    }

    fn run(steps: &[Step]) {
        let mut world = World::default();
        let mut table = Table::new();
        let mut changes = Changes::new();
        for &step in steps.iter().chain(&[Step::Plan]) {
            match step {
                Step::Want(index, how) => {
                    let fd = index as RawFd;
                    let token = world.token(index);
                    world.is_registered[index] = true;
                    changes.named(fd, token);
                    table.insert(fd, Entry { token, how, state: PollState::new(how) });
                    changes.ask(fd);
                }
                Step::Delete(index) if world.is_registered[index] => {
                    world.is_registered[index] = false;
                    table.remove(index as RawFd);
                    changes.ask(index as RawFd);
                }
                Step::Delete(_) => {}
                Step::Reopen(index) => {
                    world.files[index] += 1;
                    world.is_registered[index] = false;
                }
                Step::Plan => {
                    changes.plan(&table, &Counters::default());
                    changes.queue().drain(..).for_each(|request| world.obey(request));
                    check(&world, &table);
                }
            }
        }
    }

    /// What is registered is armed as it was asked for, under its present key and on its
    /// present file; of anything else only forgotten files may still be armed.
    fn check(world: &World, table: &Table<PollState>) {
        for index in (0..FDS).filter(|&index| world.is_registered[index]) {
            let fd = index as RawFd;
            let (key, entry) = table.key(fd).zip(table.by_fd(fd)).expect("registered");
            let poll = (world.files[index], events(entry.how), entry.state.shots);
            assert_eq!(world.armed.get(&key.0), Some(&poll));
        }
        assert_eq!(world.armed.len(), table.len(), "a poll that is not wanted");
    }

    proptest! {
        #[test]
        fn the_kernel_holds_what_is_wanted_after_every_plan(
            steps in prop::collection::vec(step(), 1..40),
        ) {
            run(&steps);
        }
    }

    #[test]
    fn the_newest_poll_is_updated_first() {
        let mut table = Table::new();
        let mut changes = Changes::new();
        let how = Registration::new(Interest::READABLE, Trigger::Edge);
        for _ in 0..2 {
            for fd in 0..3 {
                let token = Token::new(fd as u32, 0);
                table.insert(fd, Entry { token, how, state: PollState::new(how) });
                changes.ask(fd);
            }
            changes.plan(&table, &Counters::default());
        }
        let targets = changes.queue().iter().filter_map(|request| match *request {
            Request::PollUpdate { target, .. } => Some(Key(target).fd()),
            _ => None,
        });
        assert_eq!(targets.collect::<Vec<_>>(), [2, 1, 0]);
    }
}
