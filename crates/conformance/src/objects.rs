//! What the scripts watch: pipes, sockets, event counters and queues of the kernel or of the
//! simulated world, behind one set of verbs.
//!
//! Everything is non-blocking. No verb waits, and none knows about pollers.

use std::ffi::CString;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sim::{SimFd, World};
use pollux_sys::mqueue::{MessageQueue, QueueSize};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};

/// The most bytes that one verb moves.
const CHUNK_LEN: usize = 1 << 16;
/// What an eventfd takes and gives.
const COUNT_LEN: usize = 8;

/// Messages that a queue takes, and the bytes of each.
const QUEUE: QueueSize = QueueSize { messages_max: 4, message_len_bytes: 8 };

/// One open descriptor.
pub enum Object {
    /// A byte stream of the kernel.
    Stream(OwnedFd),
    /// An eventfd of the kernel.
    Counter(OwnedFd),
    /// A POSIX message queue of the kernel.
    Queue(MessageQueue),
    /// Anything of a simulated world.
    Sim {
        world: World,
        /// Its descriptor there.
        fd: SimFd,
        /// Whether it is a counter, which moves 8 bytes at a time.
        is_counter: bool,
    },
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(fd) | Self::Counter(fd) => fd.as_fd(),
            Self::Queue(queue) => queue.as_fd(),
            Self::Sim { fd, .. } => fd.as_fd(),
        }
    }
}

impl Object {
    /// The reading and the writing end of a pipe.
    pub fn pipe() -> (Self, Self) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("pipe");
        (Self::Stream(reader), Self::Stream(writer))
    }

    /// Two connected stream sockets.
    pub fn socketpair() -> (Self, Self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (left, right) = pair.expect("socketpair");
        (Self::Stream(left), Self::Stream(right))
    }

    /// An event counter at zero.
    pub fn eventfd() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self::Counter(eventfd(0, flags).expect("eventfd"))
    }

    /// Two descriptors of one queue, whose name is gone already.
    pub fn queue() -> (Self, Self) {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("/pollux-conformance-{}-{number}", std::process::id());
        let name = CString::new(name).expect("no zero in it");
        let first = MessageQueue::create(&name, QUEUE).expect("a new queue");
        let second = MessageQueue::open(&name).expect("the same queue");
        MessageQueue::unlink(&name).expect("the name of that queue");
        (Self::Queue(first), Self::Queue(second))
    }

    /// A stream of a simulated world.
    pub fn sim(world: &World, fd: SimFd) -> Self {
        Self::Sim { world: world.clone(), fd, is_counter: false }
    }

    /// An event counter of a simulated world.
    pub fn sim_counter(world: &World) -> Self {
        Self::Sim { world: world.clone(), fd: world.eventfd(), is_counter: true }
    }

    /// A connected pair over the loopback interface.
    pub fn tcp_pair() -> (Self, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
        let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let (theirs, _) = listener.accept().expect("the connection is queued");
        for stream in [&ours, &theirs] {
            stream.set_nonblocking(true).expect("a socket");
            stream.set_nodelay(true).expect("a TCP socket");
        }
        (Self::Stream(ours.into()), Self::Stream(theirs.into()))
    }

    /// Writes up to `len` bytes (to a counter: adds `len`; to a queue: one message); says how
    /// many.
    pub fn write(&self, len: usize) -> Result<usize, Errno> {
        match self {
            Self::Stream(fd) => rustix::io::write(fd, &vec![b'x'; len.min(CHUNK_LEN)]),
            Self::Counter(fd) => rustix::io::write(fd, &(len as u64).to_ne_bytes()).map(|_| len),
            Self::Queue(queue) => {
                queue.send(b"message", 0).map_err(|error| errno(&error)).map(|()| len)
            }
            Self::Sim { world, fd, is_counter } => {
                world.write(fd, if *is_counter { COUNT_LEN } else { len })
            }
        }
    }

    /// Reads up to `len` bytes (a counter: empties it; a queue: one message); says how many, 0
    /// at the end.
    pub fn read(&self, len: usize) -> Result<usize, Errno> {
        match self {
            Self::Stream(fd) => rustix::io::read(fd, &mut vec![0; len.min(CHUNK_LEN)][..]),
            Self::Counter(fd) => rustix::io::read(fd, &mut [0u8; COUNT_LEN]),
            Self::Queue(queue) => {
                let mut buffer = [0; QUEUE.message_len_bytes as usize];
                queue.receive(&mut buffer).map_err(|error| errno(&error)).map(|(len, _)| len)
            }
            Self::Sim { world, fd, is_counter } => {
                world.read(fd, if *is_counter { COUNT_LEN } else { len })
            }
        }
    }

    /// Closes this descriptor.
    pub fn close(self) {
        drop(self);
    }

    /// Whether the other side is gone: a read says so, without the poller under test.
    pub fn is_peer_gone(&self) -> bool {
        // A write would show it as well, but wake a poll that holds the file, which then lets go.
        self.read(1) == Ok(0)
    }

    /// Says to the peer that nothing more will come.
    pub fn shutdown_write(&self) {
        match self {
            Self::Sim { world, fd, .. } => world.shutdown_write(fd),
            _ => rustix::net::shutdown(self, Shutdown::Write).expect("a connected socket"),
        }
    }

    /// A second descriptor of the same open file.
    pub fn dup(&self) -> Self {
        match self {
            Self::Stream(fd) => Self::Stream(fd.try_clone().expect("a free descriptor")),
            Self::Counter(fd) => Self::Counter(fd.try_clone().expect("a free descriptor")),
            Self::Queue(_) => unreachable!("no script duplicates a queue"),
            Self::Sim { world, fd, is_counter } => {
                Self::Sim { world: world.clone(), fd: world.dup(fd), is_counter: *is_counter }
            }
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).expect("the kernel said it")
}
