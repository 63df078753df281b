//! A loop in a thread and a blocking peer in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::lines::{Lines, Shared};
use pollux_engine::{
    Counters, Driver, Group, GroupConfig, GroupError, Limits, ListenAddress, Listeners,
};

/// How long anything may take before a test fails. Only a failure takes that long: a machine on
/// which twenty processes want two CPUs needs more than half a minute for the long ones.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

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
