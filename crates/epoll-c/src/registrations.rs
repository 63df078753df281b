//! What the program wants watched, by descriptor number, and what of it was applied to the poller.
//!
//! The state of an instance except its waiting threads. Changes are noted here and marked; `plan` says what the
//! poller has to do, so that changes that cancel out never reach it. Makes no system call.

use std::os::fd::RawFd;

use pollux_poller::{Caps, Interest, Readiness, Registration, Token, Trigger};

use crate::kernel::Identity;

pub(crate) const IN: u32 = libc::EPOLLIN as u32;
const PRI: u32 = libc::EPOLLPRI as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const RDNORM: u32 = libc::EPOLLRDNORM as u32;
const WRNORM: u32 = libc::EPOLLWRNORM as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub(crate) const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const WAKEUP: u32 = libc::EPOLLWAKEUP as u32;
pub(crate) const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
pub(crate) const EDGE: u32 = libc::EPOLLET as u32;

/// All that may stand beside EPOLLEXCLUSIVE (`epoll_ctl(2)`).
const BESIDE_EXCLUSIVE: u32 = IN | OUT | ERR | HUP | WAKEUP | EDGE | EXCLUSIVE;

/// One registration as the program made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// The file that the number named when it was added.
    pub(crate) file: Identity,
    /// EPOLLIN and the like.
    pub(crate) events: u32,
    /// Comes back with each event.
    pub(crate) data: u64,
    /// Differs between successive registrations of a number.
    pub(crate) generation: u32,
    /// A oneshot that was reported: silent until it is modified.
    pub(crate) is_spent: bool,
}

impl Wanted {
    pub(crate) fn is_exclusive(&self) -> bool {
        self.events & EXCLUSIVE != 0
    }
}

/// Whether `epoll_ctl(2)` refuses this to be added: more than may stand beside EPOLLEXCLUSIVE.
pub(crate) fn is_impossible(events: u32) -> bool {
    events & EXCLUSIVE != 0 && events & !BESIDE_EXCLUSIVE != 0
}

/// What the poller has to do about a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Add(Token, Registration),
    Modify(Token, Registration),
    Delete,
    /// Another file has the number: the old one is deleted, this one added.
    Replace(Token, Registration),
    Nothing,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    wanted: Option<Wanted>,
    /// The generation that the poller watches.
    applied: Option<u32>,
    is_marked: bool,
}

/// Registrations by number.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    slots: Vec<Slot>,
    marked: Vec<RawFd>,
    generation: u32,
    /// How many there are.
    count: usize,
    /// The numbers that the last wait reported.
    reported: Vec<RawFd>,
}

