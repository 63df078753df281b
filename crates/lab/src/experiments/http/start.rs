//! The commands and configurations that servers are started by, and where they listen then.
//!
//! Servers of pollux and the baseline servers choose a port and print it; all others are given one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_processes::Program;

use super::configurations::command;
use super::load::Load;
use super::server::{CommandLine, write_site};
use super::times::TimesSocket;
use super::{BASELINE_SERVERS, PEERS};
use crate::arm::{ArmKind, RAW_EPOLL};
use crate::error::MeasureError;
use crate::host;
use crate::measure::RunSpec;

/// How long a server may take until it says where it listens.
const READY_PATIENCE: Duration = Duration::from_secs(10);

/// Where a server listens, and where a proxy finds the server behind it.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) listen: SocketAddr,
    pub(super) behind: Option<SocketAddr>,
}

/// What is started, and how its address becomes known.
struct Start {
    name: String,
    command: Command,
    /// Chosen by the lab; otherwise the process says it.
    address: Option<SocketAddr>,
}

/// Starts one process of the server, and waits until it says where it listens, if it does.
pub(super) fn started(
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    ends: Ends,
    times: Option<&TimesSocket>,
) -> Result<(Program, SocketAddr), MeasureError> {
    let mut start = start(spec, load, cpu, ends, times)?;
    start.command.stdin(Stdio::null());
    let mut process = match &spec.arm {
        ArmKind::Server { .. } => Program::start_reading_all(&start.name, start.command)?,
        _ => {
            start.command.stdout(Stdio::null());
            Program::start(&start.name, start.command)?
        }
    };
    let (address, mechanism) = match start.address {
        Some(address) => (address, None),
        None => announced(&mut process)?,
    };
    if load.installed.is_none() {
        is_as_asked(spec.arm.driver(), mechanism)?;
    }
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

/// The command of each arm that the lab starts. This is the only place that knows them.
fn start(
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    ends: Ends,
    times: Option<&TimesSocket>,
) -> Result<Start, MeasureError> {
    if let ArmKind::Server { command } = &spec.arm {
        return start_foreign(command, spec, load, cpu, ends.behind);
    }
    if let Some(name) = &load.installed {
        let start = start_peer(name, load, &spec.scratch, None)?;
        return Ok(Start { command: on_mechanism(spec, start.command)?, ..start });
    }
    if let Some(driver) = spec.arm.driver() {
        let program = pollux_of(spec)?;
        if let Some(behind) = ends.behind {
            let command = proxy(&program, driver, cpu, behind, load, &spec.scratch);
            return Ok(Start { name: "pollux proxy".to_owned(), command, address: None });
        }
        let mut command = serve(&program, driver, cpu, ends.listen, load);
        if load.is_file {
            let folder = spec.scratch.join(format!("pollux-{}", std::process::id()));
            let root = write_site(&folder, load).map_err(|cause| setup("a folder", cause))?;
            command.arg(root);
        } else {
            command.args(["--reply", &load.reply_bytes.to_string()]);
        }
        secure(&mut command, load);
        if load.processes > 1 {
            command.args(["--listeners", "shared"]);
        }
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
        Some(name) if BASELINE_SERVERS.iter().any(|server| server.name == name) => {
            let mut command = baseline_server(name, ends.listen, load)?;
            if !load.is_kept_alive {
                command.arg("--close");
            }
            Ok(Start { name: name.to_owned(), command, address: None })
        }
        Some(peer) if load.processes > 1 => {
            Err(MeasureError::Spec(format!("{peer} in several processes")))
        }
        Some(peer) => start_peer(peer, load, &spec.scratch, ends.behind),
    }
}

/// The server behind a proxy, on its own CPU: the same for every arm, and the cheapest that works on
/// every kernel.
pub(super) fn backend(load: &Load, cpu: usize) -> Result<(Program, SocketAddr), MeasureError> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut command = match load.is_closed_behind {
        false => serve(&itself()?, Driver::Readiness(Mechanism::EpollEt), cpu, any, load),
        true => baseline_server(RAW_EPOLL.name, any, load)?,
    };
    match load.is_closed_behind {
        false => command.args(["--reply", &load.reply_bytes.to_string()]),
        true => command.arg("--close"),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Program::start("the server behind the proxy", command)?;
    let (address, _) = announced(&mut process)?;
    Ok((process, address))
}

/// `command` on the mechanism of the arm, by `pollux run`, which refuses what is out of its reach; as it is
/// where the arm has none.
pub(crate) fn on_mechanism(spec: &RunSpec, command: Command) -> Result<Command, MeasureError> {
    let Some(driver) = spec.arm.driver() else { return Ok(command) };
    let mut run = Command::new(pollux_of(spec)?);
    run.args(["run", "--poller", driver.name(), "--"]);
    run.arg(command.get_program()).args(command.get_args());
    Ok(run)
}

/// The pollux of an arm: a build that the user named, or this one.
fn pollux_of(spec: &RunSpec) -> Result<PathBuf, MeasureError> {
    spec.arm.build().map_or_else(itself, |build| Ok(build.program.clone()))
}

fn baseline_server(name: &str, listen: SocketAddr, load: &Load) -> Result<Command, MeasureError> {
    let mut command = Command::new(itself()?);
    command.args(["lab", "baseline", name, "--listen", &listen.to_string()]);
    command.args(["--reply", &load.reply_bytes.to_string()]);
    Ok(command)
}

fn itself() -> Result<PathBuf, MeasureError> {
    std::env::current_exe().map_err(|cause| setup("this program's path", cause))
}

fn serve(program: &Path, driver: Driver, cpu: usize, listen: SocketAddr, load: &Load) -> Command {
    let mut command = Command::new(program);
    command.arg("serve");
    common(&mut command, driver, cpu, listen, load);
    command
}

/// With its limits and deadlines.
fn proxy(
    program: &Path,
    driver: Driver,
    cpu: usize,
    behind: SocketAddr,
    load: &Load,
    scratch: &Path,
) -> Command {
    let mut command = Command::new(program);
    command.arg("proxy").args(["--backend", &behind.to_string()]);
    common(&mut command, driver, cpu, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), load);
    command.args(["--upstream-idle-timeout", "1h"]).args(&load.options);
    command.args(["--upstream-idle-max", &load.connections.to_string()]);
    secure(&mut command, load);
    if load.is_logged {
        command.arg("--access-log").arg(scratch.join(format!("proxy-{}.log", std::process::id())));
    }
    command
}

