//! The programs under `examples/`, each started and used as its user would.
//!
//! `cargo test -p pollux-engine` builds them; with `--test examples` alone they are those of the last
//! `cargo build -p pollux-engine --examples`.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_testing::{DEADLINE, Process, Refusing, Signal, uninterrupted};

/// A program that runs, and the lines that it prints.
struct Program {
    process: Process,
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
        let mut process = Process::start(&mut command);
        let lines = BufReader::new(process.take_stdout());
        Self { process, lines }
    }

    /// The next line; nothing when the program has ended.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).expect("text");
        (len > 0).then(|| line.trim_end().to_owned())
    }

    /// The rest of the next line, which begins with `word`.
    fn line_after(&mut self, word: &str) -> String {
        let line = self.line().unwrap_or_else(|| panic!("it ended instead of saying {word}"));
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("{line:?}, not {word}"));
        rest.trim_start().to_owned()
    }

    fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Everything up to the end, which is a success.
    fn end(mut self) -> Vec<String> {
        let lines = std::iter::from_fn(|| self.line()).collect();
        assert!(self.process.wait().success());
        lines
    }
}

/// The drivers that this machine has: one that is missing is named, or fails the test.
fn drivers() -> impl Iterator<Item = Driver> {
    Driver::ALL.into_iter().filter(|driver| {
        let Some(reason) = unavailable(*driver) else { return true };
        pollux_testing::skip(format_args!("{driver}: {reason}"));
        false
    })
}

/// Runs a test on every driver, on all at once: it waits for the most part.
fn on_every_driver(run: impl Fn(Driver) + Sync) {
    std::thread::scope(|scope| {
        for driver in drivers() {
            let run = &run;
            scope.spawn(move || run(driver));
        }
    });
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
    on_every_driver(|driver| {
        let mut server = Program::start("server", &[driver.name()]);
        let tcp = server.line_after("tcp");
        let udp = server.line_after("udp");
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
            assert_eq!(
                uninterrupted(|| peer.recv(&mut datagram)).expect("in time"),
                100,
                "{driver}"
            );
            assert_eq!(datagram[..100], [number; 100], "{driver}");
        }
        let counted = "1 connections, 200000 bytes, 10 datagrams";
        // The timer's lines until one has all of it.
        while server.line().expect("it still runs") != counted {}

        server.signal(Signal::TERM);
        stream.read_exact(&mut [0]).expect_err("closed by the drain");
        let last = server.end();
        assert_eq!(last[last.len() - 2..], ["SIGTERM: ending", "ended"], "{driver}: {last:?}");
        TcpStream::connect(&tcp).expect_err("it listens no more");
    });
}

#[test]
fn a_chat_on_a_unix_socket_passes_lines_on_to_all_others() {
    for driver in drivers() {
        let path =
            std::env::temp_dir().join(format!("pollux-chat-{}-{driver}", std::process::id()));
        let address = format!("unix:{}", path.display());
        let mut chat = Program::start("chat", &[&address, driver.name()]);
        assert_eq!(chat.line_after("chat"), address);
        let join = |_| {
            let peer = UnixStream::connect(&path).expect("it listens");
            peer.set_read_timeout(Some(DEADLINE)).expect("set");
            peer
        };
        let mut members: Vec<UnixStream> = (0..3).map(join).collect();
        // A client whose line reaches all others has been accepted, and so have they.
        let mut entered = 0;
        let begun = Instant::now();
        while entered < 2 {
            assert!(begun.elapsed() < DEADLINE, "{driver}: the first line reaches no other client");
            members[0].write_all(b"?\n").expect("room");
            entered = members[1..].iter_mut().filter(|peer| receives_soon(peer)).count();
        }
        for (said, speaker) in [("one\n", 0), ("two\n", 1)] {
            let (begin, end) = said.split_at(2);
            members[speaker].write_all(begin.as_bytes()).expect("room");
            members[speaker].write_all(end.as_bytes()).expect("room");
            for (number, listener) in members.iter_mut().enumerate() {
                if number != speaker {
                    assert_eq!(line_of(listener), said.trim_end(), "{driver}");
                }
            }
        }
        drop(chat);
        let _ = std::fs::remove_file(&path);
    }
}

/// Whether something comes within a moment; what comes is left there.
fn receives_soon(peer: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    poll(&mut [PollFd::new(peer, PollFlags::IN)], Some(&moment)).expect("polled") == 1
}

/// The next line that is not a question mark.
fn line_of(peer: &mut UnixStream) -> String {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        peer.read_exact(&mut byte).expect("in time");
        match byte {
            [b'\n'] if line == b"?" => line.clear(),
            [b'\n'] => return String::from_utf8(line).expect("text"),
            [other] => line.push(other),
        }
    }
}

