//! Why a connection did not come about: the fault that it counts as, and the words that are shown.
//!
//! Only the first failure of a run is put into words; all are counted.

use std::io;
use std::time::Duration;

use pollux_engine::ListenAddress;
use rustls::CertificateError::{
    ApplicationVerificationFailure, Expired, ExpiredContext, NotValidForName,
    NotValidForNameContext, NotValidYet, NotValidYetContext,
};

use crate::Plan;
use crate::render::date;
use crate::tally::Fault;
use crate::trust::is_of_the_issuer;

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
    Handshake(&'a rustls::Error),
    /// The server ended the connection in the handshake.
    Ended,
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

    /// What `cause` counts as.
    pub(crate) fn fault(&self, cause: &Cause<'_>) -> Fault {
        match cause {
            Cause::System(error) => Fault::of_connect(error),
            Cause::Timeout => Fault::Timeout,
            Cause::Handshake(_) | Cause::Ended => Fault::Tls,
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
            (Cause::Handshake(error), name) => {
                self.tls(name.as_deref().unwrap_or_default(), &handshake(error))
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

/// Why the handshake failed, and the remedy where there is one.
fn handshake(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    match error {
        error if is_of_the_issuer(error) => {
            "the certificate's authority is unknown; give its certificate with --cacert FILE, or \
             --insecure to accept any"
                .to_owned()
        }
        InvalidCertificate(NotValidForNameContext { expected, presented }) => format!(
            "the certificate is for {}, not \"{}\"; ask for the name that it is for, or give \
             --insecure",
            names(presented),
            expected.to_str()
        ),
        InvalidCertificate(NotValidForName) => {
            "the certificate is for another name; ask for that, or give --insecure".to_owned()
        }
        InvalidCertificate(ExpiredContext { not_after, .. }) => format!(
            "the certificate expired on {}; renew it, or give --insecure",
            date(not_after.as_secs() as f64)
        ),
        InvalidCertificate(Expired) => {
            "the certificate has expired; renew it, or give --insecure".to_owned()
        }
        InvalidCertificate(NotValidYetContext { not_before, .. }) => format!(
            "the certificate is valid from {} on only; check the clock, or give --insecure",
            date(not_before.as_secs() as f64)
        ),
        InvalidCertificate(NotValidYet) => {
            "the certificate is not valid yet; check the clock, or give --insecure".to_owned()
        }
        InvalidCertificate(ApplicationVerificationFailure) => {
            "the certificate was not accepted; --insecure accepts any".to_owned()
        }
        InvalidCertificate(other) => {
            format!("the certificate can't be believed: {other}; --insecure accepts any")
        }
        InvalidMessage(_) => "the server does not speak TLS (is it http://?)".to_owned(),
        AlertReceived(alert) => format!("the server refused with the alert {alert:?}"),
        other => other.to_string(),
    }
}

/// `DnsName("a")` and `IpAddress(::1)`, as rustls shows names, in quotes; the first few of them.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 3;
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        format!("\"{}\"", inner.unwrap_or(name).trim_matches('"'))
    };
    let shown: Vec<String> = presented.iter().take(SHOWN).map(bare).collect();
    match presented.len() {
        0 => "no name".to_owned(),
        len if len > SHOWN => format!("{} and {} more", shown.join(", "), len - SHOWN),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_certificates_are_bare_and_few() {
        let presented = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<String> = presented(&["DnsName(\"a\")", "IpAddress(::1)", "b", "c", "d"]);
        assert_eq!(names(&all), "\"a\", \"::1\", \"b\" and 2 more");
        assert_eq!(names(&all[..1]), "\"a\"");
        assert_eq!(names(&[]), "no name");
    }
}
