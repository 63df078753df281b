//! What a server does for its process: signals reopen logs and end it, and the error log says what costs clients time
//! or answers. The tests lower the descriptor limit and send signals to this process, so they take turns.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pollux_engine::{Counter, GroupError, ListenAddress, Signal, Signals};
use pollux_server::{Server, ServerError};
use pollux_settings::Given;
use pollux_testing::{DEADLINE, skip, wait_for, wait_until};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{
    Resource, Rlimit, Signal as Number, getpid, getrlimit, kill_process, setrlimit,
};
use tempfile::TempDir;

/// Answered with a head alone.
const HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// Where the loops accept in different ways.
const DRIVERS: [&str; 2] = ["epoll-et", "uring"];
/// More than the accepts that a ring has armed, which keep the limit of the time they were made.
const LATE: usize = 6;

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server and its error log.
struct Logged {
    server: Server,
    address: SocketAddr,
    log: PathBuf,
    _folder: TempDir,
}

impl Logged {
    fn start(config: &str) -> Self {
        Self::start_on("epoll-et", config).expect("every kernel has it")
    }

    /// None where the kernel does not allow io_uring.
    fn start_on(driver: &str, config: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("errors");
        let text = format!(
            "{config}\npoller = \"{driver}\"\nlisten = \"127.0.0.1:0\"\nerror_log = {log:?}\n\
             log_level = \"info\""
        );
        let config = Given::from_toml(&text, "test").read().expect("right");
        let server = match Server::start(&config) {
            Ok(server) => server,
            Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
                skip(format_args!("{driver}: {reason}"));
                return None;
            }
            Err(error) => panic!("{driver}: {error}"),
        };
        let ListenAddress::Tcp(address) = server.addresses()[0].clone() else { panic!("TCP") };
        Some(Self { server, address, log, _folder: folder })
    }

    fn connect(&self) -> TcpStream {
        ready(TcpStream::connect(self.address).expect("connected"))
    }

    /// Looks until the log says `what`; how often it says so then.
    fn await_line(&mut self, what: &str) -> usize {
        wait_for(format_args!("\"{what}\" in {}", self.log.display()), || {
            self.server.observe();
            Some(read(&self.log).matches(what).count()).filter(|times| *times > 0)
        })
    }

    /// Ends the server; what the log says then.
    fn end(self) -> String {
        self.server.abort();
        self.server.join().expect("ended");
        read(&self.log)
    }
}

fn ready(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).expect("it was opened")
}

/// Asks and reads a head.
fn ask(stream: &mut TcpStream, request: &[u8]) -> String {
    stream.write_all(request).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte of a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

#[test]
fn a_full_server_says_so_once_and_names_the_setting() {
    let _turn = alone();
    for driver in DRIVERS {
        let config = "reply = 0\nmax_connections = 2";
        let Some(mut logged) = Logged::start_on(driver, config) else { continue };
        let mut open: Vec<TcpStream> = (0..3).map(|_| logged.connect()).collect();
        assert!(ask(&mut open[1], GET).starts_with("HTTP/1.1 200"));
        let full = "warn: connections are full, 2 of 2: others wait unanswered; raise \
                    --max-connections, now 2; the descriptor limit of ";
        assert_eq!(logged.await_line(full), 1, "{driver}");
        // The third takes the place of the first, and the server is as full as before.
        open.remove(0);
        assert!(ask(&mut open[1], GET).starts_with("HTTP/1.1 200"));
        logged.server.observe();
        assert_eq!(logged.await_line(full), 1, "{driver}");
        drop(open);
        logged.await_line("info: there is room for connections again: ");
        let text = logged.end();
        assert_eq!(text.lines().count(), 2, "{driver}: {text}");
    }
}

#[test]
fn a_server_without_descriptors_says_what_was_answered_and_why() {
    let _turn = alone();
    let site = tempfile::tempdir().expect("a folder");
    std::fs::write(site.path().join("page"), "hello").expect("written");
    for driver in DRIVERS {
        let Some(mut logged) = Logged::start_on(driver, &format!("dir = {:?}", site.path())) else {
            continue;
        };
        let request = b"HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut early = logged.connect();
        assert!(ask(&mut early, HEAD).starts_with("HTTP/1.1 403"));
        let socket = |_| rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let late: Result<Vec<OwnedFd>, _> = (0..LATE).map(socket).collect();
        let late = late.expect("descriptors are left");
        let limit = getrlimit(Resource::Nofile);
        // Nothing is closed meanwhile, so no number below it is free.
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).expect("less");
        let refused = ask(&mut early, request);
        for socket in &late {
            rustix::net::connect(socket, &logged.address).expect("the backlog takes it");
        }
        let counters = &logged.server.overview().loops[0].engine;
        wait_until("a pause of accepting", || counters.value(Counter::AcceptPauses) > 0);
        logged.server.observe();
        setrlimit(Resource::Nofile, limit).expect("as before");
        assert!(refused.starts_with("HTTP/1.1 503"), "{driver}: {refused}");
        assert!(refused.contains("Retry-After: 1\r\n"), "{driver}: {refused}");
        logged.await_line("warn: /page was answered with 503: Too many open files (os error 24); ");
        logged.await_line(
            "connections open: Too many open files (os error 24); raise the descriptor",
        );
        // The client that waited is served in the end.
        for socket in late {
            let head = ask(&mut ready(TcpStream::from(socket)), request);
            assert!(head.starts_with("HTTP/1.1 200"), "{driver}: {head}");
        }
        logged.end();
    }
}

