//! The queue for the replies to one client context: made, read and removed by its client.
//!
//! Its descriptor blocks, so that waiting for a reply is one system call and one switch. Nobody
//! sends by this descriptor: workers open the queue by its name.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use rustix::io::Errno;

use crate::clock::{monotonic_ns, realtime_of};

/// A reply queue, which loses its name when this is dropped by the process that made it.
#[derive(Debug)]
pub struct ReplyQueue {
    queue: MessageQueue,
    name: CString,
    /// A child after `fork(2)` must not remove its parent's queue.
    pid: u32,
}

/// How a wait for a reply ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// A message of this many bytes came.
    Message(usize),
    /// The deadline passed.
    Late,
    /// A signal handler ran.
    Interrupted,
    /// The manager is gone, in shared memory.
    Abandoned,
}

impl ReplyQueue {
    /// Makes the queue. One of that name was left behind by a dead process with the same number
    /// and is replaced.
    ///
    /// # Errors
    /// As [`MessageQueue::create`].
    pub fn create(name: CString, size: QueueSize) -> io::Result<Self> {
        let made = match MessageQueue::create_for_replies(&name, size) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // The manager may be removing it too. If it stays, the next line says so.
                let _ = MessageQueue::unlink(&name);
                MessageQueue::create_for_replies(&name, size)
            }
            other => other,
        };
        Ok(Self { queue: made?, name, pid: std::process::id() })
    }

    /// Opens the queue that the manager made, for a client of another user: it removes it as well.
    ///
    /// # Errors
    /// As [`MessageQueue::open`].
    pub fn open(name: CString) -> io::Result<Self> {
        Ok(Self { queue: MessageQueue::open_for_replies(&name)?, name, pid: std::process::id() })
    }

    /// The name, with its slash.
    #[must_use]
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Takes a message if one is there, without waiting.
    ///
    /// # Errors
    /// EMSGSIZE when `buffer` is shorter than the messages of the queue.
    pub fn take(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // A deadline that has passed, as the descriptor itself blocks.
        match self.queue.receive_until(buffer, Some(std::time::Duration::ZERO)) {
            Ok((len, _)) => Ok(Some(len)),
            Err(error) if is(&error, Errno::TIMEDOUT) => Ok(None),
            Err(error) if is(&error, Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a message, waiting for it until the monotonic clock shows `deadline_ns` (0 for as
    /// long as it takes).
    ///
    /// The kernel counts this wait by the realtime clock: a step of that clock backwards makes a
    /// wait that is under way longer by the step; a step forwards is noticed and waited out.
    ///
    /// # Errors
    /// EMSGSIZE when `buffer` is shorter than the messages of the queue.
    pub fn wait(&self, buffer: &mut [u8], deadline_ns: u64) -> io::Result<Waited> {
        loop {
            let until = (deadline_ns != 0).then(|| realtime_of(deadline_ns));
            match self.queue.receive_until(buffer, until) {
                Ok((len, _)) => return Ok(Waited::Message(len)),
                Err(error) if is(&error, Errno::INTR) => return Ok(Waited::Interrupted),
                Err(error) if is(&error, Errno::TIMEDOUT) => {}
                Err(error) => return Err(error),
            }
            if monotonic_ns() >= deadline_ns {
                return Ok(Waited::Late);
            }
        }
    }
}

impl AsFd for ReplyQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Drop for ReplyQueue {
    fn drop(&mut self) {
        if std::process::id() == self.pid {
            // The manager removes it as well, when it sees this context end: whoever is second
            // finds nothing.
            let _ = MessageQueue::unlink(&self.name);
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SIZE: QueueSize = QueueSize { messages_max: 2, message_len_bytes: 16 };

    fn name(subject: &str) -> CString {
        let text = format!("/pollux-xatmi-{subject}-{}", std::process::id());
        CString::new(text).expect("no zero byte")
    }

    #[test]
    fn one_that_a_dead_process_left_is_replaced_and_ours_goes_with_us() {
        let left = MessageQueue::create(&name("left"), SIZE).expect("a queue");
        left.send(b"for the dead", 0).expect("room");
        let ours = ReplyQueue::create(name("left"), SIZE).expect("replaced");
        let mut buffer = [0; 16];
        assert_eq!(ours.take(&mut buffer).expect("readable"), None, "it is a new one");
        assert_eq!(ours.name(), &*name("left"));
        drop(ours);
        let gone = MessageQueue::open(&name("left")).expect_err("removed");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_wait_ends_with_a_message_or_at_its_deadline_by_the_monotonic_clock() {
        let ours = ReplyQueue::create(name("wait"), SIZE).expect("a queue");
        let mut buffer = [0; 16];
        let (before, wait) = (Instant::now(), std::time::Duration::from_millis(20));
        let deadline_ns = monotonic_ns() + wait.as_nanos() as u64;
        assert_eq!(ours.wait(&mut buffer, deadline_ns).expect("readable"), Waited::Late);
        assert!(before.elapsed() >= wait);
        let sender = MessageQueue::open(ours.name()).expect("it stands");
        sender.send(b"one", 0).expect("room");
        sender.send(b"three", 0).expect("room");
        assert_eq!(ours.wait(&mut buffer, 1).expect("readable"), Waited::Message(3));
        assert_eq!(ours.wait(&mut buffer, 0).expect("readable"), Waited::Message(5));
        assert!(ours.take(&mut buffer[..15]).is_err(), "no room for the longest message");
    }
}
