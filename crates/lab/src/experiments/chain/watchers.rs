//! The chain on everything that can watch it: bare epoll, the mechanisms of pollux, mio, polling, io_uring by
//! completion, and the libraries in C.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use mio::unix::SourceFd;
use pollux_engine::Driver;
use pollux_host::built_from_c;
use pollux_peer_polling::OwningPoller;
use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};
use pollux_sys::epoll::{EpollEvent, wait};
use pollux_sys::ring::{ReceiveBuffers, Shots, Sizes, StreamRing, StreamSizes};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::{BYTE, EVENTS_MAX, Pairs, Watcher};
use crate::arm::Peer;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{ProgramSubject, SubjectInfo};

const PROGRAM: &str = include_str!("library.c");

/// The library libev.
pub(super) const LIBEV: Peer = Peer { name: LIBRARIES[0].name, missing: || missing(&LIBRARIES[0]) };
/// The library libuv.
pub(super) const LIBUV: Peer = Peer { name: LIBRARIES[1].name, missing: || missing(&LIBRARIES[1]) };
/// The library libevent.
pub(super) const LIBEVENT: Peer =
    Peer { name: LIBRARIES[2].name, missing: || missing(&LIBRARIES[2]) };

/// An epoll instance on the readers of a chain.
pub(super) struct RawEpoll {
    epoll: OwnedFd,
    events: Vec<EpollEvent>,
}

impl RawEpoll {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(MeasureError::io("epoll_create1"))?;
        for (index, reader) in chain.readers.iter().enumerate() {
            epoll::add(&epoll, reader, EventData::new_u64(index as u64), EventFlags::IN)
                .map_err(MeasureError::io("epoll_ctl"))?;
        }
        Ok(Self { epoll, events: vec![EpollEvent::NONE; EVENTS_MAX] })
    }
}

impl Watcher for RawEpoll {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        let found = wait(self.epoll.as_fd(), &mut self.events, 0);
        let found = found.map_err(MeasureError::io("epoll_wait"))?;
        self.events[..found].iter().try_for_each(|event| chain.receive(event.data() as usize))
    }
}

/// A poller that watches the readers of a chain.
pub(super) struct Pollux {
    mechanism: Mechanism,
    poller: Box<dyn Poller>,
    how: Registration,
    events: Events,
}

impl Pollux {
    pub(super) fn open(mechanism: Mechanism, chain: &Pairs) -> Result<Self, MeasureError> {
        let how = Registration::new(Interest::READABLE, mechanism.trigger());
        let mut poller = mechanism.open()?;
        for (index, reader) in chain.readers.iter().enumerate() {
            poller.add(reader.as_fd(), Token::new(index as u32, 0), how)?;
        }
        Ok(Self { mechanism, poller, how, events: Events::with_capacity(EVENTS_MAX) })
    }
}

impl Watcher for Pollux {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        for event in &self.events {
            let index = event.token.slot() as usize;
            chain.receive(index)?;
            if self.how.trigger == Trigger::Oneshot {
                self.poller.modify(chain.readers[index].as_fd(), event.token, self.how)?;
            }
        }
        Ok(())
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(self.poller.counters().snapshot())
    }

    fn described(&self) -> SubjectInfo {
        SubjectInfo::of_poller(&*self.poller, self.mechanism)
    }
}

/// A `mio::Poll` on the readers of a chain.
pub(super) struct Mio {
    poll: ::mio::Poll,
    events: ::mio::Events,
}

impl Mio {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        let poll = ::mio::Poll::new().map_err(MeasureError::io("mio::Poll::new"))?;
        for (index, reader) in chain.readers.iter().enumerate() {
            let fd = reader.as_raw_fd();
            poll.registry()
                .register(&mut SourceFd(&fd), ::mio::Token(index), ::mio::Interest::READABLE)
                .map_err(MeasureError::io("Registry::register"))?;
        }
        Ok(Self { poll, events: ::mio::Events::with_capacity(EVENTS_MAX) })
    }
}

impl Watcher for Mio {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.poll
            .poll(&mut self.events, Some(Duration::ZERO))
            .map_err(MeasureError::io("mio::Poll::poll"))?;
        self.events.iter().try_for_each(|event| chain.receive(event.token().0))
    }
}

