//! The pipes of one loop, which bytes of streams and of long bodies go through.

use std::sync::Arc;

use pollux_engine::Pipe;

/// Empty pipes that a loop keeps.
const PIPES_KEPT_MAX: usize = 64;

/// The pipes of one loop: a bounded number, held only while something is in them.
#[derive(Debug)]
pub(super) struct Pipes {
    empty: Vec<Arc<Pipe>>,
    open: usize,
    open_max: usize,
}

impl Pipes {
    pub(super) fn new(open_max: usize) -> Self {
        Self { empty: Vec::new(), open: 0, open_max }
    }

    /// Whether bytes may go through pipes at all.
    pub(super) fn is_on(&self) -> bool {
        self.open_max > 0
    }

    /// Whether one may be used.
    pub(super) fn has_one(&self) -> bool {
        !self.empty.is_empty() || self.open < self.open_max
    }

    /// An empty one; none when there are as many as may be, or no descriptor is left.
    pub(super) fn take(&mut self) -> Option<Arc<Pipe>> {
        if let Some(pipe) = self.empty.pop() {
            return Some(pipe);
        }
        if self.open >= self.open_max {
            return None;
        }
        let pipe = Pipe::open().ok()?;
        self.open += 1;
        Some(Arc::new(pipe))
    }

    /// One that is empty again.
    pub(super) fn put(&mut self, pipe: Arc<Pipe>) {
        if self.empty.len() < PIPES_KEPT_MAX && self.is_on() {
            self.empty.push(pipe);
        } else {
            self.open -= 1;
        }
    }

    /// Closes those that are empty.
    pub(super) fn release(&mut self) {
        self.open -= self.empty.len();
        self.empty = Vec::new();
    }

    /// The kernel refuses what they are for: none is used any more.
    #[cold]
    pub(super) fn stop(&mut self) {
        self.open_max = 0;
        self.release();
    }

    /// One whose connection is gone: the bytes in it are dropped.
    pub(super) fn give_up(&mut self, pipe: Arc<Pipe>) {
        self.open -= 1;
        drop(pipe);
    }
}
