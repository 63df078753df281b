//! The server before the conformance suite of HTTP/2, `h2spec`, in its strict form; and what an urgent answer waits for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use pollux_engine::{Counter, Driver};
use pollux_server::Server;
use pollux_server::tls::Keys;
use pollux_testing::{DEADLINE, has, uninterrupted, wait_until};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::identity::{ClientStream, Identity};
use crate::{address, client, end, start_on};

/// Runs the suite; what it says at its end.
fn suite(address: SocketAddr, more: &[&str]) -> String {
    let ip = address.ip().to_string();
    let port = address.port().to_string();
    // A busy machine may be slow; what is as expected is seen at once.
    let flags = ["--strict", "--timeout", "2", "--host", &ip, "--port", &port];
    let mut command = Command::new("h2spec");
    let output = command.args(flags).args(more).output().expect("it was found");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn passes_all(server: Server, more: &[&str]) {
    let said = suite(address(&server), more);
    assert!(said.contains("146 tests, 146 passed, 0 skipped, 0 failed"), "{said}");
    end(server);
}

#[test]
fn all_tests_of_h2spec_pass_in_clear_text_and_in_tls() {
    if !has("h2spec") {
        return;
    }
    let identity = Identity::make();
    let Keys { cert, key } = identity.keys();
    for driver in Driver::ALL {
        if let Some(server) = start_on(driver.name(), "reply = 128") {
            passes_all(server, &[]);
        }
        let encrypted = format!("reply = 128\ncert = {cert:?}\nkey = {key:?}");
        if let Some(server) = start_on(driver.name(), &encrypted) {
            passes_all(server, &["--tls", "--insecure"]);
        }
    }
}

/// What answers there makes no difference to the protocol.
#[test]
fn all_tests_of_h2spec_pass_against_files_and_an_echo() {
    if !has("h2spec") {
        return;
    }
    let identity = Identity::make();
    let Keys { cert, key } = identity.keys();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "x".repeat(128)).expect("written");
    for driver in ["epoll-et", "uring"] {
        for answer in ["echo = true".to_owned(), format!("dir = {:?}", folder.path())] {
            if let Some(server) = start_on(driver, &answer) {
                passes_all(server, &[]);
            }
            let encrypted = format!("{answer}\ncert = {cert:?}\nkey = {key:?}");
            if let Some(server) = start_on(driver, &encrypted) {
                passes_all(server, &["--tls", "--insecure"]);
            }
        }
    }
}

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
            let len = uninterrupted(|| self.socket.read(&mut room)).expect("the server says more");
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
    let mut before = 0;
    let mut same = 0;
    wait_until("a full socket", || {
        let sent =
            server.overview().loops.iter().map(|each| each.engine.value(Counter::BytesOut)).sum();
        same = if sent == before && sent > 0 { same + 1 } else { 0 };
        before = sent;
        same == 100
    });
}

#[test]
fn an_urgent_answer_is_behind_little_of_a_large_one() {
    const ROOM: usize = 64 * 1024;
    for driver in Driver::ALL {
        let Some(server) = start_on(driver.name(), "reply = \"64MiB\"") else { continue };
        let socket = client(&server);
        set_socket_recv_buffer_size(&socket, ROOM).expect("set");
        let mut raw = Raw::begin(socket, 1 << 30);
        raw.send(&asking(1, 7));
        await_full(&server);
        raw.send(&asking(3, 0));
        let asked =
            || server.overview().loops.iter().map(|each| each.server.requests_total()).sum::<u64>();
        wait_until("the second request", || asked() == 2);
        let mut bytes = 0;
        loop {
            let (kind, _, stream, payload) = raw.frame();
            match kind {
                1 if stream == 3 => break,
                0 => bytes += payload.len(),
                _ => {}
            }
        }
        assert!(bytes < 1 << 20, "{driver}: an urgent answer is behind {bytes} bytes");
        drop(raw);
        end(server);
    }
}

/// Reads until so many streams have ended by DATA; says how many records of TLS they came in.
fn records_of(stream: &mut ClientStream, answers: usize) -> usize {
    let mut raw = Vec::new();
    let mut plain = Vec::new();
    let mut room = [0; 1 << 14];
    while ended_streams(&plain) < answers {
        let len = uninterrupted(|| stream.sock.read(&mut room)).expect("answers");
        assert!(len > 0, "the server has closed");
        raw.extend_from_slice(&room[..len]);
        let mut rest = &room[..len];
        while !rest.is_empty() {
            stream.conn.read_tls(&mut rest).expect("memory takes it");
            let state = stream.conn.process_new_packets().expect("sound");
            let at = plain.len();
            plain.resize(at + state.plaintext_bytes_to_read(), 0);
            stream.conn.reader().read_exact(&mut plain[at..]).expect("it is there");
        }
    }
    let mut records = 0;
    while let [_, _, _, high, low, behind @ ..] = &raw[..] {
        records += 1;
        raw = behind[(usize::from(*high) << 8) + usize::from(*low)..].to_vec();
    }
    records
}

/// How many frames of DATA with the end of a stream there are.
fn ended_streams(mut plain: &[u8]) -> usize {
    let mut ended = 0;
    while let [_, high, low, kind, flags, _, _, _, _, behind @ ..] = plain {
        ended += usize::from((*kind, flags & 1) == (0, 1));
        plain = behind.get((usize::from(*high) << 8) + usize::from(*low)..).unwrap_or_default();
    }
    ended
}

/// As many requests as a burst has, in one record of TLS.
#[test]
fn a_burst_in_tls_is_answered_in_one_record_and_one_output() {
    const BURST: usize = 16;
    let identity = Identity::make();
    let Keys { cert, key } = identity.keys();
    for driver in Driver::ALL {
        let settings = format!("reply = 128\ncert = {cert:?}\nkey = {key:?}");
        let Some(server) = start_on(driver.name(), &settings) else { continue };
        let mut stream = identity.connect_by(address(&server), b"h2");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
        let counted = |counter| {
            server.overview().loops.iter().map(|each| each.engine.value(counter)).sum::<u64>()
        };
        let full_receives = || counted(Counter::Receives) - counted(Counter::ReceivesEmpty);
        let mut ids = (1..).step_by(2);
        let mut ask = || {
            let burst: Vec<u8> = ids.by_ref().take(BURST).flat_map(|id| asking(id, 3)).collect();
            stream.write_all(&burst).expect("sent");
            records_of(&mut stream, BURST)
        };
        // With the first one come the first words of the server, and tickets.
        ask();
        let before = (counted(Counter::Sends), full_receives());
        for burst in 0..4 {
            assert_eq!(ask(), 1, "{driver}: records of burst {burst}");
        }
        wait_until("all is counted", || counted(Counter::Sends) >= before.0 + 4);
        let after = (counted(Counter::Sends), full_receives());
        assert_eq!((after.0 - before.0, after.1 - before.1), (4, 4), "{driver}");
        drop(stream);
        end(server);
    }
}
