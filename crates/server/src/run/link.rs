//! The link between a master and a worker: its frames, the worker's end ([`WorkerProcess`]), and the worker as
//! its master has it ([`Worker`]).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use pollux_engine::Signals;
use pollux_poller::Waker;
use pollux_settings::command::output::error_chain;
use pollux_sys::process;
use pollux_sys::shared::SharedWords;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::backends;
use crate::backends::names::Resolver;
use crate::config::ProxyConfig;
use crate::rates::Rates;
use crate::run::in_place::FilesPrint;
use crate::run::sockets::{ProxySockets, left_open};
use crate::run::start::OfMaster;
use crate::run::stats::{Overview, Reloads, RetiredCounts, metrics};
use crate::run::take_settings::{ReadSettings, Taken};
use crate::run::upgrade::{FORM, Leaving, Left};
use crate::{Server, ServerError};

/// A worker or a master that reads nothing for so long hangs, or is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest text: the counters of a worker with many loops.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 20;
const HEAD_BYTES: usize = 5;
/// In place of the numbers of tables, where there are none.
const NO_TABLE: &str = "-";

/// What a frame is about.
///
/// The messages of a master and its workers: frames over a stream.
///
/// ```text
///  ┌──────┬───────────────┬─────────┐
///  │ kind │ length, 4, BE │ text    │
///  └──────┴───────────────┴─────────┘
/// ```
///
/// Both ends are the same program, so a frame that makes no sense is the end of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Worker: it takes connections; the text is its banner.
    Ready = 1,
    /// Worker: it could not start; the text says why.
    Failed,
    /// Worker: what it counted so far.
    Counts,
    /// Worker: a client of its control socket asked for a reload; the text is how many were asked for so far.
    Reload,
    /// Master: another worker takes the connections, end with the open ones.
    Drain,
    /// Master: open the logs again.
    Reopen,
    /// Master: what workers counted that have ended, or end.
    RetiredCounts,
    /// Master: how reloads went, and how many of those that this worker asked for are answered.
    Reloads,
    /// Worker: the states of backends, beside the settings. Master: those that the worker got at its
    /// start, and those at the moment when it began to serve.
    BackendStates,
    /// Master: end with the open connections, within the drain timeout; the text says why.
    End,
    /// Master: go by the settings of this file, of which nothing needs another worker; its name, a line feed, its text.
    Settings,
    /// Worker: what became of those.
    Taken,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Ready,
        Self::Failed,
        Self::Counts,
        Self::Reload,
        Self::Drain,
        Self::Reopen,
        Self::RetiredCounts,
        Self::Reloads,
        Self::BackendStates,
        Self::End,
        Self::Settings,
        Self::Taken,
    ];
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Frame {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// As it goes over the stream.
    ///
    /// # Panics
    /// When the text has more than 8 MiB.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        assert!(self.text.len() <= TEXT_BYTES_MAX, "a frame is bounded");
        let mut bytes = vec![self.kind as u8];
        bytes.extend_from_slice(&(self.text.len() as u32).to_be_bytes());
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }
}

/// The stream is not one of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Garbled;

/// Frames that come in pieces.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// Nothing that follows can be read.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Garbled> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == head[0]).ok_or(Garbled)?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > TEXT_BYTES_MAX {
            return Err(Garbled);
        }
        let Some(text) = rest.get(..len) else { return Ok(None) };
        let text = String::from_utf8(text.to_vec()).map_err(|_| Garbled)?;
        self.bytes.drain(..HEAD_BYTES + len);
        Ok(Some(Frame { kind, text }))
    }
}

/// Where a master names what it left its worker.
const VARIABLE: &str = "POLLUX_PROXY_WORKER";
/// Stands between the states of backends and the file with the settings.
pub(crate) const STATES_END: char = '\0';

/// What a master left its worker.
///
/// ```text
///  master ── environment: numbers of descriptors ──► worker: takes them
///         ◄──────────── link: a stream of frames ───────────►
/// ```
///
/// A thread reads the link and wakes the one that waits for signals. The end of the link is the
/// end of the master: the worker drains then, whatever killed it.
#[derive(Debug)]
pub struct WorkerProcess {
    link: UnixStream,
    file: Option<(String, String)>,
    /// The states of backends at the worker before.
    states: String,
    /// The tables of the limits of the settings, in their order.
    tables: Vec<SharedWords>,
    sockets: ProxySockets,
}

