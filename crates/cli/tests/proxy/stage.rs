//! A proxy as a process, a backend that says which request it was asked, and clients that compare.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use pollux_testing::{
    DEADLINE, Output, Pid, Process, Signal, addresses, children, get, pause, wait_for, wait_until,
};
use tempfile::TempDir;

/// `pollux proxy` with a file of settings.
pub(crate) struct Proxy {
    process: Process,
    folder: TempDir,
    pub(crate) address: SocketAddr,
    stats: SocketAddr,
}

impl Proxy {
    /// A proxy to these backends; `more` are other settings.
    pub(crate) fn start(backends: &[SocketAddr], more: &str) -> Self {
        Self::try_start(backends, more).unwrap_or_else(|said| panic!("it ended: {said:#?}"))
    }

    /// The same; or what it said when it ended at once.
    pub(crate) fn try_start(backends: &[SocketAddr], more: &str) -> Result<Self, Vec<String>> {
        Self::start_by(backends, more, |command| command)
    }

    /// The same by `pollux serve`, which has the settings of either command.
    pub(crate) fn start_as_server(backends: &[SocketAddr], more: &str) -> Self {
        let started = Self::start_as("serve", backends, more, |command| command);
        started.unwrap_or_else(|said| panic!("it ended: {said:#?}"))
    }

    /// The same, with further variables.
    pub(crate) fn start_by(
        backends: &[SocketAddr],
        more: &str,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self, Vec<String>> {
        Self::start_as("proxy", backends, more, set)
    }

    /// The same by the program at this path.
    pub(crate) fn start_program(program: &Path, backends: &[SocketAddr], more: &str) -> Self {
        let started = Self::start_of(program, "proxy", backends, more, |command| command);
        started.unwrap_or_else(|said| panic!("it ended: {said:#?}"))
    }

    fn start_as(
        name: &str,
        backends: &[SocketAddr],
        more: &str,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self, Vec<String>> {
        let program = Path::new(env!("CARGO_BIN_EXE_pollux"));
        Self::start_of(program, name, backends, more, set)
    }

    fn start_of(
        program: &Path,
        name: &str,
        backends: &[SocketAddr],
        more: &str,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self, Vec<String>> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("p.toml"), settings(backends, more)).expect("written");
        let mut command = Command::new(program);
        command.current_dir(folder.path()).args([name, "--config", "p.toml"]);
        set(&mut command);
        let mut process = Process::start(command.stdin(Stdio::null()));
        let scheme = if more.contains("mode = \"tcp\"") { "tcp" } else { "http" };
        let banner = format!("pollux {name}: {scheme}");
        let Some(line) = process.try_wait_for_stderr_line(&banner) else {
            return Err(process.stderr_lines().to_vec());
        };
        let stats = addresses(&process.wait_for_stderr_line("metrics: http://"))[0];
        Ok(Self { process, folder, address: addresses(&line)[0], stats })
    }

    /// Waits for a line with this part; gives it.
    pub(crate) fn wait_for_stderr_line(&mut self, part: &str) -> String {
        self.process.wait_for_stderr_line(part)
    }

    /// All that was said until the end of the process.
    pub(crate) fn all_stderr_lines(&mut self) -> &[String] {
        self.process.all_stderr_lines()
    }

    /// A file in its folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write_settings(&self, backends: &[SocketAddr], more: &str) {
        let path = self.folder.path().join("p.toml");
        std::fs::write(path, settings(backends, more)).expect("written");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Runs `pollux proxy reload`: whether it went well, and what it said.
    pub(crate) fn reload(&self) -> (bool, String) {
        let Output { status, stderr, .. } = self.begin_reload().ended();
        (status.success(), stderr)
    }

    /// Starts `pollux proxy reload`.
    pub(crate) fn begin_reload(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.current_dir(self.folder.path());
        Process::start(command.args(["proxy", "reload", "--control", "unix:k.sock"]))
    }

    /// What the control socket answers to these commands until it ends.
    pub(crate) fn control(&self, commands: &str) -> String {
        let path = self.folder.path().join("k.sock");
        let mut socket = UnixStream::connect(path).expect("the control socket is always there");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.write_all(commands.as_bytes()).expect("sent");
        let mut answers = String::new();
        socket.read_to_string(&mut answers).expect("answers");
        answers
    }

    /// The id of the master.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Processes whose parent is the master.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        children(self.process.id())
    }

