//! A pool for one test: its folder, its manager, and questions to it.

use std::cell::Cell;
use std::ffi::CString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use pollux_testing::{DEADLINE, Pid, Process, Signal, await_end, is_running};
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client};
use pollux_xatmi::control::{
    Answer, Control, ControlError, PoolInfo, QueueRow, Request, ServiceRow, WorkerRow,
};
use pollux_xatmi::environment::{Environment, TRANSPORT_VARIABLE, Transport};
use pollux_xatmi::queue::{Prefix, ServiceName};

pub(crate) const ONE: &str = "<server name='testsv'><srvid>1</srvid></server>";

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// So many workers.
pub(crate) fn copies(count: u32) -> String {
    format!("<server name='testsv'><srvid>1</srvid><min>{count}</min><max>{count}</max></server>")
}

pub(crate) fn text(words: &str) -> Buffer {
    Buffer::string(words).expect("it fits")
}

/// A call that is served, with its own data in the reply.
pub(crate) fn echoes(client: &mut Client, words: &str) {
    let answer = client.call("ECHO", &text(words), CallFlags::NONE).expect("it serves");
    let buffer = answer.buffer.expect("it answers with data");
    assert!(buffer.as_bytes().starts_with(words.as_bytes()), "another's answer");
}

thread_local! {
    /// How requests travel in the pools of the test that runs on this thread.
    pub(crate) static TRANSPORT: Cell<Transport> = const { Cell::new(Transport::Queues) };
}

/// A pool; its processes and its folder go with it.
pub(crate) struct TestPool {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) prefix: Prefix,
    manager: Option<Process>,
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
        command.env(crate::CONFIG, self.config());
        if let Some(folder) = &self.queues {
            command.env("NDRX_QPATH", folder);
        }
        if let Some(limit) = self.file_size_max {
            command.env(crate::FILE_SIZE, limit.to_string());
        }
        if self.has_metrics {
            command.env(crate::METRICS, "1");
        }
        let mut manager = Process::start(&mut command);
        if manager.try_wait_for_stderr_line(crate::LISTENS).is_none() {
            return Err(manager.ended().stderr);
        }
        self.manager = Some(manager);
        Ok(())
    }

    pub(crate) fn begin(&mut self) {
        self.try_begin().expect("it listens");
    }

    /// This program in another role, in this pool's environment.
    pub(crate) fn role(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(crate::ROLE, role).env("NDRX_QPREFIX", self.prefix.as_str());
        command.env("NDRX_MSGSIZEMAX", self.message_len_bytes.to_string()).stdin(Stdio::null());
        command.env(TRANSPORT_VARIABLE, self.transport.name());
        command
    }

    pub(crate) fn ask(&self, request: &Request) -> Result<String, ControlError> {
        Control::connect(&self.prefix)?.ask(request, DEADLINE, |_| {})
    }

    /// What `pick` takes of all answers to a request.
    fn list<T>(&self, request: &Request, pick: impl Fn(Answer) -> Option<Vec<T>>) -> Vec<T> {
        let mut rows = Vec::new();
        let mut control = Control::connect(&self.prefix).expect("it runs");
        let asked = control.ask(request, DEADLINE, |answer| rows.extend(pick(answer)));
        asked.expect("an answer");
        rows.into_iter().flatten().collect()
    }

    pub(crate) fn workers(&self) -> Vec<WorkerRow> {
        self.list(
            &Request::Ps,
            |answer| {
                if let Answer::Workers(rows) = answer { Some(rows) } else { None }
            },
        )
    }

    pub(crate) fn services(&self) -> Vec<ServiceRow> {
        self.list(&Request::Services, |answer| {
            if let Answer::Services(rows) = answer { Some(rows) } else { None }
        })
    }

    pub(crate) fn queues(&self) -> Vec<QueueRow> {
        self.list(&Request::Queues, |answer| {
            if let Answer::Queues(rows) = answer { Some(rows) } else { None }
        })
    }

    /// Client contexts that are connected.
    pub(crate) fn clients(&self) -> usize {
        let rows = self.list(&Request::Clients, |answer| {
            if let Answer::Clients(rows) = answer { Some(rows) } else { None }
        });
        rows.len()
    }

    fn info(&self) -> PoolInfo {
        let infos = self.list(&Request::Info, |answer| {
            if let Answer::Info(info) = answer { Some(vec![*info]) } else { None }
        });
        infos.into_iter().next().expect("an answer")
    }

    pub(crate) fn worker(&self, id: u32) -> WorkerRow {
        self.workers().into_iter().find(|row| row.srvid == id).expect("of the configuration")
    }

    pub(crate) fn pid(&self, id: u32) -> u32 {
        self.worker(id).pid.expect("it runs")
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let counts = self.info().counts;
        counts.iter().find(|(known, _)| known == name).expect("a count").1
    }

    pub(crate) fn metrics_address(&self) -> String {
        self.info().metrics.expect("it serves metrics")
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
            // While no manager runs, it is not withdrawn.
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
        self.manager.take().expect("it runs").kill();
    }

    /// Ends the pool, and makes sure that nothing stays behind.
    pub(crate) fn end(&mut self) {
        let pids: Vec<u32> = self.workers().iter().filter_map(|row| row.pid).collect();
        let names: Vec<String> = self.services().into_iter().map(|row| row.service).collect();
        let mut control = Control::connect(&self.prefix).expect("it runs");
        control.ask(&Request::End { now: false }, DEADLINE, |_| {}).expect("it ends");
        control.wait_for_end(DEADLINE).expect("it ends");
        self.ended();
        for pid in pids {
            assert!(!is_running(number(pid)), "worker {pid} stays");
        }
        for name in names {
            assert!(!self.leaves_queue(&name), "the queue of {name} stays");
        }
    }

    /// Waits for the end of the manager, which was ordered.
    pub(crate) fn ended(&mut self) {
        let status = self.manager.take().expect("it ran").wait();
        assert!(status.success(), "{status}; {}", self.log());
        assert!(matches!(Control::connect(&self.prefix), Err(ControlError::NoPool { .. })));
    }

    /// Looks at the pool until `condition` holds.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        let manager = self.manager.as_ref().expect("it runs");
        while !condition(self) {
            assert!(Instant::now() < end, "{what}: not in {DEADLINE:?}; {}", self.log());
            // Either the manager ends, which is wrong, or it is time for another look.
            assert!(!manager.ends_within(LOOK), "{what}: the manager has ended; {}", self.log());
        }
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        if self.manager.is_none() {
            return;
        }
        // A test failed: nothing of it may stay.
        if let Ok(mut control) = Control::connect(&self.prefix) {
            let _ = control.ask(&Request::End { now: true }, Duration::from_secs(5), |_| {});
        }
    }
}

/// Sends a signal to a process that a test has started by way of a manager.
pub(crate) fn signal(pid: u32, signal: Signal) {
    rustix::process::kill_process(number(pid), signal).expect("it runs");
}

/// Kills a process that has lost its parent by now, and sees it end.
pub(crate) fn kill_and_wait(pid: u32) {
    signal(pid, Signal::KILL);
    await_end(number(pid));
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

pub(crate) fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process")).expect("a process")
}
