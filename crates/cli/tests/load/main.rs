//! `pollux load` as a user starts it, against `pollux serve` in a process of its own.
//!
//! | file | what it holds the command to |
//! |---|---|
//! | `early` | answers that begin or come before their request has left: echoed and refused bodies |
//! | `endings` | exit codes, signals, findings that cannot be missed, the reasons of a failure, wrong input |
//! | `http2` | streams, counts as the server has them, servers that are stopped and read their settings anew, TLS, bodies |
//! | `lists` | requests, weights, crowds, sockets and bodies arrive at the server as asked, from files and patterns |
//! | `sessions` | cookies, certificates of clients, other addresses than the URL's |
//! | `results` | every form of a result can be read, by Prometheus too; compared and added up; the search for the capacity |
//! | `standstill` | servers that stand still or never answer: seconds, exit codes, whose fault |
//! | `figures` | rates, quantiles and memory are what must come out |
//!
//! Here servers, nginx and the command are started. Only `figures` looks at times, with bounds that a busy machine
//! keeps.

mod early;
mod endings;
mod figures;
mod http2;
mod lists;
mod results;
mod sessions;
mod standstill;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use pollux_testing::{Output, Process, Signal, addresses, get, wait_until};
use serde_json::Value;

/// A running server.
pub(crate) struct Server {
    process: Process,
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
        let mut process = Process::start(&mut command);
        let stats = addresses(&process.wait_for_stderr_line("/metrics"))[0];
        let said = process.stderr_lines().join("\n");
        let (start, rest) = said.split_once("://").expect("a URL");
        let scheme = if start.ends_with("https") { "https" } else { "http" };
        let authority = rest.split(['/', ' ', '\n']).next().unwrap_or_default();
        Self { url: format!("{scheme}://{authority}/"), process, stats }
    }

    /// Its process, as flags name it.
    pub(crate) fn id(&self) -> String {
        self.process.id().to_string()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for so many answers more: the load runs then, and takes signals.
    pub(crate) fn answers(&self, more: u64) {
        let before = self.requests();
        wait_until(format_args!("{more} answers"), || self.requests() >= before + more);
    }

    /// Requests that it has answered.
    pub(crate) fn requests(&self) -> u64 {
        let page = get(self.stats, "/metrics");
        let counts = page.lines().filter(|line| line.starts_with("pollux_http_requests_total"));
        let counts = counts.map(|line| line.rsplit(' ').next().expect("a value").parse());
        let counts: Vec<u64> = counts.collect::<Result<_, _>>().expect("counts");
        assert!(!counts.is_empty(), "no counter of requests in\n{page}");
        counts.iter().sum()
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
    /// All that a command wrote to its end.
    pub(crate) fn of(Output { status, stdout, stderr }: Output) -> Self {
        Self { code: status.code(), stdout, stderr }
    }

    /// What it wrote to standard error, but for the mechanism that it took where io_uring is forbidden.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        let is_known = |line: &&str| line.starts_with("pollux load: epoll-et instead of uring: ");
        self.stderr.lines().filter(|line| !is_known(line)).collect()
    }

    /// Its standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The kinds of the findings of a result.
pub(crate) fn kinds(json: &Value) -> Vec<&str> {
    let findings = json["findings"].as_array().expect("findings").iter();
    findings.map(|finding| finding["kind"].as_str().expect("a kind")).collect()
}

/// `pollux load` with these flags.
pub(crate) fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.arg("load").args(flags).stdin(Stdio::null());
    command
}

/// The command, started, with its outputs to be read.
pub(crate) fn started(flags: &[&str]) -> Process {
    Process::start(command(flags).stdout(Stdio::piped()))
}

/// Lets a time pass: there is nothing else to wait for.
pub(crate) fn wait(time: Duration) {
    let (_keep, silent) = channel::<()>();
    let _ = silent.recv_timeout(time);
}

/// Runs the command to its end. Only a terminal may be sent escape codes.
pub(crate) fn load(flags: &[&str]) -> Said {
    let said = Said::of(Process::run(&mut command(flags)));
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
pub(crate) fn interrupt_until_it_ends(load: &mut Process) {
    wait_until("the end by many interrupts", || {
        load.signal(Signal::INT);
        load.status().is_some()
    });
}

/// nginx on a socket in a folder, whose files it serves.
pub(crate) struct Nginx {
    process: Process,
    pub(crate) socket: String,
}

impl Nginx {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, "")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// One with further words in the block of its server.
    pub(crate) fn start_with(folder: &Path, words: &str) -> Self {
        let name = folder.to_str().expect("a plain name");
        let socket = format!("{name}/nginx.sock");
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {name}/{kind};"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {name}/pid; error_log {name}/log;\n\
             events {{}}\nhttp {{ access_log off; {temporary}\n\
             server {{ listen unix:{socket}; root {name}; {words} }} }}\n"
        );
        std::fs::write(folder.join("nginx.conf"), config).expect("written");
        let mut command = Command::new("nginx");
        command.args(["-p", name, "-c", "nginx.conf", "-e", "log"]);
        let process = Process::start(&mut command);
        wait_until("nginx", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        Self { process, socket }
    }
}
