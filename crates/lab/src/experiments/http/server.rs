//! The server of one run: which command starts it, when it is ready, which processes it is.
//!
//! Where one process may not hold all connections there are several on the same port, and the
//! kernel spreads connections among them by hash.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_load::{Answered, AskError, Target, ask};

use super::config;
use super::load::Load;
use super::process::Process;
use super::times::TimesSocket;
use super::tree::{Tree, threads_of};
use crate::arm::Peer;
use crate::error::{MeasureError, in_words};
use crate::host::programs;
use crate::measure::{Pass, RunSpec};
use crate::turns;

/// How long a server may take until it answers.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to connect to a server that does not say when it is ready.
const PAUSE: Duration = Duration::from_millis(5);
/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// What a server is asked for, and which answers are right.
pub(super) struct Asked {
    /// The URL.
    pub(super) url: String,
    /// The status.
    pub(super) status: u16,
    /// Length of the body, where that is known before.
    pub(super) body_bytes: Option<u64>,
}

/// A server that answers.
pub(super) struct Server {
    /// Those of its processes that were started here; at least one, all on the same port.
    processes: Vec<Process>,
    /// These and all that they have started.
    tree: Tree,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What it is asked for.
    pub(super) asked: Asked,
    /// The mechanism that it says it runs on; only pollux says so.
    pub(super) mechanism: Option<String>,
    /// Where it tells how long requests took, in the pass that asks for it.
    pub(super) times: Option<TimesSocket>,
    /// What a reader has to know of it.
    pub(super) notes: Vec<String>,
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
        turns::pin(cpu)?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        // Of several processes each has but a part of the requests.
        let is_timing = spec.pass == Pass::RequestTimes && load.processes == 1;
        let times = is_timing.then(|| TimesSocket::below(&spec.scratch));
        let (mut first, address) = started(spec, load, cpu, any, times.as_ref())?;
        let url = format!("http://{address}/");
        let answered = first_answer(&mut first, &url)?;
        let asked = Asked { url, status: 200, body_bytes: Some(load.reply_bytes as u64) };
        if let Some(what) = fault(&answered, &asked) {
            return Err(first.failed(&what));
        }
        let mut processes = vec![first];
        // Each says by itself that it listens; who answers on the port is the kernel's choice.
        for _ in 1..load.processes {
            processes.push(started(spec, load, cpu, address, None)?.0);
        }
        let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
        let tree = Tree::of(&pids).map_err(|cause| setup("the server's processes", cause))?;
        let mut server =
            Self { processes, tree, address, asked, mechanism: None, times, notes: Vec::new() };
        server.tree.adopts_orphans()?;
        // Most stay where they were started; some choose CPUs themselves.
        if let Err((pid, errno)) = server.tree.pin(cpu) {
            server.notes.push(format!("process {pid} could not be kept on CPU {cpu}: {errno}"));
        }
        server.mechanism = spec.arm.driver().map(|driver| driver.name().to_owned());
        Ok(server)
    }

    /// Says that these children of this process have nothing to do with the server.
    pub(super) fn leaves_out(&mut self, others: &[u32]) {
        self.tree.leaves_out(others);
    }

    /// How many of its processes have ended since it answered.
    pub(super) const fn ended(&self) -> u64 {
        self.tree.ended()
    }

    /// CPU time of all its processes, when they sleep.
    pub(super) fn cpu_time(&mut self) -> Duration {
        self.tree.cpu_time_asleep()
    }

    /// All its processes, those last that were started last.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.tree.pids()
    }

    /// Every thread of it, with its process.
    pub(super) fn threads(&mut self) -> Vec<(u32, u32)> {
        self.tree.look();
        threads_of(&self.tree.pids())
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
        self.tree.end();
        self.processes.iter_mut().for_each(Process::end);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tree.end();
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
    let mut start = start(spec, load, cpu, listen, times)?;
    start.command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Process::start(&start.name, start.command)?;
    let (address, mechanism) = match start.address {
        Some(address) => (address, None),
        None => announced(&mut process)?,
    };
    is_as_asked(spec.arm.driver(), mechanism)?;
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
    if let Some(driver) = spec.arm.driver() {
        let program = spec.arm.build().map_or_else(itself, |build| Ok(build.program.clone()))?;
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
    match spec.arm.peer() {
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

/// Asks as soon as somebody listens.
fn first_answer(process: &mut Process, url: &str) -> Result<Answered, MeasureError> {
    let target = Target::parse(url, None).map_err(|error| process.failed(&in_words(&error)))?;
    let start = Instant::now();
    loop {
        match ask(&target, ANSWER_PATIENCE) {
            Ok(answered) => return Ok(answered),
            // Waits on the process: one that could not start has ended.
            Err(AskError::Connect(_)) if start.elapsed() < READY_PATIENCE => {
                if process.ends_within(PAUSE, &|| false)? {
                    return Err(process.failed("ended before it listened"));
                }
            }
            Err(error) => {
                return Err(process.failed(&format!("did not answer {url}: {}", in_words(&error))));
            }
        }
    }
}

/// What is wrong with an answer: arms must do the same to be compared.
fn fault(answered: &Answered, asked: &Asked) -> Option<String> {
    if answered.status != asked.status {
        return Some(format!("answered with {}, expected {}", answered.status, asked.status));
    }
    let expected = asked.body_bytes.filter(|expected| *expected != answered.body_bytes)?;
    Some(format!("answered with {} bytes, expected {expected}", answered.body_bytes))
}

#[cfg(test)]
mod tests {
    use pollux_poller::Mechanism;

    use super::*;

    #[test]
    fn an_answer_of_another_status_or_length_is_told() {
        let asked = Asked { url: String::new(), status: 200, body_bytes: Some(128) };
        let of = |status, body_bytes| Answered { status, body_bytes, keep_alive: true };
        assert_eq!(fault(&of(200, 128), &asked), None);
        let wrong = fault(&of(500, 128), &asked);
        assert_eq!(wrong.as_deref(), Some("answered with 500, expected 200"));
        let wrong = fault(&of(200, 5), &asked);
        assert_eq!(wrong.as_deref(), Some("answered with 5 bytes, expected 128"));
        assert_eq!(fault(&of(200, 5), &Asked { body_bytes: None, ..asked }), None);
    }

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
}
