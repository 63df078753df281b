//! What a thread called since its last wait, as it was: looked at later, many at once.
//!
//! Between two calls of a busy program the kernel takes the processor's caches for itself, so what a call
//! touches for its figures costs more than what it computes. A call only leaves a note, in one line; what
//! follows from the notes is done in one go, before anything that depends on it: a wait, an update, a close,
//! an accept, or where the room is full.

use std::cell::Cell;

use pollux_loop_stats::{Call, Cell as Tally, Counter, NOTES_MAX, Site};

use crate::descriptors::{self, Met};

/// A call that came back.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub(crate) call: Call,
    pub(crate) fd: i32,
    pub(crate) caller: u64,
    /// On the processor's counter.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) outcome: Outcome,
}

/// What a call means to its descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// Nothing.
    None,
    Read,
    /// It would have blocked.
    ReadNothing,
    Written,
    /// Less than was given.
    WrittenShort,
    /// It would have blocked.
    WrittenNothing,
    /// It is about to be connected.
    Connecting,
}

/// How many notes a thread has. Every field is valid as zeros.
#[repr(C)]
pub(crate) struct Notes {
    len: Cell<u32>,
    /// Those whose outcome is known to the descriptors.
    settled: Cell<u32>,
}

impl Notes {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len.get() as usize >= NOTES_MAX
    }

    /// Adds a note where there is room.
    #[inline]
    pub(crate) fn add(&self, tally: Tally<'static>, note: Note) {
        let len = self.len.get();
        if (len as usize) < NOTES_MAX {
            tally.note(len as usize, note.packed());
            self.len.set(len + 1);
        }
    }

    /// Lets descriptors and counters know of the notes that are new.
    pub(crate) fn settle(&self, tally: Tally<'static>) {
        let new = self.settled.replace(self.len.get())..self.len.get();
        let (mut transfers, mut again) = (0, 0);
        for note in new.filter_map(|index| Note::unpacked(tally.noted(index as usize)?)) {
            let Some(met) = note.outcome.happened_to(note.fd) else { continue };
            transfers += 1;
            again += u64::from(matches!(met, Met::Nothing | Met::NothingAfterEvent));
            if met == Met::NothingAfterEvent {
                tally.count(Counter::AgainAfterEvent);
                tally.site(Site::AgainAfterEvent, note.caller);
            }
        }
        tally.add(Counter::Transfers, transfers);
        tally.add(Counter::Again, again);
    }

    /// All that there are.
    pub(crate) fn all(&self, tally: Tally<'static>) -> impl Iterator<Item = Note> {
        (0..self.len.get()).filter_map(move |index| Note::unpacked(tally.noted(index as usize)?))
    }

    /// None is left.
    pub(crate) fn clear(&self) {
        self.len.set(0);
        self.settled.set(0);
    }
}

impl Note {
    /// Bits of the last word: 0–31 descriptor, 32–39 call, 40–47 outcome.
    #[inline]
    fn packed(self) -> [u64; 4] {
        let last =
            u64::from(self.fd as u32) | (self.call as u64) << 32 | (self.outcome as u64) << 40;
        [self.caller, self.began, self.ended, last]
    }

    fn unpacked([caller, began, ended, last]: [u64; 4]) -> Option<Self> {
        let call = Call::numbered(last >> 32 & 0xff)?;
        Some(Self {
            call,
            fd: last as i32,
            caller,
            began,
            ended,
            outcome: Outcome::numbered(last >> 40),
        })
    }
}

impl Outcome {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Read,
        Self::ReadNothing,
        Self::Written,
        Self::WrittenShort,
        Self::WrittenNothing,
        Self::Connecting,
    ];

    fn numbered(number: u64) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::None)
    }

    /// Lets the descriptor know. What a transfer met; nothing where it was none.
    pub(crate) fn happened_to(self, fd: i32) -> Option<Met> {
        match self {
            Self::None => None,
            Self::Read => Some(descriptors::read(fd, false)),
            Self::ReadNothing => Some(descriptors::read(fd, true)),
            Self::Written => Some(descriptors::written(fd, false, false)),
            Self::WrittenShort => Some(descriptors::written(fd, false, true)),
            Self::WrittenNothing => Some(descriptors::written(fd, true, false)),
            Self::Connecting => {
                descriptors::connecting(fd);
                None
            }
        }
    }
}
