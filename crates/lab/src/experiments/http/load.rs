//! What the load of one run is: the axes as numbers. Where an experiment lacks an axis, nothing of it is asked for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fs, io};

use pollux_engine::Driver;
use pollux_load::{LoadError, Protocol, Target, Trust};

use super::super::PROCESSES;
use super::certificate::Certificate;
use super::{Generator, Role, is_http2, is_split};
use crate::arm::missing_driver;
use crate::error::MeasureError;
use crate::measure::RunSpec;

/// Different requests of a load that varies.
const VARIED: u32 = 100;

/// The axes of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// What the measured side does with a request.
    pub(super) role: Role,
    /// Connections of the generator.
    pub(super) connections: usize,
    /// Requests that one of them sends at once.
    pub(super) pipeline: usize,
    /// Which HTTP it speaks.
    pub(super) http: Protocol,
    /// Requests that a connection of HTTP/2 has under way.
    pub(super) streams: usize,
    /// Whether a connection serves more than one.
    pub(super) is_kept_alive: bool,
    /// Connections beside them that ask once and are silent then.
    pub(super) dead: usize,
    /// Whether head and body of a reply are two writes.
    pub(super) is_split: bool,
    /// Length of a reply's body.
    pub(super) reply_bytes: usize,
    /// Length of a request's body; 0 without one.
    pub(super) request_bytes: usize,
    /// What is asked for.
    pub(super) path: String,
    /// Whether requests differ: each asks for one of many things below the path.
    pub(super) is_varied: bool,
    /// What clients are shown, where they speak TLS.
    pub(super) certificate: Option<Certificate>,
    /// Whether a connection in TLS resumes the session of an earlier one.
    pub(super) is_resumed: bool,
    /// Whether the body is that of a file.
    pub(super) is_file: bool,
    /// Whether a line of each answer is written to a log.
    pub(super) is_logged: bool,
    /// Threads of the measured side.
    pub(super) threads: usize,
    /// More options of a proxy of pollux.
    pub(super) options: Vec<String>,
    /// Whether the server behind a proxy closes each connection behind its answer.
    pub(super) is_closed_behind: bool,
    /// Server processes that share the port.
    pub(super) processes: usize,
    /// What makes the load.
    pub(super) generator: Generator,
    /// Where the server listens.
    pub(super) listens_at: IpAddr,
    /// The loop that pollux makes it on, whichever server it asks: by completion where the kernel allows it,
    /// which costs a client least.
    pub(super) driver: Driver,
    /// The installed program that is the server of every arm, on the mechanism of the arm if that has one.
    pub(super) installed: Option<String>,
}

impl Load {
    /// So many kept connections, with nothing beside them.
    pub(super) fn kept(role: Role, connections: usize) -> Self {
        Self {
            role,
            connections,
            pipeline: 1,
            http: Protocol::Http1,
            streams: 1,
            is_kept_alive: true,
            dead: 0,
            is_split: false,
            reply_bytes: 128,
            request_bytes: 0,
            path: "/".to_owned(),
            is_varied: false,
            certificate: None,
            is_resumed: true,
            is_file: false,
            is_logged: false,
            threads: 1,
            options: Vec::new(),
            is_closed_behind: false,
            processes: 1,
            generator: Generator::Pollux,
            listens_at: Ipv4Addr::LOCALHOST.into(),
            driver: fastest(),
            installed: None,
        }
    }

    /// The load of a run. Where an experiment lacks an axis, nothing of it is asked for.
    pub(super) fn of(spec: &RunSpec, role: Role) -> Result<Self, MeasureError> {
        let count = |axis, otherwise| spec.axes.get(axis).map_or(otherwise, |_| spec.count(axis));
        Ok(Self {
            pipeline: count("pipeline", 1),
            http: if is_http2(&spec.axes) { Protocol::Http2 } else { Protocol::Http1 },
            streams: count("streams", 1),
            is_kept_alive: spec.axes.get("keepalive").is_none() || spec.axes.is_on("keepalive"),
            dead: count("dead", 0),
            is_split: is_split(&spec.axes),
            reply_bytes: spec.count("reply_bytes"),
            request_bytes: count("request_bytes", 0),
            path: spec.axes.word("path").unwrap_or("/").to_owned(),
            certificate: if spec.axes.is_on("encrypted") {
                Some(certificate(&spec.scratch, spec.hosts.listens_at())?)
            } else {
                None
            },
            is_resumed: spec.axes.get("resumption").is_none() || spec.axes.is_on("resumption"),
            is_file: spec.axes.is_on("file"),
            is_varied: spec.axes.is_on("differing"),
            is_logged: spec.axes.is_on("log"),
            processes: count(PROCESSES, 1),
            generator: Generator::of(&spec.axes),
            listens_at: spec.hosts.listens_at(),
            installed: spec.axes.word("program").map(str::to_owned),
            ..Self::kept(role, spec.count("connections"))
        })
    }

    /// The URL of what is asked for at `address`.
    pub(super) fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}{}", self.path)
    }

    /// What the generator chooses among, by chance, where `url` is asked for.
    pub(super) fn urls(&self, url: &str) -> Vec<String> {
        let varied = |item| format!("{url}items/{item}?page={}", item * item);
        if self.is_varied { (0..VARIED).map(varied).collect() } else { vec![url.to_owned()] }
    }

    /// How each is asked.
    pub(super) fn method(&self) -> &'static str {
        if self.request_bytes > 0 { "POST" } else { "GET" }
    }

    /// The request for `url`.
    pub(super) fn target(&self, url: &str) -> Result<Target, LoadError> {
        Ok(Target {
            method: self.method().to_owned(),
            body: self.body(),
            ..Target::parse(url, None)?
        })
    }

    /// The body of a request.
    pub(super) fn body(&self) -> Vec<u8> {
        vec![b'x'; self.request_bytes]
    }

    /// The body of a request as a file in the job's private folder, for generators that take it from one.
    pub(super) fn body_file(&self, scratch: &Path) -> io::Result<PathBuf> {
        let path = scratch.join(format!("request-{}", std::process::id()));
        fs::write(&path, self.body())?;
        Ok(path)
    }

    /// Which certificates are trusted.
    pub(super) fn trust(&self) -> Trust {
        self.certificate.as_ref().map_or_else(Trust::default, Certificate::trust)
    }

    /// Connections that the server holds at once.
    pub(super) const fn connections_at_once(&self) -> usize {
        self.connections + self.dead
    }

    /// Connections of a proxy to the server behind it, where each request has one while it is under way.
    pub(super) const fn connections_behind(&self) -> usize {
        self.connections * self.streams
    }
}

fn certificate(scratch: &Path, address: IpAddr) -> Result<Certificate, MeasureError> {
    let failed = MeasureError::setup("a certificate");
    Certificate::below(scratch, address).map_err(failed)
}

fn fastest() -> Driver {
    let works = |driver| missing_driver(driver).map_or(Ok(()), Err);
    Driver::start_first(None, works).expect("poll is everywhere").driver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_load_that_varies_differ_in_content_and_length() {
        let mut load = Load::kept(Role::PassesOn, 1);
        assert_eq!(load.urls("http://h/"), ["http://h/"]);
        load.is_varied = true;
        let mut urls = load.urls("http://h/");
        assert_eq!((urls.len(), urls[3].as_str()), (100, "http://h/items/3?page=9"));
        assert!(urls[99].len() > urls[0].len());
        urls.dedup();
        assert_eq!(urls.len(), 100);
    }
}
