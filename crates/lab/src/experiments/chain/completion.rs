//! The chain by completion: receives stay armed, sends are requests, one system call for a turn.

use std::os::fd::AsRawFd;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_sys::ring::{Shots, Sizes, StreamRing, StreamSizes};
use rustix::io::Errno;

use super::{BYTE, Pairs, Watcher};
use crate::error::MeasureError;
use crate::turns::Described;

/// The ring: room for the sends of a turn, and for the completions of many.
const SIZES: StreamSizes = StreamSizes {
    ring: Sizes { submission: 4096, completion: 32_768 },
    buffers: 4096,
    buffer_bytes: 64,
    arena_bytes: 1 << 16,
};
/// Completions asked for in a call; a batch of them stays in the cache.
const BATCH_MAX: usize = 256;
/// Ends a call that asked for more completions than came.
const GUARD: Duration = Duration::from_millis(1);
/// Marks sends; receives carry the index of their pair.
const SEND: u64 = 1 << 40;

/// A ring with a receive armed on each reader of a chain.
pub(super) struct Completion {
    ring: StreamRing,
    /// Pairs whose receive has to be armed again.
    to_arm: Vec<usize>,
    /// Pairs that hold bytes of which no completion has told, and their number.
    is_filled: Vec<bool>,
    filled: usize,
}

impl Completion {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        let ring = StreamRing::open(SIZES).map_err(|refused| MeasureError::Setup {
            what: format!("a ring ({refused})"),
            cause: std::io::Error::other("io_uring is not available"),
        })?;
        let pairs = chain.readers.len();
        let (to_arm, is_filled) = ((0..pairs).collect(), vec![false; pairs]);
        let mut completion = Self { ring, to_arm, is_filled, filled: 0 };
        completion.arm(chain)?;
        Ok(completion)
    }

    fn fill(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_filled[index], true) {
            self.filled += 1;
        }
    }

    /// Submits what is queued and takes what is there. Every byte that is under way has arrived
    /// when the submission is over, so nothing is waited for; but without being asked for more
    /// the kernel hands over no more than 20 completions in a call.
    fn enter(&mut self) -> Result<(), MeasureError> {
        let wanted = self.filled.min(BATCH_MAX) as u32;
        match self.ring.enter(wanted, Some(GUARD)) {
            Ok(_) => {}
            // A completion may have reported bytes that came after its pair was filled.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => self.filled = 0,
            Err(cause) => return Err(MeasureError::Io { call: "io_uring_enter", cause }),
        }
        self.ring.reset_arena();
        Ok(())
    }

    fn send(&mut self, chain: &Pairs, index: usize) -> Result<(), MeasureError> {
        let fd = chain.writers[index].as_raw_fd();
        if self.ring.spare().is_empty() {
            self.submit()?;
        }
        self.ring.spare()[..BYTE.len()].copy_from_slice(BYTE);
        if self.ring.send_spare(fd, BYTE.len(), SEND).is_err() {
            self.submit()?;
            self.ring.spare()[..BYTE.len()].copy_from_slice(BYTE);
            self.ring.send_spare(fd, BYTE.len(), SEND).map_err(|_| queue_full())?;
        }
        Ok(())
    }

    /// Makes room in the middle of a turn that has more sends than the ring holds.
    fn submit(&mut self) -> Result<(), MeasureError> {
        self.ring.submit().map_err(MeasureError::io("io_uring_enter"))?;
        self.ring.reset_arena();
        Ok(())
    }

    fn arm(&mut self, chain: &Pairs) -> Result<(), MeasureError> {
        while let Some(index) = self.to_arm.pop() {
            let fd = chain.readers[index].as_raw_fd();
            if self.ring.receive(fd, Shots::Many, index as u64).is_err() {
                self.submit()?;
                self.ring.receive(fd, Shots::Many, index as u64).map_err(|_| queue_full())?;
            }
        }
        Ok(())
    }
}

impl Watcher for Completion {
    /// Every completion is a byte that came, every byte is passed on as a request.
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.enter()?;
        while let Some(completion) = self.ring.next_completion() {
            if completion.user_data >= SEND {
                return Err(failed("send", completion.result));
            }
            let index = completion.user_data as usize;
            if !completion.has_more {
                self.to_arm.push(index);
            }
            if std::mem::take(&mut self.is_filled[index]) {
                self.filled = self.filled.saturating_sub(1);
            }
            if let Some(received) = completion.received {
                let bytes = self.ring.bytes(&received).len();
                self.ring.give_back(received);
                chain.received += bytes;
                for _ in 0..bytes {
                    if let Some(next) = chain.next(index) {
                        self.send(chain, next)?;
                        self.fill(next);
                    }
                }
            } else if completion.result != -Errno::NOBUFS.raw_os_error() {
                return Err(failed("receive", completion.result));
            }
        }
        self.arm(chain)
    }

    fn begin(&mut self, chain: &Pairs) {
        let space = chain.readers.len() / chain.active;
        (0..chain.active).for_each(|index| self.fill(index * space));
    }

    /// What the ring was granted.
    fn described(&self) -> Described {
        let notes = self.ring.setup().refused.clone();
        Described { mechanism: Some(Driver::Completion.to_string()), notes, ..Described::default() }
    }
}

fn queue_full() -> MeasureError {
    MeasureError::Protocol("the queue of a ring is full right after it was submitted".into())
}

fn failed(what: &str, result: i32) -> MeasureError {
    MeasureError::Protocol(format!("a {what} completed with {result}"))
}
