//! The ring of one service: the numbers of the requests that wait for a worker.
//!
//! Clients push, workers take, the manager completes what a dead worker began. Pure: words in memory
//! that several processes map, no wait, no system call. Whatever the words hold, nothing here panics or
//! leaves the ring; what cannot be is reported as [`Broken`], and the manager rebuilds the ring.
//!
//! ```text
//!  a cell:  63 ......... 34 | 33 32 | 31 ... 24 | 23 ... 0   the cell of position p is p mod RING_LEN,
//!           lap of position | kind  | rank      | number     its lap is p / RING_LEN
//!
//!   empty(lap) ──push──▶ full(lap, request) ──grab──▶ taken(lap, worker) ──free──▶ empty(lap + 1)
//!
//!           head: the next position to take       tail: the next position to push
//! ```
//!
//! Each arrow is one compare-and-swap of the cell, which alone decides. Head and tail follow: a process that
//! sees that the cell at one of them is past it moves it on, so a process that is killed behind its arrow
//! delays no other process. There is no state between "has a place" and "has filled it".
//!
//! The rank is the priority of a request, with the usual one as 0. Where one that has another may wait, which a word
//! beside the head tells, the request that is taken next is that with the highest, which may stand behind others: a cell
//! that was taken and freed before the head came to it is past it as any other.

// The parent chooses the atomics and the length, so that the loom model takes this file in as it stands.
use super::Priority;
use super::RING_LEN;
use super::atomic::{AtomicU64, Ordering};

/// Words in front of the cells: head, tail and the word for clients that wait for room, each on a cache
/// line of its own.
const HEAD: usize = 0;
/// One more than the highest position at which a request with a priority of its own was pushed. On the line of the head,
/// which takers read.
const RANKED: usize = 1;
/// Requests that were taken by priority.
const TURNS: usize = 2;
const TAIL: usize = 8;
const ROOM: usize = 16;
const CELLS: usize = 24;
/// Words of one ring.
pub(crate) const RING_WORDS: usize = CELLS + RING_LEN;

/// Looks at a ring whose ends move all the time before it counts as broken.
const LOOKS_MAX: usize = 1_000;
/// Laps that a rebuilt ring is ahead, so that no process that slept takes one of its cells for an old one.
const REBUILT_LAPS: u64 = 16;

/// Each so many-th request is the one that came first, whatever the priorities are.
const FIRST_COME_EACH: u64 = 10;

const NUMBER_MASK: u32 = 0xff_ffff;
const RANK_SHIFT: u32 = 24;
const KIND_SHIFT: u32 = 32;
const LAP_SHIFT: u32 = 34;
const LAP_MASK: u64 = (1 << (64 - LAP_SHIFT)) - 1;
const EMPTY: u64 = 0;
const FULL: u64 = 1;
const TAKEN: u64 = 2;

/// The ends and the cells contradict each other: another process wrote there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// What a cell is to a process whose position is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It waits for a request at this position.
    Empty,
    /// It holds the request of this position.
    Full(u32),
    /// The request of this position was taken.
    Past,
    /// The request of the position one lap before was taken, and its worker has not freed the cell.
    Behind,
    /// The request of the position one lap before waits here.
    FullBehind,
    /// None of these.
    Strange,
}

/// One ring. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    words: &'a [AtomicU64; RING_WORDS],
}

impl<'a> Ring<'a> {
    pub(crate) fn over(words: &'a [AtomicU64; RING_WORDS]) -> Self {
        Self { words }
    }

    /// Puts a request behind those that wait; its position, none where there is no room.
    ///
    /// # Errors
    /// [`Broken`].
    pub(crate) fn push(&self, request: u32) -> Result<Option<u64>, Broken> {
        self.push_with(request, Priority::USUAL)
    }

