//! The simulated kernel: open files, their watchers, and what `epoll(7)` does with both.
//!
//! ```text
//!   descriptor ──► file (one side of an object) ──► registrations, one for each poller and number
//!                                                      │  called by a wake whose key matches
//!                                                      ▼
//!                    poller: ready list ──► looked at by a wait: ready ─► event
//!                              ▲                                 │
//!                              └────── level: to the end ◄───────┘
//! ```
//!
//! A wake never decides what is reported, it only puts a registration on the ready list; the wait looks
//! at the object. That one rule gives edge (each wake once), level (back on the list while the
//! condition holds, so that lists longer than a wait go round) and oneshot (off until modified).
//! Nothing in this file knows tokens, clocks or faults.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::sim::object::{Object, Side, Wake};
use crate::sim::poller::Key;
use pollux_poller::{Readiness, Registration, Trigger};

/// One open file: a side of an object. Duplicated descriptors share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FileId {
    object: u64,
    side: Side,
}

/// Names one simulated epoll instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PollerId(u64);

/// Registrations are numbered in the order in which they were added.
type RegistrationId = u64;

#[derive(Default)]
pub(crate) struct Kernel {
    objects: BTreeMap<u64, Box<dyn Object>>,
    files: BTreeMap<FileId, File>,
    descriptors: BTreeMap<RawFd, FileId>,
    registrations: BTreeMap<RegistrationId, Registered>,
    pollers: BTreeMap<PollerId, Instance>,
    last_id: u64,
}

#[derive(Default)]
struct File {
    descriptors_open: usize,
    registrations: Vec<RegistrationId>,
}

struct Registered {
    poller: PollerId,
    file: FileId,
    fd: RawFd,
    key: Key,
    how: Registration,
    /// Oneshot registrations are disarmed by their event.
    is_armed: bool,
    is_listed: bool,
}

#[derive(Default)]
struct Instance {
    ready: VecDeque<RegistrationId>,
    by_descriptor: BTreeMap<(FileId, RawFd), RegistrationId>,
    /// A wait sleeps here and nothing has woken it yet.
    is_waiting: bool,
}

/// Descriptors and files.
impl Kernel {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Brings an object into the world; its files are opened by [`Kernel::install`].
    pub(crate) fn create(&mut self, object: Box<dyn Object>) -> [FileId; 2] {
        let id = self.next_id();
        self.objects.insert(id, object);
        [Side::A, Side::B].map(|side| FileId { object: id, side })
    }

    /// Makes `fd` a descriptor of `file`.
    pub(crate) fn install(&mut self, fd: RawFd, file: FileId) {
        self.files.entry(file).or_default().descriptors_open += 1;
        let before = self.descriptors.insert(fd, file);
        assert!(before.is_none(), "descriptor {fd} is open in this world already");
    }

    /// Closes `fd`. With its last descriptor a file loses its registrations and its object is notified of
    /// the end; with its last file an object is gone.
    pub(crate) fn close(&mut self, fd: RawFd) {
        let file = self.descriptors.remove(&fd).expect("only open descriptors are closed");
        let state = self.files.get_mut(&file).expect("a descriptor names a file");
        state.descriptors_open -= 1;
        if state.descriptors_open > 0 {
            return;
        }
        for registration in state.registrations.clone() {
            self.unregister(registration);
        }
        self.files.remove(&file);
        self.change(file, |object, wakes| object.release(file.side, wakes));
        let other = FileId { side: file.side.other(), ..file };
        if !self.files.contains_key(&other) {
            self.objects.remove(&file.object);
        }
    }

    pub(crate) fn file(&self, fd: RawFd) -> Option<FileId> {
        self.descriptors.get(&fd).copied()
    }

    pub(crate) fn write(&mut self, file: FileId, len_bytes: usize) -> Result<usize, Errno> {
        self.change(file, |object, wakes| object.write(file.side, len_bytes, wakes))
    }

    pub(crate) fn read(&mut self, file: FileId, len_bytes: usize) -> Result<usize, Errno> {
        self.change(file, |object, wakes| object.read(file.side, len_bytes, wakes))
    }

