//! The master of a proxy: it holds the listening sockets, starts workers and supervises them.
//!
//! ```text
//!               settings, sockets                 takes connections
//!  Starting ──────────────────────► Serving ◄──────────────────────── one at a time
//!     │ fails, or too late             │ another one serves          ▲
//!     ▼                                ▼                             │ after a while that doubles
//!   gone ◄── in time, or killed ── Draining        dies: ────────────┘
//! ```
//!
//! A worker is this program, started anew with the same arguments; there is no fork of a process that has
//! threads. It gets duplicates of the sockets, so a connection that waits in a queue outlives every
//! worker. The master has one thread, opens no connection and reads no byte of a client.
//!
//! The sockets, and the end of the link that a worker has, are the server's: `run/sockets.rs`, `run/link.rs`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use pollux_engine::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::ServerError;
use crate::config::ProxyConfig;
pub use crate::run::link::WorkerProcess;
use crate::run::link::{Frame, Kind, STATES_END, Worker, WorkerState};
pub use crate::run::sockets::ProxySockets;
use crate::run::stats::RetiredCounts;
use crate::run::{DRAINING, USER2_IGNORED};
use crate::system::{Manager, PidFile, State};

/// For a worker to take connections: files are opened and rings made, nothing else.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Beyond the drain timeout, for a worker to end by itself.
const DRAIN_GRACE: Duration = Duration::from_secs(5);
/// Workers of earlier settings that may have tunnels; beyond that the oldest ends within the drain timeout.
const HANDED_OVER_MAX: usize = 8;
/// For a worker whose link has ended to end itself.
const CLOSED_GRACE: Duration = Duration::from_secs(1);
/// The first wait before a worker that died is started again; it doubles each time.
const RESTART_FIRST: Duration = Duration::from_millis(50);
/// The longest.
const RESTART_LAST: Duration = Duration::from_secs(10);
/// A worker that served so long died of something new.
const SERVED_WELL: Duration = Duration::from_secs(10);
/// How often times are looked at, with workers that start or end and without.
const TICK_SHORT: Duration = Duration::from_millis(20);
const TICK_LONG: Duration = Duration::from_secs(1);

/// Settings as the command line reads them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What they mean.
    pub config: ProxyConfig,
    /// The name of the file, a line feed, and its text, for workers; empty without a file.
    pub file: String,
}

/// What the command line gives a master.
pub struct CommandLine {
    /// The arguments behind the program's name.
    pub arguments: Vec<OsString>,
    /// Reads the settings anew; or says what is wrong with them.
    pub read: Box<dyn Fn() -> Result<Settings, String>>,
    /// Prints a line for the user.
    pub print: Box<dyn Fn(&str)>,
}

/// Why a proxy ended unasked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MasterError {
    /// An address could not be listened on.
    #[error(transparent)]
    Listen(#[from] ServerError),
    /// The first worker could not start.
    #[error("{why}")]
    Start {
        /// What it said, or how it ended.
        why: String,
    },
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// Which one.
        call: &'static str,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
}

/// A master that runs.
pub struct Master {
    command_line: CommandLine,
    settings: Settings,
    sockets: ProxySockets,
    workers: Vec<Worker>,
    /// A reload that waits for its worker.
    next: Option<(Settings, ProxySockets, u32)>,
    reloads: Reloads,
    /// What workers counted that are gone.
    ended: RetiredCounts,
    /// The states of backends, beside the settings, that the worker that serves sent last.
    states: String,
    restart: Restart,
    has_served: bool,
    is_ending: bool,
    manager: Manager,
    /// When the manager was last notified that the master works.
    alive_notified: Instant,
    _pid_file: Option<PidFile>,
}

/// How reloads went.
#[derive(Debug, Default)]
struct Reloads {
    done: u64,
    failed: u64,
    why: String,
    /// Another one was asked for while one was under way.
    is_wanted: bool,
}

