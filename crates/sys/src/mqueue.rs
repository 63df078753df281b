//! POSIX message queues: the part that a poller and a service pool need.
//!
//! The conformance suite polls them and the service pool sends through them. On Linux a queue
//! descriptor is a file descriptor (`mq_overview(7)`), so it is owned, borrowed and watched
//! like any other. Only a receive on a queue of [`MessageQueue::open_blocking`] waits.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The permission bits of a new queue: its owner only.
const MODE: libc::mode_t = 0o600;

/// The size of a queue, fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSize {
    /// Messages that the queue holds; at most `fs.mqueue.msg_max` without privilege (10).
    pub messages_max: u32,
    /// Bytes of one message; at most `fs.mqueue.msgsize_max` without privilege (8192).
    pub message_len_bytes: u32,
}

/// An open message queue.
#[derive(Debug)]
pub struct MessageQueue {
    fd: OwnedFd,
}

impl MessageQueue {
    /// Makes the queue `name` and opens it for both directions.
    ///
    /// A name begins with a slash and holds no other.
    ///
    /// # Errors
    /// EEXIST where it stands already, EINVAL for a bad name or size, EMFILE, ENFILE, ENOSPC,
    /// ENOSYS where the kernel was built without queues.
    pub fn create(name: &CStr, size: QueueSize) -> io::Result<Self> {
        // SAFETY: `mq_attr` consists of integers, for which zero is a value.
        let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
        attributes.mq_maxmsg = i64::from(size.messages_max);
        attributes.mq_msgsize = i64::from(size.message_len_bytes);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NONBLOCK;
        let flags = flags | libc::O_CLOEXEC;
        // SAFETY: the name is a C string, and with O_CREAT the call takes a mode and attributes.
        let fd = unsafe { libc::mq_open(name.as_ptr(), flags, MODE, &raw const attributes) };
        Self::owning(fd)
    }

    /// Opens the queue `name`, made by somebody else, for both directions.
    ///
    /// # Errors
    /// ENOENT where there is none, EACCES, EMFILE, ENFILE.
    pub fn open(name: &CStr) -> io::Result<Self> {
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the name is a C string, and without O_CREAT the call takes no more arguments.
        Self::owning(unsafe { libc::mq_open(name.as_ptr(), flags) })
    }

    /// Opens the queue `name` like [`Self::open`], but a receive waits until there is a message,
    /// and a send until there is room.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_blocking(name: &CStr) -> io::Result<Self> {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the name is a C string, and without O_CREAT the call takes no more arguments.
        Self::owning(unsafe { libc::mq_open(name.as_ptr(), flags) })
    }

    /// Removes the name `name`; the queue lives on until the last descriptor is closed.
    ///
    /// # Errors
    /// ENOENT where there is none, EACCES.
    pub fn unlink(name: &CStr) -> io::Result<()> {
        // SAFETY: the name is a C string.
        checked(unsafe { libc::mq_unlink(name.as_ptr()) } as isize).map(drop)
    }

    /// Appends `message` behind those of the same or a higher `priority` (below 32768).
    ///
    /// # Errors
    /// EAGAIN when the queue is full, EMSGSIZE when the message is longer than the queue allows,
    /// EINVAL for a priority out of range.
    pub fn send(&self, message: &[u8], priority: u32) -> io::Result<()> {
        let (first, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: pointer and length are those of a live slice.
        let sent = unsafe { libc::mq_send(self.fd.as_raw_fd(), first, len, priority) };
        checked(sent as isize).map(drop)
    }

    /// Takes the oldest message of the highest priority into `buffer`, which must hold the
    /// longest message that the queue allows; returns its length and its priority.
    ///
    /// # Errors
    /// EAGAIN when the queue is empty, EMSGSIZE when `buffer` is too short.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, u32)> {
        let (first, len, mut priority) = (buffer.as_mut_ptr().cast(), buffer.len(), 0);
        // SAFETY: pointer and length are those of a live exclusive slice, and the priority is
        // written to a live local.
        let taken = unsafe { libc::mq_receive(self.fd.as_raw_fd(), first, len, &raw mut priority) };
        Ok((checked(taken)?, priority))
    }

    fn owning(fd: libc::mqd_t) -> io::Result<Self> {
        checked(fd as isize)?;
        // SAFETY: the kernel just gave this descriptor out, to nobody else.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// A descriptor that another process has sent. One that is no queue makes each call fail (EBADF).
impl From<OwnedFd> for MessageQueue {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl From<MessageQueue> for OwnedFd {
    fn from(queue: MessageQueue) -> Self {
        queue.fd
    }
}

impl AsFd for MessageQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    const SIZE: QueueSize = QueueSize { messages_max: 2, message_len_bytes: 16 };

    fn queue(subject: &str) -> (CString, MessageQueue) {
        let name = format!("/pollux-sys-{subject}-{}", std::process::id());
        let name = CString::new(name).expect("no zero byte");
        let queue = MessageQueue::create(&name, SIZE).expect("a queue");
        (name, queue)
    }

    #[test]
    fn messages_come_out_by_priority_and_the_bounds_hold() {
        let (name, queue) = queue("priority");
        let other = MessageQueue::open(&name).expect("it stands");
        MessageQueue::unlink(&name).expect("it stands");
        queue.send(b"low", 1).expect("room");
        queue.send(b"high", 9).expect("room");
        let full = queue.send(b"more", 1).expect_err("two fit");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut buffer = [0; 16];
        assert_eq!(other.receive(&mut buffer).expect("a message"), (4, 9));
        assert_eq!(&buffer[..4], b"high");
        assert_eq!(other.receive(&mut buffer).expect("a message"), (3, 1));
        let empty = other.receive(&mut buffer).expect_err("both are out");
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        let long = queue.send(&[0; 17], 0).expect_err("16 bytes fit");
        assert_eq!(long.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn a_blocking_receive_waits_for_a_message() {
        let (name, queue) = queue("blocking");
        let waiting = MessageQueue::open_blocking(&name).expect("it stands");
        MessageQueue::unlink(&name).expect("it stands");
        let receiver = std::thread::spawn(move || {
            let mut buffer = [0; 16];
            let queue = MessageQueue::from(OwnedFd::from(waiting));
            queue.receive(&mut buffer).map(|(len, _)| buffer[..len].to_vec())
        });
        queue.send(b"late", 0).expect("room");
        assert_eq!(receiver.join().expect("no panic").expect("a message"), b"late");
    }

    #[test]
    fn a_name_is_made_once_and_gone_after_unlink() {
        let (name, _queue) = queue("name");
        let again = MessageQueue::create(&name, SIZE).expect_err("it stands");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        MessageQueue::unlink(&name).expect("it stands");
        let gone = MessageQueue::open(&name).expect_err("no name left");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
