//! TCP mode: every byte arrives in both directions, ends are passed on by direction, cuts as cuts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use pollux_engine::{Counter, Driver};
use pollux_http::{ProxyHeader, ProxyVersion};
use pollux_server::config::{Mode, ProxyConfig};
use pollux_server::{Fault, ProxyCounter};
use pollux_testing::uninterrupted;

use crate::identity::pattern;
use crate::{Backend, Client, Proxy, on_every_driver, unreachable};

/// More than all buffers on the way take.
const MANY_BYTES: usize = 24 << 20;

fn tcp(config: &mut ProxyConfig) {
    config.frontends[0].mode = Mode::Tcp;
}

/// On every driver, through pipes and through buffers.
fn on_both_ways(backends: &[SocketAddr], test: impl Fn(Driver, &Proxy)) {
    for pipes_max in [1024, 0] {
        let set = |config: &mut ProxyConfig| {
            tcp(config);
            config.limits.pipes_max = pipes_max;
        };
        on_every_driver(backends, set, &test);
    }
}

fn read_all(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("an end");
    bytes
}

/// Sends so much, and the end, in a thread of its own.
fn upload(client: &Client, len: usize) -> JoinHandle<()> {
    let mut writing = client.socket.try_clone().expect("a descriptor");
    std::thread::spawn(move || {
        writing.write_all(&pattern(len)).expect("taken");
        writing.shutdown(Shutdown::Write).expect("open");
    })
}

#[test]
fn every_byte_arrives_both_ways_at_once_and_each_end_is_passed_on() {
    // Sends as much as it gets, while it gets it; then ends.
    let backend = Backend::start(|_, client| {
        let mut reading = client.socket.try_clone().expect("a descriptor");
        let mut writing = client.socket;
        let other = pattern((2 << 20) + 7).split_off(7);
        let writer = std::thread::spawn(move || {
            writing.write_all(&other).expect("taken");
            writing.shutdown(Shutdown::Write).expect("open");
        });
        assert!(read_all(&mut reading) == pattern(2 << 20), "what the client sent");
        writer.join().expect("all was taken");
    });
    on_both_ways(&[backend.address], |driver, proxy| {
        let client = proxy.client();
        let writer = upload(&client, 2 << 20);
        let mut reading = client.socket;
        assert!(read_all(&mut reading) == pattern((2 << 20) + 7)[7..], "{driver}");
        writer.join().expect("all was taken");
        drop(reading);
        proxy.await_that("both connections close", |proxy| proxy.open_connections() == 0);
        assert_eq!(proxy.faults(Fault::ClientGone) + proxy.faults(Fault::Cut), 0, "{driver}");
    });
}

#[test]
fn an_end_in_one_direction_leaves_the_other_one_open() {
    // Answers only behind the end of what was asked; says its own end first where that is asked.
    let backend = Backend::start(|_, mut client| {
        let mut first = [0];
        client.socket.read_exact(&mut first).expect("a byte");
        if first == *b"b" {
            client.send("greeting");
            client.end();
            assert_eq!(client.rest(), "late words");
            return;
        }
        let asked = client.rest();
        client.send(format!("behind the end of {asked}"));
    });
    on_both_ways(&[backend.address], |driver, proxy| {
        let mut client = proxy.client();
        client.send("aquestion");
        client.end();
        assert_eq!(client.rest(), "behind the end of question", "{driver}");
        let mut client = proxy.client();
        client.send("b");
        assert_eq!(client.rest(), "greeting", "{driver}");
        client.send("late words");
        client.end();
        proxy.await_that("all connections close", |proxy| proxy.open_connections() == 0);
    });
}

#[test]
fn a_reader_that_takes_nothing_stops_the_sender_and_nothing_is_lost() {
    let (go, goes) = channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    let backend = Backend::start(move |_, mut client| {
        goes.lock().expect("whole").recv().expect("the test continues");
        let got = read_all(&mut client.socket);
        client.send(format!("{} {}", got.len(), got == pattern(MANY_BYTES)));
    });
    on_both_ways(&[backend.address], |driver, proxy| {
        let mut client = proxy.client();
        let writer = upload(&client, MANY_BYTES);
        proxy.await_that("a full socket", |proxy| proxy.count_of_engine(Counter::SendsShort) > 0);
        go.send(()).expect("the backend waits");
        assert_eq!(client.rest(), format!("{MANY_BYTES} true"), "{driver}");
        writer.join().expect("all was taken");
    });
}

/// Ends when it has said as much as it was sent.
fn echo() -> Backend {
    Backend::start(|_, client| {
        let mut reading = client.socket.try_clone().expect("a descriptor");
        let mut writing = client.socket;
        let _ = std::io::copy(&mut reading, &mut writing);
        let _ = writing.shutdown(Shutdown::Write);
    })
}