impl Registrations {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            marked: Vec::new(),
            generation: 0,
            count: 0,
            reported: Vec::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, fd: RawFd) -> Option<&Wanted> {
        self.slots.get(usize::try_from(fd).ok()?)?.wanted.as_ref()
    }

    /// Those that the last wait reported, with their numbers.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (RawFd, Wanted)> + '_ {
        self.reported.iter().filter_map(|fd| Some((*fd, *self.get(*fd)?)))
    }

    /// A wait reports anew.
    pub(crate) fn begin_report(&mut self) {
        self.reported.clear();
    }

    /// All, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RawFd, Wanted)> + '_ {
        let numbered = (0..).zip(&self.slots);
        numbered.filter_map(|(fd, slot)| Some((fd, slot.wanted?)))
    }

    /// Enters a new registration of `fd` in place of whatever stood there.
    pub(crate) fn add(&mut self, fd: RawFd, file: Identity, events: u32, data: u64) {
        self.generation = (self.generation + 1) % Token::GENERATIONS;
        let generation = self.generation;
        let wanted = Wanted { file, events, data, generation, is_spent: false };
        let former = self.slot(fd).wanted.replace(wanted);
        self.count += usize::from(former.is_none());
        self.mark(fd);
    }

    /// Changes the registration of `fd`, which there is.
    pub(crate) fn modify(&mut self, fd: RawFd, events: u32, data: u64) {
        if let Some(wanted) = &mut self.slot(fd).wanted {
            (wanted.events, wanted.data, wanted.is_spent) = (events, data, false);
            self.mark(fd);
        }
    }

    /// Takes the registration of `fd` out; says whether there was one.
    pub(crate) fn remove(&mut self, fd: RawFd) -> bool {
        let index = usize::try_from(fd).unwrap_or(usize::MAX);
        let found = self.slots.get_mut(index).and_then(|slot| slot.wanted.take()).is_some();
        if found {
            self.count -= 1;
            self.mark(fd);
        }
        found
    }

    /// Forgets all, also what was applied to the poller.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.marked.clear();
        self.count = 0;
    }

    /// The poller is another one, which knows nothing.
    pub(crate) fn poller_is_new(&mut self) {
        for slot in &mut self.slots {
            (slot.applied, slot.is_marked) = (None, false);
        }
        self.marked.clear();
        for fd in 0..self.slots.len() as RawFd {
            if self.get(fd).is_some() {
                self.mark(fd);
            }
        }
    }

    /// A number with a change that the poller does not have yet.
    pub(crate) fn next_marked(&mut self) -> Option<RawFd> {
        let fd = self.marked.pop()?;
        self.slot(fd).is_marked = false;
        Some(fd)
    }

    /// What the poller has to do about `fd`; taken for done.
    pub(crate) fn plan(&mut self, fd: RawFd, caps: &Caps) -> Step {
        let slot = self.slot(fd);
        let applied = slot.applied;
        slot.applied =
            slot.wanted.filter(|wanted| !wanted.is_spent).map(|wanted| wanted.generation);
        let Some(wanted) = slot.wanted.filter(|_| slot.applied.is_some()) else {
            return if applied.is_some() { Step::Delete } else { Step::Nothing };
        };
        let token = Token::new(fd as u32, wanted.generation);
        let how = registration(wanted.events, caps);
        match applied {
            None => Step::Add(token, how),
            Some(generation) if generation == wanted.generation => Step::Modify(token, how),
            Some(_) => Step::Replace(token, how),
        }
    }

    /// The poller refused `fd`: the registration is given up.
    pub(crate) fn refused(&mut self, fd: RawFd) {
        let slot = self.slot(fd);
        let former = std::mem::replace(slot, Slot { is_marked: slot.is_marked, ..Slot::default() });
        self.count -= usize::from(former.wanted.is_some());
    }

    /// The event that the program gets for `readiness` under `token`; `None` when the registration is
    /// gone, or changed in a way that the poller does not have yet: it will look again.
    pub(crate) fn event(&mut self, token: Token, readiness: Readiness) -> Option<(u32, u64)> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        let is_marked = slot.is_marked;
        let wanted = slot.wanted.as_mut()?;
        if is_marked || wanted.generation != token.generation() || wanted.is_spent {
            return None;
        }
        let events = epoll_bits(readiness) & (wanted.events | ERR | HUP);
        if events == 0 {
            return None;
        }
        wanted.is_spent = wanted.events & ONESHOT != 0;
        let data = wanted.data;
        self.reported.push(token.slot() as RawFd);
        Some((events, data))
    }

    fn mark(&mut self, fd: RawFd) {
        let slot = self.slot(fd);
        if !std::mem::replace(&mut slot.is_marked, true) {
            self.marked.push(fd);
        }
    }

    fn slot(&mut self, fd: RawFd) -> &mut Slot {
        let index = usize::try_from(fd).expect("open descriptors are not negative");
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }
}

/// `events` in the terms of a poller with `caps`: what it can't do is left out or done in the next
/// best way, which the table of deviations names.
fn registration(events: u32, caps: &Caps) -> Registration {
    let mut interest = Interest::NONE;
    for (bits, one) in [
        (IN | RDNORM, Interest::READABLE),
        (OUT | WRNORM, Interest::WRITABLE),
        (PRI, Interest::PRIORITY),
        (RDHUP, Interest::RDHUP),
    ] {
        if events & bits != 0 && (one != Interest::RDHUP || caps.rdhup) {
            interest |= one;
        }
    }
    let trigger = match events {
        _ if events & ONESHOT != 0 => Trigger::Oneshot,
        _ if events & EDGE != 0 && caps.edge => Trigger::Edge,
        _ => Trigger::Level,
    };
    // Not exclusive even where the poller has it: a poll request takes a wake for its own also while nobody waits for
    // it, where the kernel's epoll passes that on to the next instance. So all are woken, as epoll(7) allows.
    Registration::new(interest, trigger)
}

fn epoll_bits(readiness: Readiness) -> u32 {
    let bits = [
        (Readiness::READABLE, IN | RDNORM),
        (Readiness::WRITABLE, OUT | WRNORM),
        (Readiness::PRIORITY, PRI),
        (Readiness::RDHUP, RDHUP),
        (Readiness::HUP, HUP),
        (Readiness::ERROR, ERR),
    ];
    bits.iter().filter(|(one, _)| readiness.contains(*one)).fold(0, |all, (_, bits)| all | bits)
}