#[test]
fn a_client_of_many_peers_asks_through_the_proxy() {
    const CONNECTIONS: &str = "200";
    for driver in drivers() {
        let mut server = Program::start("server", &[driver.name()]);
        let tcp = server.line_after("tcp");
        let mut proxy = Program::start("proxy", &[&tcp, driver.name()]);
        let address = proxy.line_after("proxy");
        let client = Program::start("client", &[&address, CONNECTIONS, driver.name()]);
        let said = client.end();
        assert_eq!(said, ["200 connections, 200 answers, 0 late, 0 refused"], "{driver}");
    }
}

/// Both directions at once, and each end after all that was said before it.
#[test]
fn the_proxy_passes_everything_on_and_then_the_end() {
    for driver in drivers() {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = upstream.local_addr().expect("bound").to_string();
        let mut proxy = Program::start("proxy", &[&address, driver.name()]);
        let mut client = TcpStream::connect(proxy.line_after("proxy")).expect("it listens");
        let (mut server, _) = upstream.accept().expect("the proxy connects");
        let (one, other): (Vec<u8>, Vec<u8>) =
            (0..3_000_000_u32).map(|number| ((number % 251) as u8, (number % 241) as u8)).unzip();
        let mut ends = Vec::new();
        for (stream, bytes) in [(&client, one.clone()), (&server, other.clone())] {
            stream.set_read_timeout(Some(DEADLINE)).expect("set");
            let mut writing = stream.try_clone().expect("a descriptor is left");
            ends.push(std::thread::spawn(move || {
                writing.write_all(&bytes).expect("it is taken");
                writing.shutdown(std::net::Shutdown::Write).expect("open");
            }));
        }
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).expect("to the end");
            all
        });
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("to the end");
        assert!(all == one, "{driver}: {} bytes came to the server", all.len());
        let all = reading.join().expect("read");
        assert!(all == other, "{driver}: {} bytes came to the client", all.len());
        ends.into_iter().for_each(|end| end.join().expect("wrote"));
    }
}

#[test]
fn the_proxy_resets_the_client_of_a_server_that_is_not_there_or_breaks() {
    let refusing = Refusing::bind();
    for driver in drivers() {
        let connect = |proxy: &mut Program| {
            let client = TcpStream::connect(proxy.line_after("proxy")).expect("it listens");
            client.set_read_timeout(Some(DEADLINE)).expect("set");
            client
        };
        let end_of = |mut client: TcpStream| {
            client.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
        };
        let mut proxy = Program::start("proxy", &[&refusing.address().to_string(), driver.name()]);
        let refused = end_of(connect(&mut proxy));
        assert_eq!(refused, Err(ErrorKind::ConnectionReset), "{driver}");

        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = upstream.local_addr().expect("bound").to_string();
        let mut proxy = Program::start("proxy", &[&address, driver.name()]);
        let mut client = connect(&mut proxy);
        let (mut server, _) = upstream.accept().expect("the proxy connects");
        server.write_all(b"a part").expect("room");
        client.read_exact(&mut [0; 6]).expect("what came before the reset");
        client.write_all(b"unread").expect("room");
        server.set_read_timeout(Some(DEADLINE)).expect("set");
        uninterrupted(|| server.peek(&mut [0])).expect("it is there");
        // With input unread: a reset.
        drop(server);
        assert_eq!(end_of(client), Err(ErrorKind::ConnectionReset), "{driver}");
    }
}

#[test]
fn the_proxy_takes_no_more_than_its_other_side_does() {
    /// Far more than the socket buffers between the two ends hold.
    const MOST: usize = 256 << 20;
    on_every_driver(|driver| {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = upstream.local_addr().expect("bound").to_string();
        let mut proxy = Program::start("proxy", &[&address, driver.name()]);
        let mut client = TcpStream::connect(proxy.line_after("proxy")).expect("it listens");
        client.set_read_timeout(Some(DEADLINE)).expect("set");
        let (mut server, _) = upstream.accept().expect("the proxy connects");
        // A write that waits this long for a client that reads nothing has filled what lies between.
        server.set_write_timeout(Some(Duration::from_millis(500))).expect("set");
        let mut written = 0;
        while written < MOST
            && let Ok(taken) = uninterrupted(|| server.write(&[b'x'; 1 << 16]))
        {
            written += taken;
        }
        assert!(
            written < MOST,
            "{driver}: {written} bytes were taken for a client that reads nothing"
        );
        server.shutdown(std::net::Shutdown::Write).expect("open");
        let read = std::io::copy(&mut client, &mut std::io::sink()).expect("to the end");
        assert_eq!(read, written as u64, "{driver}");
    });
}
