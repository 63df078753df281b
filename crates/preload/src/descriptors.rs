//! What is known of each descriptor of the process: how it is registered, whether an event said that it
//! is ready, whether its last write was short, whether it was closed.
//!
//! Numbers beyond the table are not followed; their events count as unknown. A child that is forked
//! has a copy, as it has the registrations.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Descriptors that are followed.
const FOLLOWED: usize = 1 << 16;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const OUT: u32 = libc::EPOLLOUT as u32;

/// Bits of `flags`.
const REGISTERED: u32 = 1;
/// Taken out, and not closed since.
const TAKEN_OUT: u32 = 1 << 1;
/// Closed while it was registered.
const CLOSED: u32 = 1 << 2;
/// An event was returned, and nothing read since.
const READY_IN: u32 = 1 << 3;
/// An event was returned, and nothing written since.
const READY_OUT: u32 = 1 << 4;
/// The last write took less than it was given.
const SHORT: u32 = 1 << 5;
/// An instance of epoll that the C library made, or that was there at the start.
const INSTANCE: u32 = 1 << 6;

/// A descriptor, in a cache line of its own.
#[repr(align(64))]
struct Entry {
    /// The caller's word.
    data: AtomicU64,
    /// The turn in which it was changed last.
    turn: AtomicU64,
    epfd: AtomicI32,
    mask: AtomicU32,
    /// The mask before the last change; 0 for none.
    before: AtomicU32,
    /// The mask at the start of the turn; 0 for none.
    at_turn: AtomicU32,
    flags: AtomicU32,
}

static ENTRIES: [Entry; FOLLOWED] = [const { Entry::new() }; FOLLOWED];

/// Descriptors by the caller's word, plus one: each at its place or at the neighbour of that, in the same
/// cache line. Both may be taken by others.
static BY_DATA: [AtomicU32; FOLLOWED] = [const { AtomicU32::new(0) }; FOLLOWED];

/// What an update was good for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Update {
    pub(crate) is_same: bool,
    pub(crate) is_cancelled: bool,
    pub(crate) is_back: bool,
    pub(crate) is_unneeded: bool,
    pub(crate) is_anew: bool,
}

/// Whose an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Known,
    Stale,
    Unknown,
}

/// What a transfer met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// Bytes, an end or an error.
    Something,
    /// It would have blocked.
    Nothing,
    /// It would have blocked, and was the first behind an event.
    NothingAfterEvent,
    /// The first behind an event.
    SomethingAfterEvent,
}

/// Notes EPOLL_CTL_ADD.
pub(crate) fn added(epfd: i32, fd: i32, mask: u32, data: u64, turn: u64) -> Update {
    let Some(entry) = entry(fd) else { return Update::default() };
    let flags = entry.flags.load(Relaxed);
    let is_anew = flags & TAKEN_OUT != 0 && entry.epfd.load(Relaxed) == epfd;
    let was = (entry.turn.load(Relaxed), entry.mask.load(Relaxed), entry.data.load(Relaxed));
    let is_cancelled = is_anew && was == (turn, mask, data);
    entry.data.store(data, Relaxed);
    entry.epfd.store(epfd, Relaxed);
    entry.mask.store(mask, Relaxed);
    entry.before.store(0, Relaxed);
    entry.at_turn.store(0, Relaxed);
    entry.turn.store(turn, Relaxed);
    entry.flags.store(REGISTERED | flags & (SHORT | INSTANCE), Relaxed);
    find_by(epfd, data, fd);
    Update { is_anew, is_cancelled, ..Update::default() }
}

/// Notes EPOLL_CTL_MOD.
pub(crate) fn modified(epfd: i32, fd: i32, mask: u32, data: u64, turn: u64) -> Update {
    let Some(entry) = entry(fd).filter(|entry| entry.epfd.load(Relaxed) == epfd) else {
        return Update::default();
    };
    let old = entry.mask.load(Relaxed);
    let is_other_data = entry.data.swap(data, Relaxed) != data;
    if is_other_data {
        find_by(epfd, data, fd);
    }
    if old == mask {
        // To set an edge or one shot again is what MOD is for.
        let is_same = mask & (EDGE | ONESHOT) == 0 && !is_other_data;
        return Update { is_same, ..Update::default() };
    }
    let is_second = entry.turn.swap(turn, Relaxed) == turn;
    let is_cancelled = is_second && entry.at_turn.load(Relaxed) == mask;
    if !is_second {
        entry.at_turn.store(old, Relaxed);
    }
    let is_back = entry.before.swap(old, Relaxed) == mask;
    entry.mask.store(mask, Relaxed);
    let asks_for_out = mask & OUT != 0 && old & OUT == 0;
    let is_unneeded = asks_for_out && entry.flags.load(Relaxed) & SHORT == 0;
    Update { is_cancelled, is_back, is_unneeded, ..Update::default() }
}

/// Notes EPOLL_CTL_DEL.
pub(crate) fn deleted(epfd: i32, fd: i32, turn: u64) -> Update {
    let Some(entry) = entry(fd).filter(|entry| entry.epfd.load(Relaxed) == epfd) else {
        return Update::default();
    };
    // Registered, not changed since, in this turn.
    let is_fresh = entry.before.load(Relaxed) == 0 && entry.at_turn.load(Relaxed) == 0;
    let is_cancelled = entry.turn.swap(turn, Relaxed) == turn && is_fresh;
    let flags = entry.flags.load(Relaxed);
    entry.flags.store(TAKEN_OUT | flags & (SHORT | INSTANCE), Relaxed);
    Update { is_cancelled, ..Update::default() }
}

