//! A table by number with places that are used again: what all tables of a loop are made of.

use crate::ids::Numbered;

/// Values by number. The place that was freed last is used next: its memory is warm. What a free place holds is its owner's
/// business: it may be kept for the next one.
#[derive(Debug)]
pub(crate) struct Places<Id, T> {
    all: Vec<T>,
    free: Vec<Id>,
}

impl<Id, T> Default for Places<Id, T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl<Id: Numbered, T> Places<Id, T> {
    /// A place that holds this value.
    pub(crate) fn put(&mut self, value: T) -> Id {
        match self.free.pop() {
            Some(at) => {
                self.all[at.place()] = value;
                at
            }
            None => self.push(value),
        }
    }

    /// A place with what was left there, or a new one with what `new` makes.
    pub(crate) fn reuse(&mut self, new: impl FnOnce() -> T) -> Id {
        self.free.pop().unwrap_or_else(|| self.push(new()))
    }

    fn push(&mut self, value: T) -> Id {
        self.all.push(value);
        Id::of_place(self.all.len() - 1)
    }

    #[inline]
    pub(crate) fn get(&self, at: Id) -> &T {
        &self.all[at.place()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: Id) -> &mut T {
        &mut self.all[at.place()]
    }

    /// What holds the place of a number that may be no more.
    pub(crate) fn find(&self, at: Id) -> Option<&T> {
        self.all.get(at.place())
    }

    /// As [`Places::find`].
    pub(crate) fn find_mut(&mut self, at: Id) -> Option<&mut T> {
        self.all.get_mut(at.place())
    }

    /// All, free places with what was left there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.all.iter().enumerate().map(|(place, value)| (Id::of_place(place), value))
    }

    /// Makes the place free; nothing names it any more.
    pub(crate) fn free(&mut self, at: Id) {
        debug_assert!(!self.free.contains(&at), "a place is freed once");
        self.free.push(at);
    }

    /// How many are in use.
    pub(crate) fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Drops the places behind the last one that is in use, and has `shrink` look at those that are free before it.
    pub(crate) fn release_memory(&mut self, mut shrink: impl FnMut(&mut T)) {
        let mut is_free = vec![false; self.all.len()];
        self.free.iter().for_each(|at| is_free[at.place()] = true);
        let len = is_free.iter().rposition(|is_free| !is_free).map_or(0, |last| last + 1);
        self.all.truncate(len);
        self.all.shrink_to_fit();
        self.free.retain(|at| at.place() < len);
        self.free.shrink_to_fit();
        self.free.iter().for_each(|at| shrink(&mut self.all[at.place()]));
    }

    /// How many places there is memory for, and how many are free.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.all.capacity(), self.free.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TcpPairId;

    #[test]
    fn a_table_ends_with_the_last_place_that_is_in_use() {
        for (places, freed, expected) in [
            (0, &[][..], 0),
            (3, &[], 3),
            (3, &[0, 1], 3),
            (3, &[2], 2),
            (4, &[3, 1], 3),
            (4, &[2, 0, 3], 2),
            (4, &[3, 0, 2, 1], 0),
        ] {
            let mut table: Places<TcpPairId, u32> = Places::default();
            (0..places).for_each(|value| _ = table.put(value));
            freed.iter().for_each(|place| table.free(TcpPairId::of_place(*place)));
            let in_use = table.in_use();
            table.release_memory(|left| *left = 9);
            assert_eq!(table.size().0, expected, "{places} {freed:?}");
            assert_eq!(table.in_use(), in_use);
            let left = table.iter().filter(|(_, value)| **value == 9).count();
            assert_eq!(left, expected - in_use, "{places} {freed:?}");
        }
    }

    #[test]
    fn the_place_that_was_freed_last_is_used_next_with_what_was_left_there() {
        let mut table: Places<TcpPairId, &str> = Places::default();
        let all = ["a", "b", "c"].map(|value| table.put(value));
        table.free(all[0]);
        table.free(all[2]);
        let again = table.reuse(|| "new");
        assert_eq!((again, *table.get(again)), (all[2], "c"));
        let again = table.put("d");
        assert_eq!((again, *table.get(again)), (all[0], "d"));
        let new = table.reuse(|| "new");
        assert_eq!(*table.get(new), "new");
    }
}