/// A message of the master.
#[derive(Debug)]
pub(crate) enum MasterMessage {
    Drain,
    /// Why.
    End(String),
    Reopen,
    RetiredCounts(String),
    Reloads(Reloads),
    /// The states of backends at the worker before: those that this one got at its start, and those
    /// when it began to serve.
    BackendStates {
        before: String,
        now: String,
    },
    /// Go by the settings of this file.
    Settings(String),
    /// The master is gone.
    Gone,
}

/// The worker's end of the link.
#[derive(Debug)]
pub(crate) struct MasterStream {
    stream: UnixStream,
    messages: Receiver<MasterMessage>,
    /// The states of backends that were sent last.
    states: String,
    is_broken: bool,
}

impl WorkerProcess {
    /// What was left to this process; none where it was not started by a master.
    ///
    /// # Errors
    /// What was named is not there.
    pub fn find() -> io::Result<Option<Self>> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        let wrong = || io::Error::other(format!("{VARIABLE}={text}"));
        let mut words = text.splitn(5, ' ');
        if words.next() != Some(FORM) {
            let why = format!(
                "{VARIABLE}={text}: the master is another version, which this one does not understand"
            );
            return Err(io::Error::other(why));
        }
        let mut number = || {
            let number = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            process::take_inherited(number)
        };
        let link = UnixStream::from(number()?);
        let mut settings = File::from(number()?);
        let tables = words.next().ok_or_else(wrong)?.split(',').filter(|word| *word != NO_TABLE);
        let tables = tables.map(|word| {
            let number = word.parse().map_err(|_| wrong())?;
            process::take_inherited(number).and_then(SharedWords::from_fd)
        });
        let tables = tables.collect::<io::Result<Vec<_>>>()?;
        let sockets = ProxySockets::inherited(words.next().ok_or_else(wrong)?)?;
        let mut text = String::new();
        settings.rewind()?;
        settings.read_to_string(&mut text)?;
        let (states, file) = text.split_once(STATES_END).ok_or_else(wrong)?;
        let file = file.split_once('\n').map(|(name, text)| (name.to_owned(), text.to_owned()));
        link.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Some(Self { link, file, states: states.to_owned(), tables, sockets }))
    }

    /// The name and the text of the file with the settings, as the master read it.
    #[must_use]
    pub fn file(&self) -> Option<(&str, &str)> {
        self.file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Reports to the master why the worker could not start.
    pub fn failed(mut self, why: &str) {
        // Without a master nothing reads it.
        let _ = self.link.write_all(&Frame::new(Kind::Failed, why).bytes());
    }

    /// Starts the worker's loops and runs them until the master, or a signal, ends them; `read` reads other settings that the
    /// master sends meanwhile.
    ///
    /// # Errors
    /// As [`Server::start_proxy`] and [`Server::run`]. The master was notified.
    pub fn run(
        mut self,
        config: &ProxyConfig,
        read: ReadSettings,
        signals: &mut Signals,
    ) -> Result<(), ServerError> {
        let master =
            OfMaster { waker: signals.waker(), states: self.states.as_str(), read: Some(read) };
        let rates = Rates::new(&config.rates, std::mem::take(&mut self.tables));
        let sockets = &self.sockets;
        let resolver = Resolver::default();
        let server = match Server::start_proxy_on(config, sockets, rates, resolver, Some(master)) {
            Ok(server) => server,
            Err(error) => {
                self.failed(&error_chain(&error));
                return Err(error);
            }
        };
        let Self { link, sockets, .. } = self;
        // From here on the loops alone have them, and close them when they drain: a connection after that
        // is refused, or goes to the next process that listens there.
        drop(sockets);
        let mut link = MasterStream::open(link, signals.waker());
        link.send(Kind::Ready, server.banner().join("\n"));
        server.run_under(signals, Some(&mut link))
    }
}

