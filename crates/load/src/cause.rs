//! Why a connection did not come about: the fault that it counts as, and the words that are shown.
//!
//! Only the first failure of a run is put into words; all are counted.

use std::io;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_tls::Remedies;

use crate::Plan;
use crate::tally::Fault;

/// What a user of the generator can do about a certificate.
const REMEDIES: Remedies = Remedies {
    name_authority: "--cacert FILE",
    accept_any: "--insecure",
    name_server: "ask for the name that it is for",
};

/// What ended an attempt.
#[derive(Debug)]
pub(crate) enum Cause<'a> {
    /// What `connect(2)` or a call before it said.
    System(&'a io::Error),
    /// The loop refused: it has its most connections.
    Full,
    /// It took too long, a handshake of TLS included.
    Timeout,
    /// The socket broke before it could be used.
    Broken,
    /// The handshake failed.
    Handshake(&'a pollux_tls::Error),
    /// The server ended the connection in the handshake.
    Ended,
    /// The server speaks TLS, and the URL does not.
    SpeaksTls,
}

/// An alert, which servers answer plain bytes with: the type of the record, and the version that all share.
const ALERT: [u8; 2] = [21, 3];
/// What servers say of plain requests that understand them all the same: nginx, Go's and with it Caddy, Apache.
const SAID: [&[u8]; 3] = [b"to HTTPS port", b"to an HTTPS server", b"to an SSL-enabled server"];
/// They say it within so many bytes.
const SAID_WITHIN_BYTES: usize = 4096;

/// Whether what came for a plain request says that the server speaks TLS.
#[cold]
pub(crate) fn tells_of_tls(answer: &[u8]) -> bool {
    let start = &answer[..answer.len().min(SAID_WITHIN_BYTES)];
    let says = |said: &&[u8]| start.windows(said.len()).any(|part| part == *said);
    start.starts_with(&ALERT) || SAID.iter().any(says)
}

/// Puts causes into words for one server.
#[derive(Debug)]
pub(crate) struct Blame {
    peer: ListenAddress,
    /// The name that its certificate is to have, where it is to have one.
    tls_name: Option<String>,
    connect_timeout: Duration,
}

impl Blame {
    pub(crate) fn new(plan: &Plan) -> Self {
        let target = &plan.targets[0];
        Self {
            peer: target.address.clone(),
            tls_name: target.tls_name.clone(),
            connect_timeout: plan.connect_timeout,
        }
    }

    /// Whether the URL is a plain one.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls_name.is_none()
    }

    /// What `cause` counts as.
    pub(crate) fn fault(&self, cause: &Cause<'_>) -> Fault {
        match cause {
            Cause::System(error) => Fault::of_connect(error),
            Cause::Timeout => Fault::Timeout,
            Cause::Handshake(_) | Cause::Ended | Cause::SpeaksTls => Fault::Tls,
            Cause::Broken if self.tls_name.is_some() => Fault::Tls,
            Cause::Broken | Cause::Full => Fault::Connect,
        }
    }

    /// What happened, and what to do.
    pub(crate) fn words(&self, cause: &Cause<'_>) -> String {
        match (cause, &self.tls_name) {
            (Cause::System(error), _) => self.connect(error),
            (Cause::Full, _) => self.failed("the loop has its most connections"),
            (Cause::Timeout, None) => self.failed(&format!(
                "nobody answered within {:?}; check the address, or give a longer \
                 --connect-timeout",
                self.connect_timeout
            )),
            (Cause::Broken, None) => self.failed("the connection broke; look at the server's log"),
            (Cause::Timeout, Some(name)) => self.tls(
                name,
                &format!(
                    "no answer within {:?}; does the server speak TLS (is it http://?)",
                    self.connect_timeout
                ),
            ),
            (Cause::Broken | Cause::Ended, name) => self.tls(
                name.as_deref().unwrap_or_default(),
                "the server ended the connection in the handshake; does it speak TLS (is it \
                 http://?)",
            ),
            (Cause::SpeaksTls, _) => {
                format!("the server at {} speaks TLS; use https://", self.peer)
            }
            (Cause::Handshake(error), name) => {
                self.tls(name.as_deref().unwrap_or_default(), &REMEDIES.why(error))
            }
        }
    }

    fn connect(&self, error: &io::Error) -> String {
        match Fault::of_connect(error) {
            Fault::NoDescriptor => self.failed("no descriptor is left; raise ulimit -n"),
            Fault::NoPort => {
                self.failed("no port is left; give more addresses of this machine with --source")
            }
            _ => self.failed(&format!("{error}; check that the server runs there")),
        }
    }

    fn failed(&self, why: &str) -> String {
        format!("can't connect to {}: {why}", self.peer)
    }

    fn tls(&self, name: &str, why: &str) -> String {
        let at = match &self.peer {
            ListenAddress::Tcp(address) if name.contains(':') => {
                format!("[{name}]:{}", address.port())
            }
            ListenAddress::Tcp(address) => format!("{name}:{}", address.port()),
            ListenAddress::Unix(path) => format!("{name} at {}", path.display()),
        };
        format!("TLS with {at} failed: {why}")
    }
}
