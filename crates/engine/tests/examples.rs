//! The programs under `examples/`, each started and used as its user would.
//!
//! They are included as modules would be, but run as processes: cargo builds them beside this test.
#![expect(clippy::print_stdout, reason = "a skipped driver is named")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use pollux_engine::Driver;
use rustix::process::{Pid, Signal, kill_process};

const DEADLINE: Duration = Duration::from_secs(20);

/// A program that runs, killed when the test is over.
struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Program {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let this = std::env::current_exe().expect("a path");
        let folder = this.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
        let path: PathBuf = folder.join("examples").join(name);
        assert!(path.exists(), "{}: build it with cargo build --examples", path.display());
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// The next line; nothing when the program has ended.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).expect("text");
        (len > 0).then(|| line.trim_end().to_owned())
    }

    /// The rest of the next line, which begins with `word`.
    fn says(&mut self, word: &str) -> String {
        let line = self.line().unwrap_or_else(|| panic!("it ended instead of saying {word}"));
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("{line:?}, not {word}"));
        rest.trim_start().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Everything up to the end, which is a success.
    fn end(mut self) -> Vec<String> {
        let lines = std::iter::from_fn(|| self.line()).collect();
        assert!(self.child.wait().expect("ours").success());
        lines
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The drivers that this machine has: one that is missing is named, or fails the test.
fn drivers() -> impl Iterator<Item = Driver> {
    Driver::ALL.into_iter().filter(|driver| {
        let Some(reason) = unavailable(*driver) else { return true };
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{driver}: {reason}");
        println!("{driver} is skipped: {reason}");
        false
    })
}

fn unavailable(driver: Driver) -> Option<String> {
    match driver {
        Driver::Readiness(mechanism) => mechanism.open().err().map(|error| error.to_string()),
        Driver::Completion => {
            let ring = pollux_poller::Mechanism::UringPoll.open();
            ring.err().map(|error| error.to_string())
        }
    }
}

#[test]
fn the_server_echoes_streams_and_datagrams_counts_and_ends_by_signal() {
    for driver in drivers() {
        let mut server = Program::start("server", &[driver.name()]);
        let (tcp, udp) = (server.says("tcp"), server.says("udp"));
        let mut stream = TcpStream::connect(&tcp).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        // More than one call's room, so that what comes again is echoed as well.
        let sent: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let mut writing = stream.try_clone().expect("a descriptor is left");
        let bytes = sent.clone();
        let writer = std::thread::spawn(move || writing.write_all(&bytes));
        let mut echoed = vec![0; sent.len()];
        stream.read_exact(&mut echoed).expect("all of it");
        writer.join().expect("wrote").expect("room");
        assert!(echoed == sent, "{driver}: other bytes came back");

        let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
        peer.set_read_timeout(Some(DEADLINE)).expect("set");
        peer.connect(&udp).expect("an address");
        for number in 0..10_u8 {
            assert_eq!(peer.send(&[number; 100]).expect("sent"), 100);
            let mut datagram = [0; 200];
            assert_eq!(peer.recv(&mut datagram).expect("in time"), 100, "{driver}");
            assert_eq!(datagram[..100], [number; 100], "{driver}");
        }
        let counted = "1 connections, 200000 bytes, 10 datagrams";
        // The timer's lines until one has all of it.
        while server.line().expect("it still runs") != counted {}

        server.signal(Signal::TERM);
        stream.read_exact(&mut [0]).expect_err("closed by the drain");
        let last = server.end();
        assert_eq!(last[last.len() - 2..], ["SIGTERM: ending", "ended"], "{driver}: {last:?}");
        TcpStream::connect(&tcp).expect_err("nobody listens any more");
    }
}