fn secure(command: &mut Command, load: &Load) {
    if let Some(certificate) = &load.certificate {
        command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key);
    }
}

fn common(command: &mut Command, driver: Driver, cpu: usize, listen: SocketAddr, load: &Load) {
    command.args(["--listen", &listen.to_string(), "--poller", driver.name()]);
    command.args(["--threads", &load.threads.to_string()]);
    // As for the others: no run is longer.
    command.args(["--pin", &cpu.to_string(), "--idle-timeout", "1h"]);
}

fn start_peer(
    name: &str,
    load: &Load,
    scratch: &Path,
    behind: Option<SocketAddr>,
) -> Result<Start, MeasureError> {
    let peer = PEERS.into_iter().find(|peer| peer.name == name);
    let peer = peer.ok_or_else(|| MeasureError::Spec(format!("{name} is not a server")))?;
    let program: PathBuf = host::find_program(name).ok_or_else(|| MeasureError::Program {
        program: name.to_owned(),
        what: (peer.missing)().unwrap_or_else(|| "not found".to_owned()),
    })?;
    // Each copy of a baseline has its own.
    let folder = scratch.join(format!("{name}-{}", std::process::id()));
    let address = free_address()?;
    let command = fs::create_dir_all(&folder)
        .and_then(|()| command(name, &program, Ends { listen: address, behind }, load, &folder))
        .map_err(|cause| setup("a configuration", cause))?;
    let command = command.ok_or_else(|| MeasureError::Spec(format!("{name} is not a server")))?;
    Ok(Start { name: name.to_owned(), command, address: Some(address) })
}

/// A server of the user: it says nothing that is read, and what it prints are its last words.
fn start_foreign(
    line: &str,
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    behind: Option<SocketAddr>,
) -> Result<Start, MeasureError> {
    if load.processes > 1 {
        return Err(MeasureError::Spec("a server of the user in several processes".to_owned()));
    }
    let address = free_address()?;
    let folder = spec.scratch.join(format!("server-{}", std::process::id()));
    let CommandLine { name, command } =
        CommandLine::new(line, &spec.axes, load, Ends { listen: address, behind }, cpu, &folder)?;
    Ok(Start { name, command, address: Some(address) })
}

pub(super) fn setup(what: &str, cause: io::Error) -> MeasureError {
    MeasureError::Setup { what: what.to_owned(), cause }
}

/// A port that was free a moment ago, for servers that can't choose one and say which. One that is
/// taken meanwhile makes the run fail, and the arm is tried again in the next block.
pub(crate) fn free_address() -> Result<SocketAddr, MeasureError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(|cause| setup("a free port", cause))
}

/// What is said of a program that ends or waits without the line that servers of pollux begin with.
const NO_ADDRESS: &str = "did not say where it listens; expected a pollux that has `serve`, which \
                          prints \"http://ADDRESS:PORT\" when it is ready";

/// The address and what stands in brackets behind it: `…: http://127.0.0.1:8080 to … (epoll-et)`.
fn announced(process: &mut Program) -> Result<(SocketAddr, Option<String>), MeasureError> {
    let start = Instant::now();
    loop {
        let left = READY_PATIENCE.saturating_sub(start.elapsed());
        let Ok(Some(line)) = process.line_within(left) else {
            return Err(process.failed(NO_ADDRESS).into());
        };
        if let Some(found) = address_in(&line) {
            return Ok(found);
        }
    }
}

fn address_in(line: &str) -> Option<(SocketAddr, Option<String>)> {
    let (_, rest) = ["http://", "https://"].iter().find_map(|scheme| line.split_once(scheme))?;
    let (address, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let words = rest.split_once('(').and_then(|(_, words)| words.split_once(')'));
    Some((address.trim_end_matches('/').parse().ok()?, words.map(|(words, _)| words.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_with_what_stands_in_brackets() {
        let line = "pollux serve: http://127.0.0.1:8080 (epoll-et, 1 thread)";
        let (address, words) = address_in(line).expect("an address");
        assert_eq!((address.port(), words.as_deref()), (8080, Some("epoll-et, 1 thread")));
        let line = "pollux proxy: http://127.0.0.1:80 to 127.0.0.1:81 (uring, 1 thread)";
        let (address, words) = address_in(line).expect("an address");
        assert_eq!((address.port(), words.as_deref()), (80, Some("uring, 1 thread")));
        let line = "pollux serve: https://127.0.0.1:8443 (epoll, 1 thread)";
        assert_eq!(address_in(line).expect("an address").0.port(), 8443);
        assert_eq!(address_in("ready on http://[::1]:81/").map(|found| found.1), Some(None));
        assert_eq!(address_in("listening on 8080"), None);
    }

    #[test]
    fn a_server_that_does_not_name_its_driver_is_refused() {
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
