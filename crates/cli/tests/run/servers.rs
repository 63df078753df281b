//! Installed programs, unmodified, on mechanisms that they know nothing of: every answer is checked.
//!
//! `POLLUX_RUN_REQUESTS=100000` asks each so often; [`REQUESTS`] where it is not set.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_host::{Program, Tree, find_program, listener_at, listens_at, threads_of};
use pollux_poller::Mechanism;
use pollux_testing::{skip, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{built, mechanisms, run, text};

/// Requests to each program on each mechanism.
const REQUESTS: u64 = 2_000;
const CONNECTIONS: u64 = 32;
/// What a program may take to start, to answer and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether it listens.
const LOOK: Duration = Duration::from_millis(10);
/// Ports that are tried, where others take them.
const STARTS_MAX: usize = 8;

fn requests() -> u64 {
    let asked = std::env::var("POLLUX_RUN_REQUESTS").ok();
    asked.map_or(REQUESTS, |asked| asked.parse().expect("a number of requests"))
}

/// The bytes of request `n`, and what comes back for it.
type Protocol = fn(u64) -> (String, Answer);

enum Answer {
    Bytes(String),
    /// An HTTP response with this body.
    Http(String),
}

fn http(n: u64) -> (String, Answer) {
    (format!("GET /{n} HTTP/1.1\r\nHost: test\r\n\r\n"), Answer::Http(format!("/{n}")))
}

fn redis(n: u64) -> (String, Answer) {
    let value = format!("value of {n}");
    let asked = format!("SET key{} \"{value}\"\r\nGET key{}\r\n", n % 1000, n % 1000);
    (asked, Answer::Bytes(format!("+OK\r\n${}\r\n{value}\r\n", value.len())))
}

fn memcached(n: u64) -> (String, Answer) {
    let key = format!("key{}", n % 1000);
    let value = format!("value of {n}");
    let asked = format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\n", value.len());
    let found = format!("STORED\r\nVALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
    (asked, Answer::Bytes(found))
}

fn line(n: u64) -> (String, Answer) {
    let line = format!("line {n}\n");
    (line.clone(), Answer::Bytes(line))
}

/// A program that serves, ended with all that it started.
struct Server {
    program: Program,
    tree: Tree,
    address: SocketAddr,
    /// Goes last.
    _folder: TempDir,
}

impl Server {
    /// Starts what `command` makes for a port and a folder, and waits until it listens there.
    fn start(name: &str, command: impl Fn(u16, &Path) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Between the look for a free port and the start another process may take it.
        for _ in 0..STARTS_MAX {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let mut command = command(address.port(), folder.path());
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let mut program = Program::start(name, command).expect("it starts");
            let mut tree = Tree::of(&[program.pid()]).expect("it is there until it is waited for");
            let start = Instant::now();
            while !program.ends_within(LOOK, &|| false).expect("a process") {
                tree.look();
                if is_at(&tree, address) {
                    return Self { program, tree, address, _folder: folder };
                }
                assert!(start.elapsed() < PATIENCE, "{}", program.failed("listens at no port"));
            }
            let owner = listener_at(address);
            assert!(owner.is_some(), "{}", program.failed("ended before it listened"));
        }
        panic!("{name}: another process took each of {STARTS_MAX} ports");
    }

    /// Asks it to end, which it does.
    fn end(mut self) {
        self.program.signal(Signal::TERM);
        let has_ended = self.program.ends_within(PATIENCE, &|| false).expect("a process");
        assert!(has_ended, "{}", self.program.failed("did not end by SIGTERM"));
        self.tree.end();
    }

    /// What its threads sleep in, as the kernel tells: never its own epoll. `None`, with the reason
    /// printed, where that can't be read.
    fn waits(&mut self) -> Option<Vec<WaitsBy>> {
        self.tree.look();
        // `pollux run` itself is not asked.
        let pids: Vec<u32> =
            self.tree.pids().into_iter().filter(|pid| *pid != self.program.pid()).collect();
        let mut waits = Vec::new();
        for (pid, tid) in threads_of(&pids) {
            match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
                Ok(said) => waits.extend(wait_of(&said)),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    skip(format!("system calls of threads can't be read: {error}"));
                    return None;
                }
                // It has ended meanwhile.
                Err(_) => {}
            }
        }
        let name = self.program.name();
        assert!(!waits.contains(&WaitsBy::Epoll), "{name}: the kernel's epoll is waited on");
        Some(waits)
    }

    /// Waits until one of its threads sleeps in what `mechanism` waits by.
    fn comes_to_wait_by(&mut self, mechanism: Mechanism) {
        let is_poll = mechanism == Mechanism::Poll;
        let expected = if is_poll { WaitsBy::Poll } else { WaitsBy::Uring };
        let what = format!("a wait of {} by {mechanism}", self.program.name());
        wait_until(what, || self.waits().is_none_or(|waits| waits.contains(&expected)));
    }

    /// Asks over several connections at the same time and checks each answer.
    fn ask(&self, name: &str, protocol: Protocol) {
        let connect = || {
            let stream = TcpStream::connect(self.address).expect("it serves");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time");
            stream.set_nodelay(true).expect("TCP");
            BufReader::new(stream)
        };
        let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| connect()).collect();
        let requests = requests();
        for first in (0..requests).step_by(CONNECTIONS as usize) {
            let round = first..requests.min(first + CONNECTIONS);
            for (n, stream) in round.clone().zip(&mut connections) {
                let sent = stream.get_mut().write_all(protocol(n).0.as_bytes());
                sent.unwrap_or_else(|error| panic!("{name}: request {n} not sent: {error}"));
            }
            for (n, stream) in round.zip(&mut connections) {
                let expected = protocol(n).1;
                let found = answer(stream, &expected);
                let found = found.unwrap_or_else(|error| panic!("{name}: answer {n}: {error}"));
                let (Answer::Bytes(expected) | Answer::Http(expected)) = expected;
                assert_eq!(found, expected, "{name}: answer {n}");
            }
        }
    }
}

