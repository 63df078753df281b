//! A broker of its own for each test, and a raw connection to one.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use pollux_testing::{DEADLINE, Process, Signal};

use crate::hosts::{CENTRE, Host};

/// Where each broker listens, on an address of its own.
const PORT: u16 = 4222;

/// Where the broker's program is.
pub(crate) fn program() -> Option<&'static str> {
    let runs = |program: &&str| {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["nats-server", "/usr/sbin/nats-server"].into_iter().find(runs)
}

/// A broker that is killed when the test is over, however it ends.
pub(crate) struct Broker {
    process: Process,
    address: IpAddr,
    words: Vec<String>,
}

impl Broker {
    /// On an address of loopback that no connection takes for its own end, so that it can listen there again.
    pub(crate) fn start(options: &[&str]) -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let number = COUNT.fetch_add(1, SeqCst);
        let address = IpAddr::V4(Ipv4Addr::new(127, 64 | high & 63, low, number));
        Self::listen(Vec::new(), address, options)
    }

    /// In the centre of hosts.
    pub(crate) fn start_in(centre: &Host) -> Self {
        let command = centre.command(program().expect("looked for before"));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| word.to_str().expect("text").to_owned()).collect();
        Self::listen(words, CENTRE, &[])
    }

    fn listen(mut words: Vec<String>, address: IpAddr, options: &[&str]) -> Self {
        if words.is_empty() {
            words.push(program().expect("looked for before").to_owned());
        }
        words.extend(["-a".to_owned(), address.to_string(), "-p".to_owned(), PORT.to_string()]);
        words.extend(options.iter().map(|option| (*option).to_owned()));
        let process = spawn(&words);
        Self { process, address, words }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}:{PORT}", self.address)
    }

    pub(crate) fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.process = spawn(&self.words);
    }

    /// A connection that speaks the protocol by hand.
    pub(crate) fn raw(&self) -> Raw {
        let stream = TcpStream::connect((self.address, PORT)).expect("the broker listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        let mut raw = Raw { stream: BufReader::new(stream), subscriptions: 0 };
        raw.line();
        raw.write(b"CONNECT {\"verbose\":false}\r\n");
        raw.settle();
        raw
    }
}

/// Starts it, and waits until it listens.
fn spawn(words: &[String]) -> Process {
    let mut command = Command::new(&words[0]);
    let mut broker = Process::start(command.args(&words[1..]).stdout(Stdio::null()));
    broker.wait_for_stderr_line("Server is ready");
    broker
}

/// What came on a raw connection.
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    pub(crate) payload: Vec<u8>,
}

/// A raw connection.
pub(crate) struct Raw {
    stream: BufReader<TcpStream>,
    subscriptions: u32,
}

impl Raw {
    pub(crate) fn subscribe(&mut self, subject: &str) {
        self.subscriptions += 1;
        self.write(format!("SUB {subject} {}\r\n", self.subscriptions).as_bytes());
        self.settle();
    }

    pub(crate) fn publish(&mut self, subject: &str, reply: &str, payload: &[u8]) {
        self.publish_or_end(subject, reply, payload).expect("the broker reads");
    }

    /// The same; `None` once the broker has closed the connection.
    pub(crate) fn publish_or_end(
        &mut self,
        subject: &str,
        reply: &str,
        payload: &[u8],
    ) -> Option<()> {
        // In one: the kernel would hold the rest back until the first part is acknowledged.
        let head = format!("PUB {subject} {reply} {}\r\n", payload.len());
        self.stream.get_mut().write_all(&[head.as_bytes(), payload, b"\r\n"].concat()).ok()
    }

    /// Waits until the broker has everything that was written.
    pub(crate) fn settle(&mut self) {
        self.write(b"PING\r\n");
        while self.line() != "PONG" {}
    }

    /// The next message: where its answer is to go, and what it holds.
    pub(crate) fn message(&mut self) -> (Option<String>, Vec<u8>) {
        self.message_or_end().expect("the broker has closed the connection")
    }

    /// The same; `None` once the broker has closed the connection.
    pub(crate) fn message_or_end(&mut self) -> Option<(Option<String>, Vec<u8>)> {
        let Message { reply, payload, .. } = self.receive()?;
        Some((reply, payload))
    }

    /// The next message, with its subject; `None` once the broker has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        loop {
            let line = self.line_or_end()?;
            let words: Vec<&str> = line.split(' ').collect();
            let (subject, reply, len) = match &*words {
                ["MSG", subject, _, len] => (*subject, None, len),
                ["MSG", subject, _, reply, len] => (*subject, Some((*reply).to_owned()), len),
                ["PING"] => {
                    self.stream.get_mut().write_all(b"PONG\r\n").ok()?;
                    continue;
                }
                _ => continue,
            };
            let subject = subject.to_owned();
            return Some(Message { subject, reply, payload: self.payload(len) });
        }
    }

    /// Whether a whole read has to be made for the next message.
    pub(crate) fn is_drained(&self) -> bool {
        self.stream.buffer().is_empty()
    }

    fn payload(&mut self, len: &str) -> Vec<u8> {
        let mut bytes = vec![0; len.parse::<usize>().expect("a length") + 2];
        self.stream.read_exact(&mut bytes).expect("the whole message");
        bytes.truncate(bytes.len() - 2);
        bytes
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the broker reads");
    }

    fn line(&mut self) -> String {
        self.line_or_end().expect("the broker has closed the connection")
    }

    fn line_or_end(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.stream.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
        Some(String::from_utf8(line).expect("text").trim_end().to_owned())
    }
}