impl MasterStream {
    fn open(stream: UnixStream, waker: Waker) -> Self {
        let (sender, messages) = channel();
        let reading = stream.try_clone();
        let is_broken = reading.is_err();
        if let Ok(reading) = reading {
            std::thread::spawn(move || read(reading, &sender, &waker));
        }
        Self { stream, messages, states: String::new(), is_broken }
    }

    /// The messages of the master since the last call.
    pub(crate) fn messages(&self) -> Vec<MasterMessage> {
        self.messages.try_iter().collect()
    }

    /// Says what became of settings that the master has sent.
    pub(crate) fn answer(&mut self, taken: &Taken) {
        self.send(Kind::Taken, taken.to_string());
    }

    /// Sends the master the counters, and that a reload is wanted.
    pub(crate) fn report(&mut self, overview: &Overview) {
        self.ask(overview);
        self.send(Kind::Counts, RetiredCounts::of_page(&metrics(overview)).page());
    }

    /// Sends the states of backends, if they are new, and then a wish for a reload: in this order, as the
    /// new worker needs the messages that came before it.
    pub(crate) fn ask(&mut self, overview: &Overview) {
        let mut states = backends::states(&overview.backends);
        let names = overview.upstreams.as_ref().and_then(|upstreams| upstreams.names());
        states.extend(names.map(|names| names.lines()));
        states.extend(overview.upstreams.as_ref().map(|upstreams| upstreams.site_orders().lines()));
        if states != self.states {
            self.send(Kind::BackendStates, states.as_str());
            self.states = states;
        }
        if let Some(number) = overview.supervised.takes_reload() {
            self.send(Kind::Reload, number.to_string());
        }
    }

    fn send(&mut self, kind: Kind, text: impl Into<String>) {
        // Behind a frame that was cut nothing can be read: the reader sees the end instead.
        if !self.is_broken && self.stream.write_all(&Frame::new(kind, text).bytes()).is_err() {
            self.is_broken = true;
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Passes messages on until the stream ends.
fn read(mut stream: UnixStream, messages: &Sender<MasterMessage>, waker: &Waker) {
    let mut frames = Frames::default();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let len = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(len) if len > 0 => len,
            _ => break,
        };
        frames.feed(&piece[..len]);
        loop {
            let message = match frames.next() {
                Ok(None) => break,
                Ok(Some(Frame { kind, text })) => match kind {
                    Kind::Drain => MasterMessage::Drain,
                    Kind::End => MasterMessage::End(text),
                    Kind::Reopen => MasterMessage::Reopen,
                    Kind::RetiredCounts => MasterMessage::RetiredCounts(text),
                    Kind::Reloads => MasterMessage::Reloads(reloads(&text)),
                    Kind::BackendStates => states_in(&text),
                    Kind::Settings => MasterMessage::Settings(text),
                    Kind::Ready | Kind::Failed | Kind::Counts | Kind::Reload | Kind::Taken => {
                        continue;
                    }
                },
                Err(Garbled) => return gone(messages, waker),
            };
            let _ = messages.send(message);
            waker.wake();
        }
    }
    gone(messages, waker);
}

/// The reloads of a frame: how many of this worker's are answered, how many were done and failed, and
/// why the last one failed.
fn reloads(text: &str) -> Reloads {
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default().to_owned();
    Reloads { answered: line().parse().unwrap_or_default(), counts: line(), why: line() }
}

/// The states of backends in a frame.
fn states_in(text: &str) -> MasterMessage {
    let (before, now) = text.split_once(STATES_END).unwrap_or_default();
    MasterMessage::BackendStates { before: before.to_owned(), now: now.to_owned() }
}

fn gone(messages: &Sender<MasterMessage>, waker: &Waker) {
    let _ = messages.send(MasterMessage::Gone);
    waker.wake();
}

/// States of workers as they are left to another program.
const STARTING: &str = "starting";
const SERVING: &str = "serving";
const DRAINING: &str = "draining";
const KILLED: &str = "killed";

/// The name of workers in lists of processes.
const NAME: &str = "pollux-proxy-worker";
/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerState {
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
pub(crate) struct Worker {
    pid: Pid,
    /// How it ended, once that was asked for.
    end: Option<ExitStatus>,
    link: UnixStream,
    frames: Frames,
    /// Nothing more comes from it.
    is_closed: bool,
    pub(crate) state: WorkerState,
    pub(crate) started: Instant,
    /// Reloads that were asked for through it so far.
    pub(crate) asked: u64,
    /// Those of them that are answered when the reload under way is.
    pub(crate) promised: u64,
    /// How backends stood when it was started.
    pub(crate) states: String,
    /// What it counted, as a page.
    pub(crate) counts: String,
    /// Why it could not start.
    pub(crate) failure: Option<String>,
    /// What stood in the files of its settings when it was started; none where that is not known, or it is another program.
    pub(crate) files: Option<FilesPrint>,
}

/// One whose end is farther away than this is looked at as seldom as one that serves.
const SOON: Duration = Duration::from_secs(2);

impl Worker {
    /// Whether no time of it comes soon.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            WorkerState::Serving => true,
            WorkerState::Draining(by) => by > Instant::now() + SOON,
            WorkerState::Starting(_) | WorkerState::Killed => false,
        }
    }

