//! The counters of a server, read from its metrics endpoint.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::child::PATIENCE;

/// All values at one moment.
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) fn read(stats: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(stats).expect("the metrics endpoint listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        Self(page)
    }

    /// The sum over all loops and labels of `pollux_{name}`.
    ///
    /// # Panics
    /// When there is no such counter: one that could not be read is not 0.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        self.sum_of(name, "")
    }

    /// The same over all loops for one label, as `cause="session"`.
    pub(crate) fn sum_of(&self, name: &str, label: &str) -> u64 {
        let head = format!("pollux_{name}{{");
        let is_meant = |line: &&str| line.starts_with(&head) && line.contains(label);
        let lines = self.0.lines().filter(is_meant);
        let values: Vec<u64> = lines
            .map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()))
            .map(|value| value.expect("a count"))
            .collect();
        assert!(!values.is_empty(), "no {head} in\n{}", self.0);
        values.iter().sum()
    }

    /// What is not 0, in lines.
    pub(crate) fn shown(&self) -> String {
        let is_shown = |line: &&str| line.starts_with("pollux_") && !line.ends_with(" 0");
        self.0.lines().filter(is_shown).collect::<Vec<_>>().join("\n")
    }
}
