//! The chain on everything that waits for readiness: bare epoll, the mechanisms of pollux, mio, polling, and
//! the libraries in C.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use mio::unix::SourceFd;
use pollux_peer_polling::Watch;
use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};
use pollux_processes::compiler;
use pollux_sys::epoll::{EpollEvent, wait};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{EVENTS_MAX, Pairs, Watcher};
use crate::arm::Peer;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::turns::{Described, Program};

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

    fn described(&self) -> Described {
        Described::of_poller(&*self.poller, self.mechanism)
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
pub(super) struct Polling(Watch);

impl Polling {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        const ROOM: NonZeroUsize = NonZeroUsize::new(EVENTS_MAX).expect("room for events");
        let watch = Watch::open(Rc::clone(&chain.readers), ROOM);
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

const PROGRAM: &str = include_str!("library.c");

/// The library libev.
pub(super) const LIBEV: Peer = Peer { name: LIBRARIES[0].name, missing: || missing(&LIBRARIES[0]) };
/// The library libuv.
pub(super) const LIBUV: Peer = Peer { name: LIBRARIES[1].name, missing: || missing(&LIBRARIES[1]) };
/// The library libevent.
pub(super) const LIBEVENT: Peer =
    Peer { name: LIBRARIES[2].name, missing: || missing(&LIBRARIES[2]) };

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
    if let Some(reason) = crate::host::programs::missing("cc", "gcc") {
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
pub(super) fn start(library: &Library, spec: &RunSpec) -> Result<Program, MeasureError> {
    let mut command = Command::new(built(library, &spec.scratch)?);
    for axis in ["pairs", "active", "writes"] {
        command.arg(spec.count(axis).to_string());
    }
    Program::start(library.name, command)
}

/// The program; it stays in the private folder for the runs that follow.
fn built(library: &Library, scratch: &Path) -> Result<PathBuf, MeasureError> {
    let (define, link) = (format!("-D{}", library.define), format!("-l{}", library.link));
    let program = format!("chain-{}", library.name);
    Ok(compiler::built(scratch, &program, PROGRAM, &[&define, &link])?)
}