#[test]
fn lines_that_the_access_log_lost_are_reported_once_a_minute_with_the_reason() {
    let _turn = alone();
    let mut logged = Logged::start("reply = 0\naccess_log = \"/dev/full\"");
    let mut client = logged.connect();
    ask(&mut client, GET);
    logged.await_line("warn: the access log /dev/full lost 1 line: No space left on device");
    for _ in 0..5 {
        ask(&mut client, GET);
        logged.server.observe();
    }
    assert_eq!(logged.await_line("the access log /dev/full lost"), 1);
    let text = logged.end();
    assert!(text.contains("/dev/full lost 5 lines"), "the rest at the end: {text}");
}

#[test]
fn a_client_that_speaks_tls_is_reported_once_a_minute() {
    let _turn = alone();
    let mut logged = Logged::start("reply = 0");
    for _ in 0..3 {
        let mut client = logged.connect();
        client.write_all(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03").expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer and the end");
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let expected = "warn: 127.0.0.1 speaks TLS, which this server does not: use http://";
    assert_eq!(logged.await_line(expected), 1);
    assert!(logged.end().contains("2 more like this (clients that speak TLS)"));
}

#[test]
fn signals_reopen_the_log_then_drain_then_end() {
    let _turn = alone();
    reopen_then_drain_then_end([Number::HUP, Number::TERM, Number::TERM]);
}

/// As scripts that were made for nginx send them.
#[test]
fn signals_of_nginx_reopen_the_log_and_drain_as_there() {
    let _turn = alone();
    reopen_then_drain_then_end([Number::USR1, Number::QUIT, Number::QUIT]);
}

fn reopen_then_drain_then_end([reopens, drains, ends]: [Number; 3]) {
    let send = |number| kill_process(getpid(), number).expect("sent");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let old = folder.path().join("old");
    let old_errors = folder.path().join("old-errors");
    let errors = folder.path().join("errors");
    let text = format!(
        "reply = 5\nlisten = \"127.0.0.1:0\"\naccess_log = {log:?}\nerror_log = {errors:?}\n\
         log_level = \"info\""
    );
    let config = Given::from_toml(&text, "test").read().expect("right");
    let mut signals = Signals::catch(&Signal::ALL).expect("caught");
    let server = Server::start(&config).expect("started");
    let ListenAddress::Tcp(address) = server.addresses()[0].clone() else { panic!("TCP") };

    let client = std::thread::spawn(move || {
        let mut stream = ready(TcpStream::connect(address).expect("connected"));
        ask(&mut stream, HEAD);
        std::fs::rename(&log, &old).expect("renamed");
        std::fs::rename(&errors, &old_errors).expect("renamed");
        send(reopens);
        // Each request gives the loop a turn to notice the signal.
        for file in [&log, &errors] {
            wait_until(format_args!("a new {}", file.display()), || {
                ask(&mut stream, HEAD);
                file.exists()
            });
        }
        let message = std::fs::read_to_string(&old_errors).expect("read");
        assert!(message.contains("info: opening the logs again"), "{message}");
        assert!(!std::fs::read_to_string(&old).expect("read").is_empty());

        // It costs no connection, and is reported.
        send(Number::USR2);
        wait_until("a line of it", || {
            ask(&mut stream, HEAD);
            std::fs::read_to_string(&errors).expect("read").contains("warn: SIGUSR2 is ignored")
        });

        // Half a request keeps a draining server until the second signal.
        stream.write_all(&GET[..9]).expect("sent");
        let mut idle = ready(TcpStream::connect(address).expect("connected"));
        ask(&mut idle, HEAD);
        send(drains);
        let end = idle.read_to_end(&mut Vec::new());
        assert_eq!(end.expect("the end of an idle connection"), 0);
        send(ends);
        assert!(stream.read_to_end(&mut Vec::new()).map_or(true, |read| read == 0));
    });
    server.run(&mut signals).expect("ended by a signal");
    client.join().expect("the client saw what it should");
}
