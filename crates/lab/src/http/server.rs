//! The server of one run: which command starts it, when it is ready, which processes it is.
//!
//! Where one process may not hold all connections there are several on the same port, and the
//! kernel spreads connections among them by hash.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_engine::Driver;

use super::config;
use super::load::Load;
use super::process::Process;
use super::times::TimesSocket;
use crate::error::MeasureError;
use crate::experiment::Peer;
use crate::hold::request;
use crate::host::programs;
use crate::measure::{Pass, RunSpec};

/// How long a server may take until it answers.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to connect to a server that does not say when it is ready.
const PAUSE: Duration = Duration::from_millis(5);
/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 4096;

/// A server that answers.
pub(super) struct Server {
    /// Its processes; at least one, all on the same port.
    processes: Vec<Process>,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// The mechanism that it says it runs on; only pollux says so.
    pub(super) mechanism: Option<String>,
    /// Where it tells how long requests took, in the pass that asks for it.
    pub(super) times: Option<TimesSocket>,
}

/// What is started, and how its address becomes known.
struct Start {
    name: String,
    command: Command,
    /// Chosen by the lab; otherwise the process says it.
    address: Option<SocketAddr>,
}

impl Server {
    /// Starts the server of a run and returns when it has given one correct answer.
    pub(super) fn start(spec: &RunSpec, load: &Load, cpu: usize) -> Result<Self, MeasureError> {
        super::load::pin(cpu)?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        // Of several processes each has but a part of the requests.
        let is_timing = spec.pass == Pass::RequestTimes && load.processes == 1;
        let times = is_timing.then(|| TimesSocket::below(&spec.scratch));
        let (mut first, address) = started(spec, load, cpu, any, times.as_ref())?;
        let connection = connect(&mut first, address)?;
        check_answer(connection, address, load).map_err(|what| first.failed(&what))?;
        let mut processes = vec![first];
        // Each says by itself that it listens; who answers on the port is the kernel's choice.
        for _ in 1..load.processes {
            processes.push(started(spec, load, cpu, address, None)?.0);
        }
        let mechanism = spec.driver()?.map(|driver| driver.name().to_owned());
        Ok(Self { processes, address, mechanism, times })
    }

    /// The numbers of all its processes and of what they have started, looked up once.
    pub(super) fn family(&mut self) -> Vec<u32> {
        self.processes.iter_mut().flat_map(Process::family).collect()
    }

    /// A failure of it, with the last that it said.
    pub(super) fn failed(&mut self, what: &str) -> MeasureError {
        self.processes[0].failed(what)
    }

    /// Ends it.
    ///
    /// # Errors
    /// [`MeasureError::Program`] where it has ended already, and was not there for the whole
    /// window.
    pub(super) fn end(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        for process in &mut self.processes {
            if process.ends_within(Duration::ZERO, is_interrupted)? {
                return Err(process.failed("ended while it was measured"));
            }
        }
        self.processes.iter_mut().for_each(Process::end);
        Ok(())
    }
}

/// Starts one process of the server, and waits until it says where it listens, if it does.
fn started(
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    listen: SocketAddr,
    times: Option<&TimesSocket>,
) -> Result<(Process, SocketAddr), MeasureError> {
    let start = start(spec, load, cpu, listen, times)?;
    let mut process = Process::start(&start.name, start.command, Stdio::null())?;
    let (address, mechanism) = match start.address {
        Some(address) => (address, None),
        None => announced(&mut process)?,
    };
    is_as_asked(spec.driver()?, mechanism)?;
    Ok((process, address))
}

/// A server of pollux must say that it runs on the driver that it was asked for: one that says
/// nothing could run on any. Other servers have none.
fn is_as_asked(asked: Option<Driver>, said: Option<String>) -> Result<(), MeasureError> {
    let Some(asked) = asked else { return Ok(()) };
    let got = said.unwrap_or_else(|| "none that it names".to_owned());
    match got.split([',', ' ']).any(|word| word == asked.name()) {
        true => Ok(()),
        false => Err(MeasureError::WrongMechanism { asked, got }),
    }
}

