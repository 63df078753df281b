//! The queues of a pool: their names, the reply queue of a client, and the queues that are kept open
//! (`cache`).
//!
//! Every part of the crate forms the names of a pool here: its prefix, services, queues, control socket.
//! Only the manager makes and removes the queues of services. A send never blocks: a
//! full queue is watched for room instead, because a receiver takes the message of a blocked sender directly
//! and the kernel wakes no poller for it (`docs/pool-internals.md`).
//!
//! Deadlines travel between processes as nanoseconds of the monotonic clock, which all processes of one machine share;
//! `mq_timedreceive(3)` alone asks for the realtime clock, so a deadline is converted to it just before the wait, and
//! checked by the monotonic one.

mod cache;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{fmt, io};

use pollux_sys::clock;
use pollux_sys::mqueue::{MessageQueue, QueueSize};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::is_errno;

pub use cache::{QueueCache, is_withdrawn};

/// The name of a service: 1 to 30 bytes of printable ASCII without `,`, `/` and blanks.
///
/// Kept in place, so that copying one allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceName {
    /// Zero beyond `len`, so that equality of all bytes is equality of names.
    bytes: [u8; Self::LEN_BYTES_MAX],
    len: u8,
}

impl ServiceName {
    /// The longest name.
    pub const LEN_BYTES_MAX: usize = 30;

    /// `None` when `name` cannot be that of a service, so that it cannot be offered.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let fits = (1..=Self::LEN_BYTES_MAX).contains(&name.len());
        let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b',' | b'/');
        if !fits || !name.bytes().all(is_plain) {
            return None;
        }
        let mut bytes = [0; Self::LEN_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self { bytes, len: name.len() as u8 })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Whether programs may offer it: names with `@` and those that begin with `.` are the
    /// system's.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.as_str().contains('@') || self.as_str().starts_with('.')
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The beginning of all names of one pool (`NDRX_QPREFIX`): a slash, then 1 to 63 bytes of
/// printable ASCII without another slash and without a comma.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prefix(String);

/// The text is not a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidPrefix(String);

impl fmt::Display for InvalidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a prefix of queue names: expected a slash and then 1 to {} letters, \
             digits or signs, without another slash, a comma or a blank, as in /app1",
            self.0.escape_debug(),
            Prefix::LEN_BYTES_MAX - 1
        )
    }
}

impl std::error::Error for InvalidPrefix {}

impl Prefix {
    /// The longest prefix: the longest queue name made of it stays below NAME_MAX (255), and the
    /// address of the control socket within 108 bytes.
    pub const LEN_BYTES_MAX: usize = 64;

