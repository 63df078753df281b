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
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use pollux_engine::{Signal, Signals};
use pollux_host::{ServiceManager, ServiceState};
use pollux_sys::process::unblock_signals;
use pollux_sys::shared::SharedWords;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::ServerError;
use crate::config::ProxyConfig;
use crate::rates::RateTables;
use crate::run::DRAINING;
use crate::run::in_place::{FilesPrint, needs_worker};
pub use crate::run::link::WorkerProcess;
use crate::run::link::{Frame, Kind, STATES_END, TEXT_BYTES_MAX, Worker, WorkerState};
pub use crate::run::sockets::ProxySockets;
use crate::run::stats::RetiredCounts;
pub use crate::run::take_settings::ReadSettings;
use crate::run::take_settings::Taken;
use crate::run::upgrade::{Leaving, Left, own_program};
use crate::system::PidFile;

/// For a worker to take connections: files are opened and rings made, nothing else.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Beyond the drain timeout, for a worker to end by itself.
const WORKER_END_GRACE: Duration = Duration::from_secs(5);
/// For a worker whose link has ended to end itself.
const CLOSED_GRACE: Duration = Duration::from_secs(1);
/// The first wait before a worker that died is started again; it doubles each time.
const RESTART_FIRST: Duration = Duration::from_millis(50);
/// The longest wait before it is.
const RESTART_LAST: Duration = Duration::from_secs(10);
/// A worker that served so long died of something new.
const SERVED_WELL: Duration = Duration::from_secs(10);
/// The program that runs, whatever lies where it was started from by now.
const OWN: &str = "/proc/self/exe";
/// How often times are looked at while workers start or end.
const TICK_SHORT: Duration = Duration::from_millis(20);
/// How often while none does.
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

/// What the program before has left to this one in its process.
#[derive(Debug)]
pub struct UpgradedMaster {
    left: Left,
    file: Option<(String, String)>,
    sockets: ProxySockets,
    are_passed: Vec<bool>,
}

impl UpgradedMaster {
    /// What was left to this process; none where it was started as any other.
    ///
    /// # Errors
    /// What was named is not there, or has another form.
    pub fn find() -> io::Result<Option<Self>> {
        let Some(mut left) = Left::find()? else { return Ok(None) };
        let file = left.text()?;
        let file = file.split_once('\n').map(|(name, text)| (name.to_owned(), text.to_owned()));
        let sockets = ProxySockets::inherited(&left.text()?)?;
        let are_passed = left.bytes()?.into_iter().map(|byte| byte != 0).collect();
        Ok(Some(Self { left, file, sockets, are_passed }))
    }