/// The command of each arm. This is the only place that knows them.
fn start(
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    listen: SocketAddr,
    times: Option<&TimesSocket>,
) -> Result<Start, MeasureError> {
    let listen = listen.to_string();
    let itself = || std::env::current_exe().map_err(|cause| setup("this program's path", cause));
    if let Some(driver) = spec.driver()? {
        let program = spec.server.clone().map_or_else(itself, Ok)?;
        let mut command = Command::new(program);
        command.arg("serve").args(["--reply", &load.reply_bytes.to_string()]);
        command.args(["--listen", &listen, "--poller", driver.name(), "--threads", "1"]);
        if load.processes > 1 {
            command.args(["--listeners", "shared"]);
        }
        command.args(["--pin", &cpu.to_string()]);
        // As the others are told: no run is longer.
        command.args(["--idle-timeout", "1h"]);
        if load.is_split {
            command.arg("--split-reply");
        }
        if let Some(socket) = times {
            command.args(["--request-times", "--stats", &socket.listen()]);
        }
        return Ok(Start { name: "pollux serve".to_owned(), command, address: None });
    }
    match spec.peer()? {
        None => Err(MeasureError::Spec("http needs a driver or a peer".into())),
        Some(floor @ (Peer::RawEpoll | Peer::RawUring)) => {
            let mut command = Command::new(itself()?);
            command.args(["lab", "floor", floor.name(), "--listen", &listen]);
            command.args(["--reply", &load.reply_bytes.to_string()]);
            if !load.is_kept_alive {
                command.arg("--close");
            }
            Ok(Start { name: floor.to_string(), command, address: None })
        }
        Some(peer) if load.processes > 1 => {
            Err(MeasureError::Spec(format!("{peer} in several processes")))
        }
        Some(peer) => start_peer(peer, load, &spec.scratch),
    }
}

fn start_peer(peer: Peer, load: &Load, scratch: &Path) -> Result<Start, MeasureError> {
    let name = peer.name().to_owned();
    let missing = programs::missing(peer.name(), peer.package().unwrap_or_default());
    let program: PathBuf = programs::find(peer.name()).ok_or_else(|| MeasureError::Program {
        program: name.clone(),
        what: missing.unwrap_or_else(|| "not found".to_owned()),
    })?;
    let folder = scratch.join(peer.name());
    let address = free_address()?;
    let command = std::fs::create_dir_all(&folder)
        .and_then(|()| config::command(peer, &program, address, load, &folder))
        .map_err(|cause| setup("a configuration", cause))?;
    let command = command.ok_or_else(|| MeasureError::Spec(format!("{peer} is no server")))?;
    Ok(Start { name, command, address: Some(address) })
}

fn setup(what: &str, cause: std::io::Error) -> MeasureError {
    MeasureError::Setup { what: what.to_owned(), cause }
}

/// A port that was free a moment ago, for servers that can't choose one and say which. One that is
/// taken meanwhile makes the run fail, and the arm is tried again in the next block.
fn free_address() -> Result<SocketAddr, MeasureError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(|cause| setup("a free port", cause))
}

/// What is said of a program that ends or waits without the line that servers of pollux begin with.
const NO_ADDRESS: &str = "did not say where it listens; expected a pollux that has `serve`, which \
                          prints \"http://ADDRESS:PORT\" when it is ready";

/// The address and what stands in brackets behind it: `…: http://127.0.0.1:8080 (epoll-et)`.
fn announced(process: &mut Process) -> Result<(SocketAddr, Option<String>), MeasureError> {
    let start = Instant::now();
    loop {
        let left = READY_PATIENCE.saturating_sub(start.elapsed());
        let Some(line) = process.line_within(left) else {
            return Err(process.failed(NO_ADDRESS));
        };
        if let Some(found) = address_in(line) {
            return Ok(found);
        }
    }
}

