//! Brokers of all kinds, a raw connection to one, and what a broker and its other clients may do to the bridges.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, Process, Signal, wait_for, wait_until};
use pollux_xatmi::client::{CallError, CallFlags};
use pollux_xatmi::error::Code;

use crate::{Plan, Pool, content, text};

/// The time limit of a call that is to fail.
const LIMIT: Duration = Duration::from_secs(1);
const CALLERS: usize = 6;
/// TPSUCCESS and TPEXIT.
const EXIT: &str = "Pollux-Rval: 134217730";

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
    port: u16,
    options: Vec<String>,
}

impl Broker {
    pub(crate) fn start(options: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        Self { process: spawn(port, &options), port, options }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn start_again(&mut self) {
        self.process = spawn(self.port, &self.options);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// A connection that speaks the protocol by hand.
    pub(crate) fn raw(&self) -> Raw {
        let stream =
            wait_for("the broker listens", || TcpStream::connect(("127.0.0.1", self.port)).ok());
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let mut raw = Raw { stream: BufReader::new(stream) };
        raw.line();
        raw.write(
            b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nPING\r\n",
        );
        assert_eq!(raw.line(), "PONG");
        raw
    }
}

fn spawn(port: u16, options: &[String]) -> Process {
    let mut command = Command::new(program().expect("looked for before"));
    command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).args(options);
    Process::start(command.stdout(Stdio::null()))
}

/// A raw connection.
pub(crate) struct Raw {
    stream: BufReader<TcpStream>,
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) reply: Option<String>,
    /// Headers and payload.
    pub(crate) bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn subscribe(&mut self, subject: &str, group: &str) {
        self.write(format!("SUB {subject} {group} 1\r\nPING\r\n").as_bytes());
        assert_eq!(self.line(), "PONG");
    }

    /// Publishes headers (each a line) and a payload.
    pub(crate) fn publish(&mut self, subject: &str, reply: &str, headers: &[&str], payload: &[u8]) {
        let mut head = b"NATS/1.0\r\n".to_vec();
        for header in headers {
            head.extend_from_slice(header.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let (head_len, all_len) = (head.len(), head.len() + payload.len());
        self.write(format!("HPUB {subject} {reply} {head_len} {all_len}\r\n").as_bytes());
        self.write(&head);
        self.write(payload);
        self.write(b"\r\n");
    }

    /// Publishes without headers.
    pub(crate) fn publish_bare(&mut self, subject: &str, payload: &[u8]) {
        self.write(format!("PUB {subject} {}\r\n", payload.len()).as_bytes());
        self.write(payload);
        self.write(b"\r\n");
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Came {
        loop {
            let line = self.line();
            if line == "PING" {
                self.write(b"PONG\r\n");
                continue;
            }
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let (numbers, is_message) = match words.first() {
                Some(&"MSG") => (1, true),
                Some(&"HMSG") => (2, true),
                _ => (0, false),
            };
            assert!(is_message, "{line}");
            let reply = (words.len() == 4 + numbers).then(|| words[3].to_owned());
            let len: usize = words.last().expect("a length").parse().expect("a number");
            let mut bytes = vec![0; len + 2];
            self.stream.read_exact(&mut bytes).expect("a message");
            bytes.truncate(len);
            return Came { reply, bytes };
        }
    }

    /// What the broker says next; `None` when it hung up.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            read => {
                read.expect("a line");
                Some(line.trim_end().to_owned())
            }
        }
    }

    fn line(&mut self) -> String {
        self.try_line().expect("the broker is there")
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the broker reads");
    }
}

/// A broker that is stopped in mid-load: each call ends within its time, with a documented error.
pub(crate) fn stands_still() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client_of("ECHO");
    let hello = text("hello");

    let (is_over, has_timed_out) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let load = || {
            let mut client = there.client();
            client.set_timeout(LIMIT);
            while !is_over.load(Relaxed) {
                let began = Instant::now();
                if let Err(error) = client.call("ECHO", &hello, CallFlags::NONE) {
                    let known = [Code::Time, Code::ServiceError, Code::NoEntry];
                    assert!(known.contains(&error.code()), "{error}");
                    has_timed_out.fetch_or(error.code() == Code::Time, Relaxed);
                }
                let took = began.elapsed();
                assert!(took < LIMIT + DEADLINE, "{took:?}");
            }
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(load)).collect();
        broker.signal(Signal::STOP);
        wait_until("a call's time is over", || has_timed_out.load(Relaxed));
        broker.signal(Signal::CONT);
        wait_for("calls are answered again", || client.call("ECHO", &hello, CallFlags::NONE).ok());
        is_over.store(true, Relaxed);
        for caller in callers {
            caller.join().expect("each call ended in time");
        }
    });
    drop(client);
    here.end();
    there.end();
}