    /// The same with a priority. A client that is killed in it may leave a request without that.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub(crate) fn push_with(
        &self,
        request: u32,
        priority: Priority,
    ) -> Result<Option<u64>, Broken> {
        let pushed = self.push_value(request | rank(priority))?;
        if let Some(at) = pushed.filter(|_| priority != Priority::USUAL) {
            self.words[RANKED].fetch_max(at.wrapping_add(1), Ordering::SeqCst);
        }
        Ok(pushed)
    }

    fn push_value(&self, value: u32) -> Result<Option<u64>, Broken> {
        for _ in 0..LOOKS_MAX {
            let at = self.words[TAIL].load(Ordering::SeqCst);
            let cell = self.cell(at);
            let seen = cell.load(Ordering::SeqCst);
            match standing(seen, at) {
                Standing::Empty => {
                    if swap(cell, seen, packed(at, FULL, value)) {
                        self.advance(TAIL, at);
                        return Ok(Some(at));
                    }
                }
                Standing::Full(_) | Standing::Past => self.advance(TAIL, at),
                _ if self.words[TAIL].load(Ordering::SeqCst) != at => {}
                Standing::Behind | Standing::FullBehind => return Ok(None),
                Standing::Strange => return Err(Broken),
            }
        }
        Err(Broken)
    }

    /// The position and the number of the request that came first; none when none waits.
    ///
    /// # Errors
    /// [`Broken`].
    pub(crate) fn first(&self) -> Result<Option<(u64, u32)>, Broken> {
        for _ in 0..LOOKS_MAX {
            let at = self.words[HEAD].load(Ordering::SeqCst);
            match standing(self.cell(at).load(Ordering::SeqCst), at) {
                Standing::Full(value) => return Ok(Some((at, value & NUMBER_MASK))),
                Standing::Past => self.advance(HEAD, at),
                Standing::Empty | Standing::Behind => return Ok(None),
                _ if self.words[HEAD].load(Ordering::SeqCst) != at => {}
                Standing::FullBehind | Standing::Strange => return Err(Broken),
            }
        }
        Err(Broken)
    }

    /// The position and the number of the request that is to be taken next, by priority; none when none waits.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub(crate) fn next(&self) -> Result<Option<(u64, u32)>, Broken> {
        let first = self.first()?;
        match first {
            Some((at, _)) if self.words[RANKED].load(Ordering::SeqCst) > at => {
                Ok(self.highest(at).or(first))
            }
            first => Ok(first),
        }
    }

    /// Of the requests from a position on the one with the highest priority; none when it is the turn of the first.
    #[cold]
    fn highest(&self, from: u64) -> Option<(u64, u32)> {
        let turn = self.words[TURNS].fetch_add(1, Ordering::Relaxed);
        if turn % FIRST_COME_EACH == FIRST_COME_EACH - 1 {
            return None;
        }
        let tail = self.words[TAIL].load(Ordering::SeqCst);
        let count = tail.wrapping_sub(from).min(RING_LEN as u64);
        let mut highest: Option<(Priority, u64, u32)> = None;
        // The tail may be one behind for a moment.
        for at in (0..=count).map(|offset| from.wrapping_add(offset)) {
            if let Standing::Full(value) = standing(self.cell(at).load(Ordering::SeqCst), at) {
                let priority = priority_of(value);
                if highest.is_none_or(|(known, ..)| priority > known) {
                    highest = Some((priority, at, value & NUMBER_MASK));
                }
            }
        }
        highest.map(|(_, at, number)| (at, number))
    }

    /// Takes what [`first`](Self::first) or [`next`](Self::next) showed, in the name of `worker`; false when another was
    /// quicker.
    pub(crate) fn grab(&self, at: u64, request: u32, worker: u32) -> bool {
        let cell = self.cell(at);
        let seen = cell.load(Ordering::SeqCst);
        let is_ours = holds(seen, at, request) && swap(cell, seen, packed(at, TAKEN, worker));
        if is_ours {
            self.advance(HEAD, at);
        }
        is_ours
    }

    /// Whether a request that was pushed at a position was not taken yet.
    #[inline]
    pub(crate) fn is_waiting(&self, at: u64, request: u32) -> bool {
        holds(self.cell(at).load(Ordering::SeqCst), at, request)
    }

    /// Gives the cell of a request that `worker` took back; whether it had it.
    pub(crate) fn free(&self, at: u64, worker: u32) -> bool {
        let next = packed(at.wrapping_add(RING_LEN as u64), EMPTY, 0);
        swap(self.cell(at), packed(at, TAKEN, worker), next)
    }

    /// The position of the cell that `worker` took and did not free, if it is one that `is_it` knows.
    /// Called by the manager, of a worker that is dead.
    pub(crate) fn taken_by(&self, worker: u32, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let at = |(index, cell): (usize, &AtomicU64)| {
            let cell = cell.load(Ordering::SeqCst);
            let at = lap(cell) * RING_LEN as u64 + index as u64;
            let is_its = kind(cell) == TAKEN && cell as u32 == worker && is_it(at);
            is_its.then_some(at)
        };
        self.words[CELLS..].iter().enumerate().find_map(at)
    }

    /// Requests that wait, about.
    pub(crate) fn waiting(&self) -> usize {
        let (head, tail) = self.ends();
        // The tail may be one behind for a moment.
        let count = tail.wrapping_sub(head).cast_signed();
        usize::try_from(count).map_or(0, |count| count.min(RING_LEN))
    }

    /// All requests that stand in cells.
    pub(crate) fn requests(&self) -> impl Iterator<Item = u32> {
        let cells = self.words[CELLS..].iter().map(|cell| cell.load(Ordering::SeqCst));
        cells.filter(|cell| kind(*cell) == FULL).map(number)
    }

    /// Moves the ends on to where they should be: the process that had to do it may be dead.
    pub(crate) fn settle(&self) {
        // What is broken is found by `is_sound`.
        let _ = self.first();
        for _ in 0..LOOKS_MAX {
            let at = self.words[TAIL].load(Ordering::SeqCst);
            match standing(self.cell(at).load(Ordering::SeqCst), at) {
                Standing::Full(_) | Standing::Past => self.advance(TAIL, at),
                _ => return,
            }
        }
    }

    /// Whether ends and cells agree, or moved during the look. `is_claimed` tells whether a worker notes
    /// that it takes the request at a position.
    pub(crate) fn is_sound(&self, is_claimed: impl Fn(u64, u32) -> bool) -> bool {
        let (head, tail) = self.ends();
        let count = tail.wrapping_sub(head);
        let is_right = |offset: u64| {
            let at = head.wrapping_add(offset);
            let cell = self.cell(at).load(Ordering::SeqCst);
            match standing(cell, at) {
                Standing::Full(_) => offset <= count,
                Standing::Past => offset <= count && is_known(cell, at, &is_claimed),
                Standing::Empty => offset >= count,
                Standing::Behind => {
                    offset >= count && is_known(cell, at.wrapping_sub(RING_LEN as u64), &is_claimed)
                }
                Standing::FullBehind | Standing::Strange => false,
            }
        };
        let is_sound = count <= RING_LEN as u64 && (0..RING_LEN as u64).all(is_right);
        is_sound || self.ends() != (head, tail)
    }

    /// Makes a broken ring an empty one; what stood in its cells, which are not taken from there any more, without their
    /// priorities.
    /// Called by the manager. Others may push and take meanwhile, and see a broken ring or the new one.
    pub(crate) fn rebuild(&self) -> Vec<u32> {
        let cells = &self.words[CELLS..];
        let most = cells.iter().map(|cell| lap(cell.load(Ordering::SeqCst))).max().unwrap_or(0);
        let first = ((most + REBUILT_LAPS) & LAP_MASK) * RING_LEN as u64;
        let old = cells.iter().map(|cell| cell.swap(packed(first, EMPTY, 0), Ordering::SeqCst));
        let left = old.filter(|cell| kind(*cell) == FULL).map(number).collect();
        self.words[RANKED].store(0, Ordering::SeqCst);
        self.words[HEAD].store(first, Ordering::SeqCst);
        self.words[TAIL].store(first, Ordering::SeqCst);
        left
    }

    /// The word that clients that find no room sleep on.
    pub(crate) fn room(&self) -> &'a AtomicU64 {
        &self.words[ROOM]
    }

    fn ends(&self) -> (u64, u64) {
        (self.words[HEAD].load(Ordering::SeqCst), self.words[TAIL].load(Ordering::SeqCst))
    }

    fn cell(&self, at: u64) -> &'a AtomicU64 {
        &self.words[CELLS + at as usize % RING_LEN]
    }

    /// Moves an end on from a position whose cell is past it. Another process may have done so.
    fn advance(&self, end: usize, at: u64) {
        swap(&self.words[end], at, at.wrapping_add(1));
    }
}

