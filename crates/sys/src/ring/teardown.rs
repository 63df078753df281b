//! The end of a stream ring: nothing that a request may still touch is freed.
//!
//! Dropping the ring runs it. Closing a ring cancels its requests, but some time later and
//! without a word; therefore they are cancelled and awaited first.

use std::io;
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::types::CancelBuilder;

use super::owned::NOBODY;
use super::stream::StreamRing;

/// How long the requests may take to end. A cancelled one needs microseconds; one that runs in
/// a kernel thread ends with its system call.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long one round waits before it cancels once more: a receive that was just being served
/// escapes a cancellation and arms itself again.
const ROUND: Duration = Duration::from_millis(10);

impl Drop for StreamRing {
    fn drop(&mut self) {
        let is_clear = self.end_requests(Instant::now() + PATIENCE);
        self.ring.door.unregister();
        if !is_clear {
            self.ledger.owned.leak();
            self.arena.leak();
        }
        if !is_clear || self.buffers_lent() > 0 {
            // A lease that outlives its ring must not pass for one of a later ring, whose
            // buffers stand at the same address.
            self.ledger.pool.leak();
        }
    }
}

impl StreamRing {
    /// Submits what is queued, so that no descriptor stays open whose closing was asked for,
    /// then cancels everything. Says whether no request is left that references memory.
    fn end_requests(&mut self, deadline: Instant) -> bool {
        let mut asks_again = true;
        loop {
            self.drop_completions();
            if self.ledger.is_clear() && self.queued() == 0 {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if asks_again {
                self.cancel_all();
            }
            match self.enter(1, Some(left.min(ROUND))) {
                Ok(_) => asks_again = false,
                Err(error) if is_passing(&error) => asks_again = true,
                Err(_) => return false,
            }
        }
    }

    fn cancel_all(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build();
        // Without room the queue is submitted first, and a later round cancels.
        let _ = self.push(&cancel.user_data(NOBODY));
    }

    fn drop_completions(&mut self) {
        while let Some(completion) = self.next_completion() {
            if let Some(received) = completion.received {
                self.give_back(received);
            }
        }
    }
}

/// What `io_uring_enter(2)` says when the next call may do better: the wait is over, a signal
/// came, there is no memory for requests, completions were not taken. Anything else means that
/// this ring can't be entered from here: a fork's child, say.
fn is_passing(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