    /// Starts this program once more, or another one, with the arguments of the same command line, these sockets and
    /// the text of the settings, behind the states of the backends at the worker before. Only a process
    /// of one thread may do so: descriptors are open for every child meanwhile.
    ///
    /// # Errors
    /// No descriptor or no process is left.
    pub(crate) fn start(
        program: &Path,
        sockets: &ProxySockets,
        tables: &[&SharedWords],
        (states, settings): (&str, &str),
        arguments: &[OsString],
        by: Instant,
    ) -> io::Result<Self> {
        let (link, theirs) = UnixStream::pair()?;
        let mut file = File::from(memfd_create("pollux-settings", MemfdFlags::CLOEXEC)?);
        write!(file, "{states}{STATES_END}{settings}")?;
        file.rewind()?;
        let theirs = left_open(&theirs)?;
        let file = left_open(&file)?;
        let (copies, text) = sockets.for_child()?;
        let tables = tables.iter().map(left_open).collect::<io::Result<Vec<_>>>()?;
        let numbers: Vec<String> = tables.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
        let numbers = if numbers.is_empty() { NO_TABLE.to_owned() } else { numbers.join(",") };
        let link_fd = theirs.as_raw_fd();
        let file_fd = file.as_raw_fd();
        let left = format!("{FORM} {link_fd} {file_fd} {numbers} {text}");
        let mut command = Command::new(program);
        // A signal of the terminal is for the master.
        command.arg0(NAME).args(arguments).env(VARIABLE, left).process_group(0);
        let child = command.stdin(Stdio::null()).spawn();
        drop((copies, theirs, file, tables));
        // Its end is asked for by its number.
        let pid = Pid::from_child(&child?);
        link.set_nonblocking(true)?;
        Ok(Self {
            pid,
            end: None,
            asked: 0,
            promised: 0,
            link,
            frames: Frames::default(),
            is_closed: false,
            state: WorkerState::Starting(by),
            started: Instant::now(),
            states: states.to_owned(),
            counts: String::new(),
            failure: None,
            files: None,
        })
    }

