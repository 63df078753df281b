//! Starts a server and the command, and reads what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far longer than anything here takes on a busy machine; what waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    stats: SocketAddr,
}

impl Server {
    /// One that answers everything with 128 bytes, on a port of its own.
    pub(crate) fn start() -> Self {
        Self::start_with(&["--reply", "128", "--listen", "127.0.0.1:0"])
    }

    /// One with these flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "--poller", "epoll-et", "--stats", "127.0.0.1:0"]).args(flags);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("pollux starts");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("/metrics") {
            assert!(stderr.read_line(&mut said).expect("lines") > 0, "it ended: {said}");
        }
        let addresses: Vec<&str> = said
            .split("://")
            .skip(1)
            .map(|part| part.split([' ', '/']).next().expect("an address"))
            .collect();
        let stats = addresses.last().expect("the metrics").parse().expect("a socket address");
        let scheme = if said.contains(" https://") { "https" } else { "http" };
        let url = format!("{scheme}://{}/", addresses[0]);
        Self { process, url, stats }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Requests that it has answered.
    pub(crate) fn requests(&self) -> u64 {
        let mut stream = TcpStream::connect(self.stats).expect("the metrics endpoint listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        let counts = page.lines().filter(|line| line.starts_with("pollux_http_requests_total"));
        let counts = counts.map(|line| line.rsplit(' ').next().expect("a value").parse());
        let counts: Vec<u64> = counts.collect::<Result<_, _>>().expect("counts");
        assert!(!counts.is_empty(), "no counter of requests in\n{page}");
        counts.iter().sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Its standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// `pollux load` with these flags.
pub(crate) fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.arg("load").args(flags).stdin(Stdio::null());
    command
}

/// The command, started, with its outputs to be read.
pub(crate) fn started(flags: &[&str]) -> Child {
    let mut command = command(flags);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pollux starts")
}

/// Reads lines until one has `words` in it.
pub(crate) fn read_until(from: &mut impl BufRead, words: &str) {
    let mut said = String::new();
    while !said.contains(words) {
        assert!(from.read_line(&mut said).expect("lines") > 0, "no {words} in {said}");
    }
}

/// All that is left to be read.
pub(crate) fn text_of(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).expect("text");
    text
}

/// Lets a time pass: there is nothing else to wait for.
pub(crate) fn wait(time: Duration) {
    let (_keep, nobody) = channel::<()>();
    let _ = nobody.recv_timeout(time);
}

/// Runs the command to its end. Only a terminal may be sent escape codes.
pub(crate) fn load(flags: &[&str]) -> Said {
    let output = command(flags).output().expect("pollux starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let said = Said { code: output.status.code(), stdout, stderr };
    assert!(!said.stdout.contains('\x1b') && !said.stderr.contains('\x1b'), "{said:?}");
    said
}

/// Runs it and requires that all went well.
pub(crate) fn load_well(flags: &[&str]) -> Said {
    let said = load(flags);
    assert_eq!(said.code, Some(0), "{flags:?}: {said:?}");
    said
}

/// Interrupts a run until it ends: of interrupts that come before the first was taken the system keeps one.
pub(crate) fn interrupted_until_it_ends(load: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(load), Signal::INT);
        if let Some(status) = load.try_wait().expect("our own child") {
            return status;
        }
        assert!(Instant::now() < end, "still running after many interrupts");
        std::thread::yield_now();
    }
}