fn address_in(line: &str) -> Option<(SocketAddr, Option<String>)> {
    let (_, rest) = line.split_once("http://")?;
    let (address, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let words = rest.trim().strip_prefix('(').and_then(|words| words.split_once(')'));
    Some((address.trim_end_matches('/').parse().ok()?, words.map(|(words, _)| words.to_owned())))
}

/// Connects as soon as somebody listens.
fn connect(process: &mut Process, address: SocketAddr) -> Result<TcpStream, MeasureError> {
    let start = Instant::now();
    loop {
        match TcpStream::connect_timeout(&address, ANSWER_PATIENCE) {
            Ok(connection) => return Ok(connection),
            Err(error) if start.elapsed() > READY_PATIENCE => {
                return Err(process.failed(&format!("did not listen on {address}: {error}")));
            }
            // Waits on the process: one that could not start has ended.
            Err(_) if process.ends_within(PAUSE, &|| false)? => {
                return Err(process.failed("ended before it listened"));
            }
            Err(_) => {}
        }
    }
}

/// One request; the answer must be 200 with a body of the right length, or the arms would not do
/// the same.
fn check_answer(mut connection: TcpStream, address: SocketAddr, load: &Load) -> Result<(), String> {
    let in_words = |error: std::io::Error| format!("gave no answer: {error}");
    connection.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(in_words)?;
    connection.write_all(request(address).as_bytes()).map_err(in_words)?;
    let mut answer = Vec::new();
    let mut part = [0; HEAD_BYTES_MAX];
    loop {
        if let Some(head_len) = head_len(&answer) {
            if !answer.starts_with(b"HTTP/1.1 200") {
                let line = String::from_utf8_lossy(&answer).lines().next().map(str::to_owned);
                return Err(format!("answered {}", line.unwrap_or_default()));
            }
            let body_bytes = body_len(&answer[..head_len]);
            if body_bytes != Some(load.reply_bytes) {
                return Err(format!("the body is {body_bytes:?} bytes, not {}", load.reply_bytes));
            }
            if answer.len() >= head_len + load.reply_bytes {
                return Ok(());
            }
        } else if answer.len() > HEAD_BYTES_MAX {
            return Err("answered with an endless head".to_owned());
        }
        match connection.read(&mut part).map_err(in_words)? {
            0 => return Err("closed before its answer was whole".to_owned()),
            len => answer.extend_from_slice(&part[..len]),
        }
    }
}

fn head_len(answer: &[u8]) -> Option<usize> {
    answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn body_len(head: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head);
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use pollux_poller::Mechanism;

    use super::*;

    #[test]
    fn the_address_is_read_with_what_stands_in_brackets() {
        let line = "pollux serve: http://127.0.0.1:8080 (epoll-et, 1 thread)";
        let (address, words) = address_in(line).expect("an address");
        assert_eq!((address.port(), words.as_deref()), (8080, Some("epoll-et, 1 thread")));
        assert_eq!(address_in("ready on http://[::1]:81/").map(|found| found.1), Some(None));
        assert_eq!(address_in("listening on 8080"), None);
    }

    #[test]
    fn a_server_that_does_not_name_its_driver_is_not_believed() {
        let driver = Driver::Readiness(Mechanism::EpollEt);
        let said = |words: &str| is_as_asked(Some(driver), Some(words.to_owned()));
        assert!(said("epoll-et, 1 thread").is_ok());
        for words in ["epoll, 1 thread", "epoll-et2", ""] {
            assert!(matches!(said(words), Err(MeasureError::WrongMechanism { .. })), "{words}");
        }
        assert!(is_as_asked(Some(driver), None).is_err());
        assert!(is_as_asked(None, None).is_ok(), "a server that is not ours");
    }

    #[test]
    fn lengths_are_read_from_a_head() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\n\r\nbody";
        assert_eq!(head_len(answer), Some(answer.len() - 4));
        assert_eq!(body_len(answer), Some(12));
        assert_eq!((head_len(b"HTTP/1.1 200"), body_len(b"HTTP/1.1 200\r\n")), (None, None));
    }
}
