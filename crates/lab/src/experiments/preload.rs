//! `preload`: an installed program, unmodified, on other event mechanisms by `pollux run`; what does a
//! request cost it?
//!
//! The baseline is the program as it is. On `epoll` the library in between passes calls on, uncounted;
//! elsewhere it puts another mechanism in their place. Web servers are asked by `http`'s load, the
//! stores by one of their own ([`Store`]).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_host::{self as host, Program, Tree, patience, threads_of};
use pollux_poller::Mechanism;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::http::{self, CONNECTIONS, OF_SERVERS, REPLY_BYTES, Role, Served};
use super::{Cost, Description, Experiment, Generator, Needs, SERVER_COST, Started, with_pollers};
use crate::arm::Peer;
use crate::axis::{Axes, Axis, AxisKind};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::{self, Life, Subject, SubjectInfo, TurnSize};

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(5);
/// Keys of one connection.
const KEYS: u64 = 16;
/// Length of a value.
const VALUE_BYTES: usize = 100;
/// Longest command or answer: a value, a key, and what is around them.
const MESSAGE_BYTES_MAX: usize = VALUE_BYTES + 64;

/// An installed program on another mechanism than the one that it asks for.
pub(crate) struct Preload;

/// The program as it is.
const AS_IS: Peer = Peer { name: "as-is", missing: || None };

/// Names of programs, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 4] = [
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("redis-server", "redis-server"),
    ("memcached", "memcached"),
];

const AXES: &[Axis] = &[
    Axis {
        name: "program",
        about: "the program; a web server is asked for a page, a store sets and gets values of 100 bytes",
        original: None,
        kind: AxisKind::Word(&[PROGRAMS[0].0, PROGRAMS[1].0, PROGRAMS[2].0, PROGRAMS[3].0]),
        default: "nginx,haproxy,redis-server,memcached",
    },
    CONNECTIONS,
    REPLY_BYTES,
];

/// What `pollux run` offers to programs that are written for epoll.
const DRIVERS: [Driver; Mechanism::PLAIN.len()] = with_pollers(Mechanism::PLAIN);

const DESCRIPTION: Description = Description {
    name: "preload",
    title: "Programs as they are",
    about: "an installed program on other mechanisms than epoll, unmodified, by `pollux run`: what does a \
            request cost it?",
    question: "What does an event mechanism cost a program that was written for epoll?",
    axes: AXES,
    drivers: &DRIVERS,
    baseline: AS_IS.name,
    ways: &[AS_IS],
    cost: Cost::us("server CPU per request", "µs/request"),
    ..OF_SERVERS
};

impl Experiment for Preload {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        let connections = axes.number(CONNECTIONS.name);
        format!("{} on {connections} connections", program(axes).0)
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        let (name, package) = program(axes);
        host::missing_program(name, package)
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let needs = Needs::of_server(axes.number(CONNECTIONS.name));
        // `pollux run`, and a library that is loaded first.
        Needs { start: needs.start + SERVER_COST, ..needs }
    }

    fn generator(&self, _: &Axes) -> Option<Generator> {
        Some(Generator::Pollux)
    }

    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(match Protocol::of(program(&spec.axes).0) {
            Some(protocol) => Box::new(Store::start(spec, protocol, is_interrupted)?),
            None => Box::new(Served::start(spec, Role::Answers, is_interrupted)?),
        })
    }
}

/// The program of a point, with its package.
fn program(axes: &Axes) -> (&'static str, &'static str) {
    let is_it = |(name, _): &(&str, &str)| axes.is(AXES[0].name, name);
    PROGRAMS.into_iter().find(is_it).unwrap_or(PROGRAMS[0])
}

/// What a store understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    /// RESP of Redis, version 2.
    Redis,
    /// The text protocol of memcached.
    Memcached,
}

impl Protocol {
    /// That of a program; none of one that is not a store.
    fn of(program: &str) -> Option<Self> {
        match program {
            "redis-server" => Some(Self::Redis),
            "memcached" => Some(Self::Memcached),
            _ => None,
        }
    }