/// What a thread sleeps in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitsBy {
    Epoll,
    Poll,
    Uring,
}

/// What `/proc/PID/task/TID/syscall` says of a thread: the number of its system call stands first
/// (`proc_pid_syscall(5)`).
fn wait_of(said: &str) -> Option<WaitsBy> {
    let number: i64 = said.split(' ').next()?.parse().ok()?;
    match number {
        libc::SYS_ppoll => Some(WaitsBy::Poll),
        libc::SYS_io_uring_enter => Some(WaitsBy::Uring),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Some(WaitsBy::Epoll),
        // Younger architectures have only the calls above.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Some(WaitsBy::Poll),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Some(WaitsBy::Epoll),
        _ => None,
    }
}

/// What came back, as long as expected; of HTTP the body.
fn answer(stream: &mut BufReader<TcpStream>, expected: &Answer) -> std::io::Result<String> {
    let len = match expected {
        Answer::Bytes(expected) => expected.len(),
        Answer::Http(_) => {
            let mut len = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line)?;
                match line.trim_end().to_ascii_lowercase().split_once(": ") {
                    Some(("content-length", value)) => {
                        len = value.parse().map_err(std::io::Error::other)?;
                    }
                    None if line.starts_with("HTTP/1.1 200") => {}
                    None if line == "\r\n" => break len,
                    None => return Err(std::io::Error::other(format!("{line:?}"))),
                    Some(_) => {}
                }
            }
        }
    };
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

/// Whether a program serves there. The sockets of one that has become another user can't be read in a container: where
/// nothing says that another process has the address, it is asked for a connection.
fn is_at(tree: &Tree, address: SocketAddr) -> bool {
    let listens = || listens_at(&tree.pids(), address);
    listens().unwrap_or_else(|| TcpStream::connect(address).is_ok() && listens() != Some(false))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("bound").port()
}

/// The mechanisms that have least in common with epoll.
fn others() -> impl Iterator<Item = Mechanism> {
    mechanisms().into_iter().filter(|mechanism| ["poll", "uring-poll"].contains(&mechanism.name()))
}

/// Runs an installed program on other mechanisms and asks it; `words` are its arguments, given a port and a
/// folder.
fn serves(name: &str, protocol: Protocol, words: impl Fn(u16, &Path) -> Vec<String>) {
    let Some(program) = find_program(name) else { return skip(format!("no {name}")) };
    serves_at(&program, protocol, words);
}

fn serves_at(program: &Path, protocol: Protocol, words: impl Fn(u16, &Path) -> Vec<String>) {
    for mechanism in others() {
        let mut server = serves_on(mechanism, program, protocol, &words);
        server.comes_to_wait_by(mechanism);
        server.end();
    }
}

