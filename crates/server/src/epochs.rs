//! The settings that one loop of a proxy answers by, and those before them that requests still keep: a request ends by the
//! settings by which its head was decided, whatever is reloaded meanwhile.
//!
//! ```text
//!  a reload ─► the newest one ─► another reload ─► an older one, while something goes by it ─► gone, its place is free
//! ```
//!
//! | what goes by an epoch | knows it by |
//! |---|---|
//! | an exchange, until it ends; a tunnel only until it is one | its number, which [`Epochs::hold`] gives and [`Epochs::release`] takes |
//! | a request that is answered here and waits: for its body, its password, or room for its answer | an [`EpochHold`] |
//!
//! There are at most [`EPOCHS_MAX`]; a reload that finds no place goes by another worker (`run/take_settings.rs`). Only the
//! loop of the epochs counts what goes by them; other threads look.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::ids::EpochId;

/// Most of them in a loop: each has its tables of sites, and its folders open.
pub(crate) const EPOCHS_MAX: usize = 8;

/// Its place in the ring, which the compiler sees to be one.
#[inline]
const fn place(epoch: EpochId) -> usize {
    epoch.place() % EPOCHS_MAX
}

/// What goes by each epoch of a loop.
#[derive(Debug, Default)]
pub(crate) struct EpochUses {
    uses: [AtomicU32; EPOCHS_MAX],
    newest: AtomicU32,
}

