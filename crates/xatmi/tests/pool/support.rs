//! A pool for one test: its folder, its manager, and questions to it.

use std::cell::Cell;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use pollux_xatmi::client::Client;
use pollux_xatmi::control::{Answer, AskError, Control, QueueRow, Request, ServiceRow, WorkerRow};
use pollux_xatmi::environment::{Environment, TRANSPORT_VARIABLE, Transport};
use pollux_xatmi::queue::{Prefix, ServiceName};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::roles;

/// How long anything may take that is sure to happen; the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const LOOK: i64 = 20_000_000;

thread_local! {
    /// How requests travel in the pools of the test that runs on this thread.
    pub(crate) static TRANSPORT: Cell<Transport> = const { Cell::new(Transport::Queues) };
}

/// A pool; its processes and its folder go with it.
pub(crate) struct TestPool {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) prefix: Prefix,
    manager: Option<Child>,
    has_metrics: bool,
    transport: Transport,
    /// What `NDRX_MSGSIZEMAX` says. The limits of the machine are shared with whatever else runs.
    pub(crate) message_len_bytes: u32,
    /// The manager's limit on the size of files.
    pub(crate) file_size_max: Option<u64>,
    /// Where the queue file system is mounted for the manager.
    pub(crate) queues: Option<PathBuf>,
}

impl TestPool {
    /// A pool that does not run yet. `app` is the inside of `<appconfig>`, `servers` that of
    /// `<servers>`; programs called `testsv` are this one. A check cycle is a second.
    pub(crate) fn new(app: &str, servers: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("/pollux-pool-test-{}-{number}", std::process::id());
        let folder = tempfile::tempdir().expect("a folder");
        let own = std::env::current_exe().expect("this program");
        std::os::unix::fs::symlink(own, folder.path().join("testsv")).expect("a link");
        let prefix = Prefix::new(&prefix).expect("a prefix");
        let transport = TRANSPORT.get();
        let pool = Self {
            folder,
            prefix,
            manager: None,
            has_metrics: false,
            transport,
            message_len_bytes: 512,
            file_size_max: None,
            queues: None,
        };
        pool.configure(app, servers);
        pool
    }

    /// The same, started, with all workers up.
    pub(crate) fn start(app: &str, servers: &str) -> Self {
        let mut pool = Self::new(app, servers);
        pool.begin();
        let said = pool.ask(&Request::Settle).expect("all are up");
        assert!(said.contains("workers up"), "{said}");
        pool
    }

    /// Has requests travel in another way from the next start on.
    pub(crate) fn travel_by(&mut self, transport: Transport) {
        self.transport = transport;
    }

    /// Serves metrics from the next start on.
    pub(crate) fn with_metrics(mut self) -> Self {
        self.has_metrics = true;
        self
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, app: &str, servers: &str) {
        let text = format!(
            "<endurox><appconfig><sanity>1</sanity>{app}</appconfig><defaults><min>1</min>\
             <max>1</max><end_max>30</end_max><start_max>60</start_max><ping_max>0</ping_max>\
             <envs><env name=\"PATH\">{}</env></envs></defaults>\
             <servers>{servers}</servers></endurox>",
            self.folder.path().display()
        );
        std::fs::write(self.config(), text).expect("a file");
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("pool.xml")
    }

    /// Starts the manager and waits until it listens; what it says instead is given back.
    pub(crate) fn try_begin(&mut self) -> Result<(), String> {
        let mut command = self.role("manager");
        command.env(roles::CONFIG, self.config());
        if let Some(folder) = &self.queues {
            command.env("NDRX_QPATH", folder);
        }
        if let Some(limit) = self.file_size_max {
            command.env(roles::FILE_SIZE, limit.to_string());
        }
        if self.has_metrics {
            command.env(roles::METRICS, "1");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a manager");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("a line");
        if said == "open\n" {
            self.manager = Some(child);
            return Ok(());
        }
        child.wait().expect("it ended");
        Err(said)
    }

    pub(crate) fn begin(&mut self) {
        self.try_begin().expect("it listens");
    }

    /// This program in another role, in this pool's environment.
    pub(crate) fn role(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(roles::ROLE, role).env("NDRX_QPREFIX", self.prefix.as_str());
        command.env("NDRX_MSGSIZEMAX", self.message_len_bytes.to_string()).stdin(Stdio::null());
        command.env(TRANSPORT_VARIABLE, self.transport.name());
        command
    }

    pub(crate) fn ask(&self, request: &Request) -> Result<String, AskError> {
        Control::connect(&self.prefix)?.ask(request, PATIENCE, |_| {})
    }

    pub(crate) fn workers(&self) -> Vec<WorkerRow> {
        let mut rows = Vec::new();
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(&Request::Ps, PATIENCE, |answer| {
            if let Answer::Workers(some) = answer {
                rows.extend(some);
            }
        });
        asked.expect("an answer");
        rows
    }

    pub(crate) fn services(&self) -> Vec<ServiceRow> {
        let mut rows = Vec::new();
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(&Request::Services, PATIENCE, |answer| {
            if let Answer::Services(some) = answer {
                rows.extend(some);
            }
        });
        asked.expect("an answer");
        rows
    }

    pub(crate) fn queues(&self) -> Vec<QueueRow> {
        let mut rows = Vec::new();
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(&Request::Queues, PATIENCE, |answer| {
            if let Answer::Queues(some) = answer {
                rows.extend(some);
            }
        });
        asked.expect("an answer");
        rows
    }

    /// Client contexts that are connected.
    pub(crate) fn clients(&self) -> usize {
        let mut count = 0;
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(&Request::Clients, PATIENCE, |answer| {
            if let Answer::Clients(some) = answer {
                count += some.len();
            }
        });
        asked.expect("an answer");
        count
    }

    pub(crate) fn worker(&self, id: u32) -> WorkerRow {
        self.workers().into_iter().find(|row| row.srvid == id).expect("of the configuration")
    }

    pub(crate) fn pid(&self, id: u32) -> u32 {
        self.worker(id).pid.expect("it runs")
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let mut found = None;
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(&Request::Info, PATIENCE, |answer| {
            if let Answer::Info(info) = answer {
                found = info.counts.iter().find(|(known, _)| known == name).map(|(_, n)| *n);
            }
        });
        asked.expect("an answer");
        found.expect("a count")
    }

    pub(crate) fn metrics_address(&self) -> String {
        let mut found = None;
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(&Request::Info, PATIENCE, |answer| {
            if let Answer::Info(info) = answer {
                found = info.metrics;
            }
        });
        asked.expect("an answer");
        found.expect("it serves metrics")
    }

    /// A client context of this process.
    pub(crate) fn client(&self) -> Client {
        Client::open(&self.environment()).expect("it runs")
    }

    pub(crate) fn environment(&self) -> Environment {
        let prefix = self.prefix.as_str().to_owned();
        Environment::read(|name| (name == "NDRX_QPREFIX").then(|| prefix.clone().into()))
            .expect("a prefix")
    }

    /// Whether requests for the service have a place.
    pub(crate) fn has_queue(&self, service: &str) -> bool {
        if self.transport == Transport::Memory {
            // While no manager runs, nobody withdraws it.
            return Control::connect(&self.prefix).is_err()
                || self.services().iter().any(|row| row.service == service);
        }
        self.leaves_queue(service)
    }

    /// Whether a queue of this name stands, which in shared memory none does.
    pub(crate) fn leaves_queue(&self, service: &str) -> bool {
        let name = ServiceName::new(service).expect("a name");
        exists(&self.prefix.service_queue(&name))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.config().with_extension("log")).unwrap_or_default()
    }