    /// Reads a prefix.
    ///
    /// # Errors
    /// When the text is not a prefix, with what is expected.
    pub fn new(text: &str) -> Result<Self, InvalidPrefix> {
        let rest = text.strip_prefix('/').unwrap_or_default();
        let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b',' | b'/');
        if rest.is_empty() || text.len() > Self::LEN_BYTES_MAX || !rest.bytes().all(is_plain) {
            return Err(InvalidPrefix(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The prefix, with its slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The queue of a service, such as `/app1,svc,BALANCE`.
    #[must_use]
    pub fn service_queue(&self, service: &ServiceName) -> CString {
        self.named(&format!("svc,{service}"))
    }

    /// The queue for the replies to a client context, such as `/app1,clt,reply,4711,9`.
    #[must_use]
    pub fn reply_queue(&self, pid: u32, context: u32) -> CString {
        self.named(&format!("clt,reply,{pid},{context}"))
    }

    /// The name of the manager's control socket in the abstract namespace, without the zero byte
    /// in front.
    #[must_use]
    pub fn control_socket(&self) -> String {
        format!("pollux-pool{}", self.0)
    }

    fn named(&self, rest: &str) -> CString {
        // No part of a name can hold a zero byte: their constructors refuse them.
        CString::new(format!("{},{rest}", self.0)).unwrap_or_default()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The purpose of a queue, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueName {
    /// Requests for a service.
    Service(ServiceName),
    /// Replies to a client context.
    Reply {
        /// The client's process.
        pid: u32,
        /// The context within it.
        context: u32,
    },
}

impl QueueName {
    /// Reads the name of a queue, with or without the slash that listings of the queue file
    /// system leave out; `None` when it is not one of this pool.
    #[must_use]
    pub fn parse(prefix: &Prefix, name: &str) -> Option<Self> {
        let name = name.strip_prefix('/').unwrap_or(name);
        let rest = name.strip_prefix(&prefix.as_str()[1..])?.strip_prefix(',')?;
        if let Some(service) = rest.strip_prefix("svc,") {
            return ServiceName::new(service).map(Self::Service);
        }
        let (pid, context) = rest.strip_prefix("clt,reply,")?.split_once(',')?;
        Some(Self::Reply { pid: pid.parse().ok()?, context: context.parse().ok()? })
    }
}

/// The queue for the replies to one client context: made, read and removed by its client.
///
/// It loses its name when this is dropped by the process that made it. Its descriptor blocks, so that waiting
/// for a reply is one system call and one switch; workers open the queue by its name.
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
                // The manager may be removing it too. If it stays, the next line fails.
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
        match self.queue.receive_until(buffer, Some(Duration::ZERO)) {
            Ok((len, _)) => Ok(Some(len)),
            Err(error) if is_errno(&error, Errno::TIMEDOUT) => Ok(None),
            Err(error) if is_errno(&error, Errno::INTR) => Ok(None),
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
                Err(error) if is_errno(&error, Errno::INTR) => return Ok(Waited::Interrupted),
                Err(error) if is_errno(&error, Errno::TIMEDOUT) => {}
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
        // One that was made anew has the name by now.
        if std::process::id() == self.pid && !is_withdrawn(&self.queue) {
            // The manager removes it as well, when this context ends; the second finds nothing.
            let _ = MessageQueue::unlink(&self.name);
        }
    }
}

/// Now, in nanoseconds of CLOCK_MONOTONIC; never 0.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock::monotonic_ns().max(1)
}

/// The moment of the realtime clock at which the monotonic one will show `deadline_ns`.
///
/// A step of the realtime clock in between moves it: a waiter by it judges by
/// [`monotonic_ns`] afterwards.
fn realtime_of(deadline_ns: u64) -> Duration {
    let left = Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()));
    since(clock_gettime(ClockId::Realtime)) + left
}

fn since(moment: Timespec) -> Duration {
    let seconds = u64::try_from(moment.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(moment.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn names_of_services_have_bounds() {
        for good in ["A", "BALANCE", "@sys", ".x", &"N".repeat(30)] {
            assert_eq!(ServiceName::new(good).expect(good).as_str(), good);
        }
        for bad in ["", "A,B", "A/B", "A B", "Ä", "A\0", &"N".repeat(31)] {
            assert_eq!(ServiceName::new(bad), None, "{bad:?}");
        }
        assert!(ServiceName::new("@sys").expect("a name").is_reserved());
        assert!(ServiceName::new("TP@IN").expect("a name").is_reserved());
        assert!(ServiceName::new(".x").expect("a name").is_reserved());
        assert!(!ServiceName::new("x.y").expect("a name").is_reserved());
    }

    #[test]
    fn a_prefix_has_one_slash_and_leaves_room() {
        for bad in ["", "/", "app1", "/a/b", "/a,b", "/a b", &format!("/{}", "a".repeat(64))] {
            let said = Prefix::new(bad).expect_err(bad).to_string();
            assert!(said.contains("as in /app1"), "{said}");
        }
        let longest = Prefix::new(&format!("/{}", "a".repeat(63))).expect("it fits");
        assert!(longest.control_socket().len() < 107);
        assert!(longest.reply_queue(u32::MAX, u32::MAX).as_bytes().len() <= 255);
    }

    #[test]
    fn a_name_of_a_queue_has_its_purpose() {
        let prefix = Prefix::new("/app1").expect("a prefix");
        let service = ServiceName::new("BALANCE").expect("a name");
        let queue = prefix.service_queue(&service);
        assert_eq!(queue.to_str(), Ok("/app1,svc,BALANCE"));
        assert_eq!(prefix.reply_queue(4711, 9).to_str(), Ok("/app1,clt,reply,4711,9"));
        let parse = |name| QueueName::parse(&prefix, name);
        assert_eq!(parse("/app1,svc,BALANCE"), Some(QueueName::Service(service)));
        let reply = QueueName::Reply { pid: 4711, context: 9 };
        assert_eq!(parse("app1,clt,reply,4711,9"), Some(reply));
        for foreign in ["app12,svc,A", "app1,svc,", "app1,clt,reply,x,1", "app1", "app1,sys,x"] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }

    const SIZE: QueueSize = QueueSize { messages_max: 2, message_len_bytes: 16 };

    fn name(subject: &str) -> CString {
        let text = format!("/pollux-xatmi-{subject}-{}", std::process::id());
        CString::new(text).expect("no zero byte")
    }

    #[test]
    fn a_queue_of_a_dead_process_is_replaced_and_the_own_one_is_removed() {
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
        let before = Instant::now();
        let wait = Duration::from_millis(20);
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

    #[test]
    fn a_deadline_is_as_far_away_on_both_clocks() {
        let until = realtime_of(monotonic_ns() + 5_000_000_000);
        let left = until - std::time::UNIX_EPOCH.elapsed().expect("after 1970");
        assert!(left <= Duration::from_secs(5) && left > Duration::from_secs(4), "{left:?}");
    }
}
