//! Which threads of the pool and its clients can run, so that none spins while another waits for its CPU.
//!
//! A thread that spins takes the CPU from one that could run. Where more can run than there are CPUs, a worker or a
//! client whose slice ends inside a call waits until all others have had theirs, and the more threads spend their slices
//! on looking, the longer that takes. So those who are about to look count first (`patience`).
//!
//! ```text
//!  worker   can run while its bit of `present` is set and its bit of `idle` is not
//!  client   can run while its bit of `calling` is set and its bit of `asleep` is not
//! ```
//!
//! | bit | set | cleared |
//! |---|---|---|
//! | present | by the worker when it begins | by the manager after its death, by the worker while it calls as a client |
//! | idle | by the worker before it sleeps | by the process that wakes it, before that, and by the worker |
//! | calling | by the client when it sends a request whose reply it waits for | by the client when that wait is over, by the manager after its end |
//! | asleep | by the client before it sleeps | by the process that wakes it, before that, and by the client |
//!
//! A thread counts from the moment that it is woken, not from the one at which it gets a CPU. Nothing but the choice
//! between looking and sleeping depends on these bits, so one that is wrong for a moment does no harm; each bit is set
//! anew by the next call or sleep of its thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits of all threads. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runnable<'a> {
    pub(super) present: &'a [AtomicU64],
    pub(super) idle: &'a [AtomicU64],
    pub(super) calling: &'a [AtomicU64],
    pub(super) asleep: &'a [AtomicU64],
}

impl Runnable<'_> {
    /// Whether more threads can run than `most`. Bits of workers and of blocks are set in the first `used` words only: most
    /// are far behind those, and a look at all of them costs as much as a small service.
    #[inline]
    pub(crate) fn is_above(&self, most: usize, used: [usize; 2]) -> bool {
        let mut count = 0;
        let [workers, blocks] = used;
        let of_workers = self.present.iter().zip(self.idle).take(workers);
        let of_blocks = self.calling.iter().zip(self.asleep).take(blocks);
        for (awake, at_rest) in of_blocks.chain(of_workers) {
            let bits = awake.load(Ordering::Relaxed);
            if bits != 0 {
                count += (bits & !at_rest.load(Ordering::Relaxed)).count_ones() as usize;
                if count > most {
                    return true;
                }
            }
        }
        false
    }

    /// Whether worker `worker` is there.
    pub(crate) fn set_present(&self, worker: usize, is_present: bool) {
        set(self.present, worker, is_present);
    }

    /// Whether the client with block `block` is in a call.
    #[inline]
    pub(crate) fn set_calling(&self, block: usize, is_calling: bool) {
        set(self.calling, block, is_calling);
    }

    /// Whether the client with block `block` sleeps, or is about to.
    #[inline]
    pub(crate) fn set_asleep(&self, block: usize, is_asleep: bool) {
        set(self.asleep, block, is_asleep);
    }
}

#[inline]
fn set(words: &[AtomicU64], at: usize, is_set: bool) {
    let word = &words[at / 64];
    let bit = 1 << (at % 64);
    if is_set {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_are_idle_and_clients_that_sleep_or_do_not_call_cannot_run() {
        let words = || [const { AtomicU64::new(0) }; 2];
        let present = words();
        let idle = words();
        let calling = words();
        let asleep = words();
        let all = Runnable { present: &present, idle: &idle, calling: &calling, asleep: &asleep };
        let count = || (0..).find(|most| !all.is_above(*most, [2, 2])).expect("there are few");
        assert_eq!(count(), 0);
        for worker in [0, 63, 64, 127] {
            all.set_present(worker, true);
        }
        set(&idle, 64, true);
        set(&idle, 5, true);
        assert_eq!(count(), 3, "an idle bit without a worker counts for nothing");
        for block in [1, 65] {
            all.set_calling(block, true);
        }
        assert_eq!(count(), 5);
        all.set_asleep(65, true);
        all.set_asleep(2, true);
        assert_eq!(count(), 4);
        all.set_calling(1, false);
        all.set_present(127, false);
        assert_eq!(count(), 2);
        assert!(
            !all.is_above(0, [0, 0]) && all.is_above(1, [1, 2]),
            "words that are not in use are left out"
        );
    }
}