impl EpochUses {
    #[inline]
    fn add(&self, epoch: EpochId) {
        // One thread writes.
        let uses = &self.uses[place(epoch)];
        uses.store(uses.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    fn remove(&self, epoch: EpochId) {
        let uses = &self.uses[place(epoch)];
        let before = uses.load(Relaxed);
        debug_assert!(before > 0, "what is released was held");
        uses.store(before.wrapping_sub(1), Release);
    }

    fn is_in_use(&self, place: usize) -> bool {
        self.newest.load(Relaxed) as usize == place || self.uses[place].load(Acquire) > 0
    }

    /// How many epochs are in use, the newest one among them. From any thread.
    pub(crate) fn count(&self) -> usize {
        (0..EPOCHS_MAX).filter(|place| self.is_in_use(*place)).count()
    }

    /// Whether another one has a place. What is free stays so until then: nothing but a reload takes one.
    pub(crate) fn has_place(&self) -> bool {
        self.count() < EPOCHS_MAX
    }
}

/// Holds an epoch for a request that is answered by it later.
#[derive(Debug)]
pub(crate) struct EpochHold {
    epoch: EpochId,
    uses: Arc<EpochUses>,
}

impl EpochHold {
    pub(crate) fn epoch(&self) -> EpochId {
        self.epoch
    }
}

impl Drop for EpochHold {
    fn drop(&mut self) {
        self.uses.remove(self.epoch);
    }
}

/// What there is of each epoch of a loop.
#[derive(Debug)]
pub(crate) struct Epochs<T> {
    ring: [Option<Box<T>>; EPOCHS_MAX],
    /// That of the request that is looked at: the newest one, but for those that came before it.
    current: EpochId,
    newest: EpochId,
    uses: Arc<EpochUses>,
}

impl<T> Epochs<T> {
    /// With the first one.
    pub(crate) fn new(first: T) -> Self {
        let mut ring = std::array::from_fn(|_| None);
        ring[0] = Some(Box::new(first));
        let epoch = EpochId::default();
        Self { ring, current: epoch, newest: epoch, uses: Arc::default() }
    }

    /// Counts what goes by them where other threads can look at it; before anything does.
    pub(crate) fn count_in(&mut self, uses: Arc<EpochUses>) {
        self.uses = uses;
    }

    #[cfg(test)]
    fn uses(&self) -> &EpochUses {
        &self.uses
    }

    #[inline]
    pub(crate) fn current(&self) -> EpochId {
        self.current
    }

    pub(crate) fn newest(&self) -> EpochId {
        self.newest
    }

    /// What there is of the epoch of the request that is looked at.
    #[inline]
    pub(crate) fn now(&self) -> &T {
        self.of(self.current)
    }

    /// What there is of an epoch that is in use.
    #[inline]
    pub(crate) fn of(&self, epoch: EpochId) -> &T {
        self.ring[place(epoch)].as_deref().expect("it is in use")
    }

    /// A request of this epoch is looked at from now on.
    pub(crate) fn set_current(&mut self, epoch: EpochId) {
        debug_assert!(self.ring[place(epoch)].is_some(), "it is in use");
        self.current = epoch;
    }

    /// One more request goes by the current epoch, until it is [released](Self::release).
    #[inline]
    pub(crate) fn hold(&self) -> EpochId {
        self.uses.add(self.current);
        self.current
    }

    /// One that goes by this epoch needs it no more.
    #[inline]
    pub(crate) fn release(&self, epoch: EpochId) {
        self.uses.remove(epoch);
    }

    /// The same as [`Self::hold`], for what is dropped wherever that happens.
    pub(crate) fn hold_for_later(&self) -> EpochHold {
        EpochHold { epoch: self.hold(), uses: Arc::clone(&self.uses) }
    }

    pub(crate) fn is_in_use(&self, epoch: EpochId) -> bool {
        self.uses.is_in_use(epoch.place())
    }

    /// A new epoch, which is the newest and the current one from then on.
    ///
    /// # Errors
    /// There is no place for it: it is given back.
    pub(crate) fn begin(&mut self, new: T) -> Result<EpochId, T> {
        self.forget_unused();
        let Some(place) = self.ring.iter().position(Option::is_none) else { return Err(new) };
        self.ring[place] = Some(Box::new(new));
        let epoch = EpochId::of_place(place);
        (self.current, self.newest) = (epoch, epoch);
        self.uses.newest.store(place as u32, Relaxed);
        Ok(epoch)
    }

    /// Drops what there is of epochs by which nothing goes any more.
    pub(crate) fn forget_unused(&mut self) {
        for (place, of) in self.ring.iter_mut().enumerate() {
            if !self.uses.is_in_use(place) && place != self.current.place() {
                *of = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_has_the_settings_that_it_began_with_until_it_ends() {
        let mut epochs = Epochs::new("first");
        let one = epochs.hold();
        let two = epochs.begin("second").expect("a place");
        assert_eq!((*epochs.of(one), *epochs.now(), epochs.uses().count()), ("first", "second", 2));
        epochs.set_current(one);
        let later = epochs.hold_for_later();
        assert_eq!((*epochs.now(), later.epoch()), ("first", one));
        epochs.set_current(two);
        epochs.release(one);
        epochs.forget_unused();
        assert_eq!((*epochs.of(one), epochs.is_in_use(one)), ("first", true));
        drop(later);
        epochs.forget_unused();
        assert!(!epochs.is_in_use(one) && epochs.ring[one.place()].is_none());
    }

    #[test]
    fn the_ninth_epoch_has_no_place_until_one_of_the_others_is_left() {
        let mut epochs = Epochs::new(0);
        let first = epochs.hold();
        for number in 1..EPOCHS_MAX {
            assert!(epochs.uses().has_place(), "{number}");
            epochs.begin(number).expect("a place");
            epochs.hold();
        }
        assert!(!epochs.uses().has_place());
        assert_eq!(epochs.begin(8), Err(8));
        assert_eq!((*epochs.now(), epochs.current()), (7, epochs.newest()));
        epochs.release(first);
        assert!(epochs.uses().has_place());
        assert_eq!(epochs.begin(8), Ok(first), "its place is free");
        assert_eq!(*epochs.now(), 8);
    }

    proptest! {
        /// Whatever begins and ends, each request finds what it began with, and no more is kept than is asked for.
        #[test]
        fn epochs_are_those_of_a_list_of_requests(steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 1..300)) {
            let mut epochs = Epochs::new(0_u32);
            let mut newest = 0;
            let mut requests: Vec<(EpochId, u32)> = Vec::new();
            for (step, which) in steps {
                match step {
                    0 => {
                        let mut kept: Vec<u32> = requests.iter().map(|(_, number)| *number).chain([newest]).collect();
                        kept.sort_unstable();
                        kept.dedup();
                        let has_place = kept.len() < EPOCHS_MAX;
                        prop_assert_eq!(epochs.uses().has_place(), has_place);
                        prop_assert_eq!(epochs.begin(newest + 1).is_ok(), has_place);
                        newest += u32::from(has_place);
                    }
                    1 if !requests.is_empty() => {
                        let (epoch, _) = requests.swap_remove(which.index(requests.len()));
                        epochs.release(epoch);
                    }
                    _ => requests.push((epochs.hold(), newest)),
                }
                epochs.forget_unused();
                prop_assert_eq!(*epochs.now(), newest);
                for (epoch, number) in &requests {
                    prop_assert_eq!(epochs.of(*epoch), number);
                }
                prop_assert_eq!(epochs.ring.iter().flatten().count(), epochs.uses().count());
            }
        }
    }
}
