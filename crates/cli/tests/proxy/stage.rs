//! A proxy as a process, a backend that says which request it was asked, and clients that compare.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

/// Far longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `pollux proxy` with a file of settings.
pub(crate) struct Proxy {
    child: Child,
    folder: TempDir,
    lines: Receiver<String>,
    said: Vec<String>,
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

    /// The same, with further variables.
    pub(crate) fn start_by(
        backends: &[SocketAddr],
        more: &str,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self, Vec<String>> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("p.toml"), settings(backends, more)).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.current_dir(folder.path()).args(["proxy", "--config", "p.toml"]);
        set(&mut command);
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut proxy =
            Self { child, folder, lines, said: Vec::new(), address: nowhere, stats: nowhere };
        let Some(line) = proxy.says_or_ends("pollux proxy: http://") else {
            return Err(std::mem::take(&mut proxy.said));
        };
        proxy.address = address_in(&line);
        let line = proxy.says("metrics: http://");
        proxy.stats = address_in(&line);
        Ok(proxy)
    }

    /// Waits for a line with this part; gives it.
    pub(crate) fn says(&mut self, part: &str) -> String {
        let line = self.says_or_ends(part);
        line.unwrap_or_else(|| panic!("\"{part}\" was not said, but {:#?}", self.said))
    }

    /// None when the process ends without such a line.
    fn says_or_ends(&mut self, part: &str) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(part) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("\"{part}\" was not said, but {:#?}", self.said)
                }
            }
        }
    }

    /// All that was said until the end of the process.
    pub(crate) fn all_said(&mut self) -> &[String] {
        self.said.extend(self.lines.iter());
        &self.said
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
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Runs `pollux proxy reload`: whether it went well, and what it said.
    pub(crate) fn reload(&self) -> (bool, String) {
        told(self.begin_reload())
    }

    /// Starts `pollux proxy reload`.
    pub(crate) fn begin_reload(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.current_dir(self.folder.path()).stderr(Stdio::piped());
        command.args(["proxy", "reload", "--control", "unix:k.sock"]).spawn().expect("started")
    }

    /// What the control socket answers to these commands until it ends.
    pub(crate) fn control(&self, commands: &str) -> String {
        let path = self.folder.path().join("k.sock");
        let mut socket = UnixStream::connect(path).expect("the control socket is always there");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        socket.write_all(commands.as_bytes()).expect("sent");
        let mut answers = String::new();
        socket.read_to_string(&mut answers).expect("answers");
        answers
    }

    /// The id of the master.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processes whose parent is the master.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        children(self.child.id())
    }

    /// Waits until there is one worker, and it is none of `but`.
    pub(crate) fn one_worker(&self, but: &[Pid]) -> Pid {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.workers()[..] {
                [one] if !but.contains(&one) => return one,
                _ => assert!(Instant::now() < end, "workers: {:?}", self.workers()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The sum of the lines of the metrics that begin so and contain that.
    pub(crate) fn metric(&self, begin: &str, part: &str) -> u64 {
        let page = self.page();
        let lines = page.lines().filter(|line| line.starts_with(begin) && line.contains(part));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Waits until the metric has that value.
    pub(crate) fn await_metric(&self, begin: &str, part: &str, expected: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.metric(begin, part);
            if found == expected {
                return;
            }
            assert!(Instant::now() < end, "{begin} {part}: {found}, expected {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn page(&self) -> String {
        let mut socket = TcpStream::connect(self.stats).expect("the endpoint is always there");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        socket.write_all(ask.as_bytes()).expect("sent");
        let mut page = String::new();
        socket.read_to_string(&mut page).expect("an answer");
        page
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("ours") {
                return status;
            }
            assert!(Instant::now() < end, "the master did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let workers = self.workers();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for worker in workers {
            let _ = kill_process(worker, Signal::KILL);
        }
    }
}

/// Whether a command went well, and what it said.
pub(crate) fn told(command: Child) -> (bool, String) {
    let ended = command.wait_with_output().expect("ours");
    (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

fn settings(backends: &[SocketAddr], more: &str) -> String {
    let servers = backends.iter().map(|address| format!("[[server]]\naddress = \"{address}\"\n"));
    let servers: String = servers.collect();
    format!(
        "listen = \"127.0.0.1:0\"\nstats = \"127.0.0.1:0\"\ncontrol = \"unix:k.sock\"\n{more}\n{servers}"
    )
}

fn address_in(line: &str) -> SocketAddr {
    let (_, rest) = line.split_once("http://").expect("a URL");
    let address = rest.split(['/', ' ']).next().unwrap_or_default();
    address.parse().unwrap_or_else(|_| panic!("no address in {line}"))
}

/// Processes that were started by that one, and have not ended.
fn children(of: u32) -> Vec<Pid> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("procfs").flatten() {
        let Ok(id) = process.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // The name stands in brackets and may hold anything (proc_pid_stat(5)).
        let words: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        if words.first() != Some(&"Z") && words.get(1) == Some(&of.to_string().as_str()) {
            found.extend(Pid::from_raw(id));
        }
    }
    found
}

/// Whether the process runs.
pub(crate) fn is_alive(id: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim().starts_with('Z')))
}

/// Waits until a process has ended, whichever started it.
pub(crate) fn await_end(id: Pid) {
    let ends = match pidfd_open(id, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return,
        opened => opened.expect("Linux 5.3"),
    };
    let mut ready = [PollFd::new(&ends, PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE).expect("a minute");
    let ended = poll(&mut ready, Some(&patience)).expect("polled");
    assert_eq!(ended, 1, "process {id:?} still runs");
}

/// `pollux serve --echo`: a backend that can be killed.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// A backend at this address; with port 0 the kernel chooses.
    pub(crate) fn start(at: SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "--echo", "--listen", &at.to_string()]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains("http://")));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address_in(&line.expect("where it listens")) }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let end = Instant::now() + PATIENCE;
        while self.counts.open.load(SeqCst) > 0 {
            assert!(Instant::now() < end, "{} are open", self.counts.open.load(SeqCst));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn answer(socket: &TcpStream, asked: &AtomicU64) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(socket);
    loop {
        let (mut path, mut id, mut len) = (String::new(), String::new(), 0);
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
        let (is_over, right) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let failed = Arc::<Mutex<Vec<_>>>::default();
        let one = |number: usize| {
            let (is_over, right, failed) = (is_over.clone(), right.clone(), failed.clone());
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
        let (end, goal) = (Instant::now() + PATIENCE, self.right.load(SeqCst) + more);
        while self.right.load(SeqCst) < goal {
            assert!(Instant::now() < end, "{:?}", self.failed.lock().expect("whole"));
            std::thread::sleep(Duration::from_millis(1));
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

/// One client.
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
                    socket.set_read_timeout(Some(PATIENCE)).expect("set");
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
        let (mut head, mut len, mut is_last) = (String::new(), 0, false);
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
