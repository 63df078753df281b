//! The figures of one thread: counters, histograms, call sites, its longest turns with the calls in them.
//!
//! Only the thread that claimed a cell writes to it, so an addition is a load and a store, neither of
//! which waits for anything. A signal handler that counts in the middle of one can cost one count.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::loop_stats::{Call, Counter, Histogram, Site};

pub(crate) const CELL_WORDS: usize = 1024;

/// Words of a cell: its process, counters, histograms, call sites, turns, notes.
const PID: usize = 0;
const TID: usize = 1;
const IMAGE: usize = 2;
const NAME: usize = 3;
const COUNTERS: usize = 8;
const COUNTERS_MAX: usize = 56;
const HISTOGRAMS: usize = COUNTERS + COUNTERS_MAX;
/// Buckets of each histogram.
const BUCKETS: usize = 28;
const SITES: usize = HISTOGRAMS + BUCKETS * 3;
/// Call sites that a thread can name; of further ones only the counters know.
const SITES_MAX: usize = 32;
/// Bits 0–55 of the second word of a site are the count, 56–63 what happened.
const SITE_SHIFT: u32 = 56;
const TURNS: usize = SITES + 2 * SITES_MAX;
const NOTES: usize = 512;
/// Words of a note.
const NOTE_WORDS: usize = 4;
/// Notes of a thread.
pub const NOTES_MAX: usize = (CELL_WORDS - NOTES) / NOTE_WORDS;
const _: () = assert!(TURNS + TURNS_WORDS <= NOTES);
const _: () = assert!(Counter::ALL.len() <= COUNTERS_MAX && Histogram::ALL.len() == 3);

/// Places that called of which a turn keeps what they called; of more, those where it lasted longest.
pub const CALLS_MAX: usize = 12;
/// Turns that a thread keeps.
const TURNS_MAX: usize = 4;
const TURN_HEADER_WORDS: usize = 8;
const CALL_WORDS: usize = 5;
const TURN_WORDS: usize = TURN_HEADER_WORDS + CALLS_MAX * CALL_WORDS;
/// Words of all turns of a thread.
const TURNS_WORDS: usize = TURNS_MAX * TURN_WORDS;
/// Turns of several threads together: the longest.
const TURNS_SHOWN: usize = 8;

/// Buckets of events per wait: 0, 1, 2, 3–4, 5–8 and so on, the last from 513.
const EVENTS_BUCKETS: usize = 12;
/// Buckets of lengths: below 1 µs, below 2 µs, below 4 µs and so on, the last from 67 s.
const TIME_BUCKETS: usize = BUCKETS;

/// The fewest and the most events of a bucket; no most of the last one.
#[must_use]
pub fn events_of(bucket: usize) -> (u64, Option<u64>) {
    match bucket {
        0..=2 => (bucket as u64, Some(bucket as u64)),
        _ => {
            let most = 1 << (bucket - 1);
            (most / 2 + 1, (bucket + 1 < EVENTS_BUCKETS).then_some(most))
        }
    }
}

/// Where a bucket of lengths begins and ends, in nanoseconds; no end of the last one.
#[must_use]
pub fn time_of(bucket: usize) -> (u64, Option<u64>) {
    let end = 1000 << bucket;
    (if bucket == 0 { 0 } else { end / 2 }, (bucket + 1 < TIME_BUCKETS).then_some(end))
}

/// The bucket of a number of events.
fn events_bucket(events: u64) -> usize {
    match events {
        0..=2 => events as usize,
        _ => (65 - (events - 1).leading_zeros() as usize).min(EVENTS_BUCKETS - 1),
    }
}

/// The bucket of a length.
fn time_bucket(ns: u64) -> usize {
    (64 - (ns / 1000).leading_zeros() as usize).min(TIME_BUCKETS - 1)
}

/// The figures of a thread, to be written by it.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    words: &'a [AtomicU64; CELL_WORDS],
}

impl<'a> Cell<'a> {
    pub(crate) const fn new(words: &'a [AtomicU64; CELL_WORDS]) -> Self {
        Self { words }
    }

    /// Says whose it is: process, thread, its name in the kernel, its image if that found room.
    pub fn name(&self, pid: u32, tid: u32, name: [u8; 16], image: Option<u64>) {
        let (first, second) = name.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.words[NAME].store(word(first), Relaxed);
        self.words[NAME + 1].store(word(second), Relaxed);
        self.words[TID].store(tid.into(), Relaxed);
        self.words[IMAGE].store(image.map_or(0, |image| image + 1), Relaxed);
        // Release: a reader that sees the process sees the rest.
        self.words[PID].store(pid.into(), Release);
    }