    /// Waits until there is one worker, and it is none of `but`.
    pub(crate) fn one_worker(&self, but: &[Pid]) -> Pid {
        wait_for("one worker, another one than before", || match self.workers()[..] {
            [one] if !but.contains(&one) => Some(one),
            _ => None,
        })
    }

    /// The sum of the lines of the metrics that begin so and contain that.
    pub(crate) fn metric(&self, begin: &str, part: &str) -> u64 {
        let page = get(self.stats, "/metrics");
        let lines = page.lines().filter(|line| line.starts_with(begin) && line.contains(part));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Waits until the metric has that value.
    pub(crate) fn await_metric(&self, begin: &str, part: &str, expected: u64) {
        wait_until(format_args!("{expected} of {begin} {part}"), || {
            self.metric(begin, part) == expected
        });
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.process.wait()
    }
}

fn settings(backends: &[SocketAddr], more: &str) -> String {
    let servers = backends.iter().map(|address| format!("[[server]]\naddress = \"{address}\"\n"));
    let servers: String = servers.collect();
    format!(
        "listen = \"127.0.0.1:0\"\nstats = \"127.0.0.1:0\"\ncontrol = \"unix:k.sock\"\n{more}\n{servers}"
    )
}

/// `pollux serve --echo`: a backend that can be killed.
pub(crate) struct Server {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// A backend at this address; with port 0 the kernel chooses.
    pub(crate) fn start(at: SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "--echo", "--listen", &at.to_string()]);
        let mut process = Process::start(command.stdin(Stdio::null()));
        let address = addresses(&process.wait_for_stderr_line("http://"))[0];
        Self { process, address }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

/// A backend that answers each request with its path, when field and body name the same one.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    counts: Arc<BackendCounts>,
}

#[derive(Default)]
struct BackendCounts {
    open: AtomicU64,
    asked: AtomicU64,
}

impl Backend {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counts = Arc::<BackendCounts>::default();
        let kept = Arc::clone(&counts);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let counts = Arc::clone(&counts);
                counts.open.fetch_add(1, SeqCst);
                std::thread::spawn(move || {
                    answer(&socket, &counts.asked);
                    counts.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { address, counts: kept }
    }

    /// Requests that came whole.
    pub(crate) fn asked(&self) -> u64 {
        self.counts.asked.load(SeqCst)
    }

    /// Waits until all connections to it have ended.
    pub(crate) fn await_none_open(&self) {
        wait_until("the end of all connections", || self.counts.open.load(SeqCst) == 0);
    }
}

fn answer(socket: &TcpStream, asked: &AtomicU64) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(socket);
    loop {
        let mut path = String::new();
        let mut id = String::new();
        let mut len = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if path.is_empty() {
                line.split(' ').nth(1)?.clone_into(&mut path);
            }
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("x-id", value)) => value.clone_into(&mut id),
                Some(("content-length", value)) => len = value.parse().ok()?,
                _ => {}
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        asked.fetch_add(1, SeqCst);
        let is_one = body == path.as_bytes() && id == path;
        let status = if is_one { "200 OK" } else { "400 Parts of two requests" };
        let mut answer =
            format!("HTTP/1.1 {status}\r\nX-Id: {id}\r\nContent-Length: {len}\r\n\r\n")
                .into_bytes();
        answer.extend_from_slice(&body);
        (&*socket).write_all(&answer).ok()?;
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Answered by the backend, and rightly.
    Right,
    /// Answered by the proxy: no backend.
    Refused,
    /// The connection ended before a whole answer.
    Lost,
}