    /// The command that keeps nothing on disk, and has one thread that serves.
    fn command(self, port: u16) -> Command {
        let port = port.to_string();
        match self {
            Self::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
                command.args(["--appendonly", "no", "--daemonize", "no"]);
                command
            }
            Self::Memcached => {
                let mut command = Command::new("memcached");
                command.args(["-p", &port, "-U", "0", "-l", "127.0.0.1", "-t", "1"]);
                if rustix::process::geteuid().is_root() {
                    command.args(["-u", "root"]);
                }
                command
            }
        }
    }

    /// The bytes of a connection's command by its number, and the answer to it: a value is set, then got.
    fn exchange(self, connection: usize, number: u64) -> (String, String) {
        let pair = number / 2;
        let is_get = number % 2 == 1;
        let key = format!("{connection}:{}", pair % KEYS);
        let value = format!("{pair:0VALUE_BYTES$}");
        match (self, is_get) {
            (Self::Redis, false) => {
                let key_len = key.len();
                let len = value.len();
                let set =
                    format!("*3\r\n$3\r\nSET\r\n${key_len}\r\n{key}\r\n${len}\r\n{value}\r\n");
                (set, "+OK\r\n".to_owned())
            }
            (Self::Redis, true) => {
                let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
                (get, format!("${}\r\n{value}\r\n", value.len()))
            }
            (Self::Memcached, false) => {
                let set = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
                (set, "STORED\r\n".to_owned())
            }
            (Self::Memcached, true) => {
                let found = format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
                (format!("get {key}\r\n"), found)
            }
        }
    }
}

/// A connection with one command under way at most.
struct Connection {
    stream: TcpStream,
    /// Commands that were sent.
    sent: u64,
    expected: String,
    /// What has come of the answer.
    received: Vec<u8>,
}

/// A store under load, in turns: connections that set a value and get it back, each with its next command as soon as
/// the last is answered. Values differ and are checked.
struct Store {
    program: Program,
    tree: Tree,
    protocol: Protocol,
    connections: Vec<Connection>,
    watched: OwnedFd,
    mechanism: Option<String>,
    answers: u64,
    generator_before: Duration,
}

impl Store {
    /// Starts the store of the arm and opens all connections to it.
    fn start(
        spec: &RunSpec,
        protocol: Protocol,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let [cpu, own_cpu] = subject::cpus()?;
        subject::pin(cpu)?;
        let mut tree = Tree::of_this_process()?;
        let address = http::free_address()?;
        let command = protocol.command(address.port());
        let name = command.get_program().to_string_lossy().into_owned();
        let mut command = http::on_mechanism(spec, command)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir(&spec.scratch);
        let mut program = Program::start(&name, command)?;
        let first = connected(&mut program, &mut tree, address, is_interrupted)?;
        tree.look();
        if let Err((pid, errno)) = tree.pin(cpu) {
            let what = format!("process {pid} could not be kept on CPU {cpu}: {errno}");
            return Err(program.failed(&what).into());
        }
        subject::pin(own_cpu)?;
        let watched =
            epoll::create(CreateFlags::CLOEXEC).map_err(MeasureError::io("epoll_create1"))?;
        let others = (1..spec.count("connections")).map(|_| TcpStream::connect(address));
        let mut connections = Vec::new();
        for stream in std::iter::once(Ok(first)).chain(others) {
            let stream = stream.map_err(MeasureError::io("connect"))?;
            stream.set_nodelay(true).map_err(MeasureError::io("setsockopt"))?;
            stream.set_nonblocking(true).map_err(MeasureError::io("fcntl"))?;
            let data = EventData::new_u64(connections.len() as u64);
            epoll::add(&watched, &stream, data, EventFlags::IN)
                .map_err(MeasureError::io("epoll_ctl"))?;
            let expected = String::new();
            let received = Vec::with_capacity(MESSAGE_BYTES_MAX);
            connections.push(Connection { stream, sent: 0, expected, received });
        }
        let mechanism = spec.arm.driver().map(|driver| driver.name().to_owned());
        let answers = 0;
        let generator_before = subject::own_cpu_time();
        Ok(Self {
            program,
            tree,
            protocol,
            connections,
            watched,
            mechanism,
            answers,
            generator_before,
        })
    }

    /// Sends the next command of a connection. It fits into the socket, as nothing else is on its way.
    fn send(&mut self, number: usize) -> Result<(), MeasureError> {
        let connection = &mut self.connections[number];
        let (command, expected) = self.protocol.exchange(number, connection.sent);
        let sent = connection.stream.write(command.as_bytes());
        if sent.map_err(MeasureError::io("write of a command"))? < command.len() {
            return Err(self.program.failed("took a part of a command").into());
        }
        connection.sent += 1;
        connection.expected = expected;
        connection.received.clear();
        Ok(())
    }