    /// Does something to a socket at `file`.
    ///
    /// # Panics
    /// When it is not a socket: nothing else of the model has errors, priority or a shutdown.
    pub(crate) fn change_socket(
        &mut self,
        file: FileId,
        what: impl FnOnce(&mut crate::sim::streams::Pair, Side, &mut Vec<Wake>),
    ) {
        self.change(file, |object, wakes| {
            let socket = object.as_socket().expect("the descriptor names no socket");
            what(socket, file.side, wakes);
        });
    }

    /// Changes the object behind `file` and carries the wakes to the registrations.
    fn change<T>(
        &mut self,
        file: FileId,
        what: impl FnOnce(&mut dyn Object, &mut Vec<Wake>) -> T,
    ) -> T {
        let mut wakes = Vec::new();
        let object = self.objects.get_mut(&file.object).expect("a file names an object");
        let done = what(object.as_mut(), &mut wakes);
        for wake in wakes {
            self.wake(FileId { side: wake.side, ..file }, wake);
        }
        done
    }
}

/// Pollers and what they watch.
impl Kernel {
    pub(crate) fn open_poller(&mut self) -> PollerId {
        let id = PollerId(self.next_id());
        self.pollers.insert(id, Instance::default());
        id
    }

    pub(crate) fn close_poller(&mut self, poller: PollerId) {
        let instance = self.pollers.remove(&poller).expect("a poller is closed once");
        for registration in instance.by_descriptor.into_values() {
            let registration =
                self.registrations.remove(&registration).expect("a poller knows its registrations");
            let file = self.files.get_mut(&registration.file).expect("a watched file is open");
            file.registrations.retain(|other| self.registrations.contains_key(other));
        }
    }

    /// `EPOLL_CTL_ADD`: `EPERM` for a descriptor that is not of this world.
    pub(crate) fn add(
        &mut self,
        poller: PollerId,
        fd: RawFd,
        key: Key,
        how: Registration,
    ) -> Result<(), Errno> {
        let file = self.file(fd).ok_or(Errno::PERM)?;
        if self.instance(poller).by_descriptor.contains_key(&(file, fd)) {
            return Err(Errno::EXIST);
        }
        let id = self.next_id();
        self.instance(poller).by_descriptor.insert((file, fd), id);
        self.files.get_mut(&file).expect("looked up above").registrations.push(id);
        let registration =
            Registered { poller, file, fd, key, how, is_armed: true, is_listed: false };
        self.registrations.insert(id, registration);
        self.list_if_ready(id);
        Ok(())
    }

    /// `EPOLL_CTL_MOD`.
    pub(crate) fn modify(
        &mut self,
        poller: PollerId,
        fd: RawFd,
        key: Key,
        how: Registration,
    ) -> Result<(), Errno> {
        let id = self.registration_of(poller, fd)?;
        let registration =
            self.registrations.get_mut(&id).expect("a poller knows its registrations");
        (registration.key, registration.how, registration.is_armed) = (key, how, true);
        self.list_if_ready(id);
        Ok(())
    }

    /// `EPOLL_CTL_DEL`.
    pub(crate) fn delete(&mut self, poller: PollerId, fd: RawFd) -> Result<(), Errno> {
        let id = self.registration_of(poller, fd)?;
        self.unregister(id);
        Ok(())
    }

    /// Takes up to `capacity` ready registrations of `poller`, those that were ready longest first.
    pub(crate) fn harvest(&mut self, poller: PollerId, capacity: usize) -> Vec<(Key, Readiness)> {
        let mut listed = std::mem::take(&mut self.instance(poller).ready);
        let mut found = Vec::new();
        let mut again = Vec::new();
        while found.len() < capacity {
            let Some(id) = listed.pop_front() else { break };
            let readiness = self.readiness(id);
            let registration =
                self.registrations.get_mut(&id).expect("a listed registration exists");
            registration.is_listed =
                registration.how.trigger == Trigger::Level && !readiness.is_empty();
            if registration.is_listed {
                again.push(id);
            }
            if !readiness.is_empty() {
                registration.is_armed = registration.how.trigger != Trigger::Oneshot;
                found.push((registration.key, readiness));
            }
        }
        listed.extend(again);
        self.instance(poller).ready = listed;
        found
    }

