//! `pollux serve` before the conformance suite of HTTP/2, `h2spec`, in its strict form; before `h2load` while it reads
//! its settings anew and ends; and what an urgent answer waits for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;

use pollux_testing::{DEADLINE, Signal, has, wait_for};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::child::{Server, alone};
use crate::daemon::Served;
use crate::encrypted::Files;

/// Runs the suite; what it says at its end.
fn suite(address: SocketAddr, more: &[&str]) -> String {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    // A busy machine may be slow; what is as expected is seen at once.
    let flags = ["--strict", "--timeout", "2", "--host", &ip, "--port", &port];
    let mut command = Command::new("h2spec");
    let output = command.args(flags).args(more).output().expect("it was found");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn passes_all(server: &Server, more: &[&str]) {
    let said = suite(server.address, more);
    assert!(said.contains("146 tests, 146 passed, 0 skipped, 0 failed"), "{said}");
}

#[test]
fn all_tests_of_h2spec_pass_in_clear_text_and_in_tls() {
    if !has("h2spec") {
        return;
    }
    let files = Files::make();
    for driver in DRIVERS {
        if let Some(server) = Server::start(driver, &["--reply", "128"]) {
            passes_all(&server, &[]);
        }
        if let Some(server) = files.serve(driver, &["--reply", "128"]) {
            passes_all(&server, &["--tls", "--insecure"]);
        }
    }
}

/// What answers there makes no difference to the protocol.
#[test]
fn all_tests_of_h2spec_pass_against_files_and_an_echo() {
    if !has("h2spec") {
        return;
    }
    let (files, folder) = (Files::make(), tempfile::tempdir().expect("a folder"));
    std::fs::write(folder.path().join("index.html"), "x".repeat(128)).expect("written");
    for driver in ["epoll-et", "uring"] {
        for answer in ["--echo", folder.path().to_str().expect("text")] {
            if let Some(server) = Server::start(driver, &[answer]) {
                passes_all(&server, &[]);
            }
            if let Some(server) = files.serve(driver, &[answer]) {
                passes_all(&server, &["--tls", "--insecure"]);
            }
        }
    }
}

/// All of them: what they have in common is not tested apart.
const DRIVERS: [&str; 8] =
    ["select", "poll", "aio", "epoll", "epoll-et", "epoll-oneshot", "uring-poll", "uring"];

/// A client of HTTP/2 that sends the bytes of a test.
struct Raw {
    socket: TcpStream,
    /// What has come and was not looked at.
    input: Vec<u8>,
}

impl Raw {
    /// Says the first words, with this window for each stream and for all of them.
    fn begin(socket: TcpStream, window: u32) -> Self {
        let mut raw = Self { socket, input: Vec::new() };
        raw.socket.set_read_timeout(Some(DEADLINE)).expect("set");
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        raw.send(&[&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4][..], &window.to_be_bytes()].concat());
        raw.send(&[&[0, 0, 4, 8, 0, 0, 0, 0, 0][..], &window.to_be_bytes()].concat());
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    /// The next frame: its kind, flags, stream and payload.
    fn frame(&mut self) -> (u8, u8, u32, Vec<u8>) {
        loop {
            if let [_, high, low, kind, flags, stream @ ..] = &self.input[..]
                && let Some((stream, behind)) = stream.split_first_chunk()
                && let Some(payload) = behind.get(..(usize::from(*high) << 8) + usize::from(*low))
            {
                let found = (*kind, *flags, u32::from_be_bytes(*stream), payload.to_vec());
                self.input.drain(..9 + found.3.len());
                return found;
            }
            let mut room = [0; 1 << 16];
            let len = self.socket.read(&mut room).expect("the server says more");
            assert!(len > 0, "the server has closed");
            self.input.extend_from_slice(&room[..len]);
        }
    }
}

/// GET / of the authority a, with `priority: u=N`.
fn asking(stream: u32, urgency: u8) -> Vec<u8> {
    let block = [&b"\x82\x86\x84\x01\x01a\x00\x08priority\x03u="[..], &[urgency + b'0']].concat();
    let head = [&[0, 0, block.len() as u8, 1, 5][..], &stream.to_be_bytes()].concat();
    [head, block].concat()
}

/// Waits until a server has sent what the kernels take: what it has sent is the same many times.
fn await_full(server: &Server) {
    let (mut before, mut same) = (0, 0);
    server.await_that("a full socket", |now| {
        let sent = now.sum("loop_bytes_out_total");
        same = if sent == before && sent > 0 { same + 1 } else { 0 };
        before = sent;
        same == 20
    });
}

#[test]
fn an_urgent_answer_is_behind_little_of_a_large_one() {
    const ROOM: usize = 64 * 1024;
    for driver in DRIVERS {
        let Some(server) = Server::start(driver, &["--reply", "64MiB"]) else { continue };
        let socket = TcpStream::connect(server.address).expect("there");
        set_socket_recv_buffer_size(&socket, ROOM).expect("set");
        let mut raw = Raw::begin(socket, 1 << 30);
        raw.send(&asking(1, 7));
        await_full(&server);
        raw.send(&asking(3, 0));
        server.await_that("the second request", |now| now.sum("http_requests_total") == 2);
        let mut bytes = 0;
        loop {
            let (kind, _, stream, payload) = raw.frame();
            match kind {
                1 if stream == 3 => break,
                0 => bytes += payload.len(),
                _ => {}
            }
        }
        println!("{driver}: an urgent answer is behind {bytes} bytes");
        assert!(bytes < 1 << 20, "{driver}: {bytes} bytes");
        drop(raw);
        server.await_rest();
        server.end();
    }
}

/// What h2load says at its end of its requests.
#[derive(Debug)]
struct Load {
    total: u64,
    started: u64,
    succeeded: u64,
}

/// Has h2load ask; what it said.
fn load(address: SocketAddr, flags: &[&str]) -> JoinHandle<Load> {
    let mut command = Command::new("h2load");
    command.args(flags).arg(format!("http://{address}/"));
    std::thread::spawn(move || {
        let output = command.output().expect("it was found");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find_map(|line| line.strip_prefix("requests: "));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [total, started, _, succeeded, ..] = numbers[..] else { panic!("{said}") };
        Load { total, started, succeeded }
    })
}

const REQUESTS: &str = "20000";

#[test]
fn no_request_fails_while_settings_are_read_anew() {
    if !has("h2load") {
        return;
    }
    let _turn = alone();
    for driver in ["epoll-et", "uring"] {
        for streams in ["1", "16"] {
            let settings = |bytes: u32| format!("reply = {bytes}\npoller = \"{driver}\"\n");
            let served = Served::start(&settings(128));
            let flags = ["-n", REQUESTS, "-c", "64", "-m", streams];
            let load = load(served.address, &flags);
            let mut reloads = 0_u32;
            while !load.is_finished() {
                reloads += 1;
                served.write(&settings(128 + reloads % 2));
                served.signal(Signal::HUP);
                wait_for("a reload", || {
                    let (_, body) = served.connect().get("/");
                    (body.len() == 128 + reloads as usize % 2).then_some(())
                });
            }
            let load = load.join().expect("it ends");
            println!("{driver}: {streams} streams, {reloads} times: {load:?}");
            assert_eq!((load.total, load.succeeded), (20_000, 20_000), "{load:?}");
            served.end();
        }
    }
}

#[test]
fn a_server_that_is_ended_answers_every_request_that_was_begun() {
    if !has("h2load") {
        return;
    }
    let _turn = alone();
    for driver in ["epoll-et", "uring"] {
        for streams in ["1", "16"] {
            let folder = tempfile::tempdir().expect("a folder");
            let log = folder.path().join("log");
            let flags = ["--reply", "128", "--access-log", log.to_str().expect("a plain path")];
            let Some(server) = Server::start(driver, &flags) else { continue };
            // More than it will answer before it ends.
            let load = load(server.address, &["-n", "9000000", "-c", "64", "-m", streams]);
            server.await_that("thousands of answers", |now| now.sum("http_answers_total") > 5000);
            server.end();
            let load = load.join().expect("it ends");
            // h2load opens no connection anew, and counts what it would have sent next as begun. What has reached the server
            // stands in its log.
            let log = std::fs::read_to_string(&log).expect("a log");
            let answered = log.lines().filter(|line| line.ends_with("\" 200 128")).count() as u64;
            println!("{driver}: {streams} streams: {load:?}, {answered} in the log");
            assert!(answered > 5000 && load.started < load.total, "{load:?}");
            assert_eq!(log.lines().count() as u64, answered, "only those");
            assert_eq!(load.succeeded, answered, "{load:?}");
        }
    }
}