/// Runs a program on a mechanism and asks it.
fn serves_on(
    mechanism: Mechanism,
    program: &Path,
    protocol: Protocol,
    words: impl Fn(u16, &Path) -> Vec<String>,
) -> Server {
    let name = format!("{} on {mechanism}", program.display());
    let server = Server::start(&name, |port, folder| {
        let mut command = run(&["--quiet", "--poller", mechanism.name(), "--"]);
        command.arg(program).args(words(port, folder)).current_dir(folder);
        command
    });
    server.ask(&name, protocol);
    server
}

fn split(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

/// Arguments of nginx with two workers that answers with the target of the request.
fn nginx(port: u16, folder: &Path) -> Vec<String> {
    let conf = format!(
        "daemon off; worker_processes 2; pid nginx.pid; error_log stderr error;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path body; proxy_temp_path proxy;\n\
         fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ default_type text/plain; return 200 $request_uri; }} }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), conf).expect("written");
    split(&format!("-p {0} -e stderr -c {0}/nginx.conf", folder.display()))
}

#[test]
fn nginx_with_two_workers_serves() {
    serves("nginx", http, nginx);
}

#[test]
fn haproxy_with_two_threads_serves() {
    serves("haproxy", http, |port, folder| {
        let conf = format!(
            "global\n  nbthread 2\ndefaults\n  mode http\n  timeout client 30s\n  timeout http-request 30s\n\
             frontend test\n  bind 127.0.0.1:{port}\n\
             \x20 http-request return status 200 content-type text/plain lf-string %[path]\n"
        );
        std::fs::write(folder.join("haproxy.cfg"), conf).expect("written");
        split(&format!("-db -f {}/haproxy.cfg", folder.display()))
    });
}

#[test]
fn redis_serves() {
    serves("redis-server", redis, |port, folder| {
        let dir = folder.display();
        let mut words = split(&format!("--bind 127.0.0.1 --port {port} --dir {dir} --save"));
        words.extend([String::new(), "--loglevel".to_owned(), "warning".to_owned()]);
        words
    });
}

#[test]
fn memcached_with_two_threads_serves() {
    let user = if rustix::process::getuid().is_root() { " -u nobody" } else { "" };
    serves("memcached", memcached, |port, _| {
        split(&format!("-l 127.0.0.1 -p {port} -U 0 -t 2{user}"))
    });
}

#[test]
fn node_on_libuv_serves() {
    serves("node", http, |port, _| {
        let script = format!(
            "require('http').createServer((q, r) => r.end(q.url)).listen({port}, '127.0.0.1')"
        );
        vec!["-e".to_owned(), script]
    });
}

#[test]
fn a_server_on_libevent_serves() {
    let Some((_folder, program)) = built("libevent", &["-levent"]) else { return };
    serves_at(&program, http, |port, _| vec![port.to_string()]);
}

#[test]
fn a_server_on_tokio_serves() {
    let examples = Path::new(env!("CARGO_BIN_EXE_pollux")).with_file_name("examples");
    let program = examples.join("tokio_echo");
    if !program.exists() {
        return skip("the example tokio_echo is not built (cargo build -p pollux-cli --examples)");
    }
    for mechanism in others() {
        let mut server = serves_on(mechanism, &program, line, |port, _| vec![port.to_string()]);
        // Its waker is an eventfd that is written to, never read, and watched by edge: on poll, which
        // knows no edges, a thread never sleeps from then on (`docs/reference/epoll-interface.md`).
        if mechanism == Mechanism::Poll {
            server.waits();
        } else {
            server.comes_to_wait_by(mechanism);
        }
        server.end();
    }
}

#[test]
fn a_client_on_the_event_mode_of_libcurl_is_answered() {
    let Some(server) = find_program("nginx") else { return skip("no nginx") };
    let Some((_folder, client)) = built("curl", &["-lcurl"]) else { return };
    let server = Server::start("nginx", |port, folder| {
        let mut command = Command::new(&server);
        command.args(nginx(port, folder));
        command
    });
    let port = server.address.port();
    for mechanism in others() {
        let client = client.to_str().expect("UTF-8");
        let words = ["--quiet", "--poller", mechanism.name(), "--", client];
        let output = run(&words).args([port.to_string(), requests().to_string()]).output();
        let output = output.expect("pollux starts");
        let expected = format!("{0} of {0} answers are right\n", requests());
        assert_eq!(text(&output.stdout), expected, "{mechanism}: {output:?}");
    }
    server.end();
}
