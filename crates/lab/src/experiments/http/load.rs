//! What the load of one run is: the axes as numbers, the dead connections beside the active ones, and
//! the certificate that the arms show.
//!
//! Dead connections beside the active ones: the crowd of `pollux load --hold`. One process may have only so many
//! descriptors, so each has a share. They open their connections at the same time, before the first turn, and sleep
//! until the end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use pollux_doctor::FDS_SPARE;
use pollux_engine::Driver;
use pollux_host::Program;
use pollux_load::{LoadError, Protocol, Target, Trust};
use pollux_poller::Mechanism;
use pollux_sys::descriptors;
use rcgen::{CertificateParams, KeyPair, SanType};
use serde::Deserialize;

use super::super::PROCESSES;
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

/// What holds the dead connections, by its name for people.
const HOLDER: &str = "the lab's holder of dead connections (pollux load --hold)";
/// What a process says when all its connections are open and were answered once.
const READY: &str = "the crowd is set up";
/// How long one connection may take to be set up when the server looks at tens of thousands of
/// them in each turn; more than ten times what select takes on two shared CPUs.
const SET_UP_EACH: Duration = Duration::from_millis(2);
/// The same for the processes themselves, and for what they do at the end.
const SET_UP_TIME_MAX: Duration = Duration::from_secs(10);
/// A server that closes more than this share of what it should hold is not measured: it would
/// look good for the wrong reason.
const CLOSED_SHARE_MAX: f64 = 0.01;
/// Connections from one source address: far below the 28,000 ports that Linux gives out.
const PER_ADDRESS: usize = 5000;
/// First source address; the generator and the check of an answer come from 127.0.0.1.
const FIRST_ADDRESS: u32 = Ipv4Addr::new(127, 0, 0, 2).to_bits();

/// Dead connections to a server.
pub(super) struct DeadCrowd {
    holders: Vec<Program>,
    count: usize,
}

/// What became of one population, as `pollux load` prints it.
#[derive(Deserialize)]
struct Population {
    answered: usize,
    closed_by_server: usize,
    reset_by_server: usize,
}

impl DeadCrowd {
    /// Has `count` connections opened, each of which asks for `path`; each has had one answer when
    /// this returns.
    pub(super) fn open(
        count: usize,
        to: SocketAddr,
        path: &str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let limit = descriptors::Limit::here().hard;
        let each = usize::try_from(limit.saturating_sub(FDS_SPARE)).unwrap_or(usize::MAX).max(1);
        let mut holders = Vec::new();
        for (first, share) in shares(count, each) {
            let program = std::env::current_exe();
            let program = program.map_err(MeasureError::io("readlink"))?;
            let mut command = Command::new(program);
            command.arg("load").arg(format!("http://{to}{path}")).arg("--hold");
            command.args(["--dead", &share.to_string()]);
            command.args(["--source", &sources(first, share)]);
            // A ring takes seconds to let go of so many reads that are under way.
            command.args(["--poller", Mechanism::EpollEt.name()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            holders.push(Program::start(HOLDER, command)?);
        }
        let patience = patience(count);
        for holder in &mut holders {
            holder
                .wait_for_line(READY, patience, is_interrupted)
                .map_err(|error| not_open(error, count))?;
        }
        Ok(Self { holders, count })
    }

    /// The processes that hold it.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.holders.iter().map(Program::pid).collect()
    }

    /// Ends it; how many connections the server had closed until then, or in words why they are too
    /// many for a measurement.
    pub(super) fn close(
        mut self,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<usize, String>, MeasureError> {
        self.holders.iter_mut().for_each(Program::end_input);
        let mut answered = 0;
        let mut closed = 0;
        for mut holder in self.holders.drain(..) {
            if !holder.ends_within(patience(self.count), is_interrupted)? {
                return Err(holder.failed("did not end when it was asked to").into());
            }
            let failure = holder.failed("did not say what became of the crowd");
            let (text, _) = holder.output()?;
            let populations: Vec<Population> =
                serde_json::from_str(text.trim()).map_err(|_| failure)?;
            answered += populations.iter().map(|one| one.answered).sum::<usize>();
            closed += populations
                .iter()
                .map(|one| one.closed_by_server + one.reset_by_server)
                .sum::<usize>();
        }
        Ok(judged(answered, closed, self.count))
    }
}

/// That not all of them could be opened, with what helps: each waits until the server has answered it once.
fn not_open(error: pollux_host::Error, count: usize) -> MeasureError {
    match error {
        pollux_host::Error::Program { program, what } => {
            let what = format!(
                "{what}: the server did not answer {count} connections once each until then; give fewer (--dead), raise \
                 the server's limits, or run it on a quieter machine"
            );
            pollux_host::Error::Program { program, what }.into()
        }
        other => other.into(),
    }
}

/// How long opening so many may take, and closing them.
fn patience(count: usize) -> Duration {
    SET_UP_TIME_MAX + SET_UP_EACH * u32::try_from(count).unwrap_or(u32::MAX)
}

/// The source addresses of a share, so that none of them runs out of ports.
fn sources(first: usize, share: usize) -> String {
    let address = |at: usize| Ipv4Addr::from_bits(FIRST_ADDRESS + at as u32);
    let last = (first + share.max(1) - 1) / PER_ADDRESS;
    let addresses = (first / PER_ADDRESS..=last).map(|at| address(at).to_string());
    addresses.collect::<Vec<_>>().join(",")
}

fn judged(answered: usize, closed: usize, all: usize) -> Result<usize, String> {
    if answered < all {
        return Err(format!("answered only {answered} of {all} dead connections"));
    }
    if closed as f64 > all as f64 * CLOSED_SHARE_MAX {
        Err(format!("closed {closed} of {all} dead connections"))
    } else {
        Ok(closed)
    }
}

/// The first connection and the number of each process, as even as can be.
fn shares(count: usize, each: usize) -> impl Iterator<Item = (usize, usize)> {
    let holders = count.div_ceil(each);
    (0..holders).map(move |holder| {
        let first = count * holder / holders;
        (first, count * (holder + 1) / holders - first)
    })
}

/// The certificate that all arms of a job show to clients: for the address at which they listen, with its key (ECDSA P-256), in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    /// Both in one file.
    pub(super) both: PathBuf,
}

impl Certificate {
    /// The one in the job's private folder, which is made where there is none yet. Arms that start at
    /// the same time get the same.
    pub(super) fn below(scratch: &Path, address: IpAddr) -> io::Result<Self> {
        let folder = scratch.join("certificate");
        if !folder.exists() {
            let draft = scratch.join(format!("certificate-{}", std::process::id()));
            Self::write(&draft, address)?;
            if let Err(error) = fs::rename(&draft, &folder) {
                // Another arm was faster.
                fs::remove_dir_all(&draft)?;
                if !folder.exists() {
                    return Err(error);
                }
            }
        }
        Ok(Self::of(&folder))
    }