/// Whether a cell that is taken, if it is, was taken by a worker that says so.
fn is_known(cell: u64, at: u64, is_claimed: impl Fn(u64, u32) -> bool) -> bool {
    kind(cell) != TAKEN || lap(cell) != lap_of(at) || is_claimed(at, cell as u32)
}

fn standing(cell: u64, at: u64) -> Standing {
    let ahead = lap(cell).wrapping_sub(lap_of(at)) & LAP_MASK;
    match (kind(cell), ahead) {
        (EMPTY, 0) => Standing::Empty,
        (FULL, 0) => Standing::Full(cell as u32),
        (TAKEN, 0) | (EMPTY | FULL | TAKEN, 1) => Standing::Past,
        (TAKEN, LAP_MASK) => Standing::Behind,
        (FULL, LAP_MASK) => Standing::FullBehind,
        _ => Standing::Strange,
    }
}

/// Whether a cell holds this request, for this position.
fn holds(cell: u64, at: u64, request: u32) -> bool {
    standing(cell, at) == Standing::Full(cell as u32) && number(cell) == request
}

fn number(cell: u64) -> u32 {
    cell as u32 & NUMBER_MASK
}

/// A priority in its place of a value.
fn rank(priority: Priority) -> u32 {
    u32::from(priority.number() ^ Priority::USUAL.number()) << RANK_SHIFT
}

/// That of a value; the usual one for what is none.
fn priority_of(value: u32) -> Priority {
    let rank = (value >> RANK_SHIFT) as u8;
    Priority::new((rank ^ Priority::USUAL.number()).into()).unwrap_or_default()
}

fn swap(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

fn packed(at: u64, kind: u64, value: u32) -> u64 {
    lap_of(at) << LAP_SHIFT | kind << KIND_SHIFT | u64::from(value)
}

fn lap_of(at: u64) -> u64 {
    (at / RING_LEN as u64) & LAP_MASK
}

fn lap(cell: u64) -> u64 {
    cell >> LAP_SHIFT
}

fn kind(cell: u64) -> u64 {
    cell >> KIND_SHIFT & 0b11
}