    /// Counts.
    #[inline]
    pub fn add(&self, counter: Counter, by: u64) {
        raise(&self.words[COUNTERS + counter as usize], by);
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts a wait with so many events.
    #[inline]
    pub fn events(&self, events: u64) {
        raise(&self.words[HISTOGRAMS + events_bucket(events)], 1);
    }

    /// Counts a length.
    #[inline]
    pub fn time(&self, histogram: Histogram, ns: u64) {
        raise(&self.words[HISTOGRAMS + BUCKETS * histogram as usize + time_bucket(ns)], 1);
    }

    /// Counts what happened at a call site; nothing where there is no room for another one.
    #[inline]
    pub fn site(&self, site: Site, caller: u64) {
        let kind = (site as u64) << SITE_SHIFT;
        let start = (caller >> 2) as usize ^ site as usize;
        for step in 0..SITES_MAX {
            let at = SITES + 2 * ((start + step) % SITES_MAX);
            let address = &self.words[at];
            let count = &self.words[at + 1];
            let is = address.load(Relaxed);
            let counted = count.load(Relaxed);
            if counted == 0 {
                address.store(caller, Relaxed);
                count.store(kind | 1, Release);
                return;
            }
            if is == caller && counted & (0xff << SITE_SHIFT) == kind {
                count.store(counted + 1, Relaxed);
                return;
            }
        }
    }

    /// Keeps a turn if it is among the longest: when it began, its length, its CPU time, the events
    /// before it, calls left out, the time it was asleep. Returns the length that another one has to exceed.
    #[must_use]
    pub fn turn(&self, figures: [u64; 6], calls: &[CallRecord]) -> u64 {
        let words = self.words[TURNS..].first_chunk().expect("checked when compiled");
        keep_turn(words, figures, calls)
    }

    /// Keeps a note, of which only the thread itself knows what it means. Nothing happens beyond
    /// [`NOTES_MAX`].
    #[inline]
    pub fn note(&self, index: usize, note: [u64; NOTE_WORDS]) {
        if let Some(words) = self.notes().get(index) {
            words.iter().zip(note).for_each(|(word, value)| word.store(value, Relaxed));
        }
    }

    /// A note as it was kept.
    #[inline]
    #[must_use]
    pub fn noted(&self, index: usize) -> Option<[u64; NOTE_WORDS]> {
        let words = self.notes().get(index)?;
        Some(words.each_ref().map(|word| word.load(Relaxed)))
    }

    fn notes(&self) -> &'a [[AtomicU64; NOTE_WORDS]] {
        self.words[NOTES..].as_chunks().0
    }

    /// The figures so far; nothing before a thread has claimed the cell.
    pub(crate) fn read(&self) -> Option<Figures> {
        let word = |index: usize| self.words[index].load(Relaxed);
        let pid = u32::try_from(self.words[PID].load(Acquire)).ok().filter(|pid| *pid > 0)?;
        let name: Vec<u8> =
            [word(NAME), word(NAME + 1)].iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let site = |pair: &[AtomicU64]| {
            let counted = pair[1].load(Acquire);
            let site = Site::numbered(counted >> SITE_SHIFT)?;
            let caller = pair[0].load(Relaxed);
            let times = counted & ((1 << SITE_SHIFT) - 1);
            (times > 0).then_some(SiteFigure { site, caller, times })
        };
        Some(Figures {
            pid,
            tid: word(TID) as u32,
            name: String::from_utf8_lossy(name).into_owned(),
            image: word(IMAGE).checked_sub(1),
            counters: std::array::from_fn(|index| word(COUNTERS + index)),
            histograms: std::array::from_fn(|index| word(HISTOGRAMS + index)),
            sites: self.words[SITES..TURNS].chunks_exact(2).filter_map(site).collect(),
            turns: kept_turns(&self.words[TURNS..TURNS + TURNS_WORDS]),
        })
    }
}

#[inline]
fn raise(word: &AtomicU64, by: u64) {
    word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
}

/// What happened at a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFigure {
    /// What.
    pub site: Site,
    /// Where the call returns to.
    pub caller: u64,
    /// How often.
    pub times: u64,
}

/// A copy of the figures of a thread, or the sum of several.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name that the kernel has of the thread.
    pub name: String,
    /// The number of the program's image, where there was room for it.
    pub image: Option<u64>,
    counters: [u64; COUNTERS_MAX],
    histograms: [u64; BUCKETS * 3],
    /// Call sites.
    pub sites: Vec<SiteFigure>,
    /// The longest turns, the longest first.
    pub turns: Vec<Turn>,
}

impl Figures {
    /// A counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// A histogram: as many buckets as it has.
    #[must_use]
    pub fn histogram(&self, histogram: Histogram) -> &[u64] {
        let buckets = match histogram {
            Histogram::EventsPerWait => EVENTS_BUCKETS,
            Histogram::TurnLength | Histogram::WaitLength => TIME_BUCKETS,
        };
        &self.histograms[BUCKETS * histogram as usize..][..buckets]
    }