    /// The name and the text of the file with the settings, as the program before read it.
    #[must_use]
    pub fn file(&self) -> Option<(&str, &str)> {
        self.file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The signals that came meanwhile may come: they are caught.
    pub fn catches_signals(&self) {
        unblock_signals();
    }
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
    /// A reload, or an upgrade, that waits for its worker.
    next: Option<Next>,
    reloads: Reloads,
    /// What workers counted that are gone.
    ended: RetiredCounts,
    /// The states of backends, beside the settings, that the worker that serves sent last.
    states: String,
    /// The tables of all limits, which go from worker to worker.
    tables: RateTables,
    restart: Restart,
    has_served: bool,
    is_ending: bool,
    /// Where this program is, or another one that is to take its place.
    program: Option<PathBuf>,
    manager: ServiceManager,
    /// When the manager was last notified that the master works.
    alive_notified: Instant,
    _pid_file: Option<PidFile>,
}

/// What the worker is for that is waited for.
struct Next {
    settings: Settings,
    sockets: ProxySockets,
    /// Its id.
    worker: u32,
    how: Takeover,
}

/// How a worker comes to have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takeover {
    /// It was started with them.
    Started,
    /// It is of another program, which this one becomes.
    Upgrade,
    /// It serves, and was sent them; it has until then to take them.
    InPlace(Instant),
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
        let mut master = Self::new(settings, command_line, sockets)?;
        master.start_worker().map_err(|cause| MasterError::System { call: "spawn", cause })?;
        Ok(master)
    }

    /// One without workers.
    fn new(
        settings: Settings,
        command_line: CommandLine,
        sockets: ProxySockets,
    ) -> Result<Self, MasterError> {
        let pid_file =
            settings.config.monitoring.pid_file.as_deref().map(PidFile::write).transpose()?;
        Ok(Self {
            command_line,
            settings,
            sockets,
            workers: Vec::new(),
            next: None,
            reloads: Reloads::default(),
            ended: RetiredCounts::default(),
            states: String::new(),
            tables: RateTables::default(),
            restart: Restart { at: None, wait: RESTART_FIRST },
            has_served: false,
            is_ending: false,
            program: own_program(),
            manager: ServiceManager::of_environment(),
            alive_notified: Instant::now(),
            _pid_file: pid_file,
        })
    }

    /// Takes over what the program before has left in this process, whose workers serve on.
    ///
    /// # Errors
    /// [`MasterError::System`]: it is not what such a program leaves. The workers end with their connections then.
    pub fn take_over(
        upgraded: UpgradedMaster,
        settings: Settings,
        command_line: CommandLine,
    ) -> Result<Self, MasterError> {
        let UpgradedMaster { mut left, sockets, are_passed, .. } = upgraded;
        let failed = |cause| MasterError::System { call: "upgrade", cause };
        let sockets = sockets.of_settings(&settings.config, &are_passed).map_err(failed)?;
        let mut master = Self::new(settings, command_line, sockets)?;
        master.has_served = true;
        master.take_rest(&mut left).map_err(failed)?;
        let version = env!("CARGO_PKG_VERSION");
        let program = master.program.as_deref().map(|path| path.display().to_string());
        let program = program.unwrap_or_default();
        (master.command_line.print)(&format!("upgraded: this is {program}, version {version}"));
        master.reload_if_wanted();
        Ok(master)
    }

    /// Takes what stands behind settings and sockets.
    fn take_rest(&mut self, left: &mut Left) -> io::Result<()> {
        self.states = left.text()?;
        self.ended = RetiredCounts::of_page(&left.text()?);
        self.reloads = Reloads {
            done: left.number()?,
            failed: left.number()?,
            why: left.text()?,
            is_wanted: left.number()? != 0,
        };
        for _ in 0..left.number()? {
            let name = left.text()?;
            self.tables.take(name, SharedWords::from_fd(left.descriptor()?)?);
        }
        for _ in 0..left.number()? {
            self.workers.push(Worker::take_over(left)?);
        }
        Ok(())
    }

    /// Leaves all that this master has to the next program.
    ///
    /// # Errors
    /// EMFILE.
    fn leave(&self) -> io::Result<Leaving> {
        let mut leaving = Leaving::new();
        leaving.text(&self.settings.file);
        leaving.named(self.sockets.for_child()?);
        let are_passed = self.sockets.are_passed();
        leaving.bytes(&are_passed.iter().map(|it| u8::from(*it)).collect::<Vec<_>>());
        leaving.text(&self.states);
        leaving.text(&self.ended.page());
        let Reloads { done, failed, why, is_wanted } = &self.reloads;
        leaving.number(*done);
        leaving.number(*failed);
        leaving.text(why);
        leaving.number(u64::from(*is_wanted));
        leaving.number(self.tables.all().len() as u64);
        for (name, table) in self.tables.all() {
            leaving.text(name);
            leaving.descriptor(table)?;
        }
        leaving.number(self.workers.len() as u64);
        for worker in &self.workers {
            worker.leave(&mut leaving)?;
        }
        Ok(leaving)
    }

    /// Becomes the program that a worker of serves already; comes back where that fails.
    fn become_next(&mut self) {
        let Some(program) = self.program.clone() else { return };
        let arguments = &self.command_line.arguments;
        let error = match self.leave() {
            Ok(leaving) => leaving.exec(&program, arguments),
            Err(error) => error,
        };
        (self.command_line.print)(&format!(
            "the master stays the program that it was, and its worker is the new one: {}: {error}",
            program.display()
        ));
    }

    /// Starts a worker of the program that lies where this one lay when it was started, with the same settings; once that
    /// takes connections this process becomes that program.
    fn upgrade(&mut self) {
        let refused = |why: &str| {
            (self.command_line.print)(&format!("not upgraded: {why}"));
        };
        if self.is_ending {
            return refused("the proxy is ending");
        }
        if self.next.is_some() || !self.has_served {
            return refused(
                "another worker is about to take the connections; ask again when it does",
            );
        }
        let Some(program) = self.program.clone() else {
            return refused("where this program was started from is not known");
        };
        self.manager.notify(ServiceState::Reloading);
        let settings = self.settings.clone();
        let started = match self.sockets.changed_to(&settings.config) {
            Ok(sockets) => match self.start_with(&program, &sockets, &settings) {
                Ok(worker) => Ok(Next { settings, sockets, worker, how: Takeover::Upgrade }),
                Err(error) => Err(format!("{}: {error}", program.display())),
            },
            Err(error) => Err(error.to_string()),
        };
        match started {
            Ok(next) => self.next = Some(next),
            Err(why) => self.upgrade_failed(&why),
        }
    }

    fn upgrade_failed(&mut self, why: &str) {
        (self.command_line.print)(&format!("not upgraded, the program before serves on: {why}"));
        if !self.is_ending {
            self.manager.notify(ServiceState::Ready);
        }
        self.reload_if_wanted();
    }

    /// Runs until SIGTERM, SIGINT or SIGQUIT and lets the workers drain then; a second one ends them at once.
    /// SIGHUP reads the settings anew, SIGUSR1 has the logs opened again, SIGUSR2 begins an upgrade to another program.
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
            self.manager.notify(ServiceState::Alive);
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
            Signal::User2 => self.upgrade(),
            Signal::Terminate | Signal::Interrupt | Signal::Quit if self.is_ending => {
                self.workers.iter_mut().for_each(Worker::kill);
            }
            Signal::Terminate | Signal::Interrupt | Signal::Quit => {
                self.is_ending = true;
                self.manager.notify(ServiceState::Stopping);
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
            Kind::Taken => self.taken(at, Taken::read(&text)),
            Kind::BackendStates
            | Kind::Settings
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
        self.manager.notify(ServiceState::Ready);
        let is_next = self.next.as_ref().is_some_and(|next| next.worker == self.workers[at].id());
        let next = self.next.take_if(|_| is_next);
        let is_upgrade = next.as_ref().is_some_and(|next| next.how == Takeover::Upgrade);
        if let Some(Next { settings, sockets, worker: id, .. }) = next.filter(|_| !is_upgrade) {
            let old = std::mem::replace(&mut self.sockets, sockets);
            remove(&old.paths(), &self.sockets.paths());
            self.reloaded(settings, &format!("reloaded: process {id} serves"));
        }
        if self.workers[at].states != self.states {
            // It was changed while this one started.
            let text = format!("{}{STATES_END}{}", self.workers[at].states, self.states);
            self.workers[at].send(Kind::BackendStates, &text);
        }
        let by = self.tunnel_drain_end();
        // Not the one that a reload waits for: it takes over when it is ready.
        let next = self.next.as_ref().map(|next| next.worker);
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
        if is_upgrade {
            self.become_next();
        }
        self.reload_if_wanted();
    }

    /// Goes by other settings from now on.
    fn reloaded(&mut self, settings: Settings, said: &str) {
        self.settings = settings;
        self.tables.keep(&self.settings.config.rates);
        self.reloads.done += 1;
        self.reloads.why.clear();
        (self.command_line.print)(said);
    }

    /// Reads the settings anew. The worker that serves takes them, or another one is started with them beside it.
    fn reload(&mut self) {
        if self.next.is_some() || (!self.has_served && !self.is_ending) {
            self.reloads.is_wanted = true;
            return;
        }
        self.manager.notify(ServiceState::Reloading);
        // A request from now on may be about other settings.
        self.workers.iter_mut().for_each(|worker| worker.promised = worker.asked);
        if self.is_ending {
            return self.reload_failed("the proxy is ending");
        }
        match (self.command_line.read)() {
            Ok(settings) => match self.takes_in_place(&settings) {
                Ok(at) => self.send_settings(at, settings),
                Err(why) => self.reload_by_another(settings, &why),
            },
            Err(why) => self.reload_failed(&why),
        }
    }

    /// The place of the worker that serves, if it can take these settings; or why another one has to.
    fn takes_in_place(&self, settings: &Settings) -> Result<usize, String> {
        let mut serving =
            (0..self.workers.len()).filter(|at| self.workers[*at].state == WorkerState::Serving);
        let at = serving.next().filter(|_| serving.next().is_none());
        let at = at.ok_or_else(|| "no worker serves".to_owned())?;
        let differs = needs_worker(&self.settings.config, &settings.config);
        if !differs.is_empty() {
            return Err(format!("another worker, for {}", differs.join(", ")));
        }
        if self.workers[at].files != Some(FilesPrint::of(&settings.config)) {
            return Err("another worker, for files of certificates, keys or users".to_owned());
        }
        if settings.file.len() > TEXT_BYTES_MAX {
            return Err("another worker, for a long file".to_owned());
        }
        Ok(at)
    }

    /// Has the worker that serves go by these settings.
    fn send_settings(&mut self, at: usize, settings: Settings) {
        let worker = &mut self.workers[at];
        worker.send(Kind::Settings, &settings.file);
        let how = Takeover::InPlace(Instant::now() + START_TIMEOUT);
        let sockets = ProxySockets::default();
        self.next = Some(Next { settings, sockets, worker: worker.id(), how });
    }

    /// The worker that was sent settings says what became of them; nothing where that makes no sense.
    fn taken(&mut self, at: usize, taken: Option<Taken>) {
        let id = self.workers[at].id();
        let is_it = |next: &mut Next| next.worker == id && matches!(next.how, Takeover::InPlace(_));
        let Some(Next { settings, .. }) = self.next.take_if(is_it) else { return };
        match taken {
            Some(Taken::Yes) => {
                self.reloaded(settings, &format!("reloaded: process {id} serves on"));
                self.manager.notify(ServiceState::Ready);
                // As the signal promises.
                self.reopen_logs();
                self.send_reloads();
                self.reload_if_wanted();
            }
            Some(Taken::ByAnother(why)) => self.reload_by_another(settings, &why),
            Some(Taken::Wrong(why)) => self.reload_failed(&why),
            None => self.reload_by_another(settings, "the worker says nothing of them"),
        }
    }

    /// Starts a worker with these settings beside the one that serves, which does not take them for this reason.
    fn reload_by_another(&mut self, settings: Settings, why: &str) {
        (self.command_line.print)(&format!("reloading: {why}"));
        let started = self.sockets.changed_to(&settings.config).map_err(|error| error.to_string());
        let started = started.and_then(|sockets| {
            match self.start_with(Path::new(OWN), &sockets, &settings) {
                Ok(worker) => Ok(Next { settings, sockets, worker, how: Takeover::Started }),
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
            self.manager.notify(ServiceState::Ready);
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
        if let Some(next) = self.next.take_if(|next| next.worker == id) {
            remove(&next.sockets.paths(), &self.sockets.paths());
            match next.how {
                Takeover::Upgrade => self.upgrade_failed(&why),
                Takeover::Started => self.reload_failed(&why),
                // It may have died of something else.
                Takeover::InPlace(_) if !self.is_ending => {
                    self.reload_by_another(next.settings, &why);
                }
                Takeover::InPlace(_) => self.reload_failed(&why),
            }
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
        let is_late = |next: &mut Next| matches!(next.how, Takeover::InPlace(by) if by <= now);
        if let Some(next) = self.next.take_if(is_late) {
            self.reload_by_another(next.settings, "the worker did not take them in time");
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
        let settings = self.settings.clone();
        let started = self.start_with(Path::new(OWN), &sockets, &settings);
        self.sockets = sockets;
        started
    }

    fn start_with(
        &mut self,
        program: &Path,
        sockets: &ProxySockets,
        settings: &Settings,
    ) -> io::Result<u32> {
        let by = Instant::now() + START_TIMEOUT;
        let limits = &settings.config.rates;
        self.tables.make(limits)?;
        let tables: Vec<_> = self.tables.of(limits).collect();
        let texts = (self.states.as_str(), settings.file.as_str());
        let arguments = &self.command_line.arguments;
        // Before the worker reads them: what is changed meanwhile differs then.
        let files = (program == Path::new(OWN)).then(|| FilesPrint::of(&settings.config));
        let mut worker = Worker::start(program, sockets, &tables, texts, arguments, by)?;
        worker.files = files;
        let id = worker.id();
        self.workers.push(worker);
        Ok(id)
    }

    fn drain_end(&self) -> Instant {
        Instant::now() + self.settings.config.limits.clients.drain_timeout + WORKER_END_GRACE
    }

    /// As `drain_end`, of a worker whose tunnels may stay.
    fn tunnel_drain_end(&self) -> Instant {
        let limits = &self.settings.config.limits;
        Instant::now()
            + limits.clients.drain_timeout.max(limits.tunnel_drain_timeout)
            + WORKER_END_GRACE
    }

    /// Has the oldest workers end that have only tunnels, where there are too many of them.
    fn bound_handed_over(&mut self) {
        let by = self.drain_end();
        let most = self.settings.config.limits.tunnel_workers_max;
        let mut handed_over: Vec<&mut Worker> = self
            .workers
            .iter_mut()
            .filter(|worker| matches!(worker.state, WorkerState::Draining(end) if end > by))
            .collect();
        let more = handed_over.len().saturating_sub(most);
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
