//! A broker of NATS of its own for each test, and a client of it in the test's hands, which may say what no other would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::{DEADLINE, Process, uninterrupted, wait_for};

/// Why tests with a broker can't run on this machine, if they can't.
#[must_use]
pub fn broker_missing() -> Option<&'static str> {
    program().is_none().then_some("nats-server is not installed")
}

/// Where the broker's program is.
fn program() -> Option<&'static str> {
    let runs = |program: &&str| {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["nats-server", "/usr/sbin/nats-server"].into_iter().find(runs)
}

/// A broker that is killed when the test is over, however it ends.
#[derive(Debug)]
pub struct Broker {
    process: Process,
    port: u16,
    options: Vec<String>,
}

impl Broker {
    /// One that listens, on a port of its own.
    ///
    /// # Panics
    /// Where there is none ([`broker_missing`]), or when it does not come up.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let broker = Self { process: spawn(port, &options), port, options };
        drop(broker.connect());
        broker
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Ends it without a word to its clients.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it at the same port; returns before it listens.
    pub fn start_again(&mut self) {
        self.process = spawn(self.port, &self.options);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// A connection that speaks the protocol by hand.
    ///
    /// # Panics
    /// When the broker does not let it in.
    #[must_use]
    pub fn raw(&self) -> RawClient {
        let stream = self.connect();
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let mut raw = RawClient { stream: BufReader::new(stream) };
        raw.line();
        raw.write(b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n");
        raw.settle();
        raw
    }

    fn connect(&self) -> TcpStream {
        wait_for("the broker listens", || TcpStream::connect(("127.0.0.1", self.port)).ok())
    }
}

fn spawn(port: u16, options: &[String]) -> Process {
    let mut command = Command::new(program().expect("looked for before"));
    command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).args(options);
    Process::start(command.stdout(Stdio::null()))
}

/// A client of a broker that speaks the protocol by hand.
#[derive(Debug)]
pub struct RawClient {
    stream: BufReader<TcpStream>,
}

/// A message that a [`RawClient`] received.
#[derive(Debug)]
pub struct BrokerMessage {
    /// Where its answer is to go.
    pub reply: Option<String>,
    /// Headers and payload.
    pub bytes: Vec<u8>,
}

impl RawClient {
    /// Subscribes, as a member of `group` unless that is empty.
    ///
    /// # Panics
    /// As all of this type: when the broker refuses it, or is gone.
    pub fn subscribe(&mut self, subject: &str, group: &str) {
        self.write(format!("SUB {subject} {group} 1\r\n").as_bytes());
        self.settle();
    }

    /// Publishes without headers; an empty `reply` asks for no answer.
    pub fn publish(&mut self, subject: &str, reply: &str, payload: &[u8]) {
        self.write(format!("PUB {subject} {reply} {}\r\n", payload.len()).as_bytes());
        self.write(payload);
        self.write(b"\r\n");
    }

    /// The same, with headers (each a line), of which there may be none.
    pub fn publish_with(&mut self, subject: &str, reply: &str, headers: &[&str], payload: &[u8]) {
        let lines: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head = format!("NATS/1.0\r\n{lines}\r\n");
        let all_len = head.len() + payload.len();
        self.write(format!("HPUB {subject} {reply} {} {all_len}\r\n{head}", head.len()).as_bytes());
        self.write(payload);
        self.write(b"\r\n");
    }

    /// Waits until the broker has everything that was written; messages that arrive until then are dropped.
    pub fn settle(&mut self) {
        self.write(b"PING\r\n");
        while self.line() != "PONG" {}
    }

    /// The next message.
    pub fn next_message(&mut self) -> BrokerMessage {
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            // Of headers and payload together the length stands last, and that of the headers before it.
            let lengths = match *words.first().unwrap_or(&"") {
                "PING" => {
                    self.write(b"PONG\r\n");
                    continue;
                }
                "INFO" => continue,
                "MSG" => 1,
                "HMSG" => 2,
                _ => panic!("the broker said {line}"),
            };
            let reply = (words.len() == 4 + lengths).then(|| words[3].to_owned());
            let len: usize = words.last().expect("a length").parse().expect("a number");
            let mut bytes = vec![0; len + 2];
            self.stream.read_exact(&mut bytes).expect("the whole message");
            bytes.truncate(len);
            return BrokerMessage { reply, bytes };
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the broker reads");
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let read = uninterrupted(|| self.stream.read_until(b'\n', &mut line));
        assert!(read.expect("the broker is there") > 0, "the broker has closed the connection");
        String::from_utf8(line).expect("text").trim_end().to_owned()
    }
}
