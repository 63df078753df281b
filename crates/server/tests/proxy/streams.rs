//! TCP mode: every byte arrives in both directions, ends are passed on by direction, cuts as cuts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;

use pollux_http::{ProxyHeader, ProxyVersion};
use pollux_server::proxy::{Fault, Mode, ProxyConfig, ProxyCounter};

use crate::stage::{Backend, Client, Proxy, nobody, on_every_driver};

/// More than all buffers on the way take.
const MANY_BYTES: usize = 24 << 20;

fn tcp(config: &mut ProxyConfig) {
    config.frontends[0].mode = Mode::Tcp;
}

/// Bytes whose place shows: position modulo a prime.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed) % 251) as u8).collect()
}

fn read_all(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("an end");
    bytes
}

#[test]
fn every_byte_arrives_both_ways_at_once_and_each_end_is_passed_on() {
    // Sends as much as it gets, while it gets it; then ends.
    let backend = Backend::start(|_, client| {
        let mut reading = client.socket.try_clone().expect("a descriptor");
        let mut writing = client.socket;
        let writer = std::thread::spawn(move || {
            writing.write_all(&pattern(2 << 20, 7)).expect("taken");
            writing.shutdown(Shutdown::Write).expect("open");
        });
        let got = read_all(&mut reading);
        assert_eq!(got, pattern(2 << 20, 3), "what the client sent");
        writer.join().expect("all was taken");
    });
    on_every_driver(&[backend.address], tcp, |driver, proxy| {
        let client = proxy.client();
        let mut reading = client.socket.try_clone().expect("a descriptor");
        let mut writing = client.socket;
        let writer = std::thread::spawn(move || {
            writing.write_all(&pattern(2 << 20, 3)).expect("taken");
            writing.shutdown(Shutdown::Write).expect("open");
        });
        assert_eq!(read_all(&mut reading), pattern(2 << 20, 7), "{driver}");
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
    on_every_driver(&[backend.address], tcp, |driver, proxy| {
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
fn who_takes_nothing_stops_who_sends_and_nothing_is_lost() {
    let (go, goes) = channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    let backend = Backend::start(move |_, mut client| {
        goes.lock().expect("whole").recv().expect("the test goes on");
        let got = read_all(&mut client.socket);
        client.send(format!("{} {}", got.len(), got == pattern(MANY_BYTES, 0)));
    });
    on_every_driver(&[backend.address], tcp, |driver, proxy| {
        let client = proxy.client();
        let mut writing = client.socket.try_clone().expect("a descriptor");
        let writer = std::thread::spawn(move || {
            writing.write_all(&pattern(MANY_BYTES, 0)).expect("taken");
            writing.shutdown(Shutdown::Write).expect("open");
        });
        proxy.await_that("a pause", |proxy| proxy.count(ProxyCounter::Pauses) > 0);
        go.send(()).expect("the backend waits");
        let mut client = client;
        assert_eq!(client.rest(), format!("{MANY_BYTES} true"), "{driver}");
        writer.join().expect("all was taken");
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
        client.socket.peek(&mut [0]).expect("a byte");
    });
    on_every_driver(&[nobody(), backend.address], tcp, |driver, proxy| {
        for _ in 0..4 {
            let mut client = proxy.client();
            client.send("x");
            assert!(is_reset(&mut client), "{driver}");
        }
        assert!(proxy.count(ProxyCounter::Retries) >= 1, "{driver}");
        proxy.await_that("no connection is left", |proxy| proxy.open_connections() == 0);
    });
    on_every_driver(&[nobody()], tcp, |driver, proxy| {
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