/// Clients that ask all the time, each on a connection that is kept as long as the proxy likes.
pub(crate) struct Clients {
    is_over: Arc<AtomicBool>,
    pub(crate) right: Arc<AtomicU64>,
    /// The others, with what was seen.
    failed: Arc<Mutex<Vec<(Outcome, String)>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub(crate) fn start(to: SocketAddr, count: usize) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let right = Arc::<AtomicU64>::default();
        let failed = Arc::<Mutex<Vec<_>>>::default();
        let one = |number: usize| {
            let is_over = is_over.clone();
            let right = right.clone();
            let failed = failed.clone();
            std::thread::spawn(move || {
                let mut asked = 0_u64;
                let mut client = Client::default();
                while !is_over.load(SeqCst) {
                    asked += 1;
                    match client.ask(to, &format!("/{number}/{asked}")) {
                        (Outcome::Right, _) => {
                            right.fetch_add(1, SeqCst);
                        }
                        other => failed.lock().expect("whole").push(other),
                    }
                }
            })
        };
        let threads = (0..count).map(one).collect();
        Self { is_over, right, failed, threads }
    }

    /// Waits until so many more were answered rightly.
    pub(crate) fn await_right(&self, more: u64) {
        let begun = Instant::now();
        let goal = self.right.load(SeqCst) + more;
        while self.right.load(SeqCst) < goal {
            assert!(begun.elapsed() < DEADLINE, "{:?}", self.failed.lock().expect("whole"));
            pause(begun);
        }
    }

    /// Ends them: how many were answered rightly, and the others.
    pub(crate) fn end(self) -> (u64, Vec<(Outcome, String)>) {
        self.is_over.store(true, SeqCst);
        for thread in self.threads {
            thread.join().expect("no answer to another request");
        }
        let failed = std::mem::take(&mut *self.failed.lock().expect("whole"));
        (self.right.load(SeqCst), failed)
    }
}

#[derive(Default)]
pub(crate) struct Client {
    socket: Option<BufReader<TcpStream>>,
}

impl Client {
    /// Asks for `path`; the answer has to be the one to this request.
    pub(crate) fn ask(&mut self, to: SocketAddr, path: &str) -> (Outcome, String) {
        let how = if self.socket.is_some() { "kept" } else { "new" };
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => match TcpStream::connect(to) {
                Ok(socket) => {
                    socket.set_read_timeout(Some(DEADLINE)).expect("set");
                    socket.set_nodelay(true).expect("set");
                    BufReader::new(socket)
                }
                Err(error) => return (Outcome::Lost, format!("connect: {error}")),
            },
        };
        // Its id stands in the target, in a field and in the body.
        let len = path.len();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nX-Id: {path}\r\nContent-Length: {len}\r\n\r\n{path}"
        );
        if let Err(error) = socket.get_mut().write_all(request.as_bytes()) {
            return (Outcome::Lost, format!("{how}: send: {error}"));
        }
        let mut head = String::new();
        let mut len = 0;
        let mut is_last = false;
        while !head.ends_with("\r\n\r\n") {
            match socket.read_line(&mut head) {
                Ok(0) => return (Outcome::Lost, format!("{how}: end behind {head:?}")),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (Outcome::Lost, format!("{how}: reset behind {head:?}"));
                }
                Err(error) => panic!("{path}: {error} behind {head:?}"),
            }
        }
        for line in head.lines() {
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                len = value.parse().expect("a number");
            }
            if let Some(id) = line.strip_prefix("x-id: ") {
                assert_eq!(id, path, "the head of an answer to another request");
            }
            is_last |= line == "connection: close";
        }
        let mut body = vec![0; len];
        if let Err(error) = socket.read_exact(&mut body) {
            return (Outcome::Lost, format!("{how}: body: {error}"));
        }
        if !is_last {
            self.socket = Some(socket);
        }
        if head.starts_with("HTTP/1.1 50") {
            return (Outcome::Refused, head);
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(String::from_utf8_lossy(&body), path, "the answer to another request");
        (Outcome::Right, String::new())
    }
}
