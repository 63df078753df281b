//! A group of loops in their threads, whose sessions speak a small protocol that uses everything a session can do, and
//! blocking peers in front of it.
//!
//! | line | answer |
//! |---|---|
//! | `echo TEXT` | the line |
//! | `big N` | N bytes, of which each call sends what there is room for |
//! | `file OFFSET LEN` | a range of the shared file, behind the word `file` |
//! | `pause` | stops reading until a deadline 20 ms later, then says `resumed` |
//! | `later` | wakes itself, then says `woken` |
//! | `close`, `linger`, `abort` | the end of that kind |

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{
    Actions, CloseCause, Counters, Driver, FileRange, Group, GroupConfig, GroupError, Limits,
    ListenAddress, Listeners, Moment, Session,
};

/// How long anything may take before a test fails. Only a failure takes that long: a machine on
/// which twenty processes want two CPUs needs more than half a minute for the long ones.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// What the sessions of one loop share.
pub(crate) struct Shared {
    pub(crate) file: File,
    pub(crate) causes: Vec<CloseCause>,
}

pub(crate) struct Lines {
    sent: usize,
    until: usize,
    is_paused: bool,
}

impl Lines {
    /// A prime, so that an exchange would show.
    pub(crate) const PERIOD: usize = 251;

    /// The bytes of `big`: the position in a period.
    pub(crate) fn byte(position: usize) -> u8 {
        (position % Self::PERIOD) as u8
    }

    fn answer(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, line: &str) -> bool {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match word {
            "big" => {
                (self.sent, self.until) = (0, number() as usize);
                self.send_more(actions);
                return true;
            }
            "file" => {
                actions.send(b"file\n");
                let file = OwnedFd::from(shared.file.try_clone().expect("a descriptor is left"));
                actions.send_file(FileRange { file, offset: number(), len: number() });
                actions.notify_when_sent();
                return true;
            }
            "pause" => {
                actions.pause_input();
                self.is_paused = true;
                actions.set_deadline(actions.now().at + Duration::from_millis(20));
                return true;
            }
            "later" => {
                actions.wake(actions.id());
                actions.pause_input();
                return true;
            }
            "close" => actions.close(),
            "linger" => actions.linger(),
            "abort" => actions.abort(),
            _ => {
                actions.send(line.as_bytes());
                actions.send(b"\n");
            }
        }
        matches!(word, "close" | "linger" | "abort")
    }

    fn send_more(&mut self, actions: &mut Actions<'_>) {
        let len = actions.room().min(self.until - self.sent);
        for (at, byte) in actions.spare()[..len].iter_mut().enumerate() {
            *byte = Self::byte(self.sent + at);
        }
        actions.advance(len);
        self.sent += len;
        actions.notify_when_sent();
    }
}

impl Session for Lines {
    type Shared = Shared;

    fn accepted(_: &mut Shared, actions: &mut Actions<'_>) -> Self {
        actions.send(b"hello\n");
        Self { sent: 0, until: 0, is_paused: false }
    }

    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        let mut used = 0;
        while let Some(len) = input[used..].iter().position(|byte| *byte == b'\n') {
            if actions.room() < len + 1 {
                actions.notify_when_sent();
                break;
            }
            let line = String::from_utf8_lossy(&input[used..used + len]).into_owned();
            used += len + 1;
            if self.answer(shared, actions, &line) {
                break;
            }
        }
        used
    }

    fn on_end(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.send(b"bye\n");
        actions.close();
    }

    fn on_output_sent(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        if self.sent < self.until {
            self.send_more(actions);
        }
    }

    fn on_deadline(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        assert_eq!(actions.deadline(), Moment::NEVER, "a deadline that fired is not set");
        if std::mem::take(&mut self.is_paused) {
            actions.send(b"resumed\n");
            actions.resume_input();
        }
    }

    fn on_wake(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        actions.send(b"woken\n");
        actions.resume_input();
    }

    fn on_shutdown(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
        // An answer that has begun is finished first.
        if self.sent == self.until {
            actions.send(b"drained\n");
            actions.close();
        }
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        shared.causes.push(cause);
    }
}

/// A group of `Lines` servers, and what it has closed.
pub(crate) struct Server {
    pub(crate) group: Option<Group>,
}

/// What is served by `file`: 300,000 bytes.
pub(crate) fn file() -> File {
    let path = std::env::temp_dir().join(format!("pollux-loops-{}", std::process::id()));
    let bytes: Vec<u8> = (0..300_000).map(Lines::byte).collect();
    // Written once by the first test that needs it; all write the same.
    if std::fs::metadata(&path).map_or(0, |found| found.len()) != bytes.len() as u64 {
        let part = path.with_extension(format!("{:?}", std::thread::current().id()));
        std::fs::write(&part, &bytes).expect("the temporary folder takes a file");
        std::fs::rename(&part, &path).expect("moved into place");
    }
    File::open(&path).expect("just written")
}

/// The drivers that this machine has. One that is missing is named, or fails the test.
pub(crate) fn drivers() -> Vec<Driver> {
    let is_there = |driver: &Driver| match Server::start(*driver, 1, Listeners::Single, |_| {}) {
        Ok(_) => true,
        Err(GroupError::Loop(reason)) => {
            pollux_testing::skip(format_args!("{driver}: {reason}"));
            false
        }
        Err(other) => panic!("{driver}: {other}"),
    };
    Driver::ALL.into_iter().filter(is_there).collect()
}

impl Server {
    pub(crate) fn start(
        driver: Driver,
        threads: usize,
        listeners: Listeners,
        adjust: impl FnOnce(&mut Limits),
    ) -> Result<Self, GroupError> {
        // A peer that the machine keeps waiting is not a slow one.
        let mut limits = Limits { write_timeout: 2 * DEADLINE, ..Limits::default() };
        adjust(&mut limits);
        let config = GroupConfig {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            driver,
            threads,
            listeners,
            cpus: None,
            delays_small_writes: false,
            limits,
        };
        let group = Group::start::<Lines, _, std::io::Error>(&config, |_| {
            Ok(Shared { file: file(), causes: Vec::new() })
        })?;
        Ok(Self { group: Some(group) })
    }

    pub(crate) fn of(driver: Driver) -> Self {
        Self::start(driver, 1, Listeners::Single, |_| {}).expect("the driver is there")
    }

    pub(crate) fn group(&self) -> &Group {
        self.group.as_ref().expect("not stopped yet")
    }

    pub(crate) fn counters(&self, index: usize) -> Arc<Counters> {
        Arc::clone(&self.group().views()[index].counters)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let ListenAddress::Tcp(address) = &self.group().addresses()[0] else { panic!("TCP") };
        let peer = TcpStream::connect(address).expect("connected");
        peer.set_read_timeout(Some(DEADLINE)).expect("set");
        peer.set_write_timeout(Some(DEADLINE)).expect("set");
        peer
    }

    /// Sends `request`, ends the output, and reads to the end.
    pub(crate) fn talk(&self, request: &[u8]) -> Vec<u8> {
        let mut peer = self.connect();
        peer.write_all(request).expect("written");
        peer.shutdown(std::net::Shutdown::Write).expect("ended");
        read_all(&mut peer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.abort();
            let outcome = group.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "{outcome:?}");
        }
    }
}

/// What comes until the peer ends; a reset ends it too.
pub(crate) fn read_all(peer: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match peer.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("after {} bytes: {error}", all.len()),
    }
    all
}

/// Reads exactly `len` bytes.
pub(crate) fn read(peer: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    peer.read_exact(&mut bytes).expect("the bytes come");
    bytes
}