/// When a worker that died is started again.
#[derive(Debug)]
struct Restart {
    at: Option<Instant>,
    wait: Duration,
}

impl Restart {
    /// A worker that was started then has died; says how long to wait.
    fn after(&mut self, started: Instant, now: Instant) -> Duration {
        if now.duration_since(started) >= SERVED_WELL {
            self.wait = RESTART_FIRST;
        }
        let wait = self.wait;
        self.at = Some(now + wait);
        self.wait = (wait * 2).min(RESTART_LAST);
        wait
    }
}

impl Master {
    /// Opens what the settings name and `passed` does not have, and starts the first worker.
    ///
    /// # Errors
    /// [`MasterError::Listen`], [`MasterError::System`].
    pub fn start(
        settings: Settings,
        command_line: CommandLine,
        passed: &ProxySockets,
    ) -> Result<Self, MasterError> {
        let sockets = passed.changed_to(&settings.config)?;
        let pid_file =
            settings.config.monitoring.pid_file.as_deref().map(PidFile::write).transpose()?;
        let mut master = Self {
            command_line,
            settings,
            sockets,
            workers: Vec::new(),
            next: None,
            reloads: Reloads::default(),
            ended: RetiredCounts::default(),
            states: String::new(),
            restart: Restart { at: None, wait: RESTART_FIRST },
            has_served: false,
            is_ending: false,
            manager: Manager::of_environment(),
            alive_notified: Instant::now(),
            _pid_file: pid_file,
        };
        master.start_worker().map_err(|cause| MasterError::System { call: "spawn", cause })?;
        Ok(master)
    }

    /// Runs until SIGTERM, SIGINT or SIGQUIT and lets the workers drain then; a second one ends them at once.
    /// SIGHUP reads the settings anew, SIGUSR1 has the logs opened again; SIGUSR2 is reported and ignored.
    ///
    /// # Errors
    /// The first worker could not start; the kernel refuses to wait.
    pub fn run(mut self, signals: &mut Signals) -> Result<(), MasterError> {
        loop {
            self.wait(signals)?;
            while let Some(signal) = signals.take() {
                self.on_signal(signal);
            }
            for at in 0..self.workers.len() {
                for frame in self.workers[at].receive() {
                    self.on_frame(at, frame);
                }
            }
            self.reap()?;
            self.look_at_times();
            self.notify_watchdog();
            if self.is_ending && self.workers.is_empty() {
                return Ok(());
            }
        }
    }

    /// Notifies the manager that the master works, when that is due.
    fn notify_watchdog(&mut self) {
        let now = Instant::now();
        if let Some(every) = self.manager.alive_every()
            && now.saturating_duration_since(self.alive_notified) >= every
        {
            self.alive_notified = now;
            self.manager.notify(State::Alive);
        }
    }