/// A `Poller` of the library on the readers of a chain.
pub(super) struct Polling(OwningPoller);

impl Polling {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        const ROOM: NonZeroUsize = NonZeroUsize::new(EVENTS_MAX).expect("room for events");
        let watch = OwningPoller::open(Rc::clone(&chain.readers), ROOM);
        Ok(Self(watch.map_err(MeasureError::io("Poller::add_with_mode"))?))
    }
}

impl Watcher for Polling {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.0
            .look()
            .map_err(MeasureError::io("Poller::wait"))?
            .try_for_each(|index| chain.receive(index))
    }
}

/// How a library is called by compiler, linker and Debian.
pub(super) struct Library {
    name: &'static str,
    define: &'static str,
    header: &'static str,
    link: &'static str,
    package: &'static str,
}

const LIBRARIES: [Library; 3] = [
    Library {
        name: "libev",
        define: "WITH_LIBEV",
        header: "ev.h",
        link: "ev",
        package: "libev-dev",
    },
    Library {
        name: "libuv",
        define: "WITH_LIBUV",
        header: "uv.h",
        link: "uv",
        package: "libuv1-dev",
    },
    Library {
        name: "libevent",
        define: "WITH_LIBEVENT",
        header: "event2/event.h",
        link: "event",
        package: "libevent-dev",
    },
];

/// The library of this name.
pub(super) fn called(name: &str) -> Option<&'static Library> {
    LIBRARIES.iter().find(|library| library.name == name)
}

/// Why its program can't be built here, with the package to install.
fn missing(library: &Library) -> Option<String> {
    if let Some(reason) = pollux_host::missing_program("cc", "gcc") {
        return Some(reason);
    }
    let Library { header, package, .. } = library;
    let mut compiler = Command::new("cc");
    compiler.args(["-E", "-include", header, "-x", "c", "/dev/null"]);
    let ran = compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = ran.is_ok_and(|status| status.success());
    (!is_there)
        .then(|| format!("{header} is not installed here (Debian: apt-get install {package})"))
}

/// Starts its program, which works in the turns.
pub(super) fn start(library: &Library, spec: &RunSpec) -> Result<ProgramSubject, MeasureError> {
    let mut command = Command::new(built(library, &spec.scratch)?);
    for axis in ["pairs", "active", "writes"] {
        command.arg(spec.count(axis).to_string());
    }
    ProgramSubject::start(library.name, command)
}

/// The program; it stays in the private folder for the runs that follow.
fn built(library: &Library, scratch: &Path) -> Result<PathBuf, MeasureError> {
    let define = format!("-D{}", library.define);
    let link = format!("-l{}", library.link);
    let program = format!("chain-{}", library.name);
    Ok(built_from_c(scratch, &program, PROGRAM, &[&define, &link])?)
}

/// The ring: room for the sends of a turn, and for the completions of many.
const SIZES: StreamSizes = StreamSizes {
    ring: Sizes { submission: 4096, completion: 32_768 },
    receive: ReceiveBuffers::whole(4096, 64),
    otherwise: None,
    arena_bytes: 1 << 16,
};
/// Completions asked for in a call; a batch of them stays in the cache.
const BATCH_MAX: usize = 256;
/// Ends a call that asked for more completions than came.
const GUARD: Duration = Duration::from_millis(1);
/// Marks sends; receives carry the index of their pair.
const SEND: u64 = 1 << 40;

/// A ring with a receive armed on each reader of a chain: sends are requests, a turn is one system call.
pub(super) struct Completion {
    ring: StreamRing,
    /// Pairs whose receive has to be armed again.
    to_arm: Vec<usize>,
    /// Pairs that hold bytes which no completion has reported, and their number.
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
        let to_arm = (0..pairs).collect();
        let is_filled = vec![false; pairs];
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
    fn described(&self) -> SubjectInfo {
        let notes = self.ring.setup().refused.clone();
        SubjectInfo {
            mechanism: Some(Driver::Completion.to_string()),
            notes,
            ..SubjectInfo::default()
        }
    }
}

fn queue_full() -> MeasureError {
    MeasureError::Protocol("the queue of a ring is full right after it was submitted".into())
}

fn failed(what: &str, result: i32) -> MeasureError {
    MeasureError::Protocol(format!("a {what} completed with {result}"))
}
