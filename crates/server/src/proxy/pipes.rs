//! The pipes that bytes of streams go through, so that they stay in the kernel: a bounded number for each
//! loop, held only while something is in them.

use std::sync::Arc;

use pollux_engine::Pipe;

/// Empty pipes that a loop keeps.
const KEPT_MAX: usize = 64;

/// The pipes of one loop.
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

    /// Whether one may be had.
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
        if self.empty.len() < KEPT_MAX {
            self.empty.push(pipe);
        } else {
            self.open -= 1;
        }
    }

    /// One whose connection is gone: the bytes in it are dropped.
    pub(super) fn give_up(&mut self, pipe: Arc<Pipe>) {
        self.open -= 1;
        drop(pipe);
    }
}