    fn wait(&self, signals: &Signals) -> Result<(), MasterError> {
        let is_settled = self.restart.at.is_none()
            && self.workers.iter().all(|worker| worker.is_settled() && worker.fd().is_some());
        let tick = if is_settled { TICK_LONG } else { TICK_SHORT };
        let tick = self.manager.alive_every().map_or(tick, |every| tick.min(every));
        let signal_fd = signals.fd();
        let links = self.workers.iter().filter_map(Worker::fd);
        let fds = std::iter::once(signal_fd).chain(links);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(tick).expect("a second at most");
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(MasterError::System { call: "poll", cause: errno.into() }),
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::HangUp => self.reload(),
            Signal::User1 => self.reopen_logs(),
            Signal::User2 => (self.command_line.print)(USER2_IGNORED),
            Signal::Terminate | Signal::Interrupt | Signal::Quit if self.is_ending => {
                self.workers.iter_mut().for_each(Worker::kill);
            }
            Signal::Terminate | Signal::Interrupt | Signal::Quit => {
                self.is_ending = true;
                self.manager.notify(State::Stopping);
                self.restart.at = None;
                let by = self.drain_end();
                self.workers.iter_mut().for_each(|worker| end(worker, by, DRAINING));
                // A connection now is better refused than left in a queue that no process accepts from.
                let sockets = std::mem::take(&mut self.sockets);
                remove(&sockets.paths(), &[]);
            }
            _ => {}
        }
    }

    fn on_frame(&mut self, at: usize, Frame { kind, text }: Frame) {
        let is_serving = self.workers[at].state == WorkerState::Serving;
        match kind {
            Kind::Ready => self.serves(at, &text),
            Kind::Failed => self.workers[at].failure = Some(text),
            // Also of one that drains: the client that asked waits there.
            Kind::Reload => {
                self.workers[at].asked = text.parse().unwrap_or_default();
                self.reload();
            }
            Kind::Counts => {
                self.workers[at].counts = text;
                if !is_serving {
                    self.send_ended();
                }
            }
            Kind::BackendStates if is_serving => self.states = text,
            Kind::BackendStates
            | Kind::Drain
            | Kind::End
            | Kind::Reopen
            | Kind::RetiredCounts
            | Kind::Reloads => {}
        }
    }

    /// A worker takes connections: the others end.
    fn serves(&mut self, at: usize, banner: &str) {
        let is_late = !matches!(self.workers[at].state, WorkerState::Starting(_));
        if is_late || self.is_ending {
            let by = self.drain_end();
            return end(&mut self.workers[at], by, DRAINING);
        }
        self.workers[at].state = WorkerState::Serving;
        self.restart.at = None;
        if !std::mem::replace(&mut self.has_served, true)
            && !self.settings.config.monitoring.is_quiet
        {
            banner.lines().for_each(|line| (self.command_line.print)(line));
        }
        self.manager.notify(State::Ready);
        let is_reload = self.next.as_ref().is_some_and(|next| next.2 == self.workers[at].id());
        if let Some((settings, sockets, id)) = self.next.take_if(|_| is_reload) {
            let old = std::mem::replace(&mut self.sockets, sockets);
            remove(&old.paths(), &self.sockets.paths());
            self.settings = settings;
            self.reloads.done += 1;
            self.reloads.why.clear();
            (self.command_line.print)(&format!("reloaded: process {id} serves"));
        }
        if self.workers[at].states != self.states {
            // It was changed while this one started.
            let text = format!("{}{STATES_END}{}", self.workers[at].states, self.states);
            self.workers[at].send(Kind::BackendStates, &text);
        }
        let by = self.tunnel_drain_end();
        // Not the one that a reload waits for: it takes over when it is ready.
        let next = self.next.as_ref().map(|next| next.2);
        let is_next = |worker: &Worker| Some(worker.id()) == next;
        for other in (0..self.workers.len()).filter(|other| *other != at) {
            if !is_next(&self.workers[other]) {
                drain_worker(&mut self.workers[other], by);
            }
        }
        self.bound_handed_over();
        self.send_ended();
        // The client that asked for it waits for the answer at a worker that ends now.
        self.send_reloads();
        self.reload_if_wanted();
    }

    /// Reads the settings anew and starts a worker with them, beside the one that serves.
    fn reload(&mut self) {
        if self.next.is_some() || (!self.has_served && !self.is_ending) {
            self.reloads.is_wanted = true;
            return;
        }
        self.manager.notify(State::Reloading);
        // A request from now on may be about other settings.
        self.workers.iter_mut().for_each(|worker| worker.promised = worker.asked);
        if self.is_ending {
            return self.reload_failed("the proxy is ending");
        }
        let read = (self.command_line.read)().and_then(|settings| {
            let sockets = self.sockets.changed_to(&settings.config);
            Ok((settings, sockets.map_err(|error| error.to_string())?))
        });
        let started = read.and_then(|(settings, sockets)| {
            let started = self.start_with(&sockets, &settings.file);
            match started {
                Ok(id) => Ok((settings, sockets, id)),
                Err(error) => {
                    remove(&sockets.paths(), &self.sockets.paths());
                    Err(format!("no worker could be started: {error}"))
                }
            }
        });
        match started {
            Ok(next) => self.next = Some(next),
            Err(why) => self.reload_failed(&why),
        }
    }

    /// The old settings stay; what the signal promises beside, new logs, is done.
    fn reload_failed(&mut self, why: &str) {
        self.reloads.failed += 1;
        why.clone_into(&mut self.reloads.why);
        (self.command_line.print)(&format!("not reloaded, the old settings stay: {why}"));
        if !self.is_ending {
            self.manager.notify(State::Ready);
        }
        self.reopen_logs();
        self.send_reloads();
        self.reload_if_wanted();
    }

    /// Has every worker open its logs again that writes some, those too that end.
    fn reopen_logs(&mut self) {
        let writes = |worker: &&mut Worker| {
            matches!(worker.state, WorkerState::Serving | WorkerState::Draining(_))
        };
        self.workers.iter_mut().filter(writes).for_each(|worker| worker.send(Kind::Reopen, ""));
    }

    fn reload_if_wanted(&mut self) {
        if self.next.is_none() && std::mem::take(&mut self.reloads.is_wanted) {
            self.reload();
        }
    }

    /// Removes workers that have ended.
    fn reap(&mut self) -> Result<(), MasterError> {
        let mut at = 0;
        while at < self.workers.len() {
            let Some(status) = self.workers[at].ended() else {
                at += 1;
                continue;
            };
            // Its last frames may have come with its end.
            for frame in self.workers[at].receive() {
                self.on_frame(at, frame);
            }
            let worker = self.workers.remove(at);
            self.ended.add_page(&worker.counts);
            self.ended_so(&worker, status)?;
            self.send_ended();
        }
        Ok(())
    }

    fn ended_so(&mut self, worker: &Worker, status: ExitStatus) -> Result<(), MasterError> {
        let id = worker.id();
        let why = worker.failure.clone().unwrap_or_else(|| format!("process {id} ended: {status}"));
        if let Some((_, sockets, _)) = self.next.take_if(|next| next.2 == id) {
            remove(&sockets.paths(), &self.sockets.paths());
            self.reload_failed(&why);
        }
        if !self.has_served && !self.is_ending {
            return Err(MasterError::Start { why });
        }
        let may_serve =
            |other: &Worker| matches!(other.state, WorkerState::Starting(_) | WorkerState::Serving);
        let is_last = !self.workers.iter().any(may_serve);
        if !self.is_ending && is_last && self.restart.at.is_none() {
            let wait = self.restart.after(worker.started, Instant::now());
            (self.command_line.print)(&format!("{why}; another one is started in {wait:?}"));
        }
        Ok(())
    }

    fn look_at_times(&mut self) {
        let now = Instant::now();
        for worker in &mut self.workers {
            match worker.state {
                WorkerState::Starting(by) if by <= now => {
                    worker.failure.get_or_insert_with(|| "it did not start in time".to_owned());
                    worker.kill();
                }
                WorkerState::Draining(by) if by <= now => {
                    let id = worker.id();
                    (self.command_line.print)(&format!(
                        "process {id} did not end in time and is killed"
                    ));
                    worker.kill();
                }
                // It is gone, or about to be.
                WorkerState::Serving if worker.fd().is_none() => {
                    worker.state = WorkerState::Draining(now + CLOSED_GRACE);
                }
                _ => {}
            }
        }
        if self.restart.at.take_if(|at| *at <= now).is_some()
            && let Err(error) = self.start_worker()
        {
            let wait = self.restart.after(now, now);
            (self.command_line.print)(&format!(
                "no worker could be started: {error}; again in {wait:?}"
            ));
        }
    }

    fn start_worker(&mut self) -> io::Result<u32> {
        let sockets = std::mem::take(&mut self.sockets);
        let file = std::mem::take(&mut self.settings.file);
        let started = self.start_with(&sockets, &file);
        (self.sockets, self.settings.file) = (sockets, file);
        started
    }

    fn start_with(&mut self, sockets: &ProxySockets, file: &str) -> io::Result<u32> {
        let by = Instant::now() + START_TIMEOUT;
        let worker =
            Worker::start(sockets, (&self.states, file), &self.command_line.arguments, by)?;
        let id = worker.id();
        self.workers.push(worker);
        Ok(id)
    }

    fn drain_end(&self) -> Instant {
        Instant::now() + self.settings.config.limits.clients.drain_timeout + DRAIN_GRACE
    }

    /// As `drain_end`, of a worker whose tunnels may stay.
    fn tunnel_drain_end(&self) -> Instant {
        let limits = &self.settings.config.limits;
        Instant::now() + limits.clients.drain_timeout.max(limits.tunnel_drain_timeout) + DRAIN_GRACE
    }

    /// Has the oldest workers end that have only tunnels, where there are too many of them.
    fn bound_handed_over(&mut self) {
        let by = self.drain_end();
        let mut handed_over: Vec<&mut Worker> = self
            .workers
            .iter_mut()
            .filter(|worker| matches!(worker.state, WorkerState::Draining(end) if end > by))
            .collect();
        let more = handed_over.len().saturating_sub(HANDED_OVER_MAX);
        for worker in handed_over.iter_mut().take(more) {
            end(worker, by, "too many workers of earlier settings: tunnels end too");
        }
    }

    /// Has the worker that serves show what others counted that don't.
    fn send_ended(&mut self) {
        let mut ended = self.ended.clone();
        let others = self.workers.iter().filter(|worker| worker.state != WorkerState::Serving);
        others.for_each(|worker| ended.add_page(&worker.counts));
        let page = ended.page();
        self.send_to_serving(Kind::RetiredCounts, &page);
    }

    fn send_reloads(&mut self) {
        let Reloads { done, failed, why, .. } = &self.reloads;
        for worker in &mut self.workers {
            let answered = worker.promised;
            worker.send(Kind::Reloads, &format!("{answered}\n{done} done, {failed} failed\n{why}"));
        }
    }

    fn send_to_serving(&mut self, kind: Kind, text: &str) {
        for worker in self.workers.iter_mut().filter(|worker| worker.state == WorkerState::Serving)
        {
            worker.send(kind, text);
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        remove(&self.sockets.paths(), &[]);
    }
}