    /// Reads what came on a connection; whether its answer is whole.
    fn is_answered(&mut self, number: usize) -> Result<bool, MeasureError> {
        let connection = &mut self.connections[number];
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        match connection.stream.read(&mut buffer) {
            Ok(0) => return Err(self.program.failed("closed a connection").into()),
            Ok(len) => connection.received.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(cause) => return Err(MeasureError::Io { call: "read of an answer", cause }),
        }
        let expected = connection.expected.as_bytes();
        let received = &connection.received;
        if received != expected.get(..received.len()).unwrap_or_default() {
            let found = String::from_utf8_lossy(received).escape_debug().to_string();
            let expected = connection.expected.escape_debug().to_string();
            let what = format!("answered \"{found}\", expected \"{expected}\"");
            return Err(self.program.failed(&what).into());
        }
        Ok(received.len() == expected.len())
    }
}

impl Subject for Store {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        let start = Instant::now();
        let units = size.units.unwrap_or(u64::MAX);
        let mut begun = units.min(self.connections.len() as u64);
        for number in 0..begun as usize {
            self.send(number)?;
        }
        let mut answered = 0;
        let mut events = Vec::with_capacity(self.connections.len());
        let patience = Timespec::try_from(patience::SERVER_LISTENS).expect("some seconds");
        while answered < begun {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.watched, buffer, Some(&patience)) {
                Ok(0) => {
                    let what =
                        format!("gave no answer for {} s", patience::SERVER_LISTENS.as_secs());
                    return Err(self.program.failed(&what).into());
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(MeasureError::io("epoll_wait")(errno)),
            }
            let is_over = start.elapsed() >= size.length;
            for event in events.drain(..) {
                let number = event.data.u64() as usize;
                if self.is_answered(number)? {
                    answered += 1;
                    if !is_over && begun < units {
                        self.send(number)?;
                        begun += 1;
                    }
                }
            }
        }
        self.answers += answered;
        Ok(answered)
    }

    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(http::cpu_time_of(&mut self.tree))
    }

    fn threads(&mut self) -> Vec<(u32, u32)> {
        self.tree.look();
        threads_of(&self.tree.pids())
    }

    fn described(&self) -> SubjectInfo {
        SubjectInfo {
            mechanism: self.mechanism.clone(),
            generator: Some("the lab's own, a loop on epoll".to_owned()),
            wave: self.connections.len() as u64,
            ..SubjectInfo::default()
        }
    }

    fn end(mut self: Box<Self>) -> Result<Life, MeasureError> {
        self.tree.look();
        if self.program.ends_within(Duration::ZERO, &|| false)? {
            return Err(self.program.failed("ended while it was measured").into());
        }
        self.tree.end();
        self.program.end();
        let used = subject::own_cpu_time().saturating_sub(self.generator_before);
        let each = used.as_secs_f64() * 1e6 / self.answers.max(1) as f64;
        Ok(Life {
            figures: [("generator_us_per_request".to_owned(), each)].into(),
            ..Life::default()
        })
    }
}

/// Connects as soon as the store listens.
fn connected(
    program: &mut Program,
    tree: &mut Tree,
    address: SocketAddr,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<TcpStream, MeasureError> {
    let start = Instant::now();
    loop {
        let error = match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if !tree.is_alive() {
            let how = program.how_it_ended();
            return Err(program.failed(&format!("{how} before it listened")).into());
        }
        if start.elapsed() > patience::SERVER_LISTENS {
            let waited = patience::SERVER_LISTENS.as_secs();
            let what = format!("did not listen at {address}, {waited} s after its start: {error}");
            return Err(program.failed(&what).into());
        }
        if is_interrupted() {
            return Err(MeasureError::Interrupted);
        }
        tree.wait_for_an_end(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_set_before_it_is_got_and_each_key_belongs_to_one_connection() {
        for protocol in [Protocol::Redis, Protocol::Memcached] {
            let (set, _) = protocol.exchange(3, 40);
            let (get, found) = protocol.exchange(3, 41);
            let value = format!("{:0100}", 20);
            assert!(set.contains(&value) && found.contains(&value), "{set} {found}");
            assert!(set.contains("3:4") && get.contains("3:4"), "{set} {get}");
            assert!(set.len().max(found.len()) <= MESSAGE_BYTES_MAX);
            assert_ne!(protocol.exchange(3, 42), protocol.exchange(4, 42));
        }
        assert_eq!(Protocol::of("nginx"), None);
    }
}
