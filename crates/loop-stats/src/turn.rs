//! The longest turns of a thread, with the calls in them.
//!
//! A turn is copied here only when it is longer than one that is kept, which gets rare soon. A slot
//! has a sequence, odd while it is written, so that a reader does not mix two turns.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::Call;

/// Places that called of which a turn keeps what they called; of more, those where it lasted longest.
pub const CALLS_MAX: usize = 12;
/// Turns that a thread keeps.
pub(crate) const TURNS_MAX: usize = 4;
const HEADER_WORDS: usize = 8;
const CALL_WORDS: usize = 5;
const TURN_WORDS: usize = HEADER_WORDS + CALLS_MAX * CALL_WORDS;
/// Words of all turns of a thread.
pub(crate) const TURNS_WORDS: usize = TURNS_MAX * TURN_WORDS;

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
    /// Events of the wait before it.
    pub events: u64,
    /// Calls that are listed, beside those for which there was no room.
    pub calls: Vec<CallRecord>,
    /// Calls for which there was no room.
    pub calls_left_out: u64,
}

/// Puts a turn into the slot of the shortest one that is kept, if that is shorter.
/// Returns the length that the next one has to exceed.
pub(crate) fn keep(
    words: &[AtomicU64; TURNS_WORDS],
    [began_ns, lasted_ns, cpu_ns, events, left_out]: [u64; 5],
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
        let head = [began_ns, lasted_ns, cpu_ns, events, left_out, calls.len() as u64];
        slot[1..].iter().zip(head).for_each(|(word, value)| word.store(value, Relaxed));
        for (call, to) in calls.iter().zip(slot[HEADER_WORDS..].chunks_exact(CALL_WORDS)) {
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
pub(crate) fn kept(words: &[AtomicU64]) -> Vec<Turn> {
    let mut turns: Vec<_> = words.chunks_exact(TURN_WORDS).filter_map(read).collect();
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.lasted_ns));
    turns
}

fn read(slot: &[AtomicU64]) -> Option<Turn> {
    let sequence = slot[0].load(Acquire);
    if sequence == 0 || sequence % 2 == 1 {
        return None;
    }
    let word = |index: usize| slot[index].load(Relaxed);
    let count = (word(6) as usize).min(CALLS_MAX);
    let calls = slot[HEADER_WORDS..].chunks_exact(CALL_WORDS).take(count).filter_map(unpacked);
    let turn = Turn {
        began_ns: word(1),
        lasted_ns: word(2),
        cpu_ns: word(3),
        events: word(4),
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