/// Has a worker leave its sockets to another one.
fn drain_worker(worker: &mut Worker, by: Instant) {
    if matches!(worker.state, WorkerState::Starting(_) | WorkerState::Serving) {
        worker.state = WorkerState::Draining(by);
        worker.send(Kind::Drain, "");
    }
}

/// Has a worker end, one too that has left its sockets already.
fn end(worker: &mut Worker, by: Instant, why: &str) {
    let by = match worker.state {
        WorkerState::Draining(earlier) if earlier <= by => return,
        _ => by,
    };
    worker.state = WorkerState::Draining(by);
    worker.send(Kind::End, why);
}

/// Removes unix sockets on which nothing listens any more.
fn remove(paths: &[PathBuf], but: &[PathBuf]) {
    for path in paths.iter().filter(|path| !but.contains(path)) {
        // It may have been removed already.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_keeps_dying_is_started_less_and_less_often() {
        let mut restart = Restart { at: None, wait: RESTART_FIRST };
        let begin = Instant::now();
        let waits: Vec<_> = (0..12).map(|_| restart.after(begin, begin).as_millis()).collect();
        assert_eq!(waits[..4], [50, 100, 200, 400]);
        assert_eq!(waits[10..], [10_000, 10_000]);
        assert_eq!(restart.at, Some(begin + RESTART_LAST));
        assert_eq!(restart.after(begin, begin + SERVED_WELL), RESTART_FIRST);
    }
}