    fn of(folder: &Path) -> Self {
        let at = |name| folder.join(name);
        Self { cert: at("cert.pem"), key: at("key.pem"), both: at("both.pem") }
    }

    fn write(folder: &Path, address: IpAddr) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let files = Self::of(folder);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        let cert = params.self_signed(&key).map_err(io::Error::other)?.pem();
        let key = key.serialize_pem();
        fs::write(&files.both, format!("{cert}{key}"))?;
        fs::write(&files.key, key)?;
        fs::write(&files.cert, cert)
    }

    /// Believes this certificate alone.
    pub(super) fn trust(&self) -> Trust {
        Trust::File(self.cert.clone())
    }
}

fn fastest() -> Driver {
    let works = |driver| missing_driver(driver).map_or(Ok(()), Err);
    Driver::start_first(None, works).expect("poll is everywhere").driver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_does_not_fit_is_named_with_what_helps_and_not_by_a_flag_alone() {
        let program = HOLDER.to_owned();
        let what = "was not ready within 14.0s".to_owned();
        let said = not_open(pollux_host::Error::Program { program, what }, 2000).to_string();
        assert_eq!(
            said,
            "the lab's holder of dead connections (pollux load --hold): was not ready within 14.0s: the server \
             did not answer 2000 connections once each until then; give fewer (--dead), raise the server's \
             limits, or run it on a quieter machine"
        );
    }

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

    #[test]
    fn processes_share_the_connections_evenly() {
        let of = |count, each| shares(count, each).collect::<Vec<_>>();
        assert_eq!(of(0, 100), []);
        assert_eq!(of(100, 100), [(0, 100)]);
        assert_eq!(of(101, 100), [(0, 50), (50, 51)]);
        let many = of(60_000, 19_936);
        assert_eq!(many.iter().map(|(_, share)| share).sum::<usize>(), 60_000);
        assert_eq!(many[3], (45_000, 15_000));
    }

    #[test]
    fn a_server_that_closes_what_it_should_hold_is_not_measured() {
        assert_eq!(judged(1000, 10, 1000), Ok(10));
        assert_eq!(judged(0, 0, 0), Ok(0));
        let too_many = judged(1000, 11, 1000);
        assert_eq!(too_many, Err("closed 11 of 1000 dead connections".to_owned()));
        let too_few = judged(999, 0, 1000);
        assert_eq!(too_few, Err("answered only 999 of 1000 dead connections".to_owned()));
    }

    #[test]
    fn every_share_has_source_addresses_enough() {
        assert_eq!(sources(0, 5000), "127.0.0.2");
        assert_eq!(sources(0, 5001), "127.0.0.2,127.0.0.3");
        assert_eq!(sources(15_000, 15_000), "127.0.0.5,127.0.0.6,127.0.0.7");
    }
}
