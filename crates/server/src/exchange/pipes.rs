//! The pipes of one loop, which bytes of streams and of long bodies go through.

use std::collections::VecDeque;
use std::sync::Arc;

use pollux_engine::Pipe;

/// Empty pipes that a loop keeps.
const PIPES_KEPT_MAX: usize = 64;
/// Large pipes of all loops together. Those beyond are for clients that do not take what they are sent, to whom they
/// would be of no use; and of all pages that the pipes of a user may have (16,384 by default) these take a quarter.
const LARGE_MAX: usize = 64;

/// The pipes of one loop: a bounded number, held only while something is in them.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// Large ones behind the others: they are used first.
    empty: VecDeque<Arc<Pipe>>,
    open: usize,
    open_max: usize,
    large: usize,
    large_max: usize,
}

impl Pipes {
    /// Those of one of so many loops, which have so many together at most.
    pub(crate) fn new(open_max: usize, loops: usize) -> Self {
        let open_max = open_max.div_ceil(loops);
        let large_max = LARGE_MAX.div_ceil(loops);
        Self { empty: VecDeque::new(), open: 0, open_max, large: 0, large_max }
    }

    /// Whether bytes may go through pipes at all.
    pub(crate) fn is_on(&self) -> bool {
        self.open_max > 0
    }

    /// Whether one may be used.
    pub(crate) fn has_one(&self) -> bool {
        !self.empty.is_empty() || self.open < self.open_max
    }

    /// An empty one; none when there are as many as may be, or no descriptor is left.
    pub(crate) fn take(&mut self) -> Option<Arc<Pipe>> {
        if let Some(pipe) = self.empty.pop_back() {
            return Some(pipe);
        }
        if self.open >= self.open_max {
            return None;
        }
        let may_be_large = self.large < self.large_max;
        let pipe = if may_be_large { Pipe::open_large() } else { Pipe::open() }.ok()?;
        self.open += 1;
        self.large += usize::from(pipe.is_large());
        Some(Arc::new(pipe))
    }

    /// One that is empty again.
    pub(crate) fn put(&mut self, pipe: Arc<Pipe>) {
        if pipe.is_large() {
            self.empty.push_back(pipe);
        } else {
            self.empty.push_front(pipe);
        }
        if self.empty.len() > PIPES_KEPT_MAX || !self.is_on() {
            let least_of_use = self.empty.pop_front().expect("one was put there");
            self.give_up(least_of_use);
        }
    }

    /// Closes those that are empty.
    pub(crate) fn release(&mut self) {
        for pipe in std::mem::take(&mut self.empty) {
            self.give_up(pipe);
        }
    }

    /// The kernel refuses what they are for: none is used any more.
    #[cold]
    pub(crate) fn stop(&mut self) {
        self.open_max = 0;
        self.release();
    }

    /// Closes one; the bytes in it, if there are any, are dropped.
    pub(crate) fn give_up(&mut self, pipe: Arc<Pipe>) {
        self.open -= 1;
        self.large -= usize::from(pipe.is_large());
        drop(pipe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pipes_are_few_and_used_before_the_others() {
        let mut pipes = Pipes::new(200, 1);
        let taken: Vec<_> = (0..100).map(|_| pipes.take().expect("one")).collect();
        let large = taken.iter().filter(|pipe| pipe.is_large()).count();
        assert!(large <= LARGE_MAX, "{large}");
        taken.into_iter().rev().for_each(|pipe| pipes.put(pipe));
        assert_eq!((pipes.open, pipes.large), (PIPES_KEPT_MAX, large));
        let again: Vec<_> = (0..large).map(|_| pipes.take().expect("one")).collect();
        assert!(again.iter().all(|pipe| pipe.is_large()));
        again.into_iter().for_each(|pipe| pipes.give_up(pipe));
        pipes.release();
        assert_eq!((pipes.open, pipes.large), (0, 0));
    }

    #[test]
    fn no_more_are_open_than_may_be() {
        let mut pipes = Pipes::new(3, 2);
        let taken = [pipes.take().expect("one"), pipes.take().expect("one")];
        assert!(!pipes.has_one() && pipes.take().is_none());
        let [first, second] = taken;
        pipes.put(first);
        assert!(pipes.has_one());
        pipes.stop();
        pipes.put(second);
        assert!(pipes.open == 0 && !pipes.has_one() && !pipes.is_on());
    }
}
