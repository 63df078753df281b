//! POSIX message queues: the part that a poller and a service pool need.
//!
//! The conformance suite polls them and the service pool sends through them. On Linux a queue
//! descriptor is a file descriptor (`mq_overview(7)`), so it is owned, borrowed and watched
//! like any other. A receive waits on a descriptor of [`MessageQueue::create_for_replies`]; on one of
//! [`MessageQueue::open_blocking`] receives and sends do; on others nothing waits.
//!
//! Messages go by the bare system calls: those of the C library are points of cancellation, and a
//! C program's `pthread_cancel(3)` there would unwind through frames of Rust.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::poll_select::timespec;

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

/// What a queue says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueState {
    /// The size it was made with.
    pub size: QueueSize,
    /// Messages that wait in it at this moment.
    pub messages_waiting: u32,
}

/// An open message queue.
///
/// ```
/// use pollux_sys::mqueue::{MessageQueue, QueueSize};
/// use std::ffi::CString;
///
/// let name = CString::new(format!("/example-{}", std::process::id()))?;
/// let size = QueueSize { messages_max: 4, message_len_bytes: 64 };
/// let queue = MessageQueue::create(&name, size)?;
/// MessageQueue::unlink(&name)?;
/// queue.send(b"later", 0)?;
/// queue.send(b"first", 9)?;
/// let mut buffer = [0; 64];
/// assert_eq!(queue.receive(&mut buffer)?, (5, 9));
/// assert_eq!(&buffer[..5], b"first");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
        Self::create_with(name, size, libc::O_RDWR | libc::O_NONBLOCK)
    }

    /// Makes the queue `name` and opens it for receiving only, by a descriptor that blocks: for
    /// its one reader, which waits with [`receive_until`](Self::receive_until).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_for_replies(name: &CStr, size: QueueSize) -> io::Result<Self> {
        Self::create_with(name, size, libc::O_RDONLY)
    }

    /// Opens the queue `name`, made by another process, for both directions.
    ///
    /// # Errors
    /// ENOENT where there is none, EACCES, EMFILE, ENFILE.
    pub fn open(name: &CStr) -> io::Result<Self> {
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the name is a C string, and without O_CREAT the call takes no more arguments.
        Self::owning(unsafe { libc::mq_open(name.as_ptr(), flags) })
    }

    /// Opens the queue `name`, made by another process, as [`Self::create_for_replies`] does its own.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for_replies(name: &CStr) -> io::Result<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
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
        let fd = self.fd.as_raw_fd();
        let first = message.as_ptr();
        let len = message.len();
        let never = ptr::null::<libc::timespec>();
        // SAFETY: pointer and length are those of a live slice, and no deadline is given.
        let sent =
            unsafe { libc::syscall(libc::SYS_mq_timedsend, fd, first, len, priority, never) };
        checked(sent as isize).map(drop)
    }

    /// Takes the oldest message of the highest priority into `buffer`, which must hold the
    /// longest message that the queue allows; returns its length and its priority.
    ///
    /// # Errors
    /// EAGAIN when the queue is empty, EMSGSIZE when `buffer` is too short.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, u32)> {
        self.receive_until(buffer, None)
    }

    /// Takes a message as [`receive`](Self::receive) does into `words`, which other processes may
    /// see: what was taken is there although this process is killed on the way. Returns its
    /// length.
    ///
    /// # Errors
    /// EAGAIN when the queue is empty, EMSGSIZE when `words` are too few.
    pub fn receive_shared(&self, words: &[AtomicU64]) -> io::Result<usize> {
        let fd = self.fd.as_raw_fd();
        let first = words.as_ptr();
        let len = size_of_val(words);
        let unwanted = ptr::null_mut::<libc::c_uint>();
        let never = ptr::null::<libc::timespec>();
        // SAFETY: pointer and length are those of live words, which as atomics may change under a
        // shared reference; a null priority is not written and a null deadline not read.
        let taken =
            unsafe { libc::syscall(libc::SYS_mq_timedreceive, fd, first, len, unwanted, never) };
        checked(taken as isize)
    }

    /// The size of the queue and how many messages wait in it (`mq_getattr(3)`).
    ///
    /// # Errors
    /// None is known for an open queue.
    pub fn state(&self) -> io::Result<QueueState> {
        let mut attributes = zero_attributes();
        // SAFETY: the attributes are written to a live local.
        let asked = unsafe { libc::mq_getattr(self.fd.as_raw_fd(), &raw mut attributes) };
        checked(asked as isize)?;
        let number = |value| u32::try_from(value).unwrap_or(u32::MAX);
        let size = QueueSize {
            messages_max: number(attributes.mq_maxmsg),
            message_len_bytes: number(attributes.mq_msgsize),
        };
        Ok(QueueState { size, messages_waiting: number(attributes.mq_curmsgs) })
    }

    /// Takes a message as [`receive`](Self::receive) does and, on a descriptor that blocks, waits
    /// for one until `deadline`, a moment of the realtime clock counted from 1970
    /// (`mq_timedreceive(3)` knows no other clock); without a deadline as long as it takes.
    ///
    /// A deadline that has passed takes what is there and never waits.
    ///
    /// # Errors
    /// ETIMEDOUT when nothing came, EINTR when a handler without SA_RESTART ran, EAGAIN on a
    /// descriptor that does not block, EMSGSIZE when `buffer` is too short.
    pub fn receive_until(
        &self,
        buffer: &mut [u8],
        deadline: Option<Duration>,
    ) -> io::Result<(usize, u32)> {
        let fd = self.fd.as_raw_fd();
        let first = buffer.as_mut_ptr();
        let len = buffer.len();
        let mut priority: libc::c_uint = 0;
        let to = &raw mut priority;
        let moment = deadline.map(timespec);
        let until = moment.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: pointer and length are those of a live exclusive slice, the priority is written
        // to a live local, and the deadline is null or a live local of this function.
        let taken = unsafe { libc::syscall(libc::SYS_mq_timedreceive, fd, first, len, to, until) };
        let taken = checked(taken as isize)?;
        Ok((taken, priority))
    }

    fn create_with(name: &CStr, size: QueueSize, access: libc::c_int) -> io::Result<Self> {
        let mut attributes = zero_attributes();
        attributes.mq_maxmsg = i64::from(size.messages_max);
        attributes.mq_msgsize = i64::from(size.message_len_bytes);
        let flags = access | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the name is a C string, and with O_CREAT the call takes a mode and attributes.
        let fd = unsafe { libc::mq_open(name.as_ptr(), flags, MODE, &raw const attributes) };
        Self::owning(fd)
    }

    fn owning(fd: libc::mqd_t) -> io::Result<Self> {
        checked(fd as isize)?;
        // SAFETY: the kernel just made this descriptor, and it has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// A descriptor that another process has sent. One that is not a queue makes each call fail (EBADF).
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

fn zero_attributes() -> libc::mq_attr {
    // SAFETY: `mq_attr` consists of integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
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

    #[test]
    fn a_queue_reports_its_size_and_what_waits() {
        let (name, queue) = queue("state");
        MessageQueue::unlink(&name).expect("it stands");
        queue.send(b"one", 0).expect("room");
        let state = queue.state().expect("an open queue");
        assert_eq!(state, QueueState { size: SIZE, messages_waiting: 1 });
    }

    #[test]
    fn a_reader_of_replies_waits_until_its_deadline_and_no_longer() {
        let name = format!("/pollux-sys-replies-{}", std::process::id());
        let name = CString::new(name).expect("no zero byte");
        let reader = MessageQueue::create_for_replies(&name, SIZE).expect("a queue");
        let writer = MessageQueue::open(&name).expect("it stands");
        MessageQueue::unlink(&name).expect("it stands");
        let mut buffer = [0; 16];
        let late = reader.receive_until(&mut buffer, Some(Duration::ZERO)).expect_err("empty");
        assert_eq!(late.raw_os_error(), Some(libc::ETIMEDOUT));
        writer.send(b"there", 0).expect("room");
        let taken = reader.receive_until(&mut buffer, Some(Duration::ZERO)).expect("a message");
        assert_eq!(taken, (5, 0), "what is there is taken after the deadline too");

        let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
        let soon = now + Duration::from_millis(20);
        let late = reader.receive_until(&mut buffer, Some(soon)).expect_err("no message was sent");
        assert_eq!(late.raw_os_error(), Some(libc::ETIMEDOUT));
        assert!(std::time::UNIX_EPOCH.elapsed().expect("after 1970") >= soon);

        let sender = std::thread::spawn(move || writer.send(b"at last", 0));
        assert_eq!(reader.receive_until(&mut buffer, None).expect("a message"), (7, 0));
        sender.join().expect("it ended").expect("room");
    }
}