    /// Leaves it to the next program of this process.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn leave(&self, leaving: &mut Leaving) -> io::Result<()> {
        let now = Instant::now();
        let (state, by) = match self.state {
            WorkerState::Starting(by) => (STARTING, Some(by)),
            WorkerState::Serving => (SERVING, None),
            WorkerState::Draining(by) => (DRAINING, Some(by)),
            WorkerState::Killed => (KILLED, None),
        };
        let left = by.map_or(Duration::ZERO, |by| by.saturating_duration_since(now));
        leaving.number(self.id().into());
        leaving.descriptor(&self.link)?;
        leaving.bytes(&self.frames.bytes);
        leaving.text(state);
        leaving.number(left.as_millis() as u64);
        leaving.number(now.saturating_duration_since(self.started).as_millis() as u64);
        for number in [self.asked, self.promised, u64::from(self.is_closed)] {
            leaving.number(number);
        }
        leaving.text(&self.states);
        leaving.text(&self.counts);
        Ok(())
    }

    /// Takes over what [`Worker::leave`] left.
    ///
    /// # Errors
    /// It is not that.
    pub(crate) fn take_over(left: &mut Left) -> io::Result<Self> {
        let now = Instant::now();
        let wrong = || io::Error::other("not a worker");
        let pid = i32::try_from(left.number()?).ok().and_then(Pid::from_raw).ok_or_else(wrong)?;
        let link = UnixStream::from(left.descriptor()?);
        let mut frames = Frames::default();
        frames.feed(&left.bytes()?);
        let state = left.text()?;
        let by = now + Duration::from_millis(left.number()?);
        let state = match &*state {
            STARTING => WorkerState::Starting(by),
            SERVING => WorkerState::Serving,
            DRAINING => WorkerState::Draining(by),
            KILLED => WorkerState::Killed,
            _ => return Err(wrong()),
        };
        let served = Duration::from_millis(left.number()?);
        let [asked, promised, is_closed] = [left.number()?, left.number()?, left.number()?];
        Ok(Self {
            pid,
            end: None,
            link,
            frames,
            is_closed: is_closed != 0,
            state,
            started: now.checked_sub(served).unwrap_or(now),
            asked,
            promised,
            states: left.text()?,
            counts: left.text()?,
            failure: None,
            files: None,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Readable when the worker has said something, or is gone; none once it is.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_closed).then(|| self.link.as_fd())
    }

    /// Sends it a frame. A worker that does not read is killed when its time is over.
    pub(crate) fn send(&mut self, kind: Kind, text: &str) {
        let bytes = Frame::new(kind, text).bytes();
        let set = |is_on| self.link.set_nonblocking(is_on);
        let sent = set(false)
            .and_then(|()| self.link.set_write_timeout(Some(WRITE_TIMEOUT)))
            .and_then(|()| (&self.link).write_all(&bytes));
        let is_set = set(true).is_ok();
        // What one that has ended said last can still be read, up to the end.
        let has_ended = |error: &io::Error| {
            matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        };
        if !is_set || sent.is_err_and(|error| !has_ended(&error)) {
            self.is_closed = true;
        }
    }

    /// What it has said since the last call.
    pub(crate) fn receive(&mut self) -> Vec<Frame> {
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
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.end.is_none()
            && let Ok(Some((_, status))) = waitpid(Some(self.pid), WaitOptions::NOHANG)
        {
            self.end = Some(ExitStatus::from_raw(status.as_raw()));
        }
        self.end
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.state = WorkerState::Killed;
        self.kill_process();
    }

    fn kill_process(&self) {
        // One whose end was asked for has no number any more.
        if self.end.is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

impl Drop for Worker {
    /// A master that gives up leaves no child behind.
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill_process();
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let sent: Vec<Frame> = Kind::ALL
            .into_iter()
            .zip([
                "",
                "a",
                "two\nlines",
                "µ",
                "",
                "",
                "x y",
                "",
                "z",
                "b",
                "p.toml\na = 1",
                "taken\n",
            ])
            .map(|(kind, text)| Frame::new(kind, text))
            .collect();
        let bytes: Vec<u8> = sent.iter().flat_map(Frame::bytes).collect();
        for size in 1..=bytes.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                frames.feed(piece);
                while let Some(frame) = frames.next().expect("sound") {
                    found.push(frame);
                }
            }
            assert_eq!(found, sent, "pieces of {size}");
            assert!(frames.bytes.is_empty());
        }
    }

    #[test]
    fn bytes_that_are_not_a_frame_are_refused_at_once() {
        for bytes in
            [&[0, 0, 0, 0, 0][..], &[99, 0, 0, 0, 0], &[1, 0xff, 0, 0, 0], &[1, 0, 0, 0, 1, 0xff]]
        {
            let mut frames = Frames::default();
            frames.feed(bytes);
            assert_eq!(frames.next(), Err(Garbled), "{bytes:?}");
        }
    }
}