/// Sends so much to an echo, and reads it back meanwhile.
fn exchange(client: Client, len: usize) {
    let writer = upload(&client, len);
    let mut reading = client.socket;
    assert!(read_all(&mut reading) == pattern(len), "{len} bytes");
    writer.join().expect("all was taken");
}

#[test]
fn bytes_of_streams_stay_in_the_kernel() {
    const LEN: usize = 4 << 20;
    let backend = echo();
    on_every_driver(&[backend.address], tcp, |driver, proxy| {
        exchange(proxy.client(), LEN);
        proxy.await_that("both connections close", |proxy| proxy.open_connections() == 0);
        let spliced = proxy.count_of_engine(Counter::BytesSpliced);
        assert_eq!(spliced, 2 * LEN as u64, "{driver}: both ways");
        assert_eq!(proxy.count_of_engine(Counter::BytesIn), spliced, "{driver}: and nothing else");
        assert_eq!(proxy.count_of_engine(Counter::BytesOut), spliced, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::PipesMissing), 0, "{driver}");
    });
}

#[test]
fn streams_that_find_no_pipe_go_through_buffers() {
    // Takes nothing of the first streams, which hold what pipes there are, before the others are through.
    let (go, goes) = channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    let backend = Backend::start(move |_, mut client| {
        let mut kind = [0];
        client.socket.read_exact(&mut kind).expect("a byte");
        if kind == *b"s" {
            goes.lock().expect("whole").recv().expect("the test continues");
        }
        let got = read_all(&mut client.socket);
        client.send(format!("{} {}", got.len(), got == pattern(got.len())));
    });
    let one = |config: &mut ProxyConfig| {
        tcp(config);
        config.limits.pipes_max = 1;
    };
    on_every_driver(&[backend.address], one, |driver, proxy| {
        let mut slow = proxy.client();
        slow.send("s");
        let writer = upload(&slow, MANY_BYTES);
        proxy.await_that("a full socket", |proxy| proxy.count_of_engine(Counter::SendsShort) > 0);
        let mut other = proxy.client();
        other.send("x");
        other.send(pattern(1 << 20));
        other.end();
        assert_eq!(other.rest(), format!("{} true", 1 << 20), "{driver}");
        assert!(proxy.count(ProxyCounter::PipesMissing) > 0, "{driver}");
        go.send(()).expect("the backend waits");
        assert_eq!(slow.rest(), format!("{MANY_BYTES} true"), "{driver}");
        writer.join().expect("all was taken");
        assert!(proxy.count_of_engine(Counter::BytesSpliced) > 0, "{driver}");
    });
}

fn is_reset(client: &mut Client) -> bool {
    let read = client.socket.read_exact(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn a_cut_is_a_cut_on_the_other_side_and_a_backend_that_is_not_there_costs_a_try() {
    // Unread input makes the kernel reset the connection (tcp(7), RFC 2525 2.17).
    let backend = Backend::start(|_, client| {
        uninterrupted(|| client.socket.peek(&mut [0])).expect("a byte");
    });
    on_both_ways(&[unreachable(), backend.address], |driver, proxy| {
        for _ in 0..4 {
            let mut client = proxy.client();
            client.send("x");
            assert!(is_reset(&mut client), "{driver}");
        }
        assert!(proxy.count(ProxyCounter::Retries) >= 1, "{driver}");
        proxy.await_that("no connection is left", |proxy| proxy.open_connections() == 0);
    });
    on_both_ways(&[unreachable()], |driver, proxy| {
        let mut client = proxy.client();
        assert!(is_reset(&mut client), "{driver}");
        proxy.await_that("it is counted", |proxy| proxy.faults(Fault::ConnectFailed) == 1);
        proxy.await_that("no connection is left", |proxy| proxy.open_connections() == 0);
    });
}

#[test]
fn a_stream_is_announced_and_passes_an_announcement_on() {
    let backend = Backend::start(|_, mut client| {
        let line = client.until("\r\n");
        client.send(line);
    });
    let announced = |config: &mut ProxyConfig| {
        tcp(config);
        config.frontends[0].accepts_header = true;
        config.groups[0].sends_header = Some(ProxyVersion::V1);
    };
    on_every_driver(&[backend.address], announced, |driver, proxy: &Proxy| {
        let mut client = proxy.client();
        let at = |text: &str| text.parse().expect("an address");
        let header = ProxyHeader::of(Some(at("10.9.8.7:6")), Some(at("10.0.0.1:80")));
        let mut bytes = Vec::new();
        header.write(ProxyVersion::V2, &mut bytes);
        client.send(bytes);
        assert_eq!(client.rest(), "PROXY TCP4 10.9.8.7 10.0.0.1 6 80\r\n", "{driver}");
    });
}