    /// Says that `poller` sleeps, or no longer: a wake of an exclusive registration stops there.
    pub(crate) fn set_waiting(&mut self, poller: PollerId, is_waiting: bool) {
        self.instance(poller).is_waiting = is_waiting;
    }

    /// Wakes the registrations of one file without a change of its object.
    pub(crate) fn wake_for_nothing(&mut self, file: FileId) {
        self.wake(file, Wake::all(file.side));
    }

    /// Has every edge registration looked at again.
    pub(crate) fn wake_all_edges(&mut self) {
        let edges = self
            .registrations
            .iter()
            .filter(|(_, registration)| registration.how.trigger == Trigger::Edge);
        for id in edges.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.list(id);
        }
    }

    fn instance(&mut self, poller: PollerId) -> &mut Instance {
        self.pollers.get_mut(&poller).expect("an open poller has its instance")
    }

    fn registration_of(&mut self, poller: PollerId, fd: RawFd) -> Result<RegistrationId, Errno> {
        let file = self.file(fd).ok_or(Errno::NOENT)?;
        self.instance(poller).by_descriptor.get(&(file, fd)).copied().ok_or(Errno::NOENT)
    }

    /// What `registration` may report now.
    fn readiness(&self, registration: RegistrationId) -> Readiness {
        let registration = &self.registrations[&registration];
        if !registration.is_armed {
            return Readiness::NONE;
        }
        let object = &self.objects[&registration.file.object];
        object.readiness(registration.file.side).visible_to(registration.how.interest)
    }

    /// Calls the registrations of `file`: the shared ones first, newest before oldest, then the
    /// exclusive ones in the order of their addition up to the first whose poller was asleep.
    fn wake(&mut self, file: FileId, wake: Wake) {
        let Some(state) = self.files.get(&file) else { return };
        let is_exclusive = |id: &RegistrationId| self.registrations[id].how.exclusive;
        let (exclusive, shared): (Vec<_>, Vec<_>) =
            state.registrations.iter().partition(|&id| is_exclusive(id));
        for id in shared.into_iter().rev() {
            self.call(id, wake.key);
        }
        for id in exclusive {
            if self.call(id, wake.key) && !wake.is_for_all {
                break;
            }
        }
    }

    /// Lists `id` if it listens to `key`; says whether that ended a sleep.
    fn call(&mut self, id: RegistrationId, key: Readiness) -> bool {
        let registration = &self.registrations[&id];
        let is_meant = key.is_empty() || !key.visible_to(registration.how.interest).is_empty();
        if !registration.is_armed || !is_meant {
            return false;
        }
        let poller = registration.poller;
        self.list(id);
        std::mem::take(&mut self.instance(poller).is_waiting)
    }

    fn list_if_ready(&mut self, id: RegistrationId) {
        if !self.readiness(id).is_empty() {
            self.list(id);
        }
    }

    fn list(&mut self, id: RegistrationId) {
        let registration = self.registrations.get_mut(&id).expect("a listed registration exists");
        if !std::mem::replace(&mut registration.is_listed, true) {
            let poller = registration.poller;
            self.instance(poller).ready.push_back(id);
        }
    }

    fn unregister(&mut self, id: RegistrationId) {
        let registration = self.registrations.remove(&id).expect("a registration is removed once");
        let instance = self.instance(registration.poller);
        instance.by_descriptor.remove(&(registration.file, registration.fd));
        if registration.is_listed {
            // Lists are long after a burst; most registrations leave near the front.
            let place = instance.ready.iter().position(|other| *other == id);
            instance.ready.remove(place.expect("a listed registration is on the list"));
        }
        let file = self.files.get_mut(&registration.file).expect("a watched file is open");
        file.registrations.retain(|other| *other != id);
    }
}
