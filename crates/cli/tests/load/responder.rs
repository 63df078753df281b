//! A server whose delays are known: chosen by the number of the request, and measured by itself.
//!
//! One thread that never sleeps serves all connections, so that no wake-up of its own is added to
//! what it gives. It ends with its last connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::run::PATIENCE;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Of a thousand requests; no quantile that is looked at lies on a step.
fn delay(number: usize) -> Duration {
    // 617 has no factor of 1,000, so all thousand remainders occur, well mixed.
    Duration::from_millis(match number * 617 % 1_000 {
        0..800 => 2,
        800..980 => 10,
        980..998 => 40,
        _ => 100,
    })
}

/// One thread for all connections.
pub(crate) struct Responder {
    pub(crate) url: String,
    serving: JoinHandle<(Vec<f64>, Duration)>,
}

impl Responder {
    /// One for so many connections.
    pub(crate) fn start(connections: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let serving = std::thread::spawn(move || {
            let clients = (0..connections).map(|_| Client::accept(&listener)).collect();
            serve(clients)
        });
        Self { url, serving }
    }

    /// The times from a request to its answer that it gave, in seconds, shortest first; once its
    /// connections have ended. And the longest time in which it looked at nothing, which a request
    /// that came meanwhile took longer than is known here.
    pub(crate) fn given_s(self) -> (Vec<f64>, f64) {
        let (mut times_s, away) = self.serving.join().expect("it served");
        times_s.sort_by(f64::total_cmp);
        (times_s, away.as_secs_f64())
    }
}

fn serve(mut clients: Vec<Client>) -> (Vec<f64>, Duration) {
    let (mut requests, mut given_s) = (0, Vec::new());
    let (mut looked, mut away) = (Instant::now(), Duration::ZERO);
    let end = looked + PATIENCE;
    while !clients.is_empty() {
        clients.retain_mut(|client| client.continues(&mut requests, &mut given_s));
        away = away.max(looked.elapsed());
        looked = Instant::now();
        assert!(looked < end, "its clients stay");
    }
    (given_s, away)
}

struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    /// When the request was there, and how long its answer takes.
    asked: Option<(Instant, Duration)>,
}

impl Client {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().expect("a client");
        stream.set_nodelay(true).expect("set");
        stream.set_nonblocking(true).expect("set");
        Self { stream, head: Vec::new(), asked: None }
    }

    /// Whether it is still there.
    fn continues(&mut self, requests: &mut usize, given_s: &mut Vec<f64>) -> bool {
        let Some((began, delay)) = self.asked else { return self.read(requests) };
        let took = began.elapsed();
        if took < delay {
            return true;
        }
        self.asked = None;
        // Before the answer leaves: then nobody can have it earlier than is booked here.
        given_s.push(took.as_secs_f64());
        self.stream.write_all(ANSWER).is_ok()
    }

    fn read(&mut self, requests: &mut usize) -> bool {
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(len) => self.head.extend_from_slice(&bytes[..len]),
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        if self.head.ends_with(b"\r\n\r\n") {
            self.head.clear();
            self.asked = Some((Instant::now(), delay(*requests)));
            *requests += 1;
        }
        true
    }
}
