//! The baseline servers as a client sees them: they answer everything that ends in a blank line, keep and
//! close connections as they should, and never leave one open that is over.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use pollux_testing::{DEADLINE, Process, addresses, uninterrupted, wait_until};

/// A baseline server that ends with the test.
struct BaselineServer {
    process: Process,
    address: SocketAddr,
}

impl BaselineServer {
    /// The baseline server, or nothing where this machine has none, with the reason on standard error.
    fn start(name: &str, options: &[&str]) -> Option<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["lab", "baseline", name]).args(options);
        let mut process = Process::start(&mut command);
        // What says its address answers; one that may have no ring says why.
        let Some(line) = process.try_wait_for_stderr_line("http://") else {
            let reason = process.all_stderr_lines().join(" ");
            assert!(reason.contains("could not set up a ring"), "{name}: {reason}");
            pollux_testing::skip(format_args!("{name}: {reason}"));
            return None;
        };
        Some(Self { process, address: addresses(&line)[0] })
    }

    fn connect(&self) -> TcpStream {
        let connection = TcpStream::connect(self.address).expect("a connection");
        connection.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        connection
    }

    /// Everything that comes back for these bytes and an end of our side, until the baseline server's end.
    fn exchange(&mut self, bytes: &[u8]) -> String {
        let mut connection = self.connect();
        let mut answer = String::new();
        if connection.write_all(bytes).is_ok() {
            let _ = connection.shutdown(Shutdown::Write);
            let _ = connection.read_to_string(&mut answer);
        }
        answer
    }
}

fn on_every_baseline_server(options: &[&str], test: impl Fn(&mut BaselineServer)) {
    for name in ["raw-epoll", "raw-uring"] {
        if let Some(mut server) = BaselineServer::start(name, options) {
            test(&mut server);
        }
    }
}

/// Reads `count` replies with a body of 128 bytes and nothing behind them.
fn read_replies(connection: &mut TcpStream, count: usize) -> String {
    let mut text = String::new();
    let mut part = [0; 4096];
    while text.matches(&"x".repeat(128)).count() < count {
        let len = uninterrupted(|| connection.read(&mut part)).expect("more of the replies");
        assert!(len > 0, "the end after {text}");
        text.push_str(std::str::from_utf8(&part[..len]).expect("ASCII"));
    }
    text
}

#[test]
fn a_request_and_the_end_behind_it_are_both_answered() {
    on_every_baseline_server(&[], |server| {
        for requests in [1, 3] {
            let answer = server.exchange(&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(requests));
            assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), requests);
            assert!(answer.ends_with(&"x".repeat(128)));
        }
    });
}

#[test]
fn a_kept_connection_answers_requests_however_they_are_cut() {
    on_every_baseline_server(&[], |server| {
        let mut connection = server.connect();
        for part in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r"] {
            connection.write_all(part.as_bytes()).expect("written");
        }
        read_replies(&mut connection, 1);
        connection.write_all(b"\nGET / HTTP/1.1\r\n\r\n").expect("written");
        read_replies(&mut connection, 2);
    });
}

#[test]
fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
    on_every_baseline_server(&[], |server| {
        let mut connection = server.connect();
        connection.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("written");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer and the end");
        assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.contains("Connection: close"));

        let mut connection = server.connect();
        for _ in 0..2 {
            let request = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
            connection.write_all(request).expect("written");
            assert!(read_replies(&mut connection, 1).contains("Connection: keep-alive"));
        }
    });
}

#[test]
fn a_closing_baseline_server_closes_behind_each_reply() {
    on_every_baseline_server(&["--close"], |server| {
        for _ in 0..3 {
            let mut connection = server.connect();
            connection.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
            let mut answer = String::new();
            connection.read_to_string(&mut answer).expect("an answer and the end");
            assert!(answer.contains("Connection: close"), "{answer}");
        }
    });
}

/// Both answered as soon as the head of an upload had come, and took its body for requests.
#[test]
fn an_upload_is_read_to_its_end_before_it_is_answered() {
    on_every_baseline_server(&[], |server| {
        let body = "GET / HTTP/1.1\r\n\r\n".repeat(50_000);
        let head = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut connection = server.connect();
        connection.set_nonblocking(true).expect("it does not wait");
        for _ in 0..2 {
            let (first, last) = body.split_at(body.len() - 1);
            for part in [&head, first] {
                let mut rest = part.as_bytes();
                wait_until("the server to read a body", || {
                    let written = connection.write(rest).unwrap_or(0);
                    rest = &rest[written..];
                    rest.is_empty()
                });
            }
            // Another connection that is answered: the server has had its turn.
            server.exchange(b"GET / HTTP/1.1\r\n\r\n");
            assert!(connection.read(&mut [0; 64]).is_err(), "an answer before the last byte");
            connection.write_all(last.as_bytes()).expect("written");
            connection.set_nonblocking(false).expect("it waits");
            read_replies(&mut connection, 1);
            connection.set_nonblocking(true).expect("it does not wait");
        }
        let chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(server.exchange(chunked), "", "a body of unknown length ends its connection");
    });
}

#[test]
fn connections_that_end_give_their_descriptors_back() {
    on_every_baseline_server(&[], |server| {
        let fds = format!("/proc/{}/fd", server.process.id());
        let open = || std::fs::read_dir(&fds).expect("its descriptors").count();
        let held: Vec<TcpStream> = (0..20)
            .map(|_| {
                let mut connection = server.connect();
                connection.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
                read_replies(&mut connection, 1);
                connection
            })
            .collect();
        let before = open();
        drop(held);
        wait_until("the end of 20 connections", || {
            // A request of another connection gives the baseline server a turn.
            server.exchange(b"GET / HTTP/1.1\r\n\r\n");
            open() <= before - 20
        });
    });
}