    /// Kills the manager and nothing else.
    pub(crate) fn kill_manager(&mut self) {
        let mut manager = self.manager.take().expect("it runs");
        manager.kill().expect("ours");
        manager.wait().expect("ours");
    }

    /// Ends the pool, and makes sure that nothing stays behind.
    pub(crate) fn end(&mut self) {
        let pids: Vec<u32> = self.workers().iter().filter_map(|row| row.pid).collect();
        let names: Vec<String> = self.services().into_iter().map(|row| row.service).collect();
        let mut control = Control::connect(&self.prefix).expect("it runs");
        control.ask(&Request::End { now: false }, PATIENCE, |_| {}).expect("it ends");
        control.wait_for_end(PATIENCE).expect("it ends");
        self.ended();
        for pid in pids {
            assert!(!runs(pid), "worker {pid} stays");
        }
        for name in names {
            assert!(!self.leaves_queue(&name), "the queue of {name} stays");
        }
    }

    /// Waits for the end of the manager, which was ordered.
    pub(crate) fn ended(&mut self) {
        let status = self.manager.take().expect("it ran").wait().expect("ours");
        assert!(status.success(), "{status}; {}", self.log());
        assert!(matches!(Control::connect(&self.prefix), Err(AskError::NoPool { .. })));
    }

    /// Looks at the pool until `condition` holds.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        let manager = self.manager.as_ref().expect("it runs");
        let pidfd = pidfd(manager.id());
        while !condition(self) {
            assert!(Instant::now() < end, "{what}: not in {PATIENCE:?}; {}", self.log());
            // Either the manager ends, which is wrong, or it is time for another look.
            let mut wait = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
            let look = rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK };
            let ended = rustix::event::poll(&mut wait, Some(&look)).expect("a wait");
            assert_eq!(ended, 0, "{what}: the manager has ended; {}", self.log());
        }
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        let Some(mut manager) = self.manager.take() else { return };
        // A test failed: nothing of it may stay.
        if let Ok(mut control) = Control::connect(&self.prefix) {
            let _ = control.ask(&Request::End { now: true }, Duration::from_secs(5), |_| {});
        }
        let _ = manager.kill();
        let _ = manager.wait();
    }
}

/// Sends a signal to a process that a test has started by way of a manager.
pub(crate) fn signal(pid: u32, signal: Signal) {
    rustix::process::kill_process(number(pid), signal).expect("it runs");
}

/// Kills a process that is nobody's child by now, and sees it end.
pub(crate) fn kill_and_wait(pid: u32) {
    let process = pidfd(pid);
    signal(pid, Signal::KILL);
    wait_for(&process);
}

/// Waits for the end of a process that was killed, if it is still there.
pub(crate) fn wait_for_end(pid: u32) {
    if let Ok(process) = pidfd_open(number(pid), PidfdFlags::empty()) {
        wait_for(&process);
    }
}

fn wait_for(process: &std::os::fd::OwnedFd) {
    let mut wait = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wait, Some(&limit)).expect("a wait"), 1, "it ends");
}

/// The same to one that may have ended meanwhile.
pub(crate) fn signal_if_there(pid: u32, signal: Signal) {
    let _ = rustix::process::kill_process(number(pid), signal);
}

pub(crate) fn exists(queue: &CString) -> bool {
    MessageQueue::open(queue).is_ok()
}

/// Says something on the terminal.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").expect("standard output");
}

/// Whether the process is there and no zombie, which has no command line any more: what was
/// taken over is nobody's child, and collected when the system comes to it.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn pidfd(pid: u32) -> std::os::fd::OwnedFd {
    pidfd_open(number(pid), PidfdFlags::empty()).expect("it runs")
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process")).expect("a process")
}