/// Name and password are taken from the address; wrong ones stand in the log, the right ones nowhere.
pub(crate) fn wants_a_password() {
    let broker = Broker::start(&["--user", "teller", "--pass", "s3cret"]);
    let with = |login: &str| broker.url().replace("nats://", &format!("nats://{login}@"));
    let (right, wrong) = (with("teller:s3cret"), with("teller:gues5"));
    let here = Pool::start(&Plan {
        name: "h",
        nats: &right,
        exports: "ECHO",
        services: "ECHO",
        ..Plan::EMPTY
    });
    let there = Pool::start(&Plan { name: "t", nats: &right, services: "OTHER", ..Plan::EMPTY });
    let locked_out =
        Pool::start(&Plan { name: "w", nats: &wrong, services: "OTHER", ..Plan::EMPTY });
    let mut client = there.client();
    let answer = wait_for("the service is there", || {
        client.call("ECHO", &text("hello"), CallFlags::NONE).ok()
    });
    assert_eq!(content(&answer), b"hello\0");
    wait_for("the log says why", || {
        locked_out.log().to_lowercase().contains("authorization").then_some(())
    });
    for pool in [&here, &there, &locked_out] {
        let log = pool.log();
        assert!(!log.contains("s3cret") && !log.contains("gues5"), "{log}");
    }
    let mut client = locked_out.client();
    let error = client.call("ECHO", &text("hello"), CallFlags::NONE).expect_err("no such service");
    assert_eq!(error.code(), Code::NoEntry);
    drop(client);
    [here, there, locked_out].into_iter().for_each(Pool::end);
}

/// A client of the broker that is not a bridge sends what no bridge would.
pub(crate) fn unknown_senders_disturb_no_call() {
    let broker = Broker::start(&[]);
    let [here, there] = Pool::pair(&broker.url());
    let mut client = there.client_of("ECHO");
    let hello = text("hello");
    let bridges = [here.bridges(), there.bridges()];
    let mut raw = broker.raw();

    garbage(&mut raw);
    let answer = client.call("ECHO", &hello, CallFlags::NONE).expect("an answer");
    assert_eq!(content(&answer), b"hello\0");

    // A pool that there is not offers a service, and answers as it likes.
    raw.subscribe("pollux.test.call.STRANGE", "bridges");
    let list = br#"{"pool":"strange","services":["STRANGE"],"refresh_s":60}"#;
    raw.publish_bare("pollux.test.news", list);
    let (ok, reply) = (None, "Pollux-Reply: 1");
    let said: [(&[&str], &[u8], Option<Code>); 7] = [
        (&[reply, EXIT, "Pollux-Urcode: 5"], b"", ok),
        (&["Pollux-Request: 1", EXIT, "Pollux-Urcode: 5"], b"", Some(Code::ServiceError)),
        (&[reply, "Pollux-Error: 4711"], b"", Some(Code::ServiceError)),
        (
            &[reply, EXIT, "Pollux-Urcode: 5", "Pollux-Type: UBF", "Pollux-Size: 64"],
            b"no fields",
            Some(Code::ServiceError),
        ),
        (
            &[reply, EXIT, "Pollux-Urcode: 5", "Pollux-Type: CARRAY", "Pollux-Size: 99999999999"],
            b"x",
            Some(Code::ServiceError),
        ),
        (&["Pollux-Reply: 9", EXIT, "Pollux-Urcode: 5"], b"", Some(Code::ServiceError)),
        (&[], b"\x00\xff", Some(Code::ServiceError)),
    ];
    for (headers, payload, expected) in said {
        let called = std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                wait_for("the service is known", || {
                    match client.call("STRANGE", &hello, CallFlags::NONE) {
                        Err(error) if error.code() == Code::NoEntry => None,
                        ended => Some(ended),
                    }
                })
            });
            let asked = raw.next();
            let inbox = asked.reply.expect("it waits for an answer");
            // A reply to another call comes first, and is dropped.
            raw.publish(&format!("{inbox}9"), "", &[reply, EXIT, "Pollux-Urcode: 6"], b"");
            raw.publish(&inbox, "", headers, payload);
            call.join().expect("it ended")
        });
        assert_eq!(called.as_ref().err().map(CallError::code), expected, "{headers:?}");
        if let Ok(answer) = called {
            assert_eq!(answer.urcode, 5);
        }
    }
    client.call("ECHO", &hello, CallFlags::NONE).expect("an answer");
    assert_eq!([here.bridges(), there.bridges()], bridges, "no bridge was started anew");
    wait_until("the log counts them", || here.log().contains("none of a bridge's"));
    drop(client);
    here.end();
    there.end();
}

/// On all subjects of the domain: no headers, wrong headers, replies for requests, answers that lead
/// back to where they came from.
fn garbage(raw: &mut Raw) {
    let call = "pollux.test.call.ECHO";
    let long = vec![0xff; 900_000];
    for payload in [&b""[..], b"\x00\x01\xff", b"[[[[", &long] {
        for subject in [call, "pollux.test.news", "pollux.test.list"] {
            raw.publish_bare(subject, payload);
            raw.publish(subject, call, &["Pollux-Type: UBF", "Pollux-Size: 1000000"], payload);
            raw.publish(subject, subject, &["Pollux-Reply: 1", EXIT, "Pollux-Urcode: 0"], payload);
        }
    }
    let sized = ["Pollux-Request: 1", "Pollux-Type: CARRAY", "Pollux-Size: 67108864"];
    raw.publish(call, call, &sized, b"x");
    let without_end = "Pollux-Timeout-Ms: 18446744073709551615";
    raw.publish(call, "pollux.test.news", &["Pollux-Request: 1", without_end], b"");
}