    /// Adds those of another thread of the same program.
    pub fn add(&mut self, other: &Self) {
        let sum = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        sum(&mut self.counters, &other.counters);
        sum(&mut self.histograms, &other.histograms);
        for new in &other.sites {
            let is_it =
                |known: &&mut SiteFigure| (known.site, known.caller) == (new.site, new.caller);
            match self.sites.iter_mut().find(is_it) {
                Some(known) => known.times += new.times,
                None => self.sites.push(*new),
            }
        }
        self.turns.extend(other.turns.iter().cloned());
        self.turns.sort_by_key(|turn| std::cmp::Reverse(turn.lasted_ns));
        self.turns.truncate(TURNS_SHOWN);
    }
}

/// What one place in the program called within a turn: once, or several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// What was called.
    pub call: Call,
    /// How often.
    pub times: u32,
    /// Its first argument, as far as that is a descriptor; of the longest one.
    pub fd: i32,
    /// Where it returns to.
    pub caller: u64,
    /// When the longest one began, since the turn did.
    pub after_ns: u64,
    /// Together.
    pub lasted_ns: u64,
    /// The longest one.
    pub longest_ns: u64,
}

/// A turn: from the return of a wait to the next wait of that thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// On the monotonic clock.
    pub began_ns: u64,
    /// Its length.
    pub lasted_ns: u64,
    /// CPU time of the thread in it, where that was read: in long turns.
    pub cpu_ns: u64,
    /// How much of it the thread was asleep, where that was read: in long turns.
    pub asleep_ns: u64,
    /// Events of the wait before it.
    pub events: u64,
    /// Calls that are listed, beside those for which there was no room.
    pub calls: Vec<CallRecord>,
    /// Calls for which there was no room.
    pub calls_left_out: u64,
}

/// Puts a turn into the slot of the shortest one that is kept, if that is shorter, which gets rare soon. A slot
/// has a sequence, odd while it is written, so that a reader does not mix two turns.
/// Returns the length that the next one has to exceed.
fn keep_turn(
    words: &[AtomicU64; TURNS_WORDS],
    [began_ns, lasted_ns, cpu_ns, events, left_out, asleep_ns]: [u64; 6],
    calls: &[CallRecord],
) -> u64 {
    let slots = || words.chunks_exact(TURN_WORDS);
    let length = |slot: &[AtomicU64]| slot[2].load(Relaxed);
    let Some(slot) = slots().min_by_key(|slot| length(slot)) else { return u64::MAX };
    if length(slot) < lasted_ns {
        let sequence = slot[0].load(Relaxed);
        slot[0].store(sequence | 1, Relaxed);
        fence(Release);
        let calls = &calls[..calls.len().min(CALLS_MAX)];
        let head = [began_ns, lasted_ns, cpu_ns, events, left_out, calls.len() as u64, asleep_ns];
        slot[1..].iter().zip(head).for_each(|(word, value)| word.store(value, Relaxed));
        for (call, to) in calls.iter().zip(slot[TURN_HEADER_WORDS..].chunks_exact(CALL_WORDS)) {
            to[0].store(packed(call), Relaxed);
            to[1].store(call.caller, Relaxed);
            to[2].store(call.after_ns, Relaxed);
            to[3].store(call.lasted_ns, Relaxed);
            to[4].store(call.longest_ns, Relaxed);
        }
        slot[0].store((sequence | 1).wrapping_add(1), Release);
    }
    slots().map(length).min().unwrap_or(u64::MAX)
}

/// The turns that are kept, the longest first. One that is being written is left out.
fn kept_turns(words: &[AtomicU64]) -> Vec<Turn> {
    let mut turns: Vec<_> = words.chunks_exact(TURN_WORDS).filter_map(read_turn).collect();
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.lasted_ns));
    turns
}

fn read_turn(slot: &[AtomicU64]) -> Option<Turn> {
    let sequence = slot[0].load(Acquire);
    if sequence == 0 || sequence % 2 == 1 {
        return None;
    }
    let word = |index: usize| slot[index].load(Relaxed);
    let count = (word(6) as usize).min(CALLS_MAX);
    let calls = slot[TURN_HEADER_WORDS..].chunks_exact(CALL_WORDS).take(count).filter_map(unpacked);
    let turn = Turn {
        began_ns: word(1),
        lasted_ns: word(2),
        cpu_ns: word(3),
        events: word(4),
        asleep_ns: word(7),
        calls_left_out: word(5),
        calls: calls.collect(),
    };
    fence(Acquire);
    (slot[0].load(Relaxed) == sequence).then_some(turn)
}

/// Bits of the first word of a call: 0–7 which one, 8–31 times, 32–63 descriptor.
fn packed(call: &CallRecord) -> u64 {
    let times = u64::from(call.times.min(0xff_ffff));
    call.call as u64 | times << 8 | u64::from(call.fd as u32) << 32
}

fn unpacked(words: &[AtomicU64]) -> Option<CallRecord> {
    let word = |index: usize| words[index].load(Relaxed);
    let packed = word(0);
    Some(CallRecord {
        call: Call::numbered(packed & 0xff)?,
        times: (packed >> 8 & 0xff_ffff) as u32,
        fd: (packed >> 32) as u32 as i32,
        caller: word(1),
        after_ns: word(2),
        lasted_ns: word(3),
        longest_ns: word(4),
    })
}