/// Notes an event of a wait.
pub(crate) fn delivered(epfd: i32, events: u32, data: u64) -> Owner {
    let at = place(epfd, data);
    let named = |at: usize| {
        let fd = BY_DATA[at].load(Relaxed).wrapping_sub(1);
        entry(fd as i32).filter(|entry| entry.is_of(epfd, data))
    };
    let Some(entry) = named(at).or_else(|| named(at ^ 1)) else { return Owner::Unknown };
    let flags = entry.flags.load(Relaxed);
    if flags & CLOSED != 0 {
        return Owner::Stale;
    }
    if flags & REGISTERED == 0 {
        return Owner::Unknown;
    }
    let ready_out = if events & OUT != 0 { READY_OUT } else { 0 };
    let ready_in = if events & !OUT != 0 { READY_IN } else { 0 };
    entry.flags.store(flags | ready_in | ready_out, Relaxed);
    Owner::Known
}

/// Notes that something was read, or would have blocked.
pub(crate) fn read(fd: i32, would_block: bool) -> Met {
    transferred(fd, would_block, READY_IN, 0)
}

/// Notes that something was written, less than was given, or would have blocked.
pub(crate) fn written(fd: i32, would_block: bool, is_short: bool) -> Met {
    transferred(fd, would_block, READY_OUT, if would_block || is_short { SHORT } else { 0 })
}

/// Notes that a connection is under way, which is over when the descriptor is writable.
pub(crate) fn connecting(fd: i32) {
    if let Some(entry) = entry(fd) {
        entry.flags.store(entry.flags.load(Relaxed) | SHORT, Relaxed);
    }
}

fn transferred(fd: i32, would_block: bool, ready: u32, short: u32) -> Met {
    let Some(entry) = entry(fd) else { return Met::Something };
    let flags = entry.flags.load(Relaxed);
    let kept = if ready == READY_OUT { !(ready | SHORT) } else { !ready };
    let new = flags & kept | short;
    if new != flags {
        entry.flags.store(new, Relaxed);
    }
    match (would_block, flags & ready != 0) {
        (false, false) => Met::Something,
        (true, false) => Met::Nothing,
        (true, true) => Met::NothingAfterEvent,
        (false, true) => Met::SomethingAfterEvent,
    }
}

/// Notes an instance of epoll that is known.
pub(crate) fn is_now_instance(fd: i32) {
    if let Some(entry) = entry(fd) {
        entry.flags.store(INSTANCE, Relaxed);
    }
}

/// Whether it is one; numbers beyond the table are taken for such.
pub(crate) fn is_instance(fd: i32) -> bool {
    entry(fd).is_none_or(|entry| entry.flags.load(Relaxed) & INSTANCE != 0)
}

/// Whether this instance has this descriptor, as far as it is followed.
pub(crate) fn has(epfd: i32, fd: i32) -> bool {
    entry(fd).is_none_or(|entry| {
        entry.flags.load(Relaxed) & (REGISTERED | CLOSED) != 0 && entry.epfd.load(Relaxed) == epfd
    })
}

/// Notes that a number is free.
pub(crate) fn closed(fd: i32) {
    let Some(entry) = entry(fd) else { return };
    let flags = entry.flags.load(Relaxed);
    if flags != 0 {
        entry.flags.store(if flags & REGISTERED != 0 { CLOSED } else { 0 }, Relaxed);
    }
}

/// Notes that all numbers of a range are free.
pub(crate) fn closed_range(first: u32, last: u32) {
    let end = last.saturating_add(1).min(FOLLOWED as u32);
    (first..end).for_each(|fd| closed(fd as i32));
}

fn entry(fd: i32) -> Option<&'static Entry> {
    ENTRIES.get(usize::try_from(fd).ok()?)
}

/// Has events with this word found to be of `fd`.
fn find_by(epfd: i32, data: u64, fd: i32) {
    let at = place(epfd, data);
    let is_taken = |at: usize| {
        let there = BY_DATA[at].load(Relaxed).wrapping_sub(1) as i32;
        // A descriptor that is known by another word needs its place.
        there != fd && entry(there).is_some_and(|entry| entry.is_found_at(at))
    };
    let at = if is_taken(at) && !is_taken(at ^ 1) { at ^ 1 } else { at };
    BY_DATA[at].store(fd as u32 + 1, Relaxed);
}

/// Where a word is looked for first. Words of neighbours, which mostly are descriptors or addresses within
/// one block, lie near each other, so that a loop with few connections touches few lines.
fn place(epfd: i32, data: u64) -> usize {
    // The lowest bits of an address say nothing, but for the last one, which some programs use.
    let is_address = data > u64::from(u16::MAX) && data & 0xe == 0;
    let near = if is_address { data >> 4 } else { data };
    let mixed = near ^ near >> 16 ^ near >> 32 ^ (epfd as u64) << 8;
    mixed as usize % FOLLOWED
}

impl Entry {
    const fn new() -> Self {
        Self {
            data: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            epfd: AtomicI32::new(0),
            mask: AtomicU32::new(0),
            before: AtomicU32::new(0),
            at_turn: AtomicU32::new(0),
            flags: AtomicU32::new(0),
        }
    }

    fn is_of(&self, epfd: i32, data: u64) -> bool {
        self.data.load(Relaxed) == data && self.epfd.load(Relaxed) == epfd
    }

    /// Whether it is registered, by a word that is looked for here.
    fn is_found_at(&self, at: usize) -> bool {
        let is_registered = self.flags.load(Relaxed) & REGISTERED != 0;
        is_registered && place(self.epfd.load(Relaxed), self.data.load(Relaxed)) & !1 == at & !1
    }
}
