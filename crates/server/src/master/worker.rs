//! A worker of a proxy as its master has it. The other end of the link is
//! [`WorkerProcess`](crate::serve::link::WorkerProcess).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::serve::link::{Frame, Frames, Garbled, Kind, STATES_END, VARIABLE, WRITE_TIMEOUT};
use crate::serve::sockets::{ProxySockets, left_open};

/// The name of workers in lists of processes.
const NAME: &str = "pollux-proxy-worker";
/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It has until then to take connections.
    Starting(Instant),
    /// It takes connections.
    Serving,
    /// It ends with the connections that it has, until then.
    Draining(Instant),
    /// It was killed.
    Killed,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    link: UnixStream,
    frames: Frames,
    /// Nothing more comes from it.
    is_closed: bool,
    pub(super) state: State,
    pub(super) started: Instant,
    /// Reloads that were asked for through it so far.
    pub(super) asked: u64,
    /// Those of them that are answered when the reload under way is.
    pub(super) promised: u64,
    /// How backends stood when it was started.
    pub(super) states: String,
    /// What it counted, as a page.
    pub(super) counts: String,
    /// Why it could not start.
    pub(super) failure: Option<String>,
}

impl Worker {
    /// Starts this program once more, with the arguments of the same command line, these sockets and
    /// the text of the settings, behind the states of the backends at the worker before. Only a process
    /// of one thread may do so: descriptors are open for every child meanwhile.
    ///
    /// # Errors
    /// No descriptor or no process is left.
    pub(super) fn start(
        sockets: &ProxySockets,
        (states, settings): (&str, &str),
        arguments: &[OsString],
        by: Instant,
    ) -> io::Result<Self> {
        let (link, theirs) = UnixStream::pair()?;
        let mut file = File::from(memfd_create("pollux-settings", MemfdFlags::CLOEXEC)?);
        write!(file, "{states}{STATES_END}{settings}")?;
        file.rewind()?;
        let (theirs, file) = (left_open(&theirs)?, left_open(&file)?);
        let (copies, text) = sockets.for_child()?;
        let left = format!("{} {} {text}", theirs.as_raw_fd(), file.as_raw_fd());
        let mut command = Command::new("/proc/self/exe");
        // A signal of the terminal is for the master.
        command.arg0(NAME).args(arguments).env(VARIABLE, left).process_group(0);
        let child = command.stdin(Stdio::null()).spawn();
        drop((copies, theirs, file));
        let child = child?;
        link.set_nonblocking(true)?;
        Ok(Self {
            child,
            asked: 0,
            promised: 0,
            link,
            frames: Frames::default(),
            is_closed: false,
            state: State::Starting(by),
            started: Instant::now(),
            states: states.to_owned(),
            counts: String::new(),
            failure: None,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Readable when the worker has said something, or is gone; none once it is.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_closed).then(|| self.link.as_fd())
    }

    /// Sends it a frame. A worker that does not read is killed when its time is over.
    pub(super) fn send(&mut self, kind: Kind, text: &str) {
        let bytes = Frame::new(kind, text).bytes();
        let set = |is_on| self.link.set_nonblocking(is_on);
        let sent = set(false)
            .and_then(|()| self.link.set_write_timeout(Some(WRITE_TIMEOUT)))
            .and_then(|()| (&self.link).write_all(&bytes))
            .and_then(|()| set(true));
        if sent.is_err() {
            self.is_closed = true;
        }
    }

    /// What it has said since the last call.
    pub(super) fn receive(&mut self) -> Vec<Frame> {
        let mut received = Vec::new();
        let mut piece = [0; 64 * 1024];
        while !self.is_closed {
            match self.link.read(&mut piece) {
                Ok(0) => self.is_closed = true,
                Ok(len) => self.frames.feed(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
            loop {
                match self.frames.next() {
                    Ok(Some(frame)) => received.push(frame),
                    Ok(None) => break,
                    Err(Garbled) => {
                        self.is_closed = true;
                        break;
                    }
                }
            }
        }
        received
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        self.state = State::Killed;
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

impl Drop for Worker {
    /// A master that gives up leaves no child behind.
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
